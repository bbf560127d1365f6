# SPDX-License-Identifier: Apache-2.0
"""gnomon golden and gnomon verify. The values under test are made here, from the formulas of the papers, right and wrong; numbers with a T are
from public bug reports. Every known mistake is made over several rules, and verify must name it."""

import json
import re
from pathlib import Path

import numpy
import pytest
from rule_texts import rule

ROOT = Path(__file__).parents[2]
POSITIONS = numpy.array([0, 1, 2, 7, 100, 257, 1000, 1857, 4095, 8191, 16385, 32767, 131071, 1048575])


# The rules, once more, in long double.


def base(theta, r, n=None):
    i = numpy.arange(n or r // 2, dtype=numpy.longdouble)
    return numpy.longdouble(theta) ** (-2 * i / r)


def llama3(theta, r, s, low, high, original):
    w = base(theta, r)
    turns = original * w / (2 * numpy.pi)
    t = numpy.clip((turns - low) / (high - low), 0, 1)
    return numpy.where(turns > high, w, numpy.where(turns < low, w / s, w * ((1 - t) / s + t)))


def yarn(theta, r, s, original, truncate=True, fast=32, slow=1, reverse=False, turns=False):
    w = base(theta, r)
    low, high = (r * numpy.log(original / (2 * numpy.pi * beta)) / (2 * numpy.log(theta)) for beta in (fast, slow))
    if truncate:
        low, high = numpy.floor(low), numpy.ceil(high)
    low, high = max(low, 0), min(high, r - 1)
    ramp = numpy.clip((numpy.arange(r // 2) - low) / (high - low), 0, 1)
    if turns:
        ramp = 1 - numpy.clip((original * w / (2 * numpy.pi) - slow) / (fast - slow), 0, 1)
    if reverse:
        ramp = 1 - ramp
    return w * (1 - ramp + ramp / s)


def dynamic(theta, r, s, trained, length):
    growth = s * max(length, trained) / trained - (s - 1)
    return base(theta * numpy.longdouble(growth) ** (r / numpy.longdouble(r - 2)), r)


def ntk(theta, r, s):
    return base(theta * numpy.longdouble(s) ** (r / numpy.longdouble(r - 2)), r)


def proportional(theta, d, f):
    w = base(theta, d)
    w[int(f * d // 2) :] = 0
    return w


SHORT, LONG = [1.0, 1.0, 1.25, 1.5], [1.0, 2.0, 4.0, 8.0]
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LLAMA32 = LLAMA3 | {"factor": 32.0}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768}
GPT_OSS = {"factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
LONGROPE = {"short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": 4096, "factor": 32.0}
DYNAMIC = {"factor": 2.0, "max_position_embeddings": 2048}

# Name: the rule object, options of golden, the right frequencies, the magnitude.
RULES = {
    "default": (rule(theta=500000.0, head_dim=128), [], base(500000, 128), 1),
    "linear": (rule("linear", theta=1e6, head_dim=256, factor=8.0), [], base(1e6, 256) / 8, 1),
    "ntk": (rule("ntk", theta=10000.0, head_dim=128, factor=4.0), [], ntk(10000, 128, 4), 1),
    "dynamic": (rule("dynamic", theta=10000.0, head_dim=128, **DYNAMIC), ["--length", 8192], dynamic(10000, 128, 2, 2048, 8192), 1),
    "llama3": (rule("llama3", theta=500000.0, head_dim=128, **LLAMA3), [], llama3(500000, 128, 8, 1, 4, 8192), 1),
    "llama3.2": (rule("llama3", theta=500000.0, head_dim=64, **LLAMA32), [], llama3(500000, 64, 32, 1, 4, 8192), 1),
    "yarn": (rule("yarn", theta=1e6, head_dim=128, **YARN), [], yarn(1e6, 128, 4, 32768), 0.1 * numpy.log(4) + 1),
    "gpt-oss": (rule("yarn", theta=150000.0, head_dim=64, **GPT_OSS), [], yarn(150000, 64, 32, 4096, False), 0.1 * numpy.log(32) + 1),
    "kimi": (
        rule("yarn", theta=50000.0, head_dim=64, beta_fast=8.0, beta_slow=2.0, factor=32.0, original_max_position_embeddings=4096),
        [],
        yarn(50000, 64, 32, 4096, fast=8, slow=2),
        0.1 * numpy.log(32) + 1,
    ),
    "longrope": (rule("longrope", theta=10000.0, head_dim=8, **LONGROPE), [], base(10000, 8) / SHORT, numpy.sqrt(17 / 12)),
    "longrope-long": (
        rule("longrope", theta=10000.0, head_dim=8, **LONGROPE),
        ["--length", 8192],
        base(10000, 8) / LONG,
        numpy.sqrt(17 / 12),
    ),
    "partial": (rule(theta=10000.0, head_dim=128, rotary_dim=64), [], base(10000, 64), 1),
    "proportional": (rule("proportional", theta=1e6, head_dim=512, partial_rotary_factor=0.25), [], proportional(1e6, 512, 0.25), 1),
}


@pytest.fixture
def golden(gnomon, tmp_path):
    """golden("yarn") -> path of its golden file."""

    def write(name, *options):
        path = tmp_path / f"{name}.golden.json"
        text, more, _, _ = RULES[name]
        gnomon("golden", "--rotary", text, *more, *options, "--out", path, code=0)
        return path

    return write


@pytest.fixture
def verify(gnomon, tmp_path):
    """verify(values, golden, *options): values are a (cos, sin) table, written as npy, or anything else, as JSON. Gives the object."""

    def run(values, golden, *options, code=None):
        path = tmp_path / "values"
        if isinstance(values, numpy.ndarray):
            with path.open("wb") as file:
                numpy.save(file, values)
        else:
            path.write_text(json.dumps(values, default=lambda array: numpy.asarray(array, numpy.float64).tolist()))
        result = gnomon("verify", path, "--golden", golden, *options, "--json", code=code)
        assert result.code == (0 if result.json["agrees"] else 1)
        return result.json

    return run


def table(w, positions=POSITIONS, dtype=numpy.float32):
    angle = numpy.asarray(positions, numpy.longdouble)[:, None] * w[None, :]
    return numpy.stack([numpy.cos(angle), numpy.sin(angle)]).astype(dtype)


def float32_table(w, positions=POSITIONS):
    angle = numpy.asarray(positions, numpy.float32)[:, None] * w.astype(numpy.float32)[None, :]
    return numpy.stack([numpy.cos(angle.astype(numpy.float64)), numpy.sin(angle.astype(numpy.float64))]).astype(numpy.float32)


def bf16(values):
    """To bf16 and back, nearest even, by integers."""
    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(numpy.float32).astype(numpy.float64)


def names(result):
    return [[mistake["mistake"] for mistake in explanation["mistakes"]] for explanation in result["explanations"]]


def found(result):
    return result["explanations"][0]["mistakes"][0]["found"]


# Agreement.


@pytest.mark.parametrize("name", RULES)
def test_right_values_agree_in_every_form(name, golden, verify):
    _, _, w, magnitude = RULES[name]
    path = golden(name)
    doubles = table(w, dtype=numpy.float64)
    assert verify(doubles, path)["precision"] == "f64"
    assert verify(table(w), path)["agrees"]
    assert verify(table(w, dtype=numpy.float16), path)["agrees"]
    assert verify(bf16(table(w)).astype(numpy.float32), path)["precision"] == "bf16"
    assert verify({"inv_freq": w}, path)["agrees"]
    assert verify([float(f"{x:.9g}") for x in w], path, code=0)["agrees"]
    assert verify([float(f"{x:.5g}") for x in w], path, code=0)["tolerance"] <= 5e-5
    assert verify((table(w) * magnitude).astype(numpy.float32), path, code=0), "with the magnitude on them"
    assert verify({"cos": doubles[0], "sin": doubles[1], "attention_factor": float(magnitude)}, path)["agrees"]
    half_split = numpy.concatenate([table(w), table(w)], axis=2)
    assert verify(half_split, path, code=0)["agrees"], "as transformers hands them out"


def test_what_gnomon_prints_is_read(gnomon, golden, tmp_path):
    text, _, _, _ = RULES["yarn"]
    path, positions = golden("yarn"), ",".join(map(str, POSITIONS))
    for form in ("json", "csv", "npy"):
        for dtype in ("f64", "f32", "bf16", "f16"):
            gnomon("table", "--rotary", text, "--positions", positions, "--dtype", dtype, "--format", form, "--out", f"t.{form}", code=0)
            assert "they agree" in gnomon("verify", f"t.{form}", "--golden", path, code=0).out
    (tmp_path / "f.json").write_text(gnomon("freqs", "--rotary", text, "--json", code=0).out)
    assert gnomon("verify", "f.json", "--golden", path, "--json", code=0).json["agrees"]


def test_hf_values_agree_with_hf_and_are_named_otherwise(gnomon, golden, verify):
    text, _, _, _ = RULES["llama3"]
    positions = ",".join(map(str, POSITIONS))
    gnomon("table", "--rotary", text, "--positions", positions, "--numerics", "hf", "--out", "hf.npy", code=0)
    path = golden("llama3")
    assert gnomon("verify", "hf.npy", "--golden", path, "--numerics", "hf", "--json", code=0).json["agrees"]
    result = gnomon("verify", "hf.npy", "--golden", path, "--json", code=1).json
    assert names(result)[0] == ["float32-product"]
    assert any("--numerics hf" in note for note in result["notes"])


def test_exact_values_held_to_hf_are_named_and_nothing_else(gnomon, golden):
    text, _, _, _ = RULES["llama3"]
    path = golden("llama3")
    gnomon("table", "--rotary", text, "--positions", ",".join(map(str, POSITIONS)), "--out", "exact.npy", code=0)
    result = gnomon("verify", "exact.npy", "--golden", path, "--numerics", "hf", "--json", code=1).json
    assert names(result) == [["exact-numbers"]]
    assert result["explanations"][0]["residual"] < 2**-23
    told = gnomon("verify", "exact.npy", "--golden", path, "--numerics", "hf", code=1).out
    assert "--numerics exact" in told
    assert "--numerics hf" not in told


def test_frequencies_in_npy(golden, gnomon, refused, tmp_path):
    path = golden("default")
    numpy.save(tmp_path / "w.npy", base(500000, 128).astype(numpy.float64))
    assert gnomon("verify", "w.npy", "--golden", path, "--json", code=0).json["agrees"]
    numpy.save(tmp_path / "w.npy", base(10000, 128).astype(numpy.float32))
    assert names(gnomon("verify", "w.npy", "--golden", path, "--json", code=1).json)[0] == ["theta-10000"]
    numpy.save(tmp_path / "f.npy", numpy.asfortranarray(table(base(500000, 128))))
    refused("verify", "f.npy", "--golden", path, says=["Fortran", "ascontiguousarray"])
    numpy.save(tmp_path / "o.npy", table(base(500000, 128)))
    (tmp_path / "o.npy").write_bytes((tmp_path / "o.npy").read_bytes().replace(b"False", b"Maybe"))
    refused("verify", "o.npy", "--golden", path, says=["npy", "fortran_order"])


def test_rows_at_other_positions_are_left_out(golden, verify):
    w = RULES["default"][2]
    result = verify(table(w, range(0, 300)), golden("default"), "--positions", "0:300", code=0)
    assert result["positions"] == 6
    assert "294 of 300 rows" in result["notes"][0]
    wrong = verify(table(w, range(1, 301)), golden("default"), "--positions", "0:300", code=1)
    assert names(wrong) == [["offset"]]


# Mistakes of the frequencies: (rule, name, frequencies, what is found).

FREQUENCY_MISTAKES = [
    ("llama3", "unscaled", base(500000, 128), "theta 500000"),  # T07
    ("llama3.2", "unscaled", base(500000, 64), "llama3"),  # T06
    ("yarn", "unscaled", base(1e6, 128), "yarn"),
    ("linear", "unscaled", base(1e6, 256), "linear"),  # T18: on no layer
    ("ntk", "unscaled", base(10000, 128), "ntk"),
    ("dynamic", "unscaled", base(10000, 128), "dynamic"),
    ("longrope-long", "unscaled", base(10000, 8), "longrope"),
    ("default", "theta-10000", base(10000, 128), "theta 10000 instead of 500000"),  # T08
    ("llama3", "theta-10000", llama3(10000, 128, 8, 1, 4, 8192), "theta 10000"),
    ("yarn", "theta-10000", yarn(10000, 128, 4, 32768), "theta 10000"),
    ("proportional", "theta-10000", proportional(10000, 512, 0.25), "theta 10000"),
    ("llama3", "rope-parameters-ignored", base(10000, 128), "without scaling"),
    ("gpt-oss", "rope-parameters-ignored", base(10000, 64), "without scaling"),
    ("default", "theta", base(1e6, 128), "theta 1000000 instead of 500000"),
    ("partial", "theta", base(150000, 64), "theta 150000 instead of 10000"),
    ("llama3", "theta", llama3(1e6, 128, 8, 1, 4, 8192), "theta 1000000"),
    ("yarn", "theta", yarn(5e6, 128, 4, 32768), "theta 5000000"),
    ("linear", "theta", base(10000.0 * 2, 256) / 8, "theta 20000"),
    ("longrope", "theta", base(50000, 8) / SHORT, "theta 50000"),
    ("proportional", "theta", proportional(5e5, 512, 0.25), "theta 500000"),
    ("dynamic", "theta", dynamic(25000, 128, 2, 2048, 8192), "theta 25000"),
    ("yarn", "factor", yarn(1e6, 128, 1.25, 32768), "factor 1.25 instead of 4"),  # T10: max / original
    ("llama3.2", "llama3-constants", llama3(500000, 64, 8, 1, 4, 8192), "factor 8"),
    ("llama3", "factor", llama3(500000, 128, 16, 1, 4, 8192), "factor 16 instead of 8"),
    ("ntk", "factor", ntk(10000, 128, 8), "factor 8 instead of 4"),
    ("linear", "scaled-twice", base(1e6, 256) / 64, "factor 64"),
    ("yarn", "scaled-twice", yarn(1e6, 128, 16, 32768), "factor 16"),
    ("yarn", "original-length", yarn(1e6, 128, 4, 131072), "original length 131072 instead of 32768"),
    ("llama3", "original-length", llama3(500000, 128, 8, 1, 4, 4096), "original length 4096"),
    ("gpt-oss", "yarn-truncate", yarn(150000, 64, 32, 4096, True), "rounded"),  # T14
    ("yarn", "yarn-truncate", yarn(1e6, 128, 4, 32768, False), "not rounded"),
    ("yarn", "yarn-ramp", yarn(1e6, 128, 4, 32768, turns=True), "turns"),
    ("yarn", "yarn-ramp", yarn(1e6, 128, 4, 32768, reverse=True), "reversed"),
    ("kimi", "yarn-betas", yarn(50000, 64, 32, 4096), "instead of 8 and 2"),
    ("longrope", "longrope-list", base(10000, 8) / LONG, "long list"),
    ("longrope-long", "longrope-list", base(10000, 8) / SHORT, "short list"),  # T21
    ("dynamic", "dynamic-length", dynamic(10000, 128, 2, 2048, 4096), "length 4096"),  # T19
    ("yarn", "another-rule", ntk(1e6, 128, 4), "ntk with factor 4"),
    ("yarn", "another-rule", base(1e6, 128) / 4, "linear with factor 4"),
    ("ntk", "another-rule", base(40000, 128), "theta times 4"),
    ("default", "divided", base(500000, 128) / 8, "divided by 8"),  # T18: on all layers
    ("default", "theta-and-divided", base(1e6, 128) / 8, "theta 1000000, every frequency divided by 8"),  # T18: swapped
    ("linear", "rope-parameters-ignored", base(10000, 256), "without scaling"),  # T18: swapped
    ("linear", "theta-and-divided", base(20000, 256) / 2, "theta 20000, every frequency divided by 2"),
    ("partial", "head-dim-exponent", base(10000, 128, 32), "head_dim 128"),  # T24
    ("partial", "whole-head", base(10000, 128), "all 64 pairs"),
    ("proportional", "whole-head", base(1e6, 512), "all 256 pairs"),
    ("proportional", "re-spread", base(1e6, 128), "128 turning channels"),  # T25
    ("default", "exponent", base(500000, 256, 64), "i/r"),
    ("partial", "exponent", base(10000, 62, 32), "r/2 - 1"),
    ("default", "periods", 1 / base(500000, 128), "1 / frequency"),
    ("yarn", "periods", 1 / yarn(1e6, 128, 4, 32768), "1 / frequency"),
    ("default", "wavelengths", 2 * numpy.longdouble(numpy.pi) / base(500000, 128), "2 pi"),
    ("llama3", "turns", llama3(500000, 128, 8, 1, 4, 8192) / (2 * numpy.longdouble(numpy.pi)), "2 pi"),
    ("llama3", "divisors", base(500000, 128) / llama3(500000, 128, 8, 1, 4, 8192), "plain frequency"),
    ("longrope", "divisors", numpy.asarray(SHORT, numpy.longdouble), "plain frequency"),
    ("default", "degrees", base(500000, 128) * 180 / numpy.longdouble(numpy.pi), "180"),
    ("linear", "degrees", base(1e6, 256) / 8 * numpy.longdouble(numpy.pi) / 180, "180"),
    ("default", "reversed", base(500000, 128)[::-1], "slowest"),
    ("yarn", "reversed", yarn(1e6, 128, 4, 32768)[::-1], "slowest"),
    ("default", "frequencies-16-bit", base(500000, 128).astype(numpy.float32).astype(numpy.float16).astype(numpy.longdouble), "f16"),
    ("llama3", "frequencies-16-bit", bf16(llama3(500000, 128, 8, 1, 4, 8192)).astype(numpy.longdouble), "bf16"),
    ("longrope", "frequencies-16-bit", bf16(base(10000, 8) / SHORT).astype(numpy.longdouble), "bf16"),
]


@pytest.mark.parametrize(
    ("name", "mistake", "w", "says"), FREQUENCY_MISTAKES, ids=[f"{rule}-{name}" for rule, name, _, _ in FREQUENCY_MISTAKES]
)
def test_mistakes_of_the_frequencies(name, mistake, w, says, golden, verify):
    path = golden(name)
    forms = [{"inv_freq": w}, {"inv_freq": w.astype(numpy.float32)}, table(w), float32_table(w)]
    if numpy.max(w) < 100:
        forms.append(table(w, dtype=numpy.float64))
    for values in forms:
        result = verify(values, path, code=1)
        assert [mistake] in names(result), (names(result), result)
        assert any(says in explanation["mistakes"][0]["found"] for explanation in result["explanations"]), result["explanations"]
        assert len(result["explanations"]) <= 3


def test_seen_numbers_of_the_reports():
    """The wrong numbers above are the ones people got."""
    assert float(base(10000, 128)[1]) == pytest.approx(0.86596432336006535, rel=1e-15)  # T08
    assert float(yarn(1e6, 128, 1.25, 32768)[30]) == pytest.approx(0.00141310904744283, rel=1e-14)  # T10
    assert float(yarn(150000, 64, 32, 4096)[17]) == pytest.approx(0.000227947795795125, rel=1e-14)  # T14
    assert float(base(10000, 128)[31]) == pytest.approx(0.0115478198468946, rel=1e-13)  # T24
    assert float(base(1e6, 128)[63]) == pytest.approx(1.2409377607517196e-6, rel=1e-15)  # T25
    assert float(yarn(150000, 64, 32, 4096, False)[17]) == pytest.approx(0.000129318701245063, rel=1e-14), "the right one"


# Mistakes of positions, order and arithmetic.


def rotated_by(angle):
    return numpy.stack([numpy.cos(angle), numpy.sin(angle)]).astype(numpy.float32)


def angle_mistakes(w):
    p = POSITIONS.astype(numpy.float64)
    w64, half = w.astype(numpy.float64), numpy.float16
    yield "offset", table(w, POSITIONS + 1), "p + 1"
    yield "offset", table(w, POSITIONS - 1), "p - 1"
    yield "offset", table(w, POSITIONS + 2), "p + 2"
    yield "positions-16-bit", table(w, bf16(p)), "bf16"  # T02
    yield "positions-16-bit", table(w, numpy.minimum(p, 65504).astype(half)), "f16"
    yield (
        "frequencies-16-bit",
        rotated_by(p.astype(numpy.float64)[:, None] * w64.astype(half).astype(numpy.float64)[None, :]),
        "f16",
    )  # T01
    yield "angles-16-bit", rotated_by(bf16(p[:, None] * w64[None, :])), "bf16"  # T03
    yield "not-rotated", table(w, 0 * POSITIONS), "0"
    yield "cos-sin-swapped", table(w)[::-1], "sin"
    yield "sine-sign", table(w) * numpy.array([1, -1], numpy.float32)[:, None, None], "sign"


@pytest.mark.parametrize("name", RULES)
def test_mistakes_of_positions_and_order(name, golden, verify):
    path = golden(name)
    for mistake, values, says in angle_mistakes(RULES[name][2]):
        result = verify(values, path, code=1)
        assert [mistake] in names(result), (mistake, says, result)
        assert any(says in explanation["mistakes"][0]["found"] for explanation in result["explanations"])


def test_the_float32_product_is_named(golden, verify):
    for name, (_, _, w, _) in RULES.items():
        result = verify(float32_table(w), golden(name), code=1)
        assert names(result)[0] == ["float32-product"], name
    # T05: the product at 1048575 is off by 0.0113
    w = RULES["default"][2]
    assert float32_table(w)[0, -1, 1] == pytest.approx(0.71521856077896, abs=1e-7)
    assert table(w)[0, -1, 1] == pytest.approx(0.70395138063893129, abs=1e-7)


def test_frequencies_from_a_float32_step_are_named(golden, verify):
    """ggml: on the CPU each frequency from the one before, on a GPU as a power."""
    step = base(500000, 128)[1].astype(numpy.float32)
    iterated = numpy.cumprod(numpy.array([1, *[step] * 63], numpy.float32), dtype=numpy.float32)
    powers = step.astype(numpy.float64) ** numpy.arange(64)
    for w in (iterated, powers):
        result = verify(float32_table(w), golden("default"), code=1)
        assert names(result) == [["float32-steps"]]
        scaled = w * (RULES["llama3"][2] / base(500000, 128)).astype(numpy.float32)
        assert names(verify(float32_table(scaled), golden("llama3"), code=1)) == [["float32-steps"]]


def test_clamped_and_cut_positions(golden, verify):
    w = RULES["yarn"][2]
    assert names(verify(table(w, numpy.minimum(POSITIONS, 32767)), golden("yarn"), code=1))[0] == ["clamped"]
    w = RULES["linear"][2]
    assert names(verify(table(8 * w, POSITIONS // 8), golden("linear"), code=1))[0] == ["whole-positions"]


# Magnitude and layout.


@pytest.mark.parametrize(
    ("name", "magnitude", "mistake"),
    [
        ("yarn", lambda a: a * a, "magnitude-twice"),  # T12
        ("gpt-oss", lambda a: a * a, "magnitude-twice"),
        ("longrope", lambda a: a * a, "magnitude-twice"),
        ("yarn", lambda a: a**0.5, "magnitude-root"),
        ("yarn", lambda a: 1.3, "magnitude"),
        ("default", lambda a: 1.13862943611199, "magnitude"),
    ],
)
def test_mistakes_of_the_magnitude(name, magnitude, mistake, golden, verify):
    _, _, w, right = RULES[name]
    for values in (table(w, dtype=numpy.float64), table(w)):
        result = verify(values * numpy.asarray(magnitude(right), values.dtype), golden(name), code=1)
        assert names(result) == [[mistake]], result
        assert f"instead of {right:.9g}" in found(result)


def test_a_missing_magnitude_is_a_mistake_where_it_is_stated(golden, verify):
    _, _, w, right = RULES["yarn"]
    cos, sin = table(w, dtype=numpy.float64)
    result = verify({"cos": cos, "sin": sin}, golden("yarn"), code=0)
    assert "without the magnitude 1.138" in result["notes"][0]
    assert names(verify({"cos": cos, "sin": sin, "attention_factor": 1.0}, golden("yarn"), code=1)) == [["magnitude-missing"]]
    stated_twice = {"cos": cos * right, "sin": sin * right, "attention_factor": float(right)}
    assert names(verify(stated_twice, golden("yarn"), code=1)) == [["magnitude-twice"]]


@pytest.mark.parametrize(
    ("stated", "seen", "mistake"),
    [
        ({"attention_factor": 1.0}, 1.41588830833597, "magnitude-implied"),  # T11
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.41588830833597, "magnitude-implied"),  # T13
        ({"attention_factor": 1.5}, 1.5 * 1.41588830833597, "magnitude-multiplied"),
    ],
)
def test_a_stated_magnitude_that_was_ignored(stated, seen, mistake, gnomon, verify, tmp_path):
    text = rule("yarn", theta=10000.0, head_dim=64, factor=64.0, original_max_position_embeddings=4096, **stated)
    gnomon("golden", "--rotary", text, "--out", "one.json", code=0)
    values = table(yarn(10000, 64, 64, 4096), dtype=numpy.float64) * seen
    assert names(verify(values, tmp_path / "one.json", code=1)) == [[mistake]]


def test_a_wrong_magnitude_beside_wrong_frequencies(golden, verify):
    result = verify({"inv_freq": base(1e6, 128), "attention_factor": 1.138629436}, golden("yarn"), code=1)
    assert names(result)[0] == ["unscaled"], "the stated magnitude is right"
    assert names(verify(table(base(1e6, 128)) * numpy.float32(1.2964769), golden("yarn"), code=1))[0] == ["unscaled", "magnitude-twice"]


def test_layout_of_a_full_width_table(golden, verify):
    w = RULES["llama3"][2]
    repeated = numpy.repeat(table(w), 2, axis=2)
    result = verify(repeated, golden("llama3"), code=1)
    assert names(result) == [["layout"]]
    assert found(result) == "interleaved instead of half_split"
    both = numpy.repeat(table(base(500000, 128)), 2, axis=2)
    assert names(verify(both, golden("llama3"), code=1))[0] == ["unscaled", "layout"]


def rotate(x, w, positions, interleaved=False, magnitude=1.0, offset=0):
    n = len(w)
    first = offset + (2 * numpy.arange(n) if interleaved else numpy.arange(n))
    second = first + (1 if interleaved else n)
    angle = numpy.asarray(positions, numpy.longdouble)[:, None] * w[None, :]
    out = numpy.tile(numpy.asarray(x, numpy.longdouble), (len(positions), 1))
    a, b = x[first], x[second]
    out[:, first] = magnitude * (a * numpy.cos(angle) - b * numpy.sin(angle))
    out[:, second] = magnitude * (b * numpy.cos(angle) + a * numpy.sin(angle))
    return out


def test_a_rotated_vector_shows_layout_and_magnitude(golden, verify):
    _, _, w, right = RULES["yarn"]
    x = numpy.cos(numpy.arange(128.0)) + 1.5
    path = golden("yarn")

    def values(**how):
        return {"input": x.tolist(), "rotated": rotate(x, w, POSITIONS, **how).astype(numpy.float64).tolist()}

    assert verify(values(magnitude=right), path, code=0)["agrees"]
    assert names(verify(values(magnitude=right, interleaved=True), path, code=1)) == [["layout"]]
    assert names(verify(values(), path, code=1)) == [["magnitude-missing"]]
    assert names(verify(values(magnitude=right**2), path, code=1)) == [["magnitude-twice"]]


def test_a_shifted_key(gnomon, verify, tmp_path):
    """T22, T23: k = (1, 2, 3, 4) at position 7, in both layouts."""
    gnomon("golden", "--rotary", rule(theta=10000.0, head_dim=4), "--positions", "7,4", "--out", "four.json", code=0)
    right = [[-1.21705754181, 1.71533061116, 2.91869336175, 4.13008969569], [1.61676386506, 1.83844287658, -2.71773335790, 4.07677909502]]
    interleaved = [-0.560070943094, 2.16479110741, 2.71288161141, 4.20003254303]
    given = {"input": [1, 2, 3, 4]}
    assert verify(given | {"rotated": right}, tmp_path / "four.json", "--tolerance", "1e-10", code=0)["agrees"]
    swapped = verify(given | {"positions": [7], "rotated": [interleaved]}, tmp_path / "four.json", "--tolerance", "1e-10", code=1)
    assert names(swapped)[0] == ["layout"]


# Surfaces.


def test_every_known_mistake_is_made_here():
    page = (ROOT / "docs/golden.md").read_text()
    known = re.findall(r"^\| `([\w-]+)` \|", page.split("<!-- generated: mistakes -->")[1].split("<!-- end -->")[0], re.MULTILINE)
    tests = Path(__file__).read_text()
    assert len(known) > 40
    assert [name for name in known if f'"{name}"' not in tests] == []


def test_nothing_known_explains_noise(golden, verify):
    noise = numpy.random.default_rng(1).uniform(-1, 1, (2, len(POSITIONS), 64))
    result = verify(noise, golden("default"), code=1)
    assert result["explanations"] == []
    assert result["worst"]["value"] in ("cos", "sin")


def test_a_short_list_of_round_numbers_is_still_held_to_them(gnomon, verify, tmp_path):
    gnomon("golden", "--rotary", rule(theta=10000.0, head_dim=8), "--out", "eight.json", code=0)
    assert verify([1, 0.1, 0.01, 0.001], tmp_path / "eight.json", code=0)["precision"] == "1 digits"
    assert not verify([1, 0.1, 0.01, 0.0011], tmp_path / "eight.json", code=1)["agrees"]
    assert names(verify([1, 0.2, 0.04, 0.008], tmp_path / "eight.json", code=1)) == [["theta"]]


def test_one_wrong_value_in_a_long_table_is_seen_and_not_explained(golden, verify):
    values = table(RULES["default"][2], range(300))
    path = golden("default", "--positions", "0:300")
    assert verify(values, path, code=0)["positions"] == 300
    values[1, 201, 5] += 0.01
    result = verify(values, path, code=1)
    assert (result["worst"]["value"], result["worst"]["position"], result["worst"]["pair"]) == ("sin", 201, 5)
    assert result["explanations"] == []


def test_for_people(gnomon, golden, tmp_path):
    numpy.save(tmp_path / "rope.npy", table(base(10000, 128)))
    out = gnomon("verify", "rope.npy", "--golden", golden("default"), code=1).out
    for words in ("they differ", "theta-10000", "theta 10000 instead of 500000", "worst", "f32"):
        assert words in out
    assert "\x1b" not in out


def test_the_golden_file(gnomon, golden):
    text = golden("yarn").read_text()
    data = json.loads(text)
    assert data["positions"] == POSITIONS.tolist()
    assert list(data) == ["schema", "provenance", "rotary", "length", "attention_factor", "positions", "exact", "hf", "sha256"]
    w = [float.fromhex(value) for value in data["exact"]["inv_freq"]]
    assert (
        w == [float(value) for value in RULES["yarn"][2]] or max(abs(a / b - 1) for a, b in zip(w, RULES["yarn"][2], strict=True)) < 2e-16
    )
    assert float.fromhex(data["exact"]["cos"][1][0]) == pytest.approx(numpy.cos(1), abs=1e-16)
    hf = [float.fromhex(value) for value in data["hf"]["inv_freq"]]
    assert all(value == numpy.float32(value) for value in hf)
    assert json.loads(golden("ntk").read_text())["hf"] is None
    assert gnomon("golden", "--rotary", RULES["yarn"][0], "--json", code=0).out == text


def test_a_golden_file_that_was_changed_is_refused(golden, refused, tmp_path):
    path = golden("default")
    path.write_text(path.read_text().replace("0x1p+0", "0x1.1p+0", 1))
    (tmp_path / "v.json").write_text("[1.0]")
    refused("verify", "v.json", "--golden", path, says=["sha256", "changed"])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("{}", "got none of them"),
        ("[]", "expected an object"),
        ("", "JSON"),
        ('{"cos": [[1]], "sin": [[1, 2]]}', "sin: expected the shape of cos"),
        ('{"cos": [[1]]}', "sin: missing"),
        ('{"cos": [[1, 2], [1]], "sin": [[1], [1]]}', "rows of one length"),
        ('{"inv_freq": [1, "x"]}', "0x1.8p+0"),
        ('{"inv_freq": [1e999]}', "JSON"),
        ('{"inv_freq": [1], "inv_freq": [2]}', "duplicate"),
        ('{"cos": [[1]], "sin": [[0]]}', "14 positions"),
        ('{"positions": [3], "cos": [[1]], "sin": [[0]]}', "none of them is in the golden file"),
        ('{"positions": [0.5], "cos": [[1]], "sin": [[0]]}', "expected integers"),
        ('{"input": [1], "rotated": [[1]]}', "head_dim"),
        ("position,pair,cos,sin,attention_factor\n0,1,1,0,1\n", "line 2"),
        ("position,pair,cos,sin,attention_factor\n0,0,1\n", "line 2"),
        ("position,pair,cos,sin,attention_factor\n-9223372036854775808,0,1,0,1\n", "2^33"),
        ("\x93NUMPY\x01\x00", "npy"),
    ],
)
def test_bad_values_are_refused(values, says, golden, refused, tmp_path):
    (tmp_path / "bad").write_bytes(values.encode("latin-1"))
    refused("verify", "bad", "--golden", golden("default"), says=says)


@pytest.mark.parametrize(("theta", "mistake"), [(500000, None), (10000, "theta-10000")])
def test_buffers_in_safetensors_as_the_package_writes_them(theta, mistake, golden, gnomon, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    cos, sin = table(base(theta, 128), range(9))
    safetensors.save_file({"rotary_emb.cos_sin_cache": numpy.concatenate([cos, sin], axis=1)}, tmp_path / "buffers")
    found = gnomon("verify", tmp_path / "buffers", "--golden", golden("default"), "--json").json
    assert found["positions"] == 4  # of the nine, those the golden file has: 0, 1, 2 and 7
    assert found["agrees"] == (mistake is None)
    if mistake:
        assert found["explanations"][0]["mistakes"][0]["mistake"] == mistake


def test_wrong_use_is_refused(golden, refused, tmp_path):
    path = golden("ntk")
    (tmp_path / "v.json").write_text("[1.0, 0.5]")
    refused("verify", "v.json", "--golden", path, "--numerics", "hf", says="no hf numbers")
    refused("verify", "v.json", "--golden", path, "--tolerance", "0", says="--tolerance")
    refused("verify", "v.json", "--golden", "nowhere.json", says="nowhere.json")
    refused("verify", "v.json", "--golden", "v.json", says="not a golden file")
    refused("verify", "nowhere.npy", "--golden", path, says="nowhere.npy")
    refused("verify", "v.json", says="--golden")
    refused("golden", "--rotary", RULES["ntk"][0], "--positions", "0:1000000", says="at most 524288")
    refused("golden", "--rotary", RULES["ntk"][0], "--positions", "0:100000", says="more than the")
    refused("golden", "--rotary", RULES["ntk"][0], "--positions", "0.5", says="integers")
    refused("golden", "--rotary", RULES["ntk"][0], "--positions", "1,1", says="twice")
    refused("golden", "--rotary", rule("xpos"), says="xpos")


def test_a_model_of_several_groups_needs_a_layer(gnomon, refused, gemma3):
    refused("golden", gemma3, says="--layer N")
    assert json.loads(gnomon("golden", gemma3, "--layer", 5, code=0).out)["provenance"]["source"].endswith("layer 5")
