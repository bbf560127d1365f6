// SPDX-License-Identifier: Apache-2.0
// What a file declares, in one form for every format, and the step from there to a Model. A reader's only job is to fill a Declaration.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gnomon/model.hpp"
#include "model/families.hpp"
#include "model/keys.hpp"

namespace gnomon::files {

struct RotaryDeclaration;

/// How an engine that takes the other side of a doubt reads the file. Each doubt about frequencies has one, so that its cost can be told.
struct OtherReading {
  DoubtCode code;
  std::vector<std::string> keys;  ///< of the doubt
  std::function<void(RotaryDeclaration&)> change;
};

/// One rotary set-up as declared. Numbers stand under the names of the rules' fields.
struct RotaryDeclaration {
  Text type{"default", family_default()};
  std::optional<Number> theta;
  std::optional<Integer> head_dim;    ///< where it is not the model's
  std::optional<Integer> rotary_dim;  ///< may still be odd or too wide
  int rotary_offset = 0;
  std::optional<PairLayout> layout;  ///< where it is not the model's
  std::map<std::string, Number, std::less<>> numbers;
  std::map<std::string, List, std::less<>> lists;
  std::optional<List> sections;  ///< pairs driven by each position axis
  SectionOrder section_order = SectionOrder::chunked;
  std::optional<Boolean> truncate;
  bool factor_is_null = false;                 ///< the key is there and says null
  std::optional<Number> attention_factor;      ///< the magnitude itself
  std::optional<Number> magnitude_multiplier;  ///< times the magnitude the rule implies
  bool length_is_settled = false;              ///< no doubt about which side of a linear factor the length stands on
  std::optional<Number> query_scale;           ///< by how much queries grow with the logarithm of their distance to the original length
  bool stated_as_alpha = false;                ///< ntk by the name that has one meaning only
  int axes = 1;                                ///< as in RotarySpec
  std::string block;                           ///< the key of the block, for messages
  std::vector<OtherReading> other_readings;
};

/// Layers of one kind: how position enters, and what they see. Where softmax_scale or causal is empty, that of the model holds.
struct LayerKind {
  std::optional<AbsoluteSpec> absolute;
  std::optional<RotaryDeclaration> rotary;  ///< nothing: they do not rotate
  std::optional<BiasRule> bias;
  std::optional<Integer> window, chunk;
  std::optional<Boolean> causal;
  std::optional<Number> softmax_scale;
  bool sink_logits = false;
  std::optional<QueryTemperature> query_temperature;
  bool rotates_values = false, rotates_output_back = false;
  std::optional<DualChunk> dual_chunk;
  std::map<std::string, Origin> origins;  ///< of what has none of its own here: "bias.heads", "sink_logits"
};

/// A kind of layers that is no attention.
inline constexpr std::size_t no_attention = static_cast<std::size_t>(-1);

/// Layers that are numbered on their own: "encoder", "decoder", "text", "vision", "audio"; without a name where there is one part only.
struct Part {
  std::string name;
  std::vector<std::size_t> kind_of_layer;  ///< index of a kind, or no_attention
};

struct Declaration {
  Model model;  ///< path, format, type and shape
  const Family* family = nullptr;
  PairLayout layout = PairLayout::half_split;
  Origin layout_origin = family_default();
  Origin head_dim_origin;
  std::vector<LayerKind> kinds;
  std::vector<std::size_t> kind_of_layer;  ///< of the main part, to which shape and lengths belong
  std::string part;                        ///< the main part's name
  std::vector<Part> other_parts;
  Number softmax_scale;
  std::optional<Number> softcap;
  Boolean causal{true, family_default()};
  std::optional<Integer> length;       ///< max_position_embeddings
  std::optional<Integer> usable;       ///< the part of it that has positions, where the file counts rows that have none
  std::vector<Integer> other_lengths;  ///< keys that state a length beside it
};

/// The lengths a rotary set-up implies.
struct Extent {
  std::optional<std::int64_t> original, derived;
};

/// A rotary set-up in numbers; nothing where they cannot be made, which is a doubt of level error then.
struct RotaryResult {
  std::optional<RotarySpec> spec;
  Extent extent;
  std::map<std::string, Origin> origins;
};
/// Every numeric field and list of every rule that stands in a block, truncate and attention_factor, so that a new rule needs no edit.
void read_rule_fields(const Keys& block, RotaryDeclaration& rotary);
/// int(head_dim * fraction), as every engine truncates; but a product that is whole up to rounding is taken as whole: 200 * 0.29 is 58,
/// not 57. -1 where it is beyond any width.
Integer width_of(int head_dim, const Number& fraction);
/// YaRN's magnitude where latent attention has it: on the score, squared, while cos and sin get only the ratio of the two. Nothing where
/// the file asks for none.
std::optional<double> latent_magnitude(const RotaryDeclaration& rotary);

/// Doubts about frequencies get their dispute here.
RotaryResult make_rotary(const Declaration& declaration, const RotaryDeclaration& rotary, Doubts& doubts);

/// Groups equal layers, settles the lengths, and moves the doubts into the model.
Model assemble(Declaration declaration, Doubts& doubts);

}  // namespace gnomon::files
