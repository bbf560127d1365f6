# SPDX-License-Identifier: Apache-2.0
"""The command `gnomon stats`: where the attention of a model looks while it reads a text.

It is `gnomon eval --attention gnomon` with another view of the result: the same evaluation, the same JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnomon.eval.__main__ import add_common, deliver_data, run_command
from gnomon.eval.command import named

if TYPE_CHECKING:
    from rich.console import Console

    from gnomon.eval.result import Evaluation

DESCRIPTION = """\
Lets a model read a text with gnomon's attention and measures, layer by layer: the entropy of attention, its greatest weight, how far
back it looks, and how much of it rests on the first keys and on the nearest ones. No weights are stored: memory grows linearly.
"""
EXAMPLES = """\
examples:
  gnomon stats model.gguf --text book.txt
  gnomon stats model.gguf --text book.txt --tokens 12288 --method none --method yarn:2 --output attention.png
  gnomon stats model.gguf --text book.txt --tokens 12288 --method none --method yarn:2 --task passkey
  gnomon stats ./Qwen3-0.6B --text book.txt --json

exit codes: 0 done; 2 wrong use or unreadable input; 130 interrupted, with what was finished reported.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code. The result goes to stdout, progress and messages to stderr."""
    return run_command("stats", _parser(), argv, _deliver)


def _deliver(evaluation: Evaluation, options: argparse.Namespace, errors: Console) -> None:
    from gnomon import plot
    from gnomon.eval.table import print_attention

    result = deliver_data(evaluation, options, errors, print_attention)
    if options.output and any(method["attention"] for method in result["methods"]):
        plot.save(plot.attention_picture(result), options.output)
        errors.print(f"picture: {options.output}", highlight=False, markup=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gnomon stats",
        usage="gnomon stats MODEL --text FILE [--method NAME:F …] [--tokens N] [--output FILE.png] [--json [FILE.json]] …",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(parser, 2048)
    parser.add_argument("--output", type=named(".png", ".svg"), metavar="FILE", help="a picture of it; ends in .png or .svg")
    parser.add_argument(
        "--task",
        action="append",
        default=["loss"],
        choices=("passkey", "repeat"),
        help="ask questions too, and how attention answers; repeatable",
    )
    parser.set_defaults(attention="gnomon", seed=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
