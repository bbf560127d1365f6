// SPDX-License-Identifier: Apache-2.0
// Tables made from rules, against integers and MPFR: the slopes of ALiBi (T29), the buckets of T5 (T30), and what a network gives by hand.
#include "gnomon/bias_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "gnomon/error.hpp"
#include "support/elements.hpp"
#include "support/real.hpp"
#include "support/strided.hpp"

namespace gnomon::test {
namespace {

using oracle::Real;
using testing_support::refusal_fault;

constexpr bias::T5 both_sides{32, 128, true}, one_side{32, 128, false};

TEST(BiasTable, T29SlopesOfAlibi) {
  const double half = std::sqrt(0.5), eighth = std::exp2(-0.125);
  const auto slopes = [](std::int64_t heads) { return std::get<SlopeBias>(bias_table(bias::Alibi::of_heads(heads), 0)).slopes; };
  const auto rounded = [](std::vector<double> values) { return std::vector<float>(values.begin(), values.end()); };
  const std::vector<double> of_8{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625};
  EXPECT_EQ(slopes(8), rounded(of_8));
  EXPECT_EQ(slopes(6), rounded({0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
  auto expected = of_8;
  expected.insert(expected.end(), {half, half / 2});
  EXPECT_EQ(slopes(10), rounded(expected));
  expected.insert(expected.end(), {half / 4, half / 8});
  EXPECT_EQ(slopes(12), rounded(expected));
  expected.clear();
  for (int h = 0; h < 32; h++) expected.push_back(std::exp2(-(h + 1) / 4.0));
  for (int h = 0; h < 8; h++) expected.push_back(std::exp2(-(2 * h + 1) / 8.0));
  EXPECT_EQ(slopes(40), rounded(expected));
  EXPECT_NEAR(expected[0], 0.8408964153, 1e-10);
  EXPECT_NEAR(expected[32], 0.9170040432, 1e-10);
  EXPECT_EQ(expected[32], eighth);
  EXPECT_NEAR(expected[39], 0.2726269332, 1e-10);
  EXPECT_GT(std::abs(static_cast<double>(slopes(12)[0]) - std::exp2(-8.0 / 12)), 0.1) << "one formula for every number of heads";
  EXPECT_NE(slopes(8)[0], 1.0F) << "a list that begins a step early";
}

TEST(BiasTable, T29BiasIsZeroOnTheDiagonalAndFallsBeforeIt) {
  const auto causal = bias_table(bias::Alibi::of_heads(8), 0), symmetric = bias_table(bias::Alibi::of_heads(8, 8, true), 0);
  for (const auto* table : {&causal, &symmetric}) {
    EXPECT_EQ(bias_at(*table, 1, 5, 5, 5), 0);
    EXPECT_EQ(bias_at(*table, 1, 5, 3, 5), -0.5);
    EXPECT_NE(bias_at(*table, 1, 5, 3, 5), 0.5) << "the sign of the distance";
  }
  EXPECT_EQ(bias_at(causal, 1, 5, 7, 5), 0);
  EXPECT_EQ(bias_at(symmetric, 1, 5, 7, 5), -0.5);
}

TEST(T5Buckets, T30Bidirectional) {
  const std::pair<int, int> golden[]{{8, 8},   {11, 8},  {12, 9},  {15, 9},  {16, 10}, {22, 10}, {23, 11},  {31, 11},  {32, 12},
                                     {45, 12}, {46, 13}, {63, 13}, {64, 14}, {90, 14}, {91, 15}, {128, 15}, {1000, 15}};
  for (int r = 0; r < 8; r++) EXPECT_EQ(t5_bucket(both_sides, -r), r);
  for (const auto& [r, bucket] : golden) {
    EXPECT_EQ(t5_bucket(both_sides, -r), bucket) << r;
    EXPECT_EQ(t5_bucket(both_sides, r), bucket + 16) << r;
    EXPECT_NE(t5_bucket(both_sides, -r), t5_bucket(both_sides, r)) << "the sign of the distance";
  }
  EXPECT_EQ(t5_bucket(both_sides, 0), 0);
  EXPECT_EQ(t5_bucket(both_sides, 1), 17);
  EXPECT_EQ(t5_bucket(both_sides, INT64_MIN), 15);
  EXPECT_EQ(t5_bucket(both_sides, INT64_MAX), 31);
  for (const int r : {16, 32, 64}) {
    const double low = std::nextafter(std::log(r / 8.0) / std::log(16.0) * 8, 0);
    EXPECT_EQ(8 + static_cast<int>(low), t5_bucket(both_sides, -r) - 1) << "a logarithm low by one unit is one bucket down";
  }
}

TEST(T5Buckets, T30Causal) {
  const int first[]{16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  for (int r = 0; r < 16; r++) EXPECT_EQ(t5_bucket(one_side, -r), r);
  for (int b = 0; b < 16; b++) {
    EXPECT_EQ(t5_bucket(one_side, -first[b]), 16 + b);
    EXPECT_EQ(t5_bucket(one_side, -(first[b] - 1)), 15 + b);
  }
  for (const std::int64_t r : {114, 128, 129, 100000}) EXPECT_EQ(t5_bucket(one_side, -r), 31) << r;
  for (const std::int64_t after : {1, 16, 1000}) EXPECT_EQ(t5_bucket(one_side, after), 0) << after;
}

TEST(T5Buckets, AnyNumberOfBucketsAgreesWithRealLogarithms) {
  for (const bias::T5 rule :
       {bias::T5{32, 256, false}, bias::T5{64, 128, true}, bias::T5{33, 1000, false}, bias::T5{4, 5, true}, bias::T5{2, 4096, false},
        bias::T5{320, 800, true}, bias::T5{18, 6561, false}, bias::T5{8, 2147483647, false}}) {
    const std::int64_t count = rule.bidirectional ? rule.buckets / 2 : rule.buckets, exact = count / 2;
    const Real span = log(Real(long{rule.max_distance}) / Real(long{exact}));
    for (std::int64_t x = exact; x < std::min<std::int64_t>(rule.max_distance + 2, 5000); x++) {
      // 2^-200 is beyond the error of 256 bits and below the distance of any quotient here to an integer it is not equal to.
      const Real steps = log(Real(long{x}) / Real(long{exact})) / span * Real(long{count - exact}) + Real(std::ldexp(1.0, -200));
      const std::int64_t expected = std::min(count - 1, exact + floor(steps).to_long());
      ASSERT_EQ(t5_bucket(rule, -x), expected) << rule.buckets << " buckets, distance " << x;
    }
  }
}

TEST(BiasTable, T5ReadsItsTableByBucket) {
  std::vector<float> numbers(64);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const BiasParameters parameters{2, numbers, {}, {}, {}, {}};
  const auto both = bias_table(both_sides, 1000, parameters), one = bias_table(one_side, 1000, parameters);
  for (std::int64_t distance = -300; distance <= 300; distance++) {
    for (std::int64_t h = 0; h < 2; h++) {
      EXPECT_EQ(bias_at(both, h, 500, 500 + distance, 0), static_cast<double>(2 * t5_bucket(both_sides, distance) + h));
      EXPECT_EQ(bias_at(one, h, 500, 500 + distance, 0), static_cast<double>(2 * t5_bucket(one_side, distance) + h));
    }
  }
  EXPECT_EQ(std::get<DistanceBias>(both).distances, 257) << "no further than max_distance";
  EXPECT_EQ(std::get<DistanceBias>(bias_table(one_side, 20, parameters)).distances, 21);
}

/// One rounding to f32 of a double that is right to 1e-12.
void expect_rounded(double got, const Real& exact) {
  const double expected = exact.to_double();
  EXPECT_LE(std::abs(got - expected), testing_support::half_ulp<float>(expected) + 1e-12) << expected;
}

TEST(BiasTable, Kerple) {
  const bias::Kerple logarithm{2, bias::KerpleKind::log, {1.5, 0.25}, {0.5, 3}}, power{2, bias::KerpleKind::power, {1.5, 0.25}, {0.5, 1}};
  const auto by_log = bias_table(logarithm, 300), by_power = bias_table(power, 300);
  for (const int distance : {-300, -17, -1, 0, 1, 2, 299}) {
    const Real size(std::abs(distance));
    expect_rounded(bias_at(by_log, 0, 500, 500 + distance, 0), Real(-1.5) * log(Real(1) + Real(0.5) * size));
    expect_rounded(bias_at(by_log, 1, 500, 500 + distance, 0), Real(-0.25) * log(Real(1) + Real(3) * size));
    expect_rounded(bias_at(by_power, 0, 500, 500 + distance, 0), Real(-1.5) * pow(size, Real(0.5)));
    EXPECT_EQ(bias_at(by_power, 1, 500, 500 + distance, 0), -0.25 * std::abs(distance)) << "ALiBi is the power 1";
  }
}

TEST(BiasTable, Sandwich) {
  const auto table = bias_table(bias::Sandwich{4, 128}, 5000);
  for (const int distance : {-5000, -1000, -3, 0, 1, 77}) {
    Real sum(0), from_0(0);
    for (int k = 0; k <= 64; k++) {
      const Real term = cos(Real(distance) * pow(Real(10000), Real(-2 * k) / Real(128)));
      if (k > 0) sum = sum + term;
      if (k < 64) from_0 = from_0 + term;
    }
    for (int h = 0; h < 4; h++) expect_rounded(bias_at(table, h, 6000, 6000 + distance, 0), sum * Real(4) / Real(8 * (h + 1)));
    if (distance == 0) continue;
    EXPECT_GT(std::abs(bias_at(table, 0, 6000, 6000 + distance, 0) - from_0.to_double() / 2), 0.001) << "k from 0";
  }
  EXPECT_EQ(bias_at(table, 0, 0, 0, 0), 32);
}

TEST(BiasTable, FireByHand) {
  const std::vector<float> weights1{2, -1}, bias1{-0.5F, 0.75F}, weights2{1, 2, 3, 4}, bias2{0.125F, 0};
  const auto table = bias_table(bias::Fire{1, 7, 1e-6}, 0, {2, {}, weights1, bias1, weights2, bias2});
  // Position 3 is below the threshold: distance 1 gives ln 2 / ln 8 = 1/3; position 15: ln 2 / ln 16 = 1/4.
  const auto network = [](double x, double a, double b, double c) {
    return a * std::max(0.0, 2 * x - 0.5) + b * std::max(0.0, 0.75 - x) + c;
  };
  EXPECT_NEAR(bias_at(table, 0, 3, 2, 3), network(1.0 / 3, 1, 2, 0.125), 1e-12);
  EXPECT_NEAR(bias_at(table, 1, 15, 14, 15), network(0.25, 3, 4, 0), 1e-12);
  EXPECT_NEAR(bias_at(table, 1, 115, 114, 15), network(0.25, 3, 4, 0), 1e-12) << "behind a cache the position counts, not the slot";
  EXPECT_NEAR(bias_at(table, 0, 3, 9, 3), network(0, 1, 2, 0.125), 1e-12) << "keys after the query";
  EXPECT_GT(std::abs(network(1.0 / 3, 3, 4, 0) - network(0.25, 3, 4, 0)), 0.1) << "without the position of the query";
}

TEST(BiasAt, RefusesWhatTheTableDoesNotHave) {
  const auto refused = [](const gnomon::BiasTable& table, std::int64_t head, std::int64_t query, std::int64_t key, const char* name) {
    return testing_support::refusal_fault([&] { gnomon::bias_at(table, head, query, key, 0); }, gnomon::ErrorCode::out_of_range, {name});
  };
  const GridBias grid{1, 2, 3, true, std::vector<float>(18)};
  EXPECT_EQ(gnomon::bias_at(grid, 0, 6, 6, 0), 0);
  EXPECT_EQ(refused(grid, 0, 7, 0, "query: expected 0 to 6, got 7"), "");
  EXPECT_EQ(refused(grid, 0, 0, -1, "key: expected 0 to 6, got -1"), "");
  EXPECT_EQ(refused(grid, 1, 0, 0, "head: expected 0 to 0, got 1"), "");
  const gnomon::SlopeBias slopes{{1}};
  EXPECT_EQ(gnomon::bias_at(slopes, 0, std::int64_t{1} << 40, 0, 0), -0x1p40);
  EXPECT_EQ(refused(slopes, 0, std::numeric_limits<std::int64_t>::max(), 0, "query: "), "");
}

TEST(GridBias, SwinOfTwoRowsAndThreeColumns) {
  // Cells 0 1 2 / 3 4 5. Offset (dy, dx) = query − key at (dy + 1) 5 + dx + 2.
  GridBias bias{1, 2, 3, false, std::vector<float>(15)};
  std::iota(bias.values.begin(), bias.values.end(), 0.0F);
  const int index[6][6]{{7, 6, 5, 2, 1, 0},    {8, 7, 6, 3, 2, 1},    {9, 8, 7, 4, 3, 2},
                        {12, 11, 10, 7, 6, 5}, {13, 12, 11, 8, 7, 6}, {14, 13, 12, 9, 8, 7}};
  for (int i = 0; i < 6; i++) {
    for (int j = 0; j < 6; j++) EXPECT_EQ(bias_at(bias, 0, i, j, 0), index[i][j]) << i << ", " << j;
  }
  EXPECT_NE(index[0][3], index[3][0]) << "the sign of the offset";
}

TEST(GridBias, BeitHasThreeMoreForItsClass) {
  GridBias bias{1, 2, 3, true, std::vector<float>(18)};
  std::iota(bias.values.begin(), bias.values.end(), 0.0F);
  EXPECT_EQ(bias_at(bias, 0, 0, 0, 0), 17);
  for (int cell = 1; cell <= 6; cell++) {
    EXPECT_EQ(bias_at(bias, 0, 0, cell, 0), 15) << "class to patch";
    EXPECT_EQ(bias_at(bias, 0, cell, 0, 0), 16) << "patch to class";
    EXPECT_EQ(bias_at(bias, 0, cell, cell, 0), 7);
  }
  EXPECT_EQ(bias_at(bias, 0, 1, 6, 0), 0);
  EXPECT_EQ(bias_at(bias, 0, 6, 1, 0), 14);
}

TEST(BiasTable, SwinAndBeitKeepTheirRowsAndTurnThem) {
  std::vector<float> rows(2 * 12);
  std::iota(rows.begin(), rows.end(), 0.0F);
  const auto swin = bias_table(bias::Swin::of_window(2), 0, {2, std::span(rows).first(18), {}, {}, {}, {}});
  const auto beit = bias_table(bias::Beit::of_window(2), 0, {2, rows, {}, {}, {}, {}});
  // Cells 0 1 / 2 3: query 0, key 3 is offset (−1, −1), row 0; query 3, key 0 is row 8.
  EXPECT_EQ(bias_at(swin, 1, 0, 3, 0), 1);
  EXPECT_EQ(bias_at(swin, 0, 3, 0, 0), 16);
  EXPECT_EQ(bias_at(swin, 1, 1, 0, 0), 2 * 5 + 1) << "one to the right: (0, 1)";
  EXPECT_EQ(bias_at(beit, 1, 0, 0, 0), 2 * 11 + 1);
  EXPECT_EQ(bias_at(beit, 0, 2, 1, 0), 2 * 5);
}

TEST(BiasTable, Swinv2ByHand) {
  // W = 9: d = 1 gives log2(1 + 8/8) / 3 = 1/3, d = 7 gives 1.
  const std::vector<float> weights1{1, 0, 0, 1}, bias1{0, 0.5F}, weights2{1, 0, 0.5F, -1};
  const auto sigmoid16 = [](double x) { return static_cast<double>(static_cast<float>(16 / (1 + std::exp(-x)))); };
  const auto table = bias_table(bias::Swinv2{9, 0}, 0, {2, {}, weights1, bias1, weights2, {}});
  const auto cell = [](std::int64_t y, std::int64_t x) { return 9 * y + x; };
  EXPECT_EQ(bias_at(table, 0, cell(1, 0), cell(0, 0), 0), sigmoid16(1.0 / 3));
  EXPECT_EQ(bias_at(table, 1, cell(7, 0), cell(0, 1), 0), sigmoid16(0.5 - (0.5 - 1.0 / 3)));
  EXPECT_EQ(bias_at(table, 0, cell(0, 0), cell(7, 0), 0), 8) << "ReLU of −1";
  const auto larger = bias_table(bias::Swinv2{9, 5}, 0, {2, {}, weights1, bias1, weights2, {}});
  EXPECT_EQ(bias_at(larger, 0, cell(1, 0), cell(0, 0), 0), sigmoid16(std::log2(3.0) / 3)) << "divided by the window of the training";
}

TEST(FalconBias, IsAStaircaseOfBf16) {
  const auto rule = bias::Alibi::of_heads(32);
  std::vector<std::int64_t> positions(2048);
  std::iota(positions.begin(), positions.end(), 0);
  const auto values = falcon_bias(rule, positions, 0.125);
  ASSERT_EQ(values.size(), 32U * 2048);
  // Numbers of the module in transformers 5.24.
  const std::pair<std::size_t, float> golden[]{{0, 0}, {255, 214}, {256, 215}, {257, 215}, {258, 217}, {1000, 840}, {2047, 1720}};
  for (const auto& [position, value] : golden) EXPECT_EQ(values[position], value / 8) << position;
  EXPECT_EQ(std::set<float>(values.begin(), values.begin() + 2048).size(), 577U);
  double worst = 0;
  for (std::size_t h = 0; h < 32; h++) {
    for (std::size_t j = 0; j < 2048; j++)
      worst = std::max(worst, std::abs(static_cast<double>(values[h * 2048 + j]) - rule.slopes[h] * static_cast<double>(j) / 8));
  }
  EXPECT_NEAR(worst, 9.158647083790129 / 8, 1e-12) << "from exact ALiBi";
  EXPECT_NE(values[258] - values[257], values[257] - values[256]) << "no function of the distance";
}

TEST(BiasTable, Refusals) {
  const auto refused = [](const BiasRule& rule, std::int64_t reach, const BiasParameters& parameters,
                          std::initializer_list<const char*> words, ErrorCode code = ErrorCode::invalid_argument) {
    return refusal_fault([&] { bias_table(rule, reach, parameters); }, code, words);
  };
  const std::vector<float> numbers(12);
  const std::span<const float> some(numbers);
  EXPECT_EQ(refused(bias::Deberta{256, 512}, 0, {}, {"deberta", "content"}, ErrorCode::unsupported), "");
  EXPECT_EQ(refused(bias::Sandwich{4, 127}, 0, {}, {"width", "even"}), "");
  EXPECT_EQ(refused(bias::Sandwich{4}, -1, {}, {"reach", "-1"}), "");
  EXPECT_EQ(refused(bias::Sandwich{4}, largest_reach + 1, {}, {"reach", "16777216"}, ErrorCode::out_of_range), "");
  EXPECT_EQ(refused(both_sides, 8, {}, {"heads", "at least 1", "0"}), "");
  EXPECT_EQ(refused(both_sides, 8, {2, some, {}, {}, {}, {}}, {"table", "64", "12"}), "");
  EXPECT_EQ(refused(bias::Alibi::of_heads(2), 8, {2, some, {}, {}, {}, {}}, {"table", "alibi", "12"}), "");
  EXPECT_EQ(refused(bias::Swin::of_window(2), 0, {2, some, {}, {}, {}, {}}, {"table", "18", "12"}), "");
  EXPECT_EQ(refused(bias::Swin::of_window(1), 0, {2, some.first(2), some, {}, {}, {}}, {"weights1", "swin", "12"}), "");
  EXPECT_EQ(refused(bias::Swinv2{2}, 0, {2, {}, some, some.first(5), {}, {}}, {"weights1", "10", "12"}), "");
  EXPECT_EQ(refused(bias::Swinv2{2}, 0, {2, {}, some, some.first(6), some, some.first(2)}, {"bias2", "swinv2", "2"}), "");
  EXPECT_EQ(refused(bias::Fire{1, 1}, 0, {2, {}, some.first(6), some.first(6), some, some.first(1)}, {"bias2", "2", "1"}), "");
  EXPECT_EQ(refusal_fault([] { t5_bucket({32, std::int64_t{1} << 31, false}, 1); }, ErrorCode::out_of_range, {"max_distance", "2^31"}), "");
}

}  // namespace
}  // namespace gnomon::test
