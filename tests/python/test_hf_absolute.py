# SPDX-License-Identifier: Apache-2.0
"""gnomon.hf.use_absolute in tiny random models: the same outputs through our rows, other outputs with other rows, and a clean undo."""

import copy

import numpy
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import gnomon  # noqa: E402
import gnomon.hf  # noqa: E402

VOCABULARY, WIDTH, HEADS, LENGTH, TOKENS = 64, 32, 2, 24, 12
SIZES = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, "initializer_range": 0.2}
ENCODER = {**SIZES, "intermediate_size": 48, "max_position_embeddings": LENGTH}
WHISPER = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_mel_bins": 8,
    "max_source_positions": LENGTH,
    "max_target_positions": LENGTH,
    "init_std": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


def ids(tokens=TOKENS):
    return torch.randint(3, VOCABULARY, (2, tokens), generator=torch.Generator().manual_seed(7))


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def opt():
    config = {**SIZES, "ffn_dim": 48, "max_position_embeddings": LENGTH, "word_embed_proj_dim": WIDTH, "init_std": 0.2}
    return transformers.OPTModel(transformers.OPTConfig(**config))


MODELS = {
    "roformer": lambda: transformers.RoFormerModel(transformers.RoFormerConfig(**ENCODER, embedding_size=WIDTH)),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**ENCODER)),
    "gpt2": lambda: transformers.GPT2Model(
        transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_positions=LENGTH, initializer_range=0.2
        )
    ),
    "opt": opt,
    "vit": lambda: transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=HEADS, image_size=16, patch_size=4,
            initializer_range=0.2,
        )
    ),
    "whisper encoder": lambda: transformers.WhisperModel(transformers.WhisperConfig(**WHISPER)).get_encoder(),
    "whisper decoder": lambda: transformers.WhisperModel(transformers.WhisperConfig(**WHISPER)).get_decoder(),
}  # fmt: skip
SINUSOIDS = {  # the models whose rows are a formula
    "roformer": gnomon.AbsoluteSpec(gnomon.absolute.Sinusoidal(order="sin_cos", denominator="width"), width=WIDTH // HEADS),
    "whisper encoder": gnomon.AbsoluteSpec(gnomon.absolute.Sinusoidal(order="sin_cos", denominator="half_minus_one"), width=WIDTH),
}
TRAINED = [name for name in MODELS if name not in SINUSOIDS]


def sinusoidal(width=WIDTH, **changed):
    return gnomon.AbsoluteSpec(gnomon.absolute.Sinusoidal(**{"order": "interleaved", "denominator": "width", **changed}), width=width)


@pytest.fixture
def make():
    def made(name):
        torch.manual_seed(5)
        return MODELS[name]().eval()

    return made


def inputs(name, tokens=TOKENS):
    if name == "vit":
        return {"pixel_values": noise(2, 3, 16, 16)}
    if name == "whisper encoder":
        return {"input_features": noise(2, 8, 2 * LENGTH)}
    return {"input_ids": ids(tokens)}


@torch.no_grad()
def output(name, model, **more):
    return model(**inputs(name), **more).last_hidden_state


def table_of(name, model):
    """The tensor with the model's own rows."""
    places = {"bert": "embeddings.position_embeddings.weight", "gpt2": "wpe.weight", "vit": "embeddings.position_embeddings"}
    places |= {"opt": "decoder.embed_positions.weight", "roformer": "encoder.embed_positions.weight"}
    return model.get_parameter(places.get(name, "embed_positions.weight"))


@pytest.mark.parametrize("name", MODELS)
def test_the_models_own_rows_through_our_operator(make, name):
    model = make(name)
    parts, want = dict(model.named_modules()), output(name, model)
    parameters, table = dict(model.named_parameters()), table_of(name, model)
    with gnomon.hf.use_absolute(model) as handle:
        assert (output(name, model) - want).abs().max() < 1e-4
        assert handle.calls == 1
        assert handle.specs is None
        assert any(one is table for one in model.parameters())  # an optimizer still finds it
    assert torch.equal(output(name, model), want)
    assert dict(model.named_modules()) == parts
    assert all(one is parameters[path] for path, one in model.named_parameters())
    assert handle.calls == 1


@pytest.mark.parametrize("numerics", ["exact", "hf"])
@pytest.mark.parametrize("name", SINUSOIDS)
def test_our_sinusoids_are_the_models(make, name, numerics):
    model, spec = make(name), SINUSOIDS[name]
    want = output(name, model)
    with gnomon.hf.use_absolute(model, spec, numerics=numerics) as handle:
        assert (output(name, model) - want).abs().max() < 1e-4
        assert (handle.calls, handle.specs) == (1, spec)
    assert torch.equal(output(name, model), want)
    other = "half_minus_one" if spec.rule.denominator == "width" else "width"
    wrong = [{"denominator": other}, {"order": "cos_sin"}, {"theta": 10500.0}]
    if name != "roformer":
        wrong.append({"offset": 1})  # a rotation sees differences only
    for changed in wrong:
        rule = {"order": spec.rule.order, "denominator": spec.rule.denominator, **changed}
        with gnomon.hf.use_absolute(model, sinusoidal(spec.width, **rule), numerics="exact"):
            assert (output(name, model) - want).abs().max() > 1e-3, changed


@pytest.mark.parametrize("name", TRAINED)
def test_sinusoids_in_the_place_of_trained_rows(make, name):
    """The reference is the model itself with its rows overwritten, by NumPy in double. OPT's row 2 is position 0."""
    model, ours = make(name), make(name)
    table = table_of(name, model)
    positions = numpy.arange(table.shape[-2])[:, None] - (2 if name == "opt" else 0)
    angles = positions / 10000.0 ** (numpy.arange(0, WIDTH, 2) / WIDTH)
    with torch.no_grad():
        table.copy_(torch.from_numpy(numpy.stack((numpy.sin(angles), numpy.cos(angles)), -1).reshape(table.shape)))
    want, before = output(name, model), output(name, ours)
    assert (before - want).abs().max() > 1e-2
    with gnomon.hf.use_absolute(ours, sinusoidal()) as handle:
        assert (output(name, ours) - want).abs().max() < 1e-4
        assert handle.calls == 1
    assert torch.equal(output(name, ours), before)
    for changed in ({"offset": 1}, {"denominator": "half_minus_one"}):
        with gnomon.hf.use_absolute(ours, sinusoidal(**changed)):
            assert (output(name, ours) - want).abs().max() > 1e-3, changed


def test_padding_in_opt(make):
    """Left padding: positions are counted over the mask, padded ones are row 1."""
    model, mask = make("opt"), torch.ones(2, TOKENS, dtype=torch.int64)
    mask[0, :4] = 0
    want = output("opt", model, attention_mask=mask)
    with gnomon.hf.use_absolute(model) as handle:
        assert torch.equal(output("opt", model, attention_mask=mask), want)
        assert handle.calls == 1
        assert (output("opt", model) - want).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["gpt2", "opt", "whisper decoder"])
def test_decoding_with_a_cache(make, name):
    model = make(name)
    want = output(name, model)
    with torch.no_grad(), gnomon.hf.use_absolute(model) as handle:
        first = model(input_ids=ids()[:, :-2], use_cache=True)
        rest = model(input_ids=ids()[:, -2:], cache=first.past_key_values, use_cache=True).last_hidden_state
        assert handle.calls == 2
    assert (rest - want[:, -2:]).abs().max() < 1e-4


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_reach_the_models_rows(make, name):
    model = make(name)
    gradients = []
    for ours in (False, True):
        weight = table_of(name, model)
        weight.grad = None
        if ours:
            with gnomon.hf.use_absolute(model):
                model(**inputs(name)).last_hidden_state.pow(2).sum().backward()
        else:
            model(**inputs(name)).last_hidden_state.pow(2).sum().backward()
        gradients.append(weight.grad.clone())
    assert gradients[0].abs().max() > 0
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-4 * gradients[0].abs().max().item())


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_copied_and_compiled_models_keep_our_rows(make, name):
    torch.compiler.reset()
    model = make(name)
    with gnomon.hf.use_absolute(model, sinusoidal()) as handle:
        want, copied = output(name, model), copy.deepcopy(model)
        compiled = output(name, torch.compile(model, backend="eager"))
        assert handle.calls == 2
    assert torch.equal(output(name, copied), want)
    assert (compiled - want).abs().max() < 1e-5
    torch.compiler.reset()


@pytest.mark.parametrize("name", MODELS)
def test_models_in_bfloat16(make, name):
    """The rows are rounded once to the model's dtype, as its own are."""
    model = make(name).to(torch.bfloat16)
    given = {key: value.bfloat16() if value.is_floating_point() else value for key, value in inputs(name).items()}
    with torch.no_grad():
        want = model(**given).last_hidden_state
        with gnomon.hf.use_absolute(model, SINUSOIDS.get(name)):
            assert torch.equal(model(**given).last_hidden_state, want)


def test_a_sequence_beyond_the_trained_length(make):
    model = make("gpt2")
    with gnomon.hf.use_absolute(model), pytest.raises(gnomon.Error, match=f"positions: {LENGTH} has no row"):
        model(ids(LENGTH + 1))
    with torch.no_grad(), gnomon.hf.use_absolute(model, sinusoidal()):
        assert model(ids(LENGTH + 1)).last_hidden_state.isfinite().all()  # a formula has no end


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_table_of_ours_is_not_exchanged_again(make, name):
    model = make(name)
    want = output(name, model)
    handle = gnomon.hf.use_absolute(model)
    with pytest.raises(ValueError, match="expected a position table that is understood"):
        gnomon.hf.use_absolute(model, sinusoidal())
    handle.undo()
    handle.undo()
    assert torch.equal(output(name, model), want)


def test_refusals(make, monkeypatch):
    bert = make("bert")
    whisper = transformers.WhisperModel(transformers.WhisperConfig(**WHISPER))
    llama = transformers.LlamaModel(transformers.LlamaConfig(**SIZES, intermediate_size=48))
    learned = gnomon.AbsoluteSpec(gnomon.absolute.Learned(rows=LENGTH), width=WIDTH)
    roberta = transformers.RobertaModel(transformers.RobertaConfig(**ENCODER))
    for model, spec, message in [
        (roberta, None, "expected a position table that is understood, RobertaModel has none"),
        (llama, None, "expected a position table that is understood, LlamaModel has none"),
        (whisper, None, r"expected one position table, WhisperModel has 2 \(encoder\.embed_positions, decoder\.embed_positions\)"),
        (bert, sinusoidal(16), "spec: expected a Sinusoidal of one axis and of width 32, the model's, got"),
        (bert, learned, "spec: expected a Sinusoidal of one axis and of width 32, the model's, got"),
        (bert, sinusoidal(axes=2), "spec: expected a Sinusoidal of one axis and of width 32, the model's, got"),
    ]:
        own = bert.embeddings.position_embeddings
        with pytest.raises(ValueError, match=message):
            gnomon.hf.use_absolute(model, spec)
        assert bert.embeddings.position_embeddings is own
    monkeypatch.setattr(transformers, "__version__", "5.16.1")
    with pytest.raises(RuntimeError, match="expected transformers"):
        gnomon.hf.use_absolute(bert)
