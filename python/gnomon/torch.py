# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch: rotary position embeddings as PyTorch operators.

    rotation = gnomon.torch.Rotation(spec)                   # once: frequencies as integers
    q, k = gnomon.torch.rotate((q, k), rotation, positions)  # (B,H,T,D), differentiable, traced by torch.compile
    gnomon.torch.rotate_((q, k), rotation, positions)        # in place, where no gradient is recorded
    rope = gnomon.torch.RotaryEmbedding(spec)                # the same as a module: q, k = rope(q, k, positions)

The operators behind it are `torch.ops.gnomon.rotate` and `rotate_` for one tensor, `rotate_qk` and `rotate_qk_` for queries and keys, which
share the work of making cos and sin. They take tensors, integers, floats and booleans only and reach the core by addresses and strides.
Tensors live on the CPU; large ones are rotated by as many threads as torch has (`torch.set_num_threads`).
Source: Su et al. 2021, arXiv:2104.09864, eq. 34.
"""

import json

import numpy
import torch
from torch.autograd import forward_ad

import gnomon
from gnomon import _core

__all__ = ["RotaryEmbedding", "Rotation", "rotate", "rotate_"]

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


class RotaryEmbedding(torch.nn.Module):
    """Rotates queries and keys, as a module without state: q, k = RotaryEmbedding(spec)(q, k, positions).

    It has no parameter and no buffer, so a cast of the model cannot damage its frequencies, its state dict is empty, and a checkpoint
    needs nothing for it. It can be copied, pickled, compiled and exported. Raises as `Rotation` does.
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

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in json.loads(self._setup).items() if value is not None)


def _pair(x):
    if len(x) != 2:
        raise ValueError(f"x: expected a tensor or a pair (q, k), got a tuple of {len(x)}")
    return x


def _arguments(x, rotation, positions, direction):
    if not isinstance(rotation, Rotation):
        rotation = Rotation(rotation)
    if direction not in ("forward", "transposed"):
        raise ValueError(f"direction: expected 'forward' or 'transposed', got {direction!r}")
    if x.layout != torch.strided or x.is_nested:
        raise TypeError(f"x: expected a dense tensor, got {'a nested one' if x.is_nested else x.layout}")
    if x.dim() != 4 or x.shape[3] != rotation.head_dim:
        raise ValueError(f"x: expected shape (B,H,T,{rotation.head_dim}), got {tuple(x.shape)}")
    if x.device.type not in ("cpu", "meta"):
        raise TypeError(f"x: expected a tensor on the CPU, got one on {x.device}")
    return (
        _position_ids(positions, x),
        rotation.turns,
        rotation.axis,
        rotation.rotary_dim,
        rotation.rotary_offset,
        rotation.interleaved,
        rotation.magnitude,
        direction == "transposed",
    )


def _position_ids(positions, x):
    """(T) or (B,T) int64. Floats and 16-bit integers are refused: what they lost cannot be seen any more."""
    if positions is None:
        positions = 0
    if isinstance(positions, int):
        return torch.arange(positions, positions + x.shape[2], device=x.device)
    if not isinstance(positions, torch.Tensor):
        raise TypeError(f"positions: expected an int64 tensor or an int, got {type(positions).__name__}")
    if positions.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"positions: expected int64 (or int32), got {positions.dtype}. Positions are never cast: "
            "bfloat16 cannot tell 256 from 257, float16 2048 from 2049, float32 2**24 from 2**24 + 1"
        )
    if positions.device != x.device:
        raise TypeError(f"positions: expected a tensor on {x.device}, as x, got one on {positions.device}")
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
        if x.device.type not in ("cpu", "meta"):
            raise TypeError(f"x: expected a tensor on the CPU, got one on {x.device}")
    if positions.dtype != torch.int64:
        raise TypeError(f"positions: expected int64, got {positions.dtype}")
    if turns.dtype != torch.int64 or tuple(turns.shape) != (rotary_dim // 2, 2):
        raise ValueError(f"turns: expected int64 ({rotary_dim // 2},2), got {turns.dtype} {tuple(turns.shape)}")
    if axis is not None and (axis.dtype != torch.uint8 or tuple(axis.shape) != (rotary_dim // 2,)):
        raise ValueError(f"axis: expected uint8 ({rotary_dim // 2}), got {axis.dtype} {tuple(axis.shape)}")


def _check_positions(x, positions, axis):
    batch, _, tokens, _ = x.shape
    rows = ((tokens,), (1, tokens), (batch, tokens))
    if axis is not None:
        axes = int(axis.max()) + 1
        rows = ((axes, tokens), (axes, 1, tokens), (axes, batch, tokens))
    if tuple(positions.shape) not in rows:
        expected = f"{rows[0]}, {rows[1]} or {rows[2]}"
        raise ValueError(f"positions: expected {expected}, got {tuple(positions.shape)}")


def _run(tensors, outputs, positions, turns, axis, *settings):
    _check_positions(tensors[0], positions, axis)
    positions, turns = positions.contiguous(), turns.contiguous()
    _core.rotate_raw(
        [(x.data_ptr(), out.data_ptr(), x.shape, x.stride(), out.stride()) for x, out in zip(tensors, outputs, strict=True)],
        _DTYPES[tensors[0].dtype],
        positions.data_ptr(),
        positions.numel(),
        turns.data_ptr(),
        0 if axis is None else axis.data_ptr(),
        *settings,
        torch.get_num_threads(),
    )


def _output_for(x):
    """x with a contiguous last axis, and an empty tensor in its memory order. The fake must give the strides of the real one."""
    if x.stride(-1) != 1:
        x = x.clone(memory_format=torch.contiguous_format)  # contiguous() would keep the strides of an empty tensor
    return x, torch.empty_like(x)


def _below_autograd(operator, *arguments):
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def _needs_derivative(x):
    return (torch.is_grad_enabled() and x.requires_grad) or forward_ad.unpack_dual(x).tangent is not None


class _Rotate(torch.autograd.Function):
    """Linear in its tensors: its derivative is itself, forwards, and the other direction, backwards. All that is no rotated tensor comes as
    one tuple, because torch looks for a gradient of each argument (2 of 18 µs)."""

    @staticmethod
    def forward(ctx, operator, rest, *tensors):
        positions, turns, axis, *ctx.settings, ctx.transposed = rest
        ctx.operator = operator
        ctx.save_for_backward(positions, turns, axis)
        ctx.save_for_forward(positions, turns, axis)
        return _below_autograd(operator, *tensors, *rest)

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

    def autograd(*arguments):
        # In place of torch.library.register_autograd, which costs 20 to 30 µs more a call where a gradient is recorded, and whose
        # forward-mode derivative is zero, silently.
        tensors = arguments[:number]
        if any(map(_needs_derivative, tensors)):
            return _Rotate.apply(functional, arguments[number:], *tensors)
        return _below_autograd(functional, *arguments)

    def compute_in_place(*arguments):
        tensors, rest = arguments[:number], arguments[number:]
        _check(tensors, *rest[:4])
        _run(tensors, tensors, *rest)
        for x in tensors:
            if not x.is_inference():
                torch.autograd.graph.increment_version(x)  # backward must notice that a tensor it saved was overwritten

    def fake_in_place(*arguments):
        _check(arguments[:number], *arguments[number : number + 4])

    def autograd_in_place(*arguments):
        # torch lets no formula be registered for an operator that mutates, and without this kernel it would record an identity.
        for x in arguments[:number]:
            if _needs_derivative(x):
                raise RuntimeError("rotate_: x needs a gradient, which overwriting it would make wrong; use rotate, or torch.no_grad()")
            if x.is_neg():
                raise ValueError("rotate_: x is a lazily negated view, whose memory holds the opposite sign; call x.resolve_neg() first")
        _below_autograd(in_place, *arguments)

    for operator, kernel, meta, derivative in (
        (name, compute, fake, autograd),
        (f"{name}_", compute_in_place, fake_in_place, autograd_in_place),
    ):
        _library.impl(operator, kernel, "CPU")
        _library.impl(operator, derivative, "Autograd")
        torch.library.register_fake(f"gnomon::{operator}", meta, lib=_library)


_define("rotate", ("x",))
_define("rotate_qk", ("q", "k"))
