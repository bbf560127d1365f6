// SPDX-License-Identifier: Apache-2.0
// rotate: checks its arguments, then runs the first implementation of the list that takes them: the kernel, then the reference.
#include "gnomon/rotate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/rotate.hpp"

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

/// First byte and the byte past the last one that a view touches.
std::pair<std::uintptr_t, std::uintptr_t> extent(const ConstTensorView& view) {
  std::int64_t low = 0, high = 0;
  for (int axis = 0; axis < 4; axis++) {
    const std::int64_t reach = (view.shape[static_cast<std::size_t>(axis)] - 1) * view.strides[static_cast<std::size_t>(axis)];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data), size = static_cast<std::uintptr_t>(size_of(view.dtype));
  return {base + static_cast<std::uintptr_t>(low) * size, base + static_cast<std::uintptr_t>(high + 1) * size};
}

/// Whether writing one head could change another: true when an axis steps less than the axes below it reach.
bool overlaps_itself(const TensorView& view) {
  std::array<std::pair<std::int64_t, std::int64_t>, 3> axes{};  // |stride|, extent
  for (std::size_t axis = 0; axis < 3; axis++) axes[axis] = {std::abs(view.strides[axis]), view.shape[axis]};
  std::sort(axes.begin(), axes.end());
  std::int64_t reach = view.shape[3];
  for (const auto& [stride, number] : axes) {
    if (number == 1) continue;
    if (stride < reach) return true;
    reach = stride * (number - 1) + reach;
  }
  return false;
}

void check_memory(const ConstTensorView& x, const TensorView& out) {
  if (overlaps_itself(out)) refuse("out: its strides make elements share memory, so it cannot be written");
  if (x.data == out.data && x.strides == out.strides) return;
  const auto [x_begin, x_end] = extent(x);
  const auto [out_begin, out_end] = extent(out);
  if (x_begin < out_end && out_begin < x_end) refuse("out: overlaps x; pass the very same view to rotate in place, or memory of its own");
}

void check(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions) {
  check_view("x", x, rotation.head_dim);
  check_view("out", out, rotation.head_dim);
  if (x.shape != out.shape) refuse(fmt::format("out: expected the shape of x {}, got {}", text(x.shape), text(out.shape)));
  if (x.dtype != out.dtype) refuse(fmt::format("out: expected the dtype of x ({}), got {}", name_of(x.dtype), name_of(out.dtype)));
  if (rotation.turns.empty()) refuse("rotation: expected at least one pair, it has none");
  const auto past = rotation.rotary_offset + 2 * static_cast<std::int64_t>(rotation.turns.size());
  if (rotation.rotary_offset < 0 || past > rotation.head_dim) {
    refuse(fmt::format("rotation: expected rotated channels within head_dim ({}), got {} to {}", rotation.head_dim, rotation.rotary_offset,
                       past));
  }
  const auto number = count(positions), tokens = static_cast<std::size_t>(x.shape[2]), rows = static_cast<std::size_t>(x.shape[0]) * tokens;
  if (number != tokens && number != rows) {
    refuse(fmt::format("positions: expected {} (one per token) or {} (one per batch row and token), got {}", tokens, rows, number));
  }
  validate(positions);
  if (!empty(x)) check_memory(x, out);
}

/// The kernel takes f32 and bf16 with integer positions.
bool run_kernel(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions,
                Direction direction) {
  if (std::holds_alternative<Reals>(positions) || (x.dtype != DType::f32 && x.dtype != DType::bf16)) return false;
  kernels::RotateJob job;
  job.x = x.data;
  job.out = out.data;
  job.batch = x.shape[0], job.heads = x.shape[1], job.tokens = x.shape[2], job.head_dim = x.shape[3];
  std::copy_n(x.strides.begin(), 3, job.x_strides);
  std::copy_n(out.strides.begin(), 3, job.out_strides);
  job.turns = rotation.turns.data();
  job.pairs = static_cast<std::int64_t>(rotation.turns.size());
  job.rotary_offset = rotation.rotary_offset;
  job.interleaved = rotation.layout == PairLayout::interleaved;
  job.transposed = direction == Direction::transposed;
  job.magnitude = static_cast<float>(rotation.magnitude);
  if (const auto* range = std::get_if<Range>(&positions)) job.start = range->start, job.step = range->step;
  if (const auto* ids = std::get_if<Ids32>(&positions)) job.ids32 = ids->values.data();
  if (const auto* ids = std::get_if<Ids>(&positions)) job.ids = ids->values.data();
  job.per_row = count(positions) != static_cast<std::size_t>(x.shape[2]);
  x.dtype == DType::f32 ? kernels::rotate_f32(job) : kernels::rotate_bf16(job);
  return true;
}

}  // namespace

Rotation::Rotation(const Frequencies& frequencies)
    : turns(frequencies.turns),
      head_dim(frequencies.spec.head_dim),
      rotary_offset(frequencies.spec.rotary_offset),
      layout(frequencies.spec.layout),
      magnitude(frequencies.attention_factor) {
  if (frequencies.numerics != Numerics::exact) {
    throw Error(ErrorCode::unsupported, "frequencies: rotate makes its own cos and sin, which are exact; hf angles exist as tables only");
  }
}

void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions, Direction direction) {
  check(x, out, rotation, positions);
  if (empty(x)) return;
  if (!run_kernel(x, out, rotation, positions, direction)) reference::rotate(x, out, rotation, positions, direction);
}

void rotate(const TensorView& x, const Rotation& rotation, const Positions& positions, Direction direction) {
  rotate(x, x, rotation, positions, direction);
}

std::string_view kernel_target() { return kernels::target_name(); }

}  // namespace gnomon
