// SPDX-License-Identifier: Apache-2.0
// The shape of a model: layers, heads and widths, the same in every format but for the names of the keys.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/declaration.hpp"

namespace gnomon::files {

/// Spellings of each key; the first one present counts.
struct ShapeKeys {
  using Names = std::vector<std::string_view>;
  Names hidden_size, layers, heads, kv_heads, head_dim, length;
  std::optional<Integer> layer_count{};  ///< where a list with one entry per layer says it
  std::optional<Integer> width{};        ///< of a head, where other keys say it
};

/// Fills the shape and the declared length. `class_defaults` is the family whose configuration class fills gaps, or null.
void read_shape(const Keys& keys, const ShapeKeys& names, const Family* class_defaults, Declaration& declaration, Doubts& doubts);

/// A count of at least 1; a doubt for anything else that is there.
std::optional<Integer> read_count(const Keys& keys, const ShapeKeys::Names& names, Doubts& doubts);

}  // namespace gnomon::files
