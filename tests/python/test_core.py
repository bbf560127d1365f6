# SPDX-License-Identifier: Apache-2.0
"""The module gnomon itself: specs, numbers and rotations on NumPy and DLPack arrays, never copied; bad input is an Error."""

import copy
import importlib.resources
import json
import os
import pathlib
import pickle

import mpmath
import numpy as np
import pytest

import gnomon
from gnomon.rotary import Default, Linear, Llama3, Ntk, Yarn

SPEC = gnomon.RotarySpec(Default(), theta=10000.0, head_dim=8)


def rotated(x, spec, positions):
    """The same in NumPy's double arithmetic, from angles of mpmath; x (B,H,T,D), positions (T)."""
    pairs = spec.rotary_dim // 2
    theta = mpmath.mpf(spec.theta)
    angles = [[p * theta ** (-mpmath.mpf(2 * i) / spec.rotary_dim) for i in range(pairs)] for p in positions]
    cos = np.array([[float(mpmath.cos(a)) for a in row] for row in angles])
    sin = np.array([[float(mpmath.sin(a)) for a in row] for row in angles])
    first = slice(0, pairs) if spec.layout == "half_split" else slice(0, 2 * pairs, 2)
    second = slice(pairs, 2 * pairs) if spec.layout == "half_split" else slice(1, 2 * pairs, 2)
    out = x.astype(np.float64)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first], out[..., second] = a * cos - b * sin, b * cos + a * sin
    return out


def sample(dtype="float32", shape=(2, 3, 5, 8)):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-14), ("float16", 2e-3)])
def test_rotate_in_place(dtype, tolerance, layout):
    spec = gnomon.RotarySpec(Default(), theta=10000.0, head_dim=8, layout=layout)
    x = sample(dtype)
    expected = rotated(x, spec, range(100000, 100005))
    assert gnomon.rotate(x, spec, range(100000, 100005)) is x
    np.testing.assert_allclose(x, expected, atol=tolerance * 4)
    other = "interleaved" if layout == "half_split" else "half_split"
    wrong = rotated(sample(dtype), gnomon.RotarySpec(Default(), theta=10000.0, head_dim=8, layout=other), range(100000, 100005))
    assert np.abs(x - wrong).max() > 0.1  # the other layout is told apart


def test_rotate_into_out_leaves_x_alone_and_takes_strides():
    x = sample().transpose(0, 2, 1, 3)  # tokens and heads swapped in memory
    before, out = x.copy(), np.empty_like(x)
    gnomon.rotate(x, SPEC, range(x.shape[2]), out=out)
    assert (x == before).all()
    np.testing.assert_allclose(out, rotated(before, SPEC, range(x.shape[2])), atol=2e-6)


def test_bf16_comes_as_uint16():
    exact = sample()
    x = (exact.view(np.uint32) >> 16).astype(np.uint16)  # bf16 by truncation: still bf16 values
    values = (x.astype(np.uint32) << 16).view(np.float32)
    gnomon.rotate(x, SPEC, range(5), dtype="bf16")
    got = (x.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(got, rotated(values, SPEC, range(5)), rtol=2**-8, atol=1e-6)
    with pytest.raises(gnomon.Error, match=r'x: expected .* uint16 with dtype="bf16"'):
        gnomon.rotate(x, SPEC, range(5))


def test_positions_in_every_form():
    forms = [range(3, 8), [3, 4, 5, 6, 7], np.arange(3, 8), np.arange(3, 8, dtype=np.int32), np.arange(3.0, 8.0), [3.0, 4.0, 5.0, 6.0, 7.0]]
    results = [gnomon.rotate(sample("float64"), SPEC, positions) for positions in forms]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], atol=1e-15)
    per_row = gnomon.rotate(sample("float64"), SPEC, np.stack([np.arange(3, 8), np.arange(10, 15)]))
    np.testing.assert_array_equal(per_row[0], results[0][0])
    assert np.abs(per_row[1] - results[0][1]).max() > 0.1


def test_dlpack_tensors_are_rotated_where_they_are():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(sample())
    expected = rotated(x.numpy(), SPEC, range(5))
    gnomon.rotate(x, SPEC, range(5))
    np.testing.assert_allclose(x.numpy(), expected, atol=2e-6)
    narrow = torch.from_numpy(sample()).to(torch.bfloat16)
    expected = rotated(narrow.float().numpy(), SPEC, range(5))
    gnomon.rotate(narrow, SPEC, range(5))
    np.testing.assert_allclose(narrow.float().numpy(), expected, rtol=2**-8, atol=1e-6)


def test_transposed_is_the_inverse_and_carries_the_magnitude():
    spec = gnomon.RotarySpec(Yarn(factor=4, original_max_position_embeddings=4096), theta=10000.0, head_dim=8)
    x = sample("float64")
    once = gnomon.rotate(x.copy(), spec, range(5))
    back = gnomon.rotate(once, spec, range(5), direction="transposed")
    np.testing.assert_allclose(back, x * spec.attention_factor**2, atol=1e-14)
    assert spec.attention_factor == pytest.approx(1.13862943611199, abs=1e-13)


def read_only():
    x = sample()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    ("x", "positions", "named", "message"),
    [
        (read_only(), range(5), {}, "x: expected a writable array .* got a read-only float32 array"),
        (sample().tolist(), range(5), {}, "x: expected a writable array .* got <class 'list'>"),
        (sample("int32"), range(5), {}, 'x: expected float64, float32, float16, bfloat16, or uint16 with dtype="bf16", got int32'),
        (sample("complex64"), range(5), {}, "x: expected float64, .* got complex64"),
        (sample().astype(">f4"), range(5), {}, r"x: expected a writable array .* got a big-endian float32 array of shape \(2, 3, 5, 8\)"),
        (sample(), range(5), {"out": sample().astype(">f4")}, "out: expected a writable array .* got a big-endian float32 array"),
        (sample(), np.arange(5, dtype=">i8"), {}, "positions: expected a range, .* got a big-endian int64 array"),
        (sample(), range(5), {"dtype": "bf16"}, "dtype: expected none, or that of an array, got bf16 beside f32"),
        (sample(), range(5), {"dtype": "half"}, r"dtype: expected f64 \| f32"),
        (sample(shape=(3, 5, 8)), range(5), {}, "x: expected 4 axes"),
        (sample(shape=(2, 3, 5, 6)), range(5), {}, r"x: expected shape \(B, H, T, 8\)"),
        (sample(shape=(2, 3, 5, 16))[..., ::2], range(5), {}, "x: expected a contiguous last axis"),
        (sample(), range(4), {}, "positions: expected 5 .* or 10 .* got 4"),
        (sample(), np.arange(5, dtype=np.float32), {}, "got one of float32; positions are never cast"),
        (sample(), np.arange(5, dtype=np.int16), {}, "got one of int16; positions are never cast"),
        (sample(), "01234", {}, "positions: expected a range"),
        (sample(), [0, 1, 2, 3, "4"], {}, "positions: expected a range"),
        (sample(), [0, 1, 2, 3, float("nan")], {}, r"positions\[4\]: expected a number within ±2\^33, got nan"),
        (sample(), [0, 1, 2, 3, 2**33 + 1], {}, r"positions\[4\]: expected a number within ±2\^33"),
        (sample(), [0, 1, 2, 3, 2**70], {}, rf"positions\[4\]: expected a number within ±2\^33, got {2**70}"),
        (sample(), [0.5, 1, 2, 3, -(2**2000)], {}, r"positions\[4\]: expected a number within ±2\^33, got -"),
        (sample(), range(2**70, 2**70 + 5), {}, rf"positions.start: expected a number within ±2\^33, got {2**70}"),
        (sample(), range(5), {"direction": "back"}, "direction: expected forward | transposed"),
        (sample(), range(5), {"out": sample("float64")}, r"out: expected the dtype of x \(f32\), got f64"),
        (sample(), range(5), {"out": sample(shape=(1, 3, 5, 8))}, "out: expected the shape of x"),
        (sample(), range(5), {"out": read_only()}, "out: expected a writable array"),
    ],
)
def test_bad_input_names_the_argument(x, positions, named, message):
    with pytest.raises(gnomon.Error, match=message):
        gnomon.rotate(x, SPEC, positions, **named)


def test_overlapping_out_is_refused():
    memory = sample(shape=(1, 1, 6, 8))
    with pytest.raises(gnomon.Error, match="out: overlaps x"):
        gnomon.rotate(memory[:, :, :5], SPEC, range(5), out=memory[:, :, 1:])


def test_hf_angles_are_tables_only():
    with pytest.raises(gnomon.Error, match="hf angles exist as tables only") as caught:
        gnomon.rotate(sample(), gnomon.frequencies(SPEC, "hf"), range(5))
    assert caught.value.code == "unsupported"


def test_tables_are_rounded_once():
    # T04: cos and sin of position 131071 at frequency 1, at 20 digits. The contract allows (|p| + 2) * 2**-64 turns beside the rounding.
    table = gnomon.rotary_table(SPEC, [131071], dtype="f64")
    assert table.cos[0, 0] == pytest.approx(-0.81798349938794908, rel=0, abs=5e-14)
    assert table.sin[0, 0] == pytest.approx(-0.57524168375478937, rel=0, abs=5e-14)
    narrow = gnomon.rotary_table(SPEC, [131071], dtype="f32")
    assert narrow.cos.dtype == np.float32
    assert narrow.cos[0, 0] == np.float32(-0.81798349938794908)
    assert gnomon.rotary_table(SPEC, [131071], dtype="f16").cos[0, 0] == np.float16(-0.81798349938794908)
    assert gnomon.rotary_table(SPEC, [131071], dtype="bf16").cos.dtype == np.uint16
    with pytest.raises(ValueError, match="read-only"):
        table.cos[0, 0] = 1


def test_numerics_of_a_table_are_those_of_its_frequencies_or_exact():
    of_hf = gnomon.frequencies(SPEC, "hf")
    made = [gnomon.rotary_table(SPEC, [9]), gnomon.rotary_table(SPEC, [9], numerics="hf"), gnomon.rotary_table(of_hf, [9])]
    assert [table.numerics for table in made] == ["exact", "hf", "hf"]
    assert gnomon.rotary_table(of_hf, [9], numerics="hf").numerics == "hf"


def test_a_given_table_may_be_of_16_bits_where_x_is_not():
    cos, sin = (np.full((5, 4), bits, "uint16") for bits in (0, 0x3F80))  # 0 and 1 in bfloat16: a quarter turn
    x = sample()
    np.testing.assert_array_equal(gnomon.rotate_with(x.copy(), cos, sin, dtype="bf16"), np.concatenate((-x[..., 4:], x[..., :4]), -1))


def test_arrays_without_elements_are_taken():
    rows = sample(shape=(3, 8))
    for empty in (sample(shape=(2, 0, 8)), sample(shape=(0, 3, 8)), sample(shape=(0, 8))):
        tokens = range(empty.shape[-2])
        assert gnomon.add_positions(empty, rows, tokens) is empty
        assert gnomon.embed_tokens(np.zeros(empty.shape[:-1], "int64"), rows, rows, tokens, out=empty) is empty
        assert (gnomon.scatter_add_rows(empty, tokens, rows.copy()) == rows).all()
        assert gnomon.convert_layout(empty, SPEC, to="interleaved", axis=-1) is empty
    assert gnomon.add_positions(sample(shape=(0, 8)), sample(shape=(0, 8)), []).shape == (0, 8)
    nothing = sample(shape=(1, 2, 0, 8))
    assert gnomon.rotate(nothing, SPEC, []) is nothing
    assert gnomon.rotate_with(nothing, sample(shape=(0, 4)), sample(shape=(0, 4))) is nothing


def test_refused_keywords_cost_no_memory():
    def refuse(times):
        for _ in range(times):
            with pytest.raises(TypeError, match="factor: missing"):
                Yarn()
            with pytest.raises(TypeError, match="unknown keyword"):
                Yarn(factor=2, original_max_position_embeddings=4, no_such_keyword=1)

    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    refuse(1000)
    before = resident()
    refuse(20_000)
    assert resident() - before < 2**20  # what was kept of a message once: 100 bytes and more, 4 MB here


def test_slopes_of_alibi_from_the_number_of_heads():
    # Press et al. 2022, section 3: eight heads have 1/2 to 1/256, "for 16 heads interpolated": every other one of these goes on where 12 are asked.
    assert gnomon.bias.Alibi.of_heads(8).slopes == [2.0**-h for h in range(1, 9)]
    twelve = [2.0**-h for h in range(1, 9)] + [2.0**-h for h in (0.5, 1.5, 2.5, 3.5)]
    assert gnomon.bias.Alibi.of_heads(12).slopes == pytest.approx(twelve, rel=1e-15)
    mpt = gnomon.bias.Alibi.of_heads(8, bias_max=16, symmetric=True)
    assert (mpt.heads, mpt.symmetric, mpt.slopes) == (8, True, [4.0**-h for h in range(1, 9)])
    assert mpt == gnomon.bias.Alibi(heads=8, slopes=mpt.slopes, symmetric=True)


def test_views_keep_their_owner_alive():
    values = gnomon.frequencies(SPEC).inv_freq
    assert values.tolist() == [1.0, 0.1, 0.01, 0.001]


@pytest.mark.parametrize(
    "rule",
    [
        Default(),
        Linear(factor=2.5),
        Ntk(factor=4),
        Yarn(factor=8, original_max_position_embeddings=4096, truncate=False, mscale=0.707, mscale_all_dim=0.707, ramp="turns"),
        Llama3(factor=8, low_freq_factor=1, high_freq_factor=4, original_max_position_embeddings=8192),
    ],
)
def test_json_and_keywords_say_the_same(rule):
    spec = gnomon.RotarySpec(rule, theta=500000.0, head_dim=128, rotary_dim=64, rotary_offset=64, layout="interleaved")
    assert gnomon.RotarySpec.from_json(spec.to_json()) == spec
    fields = json.loads(spec.to_json())
    assert fields["rule"] == rule.name
    keywords = {
        field["name"]: getattr(rule, field["name"]) for info in gnomon.list_rules() if info["name"] == rule.name for field in info["fields"]
    }
    assert type(rule)(**keywords) == rule
    assert all(fields[name] == value for name, value in keywords.items())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Linear(), TypeError, "factor: missing keyword argument"),
        (lambda: Linear(factor=2, base=3), TypeError, "unknown keyword"),
        (lambda: Linear(factor="2"), gnomon.Error, "factor: expected a number"),
        (lambda: Yarn(factor=2, original_max_position_embeddings=4096.5), gnomon.Error, "expected an integer"),
        (lambda: Yarn(factor=2, original_max_position_embeddings=1, ramp="x"), gnomon.Error, r"ramp: expected pair_index \| turns"),
        (
            lambda: gnomon.RotarySpec(Linear(factor=0.5), theta=1e4, head_dim=8),
            gnomon.Error,
            "factor: expected a number of at least 1, got 0.5",
        ),
        (lambda: gnomon.RotarySpec(Default(), theta=float("nan"), head_dim=8), gnomon.Error, "theta: expected a positive number, got nan"),
        (lambda: gnomon.RotarySpec(Default(), theta=1e4, head_dim=7), gnomon.Error, "rotary_dim: expected an even number"),
        (lambda: gnomon.RotarySpec(Default(), theta=1e4, head_dim=0), gnomon.Error, "head_dim: expected an integer from 1"),
        (lambda: gnomon.RotarySpec(Default(), theta=1e4, head_dim=8, rotary_dim=10), gnomon.Error, "rotary_dim: expected at most head_dim"),
        (
            lambda: gnomon.RotarySpec(Default(), theta=1e4, head_dim=8, layout="neox"),
            gnomon.Error,
            r"layout: expected half_split \| interleaved",
        ),
        (lambda: gnomon.frequencies(SPEC, "fast"), gnomon.Error, r"numerics: expected exact \| hf"),
        (lambda: gnomon.frequencies(SPEC, length=0), gnomon.Error, "length: expected at least 1"),
        (lambda: gnomon.rotary_table(SPEC, [2**70]), gnomon.Error, r"positions\[0\]: expected a number within ±2\^33"),
        (lambda: gnomon.rotary_table(SPEC, range(3), dtype="f8"), gnomon.Error, r"dtype: expected f64 \| f32"),
        (lambda: gnomon.rotary_table(gnomon.frequencies(SPEC), [0], numerics="fast"), gnomon.Error, r"numerics: expected exact \| hf"),
        (lambda: gnomon.rotary_table(gnomon.frequencies(SPEC), [0], numerics="hf"), gnomon.Error, "numerics: expected those .* exact, or"),
        (lambda: gnomon.rotary_table(gnomon.frequencies(SPEC, "hf"), [0], numerics="exact"), gnomon.Error, "expected those .* hf, or"),
        (lambda: gnomon.bias.Alibi.of_heads(0), gnomon.Error, "heads: expected at least 1, got 0"),
        (lambda: gnomon.read_model("no-such-file"), gnomon.Error, "no-such-file"),
    ],
)
def test_bad_specs(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    "spec",
    [
        gnomon.RotarySpec(Yarn(factor=8.0, original_max_position_embeddings=4096), theta=1e6, head_dim=128, attention_factor=1.5),
        gnomon.AbsoluteSpec(gnomon.absolute.Learned(rows=514, offset=2), width=768),
        gnomon.bias.Alibi(heads=2, slopes=[0.1, 1 / 3]),
    ],
)
def test_specs_are_pickled_and_copied(spec):
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert copy.copy(spec).to_json() == spec.to_json()


def test_stubs_are_installed():
    package = importlib.resources.files("gnomon")
    assert (package / "py.typed").is_file()
    stub = (package / "_core" / "__init__.pyi").read_text()
    assert "def rotary_table(" in stub
    assert "class RotarySpec" in stub
    assert "def __init__(self, *, factor: float) -> None" in (package / "_core" / "rotary.pyi").read_text()
