#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gnomon.attention against what Python users have today, in one run, one process and one thread.

    python bench/compare_attention.py          a table
    python bench/compare_attention.py --json   one JSON object

The rivals are torch's scaled_dot_product_attention (with the bias as a mask that is ready, and built in each call), FlexAttention compiled
for the CPU, and onnxruntime's Attention where that package is installed; for one token against a cache both forms of torch's: with
enable_gqa, and with the heads of a group as queries. Each function is held against float64 before it is timed: a wrong result gets no
time. The functions of a case take turns, the best time of each counts, and only the ratio to the rival travels between machines.
"""

import argparse
import dataclasses
import importlib.util
import sys
import time

import torch
from ratios import Result, as_json, as_table
from torch.nn.functional import scaled_dot_product_attention as sdpa

import gnomon

HEADS = 8
F32_OFF = 5e-6  # the first rows see few keys, so that an error of a score is an error of the output
SLOPES = [2.0 ** -(h + 1) for h in range(HEADS)]


@dataclasses.dataclass
class Contender:
    """`run()` returns what it made, (B,H,T,D); `off` is the error allowed to it."""

    name: str
    run: object
    off: float


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    results = [result for case in (causal, biased, decode) for result in case()]
    print(as_json(results, **versions()) if arguments.json else as_table(results))


def causal():
    for dtype, off in ((torch.float32, F32_OFF), (torch.bfloat16, 2e-2)):
        for tokens, goal in ((512, 1.8), (2048, 1.2)):
            for width in (64, 128):
                yield from causal_case(dtype, off, tokens, width, {"torch SDPA": goal if dtype == torch.float32 else None})


def causal_case(dtype, off, tokens, width, goals):
    q, k, v, out = (torch.randn(1, HEADS, tokens, width).to(dtype) for _ in range(4))
    mask = gnomon.key_intervals(tokens, tokens, causal=True)
    ours = Contender("gnomon.attention", lambda: gnomon.attention(q, k, v, out=out, mask=mask), off)
    rivals = [Contender("torch SDPA", lambda: sdpa(q, k, v, is_causal=True), off), *onnx_contenders(q, k, v, off)]
    return against(f"causal T {tokens} D {width} {name_of(dtype)}", ours, rivals, exact(q, k, v, biases(tokens, None)), goals)


def biased():
    tokens = 2048
    row = torch.randn(HEADS, tokens)
    yield from biased_case("ALiBi", tokens, SLOPES, gnomon.SlopeBias(SLOPES))
    yield from biased_case("a row by distance", tokens, row, gnomon.DistanceBias(row.numpy(), least=1 - tokens))


def biased_case(name, tokens, source, table, width=128):
    q, k, v, out = (torch.randn(1, HEADS, tokens, width) for _ in range(4))
    mask, ready = gnomon.key_intervals(tokens, tokens, causal=True), biases(tokens, source).float()
    ours = Contender("gnomon.attention", lambda: gnomon.attention(q, k, v, out=out, mask=mask, bias=table), F32_OFF)
    rivals = [
        Contender("torch SDPA, mask ready", lambda: sdpa(q, k, v, attn_mask=ready), F32_OFF),
        Contender("torch SDPA, mask built", lambda: sdpa(q, k, v, attn_mask=biases(tokens, source).float()), F32_OFF),
        *(flex_contenders(q, k, v) if source is SLOPES else []),
    ]
    goals = {"torch SDPA, mask ready": 2, "torch SDPA, mask built": 3.5}
    return against(f"{name} T {tokens} D {width} float32", ours, rivals, exact(q, k, v, ready.double()), goals)


def decode():
    for dtype, off in ((torch.float32, F32_OFF), (torch.bfloat16, 5e-3)):
        yield from decode_case(dtype, off)


def decode_case(dtype, off, heads=32, kv_heads=8, keys=32768, width=128):
    q, out = (torch.randn(1, heads, 1, width).to(dtype) for _ in range(2))
    k, v = (torch.randn(1, kv_heads, keys, width).to(dtype) for _ in range(2))
    grouped = q.view(1, kv_heads, heads // kv_heads, width)
    ours = Contender("gnomon.attention", lambda: gnomon.attention(q, k, v, out=out), off)
    rivals = [
        Contender("torch SDPA, enable_gqa", lambda: sdpa(q, k, v, enable_gqa=True), off),
        Contender("torch SDPA, heads as queries", lambda: sdpa(grouped, k, v).view(1, heads, 1, width), off),
    ]
    want = exact(q, k, v, torch.zeros(1, 1, dtype=torch.float64))
    return against(f"one token, {heads} over {kv_heads} heads, {keys} keys, {name_of(dtype)}", ours, rivals, want, {}, best_goal=2)


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def biases(tokens, source):
    """(H or 1, T, T): what is added to the scores, -inf ahead of the query; from slopes, or from a row for each head."""
    distance = torch.arange(tokens) - torch.arange(tokens)[:, None]
    if source is None:
        bias = torch.zeros(1, tokens, tokens, dtype=torch.float64)
    elif torch.is_tensor(source):
        bias = source[:, distance.clamp(max=0) + tokens - 1].double()
    else:
        bias = torch.tensor(source, dtype=torch.float64)[:, None, None] * distance
    return bias.masked_fill(distance > 0, -torch.inf)


def exact(q, k, v, bias):
    """In float64, head by head."""
    q, k, v = (x[0].double() for x in (q, k, v))
    group = q.shape[0] // k.shape[0]
    heads = []
    for h in range(q.shape[0]):
        scores = q[h] @ k[h // group].T / q.shape[-1] ** 0.5 + bias[h if bias.ndim == 3 and bias.shape[0] > 1 else 0]
        heads.append(torch.softmax(scores, -1) @ v[h // group])
    return torch.stack(heads)[None]


def flex_contenders(q, k, v):
    """FlexAttention, where the CPU has it and a compiler is there."""
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        slopes = torch.tensor(SLOPES)
        block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cpu")
        compiled = torch.compile(flex_attention)
        run = lambda: compiled(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i), block_mask=block_mask)  # noqa: E731
        with torch.no_grad():
            run()
    except Exception as error:
        print(f"FlexAttention is left out: {type(error).__name__}", file=sys.stderr)
        return []
    return [Contender("FlexAttention, compiled", run, F32_OFF)]


def onnx_contenders(q, k, v, off):
    """onnxruntime's Attention (opset 23, causal), where both packages are installed; float32 alone."""
    if q.dtype != torch.float32 or not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))):
        return []
    import onnx
    import onnxruntime

    named = {"Q": q, "K": k, "V": v}
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(x.shape)) for name, x in named.items()]
    result = onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, list(q.shape))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Attention", list(named), ["Y"], is_causal=1)], "attention", values, [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {name: x.numpy() for name, x in named.items()}
    return [Contender("onnxruntime", lambda: torch.from_numpy(session.run(None, feed)[0]), off)]


def against(case, ours, rivals, want, goals, best_goal=None):
    """Times ours and every rival in turn, after holding each against float64."""
    group = [ours, *rivals]
    for contender in group:
        off = (contender.run().double() - want).abs().max().item()
        if not off <= contender.off:
            sys.exit(f"{case}: {contender.name} is off by {off:.1e} from float64, {contender.off:.1e} allowed; it gets no time")
    best = [float("inf")] * len(group)
    for _ in range(7):
        for which, contender in enumerate(group):
            start = time.perf_counter()
            contender.run()
            best[which] = min(best[which], time.perf_counter() - start)
    fastest = min(best[1:])
    for rival, seconds in zip(rivals, best[1:], strict=True):
        goal = best_goal if seconds == fastest else None
        yield Result(case, ours.name, best[0], rival.name, seconds, goals.get(rival.name, goal))


def versions():
    return {"torch": torch.__version__, "gnomon": gnomon.__version__, "kernel_target": gnomon.kernel_target()}


if __name__ == "__main__":
    main()
