// SPDX-License-Identifier: Apache-2.0
// Positions of every kind as one plain lookup by (axis, batch row, head, token), for loops that must not know variants.
#pragma once

#include <cstdint>
#include <vector>

#include "gnomon/positions.hpp"

namespace gnomon {

/// A view of the caller's list, which must outlive it; packed documents are spelled out here, 4 bytes a token.
class PositionGrid {
 public:
  /// Strides, in list elements, of the axes the list has; 0 where all of an axis share the list.
  struct Strides {
    std::int64_t axis = 0, batch = 0, head = 0;
  };
  PositionGrid(const Positions& positions, const Strides& strides);
  PositionGrid(const PositionGrid&) = delete;
  PositionGrid& operator=(const PositionGrid&) = delete;

  bool is_real() const { return reals_ != nullptr; }
  std::int64_t whole(std::int64_t axis, std::int64_t b, std::int64_t h, std::int64_t t) const {
    const std::int64_t index = at(axis, b, h, t);
    return ids_ != nullptr ? ids_[index] : ids32_ != nullptr ? ids32_[index] : start_ + index * step_;
  }
  double real(std::int64_t axis, std::int64_t b, std::int64_t h, std::int64_t t) const { return reals_[at(axis, b, h, t)]; }

  bool by_batch() const { return strides_.batch != 0; }
  bool by_head() const { return strides_.head != 0; }

 private:
  std::int64_t at(std::int64_t axis, std::int64_t b, std::int64_t h, std::int64_t t) const {
    return axis * strides_.axis + b * strides_.batch + h * strides_.head + t;
  }
  Strides strides_;
  const std::int32_t* ids32_ = nullptr;  // at most one list; without one the positions are start, start + step, …
  const std::int64_t* ids_ = nullptr;
  const double* reals_ = nullptr;
  std::int64_t start_ = 0, step_ = 1;
  std::vector<std::int32_t> unpacked_;
};

/// Positions on each axis: all of them for a Range or Packed, which stand for every axis alike, else a list for each.
/// Throws Error(invalid_argument) where they are no list for each axis.
std::int64_t positions_on_axis(const Positions& positions, std::int64_t axes);

/// Strides of the positions of one row without heads, on several axes: what a table has.
PositionGrid::Strides table_strides(const Positions& positions, std::int64_t axes);

/// How many lists one position per (axis, batch row, head, token) makes of `positions`: settles the strides.
/// Throws Error(invalid_argument) that names the numbers expected.
PositionGrid::Strides grid_strides(const Positions& positions, std::int64_t axes, std::int64_t batch, std::int64_t heads, bool per_head,
                                   std::int64_t tokens);

}  // namespace gnomon
