// SPDX-License-Identifier: Apache-2.0
// Comparison by meaning: spellings and formats that say the same are equal, and what does not is named, with its drift.
#include "gnomon/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gnomon/error.hpp"
#include "model/gguf_writer.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

const json llama3 = {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};

Model llama31(const json& keys) {
  json all = {{"rope_theta", 500000.0}, {"max_position_embeddings", 131072}};
  if (!keys.is_null()) all.update(keys);
  return llama(all);
}

/// The Llama of support.hpp as a GGUF.
GgufWriter llama_gguf() {
  return GgufWriter()
      .text("general.architecture", "llama")
      .u32("llama.block_count", 12)
      .u32("llama.embedding_length", 4096)
      .u32("llama.attention.head_count", 32)
      .u32("llama.attention.head_count_kv", 8)
      .u32("llama.context_length", 4096)
      .u32("llama.rope.dimension_count", 128);
}
Model read(const GgufWriter& writer) { return read_text(writer.file(), "model.gguf"); }

/// "rotary.theta mask.window", of all layers.
std::string fields(const Comparison& comparison) {
  std::string result;
  const auto add = [&](const std::vector<Difference>& differences) {
    for (const auto& difference : differences) result += (result.empty() ? "" : " ") + difference.field;
  };
  add(comparison.differences);
  for (const auto& compared : comparison.layers) add(compared.differences);
  return result;
}

void expect_equal(const Model& a, const Model& b, std::size_t notes = 0) {
  const auto comparison = compare(a, b);
  EXPECT_TRUE(comparison.equal()) << fields(comparison);
  for (const auto& compared : comparison.layers) {
    EXPECT_FALSE(compared.drift);
    EXPECT_EQ(compared.notes.size(), notes);
  }
}

// T07: the column of figures for a scaling that was dropped.
TEST(Compare, ADroppedLlama3Scaling) {
  const std::int64_t distances[] = {0, 1000, 8192, 20000, 60000, 131071};
  const auto comparison = compare(llama31({{"rope_scaling", llama3}}), llama31({}), distances);
  EXPECT_FALSE(comparison.equal());
  ASSERT_EQ(comparison.layers.size(), 1U);
  const auto& compared = comparison.layers[0];
  EXPECT_EQ(compared.layers.size(), 12U);
  EXPECT_EQ(fields(comparison),
            "rotary.rule rotary.factor rotary.low_freq_factor rotary.high_freq_factor rotary.original_max_position_embeddings");
  EXPECT_EQ(compared.differences[0].a, "\"llama3\"");
  EXPECT_EQ(compared.differences[0].b, "\"default\"");
  EXPECT_EQ(compared.differences[1].b, "null");
  ASSERT_TRUE(compared.drift);
  const double figures[] = {1, 0.9630635813, 0.7689460837, 0.6267698259, 0.5394534260, 0.5018345378};
  ASSERT_EQ(compared.drift->mean_cosines.size(), 6U);
  for (std::size_t i = 0; i < 6; i++) EXPECT_NEAR(compared.drift->mean_cosines[i], figures[i], 6e-11);
  ASSERT_TRUE(compared.drift->parting.position);
  EXPECT_LT(*compared.drift->parting.position, 1000);
}

TEST(Compare, DistancesAreThoseOfTheLengthsUnlessGiven) {
  const auto comparison = compare(llama31({{"rope_scaling", llama3}}), llama31({}));
  EXPECT_EQ(comparison.layers[0].drift->distances, (std::vector<std::int64_t>{1, 10, 100, 1000, 8192, 10000, 100000, 131071}));
}

TEST(Compare, SpellingsOfOneMeaning) {
  expect_equal(llama({{"rope_theta", 500000.0}}), llama({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 500000.0}}}}));
  expect_equal(llama({}), llama({{"rope_theta", 10000.0}}));
  const json linear = {{"rope_type", "linear"}, {"factor", 1.0}};
  expect_equal(llama({}), llama({{"rope_scaling", linear}}), 1);
  // ntk is a larger base.
  const json ntk = {{"rope_type", "ntk"}, {"factor", 4.0}};
  expect_equal(llama({{"rope_scaling", ntk}}), llama({{"rope_theta", 10000 * std::pow(4.0, 128.0 / 126)}}), 1);
  EXPECT_FALSE(compare(llama({{"rope_scaling", ntk}}), llama({{"rope_theta", 40000.0}})).equal());
}

// Equal at the trained length, but not beyond it.
TEST(Compare, RulesThatDependOnTheLengthAreComparedBeyondIt) {
  const json dynamic = {{"rope_type", "dynamic"}, {"factor", 4.0}};
  const auto comparison = compare(llama({{"rope_scaling", dynamic}}), llama({}));
  EXPECT_EQ(fields(comparison), "rotary.rule rotary.factor rotary.max_position_embeddings");
}

// Rows are permuted by the converter, so both layouts are right.
TEST(Compare, AConfigAndAGgufOfOneLlama) {
  const Model config = llama({{"rope_theta", 500000.0}});
  const auto comparison = compare(config, read(llama_gguf().f32("llama.rope.freq_base", 500000)));
  EXPECT_TRUE(comparison.equal()) << fields(comparison);
  ASSERT_EQ(comparison.layers.at(0).notes.size(), 1U);
  EXPECT_NE(comparison.layers[0].notes[0].find("permuted"), std::string::npos);
  EXPECT_EQ(comparison.layers[0].b->layout, PairLayout::half_split);

  const auto other = compare(config, read(llama_gguf().f32("llama.rope.freq_base", 10000)));
  EXPECT_EQ(fields(other), "rotary.theta");
  ASSERT_TRUE(other.layers[0].drift);
  EXPECT_NEAR(other.layers[0].drift->mean_cosines[0], 0.99858, 5e-6) << "T08, not the drift of two layouts";
}

TEST(Compare, AConfigAndTheAuthorsOwnParams) {
  const json params = {{"dim", 4096},     {"n_layers", 12},         {"n_heads", 32},
                       {"n_kv_heads", 8}, {"rope_theta", 500000.0}, {"max_seq_len", 4096}};
  const auto comparison = compare(llama({{"rope_theta", 500000.0}}), read_text(params.dump(), "params.json"));
  EXPECT_TRUE(comparison.equal()) << fields(comparison);
  ASSERT_EQ(comparison.layers.at(0).notes.size(), 1U);
  EXPECT_NE(comparison.layers[0].notes[0].find("permuted"), std::string::npos);
}

TEST(Compare, LayoutsDifferWhereNothingIsPermuted) {
  Model turned = llama({});
  turned.groups[0].spec.rotary->layout = PairLayout::interleaved;
  EXPECT_EQ(fields(compare(llama({}), turned)), "rotary.layout") << "two files of one format";
  turned.format = "gguf", turned.type = "qwen2";
  EXPECT_EQ(fields(compare(llama({}), turned)), "rotary.layout") << "an architecture whose rows stay";
}

TEST(Compare, NumbersAreEqualUpToAFloat32) {
  const Model config = llama({{"rope_theta", 11158839.93}});
  EXPECT_TRUE(compare(config, read(llama_gguf().f32("llama.rope.freq_base", 11158839.93F))).equal());
  EXPECT_FALSE(compare(config, read(llama_gguf().f32("llama.rope.freq_base", 11158900))).equal());
}

TEST(Compare, LayerByLayer) {
  const auto gemma = [](int window, double local) {
    return test::read(config("gemma3_text", {{"head_dim", 256},
                                             {"rope_theta", 1e6},
                                             {"rope_local_base_freq", local},
                                             {"sliding_window", window},
                                             {"sliding_window_pattern", 6},
                                             {"query_pre_attn_scalar", 256}}));
  };
  const auto comparison = compare(gemma(512, 10000), gemma(1024, 20000));
  ASSERT_EQ(comparison.layers.size(), 2U);
  EXPECT_EQ(comparison.layers[0].layers, (std::vector<int>{0, 1, 2, 3, 4, 6, 7, 8, 9, 10}));
  EXPECT_EQ(fields(comparison), "rotary.theta mask.window");
  EXPECT_TRUE(comparison.layers[0].drift);
  EXPECT_TRUE(comparison.layers[1].differences.empty());
  EXPECT_TRUE(compare(gemma(512, 10000), gemma(512, 10000)).equal());
}

TEST(Compare, EveryFieldOfASetUpCounts) {
  const Model plain = llama({});
  const auto field = [&](auto change) {
    Model other = plain;
    change(other.groups[0].spec);
    const auto comparison = compare(plain, other);
    EXPECT_EQ(comparison.equal(), fields(comparison).empty());
    return fields(comparison);
  };
  EXPECT_EQ(field([](PositionSpec&) {}), "");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.softcap = 50; }), "softcap");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.sink_logits = true; }), "sink_logits");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.rotates_values = true; }), "rotates_values");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.softmax_scale = 1; }), "softmax_scale");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.mask.chunk = 8192; }), "mask.chunk");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.query_temperature.emplace(); }), "query_temperature");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.rotary->attention_factor = 1.5; }), "rotary.attention_factor");
  EXPECT_EQ(field([](PositionSpec& spec) { spec.rotary.reset(); }), "rotary");
}

TEST(Compare, LayersAndLengths) {
  Model shorter = llama({{"num_hidden_layers", 11}, {"max_position_embeddings", 2048}});
  const auto comparison = compare(llama({}), shorter);
  EXPECT_EQ(fields(comparison), "length.declared layer");
  EXPECT_EQ(comparison.layers.back().layers, std::vector<int>{11});
}

TEST(Compare, APartThatOneFileDescribesIsANote) {
  Model with_vision = llama({});
  with_vision.groups[0].part = "text";
  LayerGroup vision = with_vision.groups[0];
  vision.part = "vision", vision.layers = {0, 1};
  with_vision.groups.push_back(vision);
  const auto comparison = compare(with_vision, llama({}));
  EXPECT_TRUE(comparison.equal()) << fields(comparison);
  EXPECT_EQ(comparison.notes, std::vector<std::string>{"the part vision is described by A only"});
}

TEST(Compare, RefusesWhatCannotBeTrusted) {
  const Model unknown = llama({{"rope_scaling", {{"rope_type", "magic"}, {"factor", 2.0}}}});
  EXPECT_THROW(compare(unknown, llama({})), Error);
  EXPECT_THROW(compare(llama({}), unknown), Error);
}

TEST(Compare, TheJson) {
  const auto got = json::parse(to_json(compare(llama31({{"rope_scaling", llama3}}), llama31({}))));
  EXPECT_EQ(got["schema"], 1);
  EXPECT_EQ(got["equal"], false);
  EXPECT_EQ(got["a"]["type"], "llama");
  EXPECT_EQ(got["groups"][0]["differences"][0], (json{{"field", "rotary.rule"}, {"a", "llama3"}, {"b", "default"}}));
  EXPECT_EQ(got["groups"][0]["rotary"]["a"]["rule"], "llama3");
  EXPECT_EQ(got["groups"][0]["drift"]["distances"].size(), got["groups"][0]["drift"]["mean_cosines"].size());
  EXPECT_TRUE(json::parse(to_json(compare(llama({}), llama({}))))["groups"][0]["drift"].is_null());
}

}  // namespace
}  // namespace gnomon::test
