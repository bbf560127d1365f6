# SPDX-License-Identifier: Apache-2.0
"""Every family of the installed transformers that this library knows: its configuration class writes a config.json, the library reads it,
and the frequencies, magnitudes and pair layouts are compared with those of the model's own rotary module. Prints what it found as JSON."""

import importlib
import inspect
import itertools
import json
import pathlib
import tempfile

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers_forward import TEXT_PARTS, look_forward

import gnomon

# Classes whose defaults no released model has, with the keys that the released ones state; and models around them.
STATED = {
    "glm4_moe": {"head_dim": 128},
    "glm4v_moe_text": {"head_dim": 128},
    "minimax_m3_vl_text": {"rotary_dim": 128},
    "qwen3_omni_moe_text": {"head_dim": 128},
}
AROUND_THEM = {"glm4v_moe", "minimax_m3_vl", "qwen3_omni_moe", "qwen3_omni_moe_thinker"}

# Modules that keep their frequencies in the order of their axes.
BY_AXIS = {"ernie4_5_vl_moe", "ernie4_5_vl_moe_text"}

# Families that rotate only when a key says so, and whose class does not say so.
STILL = {"esm", "granitemoehybrid", "zamba2"}


def instances(module, config):
    """The rotary modules of a modeling file that take this configuration."""
    for name, cls in inspect.getmembers(module, inspect.isclass):
        if not name.endswith("RotaryEmbedding") or "Vision" in name or cls.__module__ != module.__name__:
            continue
        try:
            yield name, cls(config=config)
        except Exception:
            continue


def frequencies_of(module, config):
    """{buffer: (frequencies, magnitude)} of every rotary module."""
    found = {}
    for _, rotary in instances(module, config):
        for buffer, values in rotary.named_buffers():
            if buffer.endswith("inv_freq") and "original" not in buffer:
                scaling = getattr(rotary, buffer.replace("inv_freq", "attention_scaling"), getattr(rotary, "attention_scaling", 1.0))
                found[buffer] = (values.double(), float(scaling))
    return found


def candidates(found, group, config):
    """The buffers that may serve a group: those of its layer type, where a module tells types apart."""
    types = getattr(config, "layer_types", None)
    if not types:
        return found
    own = {buffer: values for buffer, values in found.items() if buffer.startswith(types[group.layers[0]])}
    return own or found


def agrees(spec, buffers, in_order):
    ours = gnomon.frequencies(spec)
    inv_freq = torch.tensor(list(ours.inv_freq), dtype=torch.float64)
    return any(
        values.numel() == inv_freq.numel()
        and torch.allclose(values if in_order else values.sort(descending=True).values, inv_freq, rtol=2e-5, atol=1e-12)
        and abs(scaling - ours.attention_factor) < 1e-6
        for values, scaling in buffers.values()
    )


def partner(function, cos, sin):
    """Which channel shares its plane with channel 0."""
    for width in (cos.shape[-1], 2 * cos.shape[-1]):
        unit = torch.eye(width).view(width, 1, 1, width)
        try:
            turned = function(unit, unit, cos, sin)[0]
        except Exception:
            continue
        if turned.shape[-1] != width:
            continue
        moved = (turned.reshape(width, width).abs() > 1e-6).float()
        together = [j for j in range(1, width) if (moved[0] * moved[j]).any()]
        if len(together) == 1:
            return {1: "interleaved", width // 2: "half_split"}.get(together[0])
    return None


def layout_of(module, config):
    """The layout that the family's own function of cos and sin has; None where it has another form."""
    name = "apply_rotary_pos_emb"
    if getattr(config, "rope_interleave", True) and hasattr(module, name + "_interleave"):
        name += "_interleave"
    function = getattr(module, name, None)
    if function is None:
        return None
    x, positions = torch.zeros(1, 1, 8), torch.ones(1, 1, dtype=torch.long)
    types = [None, *(getattr(config, "layer_types", None) or [])[:1]]
    for (_, rotary), layer_type in itertools.product(instances(module, config), types):
        try:
            cos, sin = rotary(x, positions) if layer_type is None else rotary(x, positions, layer_type)
        except Exception:
            continue
        if layout := partner(function, cos, sin):
            return layout
    return None


def read(config):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(config.to_json_string(use_diff=False))
        return gnomon.read_model(str(path))


def look(model_type, class_name):
    """One family: None where it is not known or nothing rotates, else what differs."""
    try:  # some classes refuse their own defaults, some have no modeling file
        config = getattr(transformers, class_name)(**STATED.get(model_type, {}))
        module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    except Exception:
        return None
    model = read(config)
    text = config.get_text_config(decoder=True)
    if {"family-unknown", "model-type-missing"} & {doubt.code for doubt in model.doubts}:
        return None
    found = frequencies_of(module, text)
    if not found or model_type in STILL | AROUND_THEM or getattr(text, "model_type", "") != model.type:
        return None
    groups = [group for group in model.groups if group.part in TEXT_PARTS and group.rotary is not None]
    different = [f"{doubt.code}: {doubt.message}" for doubt in model.doubts if doubt.level == "error"]
    different += [
        f"layers {group.layers[:3]}…: {group.rotary}"
        for group in groups
        if not agrees(group.rotary, candidates(found, group, text), model_type not in BY_AXIS)
    ]
    if not groups:
        different.append("nothing rotates")
    layout = layout_of(module, text)
    if layout and any(group.rotary.layout != layout for group in groups):
        different.append(f"layout {groups[0].rotary.layout} instead of {layout}")
    forward = look_forward(config, STATED.get(model_type, {})) if config is text else None
    return {"different": different, "layout": layout, "theta": groups[0].rotary.theta if groups else None, "forward": forward}


def main():
    transformers.logging.set_verbosity_error()
    seen = {model_type: look(model_type, name) for model_type, name in sorted(CONFIG_MAPPING_NAMES.items())}
    print(json.dumps({model_type: found for model_type, found in seen.items() if found is not None}))


if __name__ == "__main__":
    main()
