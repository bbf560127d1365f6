# SPDX-License-Identifier: Apache-2.0
"""gnomon compare: equal by meaning, or what differs and how far scores drift."""

import os
import shutil
import stat
import subprocess

import pytest

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# T07 of the published cases: mean cosine of Llama 3.1's rotation without its scaling.
FIGURES = {0: 1, 1000: 0.9630635813, 8192: 0.7689460837, 20000: 0.6267698259, 60000: 0.5394534260, 131071: 0.5018345378}


@pytest.fixture
def pair(llama):
    return llama("a/config.json", rope_theta=500000.0, rope_scaling=LLAMA3), llama("b/config.json", rope_theta=500000.0)


def test_spellings_of_one_meaning(gnomon, llama):
    a = llama("a/config.json", rope_theta=500000.0)
    b = llama("b/config.json", rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    out = gnomon("compare", a, b, code=0).out
    assert "layers 0-3: equal" in out
    assert out.endswith("A and B declare the same positions.\n")


def test_a_dropped_scaling(gnomon, pair):
    out = gnomon("compare", *pair, "--positions", ",".join(map(str, FIGURES)), code=1).out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "layers 0-3: different" in lines
    assert 'rotary.rule "llama3" "default"' in lines
    assert "rotary.factor 8.0 -" in lines
    for distance, mean in FIGURES.items():
        assert f"{distance} {mean:.10f}" in lines
    assert lines[-1] == "A and B differ."


def test_the_json(gnomon, pair):
    got = gnomon("compare", *pair, "--json", code=1).json
    assert list(got) == ["schema", "equal", "a", "b", "differences", "groups", "notes"]
    (group,) = got["groups"]
    assert group["layers"] == [0, 1, 2, 3]
    drift = dict(zip(group["drift"]["distances"], group["drift"]["mean_cosines"], strict=True))
    assert drift[8192] == pytest.approx(FIGURES[8192], abs=6e-11)
    assert 1 < group["drift"]["position"] < 1000
    same = gnomon("compare", pair[0], pair[0], "--json", code=0).json
    assert same["equal"] is True
    assert same["groups"][0]["drift"] is None


def test_numbers_that_cannot_be_made(refused, llama, pair):
    unknown = llama("c/config.json", rope_theta=1e4, rope_scaling={"rope_type": "magic", "factor": 2.0})
    refused("compare", pair[0], unknown, says="scaling-unknown")


def test_wrong_use(refused, pair):
    refused("compare", pair[0], says="B")
    refused("compare", pair[0], "missing", says="missing")
    refused("compare", *pair, "--positions", "0.5,1", says="integers")
    refused("compare", *pair, "--positions", "0:1000000000", says="at most 16777216")


def test_plot_runs_the_program_of_the_python_package(executable, pair, tmp_path):
    folder = tmp_path / "bin"  # the command alone, so that no other program is beside it
    folder.mkdir()
    shutil.copy2(executable, folder / "gnomon")

    def run(*arguments):
        variables = os.environ | {"PATH": str(folder)}
        return subprocess.run(
            [folder / "gnomon", *arguments], env=variables, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
        )

    missing = run("compare", *pair, "--plot", "drift.svg")
    assert missing.returncode == 2
    assert "Python package" in missing.stderr
    program = folder / "gnomon-plot"
    program.write_text('#!/bin/sh\necho "$@" > arguments\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert run("compare", *pair, "--plot", "drift.svg").returncode == 1
    assert (tmp_path / "arguments").read_text() == f"drift {pair[0]} {pair[1]} --out drift.svg\n"
    same = run("compare", pair[0], pair[0], "--plot", "none.svg")
    assert same.returncode == 0
    assert same.stderr == "gnomon: no rotation differs, so none.svg is not drawn\n"
    program.write_text("#!/bin/sh\necho a reason >&2\nexit 2\n")
    failed = run("compare", *pair, "--plot", "drift.svg")
    assert failed.returncode == 2
    assert failed.stderr == "a reason\ngnomon: gnomon plot failed\n"
