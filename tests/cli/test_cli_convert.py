# SPDX-License-Identifier: Apache-2.0
"""gnomon convert: the setting on standard output, what is lost on standard error, and an exit code that tells."""

import json
import shlex

import pytest

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32, "max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
NTK = '{"rule": "ntk", "theta": 10000, "head_dim": 128, "factor": 4}'


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"rope_theta": 500000.0, "rope_scaling": YARN}))
    return "config.json"


def test_every_dialect_writes_its_form(gnomon, config):
    for to in ("transformers", "transformers-v4", "mlx", "exllama"):
        assert isinstance(gnomon("convert", config, "--to", to, code=0).json, dict)
    for to in ("llama.cpp", "vllm"):
        words = shlex.split(gnomon("convert", config, "--to", to, code=0).out)
        assert len(words) % 2 == 0
        assert all(flag.startswith("--") for flag in words[::2])
    lines = gnomon("convert", config, "--to", "gguf", code=0).out.splitlines()
    assert 'llama.rope.scaling.type  string  "yarn"' in lines
    assert all(len(line.split("  ")) == 3 for line in lines)


def test_json_says_what_runs(gnomon, config):
    result = gnomon("convert", config, "--to", "vllm", "--json", code=0).json
    assert result["schema"] == 1
    assert result["dialect"] == "vllm"
    assert result["equal"]
    assert result["losses"] == []
    assert result["context"] == 32768
    assert result["setting"][0] == "--hf-overrides"
    assert result["layers"][0]["layers"] == [0, 1]
    assert result["layers"][0]["asked"] == result["layers"][0]["runs"]


def test_a_loss_is_told_and_verify_exits_with_1(gnomon, tmp_path):
    scaling = YARN | {"truncate": False, "attention_factor": 1.0}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"rope_theta": 150000, "rope_scaling": scaling}))
    plain = gnomon("convert", "config.json", "--to", "llama.cpp", code=0)
    assert "lost: frequencies" in plain.err
    assert "truncate" in plain.err
    assert "lost: attention_factor" in plain.err
    assert "drift" in plain.err
    assert "truncate" not in plain.out
    checked = gnomon("convert", "config.json", "--to", "llama.cpp", "--verify", code=1)
    assert checked.out == plain.out
    assert "read back: differs in frequencies, attention_factor" in checked.err
    result = gnomon("convert", "config.json", "--to", "llama.cpp", "--verify", "--json", code=1).json
    assert not result["equal"]
    assert result["losses"][0]["cost"]["apart_from"] > 0
    equal = gnomon("convert", "config.json", "--to", "transformers", "--verify", code=0)
    assert "read back: equal" in equal.err


def test_a_method_and_a_rule_can_be_asked_for(gnomon, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"rope_theta": 500000.0}))
    setting = gnomon("convert", "config.json", "--to", "transformers", "--method", "yarn:4", code=0).json
    assert setting["max_position_embeddings"] == 32768
    assert setting["rope_parameters"] == {
        "rope_type": "yarn",
        "rope_theta": 500000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert gnomon("convert", "--rotary", NTK, "--to", "exllama", code=0).json["rope_alpha"] == pytest.approx(4)


def test_out_is_complete_or_absent(gnomon, config, tmp_path):
    gnomon("convert", config, "--to", "transformers", "--compatible", "--out", "rope.json", code=0)
    assert set(json.loads((tmp_path / "rope.json").read_text())) == {
        "max_position_embeddings",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
    }
    (tmp_path / "kept.json").write_text("kept")
    gnomon("convert", "nowhere.json", "--to", "transformers", "--out", "kept.json", code=2)
    gnomon("convert", config, "--to", "nothing", "--out", "kept.json", code=2)
    assert (tmp_path / "kept.json").read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["config.json"], "--to"),
        (["config.json", "--to", "tgi"], "transformers | transformers-v4"),
        (["config.json", "--to", "vllm", "--method", "yarn"], "yarn:FACTOR"),
        (["config.json", "--to", "vllm", "--method", "longrope:4"], "longrope"),
        (["config.json", "--to", "vllm", "--compatible"], "compatible"),
        (["config.json", "--to", "vllm", "--context", "0"], "context"),
        (["config.json", "--to", "vllm", "--context", ""], "context"),
        (["config.json", "--to", "vllm", "--layer", "0"], "--layer"),
        (["config.json", "--rotary", NTK, "--to", "vllm"], "two rules"),
        (["--to", "vllm"], "a rule is needed"),
    ],
)
def test_wrong_use_is_named(gnomon, config, arguments, word):
    result = gnomon("convert", *arguments, code=2)
    assert word in result.err
    assert result.out == ""
