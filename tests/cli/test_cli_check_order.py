# SPDX-License-Identifier: Apache-2.0
"""gnomon check-order: attention alone is blind to order, encodings make it see, rotations keep their laws; a failure is exit 1."""

import json
import re

import pytest
from rule_texts import DEFAULT, LLAMA3, rule

LAWS = ["permutation", "norm", "composition", "shift-1", "shift-1000000"]


def reports(gnomon, *arguments, code=0):
    got = gnomon("check-order", *arguments, "--json", code=code).json
    assert list(got) == ["schema", "holds", "reports"]
    assert got["schema"] == 1
    assert got["holds"] == (code == 0)
    for report in got["reports"]:
        assert list(report) == ["encoding", "rotary", "holds", "checks"]
        for check in report["checks"]:
            assert list(check) == ["name", "claim", "measured", "limit", "bound", "holds"]
            measured, bound = check["measured"], check["bound"]
            assert check["holds"] == (measured <= bound if check["limit"] == "at most" else measured >= bound)
        assert report["holds"] == all(check["holds"] for check in report["checks"])
    return got["reports"]


def test_attention_alone_is_blind_and_every_encoding_sees(gnomon):
    alone, *encodings = reports(gnomon)
    assert (alone["encoding"], alone["rotary"]) == ("none", None)
    (check,) = alone["checks"]
    assert (check["name"], check["limit"]) == ("permutation", "at most")
    assert check["bound"] < 1e-13
    for report in encodings:
        check = report["checks"][0]
        assert (check["name"], check["limit"]) == ("permutation", "at least")
        assert check["measured"] > 0.1  # of order 1


def test_every_rule_is_checked_on_a_sample(gnomon):
    rules = [entry["name"] for entry in gnomon("list", "--json", code=0).json["rules"] if entry["kind"] == "rotary"]
    rotary = [report for report in reports(gnomon) if report["rotary"]]
    assert [report["encoding"] for report in rotary] == rules
    for report in rotary:
        assert report["rotary"]["rule"] == report["encoding"]
        if report["encoding"] not in ("proportional", "xpos"):
            assert report["rotary"].get("factor", 4) == 4
        # The magnitudes of xpos are no rotation, and leave the range of numbers far out.
        assert [check["name"] for check in report["checks"]] == (LAWS if report["encoding"] != "xpos" else ["permutation", "shift-1"])
        # The bound is a matter of rounding, and the same at a million as at 1.
        bounds = {check["bound"] for check in report["checks"] if check["name"].startswith("shift")}
        assert len(bounds) == 1
        assert bounds.pop() < 1e-13
        # A sample can be given back.
        assert reports(gnomon, "--rotary", json.dumps(report["rotary"])) == [report]


def test_it_says_the_same_every_time(gnomon):
    assert gnomon("check-order", code=0).out == gnomon("check-order", code=0).out


def test_one_spec_or_a_model(gnomon, llama):
    (by_rule,) = reports(gnomon, "--rotary", LLAMA3)
    assert by_rule["rotary"]["head_dim"] == 128
    path = llama(
        head_dim=128,
        rope_theta=500000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    assert reports(gnomon, path) == [by_rule]


@pytest.mark.parametrize("keys", [{"layout": "interleaved"}, {"rotary_dim": 32, "rotary_offset": 64}, {"attention_factor": 1.5}])
def test_layouts_parts_and_magnitudes(gnomon, keys):
    (report,) = reports(gnomon, "--rotary", rule(**keys))
    assert report["holds"]


def test_positions_that_are_ignored_fail(gnomon):
    """A magnitude of 0 wipes out what was rotated, so that order cannot be seen any more."""
    (report,) = reports(gnomon, "--rotary", rule(attention_factor=0), code=1)
    assert [check["name"] for check in report["checks"] if not check["holds"]] == ["permutation"]
    out = gnomon("check-order", "--rotary", rule(attention_factor=0), code=1).out
    assert re.search(r"≠.* 0\.000 +at least +0\.001 +FAILS$", out, re.MULTILINE)
    assert "does not hold" in out


def test_the_table_for_people(gnomon):
    out = gnomon("check-order", code=0).out
    assert re.search(r"^none\n  attention\(PX\) = P attention\(X\) +error +\d\.\de[-+]\d\d +at most .* ok$", out, re.MULTILINE)
    assert re.search(r"^rotary yarn\n  attention\(PX\) ≠ P attention\(X\) +difference +\d\.\d\d\d +at least .* ok$", out, re.MULTILINE)
    assert out.endswith("Every statement holds.\n")
    assert len({len(line) for line in out.splitlines() if line.startswith("  ")}) == 1  # columns stand under each other


def test_wrong_use(refused):
    refused("check-order", "--rotary", "", says="a rule is needed")
    refused("check-order", "--layer", 0, says="a rule is needed")
    refused("check-order", "--rotary", DEFAULT, "--layer", 0, says="--layer")
    refused("check-order", "--rotary", rule(rotary_dim=7), says=["rotary_dim", "even"])
    refused("check-order", "missing.json", says="No such file")
