// SPDX-License-Identifier: Apache-2.0
// check_order holds for what is right, and each of its checks fails for a mistake that engines have made.
#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <set>

#include "gnomon/analysis.hpp"
#include "gnomon/rotate.hpp"
#include "support/elements.hpp"
#include "support/pairs.hpp"
#include "support/property.hpp"

namespace {

using namespace testing_support;
using gnomon::Frequencies;
using gnomon::Range;
using gnomon::RotarySpec;
using gnomon::RotateRows;
using gnomon::TensorView;

RotarySpec plain() { return {.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 16, .rotary_dim = 16}; }
RotarySpec yarn() {
  auto spec = plain();
  spec.rule = gnomon::rotary::Yarn{.factor = 4, .original_max_position_embeddings = 32};
  return spec;
}

RotateRows right(const RotarySpec& spec) {
  return [made = gnomon::frequencies(spec)](const TensorView& x, const Range& positions) { gnomon::rotate(x, made, positions); };
}

/// The names of the checks that fail.
std::set<std::string> failures(const gnomon::OrderReport& report) {
  std::set<std::string> names;
  for (const auto& check : report.checks) {
    if (!check.holds()) names.insert(check.name);
  }
  EXPECT_EQ(report.holds(), names.empty());
  return names;
}

using Names = std::set<std::string>;

TEST(CheckOrder, AttentionAloneIsBlindAndEveryEncodingSees) {
  const auto reports = gnomon::check_order();
  std::vector<std::string> names, expected{"none", "causal mask", "sinusoidal", "2-D sinusoidal", "learned"};
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) { expected.emplace_back(Rule::name); });
  for (const auto& report : reports) {
    names.push_back(report.encoding);
    EXPECT_TRUE(report.holds()) << report.encoding;
    const bool alone = report.encoding == "none";
    EXPECT_EQ(report.checks.front().limit, alone ? gnomon::Limit::at_most : gnomon::Limit::at_least);
    EXPECT_TRUE(alone || report.checks.front().measured > 0.1) << report.encoding << ": of order 1, not a rounding";
  }
  EXPECT_EQ(names, expected);
}

TEST(CheckOrder, LawsHoldForRandomSpecsOfEveryRule) {
  for_every_rule("check_order", {.most_pairs = 24}, [](PropertyDraw&, const RotarySpec& spec) {
    // Six tokens see nothing of pairs that hardly turn; a rule whose frequencies are given may have no others.
    const auto inv_freq = gnomon::frequencies(spec).inv_freq;
    const bool turns = *std::max_element(inv_freq.begin(), inv_freq.end()) > 0.02;
    const auto report = gnomon::check_order(spec);
    for (const auto& check : report.checks) {
      if (check.name == "permutation" && !turns) continue;
      if (!check.holds()) RC_FAIL(check.claim + ": " + std::to_string(check.measured));
    }
  });
}

TEST(CheckOrder, NothingGrowsWithThePosition) {
  const auto checks = gnomon::check_order(yarn()).checks;
  ASSERT_EQ(checks.size(), 5u);
  EXPECT_EQ(checks[3].name, "shift-1");
  EXPECT_EQ(checks[4].name, "shift-1000000");
  EXPECT_EQ(checks[3].bound, checks[4].bound);
}

TEST(CheckOrder, AnotherLayoutForKeysThanForQueriesIsRejected) {
  auto other = plain();
  other.layout = gnomon::PairLayout::interleaved;
  const auto report = gnomon::check_order(plain(), right(plain()), right(other));
  EXPECT_EQ(failures(report), (Names{"composition", "shift-1", "shift-1000000"}));
  for (const auto& check : report.checks) {
    EXPECT_TRUE(check.holds() || check.measured > 0.01) << check.name << ": far from a rounding";
  }
}

TEST(CheckOrder, IgnoredPositionsAreRejected) {
  const RotateRows ignore = [](const TensorView&, const Range&) {};
  EXPECT_EQ(failures(gnomon::check_order(plain(), ignore, ignore)), (Names{"permutation"}));
}

TEST(CheckOrder, OnePositionForAllTokensIsRejected) {
  const auto once = [rotate = right(plain())](const TensorView& x, const Range& positions) {
    for (std::int64_t t = 0; t < x.shape[2]; t++) {
      TensorView row = x;
      row.data = static_cast<double*>(x.data) + t * x.strides[2], row.shape[2] = 1;
      rotate(row, {positions.start, positions.start + 1});
    }
  };
  EXPECT_EQ(failures(gnomon::check_order(plain(), once, once)), (Names{"permutation", "composition"}));
}

TEST(CheckOrder, AMagnitudeForgottenOnKeysIsRejected) {
  auto bare = yarn();
  bare.attention_factor = 1;
  EXPECT_EQ(failures(gnomon::check_order(yarn(), right(yarn()), right(bare))), (Names{"norm"}));
}

TEST(CheckOrder, KeysTurnedTheOtherWayAreRejected) {
  const auto backwards = [made = gnomon::frequencies(plain())](const TensorView& x, const Range& positions) {
    gnomon::rotate(x, made, positions, {.direction = gnomon::Direction::transposed});
  };
  EXPECT_EQ(failures(gnomon::check_order(plain(), right(plain()), backwards)), (Names{"composition", "shift-1", "shift-1000000"}));
}

TEST(CheckOrder, AnglesRoundedToDoubleAreToldFromExactOnes) {
  // position * frequency in double: right near 0, off by 1e-10 at a million.
  const auto spec = plain();
  const auto rounded = [spec, made = gnomon::frequencies(spec)](const TensorView& x, const Range& positions) {
    for (std::int64_t t = 0; t < x.shape[2]; t++) {
      double* row = static_cast<double*>(x.data) + t * x.strides[2];
      for (int i = 0; i < spec.rotary_dim / 2; i++) {
        const double angle = static_cast<double>(positions.start + t * positions.step) * made.inv_freq[static_cast<std::size_t>(i)];
        const auto [first, second] = channels(spec, i);
        const double a = row[first], b = row[second];
        row[first] = a * std::cos(angle) - b * std::sin(angle);
        row[second] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  };
  EXPECT_EQ(failures(gnomon::check_order(spec, rounded, rounded)), (Names{"composition", "shift-1000000"}));
}

TEST(CheckOrder, NaNNeverHolds) {
  const RotateRows broken = [](const TensorView& x, const Range&) { static_cast<double*>(x.data)[3] = std::nan(""); };
  EXPECT_EQ(failures(gnomon::check_order(plain(), broken, broken)),
            (Names{"permutation", "norm", "composition", "shift-1", "shift-1000000"}));
}

TEST(CheckOrder, AMagnitudeOfZeroHidesThePositions) {
  auto spec = plain();
  spec.attention_factor = 0;
  EXPECT_EQ(failures(gnomon::check_order(spec)), (Names{"permutation"}));
}

TEST(CheckOrder, ABadSpecIsRefused) {
  auto spec = plain();
  spec.rotary_dim = 7;
  EXPECT_EQ(refusal_fault([&] { gnomon::check_order(spec); }, gnomon::ErrorCode::invalid_argument, {"rotary_dim", "even", "7"}), "");
}

}  // namespace
