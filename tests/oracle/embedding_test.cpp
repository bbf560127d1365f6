// SPDX-License-Identifier: Apache-2.0
// Rows of absolute encodings against sin and cos of the exact angle, and the `hf` profile against a second writing of transformers' steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "gnomon/table.hpp"
#include "support/elements.hpp"
#include "support/random_spec.hpp"
#include "support/real.hpp"

namespace {

using namespace testing_support;
using gnomon::AbsoluteSpec;
using gnomon::DType;
using gnomon::absolute::OddWidth, gnomon::absolute::Sinusoidal, gnomon::absolute::SinusoidDenominator, gnomon::absolute::SinusoidOrder;
using oracle::Real;

struct Kind {
  DType dtype;
  oracle::Format format;
  double ulps;  ///< what the contract allows beside the phase
};
const Kind kinds[] = {{DType::f64, oracle::f64_format, 2},
                      {DType::f32, oracle::f32_format, .5},
                      {DType::bf16, oracle::bf16_format, .5},
                      {DType::f16, oracle::f16_format, .5}};

/// What stands in a column, told from the definition of the orders.
struct Column {
  int axis = 0, wave = 0;
  enum { sine, cosine, zero } kind = zero;
};

Column column_of(const AbsoluteSpec& spec, int column) {
  const auto& rule = std::get<Sinusoidal>(spec.rule);
  const int columns = spec.width / static_cast<int>(rule.axes), within = column % columns;
  const bool padded = columns % 2 != 0 && rule.odd_width == OddWidth::zero_pad;
  Column result{.axis = column / columns};
  if (padded && within == columns - 1) return result;
  const int sines = (columns + (padded ? 0 : 1)) / 2, cosines = columns / 2;
  switch (rule.order) {
    case SinusoidOrder::interleaved:
      result.wave = within / 2, result.kind = within % 2 == 0 ? Column::sine : Column::cosine;
      break;
    case SinusoidOrder::sin_cos:
      result.kind = within < sines ? Column::sine : Column::cosine, result.wave = within < sines ? within : within - sines;
      break;
    default:
      result.kind = within < cosines ? Column::cosine : Column::sine, result.wave = within < cosines ? within : within - cosines;
  }
  return result;
}

/// theta^(-2j/C) or theta^(-j/(C/2 - 1)); the frequency that is used is the nearest double.
Real frequency(const AbsoluteSpec& spec, int wave) {
  const auto& rule = std::get<Sinusoidal>(spec.rule);
  const int columns = spec.width / static_cast<int>(rule.axes);
  const Real exponent =
      rule.denominator == SinusoidDenominator::width ? Real(2 * wave) / Real(columns) : Real(wave) / Real(columns / 2 - 1);
  return Real(pow(Real(rule.theta), -exponent).to_double());
}

/// (|p| + 2) 2^-64 turns, in radians.
Real phase_bound(const Real& position) { return scaled((abs(position) + Real(2)) * Real(2) * Real::pi(), -64); }

/// How far an entry is from the truth once the phase bound is taken off, in ulps of its type.
double excess_ulps(double entry, const Real& truth, const Real& phase, oracle::Format format) {
  const Real error = abs(Real(entry) - truth) - phase;
  return error < Real(0) ? 0 : (error / ulp(truth, format)).to_double();
}

using Worst = std::map<DType, double>;

/// Compares the rows of all dtypes at these positions, a few columns of each.
template <class Position>
void compare(const AbsoluteSpec& spec, const std::vector<Position>& positions, const gnomon::Positions& given, Worst& worst) {
  std::map<DType, gnomon::EmbeddingTable> tables;
  for (const auto& kind : kinds) tables.emplace(kind.dtype, gnomon::embedding_table(spec, given, kind.dtype));
  const auto& rule = std::get<Sinusoidal>(spec.rule);
  const std::size_t number = positions.size() / static_cast<std::size_t>(rule.axes), width = static_cast<std::size_t>(spec.width);
  ASSERT_EQ(tables.at(DType::f32).positions, number);
  for (std::size_t p = 0; p < number; p++) {
    for (int c = static_cast<int>(p) % 3; c < spec.width; c += 1 + spec.width / 9) {
      const auto column = column_of(spec, c);
      // A real position is moved by the offset before anything else, which rounds it; a whole one stays whole.
      const Position at = positions[static_cast<std::size_t>(column.axis) * number + p] + static_cast<Position>(rule.offset);
      const Real place(at), angle = place * frequency(spec, column.wave), scale(rule.scale);
      const Real truth = column.kind == Column::zero ? Real(0) : scale * (column.kind == Column::sine ? sin(angle) : cos(angle));
      for (const auto& kind : kinds) {
        const double entry = table_entry(tables.at(kind.dtype).rows, kind.dtype, p * width + static_cast<std::size_t>(c));
        const double ulps = excess_ulps(entry, truth, scale * phase_bound(place), kind.format);
        ASSERT_LE(ulps, kind.ulps + 1e-8) << gnomon::to_json(spec) << " " << gnomon::name_of(kind.dtype) << " position " << at << " column "
                                          << c << " got " << entry << " real " << truth.to_double();
        worst[kind.dtype] = std::max(worst[kind.dtype], ulps);
      }
    }
  }
}

void report(const char* what, const Worst& worst) {
  for (const auto& [dtype, ulps] : worst)
    std::cout << "[ measured ] " << what << " " << gnomon::name_of(dtype) << ": worst " << ulps << " ulp\n";
}

/// Every order with every denominator and every way with odd widths, on one to three axes.
std::vector<AbsoluteSpec> every_form(SequenceDraw& draw) {
  std::vector<AbsoluteSpec> result;
  for (const auto order : {SinusoidOrder::interleaved, SinusoidOrder::sin_cos, SinusoidOrder::cos_sin}) {
    for (const auto denominator : {SinusoidDenominator::width, SinusoidDenominator::half_minus_one}) {
      for (const auto odd : {OddWidth::refuse, OddWidth::extra_sine, OddWidth::zero_pad}) {
        for (std::int64_t axes = 1; axes <= 3; axes++) {
          const int columns = static_cast<int>(2 * draw.whole(2, 40)) + (odd == OddWidth::refuse ? 0 : 1);
          const double theta = scaled(draw, 1.5, 1e6), scale = draw.whole(0, 1) == 0 ? 1 : scaled(draw, 1.0 / 64, 64);
          const auto offset = draw.whole(0, 1) == 0 ? 0 : draw.whole(1, 1000);
          result.push_back(
              {.rule = Sinusoidal{order, denominator, theta, odd, scale, offset, axes}, .width = static_cast<int>(axes) * columns});
        }
      }
    }
  }
  return result;
}

TEST(Embedding, IntegerPositionsAreWithinTheContract) {
  SequenceDraw draw(31);
  Worst worst;
  for (const auto& spec : every_form(draw)) {
    const auto& rule = std::get<Sinusoidal>(spec.rule);
    const auto farthest = gnomon::max_position - rule.offset;  // so that the offset stays within the range
    std::vector<std::int64_t> positions;
    for (std::int64_t axis = 0; axis < rule.axes; axis++) {
      for (const std::int64_t position : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{4095},
                                          std::int64_t{(1 << 24) + 1}, farthest, -gnomon::max_position})
        positions.push_back(position);
      for (int k = 0; k < 9; k++) positions.push_back(static_cast<std::int64_t>(scaled(draw, 1, 0x1p32)) * (k % 2 == 0 ? 1 : -1));
    }
    compare(spec, positions, gnomon::Ids{positions}, worst);
  }
  report("embedding, integer positions,", worst);
}

TEST(Embedding, RealPositionsAreWithinTheContract) {
  SequenceDraw draw(32);
  Worst worst;
  for (const auto& spec : every_form(draw)) {
    const auto& rule = std::get<Sinusoidal>(spec.rule);
    std::vector<double> positions;
    for (std::int64_t axis = 0; axis < rule.axes; axis++) {
      for (const double position : {0.0, 0.5, -1.0 / 3, 0x1p-60, 8191.999999}) positions.push_back(position);
      for (int k = 0; k < 9; k++) positions.push_back(scaled(draw, 1e-6, 0x1p32) * (k % 2 == 0 ? 1 : -1));
    }
    compare(spec, positions, gnomon::Reals{positions}, worst);
  }
  report("embedding, real positions,", worst);
}

TEST(Embedding, RangesStandForEveryAxis) {
  const AbsoluteSpec spec{.rule = Sinusoidal{.order = SinusoidOrder::cos_sin, .axes = 2}, .width = 24};
  const std::vector<std::int64_t> spelled{3, 5, 7, 3, 5, 7};
  EXPECT_EQ(gnomon::embedding_table(spec, gnomon::Range{3, 9, 2}).rows, gnomon::embedding_table(spec, gnomon::Ids{spelled}).rows);
  const std::vector<std::int64_t> odd{3, 5, 7};
  EXPECT_EQ(refusal_fault([&] { gnomon::embedding_table(spec, gnomon::Ids{odd}); }, gnomon::ErrorCode::invalid_argument,
                          {"positions", "2 axes", "3 numbers"}),
            "");
}

TEST(Embedding, PositionsBeyondTheContractAreRefused) {
  const AbsoluteSpec spec{.rule = Sinusoidal{}, .width = 16};
  for (const std::int64_t position : {gnomon::max_position + 1, -gnomon::max_position - 1, INT64_MIN}) {
    const std::vector<std::int64_t> ids{0, position};
    EXPECT_EQ(refusal_fault([&] { gnomon::embedding_table(spec, gnomon::Ids{ids}); }, gnomon::ErrorCode::out_of_range, {}), "") << position;
  }
  for (const double position : {std::nan(""), HUGE_VAL, 0x1p33 + 1}) {
    const std::vector<double> reals{position};
    EXPECT_EQ(refusal_fault([&] { gnomon::embedding_table(spec, gnomon::Reals{reals}); }, gnomon::ErrorCode::out_of_range, {}), "")
        << position;
  }
}

// `hf`: modeling_marian.py and modeling_roformer.py in doubles rounded once, modeling_m2m_100.py and modeling_whisper.py in float32
// (transformers 5.24).

float marian(const Sinusoidal& rule, int width, std::int64_t position, int column) {
  const int sines = width % 2 == 0 ? width / 2 : width / 2 + 1, j = column < sines ? 2 * column : 2 * (column - sines) + 1;
  const double power = pow(Real(rule.theta), Real(2.0 * (j / 2) / width)).to_double();
  const Real angle(static_cast<double>(position) / power);
  return (j % 2 == 0 ? sin(angle) : cos(angle)).to_float();
}

float m2m_100(const Sinusoidal& rule, int width, std::int64_t position, int column) {
  const int half = width / 2;
  if (column == 2 * half) return 0;
  const float step = static_cast<float>(-(log(Real(rule.theta)).to_double() / (half - 1)));
  const float exponent = static_cast<float>(column % half) * step;
  const float frequency = exp(Real(static_cast<double>(exponent))).to_float();
  const float angle = static_cast<float>(position) * frequency;
  const Real exact(static_cast<double>(angle));
  return (column < half ? sin(exact) : cos(exact)).to_float();
}

TEST(HfEmbedding, RowsAreTheSameFloats) {
  SequenceDraw draw(33);
  long values = 0, moved = 0;
  for (int round = 0; round < 60; round++) {
    const bool in_float = round % 2 == 0, odd = round % 3 == 0;
    const int width = static_cast<int>(2 * draw.whole(2, 64)) + (odd ? 1 : 0);
    Sinusoidal rule{.order = SinusoidOrder::sin_cos};
    if (round >= 20) rule.theta = scaled(draw, 10, 1e6);
    rule.offset = in_float ? 2 : 0;
    rule.denominator = in_float ? SinusoidDenominator::half_minus_one : SinusoidDenominator::width;
    if (odd) rule.odd_width = in_float ? OddWidth::zero_pad : OddWidth::extra_sine;
    std::vector<std::int64_t> positions{0, 1, 511, 1024, 4095};
    while (positions.size() < 12) positions.push_back(draw.whole(0, 100000));
    const AbsoluteSpec spec{.rule = rule, .width = width};
    const auto ours = gnomon::embedding_table(spec, gnomon::Ids{positions}, DType::f32, gnomon::Numerics::hf),
               exact = gnomon::embedding_table(spec, gnomon::Ids{positions});
    for (std::size_t p = 0; p < positions.size(); p++) {
      for (int c = 0; c < width; c++) {
        const auto index = p * static_cast<std::size_t>(width) + static_cast<std::size_t>(c);
        const std::int64_t row = positions[p] + rule.offset;
        const float theirs = in_float ? m2m_100(rule, width, row, c) : marian(rule, width, row, c);
        ASSERT_EQ(table_entry(ours.rows, DType::f32, index), static_cast<double>(theirs))
            << gnomon::to_json(spec) << " position " << positions[p] << " column " << c;
        values++, moved += table_entry(exact.rows, DType::f32, index) != static_cast<double>(theirs);
      }
    }
  }
  std::cout << "[ measured ] hf sinusoids: " << moved << " of " << values << " are not the rounded real sinusoid\n";
  EXPECT_GT(moved, values / 100) << "hf would be indistinguishable from exact";
}

}  // namespace
