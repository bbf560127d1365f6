# SPDX-License-Identifier: Apache-2.0
"""gnomon plot: single pictures of rotary frequencies and of evaluation results, as PNG or SVG.

The pictures of the report of `gnomon eval` are made by the same functions. Each takes plain data and returns a
matplotlib Figure that is not shown anywhere: `save` writes it, `to_svg` gives it as text.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

import gnomon
from gnomon.eval import methods
from gnomon.eval.errors import UsageError
from gnomon.eval.files import check_writable, write_atomically
from gnomon.eval.result import from_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Text and axes. In a page it is replaced by the page's own text colour, so no line may have it.
INK = "#3b3f45"
#: Told apart in colour-blind vision and on light and dark ground; the first is for the model's own rule.
COLOURS = ("#7a7f87", "#3d85c6", "#e0662f", "#2a9d6f", "#b05cc6", "#c9a227", "#d6336c")
MARKERS = "os^Dvph"
STYLE = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": "medium",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "lines.linewidth": 1.8,
}
#: Ways to an angle that are shown, and what they are called.
PIPELINES = {"f64": "f64", "f32": "f32", "position bf16": "positions in bf16", "angle f16": "all in f16", "angle bf16": "all in bf16"}
#: The farthest position of a picture.
LONGEST = 1 << 21


@dataclasses.dataclass(frozen=True)
class Series:
    """The frequencies of one rule under a name."""

    name: str
    frequencies: gnomon.Frequencies


# ---- pictures ----------------------------------------------------------------------------------------------------


def loss_picture(result: dict[str, Any]) -> Figure:
    """Mean loss in each bin of positions, a line for each method, with the trained length marked."""
    figure, axes = _figure(8, 4.4)
    ends = []
    for index, method in enumerate(result["methods"]):
        if bins := method["bins"]:
            x = [(bin["from"] + bin["to"]) / 2 for bin in bins]
            y = [bin["loss"] for bin in bins]
            axes.plot(x, y, color=_colour(index), marker=MARKERS[index % len(MARKERS)], markersize=5)
            ends.append((y[-1], method["method"], _colour(index)))
    axes.set_xlim(0, result["tokens"])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("position in the text (tokens)")
    axes.set_ylabel("loss (nats per token)")
    _mark_length(axes, result["model"]["trained_length"], result["tokens"])
    _label_ends(axes, ends)
    return figure


def wavelength_picture(series: Sequence[Series], trained: int | None, tokens: int | None = None) -> Figure:
    """Wavelength of every pair of channels, against the trained length."""
    figure, axes = _figure(8, 4.4)
    _lines(axes, series, lambda frequencies: frequencies.wavelength)
    axes.set_yscale("log")
    axes.set_xlabel("pair of channels (fast to slow)")
    axes.set_ylabel("wavelength (positions in one turn)")
    if trained:
        axes.axhline(trained, color=INK, linestyle="--", linewidth=1)
        axes.annotate(f"trained length {trained}", (0.01, trained), **_above(axes))
    if tokens and trained and tokens > 1.2 * trained:
        axes.axhline(tokens, color=INK, linestyle=":", linewidth=1)
        axes.annotate(f"text {tokens}", (0.3, tokens), **_above(axes))
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    return figure


def frequency_picture(series: Sequence[Series], trained: int | None) -> Figure:
    """Frequency of every pair divided by that of the first series: which pairs a method changes, and how much."""
    figure, axes = _figure(8, 3.8)
    own = series[0].frequencies
    _lines(axes, series, lambda frequencies: frequencies.inv_freq / own.inv_freq)
    axes.set_ylim(0, 1.12)
    axes.set_xlabel("pair of channels (fast to slow)")
    axes.set_ylabel(f"speed compared with {series[0].name}")
    whole_turns = int((own.wavelength <= trained).sum()) if trained else 0
    if 0 < whole_turns < len(own.wavelength):
        axes.axvline(whole_turns - 0.5, color=INK, linestyle="--", linewidth=1)
        _note(axes, whole_turns - 0.5, "less than one turn in the trained length", "right")
        _note(axes, whole_turns - 0.5, "full turns", "left")
    axes.legend(loc="lower left", frameon=False, labelcolor=INK)
    return figure


def drift_picture(comparison: gnomon.Comparison) -> Figure:
    """Mean cosine between the rotations of two models by distance, a line for each group of layers that differs."""
    figure, axes = _figure(8, 4.4)
    limit = 1 - gnomon.drift_limit
    longest = max(max(one.drift.distances) for one in comparison.layers if one.drift)
    distances = numpy.unique(numpy.geomspace(1, max(longest, 10), 600).astype(numpy.int64))
    for index, one in enumerate(one for one in comparison.layers if one.drift):
        drift = gnomon.Drift(one.a, one.b, length=longest + 1)
        name = f"layers {one.layers[0]}" + (f" and {len(one.layers) - 1} more" if len(one.layers) > 1 else "")
        axes.plot(distances, drift.mean_cosine(distances), color=_colour(index + 1), label=name)
        if one.drift.position:
            axes.axvline(one.drift.position, color=_colour(index + 1), linestyle=":", linewidth=1)
            _note(axes, one.drift.position, f"1 % at {one.drift.position}", "right")
    axes.axhline(limit, color=INK, linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("distance between query and key (tokens)")
    axes.set_ylabel("mean cosine between the two rotations")
    axes.legend(loc="lower left", frameon=False, labelcolor=INK)
    return figure


def decay_picture(series: Sequence[Series], trained: int | None, farthest: int) -> Figure:
    """Score of a key that equals its query, by distance: mean and range. Below 0 a similar key counts less than a random one."""
    figure, axes = _figure(8, 4.4)
    for index, one in enumerate(series):
        bins = [_sampled(one, *ends) for ends in itertools.pairwise(_octaves(farthest, parts=6))]
        x, least, mean, greatest = zip(*bins, strict=True)
        axes.fill_between(x, least, greatest, color=_colour(index), alpha=0.15, linewidth=0)
        axes.plot(x, mean, color=_colour(index), label=one.name)
        if negative := gnomon.analysis.first_negative_distance(one.frequencies, farthest):
            axes.plot([negative], [0], color=_colour(index), marker=MARKERS[index % len(MARKERS)], markersize=7)
    axes.set_xscale("log", base=2)
    axes.axhline(0, color=INK, linewidth=1)
    axes.annotate("marker: from here on it can be negative", (0.01, 0), **_above(axes))
    axes.set_xlabel("distance (tokens)")
    axes.set_ylabel("score, 1 at distance 0")
    _mark_length(axes, trained, farthest)
    axes.legend(loc="upper right", frameon=False, labelcolor=INK)
    return figure


def precision_picture(one: Series, farthest: int) -> Figure:
    """Largest error of an angle up to each position, by the types numbers are rounded to on the way."""
    figure, axes = _figure(8, 4.4)
    ends = [1 << power for power in range(3, farthest.bit_length()) if 1 << power < farthest] + [farthest]
    worst: dict[str, list[float]] = {}
    for start, stop in itertools.pairwise([0, *ends]):
        for precision in gnomon.analysis.precision(one.frequencies, range(start, stop)):
            if precision.pipeline.name in PIPELINES:
                errors = worst.setdefault(precision.pipeline.name, [0.0])
                errors.append(max(errors[-1], precision.worst))
    for index, (name, errors) in enumerate(worst.items()):
        axes.plot(ends, errors[1:], color=_colour(index), marker=MARKERS[index], markersize=4, label=PIPELINES[name])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.axhline(0.01, color=INK, linestyle="--", linewidth=1)
    axes.annotate("wrong: 0.01 rad", (0.99, 0.01), ha="right", **_above(axes))
    axes.set_xlabel("position")
    axes.set_ylabel("largest error of an angle (radians)")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, labelcolor=INK)
    return figure


def retrieval_picture(result: dict[str, Any], task: str) -> Figure:
    """repeat: loss of a phrase at second sight; passkey: loss per digit; by distance, a panel for each place of asking."""
    rows = [row for method in result["methods"] for row in method["retrieval"] if row["task"] == task]
    places = sorted({row["asked_at"] for row in rows})
    figure, panels = _figure(8, 3.6, columns=len(places))
    trained = result["model"]["trained_length"]
    for axes, place in zip(panels, places, strict=True):
        for index, method in enumerate(result["methods"]):
            answers = [row for row in method["retrieval"] if (row["task"], row["asked_at"]) == (task, place)]
            style = {"color": _colour(index), "marker": MARKERS[index % len(MARKERS)], "label": method["method"]}
            axes.plot([row["distance"] for row in answers], [row["loss"] for row in answers], **style)
        axes.set_xscale("log", base=2)
        distances = sorted({row["distance"] for row in rows if row["asked_at"] == place})
        axes.set_xticks(distances, [str(distance) for distance in distances])
        axes.minorticks_off()
        where = "" if not trained else " (trained length)" if place == trained else ", beyond the trained length"
        axes.set_title(f"asked at {place}{where if not trained or place >= trained else ''}")
        axes.set_xlabel("distance back (tokens)")
    if task == "repeat":
        levels = [row["first_loss"] for row in rows]
        reference, name = sum(levels) / len(levels), "at first sight (mean)"
    else:
        reference, name = math.log(10), "guessing"
    for axes in panels:
        axes.axhline(reference, color=INK, linestyle="--", linewidth=1)
        axes.annotate(name, (0.01, reference), **_above(axes))
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("loss (nats per token)" if task == "repeat" else "loss (nats per digit)")
    panels[-1].legend(frameon=False, labelcolor=INK)
    return figure


def attention_picture(result: dict[str, Any]) -> Figure:
    """Where attention looks. Above: the share of it in each layer by how far back the key lies, a panel for each method. Below: entropy
    by position, and the shares on the first keys and near the query by layer, a line for each method."""
    methods = [method for method in result["methods"] if method.get("attention")]
    if not methods:
        raise UsageError("attention: expected a result of gnomon stats, or of gnomon eval --attention gnomon")
    import matplotlib
    from matplotlib.figure import Figure

    first = methods[0]["attention"]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(9, 3.2 * len(methods)), 7.4), layout="constrained")
        above, below = figure.subfigures(2, 1, height_ratios=(1.15, 1))
        panels = above.subplots(1, len(methods), sharey=True, squeeze=False)[0]
        entropy, *shares = below.subplots(1, 3)
        for axes, method in zip(panels, methods, strict=True):
            mesh = _distance_map(axes, method)
        above.colorbar(mesh, ax=list(panels), label="share of a layer's attention", format="{x:.0%}")
    panels[0].set_ylabel("layer")
    _entropies(entropy, methods, result)
    names = (f"share on the first {first['first_keys']} keys", f"share on the nearest {first['window']}")
    for axes, name, key in zip(shares, names, ("first_mass", "window_mass"), strict=True):
        for index, method in enumerate(methods):
            layers = method["attention"]["layers"]
            axes.plot([layer["layer"] for layer in layers], [layer[key] for layer in layers], color=_colour(index), label=method["method"])
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set_title(name)
        axes.set_xlabel("layer")
    return figure


def result_series(result: dict[str, Any]) -> list[Series]:
    """The model's own rule and those of the methods, for the first group of layers that a method changes."""
    own = result["model"]["groups"]
    changed = [
        index for method in result["methods"] for index, group in enumerate(method["groups"]) if group["rotary"] != own[index]["rotary"]
    ]
    index = min(changed, default=0)
    named = {"none": own, **{method["method"]: method["groups"] for method in result["methods"]}}
    specs = {name: gnomon.RotarySpec.from_json(json.dumps(groups[index]["rotary"])) for name, groups in named.items()}
    return [Series(name, gnomon.frequencies(spec, result["numerics"])) for name, spec in specs.items()]


# ---- drawing -----------------------------------------------------------------------------------------------------


def _distance_map(axes: Axes, method: dict[str, Any]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    statistics = method["attention"]
    edges, layers = statistics["distance_edges"], statistics["layers"]
    colours = LinearSegmentedColormap.from_list("share", [(*_rgb(COLOURS[1]), 0), (*_rgb(COLOURS[1]), 1), (0.1, 0.13, 0.3, 1)])
    shares = numpy.array([layer["mass_by_distance"] for layer in layers])
    ends = numpy.arange(len(layers) + 1) - 0.5
    # A square root, for most of attention lies in a few bins; one scale for all, so that panels compare.
    mesh = axes.pcolormesh(numpy.arange(len(edges)), ends, shares, cmap=colours, norm=PowerNorm(0.5, 0, 1), rasterized=True)
    shown = range(0, len(edges), 2)  # a bin reaches from its edge to the next
    axes.set_xticks(shown, [str(edges[edge]) for edge in shown])
    axes.tick_params(axis="x", labelrotation=45)
    axes.grid(visible=False)
    axes.set_title(f"{method['method']}: where each layer looks")
    axes.set_xlabel("how far back (tokens)")
    return mesh


def _entropies(axes: Axes, methods: Sequence[dict[str, Any]], result: dict[str, Any]) -> None:
    """The mean of all layers by position, as a line, and between which the layers lie, as an area."""
    for index, method in enumerate(methods):
        layers = method["attention"]["layers"]
        x = [(bin["from"] + bin["to"]) / 2 for bin in layers[0]["bins"]]
        values = numpy.array([[bin["entropy"] for bin in layer["bins"]] for layer in layers])
        axes.plot(x, values.mean(0), color=_colour(index), marker=MARKERS[index % len(MARKERS)], markersize=4, label=method["method"])
        axes.fill_between(x, values.min(0), values.max(0), color=_colour(index), alpha=0.08, linewidth=0)
    axes.set_xlim(0, result["tokens"])
    axes.set_ylim(bottom=0)
    axes.set_title("entropy by position")
    axes.set_xlabel("position in the text (tokens)")
    axes.set_ylabel("nats")
    if (trained := result["model"]["trained_length"]) and trained < result["tokens"]:
        axes.axvline(trained, color=INK, linestyle="--", linewidth=1)
    axes.legend(frameon=False, labelcolor=INK, fontsize="small")


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def _figure(width: float, height: float, columns: int | None = None) -> tuple[Figure, Any]:
    import matplotlib
    from matplotlib.figure import Figure  # without pyplot: no window, no global list of figures

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, columns or 1, sharey=True, squeeze=False)[0]
    return figure, axes[0] if columns is None else list(axes)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _lines(axes: Axes, series: Sequence[Series], values: Any) -> None:
    for index, one in enumerate(series):
        axes.plot(
            values(one.frequencies),
            color=_colour(index),
            marker=MARKERS[index % len(MARKERS)],
            markersize=3.5,
            linewidth=1.2,
            label=one.name,
        )


def _octaves(farthest: int, parts: int) -> list[int]:
    """Whole numbers from 1 to `farthest`, `parts` in each octave where there are as many."""
    last = math.ceil(parts * math.log2(farthest))
    return sorted({min(farthest, round(2 ** (step / parts))) for step in range(last + 1)} | {farthest})


def _sampled(one: Series, start: int, stop: int) -> tuple[float, float, float, float]:
    """The middle of distances from start up to stop, and the least, mean and greatest of some 64 scores among them."""
    scores = gnomon.analysis.mean_cosine(one.frequencies, range(start, stop, max(1, (stop - start) // 64)))
    return math.sqrt(start * (stop - 1)), min(scores), sum(scores) / len(scores), max(scores)


def _above(axes: Axes) -> dict[str, Any]:
    return {"xycoords": axes.get_yaxis_transform(), "xytext": (0, 3), "textcoords": "offset points", "fontsize": "small", "color": INK}


def _note(axes: Axes, x: float, text: str, side: str) -> None:
    """A text above the picture, on the left or right side of x."""
    axes.annotate(
        text,
        (x, 1),
        xycoords=axes.get_xaxis_transform(),
        xytext=(5 if side == "right" else -5, 3),
        textcoords="offset points",
        ha="left" if side == "right" else "right",
        fontsize="small",
        color=INK,
        annotation_clip=False,
    )


def _mark_length(axes: Axes, trained: int | None, tokens: int) -> None:
    if trained and trained < tokens:
        axes.axvline(trained, color=INK, linestyle="--", linewidth=1)
        axes.axvspan(trained, tokens, color=INK, alpha=0.06, linewidth=0)
        _note(axes, trained, f"trained up to {trained}", "left")
        _note(axes, trained, "never trained here", "right")


def _label_ends(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names the lines at their right ends, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    apart, previous = (high - low) * 0.055, -math.inf
    for y, name, colour in sorted(ends):
        previous = max(y, previous + apart)
        axes.annotate(
            name,
            (1.01, previous),
            xycoords=axes.get_yaxis_transform(),
            color=colour,
            va="center",
            fontweight="bold",
            annotation_clip=False,
        )


# ---- output ------------------------------------------------------------------------------------------------------


def to_svg(figure: Figure) -> str:
    """The picture as an <svg> element for a page, in the page's text colour and on its ground, with no link outside."""
    svg = _render(figure, "svg", transparent=True).decode()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", svg)  # a page in HTML knows them


def save(figure: Figure, path: str | Path) -> None:
    """Writes the picture whole or not at all; the suffix, .png or .svg, tells the format. Raises UsageError."""
    write_atomically(path, _render(figure, _suffix(path), dpi=150, facecolor="white"))


def _render(figure: Figure, format: str, **options: Any) -> bytes:
    import matplotlib

    # The same picture is the same bytes: no date, no random names. Without Creator and the like an SVG has no metadata at all.
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type")) if format == "svg" else None
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "gnomon"}):
        figure.savefig(buffer, format=format, metadata=metadata, **options)
    return buffer.getvalue()


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in ("png", "svg"):
        raise UsageError(f"--out {path}: expected a name that ends in .png or .svg")
    return suffix


# ---- command -----------------------------------------------------------------------------------------------------

EXAMPLES = (
    "gnomon plot wavelengths model.gguf --out wavelengths.svg",
    """gnomon plot wavelengths --rotary '{"rule":"default","theta":10000,"head_dim":128}' --length 4096 --out w.png""",
    "gnomon plot frequencies model.gguf --method yarn:4 --method ntk:4 --out changed.png",
    "gnomon plot drift config.json model.gguf --out drift.svg",
    "gnomon plot decay model.gguf --method yarn:4 --method linear:4 --to 32768 --out decay.png",
    "gnomon plot precision model.gguf --to 131072 --out precision.png",
    "gnomon plot loss result.json --out loss.png            # from gnomon eval … --json result.json",
    "gnomon plot repeat result.json --out repeat.png        # … --task repeat",
    "gnomon plot passkey result.json --out passkey.svg      # … --task passkey",
    "gnomon plot attention result.json --out attention.png  # … --attention gnomon, or from gnomon stats",
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command `gnomon plot`. Returns 0, or 2 after a message on stderr."""
    options = _parser().parse_args(argv)
    try:
        _suffix(options.out)
        check_writable(options.out)
        save(options.draw(options), options.out)
    except (UsageError, gnomon.Error) as error:
        print(f"gnomon: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"gnomon: needs the Python package {error.name}: pip install 'gnomon[eval]'", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gnomon plot",
        description="Draws one picture of rotary frequencies or of an evaluation, as PNG or SVG.",
        epilog=_examples(""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    pictures = parser.add_subparsers(title="pictures", metavar="PICTURE", required=True)

    def add(name: str, help: str, draw: Any) -> argparse.ArgumentParser:
        picture = pictures.add_parser(
            name,
            help=help,
            description=f"Draws: {help}.",
            epilog=_examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        picture.add_argument("--out", required=True, metavar="FILE", help="where to write; ends in .png or .svg")
        picture.set_defaults(draw=draw)
        return picture

    for name, help, draw in (
        ("wavelengths", "wavelength of every pair of channels against the trained length", _draw_wavelengths),
        ("frequencies", "which pairs a method changes, and how much", _draw_frequencies),
        ("decay", "score by distance, and from where it can be negative", _draw_decay),
        ("precision", "how far angles are off, by position and dtype", _draw_precision),
    ):
        picture = add(name, help, draw)
        picture.add_argument("model", nargs="?", metavar="MODEL", help="a Hugging Face folder, config.json or GGUF file")
        picture.add_argument("--rotary", metavar="RULE", help="instead: a JSON literal, @FILE with one, or a model's path")
        picture.add_argument("--layer", type=int, metavar="N", help="which layer, in a model with several rotary groups")
        picture.add_argument("--method", action="append", default=[], metavar="NAME:F", help="as in gnomon eval; repeatable")
        picture.add_argument("--length", type=int, metavar="N", help="the trained length, where it is not the model's")
        if name in ("decay", "precision"):
            picture.add_argument("--to", type=int, metavar="N", help="the farthest distance or position (four trained lengths)")
        picture.add_argument("--numerics", choices=("exact", "hf"), default="exact")
    for name, help, draw in (
        ("loss", "loss by position", lambda options: loss_picture(_result(options))),
        ("repeat", "loss of a repeated phrase by distance", lambda options: _draw_retrieval(options, "repeat")),
        ("passkey", "loss of a hidden number by distance", lambda options: _draw_retrieval(options, "passkey")),
        ("attention", "where attention looks, layer by layer", lambda options: attention_picture(_result(options))),
    ):
        add(name, f"{help}, from a result of gnomon eval", draw).add_argument("result", metavar="RESULT.json")
    drift = add("drift", "how far the scores of two models drift apart by distance", _draw_drift)
    drift.add_argument("a", metavar="A", help="a Hugging Face folder, config.json or GGUF file")
    drift.add_argument("b", metavar="B", help="the other one")
    return parser


def _draw_drift(options: argparse.Namespace) -> Figure:
    comparison = gnomon.compare(options.a, options.b)
    if not any(one.drift for one in comparison.layers):
        raise UsageError(f"{options.a} and {options.b}: no rotation differs, so there is no drift to draw")
    return drift_picture(comparison)


def _examples(picture: str) -> str:
    return "\n  ".join(["examples:", *(line for line in EXAMPLES if picture in line)])


def _draw_wavelengths(options: argparse.Namespace) -> Figure:
    return wavelength_picture(*_series(options))


def _draw_frequencies(options: argparse.Namespace) -> Figure:
    if not options.method:
        raise UsageError(f"frequencies: expected at least one --method to compare with the own rule; known: {methods.KNOWN}")
    return frequency_picture(*_series(options))


def _draw_decay(options: argparse.Namespace) -> Figure:
    series, trained = _series(options)
    return decay_picture(series, trained, _farthest(options, trained))


def _draw_precision(options: argparse.Namespace) -> Figure:
    series, trained = _series(options)
    return precision_picture(series[0], _farthest(options, trained))


def _farthest(options: argparse.Namespace, trained: int | None) -> int:
    farthest = options.to or (min(4 * trained, LONGEST) if trained else None)
    if farthest is None or not 16 <= farthest <= LONGEST:
        raise UsageError(f"--to: expected 16 to {LONGEST}, got {farthest}")
    return farthest


def _draw_retrieval(options: argparse.Namespace, task: str) -> Figure:
    result = _result(options)
    if not any(row["task"] == task for method in result["methods"] for row in method["retrieval"]):
        raise UsageError(f"{options.result}: holds no answers of the task {task}; run gnomon eval with --task {task}")
    return retrieval_picture(result, task)


def _series(options: argparse.Namespace) -> tuple[list[Series], int | None]:
    if (options.model is None) == (options.rotary is None):
        raise UsageError("expected either MODEL or --rotary")
    spec, trained = _rotary(options.model or options.rotary, options.layer, literal=options.model is None)
    trained = options.length or trained
    specs = {"own rule": spec}
    for text in options.method:
        method = methods.parse(text)
        specs[method.name] = methods.with_method(spec, method, trained)
    return [Series(name, gnomon.frequencies(one, options.numerics)) for name, one in specs.items()], trained


def _rotary(source: str, layer: int | None, literal: bool) -> tuple[gnomon.RotarySpec, int | None]:
    """The spec of a model's path, or where `literal` is allowed also of JSON or @FILE; and its trained length."""
    text = source if literal else ""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{source[1:]}: cannot be read: {error}") from error
    if text.lstrip().startswith("{"):
        spec = gnomon.RotarySpec.from_json(text)
        return spec, getattr(spec.rule, "original_max_position_embeddings", None)
    model = gnomon.read_model(source)
    return model.rotary(layer=layer), methods.trained_length(model)


def _result(options: argparse.Namespace) -> dict[str, Any]:
    try:
        text = Path(options.result).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{options.result}: cannot be read: {error}") from error
    return from_json(text, options.result)


if __name__ == "__main__":
    sys.exit(main())
