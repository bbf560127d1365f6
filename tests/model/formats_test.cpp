// SPDX-License-Identifier: Apache-2.0
// The formats of other tools, each recognised by its keys.
#include <gtest/gtest.h>

#include "gnomon/gnomon.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

Model read_any(const json& root) { return read_text(root.dump(), "any.name"); }

// ── LitGPT ──

json litgpt(const json& keys) {
  json result = {{"n_layer", 6},       {"n_head", 8},          {"n_query_groups", 2}, {"n_embd", 512},
                 {"block_size", 4096}, {"rope_base", 10000.0}, {"head_size", 64},     {"rotary_percentage", 1.0}};
  result.update(keys);
  return result;
}

TEST(Litgpt, AdjustmentsChooseTheRule) {
  const auto rule = [](const json& adjustments) { return rotary_of(read_any(litgpt({{"rope_adjustments", adjustments}}))).rule; };
  EXPECT_EQ(rule({{"factor", 8}}), RotaryRule(rotary::Linear{8}));
  EXPECT_EQ(rule({{"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}, {"original_max_seq_len", 8192}}),
            RotaryRule(rotary::Llama3{8, 1, 4, 8192}));
  const auto yarn = std::get<rotary::Yarn>(rule({{"factor", 4}, {"original_max_seq_len", 1024}, {"beta_fast", 32}, {"beta_slow", 1}}));
  EXPECT_EQ(yarn.original_max_position_embeddings, 1024);
}

TEST(Litgpt, TwoBasesAndAWindow) {
  const Model model = read_any(litgpt({{"rope_local_base_freq", 1000},
                                       {"sliding_window_size", 100},
                                       {"sliding_window_indices", {1, 1, 0, 1, 1, 0}},
                                       {"rope_adjustments", {{"factor", 8}}}}));
  EXPECT_EQ(model.format, "litgpt");
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(rotary_of(model, 0), (RotarySpec{rotary::Default{}, 1000, 64, 64}));  // never scaled
  EXPECT_EQ(rotary_of(model, 2), (RotarySpec{rotary::Linear{8}, 10000, 64, 64}));
  EXPECT_EQ(model.groups[0].spec.mask.window, 100);
  EXPECT_EQ(codes(read_any(litgpt({{"rope_indices", {1, 0}}, {"sliding_window_size", 9}}))), "layer-list-short");
  EXPECT_EQ(codes(read_any(litgpt({{"rope_n_elem", 32}}))), "rotary-width-conflict");
}

// ── Meta, llama2.c, executorch ──

json meta(const json& keys) {
  json result = {{"dim", 512}, {"n_layers", 8}, {"n_heads", 8}, {"n_kv_heads", 2}, {"rope_theta", 500000.0}};
  result.update(keys);
  return result;
}

TEST(Meta, TheWeightsAreInterleaved) {
  const Model model = read_any(meta({{"multiple_of", 256}}));
  EXPECT_EQ(model.format, "meta");
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(rotary_of(model), (RotarySpec{rotary::Default{}, 500000, 64, 64, 0, PairLayout::interleaved}));
  EXPECT_EQ(rotary_of(read_any(meta({{"use_hf_rope", true}}))).layout, PairLayout::half_split);
}

TEST(Meta, ScaledRopeIsConstantsOfTheCode) {
  const Model model = read_any(meta({{"use_scaled_rope", true}}));
  EXPECT_EQ(rotary_of(model).rule, RotaryRule(rotary::Llama3{8, 1, 4, 8192}));
  EXPECT_EQ(codes(model), "scaling-constants");
  EXPECT_EQ(model.worst(), Level::note);
  EXPECT_EQ(codes(read_any(meta({{"use_scaled_rope", true}, {"rope_scale_factor", 32}}))), "");
  // The shape of Llama 3.2 1B, whose Hugging Face file says 32: telling 8 from 32 is the point.
  const Model small = read_any(meta({{"use_scaled_rope", true}, {"dim", 2048}, {"n_layers", 16}, {"n_heads", 32}}));
  EXPECT_EQ(codes(small), "scaling-factor-unstated");
  EXPECT_EQ(small.worst(), Level::warning);
  ASSERT_TRUE(small.doubts[0].cost());
  EXPECT_LT(small.doubts[0].cost()->mean_cosine, 0.99);
  EXPECT_NE(rotary_of(small).rule, RotaryRule(rotary::Llama3{32, 1, 4, 8192}));
}

TEST(Meta, Llama4) {
  const Model model = read_any(
      meta({{"nope_layer_interval", 4}, {"attention_chunk_size", 8192}, {"attn_temperature_tuning", true}, {"use_scaled_rope", true}}));
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(rotary_of(model, 0).rule, RotaryRule(rotary::Llama3{16, 1, 1, 8192}));
  EXPECT_EQ(model.groups[0].spec.mask.chunk, 8192);
  EXPECT_EQ(model.groups[1].layers, (std::vector{3, 7}));
  EXPECT_EQ(model.groups[1].spec.rotary, std::nullopt);
  EXPECT_EQ(model.groups[1].spec.mask.chunk, std::nullopt);
  EXPECT_EQ(model.groups[1].spec.query_temperature, QueryTemperature(StepTemperature{0.1, 8192, 1}));
  EXPECT_EQ(model.groups[0].spec.query_temperature, std::nullopt);
}

// ── Mistral ──

json mistral(const json& keys) {
  json result = meta({{"head_dim", 128}, {"hidden_dim", 2048}});
  result.update(keys);
  return result;
}

TEST(Mistral, YarnHasItsOwnNames) {
  const auto yarn = [](const json& extra) {
    json block = {{"factor", 16}, {"original_max_position_embeddings", 16384}, {"beta", 32}, {"alpha", 1}};
    block.update(extra);
    return rotary_of(read_any(mistral({{"yarn", block}, {"max_position_embeddings", 262144}})));
  };
  const RotarySpec spec = yarn({{"apply_scale", false}});
  EXPECT_EQ(std::get<rotary::Yarn>(spec.rule).beta_fast, 32);
  EXPECT_EQ(effective_attention_factor(spec), 1);
  EXPECT_NEAR(effective_attention_factor(yarn({{"apply_scale", true}})), 1.2772588722239781, 1e-15);  // m(16, 1), not 1
  EXPECT_EQ(spec.layout, PairLayout::interleaved);
}

TEST(Mistral, WindowsAreRepeatedOverTheLayers) {
  const Model model = read_any(mistral({{"sliding_window", {100, nullptr}}}));
  EXPECT_EQ(model.format, "mistral");
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(model.groups[0].layers, (std::vector{0, 2, 4, 6}));
  EXPECT_EQ(model.groups[0].spec.mask.window, 100);
  EXPECT_EQ(model.groups[1].spec.mask.window, std::nullopt);
}

TEST(Mistral, TheBaseDependsOnTheWindow) {
  json without = mistral(json::object());
  without.erase("rope_theta");
  EXPECT_EQ(rotary_of(read_any(without)).theta, 1e6);
  without["sliding_window"] = 4096;
  EXPECT_EQ(rotary_of(read_any(without)).theta, 1e4);
  EXPECT_EQ(codes(read_any(without)), "theta-missing-family-default");
}

TEST(Mistral, LatentAttentionAndQueryTemperature) {
  const Model model = read_any(mistral({{"qk_nope_head_dim", 64},
                                        {"qk_rope_head_dim", 32},
                                        {"llama_4_scaling", {{"original_max_position_embeddings", 8192}, {"beta", 0.1}}}}));
  EXPECT_EQ(rotary_of(model), (RotarySpec{rotary::Default{}, 500000, 96, 32, 64, PairLayout::interleaved}));
  EXPECT_EQ(model.groups[0].spec.query_temperature, QueryTemperature(StepTemperature{0.1, 8192, 0}));
}

// ── TensorRT-LLM ──

json tensorrt(const json& keys) {
  json result = {
      {"architecture", "LlamaForCausalLM"}, {"num_hidden_layers", 4}, {"num_attention_heads", 8}, {"hidden_size", 512}, {"mapping", {}},
      {"max_position_embeddings", 2048},    {"rotary_base", 500000.0}};
  result.update(keys);
  return result;
}

TEST(TensorrtLlm, KindsOfPosition) {
  const auto group = [](const json& keys) { return read_any(tensorrt(keys)).groups.at(0).spec; };
  EXPECT_EQ(group({{"position_embedding_type", "rope_gpt_neox"}}).rotary, (RotarySpec{rotary::Default{}, 500000, 64, 64}));
  EXPECT_EQ(group({{"position_embedding_type", "rope_gptj"}}).rotary->layout, PairLayout::interleaved);
  EXPECT_EQ(group({{"position_embedding_type", "rope_gpt_neox"}, {"rotary_pct", 0.25}}).rotary->rotary_dim, 16);
  EXPECT_EQ(group({{"position_embedding_type", "learned_absolute"}}).absolute, (AbsoluteSpec{absolute::Learned{.rows = 2048}, 512}));
  EXPECT_EQ(group({{"position_embedding_type", "alibi"}}).bias, BiasRule(bias::Alibi::of_heads(8)));
  const auto scaled = std::get<bias::Alibi>(*group({{"position_embedding_type", "alibi_with_scale"}}).bias);
  EXPECT_EQ(scaled.slopes[0], 0.5 * 0.125);  // Falcon: (score + bias) * scale
  EXPECT_EQ(codes(read_any(tensorrt({{"position_embedding_type", "made_up"}}))), "position-unknown");
}

TEST(TensorrtLlm, AnEngineHoldsItsCheckpoint) {
  const Model model =
      read_any({{"version", "1.0"},
                {"build_config", {{"max_seq_len", 4096}}},
                {"pretrained_config",
                 tensorrt({{"position_embedding_type", "rope_gpt_neox"}, {"rotary_scaling", {{"type", "linear"}, {"factor", 4}}}})}});
  EXPECT_EQ(model.format, "tensorrt-llm");
  EXPECT_EQ(rotary_of(model).rule, RotaryRule(rotary::Linear{4}));
  EXPECT_EQ(model.groups[0].origins.at("rotary.theta").key, "pretrained_config.rotary_base");
}

// ── Megatron ──

constexpr const char* launch = R"(
python pretrain_gpt.py \
    --num-layers 4 --hidden-size 512 \
    --num-attention-heads 8 --group-query-attention --num-query-groups 2 \
    --position-embedding-type rope --rotary-base 500000 --rotary-percent 0.5 \
    --use-rope-scaling --seq-length 4096 --max-position-embeddings 4096
)";
constexpr const char* log_text = R"(
------------------------ arguments ------------------------
  group_query_attention ........................... True
  hidden_size ..................................... 512
  max_position_embeddings ......................... 4096
  num_attention_heads ............................. 8
  num_layers ...................................... 4
  num_query_groups ................................ 2
  position_embedding_type ......................... rope
  rotary_base ..................................... 500000
  rotary_percent .................................. 0.5
  use_rope_scaling ................................ True
-------------------- end of arguments ---------------------
)";

TEST(Megatron, FlagsALogAndJsonSayTheSame) {
  const json object = {{"num_layers", 4},          {"hidden_size", 512},
                       {"num_attention_heads", 8}, {"group_query_attention", true},
                       {"num_query_groups", 2},    {"rotary_base", 500000},
                       {"rotary_percent", 0.5},    {"position_embedding_type", "rope"},
                       {"use_rope_scaling", true}, {"max_position_embeddings", 4096}};
  const RotarySpec wanted{rotary::Llama3{8, 1, 4, 8192}, 500000, 64, 32};
  for (const std::string& text : {std::string(launch), std::string(log_text), object.dump()}) {
    const Model model = read_text(text, "arguments");
    EXPECT_EQ(model.format, "megatron") << text;
    EXPECT_EQ(model.kv_heads, 2);
    EXPECT_EQ(rotary_of(model), wanted) << text;
  }
}

TEST(Megatron, WindowsAndLayersThatDoNotRotate) {
  const Model model = read_any({{"num_layers", 4},
                                {"hidden_size", 512},
                                {"num_attention_heads", 8},
                                {"position_embedding_type", "rope"},
                                {"rotary_base", 10000},
                                {"rotary_interleaved", true},
                                {"window_size", {127, 0}},
                                {"window_attn_skip_freq", 2},
                                {"no_rope_freq", 4}});
  std::string text(4, '-');
  for (const auto& group : model.groups) {
    for (const int layer : group.layers)
      text[static_cast<std::size_t>(layer)] = group.spec.mask.window ? (group.spec.rotary ? 's' : 'S') : group.spec.rotary ? 'f' : 'F';
  }
  EXPECT_EQ(text, "sfsF");
  EXPECT_EQ(model.groups[0].spec.mask.window, 128);  // 127 keys to the left, and the query itself
  EXPECT_EQ(rotary_of(model, 0).layout, PairLayout::interleaved);
}

TEST(Megatron, WithoutARotation) {
  const auto spec = [](const char* type) {
    return read_any({{"num_layers", 4},
                     {"hidden_size", 512},
                     {"num_attention_heads", 8},
                     {"seq_length", 1024},
                     {"position_embedding_type", type}})
        .groups.at(0)
        .spec;
  };
  EXPECT_EQ(spec("learned_absolute").absolute, (AbsoluteSpec{absolute::Learned{.rows = 1024}, 512}));
  EXPECT_EQ(spec("relative").bias, BiasRule(bias::T5{}));
  EXPECT_EQ(spec("none").rotary, std::nullopt);
}

TEST(Arguments, YamlOfLitgpt) {
  const Model model = read_text(
      "name: some\n"
      "block_size: 131072\n"
      "n_layer: 4\n"
      "n_head: 8\n"
      "n_embd: 512\n"
      "head_size: 64\n"
      "rotary_percentage: 1.0\n"
      "rope_base: 500000\n"
      "rope_adjustments:\n"
      "  factor: 8.0\n"
      "  low_freq_factor: 1.0\n"
      "  high_freq_factor: 4.0\n"
      "  original_max_seq_len: 8192\n"
      "sliding_window_size: null\n",
      "model_config.yaml");
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(rotary_of(model).rule, RotaryRule(rotary::Llama3{8, 1, 4, 8192}));
}

TEST(Arguments, WhatStandsTwiceIsRefused) {
  EXPECT_THROW(read_text("--num-layers 4 --num-layers 5 --num-attention-heads 8 --rotary-base 1 --seq-length 2"), Error);
  EXPECT_THROW(read_text("num_layers: 4\nnum-layers: 4\n"), Error);
  EXPECT_THROW(read_text("\xff\xfe: 1\n"), Error);
}

// ── any kind of value under any key ──

TEST(Formats, JsonOfOtherKindsUnderEveryKey) {
  const std::vector<json> kinds = {nullptr,
                                   true,
                                   -1,
                                   0,
                                   3,
                                   1e300,
                                   0.5,
                                   "",
                                   "text",
                                   json::array(),
                                   json::array({1, "a"}),
                                   json::object(),
                                   {{"factor", 4}},
                                   {{"alpha", 0}},
                                   std::uint64_t{18446744073709551615U}};
  for (const auto& whole :
       {litgpt({{"sliding_window_size", 9}, {"rope_indices", {1, 0, 1, 0, 1, 0}}, {"rope_adjustments", {{"factor", 2}}}}),
        meta({{"use_scaled_rope", true}, {"no_rope_layer_interval", 4}, {"layer_types", {"conv"}}, {"attention_chunk_size", 8}}),
        mistral({{"yarn", {{"factor", 2}}},
                 {"sliding_window", {9, nullptr}},
                 {"llama_4_scaling", {{"beta", 1}}},
                 {"qk_rope_head_dim", 4},
                 {"qk_nope_head_dim", 4}}),
        tensorrt({{"position_embedding_type", "alibi"}, {"rotary_scaling", {{"type", "yarn"}}}, {"rotary_pct", 0.5}}),
        json{{"num_layers", 4},
             {"hidden_size", 64},
             {"num_attention_heads", 4},
             {"kv_channels", 16},
             {"rotary_base", 100},
             {"position_embedding_type", "rope"},
             {"window_size", {3, 0}},
             {"no_rope_freq", {0, 1}},
             {"multi_latent_attention", true},
             {"relative_attention_num_buckets", 4}}}) {
    for (const auto& item : whole.items()) {
      for (const auto& kind : kinds) {
        json keys = whole;
        keys[item.key()] = kind;
        try {
          EXPECT_NO_THROW(to_json(read_in_memory(keys.dump()))) << keys;
        } catch (const Error&) {
        }
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
