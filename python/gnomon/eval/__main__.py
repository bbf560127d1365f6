# SPDX-License-Identifier: Apache-2.0
"""The command `gnomon eval`."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import gnomon

from . import methods
from .errors import UsageError
from .files import check_writable, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from .checkpoint import Checkpoint
    from .result import Evaluation

DESCRIPTION = """\
Measures the loss of a model by position on a text, inside and beyond its trained length, under several
extension methods. Every method, `none` (the model's own rule) included, runs on gnomon's rotary tables.
"""
EXAMPLES = f"""\
methods: {methods.KNOWN}
  A FACTOR is meant for texts that many times as long as the model was trained for. auto: all that `gnomon extend`
  lists for --tokens.

examples:
  gnomon eval model.gguf --text book.txt --method none --method yarn:2 --tokens 12288 --report report.html
  gnomon eval ./Qwen3-0.6B --text book.txt --tokens 4096 --bin 512 --json
  gnomon eval model.gguf --text book.txt --method ntk:4 --task repeat --task passkey --json result.json

exit codes: 0 done; 2 wrong use or unreadable input; 130 interrupted, with what was finished reported.
"""
TASKS = ("loss", "passkey", "repeat")
INTERRUPTED = 130
#: Frequencies of plain transformers are float32 and differ from ours by some 1e-7; a difference above this is another rule.
STOCK_TOLERANCE = 1e-5


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code. The result goes to stdout, progress and messages to stderr."""
    arguments = _json_without_file(list(sys.argv[1:] if argv is None else argv))
    options = _parser().parse_args(arguments)
    try:
        return _run(options, shlex.join(["gnomon", "eval", *arguments]))
    except (UsageError, gnomon.Error) as error:
        message = str(error)
    except ImportError as error:
        message = f"needs the Python package {error.name}: pip install 'gnomon[eval]'"
    except KeyboardInterrupt:
        print("gnomon: interrupted before anything was measured", file=sys.stderr)
        return INTERRUPTED
    print(f"gnomon: {message}", file=sys.stderr)
    return 2


def _run(options: argparse.Namespace, command: str) -> int:
    # What is wrong with the command is found before the seconds that imports and loading take.
    names = list(dict.fromkeys(options.method or ["none"]))
    asked = [methods.parse(name) for name in names if name != "auto"]
    for path in filter(None, (options.report, options.json)):
        if path != "-":
            check_writable(path)
    header = gnomon.read_model(options.model)
    trained = options.trained_length or methods.trained_length(header)
    if "auto" in names:
        asked = list(dict.fromkeys([*asked, *methods.automatic(header, options.trained_length, options.tokens)]))
    for method in asked:
        for group in methods.rules(method, header, trained, options.tokens):
            gnomon.frequencies(group.rotary, options.numerics)

    from rich.console import Console

    errors = Console(stderr=True)
    evaluation = _evaluate(options, command, asked, trained, errors)
    with _undisturbed():
        _deliver(evaluation, options, errors)
    return INTERRUPTED if evaluation.interrupted else 0


def _evaluate(options: argparse.Namespace, command: str, asked: list[methods.Method], trained: int | None, errors: Console) -> Evaluation:
    from .checkpoint import Checkpoint
    from .progress import Bars, doing
    from .result import Evaluation

    tasks = [task for task in TASKS if task in (options.task or ["loss"])]
    with doing(errors, "loading PyTorch, transformers and the tokenizer"):
        import torch

        from . import tasks as readings
        from .run import evaluate

        if options.threads:
            torch.set_num_threads(options.threads)
        checkpoint = Checkpoint(options.model)
        text = checkpoint.read_text(options.text, options.tokens)
    places = readings.asking_positions(options.tokens, trained)
    plan = []
    if "repeat" in tasks:
        plan.append(readings.repeat_reading(text.ids, places, options.seed))
    elif "loss" in tasks:
        plan.append(readings.text_reading(text.ids))
    if "passkey" in tasks:
        plan.append(readings.passkey_reading(checkpoint.encode, options.tokens, places, options.seed))
    with doing(errors, "loading the model"):
        checkpoint.model  # noqa: B018 (loads)

    own = methods.own_rules(checkpoint.header)
    evaluation = Evaluation(
        header=checkpoint.header,
        own=own,
        trained=trained,
        text=text,
        tokens=options.tokens,
        bin=options.bin,
        chunk=options.chunk,
        tasks=tasks,
        numerics=options.numerics,
        seed=options.seed,
        command=command,
        notes=notes_about(checkpoint, own),
    )
    for note in evaluation.notes:
        errors.print(f"note: {note}", highlight=False, markup=False)
    with Bars([method.name for method in asked], errors) as bars:
        evaluate(evaluation, checkpoint, asked, plan, bars)
    return evaluation


def notes_about(checkpoint: Checkpoint, own: list[methods.GroupRule]) -> list[str]:
    """What a reader of the result has to know about the model."""
    notes = [doubt.message for doubt in checkpoint.header.doubts if doubt.level != "note"]
    if (difference := checkpoint.stock_difference(own)) > STOCK_TOLERANCE:
        because = " (it does not read the RoPE scaling of GGUF files)" if checkpoint.header.format == "gguf" else ""
        notes.append(
            f"Plain transformers would run another rule on this model{because}: its frequencies differ by up to "
            f"{100 * difference:.3g} %. Here 'none' runs the rule that the model file states."
        )
    return notes


def _deliver(evaluation: Evaluation, options: argparse.Namespace, errors: Console) -> None:
    """Hands out the result: first where nothing can get lost, then the files."""
    from .result import to_json

    result = evaluation.to_dict()
    if evaluation.interrupted:
        complete = sum(method.complete for method in evaluation.methods)
        errors.print(f"interrupted: {complete} methods are complete; what was measured follows", highlight=False)
    if options.json == "-":
        _print(lambda: sys.stdout.write(to_json(result)))
    else:
        from rich.console import Console

        from .table import print_tables

        _print(lambda: print_tables(result, Console()))
    if options.json and options.json != "-":
        write_atomically(options.json, to_json(result))
    if options.report:
        from .report import to_html

        write_atomically(options.report, to_html(result))
        errors.print(f"report: {options.report}", highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C is ignored: a second one must not lose what the first one left."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print(write: Callable[[], object]) -> None:
    try:
        write()
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered cannot go anywhere: let Python not try again, and complain, at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"standard output cannot be written: {error.strerror}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gnomon eval",
        usage="gnomon eval MODEL --text FILE [--method NAME:F …] [--tokens N] [--report FILE.html] [--json [FILE.json]] …",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="MODEL", help="a Hugging Face folder or a GGUF file")
    parser.add_argument("--text", required=True, metavar="FILE", help="a text in UTF-8, at least --tokens tokens long")
    parser.add_argument("--method", action="append", metavar="NAME:F", help="none, linear:2, yarn:4 …, auto; repeatable (none)")
    parser.add_argument("--tokens", type=_positive, default=4096, metavar="N", help="how much of the text is read (4096)")
    parser.add_argument("--bin", type=_positive, default=512, metavar="N", help="positions that share a mean loss (512)")
    parser.add_argument("--chunk", type=_positive, default=2048, metavar="N", help="tokens in one pass (2048)")
    parser.add_argument(
        "--task", action="append", choices=TASKS, help="loss; repeat: a phrase asked for again; passkey: hidden numbers; repeatable (loss)"
    )
    parser.add_argument("--report", metavar="FILE.html", help="write a page with pictures")
    parser.add_argument("--json", metavar="FILE.json", help="write the result as JSON; without a name: to stdout, instead of the tables")
    parser.add_argument("--numerics", choices=("exact", "hf"), default="exact", help="exact (default), or transformers' float32 operations")
    parser.add_argument("--trained-length", type=_positive, metavar="N", help="instead of what the model states")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the tasks (0)")
    parser.add_argument("--threads", type=_positive, metavar="N", help="as many as torch takes by default")
    parser.add_argument("--version", action="version", version=f"gnomon {gnomon.__version__}")
    return parser


def _json_without_file(arguments: list[str]) -> list[str]:
    """`--json` alone means stdout. Only a name that ends in .json is its file, so that it cannot swallow MODEL."""
    following = [*arguments[1:], ""]
    return [
        "--json=-" if argument == "--json" and not (after.endswith(".json") or after == "-") else argument
        for argument, after in zip(arguments, following, strict=True)
    ]


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
