// SPDX-License-Identifier: Apache-2.0
// What doubts about frequencies cost, against the plain formula.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "gnomon/compare.hpp"
#include "model/support.hpp"

namespace gnomon {
namespace {

using test::codes;
using test::config;
using test::find_doubt;
using test::json;
using test::llama;
using test::read;

using Rule = std::function<double(int)>;  // pair -> frequency

Rule base(double theta, double divisor = 1, int width = 128) {
  return [=](int pair) { return std::pow(theta, -2.0 * pair / width) / divisor; };
}

/// The doubt with this code costs the drift between two sets of `pairs` frequencies, and not that between `ours` and `wrong`.
void expect_cost(const Model& model, std::string_view code, const Rule& ours, const Rule& theirs, const Rule& wrong, std::int64_t distance,
                 int pairs = 64) {
  const Doubt* doubt = find_doubt(model, code);
  ASSERT_NE(doubt, nullptr) << codes(model);
  const auto cost = doubt->cost();
  ASSERT_TRUE(cost) << code;
  const auto mean_cosine = [&](const Rule& other, std::int64_t at) {
    double sum = 0;
    for (int i = 0; i < pairs; i++) sum += std::cos(static_cast<double>(at) * (ours(i) - other(i)));
    return sum / pairs;
  };
  std::int64_t first = 1;
  while (mean_cosine(theirs, first) >= 0.99) first++;
  EXPECT_EQ(cost->position, first) << code;
  EXPECT_EQ(cost->distance, distance) << code;
  EXPECT_NEAR(cost->mean_cosine, mean_cosine(theirs, distance), 1e-9) << code;
  EXPECT_GT(std::abs(mean_cosine(wrong, distance) - mean_cosine(theirs, distance)), 1e-6) << code << ": the wrong value would pass";
}

json linear(double factor) { return {{"rope_type", "linear"}, {"factor", factor}}; }
json parameters(double theta) { return {{"rope_type", "default"}, {"rope_theta", theta}}; }

TEST(Cost, OfAConflictOfBases) {
  const Model model = llama({{"rope_theta", 10000.0}, {"rope_parameters", parameters(500000)}});
  expect_cost(model, "theta-conflict", base(500000), base(10000), base(500000), 4096);
}

// The scaling that holds for both counts; a cost made from the bases alone would be another.
TEST(Cost, OfAConflictOfBasesUnderAScaling) {
  json scaling = linear(4);
  scaling["rope_theta"] = 500000.0;
  const Model model = llama({{"rope_theta", 10000.0}, {"rope_scaling", scaling}});
  expect_cost(model, "theta-conflict", base(500000, 4), base(10000, 4), base(10000), 4096);
}

TEST(Cost, OfTwoSpellingsOfTheBase) {
  const Model model = llama({{"rope_theta", 10000.0}, {"rotary_emb_base", 20000.0}});
  expect_cost(model, "keys-conflict", base(10000), base(20000), base(500000), 4096);
}

TEST(Cost, OfABaseUnderAForeignSpelling) {
  const Model model = llama({{"rotary_emb_base", 500000.0}});
  expect_cost(model, "foreign-key", base(500000), base(10000), base(500000), 4096);
}

TEST(Cost, OfAFileForTransformers5Alone) {
  json scaled = linear(4);
  scaled["rope_theta"] = 500000.0;
  expect_cost(llama({{"rope_parameters", scaled}}), "rope-parameters-only", base(500000, 4), base(10000), base(500000), 4096);
  EXPECT_EQ(codes(llama({{"rope_parameters", parameters(10000)}})), "") << "nothing to lose";
  EXPECT_EQ(find_doubt(llama({{"rope_theta", 500000.0}, {"rope_parameters", parameters(500000)}}), "rope-parameters-only"), nullptr);
}

TEST(Cost, OfBlocksThatDiffer) {
  json other = linear(2);
  other["rope_theta"] = 10000.0;
  const Model model = llama({{"rope_theta", 10000.0}, {"rope_scaling", linear(8)}, {"rope_parameters", other}});
  expect_cost(model, "rope-block-conflict", base(10000, 8), base(10000, 2), base(10000), 4096);
}

TEST(Cost, OfTwoFactors) {
  const Model model = llama({{"rope_theta", 10000.0}, {"rope_scaling", linear(8)}, {"rope_condense_ratio", 4}});
  expect_cost(model, "factor-conflict", base(10000, 8), base(10000, 4), base(10000), 4096);
}

TEST(Cost, OfAnAmbiguousNtk) {
  const Model model = llama({{"rope_theta", 10000.0}, {"rope_scaling", {{"rope_type", "ntk"}, {"factor", 4.0}}}});
  const auto ours = base(10000 * std::pow(4.0, 128.0 / 126));
  expect_cost(model, "ntk-ambiguous", ours, base(40000, std::pow(4.0, 2.0 / 128)), base(40000), 4096);
}

TEST(Cost, OfAScalingThatIsProbablyMissing) {
  const Model model = llama({{"rope_theta", 500000.0}, {"max_position_embeddings", 131072}});
  const Doubt& doubt = *find_doubt(model, "scaling-missing-suspected");
  const auto cost = doubt.cost();
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->distance, 131072);
  EXPECT_NEAR(cost->mean_cosine, 0.5018345378, 1e-5);  // T07 at 131071
}

// A width that another engine takes: channels that only one of the two turns count too.
TEST(Cost, OfAPartialWidthThatIsIgnored) {
  const Model model = llama({{"rope_theta", 10000.0}, {"partial_rotary_factor", 0.5}});
  const Doubt& doubt = *find_doubt(model, "partial-rotary-ignored");
  const auto cost = doubt.cost();
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->position, 1);
  double sum = 0;  // channel c turns with c + 32 in one reading and with c + 64 in the other
  for (int c = 0; c < 128; c++) {
    const double half = c < 64 ? std::cos(4096 * std::pow(10000.0, -2.0 * (c % 32) / 64)) : 1;
    sum += half * std::cos(4096 * std::pow(10000.0, -2.0 * (c % 64) / 128));
  }
  EXPECT_NEAR(cost->mean_cosine, sum / 128, 1e-9);
}

/// The cost of a doubt is the drift between two files that each state one of its readings, and not that between `ours` and `wrong`.
void expect_drift_between(const Model& doubtful, std::string_view code, const Model& ours, const Model& theirs, const Model& wrong) {
  const Doubt* doubt = find_doubt(doubtful, code);
  ASSERT_NE(doubt, nullptr) << codes(doubtful);
  const auto cost = doubt->cost();
  ASSERT_TRUE(cost) << code;
  EXPECT_EQ(find_doubt(ours, code), nullptr) << code;
  const std::int64_t at[] = {cost->distance};
  const auto drift = [&](const Model& other) { return compare(ours, other, at).layers.back().drift.value(); };
  EXPECT_EQ(cost->position, drift(theirs).parting.position) << code;
  EXPECT_NEAR(cost->mean_cosine, drift(theirs).mean_cosines[0], 1e-12) << code;
  EXPECT_GT(std::abs(cost->mean_cosine - drift(wrong).mean_cosines[0]), 1e-6) << code;
}

json yarn(double factor, int original) {
  return {{"rope_type", "yarn"}, {"factor", factor}, {"original_max_position_embeddings", original}};
}
Model llama_with(const json& scaling, int length) {
  return llama({{"rope_theta", 10000.0}, {"max_position_embeddings", length}, {"rope_scaling", scaling}});
}

TEST(Cost, OfOriginalLengthsThatContradict) {
  const Model doubtful = llama({{"rope_theta", 10000.0},
                                {"max_position_embeddings", 16384},
                                {"original_max_position_embeddings", 2048},
                                {"rope_scaling", yarn(4, 4096)}});
  expect_drift_between(doubtful, "original-length-conflict", llama_with(yarn(4, 4096), 16384), llama_with(yarn(4, 2048), 16384),
                       llama_with(yarn(4, 16384), 16384));
}

TEST(Cost, OfAnOriginalLengthThatIsMissing) {
  const json bare = {{"rope_type", "yarn"}, {"factor", 4.0}};
  expect_drift_between(llama_with(bare, 16384), "original-length-missing", llama_with(yarn(4, 16384), 16384),
                       llama_with(yarn(4, 4096), 16384), llama_with(yarn(4, 8192), 16384));
}

TEST(Cost, OfAFactorThatIsNotTheRatio) {
  expect_drift_between(llama_with(yarn(4, 32768), 65536), "factor-vs-length-ratio", llama_with(yarn(4, 32768), 131072),
                       llama_with(yarn(2, 32768), 65536), llama_with(linear(1), 65536));
}

TEST(Cost, OfAFlatBlockThatIsIgnored) {
  const auto gemma = [](json keys) {
    keys.update({{"head_dim", 256}, {"sliding_window_pattern", 6}, {"sliding_window", 512}, {"query_pre_attn_scalar", 256}});
    return read(config("gemma3_text", keys));
  };
  json flat = linear(8);
  flat["rope_theta"] = 500000.0;
  expect_drift_between(gemma({{"rope_parameters", flat}}), "flat-block-for-layer-types",
                       gemma({{"rope_theta", 500000.0}, {"rope_scaling", linear(8)}}), gemma({{"rope_theta", 1e6}}),
                       gemma({{"rope_theta", 500000.0}}));
}

TEST(Cost, OfWidthsThatContradictOrAreCut) {
  const auto phi = [](json keys) {
    keys.update({{"head_dim", 128}, {"rope_theta", 10000.0}});
    return read(config("phi", keys));
  };
  const Model wide = phi({{"partial_rotary_factor", 0.5}}), narrow = phi({{"rotary_dim", 32}}), whole = phi({{"rotary_dim", 128}});
  expect_drift_between(phi({{"rotary_dim", 32}, {"partial_rotary_factor", 0.5}}), "rotary-width-conflict", narrow, wide, whole);
  expect_drift_between(phi({{"partial_rotary_factor", 0.255}}), "fractional-rotary-width", narrow, phi({{"rotary_dim", 34}}), whole);
}

// Channels c and c + 64 turn together in one reading, c and c ^ 1 in the other: only what each keeps of its own channel counts.
TEST(Cost, OfALayoutThatTheFamilyDoesNotHave) {
  const Model model = llama({{"rope_theta", 10000.0}, {"rope_interleaved", true}});
  const auto cost = find_doubt(model, "layout-conflict")->cost();
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->position, 1);
  double sum = 0;
  for (int c = 0; c < 128; c++) {
    sum += std::cos(4096 * std::pow(10000.0, -2.0 * (c % 64) / 128)) * std::cos(4096 * std::pow(10000.0, -2.0 * (c / 2) / 128));
  }
  EXPECT_NEAR(cost->mean_cosine, sum / 128, 1e-9);
  EXPECT_EQ(rotary_of(model).layout, PairLayout::half_split);
}

// No engine is known to read these otherwise: an unknown family may be right as it was read.
TEST(Cost, IsNotStatedWhereNoOtherReadingIsKnown) {
  for (const Model& model : {llama({}), read(config("brand_new", {{"rope_theta", 1e4}}))}) {
    for (const auto& doubt : model.doubts) EXPECT_FALSE(doubt.cost()) << doubt.code;
  }
}

TEST(Cost, IsPartOfTheJson) {
  const auto with = json::parse(to_json(llama({{"rope_theta", 10000.0}, {"rope_parameters", parameters(500000)}})));
  EXPECT_EQ(with["doubts"][0]["cost"]["position"], 3);
  EXPECT_EQ(with["doubts"][0]["cost"]["distance"], 4096);
  EXPECT_LT(with["doubts"][0]["cost"]["mean_cosine"], 0.5);
  EXPECT_TRUE(json::parse(to_json(llama({})))["doubts"][0]["cost"].is_null());
}

}  // namespace
}  // namespace gnomon
