# SPDX-License-Identifier: Apache-2.0
"""gnomon table. Numbers with a T are from public bug reports, computed at 60 digits."""

import csv
import io
import math

import numpy
import pytest
from rule_texts import DEFAULT, rule

ONE_PAIR = rule(head_dim=2)  # its only frequency is 1
YARN = rule("yarn", factor=4.0, original_max_position_embeddings=4096)
NUMPY = {"f64": numpy.float64, "f32": numpy.float32, "f16": numpy.float16}


def table(gnomon, *arguments):
    return gnomon("table", *arguments, "--format", "json", code=0).json


def as_numbers(array, dtype):
    return (array.astype(numpy.uint32) << 16).view(numpy.float32) if dtype == "bf16" else array


def test_the_object_has_the_documented_keys(gnomon):
    got = table(gnomon, "--rotary", YARN, "--positions", "0:4")
    assert list(got) == ["schema", "rotary", "numerics", "length", "dtype", "attention_factor", "positions", "cos", "sin"]
    assert (got["schema"], got["numerics"], got["dtype"], got["positions"]) == (1, "exact", "f32", [0, 1, 2, 3])
    assert numpy.shape(got["cos"]) == numpy.shape(got["sin"]) == (4, 64)
    assert got["cos"][0] == [1] * 64  # the magnitude stands beside, not inside
    assert math.isclose(got["attention_factor"], 1.13862943611199, rel_tol=1e-14)
    assert got == gnomon("table", "--rotary", YARN, "--positions", "0:4", "--json", code=0).json


def test_t04_large_arguments(gnomon):
    right = {
        40: (-0.66693806165226184, 0.74511316047934879),
        2000: (-0.36745954910083133, 0.93003950441613701),
        16000: (-0.99138143446830687, 0.13100706618943186),
        131071: (-0.81798349938794908, -0.57524168375478937),
        1048575: (0.78804223952892747, -0.61562117305875088),
    }
    got = table(gnomon, "--rotary", ONE_PAIR, "--positions", ",".join(map(str, right)), "--dtype", "f64")
    for row, (position, (cos, sin)) in enumerate(right.items()):
        assert got["positions"][row] == position
        bound = 2.0**-53 + (position + 2) * 2.0**-64 * 2 * math.pi  # the contract of exact
        assert abs(got["cos"][row][0] - cos) < bound
        assert abs(got["sin"][row][0] - sin) < bound
    assert abs(math.cos(numpy.float32(131071.03)) - right[131071][0]) > 1e-2  # what was seen: an angle off by a float32 step


def test_t05_exact_keeps_the_angle_and_hf_shows_what_float32_does(gnomon):
    right = {131071: -0.81731615002386427, 1048575: 0.70395138063893129}
    seen = {131071: -0.81723183831931, 1048575: 0.71521856077896}
    arguments = ["--rotary", rule(theta=500000.0), "--positions", "131071,1048575", "--dtype", "f64"]
    exact, hf = (table(gnomon, *arguments, "--numerics", numerics)["cos"] for numerics in ("exact", "hf"))
    for row, position in enumerate(right):
        assert abs(exact[row][1] - right[position]) < 2e-10
        assert abs(hf[row][1] - seen[position]) < 1e-7
        assert abs(hf[row][1] - right[position]) > 5e-5


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_the_three_formats_hold_the_same_numbers(gnomon, tmp_path, dtype):
    arguments = ["--rotary", YARN, "--positions", "-3:9000:1000", "--dtype", dtype]
    as_json = table(gnomon, *arguments)
    assert as_json["positions"] == list(range(-3, 9000, 1000))
    result = gnomon("table", *arguments, "--out", "rope.npy", code=0)
    assert result.out == ""
    assert "attention_factor" in result.err
    assert ("uint16" in result.err) == (dtype == "bf16")
    array = numpy.load(tmp_path / "rope.npy")
    assert array.dtype == NUMPY.get(dtype, numpy.uint16)
    assert array.shape == (2, 10, 64)
    numbers = as_numbers(array, dtype).astype(numpy.float64)
    assert (numbers == numpy.array([as_json["cos"], as_json["sin"]])).all()

    rows = list(csv.DictReader(io.StringIO(gnomon("table", *arguments, "--format", "csv", code=0).out)))
    assert list(rows[0]) == ["position", "pair", "cos", "sin", "attention_factor"]
    assert len(rows) == 10 * 64
    assert [int(row["position"]) for row in rows[::64]] == as_json["positions"]
    for i, row in enumerate(rows):
        assert int(row["pair"]) == i % 64
        assert float(row["cos"]) == as_json["cos"][i // 64][i % 64]
        assert float(row["sin"]) == as_json["sin"][i // 64][i % 64]
        assert float(row["attention_factor"]) == as_json["attention_factor"]


@pytest.mark.parametrize(("dtype", "bits"), [("f64", 53), ("f32", 24), ("bf16", 8), ("f16", 11)])
def test_entries_are_rounded_once_to_their_type(gnomon, dtype, bits):
    wide, narrow = (numpy.array(table(gnomon, "--rotary", DEFAULT, "--positions", "1:50", "--dtype", d)["cos"]) for d in ("f64", dtype))
    big = abs(wide) > 1e-3  # above f16's subnormal numbers
    assert (abs(narrow / wide - 1)[big] <= 2.0**-bits * (1 + 1e-9)).all()
    assert (dtype == "f64") == bool((narrow == wide).all())


def test_a_long_table_is_made_in_parts_without_a_seam(gnomon, tmp_path):
    """More than 2^20 values: made in parts, and cos and sin in two passes."""
    gnomon("table", "--rotary", rule(head_dim=64), "--positions", "5:40005", "--dtype", "f64", "--out", "long.npy", code=0)
    array = numpy.load(tmp_path / "long.npy")
    assert array.shape == (2, 40000, 32)
    angle = numpy.arange(5, 40005)[:, None] * 10000.0 ** (-numpy.arange(32) / 32)
    assert abs(array - [numpy.cos(angle), numpy.sin(angle)]).max() < 1e-10
    reals = ",".join(str(p + 0.5) for p in range(40))
    wide = gnomon("table", "--rotary", rule(head_dim=65536), "--positions", reals, "--format", "csv", code=0).out.splitlines()
    assert len(wide) == 1 + 40 * 32768
    assert wide[1 + 39 * 32768].startswith("39.5,0,")


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("7", [7]),
        ("0:3", [0, 1, 2]),
        (":3", [0, 1, 2]),
        ("0:131072:32768", [0, 32768, 65536, 98304]),
        ("4:0:-2", [4, 2]),
        ("-2:2", [-2, -1, 0, 1]),
        ("0, 1, 1, -5", [0, 1, 1, -5]),
        ("0,0.5,1e6", [0.0, 0.5, 1e6]),
        ("8589934592,-8589934592", [2**33, -(2**33)]),
        ("8589934592:8589934593:9223372036854775807", [2**33]),
    ],
)
def test_positions(gnomon, text, positions):
    got = table(gnomon, "--rotary", ONE_PAIR, "--positions", text)["positions"]
    assert got == positions
    assert [type(p) for p in got] == [type(p) for p in positions]


def test_real_and_integer_positions_agree(gnomon):
    integers, reals = (table(gnomon, "--rotary", DEFAULT, "--positions", text, "--dtype", "f64") for text in ("4095,100", "4095.0,100.0"))
    assert integers["cos"] == reals["cos"]
    assert integers["sin"] == reals["sin"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no position"),
        ("0:0", "no position"),
        ("3:0", "no position"),
        ("0:10:0", "step"),
        ("0:", "stop"),
        ("0:1:2:3", "two colons"),
        ("a:b", "not an integer"),
        ("0:1.5", "not an integer"),
        ("1,,2", "not a number"),
        ("1,two", '"two"'),
        ("1 2", "not a number"),
        ("nan", "nan"),
        ("0,inf", "inf"),
        ("0,8589934593", ["positions[1]", "2^33", "8589934593"]),
        ("0,-8589934592.5", ["positions[1]", "2^33"]),
        ("0:8589934594", "2^33"),
        ("0:99999999999999999999", "64 bits"),
        ("99999999999999999999", "2^33"),
    ],
)
def test_positions_that_cannot_be(refused, text, says):
    refused("table", "--rotary", ONE_PAIR, "--positions", text, says=says)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--dtype", "f8", ["dtype", "f64", "f8"]),
        ("--numerics", "fast", ["numerics", "exact", "fast"]),
        ("--format", "xml", ["--format", "npy", "xml"]),
    ],
)
def test_unknown_names(refused, option, value, says):
    refused("table", "--rotary", ONE_PAIR, "--positions", "0", option, value, says=says)


def test_an_absurd_size_is_refused_at_once(refused):
    refused("table", "--rotary", DEFAULT, "--positions", "0:8589934592", says=["8589934592 positions", "2^31"])


def test_the_name_of_the_file_gives_the_format(gnomon, tmp_path):
    for name in ("a.json", "a.csv", "a.npy", "a.txt"):
        gnomon("table", "--rotary", ONE_PAIR, "--positions", "0", "--out", name, code=0)
    starts = {path.name: path.read_bytes()[:6] for path in tmp_path.iterdir()}
    assert starts == {"a.json": b'{"sche', "a.csv": b"positi", "a.npy": b"\x93NUMPY", "a.txt": b'{"sche'}


def test_the_length_chooses_the_numbers_of_rules_that_depend_on_it(gnomon):
    longrope = rule("longrope", head_dim=4, short_factor=[1.0, 1.0], long_factor=[2.0, 4.0], original_max_position_embeddings=8, factor=4.0)
    arguments = ["table", "--rotary", longrope, "--positions", "7,8", "--dtype", "f64", "--json"]
    unsaid = gnomon(*arguments, code=0)
    assert unsaid.json["length"] is None
    assert math.isclose(unsaid.json["cos"][0][0], math.cos(7), rel_tol=1e-14)
    assert "numbers of the trained length" in unsaid.err
    assert "--length 9" in unsaid.err
    said = gnomon(*arguments, "--length", 9, code=0)
    assert said.json["length"] == 9
    assert math.isclose(said.json["cos"][0][0], math.cos(7 / 2), rel_tol=1e-14)
    assert said.json["sin"][1][1] == math.sin(8 / 400)
    assert said.err == ""
    assert gnomon("table", "--rotary", longrope, "--positions", "0:8", code=0).err == ""
    assert "--length 9" in gnomon("golden", "--rotary", longrope, "--positions", "8,1", code=0).err
    assert gnomon("freqs", "--rotary", longrope, "--length", 9, "--json", code=0).json["length"] == 9
    dynamic = rule("dynamic", head_dim=4, factor=2.0, max_position_embeddings=8)
    assert "a sequence of 16" in gnomon("table", "--rotary", dynamic, "--positions", "0:33:16", "--length", 16, code=0).err
    assert gnomon("table", "--rotary", DEFAULT, "--positions", "1e9", code=0).err == ""


def test_a_model_with_two_kinds_of_layers(gnomon, refused, gemma3):
    refused("table", gemma3, "--positions", "0", says="layer")
    assert table(gnomon, gemma3, "--layer", 5, "--positions", "0")["rotary"]["rule"] == "linear"
