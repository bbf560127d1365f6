// SPDX-License-Identifier: Apache-2.0
// Qwen. Sources: transformers 5.24 (qwen2*, qwen3*), the code published with Qwen 1, the released files.
#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto late_window = WindowRule::after_max_window_layers;

// Its base grows in steps of powers of two beyond seq_length, which no rule here does; up to there it is plain.
void qwen1(HfContext& model) {
  if (const auto used = model.keys().boolean("use_dynamic_ntk"); used && used->value) {
    model.doubts().add(
        "base-grows-in-steps", {used->origin.key},
        fmt::format("{}: beyond seq_length the code enlarges the base in steps; the numbers here hold up to it", used->origin.key));
  }
}

}  // namespace

std::vector<Family> qwen_families() {
  return {
      {.name = "Qwen 1",
       .model_types = {"qwen"},
       .class_prefix = "QWenLM",
       .theta_key = "rotary_emb_base",
       .fraction_key = "rotary_pct",
       .theta = 10000,
       .partial = true,
       .hook = qwen1},
      {
          // The class default of the base is 1e4, every released file says 1e6 or more: a file without it is damaged.
          .name = "Qwen2",
          .model_types = {"qwen2", "qwen2_moe"},
          .class_prefix = "Qwen2For",
          .architectures = {"qwen2", "qwen2moe", "qwen2vl"},
          .suspect_theta = 10000,
          .window_rule = late_window,
          .window = 4096,
          .max_window_layers = 28,
      },
      {
          .name = "Qwen3",
          .model_types = {"qwen3"},
          .class_prefix = "Qwen3For",
          .architectures = {"qwen3", "qwen3moe", "qwen3vl"},
          .suspect_theta = 10000,
          .head_dim = 128,
          .window_rule = late_window,
          .window = 4096,
          .max_window_layers = 28,
      },
      {
          .name = "Qwen3 MoE",
          .model_types = {"qwen3_moe"},
          .class_prefix = "Qwen3MoeFor",
          .suspect_theta = 10000,
          .window_rule = late_window,
          .window = 4096,
          .max_window_layers = 28,
      },
      {
          .name = "Qwen2-VL",
          .model_types = {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen2_5_omni_thinker"},
          .class_prefix = "Qwen2VLFor",
          .theta = 1000000,
          .v4_theta = 1000000,
          .sections = {16, 24, 24},
          .window_rule = late_window,
          .window = 4096,
          .max_window_layers = 80,
      },
      {
          .name = "Qwen3-VL",
          .model_types = {"qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"},
          .class_prefix = "Qwen3VL",
          .architectures = {"qwen3vl", "qwen3vlmoe"},
          .v4_theta = 5000000,
          .sections = {24, 20, 20},
          .section_order = SectionOrder::interleaved,
          .head_dim = 128,
      },
      {
          .name = "Qwen3-Omni",
          .model_types = {"qwen3_omni_moe_text", "qwen3_omni_moe_thinker"},
          .v4_theta = 1000000,
          .sections = {24, 20, 20},
          .section_order = SectionOrder::interleaved,
      },
      {
          .name = "PaddleOCR-VL",
          .model_types = {"paddleocr_vl", "paddleocr_vl_text"},
          .theta = 500000,
          .v4_theta = 500000,
          .sections = {16, 24, 24},
      },
      {
          .name = "Qwen3-Next",
          .model_types = {"qwen3_next"},
          .class_prefix = "Qwen3Next",
          .architectures = {"qwen3next"},
          .partial = true,
          .rotary_fraction = 0.25,
          .head_dim = 256,
          .window_rule = WindowRule::linear_pattern,
          .pattern = 4,
      },
      {
          .name = "Qwen3.5",
          .model_types = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"},
          .class_prefix = "Qwen3_5",
          .architectures = {"qwen35", "qwen35moe"},
          .since_v5 = true,
          .partial = true,
          .rotary_fraction = 0.25,
          .sections = {11, 11, 10},
          .section_order = SectionOrder::interleaved,
          .head_dim = 256,
          .window_rule = WindowRule::linear_pattern,
          .pattern = 4,
      },
  };
}

}  // namespace gnomon::files
