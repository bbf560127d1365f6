# SPDX-License-Identifier: Apache-2.0
"""The result as one HTML page that needs nothing outside itself: pictures are inline SVG in the page's own colours."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from gnomon import plot

from .result import mean_loss
from .table import retrieval_cell, retrieval_rows

STYLE = """
:root { color-scheme: light dark }
body { max-width: 54rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif;
       background: Canvas; color: CanvasText }
h1 { font-size: 1.6rem; line-height: 1.25 } h2 { font-size: 1.2rem; margin-top: 2.5rem }
figure { margin: 1rem 0 } figure svg { width: 100%; height: auto } figcaption, .small { font-size: .9rem; opacity: .8 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid color-mix(in srgb, CanvasText 15%, Canvas) }
tr.beyond td, tr.beyond th { background: color-mix(in srgb, CanvasText 6%, Canvas) }
td.best { font-weight: bold }
.warning { border-left: .3rem solid #e0662f; padding: .3rem .8rem }
dt { font-weight: bold; margin-top: .5rem } dd { margin: 0; overflow-wrap: anywhere }
code, pre { font-size: .85rem } pre { white-space: pre-wrap; overflow-wrap: anywhere }
.scroll { overflow-x: auto }
"""

NUMERICS = {
    "exact": "exact: frequencies in double precision, angles never rounded, cosine and sine rounded once to float32",
    "hf": "hf: the float32 operations of transformers, in its order",
}


def to_html(result: dict[str, Any]) -> str:
    """The whole page for the object of `gnomon eval --json`."""
    title = f"Loss by position: {Path(result['model']['path']).name}"
    body = [
        f"<h1>{escape(title)}</h1>",
        *_warnings(result),
        _summary(result),
        *_losses(result),
        *_repeat(result),
        *_passkey(result),
        *_attention(result),
        *_rules(result),
        _facts(result),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    lines = "\n".join(body)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{lines}\n</body></html>\n'


def _warnings(result: dict[str, Any]) -> list[str]:
    texts = list(result["notes"])
    if result["interrupted"]:
        unfinished = ", ".join(method["method"] for method in result["methods"] if not method["complete"])
        texts.insert(0, f"This evaluation was interrupted: {unfinished or 'a method'} is not complete, others are missing.")
    return [f'<p class="warning">{escape(text)}</p>' for text in texts]


def _summary(result: dict[str, Any]) -> str:
    trained, methods = result["model"]["trained_length"], result["methods"]
    text = (
        f"The model read the first {result['tokens']} tokens of {escape(Path(result['text']['path']).name)} once for each "
        "method, and at every token it had to predict the next one. "
    )
    beyond = {method["method"]: mean_loss(method["bins"], trained or 0) for method in methods}
    beyond = {name: loss for name, loss in beyond.items() if loss is not None}
    if trained is None or not beyond:
        return f"<p>{text}</p>"
    best = min(beyond, key=beyond.get)
    text += f"It was trained on texts of up to {trained} tokens. "
    own = next((method for method in methods if method["method"] == "none"), None)
    inside = mean_loss(own["bins"], 0, trained) if own else None
    if inside is not None and "none" in beyond:
        text += f"With its own rule it loses {inside:.2f} nats per token up to there and <b>{beyond['none']:.2f} beyond</b>. "
    if best != "none":
        text += f"Of the methods tried, <b>{escape(best)}</b> does best beyond it: <b>{beyond[best]:.2f}</b>."
    return f"<p>{text}</p>"


def _losses(result: dict[str, Any]) -> list[str]:
    methods = result["methods"]
    if not any(method["bins"] for method in methods):
        return []
    return [
        "<h2>Loss by position</h2>",
        _figure(
            plot.loss_picture(result),
            "Each point is the mean over one bin of positions. Lower is better: a loss of 2 nats means that the right token "
            "got a probability of 1 in e² ≈ 7. Some stretches of a text are harder than others, so compare the lines with each "
            "other. Where “none” climbs far above the rest the model is lost: it never learned to look that far. A line that "
            "stays low there is an extension that works; how much it lies above “none” on the left is what it costs on short texts.",
        ),
        _loss_table(result),
    ]


def _loss_table(result: dict[str, Any]) -> str:
    methods, trained = result["methods"], result["model"]["trained_length"]
    losses = [{bin["from"]: bin["loss"] for bin in method["bins"]} for method in methods]
    rows = []
    for begin, end in sorted({(bin["from"], bin["to"]) for method in methods for bin in method["bins"]}):
        values = [loss.get(begin) for loss in losses]
        best = min(value for value in values if value is not None)
        cells = "".join(
            "<td>–</td>" if value is None else f"<td{' class=best' if value == best else ''}>{value:.3f}</td>" for value in values
        )
        beyond = ' class="beyond"' if trained is not None and begin >= trained else ""
        rows.append(f"<tr{beyond}><th>{begin} – {end}</th>{cells}</tr>")
    return _table(
        ["position", *(method["method"] for method in methods)],
        rows,
        "Mean loss in nats per token; shaded: beyond the trained length; bold: the best of a row.",
    )


def _repeat(result: dict[str, Any]) -> list[str]:
    rows = retrieval_rows(result, "repeat")
    return rows and [
        "<h2>Does it still see what stands far back? A phrase asked for again</h2>",
        _figure(
            plot.retrieval_picture(result, "repeat"),
            "A flat loss is not yet a long context: the last few words predict the next one well enough. Here the model is "
            "shown the beginning of a phrase that it has read before, at some distance back, and has to go on with it. A model "
            "that finds the phrase predicts it with almost no loss; one that does not find it predicts no better than at "
            "first sight (dashed, the mean).",
        ),
        _retrieval_table(
            result,
            "repeat",
            rows,
            "Loss in nats per token, first sight → second; H: entropy of the attention that answers, where measured.",
        ),
    ]


def _passkey(result: dict[str, Any]) -> list[str]:
    rows = retrieval_rows(result, "passkey")
    return rows and [
        "<h2>Does it find a number hidden in filler?</h2>",
        _figure(
            plot.retrieval_picture(result, "passkey"),
            "Numbers of five digits, each named after a city, are hidden in sentences that say nothing; then they are asked "
            "for. Dashed: the loss of somebody who guesses each digit.",
        ),
        _retrieval_table(
            result,
            "passkey",
            rows,
            "Numbers found without a mistake, and loss in nats per digit (guessing: 2.30); H: entropy of the attention that answers, where measured.",
        ),
    ]


def _attention(result: dict[str, Any]) -> list[str]:
    return (
        [
            "<h2>Where does attention look?</h2>",
            _figure(
                plot.attention_picture(result),
                "Above: how the attention of each layer is shared out by how far back a key lies; bins double in width. Below, on the left, the "
                "entropy of attention by position: e to its power is how many keys it looks at, as it were. Entropy that climbs beyond the "
                "trained length is attention that no longer finds what it looks for. In the middle and on the right, how much of it rests on "
                "the first keys of the text, where a head looks that has nothing to look for, and on the nearest ones.",
            ),
        ]
        if any(method.get("attention") for method in result["methods"])
        else []
    )


def _retrieval_table(result: dict[str, Any], task: str, rows: list[tuple[int, int]], caption: str) -> str:
    trained = result["model"]["trained_length"]
    lines = []
    for asked_at, distance in rows:
        cells = "".join(f"<td>{escape(retrieval_cell(method, task, asked_at, distance))}</td>" for method in result["methods"])
        beyond = ' class="beyond"' if trained is not None and asked_at > trained else ""
        lines.append(f"<tr{beyond}><th>{asked_at}</th><th>{distance}</th>{cells}</tr>")
    return _table(["asked at", "distance", *(method["method"] for method in result["methods"])], lines, caption)


def _rules(result: dict[str, Any]) -> list[str]:
    trained = result["model"]["trained_length"]
    series = plot.result_series(result)
    parts = [
        "<h2>Why: the model's clock hands</h2>",
        _figure(
            plot.wavelength_picture(series, trained, result["tokens"]),
            "A rotary model turns each pair of channels of its queries and keys by an angle that grows with the position, like "
            "the hands of a clock: the first pairs turn fast, the last ones slowly. A pair below the dashed line has shown "
            "every angle in training. A pair above it has not completed one turn: beyond the trained length it shows angles "
            "that the model has never met. Methods slow the pairs down, so that a longer text keeps to known angles.",
        ),
    ]
    if len(series) > 1:
        parts += [
            "<h2>Which pairs a method changes</h2>",
            _figure(
                plot.frequency_picture(series, trained),
                "Speed of each pair compared with the model's own. At 1 a pair is left alone; at ½ it turns half as fast, so "
                "that 2 tokens look to it like one. Slowing the fast pairs blurs the neighbourhood of a token; the slow pairs "
                "are those that meet unknown angles.",
            ),
        ]
    return parts


def _facts(result: dict[str, Any]) -> str:
    model, text, versions = result["model"], result["text"], result["versions"]
    start = f"the tokenizer puts {text['start_token']} first" if text["start_token"] else "no start token (BOS)"
    declared = model["declared_length"]
    length = f"trained length {model['trained_length'] or 'not stated'}"
    if declared and declared != model["trained_length"]:
        length += f", declared {declared}"
    seconds = ", ".join(f"{method['method']} {method['seconds']:.0f} s" for method in result["methods"])
    facts = {
        "Command": f"<code>{escape(result['command'])}</code>",
        "Model": escape(f"{model['path']} ({model['format']}, {model['type']}, {length})"),
        "Text": escape(f"{text['path']}, {text['bytes']} bytes, SHA-256 {text['sha256']}; {start}"),
        "Numerics": escape(f"{NUMERICS[result['numerics']]}. Weights and activations in float32."),
        "Passes": escape(f"{result['chunk']} tokens at a time through a cache; seed of the tasks {result['seed']}"),
        "Time": escape(seconds),
        "Versions": escape(", ".join(f"{name} {version}" for name, version in versions.items())),
    }
    lines = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts.items())
    rules = "\n".join(
        f"{method['method']}: layers {_ranges(group['layers'])}: {group['rotary']}"
        for method in result["methods"]
        for group in method["groups"]
    )
    details = f"<details><summary>The rule of each method</summary><pre>{escape(rules)}</pre></details>"
    return (
        f"<h2>What was run</h2><dl>{lines}</dl>{details}"
        '<p class="small">The loss of a bin is the mean of −log P(token p | tokens before p) over the positions from ≤ p &lt; to; '
        "the first token is predicted from nothing and does not count.</p>"
    )


def _ranges(layers: list[int]) -> str:
    """0–4, 6–10 for [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(f"{first}–{last}" if last > first else f"{first}" for first, last in runs)


def _figure(figure: Any, caption: str) -> str:
    return f"<figure>{plot.to_svg(figure)}<figcaption>{caption}</figcaption></figure>"


def _table(columns: list[str], rows: list[str], caption: str) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = "\n".join(rows)
    return f'<p class="small">{caption}</p><div class="scroll"><table><tr>{head}</tr>\n{lines}</table></div>'
