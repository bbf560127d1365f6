// SPDX-License-Identifier: Apache-2.0
#include "plan/position_grid.hpp"

#include <fmt/format.h>

#include "gnomon/error.hpp"

namespace gnomon {

PositionGrid::PositionGrid(const Positions& positions, const Strides& strides) : strides_(strides) {
  if (const auto* range = std::get_if<Range>(&positions)) start_ = range->start, step_ = range->step;
  if (const auto* ids = std::get_if<Ids32>(&positions)) ids32_ = ids->values.data();
  if (const auto* ids = std::get_if<Ids>(&positions)) ids_ = ids->values.data();
  if (const auto* reals = std::get_if<Reals>(&positions)) reals_ = reals->values.data();
  if (const auto* packed = std::get_if<Packed>(&positions)) {
    const auto& bounds = packed->cu_seqlens;
    unpacked_.resize(static_cast<std::size_t>(bounds.back()));
    for (std::size_t d = 1; d < bounds.size(); d++) {
      for (std::int32_t t = bounds[d - 1]; t < bounds[d]; t++) unpacked_[static_cast<std::size_t>(t)] = t - bounds[d - 1];
    }
    ids32_ = unpacked_.data();
  }
}

namespace {

bool same_on_every_axis(const Positions& positions) {
  return std::holds_alternative<Range>(positions) || std::holds_alternative<Packed>(positions);
}

}  // namespace

std::int64_t positions_on_axis(const Positions& positions, std::int64_t axes) {
  const auto number = static_cast<std::int64_t>(count(positions));
  if (same_on_every_axis(positions)) return number;
  if (number % axes == 0) return number / axes;
  throw Error(ErrorCode::invalid_argument, fmt::format("positions: expected a list for each of the {} axes, got {} numbers", axes, number));
}

PositionGrid::Strides table_strides(const Positions& positions, std::int64_t axes) {
  return {same_on_every_axis(positions) ? 0 : positions_on_axis(positions, axes), 0, 0};
}

PositionGrid::Strides grid_strides(const Positions& positions, std::int64_t axes, std::int64_t batch, std::int64_t heads, bool per_head,
                                   std::int64_t tokens) {
  const auto number = static_cast<std::int64_t>(count(positions));
  const bool same_on_axes = same_on_every_axis(positions);
  const std::int64_t lists = same_on_axes ? 1 : axes, row = per_head ? heads * tokens : tokens;
  const bool by_batch = number == lists * batch * row && batch != 1;
  if (number != lists * row && !by_batch) {
    const std::string each = fmt::format("{}{}token", lists > 1 ? "axis, " : "", per_head ? "head and " : "");
    throw Error(ErrorCode::invalid_argument, fmt::format("positions: expected {} (one per {}) or {} (one per batch row and {}), got {}",
                                                         lists * row, each, lists * batch * row, each, number));
  }
  PositionGrid::Strides strides;
  strides.axis = same_on_axes ? 0 : by_batch ? batch * row : row;
  strides.batch = by_batch ? row : 0;
  strides.head = per_head ? tokens : 0;
  return strides;
}

}  // namespace gnomon
