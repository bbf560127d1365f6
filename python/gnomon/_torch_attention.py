# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch.attention and what it is given; imported from gnomon.torch."""

import itertools
import weakref

import torch

import gnomon
from gnomon import _core
from gnomon.torch import (
    _DTYPES,
    Rotation,
    _array,
    _below_autograd,
    _check_positions,
    _check_rotation,
    _library,
    _needs_derivative,
    _next,
    _position_ids,
    _raw_dtype,
    _raw_rotation,
)

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


def attention(
    q,
    k,
    v,
    *,
    scale=None,
    softcap=None,
    bias=None,
    mask=None,
    mask_tensor=None,
    sink_logits=None,
    query_factors=None,
    rotation=None,
    query_positions=None,
    key_positions=None,
    log_sum_exp=False,
    maximum=False,
):
    """softmax(softcap(scale · q kᵀ) + bias, mask, sink logits) · v: a new tensor (B,Hq,Tq,Dv), nothing n × n on the way.

    q                (B,Hq,Tq,D); float32, bfloat16, float16 (accumulated in float32) or float64 (the double reference, slow); any strides
                     (a last axis that is not contiguous costs a copy)
    k, v             (B,Hk,Tk,D) and (B,Hk,Tk,Dv) of the same dtype; Hq is a multiple of Hk
    scale            of q·k; None is 1 / √D
    softcap          c: scores become c · tanh(score / c)
    bias             a Bias, or tables, from which one is made at each call (not under torch.compile)
    mask             a Mask, or gnomon.KeyIntervals, in the same way; None: all keys are seen
    mask_tensor      beside it, any pattern, broadcast to (B,Hq,Tq,Tk) and streamed: bool, True is seen, or floating, to be added
    sink_logits      (Hq): a logit that only adds to the denominator
    query_factors    (Tq) or (B,Tq): what each query is multiplied by
    rotation         a Rotation, or a spec, in the same way: queries, keys or both are turned while they are loaded, so that keys can be
                     cached unrotated. Which of them, their positions tell
    query_positions  of rotated queries: as the positions of `rotate`; None: queries are taken as they are
    key_positions    of rotated keys, likewise
    log_sum_exp      True: the logarithm of each row's denominator is returned behind the result, float32 (B,Hq,Tq)
    maximum          True: the greatest score of each row too, float32 (B,Hq,Tq)

    Returns the result, or a tuple of it and what was asked for. Its memory is (B,Tq,Hq,Dv), contiguous, as what follows an attention wants
    it. A query that sees no key gives zeros, and −inf in both. Large work is shared out to as many threads as torch has. There is no
    gradient yet: backward raises RuntimeError. Raises TypeError for a dtype or device that does not fit, ValueError for shapes of q, k and
    v and for a rotation without positions, gnomon.Error for the rest.
    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1.
    """
    if bias is not None and not isinstance(bias, Bias):
        bias = Bias(bias)
    if mask is not None and not isinstance(mask, Mask):
        mask = Mask(mask)
    rotated = query_positions is not None or key_positions is not None
    if rotated != (rotation is not None):
        raise ValueError("rotation: expected with query_positions, key_positions or both, and only with them")
    turned = (None, None, None, None, 0, 0, False, 1.0)
    if rotated:
        turned = _turned(q, k, rotation, query_positions, key_positions)
    held = bias and bias.number, mask and mask.number
    results = torch.ops.gnomon.attention.default(
        q, k, v, *held, mask_tensor, sink_logits, query_factors, *turned, scale, softcap, log_sum_exp, maximum
    )
    return tuple(results) if len(results) > 1 else results[0]


def attention_statistics(q, k, log_sum_exp, *, first_keys=4, window=128, distance_edges=None, mask=None, bias=None, **options):
    """Where the weights of one pass of attention lie, a gnomon.AttentionStatistics: measured in a second pass, nothing is n × n.

    q, k         as given to attention, and its options, those of a rotation aside
    log_sum_exp  float32 (B,Hq,Tq), as attention returned it

    The rest, and errors, are those of gnomon.attention_statistics. Not an operator: it runs at once, and no graph can hold it.
    """
    held = {name: getattr(given, "held", given) for name, given in (("mask", mask), ("bias", bias))}
    options |= {name: _mask_array(x) if name == "mask_tensor" else _floats(x) for name, x in options.items() if isinstance(x, torch.Tensor)}
    wanted = {"first_keys": first_keys, "window": window, "distance_edges": distance_edges}
    arrays = (_array(x if x.stride(3) == 1 else x.contiguous()) for x in (q, k))
    return gnomon.attention_statistics(
        *arrays, _array(log_sum_exp), threads=torch.get_num_threads(), dtype=_raw_dtype(q, k), **wanted, **held, **options
    )


def _turned(q, k, rotation, query_positions, key_positions):
    """The arguments of the operator that a rotation makes."""
    if not isinstance(rotation, Rotation):
        rotation = Rotation(rotation)
    if q.shape[-1] != rotation.head_dim:
        raise ValueError(f"rotation: expected one for heads of {q.shape[-1]}, got one for {rotation.head_dim}")
    ids = (
        given if given is None else _position_ids(given, x, x.shape[-2], name)
        for name, given, x in (("query_positions", query_positions, q), ("key_positions", key_positions, k))
    )
    settings = rotation.rotary_dim, rotation.rotary_offset, rotation.interleaved, rotation.magnitude
    return *ids, rotation.turns, rotation.axis, *settings


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


def _fake(q, k, v, *rest):
    _check(q, k, v)
    batch, heads, tokens, _width = q.shape
    out = q.new_empty((batch, tokens, heads, v.shape[3])).transpose(1, 2)
    return [out, *(q.new_empty((batch, heads, tokens), dtype=torch.float32) for wanted in rest[-2:] if wanted)]


def _floats(tensor):
    return tensor if tensor is None else _array(tensor.to(torch.float32))


def _mask_array(tensor):
    return _array(tensor) if tensor is not None and tensor.dtype == torch.bool else _floats(tensor)


def _compute(
    q,
    k,
    v,
    bias,
    mask,
    mask_tensor,
    sink_logits,
    query_factors,
    query_positions,
    key_positions,
    turns,
    axis,
    rotary_dim,
    rotary_offset,
    interleaved,
    magnitude,
    scale,
    softcap,
    log_sum_exp,
    maximum,
):
    results = _fake(q, k, v, log_sum_exp, maximum)
    if not results[0].numel():
        return results
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    on_load = {}
    if turns is not None:
        _check_rotation(turns, axis, rotary_dim)
        turns, axis = turns.contiguous(), None if axis is None else axis.contiguous()
        raw = _raw_rotation(q.shape[3], turns, axis, rotary_dim, rotary_offset, interleaved, magnitude)
        for option, name, x, positions in (
            ("rotate_queries", "query_positions", q, query_positions),
            ("rotate_keys", "key_positions", k, key_positions),
        ):
            if positions is not None:
                _check_positions(x, positions, axis, name)
                on_load[option] = (raw, _array(positions.contiguous()))
    _core.attention(
        *map(_array, (q, k, v)),
        out=_array(results[0]),
        scale=scale,
        softcap=softcap,
        bias=_look_up("bias", bias),
        mask=_look_up("mask", mask),
        mask_tensor=_mask_array(mask_tensor),
        sink_logits=_floats(sink_logits),
        query_factors=_floats(query_factors),
        log_sum_exp=_array(results[1]) if log_sum_exp else None,
        maximum=_array(results[-1]) if maximum else None,
        threads=torch.get_num_threads(),
        dtype=_raw_dtype(q),
        **on_load,
    )
    return results


class _WithoutGradient(torch.autograd.Function):
    """The forward pass where a gradient is recorded; only whoever asks for the gradient is refused."""

    @staticmethod
    def forward(ctx, *arguments):
        return tuple(_below_autograd(torch.ops.gnomon.attention.default, *arguments))

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("attention: gnomon has no gradient of attention yet; use another attn_implementation for training")

    @staticmethod
    def jvp(ctx, *_):
        raise RuntimeError("attention: gnomon has no derivative of attention yet")


def _autograd(keys, *arguments):
    if any(_needs_derivative(x) for x in arguments if isinstance(x, torch.Tensor) and x.is_floating_point()):
        return list(_WithoutGradient.apply(*arguments))
    return _next(keys, torch.ops.gnomon.attention.default, _compute)(*arguments)


_library.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? mask, Tensor? mask_tensor, Tensor? sink_logits, "
    "Tensor? query_factors, Tensor? query_positions, Tensor? key_positions, Tensor? turns, Tensor? axis, int rotary_dim, "
    "int rotary_offset, bool interleaved, float magnitude, float? scale, float? softcap, "
    "bool log_sum_exp, bool maximum) -> Tensor[]"
)
_library.impl("attention", _compute, "CPU")
_library.impl("attention", _autograd, "Autograd", with_keyset=True)
torch.library.register_fake("gnomon::attention", _fake, lib=_library)
