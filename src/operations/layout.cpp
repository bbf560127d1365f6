// SPDX-License-Identifier: Apache-2.0
// Layout conversion: one permutation inside each head, applied to bytes.
#include "gnomon/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "operations/views.hpp"

namespace gnomon {
namespace {

bool empty(const ConstTensorView& view) { return std::ranges::find(view.shape, 0) != view.shape.end(); }

/// Whether two elements may be the same memory: true when an axis steps less than the axes below it reach.
bool elements_meet(const TensorView& view) {
  std::array<std::size_t, 4> axes{0, 1, 2, 3};
  std::ranges::sort(axes, {}, [&](std::size_t axis) { return std::abs(view.strides[axis]); });
  std::int64_t reach = 1;
  for (const auto axis : axes) {
    const std::int64_t stride = std::abs(view.strides[axis]);
    if (view.shape[axis] == 1) continue;
    if (stride < reach) return true;
    reach += stride * (view.shape[axis] - 1);
  }
  return false;
}

void check_memory(const ConstTensorView& x, const TensorView& out) {
  if (x.data == nullptr) refuse("x: expected memory, got null");
  if (out.data == nullptr) refuse("out: expected memory, got null");
  if (elements_meet(out)) refuse("out: its strides make elements share memory, so it cannot be written");
  if (x.data == out.data && x.strides == out.strides) return;
  const auto [x_begin, x_end] = extent(x);
  const auto [out_begin, out_end] = extent(out);
  if (x_begin < out_end && out_begin < x_end) refuse("out: overlaps x; pass the very same view to convert in place, or memory of its own");
}

void check(const ConstTensorView& x, const TensorView& out, int head_dim, int axis) {
  if (axis < 0 || axis > 3) refuse(fmt::format("axis: expected 0 to 3, got {}", axis));
  if (std::ranges::min(x.shape) < 0) refuse(fmt::format("x: expected extents of at least 0, got {}", text(x.shape)));
  const std::int64_t channels = x.shape[static_cast<std::size_t>(axis)];
  if (channels % head_dim != 0) {
    refuse(fmt::format("x: expected whole heads along the axis of the channels, a multiple of head_dim ({}), got {}", head_dim, channels));
  }
  check_same(x, out);
  if (!empty(x)) check_memory(x, out);
}

template <std::size_t Size>
void copy(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride, std::int64_t number) {
  constexpr auto size = static_cast<std::int64_t>(Size);
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(number) * Size);
  } else {
    for (std::int64_t n = 0; n < number; n++) std::memcpy(to + n * to_stride * size, from + n * from_stride * size, Size);
  }
}

/// Moves elements of `Size` bytes, a tile at a time: all channels of a head by a run of the axis that lies closest in memory. A tile is
/// read before it is written, so x and out may be the same.
template <std::size_t Size>
class Mover {
 public:
  Mover(const ConstTensorView& x, const TensorView& out, const std::vector<std::int64_t>& permutation, std::size_t axis)
      : x_(x), out_(out), permutation_(permutation), axis_(axis), tile_(permutation.size() * run * Size) {
    auto* next = others_.data();
    for (std::size_t other = 0; other < 4; other++) {
      if (other != axis) *next++ = other;
    }
    const auto step = [&](std::size_t other) { return x.shape[other] == 1 ? INT64_MAX : std::abs(x.strides[other]); };
    std::ranges::sort(others_, std::greater{}, step);
  }

  void move() {
    const auto head_dim = static_cast<std::int64_t>(permutation_.size());
    const auto [outer, middle, inner] = others_;
    std::array<std::int64_t, 4> at{};
    for (at[outer] = 0; at[outer] < x_.shape[outer]; at[outer]++) {
      for (at[middle] = 0; at[middle] < x_.shape[middle]; at[middle]++) {
        for (at[axis_] = 0; at[axis_] < x_.shape[axis_]; at[axis_] += head_dim) {
          for (at[inner] = 0; at[inner] < x_.shape[inner]; at[inner] += run) {
            move_tile(at, std::min(run, x_.shape[inner] - at[inner]));
          }
        }
      }
    }
  }

 private:
  static constexpr std::int64_t run = 64;

  void move_tile(const std::array<std::int64_t, 4>& at, std::int64_t number) {
    constexpr auto size = static_cast<std::int64_t>(Size);
    const std::size_t inner = others_[2];
    const auto* from = static_cast<const std::byte*>(x_.data) + std::inner_product(at.begin(), at.end(), x_.strides.begin(), 0LL) * size;
    auto* to = static_cast<std::byte*>(out_.data) + std::inner_product(at.begin(), at.end(), out_.strides.begin(), 0LL) * size;
    std::byte* row = tile_.data();
    for (const std::int64_t channel : permutation_) {
      copy<Size>(from + channel * x_.strides[axis_] * size, x_.strides[inner], row, 1, number);
      row += run * size;
    }
    row = tile_.data();
    for (std::size_t channel = 0; channel < permutation_.size(); channel++) {
      copy<Size>(row, 1, to + static_cast<std::int64_t>(channel) * out_.strides[axis_] * size, out_.strides[inner], number);
      row += run * size;
    }
  }

  const ConstTensorView& x_;
  const TensorView& out_;
  const std::vector<std::int64_t>& permutation_;
  std::size_t axis_;
  std::array<std::size_t, 3> others_{};  // the other axes, the one along which elements lie closest last
  std::vector<std::byte> tile_;
};

}  // namespace

std::vector<std::int64_t> layout_permutation(const RotarySpec& spec, PairLayout to) {
  validate(spec);
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(spec.head_dim));
  std::iota(permutation.begin(), permutation.end(), 0);
  if (to == spec.layout) return permutation;
  const std::int64_t pairs = spec.rotary_dim / 2;
  for (std::int64_t i = 0; i < pairs; i++) {
    const std::array halves{spec.rotary_offset + i, spec.rotary_offset + i + pairs};
    const std::array neighbours{spec.rotary_offset + 2 * i, spec.rotary_offset + 2 * i + 1};
    const auto& [source, target] = to == PairLayout::interleaved ? std::pair(halves, neighbours) : std::pair(neighbours, halves);
    for (std::size_t member = 0; member < 2; member++) permutation[static_cast<std::size_t>(target[member])] = source[member];
  }
  return permutation;
}

void convert_layout(const ConstTensorView& x, const TensorView& out, const RotarySpec& spec, PairLayout to, int axis) {
  const auto permutation = layout_permutation(spec, to);
  check(x, out, spec.head_dim, axis);
  if (empty(x)) return;
  switch (size_of(x.dtype)) {
    case 2:
      return Mover<2>(x, out, permutation, static_cast<std::size_t>(axis)).move();
    case 4:
      return Mover<4>(x, out, permutation, static_cast<std::size_t>(axis)).move();
    default:
      return Mover<8>(x, out, permutation, static_cast<std::size_t>(axis)).move();
  }
}

void convert_layout(const TensorView& x, const RotarySpec& spec, PairLayout to, int axis) { convert_layout(x, x, spec, to, axis); }

}  // namespace gnomon
