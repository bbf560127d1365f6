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
  std::optional<Integer> rotary_dim;  ///< may still be odd or too wide
  std::map<std::string, Number, std::less<>> numbers;
  std::map<std::string, List, std::less<>> lists;
  std::optional<List> sections;  ///< pairs driven by each position axis
  bool sections_interleaved = false;
  std::optional<Boolean> truncate;
  bool factor_is_null = false;                 ///< the key is there and says null
  std::optional<Number> attention_factor;      ///< the magnitude itself
  std::optional<Number> magnitude_multiplier;  ///< times the magnitude the rule implies
  std::string block;                           ///< the key of the block, for messages
  std::vector<OtherReading> other_readings;
};

/// Layers of one kind: what rotates them (nothing: they do not rotate) and how far they see.
struct LayerKind {
  std::optional<RotaryDeclaration> rotary;
  std::optional<Integer> window;
};

struct Declaration {
  Model model;  ///< path, format, type and shape
  const Family* family = nullptr;
  PairLayout layout = PairLayout::half_split;
  Origin layout_origin = family_default();
  Origin head_dim_origin;
  std::vector<LayerKind> kinds;
  std::vector<std::size_t> kind_of_layer;
  Number softmax_scale;
  std::optional<Number> softcap;
  Boolean causal{true, family_default()};
  std::optional<Integer> length;       ///< max_position_embeddings
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
/// Also tells what the doubts with another reading cost.
RotaryResult make_rotary(const Declaration& declaration, const RotaryDeclaration& rotary, Doubts& doubts);

/// Groups equal layers, settles the lengths, and moves the doubts into the model.
Model assemble(Declaration declaration, Doubts& doubts);

}  // namespace gnomon::files
