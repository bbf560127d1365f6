// SPDX-License-Identifier: Apache-2.0
// Families of which no released file is among the test data: what their code knows, each with the wrong reading people got.
#include <gtest/gtest.h>

#include <cmath>

#include "gnomon/gnomon.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

const LayerGroup& part(const Model& model, std::string_view name) {
  for (const auto& group : model.groups) {
    if (group.part == name) return group;
  }
  throw std::runtime_error("no part " + std::string(name));
}

absolute::Learned learned(const LayerGroup& group) { return std::get<absolute::Learned>(group.spec.absolute.value().rule); }

const PositionSpec& only(const Model& model) {
  EXPECT_EQ(model.groups.size(), 1U) << codes(model);
  return model.groups.at(0).spec;
}

std::vector<int> every(int step, int first, int count) {
  std::vector<int> result;
  for (int i = first; i < count; i += step) result.push_back(i);
  return result;
}

// ── tables of positions ──

TEST(LearnedFamilies, Gpt2HasNoOffset) {
  const Model model = read({{"model_type", "gpt2"}, {"n_embd", 768}, {"n_layer", 12}, {"n_head", 12}, {"n_positions", 1024}});
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(learned(model.groups[0]).rows, 1024);
  EXPECT_EQ(learned(model.groups[0]).offset, 0);
  EXPECT_EQ(only(model).softmax_scale, 0.125);
  const Model unscaled = read(
      {{"model_type", "gpt2"}, {"n_embd", 768}, {"n_layer", 12}, {"n_head", 12}, {"n_positions", 1024}, {"scale_attn_weights", false}});
  EXPECT_EQ(only(unscaled).softmax_scale, 1);
}

TEST(LearnedFamilies, BigCodeHasOneKeyHead) {
  const Model model = read(
      {{"model_type", "gpt_bigcode"}, {"n_embd", 2048}, {"n_layer", 24}, {"n_head", 16}, {"n_positions", 2048}, {"multi_query", true}});
  EXPECT_EQ(model.kv_heads, 1);
  EXPECT_EQ(learned(model.groups[0]).rows, 2048);
}

// 514 rows for 512 positions, the first at padding_idx + 1: not 514 positions, and not row 0.
TEST(LearnedFamilies, RobertaCountsItsPadding) {
  for (const auto* type : {"roberta", "xlm-roberta", "camembert", "longformer"}) {
    const Model model = read(config(type, {{"max_position_embeddings", 514}}));
    EXPECT_EQ(codes(model), "");
    EXPECT_EQ(learned(model.groups[0]).rows, 514);
    EXPECT_EQ(learned(model.groups[0]).offset, 2);
    EXPECT_EQ(model.declared, 514);
    EXPECT_EQ(model.derived, 512);
    EXPECT_FALSE(only(model).mask.causal);
  }
}

TEST(LearnedFamilies, MpnetAddsBucketsToItsTable) {
  const PositionSpec spec = only(read(config("mpnet", {{"max_position_embeddings", 514}, {"relative_attention_num_buckets", 32}})));
  ASSERT_TRUE(spec.absolute && spec.bias);
  EXPECT_TRUE(std::get<bias::T5>(*spec.bias).bidirectional);
}

// Two rows more than the file says.
TEST(LearnedFamilies, BartBeginsAtRowTwo) {
  const json keys = {{"model_type", "mbart"},
                     {"d_model", 1024},
                     {"encoder_layers", 12},
                     {"decoder_layers", 6},
                     {"encoder_attention_heads", 16},
                     {"decoder_attention_heads", 16},
                     {"max_position_embeddings", 1024},
                     {"num_hidden_layers", 12}};
  const Model model = read(keys);
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(model.layers, 6);
  EXPECT_EQ(part(model, "encoder").layers.size(), 12U);
  EXPECT_EQ(learned(part(model, "encoder")).rows, 1026);
  EXPECT_EQ(learned(part(model, "decoder")).offset, 2);
  EXPECT_TRUE(part(model, "decoder").spec.mask.causal);
  EXPECT_FALSE(part(model, "encoder").spec.mask.causal);
  EXPECT_EQ(part(model, "encoder").spec.softmax_scale, 0.125);
}

TEST(LearnedFamilies, WhisperLarge) {
  const Model model = read({{"model_type", "whisper"},
                            {"d_model", 1280},
                            {"encoder_layers", 32},
                            {"decoder_layers", 32},
                            {"encoder_attention_heads", 20},
                            {"decoder_attention_heads", 20},
                            {"max_source_positions", 1500},
                            {"max_target_positions", 448}});
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(learned(part(model, "decoder")).rows, 448);
  const auto& rule = std::get<absolute::Sinusoidal>(part(model, "encoder").spec.absolute.value().rule);
  EXPECT_EQ(rule.denominator, absolute::SinusoidDenominator::half_minus_one);  // not the width
  EXPECT_EQ(part(model, "encoder").spec.absolute->width, 1280);
}

TEST(LearnedFamilies, TablesNarrowerThanTheModel) {
  EXPECT_EQ(only(read(config("electra", {{"embedding_size", 128}, {"max_position_embeddings", 512}}))).absolute.value().width, 128);
  const Model distil =
      read({{"model_type", "distilbert"}, {"dim", 768}, {"n_layers", 6}, {"n_heads", 12}, {"max_position_embeddings", 512}});
  EXPECT_EQ(codes(distil), "");
  EXPECT_EQ(only(distil).absolute.value().width, 768);
}

TEST(LearnedFamilies, EsmAsksItsKey) {
  EXPECT_TRUE(only(read(config("esm", {{"position_embedding_type", "rotary"}}))).rotary);
  EXPECT_TRUE(only(read(config("esm", {{"position_embedding_type", "absolute"}}))).absolute);
}

// ── biases ──

// Falcon adds the biases before it divides by the root of the head's width.
TEST(BiasFamilies, FalconRwScalesItsSlopes) {
  const Model model =
      read({{"model_type", "falcon"}, {"hidden_size", 2048}, {"num_hidden_layers", 24}, {"num_attention_heads", 32}, {"alibi", true}});
  EXPECT_EQ(codes(model), "");
  const auto& rule = std::get<bias::Alibi>(only(model).bias.value());
  EXPECT_DOUBLE_EQ(rule.slopes.front(), std::exp2(-0.25) / 8);
  EXPECT_GT(std::abs(rule.slopes.front() - std::exp2(-0.25)), 0.7);  // the slopes of the paper
  EXPECT_FALSE(only(model).rotary);
}

TEST(BiasFamilies, MptStatesTheLargestExponent) {
  const json shape = {{"model_type", "mpt"}, {"d_model", 512}, {"n_layers", 2}, {"n_heads", 8}, {"max_seq_len", 2048}};
  const auto with = [&](json attention) {
    json keys = shape;
    keys["attn_config"] = std::move(attention);
    return read(keys);
  };
  const Model model = with({{"alibi", true}, {"alibi_bias_max", 16}});
  EXPECT_EQ(std::get<bias::Alibi>(only(model).bias.value()).slopes.front(), 0.25);  // 0.5 with 8
  EXPECT_EQ(only(with({{"rope", true}, {"rope_theta", 5e5}})).rotary.value().theta, 5e5);
  EXPECT_TRUE(only(with({{"alibi", false}})).absolute);
}

TEST(BiasFamilies, AnUnknownFamilyMaySayAlibi) {
  EXPECT_TRUE(only(read(config("brand_new", {{"alibi", true}}))).bias);
  EXPECT_EQ(codes(read(config("brand_new", {{"alibi", true}}))), "family-unknown");
}

// ── rotations of part of a head ──

TEST(PartialFamilies, DefaultsOfTheCode) {
  struct Row {
    const char* type;
    json keys;
    int head_dim, rotary_dim;
    PairLayout layout;
  };
  constexpr auto half = PairLayout::half_split, inter = PairLayout::interleaved;
  for (const auto& [type, keys, head_dim, rotary_dim, layout] :
       {Row{"nemotron", {{"rope_theta", 1e4}}, 128, 64, half}, Row{"persimmon", {}, 128, 64, half},
        Row{"glm4", {{"head_dim", 128}}, 128, 64, inter}, Row{"codegen", {{"rotary_dim", 32}}, 128, 32, inter},
        Row{"stablelm", {{"rope_theta", 1e4}}, 128, 32, half}, Row{"minimax_m2", {{"rope_theta", 5e6}, {"rotary_dim", 64}}, 128, 64, half},
        Row{"bamba", {}, 128, 64, half}}) {
    const Model model = read(config(type, keys));
    const RotarySpec& spec = only(model).rotary.value();
    EXPECT_EQ(spec.head_dim, head_dim) << type;
    EXPECT_EQ(spec.rotary_dim, rotary_dim) << type;
    EXPECT_EQ(spec.layout, layout) << type;
    EXPECT_NE(model.worst(), Level::error) << type << codes(model);
  }
}

TEST(PartialFamilies, ListsWithAnEntryForEachLayer) {
  json types = json::array(), thetas = json::array(), widths = json::array();
  for (int i = 0; i < 12; i++) {
    types.push_back(i % 4 == 0 ? "full_attention" : "sliding_attention");
    thetas.push_back(i % 4 == 0 ? 5e6 : 1e4);
    widths.push_back(i % 4 == 0 ? 0.5 : 1.0);
  }
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 2.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 32.0},
                        {"original_max_position_embeddings", 2048}};
  const Model model = read(config("step3p5", {{"head_dim", 128},
                                              {"layer_types", types},
                                              {"sliding_window", 512},
                                              {"rope_theta", thetas},
                                              {"partial_rotary_factors", widths},
                                              {"rope_scaling", scaling}}));
  EXPECT_EQ(codes(model), "engine-ignores-key engine-ignores-key");
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(rotary_of(model, 0).theta, 5e6);
  EXPECT_EQ(rotary_of(model, 0).rotary_dim, 64);
  EXPECT_EQ(rule_name(rotary_of(model, 0).rule), "llama3");
  EXPECT_EQ(rotary_of(model, 1).theta, 1e4);
  EXPECT_EQ(rotary_of(model, 1).rotary_dim, 128);
  EXPECT_EQ(rule_name(rotary_of(model, 1).rule), "default");  // scaled as the full layers it would be llama3
}

// ── latent attention ──

TEST(LatentFamilies, MiniCpm3IsHalfSplit) {
  const Model model =
      read(config("minicpm3", {{"rope_theta", 1e4}, {"qk_nope_head_dim", 64}, {"qk_rope_head_dim", 32}, {"kv_lora_rank", 256}}));
  const RotarySpec& spec = only(model).rotary.value();
  EXPECT_EQ(spec.head_dim, 96);
  EXPECT_EQ(spec.rotary_offset, 64);
  EXPECT_EQ(spec.layout, PairLayout::half_split);
  EXPECT_DOUBLE_EQ(only(model).softmax_scale, std::pow(96.0, -0.5));
}

// T13: the scale of DeepSeek-V2-Lite and V3 carries YaRN's magnitude squared.
TEST(LatentFamilies, TheMagnitudeGoesToTheScore) {
  const auto scale = [](double mscale) {
    const json block = {{"type", "yarn"},
                        {"factor", 40},
                        {"beta_fast", 32},
                        {"beta_slow", 1},
                        {"mscale", mscale},
                        {"mscale_all_dim", mscale},
                        {"original_max_position_embeddings", 4096}};
    const Model model = read(config("deepseek_v3", {{"rope_theta", 1e4},
                                                    {"max_position_embeddings", 163840},
                                                    {"qk_nope_head_dim", 128},
                                                    {"qk_rope_head_dim", 64},
                                                    {"rope_scaling", block}}));
    EXPECT_EQ(codes(model), "");
    EXPECT_EQ(frequencies(rotary_of(model)).attention_factor, 1);
    return only(model).softmax_scale;
  };
  EXPECT_NEAR(scale(0.707), 0.114721386792926, 1e-15);
  EXPECT_NEAR(scale(1.0), 0.135233778860880, 1e-15);
  EXPECT_GT(std::abs(scale(0.707) - 0.0721687836487032), 0.04);  // the root of the width alone
}

TEST(LatentFamilies, KimiLinearNeverTurnsItsSlice) {
  json linear = {{"full_attn_layers", {4, 8, 12}}};
  const Model model = read(
      config("kimi_linear", {{"qk_nope_head_dim", 128}, {"qk_rope_head_dim", 64}, {"mla_use_nope", true}, {"linear_attn_config", linear}}));
  EXPECT_EQ(codes(model), "rope-width-not-rotated");
  EXPECT_EQ(model.groups.at(0).layers, (std::vector{3, 7, 11}));  // 1-based in the file
  EXPECT_FALSE(model.groups[0].spec.rotary);
  EXPECT_EQ(model.non_attention_layers.size(), 9U);
}

TEST(LatentFamilies, AnUnknownFamilyIsReadByItsKeys) {
  const Model model =
      read(config("brand_new", {{"rope_theta", 1e4}, {"kv_lora_rank", 512}, {"qk_nope_head_dim", 128}, {"qk_rope_head_dim", 64}}));
  EXPECT_EQ(codes(model), "family-unknown");
  EXPECT_EQ(only(model).rotary.value().rotary_offset, 128);
  EXPECT_EQ(only(model).rotary->layout, PairLayout::interleaved);
}

// ── layers that take turns ──

TEST(AlternatingFamilies, CohereTwoRotatesWhereItSlides) {
  const Model model = read(config(
      "cohere2", {{"rope_theta", 5e4}, {"sliding_window", 4096}, {"sliding_window_pattern", 4}, {"max_position_embeddings", 132096}}));
  EXPECT_EQ(codes(model), "");
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(model.groups[1].layers, every(4, 3, 12));
  EXPECT_FALSE(model.groups[1].spec.rotary);
  EXPECT_EQ(model.groups[0].spec.rotary.value().layout, PairLayout::interleaved);
  EXPECT_EQ(model.groups[0].spec.mask.window, 4096);
}

TEST(AlternatingFamilies, ExaoneWithoutAWindowRotatesEverywhere) {
  const Model model = read(config("exaone4", {{"rope_theta", 1e6}, {"sliding_window", nullptr}, {"sliding_window_pattern", nullptr}}));
  EXPECT_TRUE(only(model).rotary);
}

TEST(AlternatingFamilies, AfmoeAndGemma3n) {
  const Model afmoe = read(config("afmoe", {{"rope_theta", 1e4}, {"sliding_window", 1024}, {"global_attn_every_n_layers", 4}}));
  EXPECT_FALSE(afmoe.groups.at(1).spec.rotary);
  EXPECT_EQ(afmoe.groups[1].layers, every(4, 3, 12));
  const Model gemma =
      read(config("gemma3n_text", {{"rope_theta", 1e6}, {"rope_local_base_freq", 1e4}, {"head_dim", 256}, {"sliding_window", 512}}));
  EXPECT_EQ(gemma.groups.at(1).layers, every(5, 4, 12));
  EXPECT_EQ(rotary_of(gemma, 4).theta, 1e6);
  EXPECT_EQ(rotary_of(gemma, 0).theta, 1e4);
  EXPECT_EQ(gemma.groups[0].spec.softmax_scale, 1);
}

TEST(AlternatingFamilies, LagunaAndZayaHaveTwoWidths) {
  json types = json::array_t(12, "sliding_attention");
  types[3] = "full_attention";
  const json blocks = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e5}, {"partial_rotary_factor", 0.5}}},
                       {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 1.0}}}};
  const Model model =
      read(config("laguna", {{"head_dim", 128}, {"layer_types", types}, {"rope_parameters", blocks}, {"sliding_window", 512}}));
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(rotary_of(model, 3).rotary_dim, 64);
  EXPECT_EQ(rotary_of(model, 0).rotary_dim, 128);
  json hybrid = json::array_t(12, "hybrid");
  hybrid[1] = "hybrid_sliding";
  const Model zaya = read(config("zaya", {{"head_dim", 128},
                                          {"layer_types", hybrid},
                                          {"sliding_window", 512},
                                          {"rope_parameters",
                                           {{"hybrid", {{"rope_theta", 5e6}, {"partial_rotary_factor", 0.5}}},
                                            {"hybrid_sliding", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}}}}));
  EXPECT_EQ(codes(zaya), "");
  EXPECT_EQ(rotary_of(zaya, 0).theta, 5e6);
  EXPECT_EQ(rotary_of(zaya, 1).theta, 1e4);
}

TEST(AlternatingFamilies, NoRopeListsAreOnesWhereALayerRotates) {
  const json mostly = {1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0};
  json inverted = json::array();
  for (const auto& one : mostly) inverted.push_back(1 - one.get<int>());
  const Model model = read(config("smollm3", {{"rope_theta", 5e6}, {"no_rope_layers", mostly}}));
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(model.groups.at(1).layers, every(4, 3, 12));
  EXPECT_FALSE(model.groups[1].spec.rotary);
  EXPECT_EQ(codes(read(config("smollm3", {{"rope_theta", 5e6}, {"no_rope_layers", inverted}}))), "no-rope-list-inverted");
  EXPECT_EQ(codes(read(config("smollm3", {{"rope_theta", 5e6}, {"no_rope_layers", json::array()}}))), "no-rope-list-empty");
  EXPECT_EQ(read(config("smollm3", {{"rope_theta", 5e6}})).groups.at(1).layers, every(4, 3, 12));
  EXPECT_EQ(read(config("brand_new", {{"rope_theta", 5e6}, {"no_rope_layers", mostly}})).groups.at(1).layers, every(4, 3, 12));
}

TEST(AlternatingFamilies, LlamaFourTempersTheQueriesThatDoNotTurn) {
  const Model model = read(config(
      "llama4_text", {{"rope_theta", 5e5}, {"head_dim", 128}, {"attention_chunk_size", 8192}, {"max_position_embeddings", 1048576}}));
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(model.groups.at(0).spec.mask.chunk, 8192);
  EXPECT_EQ(model.groups.at(1).spec.mask.chunk, std::nullopt);
  EXPECT_FALSE(model.groups[0].spec.query_temperature);
  EXPECT_EQ(std::get<StepTemperature>(model.groups[1].spec.query_temperature.value()), (StepTemperature{0.1, 8192, 1}));
  const Model untuned = read(config("llama4_text", {{"rope_theta", 5e5}, {"attn_temperature_tuning", false}}));
  EXPECT_FALSE(untuned.groups.at(1).spec.query_temperature);
}

// ── hybrids ──

TEST(HybridFamilies, LayersWithoutAttention) {
  const Model jamba = read(config("jamba", {{"attn_layer_period", 8}, {"attn_layer_offset", 4}}));
  EXPECT_EQ(codes(jamba), "");
  EXPECT_EQ(jamba.groups.at(0).layers, (std::vector{4}));
  EXPECT_FALSE(jamba.groups[0].spec.rotary);

  json types = json::array_t(12, "mamba");
  types[5] = "attention";
  const Model nope =
      read(config("granitemoehybrid",
                  {{"layer_types", types}, {"position_embedding_type", "nope"}, {"rope_theta", 1e4}, {"attention_multiplier", 0.0078125}}));
  EXPECT_EQ(nope.groups.at(0).layers, (std::vector{5}));
  EXPECT_FALSE(nope.groups[0].spec.rotary);  // although the file has a base
  EXPECT_EQ(nope.groups[0].spec.softmax_scale, 0.0078125);
  const Model rope = read(config("granitemoehybrid", {{"layer_types", types}, {"position_embedding_type", "rope"}, {"rope_theta", 1e4}}));
  EXPECT_TRUE(rope.groups.at(0).spec.rotary);
}

TEST(HybridFamilies, RemovedAttention) {
  json blocks = json::array_t(12, {{"attention", {{"no_op", false}}}});
  blocks[4]["attention"]["no_op"] = true;
  const Model model = read(config("nemotron-nas", {{"rope_theta", 5e5}, {"block_configs", blocks}}));
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(model.non_attention_layers, (std::vector{4}));
}

TEST(HybridFamilies, LettersTellHowManyLayersThereAre) {
  const Model model = read({{"model_type", "nemotron_h"},
                            {"hidden_size", 2688},
                            {"num_attention_heads", 32},
                            {"head_dim", 128},
                            {"hybrid_override_pattern", "MEM*E"},
                            {"max_position_embeddings", 4096}});
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(model.layers, 5);
  EXPECT_EQ(model.groups.at(0).layers, (std::vector{3}));
}

TEST(LearnedFamilies, TheFirstChatGlmIsAnotherModel) {
  const Model model = read(config("chatglm", {{"position_encoding_2d", true}, {"max_sequence_length", 2048}}));
  EXPECT_NE(find_doubt(model, "rule-not-available"), nullptr) << codes(model);
  EXPECT_FALSE(model.groups.at(0).spec.rotary);
}

TEST(Parts, EncoderAndDecoderObjects) {
  const json stack = {{"model_type", "t5_gemma_module"},
                      {"hidden_size", 2304},
                      {"num_hidden_layers", 4},
                      {"num_attention_heads", 8},
                      {"num_key_value_heads", 4},
                      {"head_dim", 256},
                      {"rope_theta", 1e4},
                      {"sliding_window", 4096},
                      {"max_position_embeddings", 8192},
                      {"attn_logit_softcapping", 50.0}};
  const Model model = read({{"model_type", "t5gemma"}, {"encoder", stack}, {"decoder", stack}});
  EXPECT_EQ(codes(model), "");
  EXPECT_FALSE(part(model, "encoder").spec.mask.causal);
  EXPECT_TRUE(model.groups.at(0).spec.mask.causal);
}

// ── types of layers in other spellings, and rules that have no numbers here ──

TEST(GptNeo, TypesThatRepeat) {
  const auto neo = [](const char* types) {
    json keys = {{"model_type", "gpt_neo"},         {"hidden_size", 2048}, {"num_layers", 6}, {"num_heads", 16},
                 {"max_position_embeddings", 2048}, {"window_size", 256}};
    keys["attention_types"] = json::parse(types);
    return read(keys);
  };
  for (const auto* types :
       {"null", R"([[["global", "local"], 3]])", R"([[["global", "local"], 1], [["global", "local", "global", "local"], 1]])"}) {
    const Model model = neo(types);
    EXPECT_EQ(codes(model), "");
    ASSERT_EQ(model.groups.size(), 2U);
    EXPECT_EQ(model.groups[0].layers, every(2, 0, 6));
    EXPECT_EQ(model.groups[0].spec.mask.window, std::nullopt);
    EXPECT_EQ(model.groups[1].spec.mask.window, 256);
    EXPECT_EQ(model.groups[1].spec.softmax_scale, 1);
  }
  EXPECT_EQ(neo(R"([[["local"], 6]])").groups.at(0).spec.mask.window, 256);
  EXPECT_NE(find_doubt(neo(R"([[["global"], 4]])"), "layer-list-short"), nullptr);
  EXPECT_NE(find_doubt(neo(R"([[["global"], 60000]])"), "layer-list-length"), nullptr);
  EXPECT_NE(find_doubt(neo(R"([[["nowhere"], 6]])"), "layer-type-unknown"), nullptr);
  for (const auto* bad : {R"([["global", 6]])", R"([[["global"], -1]])", R"([[["global"], 1e9]])", R"("global")", R"([[["global"]]])"}) {
    EXPECT_NE(find_doubt(neo(bad), "value-kind"), nullptr) << bad;
  }
}

// Its rotate_half gives (x2, -x1).
TEST(Nanochat, TurnsTheOtherWay) {
  const Model model = read(config("nanochat", {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}));
  EXPECT_EQ(codes(model), "rotation-reversed");
  EXPECT_EQ(model.worst(), Level::warning);
  EXPECT_EQ(rotary_of(model).layout, PairLayout::half_split);
}

TEST(TransformerXl, IsKnownAndHasNoNumbers) {
  const Model model = read({{"model_type", "xlnet"}, {"d_model", 768}, {"n_layer", 12}, {"n_head", 12}, {"attn_type", "bi"}});
  EXPECT_EQ(codes(model), "rule-not-available");
  EXPECT_EQ(model.layers, 12);
  EXPECT_FALSE(only(model).mask.causal);
  EXPECT_FALSE(only(model).rotary || only(model).absolute || only(model).bias);
  EXPECT_TRUE(only(read({{"model_type", "xlnet"}, {"d_model", 768}, {"n_layer", 12}, {"n_head", 12}, {"attn_type", "uni"}})).mask.causal);
}

// ── Hunyuan, nomic, and other names of known rules ──

TEST(Aliases, AlphaIsNtkAtEveryLength) {
  const json block = {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}};
  const Model model = read(config("hunyuan_v1_dense", {{"rope_theta", 1e4}, {"head_dim", 128}, {"rope_scaling", block}}));
  EXPECT_EQ(codes(model), "scaling-type-alias");
  const double base = std::pow(frequencies(rotary_of(model)).inv_freq[1], -64.0);
  EXPECT_NEAR(base, 11158839.93, 0.1);  // 10000 read as transformers' dynamic
}

TEST(Aliases, NomicIsDynamicWhereItHasAFactor) {
  const json keys = {{"rotary_emb_base", 1000}, {"rotary_emb_fraction", 1.0}, {"max_trained_positions", 2048}, {"n_positions", 8192}};
  json scaled = keys;
  scaled["rotary_scaling_factor"] = 2;
  EXPECT_EQ(rule_name(only(read(config("nomic_bert", keys))).rotary.value().rule), "default");
  const auto rule = only(read(config("nomic_bert", scaled))).rotary.value().rule;
  EXPECT_EQ(std::get<rotary::Dynamic>(rule).max_position_embeddings, 2048);  // not 8192
}

// ── towers ──

TEST(Towers, QwenRotatesRowsAndColumns) {
  const Model model = read({{"model_type", "qwen2_5_vl"},
                            {"hidden_size", 2048},
                            {"num_hidden_layers", 4},
                            {"num_attention_heads", 16},
                            {"max_position_embeddings", 128000},
                            {"rope_theta", 1e6},
                            {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
                            {"vision_config", {{"depth", 2}, {"hidden_size", 1280}, {"num_heads", 16}}}});
  const PositionSpec& vision = part(model, "vision").spec;
  EXPECT_EQ(vision.rotary.value().axes, 2);
  EXPECT_EQ(vision.rotary->rotary_dim, 80);
  EXPECT_FALSE(vision.mask.causal);
  EXPECT_EQ(frequencies(*vision.rotary).inv_freq[20], 1);           // the frequencies begin anew for columns
  EXPECT_EQ(rotary_of(model).sections, (std::vector{16, 24, 24}));  // that of the text, with no layer named
}

// Gemma 4's turns rows within the first half of a head and columns within the second, which no pair layout here says: naming the tower is
// all that is true. So are other models in the file, under whatever key.
TEST(Towers, OnesThatCannotBeSaidAreListedAsUnread) {
  const json stack = {{"num_hidden_layers", 2}, {"hidden_size", 64}, {"num_attention_heads", 4}};
  const auto unread = [&](const char* type, const json& others) {
    json keys = config(type, {{"rope_theta", 1e6}});
    keys.update(others);
    return read(keys).unread;
  };
  EXPECT_EQ(unread("llama", {{"vision_config", {{"model_type", "gemma4_vision"}, {"depth", 2}}}}),
            std::vector<std::string>{"vision_config"});
  EXPECT_EQ(unread("qwen2", {{"talker_config", stack}, {"quantization_config", {{"bits", 4}}}}), std::vector<std::string>{"talker_config"});
  EXPECT_EQ(unread("qwen2", {{"vision_config", stack}, {"audio_config", stack}}),
            (std::vector<std::string>{"vision_config", "audio_config"}));
}

TEST(Towers, AnUnknownOneIsListedAsUnread) {
  const Model model = llama({{"rope_theta", 1e4}, {"vision_config", {{"model_type", "brand_new"}, {"patch_size", 14}}}});
  EXPECT_EQ(model.unread, std::vector<std::string>{"vision_config"});
}

// ── doubts of the whole ──

TEST(MoreDoubts, MagnitudeInTwoWays) {
  json block = {{"type", "yarn"}, {"factor", 16.0}, {"original_max_position_embeddings", 8192}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}};
  const auto with = [&](double stated) {
    block["attention_factor"] = stated;
    return llama({{"rope_theta", 1e6}, {"max_position_embeddings", 131072}, {"rope_scaling", block}});
  };
  EXPECT_NE(find_doubt(with(1.27), "magnitude-conflict"), nullptr);
  EXPECT_EQ(find_doubt(with(1.0), "magnitude-conflict"), nullptr);
  EXPECT_EQ(frequencies(rotary_of(with(1.0))).attention_factor, 1);  // T13 (a): not 1.27725887222398
}

TEST(MoreDoubts, ListsAndSectionsOfTheWrongLength) {
  const json block = {{"type", "longrope"}, {"short_factor", json::array_t(47, 1.0)}, {"long_factor", json::array_t(48, 2.0)}};
  const Model model = read(
      config("phi3", {{"rope_theta", 1e4}, {"hidden_size", 3072}, {"original_max_position_embeddings", 2048}, {"rope_scaling", block}}));
  ASSERT_NE(find_doubt(model, "longrope-list-length"), nullptr) << codes(model);
  EXPECT_EQ(find_doubt(model, "longrope-list-length")->keys, std::vector<std::string>{"rope_scaling.short_factor"});
  const Model sections =
      read(config("qwen2_vl", {{"rope_theta", 1e6}, {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 20}}}}}));
  ASSERT_NE(find_doubt(sections, "sections-sum"), nullptr) << codes(sections);
}

TEST(MoreDoubts, WindowsThatAnotherKeySwitchesOff) {
  const json keys = {{"rope_theta", 1e6}, {"sliding_window", 1024}, {"use_sliding_window", false}};
  EXPECT_EQ(codes(read(config("qwen2", keys))), "window-disabled");
}

TEST(MoreDoubts, ABaseThatOnlyConvertersState) {
  EXPECT_EQ(codes(read(config("qwen2", {{"rope_theta", 1e4}}))), "theta-suspected-default");
  EXPECT_EQ(codes(read(config("qwen2", {{"rope_theta", 1e6}}))), "");
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}})), "");
}

TEST(MoreDoubts, WhatOnlyVersionFiveReads) {
  const json block = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  EXPECT_EQ(codes(llama({{"rope_parameters", block}})), "");  // version 4 falls back to the same base
  const json scaled = {{"rope_type", "linear"}, {"rope_theta", 1e4}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  const Model model = llama({{"rope_parameters", scaled}});
  EXPECT_EQ(codes(model), "rope-parameters-only");
  EXPECT_EQ(find_doubt(model, "rope-parameters-only")->level, Level::warning);
  EXPECT_NE(find_doubt(model, "rope-parameters-only")->message.find("linear scaling dropped"), std::string::npos);
  EXPECT_EQ(codes(read(config("glm_moe_dsa", {{"rope_parameters", {{"rope_theta", 8e6}, {"rope_type", "default"}}}}))), "");  // not in 4
}

TEST(MoreDoubts, NumbersThatARuleRefuses) {
  const Model t5 =
      read({{"model_type", "t5"}, {"d_model", 512}, {"num_layers", 6}, {"num_heads", 8}, {"relative_attention_num_buckets", 0}});
  EXPECT_EQ(t5.worst(), Level::error) << codes(t5);
  EXPECT_FALSE(t5.groups.at(0).spec.bias);
  EXPECT_EQ(codes(read(config("llama4_text", {{"rope_theta", 5e5}, {"head_dim", 128}, {"attention_chunk_size", -4}}))), "value-invalid");
  EXPECT_EQ(codes(read(config("llama4_text", {{"rope_theta", 5e5}, {"head_dim", 128}, {"floor_scale", 0}}))), "value-invalid");
  const json chunks = {{"chunk_size", 0}, {"local_size", 8192}};
  EXPECT_EQ(codes(read(config("qwen2", {{"rope_theta", 1e7}, {"dual_chunk_attention_config", chunks}}))), "value-invalid");
  const json sound = {{"chunk_size", 262144}, {"local_size", 8192}, {"original_max_position_embeddings", 262144}};
  EXPECT_EQ(only(read(config("qwen2", {{"rope_theta", 1e7}, {"dual_chunk_attention_config", sound}}))).dual_chunk,
            (DualChunk{262144, 8192, 262144}));
}

TEST(MoreDoubts, ListsOfAMillionEntries) {
  const Model model = llama({{"rope_theta", 1e4}, {"layer_types", json::array_t(1000000, "full_attention")}});
  EXPECT_EQ(codes(model), "layer-list-length");
  EXPECT_EQ(model.groups.at(0).layers.size(), 12U);
  EXPECT_EQ(codes(llama({{"rope_theta", 1e4}, {"no_rope_layers", json::array_t(1000000, 1)}})), "layer-list-length");
}

}  // namespace
}  // namespace gnomon::test
