# SPDX-License-Identifier: Apache-2.0
"""Progress on stderr: bars with the time left on a terminal, one line per finished method elsewhere."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .result import MethodResult, mean_loss


class Bars:
    """An Observer (gnomon.eval.run): one bar for each method and one for the whole."""

    def __init__(self, methods: list[str], console: Console):
        self._console = console
        self._methods = len(methods)
        self._began = time.monotonic()
        self._whole = self._done = 0.0
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            speed_estimate_period=3600,  # passes are few and long: an estimate needs them all
            disable=not console.is_terminal,
        )
        if self._methods > 1:
            self._bars.add_task("all methods", total=None, state="")

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, method: str, work: float) -> None:
        self._whole = self._methods * work
        if self._methods > 1:
            self._bars.update(self._bars.task_ids[0], total=self._whole)
        self._bars.add_task(method, total=work, state="")

    def advance(self, work: float, state: str) -> None:
        first = self._done == 0
        self._done += work
        for bar in {self._bars.task_ids[0], self._bars.task_ids[-1]}:
            self._bars.advance(bar, work)
        self._bars.update(self._bars.task_ids[-1], state=state)
        if first and not self._console.is_terminal:
            seconds = (time.monotonic() - self._began) * (self._whole / work - 1)
            if seconds > 0:
                left = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{math.ceil(seconds)} s"
                self._console.print(f"about {left} left", highlight=False)

    def end(self, result: MethodResult) -> None:
        loss = mean_loss(result.bins(len(result.losses))) if result.losses is not None else None
        state = "done" if loss is None else f"mean loss {loss:.2f}"
        self._bars.update(self._bars.task_ids[-1], state=state)
        if not self._console.is_terminal:
            self._console.print(f"{result.method}: {state}, {result.seconds:.0f} s", highlight=False)


@contextlib.contextmanager
def doing(console: Console, what: str) -> Iterator[None]:
    """Says what is going on and, when it is over, how long it took."""
    began = time.monotonic()
    with console.status(f"{what} …"):
        yield
    console.print(f"{what}: {time.monotonic() - began:.0f} s", highlight=False)
