// SPDX-License-Identifier: Apache-2.0
// Rows of absolute encodings.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "gnomon/table.hpp"
#include "plan/phase.hpp"
#include "plan/position_grid.hpp"
#include "plan/round.hpp"

namespace gnomon {
namespace {

using absolute::OddWidth;
using absolute::Sinusoidal;
using absolute::SinusoidDenominator;
using absolute::SinusoidOrder;

/// cos and sin of one frequency at a position, in either profile.
class Wave {
 public:
  Wave(const Sinusoidal& rule, int width, int j, Numerics numerics) : numerics_(numerics), denominator_(rule.denominator) {
    if (numerics == Numerics::exact) return;
    const int columns = rule.columns(width);
    if (denominator_ == SinusoidDenominator::width) {
      period_ = std::pow(rule.theta, 2.0 * j / columns);
    } else {
      const auto step = static_cast<float>(-std::log(rule.theta) / (columns / 2 - 1));
      frequency_ = static_cast<float>(std::exp(static_cast<double>(static_cast<float>(j) * step)));
    }
  }
  void set(const Turns& turns) { turns_ = turns; }

  template <class Position>
  std::pair<double, double> at(Position position) const {
    if (numerics_ == Numerics::exact) return cos_sin(phase_at(position, turns_));
    const double angle = denominator_ == SinusoidDenominator::width ? static_cast<double>(position) / period_
                                                                    : static_cast<double>(static_cast<float>(position) * frequency_);
    return {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))};
  }

 private:
  Numerics numerics_;
  SinusoidDenominator denominator_;
  Turns turns_;
  double period_ = 1;
  float frequency_ = 1;
};

std::vector<Wave> waves(const Sinusoidal& rule, int width, Numerics numerics) {
  std::vector<Wave> result;
  const auto exact = rule.inv_freq<ExactArithmetic>(width);
  for (std::size_t j = 0; j < exact.size(); j++) {
    result.emplace_back(rule, width, static_cast<int>(j), numerics);
    result.back().set(turns(static_cast<double>(exact[j])));
  }
  return result;
}

/// Columns of the sine and the cosine of frequency j, within the part of one axis.
std::pair<int, int> columns_of(const Sinusoidal& rule, int width, int j) {
  switch (rule.order) {
    case SinusoidOrder::interleaved:
      return {2 * j, 2 * j + 1};
    case SinusoidOrder::sin_cos:
      return {j, rule.sines(width) + j};
    default:
      return {rule.cosines(width) + j, j};
  }
}

template <class Element>
class Filler {
 public:
  Filler(const Sinusoidal& rule, EmbeddingTable& table, const PositionGrid& grid)
      : rule_(rule), table_(table), grid_(grid), waves_(waves(rule, table.spec.width, table.numerics)) {}

  void run() {
    for (std::int64_t row = 0; row < static_cast<std::int64_t>(table_.positions); row++) {
      for (int axis = 0; axis < rule_.axes; axis++) {
        if (grid_.is_real())
          fill(row, axis, grid_.real(axis, 0, 0, row) + static_cast<double>(rule_.offset));
        else
          fill(row, axis, grid_.whole(axis, 0, 0, row) + rule_.offset);
      }
    }
  }

 private:
  template <class Position>
  void fill(std::int64_t row, int axis, Position position) {
    const int width = table_.spec.width, first = axis * rule_.columns(width);
    for (int j = 0; j < rule_.sines(width); j++) {
      const auto [cosine, sine] = waves_[static_cast<std::size_t>(j)].at(position);
      const auto [sine_column, cosine_column] = columns_of(rule_, width, j);
      store(row, first + sine_column, sine);
      if (j < rule_.cosines(width)) store(row, first + cosine_column, cosine);
    }
  }
  void store(std::int64_t row, int column, double value) {
    const auto element = round<Element>(value * rule_.scale);
    const auto index = static_cast<std::size_t>(row) * static_cast<std::size_t>(table_.spec.width) + static_cast<std::size_t>(column);
    std::memcpy(table_.rows.data() + index * sizeof(Element), &element, sizeof(Element));
  }

  const Sinusoidal& rule_;
  EmbeddingTable& table_;
  const PositionGrid& grid_;
  std::vector<Wave> waves_;
};

void check_numerics(const Sinusoidal& rule, Numerics numerics) {
  const OddWidth theirs = rule.denominator == SinusoidDenominator::width ? OddWidth::extra_sine : OddWidth::zero_pad;
  const bool odd_as_theirs = rule.odd_width == OddWidth::refuse || rule.odd_width == theirs;
  const bool in_transformers = rule.order == SinusoidOrder::sin_cos && odd_as_theirs && rule.axes == 1 && rule.scale == 1;
  if (numerics == Numerics::exact || in_transformers) return;
  throw Error(
      ErrorCode::unsupported,
      "numerics: hf follows the transformers library, whose sinusoids stand in the order sin_cos, on one axis and unscaled; use exact");
}

}  // namespace

EmbeddingTable embedding_table(const AbsoluteSpec& spec, const Positions& positions, DType dtype, Numerics numerics) {
  validate(spec);
  validate(positions);
  const auto* rule = std::get_if<Sinusoidal>(&spec.rule);
  if (rule == nullptr) throw Error(ErrorCode::unsupported, "rule: the rows of learned are parameters of a model, not numbers of a rule");
  check_numerics(*rule, numerics);
  EmbeddingTable table{spec, numerics, dtype, static_cast<std::size_t>(positions_on_axis(positions, rule->axes)), {}};
  const auto width = static_cast<std::size_t>(spec.width);
  if (table.positions > largest_table / width) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("positions: a table of {} rows of {} is beyond {} entries", table.positions, width, largest_table));
  }
  table.rows.resize(table.positions * width * size_of(dtype));
  const PositionGrid grid(positions, table_strides(positions, rule->axes));
  visit_dtype(dtype, [&]<class Element>(Element) { Filler<Element>(*rule, table, grid).run(); });
  return table;
}

}  // namespace gnomon
