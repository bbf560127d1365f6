# SPDX-License-Identifier: Apache-2.0
"""What the commands that run a model share: arguments, and output that is not lost."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator

from .errors import UsageError

INTERRUPTED = 130


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C is ignored: a second one must not lose what the first one left."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def print_whole(write: Callable[[], object]) -> None:
    """Calls `write`, which writes to stdout. Raises UsageError when that cannot be written."""
    try:
        write()
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered cannot go anywhere: let Python not try again, and complain, at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"standard output cannot be written: {error.strerror}") from error


def json_without_file(arguments: list[str]) -> list[str]:
    """`--json` alone means stdout. Only a name that ends in .json is its file, so that it cannot swallow MODEL."""
    return [
        "--json=-" if argument == "--json" and not (after.endswith(".json") or after == "-") else argument
        for argument, after in itertools.pairwise([*arguments, ""])
    ]


def named(*endings: str) -> Callable[[str], str]:
    """The type of an argument that names a file to be written in the form that its ending says."""

    def check(path: str) -> str:
        if not path.lower().endswith(endings):
            raise argparse.ArgumentTypeError(f"expected a name that ends in {' or '.join(endings)}, got {path}")
        return path

    return check


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return value
