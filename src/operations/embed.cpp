// SPDX-License-Identifier: Apache-2.0
// add rows: checks its arguments, then runs the kernel row by row, or the double reference for f64.
#include "gnomon/embed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gnomon/error.hpp"
#include "kernels/embed.hpp"
#include "operations/tasks.hpp"
#include "operations/views.hpp"
#include "plan/position_grid.hpp"
#include "plan/round.hpp"

namespace gnomon {
namespace {

void check_rows(std::string_view name, const RowsView& view) {
  if (view.rows < 0 || view.width < 1 || view.offset < 0 || view.offset > view.rows) {
    refuse(fmt::format("{}: expected rows of at least one column and an offset of 0 to the number of rows, got {} rows of {} and offset {}",
                       name, view.rows, view.width, view.offset));
  }
  if (view.data == nullptr && view.rows > 0) refuse(fmt::format("{}: expected memory, got null", name));
}

void check_scale(double scale) {
  if (!(std::abs(scale) <= static_cast<double>(std::numeric_limits<float>::max())))
    refuse(fmt::format("scale: expected a finite number of float32, got {}", scale));
}

void check_tokens(std::string_view name, const ConstTensorView& view, std::int64_t width) {
  check_view(name, view, width, "width of the table");
  if (view.shape[1] != 1) refuse(fmt::format("{}: expected (B, 1, T, C), got {}", name, text(view.shape)));
}

/// A row for each token, in the order (B,T), checked.
std::vector<std::int64_t> rows_of(const Positions& positions, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                                  std::int64_t offset) {
  if (std::holds_alternative<Reals>(positions)) refuse("positions: expected integers, for which there are rows, got real numbers");
  validate(positions);
  const PositionGrid grid(positions, grid_strides(positions, 1, batch, 1, false, tokens));
  std::vector<std::int64_t> result;
  result.reserve(static_cast<std::size_t>(batch * tokens));
  for (std::int64_t b = 0; b < batch; b++) {
    for (std::int64_t t = 0; t < tokens; t++) {
      const std::int64_t position = grid.whole(0, b, 0, t), row = position + offset;
      if (row < offset || row >= rows) {
        throw Error(ErrorCode::out_of_range,
                    fmt::format("positions: {} has no row; the table was made for positions 0 to {} ({} rows, offset {})", position,
                                rows - offset - 1, rows, offset));
      }
      result.push_back(row);
    }
  }
  return result;
}

const std::byte* row_at(const RowsView& view, std::int64_t row) {
  return static_cast<const std::byte*>(view.data) + row * view.row_stride * static_cast<std::int64_t>(size_of(view.dtype));
}

template <class View>
auto* token_at(const View& view, std::int64_t b, std::int64_t t) {
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, std::byte, const std::byte>;
  const std::int64_t elements = b * view.strides[0] + t * view.strides[2];
  return static_cast<Byte*>(view.data) + elements * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Calls body(first, past) for parts of 0 … number, on the executor's threads where the work is worth them.
template <class Body>
void in_parts(std::int64_t number, std::int64_t bytes, std::int64_t multiple, Executor* executor, Body&& body) {
  const std::int64_t blocks = (number + multiple - 1) / multiple;
  const std::int64_t tasks = std::min(tasks_worth_running(bytes, executor), blocks);
  if (tasks <= 1) return body(0, number);
  run_tasks(executor, static_cast<std::size_t>(tasks), [&](std::size_t task) {
    const auto k = static_cast<std::int64_t>(task);
    body(blocks * k / tasks * multiple, std::min(blocks * (k + 1) / tasks * multiple, number));
  });
}

/// out = scale * x_of(index) + E, for every token.
template <class XOf>
void add_rows(const TensorView& out, const RowsView& table, const std::vector<std::int64_t>& rows, const EmbedOptions& options,
              XOf&& x_of) {
  const std::int64_t tokens = out.shape[2], number = out.shape[0] * tokens;
  const std::int64_t bytes = number * table.width * static_cast<std::int64_t>(size_of(out.dtype));
  in_parts(number, bytes, 1, options.executor, [&](std::int64_t first, std::int64_t past) {
    for (std::int64_t i = first; i < past; i++) {
      const kernels::AddRow job{x_of(i), row_at(table, rows[static_cast<std::size_t>(i)]), token_at(out, i / tokens, i % tokens),
                                static_cast<float>(options.scale)};
      kernels::add_row(out.dtype, table.dtype, job, table.width);
    }
  });
}

}  // namespace

void add_positions(const ConstTensorView& x, const TensorView& out, const RowsView& table, const Positions& positions,
                   const EmbedOptions& options) {
  check_scale(options.scale);
  check_rows("table", table);
  check_tokens("x", x, table.width);
  check_tokens("out", out, table.width);
  check_same(x, out);
  const auto rows = rows_of(positions, x.shape[0], x.shape[2], table.rows, table.offset);
  if (is_empty(x)) return;
  check_written(x, out);
  if (x.dtype == DType::f64 || table.dtype == DType::f64) return reference::add_positions(x, out, table, positions, options);
  add_rows(out, table, rows, options, [&](std::int64_t i) { return token_at(x, i / x.shape[2], i % x.shape[2]); });
}

void embed_tokens(std::span<const std::int64_t> ids, const RowsView& tokens, const TensorView& out, const RowsView& table,
                  const Positions& positions, const EmbedOptions& options) {
  check_scale(options.scale);
  check_rows("tokens", tokens);
  check_rows("table", table);
  check_tokens("out", out, table.width);
  const auto number = static_cast<std::size_t>(out.shape[0] * out.shape[2]);
  if (ids.size() != number) refuse(fmt::format("ids: expected {} (one per batch row and token), got {}", number, ids.size()));
  if (tokens.width != table.width || tokens.dtype != out.dtype) {
    refuse(fmt::format("tokens: expected rows of {} {}, got {} {}", table.width, name_of(out.dtype), tokens.width, name_of(tokens.dtype)));
  }
  for (std::size_t i = 0; i < ids.size(); i++) {
    if (ids[i] >= 0 && ids[i] < tokens.rows) continue;
    throw Error(ErrorCode::out_of_range, fmt::format("ids[{}]: expected 0 to {}, got {}", i, tokens.rows - 1, ids[i]));
  }
  const auto rows = rows_of(positions, out.shape[0], out.shape[2], table.rows, table.offset);
  if (is_empty(out)) return;
  if (overlaps_itself(out)) refuse("out: its strides make elements share memory, so it cannot be written");
  const auto x_of = [&](std::int64_t i) { return row_at(tokens, ids[static_cast<std::size_t>(i)]); };
  if (out.dtype != DType::f64 && table.dtype != DType::f64) return add_rows(out, table, rows, options, x_of);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(number); i++) {
    const ConstTensorView x(x_of(i), out.dtype, {1, 1, 1, table.width}, {0, 0, 0, 1});
    const TensorView to{token_at(out, i / out.shape[2], i % out.shape[2]), out.dtype, x.shape, x.strides};
    const std::int64_t position = rows[static_cast<std::size_t>(i)] - table.offset;
    reference::add_positions(x, to, table, Range{position, position + 1}, options);
  }
}

void scatter_add_rows(const ConstTensorView& gradient, const Positions& indexes, std::int64_t offset, const TensorView& sum,
                      const EmbedOptions& options) {
  const std::int64_t width = gradient.shape[3], tokens = gradient.shape[2], number = gradient.shape[0] * tokens;
  check_scale(options.scale);
  check_tokens("gradient", gradient, width);
  check_view("sum", sum, width, "width of the gradient");
  if (sum.shape[0] != 1 || sum.shape[1] != 1) refuse(fmt::format("sum: expected (1, 1, rows, C), got {}", text(sum.shape)));
  if (sum.dtype != DType::f32 && sum.dtype != DType::f64) refuse(fmt::format("sum: expected f32 or f64, got {}", name_of(sum.dtype)));
  if (offset < 0 || offset > sum.shape[2]) refuse(fmt::format("offset: expected 0 to the {} rows of sum, got {}", sum.shape[2], offset));
  const auto rows = rows_of(indexes, gradient.shape[0], tokens, sum.shape[2], offset);
  if (is_empty(gradient) || is_empty(sum)) return;
  if (overlaps_itself(sum) || !are_apart(gradient, sum)) refuse("sum: expected memory of its own, apart from the gradient");
  if (sum.dtype == DType::f64 || gradient.dtype == DType::f64) {
    visit_dtype(sum.dtype, [&]<class Sum>(Sum) {
      visit_dtype(gradient.dtype, [&]<class Element>(Element) {
        for (std::int64_t i = 0; i < number; i++) {
          auto* to = reinterpret_cast<Sum*>(token_at(sum, 0, rows[static_cast<std::size_t>(i)]));
          const auto* from = reinterpret_cast<const Element*>(token_at(gradient, i / tokens, i % tokens));
          for (std::int64_t c = 0; c < width; c++) to[c] = round<Sum>(widen(to[c]) + options.scale * widen(from[c]));
        }
      });
    });
    return;
  }
  // A task has columns of its own and sees the tokens in their order, so no sum depends on who takes it.
  constexpr std::int64_t cache_line = 16;
  in_parts(width, number * width * 4, cache_line, options.executor, [&](std::int64_t first, std::int64_t past) {
    for (std::int64_t i = 0; i < number; i++) {
      auto* to = token_at(sum, 0, rows[static_cast<std::size_t>(i)]) + first * 4;
      const auto* from = token_at(gradient, i / tokens, i % tokens) + first * static_cast<std::int64_t>(size_of(gradient.dtype));
      kernels::add_row(DType::f32, gradient.dtype, {to, from, to, 1, static_cast<float>(options.scale)}, past - first);
    }
  });
}

}  // namespace gnomon
