# SPDX-License-Identifier: Apache-2.0
"""gnomon extend: the methods, ready to paste; figures of the papers; what is no extension is refused."""

import json

import pytest
from rule_texts import DEFAULT, LLAMA3

LLAMA2 = ["--rotary", DEFAULT, "--trained-length", "4096"]


def test_llama_2(gnomon):
    got = gnomon("extend", *LLAMA2, "--to", "32768", "--json", code=0).json
    assert (got["schema"], got["trained"], got["original"], got["to"], got["pairs_with_a_turn"]) == (1, 4096, 4096, 32768, 46)
    by_name = {one["method"]: one for one in got["extensions"]}
    assert list(by_name) == ["none", "linear:8", "ntk:8", "dynamic:8", "yarn:8", "llama3:8", "theta:148544"]
    assert by_name["none"]["unseen_pairs"] == 18  # the other 36 channels of Scaling Laws, section 4
    assert by_name["theta:148544"]["limit"] == pytest.approx(32768, abs=1)
    assert by_name["linear:8"]["unseen_pairs"] == by_name["yarn:8"]["unseen_pairs"] == 0
    assert by_name["dynamic:8"]["drifts_from"] is None
    assert by_name["linear:8"]["drifts_from"] == 1
    assert got["smallest_base"] == 630000  # 6.3e5 in the finer search, 6.4e5 in the paper


def test_what_it_prints_can_be_pasted(gnomon):
    for one in gnomon("extend", *LLAMA2, "--to", "16384", "--json", code=0).json["extensions"]:
        again = gnomon("freqs", "--rotary", json.dumps(one["rotary"]), "--json", code=0).json
        assert again["rotary"] == one["rotary"]
    out = gnomon("extend", *LLAMA2, "--to", "16384", code=0).out
    pasted = [line.strip() for line in out.splitlines() if line.startswith("  {")]
    assert len(pasted) == 7
    for text in pasted:
        gnomon("freqs", "--rotary", text, code=0)


def test_a_scaled_model_counts_from_its_original_length(gnomon, llama):
    scaling = {key: value for key, value in json.loads(LLAMA3).items() if key not in ("rule", "theta", "head_dim")}
    path = llama(rope_theta=500000.0, rope_scaling={"rope_type": "llama3", **scaling}, max_position_embeddings=65536)
    got = gnomon("extend", path, "--to", "131072", "--json", code=0).json
    assert (got["trained"], got["original"]) == (65536, 8192)
    assert "llama3:16" in [one["method"] for one in got["extensions"]]  # and not 2, the ratio to the declared length


def test_a_windowed_layer_needs_nothing(gnomon, gemma3):
    out = gnomon("extend", gemma3, "--layer", "0", "--to", "262144", code=0).out
    assert "these layers see 512 keys only" in out
    assert "these layers see" not in gnomon("extend", gemma3, "--layer", "5", "--to", "2000000", code=0).out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rotary", DEFAULT, "--to", "8192"], "--trained-length N"),
        ([*LLAMA2, "--to", "4096"], "to: expected more than the trained length 4096"),
        ([*LLAMA2, "--to", "99999999999"], "to: expected more than"),
        ([*LLAMA2], "--to is required"),
        (["--rotary", DEFAULT, "--trained-length", "3", "--to", "8192"], "--trained-length: expected at least 7, got 3"),
    ],
)
def test_wrong_use(refused, arguments, says):
    refused("extend", *arguments, says=says)
