# SPDX-License-Identifier: Apache-2.0
"""gnomon.hf in tiny random models of each convention: the same logits through our code, and the model as it was afterwards."""

import copy
import dataclasses
import itertools

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import gnomon  # noqa: E402
import gnomon.hf  # noqa: E402
from gnomon import rotary  # noqa: E402

VOCABULARY, HEAD_DIM, TOKENS = 64, 16, 48
# Weights ten times the usual ones: with the usual ones attention is nearly uniform and blind to positions.
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
}
GATED = {**COMMON, "intermediate_size": 96, "num_key_value_heads": 2}
BY_LAYER_TYPE = {"head_dim": HEAD_DIM, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
LATENT = {  # the rotary part of a head is a slice of its own
    **COMMON,
    "intermediate_size": 96,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": HEAD_DIM,
    "qk_rope_head_dim": 8,
    "v_head_dim": HEAD_DIM,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@dataclasses.dataclass
class Family:
    model: str
    config: str
    settings: dict
    theta: float | dict
    rotary_dim: int = HEAD_DIM
    readable: bool = True  # whether read_model knows the family
    sections: tuple = ()
    section_order: str = "chunked"

    def make(self):
        torch.manual_seed(5)
        config = getattr(transformers, self.config)(**self.settings)
        return getattr(transformers, self.model)(config).eval()

    def spec(self, rule=None, scale=1.0):
        """The model's own spec, its bases multiplied by `scale`; a dict where it rotates by layer type."""
        if isinstance(self.theta, dict):
            return {kind: self._spec(rule, theta * scale) for kind, theta in self.theta.items()}
        return self._spec(rule, self.theta * scale)

    def _spec(self, rule, theta):
        return gnomon.RotarySpec(
            rule or rotary.Default(),
            theta=theta,
            head_dim=HEAD_DIM,
            rotary_dim=self.rotary_dim,
            sections=list(self.sections),
            section_order=self.section_order,
        )


FAMILIES = {
    "llama": Family("LlamaForCausalLM", "LlamaConfig", GATED, 10000.0),
    "qwen3": Family("Qwen3ForCausalLM", "Qwen3Config", {**GATED, "head_dim": HEAD_DIM}, 10000.0),
    "gemma3": Family(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {**GATED, **BY_LAYER_TYPE, "query_pre_attn_scalar": HEAD_DIM},
        {"sliding_attention": 10000.0, "full_attention": 1000000.0},
    ),
    "gpt_neox": Family(
        "GPTNeoXForCausalLM", "GPTNeoXConfig", {**COMMON, "intermediate_size": 96, "rotary_pct": 0.25}, 10000.0, rotary_dim=4
    ),
    "gptj": Family(
        "GPTJForCausalLM",
        "GPTJConfig",
        {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "initializer_range": 0.2},
        10000.0,
        rotary_dim=8,
    ),
    "cohere": Family("CohereForCausalLM", "CohereConfig", {**GATED, "logit_scale": 1.0}, 500000.0, readable=False),
    "gpt_oss": Family(
        "GptOssForCausalLM",
        "GptOssConfig",
        {
            **GATED,
            **BY_LAYER_TYPE,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
        },
        150000.0,
        readable=False,
    ),
    "olmo2": Family("Olmo2ForCausalLM", "Olmo2Config", GATED, 10000.0, readable=False),
    "llama4": Family(
        "Llama4ForCausalLM",
        "Llama4TextConfig",
        {
            **GATED,
            "head_dim": HEAD_DIM,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 96,
            "no_rope_layers": [1, 0],  # the first layer rotates, within chunks; the second does not, and sees everything
            "attention_chunk_size": 16,
        },
        500000.0,
        readable=False,
    ),
    "deepseek_v2": Family("DeepseekV2ForCausalLM", "DeepseekV2Config", LATENT, 10000.0, rotary_dim=8, readable=False),
    "deepseek_v3": Family("DeepseekV3ForCausalLM", "DeepseekV3Config", LATENT, 10000.0, rotary_dim=8, readable=False),
    "glm": Family(
        "GlmForCausalLM",
        "GlmConfig",
        {**GATED, "head_dim": HEAD_DIM, "partial_rotary_factor": 0.5, "pad_token_id": 0},
        10000.0,
        rotary_dim=8,
        readable=False,
    ),
    "gemma3n": Family(
        "Gemma3nForCausalLM",
        "Gemma3nTextConfig",
        {
            **GATED,
            **BY_LAYER_TYPE,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 0,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.0, 0.0],
        },
        {"sliding_attention": 10000.0, "full_attention": 1000000.0},
        readable=False,
    ),
    "qwen2_vl": Family(
        "Qwen2VLForConditionalGeneration",
        "Qwen2VLConfig",
        {
            "text_config": {
                **GATED,
                "bos_token_id": None,
                "eos_token_id": None,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
            },
            "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 4},
        },
        10000.0,
        sections=(2, 3, 3),
    ),
    "qwen3_vl": Family(
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLConfig",
        {
            "text_config": {
                **GATED,
                "head_dim": HEAD_DIM,
                "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 32,
                "intermediate_size": 48,
                "out_hidden_size": 64,
                "num_heads": 2,
                "patch_size": 4,
                "num_position_embeddings": 16,
                "deepstack_visual_indexes": [0],
            },
        },
        10000.0,
        sections=(4, 2, 2),
        section_order="interleaved",
    ),
}
READABLE = [name for name, family in FAMILIES.items() if family.readable]


@pytest.fixture(scope="module")
def models():
    """One model of each family; every test leaves them as they were."""
    made = {}
    yield lambda name: made.setdefault(name, FAMILIES[name].make())
    for name, model in made.items():
        assert not isinstance(rotary_of(model), gnomon.hf.RotaryModule), name


@pytest.fixture
def llama(models):
    return models("llama")


def rotary_of(model):
    return next(module for path, module in model.named_modules() if path.endswith("rotary_emb"))


def ids(batch=2, tokens=TOKENS):
    return torch.randint(0, VOCABULARY, (batch, tokens), generator=torch.Generator().manual_seed(7))


@torch.no_grad()
def logits(model, **more):
    return model(ids(), **more).logits.float()


@pytest.mark.parametrize("numerics", ["exact", "hf"])
@pytest.mark.parametrize("name", FAMILIES)
def test_same_logits_through_our_code(models, name, numerics):
    model, family = models(name), FAMILIES[name]
    own, want = rotary_of(model), logits(model)
    with gnomon.hf.use(model, family.spec(), numerics=numerics) as handle:
        got = logits(model)
        assert handle.calls == (len(family.theta) if isinstance(family.theta, dict) else 1)
        assert handle.specs == family.spec()
    assert (got - want).abs().max() < 1e-4
    assert rotary_of(model) is own
    assert torch.equal(logits(model), want)
    with gnomon.hf.use(model, family.spec(scale=1.01)):
        assert (logits(model) - want).abs().max() > 1e-3  # so the check above sees a base that is off by a hundredth


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_returned_has_the_form_of_the_models_own(models, name):
    module, family = copy.deepcopy(rotary_of(models(name))), FAMILIES[name]
    positions = torch.tensor([[0, 1, 2, 3], [100, 3, 4000, 7]]).clamp(max=2000 if name == "gptj" else 4000)
    ours = gnomon.hf.RotaryModule
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.zeros(2, 4, 64, dtype=dtype)
        with gnomon.hf.use(models(name), family.spec(), numerics="hf"):
            assert isinstance(rotary_of(models(name)), ours)
            for kind in family.theta if isinstance(family.theta, dict) else [None]:
                named = {} if kind is None else {"layer_type": kind}
                got, want = rotary_of(models(name))(x, positions, **named), module(x, position_ids=positions, **named)
                got, want = (((value,) if isinstance(value, torch.Tensor) else value) for value in (got, want))
                for a, b in zip(got, want, strict=True):
                    assert (a.dtype, a.shape) == (b.dtype, b.shape)
                    # bfloat16: a neighbour of float32 may round to the next of 256 steps
                    assert torch.allclose(a, b, rtol=0, atol=1e-2 if a.dtype == torch.bfloat16 else 1e-3 if name == "gptj" else 4e-7)


@pytest.mark.parametrize("name", READABLE)
def test_a_rule_alone_takes_theta_and_widths_of_the_model(models, name):
    model, family = models(name), FAMILIES[name]
    rule = rotary.Linear(factor=4)
    with gnomon.hf.use(model, rule) as handle:
        specs = handle.specs
    if isinstance(family.theta, dict):
        assert specs["full_attention"].rule == rule
        assert specs["sliding_attention"].rule == rotary.Default()
        assert {kind: spec.theta for kind, spec in specs.items()} == family.theta
        return
    assert specs.rule == rule
    assert (specs.theta, specs.head_dim, specs.rotary_dim) == (family.theta, HEAD_DIM, family.rotary_dim)


@pytest.mark.parametrize("name", READABLE)
def test_the_models_own_spec(models, name):
    model, family = models(name), FAMILIES[name]
    specs = gnomon.hf.spec_of(model)
    assert isinstance(specs, dict) == isinstance(family.theta, dict)
    with gnomon.hf.use(model, specs) as handle:
        got = logits(model)
    assert handle.calls > 0
    assert (got - logits(model)).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        (YARN, rotary.Yarn(factor=4.0, original_max_position_embeddings=64)),
        ({"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, rotary.Linear(factor=4.0)),
        (
            {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            rotary.Llama3(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
        ),
    ],
)
def test_a_rule_of_ours_does_what_the_same_rule_of_transformers_does(llama, parameters, rule):
    family = dataclasses.replace(FAMILIES["llama"], settings={**GATED, "rope_parameters": parameters})
    scaled = family.make()
    want = logits(scaled)
    with gnomon.hf.use(llama, rule):
        assert (logits(llama) - want).abs().max() < 1e-4
    assert (logits(llama) - want).abs().max() > 1e-2
    assert gnomon.hf.spec_of(scaled).rule == rule


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3"])
def test_the_magnitude_of_deepseek(name):
    """Part of yarn's magnitude is in cos and sin here, the rest in the model's own scale of scores."""
    parameters = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}
    scaled = dataclasses.replace(FAMILIES[name], settings={**LATENT, "rope_parameters": parameters})
    rule = rotary.Yarn(factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=0.5)
    model, spec = scaled.make(), scaled.spec(rule)
    assert spec.attention_factor > 1.01
    want = logits(model)
    with gnomon.hf.use(model, spec):
        assert (logits(model) - want).abs().max() < 1e-4
    without = gnomon.RotarySpec(rule, theta=10000.0, head_dim=HEAD_DIM, rotary_dim=8, attention_factor=1.0)
    with gnomon.hf.use(model, without):
        assert (logits(model) - want).abs().max() > 1e-3


# Qwen2-VL takes its sections in runs, Qwen3-VL lets the axes take turns; the configs differ in nothing that would say so.
AXIS_OF_PAIR = {"qwen2_vl": (0, 0, 1, 1, 1, 2, 2, 2), "qwen3_vl": (0, 1, 2, 0, 1, 2, 0, 0)}


def text_and_image(model):
    """The model's own position ids (3,B,T) for an image of 4 × 6 merged patches between words, another place in each row."""
    kinds = torch.zeros(2, TOKENS, dtype=torch.int64)
    kinds[0, 5:29], kinds[1, 17:41] = 1, 1
    positions, _ = model.model.get_rope_index(ids(), kinds, torch.tensor([[1, 8, 12], [1, 8, 12]]))
    assert positions.shape == (3, 2, TOKENS)
    assert not torch.equal(positions[0], positions[1])
    return positions


@pytest.mark.parametrize("name", AXIS_OF_PAIR)
def test_positions_with_three_axes(models, name):
    model, family = models(name), FAMILIES[name]
    own, positions = rotary_of(model), text_and_image(model)
    want = logits(model, position_ids=positions)
    with gnomon.hf.use(model, family.spec()) as handle:
        assert gnomon.frequencies(handle.specs).axis.tolist() == list(AXIS_OF_PAIR[name])
        got = logits(model, position_ids=positions)
        assert handle.calls == 1
        one_axis = logits(model, position_ids=positions[:1].expand(3, -1, -1))
    assert (got - want).abs().max() < 1e-4
    assert (one_axis - want).abs().max() > 1e-2  # an image read as one row of text
    assert rotary_of(model) is own
    assert torch.equal(logits(model, position_ids=positions), want)
    with gnomon.hf.use(model, family.spec(scale=1.01)):
        assert (logits(model, position_ids=positions) - want).abs().max() > 1e-3
    other_order = "chunked" if family.section_order == "interleaved" else "interleaved"
    swapped = dataclasses.replace(family, section_order=other_order).spec()
    with gnomon.hf.use(model, family.spec()):
        rotary_of(model).specs = {None: swapped}
        rotary_of(model)._made.clear()
        assert (logits(model, position_ids=positions) - want).abs().max() > 1e-2
    with pytest.raises(ValueError, match="rule: expected pairs that follow the axes"):
        gnomon.hf.use(model, swapped)
    with gnomon.hf.use(model, dataclasses.replace(family, sections=(), section_order="chunked").spec()) as handle:
        assert handle.specs == family.spec()  # the model's own sections


@pytest.mark.parametrize("name", AXIS_OF_PAIR)
def test_merged_sections_are_those_of_the_models_own_module(models, name):
    module = copy.deepcopy(rotary_of(models(name)))
    positions = torch.randint(0, 4000, (3, 2, 5), generator=torch.Generator().manual_seed(7))
    for dtype, bound in ((torch.float32, 4e-7), (torch.bfloat16, 1e-2)):
        x = torch.zeros(2, 5, 64, dtype=dtype)
        with gnomon.hf.use(models(name), FAMILIES[name].spec(), numerics="hf"):
            for ids in (positions, positions[:1], positions[0]):
                for got, want in zip(rotary_of(models(name))(x, ids), module(x, ids), strict=True):
                    assert (got.dtype, got.shape) == (want.dtype, want.shape)
                    assert torch.allclose(got, want, rtol=0, atol=bound)
            for refused in (positions[:2], positions[None], positions[0, 0]):
                with pytest.raises(ValueError, match=r"position_ids: expected \(B,T\) or \(3,B,T\), got"):
                    rotary_of(models(name))(x, refused)


def test_position_ids_with_axes_the_model_does_not_have(llama):
    with gnomon.hf.use(llama, rotary.Default()), pytest.raises(ValueError, match=r"position_ids: expected \(B,T\), got \(3, 2, 5\)"):
        rotary_of(llama)(torch.zeros(2, 5, 64), torch.zeros(3, 2, 5, dtype=torch.int64))


def test_sections_in_a_model_of_one_axis_are_refused(llama):
    with pytest.raises(
        ValueError, match=r"rule: expected pairs that follow the axes \[0\], as in this model, got \[0, 0, 1, 1, 1, 2, 2, 2\]"
    ):
        gnomon.hf.use(llama, FAMILIES["qwen2_vl"].spec())


def test_an_unknown_order_of_sections_is_refused_by_name():
    """Ernie's pairs follow height and width in turn and then time: neither order."""
    from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import Ernie4_5_VLMoeTextRotaryEmbedding

    parameters = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}
    config = transformers.Ernie4_5_VLMoeTextConfig(hidden_size=64, num_attention_heads=4, rope_parameters=parameters)
    model = torch.nn.Module()
    model.rotary_emb = Ernie4_5_VLMoeTextRotaryEmbedding(config)
    with pytest.raises(ValueError, match="rotary module Ernie4_5_VLMoeTextRotaryEmbedding: what it returns is not a known form"):
        gnomon.hf.use(model, FAMILIES["llama"].spec())


def test_decoding_with_a_cache_agrees(llama):
    with torch.no_grad(), gnomon.hf.use(llama, FAMILIES["llama"].spec()) as handle:
        whole = llama(ids()).logits
        first = llama(ids()[:, :-3], use_cache=True)
        rest = llama(ids()[:, -3:], cache=first.past_key_values).logits
    assert handle.calls == 3
    assert (whole[:, -3:] - rest).abs().max() < 1e-4


def test_far_positions_agree_in_hf_numerics_only(llama):
    """At position 1,000,000 transformers' float32 angle is off by milliradians; `hf` repeats it, `exact` does not."""
    positions = torch.arange(1000000, 1000000 + TOKENS)[None]
    x = torch.zeros(1, TOKENS, 64)
    want = rotary_of(llama)(x, positions)[0]
    for numerics, apart in (("hf", False), ("exact", True)):
        with gnomon.hf.use(llama, FAMILIES["llama"].spec(), numerics=numerics):
            assert ((rotary_of(llama)(x, positions)[0] - want).abs().max().item() > 1e-3) == apart


def test_a_plain_call_and_its_undo(llama):
    own, want = rotary_of(llama), logits(llama)
    outer = gnomon.hf.use(llama, rotary.Linear(factor=2))
    inner = gnomon.hf.use(llama, rotary.Linear(factor=4))
    with pytest.raises(RuntimeError, match="another module was put in since"):
        outer.undo()
    inner.undo()
    assert outer.calls == 0
    logits(llama)
    assert outer.calls == 1
    outer.undo()
    outer.undo()
    assert rotary_of(llama) is own
    assert torch.equal(logits(llama), want)


TRAINED = 32
SHORT_FACTOR, LONG_FACTOR = [1.0 + 0.25 * i for i in range(8)], [2.0 + 1.5 * i for i in range(8)]


def length_dependent(name):
    """A fresh model whose frequencies depend on the length of the sequence: its modules remember."""
    if name == "dynamic":
        parameters = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
        settings = {**GATED, "max_position_embeddings": TRAINED, "rope_parameters": parameters}
        return dataclasses.replace(FAMILIES["llama"], settings=settings).make()
    parameters = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": SHORT_FACTOR, "long_factor": LONG_FACTOR}
    settings = {
        **GATED,
        "pad_token_id": 0,
        "max_position_embeddings": 4 * TRAINED,
        "original_max_position_embeddings": TRAINED,
        "rope_parameters": parameters,
    }
    return Family("Phi3ForCausalLM", "Phi3Config", settings, 10000.0).make()


LENGTH_DEPENDENT = {
    "dynamic": rotary.Dynamic(factor=4.0, max_position_embeddings=TRAINED),
    "longrope": rotary.Longrope(short_factor=SHORT_FACTOR, long_factor=LONG_FACTOR, original_max_position_embeddings=TRAINED, factor=4.0),
}


@torch.no_grad()
def logits_of(model, tokens, **more):
    return model(ids(tokens=tokens), **more).logits.float()


@pytest.mark.parametrize("numerics", ["exact", "hf"])
@pytest.mark.parametrize("name", LENGTH_DEPENDENT)
def test_rules_that_depend_on_the_length(name, numerics):
    """Below, at and beyond the trained length, in one module of ours: longer, shorter and longer again."""
    ours = length_dependent(name)
    spec = gnomon.hf.spec_of(ours)
    assert spec.rule == LENGTH_DEPENDENT[name]
    wanted = {tokens: logits_of(length_dependent(name), tokens) for tokens in (20, TRAINED, TRAINED + 1, 48, 60)}
    with gnomon.hf.use(ours, spec, numerics=numerics) as handle:
        for tokens in (20, 60, 48, TRAINED, TRAINED + 1, 20):
            assert (logits_of(ours, tokens) - wanted[tokens]).abs().max() < 1e-4, tokens
        assert handle.calls == 6
    # Had the length been fixed to the trained one, or to the longest, the logits would be others.
    for tokens, fixed_at in ((60, TRAINED), (20, 60)):
        fixed = gnomon.frequencies(spec, length=fixed_at).inv_freq
        custom = gnomon.RotarySpec(
            rotary.Custom(inv_freq=fixed.tolist()), theta=0, head_dim=HEAD_DIM, attention_factor=spec.attention_factor
        )
        with gnomon.hf.use(ours, custom):
            assert (logits_of(ours, tokens) - wanted[tokens]).abs().max() > 1e-3


@pytest.mark.parametrize("name", LENGTH_DEPENDENT)
def test_cached_keys_keep_their_numbers(name):
    """Decoding over the trained length, as transformers does it: the list or base changes, keys in the cache do not."""

    @torch.no_grad()
    def decoded(model):
        cache, made = None, []
        for tokens in (ids()[:, :30], *ids()[:, 30:36].split(1, dim=1)):
            out = model(tokens, cache=cache, use_cache=True)
            cache = out.cache if hasattr(out, "cache") else out.past_key_values
            made.append(out.logits[:, -1])
        return torch.stack(made)

    want, ours = decoded(length_dependent(name)), length_dependent(name)
    with gnomon.hf.use(ours, gnomon.hf.spec_of(ours)) as handle:
        assert (decoded(ours) - want).abs().max() < 1e-4
        assert handle.calls == 7
        assert (logits_of(ours, 36)[:, -1] - want[-1]).abs().max() > 1e-3  # all keys with the new numbers


def test_frequencies_are_made_once_for_each_outcome(llama):
    for rule, lengths, makes in (
        (LENGTH_DEPENDENT["longrope"], (1, 20, TRAINED, TRAINED + 1, 60, 20), 3),
        (LENGTH_DEPENDENT["dynamic"], (1, 20, TRAINED, TRAINED + 1, 60, 20), 4),
        (rotary.Default(), (1, 20, 60), 1),
    ):
        with gnomon.hf.use(llama, rule):
            made = [rotary_of(llama).frequencies(None, length) for length in lengths]
        assert 1 + sum(a is not b for a, b in itertools.pairwise(made)) == makes


def test_xpos_is_refused_when_it_is_put_in(llama):
    own = rotary_of(llama)
    with pytest.raises(gnomon.Error, match="xpos"):
        gnomon.hf.use(llama, rotary.Xpos())
    assert rotary_of(llama) is own


def test_looking_at_a_dynamic_module_does_not_change_it():
    """Its frequencies grow with the sequence, and a short call, as the probe is one, would set them back."""
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = dataclasses.replace(FAMILIES["llama"], settings={**GATED, "max_position_embeddings": 32, "rope_parameters": dynamic}).make()
    own = rotary_of(model)
    start = own.inv_freq
    logits(model)
    grown = own.inv_freq
    with gnomon.hf.use(model, FAMILIES["llama"].spec()):
        logits(model)
    assert own.inv_freq is grown
    assert not torch.equal(grown, start)


def test_the_model_is_restored_after_an_error(llama):
    own = rotary_of(llama)
    with pytest.raises(ZeroDivisionError), gnomon.hf.use(llama, rotary.Linear(factor=2)):
        raise ZeroDivisionError
    assert rotary_of(llama) is own


def test_a_cast_of_the_model_cannot_damage_our_frequencies():
    """Cast to bfloat16, transformers' module goes on with frequencies that have 8 bits; ours does not."""
    model = FAMILIES["llama"].make()
    x, positions = torch.zeros(1, 3, 64), torch.tensor([[1, 100, 1000]])
    want = rotary_of(model)(x, positions)[0]
    with gnomon.hf.use(model, FAMILIES["llama"].spec(), numerics="hf"):
        model.to(torch.bfloat16)
        assert [buffer for buffer in rotary_of(model).buffers()] == []
        assert torch.allclose(rotary_of(model)(x, positions)[0], want, rtol=0, atol=2e-7)
    assert rotary_of(model.to(torch.bfloat16)) is not None
    assert not torch.allclose(rotary_of(model)(x, positions)[0], want, rtol=0, atol=1e-1)


def test_a_copied_model_keeps_the_rule(llama):
    with gnomon.hf.use(llama, rotary.Linear(factor=2)) as handle:
        want, copied = logits(llama), copy.deepcopy(llama)
    assert torch.equal(logits(copied), want)
    assert handle.calls == 1


def test_a_compiled_model_calls_us(llama):
    torch.compiler.reset()
    with gnomon.hf.use(llama, rotary.Linear(factor=2)) as handle:
        want = logits(llama)
        got = logits(torch.compile(llama, backend="eager"))
        assert handle.calls == 2
    assert torch.allclose(got, want, atol=1e-5)
    torch.compiler.reset()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int16])
def test_position_ids_are_never_cast(llama, dtype):
    """T02."""
    with gnomon.hf.use(llama, rotary.Default()), pytest.raises(TypeError, match="positions are never cast"):
        logits(llama, position_ids=torch.arange(TOKENS, dtype=dtype)[None])


def test_refused_models(models, llama, monkeypatch):
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=1, n_head=4))
    with pytest.raises(ValueError, match="expected a rotary module named rotary_emb, GPT2LMHeadModel has none"):
        gnomon.hf.use(gpt2, rotary.Default())
    with pytest.raises(ValueError, match="expected one rotary module, ModuleList has 2"):
        gnomon.hf.use(torch.nn.ModuleList([llama, models("qwen3")]), rotary.Default())
    monkeypatch.setattr(transformers, "__version__", "5.16.1")
    with pytest.raises(RuntimeError, match=r"expected transformers 5\.24\.0 or newer, got 5\.16\.1"):
        gnomon.hf.use(llama, rotary.Default())


class Odd(torch.nn.Module):
    """A rotary module that hands out what the test tells it to."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, position_ids):
        angles = position_ids[..., None] * torch.tensor([1.0, 0.1, 0.01])
        return self.function(angles)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a.cos(),
        lambda a: (a.cos(), a.sin(), a),
        lambda a: (a.cos(), a.cos()),
        lambda a: (a.cos() * 2, a.sin()),
        lambda a: (a.cos() * torch.tensor([1.0, -1.0, 1.0]), a.sin()),
        lambda a: (a.cos().double(), a.sin().double()),
        lambda a: (a.cos()[0], a.sin()[0]),
        lambda a: torch.polar(torch.ones_like(a), a + 1),
        lambda a: None,
        lambda a: 1 / 0,
    ],
)
def test_an_unknown_convention_is_refused_by_name(function):
    model = torch.nn.Module()
    model.rotary_emb = Odd(function)
    with pytest.raises(ValueError, match="rotary module Odd: "):
        gnomon.hf.use(model, gnomon.RotarySpec(rotary.Default(), theta=10000.0, head_dim=6))
    assert isinstance(model.rotary_emb, Odd)


def test_refused_rules(models, llama):
    spec, gemma = FAMILIES["llama"].spec(), models("gemma3")
    narrow = gnomon.RotarySpec(rotary.Default(), theta=10000.0, head_dim=16, rotary_dim=8)
    for model, rule, message in [
        (llama, narrow, "expected rotary_dim 16, the width this model rotates, got 8"),
        (llama, {"full_attention": spec}, "this model does not rotate by layer type"),
        (gemma, spec, "expected a dict by layer type"),
        (gemma, {"full_attention": spec}, "expected a dict with the layer types full_attention, sliding_attention, got full_attention"),
        (llama, rotary.Ntk(factor=2), "ntk"),
    ]:
        own = rotary_of(model)
        with pytest.raises(ValueError, match=message):
            gnomon.hf.use(model, rule, numerics="hf")
        assert rotary_of(model) is own
    with pytest.raises(TypeError):
        gnomon.hf.use(llama, "yarn")


def test_the_installed_version_is_an_end_of_the_range():
    """Run with each end installed; an installation between or beyond them is not what the range was tested with."""
    assert transformers.__version__ in gnomon.hf.TRANSFORMERS
