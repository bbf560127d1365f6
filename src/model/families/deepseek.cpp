// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention: DeepSeek, Kimi, LongCat, MiniCPM 3. Sources: the authors' code, transformers 5.24, the released files. The
// widths (qk_rope_head_dim, qk_nope_head_dim) and YaRN's softmax scale are read for every family that has the keys.
#include <fmt/format.h>

#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto interleaved = PairLayout::interleaved;

// The tail of keys that are values too is rotated: what attention returns is turned back.
void deepseek_v4(HfContext& model) {
  for (std::size_t kind = 0; kind < model.layers().size(); kind++) {
    model.kind(kind).rotates_output_back = true;
    model.kind(kind).origins["rotates_output_back"] = family_default();
  }
}

}  // namespace

std::vector<Family> deepseek_families() {
  return {
      {.name = "DeepSeek-V2 and V3",
       .model_types = {"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "deepseek_vl_v2", "axk1", "sarvam_mla",
                       "youtu"},
       .class_prefix = "DeepseekV",
       .architectures = {"deepseek2"},
       .layout = interleaved,
       .gguf_layout = interleaved,
       .layout_key = true,
       .theta = 10000,
       .rotary_dim = 64},
      {.name = "DeepSeek-V4",
       .model_types = {"deepseek_v4"},
       .class_prefix = "DeepseekV4For",
       .since_v5 = true,
       .layout = interleaved,
       .gguf_layout = interleaved,
       .theta = 10000,
       .partial = true,
       .rotary_dim = 64,
       .rotates_tail = true,
       .attention_factor = 1,
       .head_dim = 512,
       .window_rule = WindowRule::every_layer,
       .window = 128,
       .hook = deepseek_v4},
      {.name = "Mistral 4",
       .model_types = {"mistral4"},
       .since_v5 = true,
       .layout = interleaved,
       .gguf_layout = interleaved,
       .layout_key = true,
       .partial = true},
      {.name = "LongCat",
       .model_types = {"longcat_flash"},
       .class_prefix = "Longcat",
       .layout = interleaved,
       .theta = 10000000,
       .v4_theta = 10000000},
      {.name = "MiniCPM 3", .model_types = {"minicpm3"}, .class_prefix = "MiniCPM3For", .architectures = {"minicpm3"}, .theta = 10000},
  };
}

}  // namespace gnomon::files
