# SPDX-License-Identifier: Apache-2.0
"""`hf` numerics against the transformers that is installed: its ROPE_INIT_FUNCTIONS and its rotary module."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

PROGRAM = pathlib.Path(__file__).parent / "transformers_rope.py"


def found(**environment):
    run = subprocess.run([sys.executable, PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def plain():
    """With torch's plain code path, whose float32 power is correctly rounded."""
    return found(ATEN_CPU_CAPABILITY="default")


def test_every_rule_of_the_library_has_a_counterpart(plain):
    """A rule that transformers registers and we do not compare is a rule we would read wrongly or not at all."""
    assert plain["without a counterpart"] == []


def test_frequencies_are_bit_equal(plain, tally):
    assert plain["capability"] == "DEFAULT"
    assert plain["frequencies"]["different"] == 0, plain["frequencies"]
    tally("frequencies against ROPE_INIT_FUNCTIONS", plain["frequencies"]["compared"])


def test_frequencies_of_dynamic_are_bit_equal_but_for_ties(plain, tally):
    """Its bases are no round numbers, and glibc's float32 power, of which torch's plain path is made, is not correctly rounded: where the
    real power lies within 0.001 ulp of a tie (two in ten thousand of them) it may take the other neighbour."""
    found = plain["frequencies of dynamic"]
    assert found["largest"] <= 1, found
    assert found["different"] <= 0.0005 * found["compared"], found
    tally("frequencies of dynamic against ROPE_INIT_FUNCTIONS", found["compared"])


def test_attention_factors_are_equal(plain, tally):
    assert plain["attention factors"]["different"] == 0, plain["attention factors"]
    tally("attention factors against ROPE_INIT_FUNCTIONS", plain["attention factors"]["compared"])


def test_exact_frequencies_are_the_same_rule(plain, tally):
    """What float32 steps lose (most where yarn and llama3 blend), and no more: another rule is off by far more."""
    assert plain["exact frequencies"]["largest"] < 5e-6, plain["exact frequencies"]
    tally("exact frequencies near ROPE_INIT_FUNCTIONS", plain["exact frequencies"]["compared"])


@pytest.mark.parametrize(("kind", "ulp"), [("cos and sin", 1), ("cos and sin with a magnitude", 2)])
def test_cos_and_sin_are_those_of_the_module(plain, tally, kind, ulp):
    """The float32 angle is the same number; torch's cosine of it is within an ulp of the correctly rounded one, which is ours."""
    assert plain[kind]["largest"] <= ulp, plain[kind]
    assert plain[kind]["different"] <= 0.06 * plain[kind]["compared"], plain[kind]
    tally(f"{kind} against LlamaRotaryEmbedding", plain[kind]["compared"])


def test_whatever_code_path_torch_takes(tally):
    """Its vector power is not correctly rounded: a few ulp in a few frequencies."""
    usual = found()
    for kind in ("frequencies", "frequencies of dynamic"):
        assert usual[kind]["largest"] <= 3, usual[kind]
        assert usual[kind]["different"] <= 0.05 * usual[kind]["compared"], usual[kind]
    assert usual["attention factors"]["different"] == 0
    assert usual["cos and sin"]["largest"] <= 1, usual["cos and sin"]
    tally("frequencies on torch's usual code path", usual["frequencies"]["compared"])
