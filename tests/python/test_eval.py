# SPDX-License-Identifier: Apache-2.0
"""gnomon.eval: what is measured, checked against plain transformers and torch on tiny random models."""

import json
import math

import pytest

import gnomon
import gnomon.hf
from gnomon.eval import methods, result, tasks
from gnomon.eval.__main__ import notes_about
from gnomon.eval.checkpoint import Checkpoint
from gnomon.eval.context import Context
from gnomon.eval.errors import UsageError
from gnomon.eval.run import chunks, evaluate

torch = pytest.importorskip("torch")


class Silent:
    def begin(self, method, work): ...

    def advance(self, work, state): ...

    def end(self, result): ...


def run(folder, names, readings, chunk=16, trained=32):
    """MethodResults of an evaluation without a command around it."""
    checkpoint = Checkpoint(folder)
    evaluation = result.Evaluation(
        header=checkpoint.header, own=methods.own_rules(checkpoint.header), trained=trained, text=None, tokens=0, bin=8,
        chunk=chunk, tasks=[], numerics="exact", seed=0, command="", notes=[],
    )  # fmt: skip
    evaluate(evaluation, checkpoint, [methods.parse(name) for name in names], readings, Silent())
    return evaluation.methods


def direct_losses(model, ids):
    """Losses by one pass of the whole sequence, without a cache, in double precision from the logits on."""
    with torch.inference_mode():
        logits = model(ids[None]).logits[0].double()
    return -logits.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]


# ---- losses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "chunk"),
    [
        *(("llama", chunk) for chunk in (1, 7, 50, 64)),
        *((family, 16) for family in ("llama", "mistral", "qwen3", "gemma2", "gemma3", "gpt_neox", "gptj")),
    ],
)
def test_losses_equal_one_pass_of_plain_transformers(tiny_model, family, chunk):
    folder = tiny_model(family)
    ids = torch.arange(50) * 17 % 256
    (measured,) = run(folder, ["none"], [tasks.text_reading(ids)], chunk)
    expected = direct_losses(Checkpoint(folder).model, ids)
    assert measured.complete
    assert measured.losses[0].isnan()
    torch.testing.assert_close(measured.losses[1:].double(), expected, atol=1e-4, rtol=0)


def test_methods_change_the_losses_as_their_formula_says(tiny_model):
    folder = tiny_model("llama")
    ids = torch.arange(50) * 17 % 256
    none, linear = run(folder, ["none", "linear:2"], [tasks.text_reading(ids)])
    model = Checkpoint(folder).model
    model.model.rotary_emb.inv_freq /= 2  # position interpolation, by hand in the stock module
    expected = direct_losses(model, ids)
    torch.testing.assert_close(linear.losses[1:].double(), expected, atol=1e-4, rtol=0)
    assert (linear.losses - none.losses)[1:].abs().max() > 1e-2


def test_evaluation_leaves_the_model_as_it_was(tiny_model):
    checkpoint = Checkpoint(tiny_model("llama"))
    before = checkpoint.model.model.rotary_emb
    evaluation = result.Evaluation(checkpoint.header, [], 32, None, 0, 8, 16, [], "exact", 0, "", [])
    evaluate(evaluation, checkpoint, [methods.parse("yarn:2")], [tasks.text_reading(torch.arange(20))], Silent())
    assert checkpoint.model.model.rotary_emb is before


def test_bins_hold_the_tokens_they_name():
    measured = result.MethodResult("none", [], losses=torch.tensor([math.nan, 1, 2, 3, 4, 5, 6, 7, 8, 9.0]))
    assert measured.bins(4) == [
        {"from": 0, "to": 4, "tokens": 3, "loss": 2.0},  # token 0 is predicted from nothing
        {"from": 4, "to": 8, "tokens": 4, "loss": 5.5},
        {"from": 8, "to": 10, "tokens": 2, "loss": 8.5},
    ]
    measured.losses[6:] = math.nan  # interrupted
    assert [bin["to"] for bin in measured.bins(4)] == [4]
    assert result.mean_loss([{"from": 0, "to": 4, "tokens": 3, "loss": 2.0}, {"from": 4, "to": 8, "tokens": 1, "loss": 4.0}]) == 2.5


# ---- questions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral"])
def test_questions_are_answered_apart_and_forgotten(tiny_model, family):
    checkpoint = Checkpoint(tiny_model(family))
    model = checkpoint.model
    text = torch.arange(40) * 17 % 256
    questions = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2, 6]), torch.tensor([5, 3, 5, 8, 9, 7, 9])]
    with torch.inference_mode():
        context = Context(model)
        context.read(text[:25])
        answers = [context.ask(question) for question in questions]
        after = context.read(text[25:])
        for question, answer in zip(questions, answers, strict=True):
            alone = model(torch.cat([text[:25], question])[None]).logits[0, 25:]
            torch.testing.assert_close(answer, alone, atol=1e-4, rtol=0)
        torch.testing.assert_close(after, model(text[None]).logits[0, 25:], atol=1e-4, rtol=0)


def test_a_pass_ends_where_questions_are_asked():
    reading = tasks.Reading("repeat", torch.arange(50), {20: [], 50: []})
    assert chunks(reading, 16) == [(0, 16), (16, 20), (20, 32), (32, 48), (48, 50)]


def test_repeat_asks_for_phrases_of_the_text():
    ids = torch.arange(4000)
    reading = tasks.repeat_reading(ids, [1500, 4000], seed=1)
    for asked_at, questions in reading.questions.items():
        assert {question.distance for question in questions} >= {512, asked_at}
        for question in questions:
            start = int(question.ids[0])
            assert torch.equal(question.ids, ids[start : start + tasks.CUE + tasks.ASKED])
            assert asked_at - question.distance <= start <= asked_at - 0.75 * question.distance
            assert question.first == start + tasks.CUE
    again = tasks.repeat_reading(ids, [1500, 4000], seed=1)
    assert [q.first for q in again.questions[4000]] == [q.first for q in reading.questions[4000]]


def test_repeat_compares_with_the_first_sight(tiny_model):
    folder = tiny_model("llama")
    ids = torch.arange(100) * 17 % 256
    (measured,) = run(folder, ["none"], [tasks.repeat_reading(ids, [100], seed=0)])
    expected = direct_losses(Checkpoint(folder).model, ids)
    question = tasks.repeat_reading(ids, [100], seed=0).questions[100][0]
    first = expected[question.first - 1 : question.first - 1 + tasks.ASKED].mean().item()
    assert measured.answers[0].first_loss == pytest.approx(first, abs=1e-4)
    again = direct_losses(Checkpoint(folder).model, torch.cat([ids, question.ids]))[-tasks.ASKED :].mean().item()
    assert measured.answers[0].loss == pytest.approx(again, abs=1e-4)


def test_passkeys_are_hidden_where_they_are_asked_for():
    def encode(text):
        return list(text.encode())

    tasks_at = [6000, 9000]
    reading = tasks.passkey_reading(encode, 9000, tasks_at, seed=3)
    filler = bytes(reading.ids.tolist()).decode()
    assert len(reading.ids) == 9000
    for asked_at, questions in reading.questions.items():
        for question in questions:
            *_, city, _, key = bytes(question.ids.tolist()).decode().split(" ")
            needle = f"The pass key of {city} is {key}. Remember it: {key} is the pass key of {city}."
            assert filler.count(needle) == 1
            assert filler.index(needle) + len(needle) <= asked_at
            assert bytes(question.ids[-question.asked :].tolist()).decode() == f" {key}"
            assert question.units == len(key) == 5


def test_tasks_refuse_what_is_too_short():
    with pytest.raises(UsageError, match="passkey has no room"):
        tasks.passkey_reading(lambda text: list(text.encode()), 200, [200], seed=0)
    with pytest.raises(UsageError, match="repeat needs at least 64 tokens"):
        tasks.repeat_reading(torch.arange(50), [50], seed=0)


def test_questions_are_asked_at_the_trained_length_and_at_the_end():
    assert tasks.asking_positions(100, 40) == [40, 100]
    assert tasks.asking_positions(100, 100) == [100]
    assert tasks.asking_positions(100, None) == [100]
    assert tasks.distances(12288) == [512, 2048, 8192, 12288]
    assert tasks.distances(8192) == [512, 2048, 8192]


# ---- methods -----------------------------------------------------------------------------------------------------


def test_each_method_runs_its_rule(tiny_model):
    header = gnomon.read_model(str(tiny_model("llama")))
    own = methods.own_rules(header)[0].rotary
    for text, rule in {
        "none": own.rule,
        "linear:2": gnomon.rotary.Linear(factor=2),
        "ntk:4": gnomon.rotary.Ntk(factor=4),
        "yarn:4": gnomon.rotary.Yarn(factor=4, original_max_position_embeddings=64),
        "llama3:8": gnomon.rotary.Llama3(factor=8, low_freq_factor=1, high_freq_factor=4, original_max_position_embeddings=64),
    }.items():
        (group,) = methods.rules(methods.parse(text), header, 64)
        assert group.rotary == gnomon.RotarySpec(rule, theta=10000.0, head_dim=16)
        assert group.layers == (0, 1)


def test_windowed_layers_keep_their_rule_where_layers_differ(tiny_model):
    checkpoint = Checkpoint(tiny_model("gemma3"))
    own = methods.own_rules(checkpoint.header)
    changed = methods.rules(methods.parse("linear:8"), checkpoint.header, 64)
    by_type = checkpoint.rotary_argument(changed)
    assert by_type["full_attention"].rule == gnomon.rotary.Linear(factor=8)
    assert by_type["full_attention"].theta == 1e6
    assert by_type["sliding_attention"] == checkpoint.rotary_argument(own)["sliding_attention"]
    assert by_type["sliding_attention"].theta == 1e4


def test_a_method_leaves_the_towers_of_a_model_alone():
    header = gnomon.read_model("tests/model/data/configs/Qwen__Qwen2.5-VL-7B-Instruct.json")
    vision = next(group for group in header.groups if group.part == "vision")
    assert vision.rotary is not None
    (own,) = methods.own_rules(header)
    assert own.rotary.head_dim == 128 != vision.rotary.head_dim


@pytest.mark.parametrize("text", ["nope", "nope:2", "yarn", "yarn:", "yarn:x", "yarn:0.5", "yarn:nan", "yarn:inf", "none:2", ""])
def test_unknown_methods_are_refused(text):
    with pytest.raises(UsageError, match=r"method '.*'.*(known: none, linear:FACTOR|a number of at least 1)"):
        methods.parse(text)


def test_a_method_without_a_trained_length_is_refused(tiny_model):
    spec = methods.own_rules(gnomon.read_model(str(tiny_model("llama"))))[0].rotary
    with pytest.raises(UsageError, match="trained length"):
        methods.with_method(spec, methods.parse("yarn:2"), None)
    assert methods.with_method(spec, methods.parse("linear:2"), None).rule == gnomon.rotary.Linear(factor=2)


def test_a_model_without_rotary_layers_is_refused(tmp_path):
    header = type("Header", (), {"groups": [], "path": "no-rope"})
    with pytest.raises(UsageError, match="no layer of this model has a rotary"):
        methods.own_rules(header)


def test_rules_that_transformers_would_not_run_are_noticed(tiny_model):
    checkpoint = Checkpoint(tiny_model("llama"))
    own = methods.own_rules(checkpoint.header)
    assert checkpoint.stock_difference(own) < 1e-6
    linear = methods.rules(methods.parse("linear:2"), checkpoint.header, 64)
    assert checkpoint.stock_difference(linear) == pytest.approx(1.0)  # twice as fast as they should be


def test_gguf_pairs_are_those_of_the_loaded_model(model_file):
    header = gnomon.read_model(str(model_file))
    (group,) = methods.own_rules(header)
    assert header.rotary().layout == "interleaved"
    assert group.rotary.layout == "half_split"
    assert json.loads(group.rotary.to_json()) | {"layout": "interleaved"} == json.loads(header.rotary().to_json())


# ---- GGUF --------------------------------------------------------------------------------------------------------


def write_gguf(model, path):
    """Saves a tiny llama as its converter does: rows of q and k permuted for interleaved pairs; with linear scaling by 2."""
    gguf = pytest.importorskip("gguf")
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(2.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([bytes([65 + i // 16, 65 + i % 16]) for i in range(config.vocab_size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * config.vocab_size)
    writer.add_token_merges(["A B"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        rows = tensor.numpy()
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = len(rows) // config.head_dim
            rows = rows.reshape(heads, 2, config.head_dim // 2, -1).swapaxes(1, 2).reshape(rows.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), rows.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_runs_the_rule_its_file_states(tiny_model, tmp_path):
    model = Checkpoint(tiny_model("llama")).model
    path = tmp_path / "model.gguf"
    write_gguf(model, path)
    checkpoint = Checkpoint(path)
    own = methods.own_rules(checkpoint.header)
    assert own[0].rotary.rule == gnomon.rotary.Linear(factor=2)
    assert checkpoint.stock_difference(own) == pytest.approx(1.0)
    note = notes_about(checkpoint, own)[-1]
    assert "Plain transformers would run another rule on this model (it does not read the RoPE scaling of GGUF files)" in note
    ids = torch.arange(50) * 17 % 256
    (measured,) = run(path, ["none"], [tasks.text_reading(ids)])
    model.model.rotary_emb.inv_freq /= 2
    torch.testing.assert_close(measured.losses[1:].double(), direct_losses(model, ids), atol=1e-4, rtol=0)
