# SPDX-License-Identifier: Apache-2.0
"""What the comparisons of this folder report: a candidate's time, a rival's time in the same run, and their ratio."""

import dataclasses
import json


@dataclasses.dataclass
class Result:
    case: str
    candidate: str
    seconds: float
    rival: str
    rival_seconds: float
    goal: float | None  # the least speed-up that is aimed at

    @property
    def ratio(self):
        return self.rival_seconds / self.seconds


def as_json(results, **about):
    return json.dumps({**about, "results": [{**dataclasses.asdict(result), "ratio": result.ratio} for result in results]}, indent=2)


def as_table(results):
    rows = [("case", "candidate", "µs", "rival", "µs", "ratio", "goal", "")]
    for result in results:
        times = (f"{seconds * 1e6:.1f}" for seconds in (result.seconds, result.rival_seconds))
        goal = "" if result.goal is None else f"≥ {result.goal:g}"
        missed = "missed" if result.goal is not None and result.ratio < result.goal else ""
        rows.append((result.case, result.candidate, next(times), result.rival, next(times), f"{result.ratio:.2f}", goal, missed))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = {2, 4, 5, 6}
    return "\n".join(
        "  ".join(cell.rjust(width) if i in numbers else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )
