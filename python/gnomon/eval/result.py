# SPDX-License-Identifier: Apache-2.0
"""What was measured, as plain data; `Evaluation.to_dict` is the object of `gnomon eval --json` (docs/eval.md)."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import platform
import statistics
from typing import TYPE_CHECKING, Any

import gnomon

from .errors import UsageError
from .methods import GroupRule

if TYPE_CHECKING:
    import torch

    from .checkpoint import Text

SCHEMA = 1
#: What is measured of the attention of each query (docs/stats.md), as its means are called.
ATTENTION_MEANS = ("entropy", "maximum", "mean_distance", "first_mass", "window_mass")


@dataclasses.dataclass(frozen=True)
class Answer:
    """How well one question was answered."""

    task: str
    asked_at: int  # tokens read before
    distance: int
    loss: float  # nats per token (repeat) or per digit (passkey)
    first_loss: float | None  # repeat: of the same tokens at first sight
    right: bool  # every token of the answer was the likeliest one
    entropy: float | None = None  # of the attention that predicts the answer, in nats, the mean of layers and heads


@dataclasses.dataclass
class MethodResult:
    """What one method gave; it grows while the method runs."""

    method: str
    groups: list[GroupRule]
    losses: torch.Tensor | None = None  # (tokens,) nats; NaN where not measured, as the first token always is
    answers: list[Answer] = dataclasses.field(default_factory=list)
    attention: dict[str, Any] | None = None  # statistics of the first reading, where they were made
    complete: bool = False
    seconds: float = 0.0

    def bins(self, width: int) -> list[dict[str, Any]]:
        """Mean losses of the tokens at positions from <= p < to, for every bin measured in full; the last bin ends
        with the text. The first token of a text is predicted from nothing and counts nowhere."""
        if self.losses is None:
            return []
        result = []
        for begin in range(0, len(self.losses), width):
            losses = self.losses[max(begin, 1) : begin + width]
            if len(losses) and not losses.isnan().any():
                end = min(begin + width, len(self.losses))
                result.append({"from": begin, "to": end, "tokens": len(losses), "loss": losses.double().mean().item()})
        return result

    def retrieval(self) -> list[dict[str, Any]]:
        """Answers averaged over the questions of a task, a place of asking and a distance."""

        def kind(answer: Answer) -> tuple[str, int, int]:
            return answer.task, answer.asked_at, answer.distance

        rows = []
        for (task, asked_at, distance), group in itertools.groupby(sorted(self.answers, key=kind), kind):
            answers = list(group)
            row = {"task": task, "asked_at": asked_at, "distance": distance, "questions": len(answers)}
            row["loss"] = statistics.fmean(answer.loss for answer in answers)
            if task == "repeat":
                row["first_loss"] = statistics.fmean(answer.first_loss for answer in answers)
            else:
                row["right"] = sum(answer.right for answer in answers)
            if answers[0].entropy is not None:
                row["entropy"] = statistics.fmean(answer.entropy for answer in answers)
            rows.append(row)
        return rows


@dataclasses.dataclass
class Evaluation:
    """A whole evaluation: what was asked for, where it was run, and the results so far."""

    header: gnomon.Model
    own: list[GroupRule]
    trained: int | None
    text: Text
    tokens: int
    bin: int
    chunk: int
    tasks: list[str]
    numerics: str
    seed: int
    command: str
    notes: list[str]
    attention: str = "torch"  # or "gnomon", which also measures where it looks
    methods: list[MethodResult] = dataclasses.field(default_factory=list)
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "command": self.command,
            "versions": _versions(),
            "model": {
                "path": self.header.path,
                "format": self.header.format,
                "type": self.header.type,
                "trained_length": self.trained,
                "declared_length": self.header.declared,
                "groups": _groups(self.own),
            },
            "text": {
                "path": self.text.path,
                "bytes": self.text.bytes,
                "sha256": self.text.sha256,
                "start_token": self.text.start,
            },
            "tokens": self.tokens,
            "bin": self.bin,
            "chunk": self.chunk,
            "tasks": self.tasks,
            "seed": self.seed,
            "numerics": self.numerics,
            "dtype": "f32",
            "attention": self.attention,
            "notes": self.notes,
            "interrupted": self.interrupted,
            "methods": [
                {
                    "method": result.method,
                    "groups": _groups(result.groups),
                    "complete": result.complete,
                    "seconds": round(result.seconds, 3),
                    "bins": result.bins(self.bin),
                    "retrieval": result.retrieval(),
                    "attention": result.attention,
                }
                for result in self.methods
            ],
        }


def to_json(result: dict[str, Any]) -> str:
    return json.dumps(result, indent=1, allow_nan=False) + "\n"


def from_json(text: str, name: str) -> dict[str, Any]:
    """Reads what `gnomon eval --json` wrote. Raises UsageError, which calls the text `name`, for anything else."""
    try:
        result = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name}: not JSON: {error}") from error
    if not isinstance(result, dict) or result.get("schema") != SCHEMA or "methods" not in result:
        raise UsageError(f"{name}: expected a result of gnomon eval --json with schema {SCHEMA}")
    return result


def mean_loss(bins: list[dict[str, Any]], begin: float = 0, end: float = math.inf) -> float | None:
    """The mean loss over the bins that lie in begin <= p < end, None when there are none."""
    inside = [bin for bin in bins if begin <= bin["from"] and bin["to"] <= end]
    tokens = sum(bin["tokens"] for bin in inside)
    return sum(bin["loss"] * bin["tokens"] for bin in inside) / tokens if tokens else None


def _groups(groups: list[GroupRule]) -> list[dict[str, Any]]:
    return [{"layers": list(group.layers), "rotary": json.loads(group.rotary.to_json())} for group in groups]


def _versions() -> dict[str, str]:
    import torch
    import transformers

    return {
        "gnomon": gnomon.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
