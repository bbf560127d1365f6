# SPDX-License-Identifier: Apache-2.0
"""gnomon.hf: a rule of ours inside a transformers model.

    with gnomon.hf.use(model, gnomon.rotary.Yarn(factor=4, original_max_position_embeddings=8192)) as handle:
        logits = model(ids).logits                           # our cos and sin; handle.calls counts the forwards
    handle = gnomon.hf.use(model, spec)                      # or without a block, until
    handle.undo()                                            # the model is exactly what it was

transformers asks one rotary module for cos and sin in each forward and hands them to every layer. That module is exchanged. Its
conventions differ by family (width, duplication, order, dtype), so the old module is called once and what it shows is copied;
what is not recognised is refused by name.
"""

import copy
import dataclasses
import tempfile

import numpy
import torch
import transformers
from packaging.version import Version

import gnomon

__all__ = ["TRANSFORMERS", "Handle", "spec_of", "use"]

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
    each pair follows the axis it follows in the model (Wang et al. 2024, Qwen2-VL, arXiv:2409.12191). cos and sin are made in float32 at the position ids given, multiplied by the attention
    factor and cast as the model's module did it. No gradient flows into them. torch.compile breaks its graph here.

    Raises ValueError for a model without a rotary module or with several, for a module that is not understood and for a rule that
    does not fit; gnomon.Error for a spec that is not valid; RuntimeError for a version of transformers below the range.
    """
    _require_transformers()
    places, old = _find_rotary(model)
    conventions = _conventions(old)
    specs = _specs(rule, model, conventions)
    frequencies = {layer_type: gnomon.frequencies(spec, numerics) for layer_type, spec in specs.items()}
    return Handle(places, old, RotaryModule(frequencies, conventions).train(old.training))


def spec_of(model):
    """The RotarySpec a transformers model declares, or a dict of them by layer type, as read_model reads it from the model's config.

    Raises gnomon.Error where the config is not understood or contradicts itself, ValueError for a model without a rotary module.
    """
    _, module = _find_rotary(model)
    return _plain(_declared(model, _layer_types(module)))


class Handle:
    """A rule in force in a model: what `use` returns.

    specs   the RotarySpec in force, or a dict of them by layer type
    calls   how many forwards of our module ran (one a forward pass, one for each layer type in models that rotate by layer type)
    """

    def __init__(self, places, old, new):
        self._places, self._old, self._new = places, old, new
        self._put(new)

    @property
    def calls(self):
        return self._new.calls

    @property
    def specs(self):
        return _plain({layer_type: numbers.spec for layer_type, numbers in self._new.frequencies.items()})

    def undo(self):
        """Puts the model's own module back, the same object. A second call does nothing; handles are undone in reverse order."""
        present = getattr(*self._places[0])
        if present is self._old:
            return
        if present is not self._new:
            raise RuntimeError("undo: another module was put in since; undo that one first")
        self._put(self._old)

    def _put(self, module):
        for parent, name in self._places:
            setattr(parent, name, module)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()


class RotaryModule(torch.nn.Module):
    """Stands in a model for its rotary module: cos and sin of our tables in the old module's convention.

    It registers no buffer and no parameter: a model cast to bfloat16 casts its modules' frequencies too, and cannot reach these.
    """

    def __init__(self, frequencies, conventions):
        super().__init__()
        self.frequencies, self.conventions, self.calls = frequencies, conventions, 0

    @torch.compiler.disable
    def forward(self, x, position_ids, layer_type=None):
        """x gives dtype and device only; position_ids (B,T), or (axes,B,T) where the convention has several axes, int64 or int32;
        what is returned is the convention's."""
        self.calls += 1
        convention = self.conventions[layer_type]
        parts = _cos_and_sin(self.frequencies[layer_type], position_ids, convention)
        cos, sin = (torch.from_numpy(part).reshape(*position_ids.shape[-2:], -1).to(x.device) for part in parts)
        return convention.hand_out(cos, sin, x.dtype)

    def __deepcopy__(self, _):
        # Frequencies are immutable and shared; the count starts anew with the copy.
        return RotaryModule(self.frequencies, self.conventions).train(self.training)


@dataclasses.dataclass(frozen=True)
class Convention:
    """How a rotary module hands out cos and sin (B,T,pairs)."""

    pairs: int
    order: str  # "cos_sin" | "sin_cos" | "complex"
    width: str  # "halves" (i, i + pairs), "neighbours" (2i, 2i + 1): each value twice; "single"
    keeps_float32: bool  # whatever the dtype of x
    axis_of_pair: tuple[int, ...] = ()  # which axis of the position ids a pair follows; () where they have one

    @property
    def axes(self):
        return max(self.axis_of_pair, default=0) + 1

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
        return list(module.frequencies)
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
    for order in ("chunked", "interleaved"):
        found = dataclasses.replace(convention, axis_of_pair=_axis_of_pair(sections, order))
        if len(found.axis_of_pair) != convention.pairs or found.axes > len(by_axis):
            return None
        columns = found.widen(torch.tensor(found.axis_of_pair))
        picked = [torch.stack(parts)[columns, ..., range(len(columns))].movedim(0, -1) for parts in zip(*by_axis, strict=True)]
        if all(torch.equal(*both) for both in zip(picked, merged, strict=True)):
            return found
    return None


def _axis_of_pair(sections, order):
    """The axis each pair follows: `chunked`, sections[a] pairs of axis a in a run; `interleaved`, the axes take turns from the first
    pair on, an axis whose section is full leaves its turn to axis 0."""
    if order == "chunked":
        return tuple(axis for axis, pairs in enumerate(sections) for _ in range(pairs))
    axes = len(sections)
    return tuple(pair % axes if pair < axes * sections[pair % axes] else 0 for pair in range(sum(sections)))


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
        rules = {**_declared(model, layer_types), "full_attention": rule}
    specs = {layer_type: _complete(rules[layer_type], layer_type, model, layer_types) for layer_type in layer_types}
    for layer_type, spec in specs.items():
        expected = 2 * conventions[layer_type].pairs
        if spec.rotary_dim != expected:
            raise ValueError(f"rule: expected rotary_dim {expected}, the width this model rotates, got {spec.rotary_dim}")
    return specs


def _complete(rule, layer_type, model, layer_types):
    """A RotarySpec as it is; a rule alone with theta and widths of the model's config."""
    if isinstance(rule, gnomon.RotarySpec):
        return rule
    own = _declared(model, layer_types)[layer_type]
    return gnomon.RotarySpec(
        rule,
        theta=own.theta,
        head_dim=own.head_dim,
        rotary_dim=own.rotary_dim,
        rotary_offset=own.rotary_offset,
        layout=own.layout,
    )


def _declared(model, layer_types):
    """{layer type: RotarySpec} by the model's config, read as read_model reads it from a folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        read = gnomon.read_model(folder)
    if layer_types == [None]:
        return {None: read.rotary()}
    by_layer = model.config.get_text_config().layer_types
    return {layer_type: read.rotary(by_layer.index(layer_type)) for layer_type in layer_types}


def _cos_and_sin(frequencies, position_ids, convention):
    """cos and sin (B·T,pairs) in float32, times the attention factor; with several axes each pair from the table of its own."""
    tables = [gnomon.rotary_table(frequencies, row) for row in _positions(position_ids, convention.axes)]
    factor = numpy.float32(tables[0].attention_factor)
    for parts in ([table.cos for table in tables], [table.sin for table in tables]):
        part = parts[0] if len(parts) == 1 else numpy.stack(parts)[convention.axis_of_pair, :, range(convention.pairs)].T
        yield part * factor


def _positions(position_ids, axes):
    """One or `axes` rows (B·T) NumPy, the ids' own memory where they are contiguous and on the CPU."""
    if position_ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"position_ids: expected int64 (or int32), got {position_ids.dtype}; positions are never cast")
    if position_ids.dim() == 2:
        position_ids = position_ids[None]  # all axes the same
    if position_ids.dim() != 3 or position_ids.shape[0] not in (1, axes):
        expected = "(B,T)" if axes == 1 else f"(B,T) or ({axes},B,T)"
        raise ValueError(f"position_ids: expected {expected}, got {tuple(position_ids.shape)}")
    return position_ids.detach().flatten(1).cpu().numpy()


def _plain(by_layer_type):
    return by_layer_type[None] if list(by_layer_type) == [None] else by_layer_type
