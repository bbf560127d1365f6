// SPDX-License-Identifier: Apache-2.0
// What a family's hook works on: the keys of a Hugging Face config and the declaration made of them so far.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/declaration.hpp"
#include "model/hf_layers.hpp"

namespace gnomon::files {

struct HfContext {
 public:
  HfContext(const Keys& keys, const std::vector<Layer>& layers, Declaration& declaration, Doubts& doubts)
      : keys_(keys), layers_(layers), declaration_(declaration), doubts_(doubts) {}

  const Keys& keys() const { return keys_; }
  Doubts& doubts() { return doubts_; }
  Declaration& declaration() { return declaration_; }
  /// What the kinds of layers are, by the index of the kind.
  const std::vector<Layer>& layers() const { return layers_; }
  LayerKind& kind(std::size_t index) { return declaration_.kinds[index]; }
  std::vector<std::size_t> kinds_of(LayerType type) const;

  // Of every kind. Learned rows are counted from the declared length where `rows` is 0.
  void use_alibi(double bias_max, const Origin& origin);
  void use_learned(std::int64_t rows, std::int64_t offset, const Origin& origin = family_default());
  void use_bias(const BiasRule& rule, const Origin& origin);
  void use_rotary(const RotaryDeclaration& rotary);
  void set_softmax_scale(const Number& scale) { declaration_.softmax_scale = scale; }
  void set_temperature(std::size_t kind, const QueryTemperature& temperature, const Origin& origin);

  // For models whose shape the reader's own keys do not tell.
  void set_layers(std::int64_t count);
  void add_part(std::string name, std::int64_t count, LayerKind kind);
  /// The number under the first key that is there, or `otherwise`; bounded as a count.
  std::int64_t count(std::initializer_list<std::string_view> keys, std::int64_t otherwise) const;
  AbsoluteSpec learned(std::int64_t rows, std::int64_t offset) const;

 private:
  const Keys& keys_;
  const std::vector<Layer>& layers_;
  Declaration& declaration_;
  Doubts& doubts_;
};

}  // namespace gnomon::files
