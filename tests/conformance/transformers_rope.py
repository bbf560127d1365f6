# SPDX-License-Identifier: Apache-2.0
"""Compares gnomon's `hf` numerics with the installed transformers, live, and prints what was found as one JSON object.

A program of its own, because torch chooses its code path when it is imported: with ATEN_CPU_CAPABILITY=default its float32 power is
correctly rounded and equality can be demanded; its vector paths differ by an ulp in about one frequency of a hundred.
"""

import itertools
import json

import numpy
import torch
from transformers import GPTNeoXConfig, LlamaConfig, logging
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import gnomon
import gnomon.hf
from gnomon import rotary

THETAS = [10000.0, 500000.0, 1000000.0, 10000.3]
WIDTHS = [(64, 1.0), (80, 0.25), (96, 1.0), (128, 1.0), (128, 0.5), (256, 1.0)]  # head_dim, rotated part

LINEAR = [{"factor": factor} for factor in (1.0, 2.0, 3.0, 8.0)]
YARN = [
    {"factor": factor, "original_max_position_embeddings": length, **more}
    for factor, length in ((4.0, 32768), (40.0, 4096), (2.5, 2048), (1.0, 8192))
    for more in (
        {},
        {"truncate": False},
        {"beta_fast": 16.0, "beta_slow": 2.0},
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"mscale": 0.707, "mscale_all_dim": 1.0},
        {"mscale": 0.707},
        {"mscale_all_dim": 0.8},
        {"attention_factor": 1.1},
    )
]
LLAMA3 = [
    {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": high, "original_max_position_embeddings": 8192}
    for factor, high in ((8.0, 4.0), (32.0, 4.0), (3.0, 5.5))
]
RULES = [
    ("default", rotary.Default, [{}]),
    ("linear", rotary.Linear, LINEAR),
    ("yarn", rotary.Yarn, YARN),
    ("llama3", rotary.Llama3, LLAMA3),
]
POSITIONS = torch.tensor([[*range(20), 100, 259, 511, 4095, 4096, 8191, 15962, 32767, 65537, 131071, 999983, 2**24 - 1]])


def ulps(ours, theirs):
    """How many float32 values lie between two arrays of them, entry by entry."""
    bits = [numpy.asarray(part, numpy.float32).view(numpy.int32).astype(numpy.int64) for part in (ours, theirs)]
    ordered = [numpy.where(part < 0, -(part & 0x7FFFFFFF), part) for part in bits]
    return numpy.abs(ordered[0] - ordered[1])


class Tally:
    """Counts of one kind of number: compared, different, and the largest difference in ulp."""

    def __init__(self):
        self.compared, self.different, self.largest, self.first = 0, 0, 0, None

    def add(self, distances, case):
        distances = numpy.atleast_1d(distances)
        self.compared += distances.size
        self.different += int((distances > 0).sum())
        self.largest = max(self.largest, float(distances.max()))
        if distances.any() and self.first is None:
            self.first = case


def config_of(name, fields, theta, head_dim, part):
    parameters = {"rope_type": name, "rope_theta": theta, "partial_rotary_factor": part, **fields}
    sizes = {"hidden_size": 4 * head_dim, "num_attention_heads": 4, "max_position_embeddings": 131072}
    if name == "default" and part < 1:  # Llama's own default rule knows no partial width
        return GPTNeoXConfig(**sizes, rope_parameters=parameters)
    return LlamaConfig(**sizes, head_dim=head_dim, rope_parameters=parameters)


def theirs(name, config):
    if name != "default":
        return ROPE_INIT_FUNCTIONS[name](config)
    kind = GPTNeoXRotaryEmbedding if isinstance(config, GPTNeoXConfig) else LlamaRotaryEmbedding
    return kind.compute_default_rope_parameters(config)


def compare(tallies, name, rule, fields, theta, head_dim, part):
    config = config_of(name, fields, theta, head_dim, part)
    attention_factor = fields.get("attention_factor")
    spec = gnomon.RotarySpec(
        rule(**{key: value for key, value in fields.items() if key != "attention_factor"}),
        theta=theta,
        head_dim=head_dim,
        rotary_dim=int(head_dim * part),
        attention_factor=attention_factor,
    )
    case = f"{name} {fields} theta {theta} width {int(head_dim * part)} of {head_dim}"
    inv_freq, factor = theirs(name, config)
    ours, exact = gnomon.frequencies(spec, "hf"), gnomon.frequencies(spec)
    tallies["frequencies"].add(ulps(ours.inv_freq, inv_freq.numpy()), case)
    tallies["attention factors"].add(float(ours.attention_factor != factor), case)
    tallies["exact frequencies"].add(numpy.abs(exact.inv_freq / inv_freq.numpy().astype(float) - 1), case)
    if not (name == "default" and part < 1):
        compare_module(tallies, LlamaRotaryEmbedding(config), spec, case)


def compare_module(tallies, module, spec, case):
    """cos and sin as the model gets them, from their module and from ours in its place, where the frequencies are the same."""
    holder = torch.nn.Module()
    holder.rotary_emb = module
    want = module(torch.zeros(1), POSITIONS)
    with gnomon.hf.use(holder, spec, numerics="hf"):
        got = holder.rotary_emb(torch.zeros(1), POSITIONS)
    equal = ulps(gnomon.frequencies(spec, "hf").inv_freq, module.inv_freq.numpy()) == 0
    pairs = numpy.concatenate((equal, equal))
    kind = "cos and sin" if spec.attention_factor == 1 else "cos and sin with a magnitude"
    for a, b in zip(got, want, strict=True):
        tallies[kind].add(ulps(a.numpy()[..., pairs], b.numpy()[..., pairs]), case)


def main():
    logging.set_verbosity_error()  # it warns of factors that do not fit the lengths, which are meant here
    kinds = ("frequencies", "attention factors", "exact frequencies", "cos and sin", "cos and sin with a magnitude")
    tallies = {kind: Tally() for kind in kinds}
    for name, rule, variants in RULES:
        for fields, theta, (head_dim, part) in itertools.product(variants, THETAS, WIDTHS):
            compare(tallies, name, rule, fields, theta, head_dim, part)
    print(json.dumps({"capability": torch.backends.cpu.get_cpu_capability(), **{kind: vars(tally) for kind, tally in tallies.items()}}))


if __name__ == "__main__":
    main()
