# SPDX-License-Identifier: Apache-2.0
"""Help, completion, and verbs that are programs of their own."""

import os
import re
import shutil
import subprocess

import pytest
from rule_texts import DEFAULT

VERBS = [
    "list",
    "explain",
    "inspect",
    "check",
    "compare",
    "convert",
    "golden",
    "verify",
    "extend",
    "analyze",
    "freqs",
    "table",
    "positions",
    "check-order",
    "version",
    "completion",
    "help",
]


def test_the_help_of_the_program(gnomon):
    out = gnomon("--help", code=0).out
    for verb in [*VERBS, "eval", "plot", "stats"]:
        assert re.search(rf"^  {verb} +\w", out, re.MULTILINE), verb
    assert "Python package" in out
    assert "Examples:" in out
    assert gnomon("help", code=0).out == out
    assert gnomon("-h", code=0).out == out


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_examples(gnomon, verb):
    out = gnomon(verb, "--help", code=0).out
    assert f"gnomon {verb}" in out.split("Examples:")[1]
    assert "--help" in out
    assert verb in ("completion", "help") or "--json" in out
    assert gnomon("help", verb, code=0).out == out


def test_no_verb_is_wrong_use_and_shows_the_help(gnomon):
    result = gnomon(code=2)
    assert result.out == ""
    assert "verb" in result.err.splitlines()[0]
    assert "Examples:" in result.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_parse(gnomon, shell, tmp_path):
    script = gnomon("completion", shell, code=0).out
    for word in [*VERBS, "eval", "plot", "stats", "positions", "numerics", "exact", "bf16", "yarn"]:
        assert word in script
    program = shutil.which(shell)
    if program is None and shell != "bash":
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    done = subprocess.run([program, "-n", tmp_path / "script"], capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        (["ver"], ["verify", "version"]),
        (["e"], ["explain", "extend", "eval"]),
        (["--v"], ["--version"]),
        (["explain", "ya"], ["yarn"]),
        (["explain", "theta-c"], ["theta-conflict"]),
        (["help", "p"], ["positions", "plot"]),
        (["freqs", "--numerics", ""], ["exact", "hf"]),
        (["freqs", "--n"], ["--numerics"]),
        (["table", "--dtype", "f"], ["f64", "f32", "f16"]),
        (["table", "--format", "n"], ["npy"]),
        (["table", "--positions", ""], []),
        (["positions", "co"], ["context-parallel"]),
        (["positions", "mrope", "--family", "g"], ["glm4v"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["inspect", "my mod"], ["my model"]),
        (["check", "my"], ["my model"]),
        (["compare", "my mod"], ["my model"]),
        (["freqs", "--rotary", "my"], ["my model"]),
        (["eval", "my"], ["my model"]),
    ],
)
def test_bash_completes(gnomon, tmp_path, words, completions):
    (tmp_path / "script").write_text(gnomon("completion", "bash", code=0).out)
    (tmp_path / "my model").mkdir()
    program = f'source ./script; COMP_WORDS=(gnomon "$@"); COMP_CWORD={len(words)}; _gnomon; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program, "bash", *words], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    assert [line for line in done.stdout.splitlines() if line] == completions


@pytest.fixture
def installed(executable, tmp_path):
    """A copy of the executable in a folder of its own, and a second folder for PATH."""
    beside, path = tmp_path / "beside", tmp_path / "path"
    beside.mkdir()
    path.mkdir()
    shutil.copy2(executable, beside / "gnomon")

    def run(*arguments, environment=None):
        variables = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", **(environment or {})}
        return subprocess.run([beside / "gnomon", *arguments], env=variables, capture_output=True, encoding="utf-8", check=False)

    return beside, path, run


def program(folder, name, script):
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_another_verb_is_a_program(installed):
    beside, path, run = installed
    program(path, "gnomon-hello", 'echo "path $#:$*"; exit 7')
    done = run("hello", "--json", "a b", "--help", "-x")
    assert (done.returncode, done.stdout) == (7, "path 4:--json a b --help -x\n")
    program(beside, "gnomon-hello", 'echo "beside $1"')
    assert run("hello", "one").stdout == "beside one\n"  # what belongs to this installation comes first
    assert run("help", "hello").stdout == "beside --help\n"
    (beside / "gnomon-hello").chmod(0o644)
    assert run("hello").stdout == "path 0:\n"  # what cannot be run is passed over


def test_a_link_to_the_executable_finds_what_is_beside_it(installed, tmp_path):
    beside, _, _ = installed
    program(beside, "gnomon-hello", "echo hello")
    (tmp_path / "link").symlink_to(beside / "gnomon")
    assert subprocess.run([tmp_path / "link", "hello"], capture_output=True, check=True).stdout == b"hello\n"


def test_a_built_in_verb_cannot_be_replaced(installed):
    beside, _, run = installed
    program(beside, "gnomon-list", "echo mine")
    assert "yarn" in run("list").stdout


def test_a_program_meets_the_usual_signals(installed):
    """We turn a closed pipe into an error; what runs in our place must not inherit that."""
    beside, _, run = installed
    program(beside, "gnomon-signals", "grep SigIgn /proc/self/status")
    ignored = int(run("signals").stdout.split()[1], 16)
    assert not ignored & (1 << 12)  # SIGPIPE is 13


def test_a_program_that_does_not_start(installed):
    beside, _, run = installed
    (beside / "gnomon-broken").write_text("#!/no/such/interpreter\n")
    (beside / "gnomon-broken").chmod(0o755)
    done = run("broken")
    assert done.returncode == 2
    assert "cannot run" in done.stderr


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        ("inpsect", 'did you mean "inspect"?'),
        ("tabel", 'did you mean "table"?'),
        ("frequencies", "unknown verb"),
        ("evl", 'did you mean "eval"?'),
        ("xyzzy", "gnomon help"),
        ("../list", "unknown verb"),
        ("", "unknown verb"),
    ],
)
def test_an_unknown_verb(refused, verb, says):
    refused(verb, says=[f'"{verb}"', says])


def test_the_verbs_of_the_python_package_say_where_they_come_from(installed):
    _, _, run = installed
    done = run("eval", "model", environment={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 2
    assert "Python package" in done.stderr


def test_a_folder_named_like_a_verb_is_a_path(gnomon, refused, tmp_path):
    (tmp_path / "list").mkdir()
    refused("inspect", "list", says="list")
    gnomon("freqs", "--rotary", DEFAULT, code=0)
