# SPDX-License-Identifier: Apache-2.0
"""The names that `convert --to gguf` puts before keys are llama.cpp's."""

import re
from pathlib import Path

import pytest

gguf = pytest.importorskip("gguf")

TABLES = (Path(__file__).parents[2] / "src/model/gguf_architectures.cpp").read_text(encoding="utf-8")


def test_every_name_is_one_of_the_gguf_package():
    own = re.findall(r'\{\.name = "([^"]+)"', TABLES)
    others = re.findall(r'^    \{"[^"]+", "([^"]+)"\}', TABLES, re.MULTILINE)
    assert len(own) > 100
    assert len(others) > 50
    assert set(others) <= set(gguf.MODEL_ARCH_NAMES.values())
    assert set(others) <= set(own)
