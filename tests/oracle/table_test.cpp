// SPDX-License-Identifier: Apache-2.0
// `exact` tables: every entry against cos and sin of the exact angle, position times the frequency as it is stored.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "gnomon/table.hpp"
#include "support/elements.hpp"
#include "support/random_spec.hpp"
#include "support/real.hpp"

namespace {

using namespace testing_support;
using gnomon::DType;
using oracle::Real;

struct Kind {
  DType dtype;
  oracle::Format format;
  double ulps;  ///< what the contract allows beside the phase
};
const Kind kinds[] = {{DType::f64, oracle::f64_format, 1},
                      {DType::f32, oracle::f32_format, .5},
                      {DType::bf16, oracle::bf16_format, .5},
                      {DType::f16, oracle::f16_format, .5}};

/// (|p| + 2) 2^-64 turns, in radians.
Real phase_bound(const Real& position) { return scaled((abs(position) + Real(2)) * Real(2) * Real::pi(), -64); }

/// How far an entry is from the truth once the phase bound is taken off, in ulps of its type.
double excess_ulps(double entry, const Real& truth, const Real& phase, oracle::Format format) {
  const Real error = abs(Real(entry) - truth) - phase;
  return error < Real(0) ? 0 : (error / ulp(truth, format)).to_double();
}

std::vector<double> real_positions(SequenceDraw& draw, int number) {
  std::vector<double> result{0, 0.5, -0.5, 1.0 / 3, 0x1p-60, 1 - 0x1p-53, -0x1p33, 0x1p33, 0x1p33 - 0x1p-19, 1e-300, 8191.999999};
  while (static_cast<int>(result.size()) < number) {
    const double position = scaled(draw, 1e-6, 0x1p33);
    result.push_back(draw.whole(0, 1) == 0 ? position : -position);
  }
  return result;
}

std::vector<std::int64_t> whole_positions(SequenceDraw& draw, int number) {
  std::vector<std::int64_t> result{0,
                                   1,
                                   -1,
                                   7,
                                   4095,
                                   131071,
                                   (1 << 20) - 1,
                                   (1 << 24) + 1,
                                   (1 << 27) + 1,
                                   gnomon::max_position,
                                   gnomon::max_position - 1,
                                   -gnomon::max_position};
  while (static_cast<int>(result.size()) < number) {
    const auto position = static_cast<std::int64_t>(scaled(draw, 1, 0x1p33));
    result.push_back(draw.whole(0, 1) == 0 ? position : -position);
  }
  return result;
}

using Worst = std::map<DType, double>;

/// Compares the tables of all dtypes at these positions, a few pairs of each.
template <class Position>
void compare(const gnomon::Frequencies& frequencies, const std::vector<Position>& positions, const gnomon::Positions& given, Worst& worst) {
  std::map<DType, gnomon::RotaryTable> tables;
  for (const auto& kind : kinds) tables.emplace(kind.dtype, gnomon::rotary_table(frequencies, given, kind.dtype));
  const std::size_t pairs = frequencies.inv_freq.size(), stride = std::max<std::size_t>(1, pairs / 5);
  for (std::size_t p = 0; p < positions.size(); p++) {
    for (std::size_t i = 0; i < pairs; i += stride) {
      const Real position(positions[p]), angle = position * Real(frequencies.inv_freq[i]);
      const Real cosine = cos(angle), sine = sin(angle), phase = phase_bound(position);
      for (const auto& kind : kinds) {
        const auto& table = tables.at(kind.dtype);
        for (const auto& [entry, truth] : {std::pair(table_cos(table, p, i), cosine), std::pair(table_sin(table, p, i), sine)}) {
          const double ulps = excess_ulps(entry, truth, phase, kind.format);
          ASSERT_LE(ulps, kind.ulps) << gnomon::name_of(kind.dtype) << " position " << positions[p] << " frequency " << std::hexfloat
                                     << frequencies.inv_freq[i] << " got " << entry << " real " << truth.to_double();
          worst[kind.dtype] = std::max(worst[kind.dtype], ulps);
        }
      }
    }
  }
}

void report(const char* what, const Worst& worst) {
  for (const auto& [dtype, ulps] : worst)
    std::cout << "[ measured ] " << what << " " << gnomon::name_of(dtype) << ": worst " << ulps << " ulp\n";
}

TEST(Table, IntegerPositionsAreWithinTheContract) {
  SequenceDraw draw(1);
  Worst worst;
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    if (!is_pure_rotation<Rule>) return;
    for (int round = 0; round < 4; round++) {
      const auto positions = whole_positions(draw, 150);
      compare(gnomon::frequencies(draw_spec<Rule>(draw)), positions, gnomon::Ids{positions}, worst);
    }
  });
  report("table, integer positions,", worst);
}

TEST(Table, RealPositionsAreWithinTheContract) {
  SequenceDraw draw(2);
  Worst worst;
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    if (!is_pure_rotation<Rule>) return;
    for (int round = 0; round < 4; round++) {
      const auto positions = real_positions(draw, 150);
      compare(gnomon::frequencies(draw_spec<Rule>(draw)), positions, gnomon::Reals{positions}, worst);
    }
  });
  report("table, real positions,", worst);
}

TEST(Table, FastPairsNeedTheirWholeTurns) {
  // Pixel-style frequencies turn more than once per position: a real position then needs N beside T.
  SequenceDraw draw(3);
  Worst worst;
  gnomon::Frequencies frequencies;
  for (int i = 1; i <= 12; i++) frequencies.inv_freq.push_back(3.14159265358979 * i);
  frequencies.inv_freq.push_back(1e6 / 3);
  for (const double value : frequencies.inv_freq) frequencies.turns.push_back(gnomon::turns(value));
  std::vector<double> positions;
  for (int k = 0; k < 200; k++) positions.push_back(even(draw, -2, 2));
  compare(frequencies, positions, gnomon::Reals{positions}, worst);
  report("table, pixel frequencies,", worst);
}

TEST(Table, AllKindsOfPositionsAgree) {
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 64, .rotary_dim = 64});
  std::vector<std::int32_t> ids32;
  std::vector<std::int64_t> ids;
  std::vector<double> reals;
  for (int p = -300; p < 300; p += 7) ids32.push_back(p), ids.push_back(p), reals.push_back(p);
  const auto range = gnomon::rotary_table(frequencies, gnomon::Range{-300, 300, 7});
  ASSERT_EQ(range.positions, ids.size());
  ASSERT_EQ(range.pairs, 32U);
  for (const gnomon::Positions& same :
       {gnomon::Positions(gnomon::Ids32{ids32}), gnomon::Positions(gnomon::Ids{ids}), gnomon::Positions(gnomon::Reals{reals})}) {
    const auto table = gnomon::rotary_table(frequencies, same);
    EXPECT_EQ(table.cos, range.cos);
    EXPECT_EQ(table.sin, range.sin);
  }
  std::vector<std::int64_t> backwards(ids.rbegin(), ids.rend());
  const auto down = gnomon::rotary_table(frequencies, gnomon::Range{backwards.front(), -301, -7});
  EXPECT_EQ(down.cos, gnomon::rotary_table(frequencies, gnomon::Ids{backwards}).cos);
}

TEST(Table, KeepsTheMagnitudeApart) {
  gnomon::RotarySpec spec{.rule = gnomon::rotary::Yarn{.factor = 16, .original_max_position_embeddings = 4096},
                          .theta = 10000,
                          .head_dim = 64,
                          .rotary_dim = 64};
  const auto table = gnomon::rotary_table(gnomon::frequencies(spec), gnomon::Range{0, 4}, DType::f64);
  EXPECT_EQ(table_cos(table, 0, 5), 1);
  EXPECT_EQ(table_sin(table, 0, 5), 0);
  EXPECT_NEAR(table.frequencies.attention_factor, 1.27725887222398, 1e-14);
}

TEST(Table, NothingToDo) {
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 64, .rotary_dim = 64});
  for (const gnomon::Positions& none : {gnomon::Positions(gnomon::Range{5, 5}), gnomon::Positions(gnomon::Range{5, 0}),
                                        gnomon::Positions(gnomon::Ids{}), gnomon::Positions(gnomon::Reals{})}) {
    const auto table = gnomon::rotary_table(frequencies, none);
    EXPECT_EQ(table.positions, 0U);
    EXPECT_TRUE(table.cos.empty());
  }
}

}  // namespace
