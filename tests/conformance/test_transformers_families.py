# SPDX-License-Identifier: Apache-2.0
"""Families as the installed transformers builds them from the configuration its own class wrote: the same frequencies, the same layout; and
as a forward pass of a tiny model turns queries and keys."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

PROGRAM = pathlib.Path(__file__).parent / "transformers_families.py"


@pytest.fixture(scope="module")
def families():
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
    run = subprocess.run([sys.executable, PROGRAM], env={**os.environ, **quiet}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_frequencies_and_layouts_are_those_of_the_model(families, tally):
    different = {name: found["different"] for name, found in families.items() if found["different"]}
    assert different == {}
    tally("families of transformers", len(families))


def test_forward_passes_of_tiny_models_turn_as_they_are_read(families, tally):
    """Every attention layer: scores are those of the frequencies, layout and direction that are read, and not of another layout or
    direction; layers that are said not to rotate do not."""
    seen = {name: found["forward"] for name, found in families.items() if found["forward"]}
    assert {name: faults for name, faults in seen.items() if any(faults)} == {}
    assert sum(families[name]["layout"] == "interleaved" for name in seen) >= 10
    tally("families in a forward pass", len(seen))
    tally("layers in a forward pass", sum(map(len, seen.values())))


def test_layouts_were_seen_in_both_forms(families, tally):
    """A probe that says half_split to everything would pass above for all but a few."""
    layouts = [found["layout"] for found in families.values()]
    assert layouts.count("interleaved") >= 10
    tally("layouts of families", sum(layout is not None for layout in layouts))
