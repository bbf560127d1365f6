# SPDX-License-Identifier: Apache-2.0
"""Rotary objects as text, for --rotary."""

import json


def rule(name="default", **keys):
    """A rotary object as text."""
    return json.dumps({"rule": name, "theta": 10000.0, "head_dim": 128, **keys})


DEFAULT = rule()
LLAMA3 = rule("llama3", theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
