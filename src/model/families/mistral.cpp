// SPDX-License-Identifier: Apache-2.0
// Mistral AI and families with its code. Sources: transformers 5.24 (mistral, mixtral, ministral3, …), the released files.
#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {

std::vector<Family> mistral_families() {
  return {
      {
          // Its files were always explicit about the base (1e4, then 1e6), so there is no default to trust.
          .name = "Mistral",
          .model_types = {"mistral"},
          .class_prefix = "MistralFor",
          .gguf_layout = PairLayout::interleaved,  // of its own files, params.json; as GGUF they say llama
          .window_rule = WindowRule::every_layer,
          .window = 4096,
      },
      {
          .name = "Mixtral",
          .model_types = {"mixtral"},
          .class_prefix = "MixtralFor",
          .gguf_layout = PairLayout::interleaved,
          .v4_theta = 1000000,
          .window_rule = WindowRule::every_layer,
      },
      {
          .name = "Ministral 3",
          .model_types = {"ministral3", "ministral", "mistral3"},
          .class_prefix = "Ministral",
          .architectures = {"mistral3"},
          .since_v5 = true,
          .gguf_layout = PairLayout::interleaved,
          .window_rule = WindowRule::every_layer,
      },
      {
          .name = "StarCoder 2",
          .model_types = {"starcoder2"},
          .class_prefix = "Starcoder2For",
          .architectures = {"starcoder2"},
          .window_rule = WindowRule::every_layer,
      },
      {.name = "Phi-3.5 MoE",
       .model_types = {"phimoe"},
       .class_prefix = "PhiMoE",
       .architectures = {"phimoe"},
       .v4_theta = 1000000,
       .window_rule = WindowRule::every_layer},
  };
}

}  // namespace gnomon::files
