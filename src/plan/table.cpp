// SPDX-License-Identifier: Apache-2.0
#include "gnomon/table.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "phase.hpp"
#include "round.hpp"

namespace gnomon {
namespace {

/// Calls visit(row, position) for every position, as int64 or double.
template <class Visitor>
void each_position(const Positions& positions, Visitor&& visit) {
  if (const auto* range = std::get_if<Range>(&positions)) {
    const std::size_t number = count(positions);
    for (std::size_t row = 0; row < number; row++) visit(row, range->start + static_cast<std::int64_t>(row) * range->step);
  } else if (const auto* ids = std::get_if<Ids32>(&positions)) {
    for (std::size_t row = 0; row < ids->values.size(); row++) visit(row, static_cast<std::int64_t>(ids->values[row]));
  } else if (const auto* wide = std::get_if<Ids>(&positions)) {
    for (std::size_t row = 0; row < wide->values.size(); row++) visit(row, wide->values[row]);
  } else {
    const auto& reals = std::get<Reals>(positions).values;
    for (std::size_t row = 0; row < reals.size(); row++) visit(row, reals[row]);
  }
}

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
void fill(RotaryTable& table, const Positions& positions) {
  const auto& inv_freq = table.frequencies.inv_freq;
  const bool exact = table.frequencies.numerics == Numerics::exact;
  const auto& turns = table.frequencies.turns;
  each_position(positions, [&](std::size_t row, auto position) {
    for (std::size_t i = 0; i < table.pairs; i++) {
      const auto [cosine, sine] = exact ? cos_sin(phase_at(position, turns[i])) : cos_sin_hf(position, inv_freq[i]);
      store<Element>(table.cos, row * table.pairs + i, cosine);
      store<Element>(table.sin, row * table.pairs + i, sine);
    }
  });
}

}  // namespace

RotaryTable rotary_table(const Frequencies& frequencies, const Positions& positions, DType dtype) {
  validate(positions);
  if (frequencies.numerics == Numerics::exact && frequencies.turns.size() != frequencies.inv_freq.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("frequencies: expected turns for each of the {} pairs, got {}",
                                                         frequencies.inv_freq.size(), frequencies.turns.size()));
  }
  RotaryTable table{frequencies, dtype, count(positions), frequencies.inv_freq.size(), {}, {}};
  table.cos.resize(table.positions * table.pairs * size_of(dtype));
  table.sin.resize(table.cos.size());
  visit_dtype(dtype, [&]<class Element>(Element) { fill<Element>(table, positions); });
  return table;
}

}  // namespace gnomon
