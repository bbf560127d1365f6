// SPDX-License-Identifier: Apache-2.0
// ⑤ Precision: what is lost between a position and its rotation when numbers on the way are rounded, and from which position it counts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gnomon/frequencies.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// How an engine comes to cos and sin: the type each number is rounded to, to nearest even, on its way.
struct Pipeline {
  std::string_view name;
  DType frequency, position;
  std::optional<DType> angle;  ///< of the product; nothing where it is not rounded
  DType table;                 ///< of cos and sin
  std::string_view used_by;
};

/// Those that are found in the field, the most exact first.
std::span<const Pipeline> list_pipelines();

/// cos and sin a pipeline makes of a frequency and a position; NaN where its angle is beyond the range of a type.
std::pair<double, double> rotation(const Pipeline& pipeline, double inv_freq, std::int64_t position);

/// An angle counts as wrong beyond this error, in radians: cos and sin are then off by up to as much.
inline constexpr double angle_limit = 0.01;

/// What a pipeline makes of a range of positions.
struct Precision {
  Pipeline pipeline;
  double worst = 0;  ///< largest error of an angle in the range, in radians; π, which is any angle, ends the search
  std::int64_t worst_position = 0;
  int worst_pair = 0;
  std::optional<std::int64_t> wrong_from;  ///< the first position, from the range's start on, with an angle wrong by more than angle_limit
  std::int64_t searched = 0;               ///< the position up to which wrong_from was looked for
  double table_error = 0;                  ///< what the rounding of cos and sin alone adds at most
  std::int64_t distinct = 0;               ///< positions of the range that are still different after rounding
  std::optional<std::int64_t> merged_from;  ///< the first position p, from the range's start on, that becomes the same number as p + 1
};

/// Every pipeline of list_pipelines() over the positions of a range with step 1. The angle it is held to is position * inv_freq, exactly.
/// Throws Error(out_of_range) for positions below 0 or beyond 2^33, Error(invalid_argument) for an empty range, another step, or more than
/// most_precise positions.
std::vector<Precision> precision(const Frequencies& frequencies, const Range& positions);

inline constexpr std::int64_t most_precise = std::int64_t{1} << 22;

/// A position as a number of that type; infinite beyond its range.
double rounded_position(std::int64_t position, DType dtype);

/// How many different numbers the positions of a range with step 1 become in a type. Throws as precision(), without a bound on their number.
std::int64_t distinct_positions(const Range& positions, DType dtype);

}  // namespace gnomon
