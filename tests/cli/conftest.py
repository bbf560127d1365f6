# SPDX-License-Identifier: Apache-2.0
"""Runs the executable as a user does. GNOMON names it; without that it is the one `make build` leaves in .venv/bin."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXECUTABLE = Path(os.environ.get("GNOMON", ROOT / ".venv/bin/gnomon")).absolute()


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one JSON object on standard output; a key that stands twice fails."""

        def once(pairs):
            assert len(dict(pairs)) == len(pairs), "duplicate key"
            return dict(pairs)

        return json.loads(self.out, object_pairs_hook=once)


@pytest.fixture(scope="session")
def executable():
    assert EXECUTABLE.is_file(), f"{EXECUTABLE} is missing: run `make build`, or set GNOMON"
    return EXECUTABLE


@pytest.fixture
def gnomon(executable, tmp_path):
    """gnomon("freqs", "--json", …) -> Result. It runs in an empty folder."""

    def run(*arguments, text=None, env=None, code=None, **options):
        done = subprocess.run(
            [executable, *map(str, arguments)],
            input=text,
            capture_output=True,
            encoding="utf-8",
            cwd=options.pop("cwd", tmp_path),
            env={**os.environ, **(env or {})},
            timeout=120,
            check=False,
            **options,
        )
        result = Result(done.returncode, done.stdout, done.stderr)
        if code is not None:
            assert result.code == code, f"exit {result.code}\n{result.out[:2000]}\n{result.err}"
        return result

    return run


@pytest.fixture
def refused(gnomon):
    """refused(*arguments, *, says=…): exit 2, nothing on standard output, one message that names what is wrong."""

    def run(*arguments, says, **options):
        result = gnomon(*arguments, **options)
        assert result.code == 2, f"exit {result.code}\n{result.out[:2000]}\n{result.err}"
        assert result.out == ""
        assert result.err.startswith("gnomon: "), result.err
        assert result.err.count("\n") == 1, result.err
        for words in [says] if isinstance(says, str) else says:
            assert words in result.err, result.err
        return result

    return run


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-5,
}


@pytest.fixture
def llama(tmp_path):
    """llama(**keys) -> path of a config.json of a Llama with these keys."""

    def write(name="config.json", **keys):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**LLAMA, **keys}), encoding="utf-8")
        return path

    return write


@pytest.fixture
def gemma3(tmp_path):
    """Path of a config.json whose layers are of two kinds: every sixth is global."""
    path = tmp_path / "gemma3" / "config.json"
    path.parent.mkdir()
    keys = {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "hidden_size": 1152,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "num_hidden_layers": 12,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 256,
    }
    path.write_text(json.dumps(keys), encoding="utf-8")
    return path
