# SPDX-License-Identifier: Apache-2.0
"""gnomon.analysis: the calculators as Python sees them, against NumPy and the papers; and what eval makes of them."""

import numpy
import pytest

import gnomon
from gnomon import analysis, plot
from gnomon.eval import methods
from gnomon.eval.errors import UsageError

LLAMA2 = gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=128)


def test_decay_of_ranges_lists_and_arrays():
    frequencies = gnomon.frequencies(LLAMA2)
    expected = numpy.cos(numpy.arange(100)[:, None] * 1e4 ** (-numpy.arange(64) / 64)).mean(1)
    for distances in (range(100), list(range(100)), numpy.arange(100), numpy.arange(100, dtype=numpy.int32)):
        numpy.testing.assert_allclose(analysis.mean_cosine(frequencies, distances), expected, atol=1e-13)
    assert analysis.decay_bound(frequencies, [0, 100]) == pytest.approx([32.5, 10.227], abs=1e-3)
    with pytest.raises(gnomon.Error, match="whole numbers"):
        analysis.mean_cosine(frequencies, [0.5])


def test_figures_of_the_papers():
    frequencies = gnomon.frequencies(LLAMA2)
    assert analysis.critical_dimension(1e4, 128, 4096) == 2 * analysis.pairs_with_a_turn(frequencies, 4096) == 92
    assert analysis.extrapolation_limit(1e6, 92, 128) == pytest.approx(129027, abs=1)
    assert analysis.base_for_limit(16384, 92, 128) == pytest.approx(56628, abs=1)
    assert analysis.critical_base(1e4, 4096, 16384) == pytest.approx(71738, abs=1)
    assert analysis.first_negative_distance(frequencies, 4096) == 1707
    assert analysis.smallest_base(128, 4096, digits=5) == pytest.approx(26954, abs=2)
    assert [(one.distance, round(one.mean_cosine, 3)) for one in analysis.aliases(frequencies, 20)] == [(12, 0.662), (18, 0.619)]


def test_precision():
    by_name = {one.pipeline.name: one for one in analysis.precision(gnomon.frequencies(LLAMA2), range(4096))}
    assert by_name["exact"].worst == 0
    assert by_name["exact"].pipeline.angle is None
    assert by_name["position bf16"].distinct == analysis.distinct_positions(range(4096), "bf16") == 769
    positions, inv_freq = numpy.arange(4096), 1e4 ** (-numpy.arange(64) / 64)
    products = (positions.astype(numpy.float32)[:, None] * inv_freq.astype(numpy.float32)).astype(float)
    assert by_name["f32"].worst == pytest.approx(abs(products - positions[:, None] * inv_freq).max(), rel=1e-6)
    half = next(one for one in analysis.list_pipelines() if one.name == "angle f16")
    seen = numpy.cos(float(numpy.float16(inv_freq[1]) * numpy.float16(1857)))
    assert analysis.rotation(half, inv_freq[1], 1857)[0] == pytest.approx(seen, abs=1e-3)
    with pytest.raises(gnomon.Error, match="expected a range"):
        analysis.precision(gnomon.frequencies(LLAMA2), [1, 2])


def test_extend_and_its_methods():
    report = analysis.extend(analysis.Training(LLAMA2, 4096), 16384)
    assert [one.method for one in report.extensions][:3] == ["none", "linear:4", "ntk:4"]
    for one in report.extensions:
        assert analysis.with_method(LLAMA2, one.method, 4096) == one.spec
        assert analysis.method_advice(one.method)
        assert methods.parse(one.method).name == one.method  # eval knows every method that extend names
    with pytest.raises(gnomon.Error, match="more than the trained length"):
        analysis.extend(analysis.Training(LLAMA2, 4096), 4096)


def test_sections_stay_under_a_method():
    spec = gnomon.RotarySpec(gnomon.rotary.Default(), theta=1e6, head_dim=128, sections=[16, 24, 24])
    assert methods.with_method(spec, methods.parse("yarn:4"), 32768).sections == [16, 24, 24]


def test_auto_is_what_extend_lists(tiny_model):
    header = gnomon.read_model(str(tiny_model("llama")))
    names = [method.name for method in methods.automatic(header, 64, 256)]
    own = methods.own_rules(header)[0].rotary
    assert names == [one.method for one in analysis.extend(analysis.Training(own, 64), 256).extensions]
    assert {"none", "linear:4", "yarn:4", "dynamic:4"} <= set(names)
    for name in names:
        assert methods.rules(methods.parse(name), header, 64, 256)
    with pytest.raises(gnomon.Error, match="more than the trained length 64"):
        methods.automatic(header, 64, 64)


def test_dynamic_has_the_base_of_the_whole_text(tiny_model):
    header = gnomon.read_model(str(tiny_model("llama")))
    (group,) = methods.rules(methods.parse("dynamic:2"), header, 64, 256)
    own = methods.own_rules(header)[0].rotary
    expected = gnomon.frequencies(analysis.with_method(own, "dynamic:2", 64), length=256).inv_freq
    numpy.testing.assert_allclose(gnomon.frequencies(group.rotary).inv_freq, expected, rtol=1e-14)
    assert group.rotary.rule.name == "default"  # nothing left that could change in the middle
    assert not numpy.allclose(expected, gnomon.frequencies(own).inv_freq)


def test_a_method_that_cannot_take_the_place_is_refused():
    spec = gnomon.RotarySpec(gnomon.rotary.Proportional(partial_rotary_factor=0.25), theta=1e6, head_dim=128)
    with pytest.raises(UsageError, match="cannot take the place of the rule proportional"):
        methods.with_method(spec, methods.parse("yarn:4"), 4096)
    assert methods.with_method(spec, methods.parse("linear:4"), 4096).rule.factor == 4


def test_pictures():
    series = [plot.Series("own rule", gnomon.frequencies(LLAMA2))]
    (axes,) = plot.decay_picture(series, 4096, 16384).axes
    marked = [line for line in axes.get_lines() if list(line.get_ydata()) == [0]]
    assert [list(line.get_xdata()) for line in marked] == [[1707]]
    (axes,) = plot.precision_picture(series[0], 4096).axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert drawn["all in bf16"][-1] == pytest.approx(numpy.pi)
    assert drawn["f32"][-1] < 3e-4
    assert drawn["f32"] == sorted(drawn["f32"])
