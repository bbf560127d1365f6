// SPDX-License-Identifier: Apache-2.0
// What the readers of one flat object of keys share: every format but config.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/declaration.hpp"
#include "model/shape.hpp"

namespace gnomon::files {

/// Where a family's code has a constant for what the file leaves out: the constant, and whose it is, for the message.
struct DefaultTheta {
  double value = 0;
  std::string_view whose;
};

class FlatReader {
 public:
  FlatReader(const FlatReader&) = delete;
  FlatReader& operator=(const FlatReader&) = delete;

 protected:
  /// `root` must outlive the reader; `prefix` stands before every key.
  FlatReader(const nlohmann::json& root, const std::string& file, const std::string& path, const char* format, std::string prefix = "");
  ~FlatReader() = default;

  Model& model() { return declaration_.model; }
  std::optional<Integer> count(std::string_view key) { return read_count(keys_, {key}, doubts_); }

  /// head_dim^-1/2, unless the file says otherwise elsewhere.
  void scale_by_head_dim();
  /// A rotation of whole heads at the base under `key`, or at the default, with a note.
  RotaryDeclaration rotation(std::string_view key, std::optional<DefaultTheta> otherwise);
  void default_theta(RotaryDeclaration& rotary, std::string_view key, std::optional<DefaultTheta> otherwise);
  void set_linear(RotaryDeclaration& rotary, const Number& factor);
  void set_llama3(RotaryDeclaration& rotary, const Number& factor, const Number& low, const Number& high, const Number& original);
  /// One entry per layer: a longer list is cut and a shorter one is filled with `otherwise`, each with a doubt. Nothing without the key,
  /// or when it is no array.
  std::optional<std::vector<nlohmann::json>> per_layer(std::string_view key, const nlohmann::json& otherwise);
  /// Notes keys about position that were not read, and groups the layers.
  Model finish();

  Doubts doubts_;
  Declaration declaration_;
  Keys keys_;
};

}  // namespace gnomon::files
