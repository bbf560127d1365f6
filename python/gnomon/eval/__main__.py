# SPDX-License-Identifier: Apache-2.0
"""The command `gnomon eval`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gnomon

from . import methods
from .command import INTERRUPTED, json_without_file, named, positive, print_whole, undisturbed
from .errors import UsageError
from .files import check_writable, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from .checkpoint import Checkpoint
    from .result import Evaluation

    Deliver = Callable[["Evaluation", argparse.Namespace, Console], None]

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
  gnomon eval model.gguf --text book.txt --method none --method yarn:2 --attention gnomon --task passkey --report report.html

exit codes: 0 done; 2 wrong use or unreadable input; 130 interrupted, with what was finished reported.
"""
TASKS = ("loss", "passkey", "repeat")
#: Frequencies of plain transformers are float32 and differ from ours by some 1e-7; a difference above this is another rule.
STOCK_TOLERANCE = 1e-5


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code. The result goes to stdout, progress and messages to stderr."""
    return run_command("eval", _parser(), argv, _deliver)


def run_command(verb: str, parser: argparse.ArgumentParser, argv: Sequence[str] | None, deliver: Deliver) -> int:
    """The frame of `gnomon eval` and `gnomon stats`: reads the arguments, evaluates, hands the result to `deliver`; returns the exit code."""
    arguments = json_without_file(list(sys.argv[1:] if argv is None else argv))
    options = parser.parse_args(arguments)
    try:
        return _run(options, shlex.join(["gnomon", verb, *arguments]), deliver)
    except (UsageError, gnomon.Error) as error:
        message = str(error)
    except ImportError as error:
        message = f"needs the Python package {error.name}: pip install 'gnomon[eval]'"
    except KeyboardInterrupt:
        print("gnomon: interrupted before anything was measured", file=sys.stderr)
        return INTERRUPTED
    print(f"gnomon: {message}", file=sys.stderr)
    return 2


def _run(options: argparse.Namespace, command: str, deliver: Deliver) -> int:
    # What is wrong with the command is found before the seconds that imports and loading take.
    names = list(dict.fromkeys(options.method or ["none"]))
    asked = [methods.parse(name) for name in names if name != "auto"]
    for path in filter(None, (getattr(options, name, None) for name in ("report", "output", "json"))):
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
    with undisturbed():
        deliver(evaluation, options, errors)
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
        attention=options.attention,
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


def deliver_data(
    evaluation: Evaluation, options: argparse.Namespace, errors: Console, print_tables: Callable[[dict[str, Any], Console], None]
) -> dict[str, Any]:
    """Hands out the result as JSON or tables, first where nothing can get lost, then the file; returns it."""
    from .result import to_json

    result = evaluation.to_dict()
    if evaluation.interrupted:
        complete = sum(method.complete for method in evaluation.methods)
        errors.print(f"interrupted: {complete} methods are complete; what was measured follows", highlight=False)
    if options.json == "-":
        print_whole(lambda: sys.stdout.write(to_json(result)))
    else:
        from rich.console import Console

        print_whole(lambda: print_tables(result, Console()))
    if options.json and options.json != "-":
        write_atomically(options.json, to_json(result))
    return result


def _deliver(evaluation: Evaluation, options: argparse.Namespace, errors: Console) -> None:
    from .table import print_tables

    result = deliver_data(evaluation, options, errors, print_tables)
    if options.report:
        from .report import to_html

        write_atomically(options.report, to_html(result))
        errors.print(f"report: {options.report}", highlight=False, markup=False, soft_wrap=True)


def add_common(parser: argparse.ArgumentParser, tokens: int) -> None:
    """The arguments of every command that lets a model read a text."""
    parser.add_argument("model", metavar="MODEL", help="a Hugging Face folder or a GGUF file")
    parser.add_argument("--text", required=True, metavar="FILE", help="a text in UTF-8, at least --tokens tokens long")
    parser.add_argument("--method", action="append", metavar="NAME:F", help="none, linear:2, yarn:4 …, auto; repeatable (none)")
    parser.add_argument("--tokens", type=positive, default=tokens, metavar="N", help=f"how much of the text is read ({tokens})")
    parser.add_argument("--bin", type=positive, default=512, metavar="N", help="positions that share a mean (512)")
    parser.add_argument("--chunk", type=positive, default=2048, metavar="N", help="tokens in one pass (2048)")
    parser.add_argument("--json", metavar="FILE.json", help="write the result as JSON; without a name: to stdout, instead of the tables")
    parser.add_argument("--numerics", choices=("exact", "hf"), default="exact", help="exact (default), or transformers' float32 operations")
    parser.add_argument("--trained-length", type=positive, metavar="N", help="instead of what the model states")
    parser.add_argument("--threads", type=positive, metavar="N", help="as many as torch takes by default")
    parser.add_argument("--version", action="version", version=f"gnomon {gnomon.__version__}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gnomon eval",
        usage="gnomon eval MODEL --text FILE [--method NAME:F …] [--tokens N] [--report FILE.html] [--json [FILE.json]] …",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(parser, 4096)
    parser.add_argument(
        "--task", action="append", choices=TASKS, help="loss; repeat: a phrase asked for again; passkey: hidden numbers; repeatable (loss)"
    )
    parser.add_argument(
        "--attention", choices=("torch", "gnomon"), default="torch", help="gnomon: its own attention, and where it looks (torch)"
    )
    parser.add_argument("--report", type=named(".html", ".htm"), metavar="FILE.html", help="write a page with pictures")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the tasks (0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
