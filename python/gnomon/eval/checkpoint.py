# SPDX-License-Identifier: Apache-2.0
"""A model on disk: its header at once, tokenizer and weights when asked for; and the text it reads."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gnomon

from .errors import UsageError
from .methods import GroupRule

if TYPE_CHECKING:
    import torch

# Read when transformers is imported: a local model is local, so no hub is asked about it; and reading a GGUF file shows no bar of its own.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")


@dataclasses.dataclass(frozen=True)
class Text:
    """The beginning of a text file as tokens."""

    path: str
    bytes: int  # of the whole file
    sha256: str  # of the whole file
    start: str | None  # the token the tokenizer puts first (BOS), if it puts one
    ids: torch.Tensor  # (tokens,) int64, the start token included


class Checkpoint:
    """A Hugging Face folder or a GGUF file. `header` is read by gnomon, the rest by transformers, each once."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.header = gnomon.read_model(str(path))
        gguf = self.header.format == "gguf"
        self._folder = str(self.path if self.path.is_dir() else self.path.parent)
        self._options = {"gguf_file": self.path.name} if gguf else {}

    @functools.cached_property
    def tokenizer(self) -> Any:
        return self._load("tokenizer", "AutoTokenizer")

    @functools.cached_property
    def model(self) -> Any:
        """The causal language model in float32, in evaluation mode."""
        import torch

        return self._load("model", "AutoModelForCausalLM", dtype=torch.float32).eval()

    def encode(self, text: str) -> list[int]:
        """Token ids of a piece of text, without special tokens."""
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def layer_type(self, rule: GroupRule) -> str | None:
        """The name transformers gives to the layers of a group, None in a model whose layers are all of one type."""
        types = getattr(self.model.config.get_text_config(), "layer_types", None)
        return types[rule.layers[0]] if types else None

    def rotary_argument(self, rules: list[GroupRule]) -> Any:
        """What gnomon.hf.use takes for these rules: one spec where they agree, else a dict by layer type."""
        if all(rule.rotary == rules[0].rotary for rule in rules):
            return rules[0].rotary
        return {self.layer_type(rule): rule.rotary for rule in rules}

    def stock_difference(self, own: list[GroupRule]) -> float:
        """How far the frequencies plain transformers would run are from the model's own: the largest relative
        difference over all pairs. Call it before a rule is put in."""
        import numpy

        stock = {name.rpartition(".")[2]: values for name, values in self.model.named_buffers()}
        largest = 0.0
        for rule in own:
            ours = gnomon.frequencies(rule.rotary).inv_freq
            theirs = stock.get("inv_freq", stock.get(f"{self.layer_type(rule)}_inv_freq"))
            if theirs is not None and len(theirs) == len(ours):
                largest = max(largest, float(numpy.max(numpy.abs(theirs.double().numpy() / ours - 1))))
        return largest

    def read_text(self, path: str | os.PathLike, tokens: int) -> Text:
        """The first `tokens` tokens of a UTF-8 text file, with the start token if this tokenizer uses one.

        Raises UsageError when the file cannot be read or holds fewer tokens.
        """
        import torch

        try:
            data = Path(path).read_bytes()
            text = data.decode("utf-8-sig")
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: expected a text in UTF-8, got a wrong byte at {error.start}") from error
        ids = self._encode_start(text, tokens)
        if len(ids) < tokens:
            raise UsageError(f"{path}: the text has {len(ids)} tokens, --tokens asks for {tokens}")
        bare = self.encode(text[:64])
        start = self.tokenizer.convert_ids_to_tokens(ids[0]) if bare and ids[0] != bare[0] else None
        return Text(str(path), len(data), hashlib.sha256(data).hexdigest(), start, torch.tensor(ids[:tokens]))

    def _encode_start(self, text: str, tokens: int) -> list[int]:
        # Tokens cost time, so only as much text is encoded as is needed. Where the text is cut the last tokens may
        # come out differently than in the whole: so a few more are asked for, and dropped.
        characters = 8 * tokens + 1024
        while True:
            ids = self.tokenizer(text[:characters])["input_ids"]
            if len(ids) >= tokens + 64 or characters >= len(text):
                return ids
            characters *= 2

    def _load(self, what: str, auto_class: str, **options: Any) -> Any:
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            return getattr(transformers, auto_class).from_pretrained(self._folder, **self._options, **options)
        except Exception as error:  # transformers raises many kinds for a file it cannot load
            raise UsageError(f"{self.path}: transformers cannot load the {what}: {error}") from error
