# SPDX-License-Identifier: Apache-2.0
"""Conversion between dialects, held against the engines: transformers runs what was written, the others are restated here from their own rules.

Nothing here reads a setting with gnomon's code: an engine of this file gets the text and gives frequencies and a magnitude. They have to be
those that were asked for, or the conversion has to say that they are not.
"""

import json
import math
import pathlib
import random
import shlex

import numpy as np
import pytest

import gnomon

DIALECTS = ("transformers", "transformers-v4", "llama.cpp", "gguf", "vllm", "exllama", "mlx")
#: Keys and flags are float32 in two of the dialects.
CLOSE = {"rtol": 2e-6, "atol": 1e-25}


# ── rules, once more ──


def plain(theta, width):
    return theta ** (-np.arange(0, width, 2) / width)


def yarn_numbers(theta, width, factor, original, fast=32.0, slow=1.0, truncate=True):
    def pair(turns):
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(fast), pair(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    high += 0.001 if low == high else 0
    ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    w = plain(theta, width)
    return w * (1 - ramp) + w / factor * ramp


def llama3_numbers(theta, width, block):
    w, original = plain(theta, width), block["original_max_position_embeddings"]
    low, high, factor = block["low_freq_factor"], block["high_freq_factor"], block["factor"]
    wave = 2 * math.pi / w
    with np.errstate(invalid="ignore", divide="ignore"):
        t = (original / wave - low) / (high - low)
        between = (1 - t) * w / factor + t * w
    return np.where(wave > original / low, w / factor, np.where(wave < original / high, w, between))


def m(factor, slope=1.0):
    return 1.0 if factor <= 1 else 0.1 * slope * math.log(factor) + 1


# ── engines: a setting → frequencies and magnitude of a sequence of some length ──


def vllm(conversion, own, length):
    arguments = shlex.split(conversion.text)
    flags = dict(zip(arguments[::2], arguments[1::2], strict=True))
    overrides = json.loads(flags["--hf-overrides"])
    block, limit = overrides["rope_parameters"], int(flags.get("--max-model-len", 0))
    kind, theta = block["rope_type"], block["rope_theta"]
    width = int(own.head_dim * block.get("partial_rotary_factor", 1.0))
    mla = own.rotary_offset != 0
    if kind == "proportional":
        width = own.rotary_dim if mla else own.head_dim
        w = plain(theta, width)
        w[int(width * block["partial_rotary_factor"] + 1e-6) // 2 :] = 0
        return w, 1.0
    width = own.rotary_dim if mla else width
    if kind == "default":
        return plain(theta, width), 1.0
    if kind == "linear":
        return plain(theta, width) / block["factor"], 1.0
    if kind == "llama3":
        return llama3_numbers(theta, width, block), 1.0
    if kind == "longrope":
        chosen = "long" if limit > block["original_max_position_embeddings"] else "short"
        return plain(theta, width) / np.array(block[f"{chosen}_factor"]), block[f"{chosen}_mscale"]
    assert kind == "yarn"
    factor, betas = block["factor"], (block.get("beta_fast", 32), block.get("beta_slow", 1))
    w = yarn_numbers(theta, width, factor, block["original_max_position_embeddings"], *betas, mla or block.get("truncate", True))
    magnitude = m(factor, block.get("mscale", 1)) / m(factor, block.get("mscale_all_dim", 0)) if mla else m(factor)
    return w, magnitude * block.get("attn_factor", 1)


def mlx(conversion, own, length, reads_attention_factor=True):
    keys = json.loads(conversion.text)
    theta, block = keys["rope_theta"], keys["rope_scaling"] or {"type": "default"}
    width = own.rotary_dim if own.rotary_offset else int(own.head_dim * keys.get("partial_rotary_factor", 1.0))
    kind = block["type"]
    if kind == "default":
        return plain(theta, width), 1.0
    if kind == "linear":
        return plain(theta, width) / block["factor"], 1.0
    if kind == "llama3":
        return llama3_numbers(theta, width, block), 1.0
    if kind == "proportional":
        width = own.rotary_dim if own.rotary_offset else own.head_dim
        w = plain(theta, width) / block.get("factor", 1)
        w[int(width * block["partial_rotary_factor"] + 1e-6) // 2 :] = 0
        return w, 1.0
    if kind == "longrope":
        original = block["original_max_position_embeddings"]
        ratio = keys["max_position_embeddings"] / original
        return plain(theta, width) / np.array(block["long_factor"]), math.sqrt(
            1 + math.log(ratio) / math.log(original)
        ) if ratio > 1 else 1.0
    assert kind == "yarn"
    factor, betas = block["factor"], (block.get("beta_fast", 32), block.get("beta_slow", 1))
    magnitude = m(factor, block.get("mscale", 1)) / m(factor, block.get("mscale_all_dim", 0))
    if reads_attention_factor:
        magnitude = block.get("attention_factor", magnitude)
    return yarn_numbers(theta, width, factor, block["original_max_position_embeddings"], *betas), magnitude


def mlx_before_attention_factor(conversion, own, length):
    return mlx(conversion, own, length, reads_attention_factor=False)


def exllama(conversion, own, length):
    """The file beside the setting has the base and no scaling."""
    settings = json.loads(conversion.text)
    alpha, width = settings.get("rope_alpha", 1), own.rotary_dim
    theta = own.theta or 10000
    theta = theta * alpha ** (width / (width - 2)) if alpha != 1 else theta
    return plain(theta, width) / settings.get("rope_scale", 1), 1.0


def llama_cpp(conversion, own, length):
    """For a GGUF without scaling."""
    arguments = shlex.split(conversion.text)
    flags = dict(zip(arguments[::2], arguments[1::2], strict=True))
    theta, width = float(np.float32(flags["--rope-freq-base"])), own.rotary_dim
    factor = float(np.float32(flags.get("--rope-scale", 1)))
    if flags["--rope-scaling"] == "yarn":
        betas = (float(flags["--yarn-beta-fast"]), float(flags["--yarn-beta-slow"]))
        return yarn_numbers(theta, width, factor, int(flags["--yarn-orig-ctx"]), *betas), m(factor)
    return plain(theta, width) / (factor if flags["--rope-scaling"] == "linear" else 1), float(flags.get("--yarn-attn-factor", 1))


def gguf(conversion, own, length):
    keys = {}
    for line in conversion.text.splitlines():
        key, kind, value = line.split("  ", 2)
        value = json.loads(value)
        keys[key.removeprefix("llama.")] = np.float32(value) if "f32" in kind else value
    theta, width = float(keys["rope.freq_base"]), keys["rope.dimension_count"]
    magnitude = float(keys.get("rope.scaling.attn_factor", 1))
    kind = keys.get("rope.scaling.type", "none")
    w = plain(theta, width)
    if kind == "linear":
        w = w / float(keys["rope.scaling.factor"])
    if kind == "yarn":
        factor = float(keys["rope.scaling.factor"])
        betas = (float(keys["rope.scaling.yarn_beta_fast"]), float(keys["rope.scaling.yarn_beta_slow"]))
        w = yarn_numbers(theta, width, factor, keys["rope.scaling.original_context_length"], *betas)
        magnitude *= m(factor)
    if kind == "longrope":
        is_long = keys["context_length"] > keys["rope.scaling.original_context_length"]
        w = w / keys[f"rope_factors_{'long' if is_long else 'short'}.weight"].astype(float)
    if "rope_freqs.weight" in keys:
        w = w / keys["rope_freqs.weight"].astype(float)
    return w, magnitude


def transformers_5(conversion, own, length):
    """The library itself: Phi's module, because its code reads a partial width."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.phi.modeling_phi import PhiRotaryEmbedding

    head_dim = own.rotary_dim if own.rotary_offset else own.head_dim
    keys = {"hidden_size": head_dim, "num_attention_heads": 1, "head_dim": head_dim, "partial_rotary_factor": 1.0}
    config = transformers.PhiConfig(**(keys | conversion.setting))
    module = PhiRotaryEmbedding(config)
    with torch.no_grad():
        module(torch.zeros(1), torch.tensor([[0, length - 1]]))
    return module.inv_freq.double().numpy(), float(module.attention_scaling)


ENGINES = {
    "transformers": [transformers_5],
    "transformers-v4": [transformers_5],  # version 5 reads the older form
    "llama.cpp": [llama_cpp],
    "gguf": [gguf],
    "vllm": [vllm],
    "exllama": [exllama],
    "mlx": [mlx, mlx_before_attention_factor],
}


# ── random specs ──


def draw(rng, rule):
    """A valid spec of a rule. Values are of the size models have."""
    head_dim = rng.choice((32, 64, 80, 96, 128))
    rotary_dim = head_dim if rng.random() < 0.6 else rng.choice((16, 24, 32))
    offset = head_dim - rotary_dim if rotary_dim < head_dim and rng.random() < 0.4 else 0
    factor = rng.choice((1.0, 1.5, 2.0, 4.0, 8.0, 40.0))
    original = rng.choice((2048, 4096, 8192))
    lists = [[round(rng.uniform(0.98, 30), 3) for _ in range(rotary_dim // 2)] for _ in range(2)]
    fields = {
        "default": {},
        "linear": {"factor": factor},
        "ntk": {"factor": factor},
        "dynamic": {"factor": factor, "max_position_embeddings": original},
        "yarn": {"factor": factor, "original_max_position_embeddings": original},
        "llama3": {
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": rng.choice((1.0, 4.0)),
            "original_max_position_embeddings": original,
        },
        "longrope": {"short_factor": lists[0], "long_factor": lists[1], "original_max_position_embeddings": original, "factor": factor},
        "proportional": {"partial_rotary_factor": rng.choice((0.25, 0.5, 1.0)), "factor": rng.choice((1.0, 1.0, 4.0))},
        "xpos": {},
        "custom": {"inv_freq": sorted((rng.uniform(1e-5, 1) for _ in range(rotary_dim // 2)), reverse=True)},
    }[rule]
    if rule == "yarn":
        fields |= rng.choice(({}, {"truncate": False}, {"ramp": "turns"}, {"beta_fast": 16.0, "beta_slow": 2.0}))
        fields |= rng.choice(({}, {"mscale": 1.0, "mscale_all_dim": 1.0}, {"mscale": 0.707, "mscale_all_dim": 0.5}, {"mscale": 2.0}))
    common = {"rule": rule, "head_dim": head_dim, "rotary_dim": rotary_dim, "rotary_offset": offset}
    common |= {} if rule == "custom" else {"theta": rng.choice((1e4, 5e5, 1e6, 150000.0))}
    common |= {"attention_factor": rng.choice((0.9, 1.0, 1.25))} if rng.random() < 0.4 else {}
    return gnomon.RotarySpec.from_json(json.dumps(common | fields))


RULES = [rule["name"] for rule in gnomon.list_rules() if rule["kind"] == "rotary"]


def same(a, b):
    return a.shape == b.shape and np.allclose(a, b, **CLOSE)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("rule", RULES)
def test_an_engine_runs_what_was_asked_or_the_loss_is_told(rule, dialect):
    rng = random.Random(f"{rule} {dialect}")
    told = equal = 0
    for _ in range(12 if dialect.startswith("transformers") else 60):
        spec = draw(rng, rule)
        context = rng.choice((None, 2048, 16384, 131072))
        if rule == "custom" and dialect not in ("gguf", "exllama"):
            with pytest.raises(gnomon.Error, match="custom"):
                gnomon.convert(spec, dialect, context=context)
            continue
        conversion = gnomon.convert(spec, dialect, context=context)
        lost = {loss.field for loss in conversion.losses}
        lengths = {1, max(conversion.context, 1)}
        for engine in ENGINES[dialect]:
            numbers = [(gnomon.frequencies(spec, length=length), engine(conversion, spec, length)) for length in sorted(lengths)]
            frequencies_agree = all(same(np.array(asked.inv_freq), w) for asked, (w, _) in numbers)
            magnitudes_agree = all(math.isclose(asked.attention_factor, a, rel_tol=2e-6) for asked, (_, a) in numbers)
            message = f"{spec.to_json()}\n{conversion.text}\n{conversion.losses}"
            assert frequencies_agree or lost & {"frequencies", "width"}, message
            assert magnitudes_agree or "attention_factor" in lost, message
            told += not (frequencies_agree and magnitudes_agree)
            equal += frequencies_agree and magnitudes_agree
        if len(ENGINES[dialect]) == 1:  # with several one of them is enough
            assert frequencies_agree == (not lost & {"frequencies", "width"}), message
            assert magnitudes_agree == ("attention_factor" not in lost), message
    if rule in ("default", "linear"):
        assert equal > 0


# ── known points of disagreement, each with the wrong value people got ──

GPT_OSS = gnomon.RotarySpec(gnomon.rotary.Yarn(factor=32, original_max_position_embeddings=4096, truncate=False), theta=150000, head_dim=64)


def fields(conversion):
    return sorted({loss.field for loss in conversion.losses})


def test_truncate_false_is_lost_where_the_ramp_is_rounded():
    for dialect in ("llama.cpp", "gguf", "mlx"):
        (loss,) = gnomon.convert(GPT_OSS, dialect).losses
        assert loss.field == "frequencies"
        assert "truncate" in loss.message
        apart = np.array(llama_cpp(gnomon.convert(GPT_OSS, "llama.cpp"), GPT_OSS, 1)[0]) - np.array(gnomon.frequencies(GPT_OSS).inv_freq)
        assert loss.apart_from == next(d for d in range(1, 10000) if 1 - np.mean(np.cos(apart * d)) > 0.01)
    for dialect in ("transformers", "transformers-v4", "vllm"):
        assert not gnomon.convert(GPT_OSS, dialect).losses
    w, _ = llama_cpp(gnomon.convert(GPT_OSS, "llama.cpp"), GPT_OSS, 1)
    assert w[17] == pytest.approx(0.000227947795795125, rel=1e-6)  # 76 % above the right value, as reported
    assert gnomon.frequencies(GPT_OSS).inv_freq[17] == pytest.approx(0.000129318701245063, rel=1e-12)


def test_a_magnitude_of_yarn_reaches_vllm_as_its_multiplier_and_mlx_as_its_slope():
    spec = gnomon.RotarySpec(
        gnomon.rotary.Yarn(factor=64, original_max_position_embeddings=4096), theta=10000, head_dim=64, attention_factor=1.0
    )
    conversion = gnomon.convert(spec, "vllm")
    assert not conversion.losses
    assert vllm(conversion, spec, 1)[1] == pytest.approx(1)
    assert m(64) == pytest.approx(1.41588830833597)  # what vLLM makes of the key attention_factor, which it drops
    assert mlx_before_attention_factor(gnomon.convert(spec, "mlx"), spec, 1)[1] == pytest.approx(1)
    assert fields(gnomon.convert(spec, "llama.cpp")) == ["attention_factor"]
    assert not gnomon.convert(spec, "gguf").losses


def test_ntk_is_another_base_where_there_is_no_rule_of_that_name():
    spec = gnomon.RotarySpec(gnomon.rotary.Ntk(factor=1000), theta=10000, head_dim=128)
    for dialect in ("transformers", "vllm", "llama.cpp", "gguf", "mlx"):
        conversion = gnomon.convert(spec, dialect)
        assert not conversion.losses
        assert any("base 11158839.9" in note for note in conversion.notes)
    assert gnomon.convert(spec, "exllama").setting["rope_alpha"] == pytest.approx(1000, rel=1e-9)
    with_vllm_ntk = plain(10000 * 1000, 128) / 1000 ** (2 / 128)  # its own rule of that name slows the fastest pair too
    assert not same(with_vllm_ntk, np.array(gnomon.frequencies(spec).inv_freq))


def test_longrope_is_decided_by_the_configured_context():
    lists = [[1.0] * 32, [4.0] * 32]
    rule = gnomon.rotary.Longrope(short_factor=lists[0], long_factor=lists[1], original_max_position_embeddings=4096, factor=32)
    spec = gnomon.RotarySpec(rule, theta=10000, head_dim=64)
    for dialect in ("vllm", "gguf"):
        assert fields(gnomon.convert(spec, dialect, context=131072)) == ["frequencies"]
        assert not gnomon.convert(spec, dialect, context=4096).losses
    assert fields(gnomon.convert(spec, "mlx", context=4096)) == ["attention_factor", "frequencies"]
    assert not gnomon.convert(spec, "transformers", context=131072).losses


def write_config(folder, **keys):
    shape = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 32, "max_position_embeddings": 8192}
    (folder / "config.json").write_text(json.dumps(shape | keys))
    return gnomon.read_model(folder)


def test_the_length_is_the_declared_one_unless_a_scaling_reaches_farther(tmp_path):
    llama3 = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = write_config(tmp_path, rope_theta=5e5, rope_scaling=llama3, max_position_embeddings=131072)
    assert gnomon.convert(model, "vllm").context == 131072  # 32 * 8192 is not what Llama 3.2 is meant for
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    model = write_config(tmp_path, rope_theta=1e6, rope_scaling=yarn, max_position_embeddings=40960)
    assert gnomon.convert(model, "vllm").context == 131072
    dynamic = {"rope_type": "dynamic", "factor": 2.0}
    model = write_config(tmp_path, rope_theta=1e6, rope_scaling=dynamic, max_position_embeddings=32768)
    assert not gnomon.convert(model, "vllm").losses  # up to the trained length the base does not grow
    assert fields(gnomon.convert(model, "vllm", context=65536)) == ["frequencies"]
    assert gnomon.convert(model, "transformers", context=65536).setting["max_position_embeddings"] == 32768


def gemma3(folder, layers=6):
    return write_config(
        folder,
        model_type="gemma3_text",
        num_hidden_layers=layers,
        head_dim=256,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window=512,
    )


def test_a_method_is_asked_of_the_layers_its_family_scales(tmp_path):
    conversion = gnomon.convert(gemma3(tmp_path), "transformers", method="yarn:4")
    types = conversion.setting["rope_parameters"]
    assert not conversion.losses
    assert conversion.context == 32768
    assert types["full_attention"] == {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 8192}
    assert types["sliding_attention"] == {"rope_type": "default", "rope_theta": 1e4}


def test_layers_of_two_kinds_in_every_dialect(tmp_path):
    model = gemma3(tmp_path)
    assert len(model.groups) == 2
    for dialect in ("transformers", "transformers-v4", "gguf", "vllm", "mlx", "llama.cpp", "exllama"):
        conversion = gnomon.convert(model, dialect)
        assert not conversion.losses, (dialect, conversion.losses)
    keys = {entry["key"]: entry["value"] for entry in gnomon.convert(model, "gguf").setting}
    assert keys["gemma3.rope.freq_base"] == 1e6
    assert keys["gemma3.rope.freq_base_swa"] == 1e4
    ntk = gnomon.convert(model, "exllama", method="ntk:4")
    assert fields(ntk) == ["frequencies"]  # one alpha for all layers


def test_compatible_configs_are_read_alike_by_both_versions(tmp_path):
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    model = write_config(tmp_path, rope_theta=1e6, rope_scaling=scaling)
    conversion = gnomon.convert(model, "transformers", compatible=True)
    both = conversion.setting
    assert not conversion.losses
    assert both["rope_theta"] == both["rope_parameters"]["rope_theta"] == 1e6
    expected = np.array(gnomon.frequencies(model.rotary(), "hf").inv_freq)
    for keys in (
        both,
        {k: v for k, v in both.items() if k != "rope_parameters"},
        {k: v for k, v in both.items() if k not in ("rope_scaling", "rope_theta")},
    ):
        module = LlamaRotaryEmbedding(transformers.LlamaConfig(hidden_size=4096, num_attention_heads=32, **keys))
        np.testing.assert_allclose(module.inv_freq.double().numpy(), expected, rtol=5e-7)
    with pytest.raises(gnomon.Error, match="compatible"):
        gnomon.convert(model, "vllm", compatible=True)


def test_a_family_is_given_its_own_spelling(tmp_path):
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding

    model = write_config(tmp_path, model_type="gpt_neox", rotary_emb_base=20000.0, rotary_pct=0.25, max_position_embeddings=2048)
    expected = gnomon.frequencies(
        gnomon.RotarySpec(gnomon.rotary.Linear(factor=4), theta=20000, head_dim=128, rotary_dim=32), "hf"
    ).inv_freq
    for dialect in ("transformers", "transformers-v4"):
        conversion = gnomon.convert(model, dialect, method="linear:4")
        config = transformers.GPTNeoXConfig(hidden_size=4096, num_attention_heads=32, **conversion.setting)
        np.testing.assert_allclose(GPTNeoXRotaryEmbedding(config).inv_freq.double().numpy(), expected, rtol=5e-7)
    assert conversion.setting["rotary_emb_base"] == 20000.0  # its code does not see rope_theta beside a scaling, and takes 10000


def test_a_base_that_is_a_constant_of_the_code_takes_no_method(tmp_path):
    shape = {"n_embd": 4096, "n_layer": 2, "n_head": 16, "n_positions": 2048, "rotary_dim": 64}
    model = write_config(tmp_path, model_type="gptj", **shape)
    assert not gnomon.convert(model, "transformers").losses
    assert fields(gnomon.convert(model, "transformers", method="yarn:4")) == ["attention_factor", "frequencies"]
    assert not gnomon.convert(model, "llama.cpp", method="linear:4").losses


def test_a_rule_that_version_4_lacks_is_lost_in_the_compatible_form():
    spec = gnomon.RotarySpec(gnomon.rotary.Proportional(partial_rotary_factor=0.5), theta=10000, head_dim=64)
    assert not gnomon.convert(spec, "transformers").losses
    assert fields(gnomon.convert(spec, "transformers", compatible=True)) == ["frequencies"]


def test_tensors_in_a_gguf_stay_in_force_beside_flags(tmp_path):
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = write_config(tmp_path, rope_theta=5e5, rope_scaling=llama3, max_position_embeddings=131072)
    assert not gnomon.convert(model, "llama.cpp").losses
    (loss,) = gnomon.convert(model, "llama.cpp", method="yarn:2").losses
    assert loss.field == "frequencies"
    assert "llama3" in loss.message
    assert loss.mean_cosine < 0.9


def test_real_models_in_every_dialect():
    """Whatever the reader takes is converted; transformers says it all, and old and new versions alike where layers do not differ."""
    converted = 0
    for path in sorted((pathlib.Path(__file__).parents[1] / "model/data/configs").glob("*.json")):
        model = gnomon.read_model(path)
        main_part = model.groups[0].part if model.groups else ""
        rotating = [group.rotary for group in model.groups if group.rotary is not None and group.part == main_part]
        if any(doubt.level == "error" for doubt in model.doubts) or not rotating or any(rotary.axes > 1 for rotary in rotating):
            continue
        if any(isinstance(rotary.rule, gnomon.rotary.Custom) for rotary in rotating):  # image models with frequencies of their own
            with pytest.raises(gnomon.Error, match="no rule custom"):
                gnomon.convert(model, "transformers")
            continue
        for dialect in DIALECTS:
            conversion = gnomon.convert(model, dialect)
            assert json.loads(conversion.to_json())["equal"] == (not conversion.losses)
            assert all(loss.message for loss in conversion.losses), path
        conversion = gnomon.convert(model, "transformers")
        # All layers of DeepSeek V4 see a window; its own code tells them apart by compression, which is no layer type.
        assert bool(conversion.losses) == (model.type == "deepseek_v4" and len(rotating) > 1), (path, conversion.losses)
        if all(rotary == rotating[0] for rotary in rotating):
            assert not gnomon.convert(model, "transformers", compatible=True).losses or isinstance(
                rotating[0].rule, gnomon.rotary.Proportional
            ), path
        converted += 1
    assert converted > 25


def test_a_path_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "rope_theta": 5e5})
    )
    model = gnomon.read_model(path)
    for source in (path, str(path), path.parent):
        assert gnomon.convert(source, "vllm").to_json() == gnomon.convert(model, "vllm").to_json()
        assert gnomon.golden(source).spec == gnomon.golden(model).spec == model.rotary()
    assert (gnomon.golden(path).source, gnomon.golden(model).source, gnomon.golden(model.rotary()).source) == (str(path), str(path), "")
    with pytest.raises(gnomon.Error, match="no-such-file"):
        gnomon.convert(tmp_path / "no-such-file", "vllm")
    with pytest.raises(gnomon.Error, match="no-such-file"):
        gnomon.golden(tmp_path / "no-such-file")


def test_what_cannot_be_converted_is_refused(tmp_path):
    with pytest.raises(gnomon.Error, match=r"transformers \| transformers-v4"):
        gnomon.convert(GPT_OSS, "tensorrt")
    with pytest.raises(gnomon.Error, match="known: none, linear:FACTOR"):
        gnomon.convert(GPT_OSS, "vllm", method="alibi:2")
    with pytest.raises(gnomon.Error, match="context"):
        gnomon.convert(GPT_OSS, "vllm", context=0)
    custom = gnomon.RotarySpec(gnomon.rotary.Custom(inv_freq=[1.0, 0.3, 0.2, 0.001]), head_dim=8)
    with pytest.raises(gnomon.Error, match="custom"):
        gnomon.convert(custom, "vllm")
    assert not gnomon.convert(custom, "gguf").losses
    huge = gnomon.RotarySpec(gnomon.rotary.Default(), theta=1e300, head_dim=8)
    for dialect in ("gguf", "llama.cpp"):
        with pytest.raises(gnomon.Error, match="float32"):
            gnomon.convert(huge, dialect)
    model = write_config(tmp_path, model_type="mistral")
    with pytest.raises(gnomon.Error, match="theta-missing"):
        gnomon.convert(model, "vllm")
