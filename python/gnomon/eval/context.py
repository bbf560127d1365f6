# SPDX-License-Identifier: Apache-2.0
"""A model that reads a sequence in chunks through a cache, and answers questions without keeping them."""

from __future__ import annotations

from typing import Any

import torch

#: Rows of logits turned into losses at a time: (rows, vocabulary) in float32 stays small.
LOSS_ROWS = 256


class Context:
    """What a model has read so far. Memory grows linearly: keys and values of every token, one chunk of logits and of torch's masks."""

    def __init__(self, model: Any):
        from transformers import DynamicCache

        self._model = model
        # No config: a cache made with one drops old keys of windowed layers, and questions could not be undone.
        self._cache = DynamicCache()
        self.length = 0

    def read(self, ids: torch.Tensor, logits: bool = True) -> torch.Tensor:
        """Appends ids (T,) and returns their logits (T, vocabulary); only the last row when `logits` is false."""
        output = self._model(
            ids[None],
            position_ids=torch.arange(self.length, self.length + len(ids))[None],
            cache=self._cache,
            use_cache=True,
            logits_to_keep=0 if logits else 1,  # 0: all
        )
        self.length += len(ids)
        return output.logits[0]

    def ask(self, question: torch.Tensor) -> torch.Tensor:
        """Logits (T, vocabulary) of a question (T,) that follows what was read. Nothing is kept."""
        logits = self.read(question)
        self._cache.crop(-len(question))
        self.length -= len(question)
        return logits


def token_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """-log P(target) in nats for each row of logits (T, vocabulary): (T,) float32."""
    pieces = zip(logits.split(LOSS_ROWS), targets.split(LOSS_ROWS), strict=True)
    return torch.cat([torch.nn.functional.cross_entropy(rows, wanted, reduction="none") for rows, wanted in pieces])
