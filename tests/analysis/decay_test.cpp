// SPDX-License-Identifier: Apache-2.0
// Decay, aliasing, base bound and scaling laws against MPFR and against the figures of the papers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "gnomon/analysis.hpp"
#include "support/real.hpp"

namespace {

using oracle::Real;

gnomon::RotarySpec plain(double theta, int rotary_dim) {
  return {.rule = gnomon::rotary::Default{}, .theta = theta, .head_dim = rotary_dim, .rotary_dim = rotary_dim};
}
gnomon::Frequencies made(double theta, int rotary_dim) { return gnomon::frequencies(plain(theta, rotary_dim)); }

/// The sum over pairs of cos(distance * theta^(-2i/rotary_dim)), of the real frequencies.
double cosine_sum(double theta, int rotary_dim, long distance) {
  Real sum;
  for (int i = 0; i < rotary_dim / 2; i++) sum = sum + cos(Real(distance) * pow(Real(theta), Real(-2 * i) / Real(rotary_dim)));
  return sum.to_double();
}

/// The same in double, where the distance is short.
double rounded_sum(double theta, int rotary_dim, int distance) {
  double sum = 0;
  for (int i = 0; i < rotary_dim / 2; i++) sum += std::cos(distance * std::pow(theta, -2.0 * i / rotary_dim));
  return sum;
}

TEST(Decay, MeanCosineIsThatOfRealAngles) {
  const auto frequencies = made(500000, 128);
  EXPECT_EQ(gnomon::mean_cosine(frequencies, 0), 1);
  for (const long distance : {1L, 7L, 4096L, 131071L, 1048575L}) {
    EXPECT_NEAR(gnomon::mean_cosine(frequencies, distance) * 64, cosine_sum(500000, 128, distance), 1e-8) << distance;
    // What float32 angles give, as engines compute it, is another number.
    double coarse = 0;
    for (const double value : frequencies.inv_freq) coarse += std::cos(static_cast<float>(distance) * static_cast<float>(value));
    if (distance > 100000) {
      EXPECT_GT(std::abs(coarse - cosine_sum(500000, 128, distance)), 1e-4) << distance;
    }
  }
}

// RoFormer, figure 2: r = 128, theta 10000, recomputed.
TEST(Decay, BoundIsThatOfRoFormer) {
  const auto frequencies = made(10000, 128);
  const std::pair<long, double> figure[] = {{0, 32.5}, {1, 31.538}, {10, 17.954}, {50, 12.629}, {100, 10.227}, {200, 7.245}, {250, 6.548}};
  for (const auto& point : figure) EXPECT_NEAR(gnomon::decay_bound(frequencies, point.first), point.second, 6e-4) << point.first;
  EXPECT_GT(std::abs(gnomon::decay_bound(made(500000, 128), 100) - 10.227), 1);  // another base is another curve
}

// The first distance at which the sum is negative, recomputed for papers.md section 3; it does not grow with the base alone.
TEST(Decay, FirstNegativeDistance) {
  struct Case {
    int rotary_dim;
    double theta;
    std::int64_t first;
  };
  for (const auto& [rotary_dim, theta, first] :
       {Case{64, 100, 46}, Case{64, 500, 154}, Case{64, 1e4, 725}, Case{64, 1e5, 3616}, Case{64, 5e5, 9937}, Case{64, 1e6, 6235},
        Case{128, 100, 59}, Case{128, 1e4, 1707}, Case{128, 1e5, 7757}, Case{128, 5e5, 18438}, Case{128, 1e6, 27115}, Case{256, 1e4, 2653},
        Case{256, 5e5, 37791}, Case{256, 1e6, 71627}}) {
    EXPECT_EQ(gnomon::first_negative_distance(made(theta, rotary_dim), 1 << 20), first) << rotary_dim << " " << theta;
    EXPECT_EQ(gnomon::first_negative_distance(made(theta, rotary_dim), first - 1), std::nullopt);
    EXPECT_LT(cosine_sum(theta, rotary_dim, first), 0);
  }
  EXPECT_THROW(gnomon::first_negative_distance(made(1e4, 64), 0), gnomon::Error);
  EXPECT_THROW(gnomon::first_negative_distance(made(1e4, 64), gnomon::longest_decay + 1), gnomon::Error);
}

// Pairs that stand still add 1 each: of p-RoPE with a quarter of the pairs no distance is negative.
TEST(Decay, PairsThatStandStillKeepScoresUp) {
  auto spec = plain(10000, 128);
  spec.rule = gnomon::rotary::Proportional{.partial_rotary_factor = 0.25};
  EXPECT_EQ(gnomon::first_negative_distance(gnomon::frequencies(spec), 1 << 20), std::nullopt);
}

// Men et al., table 2, in the finer search: the coarse rows 1.6e4 (2048) and 3.1e5 (16384) of the paper are not the smallest.
TEST(BaseBound, SmallestBaseIsThatOfTheFinerSearch) {
  const std::pair<std::int64_t, double> table[] = {{1024, 4293.5}, {2048, 11588}, {4096, 26954}, {8192, 83765}};
  for (const auto& [length, base] : table) EXPECT_NEAR(*gnomon::smallest_base(128, length, 5), base, 2) << length;
  EXPECT_NEAR(*gnomon::smallest_base(128, 16384, 3) / 2.3e5, 1, 0.03);
  EXPECT_GT(1.6e4 / *gnomon::smallest_base(128, 2048, 5), 1.3);
}

// By brute force, for a length at which it is short: every smaller base of three digits fails.
TEST(BaseBound, NothingSmallerPasses) {
  const auto passes = [](double theta) {
    for (int distance = 1; distance <= 60; distance++) {
      if (rounded_sum(theta, 64, distance) < 0) return false;
    }
    return true;
  };
  const double base = *gnomon::smallest_base(64, 60, 3);
  ASSERT_GT(base, 100);
  EXPECT_TRUE(passes(base));
  for (double theta = 1; theta < base; theta++) EXPECT_FALSE(passes(theta)) << theta;
}

TEST(BaseBound, BasesAboveFailAgain) {
  const double base = *gnomon::smallest_base(128, 4096, 5);
  for (const double theta : {27000.0, 28000.0, 30000.0}) {
    EXPECT_LT(base, theta);
    EXPECT_TRUE(gnomon::first_negative_distance(made(theta, 128), 4096).has_value()) << theta;
  }
}

TEST(BaseBound, RefusesWhatItCannotSearch) {
  EXPECT_EQ(gnomon::smallest_base(2, 100), std::nullopt);  // one pair is negative after a quarter of a turn, whatever its base
  EXPECT_THROW(gnomon::smallest_base(63, 100), gnomon::Error);
  EXPECT_THROW(gnomon::smallest_base(64, 0), gnomon::Error);
  EXPECT_THROW(gnomon::smallest_base(64, gnomon::longest_base_bound + 1), gnomon::Error);
  EXPECT_THROW(gnomon::smallest_base(64, 100, 0), gnomon::Error);
}

// Liu et al.: Llama 2 has 92; the others recomputed from base and length. The rotary width counts, not the head's.
TEST(ScalingLaws, CriticalDimension) {
  struct Case {
    double theta;
    int rotary_dim;
    std::int64_t trained;
    int dimension;
  };
  for (const auto& [theta, rotary_dim, trained, dimension] :
       {Case{1e4, 128, 4096, 92}, Case{1e4, 128, 2048, 82}, Case{5e5, 128, 8192, 70}, Case{5e5, 128, 131072, 98}, Case{1e4, 128, 8192, 100},
        Case{1e6, 128, 32768, 80}, Case{1e4, 64, 2048, 42}, Case{1e5, 64, 8192, 40}, Case{1e4, 24, 2048, 16}, Case{1e4, 16, 2048, 12},
        Case{1e4, 256, 8192, 200}, Case{150000, 64, 4096, 36}, Case{1e4, 48, 256, 20}}) {
    EXPECT_EQ(gnomon::critical_dimension(theta, rotary_dim, trained), dimension) << theta << " " << rotary_dim;
    EXPECT_EQ(2 * gnomon::pairs_with_a_turn(made(theta, rotary_dim), trained), dimension);
  }
  EXPECT_NE(gnomon::critical_dimension(1e4, 96, 2048), 16);  // GPT-NeoX by its head's width
}

TEST(ScalingLaws, LargerBases) {
  const std::pair<double, double> table[] = {{2e4, 7754},  {4e4, 12762}, {6e4, 17080}, {8e4, 21003}, {1e5, 24656},  {1.2e5, 28109},
                                             {2e5, 40578}, {4e5, 66782}, {5e5, 78400}, {6e5, 89377}, {8e5, 109907}, {1e6, 129027}};
  for (const auto& [base, limit] : table) EXPECT_NEAR(gnomon::extrapolation_limit(base, 92, 128), limit, 0.6) << base;
  const std::pair<std::int64_t, double> inverse[] = {{8192, 21588},   {16384, 56628},   {32768, 148544},
                                                     {65536, 389653}, {100000, 701472}, {131072, 1022122}};
  for (const auto& [length, base] : inverse) EXPECT_NEAR(gnomon::base_for_limit(length, 92, 128), base, 0.6) << length;
  EXPECT_NEAR(gnomon::critical_base(1e4, 4096, 16384), 71738, 0.6);
  EXPECT_GT(std::abs(gnomon::extrapolation_limit(1e6, 128, 128) - 129027), 1e6);  // all channels instead of the critical ones
}

TEST(ScalingLaws, RefuseWhatHasNoTurns) {
  EXPECT_THROW(gnomon::critical_dimension(1, 128, 4096), gnomon::Error);
  EXPECT_THROW(gnomon::critical_dimension(1e4, 127, 4096), gnomon::Error);
  EXPECT_THROW(gnomon::critical_dimension(1e4, 128, 6), gnomon::Error);
  EXPECT_THROW(gnomon::extrapolation_limit(1e4, 0, 128), gnomon::Error);
  EXPECT_THROW(gnomon::base_for_limit(4096, 130, 128), gnomon::Error);
  EXPECT_THROW(gnomon::critical_base(1e4, 4096, 3), gnomon::Error);
  EXPECT_THROW(gnomon::pairs_with_a_turn(made(1e4, 64), 0), gnomon::Error);
}

TEST(Aliasing, TheHighestPeakOfEachOctave) {
  const auto found = gnomon::aliases(made(1e4, 128), 4096);
  std::vector<double> sums(4098);
  for (int distance = 0; distance < 4098; distance++) sums[static_cast<std::size_t>(distance)] = rounded_sum(1e4, 128, distance) / 64;
  for (const auto& alias : found) {
    const auto here = static_cast<std::size_t>(alias.distance);
    EXPECT_NEAR(alias.mean_cosine, sums[here], 1e-9);
    EXPECT_GT(sums[here], sums[here - 1]);
    EXPECT_GE(sums[here], sums[here + 1]);
    std::size_t octave = 1;
    while (2 * octave <= here) octave *= 2;
    for (std::size_t other = octave; other < std::min<std::size_t>(2 * octave, 4096); other++) {
      const bool peak = sums[other] > sums[other - 1] && sums[other] >= sums[other + 1];
      if (peak) {
        EXPECT_LE(sums[other], sums[here]) << other;
      }
    }
  }
  ASSERT_EQ(found.size(), 9U);
  EXPECT_EQ(found.front().distance, 12);  // two turns of the fastest pair; the plain largest score is that of distance 1
  EXPECT_TRUE(gnomon::aliases(made(1e4, 128), 1).empty());
}

}  // namespace
