# SPDX-License-Identifier: Apache-2.0
"""Extension methods: what `yarn:4` means for a given model."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable

import gnomon

from .errors import UsageError

#: Each makes a rule from the factor and the trained length. Fields beside these two have the rule's usual values.
FAMILIES: dict[str, Callable[[float, int | None], object]] = {
    "linear": lambda factor, trained: gnomon.rotary.Linear(factor=factor),
    "ntk": lambda factor, trained: gnomon.rotary.Ntk(factor=factor),
    "yarn": lambda factor, trained: gnomon.rotary.Yarn(factor=factor, original_max_position_embeddings=trained),
    "llama3": lambda factor, trained: gnomon.rotary.Llama3(
        factor=factor, low_freq_factor=1, high_freq_factor=4, original_max_position_embeddings=trained
    ),
}
NEED_LENGTH = ("yarn", "llama3")
KNOWN = "none, " + ", ".join(f"{family}:FACTOR" for family in FAMILIES)


@dataclasses.dataclass(frozen=True)
class Method:
    """A method as it is written on the command line; `none` is the model's own rule."""

    name: str
    family: str
    factor: float = 1.0


def parse(text: str) -> Method:
    """Reads `none` or `FAMILY:FACTOR`. Raises UsageError that lists the known ones."""
    family, colon, factor = text.partition(":")
    if family == "none" and not colon:
        return Method(text, family)
    if family not in FAMILIES:
        raise UsageError(f"unknown method '{text}'; known: {KNOWN}")
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not 1 <= value < math.inf:
        raise UsageError(f"method '{text}': expected {family}:FACTOR with a number of at least 1, got '{factor}'")
    return Method(text, family, value)


@dataclasses.dataclass(frozen=True)
class GroupRule:
    """Layers that share a rotary spec."""

    layers: tuple[int, ...]
    rotary: gnomon.RotarySpec


def with_method(spec: gnomon.RotarySpec, method: Method, trained: int | None) -> gnomon.RotarySpec:
    """The spec with the rule of `method` in the place of its own; theta, widths and layout stay.

    Raises UsageError when the method needs a trained length and there is none.
    """
    if method.family == "none":
        return spec
    if trained is None and method.family in NEED_LENGTH:
        raise UsageError(f"method '{method.name}' needs the trained length, which the model does not state")
    return gnomon.RotarySpec(
        FAMILIES[method.family](method.factor, trained),
        theta=spec.theta,
        head_dim=spec.head_dim,
        rotary_dim=spec.rotary_dim,
        rotary_offset=spec.rotary_offset,
        layout=spec.layout,
    )


def trained_length(header: gnomon.Model) -> int | None:
    """The length a model was trained at before any extension: its original length, else the declared one."""
    return header.original or header.declared


def own_rules(header: gnomon.Model) -> list[GroupRule]:
    """The rotary spec of every group of layers that rotates, in the pair layout of the model as transformers loads it.

    Raises gnomon.Error when doubts forbid to trust the numbers, UsageError for a model without rotary layers.
    """
    groups = [group for group in header.groups if group.rotary is not None]
    if not groups:
        raise UsageError(f"{header.path}: no layer of this model has a rotary position embedding")
    return [GroupRule(tuple(group.layers), _as_loaded(header, header.rotary(layer=group.layers[0]))) for group in groups]


def rules(method: Method, header: gnomon.Model, trained: int | None) -> list[GroupRule]:
    """The rotary specs a model runs under `method`, group by group.

    The method replaces the rule of the groups its family scales and keeps theta and widths: all of them where they
    agree, and only those without a window where they differ (Gemma 3 scales its full-attention layers only).
    Raises UsageError when the method needs a trained length and there is none.
    """
    own = own_rules(header)
    if method.family == "none":
        return own
    agree = all(group.rotary == own[0].rotary for group in own)
    windowed = {layer for group in header.groups if group.window is not None for layer in group.layers}
    return [
        group if not agree and group.layers[0] in windowed else GroupRule(group.layers, with_method(group.rotary, method, trained))
        for group in own
    ]


def _as_loaded(header: gnomon.Model, spec: gnomon.RotarySpec) -> gnomon.RotarySpec:
    # A llama GGUF holds q and k rows permuted for interleaved pairs; transformers undoes it while loading.
    if header.format != "gguf" or spec.layout == "half_split":
        return spec
    return gnomon.RotarySpec.from_json(json.dumps(json.loads(spec.to_json()) | {"layout": "half_split"}))
