# SPDX-License-Identifier: Apache-2.0
"""gnomon.compare, gnomon.Drift and the cost of doubts."""

import json

import numpy
import pytest

import gnomon

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 4,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.fixture
def pair(tmp_path):
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(json.dumps({**LLAMA, "rope_scaling": LLAMA3}))
    b.write_text(json.dumps(LLAMA))
    return a, b


def test_what_differs(pair):
    comparison = gnomon.compare(*pair, distances=[8192])
    assert not comparison.equal
    (layers,) = comparison.layers
    assert layers.layers == [0, 1, 2, 3]
    assert [one.field for one in layers.differences][:2] == ["rotary.rule", "rotary.factor"]
    assert layers.drift.mean_cosines == [pytest.approx(0.7689460837, abs=6e-11)]  # T07
    assert json.loads(comparison.to_json())["equal"] is False
    assert gnomon.compare(gnomon.read_model(pair[0]), pair[0]).equal


def test_drift_of_two_rotations(pair):
    a, b = (gnomon.read_model(path).rotary() for path in pair)
    drift = gnomon.Drift(a, b)
    distances = numpy.array([0, 1000, 131071])
    numpy.testing.assert_allclose(drift.mean_cosine(distances), [1, 0.9630635813, 0.5018345378], atol=6e-11)
    assert drift.mean_cosine(1000) == drift.mean_cosine(distances)[1]
    position = drift.position()
    assert 1 - drift.mean_cosine(position - 1) <= gnomon.drift_limit < 1 - drift.mean_cosine(position)
    assert drift.position(limit=0.1) > position
    assert gnomon.Drift(a, a).position() is None
    with pytest.raises(gnomon.Error, match="head_dim"):
        gnomon.Drift(a, gnomon.RotarySpec(gnomon.rotary.Default(), theta=1e4, head_dim=64))


def test_cost_of_a_doubt(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "rope_parameters": {"rope_theta": 10000.0}}))
    (doubt,) = [doubt for doubt in gnomon.read_model(path).doubts if doubt.code == "theta-conflict"]
    assert doubt.cost.position == 3
    assert doubt.cost.distance == 131072
    assert doubt.cost.mean_cosine < 0.5
    path.write_text(json.dumps({key: value for key, value in LLAMA.items() if key != "rope_theta"}))
    assert gnomon.read_model(path).doubts[0].cost is None


def test_the_picture(pair, tmp_path):
    pytest.importorskip("matplotlib")
    from gnomon import plot

    figure = plot.drift_picture(gnomon.compare(*pair))
    (axes,) = figure.axes
    curve = axes.lines[0]
    x, y = curve.get_data()
    at = int(numpy.searchsorted(x, 8192))
    a, b = (gnomon.read_model(path).rotary() for path in pair)
    assert y[at] == gnomon.Drift(a, b, length=131072).mean_cosine(int(x[at]))
    assert plot.main(["drift", str(pair[0]), str(pair[1]), "--out", str(tmp_path / "drift.svg")]) == 0
    assert (tmp_path / "drift.svg").read_text().startswith("<?xml")
    assert plot.main(["drift", str(pair[0]), str(pair[0]), "--out", str(tmp_path / "none.svg")]) == 2
    assert not (tmp_path / "none.svg").exists()
