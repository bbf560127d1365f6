// SPDX-License-Identifier: Apache-2.0
// Rounding to bf16 in rotate, on all 65536 values: at position 0 a magnitude makes the product a · m, exact in f32 but for overflow, so
// that ties and overflows can be placed on purpose.
#include <gtest/gtest.h>

#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;

/// Every bf16 value in the first channel of a pair, 0 in the second.
Strided<std::uint16_t> all_values(gnomon::PairLayout layout) {
  constexpr int head_dim = 64;  // 32 pairs: whole vectors on every target; the tail is tested with 2 · 33 below
  Strided<std::uint16_t> x({1, 1, 65536 / (head_dim / 2), head_dim}, Order::bhtd);
  std::uint32_t next = 0;
  for (std::int64_t t = 0; t < x.shape[2]; t++) {
    for (int i = 0; i < head_dim / 2; i++) {
      const bool half_split = layout == gnomon::PairLayout::half_split;
      x.at(0, 0, t, half_split ? i : 2 * i) = static_cast<std::uint16_t>(next++);
      x.at(0, 0, t, half_split ? i + head_dim / 2 : 2 * i + 1) = 0;
    }
  }
  return x;
}

gnomon::Frequencies with_magnitude(int head_dim, gnomon::PairLayout layout, double magnitude) {
  return gnomon::frequencies({.rule = gnomon::rotary::Default{},
                              .theta = 10000,
                              .head_dim = head_dim,
                              .rotary_dim = head_dim,
                              .layout = layout,
                              .attention_factor = magnitude});
}

/// As many positions 0 as there are tokens.
std::vector<std::int64_t> zeros(const Strided<std::uint16_t>& x) { return std::vector<std::int64_t>(static_cast<std::size_t>(x.shape[2])); }

void expect_rounded_product(std::uint16_t a, std::uint16_t got, float magnitude) {
  const float product = std::bit_cast<float>(static_cast<std::uint32_t>(a) << 16) * magnitude;
  if (is_nan_bf16(a)) {
    ASSERT_TRUE(is_nan_bf16(got)) << std::hex << "NaN " << a << " became " << got;
    return;
  }
  const auto expected = nearest_bf16(product);
  ASSERT_EQ(got, expected) << std::hex << "value " << a << " times " << std::hexfloat << magnitude;
}

using Bf16 = OnEveryTarget;

TEST_P(Bf16, TiesGoToTheEvenNeighbour) {
  int ties = 0;
  for (const auto layout : {gnomon::PairLayout::half_split, gnomon::PairLayout::interleaved}) {
    const auto x = all_values(layout);
    const auto positions = zeros(x);
    // 1.5 and its like put many products halfway, 1 + 2^-8 only powers of two; 1 + 2^-9 makes the largest finite value a tie with
    // infinity, 1 + 2^-16 moves what was a tie just above it; 1 leaves all as they are.
    for (const double magnitude :
         {1.0, 1.5, 1.25, 1.75, 0.75, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 - 0x1p-9, 1 + 0x1p-9, 0.5, 1.5 * (1 + 0x1p-16)}) {
      auto out = x;
      gnomon::rotate(out.view(), with_magnitude(64, layout, magnitude), gnomon::Ids{positions});
      for (std::int64_t t = 0; t < x.shape[2]; t++) {
        for (int i = 0; i < 32; i++) {
          const int channel = layout == gnomon::PairLayout::half_split ? i : 2 * i;
          const auto a = x.at(0, 0, t, channel);
          expect_rounded_product(a, out.at(0, 0, t, channel), static_cast<float>(magnitude));
          if (HasFatalFailure()) return;
          const float product = std::bit_cast<float>(static_cast<std::uint32_t>(a) << 16) * static_cast<float>(magnitude);
          ties += (std::bit_cast<std::uint32_t>(product) & 0xffff) == 0x8000;
        }
      }
    }
  }
  EXPECT_GT(ties, 50000) << "the test would not see truncation";
}

TEST_P(Bf16, TailsRoundLikeVectors) {
  // The same 33 values in every place of the row: what a tail does with the last pairs is what vectors do with the first.
  for (const auto layout : {gnomon::PairLayout::half_split, gnomon::PairLayout::interleaved}) {
    for (const double magnitude : {1.5, 1 + 0x1p-8, 1 + 3 * 0x1p-8}) {
      for (int pairs = 1; pairs <= 33; pairs++) {
        for (std::uint32_t value = 0x3f80; value < 0x3f90; value++) {
          Strided<std::uint16_t> x({1, 1, 1, 2 * pairs}, Order::bhtd);
          for (int d = 0; d < 2 * pairs; d++) x.at(0, 0, 0, d) = static_cast<std::uint16_t>(value);
          gnomon::rotate(x.view(), with_magnitude(2 * pairs, layout, magnitude), gnomon::Range{0, 1});
          for (int d = 0; d < 2 * pairs; d++) {
            expect_rounded_product(static_cast<std::uint16_t>(value), x.at(0, 0, 0, d), static_cast<float>(magnitude));
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_P(Bf16, NaNAndInfinityReachTheirPairAndNoOther) {
  for (const auto layout : {gnomon::PairLayout::half_split, gnomon::PairLayout::interleaved}) {
    for (int pairs = 1; pairs <= 33; pairs += 4) {
      const auto frequencies = with_magnitude(2 * pairs, layout, 1);
      for (int hurt = 0; hurt < pairs; hurt++) {
        for (const std::uint16_t special :
             {std::uint16_t{0x7f80}, std::uint16_t{0xff80}, std::uint16_t{0x7fff}, std::uint16_t{0x7f81}, std::uint16_t{0xffff}}) {
          Strided<std::uint16_t> x({1, 1, 1, 2 * pairs}, Order::bhtd);
          for (int d = 0; d < 2 * pairs; d++) x.at(0, 0, 0, d) = 0x3f80;
          const bool half_split = layout == gnomon::PairLayout::half_split;
          x.at(0, 0, 0, half_split ? hurt : 2 * hurt) = special;
          gnomon::rotate(x.view(), frequencies, gnomon::Range{7, 8});
          for (int i = 0; i < pairs; i++) {
            for (const int d : {half_split ? i : 2 * i, half_split ? i + pairs : 2 * i + 1}) {
              ASSERT_EQ((x.at(0, 0, 0, d) & 0x7f80) == 0x7f80, i == hurt) << "channel " << d << " pair " << hurt << " of " << pairs;
              ASSERT_TRUE(is_nan_bf16(x.at(0, 0, 0, d)) || !is_nan_bf16(special) || i != hurt);
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Target, Bf16, testing::ValuesIn(targets()), target_name);

TEST(Bf16Reference, RoundsAllValuesTheSameWay) {
  const auto layout = gnomon::PairLayout::half_split;
  const auto x = all_values(layout);
  const auto positions = zeros(x);
  for (const double magnitude : {1.0, 1.5, 1.25, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 - 0x1p-9, 0.5}) {
    auto out = x;
    gnomon::reference::rotate(x.view(), out.view(), with_magnitude(64, layout, magnitude), gnomon::Ids{positions});
    for (std::int64_t t = 0; t < x.shape[2]; t++) {
      for (int i = 0; i < 32; i++) {
        expect_rounded_product(x.at(0, 0, t, i), out.at(0, 0, t, i), static_cast<float>(magnitude));
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
