# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch: position embeddings as PyTorch operators.

    rotation = gnomon.torch.Rotation(spec)                   # once: frequencies as integers
    q, k = gnomon.torch.rotate((q, k), rotation, positions)  # (B,H,T,D), differentiable, traced by torch.compile
    gnomon.torch.rotate_((q, k), rotation, positions)        # in place, where no gradient is recorded
    rope = gnomon.torch.RotaryEmbedding(spec)                # the same as a module: q, k = rope(q, k, positions)
    x = gnomon.torch.add_positions(x, table, positions)      # x + table[positions], (B,T,C), differentiable in both
    embed = gnomon.torch.SinusoidalEmbedding(absolute_spec)  # or LearnedEmbedding: x = embed(x, positions)
    out = gnomon.torch.attention(q, k, v, mask=mask)         # mask = gnomon.torch.Mask(gnomon.key_intervals(…)); no gradient yet

The operators behind it are `torch.ops.gnomon.rotate` and `rotate_` for one tensor, `rotate_qk` and `rotate_qk_` for queries and keys, which
share the work of making cos and sin, `add_positions` and the gradient of its table, `scatter_add_rows`, and `attention`. They take tensors, integers, floats
and booleans only. Tensors live on the CPU; large ones are worked on by as many threads as torch has (`torch.set_num_threads`).
Sources: Su et al. 2021, arXiv:2104.09864, eq. 34; Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
"""

import functools
import json

import numpy
import torch
from torch.autograd import forward_ad

import gnomon
from gnomon import _core

__all__ = [
    "Bias",
    "LearnedEmbedding",
    "Mask",
    "RotaryEmbedding",
    "Rotation",
    "SinusoidalEmbedding",
    "add_positions",
    "attention",
    "attention_statistics",
    "rotate",
    "rotate_",
]

_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float64: "f64"}
_ARGUMENTS = (
    "Tensor positions, Tensor turns, Tensor? axis, int rotary_dim, int rotary_offset, bool interleaved, float magnitude, bool transposed"
)


class Rotation:
    """What a rotation needs beside tensor and positions, made once from a RotarySpec or from `exact` Frequencies.

    `turns` is an int64 tensor (pairs,2): N and the bits of T in frequency / 2π = N + T·2⁻⁶⁴ turns, so that the angle of an integer
    position is an integer product and is never rounded. No floating tensor is held that a model's `.to(dtype)` could damage.
    `axis` is an uint8 tensor (pairs), the position axis that drives each pair, or None where there is one axis.
    Raises gnomon.Error for a spec that is not valid, ValueError for `hf` frequencies (their angles exist as tables only) and for xpos
    (whose magnitudes differ for queries and keys: use gnomon.rotate).
    """

    def __init__(self, spec):
        frequencies = spec if isinstance(spec, gnomon.Frequencies) else gnomon.frequencies(spec)
        if frequencies.numerics != "exact":
            raise ValueError("rotation: expected exact frequencies, got hf ones, whose angles exist as tables only")
        if len(frequencies.log_magnitude):
            raise ValueError("rotation: xpos is not offered here, its magnitudes depend on the position; use gnomon.rotate")
        spec = frequencies.spec
        self.axis = torch.from_numpy(numpy.array(frequencies.axis)) if len(frequencies.axis) else None
        self.turns = torch.from_numpy(numpy.array(frequencies.turns))
        self.head_dim = spec.head_dim
        self.rotary_dim = spec.rotary_dim
        self.rotary_offset = spec.rotary_offset
        self.interleaved = spec.layout == "interleaved"
        self.magnitude = frequencies.attention_factor

    def __repr__(self):
        layout = "interleaved" if self.interleaved else "half_split"
        return f"Rotation(rotary_dim={self.rotary_dim} of {self.head_dim}, {layout}, magnitude={self.magnitude})"


def rotate(x, rotation, positions=None, *, direction="forward"):
    """Rotates the pairs of every head by position and returns a new tensor of x's shape, dtype and memory order.

    x          (B,H,T,D), D = head_dim; float32, bfloat16 or float16 (the kernel, in float32, rounded once) or float64 (the double
               reference, slow); any strides (a last axis that is not contiguous costs a copy). Or a pair (q, k) of these, with the same
               B, T and dtype: then a pair is returned
    rotation   a Rotation; or a RotarySpec or Frequencies, from which one is made at each call (not under torch.compile)
    positions  int64 or int32 tensor (T), (1,T) or (B,T), for a rotation of several axes (axes,T) or (axes,B,T); or an integer, the position
               of the first token; None is 0
    direction  "transposed" turns back: the gradient of "forward", and its inverse where the attention factor is 1

    Differentiable in x, to any order and in both modes (the transforms of torch.func, but vmap, are refused by torch). Autocast leaves
    it alone. Raises TypeError for a dtype, device or memory format that does not fit (positions are never cast: bfloat16 cannot tell
    256 from 257), ValueError for a shape, gnomon.Error for a position beyond ±2³³.
    """
    if isinstance(x, tuple):
        return torch.ops.gnomon.rotate_qk.default(*_pair(x), *_arguments(x[0], rotation, positions, direction))
    return torch.ops.gnomon.rotate.default(x, *_arguments(x, rotation, positions, direction))


def rotate_(x, rotation, positions=None, *, direction="forward"):
    """`rotate` in place; returns x. Raises gnomon.Error unless the last axis of x is contiguous and its elements share no memory, and
    RuntimeError where autograd would need the gradient (the values it must save are overwritten): use `rotate` there, or
    torch.no_grad().
    """
    if isinstance(x, tuple):
        torch.ops.gnomon.rotate_qk_.default(*_pair(x), *_arguments(x[0], rotation, positions, direction))
    else:
        torch.ops.gnomon.rotate_.default(x, *_arguments(x, rotation, positions, direction))
    return x


def _describe(module):
    """The set-up of a module, field by field, for its repr."""
    return ", ".join(f"{name}={value}" for name, value in json.loads(module._setup).items() if value is not None)


class RotaryEmbedding(torch.nn.Module):
    """Rotates queries and keys, as a module without state: q, k = RotaryEmbedding(spec)(q, k, positions).

    It has no parameter and no buffer, so a cast of the model cannot damage its frequencies, its state dict is empty, a checkpoint needs
    nothing for it, and there is nothing to initialise: the frequencies are those of the paper its rule cites. It can be copied, pickled, compiled and exported. Raises as `Rotation` does.
    """

    def __init__(self, spec):
        super().__init__()
        self.rotation = Rotation(spec)
        # As text, which can be copied and pickled.
        self._setup = (spec.spec if isinstance(spec, gnomon.Frequencies) else spec).to_json()

    @property
    def spec(self):
        """The RotarySpec it was made from."""
        return gnomon.RotarySpec.from_json(self._setup)

    def forward(self, q, k, positions=None):
        """q (B,H,T,D) and k (B,K,T,D) rotated: new tensors. Positions, dtypes, gradients and errors are those of `rotate`."""
        return rotate((q, k), self.rotation, positions)

    extra_repr = _describe


def add_positions(x, table, positions=None, *, offset=0, scale=1.0):
    """scale * x + table[positions + offset]: a new tensor of x's shape, dtype and memory order.

    x          (B,T,C) or (T,C); float32, bfloat16, float16 (float32 arithmetic, rounded once) or float64; any strides (a last axis that is
               not contiguous costs a copy)
    table      (rows,C), any of these dtypes, not necessarily that of x: float32 rows are not rounded before they are added to a bfloat16 x
    positions  int64 or int32 tensor (T), (1,T) or (B,T); or an integer, the position of the first token; None is 0
    offset     the row of position 0 (2 in OPT and BART); `scale` is on x (√C in the paper)

    Differentiable in x and in the table, to any order and in both modes. The table's gradient is summed in the order of the tokens, in
    float32 (float64 where x is), whatever the number of threads: the same bits on every run. Raises TypeError for a dtype or device that
    does not fit, ValueError for a shape, gnomon.Error for a position without a row, which it names.
    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    _require_dense(x)
    if x.dim() not in (2, 3):
        raise ValueError(f"x: expected shape (B,T,C) or (T,C), got {tuple(x.shape)}")
    return torch.ops.gnomon.add_positions.default(x, table, _position_ids(positions, x, x.shape[-2]), offset, scale)


class _AbsoluteEmbedding(torch.nn.Module):
    """What both kinds keep of their AbsoluteSpec: its text, which can be copied and pickled."""

    def __init__(self, spec, kind):
        super().__init__()
        if not isinstance(spec, gnomon.AbsoluteSpec) or not isinstance(spec.rule, kind):
            raise ValueError(f"spec: expected an AbsoluteSpec with the rule {kind.__name__}, got {spec!r}")
        self._setup = spec.to_json()

    @property
    def spec(self):
        """The AbsoluteSpec it was made from."""
        return gnomon.AbsoluteSpec.from_json(self._setup)

    extra_repr = _describe


class SinusoidalEmbedding(_AbsoluteEmbedding):
    """Adds sinusoids: x = SinusoidalEmbedding(spec)(x, positions). No parameter and no buffer, so no cast of a model damages its rows.

    spec    an AbsoluteSpec with the rule Sinusoidal, of one axis
    length  how many positions to make rows for, now; a position beyond them is an error that names it, and torch.compile breaks no graph.
            None: rows are made for the longest sequence seen, at least doubling each time, which breaks a graph

    The rows (length,width) are exact, rounded once to float32, and added to x in float32. Raises gnomon.Error for a negative position,
    ValueError for a spec of another rule or of several axes (make those rows with gnomon.embedding_table).
    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """

    def __init__(self, spec, length=None):
        super().__init__(spec, gnomon.absolute.Sinusoidal)
        if spec.rule.axes != 1:
            raise ValueError(f"spec: expected one axis, got {spec.rule.axes}; make its rows with gnomon.embedding_table")
        self.length = length
        self._rows = _sinusoids(spec, length or 0)

    def forward(self, x, positions=None):
        """x (B,T,C) or (T,C) with its rows added: a new tensor. Positions, dtypes, gradients and errors are those of `add_positions`."""
        if self.length is None:
            self._grow(positions, x.shape[-2])
        return add_positions(x, self._rows, positions)

    @torch.compiler.disable
    def _grow(self, positions, tokens):
        if isinstance(positions, torch.Tensor):
            longest = int(positions.max()) + 1 if positions.numel() else 0
        else:
            longest = (positions or 0) + tokens
        if longest > len(self._rows):
            self._rows = _sinusoids(self.spec, max(longest, 2 * len(self._rows)))


class LearnedEmbedding(_AbsoluteEmbedding):
    """Adds trained rows: x = LearnedEmbedding(spec)(x, positions). Its parameter `weight` is (rows,width).

    The spec's rule is Learned; its offset is the row of position 0, and a position beyond the trained length is a gnomon.Error that names
    both. Rows start normal with standard deviation `std`: 0.02 is of Radford et al. 2018, Improving Language Understanding by Generative
    Pre-Training, section 4.1, and what the code of GPT-2 and of BERT (arXiv:1810.04805; cut off at two deviations) starts with.
    Source: Gehring et al. 2017, arXiv:1705.03122, section 3.1.
    """

    def __init__(self, spec, std=0.02):
        super().__init__(spec, gnomon.absolute.Learned)
        self.std, self.offset = std, spec.rule.offset
        self.weight = torch.nn.Parameter(torch.empty(spec.rule.rows, spec.width))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws the rows anew."""
        torch.nn.init.normal_(self.weight, std=self.std)

    def forward(self, x, positions=None):
        """x (B,T,C) or (T,C) with its rows added: a new tensor. Positions, dtypes, gradients and errors are those of `add_positions`."""
        return add_positions(x, self.weight, positions, offset=self.offset)


def _sinusoids(spec, length):
    return torch.from_numpy(numpy.array(gnomon.embedding_table(spec, range(length)).rows)).reshape(length, spec.width)


def _pair(x):
    if len(x) != 2:
        raise ValueError(f"x: expected a tensor or a pair (q, k), got a tuple of {len(x)}")
    return x


def _require_dense(x):
    if x.layout != torch.strided or x.is_nested:
        raise TypeError(f"x: expected a dense tensor, got {'a nested one' if x.is_nested else x.layout}")


def _arguments(x, rotation, positions, direction):
    if not isinstance(rotation, Rotation):
        rotation = Rotation(rotation)
    if direction not in ("forward", "transposed"):
        raise ValueError(f"direction: expected 'forward' or 'transposed', got {direction!r}")
    _require_dense(x)
    if x.dim() != 4 or x.shape[3] != rotation.head_dim:
        raise ValueError(f"x: expected shape (B,H,T,{rotation.head_dim}), got {tuple(x.shape)}")
    if not (x.is_cpu or x.is_meta):
        raise TypeError(f"x: expected a tensor on the CPU, got one on {x.device}")
    return (
        _position_ids(positions, x, x.shape[2]),
        rotation.turns,
        rotation.axis,
        rotation.rotary_dim,
        rotation.rotary_offset,
        rotation.interleaved,
        rotation.magnitude,
        direction == "transposed",
    )


def _position_ids(positions, x, tokens, name="positions"):
    """The positions as an int64 tensor. Floats and 16-bit integers are refused: what they lost cannot be seen any more."""
    if positions is None:
        positions = 0
    if isinstance(positions, int):
        return torch.arange(positions, positions + tokens, device=x.device)
    if not isinstance(positions, torch.Tensor):
        raise TypeError(f"{name}: expected an int64 tensor or an int, got {type(positions).__name__}")
    if positions.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"{name}: expected int64 (or int32), got {positions.dtype}. Positions are never cast: "
            "bfloat16 cannot tell 256 from 257, float16 2048 from 2049, float32 2**24 from 2**24 + 1"
        )
    if positions.device != x.device:
        raise TypeError(f"{name}: expected a tensor on {x.device}, as x, got one on {positions.device}")
    return positions if positions.dtype == torch.int64 else positions.to(torch.int64)  # a call of to() is 1 µs


_library = torch.library.Library("gnomon", "DEF")


def _check(tensors, positions, turns, axis, rotary_dim):
    """What the core cannot see in an address."""
    for x in tensors:
        if x.dtype not in _DTYPES:
            raise TypeError(f"x: expected float32, bfloat16, float16 or float64, got {x.dtype}")
        if x.dtype != tensors[0].dtype:
            raise TypeError(f"x: expected queries and keys of one dtype, got {tensors[0].dtype} and {x.dtype}")
        if x.dim() != 4:
            raise ValueError(f"x: expected shape (B,H,T,D), got {tuple(x.shape)}")
        if not (x.is_cpu or x.is_meta):
            raise TypeError(f"x: expected a tensor on the CPU, got one on {x.device}")
    if positions.dtype != torch.int64:
        raise TypeError(f"positions: expected int64, got {positions.dtype}")
    _check_rotation(turns, axis, rotary_dim)


def _check_rotation(turns, axis, rotary_dim):
    if turns.dtype != torch.int64 or turns.shape != (rotary_dim // 2, 2):
        raise ValueError(f"turns: expected int64 ({rotary_dim // 2},2), got {turns.dtype} {tuple(turns.shape)}")
    if axis is not None and (axis.dtype != torch.uint8 or axis.shape != (rotary_dim // 2,)):
        raise ValueError(f"axis: expected uint8 ({rotary_dim // 2}), got {axis.dtype} {tuple(axis.shape)}")


def _check_positions(x, positions, axis, name="positions"):
    batch, _, tokens, _ = x.shape
    rows = ((tokens,), (1, tokens), (batch, tokens))
    if axis is not None:
        axes = int(axis.max()) + 1
        rows = ((axes, tokens), (axes, 1, tokens), (axes, batch, tokens))
    if positions.shape not in rows:
        expected = f"{rows[0]}, {rows[1]} or {rows[2]}"
        raise ValueError(f"{name}: expected {expected}, got {tuple(positions.shape)}")


def _run(tensors, outputs, positions, turns, axis, *settings_and_direction):
    *settings, transposed = settings_and_direction
    _check_positions(tensors[0], positions, axis)
    positions, turns, axis = positions.contiguous(), turns.contiguous(), None if axis is None else axis.contiguous()
    _core.rotate_raw(
        [(x.data_ptr(), out.data_ptr(), x.shape, x.stride(), out.stride()) for x, out in zip(tensors, outputs, strict=True)],
        _DTYPES[tensors[0].dtype],
        positions.data_ptr(),
        positions.numel(),
        _raw_rotation(tensors[0].shape[3], turns, axis, *settings),
        transposed,
        torch.get_num_threads(),
    )


def _raw_rotation(head_dim, turns, axis, *settings):
    return turns.data_ptr(), 0 if axis is None else axis.data_ptr(), head_dim, *settings


def _output_for(x):
    """x with a contiguous last axis, and an empty tensor in its memory order. The fake must give the strides of the real one."""
    if x.stride(-1) != 1:
        x = x.clone(memory_format=torch.contiguous_format)  # contiguous() would keep the strides of an empty tensor
    return x, torch.empty_like(x)


def _below_autograd(operator, *arguments):
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def _next(keys, operator, kernel):
    """What the dispatcher would call after autograd: the CPU's kernel at once where that is next (saves 4 of 24 µs), and the operator
    where a mode, a subclass, a lazy negation or a trace comes before it."""
    if (keys & torch._C._after_ADInplaceOrView_keyset).highestPriorityTypeId() == torch._C.DispatchKey.CPU:
        return kernel
    return functools.partial(_below_autograd, operator)


def _needs_derivative(x):
    return (torch.is_grad_enabled() and x.requires_grad) or forward_ad.unpack_dual(x).tangent is not None


class _Rotate(torch.autograd.Function):
    """Linear in its tensors: its derivative is itself, forwards, and the other direction, backwards. All that is no rotated tensor comes as
    one tuple, because torch looks for a gradient of each argument (2 of 18 µs)."""

    @staticmethod
    def forward(ctx, operators, rest, *tensors):
        run, ctx.operator = operators
        positions, turns, axis, *ctx.settings, ctx.transposed = rest
        ctx.save_for_backward(positions, turns, axis)
        ctx.save_for_forward(positions, turns, axis)
        return run(*tensors, *rest)

    @staticmethod
    def backward(ctx, *gradients):
        turned = ctx.operator(*gradients, *ctx.saved_tensors, *ctx.settings, not ctx.transposed)
        return (None, None, *turned) if isinstance(turned, tuple) else (None, None, turned)

    @staticmethod
    def jvp(ctx, _, __, *tangents):
        return ctx.operator(*tangents, *ctx.saved_tensors, *ctx.settings, ctx.transposed)


def _define(name, operands):
    """The operator `name`, which returns new tensors, and `name`_, which works in place, for tensors of these names."""
    number = len(operands)
    one = number == 1
    inputs = ", ".join(f"Tensor {operand}" for operand in operands)
    written = ", ".join(f"Tensor({letter}!) {operand}" for letter, operand in zip("ab", operands, strict=False))
    _library.define(f"{name}({inputs}, {_ARGUMENTS}) -> {'Tensor' if one else '(Tensor, Tensor)'}")
    _library.define(f"{name}_({written}, {_ARGUMENTS}) -> ()")
    functional = getattr(torch.ops.gnomon, name).default
    in_place = getattr(torch.ops.gnomon, f"{name}_").default

    def compute(*arguments):
        tensors, rest = arguments[:number], arguments[number:]
        _check(tensors, *rest[:4])
        inputs, outputs = zip(*map(_output_for, tensors), strict=True)
        _run(inputs, outputs, *rest)
        return outputs[0] if one else outputs

    def fake(*arguments):
        tensors, rest = arguments[:number], arguments[number:]
        _check(tensors, *rest[:4])
        outputs = tuple(_output_for(x)[1] for x in tensors)
        return outputs[0] if one else outputs

    def autograd(keys, *arguments):
        # In place of torch.library.register_autograd, which costs 20 to 30 µs more a call where a gradient is recorded, and whose
        # forward-mode derivative is zero, silently.
        tensors, run = arguments[:number], _next(keys, functional, compute)
        if any(map(_needs_derivative, tensors)):
            return _Rotate.apply((run, functional), arguments[number:], *tensors)
        return run(*arguments)

    def compute_in_place(*arguments):
        tensors, rest = arguments[:number], arguments[number:]
        _check(tensors, *rest[:4])
        _run(tensors, tensors, *rest)
        for x in tensors:
            if not x.is_inference():
                torch.autograd.graph.increment_version(x)  # backward must notice that a tensor it saved was overwritten

    def fake_in_place(*arguments):
        _check(arguments[:number], *arguments[number : number + 4])

    def autograd_in_place(keys, *arguments):
        # torch lets no formula be registered for an operator that mutates, and without this kernel it would record an identity.
        for x in arguments[:number]:
            if _needs_derivative(x):
                raise RuntimeError("rotate_: x needs a gradient, which overwriting it would make wrong; use rotate, or torch.no_grad()")
            if x.is_neg():
                raise ValueError("rotate_: x is a lazily negated view, whose memory holds the opposite sign; call x.resolve_neg() first")
        _next(keys, in_place, compute_in_place)(*arguments)

    for operator, kernel, meta, derivative in (
        (name, compute, fake, autograd),
        (f"{name}_", compute_in_place, fake_in_place, autograd_in_place),
    ):
        _library.impl(operator, kernel, "CPU")
        _library.impl(operator, derivative, "Autograd", with_keyset=True)
        torch.library.register_fake(f"gnomon::{operator}", meta, lib=_library)


_define("rotate", ("x",))
_define("rotate_qk", ("q", "k"))


def _check_rows(x, table, positions):
    for name, tensor in (("x", x), ("table", table)):
        if tensor.dtype not in _DTYPES:
            raise TypeError(f"{name}: expected float32, bfloat16, float16 or float64, got {tensor.dtype}")
        if not (tensor.is_cpu or tensor.is_meta):
            raise TypeError(f"{name}: expected a tensor on the CPU, got one on {tensor.device}")
    if table.dim() != 2 or table.shape[1] != x.shape[-1]:
        raise ValueError(f"table: expected shape (rows,{x.shape[-1]}), got {tuple(table.shape)}")
    batch, tokens = x.shape[0] if x.dim() == 3 else 1, x.shape[-2]
    if tuple(positions.shape) not in ((tokens,), (1, tokens), (batch, tokens)):
        raise ValueError(f"positions: expected ({tokens},), (1, {tokens}) or ({batch}, {tokens}), got {tuple(positions.shape)}")


def _array(tensor):
    """A NumPy view, which the core takes in a tenth of the time that DLPack takes; bfloat16, which NumPy has not, as 16-bit integers."""
    return (tensor.detach().view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor.detach()).numpy()


def _raw_dtype(*tensors):
    """What the 16-bit integers among the arrays of tensors hold."""
    return "bf16" if any(x.dtype == torch.bfloat16 for x in tensors) else None


def _add_positions(x, table, positions, offset, scale):
    _check_rows(x, table, positions)
    x, out = _output_for(x)
    if x.numel():
        rows = table if table.stride(1) == 1 else table.contiguous()
        arrays = map(_array, (x, rows, positions.contiguous().flatten()))
        _core.add_positions(
            *arrays, offset=offset, scale=scale, out=_array(out), threads=torch.get_num_threads(), dtype=_raw_dtype(x, table)
        )
    return out


def _add_positions_fake(x, table, positions, offset, scale):
    _check_rows(x, table, positions)
    return _output_for(x)[1]


def _scatter_add_rows(gradient, positions, rows, offset):
    total = _scatter_add_rows_fake(gradient, positions, rows, offset).zero_()
    if gradient.numel():
        gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
        arrays = map(_array, (gradient, positions.contiguous().flatten(), total))
        _core.scatter_add_rows(*arrays, offset=offset, threads=torch.get_num_threads(), dtype=_raw_dtype(gradient))
    return total


def _scatter_add_rows_fake(gradient, positions, rows, offset):
    dtype = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    return gradient.new_empty((rows, gradient.shape[-1]), dtype=dtype)


class _AddPositions(torch.autograd.Function):
    """Linear in x and in the table."""

    @staticmethod
    def forward(ctx, x, table, positions, offset, scale):
        ctx.save_for_backward(positions)
        ctx.save_for_forward(positions)
        ctx.shape, ctx.dtypes, ctx.rows, ctx.offset, ctx.scale = x.shape, (x.dtype, table.dtype), table.shape[0], offset, scale
        return _below_autograd(torch.ops.gnomon.add_positions.default, x, table, positions, offset, scale)

    @staticmethod
    def backward(ctx, gradient):
        [positions] = ctx.saved_tensors
        of_x = gradient if ctx.scale == 1 else gradient * ctx.scale
        of_table = None
        if ctx.needs_input_grad[1]:
            of_table = torch.ops.gnomon.scatter_add_rows.default(gradient, positions, ctx.rows, ctx.offset).to(ctx.dtypes[1])
        return of_x, of_table, None, None, None

    @staticmethod
    def jvp(ctx, x, table, *_):
        [positions] = ctx.saved_tensors
        if table is None:
            return x * ctx.scale
        if x is None:
            x = table.new_zeros(ctx.shape, dtype=ctx.dtypes[0])
        return torch.ops.gnomon.add_positions.default(x, table, positions, ctx.offset, ctx.scale)


class _ScatterAddRows(torch.autograd.Function):
    """Linear in the gradient; its own derivative is the lookup."""

    @staticmethod
    def forward(ctx, gradient, positions, rows, offset):
        ctx.save_for_backward(positions)
        ctx.save_for_forward(positions)
        ctx.shape, ctx.dtype, ctx.rows, ctx.offset = gradient.shape, gradient.dtype, rows, offset
        return _below_autograd(torch.ops.gnomon.scatter_add_rows.default, gradient, positions, rows, offset)

    @staticmethod
    def backward(ctx, gradient):
        [positions] = ctx.saved_tensors
        rows = (positions.flatten() if len(ctx.shape) == 2 else positions) + ctx.offset  # one text may come with positions (1,T)
        return torch.nn.functional.embedding(rows, gradient).expand(ctx.shape).to(ctx.dtype), None, None, None

    @staticmethod
    def jvp(ctx, gradient, *_):
        return torch.ops.gnomon.scatter_add_rows.default(gradient, ctx.saved_tensors[0], ctx.rows, ctx.offset)


def _define_rows(schema, kernel, meta, function, differentiable):
    """An operator on rows whose first `differentiable` arguments have a derivative, which `function` knows."""
    _library.define(schema)
    name = schema.partition("(")[0]
    operator = getattr(torch.ops.gnomon, name).default

    def autograd(keys, *arguments):
        if any(map(_needs_derivative, arguments[:differentiable])):
            return function.apply(*arguments)
        return _next(keys, operator, kernel)(*arguments)

    _library.impl(name, kernel, "CPU")
    _library.impl(name, autograd, "Autograd", with_keyset=True)
    torch.library.register_fake(f"gnomon::{name}", meta, lib=_library)


_define_rows(
    "add_positions(Tensor x, Tensor table, Tensor positions, int offset, float scale) -> Tensor",
    _add_positions,
    _add_positions_fake,
    _AddPositions,
    2,
)
_define_rows(
    "scatter_add_rows(Tensor gradient, Tensor positions, int rows, int offset) -> Tensor",
    _scatter_add_rows,
    _scatter_add_rows_fake,
    _ScatterAddRows,
    1,
)

from gnomon._torch_attention import Bias, Mask, attention, attention_statistics  # noqa: E402, it needs what stands above
