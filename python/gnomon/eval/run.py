# SPDX-License-Identifier: Apache-2.0
"""The evaluation: one method after the other on a model that is loaded once."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Protocol

import torch

import gnomon.hf

from .attention import Watch
from .checkpoint import Checkpoint
from .context import Context, token_losses
from .errors import UsageError
from .methods import Method, rules
from .result import Answer, Evaluation, MethodResult
from .tasks import Question, Reading


class Observer(Protocol):
    """Who is told how far the evaluation is."""

    def begin(self, method: str, work: float) -> None: ...

    def advance(self, work: float, state: str) -> None: ...

    def end(self, result: MethodResult) -> None: ...


def evaluate(evaluation: Evaluation, checkpoint: Checkpoint, methods: list[Method], readings: list[Reading], observer: Observer) -> None:
    """Runs every method over every reading and fills in `evaluation` as it goes.

    An interruption (KeyboardInterrupt) ends it early and is noted in `evaluation`: finished bins and answers stay.
    """
    cost = Cost(checkpoint)
    work = sum(cost.reading(reading, evaluation.chunk) for reading in readings)
    try:
        for method in methods:
            result = MethodResult(method.name, rules(method, checkpoint.header, evaluation.trained, evaluation.tokens or None))
            evaluation.methods.append(result)
            observer.begin(method.name, work)
            began = time.monotonic()
            try:
                with gnomon.hf.use(checkpoint.model, checkpoint.rotary_argument(result.groups), numerics=evaluation.numerics):
                    for reading in readings:
                        watch = Watch(checkpoint, len(reading.ids)) if evaluation.attention == "gnomon" else None
                        try:
                            with watch or contextlib.nullcontext():
                                _run(result, checkpoint, reading, evaluation.chunk, watch, cost, observer)
                        finally:
                            if watch and result.attention is None:
                                result.attention = watch.summary(evaluation.bin)
                result.complete = True
            finally:
                result.seconds = time.monotonic() - began
            observer.end(result)
    except KeyboardInterrupt:
        evaluation.interrupted = True


class Cost:
    """What a pass costs, in floating-point operations: the unit of progress, so that the time left can be told although
    a token costs more the further back it looks."""

    def __init__(self, checkpoint: Checkpoint):
        header = checkpoint.header
        self._token = 2 * sum(parameter.numel() for parameter in checkpoint.model.parameters())
        self._pair = 4 * header.layers * header.heads * header.head_dim

    def tokens(self, count: int, past: int) -> float:
        """Of `count` tokens in one pass after `past` others."""
        return count * (self._token + self._pair * (past + count))

    def reading(self, reading: Reading, chunk: int) -> float:
        text = sum(self.tokens(end - begin, begin) for begin, end in chunks(reading, chunk))
        return text + sum(self.tokens(_length(asked), position) for position, asked in reading.questions.items())


def chunks(reading: Reading, chunk: int) -> list[tuple[int, int]]:
    """Ranges of at most `chunk` tokens; a range ends wherever questions are asked."""
    tokens = len(reading.ids)
    return list(itertools.pairwise(sorted({*range(0, tokens, chunk), *reading.questions, tokens})))


@torch.inference_mode()
def _run(
    result: MethodResult, checkpoint: Checkpoint, reading: Reading, chunk: int, watch: Watch | None, cost: Cost, observer: Observer
) -> None:
    context = Context(checkpoint.model)
    measured = reading.task != "passkey"  # filler says nothing about the text
    if measured:
        result.losses = torch.full(reading.ids.shape, torch.nan)
    for begin, end in chunks(reading, chunk):
        logits = context.read(reading.ids[begin:end], logits=measured)
        if watch:
            watch.keep()
        if measured:  # row p of the logits predicts token p + 1
            targets = reading.ids[begin + 1 : end + 1]
            losses = token_losses(logits[: len(targets)], targets)
            if not losses.isfinite().all():
                raise UsageError(f"{checkpoint.path}: {result.method} gives a loss that is no number at token {end}")
            result.losses[begin + 1 : end + 1] = losses
        observer.advance(cost.tokens(end - begin, begin), f"{reading.task}, token {end} of {len(reading.ids)}")
        if questions := reading.questions.get(end):
            result.answers += _answers(result, reading.task, context, questions, watch)
            observer.advance(cost.tokens(_length(questions), end), f"{reading.task}, asked at {end}")


def _answers(result: MethodResult, task: str, context: Context, questions: list[Question], watch: Watch | None) -> list[Answer]:
    answers = []
    for question in questions:
        logits = context.ask(question.ids)
        entropy = watch.entropy() if watch else None
        wanted, logits = question.ids[-question.asked :], logits[-question.asked - 1 : -1]
        first = None
        if question.first is not None:
            first = result.losses[question.first : question.first + question.asked].sum().item() / question.units
        answers.append(
            Answer(
                task=task,
                asked_at=context.length,
                distance=question.distance,
                loss=token_losses(logits, wanted).sum().item() / question.units,
                first_loss=first,
                right=bool((logits.argmax(-1) == wanted).all()),
                entropy=None if entropy is None else entropy[-question.asked - 1 : -1].mean().item(),
            )
        )
    return answers


def _length(questions: list[Question]) -> int:
    return sum(len(question.ids) for question in questions)
