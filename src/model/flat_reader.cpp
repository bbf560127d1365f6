// SPDX-License-Identifier: Apache-2.0
#include "model/flat_reader.hpp"

#include <fmt/format.h>

#include <cmath>

namespace gnomon::files {

using nlohmann::json;

FlatReader::FlatReader(const json& root, const std::string& file, const std::string& path, const char* format, std::string prefix)
    : keys_(root, file, std::move(prefix), doubts_) {
  model().path = path;
  model().format = format;
}

void FlatReader::scale_by_head_dim() {
  if (model().head_dim > 0) declaration_.softmax_scale = {std::pow(model().head_dim, -0.5), keys_.derived("head_dim")};
}

RotaryDeclaration FlatReader::rotation(std::string_view key, std::optional<DefaultTheta> otherwise) {
  RotaryDeclaration rotary;
  rotary.theta = keys_.number(key);
  default_theta(rotary, key, otherwise);
  if (model().head_dim > 0) rotary.rotary_dim = Integer{model().head_dim, declaration_.head_dim_origin};
  return rotary;
}

void FlatReader::default_theta(RotaryDeclaration& rotary, std::string_view key, std::optional<DefaultTheta> otherwise) {
  if (rotary.theta || !otherwise || keys_.has(key)) return;
  rotary.theta = Number{otherwise->value, family_default()};
  doubts_.add("theta-missing-family-default", {keys_.full(key)},
              fmt::format("{} is not in the file; {} of {} is used", keys_.full(key), quoted(otherwise->value), otherwise->whose));
}

void FlatReader::set_linear(RotaryDeclaration& rotary, const Number& factor) {
  if (factor.value == 1) return;
  rotary.type = {"linear", factor.origin};
  rotary.numbers["factor"] = factor;
}

void FlatReader::set_llama3(RotaryDeclaration& rotary, const Number& factor, const Number& low, const Number& high,
                            const Number& original) {
  rotary.type = {"llama3", factor.origin};
  rotary.numbers["factor"] = factor;
  rotary.numbers["low_freq_factor"] = low;
  rotary.numbers["high_freq_factor"] = high;
  rotary.numbers["original_max_position_embeddings"] = original;
}

std::optional<std::vector<json>> FlatReader::per_layer(std::string_view key, const json& otherwise) {
  const json* list = keys_.find(key);
  if (list == nullptr || list->is_null()) return std::nullopt;
  if (!list->is_array()) {
    doubts_.add("value-kind", {keys_.full(key)}, fmt::format("{}: expected an array, got {}", keys_.full(key), quoted(*list)));
    return std::nullopt;
  }
  const auto layers = static_cast<std::size_t>(model().layers);
  const std::string message = fmt::format("{} has {} entries for {} layers", keys_.full(key), list->size(), layers);
  if (list->size() > layers) doubts_.add("layer-list-length", {keys_.full(key)}, message);
  if (list->size() < layers) doubts_.add("layer-list-short", {keys_.full(key)}, message);
  std::vector<json> values(list->begin(), list->begin() + static_cast<std::ptrdiff_t>(std::min(layers, list->size())));
  values.resize(layers, otherwise);
  return values;
}

Model FlatReader::finish() {
  for (const auto& key : keys_.unread()) {
    if (is_positional(key)) model().unread.push_back(key);
  }
  return assemble(std::move(declaration_), doubts_);
}

}  // namespace gnomon::files
