# SPDX-License-Identifier: Apache-2.0
"""gnomon plot: pictures are files of their kind, and show the numbers they were given."""

import json
import re

import numpy
import pytest

import gnomon

pytest.importorskip("matplotlib")
from gnomon import plot

RULE = '{"rule":"default","theta":10000,"head_dim":64}'
YARN = '{"rule":"yarn","theta":10000,"head_dim":64,"factor":4,"original_max_position_embeddings":2048}'


@pytest.fixture
def result():
    rotary = json.loads(gnomon.RotarySpec(gnomon.rotary.Default(), theta=1e4, head_dim=16).to_json())
    linear = json.loads(gnomon.RotarySpec(gnomon.rotary.Linear(factor=2), theta=1e4, head_dim=16).to_json())

    def method(name, rule, losses):
        bins = [{"from": 16 * i, "to": 16 * i + 16, "tokens": 16, "loss": loss} for i, loss in enumerate(losses)]
        rows = [
            {"task": task, "asked_at": at, "distance": distance, "questions": 4, "loss": losses[0], "first_loss": 3.0, "right": 2}
            for task in ("repeat", "passkey")
            for at in (32, 48)
            for distance in (16, at)
        ]
        groups = [{"layers": [0, 1], "rotary": rule}]
        return {"method": name, "groups": groups, "complete": True, "seconds": 1.0, "bins": bins, "retrieval": rows}

    return {
        "schema": 1,
        "model": {"trained_length": 32, "groups": [{"layers": [0, 1], "rotary": rotary}]},
        "tokens": 48,
        "numerics": "exact",
        "methods": [method("none", rotary, [2.0, 1.5, 4.0]), method("linear:2", linear, [2.5, 2.25, 2.5])],
    }


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["wavelengths", "--rotary", RULE, "--length", "2048"],
        ["wavelengths", "--rotary", YARN],
        ["frequencies", "--rotary", RULE, "--length", "2048", "--method", "yarn:4", "--method", "llama3:4"],
        ["loss", "result.json"],
        ["repeat", "result.json"],
        ["passkey", "result.json"],
    ],
)
def test_pictures_are_written(arguments, suffix, result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert plot.main([*arguments, "--out", f"picture.{suffix}"]) == 0
    picture = (tmp_path / f"picture.{suffix}").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n" if suffix == "png" else b"<?xml")
    assert len(picture) > 5000
    assert plot.main([*arguments, "--out", f"again.{suffix}"]) == 0
    assert (tmp_path / f"again.{suffix}").read_bytes() == picture


def lines(axes):
    return {line.get_label(): line.get_ydata() for line in axes.get_lines() if len(line.get_ydata()) > 2}


def test_frequencies_are_compared_with_the_own_rule(result):
    series = plot.result_series(result)
    assert [one.name for one in series] == ["none", "linear:2"]
    (axes,) = plot.frequency_picture(series, 32).axes
    numpy.testing.assert_allclose(lines(axes)["linear:2"], 0.5)
    (axes,) = plot.wavelength_picture(series, 32, 48).axes
    numpy.testing.assert_allclose(lines(axes)["none"], 2 * numpy.pi * 1e4 ** (numpy.arange(8) / 8), rtol=1e-14)


def test_losses_stand_in_the_middle_of_their_bins(result):
    (axes,) = plot.loss_picture(result).axes
    drawn = [line for line in axes.get_lines() if len(line.get_xdata()) == 3]
    assert [list(line.get_xdata()) for line in drawn] == [[8, 24, 40]] * 2
    assert list(drawn[0].get_ydata()) == [2.0, 1.5, 4.0]
    assert any(list(line.get_xdata()) == [32, 32] for line in axes.get_lines())  # the trained length


def test_svg_for_pages_refers_to_nothing_outside(result):
    svg = plot.to_svg(plot.loss_picture(result))
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert not re.search(r"https?:", svg)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wavelengths", "--rotary", RULE, "--out", "x.gif"], "ends in .png or .svg"),
        (["wavelengths", "--out", "x.png"], "expected either MODEL or --rotary"),
        (["wavelengths", "missing.gguf", "--out", "x.png"], "missing.gguf"),
        (["wavelengths", "--rotary", '{"rule":"nope","theta":1e4,"head_dim":64}', "--out", "x.png"], "nope"),
        (["wavelengths", "--rotary", "@missing.json", "--out", "x.png"], "missing.json: cannot be read"),
        (["wavelengths", "--rotary", RULE, "--out", "no/x.png"], "no/x.png: cannot be written"),
        (["frequencies", "--rotary", RULE, "--out", "x.png"], "expected at least one --method"),
        (["frequencies", "--rotary", RULE, "--method", "yarn:2", "--out", "x.png"], "trained length"),
        (["frequencies", "--rotary", RULE, "--method", "nope:2", "--out", "x.png"], "unknown method 'nope:2'"),
        (["loss", "missing.json", "--out", "x.png"], "missing.json: cannot be read"),
        (["loss", "text.json", "--out", "x.png"], "text.json: not JSON"),
        (["loss", "other.json", "--out", "x.png"], "expected a result of gnomon eval"),
        (["passkey", "bare.json", "--out", "x.png"], "holds no answers of the task passkey"),
        (["loss", "result.json", "--out", "full.svg"], "full.svg: cannot be written: No space left"),
    ],
)
def test_wrong_use_is_one_clear_message(arguments, message, result, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "result.json").write_text(json.dumps(result))
    (tmp_path / "text.json").write_text("In the beginning")
    (tmp_path / "other.json").write_text('{"schema": 1}')
    bare = result | {"methods": [method | {"retrieval": []} for method in result["methods"]]}
    (tmp_path / "bare.json").write_text(json.dumps(bare))
    (tmp_path / "full.svg").symlink_to("/dev/full")
    present = sorted(path.name for path in tmp_path.iterdir())
    assert plot.main(arguments) == 2
    assert re.match(r"gnomon: .*" + re.escape(message), capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir()) == present
