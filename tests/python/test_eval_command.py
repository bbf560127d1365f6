# SPDX-License-Identifier: Apache-2.0
"""The command `gnomon eval`: its output, its errors, what it leaves behind."""

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys

import pytest

from gnomon.eval import files
from gnomon.eval.__main__ import INTERRUPTED, main
from gnomon.eval.errors import UsageError

torch = pytest.importorskip("torch")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(chr(97 + i * i % 26) for i in range(5000)))
    return str(path)


@pytest.fixture
def arguments(tiny_model, text):
    return [str(tiny_model("llama")), "--text", text, "--tokens", "100", "--bin", "16", "--chunk", "32"]


def test_json_has_the_documented_shape(arguments, capsys):
    assert main([*arguments, "--method", "none", "--method", "yarn:2", "--task", "loss", "--task", "repeat", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["schema"] == 1
    assert result["model"]["trained_length"] == 64
    assert result["model"]["groups"][0]["rotary"]["rule"] == "default"
    assert result["text"]["bytes"] == 5000
    assert re.fullmatch(r"[0-9a-f]{64}", result["text"]["sha256"])
    assert (result["tokens"], result["bin"], result["chunk"], result["numerics"]) == (100, 16, 32, "exact")
    assert not result["interrupted"]
    assert result["notes"] == []
    assert [method["method"] for method in result["methods"]] == ["none", "yarn:2"]
    yarn = result["methods"][1]
    assert yarn["groups"][0]["rotary"]["original_max_position_embeddings"] == 64
    assert [(bin["from"], bin["to"]) for bin in yarn["bins"]] == [(0, 16), (16, 32), (32, 48), (48, 64), (64, 80), (80, 96), (96, 100)]
    assert all(3 < bin["loss"] < 8 for bin in yarn["bins"])  # random weights: about ln 256 = 5.5
    assert {(row["task"], row["asked_at"], row["questions"]) for row in yarn["retrieval"]} == {("repeat", 64, 6), ("repeat", 100, 6)}
    assert "none: mean loss" in err


def test_tables_are_for_people(arguments, capsys):
    assert main([*arguments, "--method", "none", "--method", "linear:2"]) == 0
    out, _ = capsys.readouterr()
    assert re.search(r"position .* none .* linear:2", out)
    assert re.search(r"up to 64", out)
    assert "\x1b" not in out


def test_report_is_one_file_that_needs_nothing_else(arguments, tmp_path, capsys):
    report, data = tmp_path / "report.html", tmp_path / "result.json"
    code = main([*arguments, "--method", "none", "--method", "yarn:2", "--task", "repeat", "--report", str(report), "--json", str(data)])
    assert code == 0
    page = report.read_text()
    assert page.count("<svg") == 4  # loss, repeat, wavelengths, frequencies
    assert not re.search(r"https?:|\bsrc=|@import|url\((?!#)", page)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', page))
    result = json.loads(data.read_text())
    for fact in (result["text"]["sha256"], "yarn:2", "exact", "trained length 64", "gnomon eval"):
        assert fact in page
    loss = result["methods"][1]["bins"][2]["loss"]
    assert f"{loss:.3f}" in page


def test_interruption_keeps_what_is_done(arguments, tmp_path, capsys, monkeypatch):
    from gnomon.eval.context import Context

    read, calls = Context.read, []

    def interrupted(self, ids, logits=True):
        calls.append(len(ids))
        if len(calls) == 7:  # the third pass of the second method
            raise KeyboardInterrupt
        return read(self, ids, logits)

    monkeypatch.setattr(Context, "read", interrupted)
    report = tmp_path / "report.html"
    assert (
        main([*arguments, "--method", "none", "--method", "yarn:2", "--method", "ntk:2", "--json", "--report", str(report)]) == INTERRUPTED
    )
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["interrupted"]
    none, yarn = result["methods"]
    assert (none["complete"], len(none["bins"])) == (True, 7)
    assert (yarn["complete"], len(yarn["bins"])) == (False, 4)  # 64 of 100 tokens
    assert "interrupted" in err
    assert "was interrupted" in report.read_text()


def test_ctrl_c_ends_in_130_with_a_result(arguments):
    command = [sys.executable, "-u", "-m", "gnomon.eval", *arguments, "--tokens", "4000", "--bin", "1", "--chunk", "1", "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background inherits that it is ignored
    ) as process:
        for line in process.stderr:
            if re.search(r"about [1-9]\d* (s|minutes) left", line):  # printed after the first pass
                process.send_signal(signal.SIGINT)
        result = json.load(process.stdout)
    assert process.returncode == INTERRUPTED
    assert result["interrupted"]
    assert 0 < len(result["methods"][0]["bins"]) < 4000


def test_numerics_of_transformers_are_stated(arguments, capsys):
    assert main([*arguments, "--numerics", "hf", "--json"]) == 0
    in_hf = json.loads(capsys.readouterr().out)
    assert in_hf["numerics"] == "hf"
    assert main([*arguments, "--json"]) == 0
    for hf, exact in zip(in_hf["methods"][0]["bins"], json.loads(capsys.readouterr().out)["methods"][0]["bins"], strict=True):
        assert hf["loss"] == pytest.approx(exact["loss"], abs=1e-3)  # short positions: nearly the same angles


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--method", "nope:2"], r"unknown method 'nope:2'; known: none, linear:FACTOR"),
        (["--method", "yarn:0"], r"expected yarn:FACTOR with a number of at least 1, got '0'"),
        (["--tokens", "6000"], r"the text has 5000 tokens, --tokens asks for 6000"),
        (["--text", "/nowhere.txt"], r"/nowhere.txt: cannot be read: No such file"),
        (["--report", "/nowhere/report.html"], r"/nowhere/report.html: cannot be written"),
        (["--json=/"], r"expected a file to write, this is a folder"),
        (["--numerics", "hf", "--method", "ntk:2"], r"ntk"),
        (["--task", "passkey"], r"passkey has no room"),
    ],
)
def test_wrong_use_is_one_clear_message(arguments, change, message, capsys):
    assert main([*arguments, *change]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^gnomon: .*" + message, err, re.MULTILINE)
    assert "Traceback" not in err


def test_what_is_no_model_is_refused(text, tmp_path, capsys):
    for path in (tmp_path / "missing", text):
        assert main([str(path), "--text", text]) == 2
        assert re.match(r"gnomon: ", capsys.readouterr().err)


def test_a_model_without_weights_is_refused(tiny_model, text, capsys):
    folder = tiny_model("llama")
    (folder / "model.safetensors").unlink()
    assert main([str(folder), "--text", text, "--tokens", "50"]) == 2
    assert "transformers cannot load the model" in capsys.readouterr().err


def test_a_text_in_another_encoding_is_refused(arguments, tmp_path, capsys):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9" * 1000)
    assert main([*arguments, "--text", str(tmp_path / "latin.txt")]) == 2
    assert "expected a text in UTF-8, got a wrong byte at 3" in capsys.readouterr().err


def test_json_does_not_swallow_the_model(tiny_model, text, capsys):
    assert main(["--text", text, "--tokens", "20", "--json", str(tiny_model("llama"))]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 20


def test_without_arguments_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as left:
        main([])
    assert left.value.code == 2
    assert re.match(
        r"usage: gnomon eval MODEL --text FILE [^\0]*the following arguments are required: MODEL, --text", capsys.readouterr().err
    )


def test_a_report_is_named_for_what_it_is(arguments, tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--report", str(tmp_path / "report.pdf")])
    assert left.value.code == 2
    assert "--report: expected a name that ends in .html or .htm, got" in capsys.readouterr().err


@pytest.mark.parametrize(("passes", "left"), [(2, "about 1 s left"), (61, "about 60 s left"), (241, "about 4 minutes left"), (1, "")])
def test_the_time_left_is_told_in_a_unit_that_shows_it(monkeypatch, passes, left):
    from rich.console import Console

    from gnomon.eval import progress

    out, clock = io.StringIO(), iter([10.0, 11.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock, 11.0))
    with progress.Bars(["none"], Console(file=out)) as bars:
        bars.begin("none", passes)
        bars.advance(1, "")
    assert out.getvalue().strip() == left


def test_a_full_disk_leaves_nothing_behind(arguments, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # the report is larger, and errors come as EFBIG

    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.html").write_text("older")
    command = [sys.executable, "-m", "gnomon.eval", *arguments, "--report", str(folder / "report.html")]
    run = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert run.returncode == 2
    assert re.search(r"gnomon: .*report.html: cannot be written: File too large", run.stderr)
    assert "position" in run.stdout  # the table came out before
    assert os.listdir(folder) == ["report.html"]
    assert (folder / "report.html").read_text() == "older"


def test_a_full_standard_output_is_an_error(arguments):
    with open("/dev/full", "w") as full:
        run = subprocess.run([sys.executable, "-m", "gnomon.eval", *arguments, "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 2
    assert "standard output cannot be written: No space left on device" in run.stderr
    assert "Traceback" not in run.stderr


def test_help_answers_without_loading_torch():
    code = "import sys; from gnomon.eval.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: print(sorted({'torch', 'transformers', 'matplotlib', 'rich'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "examples:" in run.stdout
    assert run.stdout.endswith("[]\n")


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file.txt"
    files.write_atomically(path, "one")
    path.chmod(0o600)
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    files.write_atomically(link, "two")
    assert path.read_text() == "two"
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match=r"/dev/full: cannot be written: No space left"):
        files.write_atomically("/dev/full", "x")
    with pytest.raises(UsageError, match=r"cannot be written"):
        files.write_atomically(tmp_path / "no" / "file", "x")
    assert sorted(os.listdir(tmp_path)) == ["file.txt", "link.txt"]
