# SPDX-License-Identifier: Apache-2.0
"""GGUF files written by the `gguf` package, with its names of architectures, keys and tensors."""

import json

import pytest

gguf = pytest.importorskip("gguf")
numpy = pytest.importorskip("numpy")

import gnomon  # noqa: E402

# A vision tower, which is no model of its own.
WITHOUT_A_SETUP = {"clip"}


def write(path, architecture, keys=(), tensors=()):
    """`keys` are calls of GGUFWriter's own methods: ("add_rope_freq_base", 10000.0)."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(12)
    writer.add_embedding_length(512)
    writer.add_context_length(4096)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    for method, *values in keys:
        getattr(writer, method)(*values)
    for name, array in tensors:
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gnomon.read_model(path)


def inspected(model):
    return json.loads(model.to_json())


def codes(model):
    return [doubt["code"] for doubt in inspected(model)["doubts"]]


ARCHITECTURES = sorted(set(gguf.MODEL_ARCH_NAMES.values()) - WITHOUT_A_SETUP)


def test_every_architecture_of_the_package_is_known(tmp_path, tally):
    """One that is missing would be read with a layout that is a guess."""
    unknown, broken = [], {}
    for architecture in ARCHITECTURES:
        model = write(tmp_path / f"{architecture}.gguf", architecture, [("add_rope_freq_base", 10000.0), ("add_sliding_window", 256)])
        if "layout-unknown" in codes(model):
            unknown.append(architecture)
        errors = [doubt for doubt in inspected(model)["doubts"] if doubt["level"] == "error"]
        if errors:
            broken[architecture] = errors
    assert not unknown
    assert not broken
    tally("architectures of the gguf package", len(ARCHITECTURES))


def test_an_architecture_that_is_made_up_is_not(tmp_path):
    assert codes(write(tmp_path / "m.gguf", "made_up", [("add_rope_freq_base", 10000.0)])) == ["layout-unknown"]


KEYS = [
    ("add_rope_freq_base", 1e6),
    ("add_rope_dimension_count", 64),
    ("add_rope_scaling_type", gguf.RopeScalingType.YARN),
    ("add_rope_scaling_factor", 4.0),
    ("add_rope_scaling_orig_ctx_len", 1024),
    ("add_rope_scaling_finetuned", True),
    ("add_rope_scaling_yarn_beta_fast", 16.0),
    ("add_rope_scaling_yarn_beta_slow", 2.0),
    ("add_rope_scaling_yarn_ext_factor", 1.0),
    ("add_rope_scaling_yarn_attn_factor", 1.0),
    ("add_rope_scaling_attn_factors", 1.0),
]


def test_keys_have_the_names_the_package_gives_them(tmp_path, tally):
    model = inspected(write(tmp_path / "m.gguf", "qwen2", KEYS))
    rotary = model["groups"][0]["rotary"]
    assert (rotary["rule"], rotary["theta"], rotary["rotary_dim"], rotary["layout"]) == ("yarn", 1e6, 64, "half_split")
    assert (rotary["factor"], rotary["beta_fast"], rotary["beta_slow"]) == (4, 16, 2)
    assert rotary["original_max_position_embeddings"] == 1024
    assert model["unread"] == []
    tally("rotary keys of the gguf package", len(KEYS))


def test_no_key_of_the_package_about_position_is_unheard_of(tmp_path):
    """A key that a newer package writes must at least stand among those that were not read."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    names = [value for part in (gguf.Keys.Rope, gguf.Keys.Attention) for key, value in vars(part).items() if key.isupper()]
    shape = {"block_count": 2, "embedding_length": 512, "context_length": 4096, "attention.head_count": 8, "attention.head_count_kv": 2}
    for key, value in shape.items():
        writer.add_uint32(f"llama.{key}", value)
    text = {"rope.scaling.type"}
    for name in names:
        key = name.format(arch="llama")
        if key.removeprefix("llama.") in shape or any(word in key for word in ("sections", "pattern", "causal", "finetuned")):
            continue
        if key.removeprefix("llama.") in text:
            writer.add_string(key, "linear")
        else:
            writer.add_float32(key, 64.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    unread = inspected(gnomon.read_model(tmp_path / "m.gguf"))["unread"]
    assert [key for key in unread if ".rope." in key] == []


def test_factor_tensors(tmp_path):
    ones, twos = numpy.ones(32, numpy.float32), numpy.full(32, 2, numpy.float32)
    keys = [("add_rope_freq_base", 10000.0), ("add_rope_scaling_orig_ctx_len", 1024)]
    both = [("rope_factors_long.weight", twos), ("rope_factors_short.weight", ones)]
    rotary = inspected(write(tmp_path / "m.gguf", "phi3", keys, both))["groups"][0]["rotary"]
    assert (rotary["rule"], rotary["long_factor"], rotary["short_factor"]) == ("longrope", [2] * 32, [1] * 32)
    still = numpy.where(numpy.arange(32) < 8, 1, 1e30).astype(numpy.float32)
    rotary = inspected(write(tmp_path / "m.gguf", "llama", keys[:1], [("rope_freqs.weight", still)]))["groups"][0]["rotary"]
    assert (rotary["rule"], rotary["partial_rotary_factor"]) == ("proportional", 0.25)


def test_learned_rows_and_sinks_are_read_from_the_header(tmp_path):
    rows = numpy.zeros((1000, 512), numpy.float16)
    assert inspected(write(tmp_path / "m.gguf", "gpt2", tensors=[("position_embd.weight", rows)]))["groups"][0]["absolute"]["rows"] == 1000
    sinks = [(f"blk.{layer}.attn_sinks.weight", numpy.zeros(8, numpy.float32)) for layer in range(12)]
    keys = [("add_rope_freq_base", 150000.0), ("add_sliding_window", 128)]
    groups = inspected(write(tmp_path / "m.gguf", "gpt-oss", keys, sinks))["groups"]
    assert [group["sink_logits"] for group in groups] == [True, True]
    assert [group["mask"]["window"] for group in groups] == [128, None]
