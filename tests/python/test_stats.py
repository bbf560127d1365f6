# SPDX-License-Identifier: Apache-2.0
"""gnomon stats and eval --attention gnomon: the losses of torch, and statistics that are those of eager attention's weights."""

import itertools
import json
import re

import numpy
import pytest

from gnomon import plot
from gnomon.eval.attention import Watch
from gnomon.eval.checkpoint import Checkpoint
from gnomon.eval.context import Context
from gnomon.eval.errors import UsageError
from gnomon.eval.result import ATTENTION_MEANS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from gnomon import _hf_attention as hook  # noqa: E402


def watched(checkpoint, ids, chunk):
    """The summary of a text read in chunks, and its logits."""
    context, logits = Context(checkpoint.model), []
    with torch.inference_mode(), Watch(checkpoint, len(ids)) as watch:
        for piece in ids.split(chunk):
            logits.append(context.read(piece))
            watch.keep()
            context.ask(ids[:9])
            assert 0 < watch.entropy()[-1] < numpy.log(59)  # and none of it is in the summary
    return watch.summary(16), torch.cat(logits)


def eager_weights(checkpoint, ids):
    """(layers, heads, T, T) in double, and the logits, by transformers' own eager attention."""
    model = checkpoint.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        output = model(ids[None], output_attentions=True)
    model.set_attn_implementation(before)
    return numpy.stack([layer[0].double().numpy() for layer in output.attentions]), output.logits[0]


@pytest.mark.parametrize("chunk", [7, 50])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "gemma2", "gemma3", "gpt_neox", "gpt_oss", "llama4"])
def test_statistics_are_those_of_eager_weights(tiny_model, family, chunk):
    checkpoint = Checkpoint(tiny_model(family))
    ids = torch.arange(50) * 17 % 256
    weights, logits = eager_weights(checkpoint, ids)
    summary, ours = watched(checkpoint, ids, chunk)
    torch.testing.assert_close(ours, logits, atol=2e-4, rtol=0)
    back = numpy.arange(50)[:, None] - numpy.arange(50)
    edges = summary["distance_edges"]
    assert edges == [0, 1, 2, 4, 8, 16, 32, 64]
    for layer, p in zip(summary["layers"], weights, strict=True):
        share = p / p.sum(-1, keepdims=True)  # what a sink logit takes apart
        entropy = -(share * numpy.log(share, out=numpy.zeros_like(p), where=p > 0)).sum(-1)
        assert layer["entropy"] == pytest.approx(entropy.mean(), abs=1e-4)
        assert abs(layer["entropy"] - entropy.mean() / numpy.log(2)) > 0.1  # bits are told apart
        assert layer["maximum"] == pytest.approx(p.max(-1).mean(), abs=1e-4)
        assert layer["mean_distance"] == pytest.approx((share * back).sum(-1).mean(), abs=1e-2)
        assert layer["mean_distance"] > 0  # not key - query
        assert layer["first_mass"] == pytest.approx(p[..., :4].sum(-1).mean(), abs=1e-4)
        shares = [(p * ((back >= begin) & (back < end))).sum((-1, -2)).mean() / 50 for begin, end in itertools.pairwise(edges)]
        assert layer["mass_by_distance"] == pytest.approx(shares, abs=1e-4)
        assert layer["bins"][1]["entropy"] == pytest.approx(entropy[:, 16:32].mean(), abs=1e-4)
        assert numpy.mean([head["entropy"] for head in layer["kv_heads"]]) == pytest.approx(layer["entropy"])
        assert set(ATTENTION_MEANS) < set(layer["kv_heads"][0])


def test_the_model_is_left_as_it_was(tiny_model):
    checkpoint = Checkpoint(tiny_model("llama"))
    before = checkpoint.model.config._attn_implementation
    with Watch(checkpoint, 10):
        assert checkpoint.model.config._attn_implementation != before
    assert checkpoint.model.config._attn_implementation == before


def test_attention_that_is_not_known_is_refused_by_name(tiny_model, monkeypatch):
    checkpoint = Checkpoint(tiny_model("llama"))
    monkeypatch.setattr(hook, "KNOWN", set())
    with pytest.raises(UsageError, match="--attention gnomon: model: the attention of LlamaAttention is not known"), Watch(checkpoint, 10):
        pass


@pytest.fixture
def arguments(tiny_model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(chr(97 + i * i % 26) for i in range(5000)))
    return [str(tiny_model("llama")), "--text", str(text), "--tokens", "100", "--bin", "16", "--chunk", "32"]


def test_eval_gives_the_same_losses_with_either_attention(arguments, capsys):
    from gnomon.eval.__main__ import main

    results = []
    for attention in ("torch", "gnomon"):
        assert main([*arguments, "--attention", attention, "--method", "yarn:2", "--task", "repeat", "--json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    (theirs,), (ours,) = (result["methods"] for result in results)
    assert [bin["loss"] for bin in ours["bins"]] == pytest.approx([bin["loss"] for bin in theirs["bins"]], abs=1e-4)
    assert [row["loss"] for row in ours["retrieval"]] == pytest.approx([row["loss"] for row in theirs["retrieval"]], abs=1e-3)
    assert theirs["attention"] is None
    assert [layer["layer"] for layer in ours["attention"]["layers"]] == [0, 1]
    assert all(0 < row["entropy"] < numpy.log(100) for row in ours["retrieval"])
    assert "entropy" not in theirs["retrieval"][0]


def test_the_report_of_eval_shows_where_attention_looks(arguments, tmp_path, capsys):
    from gnomon.eval.__main__ import main

    report = tmp_path / "report.html"
    assert main([*arguments, "--attention", "gnomon", "--report", str(report)]) == 0
    page = report.read_text()
    assert "Where does attention look?" in page
    assert not re.search(r"https?:|@import|url\((?!#)", page)


def test_stats_prints_tables_and_writes_a_picture(arguments, tmp_path, capsys):
    from gnomon.stats import main

    picture, data = tmp_path / "attention.png", tmp_path / "result.json"
    methods = ["--method", "none", "--method", "linear:2", "--task", "repeat"]
    assert main([*arguments, *methods, "--output", str(picture), "--json", str(data)]) == 0
    out, err = capsys.readouterr()
    assert out.count("attention by layer") == 2
    assert re.search(r"repeat: .*; H: entropy of the attention that answers", out)
    assert len(re.findall(r"→ \d+\.\d\d  H \d\.\d\d", out)) == 4  # asked at 64 and at 100
    assert re.search(r"layer .* entropy \(nats\) .* first 4 keys .* nearest 128 keys", out)
    assert "\x1b" not in out
    assert out.count(" mean │") == 2
    assert str(picture) in err
    assert picture.read_bytes().startswith(b"\x89PNG")
    result = json.loads(data.read_text())
    none, linear = (method["attention"]["layers"][1]["entropy"] for method in result["methods"])
    assert none != linear
    assert result["command"].startswith("gnomon stats ")
    assert plot.main(["attention", str(data), "--out", str(tmp_path / "again.svg")]) == 0


def test_stats_refuses_before_it_loads(arguments, tmp_path, capsys):
    from gnomon.stats import main

    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--output", "picture.jpeg"])
    assert main([*arguments, "--output", str(tmp_path / "nowhere" / "a.png")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_attention_is_not_drawn_where_it_was_not_measured(arguments, tmp_path, capsys):
    from gnomon.eval.__main__ import main

    data = tmp_path / "result.json"
    assert main([*arguments, "--json", str(data)]) == 0
    assert plot.main(["attention", str(data), "--out", str(tmp_path / "a.png")]) == 2
    assert "--attention gnomon" in capsys.readouterr().err
