// SPDX-License-Identifier: Apache-2.0
// Conversion: nothing is lost in silence, whatever the rule and the dialect; and GGUF keys as the reader of GGUF files takes them.
#include "gnomon/convert.hpp"

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
Model read_written(const Conversion& conversion) {
  GgufWriter writer;
  writer.text("general.architecture", "llama");
  writer.u32("llama.block_count", 1).u32("llama.embedding_length", 128);
  writer.u32("llama.attention.head_count", 1).u32("llama.attention.head_count_kv", 1);
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

TEST(Convert, RefusesDoubtfulModels) {
  const Model model = read(config("mistral", {}));
  EXPECT_THROW(convert(model, Dialect::vllm), Error);
}

}  // namespace
}  // namespace gnomon::test
