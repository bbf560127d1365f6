// SPDX-License-Identifier: Apache-2.0
// Bias rules as specs: the slopes of ALiBi (T29), JSON both ways, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "gnomon/spec.hpp"
#include "support/elements.hpp"

namespace gnomon::test {
namespace {

using bias::Alibi;

void expect_slopes(std::int64_t heads, std::size_t first, const std::vector<double>& expected) {
  const auto slopes = Alibi::of_heads(heads).slopes;
  ASSERT_EQ(slopes.size(), static_cast<std::size_t>(heads));
  for (std::size_t i = 0; i < expected.size(); i++) {
    EXPECT_NEAR(slopes.at(first + i), expected[i], 1e-10 * expected[i]) << heads << " heads, head " << first + i;
  }
}

TEST(Alibi, SlopesOfT29) {
  expect_slopes(8, 0, {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625});
  expect_slopes(6, 0, {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125});
  expect_slopes(10, 8, {0.70710678118654752, 0.35355339059327376});
  expect_slopes(12, 8, {0.70710678118654752, 0.35355339059327376, 0.17677669529663688, 0.088388347648318441});
  expect_slopes(40, 0, {0.84089641525371454});
  expect_slopes(40, 31, {0.00390625, 0.91700404320467123});
  expect_slopes(40, 39, {0.27262693316631443});
}

TEST(Alibi, WrongSlopesAreToldApart) {
  const auto twelve = Alibi::of_heads(12).slopes, eight = Alibi::of_heads(8).slopes;
  EXPECT_GT(std::abs(twelve[0] - std::exp2(-8.0 / 12)), 0.1) << "one formula for every number of heads";
  EXPECT_NE(eight[0], 1.0) << "a list that begins one step early";
}

TEST(Alibi, BiasMaxOfMpt) { EXPECT_EQ(Alibi::of_heads(4, 16).slopes, (std::vector<double>{0x1p-4, 0x1p-8, 0x1p-12, 0x1p-16})); }

TEST(BiasJson, ReadsBackWhatItWrote) {
  for (const auto& info : list_rules()) {
    if (info.kind != "bias") continue;
    const BiasRule rule = bias_from_json(info.example);
    EXPECT_EQ(rule_name(rule), info.name);
    EXPECT_EQ(bias_from_json(to_json(rule)), rule) << to_json(rule);
  }
}

TEST(BiasJson, Refusals) {
  const auto refused = [](const std::string& text, std::initializer_list<const char*> words) {
    return testing_support::refusal_fault([&] { bias_from_json(text); }, ErrorCode::invalid_argument, words);
  };
  EXPECT_EQ(refused(R"({"heads": 4})", {"rule", "missing"}), "");
  EXPECT_EQ(refused(R"({"rule": "yarn"})", {"rule", "alibi, t5", "yarn"}), "");
  EXPECT_EQ(refused(R"({"rule": "alibi", "heads": 4, "slopes": [0.5]})", {"slopes", "4 heads", "got 1"}), "");
  EXPECT_EQ(refused(R"({"rule": "alibi", "heads": 1, "slopes": [-0.5]})", {"slopes[0]", "at least 0", "-0.5"}), "");
  EXPECT_EQ(refused(R"({"rule": "t5"})", {"bidirectional", "missing"}), "") << "no default to guess";
  EXPECT_EQ(refused(R"({"rule": "t5", "bidirectional": true, "buckets": 2})", {"buckets", "at least 4", "got 2"}), "");
  EXPECT_EQ(refused(R"({"rule": "t5", "bidirectional": false, "max_distance": 16})", {"max_distance", "more than the 16", "got 16"}), "");
  EXPECT_EQ(refused(R"({"rule": "deberta", "buckets": 256, "max_distance": 512, "c2p": false, "p2c": false})", {"c2p", "neither"}), "");
  EXPECT_EQ(refused(R"({"rule": "swin", "window": 7, "rows": 168})", {"rows", "169", "got 168"}), "");
  EXPECT_EQ(refused(R"({"rule": "beit", "window": 24, "rows": 2209})", {"rows", "2212", "got 2209"}), "") << "without the class token";
  EXPECT_EQ(refused(R"({"rule": "swinv2", "window": 8, "rows": 3})", {"rows", "unknown key", "swinv2"}), "");
  EXPECT_EQ(refused(R"({"rule": "kerple", "heads": 1, "r1": [1], "r2": [1]})", {"kind", "missing"}), "") << "no default to guess";
  EXPECT_EQ(refused(R"({"rule": "kerple", "heads": 1, "kind": "exp", "r1": [1], "r2": [1]})", {"kind", "log", "power", "exp"}), "");
  EXPECT_EQ(refused(R"({"rule": "kerple", "heads": 2, "kind": "log", "r1": [1, 2], "r2": [1]})", {"r2", "2 heads", "got 1"}), "");
  EXPECT_EQ(refused(R"({"rule": "kerple", "heads": 1, "kind": "power", "r1": [1], "r2": [2.5]})", {"r2", "at most 2", "2.5"}), "");
  EXPECT_EQ(refused(R"({"rule": "kerple", "heads": 1, "kind": "log", "r1": [0], "r2": [2.5]})", {"r1[0]", "positive", "0"}), "");
  EXPECT_EQ(refused(R"({"rule": "sandwich", "heads": 8, "width": 127})", {"width", "even", "127"}), "");
  EXPECT_EQ(refused(R"({"rule": "fire", "c": 0.1})", {"threshold", "missing"}), "");
  EXPECT_EQ(refused(R"({"rule": "fire", "c": 0.1, "threshold": 0})", {"threshold", "positive", "0"}), "");
}

}  // namespace
}  // namespace gnomon::test
