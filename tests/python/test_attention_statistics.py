# SPDX-License-Identifier: Apache-2.0
"""gnomon.attention_statistics: against softmax written out in NumPy, and what it refuses."""

import itertools

import numpy
import pytest

import gnomon


def measure(shape=(1, 2, 1, 40), width=16, dtype=numpy.float32, **options):
    """q, k and the statistics of attention on them; shape is (B, Hq, Hk, T)."""
    batch, heads, kv_heads, tokens = shape
    random = numpy.random.default_rng(7)
    q = random.standard_normal((batch, heads, tokens, width)).astype(dtype)
    k = random.standard_normal((batch, kv_heads, tokens, width)).astype(dtype)
    log_sum_exp = numpy.empty((batch, heads, tokens), numpy.float32)
    shared = {name: options[name] for name in ("mask", "scale", "bias", "sink_logits") if name in options}
    gnomon.attention(q, k, numpy.zeros_like(k), log_sum_exp=log_sum_exp, **shared)
    return q, k, gnomon.attention_statistics(q, k, log_sum_exp, **options)


def causal_weights(q, k):
    heads, tokens = q.shape[1], q.shape[2]
    scores = numpy.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float).repeat(heads // k.shape[1], 1)) / q.shape[3] ** 0.5
    weights = numpy.exp(scores) * numpy.tri(tokens)
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_are_those_of_softmax(threads):
    q, k, got = measure((2, 4, 2, 70), mask=gnomon.key_intervals(70, 70, causal=True), threads=threads, first_keys=3, window=9)
    p = causal_weights(q, k)
    back = numpy.arange(70)[:, None] - numpy.arange(70)
    entropy = -(p * numpy.log(p, out=numpy.zeros_like(p), where=p > 0)).sum(-1)
    numpy.testing.assert_allclose(got.entropy, entropy, atol=1e-5)
    assert abs(got.entropy - entropy / numpy.log(2)).max() > 1  # bits are told apart
    numpy.testing.assert_allclose(got.maximum, p.max(-1), atol=1e-5)
    numpy.testing.assert_allclose(got.mean_distance, (p * back).sum(-1), atol=1e-3)
    numpy.testing.assert_allclose(got.first_mass, p[..., :3].sum(-1), atol=1e-5)
    numpy.testing.assert_allclose(got.window_mass, (p * (abs(back) < 9)).sum(-1), atol=1e-5)
    assert got.distance_edges.tolist() == [0, 1, 2, 4, 8, 16, 32, 64, 128]
    bins = [(p * ((back >= begin) & (back < end))).sum((-1, -2)) for begin, end in itertools.pairwise(got.distance_edges)]
    numpy.testing.assert_allclose(got.mass_by_distance, numpy.stack(bins, -1), atol=1e-4)


def test_the_sink_takes_its_share_and_leaves_the_entropy():
    mask = gnomon.key_intervals(40, 40, causal=True)
    _, _, plain = measure(mask=mask)
    _, _, sunk = measure(mask=mask, sink_logits=[0.0, 2.0])
    numpy.testing.assert_allclose(plain.mass, 1, atol=1e-5)
    assert (sunk.mass < 0.999).all()
    numpy.testing.assert_allclose(sunk.entropy, plain.entropy, atol=1e-5)
    numpy.testing.assert_allclose(sunk.maximum, plain.maximum * sunk.mass, atol=1e-5)


def test_sixteen_bits_and_double():
    mask = gnomon.key_intervals(40, 40, causal=True)
    _, _, half = measure(dtype=numpy.float16, mask=mask)
    _, _, double = measure(dtype=numpy.float64, mask=mask)
    numpy.testing.assert_allclose(half.entropy, double.entropy, atol=5e-3)


def test_arrays_are_read_only_and_outlive_what_made_them():
    entropy = measure(mask=gnomon.key_intervals(40, 40, causal=True))[2].entropy
    assert entropy.shape == (1, 2, 40)
    assert entropy[0, 0, 0] == 0
    with pytest.raises(ValueError, match="read-only"):
        entropy[0] = 1


def test_edges_of_ones_own():
    _, _, got = measure(mask=gnomon.key_intervals(40, 40, causal=True), distance_edges=[0, 10, 40])
    assert got.mass_by_distance.shape == (1, 2, 2)
    numpy.testing.assert_allclose(got.mass_by_distance.sum(-1), 40, atol=1e-3)


def test_what_does_not_fit_is_named():
    q = numpy.zeros((1, 2, 5, 8), numpy.float32)
    sums = numpy.zeros((1, 2, 5), numpy.float32)
    with pytest.raises(gnomon.Error, match=r"distance_edges.*ascend"):
        gnomon.attention_statistics(q, q, sums, distance_edges=[0, 4, 2])
    with pytest.raises(gnomon.Error, match=r"log_sum_exp.*10 numbers"):
        gnomon.attention_statistics(q, q, sums[:, :1])
    with pytest.raises(gnomon.Error, match=r"window.*-3"):
        gnomon.attention_statistics(q, q, sums, window=-3)
    with pytest.raises((gnomon.Error, TypeError), match="log_sum_exp"):
        gnomon.attention_statistics(q, q, sums.astype(numpy.float64))
