# SPDX-License-Identifier: Apache-2.0
"""While gnomon works, other Python threads run."""

import sys
import threading

import numpy as np
import pytest

import gnomon

SPEC = gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=64)
OTHER = gnomon.RotarySpec(gnomon.rotary.Linear(factor=2.0), theta=10000.0, head_dim=64)
SINUSOIDS = gnomon.AbsoluteSpec(gnomon.absolute.Sinusoidal(order="interleaved", denominator="width"), width=64)
TOKENS = 2048
EACH = np.arange(TOKENS)


def array(*shape):
    return np.ones(shape, "float32")


# Made once: NumPy lets go of the interpreter too.
X, KEYS, VALUES, ROWS, COS = array(1, 4, TOKENS, 64), array(1, 4, TOKENS, 64), array(1, 4, TOKENS, 64), array(TOKENS, 64), array(TOKENS, 32)
MANY, EMBEDDED, IDS = array(16, TOKENS, 64), array(16, TOKENS, 64), np.tile(EACH, (16, 1))
MEANS, SUMS, MASK = array(1, 4, TOKENS, 64), array(1, 4, TOKENS), gnomon.key_intervals(TOKENS, TOKENS, causal=True, window=64)
CALLS = {
    "rotate": lambda: gnomon.rotate(X, SPEC, EACH),
    "rotate_with": lambda: gnomon.rotate_with(X, COS, COS),
    "rotary_table": lambda: gnomon.rotary_table(SPEC, EACH),
    "embedding_table": lambda: gnomon.embedding_table(SINUSOIDS, EACH),
    "add_positions": lambda: gnomon.add_positions(MANY, ROWS, EACH, out=EMBEDDED),
    "embed_tokens": lambda: gnomon.embed_tokens(IDS, ROWS, ROWS, EACH, out=EMBEDDED),
    "scatter_add_rows": lambda: gnomon.scatter_add_rows(MANY, IDS, ROWS),
    "shift_keys": lambda: gnomon.shift_keys(KEYS, SPEC, 1),
    "shift_keys per token": lambda: gnomon.shift_keys(KEYS, SPEC, EACH, per_token=True),
    "rebase_keys": lambda: gnomon.rebase_keys(KEYS, SPEC, OTHER, EACH),
    "evict_tokens": lambda: gnomon.evict_tokens(KEYS, VALUES, [TOKENS], 4, TOKENS - 100, SPEC),
    "append_tokens": lambda: gnomon.append_tokens(X, X, KEYS, VALUES, [0], frequencies=SPEC, positions=EACH),
    "convert_layout": lambda: gnomon.convert_layout(X, SPEC, to="interleaved", axis=-1),
    "convert_layout out": lambda: gnomon.convert_layout(X, SPEC, to="interleaved", axis=-1, out=KEYS),
    "attention": lambda: gnomon.attention(X, KEYS, VALUES, out=MEANS, mask=MASK),
    "attention_statistics": lambda: gnomon.attention_statistics(X, KEYS, SUMS, mask=MASK),
}


@pytest.fixture
def threads_change_only_where_one_lets_go():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.usefixtures("threads_change_only_where_one_lets_go")
def test_another_thread_runs_meanwhile(call):
    may_run, ran = threading.Lock(), []

    def run():
        with may_run:
            ran.append(True)

    may_run.acquire()
    other = threading.Thread(target=run)
    other.start()
    may_run.release()
    for _ in range(1000):  # the other thread may take a while to wake up
        CALLS[call]()
        if ran:
            break
    assert ran
    other.join()
