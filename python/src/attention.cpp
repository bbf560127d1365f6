// SPDX-License-Identifier: Apache-2.0
// Masks, bias tables and attention.
#include <fmt/format.h>
#include <nanobind/stl/array.h>

#include <algorithm>

#include "arrays.hpp"
#include "attention_options.hpp"
#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

/// Parameters are copied and may be of any float dtype; tensors never are.
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ids = std::vector<std::int32_t>;

std::vector<float> values_of(const Matrix& matrix) { return {matrix.data(), matrix.data() + matrix.size()}; }

/// A read-only NumPy view of numbers that `owner` keeps alive.
template <class Number>
nb::object view(const std::vector<Number>& values, std::size_t rows, std::size_t columns, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const Number>(values.data(), {rows, columns}, owner));
}

/// Trained numbers of any number of axes.
using Numbers = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

gnomon::BiasTable bias_table(const gnomon::BiasRule& rule, std::int64_t reach, const std::optional<Matrix>& table,
                             const std::optional<Numbers>& weights1, const std::optional<Numbers>& bias1,
                             const std::optional<Matrix>& weights2, const std::optional<Numbers>& bias2) {
  gnomon::BiasParameters parameters;
  if (table) parameters.heads = static_cast<std::int64_t>(table->shape(1));
  if (weights2) parameters.heads = static_cast<std::int64_t>(weights2->shape(0));
  const auto numbers = [](const auto& array) { return array ? std::span(array->data(), array->size()) : std::span<const float>(); };
  parameters.table = numbers(table);
  parameters.weights1 = numbers(weights1);
  parameters.bias1 = numbers(bias1);
  parameters.weights2 = numbers(weights2);
  parameters.bias2 = numbers(bias2);
  return gnomon::bias_table(rule, reach, parameters);
}

gnomon::KeyIntervals key_intervals(std::int64_t queries, std::int64_t keys, bool causal, std::optional<std::int64_t> window,
                                   std::optional<std::int64_t> chunk, std::int64_t keep_first, std::int64_t prefix,
                                   std::optional<std::int64_t> left, std::optional<std::int64_t> right, std::string_view alignment,
                                   std::optional<std::int64_t> offset, const Ids& key_begin, const Ids& key_end, const Ids& cu_seqlens_q,
                                   const Ids& cu_seqlens_k) {
  if (window && *window < 1) refuse(fmt::format("window: expected at least 1 key, got {}", *window));
  if ((causal || window) && (left || right))
    refuse("left, right: expected without causal and window, in whose place they stand; causal is right=0, a causal window W left=W-1");
  gnomon::MaskOptions options({causal, window, chunk, keep_first}, queries, keys);
  options.alignment = enum_argument<gnomon::Alignment>("alignment", alignment);
  options.offset = offset;
  options.prefix = prefix;
  if (left) options.left = left;
  if (right) options.right = right;
  options.key_begin = key_begin;
  options.key_end = key_end;
  options.cu_seqlens_q = cu_seqlens_q;
  options.cu_seqlens_k = cu_seqlens_k;
  return gnomon::key_intervals(options);
}

/// An array like q, of a shape of its own: NumPy's, or of the framework that q is of.
nb::object empty_like(nb::handle q, const std::array<std::int64_t, 4>& shape) {
  if (nb::hasattr(q, "new_empty")) return q.attr("new_empty")(shape);
  const auto numpy = nb::module_::import_("numpy");
  return numpy.attr("empty")(shape, "dtype"_a = numpy.attr("asarray")(q).attr("dtype"));
}

nb::object attention(nb::object q, nb::object k, nb::object v, nb::object out, std::optional<double> scale, std::optional<double> softcap,
                     nb::handle bias, const gnomon::KeyIntervals* mask, nb::handle mask_tensor, nb::handle sink_logits,
                     nb::handle query_factors, nb::handle rotate_queries, nb::handle rotate_keys, nb::handle block_table,
                     nb::handle lengths, nb::handle log_sum_exp, nb::handle maximum, int threads, const std::optional<std::string>& dtype) {
  using Read = nb::ndarray<nb::ro, nb::device::cpu>;
  const auto query = array_of<Read>("q", q, "an array"), key = array_of<Read>("k", k, "an array"),
             value = array_of<Read>("v", v, "an array");
  const auto q_view = view_of("q", query, dtype), k_view = view_of("k", key, dtype), v_view = view_of("v", value, dtype);
  const std::array shape{q_view.shape[0], q_view.shape[1], q_view.shape[2], v_view.shape[3]};
  if (out.is_none()) out = empty_like(q, shape);
  const auto written = array_of<nb::ndarray<nb::device::cpu>>("out", out, "a writable array");
  const auto out_view = view_of("out", written, dtype);
  check_stated(dtype, {q_view.dtype});
  const bool paged = !block_table.is_none();
  if (paged == lengths.is_none()) refuse("lengths: expected with block_table, and only with it");
  const auto table = block_table_of(block_table, shape[0]);
  const auto tokens = paged ? small_numbers_of("lengths", whole_array("lengths", lengths)) : std::vector<std::int32_t>();
  const std::int64_t keys = !paged ? k_view.shape[2] : tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  PythonAttentionOptions options({scale, softcap, bias, mask, mask_tensor, sink_logits, query_factors, rotate_queries, rotate_keys},
                                 {shape[0], shape[1], shape[2], keys}, threads);
  options.view.log_sum_exp = options.written("log_sum_exp", log_sum_exp, shape);
  options.view.maximum = options.written("maximum", maximum, shape);
  {
    const nb::gil_scoped_release without_the_interpreter;
    if (paged) {
      gnomon::attention(q_view, gnomon::PagedCache{k_view, v_view, table, tokens}, out_view, options.view);
    } else {
      gnomon::attention(q_view, k_view, v_view, out_view, options.view);
    }
  }
  return out;
}

/// A table that its functions can rely on: in Python it cannot be changed afterwards.
template <class Table>
Table valid(Table table) {
  gnomon::BiasTable any(std::move(table));
  gnomon::validate(any);
  return std::get<Table>(std::move(any));
}

void bind_distance_tables(nb::module_& module) {
  using gnomon::DistanceBias, gnomon::SlopeBias;
  nb::class_<SlopeBias>(
      module, "SlopeBias",
      "-slope[h] |distance| on the scores of head h: ALiBi, with slopes of the paper or trained. Keys after the query get 0 "
      "unless symmetric.")
      .def(
          "__init__",
          [](SlopeBias* self, std::vector<float> slopes, bool symmetric) {
            new (self) SlopeBias(valid(SlopeBias{std::move(slopes), symmetric}));
          },
          "slopes"_a, nb::kw_only(), "symmetric"_a = false)
      .def_ro("slopes", &SlopeBias::slopes)
      .def_ro("symmetric", &SlopeBias::symmetric);
  nb::class_<DistanceBias>(
      module, "DistanceBias",
      "values[h, distance - least] on the scores of head h, distance = key - query; beyond either end the value at that end. "
      "values: (H, distances).")
      .def(
          "__init__",
          [](DistanceBias* self, const Matrix& values, std::int64_t least) {
            new (self) DistanceBias(valid(DistanceBias{static_cast<std::int64_t>(values.shape(0)), least,
                                                       static_cast<std::int64_t>(values.shape(1)), values_of(values)}));
          },
          "values"_a, "least"_a)
      .def_ro("heads", &DistanceBias::heads)
      .def_ro("least", &DistanceBias::least)
      .def_prop_ro("values", [](nb::handle_t<DistanceBias> self) {
        const auto& table = nb::cast<const DistanceBias&>(self);
        return view(table.values, static_cast<std::size_t>(table.heads), static_cast<std::size_t>(table.distances), self);
      });
}

void bind_other_tables(nb::module_& module) {
  using gnomon::FireBias, gnomon::GridBias;
  nb::class_<FireBias>(
      module, "FireBias",
      "f_h(ln(c d + 1) / max(ln(c max(threshold, position) + 1), epsilon)), d = query - key, f a network 1 -> hidden -> H with "
      "ReLU. weights1, bias1: (hidden); weights2: (H, hidden); bias2: (H).")
      .def(
          "__init__",
          [](FireBias* self, float c, float threshold, std::vector<float> weights1, std::vector<float> bias1, const Matrix& weights2,
             std::vector<float> bias2, float epsilon) {
            new (self) FireBias(valid(FireBias{static_cast<std::int64_t>(weights2.shape(0)), c, threshold, epsilon, std::move(weights1),
                                               std::move(bias1), values_of(weights2), std::move(bias2)}));
          },
          "c"_a, "threshold"_a, "weights1"_a, "bias1"_a, "weights2"_a, "bias2"_a, "epsilon"_a = 1e-6f)
      .def_ro("heads", &FireBias::heads)
      .def_ro("c", &FireBias::c)
      .def_ro("threshold", &FireBias::threshold);
  nb::class_<GridBias>(
      module, "GridBias",
      "A value for each offset of two cells of a height x width image, query - key in the order of rows: values (H, (2 height - "
      "1) (2 width - 1)), with class_token three more: query 0, key 0, 0 to itself (Swin, BEiT).")
      .def(
          "__init__",
          [](GridBias* self, const Matrix& values, std::int64_t height, std::int64_t width, bool class_token) {
            new (self) GridBias(valid(GridBias{static_cast<std::int64_t>(values.shape(0)), height, width, class_token, values_of(values)}));
          },
          "values"_a, "height"_a, "width"_a, nb::kw_only(), "class_token"_a = false)
      .def_ro("heads", &GridBias::heads)
      .def_ro("height", &GridBias::height)
      .def_ro("width", &GridBias::width)
      .def_ro("class_token", &GridBias::class_token)
      .def_prop_ro("values", [](nb::handle_t<GridBias> self) {
        const auto& table = nb::cast<const GridBias&>(self);
        const auto heads = static_cast<std::size_t>(table.heads);
        return view(table.values, heads, heads == 0 ? 0 : table.values.size() / heads, self);
      });
}

void bind_bias_functions(nb::module_& module) {
  module.def("bias_table", &bias_table, "rule"_a, nb::kw_only(), "reach"_a = 0, "table"_a = nb::none(), "weights1"_a = nb::none(),
             "bias1"_a = nb::none(), "weights2"_a = nb::none(), "bias2"_a = nb::none(),
             "The table of a bias rule, computed in double and rounded once to float32. reach: the largest |distance| that is needed "
             "(t5, kerple, sandwich). table: (rows, H) of t5, swin and beit. weights1, bias1, weights2 (H, hidden), bias2: the network of "
             "fire and swinv2, as its linear layers hold them. Raises Error.");
  module.def(
      "t5_bucket", [](const gnomon::bias::T5& rule, std::int64_t distance) { return gnomon::t5_bucket(rule, distance); }, "rule"_a,
      "distance"_a, "The bucket of a distance, key - query: the exact floor of the formula. Raises Error.");
  module.def(
      "falcon_bias",
      [](const gnomon::bias::Alibi& rule, const std::vector<std::int64_t>& positions, double scale) {
        auto owner = std::make_unique<std::vector<float>>(gnomon::falcon_bias(rule, positions, scale));
        const nb::capsule keep(owner.get(), [](void* numbers) noexcept { delete static_cast<std::vector<float>*>(numbers); });
        const auto* values = owner.release();
        return nb::cast(nb::ndarray<nb::numpy, const float>(values->data(), {rule.slopes.size(), positions.size()}, keep));
      },
      "rule"_a, "positions"_a, "scale"_a,
      "Falcon's ALiBi as it was trained, float32 (H, keys), an additive mask that all queries share: slope, position and product in "
      "bf16, then scaled with the score, 1 / sqrt(D). Raises Error.");
  module.def(
      "bias_at",
      [](const gnomon::BiasTable& table, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t position) {
        return gnomon::bias_at(table, head, query, key, position);
      },
      "table"_a, "head"_a, "query"_a, "key"_a, "position"_a = 0,
      "The value a table adds to one score, in double. Raises Error for a head, query or key that it does not have.");
}

using Lists = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

gnomon::KeyIntervals intervals_of(const Lists& begin, const Lists& end, const Lists& first, const Lists& diagonal, std::int64_t keys,
                                  std::int64_t keep_first) {
  gnomon::KeyIntervals made;
  made.batch = static_cast<std::int64_t>(begin.shape(0));
  made.queries = static_cast<std::int64_t>(begin.shape(1));
  made.keys = keys;
  made.keep_first = keep_first;
  const auto fill = [&](const char* name, const Lists& from, std::vector<std::int32_t>& to) {
    if (from.shape(0) != begin.shape(0) || from.shape(1) != begin.shape(1)) {
      refuse(fmt::format("{}: expected the shape of begin, ({}, {}), got ({}, {})", name, begin.shape(0), begin.shape(1), from.shape(0),
                         from.shape(1)));
    }
    to.assign(from.data(), from.data() + from.size());
  };
  fill("begin", begin, made.begin);
  fill("end", end, made.end);
  fill("first", first, made.first);
  fill("diagonal", diagonal, made.diagonal);
  return made;
}

void bind_intervals(nb::module_& module) {
  using gnomon::KeyIntervals;
  const auto list = [](std::vector<std::int32_t> KeyIntervals::* member) {
    return [member](nb::handle_t<KeyIntervals> self) {
      const auto& intervals = nb::cast<const KeyIntervals&>(self);
      return view(intervals.*member, static_cast<std::size_t>(intervals.batch), static_cast<std::size_t>(intervals.queries), self);
    };
  };
  nb::class_<KeyIntervals>(
      module, "KeyIntervals",
      "Which keys each query sees: key j where begin <= j < end, or first <= j < min(first + keep_first, end). Made once, "
      "shared by all layers alike.")
      .def(
          "__init__",
          [](KeyIntervals* self, const Lists& begin, const Lists& end, const Lists& first, const Lists& diagonal, std::int64_t keys,
             std::int64_t keep_first) { new (self) KeyIntervals(intervals_of(begin, end, first, diagonal, keys, keep_first)); },
          "begin"_a.noconvert(), "end"_a.noconvert(), "first"_a.noconvert(), "diagonal"_a.noconvert(), nb::kw_only(), "keys"_a,
          "keep_first"_a = 0,
          "Of any pattern, from int32 arrays (batch, queries); key_intervals makes them of what models declare. attention checks them.")
      .def_ro("batch", &KeyIntervals::batch)
      .def_ro("queries", &KeyIntervals::queries)
      .def_ro("keys", &KeyIntervals::keys)
      .def_ro("keep_first", &KeyIntervals::keep_first)
      .def_prop_ro("begin", list(&KeyIntervals::begin), "int32 (batch, queries), read-only.")
      .def_prop_ro("end", list(&KeyIntervals::end), "int32 (batch, queries), read-only.")
      .def_prop_ro("first", list(&KeyIntervals::first), "int32 (batch, queries), read-only: where the sequence of the query begins.")
      .def_prop_ro("diagonal", list(&KeyIntervals::diagonal),
                   "int32 (batch, queries), read-only: the key slot the query itself stands at.");
  module.def(
      "key_intervals", &key_intervals, "queries"_a, "keys"_a, nb::kw_only(), "causal"_a = false, "window"_a = nb::none(),
      "chunk"_a = nb::none(), "keep_first"_a = 0, "prefix"_a = 0, "left"_a = nb::none(), "right"_a = nb::none(),
      "alignment"_a = "lower_right", "offset"_a = nb::none(), "key_begin"_a = Ids(), "key_end"_a = Ids(), "cu_seqlens_q"_a = Ids(),
      "cu_seqlens_k"_a = Ids(),
      "Makes the intervals of a mask. causal, window, chunk, keep_first: as a model declares them; a causal window of W sees W keys, "
      "itself "
      "included, any other |i - j| <= W / 2. left, right: keys seen before and after the query's own, in the place of causal and window. "
      "prefix: the "
      "first "
      "keys, which all queries see. alignment: 'lower_right', the last query at the last key, or 'top_left'; offset: the key slot of query "
      "0 "
      "instead. key_begin, key_end: (B), the keys that exist (padding). cu_seqlens_q, cu_seqlens_k: (documents + 1), where packed "
      "documents begin, and the end. All are lists of 32-bit integers. Raises Error.");
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_distance_tables(module);
  bind_other_tables(module);
  bind_bias_functions(module);
  bind_intervals(module);
  module.def(
      "attention", &attention, "q"_a, "k"_a, "v"_a, nb::kw_only(), "out"_a = nb::none(), "scale"_a = nb::none(), "softcap"_a = nb::none(),
      "bias"_a = nb::none(), "mask"_a = nb::none(), "mask_tensor"_a = nb::none(), "sink_logits"_a = nb::none(),
      "query_factors"_a = nb::none(), "rotate_queries"_a = nb::none(), "rotate_keys"_a = nb::none(), "block_table"_a = nb::none(),
      "lengths"_a = nb::none(), "log_sum_exp"_a = nb::none(), "maximum"_a = nb::none(), "threads"_a = 1, "dtype"_a = nb::none(),
      "softmax(softcap(scale q k^T) + bias, mask, sink_logits) v, nothing of which is ever n x n. q: (B, Hq, Tq, D), k: (B, Hk, Tk, D), v: "
      "(B, "
      "Hk, Tk, Dv), Hq a multiple of Hk; NumPy or DLPack on the CPU, one dtype, contiguous last axis. out: (B, Hq, Tq, Dv), made when "
      "None. "
      "scale: 1 / sqrt(D) when None. bias: a table, a rule without trained numbers, of which a table is made at each call, or a list of "
      "them, which are summed. mask: KeyIntervals; mask_tensor: bool, or float32 "
      "to be "
      "added, broadcast to (B, Hq, Tq, Tk); neither: all keys are seen. sink_logits: (Hq). query_factors: (Tq) or (B Tq). rotate_queries, "
      "rotate_keys: (frequencies, positions), to turn them while they are loaded. block_table (B, blocks) and lengths (B): k and v are "
      "pages, (pages, Hk, page_size, D); token t of row b stands in page block_table[b, t // page_size], and without a mask query t sees "
      "the keys up to lengths[b] - Tq + t. log_sum_exp, maximum: float32 (B, Hq, Tq), written. A "
      "query "
      "that sees no key gives zeros. Returns out. Raises Error. Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 1.");
}
