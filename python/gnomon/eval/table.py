# SPDX-License-Identifier: Apache-2.0
"""The result as tables for a terminal."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from .result import ATTENTION_MEANS, mean_loss

#: Wide enough for every column when the output is a file or a pipe.
FILE_WIDTH = 200
TITLES = {
    "repeat": "repeat: loss of a phrase that is asked for again, at first sight → now (nats per token)",
    "passkey": "passkey: hidden numbers found, and their loss (nats per digit; guessing is 2.30)",
}
ENTROPY = "; H: entropy of the attention that answers"


def print_tables(result: dict[str, Any], console: Console) -> None:
    """Prints the losses by position and, for each task, what was retrieved at which distance."""
    if not console.is_terminal:
        console.width = FILE_WIDTH
    if any(method["bins"] for method in result["methods"]):
        console.print("\nLoss by position, in nats per token (lower is better)")
        console.print(loss_table(result))
    print_attention(result, console)


def print_attention(result: dict[str, Any], console: Console) -> None:
    """Prints what was retrieved, and where attention looks, a table of layers for each method."""
    if not console.is_terminal:
        console.width = FILE_WIDTH
    for task, title in TITLES.items():
        if rows := retrieval_rows(result, task):
            console.print(f"\n{title}{ENTROPY if result['attention'] == 'gnomon' else ''}")
            console.print(retrieval_table(result, task, rows))
    for method in result["methods"]:
        if method["attention"]:
            console.print(f"\n{method['method']}: attention by layer, means over {result['tokens']} tokens")
            console.print(attention_table(method["attention"]))


def attention_table(attention: dict[str, Any]) -> Table:
    """A row for each layer, and their mean."""
    table = Table()
    near = (f"first {attention['first_keys']} keys", f"nearest {attention['window']} keys")
    for title in ("layer", "entropy (nats)", "greatest weight", "tokens back (mean)", *near, "half within (tokens)"):
        table.add_column(title, justify="right")
    layers = attention["layers"]
    mean = {name: statistics.fmean(layer[name] for layer in layers) for name in ATTENTION_MEANS}
    mean |= {
        "layer": "mean",
        "mass_by_distance": [statistics.fmean(bin) for bin in zip(*(layer["mass_by_distance"] for layer in layers), strict=True)],
    }
    for layer in [*layers, mean]:
        table.add_row(
            str(layer["layer"]),
            f"{layer['entropy']:.2f}",
            f"{layer['maximum']:.2f}",
            f"{layer['mean_distance']:.0f}",
            f"{layer['first_mass']:.0%}",
            f"{layer['window_mass']:.0%}",
            f"{_half_within(attention['distance_edges'], layer['mass_by_distance'])}",
            end_section=layer is layers[-1],
        )
    return table


def _half_within(edges: list[int], shares: list[float]) -> int:
    """The least edge within which at least half of the attention lies."""
    total = itertools.accumulate(shares)
    return next(end for end, mass in zip(edges[1:], total, strict=True) if mass >= sum(shares) / 2)


def loss_table(result: dict[str, Any]) -> Table:
    """Mean loss in nats per token, a row for each bin; the best of a row is bold."""
    methods, trained = result["methods"], result["model"]["trained_length"]
    table = Table()
    table.add_column("position", justify="right")
    for method in methods:
        table.add_column(method["method"], justify="right")
    losses = [{bin["from"]: bin["loss"] for bin in method["bins"]} for method in methods]
    spans = sorted({(bin["from"], bin["to"]) for method in methods for bin in method["bins"]})
    for begin, end in spans:
        last_inside = trained is not None and begin < trained <= end
        table.add_row(f"{begin} – {end}", *_cells([loss.get(begin) for loss in losses]), end_section=last_inside)
    if trained is not None and spans[-1][1] > trained:
        table.add_section()
        table.add_row(f"up to {trained}, as trained", *_cells([mean_loss(method["bins"], 0, trained) for method in methods]))
        table.add_row(f"beyond {trained}", *_cells([mean_loss(method["bins"], trained) for method in methods]))
    return table


def retrieval_rows(result: dict[str, Any], task: str) -> list[tuple[int, int]]:
    """(asked_at, distance) of every question of a task, in order."""
    rows = (row for method in result["methods"] for row in method["retrieval"] if row["task"] == task)
    return sorted({(row["asked_at"], row["distance"]) for row in rows})


def retrieval_table(result: dict[str, Any], task: str, rows: Iterable[tuple[int, int]]) -> Table:
    table = Table()
    table.add_column("asked at", justify="right")
    table.add_column("distance", justify="right")
    for method in result["methods"]:
        table.add_column(method["method"], justify="right")
    for asked_at, distance in rows:
        cells = [retrieval_cell(method, task, asked_at, distance) for method in result["methods"]]
        table.add_row(str(asked_at), str(distance), *cells)
    return table


def retrieval_cell(method: dict[str, Any], task: str, asked_at: int, distance: int) -> str:
    for row in method["retrieval"]:
        if (row["task"], row["asked_at"], row["distance"]) == (task, asked_at, distance):
            entropy = f"  H {row['entropy']:.2f}" if "entropy" in row else ""
            if task == "repeat":
                return f"{row['first_loss']:.2f} → {row['loss']:.2f}{entropy}"
            return f"{row['right']}/{row['questions']}  {row['loss']:.2f}{entropy}"
    return "–"


def _cells(losses: list[float | None]) -> list[str]:
    best = min((loss for loss in losses if loss is not None), default=None)
    bold = len(losses) > 1
    return ["–" if loss is None else f"[bold]{loss:.2f}[/bold]" if bold and loss == best else f"{loss:.2f}" for loss in losses]
