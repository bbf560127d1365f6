# SPDX-License-Identifier: Apache-2.0
"""gnomon.hf.enable: attention by gnomon inside a transformers model; imported from gnomon.hf.

transformers asks one registered function for a mask, once a forward pass and kind of mask, and another for the attention of each layer. Our
mask function makes no n × n tensor: it hands out a description of stride 0 that holds the interval of keys each query sees, read from the
library's own mask functions where they are known ones, and evaluated in rows where they are not.
"""

import dataclasses
import functools
import importlib
import sys
import warnings

import numpy
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, masking_utils

import gnomon
import gnomon.torch
from gnomon.hf import _require_transformers

NAME = "gnomon"
"""What attn_implementation is called."""

ROWS = 256
"""Rows of queries for which a mask that is not understood is evaluated at a time."""


def enable(model, *, falcon_as_trained=True, watch=None):
    """Makes gnomon do the attention of a transformers model, forwards, until the returned AttentionHandle is undone.

    model              any model of transformers whose attention classes are known (docs/attention.md lists them)
    falcon_as_trained  Falcon-RW alone: its ALiBi is rounded to bfloat16 in steps, and was trained so. False: the ALiBi of the paper
    watch              called behind the attention of each layer as watch(module, q, k, log_sum_exp, **options) with what
                       gnomon.torch.attention_statistics takes, all rows at once, or in runs of them where a mask function of the user is
                       evaluated

    Most families only ask for an implementation by name. BLOOM, MPT, Falcon and T5 do not, or hand over their bias as a dense tensor:
    their attention classes are exchanged, with the same parameters, and the bias comes from slopes or from the trained table. Packed
    documents, told by position_ids that restart, are kept apart where the library itself ignores them, with a warning.

    Raises ValueError for a model with an attention class that is not known, which it names, and for one without attention; RuntimeError
    where the library does not take the implementation.
    """
    _require_transformers()
    modules = attention_modules(model)
    if not modules:
        raise ValueError(f"model: expected attention that is understood, {type(model).__name__} has none")
    unknown = sorted({type(module).__name__ for module in modules} - KNOWN - set(EXCHANGED))
    if unknown:
        raise ValueError(f"model: the attention of {', '.join(unknown)} is not known to gnomon; it would go wrong in silence")
    return AttentionHandle(model, modules, falcon_as_trained, watch)


class AttentionHandle:
    """What `enable` changed in a model.

    layers  how many modules do attention: calls of ours in one forward pass
    calls   how often ours was called since
    """

    def __init__(self, model, modules, falcon_as_trained, watch):
        self._modules, self._start = modules, _calls(modules)
        self._implementations = [(part.config, part.config._attn_implementation) for part in _models(model)]
        self._classes = [(module, type(module)) for module in modules]
        for module in modules:
            module.gnomon_watch = watch
            exchange = EXCHANGED.get(type(module).__name__)
            if exchange is None:
                continue
            own = type(module)
            if not issubclass(own, exchange):  # enabled before
                module.__class__ = type(own.__name__, (exchange, own), {"__module__": own.__module__})
            module.prepare(falcon_as_trained)
        self._hook = model.register_forward_pre_hook(self._note_positions, with_kwargs=True)
        if any(isinstance(module, _Exchanged) for module in modules):
            for part in _models(model):  # the library sets it only where its own classes ask for it
                part.config._attn_implementation = NAME
        else:
            model.set_attn_implementation(NAME)
        refused = [type(part).__name__ for part in _models(model) if part.config._attn_implementation != NAME]
        if refused:
            self.undo()
            raise RuntimeError(f"model: {', '.join(refused)} did not take the attention implementation {NAME!r}")

    @property
    def layers(self):
        return len(self._modules)

    @property
    def calls(self):
        return _calls(self._modules) - self._start

    def undo(self):
        """The model's own attention again."""
        self._hook.remove()
        for module, own in self._classes:
            module.__class__, module.gnomon_watch = own, None
        for config, implementation in self._implementations:
            config._attn_implementation = implementation

    def _note_positions(self, _, __, named):
        """Some families do not hand position_ids on to attention, which must see packed documents in them."""
        for module in self._modules:
            module.gnomon_position_ids = named.get("position_ids")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()


def attention_modules(model):
    """The modules that do attention: those named so that hold no other one named so."""
    named = [module for module in model.modules() if "Attention" in type(module).__name__]
    return [module for module in named if not any("Attention" in type(part).__name__ for part in list(module.modules())[1:])]


def _models(model):
    return [part for part in model.modules() if isinstance(part, PreTrainedModel)]


def _calls(modules):
    return sum(getattr(module, "gnomon_calls", 0) for module in modules)


KNOWN = {
    "BertSelfAttention",
    "CodeGenAttention",
    "Cohere2Attention",
    "CohereAttention",
    "DeepseekV2Attention",
    "DeepseekV3Attention",
    "Ernie4_5Attention",
    "EsmSelfAttention",
    "GPT2Attention",
    "GPTJAttention",
    "GPTNeoXAttention",
    "Gemma2Attention",
    "Gemma3Attention",
    "Gemma3nTextAttention",
    "GemmaAttention",
    "GlmAttention",
    "GptOssAttention",
    "Llama4TextAttention",
    "LlamaAttention",
    "MistralAttention",
    "ModernBertAttention",
    "NemotronAttention",
    "OPTAttention",
    "Olmo2Attention",
    "Olmo3Attention",
    "OlmoAttention",
    "PersimmonAttention",
    "Phi3Attention",
    "PhiAttention",
    "PhimoeAttention",
    "Qwen2Attention",
    "Qwen2VLAttention",
    "Qwen3Attention",
    "Qwen3VLTextAttention",
    "Qwen3VLVisionAttention",
    "RecurrentGemmaAttention",
    "SeedOssAttention",
    "SmolLM3Attention",
    "StableLmAttention",
    "ViTAttention",
    "VisionAttention",
    "WhisperAttention",
}
"""Attention classes that ask the registry and hand over all that their scores depend on. Each was compared with the library's own."""


@dataclasses.dataclass
class Pattern:
    """Restrictions of a mask function of the library, read from its closure. A query sees the keys that meet all of them."""

    left: int | None = None
    right: int | None = None
    chunk: int | None = None
    left_padding: torch.Tensor | int = 0  # (B), from which chunks are counted
    positions: torch.Tensor | None = None  # (B,T): position in its document, for packed ones
    documents: torch.Tensor | None = None  # (B,T): number of the document

    def add_window(self, left, right=None):
        self.left = left if self.left is None else min(self.left, left)
        if right is not None:
            self.right = right if self.right is None else min(self.right, right)

    def read(self, function):
        """Adds what a mask function demands; False where it is not one of the library's own."""
        if function is masking_utils.causal_mask_function:
            self.right = 0
            return True
        if function is masking_utils.bidirectional_mask_function:
            return True
        cells = getattr(function, "__closure__", None)
        if cells is None or function.__module__ != masking_utils.__name__:
            return False
        held = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in cells), strict=True))
        match function.__qualname__.partition(".")[0]:
            case "and_masks":
                return all([self.read(part) for part in held["mask_functions"]])
            case "sliding_window_overlay":
                self.add_window(held["sliding_window"] - 1)
            case "sliding_window_bidirectional_overlay":
                self.add_window(held["sliding_window"], held["sliding_window"])
            case "chunked_overlay":
                self.chunk, self.left_padding = held["chunk_size"], held["left_padding"]
            case "packed_sequence_mask_function":
                self.documents = held["packed_sequence_mask"]
            case "remap_positions_for_packed_sequence":
                # Within a document positions follow each other as tokens do, and documents are a restriction of their own.
                self.positions = held["position_ids"]
                return self.read(held["mask_function"])
            case _:
                return False
        return True


class MaskContent:
    """What a mask description stands for: intervals of keys; where they do not tell all, `seen` (B,1,1,Tk), and where the mask function is
    not understood, that function."""

    def __init__(self, batch, queries, keys, q_offset, kv_offset, function, padding, use_vmap):
        self.batch, self.queries, self.keys, self.q_offset, self.kv_offset = batch, queries, keys, q_offset, kv_offset
        self.padding = padding  # (B,Tk) of the keys that exist, or None
        self.function, self.use_vmap = function, use_vmap
        self._rows = torch.arange(q_offset, q_offset + queries)[None]  # counted as the library counts, over all tokens seen
        self._pattern = Pattern()
        self._looked_at_positions = self.queries < 2
        if self._pattern.read(function):
            self.function = None
        self._fill()

    def _fill(self):
        """Sets begin, end and first (B,Tq), or (1,Tq), counted over all tokens seen."""
        self.begin, self.end = (torch.full((1, self.queries), self.kv_offset + bound) for bound in (0, self.keys))
        self.first, self.seen, self._mask = self.begin, None, None
        if self.function is None:
            self._restrict(self._pattern)
        if self.padding is not None and not bool(self.padding.all()):
            self._restrict_padding()

    def _narrow(self, begin, end):
        self.begin, self.end = torch.maximum(self.begin, begin), torch.minimum(self.end, end)

    def _restrict(self, pattern):
        rows = self._rows
        if pattern.left is not None:
            self._narrow(rows - pattern.left, self.end)
        if pattern.right is not None:
            self._narrow(self.begin, rows + pattern.right + 1)
        if pattern.chunk is not None:
            padding = pattern.left_padding
            counted = rows if pattern.positions is None else pattern.positions
            start = rows - (counted - (padding[:, None] if isinstance(padding, torch.Tensor) else padding)) % pattern.chunk
            self._narrow(start, start + pattern.chunk)
        if pattern.documents is not None:
            self._separate(pattern.documents.contiguous())

    def _separate(self, documents):
        """A query sees no key of another document. Keys before the first query are of its document."""
        begin = torch.searchsorted(documents, documents) + self.q_offset
        begin = torch.where(begin == self.q_offset, self.kv_offset, begin)
        self._narrow(begin, torch.searchsorted(documents, documents, right=True) + self.q_offset)
        self.first = torch.maximum(self.first, begin)

    def _restrict_padding(self):
        number = self.padding.sum(1)
        first = self.padding.int().argmax(1)
        last = self.keys - 1 - self.padding.flip(1).int().argmax(1)
        if self.function is not None or bool((last - first + 1 != number)[number > 0].any()):
            self.seen = self.padding[:, None, None]
            return
        begin = (first + self.kv_offset)[:, None]
        self._narrow(begin, begin + number[:, None])
        self.first = torch.maximum(self.first, begin)

    @property
    def mask(self):
        """The gnomon.torch.Mask of the intervals, made once for all layers."""
        if self._mask is None:
            self._mask = gnomon.torch.Mask(self.intervals(slice(None)))
        return self._mask

    def intervals(self, rows):
        parts = torch.broadcast_tensors(self.begin, self.end, self.first, self._rows)
        begin, end, first, diagonal = ((part[:, rows] - self.kv_offset) for part in parts)
        end = end.clamp(0, self.keys)
        lists = (torch.minimum(begin.clamp(min=0), end), end, first.clamp(min=0), diagonal)
        return gnomon.KeyIntervals(*(part.to(torch.int32).contiguous().numpy() for part in lists), keys=self.keys)

    def evaluated(self, rows):
        """The mask function on some rows, (B,1,rows,Tk)."""
        axes = (
            torch.arange(self.batch),
            torch.arange(1),
            self._rows[0, rows],
            torch.arange(self.kv_offset, self.kv_offset + self.keys),
        )
        if self.use_vmap:  # a function of the user, of four numbers
            function = self.function
            for axis in (3, 2, 1, 0):
                function = torch.vmap(function, in_dims=tuple(0 if i == axis else None for i in range(4)))
            seen = function(*axes)
        else:
            seen = self.function(*(x.view([-1 if i == axis else 1 for i in range(4)]) for axis, x in enumerate(axes)))
        return seen if self.seen is None else seen & self.seen

    def keep_packed_apart(self, position_ids):
        """Documents that position_ids (B,Tq) tell of, where the mask does not: a token at position 0 behind another one begins one."""
        if self._looked_at_positions or position_ids is None or self.function is not None or self._pattern.documents is not None:
            return
        if position_ids.dim() != 2 or position_ids.shape[1] != self.queries:
            return
        self._looked_at_positions = True
        begins = torch.zeros_like(position_ids, dtype=torch.bool)
        begins[:, 1:] = position_ids[:, 1:] == 0
        if self.padding is not None:  # padded tokens may be at position 0 as well
            exists = self.padding[:, (self._rows[0] - self.kv_offset).clamp(0, self.keys - 1)]
            begins = begins & exists
            begins[:, 1:] &= exists[:, :-1]
        if not bool(begins.any()):
            return
        pattern = self._pattern
        pattern.documents, pattern.positions, pattern.left_padding = begins.cumsum(1), position_ids, 0
        self._fill()
        warnings.warn(
            "position_ids begin anew within a row: packed documents. gnomon keeps them apart; transformers' own attention lets them see "
            "each other when there is a cache or an attention mask, and in some families always",
            stacklevel=2,
        )


class _Description(torch.Tensor):
    """A tensor by name and shape only, over one byte of memory: it goes where a mask goes, and whoever reads it as one is told so."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function in _UNCHANGED:
            return arguments[0]
        if function is torch.Tensor.__repr__:
            return f"<description of a {arguments[0].kind}>"
        if function in _LOOKED_AT or (getattr(function, "__name__", "") == "__get__" and function not in _VALUES):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **(named or {}))
        described = next(x for x in arguments if isinstance(x, _Description))
        if function in described.passes:
            return described
        name = getattr(function, "__name__", str(function))
        raise TypeError(f"{name}: this tensor only describes a {described.kind}; the attention that reads it is not gnomon's")


_UNCHANGED = {torch.Tensor.contiguous, torch.Tensor.clone, torch.Tensor.to, torch.Tensor.detach}
_LOOKED_AT = {
    torch.Tensor.dim,
    torch.Tensor.size,
    torch.Tensor.stride,
    torch.Tensor.numel,
    torch.Tensor.is_floating_point,
    torch.Tensor.is_complex,
    torch.Tensor.is_contiguous,
    torch.Tensor.is_inference,
    torch.Tensor.is_conj,
    torch.Tensor.is_neg,
    torch.Tensor._is_view,
    torch.Tensor.storage_offset,
    torch.Tensor.__hash__,
    torch.Tensor.__len__,
    torch.Tensor.untyped_storage,
}
_VALUES = {getattr(torch.Tensor, name).__get__ for name in ("T", "H", "mT", "mH", "data", "real", "imag")}
"""Attributes that are tensors of its numbers; all others only tell what it is like."""
_FALCON = {torch.where, torch.masked_fill, torch.Tensor.__lt__, torch.Tensor.lt}
"""How Falcon mixes its bias into the mask, for attention that is not ours."""


def _describe(kind, shape, content, passes=()):
    described = torch.Tensor._make_subclass(_Description, torch.ones(1, dtype=torch.bool).expand(shape))
    described.kind, described.content, described.passes = kind, content, passes
    return described


def _content(described, kind):
    return described.content if isinstance(described, _Description) and described.kind == kind else None


@torch.compiler.disable
def describe_mask(
    batch_size,
    q_length,
    kv_length,
    q_offset=0,
    kv_offset=0,
    mask_function=masking_utils.causal_mask_function,
    attention_mask=None,
    use_vmap=False,
    config=None,
    **_,
):
    """The mask function of attn_implementation="gnomon": a description of shape (B,1,q,k) without memory."""
    padding = None
    if attention_mask is not None:
        padding = masking_utils.prepare_padding_mask(attention_mask.to(torch.bool), kv_length, kv_offset)
        padding = padding[:, kv_offset : kv_offset + kv_length]
    # The offset of a static cache is a tensor that the cache advances before attention runs.
    content = MaskContent(batch_size, q_length, int(kv_length), int(q_offset), int(kv_offset), mask_function, padding, use_vmap)
    passes = _FALCON if getattr(config, "model_type", None) == "falcon" else ()
    return _describe("mask", (batch_size, 1, q_length, int(kv_length)), content, passes)


_WITHOUT_EFFECT = {"encoder_hidden_states", "cache", "position_embeddings", "cu_seq_lens_q", "cu_seq_lens_k"}


@torch.compiler.disable
def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **named):
    """The attention function of attn_implementation="gnomon": (out (B,T,H,D), None). Scores are never made, so there are no weights."""
    if dropout:
        raise ValueError("attention: gnomon has no dropout of attention weights; use model.eval()")
    position_ids, bias = named.pop("position_ids", None), named.pop("position_bias", None)
    position_ids = getattr(module, "gnomon_position_ids", None) if position_ids is None else position_ids
    softcap, sinks, window = named.pop("softcap", None), named.pop("s_aux", None), named.pop("sliding_window", None)
    causal = named.pop("is_causal", None)
    unknown = [name for name, given in named.items() if isinstance(given, torch.Tensor) and name not in _WITHOUT_EFFECT]
    if unknown:
        raise ValueError(f"attention: {type(module).__name__} gives {', '.join(unknown)}, which gnomon does not know")
    module.gnomon_calls = getattr(module, "gnomon_calls", 0) + 1
    operation = functools.partial(_attention, module, scale=scaling, softcap=softcap, sink_logits=sinks)
    tables = _content(bias, "bias")
    if tables is not None:
        operation, bias = functools.partial(operation, bias=tables), None
    content = _content(attention_mask, "mask")
    if content is not None:
        content.keep_packed_apart(position_ids)
        out = _with_description(query, key, value, content, bias, operation)
    else:
        causal = getattr(module, "is_causal", True) if causal is None else causal
        out = _with_dense(query, key, value, attention_mask, bias, causal, window, operation)
    return out.transpose(1, 2), None


def _attention(module, query, key, value, **options):
    """The one place that computes."""
    watch = getattr(module, "gnomon_watch", None)
    if watch is None:
        return gnomon.torch.attention(query, key, value, **options)
    out, log_sum_exp = gnomon.torch.attention(query, key, value, log_sum_exp=True, **options)
    watch(module, query, key, log_sum_exp, **options)
    return out


def _with_description(query, key, value, content, bias, operation):
    """bias (B,H,·,Tk) is added; it hides the keys that intervals cannot hide."""
    if content.function is None:
        seen = content.seen
        if bias is not None:
            seen = bias.float() if seen is None else bias.float().masked_fill(~seen, -torch.inf)
        return operation(query, key, value, mask=content.mask, mask_tensor=seen)
    parts = []
    for first in range(0, content.queries, ROWS):
        rows = slice(first, first + ROWS)
        seen = content.evaluated(rows)
        if bias is not None:
            here = bias if bias.shape[2] == 1 else bias[:, :, rows]
            seen = here.float().masked_fill(~seen, -torch.inf)
        mask = gnomon.torch.Mask(content.intervals(rows))
        parts.append(operation(query[:, :, rows], key, value, mask=mask, mask_tensor=seen))
    return torch.cat([part.transpose(1, 2) for part in parts], 1).transpose(1, 2)


def _with_dense(query, key, value, mask, bias, causal, window, operation):
    """A mask (B,·,Tq,Tk) of the user, or none, which in a causal module means causal."""
    queries, keys = query.shape[2], key.shape[2]
    intervals = None
    if mask is None:
        intervals = gnomon.key_intervals(queries, keys, causal=bool(causal), window=window if causal else None)
    else:
        mask = mask[..., :keys]
    if bias is not None:
        shown = mask is not None and mask.dtype == torch.bool
        mask = bias.float() if mask is None else bias.float().masked_fill(~mask, -torch.inf) if shown else bias.float() + mask
    return operation(query, key, value, mask=intervals, mask_tensor=mask)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, describe_mask)


class _Exchanged:
    """Before a class of transformers: the same module, with the same parameters, and a forward of ours.

    bias_table  what it adds to the scores, where that is made once
    """

    def prepare(self, falcon_as_trained):
        pass


class _Bloom(_Exchanged):
    def prepare(self, _):
        self.bias_table = gnomon.torch.Bias(gnomon.SlopeBias(_alibi_slopes(self, self.num_heads)))

    def forward(self, hidden_states, residual, alibi, attention_mask, layer_past=None, **_):
        query, key, value = self._reshape(self.query_key_value(hidden_states))
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        out = _with_slopes(self, query, key, value, attention_mask, self.inv_norm_factor, alibi)
        out = torch.nn.functional.dropout(self.dense(out), self.hidden_dropout, self.training)
        return residual + out, None


class _Falcon(_Exchanged):
    def prepare(self, as_trained):
        self.bias_table = None  # as trained
        if not as_trained:  # the library multiplies bias and scores by D^-1/2 alike
            slopes = _alibi_slopes(self, self.num_heads, "bloom") * self.inv_norm_factor
            self.bias_table = gnomon.torch.Bias(gnomon.SlopeBias(slopes))

    def forward(self, hidden_states, alibi, attention_mask, layer_past=None, position_embeddings=None, position_ids=None, **_):
        heads = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
        query, key, value = heads
        if alibi is None:
            query, key = sys.modules[type(self).__module__].apply_rotary_pos_emb(query, key, *position_embeddings)
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        if alibi is None:
            out, _ = attend(self, query, key, value, attention_mask, self.inv_norm_factor, position_ids=position_ids)
            return self.dense(out.flatten(2)), None
        out = _with_slopes(self, query, key, value, attention_mask, self.inv_norm_factor, alibi.float() * self.inv_norm_factor)
        return self.dense(out), None


class _Mpt(_Exchanged):
    def forward(self, hidden_states, position_bias, cache=None, attention_mask=None, **_):
        mixed = self.Wqkv(hidden_states)
        if self.clip_qkv:
            mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        query, key, value = (x.unflatten(2, (self.n_heads, self.head_dim)).transpose(1, 2) for x in mixed.chunk(3, 2))
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        slopes = position_bias[:, 0, -1] - position_bias[:, 0, -2]  # the bias of one row, over the longest sequence
        table = _slope_table(tuple(slopes.tolist()))
        out, _ = attend(self, query, key, value, attention_mask, self.softmax_scale, position_bias=_describe("bias", (1,), table))
        return self.out_proj(out.flatten(2)), None


class _T5(_Exchanged):
    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None, **named):
        if position_bias is None and not self.has_relative_attention_bias:
            position_bias = _describe("bias", (1, self.n_heads, 1, 1), _NO_BIAS)
        return super().forward(hidden_states, mask, key_value_states, position_bias, **named)

    def compute_bias(self, query_length, key_length, device=None, past_seen_tokens=0):
        """A description of the trained table by distance, in the place of (1,H,Tq,Tk). Where queries stand, the mask knows."""
        reach = self.relative_attention_max_distance
        buckets = self._relative_position_bucket(
            torch.arange(-reach, reach + 1), not self.is_decoder, self.relative_attention_num_buckets, reach
        )
        values = self.relative_attention_bias.weight.detach().float()[buckets].T.contiguous().numpy()
        return _describe("bias", (1, self.n_heads, 1, 1), gnomon.torch.Bias(gnomon.DistanceBias(values, -reach)))


_NO_BIAS = gnomon.torch.Bias([])

EXCHANGED = {
    "BloomAttention": _Bloom,
    "FalconAttention": _Falcon,
    "MptAttention": _Mpt,
    "MT5Attention": _T5,
    "T5Attention": _T5,
}
"""Attention classes that do not ask the registry, or give it a dense bias, and what does the same without."""


@functools.lru_cache(maxsize=64)
def _slope_table(slopes):
    return gnomon.torch.Bias(gnomon.SlopeBias(list(slopes)))


def _alibi_slopes(module, heads, family=None):
    """The slopes (H) of a family's own function, in float32: the second key's bias. Falcon's rounds them."""
    own = importlib.import_module(f"transformers.models.{family}.modeling_{family}" if family else type(module).__module__)
    return own.build_alibi_tensor(torch.ones(1, 2, dtype=torch.int64), heads, torch.float32)[:, 0, 1].numpy().astype(numpy.float32)


def _with_slopes(module, query, key, value, attention_mask, scaling, alibi):
    """Attention with the module's table; or with alibi, its own values (B·H,1,Tk) or (B,H,1,Tk), where they are no slope times a distance:
    as trained, or counted over a padding with holes."""
    content = _content(attention_mask, "mask")
    if module.bias_table is None or content is None or content.seen is not None:
        bias = alibi.reshape(query.shape[0], query.shape[1], 1, -1)[..., : key.shape[2]]
    else:
        bias = _describe("bias", (1,), module.bias_table)
    out, _ = attend(module, query, key, value, attention_mask, scaling, position_bias=bias)
    return out.flatten(2)
