// SPDX-License-Identifier: Apache-2.0
// Golden files as text, and verify on values made here. tests/cli/test_cli_verify.py makes every mistake over every rule.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "gnomon/golden.hpp"
#include "golden/sha256.hpp"
#include "support/elements.hpp"

namespace {

using gnomon::ErrorCode;
using gnomon::Golden;
using gnomon::RotarySpec;
using gnomon::Values;
using testing_support::refusal_fault;

/// T10: theta 1000000, 128 channels, factor 4 of 32768.
RotarySpec yarn() {
  return {.rule = gnomon::rotary::Yarn{.factor = 4, .original_max_position_embeddings = 32768},
          .theta = 1000000,
          .head_dim = 128,
          .rotary_dim = 128};
}

/// cos and sin in long double, rounded to float.
Values table(const std::vector<double>& inv_freq, const std::vector<std::int64_t>& positions, double magnitude = 1) {
  Values values;
  values.positions = positions, values.rows = positions.size(), values.width = inv_freq.size();
  for (const auto position : positions) {
    for (const double w : inv_freq) {
      const long double angle = static_cast<long double>(position) * static_cast<long double>(w);
      values.cos.push_back(static_cast<float>(magnitude * static_cast<double>(std::cos(angle))));
      values.sin.push_back(static_cast<float>(magnitude * static_cast<double>(std::sin(angle))));
    }
  }
  return values;
}

std::string first_mistake(const gnomon::Verification& found) {
  return found.explanations.empty() ? "" : found.explanations.front().mistakes.front().name;
}

TEST(GoldenFile, ReadsBack) {
  Golden golden = gnomon::make_golden(yarn());
  golden.source = "a \"name\" with \n and ü";
  const auto text = gnomon::to_json(golden);
  EXPECT_EQ(gnomon::golden_from_json(text), golden);
  EXPECT_EQ(gnomon::to_json(gnomon::golden_from_json(text)), text);
  const RotarySpec axial{.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 80, .rotary_dim = 80, .axes = 2};
  EXPECT_EQ(gnomon::golden_from_json(gnomon::to_json(gnomon::make_golden(axial))), gnomon::make_golden(axial));
}

TEST(GoldenFile, EveryRuleHasOne) {
  for (const auto& rule : gnomon::list_rules()) {
    if (rule.kind != "rotary") continue;
    const auto spec = gnomon::rotary_from_json(rule.example);
    if (rule.name == "xpos") {
      EXPECT_EQ(refusal_fault([&] { gnomon::make_golden(spec); }, ErrorCode::unsupported, {"xpos"}), "");
      continue;
    }
    const auto golden = gnomon::make_golden(spec);
    EXPECT_EQ(golden.hf.has_value(), rule.in_transformers) << rule.name;
    EXPECT_TRUE(gnomon::verify(table(golden.exact.inv_freq, golden.positions), golden).agrees) << rule.name;
  }
}

TEST(GoldenFile, RefusesWhatIsNoGoldenFile) {
  const auto text = gnomon::to_json(gnomon::make_golden(yarn()));
  const auto refused = [](const std::string& changed, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::golden_from_json(changed); }, ErrorCode::malformed, words);
  };
  EXPECT_EQ(refused("", {"golden file"}), "");
  EXPECT_EQ(refused("{}", {"sha256"}), "");
  EXPECT_EQ(refused(text.substr(0, text.size() / 2), {"not valid JSON"}), "");
  // With its own hash, so that the reader has to see the fault itself.
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string body = text.substr(0, text.rfind(",\n \"sha256\""));
    body.replace(body.find(from), from.size(), to);
    return body + ",\n \"sha256\": \"" + gnomon::sha256(body) + "\"}\n";
  };
  EXPECT_EQ(refused(text.substr(0, text.size() - 5) + "0\"}\n", {"sha256", "changed"}), "");
  EXPECT_EQ(refused(with("\"schema\": 1", "\"schema\": 2"), {"schema"}), "");
  EXPECT_EQ(refused(with("\"length\": null", "\"length\": 0"), {"length"}), "");
  EXPECT_EQ(refused(with("\"length\": null", "\"size\": 0"), {"size"}), "");
  EXPECT_EQ(refused(with("[0, 1, ", "[0, "), {"13 rows", "14"}), "");
  EXPECT_EQ(refused(with("[0, 1, ", "[0, 1.5, "), {"positions"}), "");
  EXPECT_EQ(refused(with("\"0x1p+0\", ", ""), {"inv_freq", "64"}), "");
  EXPECT_EQ(refused(with("\"0x1p+0\", ", "\"-0x1p+0\", "), {"inv_freq", "from 0"}), "");
  EXPECT_EQ(refused(with("\"0x1p+0\", ", "\"0x1p+9999\", "), {"inv_freq"}), "");
}

TEST(GoldenFile, RefusesPositions) {
  using List = std::vector<std::int64_t>;
  const auto refused = [](const List& positions, ErrorCode code, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::make_golden(yarn(), positions); }, code, words);
  };
  EXPECT_EQ(refused({}, ErrorCode::invalid_argument, {"positions", "at least one"}), "");
  EXPECT_EQ(refused({3, 3}, ErrorCode::invalid_argument, {"positions", "twice"}), "");
  EXPECT_EQ(refused({(std::int64_t{1} << 33) + 1}, ErrorCode::out_of_range, {}), "");
  List many(gnomon::largest_golden / 64 + 1);
  for (std::size_t i = 0; i < many.size(); i++) many[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(refused(many, ErrorCode::invalid_argument, {"524288"}), "");
}

TEST(Verify, AgreesOrNamesTheMistake) {
  const auto golden = gnomon::make_golden(yarn());
  const auto right = golden.exact.inv_freq;
  EXPECT_TRUE(gnomon::verify(table(right, golden.positions), golden).agrees);
  EXPECT_TRUE(gnomon::verify(table(right, golden.positions, 1.13862943611199), golden).agrees);
  const auto twice = gnomon::verify(table(right, golden.positions, 1.29647699285), golden);
  EXPECT_FALSE(twice.agrees);
  EXPECT_EQ(first_mistake(twice), "magnitude-twice");
  std::vector<double> unscaled;
  for (int i = 0; i < 64; i++) unscaled.push_back(static_cast<double>(std::pow(1000000.0L, -2.0L * i / 128)));
  const auto found = gnomon::verify(table(unscaled, golden.positions), golden);
  EXPECT_EQ(first_mistake(found), "unscaled");
  EXPECT_EQ(found.explanations.size(), 1U);
  EXPECT_LT(found.explanations.front().residual, 1.2e-7);
}

TEST(Verify, FindsTheFactorOfTheReport) {
  // T10: 40960 / 32768 instead of the stated 4.
  RotarySpec seen = yarn();
  std::get<gnomon::rotary::Yarn>(seen.rule).factor = 1.25;
  Values values;
  values.inv_freq = gnomon::frequencies(seen).inv_freq;
  EXPECT_NEAR(values.inv_freq[30], 0.00141310904744283, 1e-16);
  values.attention_factor = 1.02231435513142;
  const auto found = gnomon::verify(values, gnomon::make_golden(yarn()));
  EXPECT_EQ(first_mistake(found), "factor");
  EXPECT_EQ(found.explanations.front().mistakes.front().found, "factor 1.25 instead of 4");
  EXPECT_EQ(found.explanations.front().mistakes.size(), 1U) << "its magnitude follows from it";
}

TEST(Verify, SeesTheLayoutOfAFullWidthTable) {
  const auto golden = gnomon::make_golden(yarn());
  const auto pairs = table(golden.exact.inv_freq, golden.positions);
  Values concatenated = pairs, repeated = pairs;
  for (const auto list : {&Values::cos, &Values::sin}) {
    (concatenated.*list).clear(), (repeated.*list).clear();
    for (std::size_t row = 0; row < pairs.rows; row++) {
      for (std::size_t channel = 0; channel < 128; channel++) {
        (concatenated.*list).push_back((pairs.*list)[row * 64 + channel % 64]);
        (repeated.*list).push_back((pairs.*list)[row * 64 + channel / 2]);
      }
    }
  }
  concatenated.width = repeated.width = 128;
  EXPECT_TRUE(gnomon::verify(concatenated, golden).agrees) << "half_split, as the spec";
  const auto found = gnomon::verify(repeated, golden);
  EXPECT_EQ(first_mistake(found), "layout");
  EXPECT_EQ(found.explanations.front().mistakes.front().found, "interleaved instead of half_split");
}

TEST(Verify, RefusesValuesOfAWrongShape) {
  const auto golden = gnomon::make_golden(yarn());
  const auto refused = [&](const Values& values, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::verify(values, golden); }, ErrorCode::invalid_argument, words);
  };
  EXPECT_EQ(refused({}, {"values", "none"}), "");
  auto values = table(golden.exact.inv_freq, golden.positions);
  values.sin.pop_back();
  EXPECT_EQ(refused(values, {"one shape"}), "");
  values = table(golden.exact.inv_freq, golden.positions);
  values.positions.pop_back();
  EXPECT_EQ(refused(values, {"positions", "14", "13"}), "");
  EXPECT_EQ(refused(table(golden.exact.inv_freq, {3, 4}), {"none of them"}), "");
}

TEST(Mistakes, HaveDistinctNamesAndCauses) {
  std::set<std::string_view> names;
  for (const auto& mistake : gnomon::list_mistakes()) {
    EXPECT_TRUE(names.insert(mistake.name).second) << mistake.name;
    EXPECT_FALSE(mistake.cause.empty());
  }
  EXPECT_GE(names.size(), 40U);
}

}  // namespace
