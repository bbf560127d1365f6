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
#include "plan/position_grid.hpp"

namespace gnomon {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::string text(const std::array<std::int64_t, 4>& shape) {
  return fmt::format("({}, {}, {}, {})", shape[0], shape[1], shape[2], shape[3]);
}

void check_view(std::string_view name, const ConstTensorView& view, int head_dim) {
  for (const auto extent : view.shape) {
    if (extent < 0) refuse(fmt::format("{}: expected extents of at least 0, got {}", name, text(view.shape)));
  }
  if (view.shape[3] != head_dim) {
    refuse(fmt::format("{}: expected shape (B, H, T, {}), the head_dim of the spec, got {}", name, head_dim, text(view.shape)));
  }
  if (view.strides[3] != 1) refuse(fmt::format("{}: expected a contiguous last axis (stride 1), got stride {}", name, view.strides[3]));
  if (view.data == nullptr && view.shape[0] * view.shape[1] * view.shape[2] != 0)
    refuse(fmt::format("{}: expected memory, got null", name));
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) != 0) {
    refuse(fmt::format("{}: expected memory aligned to its dtype ({} bytes)", name, size_of(view.dtype)));
  }
}

bool empty(const ConstTensorView& view) { return view.shape[0] == 0 || view.shape[1] == 0 || view.shape[2] == 0; }

struct Axis {
  std::int64_t stride, number;
};

/// A view as memory: its first byte, and its axes with positive strides in bytes, the smallest first. The last axis is a run of bytes.
struct Layout {
  std::uintptr_t begin = 0;
  std::int64_t run = 0;
  std::array<Axis, 3> axes{};

  explicit Layout(const ConstTensorView& view) : begin(reinterpret_cast<std::uintptr_t>(view.data)) {
    const auto size = static_cast<std::int64_t>(size_of(view.dtype));
    run = view.shape[3] * size;
    for (std::size_t i = 0; i < 3; i++) {
      const std::int64_t stride = view.shape[i] == 1 ? 0 : view.strides[i] * size;
      if (stride < 0) begin -= static_cast<std::uintptr_t>(-stride) * static_cast<std::uintptr_t>(view.shape[i] - 1);
      axes[i] = {std::abs(stride), view.shape[i]};
    }
    std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  }
  /// Bytes that the axes with strides below `limit` reach over.
  std::int64_t reach(std::int64_t limit) const {
    std::int64_t bytes = run;
    for (const auto& axis : axes) {
      if (axis.stride < limit) bytes += axis.stride * (axis.number - 1);
    }
    return bytes;
  }
};

/// Whether writing one head could change another: true when an axis steps less than the axes before it, of smaller or the same steps,
/// reach.
bool overlaps_itself(const Layout& layout) {
  std::int64_t reach = layout.run;
  for (const auto& axis : layout.axes) {
    if (axis.number > 1 && axis.stride < reach) return true;
    reach += axis.stride * (axis.number - 1);
  }
  return false;
}

/// Whether two views share no byte: because one ends before the other begins, or because both step alike along an axis and never meet
/// within a step, as the queries and keys of one fused projection.
bool are_apart(const Layout& a, const Layout& b) {
  constexpr auto whole = std::numeric_limits<std::int64_t>::max();
  const auto a_end = a.begin + static_cast<std::uintptr_t>(a.reach(whole)), b_end = b.begin + static_cast<std::uintptr_t>(b.reach(whole));
  if (a_end <= b.begin || b_end <= a.begin) return true;
  for (const auto& axis : a.axes) {
    const bool common = std::any_of(b.axes.begin(), b.axes.end(), [&](const Axis& other) { return other.stride == axis.stride; });
    if (axis.stride == 0 || !common) continue;
    const auto step = static_cast<std::uintptr_t>(axis.stride);
    const auto multiple = [&](const Axis& other) { return other.stride < axis.stride || other.stride % axis.stride == 0; };
    if (!std::all_of(a.axes.begin(), a.axes.end(), multiple) || !std::all_of(b.axes.begin(), b.axes.end(), multiple)) continue;
    const auto from_a = static_cast<std::int64_t>((b.begin >= a.begin ? b.begin - a.begin : step - (a.begin - b.begin) % step) % step);
    if (from_a >= a.reach(axis.stride) && from_a + b.reach(axis.stride) <= axis.stride) return true;
  }
  return false;
}

void check_memory(std::span<const RotateOperand> operands) {
  for (std::size_t i = 0; i < operands.size(); i++) {
    const auto& [x, out, side] = operands[i];
    if (empty(x)) continue;
    const Layout written(out);
    if (overlaps_itself(written)) refuse("out: its strides make elements share memory, so it cannot be written");
    const bool in_place = x.data == out.data && x.strides == out.strides;
    if (!in_place && !are_apart(Layout(x), written)) {
      refuse("out: overlaps x; pass the very same view to rotate in place, or memory of its own");
    }
    for (std::size_t j = 0; j < operands.size(); j++) {
      if (j == i || empty(operands[j].x)) continue;
      if (are_apart(written, Layout(operands[j].x)) && are_apart(written, Layout(operands[j].out))) continue;
      refuse(fmt::format("operands: {} is written where {} has its elements", i, j));
    }
  }
}

void check_rotation(const Rotation& rotation) {
  if (rotation.pairs() < 1) refuse("rotation: expected at least one pair, it has none");
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
  check_view("x", x, rotation.head_dim);
  check_view("out", out, rotation.head_dim);
  if (x.shape != out.shape) refuse(fmt::format("out: expected the shape of x {}, got {}", text(x.shape), text(out.shape)));
  if (x.dtype != out.dtype) refuse(fmt::format("out: expected the dtype of x ({}), got {}", name_of(x.dtype), name_of(out.dtype)));
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

std::int64_t axes_of(const Rotation& rotation) {
  return rotation.axis.empty() ? 1 : 1 + *std::max_element(rotation.axis.begin(), rotation.axis.end());
}

PositionGrid::Strides check(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions,
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
  const auto strides = grid_strides(positions, axes_of(rotation), shape[0], shape[1], options.positions_per_head, shape[2]);
  if (rotation.table) check_rows(positions, *rotation.table);
  if (!rotation.log_magnitude.empty()) check_magnitudes(positions, rotation);
  return strides;
}

/// Large tensors are cut into tasks of tokens and, where these are few, batch rows; a small one is done before a thread wakes up.
std::vector<kernels::RotatePart> parts(std::int64_t batch, std::int64_t tokens, std::int64_t bytes, const Executor* executor) {
  constexpr std::int64_t worth_threads = 256 << 10, least_task = 32 << 10, tasks_per_thread = 8;
  if (executor == nullptr || executor->width() < 2 || bytes < worth_threads) return {{0, batch, 0, tokens}};
  const std::int64_t wanted = std::min(tasks_per_thread * static_cast<std::int64_t>(executor->width()), bytes / least_task);
  const std::int64_t by_token = std::min(tokens, wanted), by_row = std::min(batch, (wanted + by_token - 1) / by_token);
  std::vector<kernels::RotatePart> result;
  for (std::int64_t b = 0; b < by_row; b++) {
    for (std::int64_t t = 0; t < by_token; t++) {
      result.push_back({batch * b / by_row, batch * (b + 1) / by_row, tokens * t / by_token, tokens * (t + 1) / by_token});
    }
  }
  return result;
}

/// The kernel takes every dtype but f64.
bool run_kernel(std::span<const RotateOperand> operands, const Rotation& rotation, const PositionGrid& grid, const RotateOptions& options) {
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
  kernels::RotateJob job;
  job.tensors = tensors;
  job.batch = shape[0], job.tokens = shape[2], job.head_dim = shape[3];
  if (!rotation.table) job.turns = rotation.turns.data();
  if (!rotation.axis.empty()) job.axis = rotation.axis.data();
  if (!rotation.log_magnitude.empty()) job.log_magnitude = rotation.log_magnitude.data();
  job.centre = rotation.centre;
  if (rotation.table) job.table = &*rotation.table;
  job.positions = &grid;
  job.pairs = rotation.pairs();
  job.rotary_offset = rotation.rotary_offset;
  job.interleaved = rotation.layout == PairLayout::interleaved;
  job.transposed = options.direction == Direction::transposed;
  job.magnitude = static_cast<float>(rotation.magnitude);
  job.prefetch = bytes > beyond_caches;
  const auto tasks = parts(shape[0], shape[2], bytes, options.executor);
  if (tasks.size() == 1) {
    kernels::rotate(dtype, job, tasks[0]);
  } else {
    options.executor->run(tasks.size(), [&](std::size_t task) { kernels::rotate(dtype, job, tasks[task]); });
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
  const auto strides = check(operands, rotation, positions, options);
  if (std::all_of(operands.begin(), operands.end(), [](const auto& operand) { return empty(operand.x); })) return;
  check_memory(operands);
  const PositionGrid grid(positions, strides);
  if (!run_kernel(operands, rotation, grid, options)) reference::rotate(operands, rotation, positions, options);
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
