// SPDX-License-Identifier: Apache-2.0
#include "operations/views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "gnomon/error.hpp"

namespace gnomon {
namespace {

struct Axis {
  std::int64_t stride, number;
};

/// A view whose last axis is contiguous as memory: its first byte, the run of bytes of that axis, and the other axes with positive strides
/// in bytes, the smallest first.
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
    // By hand: a decode step pays for every call.
    if (axes[1].stride < axes[0].stride) std::swap(axes[0], axes[1]);
    if (axes[2].stride < axes[1].stride) std::swap(axes[1], axes[2]);
    if (axes[1].stride < axes[0].stride) std::swap(axes[0], axes[1]);
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

}  // namespace

void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::string text(const std::array<std::int64_t, 4>& shape) {
  return fmt::format("({}, {}, {}, {})", shape[0], shape[1], shape[2], shape[3]);
}

void check_view(std::string_view name, const ConstTensorView& view, std::int64_t width, std::string_view what) {
  for (const auto extent : view.shape) {
    if (extent < 0) refuse(fmt::format("{}: expected extents of at least 0, got {}", name, text(view.shape)));
  }
  if (view.shape[3] != width) {
    refuse(fmt::format("{}: expected shape (B, H, T, {}), the {}, got {}", name, width, what, text(view.shape)));
  }
  if (view.strides[3] != 1) refuse(fmt::format("{}: expected a contiguous last axis (stride 1), got stride {}", name, view.strides[3]));
  if (view.data == nullptr && view.shape[0] * view.shape[1] * view.shape[2] != 0)
    refuse(fmt::format("{}: expected memory, got null", name));
  if (reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) != 0) {
    refuse(fmt::format("{}: expected memory aligned to its dtype ({} bytes)", name, size_of(view.dtype)));
  }
}

std::pair<std::uintptr_t, std::uintptr_t> extent(const ConstTensorView& view) {
  std::int64_t low = 0, high = 1;
  for (std::size_t axis = 0; axis < 4; axis++) {
    const std::int64_t reach = (view.shape[axis] - 1) * view.strides[axis];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.data);
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  return {base + static_cast<std::uintptr_t>(low * size), base + static_cast<std::uintptr_t>(high * size)};
}

bool is_empty(const ConstTensorView& view) { return view.shape[0] == 0 || view.shape[1] == 0 || view.shape[2] == 0; }

bool overlaps_itself(const ConstTensorView& view) {
  const Layout layout(view);
  std::int64_t reach = layout.run;
  for (const auto& axis : layout.axes) {
    if (axis.number == 1) continue;
    if (axis.stride < reach) return true;  // it steps less than the axes below it reach
    reach += axis.stride * (axis.number - 1);
  }
  return false;
}

bool are_apart(const ConstTensorView& first, const ConstTensorView& second) {
  const auto [a_begin, a_end] = extent(first);
  const auto [b_begin, b_end] = extent(second);
  if (a_end <= b_begin || b_end <= a_begin) return true;
  const Layout a(first), b(second);
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

bool is_same_view(const ConstTensorView& a, const ConstTensorView& b) {
  bool same = a.data == b.data;
  for (std::size_t axis = 0; axis < 4; axis++) {
    same &= a.shape[axis] == b.shape[axis] && (a.shape[axis] == 1 || a.strides[axis] == b.strides[axis]);
  }
  return same;
}

void check_same(const ConstTensorView& x, const TensorView& out) {
  bool same = true;  // not ==, which calls memcmp
  for (std::size_t axis = 0; axis < 4; axis++) same &= x.shape[axis] == out.shape[axis];
  if (!same) refuse(fmt::format("out: expected the shape of x {}, got {}", text(x.shape), text(out.shape)));
  if (x.dtype != out.dtype) refuse(fmt::format("out: expected the dtype of x ({}), got {}", name_of(x.dtype), name_of(out.dtype)));
}

void check_written(const ConstTensorView& x, const TensorView& out) {
  if (overlaps_itself(out)) refuse("out: its strides make elements share memory, so it cannot be written");
  if (is_same_view(x, out)) return;
  if (!are_apart(x, out)) refuse("out: overlaps x; pass the very same view to work in place, or memory of its own");
}

}  // namespace gnomon
