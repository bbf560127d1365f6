# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch against double arithmetic with angles from mpmath, and against what torch asks of an operator."""

import copy
import pickle

import mpmath
import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gnomon  # noqa: E402
import gnomon.torch  # noqa: E402
from gnomon.torch import RotaryEmbedding, Rotation, rotate, rotate_  # noqa: E402

B, H, T, D = 2, 3, 5, 16


def spec_of(layout="half_split", *, partial=False, attention_factor=None):
    width = {"rotary_dim": 10, "rotary_offset": 4} if partial else {}
    return gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=D, layout=layout, attention_factor=attention_factor, **width)


SPECS = {
    "half_split": spec_of(),
    "interleaved": spec_of("interleaved"),
    "half_split, partial, with a magnitude": spec_of(partial=True, attention_factor=1.25),
    "interleaved, partial, with a magnitude": spec_of("interleaved", partial=True, attention_factor=1.25),
}
ORDERS = {
    "heads first": lambda dtype: torch.randn(B, H, T, D, dtype=dtype),
    "tokens first": lambda dtype: torch.randn(B, T, H, D, dtype=dtype).transpose(1, 2),
    "slice of qkv": lambda dtype: torch.randn(B, T, H, 3 * D, dtype=dtype)[..., D : 2 * D].transpose(1, 2),
    "expanded": lambda dtype: torch.randn(1, H, T, D, dtype=dtype).expand(B, H, T, D),
    "channels not contiguous": lambda dtype: torch.randn(B, H, D, T, dtype=dtype).transpose(2, 3),
    "one value": lambda dtype: torch.randn((), dtype=dtype).expand(B, H, T, D),
    "overlapping tokens": lambda dtype: torch.randn(B, H, 2 * D, dtype=dtype).unfold(2, D, 4)[:, :, :T],
    "every other token": lambda dtype: torch.randn(B, H, 2 * T, D, dtype=dtype)[:, :, ::2],
    "every other channel": lambda dtype: torch.randn(B, H, T, 2 * D, dtype=dtype)[..., ::2],
    "odd row length": lambda dtype: torch.randn(B, H, T, D + 1, dtype=dtype)[..., 1:],
    "batch innermost": lambda dtype: torch.randn(T, D, H, B, dtype=dtype).permute(3, 2, 0, 1),
    "one token": lambda dtype: torch.randn(B, H, 1, D, dtype=dtype),
    "no token": lambda dtype: torch.randn(B, H, 0, D, dtype=dtype),
    "no batch": lambda dtype: torch.randn(0, H, T, D, dtype=dtype),
}
# Elements that share memory, or a last axis that is not contiguous: what cannot be written in place.
READ_ONLY = ("expanded", "channels not contiguous", "one value", "overlapping tokens", "every other channel", "batch innermost")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def expected(x, spec, positions):
    """In double; the angle is reduced in 60 digits, from the frequency that is printed."""
    positions = positions.expand(x.shape[0], x.shape[2]) if positions.dim() == 1 else positions
    with mpmath.workdps(60):
        angles = [[mpmath.mpf(f) * p % (2 * mpmath.pi) for f in gnomon.frequencies(spec).inv_freq] for p in positions.flatten().tolist()]
        angles = torch.tensor([[float(angle) for angle in row] for row in angles], dtype=torch.float64)
    angles = angles.reshape(x.shape[0], 1, x.shape[2], spec.rotary_dim // 2)
    cos, sin = angles.cos() * spec.attention_factor, angles.sin() * spec.attention_factor
    y = x.double().clone(memory_format=torch.contiguous_format)
    part = y[..., spec.rotary_offset : spec.rotary_offset + spec.rotary_dim]
    pairs = part.unflatten(-1, (2, -1)).movedim(-2, 0) if spec.layout == "half_split" else part.unflatten(-1, (-1, 2)).movedim(-1, 0)
    a, b = pairs[0].clone(), pairs[1].clone()
    pairs[0], pairs[1] = a * cos - b * sin, b * cos + a * sin
    return y


def assert_rounded(y, want):
    """f64 within 2⁻⁵⁰; narrower types within half an ulp plus what float32 arithmetic adds: 8e-7 of the largest value."""
    half_ulp = {torch.float64: 2.0**-50, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}[y.dtype]
    slack = 0 if y.dtype == torch.float64 else 8e-7
    bound = half_ulp * 2 * want.abs().clamp(min=1) + slack * want.abs().max() if want.numel() else 0
    assert ((y.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("spec", SPECS)
def test_values_in_every_order(spec, order, dtype):
    x = ORDERS[order](dtype)
    positions = torch.arange(7, 7 + x.shape[2])
    before = x.clone()
    y = rotate(x, Rotation(SPECS[spec]), positions)
    assert y.dtype == dtype
    assert y.shape == x.shape
    assert_rounded(y, expected(x, SPECS[spec], positions))
    assert torch.equal(x, before)
    if order == "tokens first":
        assert y.stride() == x.stride()
    if order not in READ_ONLY:
        assert rotate_(x, Rotation(SPECS[spec]), positions) is x
        assert torch.equal(x, y)


def test_forms_of_positions():
    x, rotation = torch.randn(B, H, T, D), Rotation(spec_of())
    shared = torch.arange(T)
    y = rotate(x, rotation, shared)
    strided = torch.stack((shared, shared), 1)[:, 0]
    for same in (None, 0, shared[None], shared.to(torch.int32), shared.expand(B, T), torch.stack((shared, shared)), strided):
        assert torch.equal(rotate(x, rotation, same), y)
    assert torch.equal(rotate(x, rotation, 1000), rotate(x, rotation, torch.arange(1000, 1000 + T)))
    own = torch.tensor([[0, 1, 2, 0, 1], [-3, 7, 7, 2**33, 131071]])
    assert_rounded(rotate(x, rotation, own), expected(x, spec_of(), own))
    assert_rounded(rotate(x, rotation, own.T.contiguous().T), expected(x, spec_of(), own))


def test_specs_and_frequencies_are_taken_too():
    x, spec = torch.randn(B, H, T, D), spec_of()
    y = rotate(x, Rotation(spec), 5)
    assert torch.equal(rotate(x, spec, 5), y)
    assert torch.equal(rotate(x, gnomon.frequencies(spec), 5), y)


def test_transposed_turns_back():
    x, rotation = torch.randn(B, H, T, D, dtype=torch.float64), Rotation(spec_of(partial=True))
    assert torch.allclose(rotate(rotate(x, rotation, 99), rotation, 99, direction="transposed"), x, rtol=0, atol=1e-14)


def test_a_cast_of_the_model_cannot_damage_a_rotation():
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rotation = Rotation(spec_of())

    cast = copy.deepcopy(Attention()).to(torch.bfloat16)
    assert torch.equal(cast.rotation.turns, Rotation(spec_of()).turns)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int16, torch.uint8, torch.bool])
def test_positions_are_never_cast(dtype):
    """T02: what a narrow type did to positions cannot be seen any more, so it is refused where it comes in."""
    x, rotation = torch.randn(1, 1, 512, D), Rotation(spec_of())
    with pytest.raises(TypeError, match="positions: expected int64"):
        rotate(x, rotation, torch.arange(512).to(dtype))


def test_what_a_cast_of_positions_would_lose():
    """T02: 512 positions give 512 rotations; cast to bfloat16 they would give 385."""
    x, rotation = torch.ones(1, 1, 512, D, dtype=torch.float64), Rotation(spec_of())
    cast = torch.arange(512).to(torch.bfloat16).to(torch.int64)
    assert len(rotate(x, rotation, torch.arange(512))[0, 0].unique(dim=0)) == 512
    assert len(rotate(x, rotation, cast)[0, 0].unique(dim=0)) == 385
    y = rotate(torch.eye(D, dtype=torch.float64)[0].expand(1, 1, 2, D), rotation, torch.tensor([15962, 15936]))[0, 0, :, 0]
    assert y[0].item() == pytest.approx(-0.908015901251, abs=1e-11)
    assert y[1].item() == pytest.approx(-0.267950071128, abs=1e-11)


X = torch.zeros(B, H, T, D)


@pytest.mark.parametrize(
    ("x", "positions", "message"),
    [
        (X.int(), None, "x: expected float32"),
        (X[0], None, "x: expected shape"),
        (X[..., :8], None, "x: expected shape"),
        (X, torch.arange(T + 1), "positions: expected"),
        (X, torch.zeros(T, B, dtype=torch.int64), "positions: expected"),
        (X, torch.zeros(B * T, dtype=torch.int64), "positions: expected"),
        (X, torch.zeros(1, B, T, dtype=torch.int64), "positions: expected"),
        (X, torch.arange(T) + 2**33, "position"),
        (X, [0, 1, 2, 3, 4], "positions: expected an int64 tensor or an int, got list"),
        (X, 1.0, "positions: expected an int64 tensor or an int, got float"),
    ],
)
def test_refusals(x, positions, message):
    for function in (rotate, rotate_):
        with pytest.raises((TypeError, ValueError), match=message):
            function(x, Rotation(spec_of()), positions)
    assert not X.any()


def test_refused_rotations():
    with pytest.raises(ValueError, match="expected exact frequencies"):
        Rotation(gnomon.frequencies(spec_of(), "hf"))
    with pytest.raises(ValueError, match="direction: expected 'forward' or 'transposed'"):
        rotate(X, Rotation(spec_of()), direction="back")
    with pytest.raises(ValueError, match="turns: expected int64"):
        torch.ops.gnomon.rotate(X, torch.arange(T), Rotation(spec_of()).turns[:3], None, D, 0, False, 1.0, False)
    with pytest.raises(ValueError, match="axis: expected uint8"):
        torch.ops.gnomon.rotate(X, torch.arange(T), Rotation(spec_of()).turns, torch.zeros(3, dtype=torch.uint8), D, 0, False, 1.0, False)
    with pytest.raises(ValueError, match="xpos is not offered here"):
        Rotation(gnomon.RotarySpec(gnomon.rotary.Xpos(), theta=10000.0, head_dim=D))


@pytest.mark.parametrize("spec", SPECS)
def test_first_and_second_derivatives(spec):
    rotation = Rotation(SPECS[spec])
    x = torch.randn(B, H, T, D, dtype=torch.float64, requires_grad=True)
    positions = torch.randint(-1000, 1000, (B, T))
    assert torch.autograd.gradcheck(lambda x: rotate(x, rotation, positions), x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: rotate(x, rotation, positions), x)
    tokens_first = torch.randn(B, T, H, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: rotate(x.transpose(1, 2), rotation, positions), tokens_first)


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_from_and_into_every_order(order):
    """The gradient that comes in may lie as oddly in memory as x, a constant one in a single value."""
    spec = spec_of(partial=True, attention_factor=1.25)
    x = ORDERS[order](torch.float64).detach().requires_grad_()
    positions = torch.arange(7, 7 + x.shape[2])
    for weights in (ORDERS[order](torch.float64), torch.ones((), dtype=torch.float64).expand(x.shape)):
        [gradient] = torch.autograd.grad(rotate(x, Rotation(spec), positions), x, weights)
        unscaled = expected(weights, spec_of(partial=True), -positions)  # R(-p) is the transposed of R(p)
        scale = torch.ones(D, dtype=torch.float64)
        scale[spec.rotary_offset : spec.rotary_offset + spec.rotary_dim] = 1.25
        assert_rounded(gradient, unscaled * scale)


@pytest.mark.parametrize("amp", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_autocast_leaves_it_alone(amp, dtype):
    """Positions 256 and 257, and float32 values, would be the same in bfloat16; the dtype of x is kept, in and out of a gradient."""
    rotation, positions = Rotation(spec_of()), torch.tensor([256, 257, 2048, 2049, 2**24 + 1])
    x = torch.randn(B, H, T, D, dtype=dtype, requires_grad=True)
    want = rotate(x, rotation, positions)
    [wanted] = torch.autograd.grad(want.sum(), x)
    with torch.autocast("cpu", amp):
        y = rotate(x, rotation, positions)
        assert (x.float() @ x.float().transpose(2, 3)).dtype == amp  # autocast is at work
        [gradient] = torch.autograd.grad(y.sum(), x)
        with torch.no_grad():
            in_place = rotate_(x.clone(), rotation, positions)
    assert (y.dtype, gradient.dtype) == (dtype, dtype)
    assert torch.equal(y, want)
    assert torch.equal(gradient, wanted)
    assert torch.equal(in_place, want)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_activation_checkpointing(use_reentrant):
    """The second forward, inside of backward, gives the same values and so the same gradients."""
    rotation, positions = Rotation(spec_of()), torch.randint(0, 100000, (B, T))
    x, weight = torch.randn(B, H, T, D, requires_grad=True), torch.randn(D, D, requires_grad=True)
    calls = 0

    def block(x, positions):
        nonlocal calls
        calls += 1
        return rotate(x @ weight, rotation, positions).pow(2).cumsum(2)

    block(x, positions).sum().backward()
    wanted, (x.grad, weight.grad) = (x.grad, weight.grad), (None, None)
    checkpoint(block, x, positions, use_reentrant=use_reentrant).sum().backward()
    assert calls == 3
    assert torch.equal(x.grad, wanted[0])
    assert torch.equal(weight.grad, wanted[1])


def test_in_place_refuses_where_a_gradient_is_needed():
    rotation = Rotation(spec_of())
    x = torch.randn(B, H, T, D, requires_grad=True)
    with pytest.raises(RuntimeError, match="rotate_: x needs a gradient"):
        rotate_(x, rotation)
    with pytest.raises(RuntimeError, match="rotate_: x needs a gradient"):
        rotate_(x * 2, rotation)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="rotate_: x needs a gradient"):
        rotate_(forward_ad.make_dual(x.detach(), x.detach()), rotation)
    with torch.no_grad():
        want = rotate(x, rotation, 3)
        assert torch.equal(rotate_(x, rotation, 3), want)


def test_torch_func_is_served_or_refused():
    """torch alone would give a zero derivative in forward mode."""
    rotation, x = Rotation(spec_of()), torch.randn(4, B, H, T, D)
    each = torch.func.vmap(lambda x: rotate(x, rotation, 3))(x)
    assert torch.equal(each, torch.stack([rotate(one, rotation, 3) for one in x]))
    for derivative in (
        torch.func.grad(lambda x: rotate(x, rotation).sum()),
        lambda x: torch.func.jvp(lambda x: rotate(x, rotation), (x,), (x,)),
    ):
        with pytest.raises(RuntimeError, match="functorch"):
            derivative(x[0])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_backward_notices_a_saved_tensor_that_was_rotated_in_place(mode):
    weight, x = torch.ones((), requires_grad=True), torch.randn(B, H, T, D)
    product = (weight * x).sum()
    with mode():
        rotate_(x, Rotation(spec_of()))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_in_place_refuses_memory_it_cannot_write():
    rotation = Rotation(spec_of())
    with pytest.raises(gnomon.Error, match="share memory"):
        rotate_(torch.zeros(1, H, T, D).expand(B, H, T, D), rotation)
    with pytest.raises(gnomon.Error, match="contiguous last axis"):
        rotate_(torch.zeros(B, H, D, T).transpose(2, 3), rotation)
    for order in READ_ONLY:
        x = ORDERS[order](torch.float32)
        before = x.clone()
        with pytest.raises(gnomon.Error):
            rotate_(x, rotation, 3)
        assert torch.equal(x, before)


def test_refused_memory_formats():
    for x, message in [(torch.zeros(B, H, T, D).to_sparse(), "sparse_coo"), (torch.nested.nested_tensor([torch.zeros(H, T, D)]), "nested")]:
        for function in (rotate, rotate_):
            with pytest.raises(TypeError, match=f"x: expected a dense tensor, got .*{message}"):
                function(x, Rotation(spec_of()))


def test_negative_views():
    """Their memory holds the opposite sign: the functional form sees the values, the form in place refuses."""
    x, rotation = torch.randn(B, H, T, D), Rotation(spec_of())
    negative = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert negative.is_neg()
    assert torch.equal(rotate(negative, rotation, 3), rotate(x, rotation, 3))
    with pytest.raises(ValueError, match="resolve_neg"):
        rotate_(negative, rotation, 3)
    assert torch.equal(negative, x)


@pytest.mark.parametrize("order", [order for order in ORDERS if order not in ("no token", "no batch")])
def test_opcheck(order):
    rotation = Rotation(spec_of(partial=True, attention_factor=1.25))
    x = ORDERS[order](torch.float64)
    settings = (rotation.rotary_dim, rotation.rotary_offset, False, rotation.magnitude, False)
    arguments = (torch.arange(x.shape[2]), rotation.turns, None, *settings)
    torch.library.opcheck(torch.ops.gnomon.rotate.default, (x, *arguments))
    torch.library.opcheck(torch.ops.gnomon.rotate.default, (x.clone().requires_grad_(), *arguments))
    torch.library.opcheck(torch.ops.gnomon.rotate.default, (x, torch.zeros(B, x.shape[2], dtype=torch.int64), *arguments[1:]))
    if order not in READ_ONLY:
        torch.library.opcheck(torch.ops.gnomon.rotate_.default, (x.clone(), *arguments))


@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", False), ("aot_eager", True), ("inductor", None)])
def test_compiles_without_a_graph_break(backend, dynamic):
    torch.compiler.reset()
    rotation = Rotation(spec_of())

    def score(q, k, positions):
        return (rotate(q * 2, rotation, positions) @ rotate(k, rotation, positions).transpose(2, 3)).softmax(-1).sum(dim=(1, 3))

    compiled = torch.compile(score, fullgraph=True, backend=backend, dynamic=dynamic)
    for tokens, positions in ((5, torch.arange(5)), (7, torch.arange(14).reshape(2, 7)), (7, 3), (7, 4), (9, None)):
        q, k = (torch.randn(B, tokens, H, D).transpose(1, 2).requires_grad_() for _ in range(2))
        y, want = compiled(q, k, positions), score(q, k, positions)
        assert torch.allclose(y, want, atol=1e-6)
        weights = torch.randn_like(y)
        for gradient, wanted in zip(torch.autograd.grad(y, (q, k), weights), torch.autograd.grad(want, (q, k), weights), strict=True):
            assert torch.allclose(gradient, wanted, atol=1e-5)


def test_in_place_compiles_too():
    torch.compiler.reset()
    rotation = Rotation(spec_of())

    def twice(x, positions):
        y = x * 2
        rotate_(y, rotation, positions)
        return y + 1

    x, positions = torch.randn(B, H, T, D), torch.arange(T)
    assert torch.allclose(torch.compile(twice, fullgraph=True, backend="aot_eager")(x, positions), twice(x, positions), atol=1e-6)


@pytest.mark.parametrize("wrapped", ["autocast", "checkpoint"])
def test_compiles_inside_of(wrapped):
    torch.compiler.reset()
    rotation, positions = Rotation(spec_of()), torch.arange(T)

    def block(x):
        if wrapped == "checkpoint":
            return checkpoint(lambda x: rotate(x * 2, rotation, positions).pow(2), x, use_reentrant=False)
        with torch.autocast("cpu", torch.bfloat16):
            return rotate(x, rotation, positions) @ x.transpose(2, 3)

    x = torch.randn(B, H, T, D, requires_grad=True)
    y, want = torch.compile(block, fullgraph=True, backend="aot_eager")(x), block(x)
    assert y.dtype == want.dtype
    assert torch.allclose(y, want, atol=1e-6)
    assert torch.allclose(*(torch.autograd.grad(out.float().sum(), x)[0] for out in (y, want)), atol=1e-5)


@pytest.fixture
def rope():
    return RotaryEmbedding(spec_of("interleaved", partial=True, attention_factor=1.25))


def q_and_k():
    return torch.randn(B, 2 * H, T, D), torch.randn(B, T, H, D).transpose(1, 2)


@pytest.mark.parametrize("positions", [None, 1000, torch.arange(7, 7 + T), torch.randint(0, 10**6, (B, T))], ids=["0", "int", "T", "BT"])
def test_the_module_rotates_queries_and_keys(rope, positions):
    q, k = q_and_k()
    ids = torch.arange(T) + (positions or 0) if not isinstance(positions, torch.Tensor) else positions
    for y, x in zip(rope(q, k, positions), (q, k), strict=True):
        assert_rounded(y, expected(x, rope.spec, ids))
    with pytest.raises(ValueError, match="expected the batch, tokens and dtype of the first"):
        rope(q, k[:, :, :-1], ids)


def test_the_module_has_no_state(rope):
    q, k = q_and_k()
    want = rope(q, k, 1000)
    cast = copy.deepcopy(rope).to(torch.bfloat16).half().double()
    pickled = pickle.loads(pickle.dumps(rope))
    with torch.device("meta"):
        emptied = RotaryEmbedding(rope.spec).to_empty(device="cpu")  # how transformers loads a checkpoint
    for other in (cast, pickled, emptied, RotaryEmbedding(gnomon.frequencies(rope.spec))):
        assert all(torch.equal(a, b) for a, b in zip(other(q, k, 1000), want, strict=True))
        assert other.spec == rope.spec
    assert [*rope.parameters(), *rope.buffers()] == []
    assert rope.state_dict() == {}
    rope.load_state_dict({}, strict=True)


def test_the_module_says_what_it_is():
    yarn = gnomon.rotary.Yarn(factor=4, original_max_position_embeddings=2048)
    rope = RotaryEmbedding(gnomon.RotarySpec(yarn, theta=10000.0, head_dim=D))
    for part in ("RotaryEmbedding(rule=yarn", "theta=10000.0", "rotary_dim=16", "layout=half_split", "factor=4.0"):
        assert part in repr(rope)
    assert "None" not in repr(rope)
    with pytest.raises(ValueError, match="expected exact frequencies"):
        RotaryEmbedding(gnomon.frequencies(spec_of(), "hf"))


def test_the_module_compiles_and_exports(rope):
    torch.compiler.reset()
    (q, k), positions = q_and_k(), torch.arange(T)
    want = rope(q, k, positions)
    compiled = torch.compile(rope, fullgraph=True, backend="aot_eager")
    for made in (compiled, torch.export.export(rope, (q, k, positions)).module()):
        assert all(torch.equal(a, b) for a, b in zip(made(q, k, positions), want, strict=True))
    weights = q_and_k()
    q, k = q.requires_grad_(), k.requires_grad_()
    gradients, wanted = (torch.autograd.grad(made(q, k, positions), (q, k), weights) for made in (compiled, rope))
    assert all(torch.equal(a, b) for a, b in zip(gradients, wanted, strict=True))


SECTIONS = {  # which axis drives which of the 8 pairs
    "chunked": (0, 0, 1, 1, 1, 2, 2, 2),
    "interleaved": (0, 1, 2, 0, 1, 2, 0, 0),
}
COUNTS = {"chunked": [2, 3, 3], "interleaved": [4, 2, 2]}


def sectioned(order):
    return gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=D, sections=COUNTS[order], section_order=order)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("spec", SPECS)
def test_a_pair_is_two_calls(spec, dtype):
    rotation, positions = Rotation(SPECS[spec]), torch.randint(0, 500, (B, T))
    q, k = (x.to(dtype).requires_grad_() for x in q_and_k())
    made = rotate((q, k), rotation, positions)
    weights = [x.to(dtype) for x in q_and_k()]
    gradients = torch.autograd.grad(made, (q, k), weights)
    for x, y, gradient, weight in zip((q, k), made, gradients, weights, strict=True):
        assert_rounded(y.detach(), expected(x.detach(), SPECS[spec], positions))
        assert y.stride() == x.stride()
        alone = rotate(x, rotation, positions)
        assert torch.equal(y, alone)
        assert torch.equal(gradient, torch.autograd.grad(alone, x, weight)[0])
    both = [x.detach().clone() for x in (q, k)]
    assert rotate_(tuple(both), rotation, positions)[1] is both[1]
    assert all(torch.equal(a, b) for a, b in zip(both, made, strict=True))
    turned_back = rotate(made, rotation, positions, direction="transposed")
    assert all(torch.equal(y, rotate(x, rotation, positions, direction="transposed")) for y, x in zip(turned_back, made, strict=True))


@pytest.mark.parametrize("needed", [(True, False), (False, True)])
def test_a_pair_of_which_one_needs_a_gradient(needed):
    rotation = Rotation(spec_of())
    pair = [x.requires_grad_(needs) for x, needs in zip(q_and_k(), needed, strict=True)]
    which = needed.index(True)
    rotate(tuple(pair), rotation, 7)[which].sum().backward()
    alone = pair[which].detach().requires_grad_()
    rotate(alone, rotation, 7).sum().backward()
    assert torch.equal(pair[which].grad, alone.grad)
    assert pair[1 - which].grad is None
    with pytest.raises(RuntimeError, match="rotate_: x needs a gradient"):
        rotate_(tuple(pair), rotation)


def test_derivatives_of_a_pair():
    rotation, positions = Rotation(spec_of(partial=True, attention_factor=1.25)), torch.randint(-1000, 1000, (B, T))
    pair = [x.double().requires_grad_() for x in q_and_k()]
    assert torch.autograd.gradcheck(lambda q, k: rotate((q, k), rotation, positions), pair, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda q, k: rotate((q, k), rotation, positions), pair)
    q, k = (x.detach() for x in pair)
    with forward_ad.dual_level():
        turned, untouched = rotate((forward_ad.make_dual(q, q), k), rotation, positions)
        assert torch.equal(forward_ad.unpack_dual(turned).tangent, rotate(q, rotation, positions))
        assert not forward_ad.unpack_dual(untouched).tangent.any()


def test_opcheck_of_pairs():
    rotation, (q, k) = Rotation(sectioned("interleaved")), q_and_k()
    arguments = (torch.arange(3 * T).reshape(3, T), rotation.turns, rotation.axis, D, 0, False, 1.0, False)
    torch.library.opcheck(torch.ops.gnomon.rotate_qk.default, (q, k, *arguments))
    torch.library.opcheck(torch.ops.gnomon.rotate_qk.default, (q.clone().requires_grad_(), k, *arguments))
    torch.library.opcheck(torch.ops.gnomon.rotate_qk_.default, (q.clone(), k.clone(), *arguments))


def test_a_pair_compiles_without_a_graph_break():
    torch.compiler.reset()
    rotation = Rotation(sectioned("chunked"))

    def score(q, k, positions):
        q, k = rotate((q * 2, k), rotation, positions)
        with torch.no_grad():
            turned = q.clone(), k.clone()
            rotate_(turned, rotation, positions)
        return (q @ k.repeat_interleave(2, 1).transpose(2, 3)).softmax(-1).sum(dim=(1, 3)), *turned

    q, k = (x.requires_grad_() for x in q_and_k())
    compiled = torch.compile(score, fullgraph=True, backend="aot_eager")
    for positions in (torch.arange(3 * T).reshape(3, T), torch.randint(0, 1000, (3, B, T))):
        made, want = compiled(q, k, positions), score(q, k, positions)
        for y, wanted in zip(made, want, strict=True):
            assert torch.allclose(y, wanted, atol=1e-6)
        gradients = [torch.autograd.grad(y[0].pow(2).sum(), (q, k)) for y in (made, want)]
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))


def test_refused_pairs():
    rotation, (q, k) = Rotation(spec_of()), q_and_k()
    for function in (rotate, rotate_):
        with pytest.raises(TypeError, match=r"expected queries and keys of one dtype, got torch\.float32 and torch\.bfloat16"):
            function((q, k.bfloat16()), rotation)
        with pytest.raises(ValueError, match=r"expected a tensor or a pair \(q, k\), got a tuple of 3"):
            function((q, k, k), rotation)
        with pytest.raises(ValueError, match=f"{D}"):
            function((q, k[..., :8]), rotation)
        with pytest.raises(ValueError, match="x: expected shape"):
            function((q, k[0]), rotation)


@pytest.mark.parametrize("order", SECTIONS)
def test_several_axes(order):
    """Each pair follows the axis that the paper's figure gives it; another axis is another value."""
    spec, (q, k) = sectioned(order), q_and_k()
    rotation = Rotation(spec)
    positions = torch.randint(0, 10000, (3, B, T))
    made = rotate((q, k), rotation, positions)
    for x, y in zip((q, k), made, strict=True):
        by_axis = torch.stack([expected(x, spec_of(), row) for row in positions])
        columns = torch.tensor(SECTIONS[order]).repeat(2)
        assert_rounded(y, by_axis[columns, ..., torch.arange(D)].movedim(0, -1))
        assert (y.double() - by_axis[0]).abs().max() > 0.1
        assert torch.equal(rotate(x, rotation, positions), y)
    settings = (D, 0, False, 1.0, False)
    strided = torch.stack((rotation.axis, rotation.axis), 1)[:, 0]
    assert torch.equal(torch.ops.gnomon.rotate(q, positions, rotation.turns, strided, *settings), made[0])
    shared = positions[:, 0]
    for same in (shared[:, None], shared[:, None].expand(3, B, T)):
        assert torch.equal(rotate(q, rotation, same), rotate(q, rotation, shared))
    for refused in (positions[:2], positions[0], shared[0], positions[:, :, :-1]):
        with pytest.raises(ValueError, match="positions: expected"):
            rotate((q, k), rotation, refused)


def test_a_rotation_of_several_axes_by_one_position_is_refused():
    for positions in (None, 7):
        with pytest.raises(ValueError, match="positions: expected"):
            rotate(X, Rotation(sectioned("chunked")), positions)


def test_float16_is_float32_rounded_once():
    """The kernel's way; the double reference would round a few values in a million the other way."""
    rotation, x = Rotation(spec_of()), torch.randn(4, 64, 256, D).half()
    y = rotate(x, rotation, 1000)
    assert torch.equal(y, rotate(x.float(), rotation, 1000).half())
    assert not torch.equal(y, rotate(x.double(), rotation, 1000).half())


class Seen(TorchDispatchMode):
    """Names of the operators that were called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_modes_see_every_call(needs_gradient):
    """Profilers, fake tensors and tracers are such modes: the way around the dispatcher must not pass them by."""
    rotation, (q, k) = Rotation(spec_of()), (x.requires_grad_(needs_gradient) for x in q_and_k())
    want = rotate((q, k), rotation, 7)
    with Seen() as seen:
        made = rotate((q, k), rotation, 7)
        rotate(q, rotation, 7)
        with torch.no_grad():
            rotate_((q.clone(), k.clone()), rotation, 7)
            gnomon.torch.add_positions(torch.zeros(T, D), torch.zeros(T, D))
    assert all(torch.equal(a, b) for a, b in zip(made, want, strict=True))
    named = [name for name in seen.names if name.startswith("gnomon")]
    assert named == ["gnomon.rotate_qk.default", "gnomon.rotate.default", "gnomon.rotate_qk_.default", "gnomon.add_positions.default"]


@pytest.fixture
def threads():
    """Sets the number of torch's threads, which is what it was afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_change_no_bit(threads, dtype):
    rotation = Rotation(spec_of())
    q, k = (torch.randn(2, heads, 4096, D).to(dtype).requires_grad_() for heads in (16, 4))
    made = []
    for number in (1, 2, 3):
        threads(number)
        y = rotate((q, k), rotation, 1000)
        made.append([*y, *torch.autograd.grad([part.sum() for part in y], (q, k))])
    for other in made[1:]:
        assert all(torch.equal(a, b) for a, b in zip(made[0], other, strict=True))
