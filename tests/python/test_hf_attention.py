# SPDX-License-Identifier: Apache-2.0
"""gnomon.hf.enable in tiny random models: the logits of the library's own attention, by ours, in every way a model is run."""

import contextlib
import dataclasses
import functools
import importlib
import itertools
import re
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
MASKS = pytest.importorskip("transformers.masking_utils")

import gnomon  # noqa: E402
import gnomon.hf  # noqa: E402
import gnomon.torch  # noqa: E402
from gnomon import _hf_attention as ours  # noqa: E402

VOCABULARY, TOKENS, PADDED, HEADS = 64, 22, 5, 4
# Weights ten times the usual ones: with the usual ones attention is nearly uniform and blind to positions.
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
GATED = {**COMMON, "intermediate_size": 96, "num_key_value_heads": 2}
BY_LAYER_TYPE = {"head_dim": 16, "sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
N_NAMES = {"vocab_size": VOCABULARY, "n_layer": 2, "n_head": HEADS, "initializer_range": 0.2, "eos_token_id": None, "pad_token_id": 0}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}


@dataclasses.dataclass
class Family:
    name: str  # of its classes
    settings: dict
    config: str = "Config"
    packs: bool = True  # whether the library keeps packed documents apart
    own: str = "eager"  # the library's attention that is compared with
    static: bool = True  # whether the library's own attention works with a static cache


FAMILIES = {
    "llama": Family("Llama", GATED),
    "mistral": Family("Mistral", {**GATED, "sliding_window": 6}),
    "gemma2": Family("Gemma2", {**GATED, **BY_LAYER_TYPE, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0}),
    "gemma3": Family("Gemma3", {**GATED, **BY_LAYER_TYPE, "query_pre_attn_scalar": 16}, config="TextConfig"),
    "qwen2": Family("Qwen2", GATED),
    "gpt_neox": Family("GPTNeoX", {**COMMON, "intermediate_size": 96, "rotary_pct": 0.5}),
    "gptj": Family("GPTJ", {**N_NAMES, "n_embd": 64, "rotary_dim": 8}),
    "phi3": Family(
        "Phi3",
        {
            **GATED,
            "sliding_window": 16,
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 8,
                "long_factor": [1.0 + 0.5 * i for i in range(8)],
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "gpt_oss": Family("GptOss", {**GATED, **BY_LAYER_TYPE, **EXPERTS}, packs=False),
    "cohere": Family("Cohere", {**GATED, "logit_scale": 1.0}),
    "llama4": Family(
        "Llama4",
        {
            **GATED,
            **EXPERTS,
            "head_dim": 16,
            "intermediate_size_mlp": 96,
            "no_rope_layers": [1, 0],  # the first layer rotates, within chunks; the second sees everything
            "attention_chunk_size": 8,
        },
        config="TextConfig",
    ),
    "bloom": Family("Bloom", {**N_NAMES, "hidden_size": 64, "bos_token_id": 1}, packs=False),
    "mpt": Family(
        "Mpt",
        {
            "vocab_size": VOCABULARY,
            "d_model": 64,
            "n_layers": 2,
            "n_heads": HEADS,
            "max_seq_len": 64,
            "initializer_range": 0.2,
        },
        packs=False,
    ),
    "falcon": Family(
        "Falcon",
        {**COMMON, "alibi": True, "new_decoder_architecture": False, "multi_query": False, "parallel_attn": False, "bias": True},
        own="sdpa",  # eager adds its ALiBi twice: in the mask, and beside it
        static=False,
    ),
}
EACH_FAMILY = pytest.mark.parametrize("name", FAMILIES)


def make(name, theta_factor=1.0):
    family = FAMILIES[name]
    torch.manual_seed(5)
    config = getattr(transformers, family.name + family.config)(**family.settings)
    config._attn_implementation = family.own
    for parameters in by_layer_type(getattr(config, "rope_parameters", None) or {}):
        parameters["rope_theta"] *= theta_factor
    model = getattr(transformers, f"{family.name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("sinks"):
                parameter.uniform_(0, 3)
    return model


def by_layer_type(parameters):
    return [parameters] if "rope_theta" in parameters else list(parameters.values())


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small wait for threads longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def models():
    return functools.cache(make)


@pytest.fixture
def enable_off(models, monkeypatch):
    """Ours in a model whose base, or slope, is off by one part in a hundred."""

    @contextlib.contextmanager
    def enabled(name):
        model = models(name, theta_factor=1.01)
        with gnomon.hf.enable(model), monkeypatch.context() as patch, contextlib.ExitStack() as stack:
            if name == "bloom":
                for module in ours.attention_modules(model):
                    patch.setattr(module, "bias_table", gnomon.torch.Bias(gnomon.SlopeBias([0.2525, 0.0625, 0.015625, 0.00390625])))
            elif name == "mpt":
                alibi = model.transformer.build_mpt_alibi_tensor(HEADS, 64) * 1.01
                patch.setattr(model.transformer, "build_mpt_alibi_tensor", lambda *_, **__: alibi)
            elif name == "falcon":
                library = importlib.import_module(type(model).__module__)
                own = library.build_alibi_tensor
                patch.setattr(library, "build_alibi_tensor", lambda *given, **named: own(*given, **named) * 1.01)
            elif name == "gptj":  # which has no theta to change
                spec = gnomon.RotarySpec(gnomon.rotary.Default(), theta=10100.0, head_dim=16, rotary_dim=8)
                stack.enter_context(gnomon.hf.use(model, spec))
            yield model

    return enabled


def ids(batch=2, tokens=TOKENS):
    return torch.randint(2, VOCABULARY, (batch, tokens), generator=torch.Generator().manual_seed(7))


def padding():
    """Row 0 begins with padded tokens."""
    mask = torch.ones(2, TOKENS, dtype=torch.int64)
    mask[0, :PADDED] = 0
    return mask


def plain(model):
    return model(ids(), use_cache=False).logits


def padded(model):
    return model(ids(), attention_mask=padding(), use_cache=False).logits[padding().bool()]


def chunked(model):
    """A prompt in two pieces, the second behind the cache of the first, then a token."""
    cache = transformers.DynamicCache(config=model.config)
    pieces = ids().split([9, TOKENS - 10, 1], 1)
    return torch.cat([model(piece, cache=cache, use_cache=True).logits for piece in pieces], 1)


def generated(model, **settings):
    chosen = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    return torch.stack(model.generate(ids(), attention_mask=padding(), **chosen, **settings).logits)


def static(model):
    return generated(model, cache_implementation="static")


DOCUMENTS = (9, TOKENS - 9)
PACKED = torch.cat([torch.arange(length) for length in DOCUMENTS])[None].expand(2, -1)


def packed(model, **more):
    return model(ids(), position_ids=PACKED, **more).logits


RUNS = {plain: 1, padded: 1, chunked: 3, generated: 6, static: 6}


def difference(got, want):
    return (got - want).abs().max().item()


@torch.no_grad()
@pytest.mark.parametrize(("name", "run"), [(name, run) for name in FAMILIES for run in RUNS if run is not static or FAMILIES[name].static])
def test_same_logits_as_the_library(models, enable_off, name, run):
    model = models(name)
    want = run(model)
    with gnomon.hf.enable(model) as handle:
        got = run(model)
        assert handle.layers == 2
        assert handle.calls == handle.layers * RUNS[run]  # ours did it, in every layer
    assert difference(got, want) < 1e-4
    assert torch.equal(run(model), want)  # and the model is what it was
    with enable_off(name) as off:
        assert difference(run(off), want) > 1e-3


@torch.no_grad()
@EACH_FAMILY
def test_packed_documents(models, enable_off, name):
    """Each document as if it were alone, which the library gives without cache and mask only, and in some families never."""
    model, bounds = models(name), [0, DOCUMENTS[0], TOKENS]
    alone = torch.cat([model(ids()[:, a:b], use_cache=False).logits for a, b in itertools.pairwise(bounds)], 1)
    own = packed(model, use_cache=False)
    assert (difference(own, alone) < 1e-4) == FAMILIES[name].packs
    with gnomon.hf.enable(model) as handle:
        for more in ({"use_cache": False}, {"use_cache": True}, {"attention_mask": torch.ones(2, TOKENS, dtype=torch.int64)}):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert difference(packed(model, **more), alone) < 1e-4, more
            told = [str(warning.message) for warning in caught if "packed documents" in str(warning.message)]
            assert bool(told) == (more != {"use_cache": False} or not FAMILIES[name].packs), more
        assert handle.calls == 3 * handle.layers
    with enable_off(name) as off, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert difference(packed(off, use_cache=False), alone) > 1e-3
    assert difference(packed(model, use_cache=True), alone) > 1e-2  # what the library makes of them behind a cache


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "falcon"])  # whose eager attention is wrong
def test_what_is_watched_is_what_eager_weighs(models, name):
    model, given, seen = models(name), {"attention_mask": padding(), "use_cache": False}, []
    weights = model(ids(), output_attentions=True, **given).attentions

    def watch(_, q, k, log_sum_exp, **options):
        seen.append(gnomon.torch.attention_statistics(q, k, log_sum_exp, **options))

    with gnomon.hf.enable(model, watch=watch):
        model(ids(), **given)
    model(ids(), **given)  # nobody looks any more
    there = padding().bool()[:, None].expand(-1, HEADS, -1)
    for measured, shares in zip(seen, weights, strict=True):
        shares = shares.double() / shares.double().sum(3, keepdim=True)  # what a sink logit takes apart
        entropy = torch.special.entr(shares).sum(3)
        assert difference(torch.tensor(measured.entropy)[there], entropy[there]) < 1e-3


LATENT = {
    **COMMON,
    "num_key_value_heads": HEADS,
    "intermediate_size": 96,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
WIDE = {**COMMON, "intermediate_size": 96}
HEADED = {**GATED, "head_dim": 16}
WINDOWED = {**GATED, "sliding_window": 6, "layer_types": BY_LAYER_TYPE["layer_types"]}
SECTIONED = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
OTHERS = {
    "BertModel": WIDE,
    "CodeGenForCausalLM": {**N_NAMES, "n_embd": 64, "rotary_dim": 8},
    "Cohere2ForCausalLM": {**WINDOWED, "logit_scale": 1.0},
    "DeepseekV2ForCausalLM": LATENT,
    "DeepseekV3ForCausalLM": LATENT,
    "Ernie4_5ForCausalLM": HEADED,
    "EsmModel": {**WIDE, "position_embedding_type": "rotary", "mask_token_id": 3},
    "GPT2LMHeadModel": {**N_NAMES, "n_embd": 64},
    "GemmaForCausalLM": HEADED,
    "GlmForCausalLM": {**HEADED, "partial_rotary_factor": 0.5},
    "ModernBertModel": {**WIDE, "local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2},
    "NemotronForCausalLM": GATED,
    "OPTForCausalLM": {
        **{name: value for name, value in COMMON.items() if name not in ("max_position_embeddings", "initializer_range")},
        "ffn_dim": 96,
        "word_embed_proj_dim": 64,
        "init_std": 0.2,
    },
    "OlmoForCausalLM": GATED,
    "Olmo2ForCausalLM": GATED,
    "Olmo3ForCausalLM": WINDOWED,
    "PersimmonForCausalLM": WIDE,
    "PhiForCausalLM": GATED,
    "PhimoeForCausalLM": {**GATED, "num_local_experts": 2},
    "Qwen2VLForConditionalGeneration": {"text_config": {**GATED, "rope_parameters": SECTIONED}},
    "Qwen3ForCausalLM": HEADED,
    "Qwen3VLForConditionalGeneration": {"text_config": {**HEADED, "rope_parameters": SECTIONED}},
    "RecurrentGemmaForCausalLM": {**GATED, "lru_width": 64, "attention_window_size": 8, "block_types": ["attention", "attention"]},
    "SeedOssForCausalLM": HEADED,
    "SmolLM3ForCausalLM": GATED,
    "StableLmForCausalLM": GATED,
}
TOWERS = {
    "Qwen2VL": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 4},
    "Qwen3VL": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": 64,
        "num_heads": 2,
        "patch_size": 4,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    },
}


def make_other(name):
    family = re.sub("(ForCausalLM|LMHeadModel|ForConditionalGeneration|Model)$", "", name)
    settings = {**OTHERS[name], "vision_config": TOWERS[family]} if family in TOWERS else OTHERS[name]
    torch.manual_seed(5)
    config = getattr(transformers, f"{family}Config")(**settings)
    config._attn_implementation = "eager"
    return getattr(transformers, name)(config).eval()


@torch.no_grad()
@pytest.mark.parametrize("name", OTHERS)
def test_other_families(name):
    model = make_other(name)
    keep = padding().bool()
    want = [model(ids())[0], model(ids(), attention_mask=padding())[0][keep]]
    with gnomon.hf.enable(model) as handle:
        got = [model(ids())[0], model(ids(), attention_mask=padding())[0][keep]]
        assert handle.calls == 4  # two layers, in each of the two forwards
    assert max(map(difference, got, want)) < 1e-4


@torch.no_grad()
@pytest.mark.parametrize("name", TOWERS)
def test_towers_for_images(name):
    tower = make_other(f"{name}ForConditionalGeneration").model.visual
    patches = torch.randn(32, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(1))
    grid = torch.tensor([[1, 4, 4], [1, 4, 4]])  # two images, each of which sees itself only
    want = tower(patches, grid_thw=grid)
    with gnomon.hf.enable(tower) as handle:
        got = tower(patches, grid_thw=grid)
        assert handle.calls == 2 * handle.layers
    assert difference(got[0], want[0]) < 1e-4


@torch.no_grad()
def test_whisper_and_vit():
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    lengths = {"max_source_positions": 20, "max_target_positions": 32, "num_mel_bins": 8}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "vocab_size": VOCABULARY}
    config = transformers.WhisperConfig(d_model=64, encoder_ffn_dim=64, decoder_ffn_dim=64, init_std=0.2, **sizes, **lengths, **tokens)
    sound, picture = torch.randn(2, 8, 40), torch.randn(2, 3, 16, 16)
    image = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4
    )
    for model, given, layers in (
        (transformers.WhisperForConditionalGeneration(config), {"input_features": sound, "decoder_input_ids": ids(2, 9)}, 3),
        (transformers.ViTModel(image), {"pixel_values": picture}, 2),
    ):
        model.eval().set_attn_implementation("eager")
        want = model(**given)[0]
        with gnomon.hf.enable(model) as handle:
            assert difference(model(**given)[0], want) < 1e-4
            assert handle.calls == handle.layers == layers


@pytest.fixture(scope="module")
def t5():
    torch.manual_seed(5)
    settings = {"vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": HEADS}
    # The longest distance of its own bucket is within the text, so that all buckets are in use.
    config = transformers.T5Config(
        **settings, relative_attention_num_buckets=8, relative_attention_max_distance=16, decoder_start_token_id=0, eos_token_id=None
    )
    config._attn_implementation = "eager"
    model = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(3.0 if "relative_attention_bias" in name else 1.0)
    return model


def t5_plain(model, mask=None):
    return model(ids(), attention_mask=mask, decoder_input_ids=ids(2, 9), use_cache=False).logits


def t5_chunked(model):
    """The decoder in pieces behind its cache."""
    told = {"encoder_outputs": model.encoder(ids(), attention_mask=padding()), "attention_mask": padding()}
    cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
    pieces = ids(2, 14).split([6, 7, 1], 1)
    return torch.cat([model(decoder_input_ids=piece, cache=cache, use_cache=True, **told).logits for piece in pieces], 1)


T5_RUNS = {
    "plain": (t5_plain, 1),
    "padded": (lambda model: t5_plain(model, padding()), 1),
    "chunked": (t5_chunked, 3),
    "generated": (generated, 6),
    "static": (static, 6),
}


@torch.no_grad()
@pytest.mark.parametrize("run", T5_RUNS)
def test_t5(t5, run):
    call, forwards = T5_RUNS[run]
    want = call(t5)
    with gnomon.hf.enable(t5) as handle:
        got = call(t5)
        assert handle.layers == 6  # the encoder's two, and two of each kind in the decoder
        assert handle.calls == 2 + 4 * forwards
        table = t5.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        with restored(table):
            table.mul_(1.01)
            assert difference(call(t5), want) > 1e-4
    assert difference(got, want) < 1e-4
    assert torch.equal(call(t5), want)


@torch.no_grad()
def test_mt5():
    config = transformers.MT5Config(vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=96, num_layers=1, num_heads=HEADS)
    model = transformers.MT5ForConditionalGeneration(config).eval()
    model.set_attn_implementation("eager")
    want = t5_plain(model, padding())
    with gnomon.hf.enable(model) as handle:
        assert difference(t5_plain(model, padding()), want) < 1e-4
        assert handle.calls == handle.layers == 3


@contextlib.contextmanager
def restored(tensor):
    kept = tensor.clone()
    yield
    tensor.copy_(kept)


@torch.no_grad()
def test_the_bias_of_t5_is_never_dense(t5):
    with gnomon.hf.enable(t5):
        module = t5.decoder.block[0].layer[0].SelfAttention
        described = module.compute_bias(1 << 20, 1 << 20)
        assert described.untyped_storage().nbytes() == 1
        assert described.content.held[0].values.shape == (HEADS, 33)


@torch.no_grad()
def test_falcons_alibi_of_the_paper():
    """Steps of bfloat16 come with length: up to 256 positions they are exact for slopes that are powers of two."""
    model = make("falcon")
    tokens = ids(1, 200)
    with gnomon.hf.enable(model):
        as_trained = model(tokens).logits
    with gnomon.hf.enable(model, falcon_as_trained=False):
        exact = model(tokens).logits
    assert difference(exact, as_trained) < 1e-4
    tokens = ids(1, 600)
    with gnomon.hf.enable(model):
        as_trained = model(tokens).logits
    assert difference(as_trained, model(tokens).logits) < 1e-4
    with gnomon.hf.enable(model, falcon_as_trained=False):
        assert difference(model(tokens).logits, as_trained) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "mistral", "bloom", "falcon"])
def test_padding_with_a_hole(models, name):
    mask = padding()
    mask[1, 7:10] = 0
    model = models(name)
    want = model(ids(), attention_mask=mask).logits
    with gnomon.hf.enable(model):
        got = model(ids(), attention_mask=mask).logits
    assert difference(got[mask.bool()], want[mask.bool()]) < 1e-4


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_of_the_user(models, kind):
    mask = torch.rand(2, 1, TOKENS, TOKENS, generator=torch.Generator().manual_seed(3)) < 0.5
    mask |= torch.eye(TOKENS, dtype=torch.bool)
    if kind == "float":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    model = models("llama")
    additive = mask if kind == "float" else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    want = model(ids(), attention_mask=additive).logits
    with gnomon.hf.enable(model):
        assert difference(model(ids(), attention_mask=mask).logits, want) < 1e-4


@pytest.mark.parametrize("use_vmap", [False, True])
def test_mask_functions_that_are_not_known_are_evaluated_in_rows(use_vmap, monkeypatch):
    monkeypatch.setattr(ours, "ROWS", 4)
    chosen = torch.rand(2, 20, 20, generator=torch.Generator().manual_seed(2)) < 0.5

    def function(b, h, q, k):
        return chosen[b, q, k]

    padding_mask = torch.ones(2, 20, dtype=torch.bool)
    padding_mask[0, :3] = False
    described = ours.describe_mask(2, 11, 20, 9, 0, function, padding_mask, use_vmap=use_vmap)
    q, k, v = torch.randn(2, 4, 11, 8), torch.randn(2, 2, 20, 8), torch.randn(2, 2, 20, 8)
    bias = torch.randn(1, 4, 11, 20)
    seen = (chosen[:, 9:] & padding_mask[:, None])[:, None]
    for given in (None, bias):
        got, _ = ours.attend(torch.nn.Identity(), q, k, v, described, 0.3, position_bias=given)
        scores = (q @ k.repeat_interleave(2, 1).mT) * 0.3 + (0 if given is None else given)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()  # a row that sees nothing gives zeros
        assert difference(got, (weights @ v.repeat_interleave(2, 1)).transpose(1, 2)) < 1e-5


@pytest.mark.parametrize(
    "function",
    [
        MASKS.causal_mask_function,
        MASKS.bidirectional_mask_function,
        MASKS.sliding_window_causal_mask_function(5),
        MASKS.sliding_window_bidirectional_mask_function(4),
        MASKS.chunked_causal_mask_function(6, torch.tensor([0, 3])),
    ],
    ids=["causal", "bidirectional", "window", "bidirectional window", "chunk"],
)
@pytest.mark.parametrize(("q_offset", "kv_offset"), [(0, 0), (9, 0), (9, 4)])
def test_mask_functions_of_the_library_become_intervals(function, q_offset, kv_offset):
    """Against the library's own tensor, with padding, behind caches that kept all keys and caches that dropped some."""
    queries, keys = 11, q_offset + 11 - kv_offset
    padding_mask = torch.ones(2, q_offset + 11, dtype=torch.bool)
    padding_mask[1, :3] = False
    given = {"batch_size": 2, "q_length": queries, "kv_length": keys, "q_offset": q_offset, "kv_offset": kv_offset}
    given |= {"mask_function": function, "attention_mask": padding_mask}
    want = MASKS.sdpa_mask(**given, allow_is_causal_skip=False)[:, 0]
    content = ours.describe_mask(**given).content
    assert content.function is None
    assert content.seen is None
    intervals, slots = content.mask.held, torch.arange(keys)
    begin, end = torch.tensor(intervals.begin)[..., None], torch.tensor(intervals.end)[..., None]
    assert torch.equal(((slots >= begin) & (slots < end)).expand(want.shape), want)


def test_the_description_takes_no_memory_and_is_nothing_else():
    described = ours.describe_mask(3, 1 << 16, 1 << 16)
    assert described.shape == (3, 1, 1 << 16, 1 << 16)
    assert described.untyped_storage().nbytes() == 1
    assert described.contiguous() is described
    assert described.to(torch.float32) is described
    with pytest.raises(TypeError, match="only describes a mask"):
        described.sum()


def test_a_live_offset_is_copied():
    offset = torch.tensor(4)
    content = ours.describe_mask(1, 2, 6, offset).content
    offset += 2
    assert content.mask.held.diagonal.tolist() == [[4, 5]]


@torch.no_grad()
def test_the_name_alone():
    """attn_implementation="gnomon", without enable."""
    model = make("llama")
    want = padded(model)
    model.set_attn_implementation("gnomon")
    assert difference(padded(model), want) < 1e-4
    assert sum(module.gnomon_calls for module in ours.attention_modules(model)) == 2


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_enabled_twice(models, name):
    model = models(name)
    want, kind = plain(model), type(ours.attention_modules(model)[0])
    with gnomon.hf.enable(model) as first, gnomon.hf.enable(model) as second:
        assert difference(plain(model), want) < 1e-4
        assert first.calls == second.calls == 2
    assert torch.equal(plain(model), want)
    assert type(ours.attention_modules(model)[0]) is kind


@torch.no_grad()
def test_compiled(models):
    """The graph breaks where a mask is made and where attention is done."""
    model = models("llama")
    want = padded(model)
    with gnomon.hf.enable(model) as handle:
        assert difference(padded(torch.compile(model, backend="eager")), want) < 1e-4
        assert handle.calls == 2


def test_a_gradient_is_refused_when_it_is_asked_for(models):
    with gnomon.hf.enable(models("llama")):
        logits = plain(models("llama"))
        with pytest.raises(RuntimeError, match="no gradient of attention yet"):
            logits.sum().backward()


REFUSED = {
    "DebertaModel": ("DebertaConfig", {}, "DisentangledSelfAttention"),
    "XLNetModel": ("XLNetConfig", {"d_model": 32, "n_head": 2, "d_inner": 32, "n_layer": 1}, "XLNetRelativeAttention"),
    "SwinModel": (
        "SwinConfig",
        {"embed_dim": 32, "depths": [1], "num_heads": [2], "image_size": 32, "window_size": 4},
        "SwinSelfAttention|SwinAttention",
    ),
    "BeitModel": ("BeitConfig", {"image_size": 32, "use_relative_position_bias": True}, "Beit"),
    "RoFormerModel": ("RoFormerConfig", {}, "RoFormerSelfAttention"),
}
SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_attention_is_refused_by_name(name):
    config, settings, named = REFUSED[name]
    model = getattr(transformers, name)(getattr(transformers, config)(**(settings or SMALL)))
    with pytest.raises(ValueError, match=f"the attention of .*({named}).* is not known"):
        gnomon.hf.enable(model)


def test_a_model_without_attention_is_refused():
    with pytest.raises(ValueError, match="expected attention that is understood, Linear has none"):
        gnomon.hf.enable(torch.nn.Linear(2, 2))


def test_what_would_be_ignored_is_refused(models):
    module = ours.attention_modules(models("llama"))[0]
    q = torch.randn(1, 4, 3, 8)
    with pytest.raises(ValueError, match="no dropout"):
        ours.attend(module, q, q, q, None, dropout=0.1)
    with pytest.raises(ValueError, match="LlamaAttention gives relative_embedding"):
        ours.attend(module, q, q, q, None, relative_embedding=q)
