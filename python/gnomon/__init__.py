# SPDX-License-Identifier: Apache-2.0
"""Gnomon: everything a Transformer knows about position.

    spec = gnomon.read_model("model.gguf").rotary()              # what the files say
    freqs = gnomon.frequencies(spec)                             # exact numbers, once
    table = gnomon.rotary_table(freqs, range(8192))              # cos and sin
    gnomon.rotate(q, freqs, range(8192))                         # in place, (B, H, T, D)

`gnomon.torch` rotates tensors with gradients, `gnomon.hf` puts a rule into a transformers model; both are imported by name.
"""

import sys

from gnomon._core import (
    Doubt,
    Error,
    Frequencies,
    LayerGroup,
    Model,
    RotarySpec,
    RotaryTable,
    __version__,
    convert_layout,
    frequencies,
    kernel_target,
    layout_permutation,
    list_rules,
    read_model,
    rotary,
    rotary_table,
    rotate,
)

__all__ = [
    "Doubt",
    "Error",
    "Frequencies",
    "LayerGroup",
    "Model",
    "RotarySpec",
    "RotaryTable",
    "__version__",
    "convert_layout",
    "frequencies",
    "kernel_target",
    "layout_permutation",
    "list_rules",
    "read_model",
    "rotary",
    "rotary_table",
    "rotate",
]

# A submodule of an extension is an attribute only; this makes `from gnomon.rotary import Yarn` work too.
sys.modules["gnomon.rotary"] = rotary
