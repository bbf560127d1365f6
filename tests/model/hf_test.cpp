// SPDX-License-Identifier: Apache-2.0
// Hugging Face configs: where each value comes from, and what becomes a doubt.
#include <gtest/gtest.h>

#include <cmath>

#include "gnomon/gnomon.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

Frequencies numbers(const Model& model, std::optional<int> layer = std::nullopt) { return frequencies(rotary_of(model, layer)); }

/// The right value, and the wrong one people got: the test must tell them apart.
void expect_not_seen(double got, double right, double seen) {
  const double tolerance = 1e-12 * std::abs(right);
  EXPECT_NEAR(got, right, tolerance);
  EXPECT_GT(std::abs(seen - right), tolerance) << "the wrong value would pass";
}

// ── T08: theta inside rope_parameters ──

TEST(Theta, InsideRopeParametersIsRead) {
  const Model model = llama({{"head_dim", 128}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}});
  EXPECT_EQ(codes(model), "rope-parameters-only");  // transformers 4 runs it with base 10000
  EXPECT_EQ(rotary_of(model).theta, 500000);
  EXPECT_EQ(rule_name(rotary_of(model).rule), "default");
  expect_not_seen(numbers(model).inv_freq[1], 0.81461723385654470, 0.86596432336006535);
  EXPECT_EQ(model.groups[0].origins.at("rotary.theta").key, "rope_parameters.rope_theta");
  EXPECT_EQ(model.groups[0].origins.at("rotary.theta").how, "read");
}

TEST(Theta, MissingIsAnErrorWithoutAFamilyDefault) {
  const Model model = read(config("qwen3", {{"head_dim", 128}}));
  ASSERT_NE(find_doubt(model, "theta-missing"), nullptr) << codes(model);
  EXPECT_EQ(model.worst(), Level::error);
  EXPECT_FALSE(model.groups.at(0).spec.rotary);
  EXPECT_THROW(rotary_of(model), Error);
}

TEST(Theta, MissingIsANoteWithAFamilyDefault) {
  const Model model = llama({});
  EXPECT_EQ(codes(model), "theta-missing-family-default");
  EXPECT_EQ(model.worst(), Level::note);
  EXPECT_EQ(rotary_of(model).theta, 10000);
  EXPECT_EQ(model.groups[0].origins.at("rotary.theta").how, "family default");
}

TEST(Theta, InEitherPlaceAloneIsNoConflict) {
  EXPECT_EQ(codes(llama({{"rope_theta", 500000}})), "");
  EXPECT_EQ(codes(llama({{"rope_theta", 500000}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}})), "");
}

// ── T09: a default block is not scaling ──

TEST(Scaling, ADefaultBlockIsNotScaling) {
  const Model model = llama({{"rope_theta", 10000.0},
                             {"max_position_embeddings", 4096},
                             {"qk_rope_head_dim", 64},
                             {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1000000.0}}}});
  EXPECT_EQ(codes(model), "theta-conflict");
  const Doubt& doubt = *find_doubt(model, "theta-conflict");
  EXPECT_EQ(doubt.level, Level::warning);
  EXPECT_EQ(doubt.keys, (std::vector<std::string>{"rope_theta", "rope_parameters.rope_theta"}));
  EXPECT_NE(doubt.message.find("10000 "), std::string::npos) << doubt.message;
  EXPECT_NE(doubt.message.find("1000000;"), std::string::npos) << doubt.message;
  EXPECT_TRUE(doubt.cost());
  const RotarySpec spec = rotary_of(model);
  EXPECT_TRUE(std::holds_alternative<rotary::Default>(spec.rule));
  EXPECT_EQ(spec.theta, 1000000);
  EXPECT_NE(spec.theta, 10000);
  EXPECT_EQ(effective_attention_factor(spec), 1);
  EXPECT_EQ(model.groups[0].spec.softmax_scale, std::pow(128.0, -0.5));
  EXPECT_EQ(model.original, std::nullopt);
}

// ── T10: the explicit YaRN factor wins ──

const json yarn_t10 = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};

TEST(Yarn, ExplicitFactorWinsOverTheRatio) {
  const Model model = llama({{"head_dim", 128}, {"rope_theta", 1000000.0}, {"max_position_embeddings", 40960}, {"rope_scaling", yarn_t10}});
  EXPECT_EQ(codes(model), "factor-vs-length-ratio");
  const Doubt& doubt = *find_doubt(model, "factor-vs-length-ratio");
  EXPECT_EQ(doubt.level, Level::warning);
  EXPECT_NE(doubt.message.find("is 4,"), std::string::npos) << doubt.message;
  EXPECT_NE(doubt.message.find("1.25"), std::string::npos) << doubt.message;
  EXPECT_EQ(model.declared, 40960);
  EXPECT_EQ(model.derived, 131072);
  EXPECT_EQ(model.original, 32768);

  const RotarySpec spec = rotary_of(model);
  const auto& rule = std::get<rotary::Yarn>(spec.rule);
  EXPECT_EQ(rule.factor, 4);
  const auto [low, high] = rule.bounds<ExactArithmetic>(rule_inputs(spec).front());
  EXPECT_EQ(static_cast<double>(low), 23);
  EXPECT_EQ(static_cast<double>(high), 40);
  const auto inv = numbers(model).inv_freq;
  expect_not_seen(inv[30], 0.00106436098124700, 0.00141310904744283);
  expect_not_seen(inv[63], 3.10234440187930e-7, 9.92750208601376e-7);
  EXPECT_NEAR(inv[23], 0.00697830584859866, 1e-16);
  EXPECT_NEAR(inv[24], 0.00537532149079010, 1e-16);
  EXPECT_NEAR(inv[39], 6.49039432083703e-5, 1e-18);
  EXPECT_NEAR(inv[40], 4.44569852509731e-5, 1e-18);
  expect_not_seen(numbers(model).attention_factor, 1.13862943611199, 1.02231435513142);
}

TEST(Yarn, AgreeingLengthsRaiseNoDoubt) {
  EXPECT_EQ(codes(llama({{"rope_theta", 1e6}, {"max_position_embeddings", 131072}, {"rope_scaling", yarn_t10}})), "");
}

// T17: the declared length is never multiplied when the original one is given.
TEST(Yarn, DerivedLengthIsFactorTimesOriginal) {
  struct Row {
    std::int64_t maximum, original;
    double factor;
    std::int64_t right, seen;
  };
  for (const auto& [maximum, original, factor, right, seen] :
       {Row{1048576, 32768, 32, 1048576, 33554432}, Row{32768, 8192, 4, 32768, 131072}, Row{40960, 32768, 4, 131072, 40960}}) {
    const json block = {{"rope_type", "yarn"}, {"factor", factor}, {"original_max_position_embeddings", original}};
    const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", maximum}, {"rope_scaling", block}});
    EXPECT_EQ(model.derived, right);
    EXPECT_NE(model.derived, seen);
    EXPECT_EQ(model.declared, maximum);
  }
}

TEST(Yarn, NullFactorIsTheRatio) {
  const json block = {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 32768}};
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 40960}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "factor-derived");
  EXPECT_EQ(std::get<rotary::Yarn>(rotary_of(model).rule).factor, 1.25);
  EXPECT_EQ(model.groups[0].origins.at("rotary.factor").how, "derived");
}

TEST(Yarn, MissingFactorIsAnError) {
  const Model model = llama({{"rope_theta", 1e6}, {"rope_scaling", {{"rope_type", "yarn"}, {"original_max_position_embeddings", 1024}}}});
  ASSERT_NE(find_doubt(model, "scaling-field-missing"), nullptr);
  EXPECT_EQ(find_doubt(model, "scaling-field-missing")->keys, std::vector<std::string>{"rope_scaling.factor"});
}

TEST(Yarn, MissingOriginalLengthIsAWarning) {
  const Model model = llama({{"rope_theta", 1e6}, {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}});
  EXPECT_EQ(codes(model), "original-length-missing");
  EXPECT_EQ(std::get<rotary::Yarn>(rotary_of(model).rule).original_max_position_embeddings, 4096);
}

TEST(Yarn, FinetunedIsAMarkOnly) {
  json block = yarn_t10;
  block["finetuned"] = true;
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 131072}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "");
  EXPECT_TRUE(model.unread.empty());
}

TEST(Yarn, ZeroAndNullBetasAreTheDefaults) {
  json block = yarn_t10;
  block["beta_fast"] = 0;
  block["beta_slow"] = nullptr;
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 131072}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "beta-default beta-default");
  const auto rule = std::get<rotary::Yarn>(rotary_of(model).rule);
  EXPECT_EQ(rule.beta_fast, 32);
  EXPECT_EQ(rule.beta_slow, 1);
}

TEST(Yarn, ARampBeyondTheLastPairIsDoubted) {  // T15 (c)
  const json block = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}};
  const Model model = llama({{"head_dim", 64}, {"rope_theta", 10.0}, {"max_position_embeddings", 16384}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "ramp-without-effect");
  EXPECT_NE(model.doubts.front().message.find("no pair is interpolated"), std::string::npos);
}

TEST(Yarn, ARampBeyondTheLastChannelDividesEveryPair) {
  const json block = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 131072}};
  const Model model = llama({{"head_dim", 8}, {"rope_theta", 10.0}, {"max_position_embeddings", 524288}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "ramp-without-effect");
  EXPECT_NE(model.doubts.front().message.find("every pair is interpolated"), std::string::npos);
  EXPECT_EQ(frequencies(rotary_of(model)).inv_freq.front(), 0.25);
}

// ── T11: the explicit attention_factor wins ──

const json yarn_t11 = {{"rope_type", "yarn"}, {"factor", 64.0}, {"attention_factor", 1.0}, {"original_max_position_embeddings", 4096}};

TEST(AttentionFactor, ExplicitWins) {
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 262144}, {"rope_scaling", yarn_t11}});
  EXPECT_EQ(codes(model), "engine-ignores-key");
  EXPECT_NE(find_doubt(model, "engine-ignores-key")->message.find("1.41588"), std::string::npos);
  expect_not_seen(numbers(model).attention_factor, 1.0, 1.41588830833597);
  EXPECT_EQ(model.groups[0].origins.at("rotary.attention_factor").key, "rope_scaling.attention_factor");
}

TEST(AttentionFactor, NullIsAbsent) {
  json block = yarn_t11;
  block["attention_factor"] = nullptr;
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 262144}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "");
  EXPECT_NEAR(numbers(model).attention_factor, 1.41588830833597, 1e-14);
  EXPECT_EQ(rotary_of(model).attention_factor, std::nullopt);
}

TEST(AttentionFactor, IsNotAppliedToOtherRules) {
  const Model model = llama({{"rope_theta", 1e6}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 1.0}, {"attention_factor", 1.5}}}});
  EXPECT_EQ(codes(model), "attention-factor-ignored");
  EXPECT_EQ(numbers(model).attention_factor, 1);
}

TEST(AttentionFactor, AttnFactorMultiplies) {
  json block = yarn_t10;
  block["attn_factor"] = 0.5;
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 131072}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "attn-factor-multiplier");
  EXPECT_NEAR(numbers(model).attention_factor, 0.5 * 1.13862943611199, 1e-14);
}

// T12: once, not twice.
TEST(AttentionFactor, IsTheMagnitudeAndNotItsSquare) {
  const json block = {{"rope_type", "yarn"}, {"factor", 128.0}, {"original_max_position_embeddings", 4096}};
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 524288}, {"rope_scaling", block}});
  const double factor = numbers(model).attention_factor;
  EXPECT_NEAR(factor, 1.48520302639196, 1e-14);
  EXPECT_GT(std::abs(factor - 2.20582802960), 0.5);
}

// ── T14: fractional bounds ──

TEST(Yarn, TruncateFalseKeepsFractionalBounds) {
  const json block = {{"rope_type", "yarn"}, {"factor", 32.0},    {"beta_fast", 32.0},
                      {"beta_slow", 1.0},    {"truncate", false}, {"original_max_position_embeddings", 4096}};
  const Model model = llama({{"head_dim", 64}, {"rope_theta", 150000}, {"max_position_embeddings", 131072}, {"rope_scaling", block}});
  EXPECT_EQ(codes(model), "engine-ignores-key");
  const RotarySpec spec = rotary_of(model);
  const auto [low, high] = std::get<rotary::Yarn>(spec.rule).bounds<ExactArithmetic>(rule_inputs(spec).front());
  expect_not_seen(static_cast<double>(low), 8.0927791155124010, 8);
  expect_not_seen(static_cast<double>(high), 17.398024501588556, 18);
  const auto inv = numbers(model).inv_freq;
  expect_not_seen(inv[9], 0.0317056961846638, 0.0316207522753465);
  expect_not_seen(inv[16], 0.000456483919223240, 0.000580947501931113);
  expect_not_seen(inv[17], 0.000129318701245063, 0.000227947795795125);
  EXPECT_NEAR(inv[8], 0.0508132748154615, 1e-15);
  EXPECT_NEAR(inv[12], 0.00679495948973222, 1e-16);
  EXPECT_NEAR(inv[18], 3.83088123737534e-5, 1e-18);
  EXPECT_NEAR(numbers(model).attention_factor, 1.34657359027997, 1e-14);
  EXPECT_EQ(model.groups[0].origins.at("rotary.truncate").how, "read");
}

// ── types ──

TEST(Type, OldAndNewNameMayAgreeButNotDiffer) {
  json block = {{"type", "linear"}, {"rope_type", "linear"}, {"factor", 2.0}, {"original_max_position_embeddings", 2048}};
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"rope_scaling", block}})), "");
  block["type"] = "yarn";
  const Model model = llama({{"rope_theta", 1e4}, {"rope_scaling", block}});
  ASSERT_NE(find_doubt(model, "scaling-type-conflict"), nullptr);
  EXPECT_EQ(model.worst(), Level::error);
}

TEST(Type, KnownWithoutARuleIsAnErrorThatNamesIt) {
  for (const auto* type : {"axial", "xdrope"}) {
    const Model model = llama({{"rope_theta", 1e4}, {"rope_scaling", {{"type", type}, {"factor", 2.0}}}});
    const Doubt* doubt = find_doubt(model, "rule-not-available");
    ASSERT_NE(doubt, nullptr) << type;
    EXPECT_NE(doubt->message.find(type), std::string::npos) << doubt->message;
    EXPECT_FALSE(model.groups.at(0).spec.rotary);
    EXPECT_THROW(rotary_of(model), Error);
  }
}

TEST(Type, SectionsAreReadWithTheirOrder) {
  const auto sections = [](const char* type, json extra) {
    json block = {{"rope_type", "default"}, {"rope_theta", 1e6}, {"mrope_section", {24, 20, 20}}};
    block.update(extra);
    return rotary_of(read(config(type, {{"head_dim", 128}, {"rope_parameters", block}})));
  };
  EXPECT_EQ(sections("qwen2_vl", json::object()).sections, (std::vector{24, 20, 20}));
  EXPECT_EQ(sections("qwen2_vl", json::object()).section_order, SectionOrder::chunked);
  EXPECT_EQ(sections("qwen2_vl", {{"mrope_interleaved", true}}).section_order, SectionOrder::interleaved);
  EXPECT_EQ(sections("qwen3_vl_text", json::object()).section_order, SectionOrder::interleaved) << "as the code of the family does";
}

// Height and width take turns in the first 44 pairs, and the file names time last: as Ernie4_5_VLMoeTextRotaryEmbedding has it.
TEST(Type, SectionsOfErnieNameTimeLast) {
  const auto ernie = [](json extra) {
    json block = {{"rope_type", "default"}, {"rope_theta", 5e5}};
    block.update(extra);
    return read(config("ernie4_5_vl_moe_text", {{"head_dim", 128}, {"rope_parameters", block}}));
  };
  const Model model = ernie({{"mrope_section", {22, 22, 20}}});
  const RotarySpec spec = rotary_of(model);
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(spec.sections, (std::vector{20, 22, 22}));
  EXPECT_EQ(spec.section_order, SectionOrder::time_last);
  const auto axis = frequencies(spec).axis;
  for (std::size_t i = 0; i < 64; i++) EXPECT_EQ(axis.at(i), i >= 44 ? 0 : 1 + i % 2) << i;
  EXPECT_NE(axis,
            frequencies(
                rotary_of(read(config(
                    "qwen2_vl", {{"head_dim", 128},
                                 {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}, {"mrope_section", {22, 22, 20}}}}}))))
                .axis);
  const Model without = ernie(json::object());
  EXPECT_EQ(codes(without), "mrope-section-missing-family-default");
  EXPECT_EQ(rotary_of(without).sections, spec.sections);
  EXPECT_NE(find_doubt(ernie({{"mrope_section", {22, 20, 22}}}), "value-invalid"), nullptr) << "height and width have as many pairs";
}

// T25: the fraction says how many pairs turn, and is not applied to the width as well.
TEST(Type, ProportionalKeepsTheWholeWidth) {
  const Model model = llama(
      {{"head_dim", 512}, {"rope_parameters", {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}}}});
  const RotarySpec spec = rotary_of(model);
  EXPECT_EQ(spec.rotary_dim, 512);
  const auto inv = frequencies(spec).inv_freq;
  EXPECT_NEAR(inv.at(63), 0.033376246942920385, 1e-16);
  EXPECT_EQ(inv.at(64), 0);
}

TEST(Type, UnknownIsAnErrorAndNeverIgnored) {
  const Model model = llama({{"rope_theta", 1e4}, {"rope_scaling", {{"rope_type", "made_up"}, {"factor", 2.0}}}});
  ASSERT_NE(find_doubt(model, "scaling-unknown"), nullptr);
  EXPECT_NE(find_doubt(model, "scaling-unknown")->message.find("made_up"), std::string::npos);
  EXPECT_FALSE(model.groups.at(0).spec.rotary);
}

TEST(Type, NullBlockIsNone) { EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"rope_scaling", nullptr}, {"rope_parameters", nullptr}})), ""); }

TEST(Type, DynamicWithoutALengthSaysSo) {
  json keys = config("llama", {{"rope_theta", 5e5}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}});
  keys.erase("max_position_embeddings");
  EXPECT_NE(find_doubt(read(keys), "dynamic-length-missing"), nullptr);
}

TEST(Type, NtkIsDoubtedBecauseFourRulesBearTheName) {
  const Model model = llama({{"rope_theta", 1e4}, {"rope_scaling", {{"type", "ntk"}, {"factor", 2.0}}}});
  EXPECT_EQ(codes(model), "ntk-ambiguous");
  EXPECT_EQ(std::get<rotary::Ntk>(rotary_of(model).rule).factor, 2);
}

TEST(Blocks, RopeScalingWinsOverRopeParameters) {
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}, {"original_max_position_embeddings", 2048}};
  json other = linear;
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"rope_scaling", linear}, {"rope_parameters", other}})), "");
  other["factor"] = 4.0;
  const Model model = llama({{"rope_theta", 1e4}, {"rope_scaling", linear}, {"rope_parameters", other}});
  EXPECT_EQ(codes(model), "rope-block-conflict");
  EXPECT_EQ(std::get<rotary::Linear>(rotary_of(model).rule).factor, 2);
}

TEST(Blocks, ThetaOfTheOtherBlockIsFound) {
  const Model model = read(config("qwen2", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
                                            {"rope_parameters", {{"type", "linear"}, {"factor", 2.0}, {"rope_theta", 1e6}}}}));
  EXPECT_EQ(find_doubt(model, "theta-missing"), nullptr);
  EXPECT_EQ(rotary_of(model).theta, 1e6);
}

TEST(Blocks, UnknownKeysInsideAreReported) {
  const Model model = llama({{"rope_theta", 1e4}, {"rope_scaling", {{"type", "default"}, {"beta_medium", 3}}}});
  EXPECT_EQ(model.unread, std::vector<std::string>{"rope_scaling.beta_medium"});
}

TEST(Lengths, OuterOriginalIsUsedWhenTheInnerIsMissingAndDoubtedWhenItDiffers) {
  json block = {{"rope_type", "yarn"}, {"factor", 2.0}};
  const json keys = {{"rope_theta", 1e4}, {"max_position_embeddings", 4096}, {"original_max_position_embeddings", 2048}};
  json outer_only = keys;
  outer_only["rope_scaling"] = block;
  EXPECT_EQ(codes(llama(outer_only)), "");
  EXPECT_EQ(llama(outer_only).original, 2048);
  block["original_max_position_embeddings"] = 1024;
  json both = keys;
  both["rope_scaling"] = block;
  const Model model = llama(both);
  EXPECT_NE(find_doubt(model, "original-length-conflict"), nullptr) << codes(model);
  EXPECT_EQ(std::get<rotary::Yarn>(rotary_of(model).rule).original_max_position_embeddings, 1024);
}

TEST(Lengths, LinearAloneCannotSayItsOriginal) {
  const json block = {{"type", "linear"}, {"factor", 8.0}};
  const Model silent = llama({{"rope_theta", 1e4}, {"max_position_embeddings", 32768}, {"rope_scaling", block}});
  EXPECT_EQ(codes(silent), "linear-original-unknown");
  EXPECT_EQ(silent.derived, std::nullopt);
  const Model told =
      llama({{"rope_theta", 1e4}, {"max_position_embeddings", 2048}, {"max_sequence_length", 16384}, {"rope_scaling", block}});
  EXPECT_EQ(codes(told), "");
  EXPECT_EQ(told.original, 2048);
  EXPECT_EQ(told.derived, 16384);
}

TEST(Lengths, ASecondLengthThatFitsNothingIsAConflict) {
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"model_max_length", 131072}})), "length-conflict");
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"model_max_length", 4096}})), "");
}

TEST(Factors, OneFactorStatedTwiceIsAppliedOnce) {
  const json block = {{"type", "linear"}, {"factor", 8.0}, {"original_max_position_embeddings", 512}};
  const Model twice = llama({{"rope_theta", 1e4}, {"rope_condense_ratio", 8}, {"rope_scaling", block}});
  EXPECT_EQ(codes(twice), "scaling-stated-twice");
  EXPECT_EQ(std::get<rotary::Linear>(rotary_of(twice).rule).factor, 8);
  const Model differ = llama({{"rope_theta", 1e4}, {"rope_condense_ratio", 4}, {"rope_scaling", block}});
  EXPECT_EQ(codes(differ), "factor-conflict");
  const Model alone = llama({{"rope_theta", 1e4}, {"rope_condense_ratio", 8}});
  EXPECT_EQ(std::get<rotary::Linear>(rotary_of(alone).rule).factor, 8);
}

// ── width ──

TEST(Width, PartialFactorsAreTruncatedButWholeProductsAreKept) {  // T24
  struct Row {
    int head_dim;
    double factor;
    std::int64_t right;
    const char* doubts;
  };
  // 200 * 0.29 and 200 * 0.57 lie just below 58 and 114 in doubles; int() alone gives 57 and 113.
  ASSERT_EQ(static_cast<int>(200 * 0.29), 57);
  for (const auto& [head_dim, factor, right, doubts] :
       {Row{200, 0.29, 58, ""}, Row{200, 0.57, 114, ""}, Row{96, 0.4, 38, "fractional-rotary-width"}, Row{80, 0.4, 32, ""},
        Row{96, 0.75, 72, ""}, Row{256, 0.25, 64, ""}, Row{128, 0.5, 64, ""}}) {
    const Model model = read(config("phi", {{"rope_theta", 1e4}, {"head_dim", head_dim}, {"partial_rotary_factor", factor}}));
    EXPECT_EQ(codes(model), doubts);
    EXPECT_EQ(rotary_of(model).rotary_dim, right);
  }
}

TEST(Width, ExponentsRunOverTheRotatedPart) {  // T24 (a)
  const Model model = read(config("phi", {{"rope_theta", 1e4}, {"head_dim", 128}, {"partial_rotary_factor", 0.5}}));
  const auto inv = numbers(model).inv_freq;
  ASSERT_EQ(inv.size(), 32U);
  expect_not_seen(inv[1], 0.74989420933245583, 0.86596432336006535);
  expect_not_seen(inv[16], 0.01, 0.1);
  expect_not_seen(inv[31], 0.00013335214321633240, 0.0115478198468946);
}

TEST(Width, OddAndImpossibleWidthsAreErrors) {  // T24 (b)
  const auto code = [](const json& keys) { return codes(read(config("gpt_neox", keys))); };
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"head_dim", 4}, {"rotary_pct", 0.75}}), "rotary-width-odd");
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"hidden_size", 520}, {"num_attention_heads", 8}, {"rotary_pct", 1.0}}), "rotary-width-odd");
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"head_dim", 8}, {"rotary_dim", 5}}), "rotary-width-odd");
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"head_dim", 8}, {"rotary_dim", 10}}), "rotary-width-out-of-range");
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"head_dim", 8}, {"rotary_dim", 0}}), "rotary-width-out-of-range");
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"head_dim", 8}, {"rotary_pct", 1.5}}), "rotary-width-out-of-range");
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"head_dim", 8}, {"rotary_pct", -1.0}}), "rotary-width-out-of-range");
  EXPECT_EQ(code({{"rotary_emb_base", 1e4}, {"head_dim", 8}, {"rotary_pct", 1e300}}), "rotary-width-out-of-range");
}

TEST(Width, TwoWidthsMustAgree) {
  EXPECT_EQ(codes(read(config("phi", {{"rope_theta", 1e4}, {"head_dim", 128}, {"rotary_dim", 64}, {"partial_rotary_factor", 0.5}}))), "");
  EXPECT_EQ(codes(read(config("phi", {{"rope_theta", 1e4}, {"head_dim", 128}, {"rotary_dim", 32}, {"partial_rotary_factor", 0.5}}))),
            "rotary-width-conflict");
}

TEST(Width, FamilyDefaultsAreNoted) {
  const Model neox = read(config("gpt_neox", {{"rotary_emb_base", 1e4}}));
  EXPECT_EQ(codes(neox), "rotary-width-not-in-file");
  EXPECT_EQ(rotary_of(neox).rotary_dim, 32);
  const Model gptj = read({{"model_type", "gptj"}, {"n_embd", 4096}, {"n_head", 16}, {"n_layer", 2}, {"n_positions", 2048}});
  EXPECT_EQ(codes(gptj), "theta-missing-family-default rotary-width-not-in-file");
  EXPECT_EQ(rotary_of(gptj).rotary_dim, 64);
  EXPECT_EQ(rotary_of(gptj).head_dim, 256);
  EXPECT_EQ(rotary_of(gptj).layout, PairLayout::interleaved);
  EXPECT_EQ(gptj.kv_heads, 16);
  EXPECT_EQ(gptj.declared, 2048);
}

TEST(Width, APartialFactorInAFamilyWithoutOneIsDoubted) {
  const Model model = llama({{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}});
  EXPECT_EQ(codes(model), "partial-rotary-ignored");
  EXPECT_EQ(rotary_of(model).rotary_dim, 64);
}

// ── layers, windows, scores ──

const json gemma3 = {{"model_type", "gemma3_text"},       {"head_dim", 256},          {"hidden_size", 2560},
                     {"num_hidden_layers", 12},           {"num_attention_heads", 8}, {"num_key_value_heads", 4},
                     {"max_position_embeddings", 131072}, {"sliding_window", 1024},   {"query_pre_attn_scalar", 168}};

json gemma3_with(const json& keys) {
  json result = gemma3;
  result.update(keys);
  return result;
}

void expect_gemma3(const Model& model) {  // T18
  ASSERT_EQ(model.groups.size(), 2U) << codes(model);
  const auto& [local, global] = std::pair(model.groups[0], model.groups[1]);
  EXPECT_EQ(global.layers, (std::vector{5, 11}));
  EXPECT_EQ(local.layers, (std::vector{0, 1, 2, 3, 4, 6, 7, 8, 9, 10}));
  EXPECT_EQ(local.spec.mask.window, 1024);
  EXPECT_EQ(global.spec.mask.window, std::nullopt);
  const auto slow = numbers(model, 5).inv_freq, fast = numbers(model, 0).inv_freq;
  EXPECT_EQ(slow[0], 0.125);
  EXPECT_NEAR(slow[1], 0.11221089155591427, 1e-16);
  EXPECT_NEAR(slow[64], 0.000125, 1e-18);
  EXPECT_NEAR(slow[127], 1.3924673249935030e-7, 1e-21);
  EXPECT_EQ(fast[0], 1);
  EXPECT_NEAR(fast[1], 0.93057204092969898, 1e-15);
  EXPECT_NEAR(fast[64], 0.01, 1e-17);
  EXPECT_NEAR(fast[127], 0.00010746078283213175, 1e-18);
  EXPECT_NE(fast[0], slow[0]);
  EXPECT_NEAR(local.spec.softmax_scale, 1 / std::sqrt(168.0), 1e-16);
  EXPECT_EQ(model.derived, 131072);
}

TEST(Gemma3, OldKeys) {
  const Model model = read(gemma3_with({{"rope_theta", 1e6},
                                        {"rope_local_base_freq", 1e4},
                                        {"sliding_window_pattern", 6},
                                        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}));
  EXPECT_EQ(codes(model), "");
  expect_gemma3(model);
}

TEST(Gemma3, ParametersPerLayerType) {
  json types = json::array();
  for (int i = 0; i < 12; i++) types.push_back(i % 6 == 5 ? "full_attention" : "sliding_attention");
  const Model model = read(gemma3_with({{"layer_types", types},
                                        {"rope_parameters",
                                         {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                                          {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}}));
  EXPECT_EQ(codes(model), "rope-parameters-only");  // transformers 4 drops the scaling
  expect_gemma3(model);
  EXPECT_EQ(model.groups[1].origins.at("rotary.theta").key, "rope_parameters.full_attention.rope_theta");
}

TEST(Gemma3, NestedTextConfigWithItsClassDefaults) {  // as the released 4B file, which leaves out what its class defaults
  const Model model = read({{"architectures", {"Gemma3ForConditionalGeneration"}},
                            {"model_type", "gemma3"},
                            {"text_config",
                             {{"hidden_size", 2560},
                              {"model_type", "gemma3_text"},
                              {"num_hidden_layers", 34},
                              {"sliding_window", 1024},
                              {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}}}},
                            {"vision_config", {{"hidden_size", 1152}, {"num_hidden_layers", 27}}}});
  EXPECT_EQ(model.worst(), Level::note) << codes(model);
  EXPECT_EQ(model.type, "gemma3_text");
  EXPECT_EQ(model.heads, 8);
  EXPECT_EQ(model.kv_heads, 4);
  EXPECT_EQ(model.head_dim, 256);
  EXPECT_EQ(model.declared, 131072);
  ASSERT_EQ(model.groups.size(), 3U);
  EXPECT_EQ(model.groups[0].part, "text");
  EXPECT_EQ(model.groups[2].part, "vision");
  EXPECT_EQ(model.groups[1].layers, (std::vector{5, 11, 17, 23, 29}));
  EXPECT_EQ(rotary_of(model, 5).theta, 1e6);
  EXPECT_EQ(rotary_of(model, 4).theta, 1e4);
  EXPECT_EQ(std::get<rotary::Linear>(rotary_of(model, 5).rule).factor, 8);
  EXPECT_TRUE(std::holds_alternative<rotary::Default>(rotary_of(model, 4).rule));
  EXPECT_EQ(model.groups[1].origins.at("rotary.factor").key, "text_config.rope_scaling.factor");
  EXPECT_EQ(model.groups[0].spec.softmax_scale, 1.0 / 16);
}

TEST(Gemma3, SeveralGroupsNeedALayer) {
  const Model model = read(gemma3_with({{"rope_theta", 1e6}, {"rope_local_base_freq", 1e4}}));
  try {
    rotary_of(model);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("theta 10000"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("theta 1000000"), std::string::npos) << error.what();
  }
  EXPECT_THROW(rotary_of(model, 12), Error);
  EXPECT_THROW(rotary_of(model, -1), Error);
}

TEST(Gemma3, AFlatBlockIsAppliedToFullLayersAndDoubted) {
  const Model model = read(gemma3_with({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}}}));
  EXPECT_NE(find_doubt(model, "flat-block-for-layer-types"), nullptr) << codes(model);
  expect_gemma3(model);
}

TEST(Gemma2, EvenLayersSlideAndScoresAreCapped) {
  const Model model =
      read(config("gemma2", {{"rope_theta", 1e4}, {"head_dim", 128}, {"query_pre_attn_scalar", 144}, {"sliding_window", 1000}}));
  EXPECT_EQ(codes(model), "");
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(model.groups[0].layers, (std::vector{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(model.groups[0].spec.mask.window, 1000);
  EXPECT_EQ(model.groups[0].spec.softmax_scale, 1.0 / 12);
  EXPECT_EQ(model.groups[0].spec.softcap, 50);
  EXPECT_EQ(rotary_of(model).theta, 1e4);  // one rotary set-up, two windows
  const Model uncapped = read(config("gemma2", {{"rope_theta", 1e4}, {"attn_logit_softcapping", nullptr}}));
  EXPECT_EQ(uncapped.groups[0].spec.softcap, std::nullopt);
}

TEST(Windows, MistralHasOneUnlessTheFileSaysNull) {
  const json base = {{"rope_theta", 1e6}, {"max_position_embeddings", 32768}};
  const auto window = [&](const json& keys) {
    json all = base;
    if (!keys.is_null()) all.update(keys);
    return read(config("mistral", all));
  };
  EXPECT_EQ(window({{"sliding_window", 4096}}).groups[0].spec.mask.window, 4096);
  EXPECT_EQ(window({{"sliding_window", nullptr}}).groups[0].spec.mask.window, std::nullopt);
  EXPECT_EQ(codes(window({{"sliding_window", nullptr}})), "");
  const Model silent = window({});
  EXPECT_EQ(codes(silent), "window-missing-family-default");
  EXPECT_EQ(silent.groups[0].spec.mask.window, 4096);
  EXPECT_EQ(silent.groups[0].origins.at("mask.window").how, "family default");
}

TEST(Windows, QwenNeedsTheSwitchAndStartsLate) {
  const json keys = {{"rope_theta", 1e6}, {"sliding_window", 1024}, {"max_window_layers", 8}};
  json off = keys, on = keys;
  off["use_sliding_window"] = false;
  on["use_sliding_window"] = true;
  EXPECT_EQ(read(config("qwen2", keys)).groups.size(), 1U);
  EXPECT_EQ(read(config("qwen2", off)).groups[0].spec.mask.window, std::nullopt);
  const Model model = read(config("qwen2", on));
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(model.groups[1].layers, (std::vector{8, 9, 10, 11}));
  EXPECT_EQ(model.groups[1].spec.mask.window, 1024);
}

TEST(Windows, OtherFamiliesDoNotReadTheSwitch) {
  const Model model = read(config("mistral", {{"rope_theta", 1e6}, {"sliding_window", 1024}, {"use_sliding_window", false}}));
  EXPECT_EQ(model.groups[0].spec.mask.window, 1024);
  EXPECT_EQ(model.unread, std::vector<std::string>{"use_sliding_window"});
}

TEST(Windows, OneBeyondTheContextIsNone) {
  const Model model = read(config("phi3", {{"rope_theta", 1e4}, {"sliding_window", 262144}}));
  EXPECT_EQ(codes(model), "window-larger-than-context");
  EXPECT_EQ(model.groups[0].spec.mask.window, std::nullopt);
  EXPECT_EQ(read(config("phi3", {{"rope_theta", 1e4}, {"sliding_window", 2047}})).groups[0].spec.mask.window, 2047);
}

TEST(Windows, ZeroAndNegativeAreErrors) {
  EXPECT_EQ(codes(read(config("mistral", {{"rope_theta", 1e6}, {"sliding_window", 0}}))), "value-invalid");
  EXPECT_EQ(codes(read(config("mistral", {{"rope_theta", 1e6}, {"sliding_window", -1}}))), "value-invalid");
}

TEST(LayerTypes, ListsOfTheWrongLengthAndUnknownTypes) {
  const auto with = [](int count, const char* type) {
    return read(
        config("gemma2", {{"rope_theta", 1e4}, {"head_dim", 256}, {"layer_types", json::array_t(static_cast<std::size_t>(count), type)}}));
  };
  EXPECT_EQ(codes(with(13, "full_attention")), "layer-list-length");
  EXPECT_EQ(codes(with(11, "full_attention")), "layer-list-short");
  EXPECT_EQ(codes(with(12, "lunar_attention")), "layer-type-unknown");
  EXPECT_EQ(with(12, "linear_attention").non_attention_layers.size(), 12U);
}

TEST(LayerTypes, AMissingBlockIsAnErrorAndANullOneMeansNoRotation) {
  const json nested = {{"full_attention", {{"rope_theta", 1e6}}}, {"sliding_attention", nullptr}};
  json types = json::array_t(12, "full_attention");
  types[0] = "sliding_attention";
  const Model model = read(config("qwen3", {{"head_dim", 128}, {"layer_types", types}, {"rope_parameters", nested}}));
  EXPECT_EQ(codes(model), "rope-parameters-only");
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_FALSE(model.groups[0].spec.rotary);
  EXPECT_EQ(rotary_of(model).theta, 1e6);
  EXPECT_THROW(rotary_of(model, 0), Error);
  const Model missing =
      read(config("qwen3", {{"head_dim", 128}, {"layer_types", types}, {"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}}));
  EXPECT_EQ(codes(missing), "layer-type-missing rope-parameters-only");
}

// ── families and shapes ──

TEST(Families, UnknownIsReadByItsKeysWithAWarning) {
  const Model model = read(config("brand_new", {{"rope_theta", 1e4}}));
  EXPECT_EQ(codes(model), "family-unknown");
  EXPECT_EQ(rotary_of(model).theta, 1e4);
  EXPECT_EQ(codes(read(config("brand_new", {}))), "position-unknown family-unknown");
}

TEST(Families, DecisiveKeysOfAnUnknownFamilyAreErrors) {
  const Model model = read(config("brand_new", {{"rope_theta", 1e4}, {"rope_adjustments", {{"factor", 8}}}, {"use_logn_attn", false}}));
  EXPECT_EQ(codes(model), "keys-not-understood family-unknown");
  EXPECT_EQ(find_doubt(model, "keys-not-understood")->keys, std::vector<std::string>{"rope_adjustments"});
}

TEST(Families, AMissingTypeIsTakenFromTheClass) {
  json keys = config("llama", {{"rope_theta", 1e4}, {"architectures", {"LlamaForCausalLM"}}});
  keys.erase("model_type");
  const Model model = read(keys);
  EXPECT_EQ(codes(model), "model-type-missing");
  EXPECT_EQ(model.type, "llama");
}

TEST(Families, LayoutKeysAreComparedWithTheFamily) {
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"rope_interleaved", false}})), "");
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"rope_interleaved", true}})), "layout-conflict");
}

TEST(Families, LostLlama3ScalingIsSuspected) {
  EXPECT_EQ(codes(llama({{"rope_theta", 500000}, {"max_position_embeddings", 131072}})), "scaling-missing-suspected");
}

TEST(Families, ALlama3WithoutItsBaseIsSuspected) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  const std::string both = "theta-missing-suspected theta-missing-family-default";
  EXPECT_EQ(codes(llama({{"rope_scaling", scaling}, {"max_position_embeddings", 131072}})), both);
  EXPECT_EQ(codes(llama({{"rope_theta", nullptr}, {"rope_scaling", scaling}, {"max_position_embeddings", 131072}})), both);
  const Model model = llama({{"vocab_size", 128256}, {"max_position_embeddings", 8192}});
  EXPECT_EQ(codes(model), both);
  EXPECT_EQ(model.worst(), Level::warning);
  EXPECT_LT(model.doubts.front().cost()->mean_cosine, 0.6);
  EXPECT_EQ(codes(llama({{"vocab_size", 32000}})), "theta-missing-family-default");
  EXPECT_EQ(codes(llama({{"vocab_size", 128256}, {"rope_theta", 10000}})), "");
}

// A value of another kind is not a missing one.
TEST(Kinds, WhatCannotBeReadIsNotCalledMissing) {
  EXPECT_EQ(codes(llama({{"rope_theta", "500000"}})), "value-kind");
  EXPECT_EQ(codes(read(config("qwen2", {{"rope_theta", "500000"}}))), "value-kind");
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", "8"}}}})), "value-kind");
  const Model large = llama({{"rope_theta", 1e4}, {"max_position_embeddings", 4611686018427387904}});
  EXPECT_EQ(large.doubts.front().message, "max_position_embeddings: expected an integer within ±2^53, got 4611686018427387904");
}

TEST(Shapes, ImagesNeedNotBeSquare) {
  const auto rows = [](const json& image, const json& patch) {
    const Model model = read(config("vit", {{"image_size", image}, {"patch_size", patch}}));
    EXPECT_EQ(codes(model), "");
    return std::get<absolute::Learned>(model.groups.front().spec.absolute->rule).rows;
  };
  EXPECT_EQ(rows(224, 16), 197);
  EXPECT_EQ(rows({224, 448}, 16), 393);
  EXPECT_EQ(rows({224, 448}, {16, 32}), 197);
  const json bad[] = {0, -224, 1048577, {-224, -224}, {224, 0}, {224, 224, 3}, {std::numeric_limits<std::int64_t>::min(), 1}, 8, "224"};
  for (const auto& image : bad)
    EXPECT_EQ(codes(read(config("vit", {{"image_size", image}, {"patch_size", 16}}))), "value-invalid") << image;
  EXPECT_EQ(codes(read(config("beit", {{"image_size", {224, 448}}}))), "value-invalid");
}

TEST(Shapes, HeadDimComesFromItsKeyOrTheQuotient) {
  EXPECT_EQ(llama({{"rope_theta", 1e4}}).head_dim, 128);
  EXPECT_EQ(llama({{"rope_theta", 1e4}, {"head_dim", 64}}).head_dim, 64);
  EXPECT_EQ(llama({{"rope_theta", 1e4}, {"head_dim", nullptr}}).head_dim, 128);
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"num_attention_heads", 33}, {"num_key_value_heads", 33}})), "head-dim-fractional");
}

TEST(Shapes, BadShapesAreErrorDoubts) {
  for (const auto& keys : {json{{"head_dim", 65}},
                           json{{"head_dim", 0}},
                           json{{"head_dim", -2}},
                           json{{"head_dim", 1 << 30}},
                           json{{"head_dim", 1e18}},
                           json{{"head_dim", "128"}},
                           json{{"head_dim", 128.5}},
                           json{{"head_dim", true}},
                           json{{"num_attention_heads", 0}},
                           json{{"num_hidden_layers", -1}},
                           json{{"num_hidden_layers", 100000000}},
                           json{{"num_hidden_layers", "many"}},
                           json{{"rope_theta", 0}},
                           json{{"rope_theta", -1e4}},
                           json{{"rope_theta", "10000"}},
                           json{{"rope_scaling", "linear"}},
                           json{{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}},
                           json{{"rope_scaling", {{"type", "linear"}}}},
                           json{{"rope_scaling", {{"type", 7}}}},
                           json{{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 2048.5}}}},
                           json{{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 0}}}}}) {
    json all = {{"rope_theta", 1e4}};
    all.update(keys);
    const Model model = llama(all);
    EXPECT_EQ(model.worst(), Level::error) << keys << " " << codes(model);
    EXPECT_THROW(rotary_of(model), Error) << keys;
    EXPECT_NO_THROW(to_json(model)) << keys;
  }
}

TEST(Shapes, HeadsThatDoNotDivideAreDoubted) {
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"num_key_value_heads", 5}})), "heads-not-divisible");
}

TEST(Keys, AnotherFamilysSpellingIsUsedAndDoubted) {
  const Model base = read(config("qwen3", {{"head_dim", 128}, {"rotary_emb_base", 1e6}}));
  EXPECT_EQ(codes(base), "foreign-key");
  EXPECT_EQ(rotary_of(base).theta, 1e6);
  EXPECT_EQ(codes(read(config("gpt_neox", {{"rotary_emb_base", 1e4}, {"rotary_pct", 0.5}}))), "");
  EXPECT_EQ(codes(read(config("gpt_neox", {{"rope_theta", 1e4}, {"rotary_pct", 0.5}}))), "foreign-key");
  const Model own = read(config("gpt_neox", {{"rope_theta", 1e6}, {"rotary_emb_base", 1e4}, {"rotary_pct", 0.5}}));
  EXPECT_EQ(codes(own), "keys-conflict");
  EXPECT_EQ(rotary_of(own).theta, 1e4);
}

TEST(Keys, TwoSpellingsMustAgree) {
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"n_embd", 4096}})), "");
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"n_embd", 2048}})), "keys-conflict");
}

TEST(Keys, PositionKeysThatNoRuleReadsAreListed) {
  const Model model = llama(
      {{"rope_theta", 1e4}, {"rope_flavour", "mild"}, {"hidden_act", "silu"}, {"rope_extra", nullptr}, {"chunk_size_feed_forward", 0}});
  EXPECT_EQ(model.unread, std::vector<std::string>{"rope_flavour"});
}

TEST(Json, IsTheDocumentedObject) {
  const Model model = llama({{"rope_theta", 1e6}, {"max_position_embeddings", 40960}, {"rope_scaling", yarn_t10}});
  const json object = json::parse(to_json(model));
  const auto keys = [](const json& value) {
    std::vector<std::string> names;
    for (const auto& item : value.items()) names.push_back(item.key());
    return names;
  };
  EXPECT_EQ(keys(object), (std::vector<std::string>{"doubts", "groups", "length", "model", "schema", "source", "unread"}));
  EXPECT_EQ(keys(object["groups"][0]),
            (std::vector<std::string>{"absolute", "bias", "dual_chunk", "layers", "mask", "origins", "query_temperature", "rotary",
                                      "rotates_output_back", "rotates_values", "sink_logits", "softcap", "softmax_scale"}));
  EXPECT_EQ(object["length"], (json{{"declared", 40960}, {"derived", 131072}, {"original", 32768}}));
  EXPECT_EQ(object["groups"][0]["softmax_scale"].get<double>(), std::pow(128.0, -0.5));
  EXPECT_EQ(rotary_from_json(object["groups"][0]["rotary"].dump()), rotary_of(model));
  EXPECT_EQ(object["doubts"][0]["code"], "factor-vs-length-ratio");
  EXPECT_EQ(object["doubts"][0]["level"], "warning");
}

}  // namespace
}  // namespace gnomon::test
