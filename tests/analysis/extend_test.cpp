// SPDX-License-Identifier: Apache-2.0
// Methods and what they change: identities that hold by construction of each rule, and figures of the papers.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "gnomon/analysis.hpp"

namespace {

gnomon::RotarySpec llama2() { return {.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 128, .rotary_dim = 128}; }

const gnomon::Extension& of(const gnomon::ExtensionReport& report, std::string_view method) {
  for (const auto& one : report.extensions) {
    if (one.method == method) return one;
  }
  throw std::invalid_argument("no method " + std::string(method));
}

std::string message(const gnomon::RotarySpec& spec, std::string_view method, std::optional<std::int64_t> original) {
  try {
    gnomon::with_method(spec, method, original);
  } catch (const gnomon::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Method, PutsARuleInThePlaceOfAnother) {
  auto spec = llama2();
  spec.layout = gnomon::PairLayout::interleaved;
  spec.sections = {32, 16, 16};
  const auto yarn = gnomon::with_method(spec, "yarn:4", 4096);
  EXPECT_EQ(std::get<gnomon::rotary::Yarn>(yarn.rule), (gnomon::rotary::Yarn{.factor = 4, .original_max_position_embeddings = 4096}));
  EXPECT_EQ(yarn.layout, spec.layout);
  EXPECT_EQ(yarn.sections, spec.sections);  // a method must not turn M-RoPE into text
  EXPECT_EQ(gnomon::with_method(spec, "none", std::nullopt), spec);
  EXPECT_EQ(gnomon::with_method(spec, "theta:500000", std::nullopt).theta, 500000);
  EXPECT_EQ(std::get<gnomon::rotary::Ntk>(gnomon::with_method(yarn, "ntk:2.5", std::nullopt).rule).factor, 2.5);
}

TEST(Method, AMagnitudeOfTheOldRuleDoesNotStay) {
  auto spec = gnomon::with_method(llama2(), "yarn:4", 4096);
  spec.attention_factor = 1.5;
  EXPECT_EQ(gnomon::effective_attention_factor(gnomon::with_method(spec, "linear:4", std::nullopt)), 1);
  EXPECT_EQ(gnomon::effective_attention_factor(gnomon::with_method(spec, "none", std::nullopt)), 1.5);
}

// Of gpt-oss the ramp is not truncated; a larger factor must not change that in passing.
TEST(Method, AModelThatHasTheRuleKeepsItsFields) {
  auto spec = llama2();
  spec.rule = gnomon::rotary::Yarn{.factor = 32, .original_max_position_embeddings = 4096, .truncate = false};
  const auto yarn = std::get<gnomon::rotary::Yarn>(gnomon::with_method(spec, "yarn:64", 4096).rule);
  EXPECT_EQ(yarn.factor, 64);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_TRUE(std::get<gnomon::rotary::Yarn>(gnomon::with_method(llama2(), "yarn:64", 4096).rule).truncate);
}

TEST(Method, RefusesWhatItCannotMean) {
  EXPECT_NE(message(llama2(), "nope:2", 4096).find("known: none, linear:FACTOR, ntk:FACTOR"), std::string::npos);
  for (const std::string_view bad :
       {"yarn", "yarn:", "yarn:0.5", "yarn:four", "yarn:4x", "yarn:nan", "yarn:inf", "yarn:1e999", "theta:1", "theta:-3", ""}) {
    EXPECT_NE(message(llama2(), bad, 4096), "") << bad;
  }
  EXPECT_NE(message(llama2(), "yarn:4", std::nullopt).find("trained length"), std::string::npos);
  EXPECT_NE(message(llama2(), "longrope:4", 4096).find("rule default"), std::string::npos);
  auto axial = llama2();
  axial.axes = 2;
  EXPECT_NE(message(axial, "yarn:4", 4096).find("several axes"), std::string::npos);
}

// Frequencies that are no powers of one base can be slowed, and nothing else.
TEST(Method, RulesWithoutAPlainBaseAreOnlySlowed) {
  auto spec = llama2();
  spec.rule = gnomon::rotary::Proportional{.partial_rotary_factor = 0.25};
  const auto before = gnomon::frequencies(spec).inv_freq, after = gnomon::frequencies(gnomon::with_method(spec, "linear:4", 4096)).inv_freq;
  for (std::size_t i = 0; i < before.size(); i++) EXPECT_EQ(after[i], before[i] / 4);
  EXPECT_NE(message(spec, "yarn:4", 4096), "");  // yarn on the whole head would make the pairs turn that stand still
}

TEST(Extend, Llama2) {
  const auto report = gnomon::extend({llama2(), 4096, 4096}, 32768);
  EXPECT_EQ(report.pairs_with_a_turn, 46);  // critical dimension 92
  EXPECT_NEAR(*report.critical_base, std::pow(10000, std::log(32768 / 6.283185307) / std::log(4096 / 6.283185307)), 1);
  EXPECT_EQ(report.extensions.front().method, "none");
  EXPECT_EQ(of(report, "none").unseen_pairs, 18);
  EXPECT_NEAR(of(report, "none").overshoot, 8, 1e-12);
  EXPECT_EQ(of(report, "none").negative_from, 1707);
  EXPECT_EQ(of(report, "none").drift_cosine, 1);
  EXPECT_NEAR(*of(report, "theta:148544").limit, 32768, 1);
  EXPECT_GE(*of(report, "theta:148544").limit, 32768);  // rounded up, so that it reaches
}

// Position interpolation is the trained rotation at a distance divided by the factor: no angle is new, no pair is spared.
TEST(Extend, LinearShowsNothingNew) {
  const auto report = gnomon::extend({llama2(), 4096, 4096}, 16384);
  const auto& linear = of(report, "linear:4");
  EXPECT_EQ(linear.unseen_pairs, 0);
  EXPECT_EQ(linear.drifts_from, 1);
  EXPECT_NEAR(static_cast<double>(*linear.negative_from), 4 * 1707, 4);
}

// The base that ntk uses leaves pairs between the first and the last too fast; yarn's bounds leave none.
TEST(Extend, NtkOvershootsAndYarnDoesNot) {
  const auto report = gnomon::extend({llama2(), 4096, 4096}, 16384);
  EXPECT_GT(of(report, "ntk:4").unseen_pairs, 0);
  EXPECT_LT(of(report, "ntk:4").overshoot, 4);
  EXPECT_EQ(of(report, "yarn:4").unseen_pairs, 0);
  EXPECT_EQ(of(report, "llama3:4").unseen_pairs, 0);
  EXPECT_GT(of(report, "yarn:4").drift_cosine, of(report, "linear:4").drift_cosine);
}

TEST(Extend, DynamicLeavesShortTextsAlone) {
  const auto report = gnomon::extend({llama2(), 4096, 4096}, 16384);
  EXPECT_EQ(of(report, "dynamic:4").drift_cosine, 1);
  EXPECT_EQ(of(report, "dynamic:4").drifts_from, std::nullopt);
  EXPECT_LT(of(report, "ntk:4").drift_cosine, 0.9);
}

// A model that is scaled already: factors count from the length before the scaling, drift from the rotation it was tuned with.
TEST(Extend, AScaledModelCountsFromItsOriginalLength) {
  gnomon::RotarySpec llama31 = llama2();
  llama31.theta = 500000;
  llama31.rule = gnomon::rotary::Llama3{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192};
  const auto report = gnomon::extend({llama31, 131072, 8192}, 262144);
  EXPECT_EQ(of(report, "none").drift_cosine, 1);
  EXPECT_EQ(report.critical_base, std::nullopt);  // the paper speaks of plain bases
  EXPECT_EQ(std::get<gnomon::rotary::Llama3>(of(report, "llama3:32").spec.rule).factor, 32);
  EXPECT_LT(of(report, "llama3:32").drift_cosine, 1);
  for (const auto& one : report.extensions) EXPECT_EQ(one.method.find(":2"), std::string::npos) << one.method;  // 262144 / 131072
}

TEST(Extend, ListsOfLongropeAreOfferedWhereTheyExist) {
  auto spec = llama2();
  gnomon::rotary::Longrope lists;
  lists.original_max_position_embeddings = 4096, lists.factor = 2;
  for (int i = 0; i < 64; i++) lists.short_factor.push_back(1), lists.long_factor.push_back(1 + i / 8.0);
  spec.rule = lists;
  const auto report = gnomon::extend({spec, 8192, 4096}, 16384);
  EXPECT_EQ(std::get<gnomon::rotary::Longrope>(of(report, "longrope:4").spec.rule).factor, 4);
  EXPECT_THROW(of(gnomon::extend({llama2(), 4096, 4096}, 8192), "longrope:2"), std::invalid_argument);
}

TEST(Extend, RefusesLengthsThatAreNoExtension) {
  EXPECT_THROW(gnomon::extend({llama2(), 4096, 4096}, 4096), gnomon::Error);
  EXPECT_THROW(gnomon::extend({llama2(), 4096, 8192}, 16384), gnomon::Error);
  EXPECT_THROW(gnomon::extend({llama2(), 4, 4}, 16384), gnomon::Error);
  EXPECT_THROW(gnomon::extend({llama2(), 4096, 4096}, gnomon::longest_decay + 1), gnomon::Error);
}

TEST(Extend, LengthsOfAModel) {
  gnomon::Model model;
  model.groups.resize(1);
  model.groups[0].layers = {0};
  model.groups[0].spec.rotary = llama2();
  EXPECT_THROW(gnomon::training_of(model), gnomon::Error);
  model.declared = 131072, model.derived = 65536, model.original = 8192;
  EXPECT_EQ(gnomon::training_of(model).length, 131072);
  model.derived = 262144;  // as of Llama 3.2, whose factor is no ratio of lengths
  model.groups[0].spec.rotary->rule = gnomon::rotary::Llama3{.factor = 32, .original_max_position_embeddings = 8192};
  EXPECT_EQ(gnomon::training_of(model).length, 131072);
  model.groups[0].spec.rotary = llama2();
  EXPECT_EQ(gnomon::training_of(model).original, 8192);
  model.declared = 32768, model.derived = 131072;  // as of Yarn-Mistral
  EXPECT_EQ(gnomon::training_of(model).length, 131072);
  model.groups[0].spec.rotary->rule = gnomon::rotary::Dynamic{.factor = 2, .max_position_embeddings = 32768};
  EXPECT_EQ(gnomon::training_of(model).length, 32768);  // as of InternLM: 65536 are promised, 32768 were trained
  model.groups[0].spec.rotary = llama2();
  model.original.reset(), model.derived.reset();
  EXPECT_EQ(gnomon::training_of(model).length, 32768);
  EXPECT_EQ(gnomon::training_of(model).original, 32768);
}

}  // namespace
