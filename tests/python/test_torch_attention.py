# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch.attention as an operator: against softmax in double, under every mode of torch, and without a gradient."""

import copy

import numpy
import pytest

torch = pytest.importorskip("torch")

import gnomon  # noqa: E402
import gnomon.torch  # noqa: E402

OPERATOR = torch.ops.gnomon.attention.default
SLOPES = [0.5, 0.25, 0.125, 0.0]
SPEC = gnomon.RotarySpec(gnomon.rotary.Yarn(factor=8, original_max_position_embeddings=64), theta=10000.0, head_dim=8)
ROTATION = gnomon.torch.Rotation(SPEC)


def inputs(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)))


def causal():
    return gnomon.torch.Mask(gnomon.key_intervals(5, 7, causal=True))


def in_double(q, k, v, *, softcap=None, seen=None, bias=None, sinks=None, factors=None):
    q, k, v = (x.double() for x in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)))
    scores = q @ k.mT * (1 if factors is None else factors[:, None]) / q.shape[3] ** 0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], 3)
    return scores.softmax(3)[..., : v.shape[2]] @ v


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, 1e-15), (torch.float32, 1e-6), (torch.bfloat16, 2**-7), (torch.float16, 2**-10)]
)
def test_against_double(dtype, bound):
    q, k, v = inputs(dtype)
    distance = torch.arange(7)[None] - torch.arange(2, 7)[:, None]
    bias = -torch.tensor(SLOPES).view(4, 1, 1) * distance.abs()
    pattern = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.7
    pattern[..., 0] = True
    sinks, factors = torch.tensor([0.0, 1.0, -1.0, 2.0]), torch.linspace(0.5, 2, 5)
    got = gnomon.torch.attention(
        q,
        k,
        v,
        softcap=2.0,
        bias=gnomon.SlopeBias(SLOPES),
        mask=causal(),
        mask_tensor=pattern,
        sink_logits=sinks,
        query_factors=factors,
    )
    options = {"softcap": 2.0, "seen": pattern & (distance <= 0), "bias": bias, "sinks": sinks, "factors": factors}
    want = in_double(q, k, v, **options)
    assert got.dtype == dtype
    assert (got.double() - want).abs().max() < bound * 2
    for name in options:  # so each of them is seen
        assert (in_double(q, k, v, **{**options, name: None}) - want).abs().max() > 0.02, name


def test_additive_masks_in_any_dtype():
    q, k, v = inputs()
    added = torch.randn(4, 1, 7, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert (gnomon.torch.attention(q, k, v, mask_tensor=added) - in_double(q, k, v, bias=added.double())).abs().max() < 1e-6


def test_rows_are_returned_where_they_are_asked_for():
    q, k, v = inputs()
    sinks = torch.tensor([0.0, 1.0, -1.0, 2.0])
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT / 8**0.5
    scores = scores.masked_fill(torch.arange(7) > torch.arange(2, 7)[:, None], -torch.inf)
    out, log_sum_exp, maximum = gnomon.torch.attention(q, k, v, mask=causal(), sink_logits=sinks, log_sum_exp=True, maximum=True)
    assert torch.equal(out, gnomon.torch.attention(q, k, v, mask=causal(), sink_logits=sinks))
    want = torch.cat([scores, sinks.double().view(4, 1, 1).expand(2, 4, 5, 1)], 3).logsumexp(3)
    assert (log_sum_exp - want).abs().max() < 1e-6
    assert (want - scores.logsumexp(3)).abs().max() > 1e-2
    assert (maximum - scores.amax(3)).abs().max() < 1e-6
    _, alone = gnomon.torch.attention(q, k, v, mask=causal(), sink_logits=sinks, maximum=True)
    assert torch.equal(alone, maximum)
    _, nothing = gnomon.torch.attention(q, k[:, :, :0], v[:, :, :0], log_sum_exp=True)
    assert (nothing == -torch.inf).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("sides", [("query",), ("key",), ("query", "key")])
def test_rotation_while_loading(sides, dtype):
    q, k, v = inputs(dtype)
    positions = {"query": torch.arange(5) + 2, "key": torch.stack([torch.arange(7), torch.arange(7) * 3])}
    got = gnomon.torch.attention(q, k, v, rotation=ROTATION, **{f"{side}_positions": positions[side] for side in sides})
    turned = {"query": q.double(), "key": k.double()}
    plain = in_double(turned["query"], turned["key"], v)
    for side in sides:
        turned[side] = gnomon.torch.rotate(turned[side], ROTATION, positions[side])
    want = in_double(turned["query"], turned["key"], v)
    assert (got.double() - want).abs().max() < {torch.float32: 1e-6, torch.bfloat16: 2**-6, torch.float64: 1e-14}[dtype]
    assert (plain - want).abs().max() > 0.05
    if len(sides) == 2:
        spec = gnomon.torch.attention(q, k, v, rotation=SPEC, query_positions=2, key_positions=positions["key"].int())
        assert torch.equal(spec, got)


def test_rotation_of_several_axes_and_in_a_traced_graph():
    q, k, v = inputs()
    spec = gnomon.RotarySpec(gnomon.rotary.Default(), theta=100.0, head_dim=8, sections=[1, 1, 2])
    rotation, positions = gnomon.torch.Rotation(spec), torch.arange(21).view(3, 7) % 5

    def function(q, k, v, positions):
        return gnomon.torch.attention(q, k, v, rotation=rotation, key_positions=positions, log_sum_exp=True)

    with torch.no_grad():
        got = torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v, positions)
        assert all(map(torch.equal, got, function(q, k, v, positions)))
        assert (got[0] - in_double(q, gnomon.torch.rotate(k, rotation, positions), v)).abs().max() < 1e-6
        assert (got[0] - function(q, k, v, positions.flip(0))[0]).abs().max() > 1e-2


def test_statistics_of_tensors():
    q, k, v = inputs(torch.bfloat16)
    options = {"mask": causal(), "bias": gnomon.torch.Bias(gnomon.SlopeBias(SLOPES)), "sink_logits": torch.zeros(4).bfloat16()}
    options["mask_tensor"] = torch.linspace(-1, 1, 7)
    _, log_sum_exp = gnomon.torch.attention(q, k, v, log_sum_exp=True, **options)
    seen = gnomon.torch.attention_statistics(q, k, log_sum_exp, first_keys=2, **options)
    distance = torch.arange(7)[None] - torch.arange(2, 7)[:, None]
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT / 8**0.5
    scores = scores - torch.tensor(SLOPES).view(4, 1, 1) * distance.abs() + options["mask_tensor"]
    scores = torch.cat([scores.masked_fill(distance > 0, -torch.inf), torch.zeros(2, 4, 5, 1)], 3)
    weights = scores.softmax(3)[..., :7]
    assert (torch.tensor(seen.mass) - weights.sum(3)).abs().max() < 1e-5
    assert (torch.tensor(seen.first_mass) - weights[..., :2].sum(3)).abs().max() < 1e-5


def test_any_strides_and_the_memory_of_the_result():
    q, k, v = inputs()
    want = gnomon.torch.attention(q, k, v)
    assert want.transpose(1, 2).is_contiguous()
    turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k)]
    backwards = v.transpose(2, 3).contiguous().transpose(2, 3)  # the last axis is not contiguous
    assert torch.equal(gnomon.torch.attention(*turned, backwards), want)
    assert gnomon.torch.attention(q[:0], k[:0], v[:0]).shape == (0, 4, 5, 6)
    assert not gnomon.torch.attention(q, k[:, :, :0], v[:, :, :0]).any()  # no key: zeros


def test_opcheck():
    mask, bias = causal(), gnomon.torch.Bias([gnomon.SlopeBias(SLOPES), gnomon.DistanceBias(numpy.ones((4, 3), numpy.float32), -1)])
    unturned = (None, None, None, None, 0, 0, False, 1.0)
    torch.library.opcheck(OPERATOR, (*inputs(), bias.number, mask.number, None, torch.zeros(4), None, *unturned, None, 5.0, False, True))
    seen = torch.ones(7, dtype=torch.bool)
    turns = (torch.arange(5), torch.arange(14).view(2, 7), ROTATION.turns, None, 8, 0, False, 1.5)
    torch.library.opcheck(OPERATOR, (*inputs(torch.bfloat16), None, None, seen, None, torch.ones(2, 5), *turns, 0.3, None, True, True))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_and_a_traced_graph(mode):
    bias = gnomon.torch.Bias(gnomon.SlopeBias(SLOPES))

    def function(q, k, v, mask):
        return gnomon.torch.attention(q * 2, k, v, mask=mask, bias=bias)

    traced = torch.compile(function, fullgraph=True, backend="aot_eager")
    with mode():
        for seed in (0, 1):  # another mask through the same graph
            window = gnomon.torch.Mask(gnomon.key_intervals(5, 7, causal=True, window=2 + seed))
            assert torch.equal(traced(*inputs(seed=seed), window), function(*inputs(seed=seed), window))
    meta = gnomon.torch.attention(*(x.to("meta") for x in inputs()))
    assert (meta.shape, meta.stride()) == ((2, 4, 5, 6), gnomon.torch.attention(*inputs()).stride())


def test_threads_change_no_bit():
    q, k, v = inputs()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        want = gnomon.torch.attention(q, k, v, mask=causal())
        torch.set_num_threads(2)
        assert torch.equal(gnomon.torch.attention(q, k, v, mask=causal()), want)
    finally:
        torch.set_num_threads(threads)


def test_a_gradient_is_refused_when_it_is_asked_for():
    q, k, v = inputs()
    out = gnomon.torch.attention(q.requires_grad_(), k, v)
    assert torch.equal(out.detach(), gnomon.torch.attention(q.detach(), k, v))
    with pytest.raises(RuntimeError, match="no gradient of attention yet"):
        out.sum().backward()
    with torch.no_grad(), pytest.raises(RuntimeError, match="no derivative of attention yet"), torch.autograd.forward_ad.dual_level():
        gnomon.torch.attention(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)), k, v)


def test_masks_live_as_long_as_they_are_kept():
    mask = causal()
    assert copy.deepcopy(mask) is mask
    number = mask.number
    del mask
    with pytest.raises(RuntimeError, match="mask: the object it was made as does not exist any more"):
        OPERATOR(*inputs(), None, number, None, None, None, None, None, None, None, 0, 0, False, 1.0, None, None, False, False)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"k": torch.ones(2, 2, 7, 8).double()}, TypeError, "k: expected float32.*the same"),
        ({"q": torch.ones(4, 5, 8)}, ValueError, "q: expected shape"),
        ({"v": torch.ones(2, 2, 6, 8)}, ValueError, "q, k, v: expected"),
        ({"k": torch.ones(2, 3, 7, 8), "v": torch.ones(2, 3, 7, 6)}, gnomon.Error, "k: expected a number of heads"),
        ({"mask": torch.ones(5, 7)}, TypeError, "mask: expected gnomon.KeyIntervals"),
        ({"mask": gnomon.key_intervals(5, 6)}, gnomon.Error, "mask: expected intervals for 5 queries and 7 keys"),
        ({"mask_tensor": torch.ones(3, 7)}, gnomon.Error, "mask_tensor: expected"),
        ({"bias": 3}, TypeError, "bias: expected a SlopeBias"),
        ({"bias": gnomon.SlopeBias([1.0])}, gnomon.Error, "bias: expected numbers for the 4 heads"),
        ({"sink_logits": torch.ones(3)}, gnomon.Error, "sink_logits: expected 4"),
        ({"softcap": -1.0}, gnomon.Error, "softcap: expected a positive"),
        ({"rotation": ROTATION}, ValueError, "rotation: expected with query_positions"),
        ({"key_positions": 0}, ValueError, "rotation: expected with query_positions"),
        (
            {"rotation": gnomon.RotarySpec(gnomon.rotary.Default(), theta=1e4, head_dim=16), "key_positions": 0},
            ValueError,
            "rotation: .* 8",
        ),
        ({"rotation": ROTATION, "key_positions": torch.arange(5)}, ValueError, r"key_positions: expected \(7,\)"),
        ({"rotation": ROTATION, "query_positions": torch.arange(5.0)}, TypeError, "query_positions: expected int64"),
    ],
)
def test_bad_input(changed, error, message):
    given = dict(zip("qkv", inputs(), strict=True)) | changed
    with pytest.raises(error, match=message):
        gnomon.torch.attention(given.pop("q"), given.pop("k"), given.pop("v"), **given)
