// SPDX-License-Identifier: Apache-2.0
// GPT-2, GPT-J, GPT-NeoX and what came from them. Sources: transformers 5.24 and the released files.
#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

// No 1 / sqrt(head_dim) in its code.
void gpt2(HfContext& model) {
  if (const auto scaled = model.keys().boolean("scale_attn_weights"); scaled && !scaled->value)
    model.set_softmax_scale({1, scaled->origin});
}

}  // namespace

std::vector<Family> gpt_families() {
  return {
      {
          .name = "GPT-NeoX",
          .model_types = {"gpt_neox", "gpt_neox_japanese"},
          .class_prefix = "GPTNeoXFor",
          .architectures = {"gptneox"},
          .theta_key = "rotary_emb_base",
          .fraction_key = "rotary_pct",
          .theta = 10000,
          .partial = true,
          .rotary_fraction = 0.25,
      },
      {
          .name = "GPT-J",
          .model_types = {"gptj", "codegen"},
          .class_prefix = "GPTJFor",
          .layout = PairLayout::interleaved,
          .theta_key = "",
          .fraction_key = "",
          .theta = 10000,  // a constant of its code
          .partial = true,
          .rotary_dim = 64,
      },
      {.name = "GPT-2",
       .model_types = {"gpt2", "openai-gpt", "gpt_bigcode", "imagegpt", "gpt-sw3", "starcoder"},
       .class_prefix = "GPT2",
       .architectures = {"gpt2", "starcoder"},
       .encoding = Encoding::learned,
       .length = 1024,
       .hook = gpt2},
      {.name = "GPT-Neo",
       .model_types = {"gpt_neo"},
       .class_prefix = "GPTNeoFor",
       .encoding = Encoding::learned,
       .length = 2048,
       .window_rule = WindowRule::pattern,
       .window = 256,
       .pattern = 2,
       .pattern_starts_full = true,
       .softmax_scale = 1},
      {.name = "OPT", .model_types = {"opt"}, .class_prefix = "OPTFor", .encoding = Encoding::learned, .learned_offset = 2, .length = 2048},
      {.name = "BioGPT, TrOCR",
       .model_types = {"biogpt", "trocr"},
       .encoding = Encoding::learned,
       .learned_offset = 2,
       .length = 1024,
       .layer_keys = {"decoder_layers"},
       .head_keys = {"decoder_attention_heads"}},
      {.name = "Persimmon, Fuyu",
       .model_types = {"persimmon", "fuyu"},
       .class_prefix = "PersimmonFor",
       .theta = 25000,
       .v4_theta = 25000,
       .partial = true,
       .rotary_fraction = 0.5},
      {.name = "DBRX", .model_types = {"dbrx"}, .class_prefix = "DbrxFor", .architectures = {"dbrx"}},
      {.name = "Cohere",
       .model_types = {"cohere"},
       .class_prefix = "CohereFor",
       .architectures = {"command-r"},
       .layout = PairLayout::interleaved,
       .gguf_layout = PairLayout::interleaved,
       .v4_theta = 500000},
      {.name = "MiniMax",
       .model_types = {"minimax_m2", "minimax_m3", "minimax_m3_vl_text"},
       .class_prefix = "MiniMaxM",
       .since_v5 = true,
       .partial = true},
  };
}

}  // namespace gnomon::files
