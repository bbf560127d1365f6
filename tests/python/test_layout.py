# SPDX-License-Identifier: Apache-2.0
"""Layout conversion in NumPy: equal scores for converted weights, the numbers people had to find by hand, and the wrong head count."""

import numpy as np
import pytest

import gnomon
from gnomon.rotary import Default

HEADS, KV_HEADS, INPUTS, TOKENS = 4, 2, 12, 6


def spec_of(head_dim=8, layout="half_split", **keys):
    return gnomon.RotarySpec(Default(), theta=10000.0, head_dim=head_dim, layout=layout, **keys)


HALF, INTERLEAVED = spec_of(), spec_of(layout="interleaved")


def pair_channels(spec):
    """(pairs, 2): written out from the definition of the layouts."""
    pairs = range(spec.rotary_dim // 2)
    both = [(i, i + spec.rotary_dim // 2) if spec.layout == "half_split" else (2 * i, 2 * i + 1) for i in pairs]
    return np.array(both) + spec.rotary_offset


def projected(x, weight, bias, gain, heads):
    """(1, heads, T, D): a projection, then a norm over each head, as Qwen 3 has."""
    rows = (x @ weight.T + bias).reshape(TOKENS, heads, -1).transpose(1, 0, 2)[None]
    return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-6) * gain


def scores(q, k, spec, start=100_000):
    """(heads, T, T) after rotation; each key head serves HEADS / KV_HEADS query heads."""
    positions = range(start, start + TOKENS)
    q, k = (np.ascontiguousarray(gnomon.rotate(np.array(rows, order="C"), spec, positions)[0]) for rows in (q, k))
    return q @ np.repeat(k, HEADS // KV_HEADS, axis=0).transpose(0, 2, 1)


@pytest.fixture
def layer():
    """x, and (weight, bias, gain) for queries and for keys."""
    rng = np.random.default_rng(0)

    def projection(heads, head_dim=8):
        return [rng.standard_normal(shape) for shape in [(heads * head_dim, INPUTS), heads * head_dim, head_dim]]

    return rng.standard_normal((TOKENS, INPUTS)), projection(HEADS), projection(KV_HEADS)


@pytest.mark.parametrize(("spec", "to"), [(HALF, "interleaved"), (INTERLEAVED, "half_split")])
def test_converted_weights_biases_and_gains_give_the_same_scores(layer, spec, to):
    x, query, key = layer
    before = scores(projected(x, *query, HEADS), projected(x, *key, KV_HEADS), spec)
    for tensor in query + key:
        assert gnomon.convert_layout(tensor, spec, to=to, axis=0) is tensor
    after = scores(projected(x, *query, HEADS), projected(x, *key, KV_HEADS), spec_of(layout=to))
    np.testing.assert_allclose(after, before, atol=1e-12)


@pytest.mark.parametrize("forgotten", ["weight", "bias", "gain"])
def test_a_part_left_behind_gives_other_scores(layer, forgotten):
    x, query, key = layer
    before = scores(projected(x, *query, HEADS), projected(x, *key, KV_HEADS), HALF)
    for projection in (query, key):
        for name, tensor in zip(["weight", "bias", "gain"], projection, strict=True):
            if name != forgotten:
                gnomon.convert_layout(tensor, HALF, to="interleaved", axis=0)
    after = scores(projected(x, *query, HEADS), projected(x, *key, KV_HEADS), INTERLEAVED)
    assert np.abs(after - before).max() > 0.1


def test_cached_keys_are_converted_after_their_rotation(layer):
    x, _, key = layer
    k = projected(x, *key, KV_HEADS)
    cached = gnomon.rotate(np.array(k, order="C"), HALF, range(TOKENS))
    converted = gnomon.convert_layout(cached.copy(), HALF, to="interleaved", axis=-1)
    fresh = np.array(k[..., gnomon.layout_permutation(HALF, to="interleaved")], order="C")
    np.testing.assert_allclose(converted, gnomon.rotate(fresh, INTERLEAVED, range(TOKENS)), atol=1e-14)
    assert np.abs(cached - converted).max() > 0.1  # bytes of the two caches are not interchangeable


def test_t23_permutation_with_grouped_key_heads():
    """8 rows of K with 2 heads of 4. Seen: the count of the query heads, 4, so heads of width 2, and nothing happens."""
    rows = np.arange(8.0)[:, None].repeat(3, axis=1)
    assert gnomon.convert_layout(rows.copy(), spec_of(4), to="interleaved", axis=0)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert gnomon.convert_layout(rows.copy(), spec_of(2), to="interleaved", axis=0)[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert gnomon.layout_permutation(HALF, to="interleaved").tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert gnomon.layout_permutation(INTERLEAVED, to="half_split").tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    with pytest.raises(gnomon.Error, match=r"multiple of head_dim \(6\), got 8"):
        gnomon.convert_layout(rows, spec_of(6), to="interleaved", axis=0)


def test_the_permutation_is_that_of_a_known_reshape():
    """Converters reshape each head to [2, D/2], swap and flatten."""
    weight = np.random.default_rng(1).standard_normal((KV_HEADS * 8, INPUTS))
    reshaped = weight.reshape(KV_HEADS, 2, 4, INPUTS).swapaxes(1, 2).reshape(weight.shape)
    np.testing.assert_array_equal(gnomon.convert_layout(weight.copy(), HALF, to="interleaved", axis=0), reshaped)
    wrong = weight.reshape(HEADS, 2, 2, INPUTS).swapaxes(1, 2).reshape(weight.shape)
    assert (wrong != reshaped).any()


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
@pytest.mark.parametrize("part", [{}, {"rotary_dim": 4}, {"rotary_dim": 4, "rotary_offset": 3}])
def test_pairs_land_where_the_other_layout_looks_for_them_and_the_rest_stays(layout, part):
    to = "interleaved" if layout == "half_split" else "half_split"
    spec, converted = spec_of(layout=layout, **part), spec_of(layout=to, **part)
    permutation = gnomon.layout_permutation(spec, to=to)
    assert permutation.dtype == np.int64
    np.testing.assert_array_equal(permutation[pair_channels(converted)], pair_channels(spec))
    rest = np.setdiff1d(np.arange(8), pair_channels(spec))
    np.testing.assert_array_equal(permutation[rest], rest)
    np.testing.assert_array_equal(gnomon.layout_permutation(spec, to=layout), np.arange(8))
    there = gnomon.convert_layout(np.arange(16), spec, to=to, axis=0)
    np.testing.assert_array_equal(gnomon.convert_layout(there, converted, to=layout, axis=0), np.arange(16))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint16", "int32"])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -4])
def test_bytes_are_moved_along_any_axis(dtype, axis):
    shape = [2, 3, 4, 5]
    shape[axis] = 16
    array = np.random.default_rng(2).integers(0, 2**15, shape).astype(dtype)
    array = array.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0)  # an unusual order in memory
    order = gnomon.layout_permutation(HALF, to="interleaved")
    expected = np.take(array, np.concatenate([order, order + 8]), axis=axis)
    out = np.empty(shape, dtype)
    before = array.copy()
    assert gnomon.convert_layout(array, HALF, to="interleaved", axis=axis, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(array, before)
    gnomon.convert_layout(array, HALF, to="interleaved", axis=axis)
    np.testing.assert_array_equal(array, expected)


def test_a_slice_of_a_fused_projection():
    """Heads stored as q, k and v one after the other, as GPT-NeoX: the values must stay."""
    fused = np.random.default_rng(3).standard_normal((HEADS, 3, 8, INPUTS))
    converted = fused.copy()
    gnomon.convert_layout(converted[:, :2], HALF, to="interleaved", axis=2)
    order = gnomon.layout_permutation(HALF, to="interleaved")
    np.testing.assert_array_equal(converted[:, :2], fused[:, :2][:, :, order])
    np.testing.assert_array_equal(converted[:, 2], fused[:, 2])


def test_the_joint_key_projection_of_latent_attention_is_one_head():
    """512 latent rows stay, 64 rotate. Seen as heads of 192, which divides 576 too, rows of the latent part would move."""
    rows = np.arange(576)
    as_one_head = spec_of(576, "interleaved", rotary_dim=64, rotary_offset=512)
    converted = gnomon.convert_layout(rows.copy(), as_one_head, to="half_split", axis=0)
    np.testing.assert_array_equal(converted, np.concatenate([rows[:512], rows[512::2], rows[513::2]]))
    as_queries = spec_of(192, "interleaved", rotary_dim=64, rotary_offset=128)
    assert (gnomon.convert_layout(rows.copy(), as_queries, to="half_split", axis=0)[:512] != rows[:512]).any()


def test_torch_tensors_share_their_memory():
    torch = pytest.importorskip("torch")
    weight = torch.arange(16, dtype=torch.bfloat16)[:, None].repeat(1, 3)
    expected = weight[torch.tensor(np.concatenate([gnomon.layout_permutation(HALF, to="interleaved") + d for d in (0, 8)]))]
    assert gnomon.convert_layout(weight, HALF, to="interleaved", axis=0) is weight
    assert torch.equal(weight, expected)


@pytest.mark.parametrize(
    ("array", "keys", "says"),
    [
        (np.zeros(16), {"to": "neox"}, 'to: expected half_split | interleaved, got "neox"'),
        (np.zeros(16), {"axis": 1}, "axis: expected -1 to 0, got 1"),
        (np.zeros((2, 8)), {"axis": -3}, "axis: expected -2 to 1, got -3"),
        (np.zeros((10, 8)), {"axis": 0}, "multiple of head_dim (8), got 10"),
        (np.zeros((1, 1, 1, 1, 8)), {"axis": -1}, "x: expected 1 to 4 axes, got 5"),
        (np.zeros(()), {"axis": 0}, "x: expected 1 to 4 axes, got 0"),
        (np.zeros(16, "int8"), {}, "x: expected elements of 2, 4 or 8 bytes, got 8 bits"),
        (np.zeros(16, "complex128"), {}, "x: expected elements of 2, 4 or 8 bytes, got 128 bits"),
        ([0.0] * 16, {}, "x: expected a writable array"),
        (np.broadcast_to(np.zeros((1, 8)), (16, 8)), {}, "x: expected a writable array"),
        (np.zeros(16), {"out": np.zeros(8)}, "out: expected the shape of x"),
        (np.zeros(16), {"out": np.zeros(16, "float32")}, "out: expected the dtype of x"),
        (np.zeros(16), {"out": np.zeros((1, 16, 1))}, "out: expected the shape of x"),
    ],
)
def test_bad_input_is_an_error(array, keys, says):
    with pytest.raises(gnomon.Error) as caught:
        gnomon.convert_layout(array, HALF, **{"to": "interleaved", "axis": 0, **keys})
    assert says in str(caught.value)


def test_an_out_that_overlaps_is_refused():
    memory = np.zeros(24)
    with pytest.raises(gnomon.Error, match="out: overlaps x"):
        gnomon.convert_layout(memory[:16], HALF, to="interleaved", axis=0, out=memory[8:])
