// SPDX-License-Identifier: Apache-2.0
// What two files say otherwise about one model: by meaning, not by spelling.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "gnomon/error.hpp"
#include "gnomon/frequencies.hpp"
#include "model/declaration.hpp"
#include "model/folder.hpp"

namespace gnomon::files {
namespace {

// GGUF files hold float32.
bool near(double a, double b) { return std::abs(a - b) <= 2e-6 * std::max(std::abs(a), std::abs(b)); }

bool turn_alike(const RotarySpec& a, const RotarySpec& b) {
  if (a.rotary_dim != b.rotary_dim) return false;
  try {
    const auto fa = frequencies(a).inv_freq, fb = frequencies(b).inv_freq;
    return std::equal(fa.begin(), fa.end(), fb.begin(), fb.end(), [](double x, double y) { return near(x, y) || std::max(x, y) < 1e-25; });
  } catch (const Error&) {
    return a == b;
  }
}

/// "llama3 against default", or the fields in which one rule differs.
std::string rotation_text(const RotarySpec& a, const RotarySpec& b) {
  if (rule_name(a.rule) != rule_name(b.rule))
    return fmt::format("{} (theta {}) against {} (theta {})", rule_name(a.rule), a.theta, rule_name(b.rule), b.theta);
  const auto ours = nlohmann::json::parse(to_json(a));
  auto theirs = nlohmann::json::parse(to_json(b));
  std::vector<std::string> fields;
  for (const auto& [field, value] : ours.items()) {
    if (field != "layout" && value != theirs[field])
      fields.push_back(fmt::format("{} {} against {}", field, quoted(value), quoted(theirs[field])));
  }
  return fmt::format("{} with {}", rule_name(a.rule), fmt::join(fields, ", "));
}

/// How two set-ups of a layer differ, one sentence each.
std::vector<std::string> differences(const PositionSpec& a, const PositionSpec& b, bool same_weights) {
  std::vector<std::string> found;
  const auto number = [&](const char* what, double x, double y) {
    if (!near(x, y)) found.push_back(fmt::format("{} {} against {}", what, x, y));
  };
  const auto length = [&](const char* what, const std::optional<std::int64_t>& x, const std::optional<std::int64_t>& y) {
    const auto text = [](const auto& value) { return value ? fmt::format("{}", *value) : std::string("none"); };
    if (x != y) found.push_back(fmt::format("{} {} against {}", what, text(x), text(y)));
  };
  if (a.rotary.has_value() != b.rotary.has_value()) {
    found.push_back(a.rotary ? "a rotation against none" : "no rotation against one");
  } else if (a.rotary) {
    number("rotated channels", a.rotary->rotary_dim, b.rotary->rotary_dim);
    number("head_dim", a.rotary->head_dim, b.rotary->head_dim);
    if (!turn_alike(*a.rotary, *b.rotary))
      found.push_back(fmt::format("{}, which differ by 1 % {}", rotation_text(*a.rotary, *b.rotary), parting(*a.rotary, *b.rotary)));
    number("attention_factor", effective_attention_factor(*a.rotary), effective_attention_factor(*b.rotary));
    if (same_weights && a.rotary->layout == PairLayout::interleaved && b.rotary->layout == PairLayout::half_split)
      found.emplace_back("interleaved against half_split");
  }
  if (a.bias.has_value() != b.bias.has_value() || (a.bias && a.bias->index() != b.bias->index())) {
    found.emplace_back("different biases");
  }
  length("window", a.mask.window, b.mask.window);
  length("chunk", a.mask.chunk, b.mask.chunk);
  if (a.mask.causal != b.mask.causal) found.emplace_back("causal against bidirectional");
  if (a.softmax_scale > 0 && b.softmax_scale > 0) number("softmax_scale", a.softmax_scale, b.softmax_scale);
  number("softcap", a.softcap.value_or(0), b.softcap.value_or(0));
  return found;
}

std::map<int, const PositionSpec*> layers_of(const Model& model) {
  const std::string part = model.groups.empty() ? "" : model.groups.front().part;
  std::map<int, const PositionSpec*> layers;
  for (const auto& group : model.groups) {
    if (group.part != part) continue;
    for (const int layer : group.layers) layers[layer] = &group.spec;
  }
  return layers;
}

}  // namespace

void compare_files(Model& model, const std::string& name, const Model& other, const std::string& other_name) {
  Doubts doubts;
  std::map<std::string, std::vector<int>> found;  // layers by what differs
  // A converter permutes half_split weights for its interleaved kernel, never the other way round.
  const bool same_weights = model.format == "hf" && other.format == "gguf";
  const auto ours = layers_of(model), theirs = layers_of(other);
  for (const auto& [layer, spec] : ours) {
    const auto match = theirs.find(layer);
    if (match == theirs.end()) continue;
    for (const auto& difference : differences(*spec, *match->second, same_weights)) found[difference].push_back(layer);
  }
  if (model.layers != other.layers) found[fmt::format("{} layers against {}", model.layers, other.layers)];
  for (const auto& [difference, layers] : found) {
    const std::string where = layers.empty() || layers.size() == ours.size()
                                  ? ""
                                  : fmt::format(" (layer {}{})", layers.front(), layers.size() > 1 ? " and others" : "");
    doubts.add("files-conflict", {name, other_name}, fmt::format("{} and {}: {}{}", name, other_name, difference, where));
  }
  if (model.declared && other.declared && *model.declared != *other.declared) {
    doubts.add("files-conflict", {name, other_name},
               fmt::format("{} and {}: a length of {} against {}", name, other_name, *model.declared, *other.declared));
  }
  doubts.append_to(model);
}

}  // namespace gnomon::files
