# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch adding rows: against torch's own lookup and sum in double, sinusoids from mpmath, and what torch asks of an operator."""

import copy
import pickle

import mpmath
import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

import gnomon  # noqa: E402
import gnomon.torch  # noqa: E402
from gnomon.torch import LearnedEmbedding, SinusoidalEmbedding, add_positions  # noqa: E402

B, T, C, ROWS = 2, 5, 8, 12
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
ORDERS = {
    "batch first": lambda dtype: torch.randn(B, T, C, dtype=dtype),
    "one text": lambda dtype: torch.randn(T, C, dtype=dtype),
    "tokens first": lambda dtype: torch.randn(T, B, C, dtype=dtype).transpose(0, 1),
    "expanded": lambda dtype: torch.randn(1, T, C, dtype=dtype).expand(B, T, C),
    "channels not contiguous": lambda dtype: torch.randn(B, C, T, dtype=dtype).transpose(1, 2),
    "every other token": lambda dtype: torch.randn(B, 2 * T, C, dtype=dtype)[:, ::2],
    "no token": lambda dtype: torch.randn(B, 0, C, dtype=dtype),
    "no batch": lambda dtype: torch.randn(0, T, C, dtype=dtype),
}
PAPER = gnomon.absolute.Sinusoidal(order="interleaved", denominator="width")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def table_of(dtype=torch.float32):
    return torch.randn(ROWS, C, dtype=dtype)


def assert_rounded(y, want, rows_off=0):
    """Half an ulp of the type, what a product and a sum in float32 add (in double for double), and how far the rows are off themselves."""
    half_ulp = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[y.dtype]
    slack = 2.0**-50 if y.dtype == torch.float64 else 2.0**-21
    assert ((y.double() - want).abs() <= half_ulp * want.abs() + slack + rows_off).all()


@pytest.mark.parametrize("table_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ORDERS)
def test_values_in_every_order(order, dtype, table_dtype):
    x, table = ORDERS[order](dtype), table_of(table_dtype)
    before, first = x.clone(), torch.arange(3, 3 + x.shape[-2])
    y = add_positions(x, table, first, offset=2, scale=1.5)
    assert (y.dtype, y.shape) == (dtype, x.shape)
    assert_rounded(y, 1.5 * x.double() + table.double()[first + 2])
    assert torch.equal(x, before)
    assert y.stride() == torch.empty_like(x if x.stride(-1) == 1 else x.contiguous()).stride()
    if y.numel():
        assert (y.double() - 1.5 * x.double() - table.double()[first]).abs().max() > 0.1  # the offset forgotten


def test_forms_of_positions():
    x, table = torch.randn(B, T, C), table_of()
    y = add_positions(x, table, 3)
    ids = torch.arange(3, 3 + T)
    for same in (ids, ids[None], ids.expand(B, T), ids.to(torch.int32), torch.stack((ids, ids), 1)[:, 0]):
        assert torch.equal(add_positions(x, table, same), y)
    assert torch.equal(add_positions(x, table), add_positions(x, table, 0))
    own = torch.randint(0, ROWS, (T, B)).T
    assert_rounded(add_positions(x, table, own), x.double() + table.double()[own])
    columns_apart = table_of().T.contiguous().T
    assert_rounded(add_positions(x, columns_apart, own), x.double() + columns_apart.double()[own])


X, TABLE = torch.zeros(B, T, C), torch.zeros(ROWS, C)


@pytest.mark.parametrize(
    ("x", "table", "positions", "message"),
    [
        (X.int(), TABLE, None, "x: expected float32"),
        (X, TABLE.int(), None, "table: expected float32"),
        (X.to_sparse(), TABLE, None, "x: expected a dense tensor"),
        (X[0, 0], TABLE, None, r"x: expected shape \(B,T,C\) or \(T,C\)"),
        (X, TABLE[:, :4], None, r"table: expected shape \(rows,8\), got \(12, 4\)"),
        (X, TABLE[0], None, "table: expected shape"),
        (X, TABLE, torch.arange(T + 1), "positions: expected"),
        (X, TABLE, torch.zeros(T, B, dtype=torch.int64), "positions: expected"),
        (X[0], TABLE, torch.zeros(B, T, dtype=torch.int64), "positions: expected"),
        (X, TABLE, torch.arange(T).bfloat16(), "positions: expected int64"),
        (X, TABLE, 8, "positions: 12 has no row; the table was made for positions 0 to 11"),
        (X, TABLE, -1, "positions: -1 has no row"),
    ],
)
def test_refusals(x, table, positions, message):
    with pytest.raises((TypeError, ValueError), match=message):
        add_positions(x, table, positions)


@pytest.mark.parametrize("positions", [None, torch.arange(T), torch.tensor([[0, 0, 3, 9, 9], [9, 0, 0, 1, 3]])], ids=["0", "T", "BT"])
def test_first_and_second_derivatives(positions):
    """Rows that several tokens share collect the gradients of all."""
    x, table = torch.randn(B, T, C, dtype=torch.float64, requires_grad=True), table_of(torch.float64).requires_grad_()

    def add(x, table):
        return add_positions(x, table, positions, offset=2, scale=1.5)

    assert torch.autograd.gradcheck(add, (x, table), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(add, (x, table))
    with forward_ad.dual_level():
        turned = add(x.detach(), forward_ad.make_dual(table.detach(), table.detach()))
        assert torch.equal(forward_ad.unpack_dual(turned).tangent, add(torch.zeros_like(x), table).detach())


@pytest.mark.parametrize(("batch", "ids"), [((), (T,)), ((), (1, T)), ((1,), (T,)), ((B,), (T,)), ((B,), (1, T)), ((B,), (B, T))])
def test_second_derivatives_in_every_form_of_positions(batch, ids):
    x, table = torch.randn(*batch, T, C, dtype=torch.float64, requires_grad=True), table_of(torch.float64).requires_grad_()
    positions = torch.randint(0, ROWS, ids)
    assert torch.autograd.gradgradcheck(lambda x, table: add_positions(x, table, positions), (x, table))


@pytest.mark.parametrize("order", [order for order in ORDERS if order != "one text"])
def test_gradients_against_torch_lookup(order):
    x, table = ORDERS[order](torch.float32).detach().requires_grad_(), table_of().requires_grad_()
    positions = torch.randint(0, 3, x.shape[:2])
    weights = ORDERS[order](torch.float32)
    gradients = torch.autograd.grad(add_positions(x, table, positions, offset=2, scale=1.5), (x, table), weights)
    wanted = torch.autograd.grad(1.5 * x + torch.nn.functional.embedding(positions + 2, table), (x, table), weights)
    assert torch.equal(gradients[0], wanted[0])
    assert torch.allclose(gradients[1], wanted[1], atol=1e-6)
    assert not gradients[1][:2].any()


def test_the_gradient_of_a_narrow_table_is_summed_in_float32():
    """512 ones: bfloat16 sums would stop at 256, where 1 is half a step."""
    x, table = torch.zeros(1, 512, C, dtype=torch.bfloat16), torch.zeros(1, C, dtype=torch.bfloat16, requires_grad=True)
    add_positions(x, table, torch.zeros(512, dtype=torch.int64)).sum().backward()
    assert (table.grad == 512).all()
    assert table.grad.dtype == torch.bfloat16


def test_threads_change_no_bit():
    before = torch.get_num_threads()
    x, table = torch.randn(4, 2048, 64, requires_grad=True), torch.randn(100, 64, requires_grad=True)
    positions, weights = torch.randint(0, 100, (4, 2048)), torch.randn(4, 2048, 64)
    made = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y = add_positions(x, table, positions)
            made.append([y, *torch.autograd.grad(y, (x, table), weights)])
    finally:
        torch.set_num_threads(before)
    for other in made[1:]:
        assert all(torch.equal(a, b) for a, b in zip(made[0], other, strict=True))


@pytest.mark.parametrize("order", [order for order in ORDERS if not order.startswith("no ")])
def test_opcheck(order):
    x, table = ORDERS[order](torch.float32), table_of()
    for needs in ((False, False), (True, False), (False, True)):
        tensors = [part.clone().requires_grad_(flag) for part, flag in zip((x, table), needs, strict=True)]
        torch.library.opcheck(torch.ops.gnomon.add_positions.default, (*tensors, torch.arange(T), 2, 1.5))
    torch.library.opcheck(torch.ops.gnomon.scatter_add_rows.default, (x, torch.arange(T), ROWS, 2))
    torch.library.opcheck(torch.ops.gnomon.scatter_add_rows.default, (x.clone().requires_grad_(), torch.arange(T), ROWS, 2))


def absolute(rule=PAPER, width=C):
    return gnomon.AbsoluteSpec(rule, width=width)


def learned(offset=2):
    return absolute(gnomon.absolute.Learned(rows=ROWS, offset=offset))


def sinusoid(position, denominator="width"):
    """A row of the paper (section 3.5), or with tensor2tensor's denominator."""
    with mpmath.workdps(50):
        angles = [
            mpmath.mpf(position) / mpmath.mpf(10000) ** (mpmath.mpf(j) / (C // 2 if denominator == "width" else C // 2 - 1))
            for j in range(C // 2)
        ]
        return [float(value) for angle in angles for value in (mpmath.sin(angle), mpmath.cos(angle))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "positions", [None, 1000, torch.tensor([7, 0, 99, 3, 3]), torch.randint(0, 300, (B, T))], ids=["0", "int", "T", "BT"]
)
def test_sinusoids_are_those_of_the_paper(positions, dtype):
    embed, x = SinusoidalEmbedding(absolute()), torch.randn(B, T, C).to(dtype)
    y = embed(x, positions)
    ids = positions if isinstance(positions, torch.Tensor) else torch.arange(T) + (positions or 0)
    rows = torch.tensor([sinusoid(p) for p in ids.flatten().tolist()], dtype=torch.float64).reshape(*ids.shape, C)
    assert y.dtype == dtype
    assert_rounded(y, x.double() + rows, rows_off=2.0**-25)
    wrong = torch.tensor([sinusoid(p, "half_minus_one") for p in ids.flatten().tolist()], dtype=torch.float64).reshape(*ids.shape, C)
    assert (y.double() - x.double() - wrong).abs().max() > 0.05


def test_rows_grow_with_the_longest_sequence_and_never_shrink():
    embed, lengths = SinusoidalEmbedding(absolute()), []
    for positions, tokens in ((None, 4), (4, 1), (5, 1), (2, 1), (torch.tensor([100]), 1), (None, 0)):
        embed(torch.zeros(tokens, C), positions)
        lengths.append(len(embed._rows))
    assert lengths == [4, 8, 8, 8, 101, 101]
    with pytest.raises(gnomon.Error, match="positions: -1 has no row"):
        embed(torch.zeros(1, C), -1)


def test_a_fixed_length_is_an_end():
    embed = SinusoidalEmbedding(absolute(), length=16)
    embed(torch.zeros(16, C))
    with pytest.raises(gnomon.Error, match="positions: 16 has no row; the table was made for positions 0 to 15"):
        embed(torch.zeros(17, C))


def test_sinusoids_have_no_state_and_no_cast_damages_them():
    embed, x = SinusoidalEmbedding(absolute(), length=300), torch.zeros(300, C)
    want = embed(x)
    with torch.device("meta"):
        emptied = SinusoidalEmbedding(embed.spec, length=300).to_empty(device="cpu")
    for other in (copy.deepcopy(embed).to(torch.bfloat16), pickle.loads(pickle.dumps(embed)), emptied):
        assert torch.equal(other(x), want)
        assert other.spec == embed.spec
    assert not torch.equal(want, want.to(torch.bfloat16).float())  # what a cast buffer would give
    assert embed.state_dict() == {}
    assert [*embed.parameters(), *embed.buffers()] == []


def test_learned_rows():
    embed, x = LearnedEmbedding(learned()), torch.randn(B, T, C)
    assert_rounded(embed(x, 3).detach(), x.double() + embed.weight.detach().double()[5 : 5 + T])
    embed(x, torch.tensor([0, 0, 1, 9, 9])).sum().backward()
    assert embed.weight.grad[:, 0].tolist() == [0, 0, 2 * B, B, 0, 0, 0, 0, 0, 0, 0, 2 * B]
    with pytest.raises(gnomon.Error, match=r"positions: 10 has no row; the table was made for positions 0 to 9 \(12 rows, offset 2\)"):
        embed(x, 6)
    assert [name for name, _ in embed.named_parameters()] == ["weight"]
    assert embed.weight.shape == (ROWS, C)
    twin = LearnedEmbedding(embed.spec)
    twin.load_state_dict(embed.state_dict(), strict=True)
    assert torch.equal(twin(x), embed(x))
    assert torch.equal(pickle.loads(pickle.dumps(embed))(x), embed(x))


def test_learned_rows_start_as_in_gpt():
    wide = gnomon.AbsoluteSpec(gnomon.absolute.Learned(rows=512, offset=0), width=256)
    assert LearnedEmbedding(wide).weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert LearnedEmbedding(wide).weight.mean().item() == pytest.approx(0, abs=3e-4)
    assert LearnedEmbedding(wide, std=0.5).weight.std().item() == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("embed", [SinusoidalEmbedding(absolute(), length=64), LearnedEmbedding(learned())], ids=["sinusoidal", "learned"])
@pytest.mark.parametrize("positions", [3, torch.arange(T)], ids=["int", "T"])
def test_modules_compile_and_export(embed, positions):
    torch.compiler.reset()
    x = torch.randn(B, T, C, requires_grad=True)
    want = embed(x, positions)
    compiled = torch.compile(embed, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, positions), want)
    assert torch.equal(torch.export.export(embed, (x, positions)).module()(x, positions), want)
    for parameter in (x, *embed.parameters()):
        gradients = [torch.autograd.grad(made.pow(2).sum(), parameter)[0] for made in (compiled(x, positions), embed(x, positions))]
        assert torch.equal(*gradients)


def test_rows_that_grow_compile_with_a_break():
    torch.compiler.reset()
    embed = SinusoidalEmbedding(absolute())
    compiled = torch.compile(embed, backend="aot_eager")
    for tokens in (4, 9, 30):
        x = torch.randn(tokens, C)
        assert torch.equal(compiled(x), embed(x))


def test_modules_say_what_they_are_and_refuse_other_specs():
    assert repr(SinusoidalEmbedding(absolute())).startswith("SinusoidalEmbedding(rule=sinusoidal, width=8, order=interleaved")
    assert repr(LearnedEmbedding(learned())) == "LearnedEmbedding(rule=learned, width=8, rows=12, offset=2)"
    with pytest.raises(ValueError, match="spec: expected an AbsoluteSpec with the rule Sinusoidal"):
        SinusoidalEmbedding(learned())
    with pytest.raises(ValueError, match="spec: expected an AbsoluteSpec with the rule Learned"):
        LearnedEmbedding(absolute())
    with pytest.raises(ValueError, match="spec: expected one axis, got 2"):
        SinusoidalEmbedding(absolute(gnomon.absolute.Sinusoidal(order="sin_cos", denominator="width", axes=2)))
