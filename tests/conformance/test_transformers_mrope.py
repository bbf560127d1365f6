# SPDX-License-Identifier: Apache-2.0
"""M-RoPE ids against get_rope_index of the transformers that is installed: text, images and videos of random sizes, padded batches."""

import importlib
import random
from types import SimpleNamespace

import numpy as np
import pytest

import gnomon
from gnomon import position_ids

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VERSION = "transformers-5.24"
# Family, its model class, and the settings of its vision config.
FAMILIES = [
    ("qwen2_vl", "qwen2_vl.modeling_qwen2_vl.Qwen2VLModel", {}),
    ("qwen2_5_vl", "qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VLModel", {"tokens_per_second": 2}),
    ("qwen3_vl", "qwen3_vl.modeling_qwen3_vl.Qwen3VLModel", {}),
    ("qwen3_vl", "qwen3_5.modeling_qwen3_5.Qwen3_5Model", {}),
    ("glm4v", "glm4v.modeling_glm4v.Glm4vModel", {}),
    ("glm4v", "glm46v.modeling_glm46v.Glm46VModel", {}),
    ("ernie4_5_vl", "ernie4_5_vl_moe.modeling_ernie4_5_vl_moe.Ernie4_5_VLMoeModel", {"temporal_merge_size": 2}),
]


def theirs(path, config):
    """An object with their two methods and nothing of a model but its config."""
    module, name = path.rsplit(".", 1)
    model = getattr(pytest.importorskip(f"transformers.models.{module}"), name)
    methods = {key: getattr(model, key) for key in ("get_rope_index", "get_vision_position_ids")}
    return type("Model", (), {**methods, "config": SimpleNamespace(vision_config=SimpleNamespace(**config))})()


class Batch:
    """Rows of random runs, as a processor would hand them out."""

    def __init__(self, seed, family, merge):
        self.random, self.family, self.merge = random.Random(seed), family, merge
        self.images, self.videos, self.seconds = [], [], []
        rows = [self.row() for _ in range(self.random.randint(1, 3))]
        width = max(map(len, rows)) + self.random.randint(0, 2)
        left = self.random.random() < 0.5
        pads = [[-1] * (width - len(row)) for row in rows]
        self.types = np.array([pad + row if left else row + pad for pad, row in zip(pads, rows, strict=True)])

    def row(self):
        types = [0] * self.random.randint(1, 5)
        for _ in range(self.random.randint(0, 4)):
            types += self.image() if self.random.random() < 0.5 else self.video()
            types += [0] * self.random.randint(1, 4)  # at least what marks the end of the block
        return types

    def grid(self, frames):
        return [frames, self.random.randint(1, 5) * self.merge, self.random.randint(1, 5) * self.merge]

    def image(self):
        self.images.append(self.grid(1))
        return [1] * (self.images[-1][1] * self.images[-1][2] // self.merge**2)

    def video(self):
        self.videos.append(self.grid(2 * self.random.randint(1, 6)))
        self.seconds.append(self.random.choice([0.25, 0.5, 1.0, 2 / 24, 2 / 30, 0.7, 1.5, 3.1]))
        frames, height, width = self.videos[-1]
        frame = [2] * (height * width // self.merge**2)
        if self.family in ("qwen3_vl", "glm4v"):
            return [0, 0, *frame] * frames  # a timestamp before each
        return frame * (frames // 2 if self.family == "ernie4_5_vl" else frames)


def grids_of(grids):
    return torch.tensor(grids) if grids else None


def compared(family, path, settings):
    """How many ids of random batches were compared, all equal, and so were the positions that follow."""
    number = 0
    for seed in range(60):
        merge = 2 if seed % 4 else 1
        batch = Batch(seed, family, merge)
        model = theirs(path, {"spatial_merge_size": merge, **settings})
        mask = torch.tensor((batch.types >= 0).astype(np.int64))
        types = torch.tensor(np.maximum(batch.types, 0))
        extra = {"second_per_grid_ts": torch.tensor(batch.seconds)} if family == "qwen2_5_vl" and batch.seconds else {}
        ids, deltas = model.get_rope_index(types, types, grids_of(batch.images), grids_of(batch.videos), attention_mask=mask, **extra)

        config = position_ids.VisionModel(family, version=VERSION, spatial_merge=merge)
        own = position_ids.VisionBatch.from_token_types(
            config, batch.types, images=batch.images, videos=batch.videos, second_per_grid=batch.seconds
        )
        np.testing.assert_array_equal(own.ids(), ids.numpy())
        assert [state.rope_delta for state in own.next_states()] == deltas.flatten().tolist()
        assert own.check(ids.numpy()).right
        number += ids.numel()
    return number


def test_ids_and_next_positions_are_equal(tally):
    tally("ids against get_rope_index", sum(compared(*family) for family in FAMILIES))


def test_their_ids_are_told_from_those_of_other_versions():
    """A long video is where behaviours part: original goes on behind it, transformers beside it."""
    types = torch.tensor([[0] + [2] * 6 + [0]])
    ids, _ = theirs(FAMILIES[0][1], {"spatial_merge_size": 2}).get_rope_index(types, types, None, torch.tensor([[6, 2, 2]]))
    runs = [position_ids.TextRun(1), position_ids.VideoRun(6, 2, 2), position_ids.TextRun(1)]
    original = position_ids.VisionBatch(position_ids.VisionModel("qwen2_vl"), [runs])
    assert not original.check(ids.numpy()).right
    assert "version-transformers-5.24" in original.check(ids.numpy()).mistakes


def test_rows_of_roberta(tally):
    roberta = pytest.importorskip("transformers.models.roberta.modeling_roberta")
    mask = np.random.default_rng(0).random((8, 33)) < 0.7
    for padding_idx in (0, 1, 3):
        tokens = np.where(mask, padding_idx + 5, padding_idx)
        theirs_rows = roberta.RobertaEmbeddings.create_position_ids_from_input_ids(torch.tensor(tokens), padding_idx)
        rows = position_ids.TextBatch(mask).table_rows(offset=padding_idx + 1)
        np.testing.assert_array_equal(rows, theirs_rows.numpy())
    tally("rows of RoBERTa", 3 * mask.size)


def test_rows_of_opt(tally):
    opt = pytest.importorskip("transformers.models.opt.modeling_opt")
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    table = opt.OPTLearnedPositionalEmbedding(16, 1)
    with torch.no_grad():
        table.weight.copy_(torch.arange(18.0)[:, None])  # a row that says its number
    theirs_rows = table(mask)[..., 0].detach().numpy()
    rows = position_ids.TextBatch(mask.numpy()).table_rows(offset=2)
    np.testing.assert_array_equal(rows, theirs_rows)
    tally("rows of OPT", rows.size)


def test_sections_of_ernie_are_those_of_its_module(tmp_path):
    """The frequencies and the axis of each pair, from the config.json of its own class, against cos of its own module."""
    module = importlib.import_module("transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe")
    config = transformers.Ernie4_5_VLMoeTextConfig(num_hidden_layers=2)
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    spec = gnomon.read_model(tmp_path / "config.json").rotary()
    assert (spec.sections, spec.section_order) == ([20, 22, 22], "time_last")
    positions = np.array([[3, 700], [11, 40], [29, 5]])  # time, height, width
    cos, _ = module.Ernie4_5_VLMoeTextRotaryEmbedding(config)(torch.zeros(1), torch.tensor(positions)[:, None])
    made = gnomon.frequencies(spec)
    ours = np.cos(positions[made.axis] * made.inv_freq[:, None]).T
    np.testing.assert_allclose(cos[0, :, ::2].numpy(), ours, atol=2e-5)
    assert not np.allclose(ours, np.cos(positions[made.axis[::-1]] * made.inv_freq[:, None]).T, atol=1e-2)
