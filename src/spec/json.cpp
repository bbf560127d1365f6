// SPDX-License-Identifier: Apache-2.0
// The canonical JSON of a rotary spec, both ways, from the field lists of the rules.
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

template <class Value>
Json value_to_json(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return std::string(enum_name(value));
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    return value ? Json(*value) : Json(nullptr);
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
  } else {
    static_assert(std::is_enum_v<Value>);
    value = enum_of_json<Value>(key, json);
  }
}

/// Takes keys out of an object one by one; what is left at the end was not understood.
class Reader {
 public:
  explicit Reader(const nlohmann::json& object) : object_(object) {}
  const nlohmann::json* find(std::string_view key) {
    known_.emplace(key);
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  const nlohmann::json& require(std::string_view key) {
    if (const auto* found = find(key)) return *found;
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: missing from the rotary object", key));
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

RotaryRule read_named_rule(const nlohmann::json& name, Reader& reader) {
  std::optional<RotaryRule> found;
  std::string known;
  for_each_rotary_rule([&]<class Rule>(const Rule&) {
    known += (known.empty() ? "" : ", ") + std::string(Rule::name);
    if (name.is_string() && name.get_ref<const std::string&>() == Rule::name) found = read_rule<Rule>(reader);
  });
  if (!found) refuse("rule", "one of " + known, name);
  return *found;
}

}  // namespace

std::string to_json(const RotarySpec& spec) {
  Json json;
  json["rule"] = std::string(rule_name(spec.rule));
  json["theta"] = spec.theta;
  json["head_dim"] = spec.head_dim;
  json["rotary_dim"] = spec.rotary_dim;
  json["rotary_offset"] = spec.rotary_offset;
  json["layout"] = std::string(enum_name(spec.layout));
  json["attention_factor"] = effective_attention_factor(spec);
  std::visit(
      [&](const auto& rule) {
        using Rule = std::remove_cvref_t<decltype(rule)>;
        each_field<Rule>([&](const auto& field) { json[std::string(field.name)] = value_to_json(rule.*field.member); });
      },
      spec.rule);
  return json.dump();
}

RotarySpec rotary_from_json(std::string_view text) {
  const nlohmann::json json = parse_strict(text, "rotary");
  if (!json.is_object()) throw Error(ErrorCode::malformed, fmt::format("rotary: expected a JSON object, got {}", json.type_name()));
  Reader reader(json);
  RotarySpec spec;
  const auto& name = reader.require("rule");
  spec.theta = number_of("theta", reader.require("theta"));
  spec.head_dim = integer_of("head_dim", reader.require("head_dim"));
  spec.rotary_dim = spec.head_dim;
  if (const auto* value = reader.find("rotary_dim")) spec.rotary_dim = integer_of("rotary_dim", *value);
  if (const auto* value = reader.find("rotary_offset")) spec.rotary_offset = integer_of("rotary_offset", *value);
  if (const auto* value = reader.find("layout")) spec.layout = enum_of_json<PairLayout>("layout", *value);
  const auto* attention_factor = reader.find("attention_factor");
  spec.rule = read_named_rule(name, reader);
  reader.refuse_unknown(rule_name(spec.rule));
  validate(spec);
  if (attention_factor != nullptr && !attention_factor->is_null()) {
    const double magnitude = number_of("attention_factor", *attention_factor);
    if (magnitude != effective_attention_factor(spec)) spec.attention_factor = magnitude;
    validate(spec);
  }
  return spec;
}

namespace {

template <class Value>
std::string type_text() {
  if constexpr (std::is_enum_v<Value>) {
    return enum_choices<Value>();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return "boolean";
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    return "number or null";
  } else if constexpr (std::is_same_v<Value, std::int64_t>) {
    return "integer";
  } else {
    return "number";
  }
}

template <class Rule>
RuleInfo describe(std::string kind) {
  RuleInfo info{std::move(kind),
                std::string(Rule::name),
                std::string(Rule::summary),
                std::string(Rule::formula),
                std::string(Rule::citation),
                Rule{}.in_transformers(),
                {}};
  each_field<Rule>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(Rule{}.*field.member)>;
    const bool numeric = !std::is_enum_v<Value> && !std::is_same_v<Value, bool>;
    info.fields.push_back({std::string(field.name), type_text<Value>(), numeric ? std::string(field.bound.text) : type_text<Value>(),
                           std::string(field.doc), field.required, field.required ? "" : value_to_json(Rule{}.*field.member).dump()});
  });
  return info;
}

}  // namespace

std::vector<RuleInfo> list_rules() {
  std::vector<RuleInfo> rules;
  for_each_rotary_rule([&]<class Rule>(const Rule&) { rules.push_back(describe<Rule>("rotary")); });
  return rules;
}

}  // namespace gnomon
