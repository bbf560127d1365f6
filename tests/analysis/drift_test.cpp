// SPDX-License-Identifier: Apache-2.0
// Drift between rotations: published figures, high precision, rotated vectors, and a search that misses no crossing.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "gnomon/analysis.hpp"
#include "gnomon/error.hpp"
#include "gnomon/frequencies.hpp"
#include "gnomon/rotate.hpp"
#include "support/real.hpp"

namespace {

using gnomon::Drift;
using gnomon::PairLayout;
using gnomon::RotarySpec;

RotarySpec plain(double theta, int width = 128) {
  return {.rule = gnomon::rotary::Default{}, .theta = theta, .head_dim = width, .rotary_dim = width};
}
RotarySpec custom(std::vector<double> inv_freq) {
  const int width = 2 * static_cast<int>(inv_freq.size());
  return {.rule = gnomon::rotary::Custom{std::move(inv_freq)}, .theta = 0, .head_dim = width, .rotary_dim = width};
}

RotarySpec llama31() {
  auto spec = plain(500000);
  spec.rule = gnomon::rotary::Llama3{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192};
  return spec;
}

// T07: what skipping the scaling of Llama 3.1 costs.
TEST(Drift, OfASkippedLlama3Scaling) {
  const Drift drift(plain(500000), llama31());
  const std::pair<std::int64_t, double> figures[] = {
      {0, 1}, {1000, 0.9630635813}, {8192, 0.7689460837}, {20000, 0.6267698259}, {60000, 0.5394534260}, {131071, 0.5018345378}};
  for (const auto& [distance, mean] : figures) EXPECT_NEAR(drift.mean_cosine(distance), mean, 6e-11) << distance;
  EXPECT_EQ(drift.mean_cosine(-8192), drift.mean_cosine(8192));
  // Measured on random vectors, as reported: near, but not the mean.
  const std::pair<std::int64_t, double> measured[] = {{1000, 0.959}, {8192, 0.757}, {20000, 0.619}, {60000, 0.503}};
  for (const auto& [distance, mean] : measured) EXPECT_GT(std::abs(drift.mean_cosine(distance) - mean), 1e-3) << distance;
}

// T08: base 10000 where 500000 is meant.
TEST(Drift, OfADefaultedBase) {
  const Drift drift(plain(10000), plain(500000));
  EXPECT_NEAR(drift.mean_cosine(1), 0.99858, 5e-6);
  EXPECT_NEAR(drift.mean_cosine(10), 0.871, 5e-4);
  EXPECT_NEAR(drift.mean_cosine(100), 0.514, 5e-4);
  EXPECT_NEAR(drift.mean_cosine(1000), 0.193, 5e-4);
  const auto parting = drift.parting();
  ASSERT_TRUE(parting.position);
  EXPECT_LE(1 - drift.mean_cosine(*parting.position - 1), 0.01);
  EXPECT_GT(1 - drift.mean_cosine(*parting.position), 0.01);
  EXPECT_EQ(parting.searched, *parting.position);
}

TEST(Drift, OfEqualRotationsNeverBegins) {
  const auto parting = Drift(llama31(), llama31()).parting();
  EXPECT_FALSE(parting.position);
  EXPECT_EQ(parting.searched, std::int64_t{1} << 33);
  EXPECT_EQ(Drift(llama31(), llama31()).mean_cosine(std::int64_t{1} << 33), 1);
}

// A float32 product of position and frequency, as engines make it, is off by radians here.
TEST(Drift, IsExactAtHugeDistances) {
  const auto a = plain(10000, 64), b = plain(10001, 64);
  const auto fa = gnomon::frequencies(a).inv_freq, fb = gnomon::frequencies(b).inv_freq;
  const std::int64_t distance = (std::int64_t{1} << 33) - 1;
  oracle::Real sum;
  double in_float = 0;
  for (std::size_t i = 0; i < fa.size(); i++) {
    sum = sum + cos((oracle::Real(fa[i]) - oracle::Real(fb[i])) * oracle::Real(static_cast<long>(distance)));
    const auto angle = [&](double f) { return static_cast<double>(static_cast<float>(f) * static_cast<float>(distance)); };
    in_float += std::cos(angle(fa[i]) - angle(fb[i]));
  }
  const double mean = Drift(a, b).mean_cosine(distance);
  EXPECT_NEAR(mean, sum.to_double() / 32, 1e-8);
  EXPECT_GT(std::abs(mean - in_float / 32), 1e-3);
}

/// trace(A(d)ᵀ B(d)) / D from rotated unit vectors.
double mean_of_rotated(const RotarySpec& a, const RotarySpec& b, std::int64_t distance) {
  const auto rotated = [&](const RotarySpec& spec) {
    const std::int64_t width = spec.head_dim;
    std::vector<double> rows(static_cast<std::size_t>(width * width));
    for (std::int64_t i = 0; i < width; i++) rows[static_cast<std::size_t>(i * width + i)] = 1;
    const gnomon::TensorView view{rows.data(), gnomon::DType::f64, {1, width, 1, width}, {width * width, width, width, 1}};
    gnomon::rotate(view, gnomon::frequencies(spec), gnomon::Range{distance, distance + 1});
    return rows;
  };
  const auto x = rotated(a), y = rotated(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); i++) sum += x[i] * y[i];
  return sum / a.head_dim;
}

TEST(Drift, ComparesChannelsWhereWidthsOffsetsOrLayoutsDiffer) {
  const auto whole = plain(10000, 48);
  auto half = whole, tail = whole, interleaved = whole;
  half.rotary_dim = 24;
  tail.rotary_dim = 24, tail.rotary_offset = 24;
  interleaved.layout = PairLayout::interleaved;
  for (const auto& other : {half, tail, interleaved}) {
    for (const std::int64_t distance : {1, 7, 1000}) {
      EXPECT_NEAR(Drift(whole, other).mean_cosine(distance), mean_of_rotated(whole, other, distance), 1e-13);
    }
  }
  // Pair by pair in order of their numbers, a tail would look like the head's beginning.
  EXPECT_EQ(Drift(half, half).mean_cosine(7), 1);
  EXPECT_LT(Drift(half, tail).mean_cosine(7), 0.9);
  EXPECT_THROW(Drift(plain(10000, 64), plain(10000, 128)), gnomon::Error);
}

// Pairs that do not turn have frequency 0: they are part of the mean.
TEST(Drift, CountsChannelsThatDoNotTurn) {
  auto a = plain(10000, 64), b = plain(20000, 64);
  a.rotary_dim = b.rotary_dim = 16;
  const double alone = Drift(plain(10000, 16), plain(20000, 16)).mean_cosine(500);
  EXPECT_NEAR(Drift(a, b).mean_cosine(500), (48 + 16 * alone) / 64, 1e-14);
}

// Two slightly different frequencies among 398 pairs pass the limit only where both are nearly half a turn apart.
TEST(Drift, FindsACrossingOfOnePosition) {
  std::vector<double> fa(398, 0.0), fb(398, 0.0);
  fa[0] = 1, fa[1] = std::numbers::sqrt3;
  const auto drifted = [&](std::int64_t d) {
    const auto p = static_cast<double>(d);
    return (2 - std::cos(fa[0] * p) - std::cos(fa[1] * p)) / 398 > 0.01;
  };
  std::int64_t first = 1;
  while (!drifted(first)) first++;
  ASSERT_GT(first, 200);
  ASSERT_FALSE(drifted(first + 1));
  EXPECT_EQ(Drift(custom(fa), custom(fb)).parting().position, first);
  std::int64_t galloping = 1;  // steps that grow with the position pass over it
  while (!drifted(galloping)) galloping = std::max(galloping + 1, galloping + galloping / 64);
  EXPECT_NE(galloping, first);
}

TEST(Drift, FindsTheFirstPositionLikeASearchOfAll) {
  for (const double theta : {10010.0, 10100.0, 11000.0, 20000.0, 1e6}) {
    for (const double limit : {0.001, 0.01, 0.3}) {
      const Drift drift(plain(10000, 32), plain(theta, 32));
      std::int64_t first = 1;
      while (first < 200000 && 1 - drift.mean_cosine(first) <= limit) first++;
      ASSERT_LT(first, 200000);
      EXPECT_EQ(drift.parting(limit).position, first) << theta << " " << limit;
    }
  }
}

// Sixteen fast pairs among 3000 pass the limit only where all are near half a turn at once: the search ends early and says where.
TEST(Drift, SaysHowFarItSearched) {
  std::vector<double> fa(3000, 0.0);
  for (std::size_t i = 0; i < 16; i++) fa[i] = std::sqrt(static_cast<double>(i) + 2);
  const auto parting = Drift(custom(fa), custom(std::vector<double>(3000, 0.0))).parting();
  EXPECT_FALSE(parting.position);
  EXPECT_GT(parting.searched, 10000);
  EXPECT_LT(parting.searched, std::int64_t{1} << 33);
}

}  // namespace
