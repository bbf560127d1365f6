# SPDX-License-Identifier: Apache-2.0
"""Compares gnomon's `hf` numerics with the installed transformers, live, and prints what was found as one JSON object.

A program of its own, because torch chooses its code path when it is imported: with ATEN_CPU_CAPABILITY=default its float32 power is
correctly rounded and equality can be demanded; its vector paths differ by an ulp in about one frequency of a hundred.
"""

import itertools
import json
import random

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
TRAINED = 4096  # length for the rules that depend on that of the sequence
DYNAMIC = [{"factor": factor} for factor in (1.0, 2.0, 3.0, 8.0)]
LONGROPE = [
    {"original_max_position_embeddings": TRAINED, "short_factor": (1.0, 1.3), "long_factor": (1.0, 64.0), "factor": factor, **more}
    for factor, more in ((32.0, {}), (1.0, {}), (4.0, {"attention_factor": 1.1}))
]
PROPORTIONAL = [{"factor": factor} for factor in (1.0, 8.0, 3.0)]
# transformers' name: our rule, its fields (a pair of bounds stands for a list, one number for each pair of channels), sequence lengths
RULES = {
    "default": (rotary.Default, [{}], [None]),
    "linear": (rotary.Linear, LINEAR, [None]),
    "yarn": (rotary.Yarn, YARN, [None]),
    "llama3": (rotary.Llama3, LLAMA3, [None]),
    "dynamic": (rotary.Dynamic, DYNAMIC, [None, 1, TRAINED, TRAINED + 1, 5000, 20000, 131072]),
    "longrope": (rotary.Longrope, LONGROPE, [None, 1, TRAINED, TRAINED + 1, 131072]),
    "proportional": (rotary.Proportional, PROPORTIONAL, [None]),
}
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


def listed(fields, pairs):
    """The fields with a number of three digits for each pair where bounds stand, as configs have them."""
    drawn = random.Random(pairs)
    return {
        key: [round(drawn.uniform(*value), 3) for _ in range(pairs)] if isinstance(value, tuple) else value for key, value in fields.items()
    }


def config_of(name, fields, theta, head_dim, part):
    parameters = {"rope_type": name, "rope_theta": theta, "partial_rotary_factor": part, **fields}
    sizes = {"hidden_size": 4 * head_dim, "num_attention_heads": 4, "max_position_embeddings": TRAINED if name == "dynamic" else 131072}
    if name == "default" and part < 1:  # Llama's own default rule knows no partial width
        return GPTNeoXConfig(**sizes, rope_parameters=parameters)
    return LlamaConfig(**sizes, head_dim=head_dim, rope_parameters=parameters)


def spec_of(name, fields, theta, head_dim, part):
    own = {key: value for key, value in fields.items() if key != "attention_factor"}
    if name == "dynamic":
        own["max_position_embeddings"] = TRAINED
    if name == "proportional":  # all channels are rotated, most of them by nothing
        own["partial_rotary_factor"], part = part, 1
    return gnomon.RotarySpec(
        RULES[name][0](**own),
        theta=theta,
        head_dim=head_dim,
        rotary_dim=int(head_dim * part),
        attention_factor=fields.get("attention_factor"),
    )


def theirs(name, config, length):
    if name != "default":
        return ROPE_INIT_FUNCTIONS[name](config, seq_len=length)
    kind = GPTNeoXRotaryEmbedding if isinstance(config, GPTNeoXConfig) else LlamaRotaryEmbedding
    return kind.compute_default_rope_parameters(config)


def compare(tallies, name, fields, theta, head_dim, part):
    fields = listed(fields, int(head_dim * part) // 2)
    config, spec = config_of(name, fields, theta, head_dim, part), spec_of(name, fields, theta, head_dim, part)
    case = f"{name} {fields} theta {theta} width {int(head_dim * part)} of {head_dim}"
    kind = "frequencies of dynamic" if name == "dynamic" else "frequencies"
    for length in RULES[name][2]:
        inv_freq, factor = theirs(name, config, length)
        ours, exact = gnomon.frequencies(spec, "hf", length), gnomon.frequencies(spec, "exact", length)
        off = numpy.divide(exact.inv_freq, inv_freq.numpy(), out=numpy.ones(len(inv_freq)), where=inv_freq.numpy() != 0) - 1
        tallies[kind].add(ulps(ours.inv_freq, inv_freq.numpy()), f"{case}, length {length}")
        tallies["attention factors"].add(float(ours.attention_factor != factor), case)
        tallies["exact frequencies"].add(numpy.where(inv_freq.numpy() == 0, exact.inv_freq, numpy.abs(off)), case)
    if not (name == "default" and part < 1):
        compare_module(tallies, LlamaRotaryEmbedding(config), spec, case)


def compare_module(tallies, module, spec, case):
    """cos and sin as the model gets them, from their module and from ours in its place, where the frequencies are the same."""
    holder = torch.nn.Module()
    holder.rotary_emb = module
    with gnomon.hf.use(holder, spec, numerics="hf"):
        got = holder.rotary_emb(torch.zeros(1), POSITIONS)
    want = module(torch.zeros(1), POSITIONS)
    equal = ulps(gnomon.frequencies(spec, "hf", int(POSITIONS.max()) + 1).inv_freq, module.inv_freq.numpy()) == 0
    pairs = numpy.concatenate((equal, equal))
    kind = "cos and sin" if spec.attention_factor == 1 else "cos and sin with a magnitude"
    for a, b in zip(got, want, strict=True):
        tallies[kind].add(ulps(a.numpy()[..., pairs], b.numpy()[..., pairs]), case)


def main():
    logging.set_verbosity_error()  # it warns of factors that do not fit the lengths, which are meant here
    kinds = (
        "frequencies",
        "frequencies of dynamic",
        "attention factors",
        "exact frequencies",
        "cos and sin",
        "cos and sin with a magnitude",
    )
    tallies = {kind: Tally() for kind in kinds}
    for name, (_, variants, _) in RULES.items():
        for fields, theta, (head_dim, part) in itertools.product(variants, THETAS, WIDTHS):
            compare(tallies, name, fields, theta, head_dim, part)
    about = {"capability": torch.backends.cpu.get_cpu_capability(), "without a counterpart": sorted(set(ROPE_INIT_FUNCTIONS) - set(RULES))}
    print(json.dumps({**about, **{kind: vars(tally) for kind, tally in tallies.items()}}))


if __name__ == "__main__":
    main()
