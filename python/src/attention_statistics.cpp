// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "arrays.hpp"
#include "attention_options.hpp"
#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

/// The numbers of a call, and their shapes.
struct Measured {
  std::array<std::size_t, 3> rows{};  // (B,Hq,Tq)
  std::vector<std::int64_t> edges;
  std::vector<float> mass, entropy, maximum, mean_distance, first_mass, window_mass;
  std::vector<double> mass_by_distance;

  std::size_t bins() const { return edges.empty() ? 0 : edges.size() - 1; }
  gnomon::AttentionStatistics memory() {
    gnomon::AttentionStatistics to;
    for (const auto& [list, span] :
         {std::pair(&mass, &to.mass), std::pair(&entropy, &to.entropy), std::pair(&maximum, &to.maximum),
          std::pair(&mean_distance, &to.mean_distance), std::pair(&first_mass, &to.first_mass), std::pair(&window_mass, &to.window_mass)}) {
      list->resize(rows[0] * rows[1] * rows[2]);
      *span = *list;
    }
    mass_by_distance.resize(rows[0] * rows[1] * bins());
    to.mass_by_distance = mass_by_distance;
    to.distance_edges = edges;
    return to;
  }
};

/// A read-only NumPy view of a member, which keeps its owner alive.
template <class Number>
nb::object view(const std::vector<Number>& values, std::initializer_list<std::size_t> shape, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const Number>(values.data(), shape.size(), shape.begin(), owner));
}
auto by_row(std::vector<float> Measured::* member) {
  return [member](nb::handle_t<Measured> self) {
    const auto& measured = nb::cast<const Measured&>(self);
    return view(measured.*member, {measured.rows[0], measured.rows[1], measured.rows[2]}, self);
  };
}

Measured attention_statistics(nb::object q, nb::object k, nb::object log_sum_exp, std::int64_t first_keys, std::int64_t window,
                              std::optional<std::vector<std::int64_t>> distance_edges, std::optional<double> scale,
                              std::optional<double> softcap, nb::handle bias, const gnomon::KeyIntervals* mask, nb::handle mask_tensor,
                              nb::handle sink_logits, nb::handle query_factors, nb::handle rotate_queries, nb::handle rotate_keys,
                              int threads, const std::optional<std::string>& dtype) {
  using Read = nb::ndarray<nb::ro, nb::device::cpu>;
  const auto query = array_of<Read>("q", q, "an array"), key = array_of<Read>("k", k, "an array");
  const auto q_view = view_of("q", query, dtype), k_view = view_of("k", key, dtype);
  check_stated(dtype, {q_view.dtype});
  const auto sums = array_of<nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>>(
      "log_sum_exp", log_sum_exp, "a contiguous float32 array (B, Hq, Tq)");
  PythonAttentionOptions options({scale, softcap, bias, mask, mask_tensor, sink_logits, query_factors, rotate_queries, rotate_keys},
                                 {q_view.shape[0], q_view.shape[1], q_view.shape[2], k_view.shape[2]}, threads);
  Measured measured;
  for (std::size_t axis = 0; axis < 3; axis++) measured.rows[axis] = static_cast<std::size_t>(q_view.shape[axis]);
  measured.edges = distance_edges ? std::move(*distance_edges) : gnomon::doubling_edges(k_view.shape[2]);
  auto statistics = measured.memory();
  statistics.first_keys = first_keys;
  statistics.window = window;
  {
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::attention_statistics(q_view, k_view, {sums.data(), sums.size()}, statistics, options.view);
  }
  return measured;
}

}  // namespace

void bind_attention_statistics(nb::module_& module) {
  nb::class_<Measured>(module, "AttentionStatistics",
                       "Where the weights of attention lie. How far back a key lies is counted in tokens from its query: 0 is the "
                       "query's own, positive ones are before it. Arrays are read-only.")
      .def_prop_ro("mass", by_row(&Measured::mass), "float32 (B, Hq, Tq): sum of the weights; 1, less what a sink logit takes.")
      .def_prop_ro("entropy", by_row(&Measured::entropy), "float32 (B, Hq, Tq): of the weights divided by their sum, in nats.")
      .def_prop_ro("maximum", by_row(&Measured::maximum), "float32 (B, Hq, Tq): the greatest weight.")
      .def_prop_ro("mean_distance", by_row(&Measured::mean_distance), "float32 (B, Hq, Tq): how far back attention looks, in tokens.")
      .def_prop_ro("first_mass", by_row(&Measured::first_mass), "float32 (B, Hq, Tq): weight on the first keys of the sequence.")
      .def_prop_ro("window_mass", by_row(&Measured::window_mass), "float32 (B, Hq, Tq): weight on the keys nearer than the window.")
      .def_prop_ro(
          "distance_edges",
          [](nb::handle_t<Measured> self) {
            const auto& measured = nb::cast<const Measured&>(self);
            return view(measured.edges, {measured.edges.size()}, self);
          },
          "int64 (bins + 1): bin i holds edges[i] <= how far back < edges[i + 1].")
      .def_prop_ro(
          "mass_by_distance",
          [](nb::handle_t<Measured> self) {
            const auto& measured = nb::cast<const Measured&>(self);
            return view(measured.mass_by_distance, {measured.rows[0], measured.rows[1], measured.bins()}, self);
          },
          "float64 (B, Hq, bins): sums of the weights over the queries.");
  module.def("doubling_edges", &gnomon::doubling_edges, "keys"_a,
             "Edges of bins that double in width, for up to `keys` keys before a query: 0, 1, 2, 4, ... Raises Error.");
  module.def(
      "attention_statistics", &attention_statistics, "q"_a, "k"_a, "log_sum_exp"_a, nb::kw_only(), "first_keys"_a = 4, "window"_a = 128,
      "distance_edges"_a = nb::none(), "scale"_a = nb::none(), "softcap"_a = nb::none(), "bias"_a = nb::none(), "mask"_a = nb::none(),
      "mask_tensor"_a = nb::none(), "sink_logits"_a = nb::none(), "query_factors"_a = nb::none(), "rotate_queries"_a = nb::none(),
      "rotate_keys"_a = nb::none(), "threads"_a = 1, "dtype"_a = nb::none(),
      "Measures the weights of one pass of attention, in a second pass over the scores; nothing is ever n x n. q, k and the options: as "
      "given to attention. log_sum_exp: float32 (B, Hq, Tq), as attention wrote it. first_keys: how many keys count as the first of a "
      "sequence. window: how many keys count as near, the query's own included, to either side. distance_edges: ascending, of the bins "
      "of how far back a key lies; doubling_edges(Tk) when None. Returns AttentionStatistics. Raises Error. Source: Zhong et al. 2024, "
      "arXiv:2406.13282; Xiao et al. 2023, arXiv:2309.17453.");
}
