// SPDX-License-Identifier: Apache-2.0
// Sources: the configuration classes of transformers 5.24, the released files of each family, and llama.cpp for GGUF.
#include "model/families.hpp"

#include <algorithm>

namespace gnomon::files {
namespace {

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {
          .name = "Llama",
          .model_types = {"llama"},
          .class_prefix = "LlamaFor",
          .architectures = {"llama"},
          .gguf_layout = PairLayout::interleaved,  // the converter permutes the rows of q and k
          .theta = 10000,                          // Llama 1 and 2 files state none
      },
      {
          // Its files were always explicit about the base (1e4, then 1e6), so there is no default to trust.
          .name = "Mistral",
          .model_types = {"mistral"},
          .class_prefix = "MistralFor",
          .window_rule = WindowRule::every_layer,
          .window = 4096,
      },
      {
          .name = "Mixtral",
          .model_types = {"mixtral"},
          .class_prefix = "MixtralFor",
          .window_rule = WindowRule::every_layer,
      },
      {
          // The class default of the base is 1e4, every released file says 1e6 or more: a file without it is damaged.
          .name = "Qwen2",
          .model_types = {"qwen2"},
          .class_prefix = "Qwen2For",
          .architectures = {"qwen2", "qwen2vl"},
          .window_rule = WindowRule::after_max_window_layers,
          .window = 4096,
          .max_window_layers = 28,
      },
      {
          .name = "Qwen3",
          .model_types = {"qwen3"},
          .class_prefix = "Qwen3For",
          .architectures = {"qwen3", "qwen3vl"},
          .head_dim = 128,
          .window_rule = WindowRule::after_max_window_layers,
          .window = 4096,
          .max_window_layers = 28,
      },
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
          .model_types = {"gemma2"},
          .class_prefix = "Gemma2For",
          .architectures = {"gemma2"},
          .theta = 10000,
          .head_dim = 256,
          .window_rule = WindowRule::pattern,  // even layers slide
          .window = 4096,
          .pattern = 2,
          .query_pre_attn_scalar = 256,
          .softcap = 50,
          .gguf_scale = ScaleFromWidth{46},  // 27B
      },
      {
          .name = "Gemma 3",
          .model_types = {"gemma3_text", "gemma3"},
          .class_prefix = "Gemma3For",
          .architectures = {"gemma3"},
          .theta = 1000000,
          .sliding_theta = 10000,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 256,
          .length = 131072,
          .window_rule = WindowRule::pattern,  // layers 5, 11, 17, … see everything
          .window = 4096,
          .pattern = 6,
          .query_pre_attn_scalar = 256,
          .gguf_scale = ScaleFromWidth{62},  // 27B
          .length_is_scaled = true,
      },
      {
          .name = "GPT-NeoX",
          .model_types = {"gpt_neox"},
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
          .model_types = {"gptj"},
          .class_prefix = "GPTJFor",
          .layout = PairLayout::interleaved,
          .theta_key = "",
          .fraction_key = "",
          .theta = 10000,  // a constant of its code
          .partial = true,
          .rotary_dim = 64,
      },
      {
          .name = "Phi",
          .model_types = {"phi"},
          .class_prefix = "PhiFor",
          .architectures = {"phi2"},
          .theta = 10000,
          .partial = true,
          .rotary_fraction = 0.5,
      },
      {
          .name = "Phi (Microsoft's own code)",
          .model_types = {"phi-msft"},
          .theta = 10000,
          .partial = true,
          .rotary_dim = 32,
      },
      {
          .name = "Phi-3",
          .model_types = {"phi3"},
          .class_prefix = "Phi3For",
          .architectures = {"phi3"},
          .partial = true,
          .window_rule = WindowRule::every_layer,
      },
  };
  return table;
}

template <class Predicate>
const Family* find_family(Predicate matches) {
  const auto found = std::find_if(families().begin(), families().end(), matches);
  return found == families().end() ? nullptr : &*found;
}

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const Family* family_of_model_type(std::string_view model_type) {
  return find_family([&](const Family& family) { return contains(family.model_types, model_type); });
}

const Family* family_of_class(std::string_view class_name) {
  return find_family([&](const Family& family) { return !family.class_prefix.empty() && class_name.starts_with(family.class_prefix); });
}

const Family* family_of_architecture(std::string_view architecture) {
  return find_family([&](const Family& family) { return contains(family.architectures, architecture); });
}

}  // namespace gnomon::files
