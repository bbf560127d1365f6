# SPDX-License-Identifier: Apache-2.0
"""Gnomon: everything a Transformer knows about position.

    spec = gnomon.read_model("model.gguf").rotary()              # what the files say
    freqs = gnomon.frequencies(spec)                             # exact numbers, once
    table = gnomon.rotary_table(freqs, range(8192))              # cos and sin
    gnomon.rotate((q, k), freqs, range(8192))                    # in place, (B, H, T, D)

`gnomon.torch` rotates tensors with gradients, `gnomon.hf` puts a rule into a transformers model; both are imported by name.
"""

import sys

from gnomon._core import (
    AbsoluteSpec,
    AttentionStatistics,
    Comparison,
    Conversion,
    DistanceBias,
    Doubt,
    Drift,
    EmbeddingTable,
    Error,
    FireBias,
    Frequencies,
    Golden,
    GridBias,
    KeyIntervals,
    LayerGroup,
    Model,
    Packed,
    RotarySpec,
    RotaryTable,
    SlopeBias,
    __version__,
    absolute,
    add_positions,
    analysis,
    attention,
    attention_statistics,
    bias,
    bias_at,
    compare,
    convert,
    convert_layout,
    drift_limit,
    embed_tokens,
    embedding_table,
    frequencies,
    golden,
    kernel_target,
    key_intervals,
    layout_permutation,
    list_mistakes,
    list_rules,
    position_ids,
    read_golden,
    read_model,
    rotary,
    rotary_table,
    rotate,
    rotate_with,
    scatter_add_rows,
    verify,
)

__all__ = [
    "AbsoluteSpec",
    "AttentionStatistics",
    "Comparison",
    "Conversion",
    "DistanceBias",
    "Doubt",
    "Drift",
    "EmbeddingTable",
    "Error",
    "FireBias",
    "Frequencies",
    "Golden",
    "GridBias",
    "KeyIntervals",
    "LayerGroup",
    "Model",
    "Packed",
    "RotarySpec",
    "RotaryTable",
    "SlopeBias",
    "__version__",
    "absolute",
    "add_positions",
    "analysis",
    "attention",
    "attention_statistics",
    "bias",
    "bias_at",
    "compare",
    "convert",
    "convert_layout",
    "drift_limit",
    "embed_tokens",
    "embedding_table",
    "frequencies",
    "golden",
    "kernel_target",
    "key_intervals",
    "layout_permutation",
    "list_mistakes",
    "list_rules",
    "position_ids",
    "read_golden",
    "read_model",
    "rotary",
    "rotary_table",
    "rotate",
    "rotate_with",
    "scatter_add_rows",
    "verify",
]

# A submodule of an extension is an attribute only; this makes `from gnomon.rotary import Yarn` work too.
sys.modules["gnomon.rotary"] = rotary
sys.modules["gnomon.absolute"] = absolute
sys.modules["gnomon.bias"] = bias
sys.modules["gnomon.position_ids"] = position_ids
sys.modules["gnomon.analysis"] = analysis
