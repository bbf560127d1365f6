# SPDX-License-Identifier: Apache-2.0
"""Extension methods: what `yarn:4` means for a given model."""

from __future__ import annotations

import dataclasses
import json

import gnomon

from .errors import UsageError

KNOWN = gnomon.analysis.known_methods()
#: Any rule that every method can take the place of: it tells whether a text is a method at all.
_ANY = gnomon.RotarySpec(
    gnomon.rotary.Longrope(short_factor=[1, 1], long_factor=[1, 1], original_max_position_embeddings=64, factor=2),
    theta=10000.0,
    head_dim=4,
)


@dataclasses.dataclass(frozen=True)
class Method:
    """A method as it is written on the command line; `none` is the model's own rule."""

    name: str


def parse(text: str) -> Method:
    """Reads `none` or `FAMILY:NUMBER`. Raises UsageError that lists the known ones."""
    with_method(_ANY, Method(text), 64)
    return Method(text)


@dataclasses.dataclass(frozen=True)
class GroupRule:
    """Layers that share a rotary spec."""

    layers: tuple[int, ...]
    rotary: gnomon.RotarySpec


def with_method(spec: gnomon.RotarySpec, method: Method, trained: int | None) -> gnomon.RotarySpec:
    """The spec with the rule of `method` in the place of its own; widths and layout stay.

    Raises UsageError when the method needs a trained length and there is none, or cannot take the place of the rule.
    """
    try:
        return gnomon.analysis.with_method(spec, method.name, trained)
    except gnomon.Error as error:
        raise UsageError(str(error)) from error


def automatic(header: gnomon.Model, trained: int | None, tokens: int) -> list[Method]:
    """Every method that takes the model to `tokens` positions, `none` first, as `gnomon extend` lists them.

    `trained` is the length given in the place of what the files say. Raises gnomon.Error when nothing is to be extended.
    """
    own = own_rules(header)
    scaled = [group for group in own if group.layers[0] not in _kept(header, own)]
    training = gnomon.analysis.training_of(header, scaled[0].layers[0]) if trained is None else None
    training = training or gnomon.analysis.Training(scaled[0].rotary, trained)
    return [Method(extension.method) for extension in gnomon.analysis.extend(training, tokens).extensions]


def trained_length(header: gnomon.Model) -> int | None:
    """The length a model was trained at before any extension: its original length, else the declared one."""
    return header.original or header.declared


def own_rules(header: gnomon.Model) -> list[GroupRule]:
    """The rotary spec of every group of layers that rotates, in the pair layout of the model as transformers loads it.

    In a model of several parts these are layers of its main one; a tower for images or sound has angles of its own.

    Raises gnomon.Error when doubts forbid to trust the numbers, UsageError for a model without rotary layers.
    """
    groups = [group for group in header.groups if group.rotary is not None and group.part == header.groups[0].part]
    if not groups:
        raise UsageError(f"{header.path}: no layer of this model has a rotary position embedding")
    return [GroupRule(tuple(group.layers), _as_loaded(header, header.rotary(layer=group.layers[0]))) for group in groups]


def rules(method: Method, header: gnomon.Model, trained: int | None, tokens: int | None = None) -> list[GroupRule]:
    """The rotary specs a model runs under `method`, group by group.

    The method replaces the rule of the groups its family scales and keeps theta and widths: all of them where they
    agree, and only those without a window where they differ (Gemma 3 scales its full-attention layers only).
    `dynamic` gets the base of a text of `tokens` from the first token on, so that every key is rotated once.
    Raises UsageError when the method needs a trained length and there is none.
    """
    own = own_rules(header)
    if method.name == "none":
        return own
    kept = _kept(header, own)
    return [
        group if group.layers[0] in kept else GroupRule(group.layers, _settled(with_method(group.rotary, method, trained), tokens))
        for group in own
    ]


def _kept(header: gnomon.Model, own: list[GroupRule]) -> set[int]:
    """Layers that no method changes: where the rules differ, those with a window, which bounds their distances."""
    if all(group.rotary == own[0].rotary for group in own):
        return set()
    windowed = {layer for group in header.groups if group.window is not None for layer in group.layers}
    return windowed if any(group.layers[0] not in windowed for group in own) else set()


def _settled(spec: gnomon.RotarySpec, tokens: int | None) -> gnomon.RotarySpec:
    rule = spec.rule
    if rule.name != "dynamic" or tokens is None:
        return spec
    growth = rule.factor * max(tokens, rule.max_position_embeddings) / rule.max_position_embeddings - (rule.factor - 1)
    base = spec.theta * growth ** (spec.rotary_dim / (spec.rotary_dim - 2))
    return gnomon.analysis.with_method(spec, f"theta:{base!r}")


def _as_loaded(header: gnomon.Model, spec: gnomon.RotarySpec) -> gnomon.RotarySpec:
    # A llama GGUF holds q and k rows permuted for interleaved pairs; transformers undoes it while loading.
    if header.format != "gguf" or spec.layout == "half_split":
        return spec
    return gnomon.RotarySpec.from_json(json.dumps(json.loads(spec.to_json()) | {"layout": "half_split"}))
