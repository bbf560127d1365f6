// SPDX-License-Identifier: Apache-2.0
#include "model/hf_context.hpp"

#include <algorithm>

namespace gnomon::files {
namespace {

constexpr std::int64_t most_layers = 65536, most_heads = 65536, most_rows = std::int64_t{1} << 40;

}  // namespace

std::vector<std::size_t> HfContext::kinds_of(LayerType type) const {
  std::vector<std::size_t> result;
  for (std::size_t kind = 0; kind < layers_.size(); kind++) {
    if (layers_[kind].type == type) result.push_back(kind);
  }
  return result;
}

void HfContext::use_alibi(double bias_max, const Origin& origin) {
  const int heads = declaration_.model.heads;
  if (heads < 1 || heads > most_heads || !(bias_max > 0)) return;  // the shape is doubted where it was read
  for (auto& kind : declaration_.kinds) {
    kind.rotary.reset();
    kind.absolute.reset();
  }
  use_bias(bias::Alibi::of_heads(heads, bias_max, !declaration_.causal.value), origin);
}

void HfContext::use_bias(const BiasRule& rule, const Origin& origin) {
  for (auto& kind : declaration_.kinds) {
    kind.bias = rule;
    kind.origins["bias.rule"] = origin;
  }
}

AbsoluteSpec HfContext::learned(std::int64_t rows, std::int64_t offset) const {
  // ALBERT and ELECTRA add their table before a projection to the hidden size.
  const bool narrow = declaration_.model.type != "mobilebert";
  const std::int64_t width = narrow ? count({"embedding_size"}, declaration_.model.hidden_size) : declaration_.model.hidden_size;
  return {absolute::Learned{rows, offset}, static_cast<int>(std::clamp<std::int64_t>(width, 0, widest_head))};
}

void HfContext::use_learned(std::int64_t rows, std::int64_t offset, const Origin& origin) {
  const auto& length = declaration_.length;
  const bool counted = declaration_.family != nullptr && declaration_.family->offset_in_length;
  if (rows == 0 && length) rows = length->value + (counted ? 0 : offset);
  if (rows < 1 || rows > most_rows || declaration_.model.hidden_size < 1) {
    doubts_.add("shape-missing", {keys_.full("max_position_embeddings")}, "the number of learned positions is not in the file");
    return;
  }
  for (auto& kind : declaration_.kinds) {
    kind.rotary.reset();
    kind.absolute = learned(rows, offset);
    kind.origins["absolute.rows"] = length ? length->origin : origin;
    kind.origins["absolute.offset"] = origin;
  }
}

void HfContext::use_rotary(const RotaryDeclaration& rotary) {
  for (auto& kind : declaration_.kinds) kind.rotary = rotary;
}

void HfContext::set_temperature(std::size_t kind, const QueryTemperature& temperature, const Origin& origin) {
  declaration_.kinds[kind].query_temperature = temperature;
  declaration_.kinds[kind].origins["query_temperature"] = origin;
}

void HfContext::set_layers(std::int64_t count) {
  declaration_.model.layers = static_cast<int>(std::clamp<std::int64_t>(count, 0, most_layers));
  if (declaration_.kinds.empty()) declaration_.kinds.emplace_back();
  declaration_.kind_of_layer.assign(static_cast<std::size_t>(declaration_.model.layers), 0);
}

void HfContext::add_part(std::string name, std::int64_t count, LayerKind kind) {
  declaration_.kinds.push_back(std::move(kind));
  const auto layers = static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, most_layers));
  declaration_.other_parts.push_back({std::move(name), std::vector<std::size_t>(layers, declaration_.kinds.size() - 1)});
}

std::int64_t HfContext::count(std::initializer_list<std::string_view> keys, std::int64_t otherwise) const {
  for (const auto key : keys) {
    const auto read = keys_.integer(key);
    if (read && read->value >= 0 && read->value <= most_rows) return read->value;
  }
  return otherwise;
}

}  // namespace gnomon::files
