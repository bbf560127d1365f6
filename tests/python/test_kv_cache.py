# SPDX-License-Identifier: Apache-2.0
"""Cached keys in NumPy: every operation gives what rotating the unrotated keys gives, and no wrong way to do it passes."""

import numpy as np
import pytest

import gnomon
from gnomon.rotary import Default, Yarn

SPEC = gnomon.RotarySpec(Yarn(factor=8, original_max_position_embeddings=4096), theta=10000, head_dim=32)
PLAIN = gnomon.RotarySpec(Default(), theta=500000, head_dim=32)


def rotated(k, spec, positions):
    return gnomon.rotate(k.copy(), spec, positions, side="key")


@pytest.fixture
def k():
    return np.random.default_rng(3).normal(size=(2, 3, 20, 32)).astype("float32")


def near(a, b):
    return np.abs(a - b).max() < 3e-6


def test_shift_for_all_each_sequence_and_each_token(k):
    keys = rotated(k, SPEC, range(20))
    assert gnomon.shift_keys(keys, SPEC, 7) is keys
    assert near(keys, rotated(k, SPEC, range(7, 27)))
    assert not near(keys, rotated(k, SPEC, range(20)))
    assert not near(rotated(rotated(k, SPEC, range(20)), SPEC, [7] * 20), keys), "the magnitude twice"
    gnomon.shift_keys(keys, SPEC, np.array([-7, 5], "int16"))
    assert near(keys[0], rotated(k, SPEC, range(20))[0])
    assert near(keys[1], rotated(k, SPEC, range(12, 32))[1])
    keys = rotated(k, SPEC, range(20))
    gnomon.shift_keys(keys, SPEC, [t // 4 - t for t in range(20)], per_token=True, threads=2)
    assert near(keys, rotated(k, SPEC, [t // 4 for t in range(20)]))


def test_the_shift_of_a_token_may_be_real(k):
    keys = rotated(k, SPEC, range(20))
    gnomon.shift_keys(keys, SPEC, [0.5] * 20, per_token=True)
    assert near(keys, rotated(k, SPEC, [t + 0.5 for t in range(20)]))


def test_rebase(k):
    keys = rotated(k, SPEC, range(100, 120))
    gnomon.rebase_keys(keys, SPEC, PLAIN, range(100, 120))
    assert near(keys, rotated(k, PLAIN, range(100, 120)))
    assert not near(rotated(k, SPEC, range(100, 120)), keys), "the key left as it is"


def test_evict(k):
    keys, values = rotated(k, SPEC, range(20)), k * 2
    assert gnomon.evict_tokens(keys, values, [20, 8], 2, 5, SPEC) == [7, 7]
    kept = [0, 1, 15, 16, 17, 18, 19], [0, 1, 3, 4, 5, 6, 7]
    for row, tokens in enumerate(kept):
        chosen = np.ascontiguousarray(k[:, :, tokens])
        assert near(keys[row, :, :7], rotated(chosen, SPEC, range(7))[row])
        assert not near(keys[row, :, :7], rotated(chosen, SPEC, tokens)[row]), "old positions"
        assert (values[row, :, :7] == 2 * chosen[row]).all()


def test_append_and_pages(k):
    keys, values = np.zeros((2, 2, 3, 30, 32), "float32")
    gnomon.append_tokens(k, k, keys, values, [0, 10], frequencies=SPEC, positions=range(20))
    expected = rotated(k, SPEC, range(20))
    assert (keys[0, :, :20] == expected[0]).all()
    assert (keys[1, :, 10:] == expected[1]).all()
    assert (values[1, :, 10:] == k[1]).all()
    assert not values[1, :, :10].any()
    pages, value_pages = np.zeros((2, 6, 3, 8, 32), "float32")
    table = np.array([[4, 0, 2], [1, 5, 3]], "int32")
    gnomon.append_tokens(k, k, pages, value_pages, [0, 0], frequencies=SPEC, positions=range(20), block_table=table)
    for row in range(2):
        assert (np.concatenate(list(pages[table[row]]), axis=1)[:, :20] == expected[row]).all()


def test_bad_input(k):
    read_only = k.copy()
    read_only.flags.writeable = False
    for call, words in [
        (lambda: gnomon.shift_keys(k, SPEC, [1, 2, 3]), "deltas"),
        (lambda: gnomon.shift_keys(read_only, SPEC, 1), "keys"),
        (lambda: gnomon.shift_keys(k, gnomon.frequencies(PLAIN, numerics="hf"), 1), "hf"),
        (lambda: gnomon.rebase_keys(k, SPEC, gnomon.RotarySpec(Default(), theta=10000, head_dim=32, rotary_dim=16), range(20)), "pairs"),
        (lambda: gnomon.evict_tokens(k, k.copy(), [20, 21], 1, 1, SPEC), "lengths"),
        (lambda: gnomon.append_tokens(k, k, k.copy(), k.copy(), [0, 1]), "slots"),
        (lambda: gnomon.append_tokens(k, k, k.copy(), k.copy(), [0, 0], frequencies=SPEC), "positions"),
        (lambda: gnomon.append_tokens(k, k, k.copy(), k.copy(), [0, 0], block_table=[9, 0]), "block_table"),
        (lambda: gnomon.shift_keys(k, SPEC, 0.9), "deltas: expected whole numbers of 64 bits, got 0.9"),
        (lambda: gnomon.shift_keys(k, SPEC, np.array([1.0, 2.0])), "deltas: expected whole numbers of 64 bits, got 1.0"),
        (lambda: gnomon.shift_keys(k, SPEC, np.uint64(2**64 - 1)), f"deltas: expected whole numbers of 64 bits, got {2**64 - 1}"),
        (lambda: gnomon.shift_keys(k, SPEC, 2**70), f"deltas: expected whole numbers of 64 bits, got {2**70}"),
        (lambda: gnomon.shift_keys(k, SPEC, [2**70] * 20, per_token=True), r"deltas\[0\]: expected a number within ±2\^33"),
        (lambda: gnomon.append_tokens(k, k, k.copy(), k.copy(), [2.9, 0]), "slots: expected whole numbers of 64 bits, got 2.9"),
        (lambda: gnomon.append_tokens(k, k, k.copy(), k.copy(), [2**31, 0]), "slots: expected 32-bit numbers"),
        (lambda: gnomon.append_tokens(k, k, k.copy(), k.copy(), [0, 0], block_table=[[0.5], [1]]), "block_table: expected whole numbers"),
        (lambda: gnomon.evict_tokens(k, k.copy(), [19.5, 20], 1, 1, SPEC), "lengths: expected whole numbers of 64 bits, got 19.5"),
    ]:
        with pytest.raises(gnomon.Error, match=words):
            call()
