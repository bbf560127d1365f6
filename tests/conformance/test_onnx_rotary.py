# SPDX-License-Identifier: Apache-2.0
"""rotate_with against the RotaryEmbedding cases of ONNX (opset 23), frozen by tools/make-onnx-cases.

Their caches hold random numbers, not cos and sin of anything: what recomputes angles, or assumes c² + s² = 1, cannot pass.
"""

import hashlib
import json
import pathlib

import numpy
import pytest

import gnomon

FILE = pathlib.Path(__file__).parent / "onnx_rotary.json"
CASES = json.loads(FILE.read_text())["cases"]
EACH_CASE = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def unpack(packed):
    values = numpy.frombuffer(bytes.fromhex(packed["little_endian_hex"]), numpy.dtype(packed["dtype"]).newbyteorder("<"))
    return values.astype(packed["dtype"]).reshape(packed["shape"])


def heads_first(x, attributes):
    """(B,H,T,D); ONNX also takes (B,T,H·D)."""
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], attributes["num_heads"], -1).transpose(0, 2, 1, 3)


def rotated(case, **changed):
    """What rotate_with makes of the inputs of a case; the input itself stays as it was."""
    inputs = {name: unpack(packed) for name, packed in case["inputs"].items()}
    cos, sin = (inputs[name].reshape(-1, inputs[name].shape[-1]) for name in ("cos_cache", "sin_cache"))
    arguments = {
        "cos": cos,
        "sin": sin,
        "rows": inputs.get("position_ids"),  # without them the caches have a row for each token of each batch row
        "layout": "interleaved" if case["attributes"].get("interleaved") else "half_split",
        **changed,
    }
    return gnomon.rotate_with(heads_first(inputs["input"], case["attributes"]), **arguments)


def bounds(case):
    """The outputs in double, and how far float32 may be off: all inputs are in [0, 1), so two products are rounded by 2⁻²⁵ each and
    their sum, below 2 in size, by 2⁻²⁴. What is not rotated is copied."""
    want = heads_first(unpack(case["exact"]), case["attributes"])
    width = case["attributes"].get("rotary_embedding_dim") or want.shape[-1]
    return want, numpy.where(numpy.arange(want.shape[-1]) < width, 2.0**-23, 0.0)


@EACH_CASE
def test_the_values_in_double(case):
    got, (want, bound) = rotated(case), bounds(case)
    assert got.dtype == numpy.float32
    assert (abs(got - want) <= bound).all()


def test_the_values_of_onnx(tally):
    for case in CASES:
        theirs, (want, bound) = heads_first(unpack(case["output"]), case["attributes"]), bounds(case)
        assert (abs(theirs - want) <= bound).all()  # theirs are right to the last bits
        numpy.testing.assert_allclose(rotated(case), theirs, rtol=1e-3, atol=2.0**-22, err_msg=case["name"])
    tally("RotaryEmbedding cases of ONNX", len(CASES))


@EACH_CASE
def test_what_another_reading_gives_is_another_value(case):
    """The other layout, the other direction, cos and sin exchanged, the row beside: each is what someone got."""
    want, bound = bounds(case)
    cos, sin = (unpack(case["inputs"][name]) for name in ("cos_cache", "sin_cache"))
    cos, sin = cos.reshape(-1, cos.shape[-1]), sin.reshape(-1, sin.shape[-1])
    wrong = [
        {"layout": "half_split" if case["attributes"].get("interleaved") else "interleaved"},
        {"direction": "transposed"},
        {"cos": sin, "sin": cos},
        {"cos": numpy.roll(cos, 1, 0), "sin": numpy.roll(sin, 1, 0)},
    ]
    for changed in wrong:
        assert (abs(rotated(case, **changed) - want) > 1000 * bound + 1e-3).any(), changed


def test_the_file_is_the_one_that_was_frozen():
    digests = {name: digest for digest, name in map(str.split, (FILE.parent / "MANIFEST.sha256").read_text().splitlines())}
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == digests[FILE.name], "changed: run tools/make-onnx-cases, or undo the edit"
