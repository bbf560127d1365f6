// SPDX-License-Identifier: Apache-2.0
// GLM and ChatGLM. Sources: the code published with ChatGLM, transformers 5.24 (glm*), the released files.
#include <fmt/format.h>

#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto interleaved = PairLayout::interleaved;

// ChatGLM-6B has the model_type of its successors and two positions for each token.
void chatglm(HfContext& model) {
  const auto planar = model.keys().boolean("position_encoding_2d");
  if (!planar || !planar->value) return;
  for (auto& kind : model.declaration().kinds) kind.rotary.reset();
  model.doubts().add("rule-not-available", {planar->origin.key},
                     fmt::format("{}: rotation by two positions per token is known but not offered by this version", planar->origin.key));
}

}  // namespace

std::vector<Family> glm_families() {
  return {
      {
          .name = "ChatGLM",
          .model_types = {"chatglm"},
          .class_prefix = "ChatGLM",
          .architectures = {"chatglm"},
          .layout = interleaved,
          .gguf_layout = interleaved,
          .theta = 10000,  // times rope_ratio
          .partial = true,
          .rotary_fraction = 0.5,
          .hook = chatglm,
      },
      {.name = "GLM-4",
       .model_types = {"glm", "glm4"},
       .class_prefix = "Glm",
       .architectures = {"glm4"},
       .layout = interleaved,
       .gguf_layout = interleaved,
       .theta = 10000,
       .partial = true,
       .rotary_fraction = 0.5,
       .head_dim = 128},
      {.name = "GLM-4.5",
       .model_types = {"glm4_moe"},
       .class_prefix = "Glm4MoeFor",
       .architectures = {"glm4moe"},
       .partial = true,
       .rotary_fraction = 0.5,
       .head_dim = 128},
      {.name = "GLM-4.1V",
       .model_types = {"glm4v", "glm4v_text"},
       .class_prefix = "Glm4vFor",
       .layout = interleaved,
       .theta = 10000,
       .partial = true,

       .sections = {8, 12, 12}},
      {.name = "GLM-4.5V",
       .model_types = {"glm4v_moe", "glm4v_moe_text"},
       .class_prefix = "Glm4vMoe",
       .partial = true,
       .rotary_fraction = 0.5,
       .sections = {8, 12, 12}},
      {.name = "GLM-4.7 Flash",
       .model_types = {"glm4_moe_lite"},
       .class_prefix = "Glm4MoeLite",
       .since_v5 = true,
       .layout = interleaved,
       .layout_key = true},
      {.name = "GLM-5",
       .model_types = {"glm_moe_dsa"},
       .class_prefix = "GlmMoeDsa",
       .architectures = {"glm-dsa"},
       .since_v5 = true,
       .layout = interleaved,
       .gguf_layout = interleaved,
       .layout_key = true},
      {.name = "ERNIE 4.5 VL",
       .model_types = {"ernie4_5_vl_moe", "ernie4_5_vl_moe_text", "ernie4_5_moe_vl"},
       .layout = interleaved,
       .theta = 500000,
       .v4_theta = 500000,
       .sections = {22, 22, 20},  // height, width, time
       .section_order = SectionOrder::time_last},
      {.name = "ERNIE 4.5",
       .model_types = {"ernie4_5", "ernie4_5_moe"},
       .class_prefix = "Ernie4_5",
       .architectures = {"ernie4_5", "ernie4_5-moe"},
       .layout = interleaved,
       .gguf_layout = interleaved,
       .theta = 500000,
       .v4_theta = 500000},
  };
}

}  // namespace gnomon::files
