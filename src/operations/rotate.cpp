// SPDX-License-Identifier: Apache-2.0
// rotate: checks its arguments, then runs the first implementation of the list that takes them: the kernel, then the reference.
#include "gnomon/rotate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/rotate.hpp"
#include "operations/rotate.hpp"
#include "operations/tasks.hpp"
#include "operations/views.hpp"
#include "plan/position_grid.hpp"

namespace gnomon {
namespace {

void check_memory(std::span<const RotateOperand> operands) {
  for (std::size_t i = 0; i < operands.size(); i++) {
    const auto& [x, out, side] = operands[i];
    if (is_empty(x)) continue;
    check_written(x, out);
    for (std::size_t j = 0; j < operands.size(); j++) {
      const auto& other = operands[j];
      if (j == i || is_empty(other.x)) continue;
      const bool apart = are_apart(out, other.out) && (is_same_view(other.x, other.out) || are_apart(out, other.x));
      if (!apart) refuse(fmt::format("operands: {} is written where {} has its elements", i, j));
    }
  }
}

void check_rotation(const Rotation& rotation) {
  if (rotation.pairs() < 1) refuse("rotation: expected at least one pair, it has none");
  if (rotation.pairs() > widest_head / 2)
    refuse(fmt::format("rotation: expected at most {} pairs, got {}", widest_head / 2, rotation.pairs()));
  if (!std::isfinite(rotation.magnitude)) refuse(fmt::format("rotation: expected a finite magnitude, got {}", rotation.magnitude));
  const auto past = rotation.rotary_offset + 2 * rotation.pairs();
  if (rotation.rotary_offset < 0 || past > rotation.head_dim) {
    refuse(fmt::format("rotation: expected rotated channels within head_dim ({}), got {} to {}", rotation.head_dim, rotation.rotary_offset,
                       past));
  }
  const auto pairs = static_cast<std::size_t>(rotation.pairs());
  for (const auto& [name, number] : {std::pair("axis", rotation.axis.size()), std::pair("log_magnitude", rotation.log_magnitude.size())}) {
    if (number != 0 && number != pairs) refuse(fmt::format("rotation: expected {} for each of the {} pairs, got {}", name, pairs, number));
  }
  if (rotation.table && (rotation.table->cos == nullptr || rotation.table->sin == nullptr) && rotation.table->rows > 0) {
    refuse("table: expected memory for cos and sin, got null");
  }
}

void check_operand(const RotateOperand& operand, const RotateOperand& first, const Rotation& rotation) {
  const auto& [x, out, side] = operand;
  check_view("x", x, rotation.head_dim, "head_dim of the spec");
  if (!is_same_view(x, out) || x.dtype != out.dtype) {
    check_view("out", out, rotation.head_dim, "head_dim of the spec");
    check_same(x, out);
  }
  if (x.shape[0] != first.x.shape[0] || x.shape[2] != first.x.shape[2] || x.dtype != first.x.dtype) {
    refuse(fmt::format("operands: expected the batch, tokens and dtype of the first, {} {}, got {} {}", text(first.x.shape),
                       name_of(first.x.dtype), text(x.shape), name_of(x.dtype)));
  }
}

/// Calls visit with the least and the greatest position.
template <class Visitor>
void with_extremes(const Positions& positions, Visitor&& visit) {
  if (count(positions) == 0) return;
  if (const auto* range = std::get_if<Range>(&positions)) {
    const auto last = range->start + static_cast<std::int64_t>(count(positions) - 1) * range->step;
    return visit(std::min(range->start, last), std::max(range->start, last));
  }
  if (const auto* packed = std::get_if<Packed>(&positions)) {
    std::int64_t longest = 0;
    for (std::size_t d = 1; d < packed->cu_seqlens.size(); d++) {
      longest = std::max<std::int64_t>(longest, packed->cu_seqlens[d] - packed->cu_seqlens[d - 1]);
    }
    return visit(std::int64_t{0}, longest - 1);
  }
  std::visit(
      [&](const auto& list) {
        if constexpr (requires { list.values; }) {
          const auto [least, greatest] = std::minmax_element(list.values.begin(), list.values.end());
          visit(*least, *greatest);
        }
      },
      positions);
}

void check_rows(const Positions& positions, const TableView& table) {
  if (std::holds_alternative<Reals>(positions)) refuse("positions: expected integers, the rows of the table, got real numbers");
  with_extremes(positions, [&](auto least, auto greatest) {
    if (least >= 0 && static_cast<std::int64_t>(greatest) < table.rows) return;
    throw Error(ErrorCode::out_of_range,
                fmt::format("positions: the table has rows 0 to {}, got {}", table.rows - 1, least < 0 ? least : greatest));
  });
}

void check_magnitudes(const Positions& positions, const Rotation& rotation) {
  constexpr double most = 87;  // exp(87) and exp(-87) are normal numbers of float32
  double steepest = 0;
  for (const double value : rotation.log_magnitude) steepest = std::max(steepest, std::abs(value));
  with_extremes(positions, [&](auto least, auto greatest) {
    for (const auto position : {least, greatest}) {
      if (steepest * std::abs(static_cast<double>(position) - static_cast<double>(rotation.centre)) <= most) continue;
      throw Error(ErrorCode::out_of_range,
                  fmt::format("positions: at {}, {} from the centre, a magnitude of xpos leaves the range of float32", position,
                              static_cast<double>(position) - static_cast<double>(rotation.centre)));
    }
  });
}

}  // namespace

PositionGrid::Strides check_rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions,
                                   const RotateOptions& options) {
  if (operands.empty()) refuse("operands: expected at least one tensor, got none");
  check_rotation(rotation);
  for (const auto& operand : operands) check_operand(operand, operands[0], rotation);
  const auto& shape = operands[0].x.shape;
  for (const auto& operand : operands) {
    if (options.positions_per_head && operand.x.shape[1] != shape[1]) {
      refuse("positions_per_head: expected operands with the same number of heads; rotate them in two calls");
    }
  }
  validate(positions);
  const auto strides = grid_strides(positions, rotation.axes(), shape[0], shape[1], options.positions_per_head, shape[2]);
  if (rotation.table) check_rows(positions, *rotation.table);
  if (!rotation.log_magnitude.empty()) check_magnitudes(positions, rotation);
  return strides;
}

kernels::RotateJob rotate_job(const Rotation& rotation, const PositionGrid& grid) {
  kernels::RotateJob job;
  job.head_dim = rotation.head_dim;
  if (!rotation.table) job.turns = rotation.turns.data();
  if (!rotation.axis.empty()) job.axis = rotation.axis.data();
  if (!rotation.log_magnitude.empty()) job.log_magnitude = rotation.log_magnitude.data();
  job.centre = rotation.centre;
  if (rotation.table) job.table = &*rotation.table;
  job.positions = &grid;
  job.pairs = rotation.pairs();
  job.rotary_offset = rotation.rotary_offset;
  job.interleaved = rotation.layout == PairLayout::interleaved;
  job.magnitude = static_cast<float>(rotation.magnitude);
  return job;
}

namespace {

/// Large tensors are cut into tasks of tokens and, where these are few, batch rows; a small one is done before a thread wakes up.
struct Cut {
  std::int64_t batch, tokens, by_row = 1, by_token = 1;

  Cut(std::int64_t batch_, std::int64_t tokens_, std::int64_t bytes, const Executor* executor) : batch(batch_), tokens(tokens_) {
    const std::int64_t wanted = tasks_worth_running(bytes, executor);
    by_token = std::min(tokens, wanted);
    by_row = std::min(batch, (wanted + by_token - 1) / by_token);
  }
  std::int64_t number() const { return by_row * by_token; }
  kernels::RotatePart part(std::int64_t task) const {
    const std::int64_t b = task / by_token, t = task % by_token;
    return {batch * b / by_row, batch * (b + 1) / by_row, tokens * t / by_token, tokens * (t + 1) / by_token};
  }
};

/// The kernel takes every dtype but f64.
bool run_kernel(std::span<const RotateOperand> operands, const Rotation& rotation, const PositionGrid& grid, const RotateOptions& options,
                kernels::CosSin cos_sin) {
  constexpr std::int64_t beyond_caches = 1 << 20;
  const DType dtype = operands[0].x.dtype;
  const auto& shape = operands[0].x.shape;
  if (dtype == DType::f64) return false;
  std::array<kernels::RotateTensor, 2> few;
  std::vector<kernels::RotateTensor> many(operands.size() > few.size() ? operands.size() : 0);
  const std::span<kernels::RotateTensor> tensors = many.empty() ? std::span(few).first(operands.size()) : std::span(many);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < operands.size(); i++) {
    const auto& [x, out, side] = operands[i];
    tensors[i] = {x.data,
                  out.data,
                  x.shape[1],
                  {x.strides[0], x.strides[1], x.strides[2]},
                  {out.strides[0], out.strides[1], out.strides[2]},
                  side == Side::key};
    bytes += x.shape[0] * x.shape[1] * x.shape[2] * x.shape[3] * static_cast<std::int64_t>(size_of(dtype));
  }
  kernels::RotateJob job = rotate_job(rotation, grid);
  job.tensors = tensors;
  job.transposed = options.direction == Direction::transposed;
  job.cos_sin = cos_sin;
  job.prefetch = bytes > beyond_caches;
  const Cut cut(shape[0], shape[2], bytes, options.executor);
  if (cut.number() == 1) {
    kernels::rotate(dtype, job, cut.part(0));
  } else {
    run_tasks(options.executor, static_cast<std::size_t>(cut.number()),
              [&](std::size_t task) { kernels::rotate(dtype, job, cut.part(static_cast<std::int64_t>(task))); });
  }
  return true;
}

}  // namespace

Rotation::Rotation(const Frequencies& frequencies)
    : turns(frequencies.turns),
      axis(frequencies.axis),
      log_magnitude(frequencies.log_magnitude),
      centre(frequencies.centre),
      head_dim(frequencies.spec.head_dim),
      rotary_offset(frequencies.spec.rotary_offset),
      layout(frequencies.spec.layout),
      magnitude(frequencies.attention_factor) {
  if (frequencies.numerics != Numerics::exact) {
    throw Error(ErrorCode::unsupported, "frequencies: rotate makes its own cos and sin, which are exact; hf angles exist as tables only");
  }
}

Rotation::Rotation(const RotaryTable& rows)
    : table(rows),
      head_dim(rows.frequencies.spec.head_dim),
      rotary_offset(rows.frequencies.spec.rotary_offset),
      layout(rows.frequencies.spec.layout),
      magnitude(rows.frequencies.attention_factor) {}

void rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions, const RotateOptions& options) {
  const auto strides = check_rotate(operands, rotation, positions, options);
  if (std::all_of(operands.begin(), operands.end(), [](const auto& operand) { return is_empty(operand.x); })) return;
  check_memory(operands);
  run_rotate(operands, rotation, positions, strides, options);
}

void run_rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions,
                const PositionGrid::Strides& strides, const RotateOptions& options, kernels::CosSin cos_sin) {
  const PositionGrid grid(positions, strides);
  if (!run_kernel(operands, rotation, grid, options, cos_sin)) reference::rotate(operands, rotation, positions, options);
}

void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions,
            const RotateOptions& options) {
  const RotateOperand operand{x, out};
  rotate(std::span(&operand, 1), rotation, positions, options);
}

void rotate(const TensorView& x, const Rotation& rotation, const Positions& positions, const RotateOptions& options) {
  rotate(x, x, rotation, positions, options);
}

std::string_view kernel_target() { return kernels::target_name(); }

}  // namespace gnomon
