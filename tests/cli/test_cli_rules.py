# SPDX-License-Identifier: Apache-2.0
"""gnomon list, explain and version."""

import json
import re

import pytest

ROTARY = ["default", "linear", "ntk", "dynamic", "yarn", "longrope", "llama3", "proportional", "xpos", "custom"]
ABSOLUTE = ["sinusoidal", "learned"]
BIAS = ["alibi", "t5", "deberta", "swin", "swinv2", "beit", "kerple", "sandwich", "fire"]


@pytest.fixture
def rules(gnomon):
    return {entry["name"]: entry for entry in gnomon("list", "--json", code=0).json["rules"]}


@pytest.fixture
def rotary(rules):
    return [name for name, entry in rules.items() if entry["kind"] == "rotary"]


def test_list_names_every_rule_with_a_line_about_it(gnomon, rules):
    assert set(ROTARY + ABSOLUTE + BIAS) <= set(rules)
    out = gnomon("list", code=0).out
    for name, entry in rules.items():
        assert re.search(rf"^  {name} +{re.escape(entry['summary'])}$", out, re.MULTILINE)
    assert {name for name, entry in rules.items() if not entry["in_transformers"]} == {"ntk", "xpos", "custom", "learned", *BIAS}


def test_explain_shows_what_json_shows(gnomon, rules):
    for name in rules:
        entry = gnomon("explain", name, "--json", code=0).json
        people = " ".join(gnomon("explain", name, code=0).out.split())
        for text in [entry["name"], entry["summary"], entry["formula"], entry["citation"]]:
            assert " ".join(text.split()) in people
        for field in entry["fields"] + entry["common_fields"]:
            assert f"{field['name']} {field['doc']} {field['bound']}" in people
        assert entry["numerics"] in people
        assert ("and hf" in entry["numerics"]) == entry["in_transformers"]


def test_the_example_of_every_rule_runs(gnomon, rotary):
    for name in rotary:
        entry = gnomon("explain", name, "--json", code=0).json
        assert entry["example"]["rule"] == name
        required = {field["name"] for field in entry["fields"] + entry["common_fields"] if field["required"]}
        assert set(entry["example"]) == {"rule", *required}
        got = gnomon("freqs", "--rotary", json.dumps(entry["example"]), "--json", code=0).json
        assert got["rotary"]["rule"] == name
        assert got["inv_freq"][0] <= 1


def test_the_command_that_explain_suggests_runs(gnomon, executable):
    import subprocess

    out = gnomon("explain", "yarn", code=0).out
    command = re.search(r"^ +gnomon (freqs .*)$", out, re.MULTILINE)[1]
    assert subprocess.run(f"{executable} {command}", shell=True, capture_output=True, check=False).returncode == 0


def test_every_default_is_the_one_that_counts(gnomon, rotary):
    """Leaving a field out and writing its documented default give the same object."""
    for name in rotary:
        entry = gnomon("explain", name, "--json", code=0).json
        plain = entry["example"]
        spelled = plain | {f["name"]: f["default"] for f in entry["fields"] + entry["common_fields"] if f["default"] is not None}
        results = [gnomon("freqs", "--rotary", json.dumps(rule), "--json", code=0).json for rule in (plain, spelled)]
        assert results[0] == results[1]


def test_a_field_of_another_rule_is_refused(refused, gnomon):
    example = gnomon("explain", "linear", "--json", code=0).json["example"]
    refused("freqs", "--rotary", json.dumps(example | {"beta_fast": 32}), says=["beta_fast", "unknown"])


@pytest.mark.parametrize(
    ("name", "nearest"), [("yran", "yarn"), ("llama", "llama3"), ("Linear", "linear"), ("theta-conflit", "theta-conflict")]
)
def test_an_unknown_rule_is_answered_with_the_nearest(refused, name, nearest):
    refused("explain", name, says=[f'"{name}"', f'did you mean "{nearest}"', "default, linear"])


def test_a_doubt_is_explained_too(gnomon):
    entry = gnomon("explain", "theta-conflict", "--json", code=0).json
    assert list(entry) == ["schema", "kind", "name", "level", "cause", "cost", "remedy"]
    assert (entry["kind"], entry["level"]) == ("doubt", "warning")
    people = " ".join(gnomon("explain", "theta-conflict", code=0).out.split())
    assert all(entry[key] in people for key in ("cause", "cost", "remedy"))


def test_version(gnomon):
    version = gnomon("version", "--json", code=0).json
    assert list(version) == ["schema", "version", "kernel_target", "compiler"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version["version"])
    assert version["kernel_target"]
    line = gnomon("version", code=0).out
    assert line == gnomon("--version", code=0).out
    assert all(version[key] in line for key in ("version", "kernel_target", "compiler"))
