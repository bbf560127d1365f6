// SPDX-License-Identifier: Apache-2.0
#include "model/flat_reader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "spec/fields.hpp"

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

void FlatReader::read_rule_fields(const Keys& block, RotaryDeclaration& rotary) {
  for_each_rotary_rule([&]<class Rule>(const Rule&) {
    each_field<Rule>([&](const auto& field) {
      using Value = std::remove_cvref_t<decltype(std::declval<Rule&>().*field.member)>;
      if constexpr (std::is_same_v<Value, std::vector<double>>) {
        if (const auto list = block.list(field.name)) rotary.lists[std::string(field.name)] = *list;
      } else if constexpr (!std::is_same_v<Value, bool> && !std::is_enum_v<Value>) {
        if (const auto number = block.number(field.name)) rotary.numbers[std::string(field.name)] = *number;
      }
    });
  });
  rotary.truncate = block.boolean("truncate");
  rotary.attention_factor = block.number("attention_factor");
  rotary.sections = block.list("mrope_section");
}

Integer FlatReader::width_of(const Number& fraction) const {
  const double product = declaration_.model.head_dim * fraction.value;
  if (!(product >= 0 && product <= std::numeric_limits<int>::max())) return {-1, fraction.origin};  // out of range in any case
  const double whole = std::round(product);
  return {static_cast<std::int64_t>(std::abs(product - whole) <= 1e-6 ? whole : product), fraction.origin};
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
