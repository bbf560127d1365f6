// SPDX-License-Identifier: Apache-2.0
// Hybrids of attention with state spaces, convolutions and linear attention. Sources: transformers 5.24, the released files.
#include <fmt/format.h>

#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

// Its released files carry keys of a rotation that none of its code performs.
void idle_rope_keys(HfContext& model) {
  std::vector<std::string> keys;
  for (const auto key : {"rope_theta", "partial_rotary_factor", "rope_scaling", "rope_parameters"}) {
    if (model.keys().has(key)) keys.push_back(model.keys().full(key));
  }
  if (keys.empty()) return;
  const std::string text =
      fmt::format("{} {} there, but the attention of this family never rotates", fmt::join(keys, " and "), keys.size() == 1 ? "is" : "are");
  model.doubts().add("rope-keys-unused", keys, text);
}

// Its shared attention, whose heads are twice as wide, rotates on demand only.
void zamba2(HfContext& model) {
  if (model.keys().boolean("use_mem_rope").value_or(Boolean{}).value) return;
  for (auto& kind : model.declaration().kinds) kind.rotary.reset();
}

// Only the number of layers says anything, and none of them attends.
void no_attention_at_all(HfContext& model) { model.set_layers(model.count({"num_hidden_layers", "n_layer", "num_blocks"}, 0)); }

}  // namespace

std::vector<Family> hybrid_families() {
  return {
      {.name = "Kimi Linear",
       .model_types = {"kimi_linear", "kimi_k3"},
       .class_prefix = "KimiLinear",
       .since_v5 = true,
       .encoding = Encoding::none},
      {.name = "Nemotron-H",
       .model_types = {"nemotron_h"},
       .class_prefix = "NemotronHFor",
       .architectures = {"nemotron_h"},
       .encoding = Encoding::none,
       .hook = idle_rope_keys},
      {.name = "Jamba",
       .model_types = {"jamba"},
       .class_prefix = "JambaFor",
       .architectures = {"jamba"},
       .encoding = Encoding::none,
       .hook = idle_rope_keys},
      {.name = "Granite 4",
       .model_types = {"granitemoehybrid"},
       .class_prefix = "GraniteMoeHybrid",
       .architectures = {"granitehybrid"},
       .encoding = Encoding::none,
       .position_type_key = true,
       .gguf_layout = PairLayout::interleaved,
       .theta = 10000,
       .softmax_scale = 1,
       .scale_key = "attention_multiplier"},
      {.name = "Bamba", .model_types = {"bamba"}, .class_prefix = "BambaFor", .theta = 10000, .partial = true, .rotary_fraction = 0.5},
      {.name = "Falcon-H1", .model_types = {"falcon_h1"}, .class_prefix = "FalconH1For", .architectures = {"falcon-h1"}},
      {.name = "LFM2",
       .model_types = {"lfm2", "lfm2_moe"},
       .class_prefix = "Lfm2",
       .architectures = {"lfm2", "lfm2moe"},
       .theta = 1000000,
       .v4_theta = 1000000},
      {.name = "RecurrentGemma",
       .model_types = {"recurrent_gemma"},
       .class_prefix = "RecurrentGemmaFor",
       .theta = 10000,
       .partial = true,
       .rotary_fraction = 0.5,
       .window = 2048},
      {.name = "MiniMax-01",
       .model_types = {"minimax", "minimax_text_01"},
       .class_prefix = "MiniMaxText",
       .v4_theta = 1000000,
       .partial = true},
      {.name = "Zamba 2", .model_types = {"zamba2"}, .theta = 10000, .hook = zamba2},
      {.name = "State spaces and recurrences",
       .model_types = {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"},
       .encoding = Encoding::none,
       .has_no_attention = true,
       .shape = no_attention_at_all},
      {.name = "OLMo Hybrid", .model_types = {"olmo_hybrid"}, .since_v5 = true},
  };
}

}  // namespace gnomon::files
