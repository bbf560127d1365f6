# SPDX-License-Identifier: Apache-2.0
"""gnomon.position_ids in NumPy: shapes, kinds of input, and that a batched rotation equals single ones."""

import numpy as np
import pytest

import gnomon
from gnomon.position_ids import (
    CacheStep,
    ContextParallel,
    ImageRun,
    NewTokens,
    SequenceState,
    TextBatch,
    TextRun,
    VideoRun,
    VisionBatch,
    VisionModel,
    cu_seqlens,
    packed_row,
    padded_batch,
    prefill_chunks,
)

SPEC = gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=8)


def test_padding_and_packing():
    batch = padded_batch([3, 5], side="left")
    assert batch.ids().dtype == np.int64
    np.testing.assert_array_equal(batch.ids(), [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(batch.documents, [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    assert batch.next_states() == [SequenceState(position=3, slot=5, tokens=3), SequenceState(position=5, slot=5, tokens=5)]
    np.testing.assert_array_equal(packed_row([2, 3], width=6).ids(), [[0, 1, 0, 1, 2, 0]])
    assert cu_seqlens([2, 3]) == [0, 2, 5]
    np.testing.assert_array_equal(TextBatch([[0, 1, 1]], padding=-1).ids(), [[-1, 0, 1]])
    np.testing.assert_array_equal(TextBatch([[0, 1, 1]]).table_rows(offset=2), [[1, 2, 3]])


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int32, np.uint8, np.int64, np.uint64, object])
def test_masks_of_any_whole_type(dtype):
    mask = np.array([[0, 1, 1], [1, 1, 0]]).astype(dtype)
    np.testing.assert_array_equal(TextBatch(np.asfortranarray(mask)).ids(), [[0, 0, 1], [0, 1, 0]])


def test_a_padded_row_turns_as_it_does_alone():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 1, 5, 8))
    batch = padded_batch([3, 5], side="left")
    together = gnomon.rotate(x.copy(), SPEC, batch.ids())
    alone = gnomon.rotate(x[:1, :, 2:].copy(), SPEC, range(3))
    np.testing.assert_array_equal(together[:1, :, 2:], alone)
    counted = gnomon.rotate(x.copy(), SPEC, np.tile(np.arange(5), (2, 1)))
    assert np.abs(counted[:1, :, 2:] - alone).max() > 0.1  # with padding counted it is another rotation


def test_steps_behind_a_cache():
    after_image = SequenceState(position=9, slot=14, tokens=12)
    assert after_image.rope_delta == -3
    assert repr(after_image) == "SequenceState(position=9, slot=14, tokens=12)"
    step = CacheStep([NewTokens(after_image, 2), NewTokens(SequenceState(position=4, slot=4, tokens=4), parents=[-1, 0, 0])])
    np.testing.assert_array_equal(step.ids(), [9, 10, 4, 5, 5])
    np.testing.assert_array_equal(step.slots(), [14, 15, 4, 5, 6])
    assert after_image.advanced(2) == SequenceState(position=11, slot=16, tokens=14)
    chunks = prefill_chunks(10, chunk=4)
    assert [chunk.tokens for chunk in chunks] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate([CacheStep([chunk]).ids() for chunk in chunks]), np.arange(10))
    with pytest.raises(TypeError):
        SequenceState(9, 14, 12)  # which is which is said, not remembered


def test_shards():
    shard = ContextParallel([0, 4, 8], ranks=2, rank=0)
    np.testing.assert_array_equal(shard.packed_tokens(), [0, 3, 4, 7])
    np.testing.assert_array_equal(shard.ids(), [0, 3, 0, 3])
    np.testing.assert_array_equal(packed_row([4, 4]).ids()[0][shard.packed_tokens()], shard.ids())


def test_images():
    model = VisionModel("qwen2_vl")
    assert (model.family, model.version) == ("qwen2_vl", "original")
    batch = VisionBatch(model, [[TextRun(4), ImageRun(1, 4, 6), TextRun(2)]])
    ids = batch.ids()
    assert ids.shape == (3, 1, 12)
    np.testing.assert_array_equal(ids[:, 0, 4:], [[4, 4, 4, 4, 4, 4, 7, 8], [4, 4, 4, 5, 5, 5, 7, 8], [4, 5, 6, 4, 5, 6, 7, 8]])
    assert batch.next_states() == [SequenceState(position=9, slot=12, tokens=12)]
    read = VisionBatch.from_token_types(model, [[0] * 4 + [1] * 6 + [0] * 2], images=[[1, 4, 6]])
    np.testing.assert_array_equal(read.ids(), ids)
    spec = gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=8, sections=[2, 1, 1])
    x = np.ones((1, 1, 12, 8))
    turned = gnomon.rotate(x.copy(), spec, ids)
    assert np.abs(turned - gnomon.rotate(x.copy(), spec, range(12))).max() > 0.1
    assert VideoRun(4, 2, 2, second_per_grid=0.5).grid == [4, 2, 2]


def test_check():
    batch = padded_batch([112], width=140)
    report = batch.check(np.arange(140)[None])
    assert (report.right, report.compared, report.different) == (False, 112, 112)
    assert report.first == {"axis": 0, "row": 0, "token": 28, "expected": 0, "got": 28}
    assert list(report.mistakes) == ["padding-counted"]
    good = batch.check(batch.ids())
    assert (good.right, good.first, good.mistakes) == (True, None, {})
    assert list(batch.check(np.arange(139)[None]).mistakes) == ["another-shape"]
    assert list(CacheStep([NewTokens(SequenceState(position=9, slot=14, tokens=12))]).check([12]).mistakes) == ["count-as-position"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: padded_batch([3], side="top"), "side: expected left | right"),
        (lambda: padded_batch([-1]), "lengths"),
        (lambda: TextBatch([[0.5, 1.0]]), "documents: expected whole numbers"),
        (lambda: TextBatch(np.full((1, 2), 2**64 - 1, "uint64")), f"documents: expected whole numbers of 64 bits, got {2**64 - 1}"),
        (lambda: TextBatch([0, 1]), "documents: expected 2 axes, got 1"),
        (lambda: padded_batch([3]).check([0, 1, 2]), "ids: expected 2 axes, got 1"),
        (lambda: padded_batch([3]).check([[0.0, 1.0, 2.0]]), "ids: expected whole numbers"),
        (lambda: ContextParallel([0, 7], ranks=2, rank=0).ids(), "pad it to 8"),
        (lambda: VisionModel("qwen"), "family: expected qwen2_vl"),
        (lambda: VisionModel("qwen2_vl", version="5"), "version: expected original"),
        (lambda: VisionBatch.from_token_types(VisionModel("qwen2_vl"), [[0, 7]]), "token_types"),
        (lambda: VisionBatch.from_token_types(VisionModel("qwen2_vl"), [[0, 1]], images=[[1, 2]]), "images: expected (number, 3)"),
    ],
)
def test_bad_input_is_named(call, says):
    with pytest.raises(gnomon.Error) as refused:
        call()
    assert says in str(refused.value)
