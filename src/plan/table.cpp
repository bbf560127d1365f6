// SPDX-License-Identifier: Apache-2.0
#include "gnomon/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "phase.hpp"
#include "position_grid.hpp"
#include "round.hpp"

namespace gnomon {
namespace {

/// The float32 pipeline: one product, then cos and sin of that float32 angle, correctly rounded but for the double function's own error.
template <class Position>
std::pair<double, double> cos_sin_hf(Position position, double inv_freq) {
  const float angle = static_cast<float>(position) * static_cast<float>(inv_freq);
  return {static_cast<float>(std::cos(static_cast<double>(angle))), static_cast<float>(std::sin(static_cast<double>(angle)))};
}

template <class Element>
void store(std::vector<std::byte>& column, std::size_t index, double value) {
  const auto element = round<Element>(value);
  std::memcpy(column.data() + index * sizeof(Element), &element, sizeof(Element));
}

template <class Element>
void fill(RotaryTable& table, const PositionGrid& grid) {
  const Frequencies& frequencies = table.frequencies;
  const auto numbers = [&](std::size_t i, auto position) {
    const bool exact = frequencies.numerics == Numerics::exact;
    return exact ? cos_sin(phase_at(position, frequencies.turns[i])) : cos_sin_hf(position, frequencies.inv_freq[i]);
  };
  for (std::size_t row = 0; row < table.positions; row++) {
    const auto t = static_cast<std::int64_t>(row);
    for (std::size_t i = 0; i < table.pairs; i++) {
      const int axis = frequencies.axis.empty() ? 0 : frequencies.axis[i];
      const auto [cosine, sine] = grid.is_real() ? numbers(i, grid.real(axis, 0, 0, t)) : numbers(i, grid.whole(axis, 0, 0, t));
      store<Element>(table.cos, row * table.pairs + i, cosine);
      store<Element>(table.sin, row * table.pairs + i, sine);
    }
  }
}

void check_rows(std::size_t rows, const Frequencies& frequencies) {
  const std::size_t pairs = frequencies.inv_freq.size();
  if (rows <= largest_table / std::max<std::size_t>(pairs, 1)) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("positions: a table of {} positions and {} pairs is beyond {} entries", rows, pairs, largest_table));
}

}  // namespace

RotaryTable rotary_table(const Frequencies& frequencies, const Positions& positions, DType dtype) {
  validate(positions);
  if (frequencies.numerics == Numerics::exact && frequencies.turns.size() != frequencies.inv_freq.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("frequencies: expected turns for each of the {} pairs, got {}",
                                                         frequencies.inv_freq.size(), frequencies.turns.size()));
  }
  if (!frequencies.log_magnitude.empty()) {
    throw Error(ErrorCode::unsupported, "frequencies: xpos has a magnitude for every position, which a table of cos and sin does not hold");
  }
  const int axes = position_axes(frequencies.spec);
  const auto rows = static_cast<std::size_t>(positions_on_axis(positions, axes));
  check_rows(rows, frequencies);
  const PositionGrid grid(positions, table_strides(positions, axes));
  RotaryTable table{frequencies, dtype, rows, frequencies.inv_freq.size(), {}, {}};
  table.cos.resize(table.positions * table.pairs * size_of(dtype));
  table.sin.resize(table.cos.size());
  visit_dtype(dtype, [&]<class Element>(Element) { fill<Element>(table, grid); });
  return table;
}

}  // namespace gnomon
