// SPDX-License-Identifier: Apache-2.0
// Rounding to f16 in rotate, on all 65536 values: at position 0 a magnitude makes the product a · m, exact in f32, so that ties,
// subnormal numbers and overflows can be placed on purpose.
#include <gtest/gtest.h>

#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;
using gnomon::PairLayout;

const PairLayout layouts[] = {PairLayout::half_split, PairLayout::interleaved};

int first_channel(PairLayout layout, int pair) { return layout == PairLayout::half_split ? pair : 2 * pair; }

/// Every f16 value in the first channel of a pair, 0 in the second. `pairs` divides 65536.
Strided<Half> all_values(PairLayout layout, int pairs) {
  Strided<Half> x({1, 1, 65536 / pairs, 2 * pairs}, Order::bhtd);
  std::uint32_t next = 0;
  for (std::int64_t t = 0; t < x.shape[2]; t++) {
    for (int i = 0; i < pairs; i++) x.at(0, 0, t, first_channel(layout, i)).bits = static_cast<std::uint16_t>(next++);
  }
  return x;
}

gnomon::Frequencies with_magnitude(int pairs, PairLayout layout, double magnitude) {
  return gnomon::frequencies({.rule = gnomon::rotary::Default{},
                              .theta = 10000,
                              .head_dim = 2 * pairs,
                              .rotary_dim = 2 * pairs,
                              .layout = layout,
                              .attention_factor = magnitude});
}

std::vector<std::int64_t> zeros(const Strided<Half>& x) { return std::vector<std::int64_t>(static_cast<std::size_t>(x.shape[2])); }

void expect_rounded_product(std::uint16_t a, std::uint16_t got, double magnitude) {
  if (is_nan_f16(a)) {
    ASSERT_TRUE(is_nan_f16(got)) << std::hex << "NaN " << a << " became " << got;
    return;
  }
  ASSERT_EQ(got, nearest_f16(decode_f16(a) * magnitude)) << std::hex << "value " << a << " times " << std::hexfloat << magnitude;
}

// 1.5 and its like put many products half way; 1 + 2^-11 puts 65504 just beyond the tie with infinity (65520), 1 + 2^-12 moves what was
// a tie just above it; 2^-10 makes every kind of subnormal number out of normal ones, 2^-24 and 2^-25 · 1.5 zeros and the least of them;
// 1024 overflows and makes normal numbers out of subnormal ones.
const double magnitudes[] = {1.0,         1.5,           1.25,    0.75,    1 + 0x1p-10, 1 + 0x1p-11,        1 + 0x1p-12,
                             1 - 0x1p-11, 0.5,           0x1p-3,  0x1p-10, 0x1p-14,     1.5 * 0x1p-14,      0x1p-24,
                             0x1p-25,     1.5 * 0x1p-25, 0x1p-40, 2.0,     1024 * 1.5,  1.5 * (1 + 0x1p-11)};

struct Seen {
  int ties = 0, subnormal_ties = 0, overflows = 0, underflows = 0;
  void count(double product) {
    const double size = std::abs(product);
    if (!std::isfinite(product) || product == 0) return;
    if (size >= 65520) return void(overflows++);
    if (size < 0x1p-25) return void(underflows++);
    const double half = half_ulp<Half>(size), steps = size / half;
    if (steps != std::trunc(steps) || std::fmod(steps, 2) != 1) return;
    (size < 0x1p-14 ? subnormal_ties : ties)++;
  }
};

using F16 = OnEveryTarget;

TEST_P(F16, EveryValueIsRoundedToTheNearestTiesToEven) {
  Seen seen;
  for (const auto layout : layouts) {
    // 32 pairs: whole vectors on every target; 1: nothing but the tail.
    for (const int pairs : {32, 1}) {
      const auto x = all_values(layout, pairs);
      const auto positions = zeros(x);
      for (const double magnitude : magnitudes) {
        auto out = x;
        gnomon::rotate(out.view(), with_magnitude(pairs, layout, magnitude), gnomon::Ids{positions});
        for (std::int64_t t = 0; t < x.shape[2]; t++) {
          for (int i = 0; i < pairs; i++) {
            const auto a = x.at(0, 0, t, first_channel(layout, i)).bits;
            expect_rounded_product(a, out.at(0, 0, t, first_channel(layout, i)).bits, magnitude);
            if (HasFatalFailure()) return;
            seen.count(decode_f16(a) * magnitude);
          }
        }
      }
    }
  }
  EXPECT_GT(seen.ties, 50000) << "the test would not see truncation";
  EXPECT_GT(seen.subnormal_ties, 2000);
  EXPECT_GT(seen.overflows, 2000);
  EXPECT_GT(seen.underflows, 2000);
}

TEST_P(F16, TailsRoundLikeVectors) {
  // The same value in every place of the row: what a tail does with the last pairs is what vectors do with the first.
  const std::uint16_t chosen[] = {0x3c01, 0x3c03, 0x0001, 0x0003, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x8001};
  for (const auto layout : layouts) {
    for (const double magnitude : {1.5, 0.5, 1 + 0x1p-11, 0x1p-10}) {
      for (int pairs = 1; pairs <= 33; pairs++) {
        for (const auto value : chosen) {
          Strided<Half> x({1, 1, 1, 2 * pairs}, Order::bhtd);
          for (int d = 0; d < 2 * pairs; d++) x.at(0, 0, 0, d).bits = value;
          gnomon::rotate(x.view(), with_magnitude(pairs, layout, magnitude), gnomon::Range{0, 1});
          for (int d = 0; d < 2 * pairs; d++) {
            expect_rounded_product(value, x.at(0, 0, 0, d).bits, magnitude);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(F16, NaNAndInfinityReachTheirPairAndNoOther) {
  for (const auto layout : layouts) {
    for (int pairs = 1; pairs <= 33; pairs += 4) {
      const auto frequencies = with_magnitude(pairs, layout, 1);
      for (int hurt = 0; hurt < pairs; hurt++) {
        for (const int special : {0x7c00, 0xfc00, 0x7fff, 0x7c01, 0xffff}) {
          Strided<Half> x({1, 1, 1, 2 * pairs}, Order::bhtd);
          for (int d = 0; d < 2 * pairs; d++) x.at(0, 0, 0, d).bits = 0x3c00;
          x.at(0, 0, 0, first_channel(layout, hurt)).bits = static_cast<std::uint16_t>(special);
          gnomon::rotate(x.view(), frequencies, gnomon::Range{7, 8});
          for (int i = 0; i < pairs; i++) {
            for (const int d : {first_channel(layout, i), layout == PairLayout::half_split ? i + pairs : 2 * i + 1}) {
              const auto got = x.at(0, 0, 0, d).bits;
              ASSERT_EQ((got & 0x7c00) == 0x7c00, i == hurt) << "channel " << d << " pair " << hurt << " of " << pairs;
              ASSERT_TRUE(i != hurt || is_nan_f16(got) == is_nan_f16(static_cast<std::uint16_t>(special)));
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Target, F16, testing::ValuesIn(targets()), target_name);

TEST(F16Reference, RoundsAllValuesTheSameWay) {
  const auto x = all_values(PairLayout::half_split, 32);
  const auto positions = zeros(x);
  for (const double magnitude : magnitudes) {
    auto out = x;
    gnomon::reference::rotate(x.view(), out.view(), with_magnitude(32, PairLayout::half_split, magnitude), gnomon::Ids{positions});
    for (std::int64_t t = 0; t < x.shape[2]; t++) {
      for (int i = 0; i < 32; i++) {
        expect_rounded_product(x.at(0, 0, t, i).bits, out.at(0, 0, t, i).bits, magnitude);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(F16Oracle, KnowsTheEdges) {
  EXPECT_EQ(nearest_f16(65519.999), 0x7bff);
  EXPECT_EQ(nearest_f16(65520), 0x7c00) << "the tie with infinity goes to the even one";
  EXPECT_EQ(nearest_f16(0x1p-25), 0x0000);
  EXPECT_EQ(nearest_f16(-0x1p-25), 0x8000);
  EXPECT_EQ(nearest_f16(1.5 * 0x1p-24), 0x0002);
  EXPECT_EQ(nearest_f16(1 + 0x1p-11), 0x3c00);
  EXPECT_EQ(nearest_f16(1 + 3 * 0x1p-11), 0x3c02);
}

}  // namespace
