# SPDX-License-Identifier: Apache-2.0
"""gnomon freqs. Numbers with a T are from public bug reports, computed at 60 digits; each comes with the wrong value people saw."""

import json
import math
import re
from decimal import Decimal, getcontext

import pytest
from rule_texts import DEFAULT, LLAMA3, rule

LLAMA32 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
GPT_OSS = {"factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096}


def agrees(got, right):
    return math.isclose(got, right, rel_tol=2e-14)


def check(got, right):
    """Every pair agrees with the right values."""
    wrong = {pair: (got[pair], value) for pair, value in right.items() if not agrees(got[pair], value)}
    assert not wrong


def check_told_apart(seen, right):
    """The wrong values do not pass the check that the right ones pass."""
    assert seen
    assert not any(agrees(seen[pair], right[pair]) for pair in seen)


def freqs(gnomon, *arguments):
    return gnomon("freqs", *arguments, "--json", code=0).json


def test_the_object_has_the_documented_keys(gnomon):
    got = freqs(gnomon, "--rotary", DEFAULT)
    assert list(got) == ["schema", "rotary", "numerics", "length", "inv_freq", "wavelength", "attention_factor"]
    assert got["schema"] == 1
    assert got["numerics"] == "exact"
    assert got["rotary"]["rotary_dim"] == 128
    assert len(got["inv_freq"]) == len(got["wavelength"]) == 64


@pytest.mark.parametrize(("theta", "width"), [(10000.0, 64), (500000.0, 128), (1e6, 256), (123.456, 6)])
def test_numbers_read_back_to_the_very_double(gnomon, theta, width):
    """Each is the double nearest to the real number, so a digit too few or too many would show."""
    getcontext().prec = 60
    got = freqs(gnomon, "--rotary", rule(theta=theta, head_dim=width))["inv_freq"]
    assert got == [float(Decimal(theta) ** (Decimal(-2 * i) / width)) for i in range(width // 2)]
    assert got != [float(f"{value:.15g}") for value in got]


def test_wavelength_is_two_pi_over_the_frequency(gnomon):
    got = freqs(gnomon, "--rotary", LLAMA3)
    for frequency, wavelength in zip(got["inv_freq"], got["wavelength"], strict=True):
        assert math.isclose(wavelength, 2 * math.pi / frequency, rel_tol=1e-15)


def test_real_numbers_look_real(gnomon):
    """1.0 and not 1: readers that type by the look of a number take every entry for the same type."""
    out = gnomon("freqs", "--rotary", DEFAULT, "--json", code=0).out
    assert '"inv_freq": [1.0, ' in out
    assert '"attention_factor": 1.0}' in out


def test_t06_llama_32_scaling(gnomon, llama):
    path = llama(head_dim=64, rope_theta=500000.0, rope_scaling=LLAMA32)
    got = freqs(gnomon, path)["inv_freq"]
    right = {
        14: 0.0032114459947525910,
        15: 0.0012905479282092638,
        16: 0.00042955679655936820,
        17: 9.7082878026276723e-5,
        18: 1.9461638184831124e-5,
        31: 9.4183067254349098e-8,
    }
    check(got, right)
    unscaled = freqs(gnomon, "--rotary", rule(theta=500000.0, head_dim=64))["inv_freq"]
    ratios = [a / b for a, b in zip(got, unscaled, strict=True)]
    assert ratios[:15] == [1] * 15
    assert ratios[18:] == [1 / 32] * 14
    for pair, ratio in {15: 0.605572754534, 16: 0.303742523752, 17: 0.103447609031}.items():
        assert math.isclose(ratios[pair], ratio, rel_tol=1e-11)
    check_told_apart({pair: unscaled[pair] for pair in (15, 16, 17, 18, 31)}, right)


def test_t07_llama_31_scaling(gnomon):
    got = freqs(gnomon, "--rotary", LLAMA3)["inv_freq"]
    right = {29: 0.0021665707635033586, 35: 9.5562123539646830e-5, 63: 3.0689259889145111e-7}
    check(got, right)
    unscaled = freqs(gnomon, "--rotary", rule(theta=500000.0))["inv_freq"]
    blended = [pair for pair in range(64) if got[pair] not in (unscaled[pair], unscaled[pair] / 8)]
    assert blended == [29, 30, 31, 32, 33, 34]
    drift = sum(math.cos((a - b) * 8192) for a, b in zip(unscaled, got, strict=True)) / 64
    assert math.isclose(drift, 0.7689460837, rel_tol=1e-9)
    check_told_apart({pair: unscaled[pair] for pair in right}, right)


def test_t08_theta_inside_rope_parameters(gnomon, llama):
    path = llama(head_dim=128, rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    got = freqs(gnomon, path)
    assert got["rotary"]["theta"] == 500000
    check(got["inv_freq"], {1: 0.81461723385654470})
    check_told_apart({1: freqs(gnomon, "--rotary", DEFAULT)["inv_freq"][1]}, {1: 0.81461723385654470})


def test_t10_the_explicit_yarn_factor_counts(gnomon, llama):
    path = llama(head_dim=128, rope_theta=1000000.0, max_position_embeddings=40960, rope_scaling=YARN)
    got = freqs(gnomon, path)
    right = {
        23: 0.00697830584859866,
        24: 0.00537532149079010,
        30: 0.00106436098124700,
        39: 6.49039432083703e-5,
        40: 4.44569852509731e-5,
        63: 3.10234440187930e-7,
    }
    check(got["inv_freq"], right)
    assert agrees(got["attention_factor"], 1.13862943611199)
    wrong = freqs(gnomon, "--rotary", rule("yarn", theta=1e6, factor=1.25, original_max_position_embeddings=32768))
    assert agrees(wrong["attention_factor"], 1.02231435513142)
    check(wrong["inv_freq"], {30: 0.00141310904744283, 63: 9.92750208601376e-7})
    check_told_apart({pair: wrong["inv_freq"][pair] for pair in (30, 63)}, right)


@pytest.mark.parametrize(
    ("factor", "magnitude"),
    [
        (1, 1),
        (1.25, 1.02231435513142),
        (2, 1.06931471805599),
        (4, 1.13862943611199),
        (8, 1.20794415416798),
        (16, 1.27725887222398),
        (32, 1.34657359027997),
        (40, 1.36888794541139),
        (64, 1.41588830833597),
        (128, 1.48520302639196),
    ],
)
def test_t12_the_magnitude_is_the_one_of_the_rule_and_not_its_square(gnomon, factor, magnitude):
    got = freqs(gnomon, "--rotary", rule("yarn", factor=factor, original_max_position_embeddings=4096))["attention_factor"]
    assert agrees(got, magnitude)
    assert factor == 1 or not agrees(got**2, magnitude)


def test_t11_an_explicit_attention_factor_wins(gnomon):
    yarn = {"factor": 64.0, "original_max_position_embeddings": 4096}
    assert freqs(gnomon, "--rotary", rule("yarn", **yarn, attention_factor=1.0))["attention_factor"] == 1
    assert agrees(freqs(gnomon, "--rotary", rule("yarn", **yarn, attention_factor=None))["attention_factor"], 1.41588830833597)


def test_t14_fractional_yarn_bounds(gnomon):
    got = freqs(gnomon, "--rotary", rule("yarn", theta=150000, head_dim=64, **GPT_OSS))
    right = {
        8: 0.0508132748154615,
        9: 0.0317056961846638,
        12: 0.00679495948973222,
        16: 0.000456483919223240,
        17: 0.000129318701245063,
        18: 3.83088123737534e-5,
    }
    check(got["inv_freq"], right)
    assert agrees(got["attention_factor"], 1.34657359027997)
    rounded = freqs(gnomon, "--rotary", rule("yarn", theta=150000, head_dim=64, **{**GPT_OSS, "truncate": True}))["inv_freq"]
    seen = {9: 0.0316207522753465, 16: 0.000580947501931113, 17: 0.000227947795795125}
    check(rounded, seen)
    check_told_apart(seen, right)


def test_hf_numerics_are_float32_values(gnomon):
    import numpy

    exact, hf = (freqs(gnomon, "--rotary", LLAMA3, "--numerics", numerics) for numerics in ("exact", "hf"))
    assert (exact["numerics"], hf["numerics"]) == ("exact", "hf")
    assert all(float(numpy.float32(value)) == value for value in hf["inv_freq"])
    assert hf["inv_freq"] != exact["inv_freq"]
    for a, b in zip(hf["inv_freq"], exact["inv_freq"], strict=True):
        assert math.isclose(a, b, rel_tol=1e-6)


def test_hf_is_refused_where_transformers_has_no_such_rule(refused):
    refused("freqs", "--rotary", rule("ntk", factor=2.0), "--numerics", "hf", says=["hf", "ntk", "exact"])


def test_what_is_printed_can_be_given_back(gnomon, tmp_path):
    first = freqs(gnomon, "--rotary", LLAMA3)
    text = json.dumps(first["rotary"])
    (tmp_path / "rule.json").write_text(text)
    assert freqs(gnomon, "--rotary", text) == first
    assert freqs(gnomon, "--rotary", "@rule.json") == first
    assert gnomon("freqs", "--rotary", "@-", "--json", text=text, code=0).json == first
    assert freqs(gnomon, text) == first  # in the place of a path
    assert freqs(gnomon, "@rule.json") == first


def test_a_model_can_be_named_three_ways(gnomon, llama):
    path = llama("model/config.json", rope_theta=500000.0)
    by_file = freqs(gnomon, path)
    assert freqs(gnomon, path.parent) == by_file
    assert freqs(gnomon, "--rotary", path) == by_file


def test_layers_that_differ_need_a_layer(gnomon, refused, gemma3):
    refused("freqs", gemma3, says="layer")
    local, everywhere = (freqs(gnomon, gemma3, "--layer", layer) for layer in (0, 5))
    assert local["rotary"]["rule"] == "default"
    assert local["rotary"]["theta"] == 10000
    assert everywhere["rotary"]["rule"] == "linear"
    check(everywhere["inv_freq"], {0: 0.125, 1: 0.11221089155591427, 64: 0.000125, 127: 1.3924673249935030e-7})
    check(local["inv_freq"], {0: 1, 1: 0.93057204092969898, 64: 0.01, 127: 0.00010746078283213175})
    refused("freqs", gemma3, "--layer", 12, says="layer")
    refused("freqs", gemma3, "--layer", -1, says="layer")


def test_a_layer_and_a_rule_object_exclude_each_other(refused):
    refused("freqs", "--rotary", DEFAULT, "--layer", 0, says="--layer")


def test_the_table_for_people(gnomon):
    out = gnomon("freqs", "--rotary", LLAMA3, "--length", 131072, code=0).out
    assert "64 pairs · numerics exact · attention_factor 1" in out
    rows = {int(row.split()[0]): row.split() for row in out.splitlines() if re.match(r" +\d+ ", row)}
    assert list(rows) == list(range(64))
    assert rows[0] == ["0", "1", "6.283185307179586", "1", "20860.8"]
    assert rows[63][3] == "8"
    assert sum(float(row[4]) < 1 for row in rows.values()) == 25
