# SPDX-License-Identifier: Apache-2.0
"""Running commands as a person at a terminal does."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, **options):
    """Runs a command that must succeed; returns what it wrote to standard output."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, **options)
    assert result.returncode == 0, f"{command}:\n{result.stdout}{result.stderr}"
    return result.stdout
