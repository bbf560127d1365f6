// SPDX-License-Identifier: Apache-2.0
// ③ Angle positions: which turn of the dial a token stands at. Not a cache slot, not a token count. All of them must satisfy
// |p| <= 2^33, the range of the numerics contract; anything else is Error(out_of_range).
//
// Lists are in the order (axes, B, H, T): for a rotation with several position axes one list per axis, first the whole of axis 0; B and H
// are left out where all rows or all heads share them. A Range or Packed positions stand for every axis alike (text in a vision model).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

namespace gnomon {

/// start, start + step, … below (for a negative step: above) stop; `stop` is exclusive, as in a Python slice.
struct Range {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
};

/// Integer positions, one per token; they may repeat, jump and be negative.
struct Ids32 {
  std::span<const std::int32_t> values;
};
struct Ids {
  std::span<const std::int64_t> values;
};

/// Real positions, one per token.
struct Reals {
  std::span<const double> values;
};

/// Documents packed into one row, each counted from 0: cu_seqlens (documents + 1) holds where each begins, from 0, and the row's end.
struct Packed {
  std::span<const std::int32_t> cu_seqlens;
};

using Positions = std::variant<Range, Ids32, Ids, Reals, Packed>;

/// The largest |position| of the numerics contract.
inline constexpr std::int64_t max_position = std::int64_t{1} << 33;

/// How many positions there are. Throws Error(invalid_argument) for a step of 0 and for cu_seqlens that are empty, do not begin at 0 or
/// descend.
std::size_t count(const Positions& positions);

/// Throws Error(out_of_range) that names the first position that is NaN or beyond ±2^33, and what count() throws.
void validate(const Positions& positions);

}  // namespace gnomon
