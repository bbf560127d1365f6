# SPDX-License-Identifier: Apache-2.0
"""The code of README and docs runs, and what pages repeat from the code is what the code says."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import gnomon

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(language):
    """Blocks of a language, but those of commands that build the project itself or stand for the reader's own files."""
    for page in PAGES:
        for number, (found, code) in enumerate(BLOCK.findall(page.read_text())):
            if found == language:
                yield pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")


@pytest.fixture
def workplace(tmp_path, monkeypatch, model_file):
    """A folder with the files the pages speak of: a model, a config, a text."""
    (tmp_path / "model.gguf").symlink_to(model_file)
    (tmp_path / "config.json").write_text((ROOT / "tests/python/data/example-config.json").read_text())
    (tmp_path / "text.txt").write_text("In the beginning God created the heaven and the earth. " * 400)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("code", list(blocks("python")))
def test_python_blocks_run(code, workplace):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("code", list(blocks("sh")))
def test_shell_blocks_run(code, workplace):
    if code.startswith(("make ", "git ", "pip ", "cmake ", "cc ")):
        pytest.skip("a command about the project itself, run elsewhere (tests/package runs those of docs/c.md and docs/install.md)")
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    # inspect exits with 1 for a doubtful model, which is an answer and no failure.
    result = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, timeout=600, env=environment)
    assert result.returncode in (0, 1), result.stderr


def test_generated_blocks_are_current():
    result = subprocess.run([sys.executable, ROOT / "tools/make-docs", "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_rule_has_its_page():
    for rule in gnomon.list_rules():
        assert f"<!-- generated: rule {rule['name']} -->" in (ROOT / f"docs/encodings/{rule['name']}.md").read_text()


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
