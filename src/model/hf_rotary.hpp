// SPDX-License-Identifier: Apache-2.0
// The rotary keys of a Hugging Face config: rope_scaling, rope_parameters and everything that stands beside them.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/declaration.hpp"
#include "model/hf_layers.hpp"

namespace gnomon::files {

class HfRotary {
 public:
  /// `declaration` must have its family, shape and length; all three must outlive this object.
  HfRotary(const Keys& keys, const Declaration& declaration, Doubts& doubts);

  /// False for an unknown family without any key about rotation.
  bool is_declared() const;
  /// What rotates layers of a kind; nothing when they do not rotate or, with a doubt, when the file does not say.
  std::optional<RotaryDeclaration> of(const Layer& layer);
  /// Keys inside the rotary blocks that were never asked for.
  std::vector<std::string> unread() const;

 private:
  const Family* family() const { return declaration_.family; }
  int head_dim() const { return head_dim_ ? static_cast<int>(head_dim_->value) : declaration_.model.head_dim; }
  /// Whether layers that slide have a base of their own, beside that of the others.
  bool has_own_sliding_base() const;
  bool has_own_base(const Layer& layer) const { return layer.type == LayerType::sliding && has_own_sliding_base(); }
  /// Whether the scaling of a flat block holds for the layer.
  bool is_scaled(const Layer& layer) const;

  void choose_block();
  void compare_blocks(const nlohmann::json& scaling, const nlohmann::json& parameters);
  std::optional<RotaryDeclaration> of_flat(const Layer& layer);
  std::optional<RotaryDeclaration> of_nested(const Layer& layer);
  RotaryDeclaration declare(const Layer& layer, const Keys* block, std::string block_name);

  void read_scaling(const Keys& block, RotaryDeclaration& rotary);
  void read_type(const Keys& block, RotaryDeclaration& rotary);
  void read_alias(const Keys& block, RotaryDeclaration& rotary);
  void read_numbers(const Keys& block, RotaryDeclaration& rotary);
  void read_original_length(const Keys* block, RotaryDeclaration& rotary);
  void read_magnitude(const Keys& block, RotaryDeclaration& rotary);
  void read_sections(const Keys* block, RotaryDeclaration& rotary);
  void default_sections(RotaryDeclaration& rotary);
  void read_condense_ratio(RotaryDeclaration& rotary);

  using Change = std::function<void(RotaryDeclaration&)>;
  /// A doubt beside which an engine may read the file another way.
  void doubt(RotaryDeclaration& rotary, DoubtCode code, const std::vector<std::string>& keys, std::string message, Change otherwise);
  /// `default_of` is what transformers does where it does not see the key.
  std::optional<Number> own_or_foreign(RotaryDeclaration& rotary, std::string_view own, std::span<const std::string_view> spellings,
                                       const Change& default_of);
  void add_other_block(const Layer& layer, RotaryDeclaration& rotary) const;

  void read_theta(const Layer& layer, const Keys* block, RotaryDeclaration& rotary);
  std::optional<Number> outer_theta(const Layer& layer, RotaryDeclaration& rotary);
  void check_suspect_theta(const Layer& layer, const RotaryDeclaration& rotary);

  void read_width(const Layer& layer, const Keys* block, RotaryDeclaration& rotary);
  void check_widths(const std::optional<Number>& inner, const std::optional<Number>& outer, RotaryDeclaration& rotary);
  Integer width_of(const Number& fraction, RotaryDeclaration& rotary);
  Integer default_width(const Layer& layer, RotaryDeclaration& rotary);
  void place_tail(RotaryDeclaration& rotary) const;

  const Keys& keys_;
  const Declaration& declaration_;
  Doubts& doubts_;
  const nlohmann::json* block_ = nullptr;  ///< the block that counts
  const nlohmann::json* other_ = nullptr;  ///< rope_parameters, when rope_scaling won
  const char* block_name_ = "";
  std::optional<Integer> head_dim_;  ///< of the layers being read, where it is not the model's
  bool nested_ = false;              ///< one block per layer type
  std::deque<Keys> blocks_;          ///< what was read, for unread(); their addresses are handed out
};

}  // namespace gnomon::files
