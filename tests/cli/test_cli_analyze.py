# SPDX-License-Identifier: Apache-2.0
"""gnomon analyze: published figures come out of it, and the cases in which engines lost positions."""

import math

import pytest
from rule_texts import DEFAULT, rule

LLAMA2 = ["--rotary", DEFAULT, "--length", "4096"]


def precision(got, name):
    (one,) = [one for one in got["precision"] if one["name"] == name]
    return one


def test_llama_2(gnomon):
    got = gnomon("analyze", *LLAMA2, "--json", code=0).json
    assert (got["schema"], got["length"], got["pairs_with_a_turn"]) == (1, 4096, 46)  # critical dimension 92
    assert got["turns"] == [4096 / wavelength for wavelength in got["wavelength"]]
    assert got["negative_from"] == 1707
    assert got["smallest_base"] == pytest.approx(26954, rel=0.1)
    assert got["decay"][0] == {"distance": 1, "mean_cosine": pytest.approx(0.97, abs=0.01), "bound": pytest.approx(31.538, abs=1e-3)}
    assert got["decay"][-1]["distance"] == 4096
    assert got["aliases"][0]["distance"] == 12
    assert precision(got, "exact")["worst"] == 0
    assert precision(got, "position bf16")["distinct"] == 769
    assert precision(got, "position bf16")["merged_from"] == 256
    assert precision(got, "f32")["distinct"] == 4096
    assert precision(got, "angle bf16")["worst"] == pytest.approx(math.pi)


def test_what_a_cast_does_to_an_image(gnomon):
    got = gnomon("analyze", "--rotary", DEFAULT, "--length", "131072", "--positions", "65536:66560", "--json", code=0).json
    assert got["positions"] == [65536, 66560]
    assert precision(got, "angle bf16")["distinct"] == 3  # what autocast left of 1024
    assert precision(got, "f32")["distinct"] == 1024
    out = gnomon("analyze", "--rotary", DEFAULT, "--length", "131072", "--positions", "65536:66560", code=0).out
    out = " ".join(out.split())
    assert "leaves 3 of 1024; 65536 and 65537 are the first to become one" in out


def test_people_read_it(gnomon, llama):
    out = gnomon("analyze", llama(rope_theta=500000.0), code=0).out
    assert "49 of 64 pairs complete a turn in 131072 positions" in out
    assert "98 of 128 (the critical dimension)" in " ".join(out.split())
    for word in ["decay", "aliasing", "precision", "█", "···", "From distance 18438 on"]:
        assert word in out
    assert max(map(len, out.splitlines())) < 200


def test_a_scaling_is_part_of_it(gnomon):
    plain = gnomon("analyze", *LLAMA2, "--json", code=0).json
    linear = gnomon("analyze", "--rotary", rule("linear", factor=4.0), "--length", "4096", "--json", code=0).json
    assert linear["turns"] == pytest.approx([turns / 4 for turns in plain["turns"]])
    assert linear["negative_from"] == pytest.approx(4 * plain["negative_from"], abs=4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rotary", DEFAULT], "--length N"),
        (["--rotary", DEFAULT, "--length", "0"], "--length: expected 1 to"),
        (["--rotary", DEFAULT, "--length", "99999999999"], "--length: expected 1 to"),
        ([*LLAMA2, "--positions", "5"], "expected START:STOP"),
        ([*LLAMA2, "--positions", "5:x"], "expected START:STOP"),
        ([*LLAMA2, "--positions", "9:5"], "positions: expected at least one"),
        ([*LLAMA2, "--positions", "-5:5"], "positions: expected 0 or more"),
        (["missing.json"], "missing.json"),
    ],
)
def test_wrong_use(refused, arguments, says):
    refused("analyze", *arguments, says=says)
