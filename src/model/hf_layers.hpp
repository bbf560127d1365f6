// SPDX-License-Identifier: Apache-2.0
// What kind each layer of a Hugging Face config is: lists, patterns and intervals in all their spellings, or the family's own pattern.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "model/declaration.hpp"

namespace gnomon::files {

enum class LayerType {
  full,
  sliding,
  chunked,
  compressed,  ///< sees a window and compressed keys (DeepSeek-V4)
  cross,       ///< sees another input
  none,        ///< no attention: state space, convolution, linear attention
};

/// Layers that are set up alike.
struct Layer {
  LayerType type = LayerType::full;
  bool rotates = true;
  std::string label{};                        ///< of the type, as the file spells it: the key of its block in rope_parameters
  std::optional<double> theta{}, fraction{};  ///< where the file has a list of them, one for each layer
  std::optional<Integer> head_dim{};          ///< where it is not the model's
  bool operator==(const Layer& other) const {
    return type == other.type && rotates == other.rotates && label == other.label && theta == other.theta && fraction == other.fraction &&
           head_dim.has_value() == other.head_dim.has_value() && (!head_dim || head_dim->value == other.head_dim->value);
  }
};

struct LayerPlan {
  std::vector<Layer> kinds;                ///< without those that have no attention
  std::vector<std::size_t> kind_of_layer;  ///< index of a kind, or no_attention
};

/// `declaration` must have its family and number of layers.
LayerPlan plan_layers(const Keys& keys, const Declaration& declaration, Doubts& doubts);

}  // namespace gnomon::files
