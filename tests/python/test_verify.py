# SPDX-License-Identifier: Apache-2.0
"""gnomon.golden and gnomon.verify: the same as the commands, from arrays. tests/cli/test_cli_verify.py makes every mistake."""

import json

import numpy as np
import pytest

import gnomon

YARN = gnomon.RotarySpec(gnomon.rotary.Yarn(factor=32, original_max_position_embeddings=4096, truncate=False), theta=150000, head_dim=64)


def test_a_golden_file_reads_back(tmp_path):
    golden = gnomon.golden(YARN, positions=[0, 1, 4095])
    (tmp_path / "golden.json").write_text(golden.to_json())
    again = gnomon.read_golden(tmp_path / "golden.json")
    assert again.to_json() == golden.to_json()
    assert again.spec == YARN
    assert again.positions == [0, 1, 4095]
    assert again.attention_factor == gnomon.frequencies(YARN).attention_factor
    (tmp_path / "golden.json").write_text(golden.to_json().replace("4095", "4096"))
    with pytest.raises(gnomon.Error, match="sha256"):
        gnomon.read_golden(tmp_path / "golden.json")


def test_the_hash_is_that_of_the_text_before_it():
    import hashlib

    text = gnomon.golden(YARN).to_json()
    assert hashlib.sha256(text[: text.rindex(',\n "sha256"')].encode()).hexdigest() == json.loads(text)["sha256"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_arrays_agree(dtype):
    golden = gnomon.golden(YARN)
    angles = np.array(golden.positions)[:, None] * gnomon.frequencies(YARN).inv_freq[None, :]
    report = gnomon.verify(
        {"positions": golden.positions, "cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}, golden
    )
    assert report["agrees"]
    assert report["explanations"] == []


def test_a_mistake_is_named():
    """T14: bounds of the ramp rounded where they should not be; 76 % on pair 17."""
    seen = np.array(gnomon.frequencies(YARN).inv_freq)
    assert gnomon.verify({"inv_freq": seen}, gnomon.golden(YARN))["agrees"]
    i = np.arange(32)
    base = 150000.0 ** (-2 * i / 64)
    ramp = np.clip((i - 8) / 10, 0, 1)
    seen = base * (1 - ramp + ramp / 32)
    assert seen[17] == pytest.approx(0.000227947795795125, rel=1e-12)
    report = gnomon.verify({"inv_freq": seen}, gnomon.golden(YARN))
    assert [mistake["mistake"] for mistake in report["explanations"][0]["mistakes"]] == ["yarn-truncate"]
    assert report["worst"]["pair"] == 17


@pytest.mark.parametrize(
    ("parameters", "mistakes"),
    [
        ({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, ["float32-product"]),
        ({"rope_type": "default"}, ["unscaled"]),
        ({"rope_type": "default", "rope_theta": 10000.0}, ["rope-parameters-ignored"]),
    ],
)
def test_values_of_transformers(parameters, mistakes):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rule = gnomon.rotary.Llama3(factor=8, low_freq_factor=1, high_freq_factor=4, original_max_position_embeddings=8192)
    golden = gnomon.golden(gnomon.RotarySpec(rule, theta=500000, head_dim=128))
    parameters = {"rope_type": "llama3", "rope_theta": 500000.0} | parameters
    config = transformers.LlamaConfig(head_dim=128, max_position_embeddings=131072, rope_parameters=parameters)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, 1, 1), torch.tensor([golden.positions]))
    report = gnomon.verify({"cos": cos[0].numpy(), "sin": sin[0].numpy()}, golden)
    assert [mistake["mistake"] for mistake in report["explanations"][0]["mistakes"]] == mistakes


def test_wrong_arguments_are_refused():
    golden = gnomon.golden(YARN)
    with pytest.raises(gnomon.Error, match="none of them"):
        gnomon.verify({}, golden)
    with pytest.raises(gnomon.Error, match="nowhere"):
        gnomon.verify("nowhere.json", golden)
    with pytest.raises(gnomon.Error, match="at least one"):
        gnomon.golden(YARN, positions=[])
    with pytest.raises(gnomon.Error, match="xpos"):
        gnomon.golden(gnomon.RotarySpec(gnomon.rotary.Xpos(), theta=10000, head_dim=64))
    with pytest.raises(gnomon.Error, match="exact"):
        gnomon.verify({"inv_freq": [1.0]}, golden, numerics="float")


def test_mistakes_have_distinct_names():
    names = [mistake["name"] for mistake in gnomon.list_mistakes()]
    assert len(set(names)) == len(names) > 40
    assert {"unscaled", "layout", "magnitude-twice", "float32-product"} <= set(names)
