// SPDX-License-Identifier: Apache-2.0
// The canonical JSON of specs, both ways, from the field lists of the rules.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "fields.hpp"
#include "gnomon/spec.hpp"
#include "strict_json.hpp"

namespace gnomon {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(std::string_view key, std::string_view expected, const nlohmann::json& got) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: expected {}, got {}", key, expected, got.dump()));
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class Value>
Json value_to_json(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return std::string(enum_name(value));
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    return or_null(value);
  } else {
    return value;
  }
}

double number_of(std::string_view key, const nlohmann::json& json) {
  if (!json.is_number()) refuse(key, "a number", json);
  return json.get<double>();
}

int integer_of(std::string_view key, const nlohmann::json& json) {
  const double value = number_of(key, json);
  if (value != std::trunc(value) || std::abs(value) > 2e9) refuse(key, "an integer below 2e9 in size", json);
  return static_cast<int>(value);
}

template <class Enum>
Enum enum_of_json(std::string_view key, const nlohmann::json& json) {
  if (json.is_string()) {
    if (const auto value = enum_of<Enum>(json.get_ref<const std::string&>())) return *value;
  }
  refuse(key, enum_choices<Enum>(), json);
}

template <class Value>
void read_value(std::string_view key, const nlohmann::json& json, Value& value) {
  if constexpr (std::is_same_v<Value, double>) {
    value = number_of(key, json);
  } else if constexpr (std::is_same_v<Value, std::int64_t>) {
    value = integer_of(key, json);
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    if (!json.is_null()) value = number_of(key, json);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (!json.is_boolean()) refuse(key, "true or false", json);
    value = json.get<bool>();
  } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
    if (!json.is_array()) refuse(key, "a list of numbers", json.is_object() ? "an object" : json);
    for (std::size_t i = 0; i < json.size(); i++) value.push_back(number_of(fmt::format("{}[{}]", key, i), json[i]));
  } else {
    static_assert(std::is_enum_v<Value>);
    value = enum_of_json<Value>(key, json);
  }
}

/// Takes keys out of an object one by one; what is left at the end was not understood.
class Reader {
 public:
  Reader(std::string_view what, const nlohmann::json& object) : what_(what), object_(object) {}
  const nlohmann::json* find(std::string_view key) {
    known_.emplace(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  const nlohmann::json& require(std::string_view key) {
    if (const auto* found = find(key)) return *found;
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: missing from the {} object", key, what_));
  }
  void refuse_unknown(std::string_view rule) const {
    for (const auto& [key, value] : object_.items()) {
      if (known_.contains(key)) continue;
      std::string known;
      for (const auto& name : known_) known += (known.empty() ? "" : ", ") + name;
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: unknown key for rule {} (known: {})", key, rule, known));
    }
  }

 private:
  std::string_view what_;
  const nlohmann::json& object_;
  std::set<std::string, std::less<>> known_;
};

template <class Rule>
Rule read_rule(Reader& reader) {
  Rule rule;
  each_field<Rule>([&](const auto& field) {
    const auto* json = field.required ? &reader.require(field.name) : reader.find(field.name);
    if (json != nullptr) read_value(field.name, *json, rule.*field.member);
  });
  return rule;
}

template <class List>
List read_named_rule(const nlohmann::json& name, Reader& reader) {
  std::optional<List> found;
  std::string known;
  for_each_rule<List>([&]<class Rule>(const Rule&) {
    known += (known.empty() ? "" : ", ") + std::string(Rule::name);
    if (name.is_string() && name.get_ref<const std::string&>() == Rule::name) found = read_rule<Rule>(reader);
  });
  if (!found) refuse("rule", "one of " + known, name);
  return *found;
}

template <class List>
void write_fields(const List& list, Json& json) {
  std::visit(
      [&](const auto& rule) {
        using Rule = std::remove_cvref_t<decltype(rule)>;
        each_field<Rule>([&](const auto& field) { json[std::string(field.name)] = value_to_json(rule.*field.member); });
      },
      list);
}

nlohmann::json object_of(std::string_view text, std::string_view what) {
  nlohmann::json json = parse_strict(text, what);
  if (!json.is_object()) throw Error(ErrorCode::malformed, fmt::format("{}: expected a JSON object, got {}", what, json.type_name()));
  return json;
}

/// A rule without a base has none in its object, or null.
void read_theta(Reader& reader, const nlohmann::json& name, RotarySpec& spec) {
  bool has_base = true;
  for_each_rotary_rule([&]<class Rule>(const Rule&) { has_base = has_base && (needs_theta<Rule>() || name != Rule::name); });
  if (has_base) {
    spec.theta = number_of("theta", reader.require("theta"));
  } else if (const auto* theta = reader.find("theta"); theta != nullptr && !theta->is_null()) {
    refuse("theta", "null for a rule without a base", *theta);
  }
}

void read_axes(Reader& reader, RotarySpec& spec) {
  if (const auto* value = reader.find("axes")) spec.axes = integer_of("axes", *value);
  if (const auto* value = reader.find("sections")) {
    if (!value->is_array()) refuse("sections", "a list of integers", *value);
    for (const auto& section : *value) spec.sections.push_back(integer_of("sections", section));
  }
  if (const auto* value = reader.find("section_order")) spec.section_order = enum_of_json<SectionOrder>("section_order", *value);
}

Json json_of(const RotarySpec& spec) {
  Json json;
  json["rule"] = std::string(rule_name(spec.rule));
  json["theta"] = spec.theta > 0 ? Json(spec.theta) : Json(nullptr);
  json["head_dim"] = spec.head_dim;
  json["rotary_dim"] = spec.rotary_dim;
  json["rotary_offset"] = spec.rotary_offset;
  json["layout"] = std::string(enum_name(spec.layout));
  json["attention_factor"] = effective_attention_factor(spec);
  if (spec.axes > 1) json["axes"] = spec.axes;
  if (!spec.sections.empty()) {
    json["sections"] = spec.sections;
    json["section_order"] = std::string(enum_name(spec.section_order));
  }
  write_fields(spec.rule, json);
  return json;
}

Json json_of(const AbsoluteSpec& spec) {
  Json json;
  json["rule"] = std::string(rule_name(spec.rule));
  json["width"] = spec.width;
  write_fields(spec.rule, json);
  return json;
}

Json json_of(const BiasRule& rule) {
  Json json;
  json["rule"] = std::string(rule_name(rule));
  write_fields(rule, json);
  return json;
}

Json json_of(const Mask& mask) {
  return {{"causal", mask.causal}, {"window", or_null(mask.window)}, {"chunk", or_null(mask.chunk)}, {"keep_first", mask.keep_first}};
}

Json json_of(const QueryTemperature& temperature) {
  if (const auto* logarithm = std::get_if<LogTemperature>(&temperature)) return {{"rule", "log_n"}, {"length", logarithm->length}};
  const auto& steps = std::get<StepTemperature>(temperature);
  return {{"rule", "steps"}, {"attn_scale", steps.attn_scale}, {"floor_scale", steps.floor_scale}, {"offset", steps.offset}};
}

Json json_of(const DualChunk& chunks) {
  return {{"chunk_size", chunks.chunk_size},
          {"local_size", chunks.local_size},
          {"original_max_position_embeddings", chunks.original_max_position_embeddings}};
}

template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? json_of(*value) : Json(nullptr);
}

}  // namespace

std::string to_json(const RotarySpec& spec) { return json_of(spec).dump(); }
std::string to_json(const AbsoluteSpec& spec) { return json_of(spec).dump(); }
std::string to_json(const BiasRule& rule) { return json_of(rule).dump(); }

std::string to_json(const PositionSpec& spec) {
  const Json json = {
      {"absolute", json_or_null(spec.absolute)},
      {"rotary", json_or_null(spec.rotary)},
      {"bias", json_or_null(spec.bias)},
      {"mask", json_of(spec.mask)},
      {"softmax_scale", spec.softmax_scale > 0 ? Json(spec.softmax_scale) : Json(nullptr)},
      {"softcap", or_null(spec.softcap)},
      {"sink_logits", spec.sink_logits},
      {"query_temperature", json_or_null(spec.query_temperature)},
      {"rotates_values", spec.rotates_values},
      {"rotates_output_back", spec.rotates_output_back},
      {"dual_chunk", json_or_null(spec.dual_chunk)},
  };
  return json.dump();
}

RotarySpec rotary_from_json(std::string_view text) {
  const nlohmann::json json = object_of(text, "rotary");
  Reader reader("rotary", json);
  RotarySpec spec;
  const auto& name = reader.require("rule");
  read_theta(reader, name, spec);
  spec.head_dim = integer_of("head_dim", reader.require("head_dim"));
  spec.rotary_dim = spec.head_dim;
  if (const auto* value = reader.find("rotary_dim")) spec.rotary_dim = integer_of("rotary_dim", *value);
  if (const auto* value = reader.find("rotary_offset")) spec.rotary_offset = integer_of("rotary_offset", *value);
  if (const auto* value = reader.find("layout")) spec.layout = enum_of_json<PairLayout>("layout", *value);
  const auto* attention_factor = reader.find("attention_factor");
  read_axes(reader, spec);
  spec.rule = read_named_rule<RotaryRule>(name, reader);
  reader.refuse_unknown(rule_name(spec.rule));
  validate(spec);
  if (attention_factor != nullptr && !attention_factor->is_null()) {
    const double magnitude = number_of("attention_factor", *attention_factor);
    if (magnitude != effective_attention_factor(spec)) spec.attention_factor = magnitude;
    validate(spec);
  }
  return spec;
}

AbsoluteSpec absolute_from_json(std::string_view text) {
  const nlohmann::json json = object_of(text, "absolute");
  Reader reader("absolute", json);
  AbsoluteSpec spec;
  const auto& name = reader.require("rule");
  spec.width = integer_of("width", reader.require("width"));
  spec.rule = read_named_rule<AbsoluteRule>(name, reader);
  reader.refuse_unknown(rule_name(spec.rule));
  validate(spec);
  return spec;
}

BiasRule bias_from_json(std::string_view text) {
  const nlohmann::json json = object_of(text, "bias");
  Reader reader("bias", json);
  const auto rule = read_named_rule<BiasRule>(reader.require("rule"), reader);
  reader.refuse_unknown(rule_name(rule));
  validate(rule);
  return rule;
}

}  // namespace gnomon
