// SPDX-License-Identifier: Apache-2.0
// What a family's code knows and its files do not say: one entry per family, for both formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gnomon/spec.hpp"

namespace gnomon::files {

/// Which layers attend through a sliding window when the file has no list of layer types.
enum class WindowRule {
  none,                     ///< the family's code has no window
  every_layer,              ///< all layers, when a window is given
  after_max_window_layers,  ///< from layer max_window_layers on, when use_sliding_window is true
  pattern,                  ///< all but every n-th layer
};

/// Constants of a model that its GGUF file cannot say: recognised by its number of layers.
struct ScaleFromWidth {
  int layers;  ///< the softmax scale of this size is (hidden_size / heads)^-1/2 instead of head_dim^-1/2
};

struct Family {
  std::string_view name{};
  std::vector<std::string_view> model_types{};    ///< model_type of config.json
  std::string_view class_prefix{};                ///< of architectures[0], for files without a model_type
  std::vector<std::string_view> architectures{};  ///< general.architecture of GGUF

  PairLayout layout = PairLayout::half_split;
  PairLayout gguf_layout = PairLayout::half_split;

  std::string_view theta_key = "rope_theta";                ///< spelling of the base in config.json; empty: a constant of the code
  std::string_view fraction_key = "partial_rotary_factor";  ///< spelling of the partial width; empty: none
  std::optional<double> theta{};                            ///< base when the file states none
  std::optional<double> sliding_theta{};    ///< base of sliding layers; its presence means they have their own, never scaled
  bool partial = false;                     ///< whether the family's code can rotate part of a head
  std::optional<double> rotary_fraction{};  ///< of a head, when the file states no width
  std::optional<int> rotary_dim{};          ///< the same as a width

  // Defaults of the family's configuration class, which nested text configs rely on.
  std::optional<int> heads{}, kv_heads{}, head_dim{};
  std::optional<std::int64_t> length{};

  WindowRule window_rule = WindowRule::none;
  std::optional<std::int64_t> window{};  ///< when the file has no key for it
  int pattern = 0;                       ///< every pattern-th layer sees everything
  int max_window_layers = 0;

  std::optional<double> query_pre_attn_scalar{};  ///< softmax scale is its -1/2 power; the value when the file has no key
  std::optional<double> softcap{};                ///< when the file has no key
  std::optional<ScaleFromWidth> gguf_scale{};
  bool length_is_scaled = false;  ///< max_position_embeddings stands after linear scaling
};

/// Null for a name no family has.
const Family* family_of_model_type(std::string_view model_type);
const Family* family_of_class(std::string_view class_name);
const Family* family_of_architecture(std::string_view architecture);

}  // namespace gnomon::files
