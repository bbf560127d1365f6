# SPDX-License-Identifier: Apache-2.0
"""gnomon.hf: positions by our numbers inside a transformers model.

    with gnomon.hf.use(model, gnomon.rotary.Yarn(factor=4, original_max_position_embeddings=8192)) as handle:
        logits = model(ids).logits                           # our cos and sin; handle.calls counts the forwards
    handle = gnomon.hf.use(model, spec)                      # or without a block, until
    handle.undo()                                            # the model is exactly what it was
    handle = gnomon.hf.use_absolute(model)                   # the same for position tables: BERT, GPT-2, OPT, Whisper, RoFormer, ViT
    handle = gnomon.hf.enable(model)                         # our attention; attn_implementation="gnomon" alone does for most families

transformers asks one rotary module for cos and sin in each forward and hands them to every layer. That module is exchanged. Its
conventions differ by family (width, duplication, order, dtype), so the old module is called once and what it shows is copied;
what is not recognised is refused by name.
"""

import copy
import dataclasses
import json
import tempfile

import numpy
import torch
import transformers
from packaging.version import Version

import gnomon
import gnomon.torch

__all__ = ["TRANSFORMERS", "AttentionHandle", "Handle", "enable", "spec_of", "use", "use_absolute"]

TRANSFORMERS = ("5.24.0", "5.24.0")
"""The range of transformers versions this module is made for: the oldest that works and the newest that was tested. An older one is
refused (before 5.24 the rotary modules were placed and called in other ways); a newer one is tried, and protected by the probe."""


def use(model, rule, *, numerics="exact"):
    """Puts a rule into a transformers model until the returned Handle is undone, by its `undo()` or at the end of a `with` block.

    model     any module of transformers with exactly one rotary module in it (a decoder, or the text part of a larger model)
    rule      a RotarySpec; or a rule of gnomon.rotary, which gets theta and widths of the model's own config; or, for models that
              rotate by layer type (Gemma 3), a dict of these by layer type. A rule alone then goes to "full_attention" and the
              other layer types keep their own, as in the models of these families that were extended
    numerics  "exact", or "hf" for transformers' own float32 pipeline

    Only the numbers are exchanged: which channels form a pair is the model's own code, so the spec's layout and offset are not used.
    The rotary width must be the model's. Where position ids have several axes (M-RoPE: time, height and width of an image's patches),
    each pair follows the axis it follows in the model (Wang et al. 2024, Qwen2-VL, arXiv:2409.12191): a spec without sections gets the
    model's, one with others is refused. cos and sin are made in float32 at the position ids given, multiplied by the attention factor
    and cast as the model's module did it. No gradient flows into them. torch.compile breaks its graph here.

    Rules that depend on the length (dynamic, longrope) get that of each forward, its largest position + 1, and nothing of earlier ones:
    transformers' dynamic keeps the largest base it has seen until a sequence is shorter than the trained length, ours does not. Keys
    in a cache keep the numbers they were rotated with, in both.

    Raises ValueError for a model without a rotary module or with several, for a module that is not understood and for a rule that
    does not fit; gnomon.Error for a spec that is not valid; RuntimeError for a version of transformers below the range.
    """
    _require_transformers()
    places, old = _find_rotary(model)
    conventions = _conventions(old)
    module = RotaryModule(_specs(rule, model, conventions), numerics, conventions).train(old.training)
    return Handle([(parent, name, old, module) for parent, name in places], module)


def use_absolute(model, spec=None, *, numerics="exact"):
    """Puts our rows of an absolute encoding into a transformers model until the returned Handle is undone, as `use` does for a rotary.

    model     any module of transformers with exactly one position table in it: RoFormer, BERT, GPT-2, OPT, ViT, or one half of Whisper
              (`model.get_encoder()`, `model.get_decoder()`)
    spec      an AbsoluteSpec with the rule Sinusoidal, whose rows then replace the model's, trained or not; None: the model's own rows,
              looked up and added by gnomon.torch.add_positions, with their gradient
    numerics  "exact", or "hf" for the float32 values of transformers

    Which position a token has is the model's own rule: after those in the cache, given as position_ids, counted over the attention
    mask (OPT, whose row of position 0 is row 2). torch.compile breaks its graph here. Raises ValueError for a model without a position table that is understood, or with
    several, and for a spec that does not fit; gnomon.Error where a table cannot be made, and for a position without a row.
    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    _require_transformers()
    parent, name, old = _find_table(model)
    weight = old if isinstance(old, torch.nn.Parameter) else old.weight
    width = weight.shape[-1]
    if spec is not None:
        if not isinstance(spec.rule, gnomon.absolute.Sinusoidal) or spec.rule.axes != 1 or spec.width != width:
            raise ValueError(f"spec: expected a Sinusoidal of one axis and of width {width}, the model's, got {spec!r}")
        gnomon.embedding_table(spec, range(1), numerics=numerics)  # what cannot be made fails here
    if weight is not old:
        module = PositionTable(weight, spec, numerics, type(old).__name__, getattr(old, "offset", 0)).train(old.training)
        return Handle([(parent, name, old, module)], module)
    # A parameter of the module that adds it; ours adds where the sum goes next, and it adds zeros.
    module = PatchPositions(old, spec, numerics, parent.dropout).train(parent.training)
    zeros = torch.nn.Parameter(torch.zeros_like(old), requires_grad=False)
    return Handle([(parent, "dropout", parent.dropout, module), (parent, name, old, zeros)], module)


def spec_of(model):
    """The RotarySpec a transformers model declares, or a dict of them by layer type, as read_model reads it from the model's config.
    Sections of position axes are those its module was seen to use.

    Raises gnomon.Error where the config is not understood or contradicts itself, ValueError for a model without a rotary module.
    """
    _, module = _find_rotary(model)
    return _plain(_declared(model, _conventions(module)))


class Handle:
    """What is in force in a model: returned by `use` and `use_absolute`.

    specs   the spec in force, or a dict of them by layer type; None where use_absolute looks up the model's own rows
    calls   how many forwards of our module ran (one a forward pass, one for each layer type in models that rotate by layer type)
    """

    def __init__(self, exchanges, module):
        self._exchanges, self._module = exchanges, module  # (parent, name, old, new) of each
        for parent, name, _, new in exchanges:
            setattr(parent, name, new)

    @property
    def calls(self):
        return self._module.calls

    @property
    def specs(self):
        return _plain(self._module.specs)

    def undo(self):
        """Puts the model's own parts back, the same objects. A second call does nothing; handles are undone in reverse order."""
        present = [getattr(parent, name) for parent, name, _, _ in self._exchanges]
        if all(part is old for part, (_, _, old, _) in zip(present, self._exchanges, strict=True)):
            return
        if any(part is not new for part, (_, _, _, new) in zip(present, self._exchanges, strict=True)):
            raise RuntimeError("undo: another module was put in since; undo that one first")
        for parent, name, old, _ in self._exchanges:
            setattr(parent, name, old)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()


class RotaryModule(torch.nn.Module):
    """Stands in a model for its rotary module: cos and sin of our tables in the old module's convention.

    It registers no buffer and no parameter: a model cast to bfloat16 casts its modules' frequencies too, and cannot reach these.
    """

    def __init__(self, specs, numerics, conventions):
        super().__init__()
        self.specs, self.numerics, self.conventions, self.calls = specs, numerics, conventions, 0
        self._made = {}
        for layer_type, convention in conventions.items():  # a rule without numbers or without tables fails here
            self._cos_and_sin(layer_type, numpy.zeros((convention.axes, 1), numpy.int64))

    @torch.compiler.disable
    def forward(self, x, position_ids, layer_type=None):
        """x gives dtype and device only; position_ids (B,T), or (axes,B,T) where the convention has several axes, int64 or int32;
        what is returned is the convention's."""
        self.calls += 1
        convention = self.conventions[layer_type]
        parts = self._cos_and_sin(layer_type, _positions(position_ids, convention.axes))
        cos, sin = (torch.from_numpy(part).reshape(*position_ids.shape[-2:], -1).to(x.device) for part in parts)
        return convention.hand_out(cos, sin, x.dtype)

    def _cos_and_sin(self, layer_type, positions):
        """cos and sin (P,pairs) in float32, times the attention factor, at positions (axes,P)."""
        table = gnomon.rotary_table(self.frequencies(layer_type, int(positions.max(initial=0)) + 1), positions)
        factor = numpy.float32(table.attention_factor)
        return table.cos * factor, table.sin * factor

    def frequencies(self, layer_type, length):
        """The Frequencies of a layer type for a sequence of `length` tokens; the last ones are kept."""
        spec = self.specs[layer_type]
        outcome = _outcome(spec.rule, length)
        if layer_type not in self._made or self._made[layer_type][0] != outcome:
            self._made[layer_type] = outcome, gnomon.frequencies(spec, self.numerics, max(length, 1))
        return self._made[layer_type][1]

    def __deepcopy__(self, _):
        # Specs are immutable and shared; the count starts anew with the copy.
        return RotaryModule(self.specs, self.numerics, self.conventions).train(self.training)


def _outcome(rule, length):
    """All of a sequence's length that the numbers of a rule depend on."""
    if rule.name == "dynamic":
        return max(length, rule.max_position_embeddings)
    return rule.name == "longrope" and length > rule.original_max_position_embeddings


class PositionTable(torch.nn.Module):
    """Stands in a model for its table of positions and hands out rows: of a Sinusoidal spec, or of the model's own weight.

    Of the old module it keeps the weight, under the same name, and how it is asked.
    """

    def __init__(self, weight, spec, numerics, kind, offset):
        super().__init__()
        self.weight, self.num_embeddings = weight, weight.shape[-2]
        self.numerics, self.kind, self.offset, self.calls = numerics, kind, offset, 0
        self._setup = spec and spec.to_json()  # as text, which can be copied with the model

    @property
    def specs(self):
        return {None: self._setup and gnomon.AbsoluteSpec.from_json(self._setup)}

    @torch.compiler.disable
    def forward(self, *asked, **named):
        """The arguments of the old module; rows (…,C) at the positions it would have looked up."""
        self.calls += 1
        positions = _POSITIONS[self.kind](*asked, **named)
        if self._setup:
            return self._sinusoids(positions)
        rows = self.weight.new_zeros(*positions.shape, self.weight.shape[-1])
        # The offset is added here: a padded position is -1 in OPT, and has a row of its own.
        return gnomon.torch.add_positions(rows, self.weight, positions + self.offset)

    def _sinusoids(self, positions):
        table = gnomon.embedding_table(self.specs[None], positions.contiguous().numpy(), numerics=self.numerics)
        return torch.from_numpy(numpy.array(table.rows)).reshape(*positions.shape, -1).to(self.weight.dtype)


class PatchPositions(PositionTable):
    """Stands in ViT for the dropout behind the sum of patches and positions, and adds the positions before it."""

    def __init__(self, weight, spec, numerics, dropout):
        super().__init__(weight, spec, numerics, None, 0)
        self.dropout = dropout

    @torch.compiler.disable
    def forward(self, x):
        """x (B,T,C) with rows 0 to T - 1 added, then the dropout."""
        self.calls += 1
        rows = self._sinusoids(torch.arange(x.shape[1])) if self._setup else self.weight[0]
        return self.dropout(gnomon.torch.add_positions(x, rows))


def _counted(shape, cache_length=0, position_ids=None):
    """Positions of tokens (B,T) that follow those in the cache; their shape or something of it is given."""
    if position_ids is not None:
        return position_ids
    return torch.arange(cache_length, cache_length + getattr(shape, "shape", shape)[1])


def _counted_over_mask(mask, cache_length=0, position_ids=None):
    """Positions among the tokens that are not masked; -1 for those that are."""
    return ((mask.cumsum(1) * mask - 1).long()[:, cache_length:]) if position_ids is None else position_ids


_POSITIONS = {
    "Embedding": lambda position_ids: position_ids,
    "RoFormerSinusoidalPositionalEmbedding": _counted,
    "WhisperPositionalEmbedding": _counted,
    "OPTLearnedPositionalEmbedding": _counted_over_mask,
}
"""Classes of position tables, and the positions they look up when they are called."""


def _find_table(model):
    """(parent, name, table) of the one position table: a module of a known class, or ViT's parameter."""
    found = []
    for path, module in model.named_modules():
        for name in ("embed_positions", "position_embeddings", "wpe"):
            table = getattr(module, name, None)
            if _is_table(table, module):
                found.append((f"{path}.{name}".lstrip("."), (module, name, table)))
    kind = type(model).__name__
    if not found:
        raise ValueError(f"model: expected a position table that is understood, {kind} has none")
    if len(found) > 1:
        paths = ", ".join(path for path, _ in found)
        raise ValueError(f"model: expected one position table, {kind} has {len(found)} ({paths}); pass the part that is meant")
    return found[0][1]


def _is_table(table, parent):
    if isinstance(table, torch.nn.Parameter):
        return type(parent).__name__ == "ViTEmbeddings" and not isinstance(parent.dropout, PatchPositions)
    # With a padding_idx (RoBERTa) it is asked for rows, not positions, and one of them learns nothing.
    return type(table).__name__ in _POSITIONS and table.padding_idx is None


@dataclasses.dataclass(frozen=True)
class Convention:
    """How a rotary module hands out cos and sin (B,T,pairs)."""

    pairs: int
    order: str  # "cos_sin" | "sin_cos" | "complex"
    width: str  # "halves" (i, i + pairs), "neighbours" (2i, 2i + 1): each value twice; "single"
    keeps_float32: bool  # whatever the dtype of x
    sections: tuple[int, ...] = ()  # how many pairs follow each axis of the position ids; () where they have one
    section_order: str = "chunked"  # and which: see RotarySpec

    @property
    def axes(self):
        return max(len(self.sections), 1)

    def widen(self, values):
        """(…,pairs) to the width that is handed out."""
        if self.width == "halves":
            return torch.cat((values, values), -1)
        return values.repeat_interleave(2, -1) if self.width == "neighbours" else values

    def hand_out(self, cos, sin, dtype):
        if self.order == "complex":
            return torch.complex(cos, sin)
        if not self.keeps_float32:
            cos, sin = cos.to(dtype), sin.to(dtype)
        cos, sin = self.widen(cos), self.widen(sin)
        return (cos, sin) if self.order == "cos_sin" else (sin, cos)


def _require_transformers():
    if Version(transformers.__version__) < Version(TRANSFORMERS[0]):
        raise RuntimeError(f"gnomon.hf: expected transformers {TRANSFORMERS[0]} or newer, got {transformers.__version__}")


def _find_rotary(model):
    """Every (parent, name) at which the model holds its rotary module, and the module."""
    places = {}
    for path, module in model.named_modules(remove_duplicate=False):
        parent, _, name = path.rpartition(".")
        if name == "rotary_emb":
            places.setdefault(module, []).append((path, model.get_submodule(parent)))
    kind = type(model).__name__
    if not places:
        raise ValueError(f"model: expected a rotary module named rotary_emb, {kind} has none")
    if len(places) > 1:
        paths = ", ".join(found[0][0] for found in places.values())
        raise ValueError(f"model: expected one rotary module, {kind} has {len(places)} ({paths}); pass the part that is meant")
    [(module, found)] = places.items()
    return [(parent, "rotary_emb") for _, parent in found], module


def _layer_types(module):
    """The layer types a rotary module is called with; [None] where it is called without."""
    if isinstance(module, RotaryModule):
        return list(module.specs)
    rope_type = getattr(module, "rope_type", None)
    return list(rope_type) if isinstance(rope_type, dict) else [None]


_PROBE = torch.tensor([[[0, 1, 7]], [[0, 2, 11]], [[0, 3, 13]]])
"""Position ids (axes,1,3) a rotary module is called with to see its convention. No two axes agree but where an angle is 0."""


def _conventions(module):
    """The convention of each layer type, seen from calls at a few positions with bfloat16 and with float32."""
    if isinstance(module, RotaryModule):
        return module.conventions
    name = type(module).__name__
    module = copy.deepcopy(module)  # dynamic modules change when they are called
    return {layer_type: _convention(module, layer_type, name) for layer_type in _layer_types(module)}


def _convention(module, layer_type, name):
    device = next((buffer.device for buffer in module.buffers()), "cpu")
    named = {} if layer_type is None else {"layer_type": layer_type}

    def call(dtype, positions):
        try:
            with torch.no_grad():
                return module(torch.zeros(1, 3, 1, dtype=dtype, device=device), positions.to(device), **named)
        except Exception as error:  # other people's code: anything may come
            raise ValueError(f"rotary module {name}: cannot be called with (x, position_ids): {error}") from error

    sections = getattr(module, "mrope_section", None)  # the config's, or the family's default
    rows = _PROBE if sections else _PROBE[0]
    merged = call(torch.float32, rows)
    convention = _recognise(call(torch.bfloat16, rows), merged)
    if convention is not None and sections:
        convention = _with_axes(convention, sections, merged, [call(torch.float32, row.expand(3, 1, 3)) for row in rows])
    own = getattr(module, "inv_freq" if layer_type is None else f"{layer_type}_inv_freq", None)
    if convention is None or (isinstance(own, torch.Tensor) and own.numel() != convention.pairs):
        raise ValueError(f"rotary module {name}: what it returns is not a known form of cos and sin")
    return convention


def _with_axes(convention, sections, merged, by_axis):
    """The convention with the order of the sections in which `merged` takes its columns from the calls with one axis each, or None."""
    if sum(sections) != convention.pairs or len(sections) > len(by_axis):
        return None
    for order in ("chunked", "interleaved"):
        found = dataclasses.replace(convention, sections=tuple(sections), section_order=order)
        columns = found.widen(torch.tensor(_axis_of_pair(found)))
        picked = [torch.stack(parts)[columns, ..., range(len(columns))].movedim(0, -1) for parts in zip(*by_axis, strict=True)]
        if all(torch.equal(*both) for both in zip(picked, merged, strict=True)):
            return found
    return None


def _axis_of_pair(convention):
    """The axis each pair follows; [] where there is one axis."""
    width = 2 * convention.pairs
    spec = gnomon.RotarySpec(gnomon.rotary.Default(), theta=10000.0, head_dim=width)
    return gnomon.frequencies(_with_sections(spec, convention)).axis.tolist()


def _recognise(narrow, wide):
    """The Convention shown by what came for a bfloat16 and for a float32 x, or None."""
    if isinstance(wide, torch.Tensor):
        if wide.dtype != torch.complex64 or narrow.dtype != torch.complex64 or not _is_rotation(wide.real, wide.imag):
            return None
        return Convention(wide.shape[-1], "complex", "single", True)
    if not isinstance(wide, tuple | list) or len(wide) != 2 or not all(isinstance(part, torch.Tensor) for part in wide):
        return None
    if _is_rotation(*wide):
        order = "cos_sin"
    elif _is_rotation(*reversed(wide)):
        order = "sin_cos"
    else:
        return None
    if narrow[0].dtype not in (torch.bfloat16, torch.float32):
        return None
    size, width = wide[0].shape[-1], "single"
    if size % 2 == 0 and all(torch.equal(*part.chunk(2, -1)) for part in wide):
        width = "halves"
    elif size % 2 == 0 and all(torch.equal(part[..., 0::2], part[..., 1::2]) for part in wide):
        width = "neighbours"
    return Convention(size if width == "single" else size // 2, order, width, narrow[0].dtype == torch.float32)


def _is_rotation(cos, sin):
    """Whether (1,3,width) values are A cos and A sin of angles that start at 0 and then move, with one magnitude A > 0."""
    if cos.shape != sin.shape or cos.dim() != 3 or cos.shape[:2] != (1, 3) or {cos.dtype, sin.dtype} != {torch.float32}:
        return False
    magnitude = cos[0, 0, 0]
    return bool(
        magnitude > 0
        and (cos[0, 0] == magnitude).all()
        and (sin[0, 0] == 0).all()
        and (sin[0, 1] != 0).any()
        and ((cos.hypot(sin) / magnitude - 1).abs() < 1e-5).all()
    )


def _specs(rule, model, conventions):
    """{layer type: RotarySpec} for what the caller gave, checked against the model."""
    layer_types = list(conventions)
    names = ", ".join(map(str, layer_types))
    if layer_types == [None]:
        if isinstance(rule, dict):
            raise ValueError("rule: expected a RotarySpec or a rule, got a dict; this model does not rotate by layer type")
        rules = {None: rule}
    elif isinstance(rule, dict):
        if set(rule) != set(layer_types):
            raise ValueError(f"rule: expected a dict with the layer types {names}, got {', '.join(map(str, rule))}")
        rules = rule
    elif isinstance(rule, gnomon.RotarySpec) or "full_attention" not in layer_types:
        raise ValueError(f"rule: expected a dict by layer type, for this model rotates by layer type ({names})")
    else:
        rules = {**_declared(model, conventions), "full_attention": rule}
    specs = {layer_type: _complete(rules[layer_type], layer_type, model, conventions) for layer_type in layer_types}
    return {layer_type: _fitting(spec, conventions[layer_type]) for layer_type, spec in specs.items()}


def _fitting(spec, convention):
    """The spec with the sections of the model, checked against its rotary width and its position axes."""
    if spec.rotary_dim != 2 * convention.pairs:
        raise ValueError(f"rule: expected rotary_dim {2 * convention.pairs}, the width this model rotates, got {spec.rotary_dim}")
    if not spec.sections:
        spec = _with_sections(spec, convention)
    axes, expected = gnomon.frequencies(spec).axis.tolist(), _axis_of_pair(convention)
    if axes != expected:
        raise ValueError(f"rule: expected pairs that follow the axes {expected or [0]}, as in this model, got {axes or [0]}")
    return spec


def _with_sections(spec, convention):
    """The spec with the sections and the order of them that the model's module showed."""
    if not convention.sections:
        return spec
    sections = {"sections": list(convention.sections), "section_order": convention.section_order}
    return gnomon.RotarySpec.from_json(json.dumps({**json.loads(spec.to_json()), **sections}))


def _complete(rule, layer_type, model, conventions):
    """A RotarySpec as it is; a rule alone with theta and widths of the model's config."""
    if isinstance(rule, gnomon.RotarySpec):
        return rule
    own = _declared(model, conventions)[layer_type]
    return gnomon.RotarySpec(
        rule,
        theta=own.theta,
        head_dim=own.head_dim,
        rotary_dim=own.rotary_dim,
        rotary_offset=own.rotary_offset,
        layout=own.layout,
        sections=own.sections,
        section_order=own.section_order,
    )


def _declared(model, conventions):
    """{layer type: RotarySpec} by the model's config, read as read_model reads it from a folder, and by its module for the sections, whose
    order a config need not tell."""
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        read = gnomon.read_model(folder)
    if list(conventions) == [None]:
        declared = {None: read.rotary()}
    else:
        by_layer = model.config.get_text_config().layer_types
        declared = {layer_type: read.rotary(by_layer.index(layer_type)) for layer_type in conventions}
    return {layer_type: _with_sections(spec, conventions[layer_type]) for layer_type, spec in declared.items()}


def _positions(position_ids, axes):
    """(axes,B·T) NumPy, the ids' own memory where they are contiguous, on the CPU and of as many axes."""
    if position_ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"position_ids: expected int64 (or int32), got {position_ids.dtype}; positions are never cast")
    if position_ids.dim() == 2:
        position_ids = position_ids[None]  # all axes the same
    if position_ids.dim() != 3 or position_ids.shape[0] not in (1, axes):
        expected = "(B,T)" if axes == 1 else f"(B,T) or ({axes},B,T)"
        raise ValueError(f"position_ids: expected {expected}, got {tuple(position_ids.shape)}")
    return position_ids.detach().flatten(1).expand(axes, -1).contiguous().cpu().numpy()


def _plain(by_layer_type):
    return by_layer_type[None] if list(by_layer_type) == [None] else by_layer_type


from gnomon._hf_attention import AttentionHandle, enable  # noqa: E402, it needs what stands above
