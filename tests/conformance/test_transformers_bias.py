# SPDX-License-Identifier: Apache-2.0
"""bias_table against the modules of the transformers that is installed: T5, BLOOM, MPT, Falcon, Swin, Swin v2 and BEiT, with random weights."""

import json

import numpy as np
import pytest

import gnomon

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def rule(**fields):
    return gnomon.bias.from_json(json.dumps(fields))


def dense(table, heads, queries, keys):
    """A table as the modules make it, (H, queries, keys), the last query at the last key."""
    shift = keys - queries
    return np.array(
        [[[gnomon.bias_at(table, h, i + shift, j, i + shift) for j in range(keys)] for i in range(queries)] for h in range(heads)]
    )


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (64, 128), (32, 256)])
def test_t5(bidirectional, buckets, max_distance, tally):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=8,
        d_kv=4,
        num_heads=2,
        is_decoder=not bidirectional,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
    )
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    torch.nn.init.normal_(module.relative_attention_bias.weight)
    with torch.no_grad():
        expected = module.compute_bias(40, 300, past_seen_tokens=260)[0].numpy()
    t5 = rule(rule="t5", buckets=buckets, max_distance=max_distance, bidirectional=bidirectional)
    weights = module.relative_attention_bias.weight.detach().numpy()
    got = dense(gnomon.bias_table(t5, reach=300, table=weights), 2, 40, 300)
    assert np.array_equal(got, expected)
    assert not np.array_equal(dense(gnomon.bias_table(t5, reach=300, table=np.roll(weights, -1, 0)), 2, 40, 300), expected)
    tally("biases of T5", got.size)


@pytest.mark.parametrize("heads", [40, 12, 8, 1])
def test_slopes(heads, tally):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    n = 2 ** int(np.log2(heads))
    slopes = [2.0 ** (-8 * (h + 1) / n) if h < n else 2.0 ** (-4 * (2 * (h - n) + 1) / n) for h in range(heads)]
    got = gnomon.bias_table(rule(rule="alibi", heads=heads, slopes=slopes)).slopes
    bloom = build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32).reshape(heads, 2)[:, 1]
    mpt = -build_mpt_alibi_tensor(heads, 2).reshape(heads, 2)[:, 0]
    for module in (bloom, mpt):
        np.testing.assert_allclose(got, module.numpy(), rtol=2e-6)  # BLOOM takes powers of a slope rounded to float32
    tally("slopes of BLOOM and MPT", 2 * heads)


def test_falcon(tally):
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor

    mask = torch.ones(1, 1000, dtype=torch.long)
    expected = build_alibi_tensor(mask, 32, torch.float32).reshape(32, 1000).numpy() / 8
    slopes = [2.0 ** (-(h + 1) / 4) for h in range(32)]
    got = gnomon.falcon_bias(rule(rule="alibi", heads=32, slopes=slopes), list(range(1000)), 0.125)
    assert np.array_equal(got, expected)
    tally("biases of Falcon", got.size)


def test_swin(tally):
    from transformers.models.swin.modeling_swin import SwinRelativePositionBias

    module = SwinRelativePositionBias(2, (5, 5))
    weights = torch.nn.init.normal_(module.relative_position_bias_table).detach()
    expected = weights[module.relative_position_index.view(-1)].view(25, 25, 2).permute(2, 0, 1).numpy()
    got = dense(gnomon.bias_table(rule(rule="swin", window=5, rows=81), table=weights.numpy()), 2, 25, 25)
    assert np.array_equal(got, expected)
    assert not np.array_equal(got, expected.transpose(0, 2, 1)), "the sign of the offset"
    tally("biases of Swin", got.size)


@pytest.mark.parametrize("pretrained", [0, 4])
def test_swin_v2(pretrained, tally):
    from transformers import Swinv2Config
    from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

    module = Swinv2SelfAttention(Swinv2Config(), 8, 2, 6, [pretrained, pretrained])
    first, last = module.continuous_position_bias_mlp[0], module.continuous_position_bias_mlp[2]
    with torch.no_grad():
        rows = module.continuous_position_bias_mlp(module.relative_coords_table).view(-1, 2)
        expected = 16 * torch.sigmoid(rows[module.relative_position_index.view(-1)].view(36, 36, 2).permute(2, 0, 1))
    weights = [x.detach().numpy() for x in (first.weight, first.bias, last.weight)]
    table = gnomon.bias_table(
        rule(rule="swinv2", window=6, pretrained_window=pretrained), weights1=weights[0], bias1=weights[1], weights2=weights[2]
    )
    got = dense(table, 2, 36, 36)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5)
    assert np.abs(got - expected.numpy().transpose(0, 2, 1)).max() > 1e-3, "the sign of the offset"
    tally("biases of Swin v2", got.size)


def test_beit(tally):
    from transformers import BeitConfig
    from transformers.models.beit.modeling_beit import BeitRelativePositionBias

    module = BeitRelativePositionBias(BeitConfig(num_attention_heads=2, image_size=64, patch_size=16))
    weights = torch.nn.init.normal_(module.relative_position_bias_table).detach()
    with torch.no_grad():
        expected = module((4, 4)).reshape(2, 17, 17).numpy()
    got = dense(gnomon.bias_table(rule(rule="beit", window=4, rows=52), table=weights.numpy()), 2, 17, 17)
    assert np.array_equal(got, expected)
    assert not np.array_equal(got, expected.transpose(0, 2, 1)), "the sign of the offset"
    tally("biases of BEiT", got.size)
