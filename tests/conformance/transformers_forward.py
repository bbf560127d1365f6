# SPDX-License-Identifier: Apache-2.0
"""What a forward pass of a tiny random model of a family does to queries and keys, compared with the set-up that the library reads from
the tiny model's own config.json."""

import json
import pathlib
import tempfile

import numpy
import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import gnomon

TEXT_PARTS = ("", "text", "decoder")
POSITIONS = [0, 1, 2, 5, 11, 30]
TOKENS = len(POSITIONS)
LARGEST = 12_000_000  # parameters
OTHER = {"half_split": "interleaved", "interleaved": "half_split"}

# Two heads on one key head and nothing wide; heads are as wide as the family's, so that its sections and fractions still fit.
TINY = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 32,
    "moe_intermediate_size": 32,
    "vocab_size": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Seen:
    """Stands in place of attention, keeps the queries and keys of each layer and returns zeros: so position enters a layer through its
    own rotation alone. Beside them, what every linear layer returned meanwhile."""

    def __init__(self):
        self.layers, self.linear = [], []

    def output(self, _, __, out):
        if isinstance(out, torch.Tensor) and out.numel() % TOKENS == 0:
            self.linear.append(out.detach().reshape(TOKENS, -1).double())

    def attention(self, module, query, key, value, *_, **__):
        self.layers.append((query[0, 0].double(), key[0, 0].double(), self.linear[-4:]))
        return query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1]), None


def make_tiny(config, stated):
    """Two layers, or one of each type that the family has, with the keys that `config` was made with."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    types = list(dict.fromkeys(getattr(config, "layer_types", None) or []))
    wanted = {**TINY, "num_hidden_layers": max(2, len(types)), "hidden_size": 2 * width}
    if len(types) > 1:
        wanted["layer_types"] = types
    for key, value in wanted.items():
        usual = getattr(config, key, None)
        if isinstance(usual, list) and not isinstance(value, list):
            wanted[key] = [value] * len(usual)
    return type(config)(**stated, **{key: value for key, value in wanted.items() if hasattr(config, key)})


def places(axes):
    """(axes, tokens): no two axes agree."""
    return numpy.array([[(axis + 1) * position + axis for position in POSITIONS] for axis in range(axes)])


def queries_and_keys(config, axes, seen):
    """Those of each layer with every token at position 0, and at its place."""
    ALL_ATTENTION_FUNCTIONS.register("seen", seen.attention)
    torch.manual_seed(7)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in transformers.AutoModel.from_config(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{size} parameters are not tiny")
    model = transformers.AutoModel.from_config(config, attn_implementation="seen").eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(seen.output)
    runs = []
    for positions in (0 * places(axes), places(axes)):
        seen.layers = []
        ids = torch.tensor(positions) if axes == 1 else torch.tensor(positions)[:, None]
        with torch.no_grad():
            model(input_ids=torch.arange(3, 3 + TOKENS)[None], position_ids=ids, use_cache=False)
        runs.append(seen.layers)
    return zip(*runs, strict=True)


def in_order_of_rows(spec, x, linear):
    """The rotated channels in the order in which the rows of a projection made them: some families move them before they rotate. As they
    are where something else, such as a norm, lies between."""
    rotated = slice(spec.rotary_offset, spec.rotary_offset + spec.rotary_dim)
    for out in linear:  # the same but for a constant factor, as LongCat has it
        same = ((out / out[:1])[:, :, None] - (x / x[:1])[:, None, rotated]).abs().amax(dim=0) < 1e-5  # (columns, channels)
        if (same.sum(dim=0) == 1).all():
            x = x.clone()
            x[:, rotated] = x[:, rotated][:, same.float().argmax(dim=0).argsort()]
            break
    return x


def turned(spec, x, direction):
    """The library's rotation, without the magnitude, which is on x already."""
    positions = direction * places(max(1, len(spec.sections)))
    array = x[None, None].numpy().copy()
    gnomon.rotate(array, spec, positions if len(positions) > 1 else positions[0])
    return torch.from_numpy(array)[0, 0] / gnomon.frequencies(spec).attention_factor


def in_layout(spec, layout):
    return gnomon.RotarySpec.from_json(json.dumps({**json.loads(spec.to_json()), "layout": layout}))


def agrees(spec, direction, still, moved):
    """Whether scores of the model are those of its queries and keys at position 0, rotated by the library."""
    (query, key, linear), (moved_query, moved_key, _) = still, moved
    expected = moved_query @ moved_key.T
    if spec is not None:
        query, key = (turned(spec, in_order_of_rows(spec, x, linear), direction) for x in (query, key))
    return bool((query @ key.T - expected).abs().max() < 1e-4 * expected.abs().max())


def check(spec, direction, still, moved):
    """What is wrong with the set-up of a layer; None when nothing is."""
    if not agrees(spec, direction, still, moved):
        return f"queries and keys of the model are not those of {spec}"
    if spec is None:
        return None
    if agrees(in_layout(spec, OTHER[spec.layout]), direction, still, moved):
        return f"the forward pass cannot tell {spec.layout} from its opposite"
    if agrees(spec, -direction, still, moved):
        return "the forward pass cannot tell which way pairs turn"
    return None


def read(config):
    """The rotary specs of its attention layers, as the library reads them, and which way they turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(config.to_json_string(use_diff=False))
        model = gnomon.read_model(str(path))
    specs = {layer: group.rotary for group in model.groups if group.part in TEXT_PARTS for layer in group.layers}
    reversed_ = any(doubt.code == "rotation-reversed" for doubt in model.doubts)
    return [specs[layer] for layer in sorted(specs)], -1 if reversed_ else 1


def look_forward(config, stated):
    """[what is wrong, or None] for each attention layer of a tiny model; None where the family cannot be made tiny by these means."""
    try:
        tiny = make_tiny(config, stated)
        specs, direction = read(tiny)
        axes = max([len(spec.sections) for spec in specs if spec is not None], default=1) or 1
        runs = list(queries_and_keys(tiny, axes, Seen()))
    except Exception:  # other people's code: anything may come
        return None
    if not runs:  # attention that does not pass through the common interface
        return None
    times, left = divmod(len(runs), len(specs))  # layers of LongCat attend twice
    if left or not times:
        return [f"{len(runs)} times attention, {len(specs)} layers are read"]
    return [check(specs[i // times], direction, *run) for i, run in enumerate(runs)]
