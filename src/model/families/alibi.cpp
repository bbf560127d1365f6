// SPDX-License-Identifier: Apache-2.0
// Linear biases: BLOOM, MPT, Falcon-RW, Baichuan-13B. Sources: the code published with each, transformers 5.24, the released files. The
// slopes, and alibi keys in any family, are read by the reader itself.
#include <fmt/format.h>

#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

// One model_type, two encodings, and no key to tell them apart.
void baichuan(HfContext& model) {
  const auto& shape = model.declaration().model;
  const bool linear = shape.heads == 40;
  if (linear) model.use_alibi(8, family_default());
  model.doubts().add(
      "rule-not-in-file", {model.keys().full("model_type")},
      fmt::format("this model_type holds ALiBi (13B) and rotary (7B) models and no key says which; {} heads and width {} say {}",
                  shape.heads, shape.hidden_size, linear ? "ALiBi" : "rotary"));
}

// Its biases are added before the division by the root of the head's width.
void falcon(HfContext& model) {
  for (auto& kind : model.declaration().kinds) {
    auto* alibi = kind.bias ? std::get_if<bias::Alibi>(&*kind.bias) : nullptr;
    if (alibi == nullptr || model.declaration().model.head_dim < 1) continue;
    for (auto& slope : alibi->slopes) slope /= std::sqrt(model.declaration().model.head_dim);
  }
}

}  // namespace

std::vector<Family> alibi_families() {
  return {
      {.name = "BLOOM",
       .model_types = {"bloom", "gpt_refact"},
       .class_prefix = "Bloom",
       .architectures = {"bloom"},
       .encoding = Encoding::alibi},
      {.name = "MPT", .model_types = {"mpt"}, .class_prefix = "MPTFor", .architectures = {"mpt"}, .encoding = Encoding::learned},
      {.name = "Falcon",
       .model_types = {"falcon", "RefinedWeb", "RefinedWebModel"},
       .class_prefix = "Falcon",
       .architectures = {"falcon"},
       .theta = 10000,
       .hook = falcon},
      {.name = "Baichuan",
       .model_types = {"baichuan"},
       .class_prefix = "Baichuan",
       .architectures = {"baichuan"},
       .gguf_layout = PairLayout::interleaved,
       .theta = 10000,
       .hook = baichuan},
  };
}

}  // namespace gnomon::files
