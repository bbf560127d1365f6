// SPDX-License-Identifier: Apache-2.0
// Conversion: nothing is lost in silence, whatever the rule and the dialect; and GGUF keys as the reader of GGUF files takes them.
#include "gnomon/convert.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gguf_writer.hpp"
#include "gnomon/frequencies.hpp"
#include "support.hpp"
#include "support/property.hpp"

namespace gnomon::test {
namespace {

using testing_support::for_every_rule;
using testing_support::PropertyDraw;

constexpr Dialect dialects[] = {Dialect::transformers, Dialect::transformers_v4, Dialect::llama_cpp, Dialect::gguf,
                                Dialect::vllm,         Dialect::exllama,         Dialect::mlx};

bool close(double a, double b) { return std::abs(a - b) <= 2e-6 * std::max(a, b) || std::max(a, b) < 1e-25; }

bool run_alike(const RotarySpec& a, const RotarySpec& b, std::int64_t length) {
  const auto left = frequencies(a, Numerics::exact, length), right = frequencies(b, Numerics::exact, length);
  if (left.inv_freq.size() != right.inv_freq.size() || left.log_magnitude.empty() != right.log_magnitude.empty()) return false;
  if (left.axis != right.axis || !close(left.attention_factor, right.attention_factor)) return false;
  for (std::size_t i = 0; i < left.inv_freq.size(); i++) {
    if (!close(left.inv_freq[i], right.inv_freq[i])) return false;
  }
  return true;
}

// Lengths between the shortest and the configured one are tried too, where nothing may have changed either.
TEST(Convert, IsTheIdentityOrSaysWhatIsLost) {
  testing_support::SpecLimits limits;
  limits.axes = true;
  for (const Dialect dialect : dialects) {
    const std::string name(enum_names<Dialect>[static_cast<std::size_t>(dialect)]);
    for_every_rule("conversion to " + name, limits, [&](PropertyDraw& draw, const RotarySpec& spec) {
      ConvertOptions options;
      if (draw.whole(0, 1) == 1) options.context = draw.whole(1, 2000000);
      Conversion conversion;
      try {
        conversion = convert(spec, dialect, options);
      } catch (const Error& error) {  // a report too, and the only one these two get
        RC_ASSERT(error.code() == ErrorCode::unsupported);
        RC_ASSERT(spec.axes > 1 || std::holds_alternative<rotary::Custom>(spec.rule));
        return;
      }
      RC_LOG() << conversion.text << "\n";
      RC_ASSERT(conversion.layers.size() == 1u);
      RC_ASSERT(conversion.layers.front().asked == spec);
      if (!conversion.losses.empty()) {
        for (const auto& loss : conversion.losses) RC_ASSERT(!loss.message.empty());
        return;
      }
      RC_ASSERT(conversion.layers.front().runs.has_value());
      for (const std::int64_t length : {std::int64_t{1}, std::max<std::int64_t>(conversion.context, 1)}) {
        RC_ASSERT(run_alike(spec, *conversion.layers.front().runs, length));
      }
    });
  }
}

// A writer names every difference that its reader makes: "other frequencies" would mean that it does not know of one.
TEST(Convert, EveryLossHasAReason) {
  testing_support::SpecLimits limits;
  limits.axes = true;
  for (const Dialect dialect : dialects) {
    const std::string name(enum_names<Dialect>[static_cast<std::size_t>(dialect)]);
    for_every_rule("reasons in " + name, limits, [&](PropertyDraw&, const RotarySpec& spec) {
      try {
        for (const auto& loss : convert(spec, dialect).losses) {
          RC_LOG() << loss.field << ": " << loss.message << "\n";
          RC_ASSERT(!loss.message.starts_with("other "));
          RC_ASSERT(loss.message.find(" instead of ") != 0);
        }
      } catch (const Error&) {
        RC_SUCCEED("refused");
      }
    });
  }
}

/// A GGUF file with the keys that were written beside the shape of a small model.
Model read_written(const Conversion& conversion, const std::string& name = "llama", std::uint32_t head_dim = 128) {
  GgufWriter writer;
  writer.text("general.architecture", name);
  writer.u32(name + ".block_count", 1).u32(name + ".embedding_length", head_dim);
  writer.u32(name + ".attention.head_count", 1).u32(name + ".attention.head_count_kv", 1);
  for (const auto& entry : json::parse(conversion.setting)) {
    const std::string key = entry["key"], type = entry["type"];
    if (type == "u32") writer.u32(key, entry["value"]);
    if (type == "f32") writer.f32(key, entry["value"]);
    if (type == "string") writer.text(key, entry["value"].get<std::string>());
    if (type == "tensor f32") writer.tensor(key, entry["value"].get<std::vector<float>>());
  }
  const Folder folder;
  return read_model(folder.write("model.gguf", writer.file()));
}

TEST(Convert, GgufKeysAreWhatTheReaderOfFilesTakes) {
  const std::vector<RotaryRule> rules = {rotary::Default{}, rotary::Linear{4}, rotary::Ntk{4},
                                         rotary::Yarn{.factor = 8, .original_max_position_embeddings = 4096, .beta_fast = 16},
                                         rotary::Llama3{.factor = 8, .original_max_position_embeddings = 8192}};
  for (const auto& rule : rules) {
    const RotarySpec spec{rule, 500000, 128, 128, 0, PairLayout::interleaved, {}};
    const auto conversion = convert(spec, Dialect::gguf, {.context = 32768});
    EXPECT_TRUE(conversion.losses.empty());
    const Model model = read_written(conversion);
    EXPECT_EQ(find_doubt(model, "frequency-tensor"), nullptr);
    EXPECT_TRUE(run_alike(rotary_of(model), spec, 1)) << conversion.text;
    EXPECT_EQ(model.declared, 32768);
    RotarySpec wrong = spec;
    wrong.theta = 10000;
    EXPECT_FALSE(run_alike(rotary_of(model), wrong, 1));
  }
}

TEST(Convert, AMagnitudeOfYarnIsWrittenAsAMultiplier) {
  RotarySpec spec{rotary::Yarn{.factor = 8, .original_max_position_embeddings = 4096}, 10000, 128, 128, 0, PairLayout::interleaved, {}};
  spec.attention_factor = 1;
  const Model model = read_written(convert(spec, Dialect::gguf));
  EXPECT_NEAR(effective_attention_factor(rotary_of(model)), 1, 1e-6);
  spec.attention_factor.reset();
  EXPECT_NEAR(effective_attention_factor(spec), 1.20794415416798, 1e-12);  // without the multiplier
}

Model deepseek(const json& scaling) {
  const json widths = {{"qk_nope_head_dim", 128}, {"qk_rope_head_dim", 64}, {"kv_lora_rank", 512}, {"rope_theta", 10000}};
  json keys = config("deepseek_v3", widths);
  keys["rope_scaling"] = {{"type", "yarn"}, {"factor", 40}, {"original_max_position_embeddings", 4096}};
  keys["rope_scaling"].update(scaling);
  keys["max_position_embeddings"] = 163840;
  return read(keys);
}

bool loses(const Conversion& conversion, std::string_view field) {
  return std::any_of(conversion.losses.begin(), conversion.losses.end(), [&](const Loss& loss) { return loss.field == field; });
}

// 192^-1/2 times (0.1 * mscale_all_dim * ln 40 + 1)^2, as published for V3 and V2.
TEST(Convert, TheSoftmaxScaleOfLatentAttentionIsKept) {
  for (const auto& [mscale, scale] : {std::pair{1.0, 0.13523378}, {0.707, 0.11472139}}) {
    const Model model = deepseek({{"mscale", mscale}, {"mscale_all_dim", mscale}});
    ASSERT_NEAR(model.groups.front().spec.softmax_scale, scale, 1e-7);
    const auto conversion = convert(model, Dialect::gguf);
    EXPECT_TRUE(conversion.losses.empty());
    const Model written = read_written(conversion, "deepseek2", 192);
    EXPECT_NEAR(written.groups.front().spec.softmax_scale, scale, 1e-7) << conversion.text;
    EXPECT_NEAR(effective_attention_factor(rotary_of(written)), 1, 1e-6) << conversion.text;
    for (const Dialect dialect : dialects) EXPECT_TRUE(convert(model, dialect).losses.empty()) << to_json(convert(model, dialect));
  }
}

// An engine that keeps the model's own rule beside its settings keeps its scale too, which is not that of the rule asked for.
TEST(Convert, AnotherSoftmaxScaleIsALoss) {
  const Model model = deepseek({{"mscale", 1}, {"mscale_all_dim", 1}});
  const ConvertOptions linear{.method = "linear:4", .context = {}};
  EXPECT_TRUE(loses(convert(model, Dialect::exllama, linear), "softmax_scale"));
  EXPECT_FALSE(loses(convert(model, Dialect::vllm, linear), "softmax_scale"));
}

TEST(Convert, KeysOfGgufBeginWithLlamaCppsNameOfTheArchitecture) {
  const std::pair<const char*, const char*> names[] = {
      {"llama", "llama"},           {"mistral", "llama"},           {"mixtral", "llama"},      {"qwen2_moe", "qwen2moe"},
      {"qwen3_moe", "qwen3moe"},    {"qwen3_vl_moe", "qwen3vlmoe"}, {"qwen2_5_vl", "qwen2vl"}, {"olmo3", "olmo2"},
      {"minimax_m2", "minimax-m2"}, {"modernbert", "modern-bert"}};
  for (const auto& [type, name] : names) {
    const auto conversion = convert(read(config(type, {{"rope_theta", 10000}})), Dialect::gguf);
    EXPECT_TRUE(conversion.text.starts_with(std::string(name) + ".")) << type << "\n" << conversion.text;
    EXPECT_FALSE(loses(conversion, "architecture")) << type;
  }
  const auto unknown = convert(read(config("helium", {{"rope_theta", 10000}})), Dialect::gguf);
  EXPECT_TRUE(loses(unknown, "architecture"));
  EXPECT_TRUE(unknown.text.starts_with("<architecture>.")) << unknown.text;
}

// The one family of LitGPT whose layers have two bases; transformers 4 has a key for the second.
TEST(Convert, Gemma3OfLitgptIsGemma3) {
  const Model model = read({{"n_layer", 6},
                            {"n_head", 4},
                            {"n_embd", 256},
                            {"head_size", 64},
                            {"n_query_groups", 1},
                            {"block_size", 131072},
                            {"rope_n_elem", 64},
                            {"rope_base", 1000000},
                            {"rope_local_base_freq", 10000},
                            {"sliding_window_size", 1024},
                            {"sliding_window_indices", {1, 1, 1, 1, 1, 0}}});
  const auto conversion = convert(model, Dialect::transformers_v4);
  EXPECT_TRUE(conversion.losses.empty()) << to_json(conversion);
  EXPECT_NE(conversion.text.find("rope_local_base_freq"), std::string::npos);
  EXPECT_TRUE(convert(model, Dialect::gguf).text.starts_with("gemma3."));
}

TEST(Convert, AMethodThatFallsShortIsNoted) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  const Model model = llama({{"rope_theta", 500000}, {"rope_scaling", scaling}, {"max_position_embeddings", 131072}});
  const auto notes = [&](const std::string& method, std::optional<std::int64_t> context) {
    std::string all;
    for (const auto& note : convert(model, Dialect::vllm, {.method = method, .context = context}).notes) all += note + "\n";
    return all;
  };
  EXPECT_NE(notes("yarn:4", {}).find("reaches 32768 tokens"), std::string::npos);
  EXPECT_NE(notes("yarn:4", {}).find("the model declares 131072"), std::string::npos);
  EXPECT_NE(notes("yarn:4", 131072).find("the context asked for is 131072"), std::string::npos);
  EXPECT_EQ(notes("yarn:4", 32768), "");
  EXPECT_EQ(notes("yarn:16", {}), "");
  EXPECT_EQ(notes("theta:1000000", 131072).find("reaches"), std::string::npos);
}

TEST(Convert, RefusesDoubtfulModels) {
  const Model model = read(config("mistral", {}));
  EXPECT_THROW(convert(model, Dialect::vllm), Error);
}

}  // namespace
}  // namespace gnomon::test
