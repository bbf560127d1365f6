# SPDX-License-Identifier: Apache-2.0
"""A model that reads a sequence in chunks through a cache, and answers questions without keeping them."""

from __future__ import annotations

from typing import Any

import torch

from .checkpoint import Checkpoint

#: Rows of logits turned into losses at a time: (rows, vocabulary) in float32 stays small.
LOSS_ROWS = 256


class Context:
    """What a model has read so far. Memory grows linearly: keys and values of every token, one chunk of logits; with torch's attention
    also one chunk of masks. An attention that is `causal` by itself, as gnomon's is here, needs masks for questions only.
    """

    def __init__(self, checkpoint: Checkpoint, causal: bool = False):
        from transformers import DynamicCache

        self._model = checkpoint.model
        # No config: a cache made with one drops old keys of windowed layers, and questions could not be undone.
        self._cache = DynamicCache()
        self._windows = _windows(checkpoint)
        self._causal = causal
        self.length = 0

    def read(self, ids: torch.Tensor, logits: bool = True) -> torch.Tensor:
        """Appends ids (T,) and returns their logits (T, vocabulary); only the last row when `logits` is false."""
        positions = torch.arange(self.length, self.length + len(ids))
        # Without a past transformers takes the causal kernel, which needs no mask.
        mask = self._mask(positions, torch.zeros_like(positions)) if self.length and not self._causal else None
        rows = self._forward(ids, positions, mask, keep=0 if logits else 1)
        self.length += len(ids)
        return rows

    def ask(self, questions: list[torch.Tensor]) -> list[torch.Tensor]:
        """Logits (T_i, vocabulary) of each question (T_i,), as if it alone followed what was read. Nothing is kept.

        All questions go in one pass: each sees the past and itself, and starts at the same position.
        """
        lengths = [len(question) for question in questions]
        positions = torch.cat([torch.arange(self.length, self.length + length) for length in lengths])
        owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        logits = self._forward(torch.cat(questions), positions, self._mask(positions, owner))
        self._cache.crop(-sum(lengths))
        return list(logits.split(lengths))

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor, mask: Any, keep: int = 0) -> torch.Tensor:
        output = self._model(
            ids[None],
            position_ids=positions[None],
            attention_mask=mask,
            cache=self._cache,
            use_cache=True,
            logits_to_keep=keep,  # 0: all
        )
        return output.logits[0]

    def _mask(self, positions: torch.Tensor, owner: torch.Tensor) -> Any:
        """Additive masks (1,1,T,S) for new tokens at `positions`, each seeing the past and its owner's tokens.

        Additive and made once, where transformers' boolean masks are converted again in every layer.
        """
        among_new = (positions > positions[:, None]) | (owner != owner[:, None])  # (T,T), hidden
        keys = torch.cat([torch.arange(self.length), positions])

        def additive(window: int | None) -> torch.Tensor:
            mask = torch.zeros(len(positions), len(keys))
            mask[:, self.length :].masked_fill_(among_new, -torch.inf)
            if window is not None:
                mask.masked_fill_(positions[:, None] - keys >= window, -torch.inf)
            return mask[None, None]

        if isinstance(self._windows, dict):
            return {layer_type: additive(window) for layer_type, window in self._windows.items()}
        return additive(self._windows)


def token_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """-log P(target) in nats for each row of logits (T, vocabulary): (T,) float32."""
    pieces = zip(logits.split(LOSS_ROWS), targets.split(LOSS_ROWS), strict=True)
    return torch.cat([torch.nn.functional.cross_entropy(rows, wanted, reduction="none") for rows, wanted in pieces])


def _windows(checkpoint: Checkpoint) -> Any:
    """The attention window of all layers, or a dict by layer type where layers differ."""
    groups = checkpoint.header.groups
    windows = {group.window for group in groups}
    if len(windows) == 1:
        return windows.pop()
    types = checkpoint.model.config.get_text_config().layer_types
    return {types[group.layers[0]]: group.window for group in groups}
