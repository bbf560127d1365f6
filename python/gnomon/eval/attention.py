# SPDX-License-Identifier: Apache-2.0
"""Where attention looks: statistics of every layer of a model while it reads a text."""

from __future__ import annotations

import collections
from typing import Any

import numpy
import torch

import gnomon
import gnomon.hf
import gnomon.torch

from .checkpoint import Checkpoint
from .errors import UsageError
from .result import ATTENTION_MEANS

#: The first keys of a text, on which attention rests that has nothing to look for (Xiao et al. 2023, arXiv:2309.17453).
FIRST_KEYS = 4
#: Keys that count as near a query, its own included.
WINDOW = 128


class Watch:
    """gnomon's attention in the model of a checkpoint, within a `with` block, and what it looks at.

    `tokens` is the length of the text. After each pass the caller says whether it read the text (`keep`) or asked a question (`entropy`).
    Raises UsageError for a model whose attention gnomon does not know.
    """

    def __init__(self, checkpoint: Checkpoint, tokens: int):
        self._checkpoint = checkpoint
        self._edges = gnomon.doubling_edges(tokens)
        self._pass: dict[int, list[tuple[numpy.ndarray, numpy.ndarray]]] = collections.defaultdict(list)
        self._rows: dict[int, list[numpy.ndarray]] = collections.defaultdict(list)  # by layer: (means, kv_heads, queries) of each pass
        self._masses: dict[int, numpy.ndarray] = collections.defaultdict(lambda: 0)  # by layer: (kv_heads, bins)

    def __enter__(self) -> Watch:
        try:
            self._handle = gnomon.hf.enable(self._checkpoint.model, watch=self._measure)
        except (ValueError, RuntimeError) as error:
            raise UsageError(f"{self._checkpoint.path}: --attention gnomon: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.undo()

    def _measure(self, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, log_sum_exp: torch.Tensor, **options: Any) -> None:
        wanted = {"first_keys": FIRST_KEYS, "window": WINDOW, "distance_edges": self._edges}
        measured = gnomon.torch.attention_statistics(q, k, log_sum_exp, **wanted, **options)
        means = numpy.stack([getattr(measured, name)[0] for name in ATTENTION_MEANS])  # (means, heads, queries)
        groups = k.shape[1], q.shape[1] // k.shape[1]
        masses = measured.mass_by_distance[0].reshape(*groups, -1).mean(1)
        self._pass[module.layer_idx].append((means.reshape(len(ATTENTION_MEANS), *groups, -1).mean(2), masses))

    def keep(self) -> None:
        """The last pass read the text."""
        for layer, parts in self._pass.items():
            for means, masses in parts:
                self._rows[layer].append(means)
                self._masses[layer] = self._masses[layer] + masses
        self._pass.clear()

    def entropy(self) -> numpy.ndarray:
        """Of the queries (T) of the last pass, a question: the mean of layers and heads."""
        layers = [numpy.concatenate([means[0].mean(0) for means, _ in parts]) for parts in self._pass.values()]
        self._pass.clear()
        return numpy.mean(layers, 0)

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
    return {name: row.mean(dtype=numpy.float64).item() for name, row in zip(ATTENTION_MEANS, rows, strict=True)}
