# SPDX-License-Identifier: Apache-2.0
"""What a stranger gets: a wheel, and an installed library. Both come from the folder `make build` builds in, so little is compiled here.

Nothing here skips: what is missing on a machine fails, in CI and elsewhere.
"""

import shutil
import sys

import pytest
from running import ROOT, run

BUILD = ROOT / "build/python"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    strict = "--config-settings=cmake.define.GNOMON_WARNINGS_AS_ERRORS=ON"  # as the Makefile has it: nothing is compiled anew
    options = ["--no-build-isolation", "--no-deps", f"--config-settings=build-dir={BUILD}", strict, "--wheel-dir", folder]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", *options, ROOT)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def prefix(wheel, tmp_path_factory):
    """The library and the command, installed and then moved: nothing may depend on where they were installed."""
    folder = tmp_path_factory.mktemp("installed")
    for component in ("library", "command"):
        run("cmake", "--install", BUILD, "--prefix", folder / "first", "--component", component)
    shutil.move(folder / "first", folder / "moved")
    return folder / "moved"
