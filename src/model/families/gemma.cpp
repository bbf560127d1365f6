// SPDX-License-Identifier: Apache-2.0
// Gemma. Sources: transformers 5.24 (gemma*, t5gemma, vaultgemma), the released files, llama.cpp for GGUF.
#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

// The full layers have wider heads, of which all channels pair across the whole width.
void gemma4(HfContext& model) {
  const auto width = model.keys().integer("global_head_dim");
  if (!width) return;
  for (const auto kind : model.kinds_of(LayerType::full)) {
    if (auto& rotary = model.kind(kind).rotary) {
      rotary->head_dim = width;
      rotary->rotary_dim = width;
    }
  }
}

}  // namespace

std::vector<Family> gemma_families() {
  return {
      {
          .name = "Gemma",
          .model_types = {"gemma"},
          .class_prefix = "GemmaFor",
          .architectures = {"gemma"},
          .theta = 10000,
          .head_dim = 256,
      },
      {
          .name = "Gemma 2",
          .model_types = {"gemma2", "t5gemma", "t5_gemma_module"},
          .class_prefix = "Gemma2For",
          .architectures = {"gemma2"},
          .theta = 10000,
          .head_dim = 256,
          .window_rule = WindowRule::pattern,  // even layers slide
          .window = 4096,
          .pattern = 2,
          .query_pre_attn_scalar = 256,
          .softcap = 50,
      },
      {
          .name = "Gemma 3",
          .model_types = {"gemma3_text", "gemma3"},
          .class_prefix = "Gemma3For",
          .architectures = {"gemma3"},
          .theta = 1000000,
          .v4_theta = 1000000,
          .sliding_theta = 10000,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 256,
          .length = 131072,
          .window_rule = WindowRule::pattern,  // layers 5, 11, 17, … see everything
          .window = 4096,
          .pattern = 6,
          .query_pre_attn_scalar = 256,
          .length_is_scaled = true,
      },
      {
          .name = "Gemma 3n",
          .model_types = {"gemma3n_text", "gemma3n"},
          .class_prefix = "Gemma3nFor",
          .architectures = {"gemma3n"},
          .theta = 1000000,
          .v4_theta = 1000000,
          .sliding_theta = 10000,
          .layers = 35,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 256,
          .length = 32768,
          .hidden_size = 2048,
          .window_rule = WindowRule::pattern,
          .window = 512,
          .pattern = 5,
          .softmax_scale = 1,
      },
      {
          .name = "Gemma 4",
          .model_types = {"gemma4_text", "gemma4"},
          .class_prefix = "Gemma4For",
          .architectures = {"gemma4"},
          .since_v5 = true,
          .theta = 1000000,
          .sliding_theta = 10000,
          .head_dim = 256,
          .length = 131072,
          .window_rule = WindowRule::pattern,
          .window = 512,
          .pattern = 6,
          .softmax_scale = 1,  // q and k are normalised
          .hook = gemma4,
      },
      {
          .name = "VaultGemma",
          .model_types = {"vaultgemma"},
          .class_prefix = "VaultGemmaFor",
          .theta = 10000,
          .head_dim = 256,
          .window_rule = WindowRule::pattern,
          .window = 512,
          .pattern = 2,
          .query_pre_attn_scalar = 256,
          .softcap = 50,
      },
  };
}

}  // namespace gnomon::files
