#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gnomon.torch against what Python users have today, in one run, one process and one thread.

    python bench/compare.py          a table
    python bench/compare.py --json   one JSON object

The rivals are transformers' apply_rotary_pos_emb with cos and sin ready, torch's complex multiply in place (interleaved pairs, float32
only) and a plain scale of the same buffers in place, which moves the same bytes. 32 query and 8 key heads of width 128. Each function
is held against float64 before it is timed: a wrong result gets no time. The functions of a case take turns, the best time of each
counts, and only the ratio to the rival travels between machines. Seconds are of one call for queries and keys together.
"""

import argparse
import dataclasses
import sys
import time

import torch
import transformers
from ratios import Result, as_json, as_table
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import gnomon
from gnomon.torch import RotaryEmbedding, Rotation, rotate, rotate_

QUERY_HEADS, KEY_HEADS, HEAD_DIM, THETA = 32, 8, 128, 500000.0
FIRST = 1000  # the position of the first token
LONG, SHORT = (4096, 7, 1), (1, 40, 100)  # tokens, turns, calls in a turn


@dataclasses.dataclass
class Contender:
    """`run(q, k)` returns what it made, which may be q and k themselves, overwritten; `off` is the error allowed to it."""

    name: str
    run: object
    want: object
    off: float


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    results = [result for dtype in (torch.float32, torch.bfloat16) for result in compare(dtype)]
    print(as_json(results, **versions()) if arguments.json else as_table(results))


def compare(dtype):
    name = str(dtype).removeprefix("torch.")
    apply_, in_place, interleaved, functional, _, scale, multiply = contenders(dtype, LONG[0])
    times = time_in_turn([in_place, functional, scale, apply_], dtype, LONG)
    case = f"T {LONG[0]} {name}"
    yield Result(case, in_place.name, times[0], apply_.name, times[3], 25)
    yield Result(case, functional.name, times[1], apply_.name, times[3], 4)
    yield Result(case, in_place.name, times[0], scale.name, times[2], None)
    if dtype == torch.float32:  # torch multiplies no complex bfloat16
        times = time_in_turn([interleaved, multiply], dtype, LONG)
        yield Result(f"{case} interleaved", interleaved.name, times[0], multiply.name, times[1], 1)
    apply_, _, _, _, module, _, _ = contenders(dtype, SHORT[0])
    for gradient in (False, True):
        times = time_in_turn([module, apply_], dtype, SHORT, gradient)
        yield Result(f"T {SHORT[0]} {name}{' with gradient' * gradient}", module.name, times[0], apply_.name, times[1], 1)


def spec_of(layout):
    return gnomon.RotarySpec(gnomon.rotary.Default(), theta=THETA, head_dim=HEAD_DIM, layout=layout)


def contenders(dtype, tokens):
    """All of them; what is made once is made here, out of the time."""
    halves, neighbours = spec_of("half_split"), spec_of("interleaved")
    positions, rotation, module = torch.arange(FIRST, FIRST + tokens), Rotation(halves), RotaryEmbedding(halves)
    config = transformers.LlamaConfig(head_dim=HEAD_DIM, rope_parameters={"rope_type": "default", "rope_theta": THETA})
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros((), dtype=dtype), positions[None])
    angles = angles_of(neighbours, tokens)
    phases = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)

    def in_place_with(rotation):
        return lambda q, k: rotate_((q, k), rotation, positions)

    def multiply(q, k):
        for x in (q, k):
            torch.view_as_complex(x.unflatten(-1, (-1, 2))).mul_(phases)
        return q, k

    # Half an ulp, of values up to 6, for one rounding; transformers rounds cos, sin, both products and the sum, and its angles.
    once, often = (1e-6, 4e-3) if dtype == torch.float32 else (1.6e-2, 6e-2)
    want = rotated(halves)
    return (
        Contender("transformers apply_rotary_pos_emb", lambda q, k: apply_rotary_pos_emb(q, k, cos, sin), want, often),
        Contender("rotate_ in place", in_place_with(rotation), want, once),
        Contender("rotate_ in place", in_place_with(Rotation(neighbours)), rotated(neighbours), once),
        Contender("rotate", lambda q, k: rotate((q, k), rotation, positions), want, once),
        Contender("RotaryEmbedding", lambda q, k: module(q, k, positions), want, once),
        Contender("scale in place", lambda q, k: (q.mul_(-1), k.mul_(-1)), torch.neg, 0),
        Contender("complex multiply in place", multiply, rotated(neighbours), 2e-6),
    )


def angles_of(spec, tokens):
    """(tokens, pairs) in float64, which is exact enough for a few thousand tokens."""
    return torch.arange(FIRST, FIRST + tokens)[:, None] * torch.tensor(gnomon.frequencies(spec).inv_freq)


def rotated(spec):
    """The function that rotates (tokens, width) by the spec, in float64."""

    def want(x):
        angles = angles_of(spec, x.shape[0])
        a, b = x.double().chunk(2, -1) if spec.layout == "half_split" else (x.double()[:, 0::2], x.double()[:, 1::2])
        turned = a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()
        return torch.cat(turned, -1) if spec.layout == "half_split" else torch.stack(turned, -1).flatten(1)

    return want


def time_in_turn(group, dtype, size, gradient=False):
    """The best seconds of a call of each; every contender has queries and keys of its own, and is checked on them first."""
    tokens, turns, calls = size
    inputs = [[torch.randn(1, heads, tokens, HEAD_DIM).to(dtype) for heads in (QUERY_HEADS, KEY_HEADS)] for _ in group]
    for contender, tensors in zip(group, inputs, strict=True):
        check(contender, [x.requires_grad_(gradient) for x in tensors])
    best = [float("inf")] * len(group)
    with torch.set_grad_enabled(gradient):
        for _ in range(turns):
            for which, (contender, (q, k)) in enumerate(zip(group, inputs, strict=True)):
                start = time.perf_counter()
                for _ in range(calls):
                    contender.run(q, k)
                best[which] = min(best[which], (time.perf_counter() - start) / calls)
    return best


def check(contender, tensors):
    before = [x.detach().clone() for x in tensors]
    with torch.set_grad_enabled(tensors[0].requires_grad):
        made = contender.run(*tensors)
    if any(y.requires_grad != x.requires_grad for x, y in zip(tensors, made, strict=True)):
        sys.exit(f"{contender.name}: records no gradient, or one that nobody asked for; it gets no time")
    for x, y in zip(before, made, strict=True):
        off = max((head.double() - contender.want(own)).abs().max().item() for own, head in zip(x[0], y.detach()[0], strict=True))
        if not off <= contender.off:
            sys.exit(f"{contender.name}: off by {off:.1e} from float64, {contender.off:.1e} allowed; it gets no time")


def versions():
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "gnomon": gnomon.__version__,
        "kernel_target": gnomon.kernel_target(),
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    main()
