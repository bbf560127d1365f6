# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch.attention and what it is given; imported from gnomon.torch."""

import itertools
import weakref

import torch

import gnomon
from gnomon import _core
from gnomon.torch import _DTYPES, _array, _below_autograd, _library, _needs_derivative, _next

_numbers = itertools.count(1)
_held = weakref.WeakValueDictionary()


class _Held:
    """An object that an operator looks up: operators take tensors and numbers only, so a tensor holds its number. A number that stood in
    the graph itself would be the same for every mask that comes later."""

    def __init__(self, held):
        self.held = held
        self.number = torch.tensor(next(_numbers))
        _held[int(self.number)] = self

    def __deepcopy__(self, _):
        return self  # what it holds never changes


class Mask(_Held):
    """The gnomon.KeyIntervals of a mask, made once for all layers that mask alike. Raises TypeError for anything else."""

    def __init__(self, intervals):
        if not isinstance(intervals, gnomon.KeyIntervals):
            raise TypeError(f"mask: expected gnomon.KeyIntervals, got {type(intervals).__name__}")
        super().__init__(intervals)


class Bias(_Held):
    """The tables of a score by distance, made once: a SlopeBias, DistanceBias, FireBias or GridBias of gnomon, or a list of them, which are
    summed. Raises TypeError for anything else."""

    def __init__(self, tables):
        tables = list(tables) if isinstance(tables, list | tuple) else [tables]
        for table in tables:
            if not isinstance(table, gnomon.SlopeBias | gnomon.DistanceBias | gnomon.FireBias | gnomon.GridBias):
                raise TypeError(f"bias: expected a SlopeBias, DistanceBias, FireBias or GridBias, got {type(table).__name__}")
        super().__init__(tables)


def attention(q, k, v, *, scale=None, softcap=None, bias=None, mask=None, mask_tensor=None, sink_logits=None, query_factors=None):
    """softmax(softcap(scale · q kᵀ) + bias, mask, sink logits) · v: a new tensor (B,Hq,Tq,Dv), nothing n × n on the way.

    q              (B,Hq,Tq,D); float32, bfloat16, float16 (accumulated in float32) or float64 (the double reference, slow); any strides
                   (a last axis that is not contiguous costs a copy)
    k, v           (B,Hk,Tk,D) and (B,Hk,Tk,Dv) of the same dtype; Hq is a multiple of Hk
    scale          of q·k; None is 1 / √D
    softcap        c: scores become c · tanh(score / c)
    bias           a Bias, or tables, from which one is made at each call (not under torch.compile)
    mask           a Mask, or gnomon.KeyIntervals, in the same way; None: all keys are seen
    mask_tensor    beside it, any pattern, broadcast to (B,Hq,Tq,Tk) and streamed: bool, True is seen, or floating, to be added
    sink_logits    (Hq): a logit that only adds to the denominator
    query_factors  (Tq) or (B,Tq): what each query is multiplied by

    The memory of the result is (B,Tq,Hq,Dv), contiguous, as what follows an attention wants it. A query that sees no key gives zeros.
    Large work is shared out to as many threads as torch has. There is no gradient yet: backward raises RuntimeError. Raises TypeError for
    a dtype or device that does not fit, ValueError for shapes of q, k and v, gnomon.Error for the rest.
    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1.
    """
    if bias is not None and not isinstance(bias, Bias):
        bias = Bias(bias)
    if mask is not None and not isinstance(mask, Mask):
        mask = Mask(mask)
    return torch.ops.gnomon.attention.default(
        q, k, v, bias and bias.number, mask and mask.number, mask_tensor, sink_logits, query_factors, scale, softcap
    )


def _look_up(name, number):
    if number is None:
        return None
    found = _held.get(int(number))
    if found is None:
        raise RuntimeError(f"{name}: the object it was made as does not exist any more; keep it as long as it is used")
    return found.held


def _check(q, k, v):
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in _DTYPES or x.dtype != q.dtype:
            raise TypeError(f"{name}: expected float32, bfloat16, float16 or float64, the same for q, k and v, got {x.dtype}")
        if x.dim() != 4:
            raise ValueError(f"{name}: expected shape (B,H,T,D), got {tuple(x.shape)}")
        if not (x.is_cpu or x.is_meta):
            raise TypeError(f"{name}: expected a tensor on the CPU, got one on {x.device}")
    if k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3] or v.shape[:3] != k.shape[:3]:
        shapes = f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        raise ValueError(f"q, k, v: expected (B,Hq,Tq,D), (B,Hk,Tk,D) and (B,Hk,Tk,Dv), got {shapes}")


def _fake(q, k, v, *_):
    _check(q, k, v)
    batch, heads, tokens, _width = q.shape
    return q.new_empty((batch, tokens, heads, v.shape[3])).transpose(1, 2)


def _floats(tensor):
    return tensor if tensor is None else _array(tensor.to(torch.float32))


def _compute(q, k, v, bias, mask, mask_tensor, sink_logits, query_factors, scale, softcap):
    out = _fake(q, k, v)
    if not out.numel():
        return out
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    if mask_tensor is not None:
        mask_tensor = _array(mask_tensor) if mask_tensor.dtype == torch.bool else _floats(mask_tensor)
    _core.attention(
        *map(_array, (q, k, v)),
        out=_array(out),
        scale=scale,
        softcap=softcap,
        bias=_look_up("bias", bias),
        mask=_look_up("mask", mask),
        mask_tensor=mask_tensor,
        sink_logits=_floats(sink_logits),
        query_factors=_floats(query_factors),
        threads=torch.get_num_threads(),
        dtype="bf16",
    )
    return out


class _WithoutGradient(torch.autograd.Function):
    """The forward pass where a gradient is recorded; only whoever asks for the gradient is refused."""

    @staticmethod
    def forward(ctx, *arguments):
        return _below_autograd(torch.ops.gnomon.attention.default, *arguments)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("attention: gnomon has no gradient of attention yet; use another attn_implementation for training")

    @staticmethod
    def jvp(ctx, *_):
        raise RuntimeError("attention: gnomon has no derivative of attention yet")


def _autograd(keys, *arguments):
    if any(_needs_derivative(x) for x in arguments if isinstance(x, torch.Tensor) and x.is_floating_point()):
        return _WithoutGradient.apply(*arguments)
    return _next(keys, torch.ops.gnomon.attention.default, _compute)(*arguments)


_library.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? mask, Tensor? mask_tensor, Tensor? sink_logits, "
    "Tensor? query_factors, float? scale, float? softcap) -> Tensor"
)
_library.impl("attention", _compute, "CPU")
_library.impl("attention", _autograd, "Autograd", with_keyset=True)
torch.library.register_fake("gnomon::attention", _fake, lib=_library)
