# SPDX-License-Identifier: Apache-2.0
"""gnomon inspect: one screen for people, one object for machines, and an exit code for scripts."""

import json
import re

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def squeezed(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_llama_31_on_one_screen(gnomon, llama):
    result = gnomon("inspect", llama(rope_theta=500000.0, rope_scaling=LLAMA3), code=0)
    lines = squeezed(result.out)
    assert "model llama · 4 layers · 32 heads, 8 kv heads · head_dim 128" in lines
    assert ("rotary llama3 theta 500000 · factor 8 · low 1 · high 4 · original 8192 · layout half_split") in lines
    assert "A 4 of 4 llama3 theta 500000 factor 8 half_split causal scale 0.0883883" in lines
    bands = "scaling pairs 0-28 unchanged (wavelengths to 1 956) · 29-34 blended · 35-63 divided by 8 (wavelengths from 65 750)"
    assert bands in " ".join(lines)  # T07: exactly the pairs 29 to 34 are blended
    assert "turns longest wavelength 20 473 564 positions: 25 of 64 pairs never complete a turn in 131072" in lines
    assert "doubts none" in lines
    assert result.err == ""


def test_the_numbers_of_the_screen_are_the_numbers_of_freqs(gnomon, llama):
    path = llama(rope_theta=500000.0, rope_scaling=LLAMA3)
    waves = gnomon("freqs", path, "--json", code=0).json["wavelength"]
    out = gnomon("inspect", path, code=0).out
    assert f"{max(waves):,.0f}".replace(",", " ") in out
    assert f"{sum(wave > 131072 for wave in waves)} of 64 pairs never" in out


def test_the_rotary_object_is_accepted_where_a_rule_is_needed(gnomon, llama):
    path = llama(rope_theta=500000.0, rope_scaling=LLAMA3)
    rotary = gnomon("inspect", path, "--json", code=0).json["groups"][0]["rotary"]
    by_rule = gnomon("freqs", "--rotary", json.dumps(rotary), "--json", code=0).json
    assert by_rule == gnomon("freqs", path, "--json", code=0).json
    assert by_rule["rotary"] == rotary


def test_the_object_has_the_documented_keys(gnomon, llama):
    got = gnomon("inspect", llama(rope_theta=500000.0, rope_scaling=LLAMA3), "--json", code=0).json
    assert list(got) == ["schema", "source", "model", "length", "groups", "doubts", "unread"]
    assert got["schema"] == 1
    assert got["source"]["format"] == "hf"
    assert got["model"]["layers"] == 4
    assert got["length"] == {"declared": 131072, "derived": 65536, "original": 8192}
    (group,) = got["groups"]
    assert group["layers"] == [0, 1, 2, 3]
    assert group["rotary"]["rule"] == "llama3"
    assert group["mask"] == {"causal": True, "window": None, "chunk": None, "keep_first": 0}
    assert group["softmax_scale"] == 128**-0.5
    assert group["origins"]["rotary.theta"] == {"how": "read", "file": "config.json", "key": "rope_theta"}
    assert got["doubts"] == []


def test_layers_that_differ_are_shown_apart(gnomon, gemma3):
    out = squeezed(gnomon("inspect", gemma3).out)
    assert "pattern AAAAAB AAAAAB" in out
    assert "A 10 of 12 default theta 10000 half_split causal · window 512 scale 0.0625" in out
    assert "B 2 of 12 linear theta 1000000 factor 8 half_split causal scale 0.0625" in out
    assert "group A layers 0-4, 6-10" in out
    assert "group B layers 5, 11" in out
    assert "scaling all 128 pairs divided by 8" in out
    assert "scaling none" in out


def test_origins_are_shown(gnomon, llama):
    out = " ".join(squeezed(gnomon("inspect", llama(rope_theta=10000.0, max_position_embeddings=2048), code=0).out))
    assert re.search(r"origins .*read from config.json: .*theta \(rope_theta\)", out)
    assert "family default:" in out


def test_t10_a_doubt_is_a_sentence_and_an_exit_code(gnomon, llama):
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    path = llama(rope_theta=1000000.0, max_position_embeddings=40960, rope_scaling=scaling)
    result = gnomon("inspect", path, code=1)
    assert re.search(r"doubts +warning [a-z-]+: .*", result.out)
    assert result.err == ""
    got = gnomon("inspect", path, "--json", code=1).json
    assert got["length"] == {"declared": 40960, "derived": 131072, "original": 32768}
    (doubt,) = [doubt for doubt in got["doubts"] if doubt["level"] == "warning"]
    assert doubt["code"] in result.out
    consistent = llama("consistent.json", rope_theta=1000000.0, max_position_embeddings=131072, rope_scaling=scaling)
    gnomon("inspect", consistent, code=0)


def test_a_note_is_no_reason_to_stop(gnomon, llama):
    """Llama's family default for a missing theta is documented: a note, and exit 0."""
    result = gnomon("inspect", llama(vocab_size=32000), code=0)
    assert re.search(r"doubts +note ", result.out)
    assert "10000" in result.out


def test_an_error_is_a_reason_to_stop(gnomon, refused, llama):
    path = llama(rope_theta=10000.0, rope_scaling={"rope_type": "made_up", "factor": 2.0})
    result = gnomon("inspect", path, code=1)
    assert re.search(r"doubts +error .*made_up", result.out)
    refused("freqs", path, says="made_up")


def test_warnings_reach_the_one_who_takes_the_numbers(gnomon, llama):
    path = llama(rope_theta=10000.0, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})
    result = gnomon("freqs", path, "--json", code=0)
    assert result.json["rotary"]["theta"] == 1000000
    assert result.err.startswith("gnomon: warning: ")
