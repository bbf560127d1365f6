// SPDX-License-Identifier: Apache-2.0
// add_positions, embed_tokens and the gradient of a lookup.
#include <fmt/format.h>

#include "arrays.hpp"
#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Readable = nb::ndarray<nb::ro, nb::device::cpu>;
using Writable = nb::ndarray<nb::device::cpu>;

/// (B,T,C) or (T,C) as (B,1,T,C).
template <class Array>
gnomon::TensorView tokens_view(std::string_view name, const Array& array, const std::optional<std::string>& stated) {
  if (array.ndim() != 2 && array.ndim() != 3) refuse(fmt::format("{}: expected (B, T, C) or (T, C), got {} axes", name, array.ndim()));
  constexpr std::array<std::size_t, 3> places{0, 2, 3};
  return placed(array, dtype_of_array(name, array.dtype(), stated), places);
}

/// A table (rows, C), or an EmbeddingTable.
struct Rows {
  gnomon::RowsView view;
  nb::object owner;

  Rows(std::string_view name, nb::handle source, std::int64_t offset, const std::optional<std::string>& stated) {
    if (nb::isinstance<gnomon::EmbeddingTable>(source)) {
      view = gnomon::RowsView(*nb::inst_ptr<gnomon::EmbeddingTable>(source));
      owner = nb::borrow(source);
    } else {
      const auto array = array_of<Readable>(name, nb::borrow(source), "an EmbeddingTable or an array");
      if (array.ndim() != 2) refuse(fmt::format("{}: expected (rows, C), got {} axes", name, array.ndim()));
      if (!has_contiguous_rows(array)) refuse(fmt::format("{}: expected a contiguous last axis", name));
      view = {array.data(), dtype_of_array(name, array.dtype(), stated), static_cast<std::int64_t>(array.shape(0)),
              static_cast<std::int64_t>(array.shape(1)), array.stride(0)};
      owner = nb::cast(array);
    }
    view.offset = offset;
  }
};

nb::object add_positions(nb::object x, nb::handle table, nb::handle positions, std::int64_t offset, double scale, nb::object out,
                         int threads, const std::optional<std::string>& dtype) {
  const Rows rows("table", table, offset, dtype);
  const auto held = positions_of("positions", positions);
  const auto executor = executor_of(threads);
  const nb::object target = out.is_none() ? x : out;
  const auto read = array_of<Readable>("x", x, "an array");
  const auto written = array_of<Writable>(out.is_none() ? "x" : "out", target, "a writable array");
  const auto from = tokens_view("x", read, dtype), to = tokens_view("out", written, dtype);
  check_stated(dtype, {from.dtype, to.dtype, rows.view.dtype});
  {
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::add_positions(from, to, rows.view, held.view, {scale, executor.get()});
  }
  return target;
}

nb::object embed_tokens(nb::handle ids, nb::handle tokens, nb::handle table, nb::handle positions, nb::object out, std::int64_t offset,
                        double scale, int threads, const std::optional<std::string>& dtype) {
  const Rows token_rows("tokens", tokens, 0, dtype), position_rows("table", table, offset, dtype);
  const auto held_ids = positions_of("ids", ids), held = positions_of("positions", positions);
  const auto* list = std::get_if<gnomon::Ids>(&held_ids.view);
  if (list == nullptr) refuse("ids: expected int64 token ids");
  const auto executor = executor_of(threads);
  const auto written = array_of<Writable>("out", out, "a writable array");
  const auto to = tokens_view("out", written, dtype);
  check_stated(dtype, {to.dtype, token_rows.view.dtype, position_rows.view.dtype});
  {
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::embed_tokens(list->values, token_rows.view, to, position_rows.view, held.view, {scale, executor.get()});
  }
  return out;
}

nb::object scatter_add_rows(nb::handle gradient, nb::handle indexes, nb::object sum, std::int64_t offset, double scale, int threads,
                            const std::optional<std::string>& dtype) {
  const auto read = array_of<Readable>("gradient", nb::borrow(gradient), "an array");
  const auto written = array_of<Writable>("sum", sum, "a writable array");
  const auto held = positions_of("indexes", indexes);
  const auto executor = executor_of(threads);
  const auto from = tokens_view("gradient", read, dtype), to = tokens_view("sum", written, dtype);
  check_stated(dtype, {from.dtype});
  {
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::scatter_add_rows(from, held.view, offset, to, {scale, executor.get()});
  }
  return sum;
}

}  // namespace

void bind_embed(nb::module_& module) {
  module.def("add_positions", &add_positions, "x"_a, "table"_a, "positions"_a, nb::kw_only(), "offset"_a = 0, "scale"_a = 1.0,
             "out"_a = nb::none(), "threads"_a = 1, "dtype"_a = nb::none(),
             "x * scale + table[positions + offset], in place when out is None; returns what was written. x (B, T, C) or (T, C), any float "
             "dtype, contiguous last axis, never copied; table an EmbeddingTable or an array (rows, C); positions integers, (T) or (B, T). "
             "Raises Error, for a position without a row too. Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.");
  module.def(
      "embed_tokens", &embed_tokens, "ids"_a, "tokens"_a, "table"_a, "positions"_a, nb::kw_only(), "out"_a, "offset"_a = 0, "scale"_a = 1.0,
      "threads"_a = 1, "dtype"_a = nb::none(),
      "tokens[ids] * scale + table[positions + offset] into out (B, T, C), without writing the token embeddings down; returns out. ids "
      "int64 (B, T); tokens and table (rows, C), arrays of any float dtype, or table an EmbeddingTable; positions integers, (T) or (B, T). "
      "Raises Error.");
  module.def(
      "scatter_add_rows", &scatter_add_rows, "gradient"_a, "indexes"_a, "sum"_a, nb::kw_only(), "offset"_a = 0, "scale"_a = 1.0,
      "threads"_a = 1, "dtype"_a = nb::none(),
      "The gradient of a lookup: sum[indexes + offset] += scale * gradient, in the order of the tokens, so that it is the same on every "
      "run. gradient (B, T, C), sum (rows, C) float32 or float64; returns sum. Raises Error.");
}
