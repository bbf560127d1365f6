# SPDX-License-Identifier: Apache-2.0
"""gnomon check: doubts alone, of several models, with an exit code for scripts."""

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def conflict(llama, name="conflict/config.json"):
    return llama(name, rope_theta=10000.0, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})


def test_a_clean_model_prints_a_summary_only(gnomon, llama):
    result = gnomon("check", llama(rope_theta=500000.0, rope_scaling=LLAMA3), code=0)
    assert result.out == "1 model checked: 0 errors, 0 warnings, 0 notes\n"
    assert result.err == ""


def test_a_warning_says_what_it_costs_and_exits_with_1(gnomon, llama):
    path = conflict(llama)
    out = gnomon("check", path, code=1).out
    assert out.startswith(f"{path}\n")
    text = " ".join(out.split())
    assert "warning theta-conflict: rope_theta is 10000 but rope_parameters.rope_theta is 1000000; the inner one is used." in text
    assert "scores drift by more than 1 % from distance 3 on; at 131072 the mean cosine is " in text
    assert "1 model checked: 0 errors, 1 warning, 0 notes" in text


def test_a_note_counts_when_strict(gnomon, llama):
    path = llama(vocab_size=32000)
    assert "theta-missing-family-default" in gnomon("check", path, code=0).out
    gnomon("check", "--strict", path, code=1)
    gnomon("check", "--strict", llama("clean/config.json", rope_theta=10000.0), code=0)


def test_several_paths(gnomon, llama, gemma3):
    clean, doubtful = llama("clean/config.json", rope_theta=10000.0), conflict(llama)
    out = gnomon("check", clean, gemma3.parent, doubtful, code=1).out
    assert str(doubtful) in out
    assert str(clean) not in out
    assert "3 models checked" in out


def test_an_unreadable_path_does_not_stop_the_others(gnomon, llama, tmp_path):
    (tmp_path / "broken.json").write_text("{")
    result = gnomon("check", "broken.json", conflict(llama), "missing", code=2)
    assert "theta-conflict" in result.out
    assert "1 model checked: 0 errors, 1 warning, 0 notes; 2 could not be read" in result.out
    assert [line.split(":")[0] for line in result.err.splitlines()] == ["gnomon", "gnomon"]
    assert "broken.json" in result.err
    assert "missing" in result.err


def test_the_json(gnomon, llama):
    got = gnomon("check", "--json", conflict(llama), "missing", code=2).json
    assert (got["schema"], got["errors"], got["warnings"], got["notes"], got["unreadable"]) == (1, 0, 1, 0, 1)
    first, second = got["models"]
    assert first["type"] == "llama"
    (doubt,) = first["doubts"]
    assert doubt["code"] == "theta-conflict"
    assert doubt["cost"]["position"] == 3
    assert doubt["cost"]["distance"] == 131072
    assert "missing" in second["problem"]


def test_wrong_use(refused):
    refused("check", says="PATH")
    refused("check", "", says="empty")
