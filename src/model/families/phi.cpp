// SPDX-License-Identifier: Apache-2.0
// Phi. Sources: transformers 5.24 (phi, phi3, phi4_multimodal), Microsoft's own code, the released files.
#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {

std::vector<Family> phi_families() {
  return {
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
          .model_types = {"phi3", "phi3_v", "phi4mm", "phi4_multimodal"},
          .class_prefix = "Phi3",
          .architectures = {"phi3"},
          .partial = true,
          .window_rule = WindowRule::every_layer,
      },
  };
}

}  // namespace gnomon::files
