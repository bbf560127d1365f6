# SPDX-License-Identifier: Apache-2.0
"""Wrong use, unreadable files and numbers that cannot be made: exit 2 and a sentence that names what is wrong."""

import json

import pytest
from rule_texts import DEFAULT, rule

YARN = {"factor": 4.0, "original_max_position_embeddings": 4096}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize("verb", [["inspect"], ["freqs"], ["table", "--positions", "0"]])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, ["missing.json", "No such file"]),
        ("", "empty"),
        ("this is not JSON", "JSON"),
        ('{"model_type": "llama"', "JSON"),
        ('{"model_type": "llama", "rope_theta": 1, "rope_theta": 2}', ["duplicate key", "rope_theta"]),
        ("[1, 2, 3]", "object"),
        ("\0\1\2\3", ""),
        ('{"model_type": "llama\xff"}', ""),
        ("[" * 100000, ""),
    ],
    ids=["missing", "empty", "words", "cut", "twice", "array", "binary", "latin1", "deep"],
)
def test_files_that_are_no_model(refused, tmp_path, verb, content, says):
    name = "missing.json"
    if content is not None:
        name = "config.json"
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    refused(verb[0], name, *verb[1:], says=says)


def test_a_folder_without_a_config(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    refused("inspect", "empty", says="config.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSON"),
        ("{}", "rule"),
        ('{"rule": "default"}', "theta"),
        ('{"rule": "default", "theta": 1e4}', "head_dim"),
        ('{"rule": "default", "theta": NaN, "head_dim": 64}', "JSON"),
        ('{"rule": "default", "theta": 1e999, "head_dim": 64}', ""),
        ('{"rule": "default", "theta": "10000", "head_dim": 64}', ["theta", "number", '"10000"']),
        ('{"rule": "default", "theta": true, "head_dim": 64}', "theta"),
        ('{"rule": "default", "theta": null, "head_dim": 64}', "theta"),
        ('{"rule": "default", "theta": 1, "theta": 2, "head_dim": 64}', ["duplicate", "theta"]),
        ('{"rule": 7, "theta": 1e4, "head_dim": 64}', "rule"),
        (rule("ropey"), ["rule", "default, linear", "ropey"]),
        (rule(theta=0), ["theta", "positive", "0"]),
        (rule(theta=-10000.0), ["theta", "positive", "-10000"]),
        (rule(head_dim=0), "head_dim"),
        (rule(head_dim=-64), "head_dim"),
        (rule(head_dim=63), ["rotary_dim", "even", "63"]),
        (rule(head_dim=64.5), ["head_dim", "integer"]),
        (rule(head_dim=65538), ["head_dim", "65536"]),
        (rule(head_dim=10**30), "head_dim"),
        (rule(rotary_dim=0), "rotary_dim"),
        (rule(rotary_dim=31), ["rotary_dim", "even", "31"]),
        (rule(rotary_dim=130), ["rotary_dim", "at most head_dim (128)", "130"]),
        (rule(rotary_dim=64, rotary_offset=65), ["rotary_offset", "65"]),
        (rule(rotary_offset=-1), "rotary_offset"),
        (rule(layout="neox"), ["layout", "half_split | interleaved", "neox"]),
        (rule(attention_factor=-1), "attention_factor"),
        (rule(factor=2.0), ["factor", "unknown", "default"]),
        (rule(thetta=1), ["thetta", "unknown"]),
        (rule("linear"), ["factor", "missing"]),
        (rule("linear", factor=0.5), ["factor", "at least 1", "0.5"]),
        (rule("linear", factor=0), "factor"),
        (rule("ntk", factor=0.99), ["factor", "at least 1"]),
        (rule("ntk", factor=2.0, head_dim=2), ["rotary_dim", "4"]),
        (rule("yarn", **{**YARN, "factor": 0.5}), ["factor", "at least 1"]),
        (rule("yarn", factor=4.0), "original_max_position_embeddings"),
        (rule("yarn", **{**YARN, "original_max_position_embeddings": 0}), "original_max_position_embeddings"),
        (rule("yarn", **YARN, beta_fast=1, beta_slow=32), ["beta_fast", "beta_slow"]),
        (rule("yarn", **YARN, truncate="no"), ["truncate", "true or false"]),
        (rule("yarn", **YARN, ramp="steep"), ["ramp", "pair_index | turns"]),
        (rule("llama3", **{**LLAMA3, "factor": 0.1}), ["factor", "at least 1"]),
        (rule("llama3", **{**LLAMA3, "low_freq_factor": 4.0, "high_freq_factor": 1.0}), ["high_freq_factor", "low_freq_factor"]),
    ],
)
def test_rules_that_cannot_be(refused, text, says):
    refused("freqs", "--rotary", text, says=says)
    result = refused("table", "--positions", "0", "--rotary", text, says=says)
    assert "--rotary" in result.err


def test_rule_files_that_cannot_be(refused, tmp_path):
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "bad.json").write_text(rule(theta=0))
    (tmp_path / "huge.json").write_text(" " * 2_000_000)
    refused("freqs", "--rotary", "@missing.json", says=["@missing.json", "No such file"])
    refused("freqs", "--rotary", "@empty.json", says=["@empty.json", "JSON"])
    refused("freqs", "--rotary", "@bad.json", says=["@bad.json", "theta"])
    refused("freqs", "--rotary", "@huge.json", says=["@huge.json", "1 MiB"])
    refused("freqs", "--rotary", f"@{tmp_path}", says="directory")


def test_a_rule_and_one_only(refused):
    refused("freqs", says=["rule", "--rotary"])
    refused("freqs", "config.json", "--rotary", DEFAULT, says="two rules")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["freqs", "--rotary", DEFAULT, "--lenght", "3"], ["freqs", "--lenght", "gnomon freqs --help"]),
        (["freqs", "--rotary", DEFAULT, "--length", "three"], "three"),
        (["freqs", "--rotary", DEFAULT, "--length", "0"], "length"),
        (["freqs", "--rotary", DEFAULT, "--length", "-5"], "length"),
        (["freqs", "--rotary", DEFAULT, "--length", ""], "--length"),
        (["freqs", "--rotary", DEFAULT, "--length", "99999999999999999999"], ["--length", "64 bits"]),
        (["freqs", "config.json", "--layer", ""], "--layer"),
        (["freqs", "config.json", "--layer", "1.5"], "--layer"),
        (["freqs", "--rotary"], "--rotary"),
        (["freqs", "--rotary", DEFAULT, "--numerics", "f32"], ["numerics", "exact", "f32"]),
        (["freqs", "one", "two"], "two"),
        (["table", "--rotary", DEFAULT], "--positions"),
        (["explain"], "RULE"),
        (["inspect"], "PATH"),
        (["inspect", ""], "empty"),
        (["inspect", "a", "b"], "b"),
        (["completion", "tcsh"], "bash | zsh | fish"),
        (["completion"], "SHELL"),
        (["--jsn"], "--jsn"),
        (["--json", "list"], "--json"),
        (["list", "explain"], "explain"),
    ],
)
def test_wrong_use(refused, arguments, says):
    refused(*arguments, says=says)


def test_a_model_without_a_theta_has_no_numbers(gnomon, refused, llama):
    """And inspect says why. 10000 is the default of families that define one; a made-up family defines none."""
    path = llama(model_type="made_up", architectures=["MadeUpForCausalLM"])
    assert gnomon("inspect", path).code == 1
    refused("freqs", path, says="")


@pytest.mark.parametrize("keys", [{"rope_theta": 0}, {"rope_theta": -1}, {"head_dim": 0}, {"head_dim": 127}, {"partial_rotary_factor": 2}])
def test_models_whose_numbers_cannot_be_made(gnomon, refused, llama, keys):
    path = llama(**{"rope_theta": 10000.0, **keys})
    assert gnomon("inspect", path).code in (1, 2)
    refused("freqs", path, says="")


def test_a_terminal_is_not_reprogrammed_by_a_file(gnomon, llama):
    """Control characters of a file are shown, not sent."""
    path = llama(model_type="evil\033[2J\x9b31m\u009b", rope_theta=10000.0)
    for result in (gnomon("inspect", path), gnomon("freqs", path)):
        shown = result.out + result.err
        assert "\033" not in shown
        assert "\x9b" not in shown
    assert json.loads(gnomon("inspect", path, "--json").out)["model"]["type"].startswith("evil\033")
