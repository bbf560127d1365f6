# SPDX-License-Identifier: Apache-2.0
"""gnomon's attention inside a transformers model, and where it looks: statistics of every layer while a text is read."""

from __future__ import annotations

import functools
from typing import Any

import numpy
import torch
import transformers

import gnomon

from .checkpoint import Checkpoint
from .errors import UsageError

#: The first keys of a text, on which attention rests that has nothing to look for (Xiao et al. 2023, arXiv:2309.17453).
FIRST_KEYS = 4
#: Keys that count as near a query, its own included.
WINDOW = 128
#: The name our function has among transformers' implementations.
NAME = "gnomon_watched"
MEANS = ("entropy", "maximum", "mean_distance", "first_mass", "window_mass")

_current: Watch | None = None


class Watch:
    """Runs gnomon's attention in the model of a checkpoint, within a `with` block, and measures its weights.

    A pass without a mask reads the text: its queries see the keys before them, within the window of their layer. A pass with a mask asks
    questions: only the entropy of its queries is kept, until `asked` hands it out. Raises UsageError for a model whose attention does not
    ask transformers for its implementation.
    """

    def __init__(self, checkpoint: Checkpoint, tokens: int):
        self._model = checkpoint.model
        self._path = checkpoint.path
        self._type = checkpoint.header.type
        groups = checkpoint.header.groups
        self._groups = {layer: group for group in groups if group.part == groups[0].part for layer in group.layers}
        self._edges = [0, *(1 << bit for bit in range((tokens - 1).bit_length() + 1))]
        self._rows: dict[int, list[numpy.ndarray]] = {}  # by layer: (means, kv_heads, queries) of each pass
        self._masses: dict[int, numpy.ndarray] = {}  # by layer: (kv_heads, bins)
        self._asked: list[numpy.ndarray] = []  # (queries) of each layer

    def __enter__(self) -> Watch:
        global _current
        self._before = self._model.config._attn_implementation
        transformers.AttentionInterface.register(NAME, _attend)
        self._model.set_attn_implementation(NAME)
        _current = self
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        self._model.set_attn_implementation(self._before)
        _current = None

    def attend(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        **options: Any,
    ) -> torch.Tensor:
        """(B,T,H,D) of q (B,H,T,D), k and v (B,Hk,S,D), and what is to be known about the weights is noted."""
        q, k, v = (x.detach().numpy() for x in (query, key, value))
        options["threads"] = torch.get_num_threads()
        if mask is None:
            group = self._groups[module.layer_idx]
            options["mask"] = _intervals(q.shape[2], k.shape[2], group.window, group.chunk)
        else:
            options["mask_tensor"] = mask.detach().numpy()
        out = query.new_empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3])
        log_sum_exp = numpy.empty(q.shape[:3], numpy.float32)
        gnomon.attention(q, k, v, out=out.transpose(1, 2).numpy(), log_sum_exp=log_sum_exp, **options)
        wanted = {"first_keys": FIRST_KEYS, "window": WINDOW, "distance_edges": self._edges}
        measured = gnomon.attention_statistics(q, k, log_sum_exp, **wanted, **options)
        if mask is None:
            self._note(module.layer_idx, k.shape[1], measured)
        else:
            self._asked.append(measured.entropy.mean((0, 1)))
        return out

    def _note(self, layer: int, kv_heads: int, measured: gnomon.AttentionStatistics) -> None:
        means = numpy.stack([getattr(measured, name)[0] for name in MEANS])  # (means, heads, queries)
        self._rows.setdefault(layer, []).append(means.reshape(len(MEANS), kv_heads, -1, means.shape[2]).mean(2))
        masses = measured.mass_by_distance[0].reshape(kv_heads, -1, len(self._edges) - 1).mean(1)
        self._masses[layer] = self._masses.get(layer, 0) + masses

    def check(self) -> None:
        """Raises UsageError unless every layer that has attention used ours in the passes so far."""
        if missing := sorted(set(self._groups) - set(self._rows)):
            raise UsageError(
                f"{self._path}: --attention gnomon: the attention of layer {missing[0]} of a {self._type} model cannot be exchanged: "
                "transformers does not look it up"
            )

    def asked(self) -> numpy.ndarray:
        """Entropy (queries) of the last questions, the mean of layers and heads."""
        entropy = numpy.mean(self._asked, 0)
        self._asked.clear()
        return entropy

    def summary(self, bin: int) -> dict[str, Any] | None:
        """What `gnomon eval --json` says about the attention of a method: means of every layer over the text read so
        far, None before any of it."""
        if not self._rows:
            return None
        return {
            "first_keys": FIRST_KEYS,
            "window": WINDOW,
            "distance_edges": self._edges,
            "layers": [self._layer(layer, bin) for layer in sorted(self._rows)],
        }

    def _layer(self, layer: int, bin: int) -> dict[str, Any]:
        rows = numpy.concatenate(self._rows[layer], 2)
        queries = rows.shape[2]
        heads = [
            {**_means(rows[:, head]), "mass_by_distance": (self._masses[layer][head] / queries).tolist()} for head in range(rows.shape[1])
        ]
        bins = [
            {"from": begin, "to": min(begin + bin, queries), **_means(rows[:, :, begin : begin + bin])} for begin in range(0, queries, bin)
        ]
        mass = (self._masses[layer].mean(0) / queries).tolist()
        return {"layer": layer, **_means(rows), "mass_by_distance": mass, "bins": bins, "kv_heads": heads}


def _means(rows: numpy.ndarray) -> dict[str, float]:
    return {name: row.mean(dtype=numpy.float64).item() for name, row in zip(MEANS, rows, strict=True)}


@functools.lru_cache(maxsize=8)
def _intervals(queries: int, keys: int, window: int | None, chunk: int | None) -> gnomon.KeyIntervals:
    return gnomon.key_intervals(queries, keys, causal=True, window=window, chunk=chunk)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function transformers calls."""
    sinks = None if s_aux is None else s_aux.detach().float().numpy()
    return _current.attend(module, query, key, value, attention_mask, scale=scaling, softcap=softcap, sink_logits=sinks), None
