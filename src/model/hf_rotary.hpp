// SPDX-License-Identifier: Apache-2.0
// The rotary keys of a Hugging Face config: rope_scaling, rope_parameters and everything that stands beside them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/declaration.hpp"

namespace gnomon::files {

/// The kinds of layers a config tells apart; the index of a kind in a Declaration.
enum class LayerType : std::size_t { full, sliding };
inline constexpr std::array<std::string_view, 2> layer_type_names = {"full_attention", "sliding_attention"};
constexpr std::size_t index(LayerType type) { return static_cast<std::size_t>(type); }

class HfRotary {
 public:
  /// `declaration` must have its family, shape and length; all three must outlive this object.
  HfRotary(const Keys& keys, const Declaration& declaration, Doubts& doubts);

  /// False for an unknown family without any key about rotation.
  bool is_declared() const;
  /// What rotates the layers of a type; nothing when they do not rotate or, with a doubt, when the file does not say.
  std::optional<RotaryDeclaration> of(LayerType type);
  /// Keys inside the rotary blocks that were never asked for.
  std::vector<std::string> unread() const;

 private:
  const Family* family() const { return declaration_.family; }
  int head_dim() const { return declaration_.model.head_dim; }
  bool has_own_sliding_base() const { return family() != nullptr && family()->sliding_theta; }

  void choose_block();
  void compare_blocks(const nlohmann::json& scaling, const nlohmann::json& parameters);
  std::optional<RotaryDeclaration> of_flat(LayerType type);
  std::optional<RotaryDeclaration> of_nested(LayerType type);
  RotaryDeclaration declare(LayerType type, const Keys* block, std::string block_name);

  void read_scaling(const Keys& block, RotaryDeclaration& rotary);
  void read_type(const Keys& block, RotaryDeclaration& rotary);
  void read_numbers(const Keys& block, RotaryDeclaration& rotary);
  void read_original_length(const Keys* block, RotaryDeclaration& rotary);
  void read_extras(const Keys& block, RotaryDeclaration& rotary);
  void read_condense_ratio(RotaryDeclaration& rotary);

  using Change = std::function<void(RotaryDeclaration&)>;
  /// A doubt beside which an engine may read the file another way.
  void doubt(RotaryDeclaration& rotary, DoubtCode code, const std::vector<std::string>& keys, std::string message, Change otherwise);
  /// `default_of` is what transformers does where it does not see the key.
  std::optional<Number> own_or_foreign(RotaryDeclaration& rotary, std::string_view own, std::span<const std::string_view> spellings,
                                       const Change& default_of);
  void add_other_block(LayerType type, RotaryDeclaration& rotary) const;
  void check_version(const Keys& block, RotaryDeclaration& rotary);

  void read_theta(LayerType type, const Keys* block, RotaryDeclaration& rotary);

  void read_width(const Keys* block, RotaryDeclaration& rotary);
  void check_widths(const std::optional<Number>& inner, const std::optional<Number>& outer, RotaryDeclaration& rotary);
  Integer width_of(const Number& fraction, RotaryDeclaration& rotary);
  Integer default_width(RotaryDeclaration& rotary);

  const Keys& keys_;
  const Declaration& declaration_;
  Doubts& doubts_;
  const nlohmann::json* block_ = nullptr;  ///< the block that counts
  const nlohmann::json* other_ = nullptr;  ///< rope_parameters, when rope_scaling won
  const char* block_name_ = "";
  bool nested_ = false;       ///< one block per layer type
  std::vector<Keys> blocks_;  ///< what was read, for unread(); at most one per layer type
};

}  // namespace gnomon::files
