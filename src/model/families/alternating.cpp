// SPDX-License-Identifier: Apache-2.0
// Families whose layers take turns: windows, NoPE layers, bases of their own. Sources: transformers 5.24 (the class of each), the released
// files.
#include <fmt/format.h>

#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto pattern = WindowRule::pattern;

// Trained logits in the denominator, of the layers that the file names.
void mimo_v2(HfContext& model) {
  const auto mark = [&](LayerType type, const char* key) {
    const auto added = model.keys().boolean(key);
    for (const auto kind : model.kinds_of(type)) {
      model.kind(kind).sink_logits = added && added->value;
      if (added) model.kind(kind).origins["sink_logits"] = added->origin;
    }
  };
  mark(LayerType::sliding, "add_swa_attention_sink_bias");
  mark(LayerType::full, "add_full_attention_sink_bias");
  model.keys().find("sliding_window_size");
}

}  // namespace

std::vector<Family> alternating_families() {
  return {
      {.name = "gpt-oss",
       .model_types = {"gpt_oss"},
       .class_prefix = "GptOssFor",
       .architectures = {"gpt-oss"},
       .v4_theta = 150000,
       .head_dim = 64,
       .window_rule = pattern,
       .window = 128,
       .pattern = 2,
       .sink_logits = true},
      {.name = "OLMo 3",
       .model_types = {"olmo3"},
       .class_prefix = "Olmo3For",
       .theta = 500000,
       .v4_theta = 500000,
       .scales_sliding = false,
       .window_rule = pattern,
       .window = 4096,
       .pattern = 4},
      {.name = "Cohere 2",
       .model_types = {"cohere2"},
       .class_prefix = "Cohere2For",
       .architectures = {"cohere2"},
       .layout = PairLayout::interleaved,
       .gguf_layout = PairLayout::interleaved,
       .window_rule = pattern,
       .window = 4096,
       .pattern = 4,
       .rotates = Rotates::sliding_layers},
      {.name = "EXAONE 4",
       .model_types = {"exaone4", "exaone_moe"},
       .class_prefix = "Exaone4For",
       .architectures = {"exaone4"},
       .window_rule = pattern,
       .window = 4096,
       .pattern = 4,
       .rotates = Rotates::sliding_layers},
      {.name = "AFMoE",
       .model_types = {"afmoe"},
       .class_prefix = "AfmoeFor",
       .architectures = {"afmoe"},
       .theta = 10000,
       .head_dim = 128,
       .window_rule = pattern,
       .window = 1024,
       .pattern = 4,
       .rotates = Rotates::sliding_layers},
      {.name = "MiMo-V2",
       .model_types = {"mimo_v2_flash", "mimo_v2"},
       .class_prefix = "MiMoV2",
       .since_v5 = true,
       .sliding_theta_key = "swa_rope_theta",
       .theta = 5000000,
       .sliding_theta = 10000,
       .partial = true,
       .rotary_fraction = 0.334,
       .window_rule = WindowRule::every_layer,
       .window = 128,
       .hook = mimo_v2},
      {.name = "Step-3.5",
       .model_types = {"step3p7", "step3p5", "step3p7_text"},
       .class_prefix = "Step3p",
       .since_v5 = true,
       .scales_sliding = false,
       .partial = true,
       .expected_keys = {"rope_theta", "partial_rotary_factors"}},
      {.name = "Laguna",
       .model_types = {"laguna"},
       .class_prefix = "LagunaFor",
       .since_v5 = true,
       .sliding_theta_key = "swa_rope_theta",
       .theta = 500000,
       .sliding_theta = 10000,
       .partial = true,
       .rotary_fraction = 0.5,
       .sliding_fraction = 1,
       .head_dim = 128,
       .window = 512},
      {.name = "Zaya",
       .model_types = {"zaya"},
       .class_prefix = "ZayaFor",
       .since_v5 = true,
       .sliding_theta_key = "swa_rope_theta",
       .theta = 5000000,
       .sliding_theta = 10000,
       .partial = true,
       .rotary_fraction = 0.5,
       .head_dim = 128},
  };
}

}  // namespace gnomon::files
