# SPDX-License-Identifier: Apache-2.0
"""gnomon.attention on arrays, against softmax in double and pair by pair."""

import numpy
import pytest

import gnomon

HEADS, QUERIES, KEYS, WIDTH = 4, 5, 9, 8
SLOPES = [0.5, 0.25, 0.125, 0.0]


def inputs(dtype=numpy.float32):
    random = numpy.random.default_rng(0)
    shapes = ((2, HEADS, QUERIES, WIDTH), (2, 2, KEYS, WIDTH), (2, 2, KEYS, 6))
    return tuple(random.standard_normal(shape).astype(dtype) for shape in shapes)


def in_double(q, k, v, *, scale=None, softcap=None, bias=0.0, seen=True, sinks=None, factors=None):
    """(out, log of the denominator, greatest score), by definition."""
    q, k, v = q.astype(float), k.astype(float).repeat(HEADS // 2, 1), v.astype(float).repeat(HEADS // 2, 1)
    if factors is not None:
        q = q * numpy.asarray(factors)[:, None]
    scores = q @ k.swapaxes(2, 3) * (scale or WIDTH**-0.5)
    if softcap is not None:
        scores = softcap * numpy.tanh(scores / softcap)
    scores = numpy.where(seen, scores + bias, -numpy.inf)
    weights = numpy.exp(scores)
    total = weights.sum(3) + (0 if sinks is None else numpy.exp(sinks)[:, None])
    with numpy.errstate(divide="ignore", invalid="ignore"):
        out = numpy.where(total[..., None] > 0, weights @ v / total[..., None], 0)
        return out, numpy.log(total), scores.max(3)


DISTANCE = numpy.arange(KEYS)[None] - numpy.arange(KEYS - QUERIES, KEYS)[:, None]
SLOPED = -numpy.array(SLOPES)[:, None, None] * -numpy.minimum(DISTANCE, 0)
ROWS = numpy.arange(HEADS * 5, dtype=numpy.float32).reshape(HEADS, 5) / 10
PATTERN = numpy.random.default_rng(1).random((2, 1, QUERIES, KEYS)) < 0.6
ADDED = numpy.random.default_rng(2).standard_normal((HEADS, 1, KEYS)).astype(numpy.float32)

CASES = {
    "plain": ({}, {}),
    "scale and softcap": ({"scale": 0.7, "softcap": 1.5}, {"scale": 0.7, "softcap": 1.5}),
    "causal": ({"mask": gnomon.key_intervals(QUERIES, KEYS, causal=True)}, {"seen": DISTANCE <= 0}),
    "top left": (
        {"mask": gnomon.key_intervals(QUERIES, KEYS, causal=True, alignment="top_left")},
        {"seen": DISTANCE + KEYS - QUERIES <= 0},
    ),
    "window": ({"mask": gnomon.key_intervals(QUERIES, KEYS, causal=True, window=3)}, {"seen": (DISTANCE <= 0) & (DISTANCE > -3)}),
    "padding": (
        {"mask": gnomon.key_intervals(QUERIES, KEYS, key_begin=[2, 0])},
        {"seen": numpy.arange(KEYS) >= numpy.array([2, 0]).reshape(2, 1, 1, 1)},
    ),
    "documents": (
        {"mask": gnomon.key_intervals(QUERIES, KEYS, cu_seqlens_q=[0, 2, 5], cu_seqlens_k=[0, 4, 9])},
        {"seen": (numpy.arange(QUERIES)[:, None] < 2) == (numpy.arange(KEYS) < 4)},
    ),
    "any pattern": ({"mask_tensor": PATTERN}, {"seen": PATTERN}),
    "added": ({"mask_tensor": ADDED}, {"bias": ADDED}),
    "slopes": ({"bias": gnomon.SlopeBias(SLOPES)}, {"bias": SLOPED}),
    "rows by distance": (
        {"bias": [gnomon.DistanceBias(ROWS, -3), gnomon.SlopeBias(SLOPES)]},
        {"bias": SLOPED + ROWS[:, numpy.clip(DISTANCE + 3, 0, 4)]},
    ),
    "sinks": ({"sink_logits": [0.0, 1.0, -1.0, 3.0]}, {"sinks": [0.0, 1.0, -1.0, 3.0]}),
    "temperature": ({"query_factors": [1.0, 2.0, 0.5, 1.0, 3.0]}, {"factors": [1.0, 2.0, 0.5, 1.0, 3.0]}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "bound"), [(numpy.float64, 1e-14), (numpy.float32, 2e-6), (numpy.float16, 4e-3)])
def test_against_double(case, dtype, bound):
    options, definition = CASES[case]
    q, k, v = inputs(dtype)
    lse, greatest = numpy.empty((2, 2, HEADS, QUERIES), numpy.float32)
    out = gnomon.attention(q, k, v, **options, log_sum_exp=lse, maximum=greatest)
    want, want_lse, want_greatest = in_double(q, k, v, **definition)
    assert out.dtype == dtype
    assert abs(out - want).max() < bound
    finite = numpy.isfinite(want_greatest)
    assert (greatest[~finite] == -numpy.inf).all()
    assert abs(lse - want_lse)[finite].max() < 1e-5
    assert abs(greatest - want_greatest)[finite].max() < 1e-5
    for other, (_, wrong) in CASES.items():  # what any other case gives is told apart
        if other != case:
            assert abs(out - in_double(q, k, v, **wrong)[0]).max() > 4 * bound + 1e-4, other


def test_bfloat16_as_sixteen_bits():
    q, k, v = ((x.view(numpy.uint32) >> 16).astype(numpy.uint16) for x in inputs())
    out = gnomon.attention(q, k, v, dtype="bf16")
    wide = [(x.astype(numpy.uint32) << 16).view(numpy.float32) for x in (q, k, v, out)]
    assert abs(wide[3] - in_double(*wide[:3])[0]).max() < 2**-7


def test_rotation_while_loading():
    q, k, v = inputs()
    spec = gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=WIDTH)
    queries, keys = range(KEYS - QUERIES, KEYS), range(KEYS)
    got = gnomon.attention(q, k, v, rotate_queries=(spec, queries), rotate_keys=(gnomon.frequencies(spec), keys))
    want, *_ = in_double(gnomon.rotate(q.copy(), spec, queries), gnomon.rotate(k.copy(), spec, keys), v)
    assert abs(got - want).max() < 2e-6
    assert abs(in_double(q, k, v)[0] - want).max() > 1e-2


@pytest.mark.parametrize("queries", [1, QUERIES])
def test_pages(queries):
    """Rows of 9 and 4 tokens in pages of 2, in any order, against each row alone."""
    q, k, v = inputs()
    q, lengths = q[:, :, :queries], [KEYS, 4]
    table = numpy.array([[7, 2, 5, 0, 1], [4, 6, 0, 0, 0]])
    pages, value_pages = (numpy.full((8, 2, 2, x.shape[3]), numpy.nan, numpy.float32) for x in (k, v))
    gnomon.append_tokens(k, v, pages, value_pages, [[*range(KEYS)], [*range(4), *[-1] * 5]], block_table=table)
    log_sum_exp = numpy.empty((2, HEADS, queries), numpy.float32)
    got = gnomon.attention(
        q, pages, value_pages, block_table=table, lengths=lengths, log_sum_exp=log_sum_exp, bias=gnomon.SlopeBias(SLOPES)
    )
    for row, length in enumerate(lengths):
        distance = numpy.arange(length)[None] - numpy.arange(length - queries, length)[:, None]
        options = {"seen": distance <= 0, "bias": -numpy.array(SLOPES)[:, None, None] * -numpy.minimum(distance, 0)}
        want, want_log, _ = in_double(q[[row]], k[[row], :, :length], v[[row], :, :length], **options)
        assert abs(got[row] - want[0]).max() < 2e-6
        assert abs(numpy.where(numpy.isfinite(want_log[0]), log_sum_exp[row] - want_log[0], 0)).max() < 1e-5
        off = in_double(q[[row]], numpy.roll(k[[row], :, :length], 2, 2), v[[row], :, :length], **options)[0]  # one page further
        assert abs(got[row] - off[0]).max() > 1e-2
    assert numpy.array_equal(
        got, gnomon.attention(q, pages, value_pages, block_table=table.tolist(), lengths=lengths, bias=gnomon.SlopeBias(SLOPES), threads=2)
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"lengths": None}, "lengths: expected with block_table"),
        ({"block_table": None}, "lengths: expected with block_table"),
        ({"lengths": [9, 11]}, "lengths: row 1 has blocks for 0 to 10 tokens, got 11"),
        ({"lengths": [-1, 3]}, "lengths: row 0 has blocks for 0 to 10 tokens, got -1"),
        ({"lengths": [9]}, "lengths: expected 2"),
        ({"lengths": [9, 2**31]}, "lengths: expected 32-bit numbers"),
        ({"block_table": [[0, 1, 2, 3, 8], [0] * 5]}, "block_table: the cache has pages 0 to 7, block 4 of row 0 is 8"),
        ({"block_table": [[0, 1, 2, 3, 4], [-1] * 5]}, "block_table: the cache has pages 0 to 7, block 0 of row 1 is -1"),
        ({"block_table": [[0, 1]] * 5}, r"block_table: expected shape \(2, blocks\), got \(5, 2\)"),
        ({"v": numpy.zeros((7, 2, 2, 6), numpy.float32)}, "v: expected the 8 pages of k, got 7"),
        ({"mask": gnomon.key_intervals(QUERIES, 9)}, "mask: row 1 has 3 keys in the cache, a query sees keys up to 9"),
    ],
)
def test_pages_that_do_not_fit(changed, message):
    given = {"q": inputs()[0], "k": numpy.zeros((8, 2, 2, WIDTH), numpy.float32), "v": numpy.zeros((8, 2, 2, 6), numpy.float32)}
    given |= {"block_table": numpy.zeros((2, 5), numpy.int32), "lengths": [9, 3]} | changed
    with pytest.raises(gnomon.Error, match=message):
        gnomon.attention(given.pop("q"), given.pop("k"), given.pop("v"), **given)


RULES = {
    "alibi": gnomon.bias.from_json('{"rule": "alibi", "heads": 4, "slopes": [0.25, 0.0625, 0.015625, 0.00390625]}'),
    "kerple": gnomon.bias.from_json('{"rule": "kerple", "heads": 4, "kind": "log", "r1": [1, 2, 3, 4], "r2": [1, 2, 0.5, 3]}'),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("offset", [None, 1000])
def test_a_rule_is_as_good_as_its_table(name, offset):
    """Also for distances that no shape shows: queries far behind the keys."""
    q, k, v = inputs()
    mask = gnomon.key_intervals(QUERIES, KEYS, causal=True, offset=offset)
    want = gnomon.attention(q, k, v, mask=mask, bias=gnomon.bias_table(RULES[name], reach=2000))
    assert numpy.array_equal(gnomon.attention(q, k, v, mask=mask, bias=RULES[name]), want)
    assert abs(want - gnomon.attention(q, k, v, mask=mask)).max() > 1e-2


def test_a_rule_with_trained_numbers_is_refused():
    with pytest.raises(gnomon.Error, match="bias: no table can be made of the rule alone"):
        gnomon.attention(*inputs(), bias=gnomon.bias.from_json('{"rule": "t5", "bidirectional": true}'))


def test_a_hidden_nan_stays_hidden_and_threads_change_no_bit():
    q, k, v = inputs()
    mask = gnomon.key_intervals(QUERIES, KEYS, key_begin=[2, 0])
    want = gnomon.attention(q, k, v, mask=mask)
    k[0, :, :2], v[0, :, :2] = numpy.nan, numpy.inf
    assert numpy.array_equal(gnomon.attention(q, k, v, mask=mask, threads=2), want)


def test_intervals_are_shown_and_can_be_given():
    made = gnomon.key_intervals(QUERIES, KEYS, causal=True, window=3, key_begin=[2, 0])
    assert (made.batch, made.queries, made.keys, made.keep_first) == (2, QUERIES, KEYS, 0)
    assert made.begin.tolist() == [[2, 3, 4, 5, 6]] * 2
    assert made.diagonal.tolist() == [[4, 5, 6, 7, 8]] * 2
    again = gnomon.KeyIntervals(made.begin, made.end, made.first, made.diagonal, keys=KEYS)
    assert numpy.array_equal(gnomon.attention(*inputs(), mask=again), gnomon.attention(*inputs(), mask=made))
    with pytest.raises(ValueError, match="read-only"):
        made.begin[0, 0] = 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": [1.0]}, "q: expected an array on the CPU"),
        ({"k": numpy.zeros((2, 2, KEYS, 7), numpy.float32)}, "k: expected"),
        ({"v": numpy.zeros((2, 2, KEYS, 6))}, "v: expected the dtype of q"),
        ({"out": numpy.zeros((2, HEADS, QUERIES, 5), numpy.float32)}, "out: "),
        ({"softcap": 0.0}, "softcap: expected a positive number"),
        ({"bias": "alibi"}, "bias: expected a SlopeBias"),
        ({"mask": gnomon.key_intervals(QUERIES, KEYS + 1)}, "mask: expected intervals for 5 queries and 9 keys"),
        ({"mask_tensor": numpy.zeros((3, KEYS), numpy.float32)}, "mask_tensor: expected an axis of 5 or 1"),
        ({"mask_tensor": numpy.zeros(KEYS, numpy.int64)}, "mask_tensor: expected bool, or float32 .* got int64"),
        ({"dtype": "bf16"}, "dtype: expected none, or that of an array, got bf16 beside f32"),
        ({"sink_logits": [1.0]}, "sink_logits: expected 4 numbers"),
        ({"rotate_keys": 3}, "rotate_keys: expected a pair"),
        ({"log_sum_exp": numpy.zeros((2, HEADS, QUERIES))}, "log_sum_exp: expected a writable, .* got a float64 array of shape"),
        ({"log_sum_exp": numpy.zeros((2, HEADS, 3), numpy.float32)}, "log_sum_exp: expected shape"),
    ],
)
def test_bad_input(changed, message):
    given = dict(zip("qkv", inputs(), strict=True)) | changed
    with pytest.raises(gnomon.Error, match=message):
        gnomon.attention(given.pop("q"), given.pop("k"), given.pop("v"), **given)


def test_intervals_that_cannot_be():
    rows = numpy.zeros((1, QUERIES), numpy.int32)
    beyond = gnomon.KeyIntervals(rows, rows + KEYS + 1, rows, rows, keys=KEYS)
    with pytest.raises(gnomon.Error, match="mask: expected 0 <= begin <= end <= 9"):
        gnomon.attention(*inputs(), mask=beyond)
    with pytest.raises(gnomon.Error, match="end: expected the shape of begin"):
        gnomon.KeyIntervals(rows, rows[:, 1:].copy(), rows, rows, keys=KEYS)
    for words in ({"causal": True}, {"window": 3}):
        for sides in ({"left": 1}, {"right": 0}):
            with pytest.raises(gnomon.Error, match="left, right: expected without causal and window"):
                gnomon.key_intervals(QUERIES, KEYS, **words, **sides)
    with pytest.raises(gnomon.Error, match="window: expected at least 1"):
        gnomon.key_intervals(QUERIES, KEYS, window=0)
