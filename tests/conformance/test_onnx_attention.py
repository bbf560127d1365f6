# SPDX-License-Identifier: Apache-2.0
"""gnomon.attention against the Attention cases of ONNX (opsets 23 to 25), frozen by tools/make-onnx-cases.

All 93 are run; none is excluded. Their fourth output, the scores before or after softmax, is not made here: it is n × n. The attention
output of those 18 cases is compared all the same.
"""

import hashlib
import json
import pathlib

import numpy
import pytest

import gnomon

FILE = pathlib.Path(__file__).parent / "onnx_attention.json"
CASES = json.loads(FILE.read_text())["cases"]
EACH_CASE = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
#: Rounding of the type itself, relative to numbers of size 1.
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def unpack(packed):
    dtype = "uint16" if packed["dtype"] == "bfloat16" else packed["dtype"]
    values = numpy.frombuffer(bytes.fromhex(packed["little_endian_hex"]), numpy.dtype(dtype).newbyteorder("<"))
    return values.astype(dtype).reshape(packed["shape"])


def widened(array):
    """Numbers in double; uint16 are bits of bfloat16."""
    if array.dtype != numpy.uint16:
        return array.astype(numpy.float64)
    return (array.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)


def heads_first(x, heads):
    """(B,H,T,D); ONNX also takes (B,T,H·D)."""
    return x if x is None or x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def mask_tensor(mask, keys, bits):
    """ONNX lets a mask be shorter than the keys; what is missing is hidden."""
    if mask is None or mask.dtype == bool:
        hidden = False
    else:
        mask = widened(mask) if bits else mask
        mask, hidden = mask.astype(numpy.float32), -numpy.inf
    if mask is None or mask.shape[-1] == keys:
        return mask
    return numpy.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])], constant_values=hidden)


def attended(case, **changed):
    """What gnomon.attention makes of a case, in double; `changed` are options of key_intervals in the place of the right ones."""
    given = {name: unpack(packed) for name, packed in case["inputs"].items()}
    attributes = case["attributes"]
    packed = given["q"].ndim == 3
    q = heads_first(given["q"], attributes.get("q_num_heads"))
    k, v = (heads_first(given[name], attributes.get("kv_num_heads")) for name in ("k", "v"))
    past = 0
    if "past_key" in given:
        past = given["past_key"].shape[2]
        k, v = numpy.concatenate((given["past_key"], k), 2), numpy.concatenate((given["past_value"], v), 2)
    left, right = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    options = {"offset": past, "left": left if left >= 0 else None, "right": right if right >= 0 else None}
    if attributes.get("is_causal"):
        options["right"] = 0
    if "nonpad_kv_seqlen" in given:
        options |= {"offset": None, "key_end": given["nonpad_kv_seqlen"].tolist()}
    bits = q.dtype == numpy.uint16
    result = gnomon.attention(
        q,
        k,
        v,
        scale=attributes.get("scale"),
        softcap=attributes.get("softcap") or None,
        mask=gnomon.key_intervals(q.shape[2], k.shape[2], **options | changed),
        mask_tensor=mask_tensor(given.get("mask"), k.shape[2], bits),
        dtype="bf16" if bits else None,
    )
    result = widened(result)
    return result.transpose(0, 2, 1, 3).reshape(*given["q"].shape[:2], -1) if packed else result


def bound(case):
    """Values are in [0, 1): a weighted mean of them is below 1, off by its rounding and by that of the weights (which bfloat16 has)."""
    unit = UNIT[case["inputs"]["q"]["dtype"]]
    return 8 * UNIT["float32"] + (3 if unit == 2.0**-8 else 1) * unit


@EACH_CASE
def test_the_values_in_double(case):
    want = unpack(case["exact"])
    got = attended(case)
    assert got.shape == want.shape
    assert (abs(got - want) <= bound(case) * numpy.maximum(1, abs(want))).all()


def test_the_values_of_onnx(tally):
    for case in CASES:
        theirs = widened(unpack(case["output"]))
        # Declared: 1e-3 relative, which a rounding of float16 or bfloat16 exceeds.
        slack = 3 * UNIT[case["inputs"]["q"]["dtype"]]
        numpy.testing.assert_allclose(attended(case), theirs, rtol=1e-3, atol=slack, err_msg=case["name"])
    tally("Attention cases of ONNX", len(CASES))


def tells(case):
    """Not where a single query stands at the end of the cache, or where all values are equal."""
    return case["inputs"]["q"]["shape"][-2] > 1 and numpy.ptp(widened(unpack(case["inputs"]["v"]))) > 0


CAUSAL = [case for case in CASES if case["attributes"].get("is_causal") and "mask" not in case["inputs"] and tells(case)]
WINDOWED = [case for case in CASES if case["attributes"].get("left_window_size", -1) > 0 and tells(case)]


@pytest.mark.parametrize("case", CAUSAL, ids=[case["name"] for case in CAUSAL])
def test_a_frontier_one_key_off_is_told_apart(case):
    assert (abs(attended(case, right=1) - unpack(case["exact"])) > 2 * bound(case)).any()


@pytest.mark.parametrize("case", WINDOWED, ids=[case["name"] for case in WINDOWED])
def test_a_window_one_key_short_is_told_apart(case):
    """left_window_size = w keeps w + 1 keys; several engines kept w."""
    width = case["attributes"]["left_window_size"]
    assert (abs(attended(case, left=width - 1) - unpack(case["exact"])) > 2 * bound(case)).any()


def test_the_file_is_the_one_that_was_frozen():
    digests = {name: digest for digest, name in map(str.split, (FILE.parent / "MANIFEST.sha256").read_text().splitlines())}
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == digests[FILE.name], "changed: run tools/make-onnx-cases, or undo the edit"
