# SPDX-License-Identifier: Apache-2.0
"""The golden files are what their script computes, and the script knows nothing of gnomon."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "make-golden"
MODEL_SCRIPT = ROOT / "tools" / "make-model-golden"


@pytest.mark.parametrize("script", [SCRIPT, MODEL_SCRIPT], ids=lambda script: script.name)
def test_committed_numbers_are_computed_again(script):
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_manifest_lists_what_the_script_makes():
    names = subprocess.run([sys.executable, SCRIPT, "--list"], capture_output=True, text=True, check=True).stdout.split()
    listed = [line.split()[1] for line in (ROOT / "tests" / "golden" / "MANIFEST.sha256").read_text().splitlines()]
    assert sorted(f"{name}.json" for name in names) == sorted(listed)


@pytest.mark.parametrize("script", [SCRIPT, MODEL_SCRIPT], ids=lambda script: script.name)
def test_script_imports_nothing_of_gnomon(script):
    imported = set()
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert "mpmath" in imported
    assert imported - {"mpmath"} <= set(sys.stdlib_module_names)
