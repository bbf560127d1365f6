// SPDX-License-Identifier: Apache-2.0
// The rules as surfaces show them, from their field lists.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "fields.hpp"
#include "gnomon/spec.hpp"

namespace gnomon {
namespace {

template <class Value>
constexpr bool is_list = std::is_same_v<Value, std::vector<double>>;

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
  } else if constexpr (is_list<Value>) {
    return "list of numbers";
  } else {
    return "number";
  }
}

/// A default as JSON text.
template <class Value>
std::string default_text(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return fmt::format("\"{}\"", enum_name(value));
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    return value ? default_text(*value) : "null";
  } else if constexpr (std::is_same_v<Value, double>) {
    return value == std::trunc(value) ? fmt::format("{:.1f}", value) : fmt::format("{}", value);
  } else if constexpr (is_list<Value>) {
    return fmt::format("[{}]", fmt::join(value, ", "));
  } else {
    return fmt::format("{}", value);
  }
}

/// A value that makes a field's meaning visible: its default where that is allowed, a usual factor or length otherwise.
template <class Rule, class Value>
std::string example_value(const Field<Rule, Value>& field) {
  if constexpr (is_list<Value>) {
    return field.name == "inv_freq" ? "[1, 0.1, 0.01, 0.001]" : field.name == "long_factor" ? "[1, 2, 4, 8]" : "[1, 1, 1, 1]";
  } else if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    if (field.name == "factor") return "4";
    if (field.name == "partial_rotary_factor") return "0.25";
    const auto value = static_cast<double>(Rule{}.*field.member);
    const bool allowed = field.bound.low_included ? value >= field.bound.low : value > field.bound.low;
    return fmt::format("{}", allowed ? value : 8192);
  } else {
    return default_text(Rule{}.*field.member);
  }
}

/// What every object of a kind has beside the fields of its rule.
std::vector<FieldInfo> common_fields(std::string_view kind) {
  if (kind == "bias") return {};
  if (kind == "absolute") {
    return {{"width", "integer", "an integer from 1 to 65536", "the hidden size: columns of a row", true, ""}};
  }
  return {
      {"theta", "number", "a positive number", "base of the frequencies", true, ""},
      {"head_dim", "integer", "an integer from 1 to 65536", "full width of a query or key", true, ""},
      {"rotary_dim", "integer", "an even integer from 2 to head_dim", "how many channels turn; head_dim when left out", false, ""},
      {"rotary_offset", "integer", "an integer from 0 to head_dim - rotary_dim", "first channel that turns", false, "0"},
      {"layout", "half_split | interleaved", "half_split | interleaved",
       "which channels form pair i: (i, i + rotary_dim/2) or (2i, 2i + 1)", false, "\"half_split\""},
      {"attention_factor", "number", "a number of at least 0", "magnitude on cos and sin; what the rule implies when left out", false, ""},
      {"axes", "integer", "an integer from 1 to 8", "position axes with frequencies of their own (vision)", false, "1"},
      {"sections", "list of integers", "numbers that sum to the pairs", "pairs driven by each position axis (M-RoPE)", false, "[]"},
      {"section_order", "chunked | interleaved | time_last", "chunked | interleaved | time_last",
       "whether sections are runs of pairs, axes take turns, or all but the first do and it has the rest", false, "\"chunked\""},
  };
}

/// Whether the `hf` profile exists for a rule: it has frequencies, and transformers makes the same.
template <class Rule>
bool in_transformers() {
  if constexpr (requires { Rule{}.in_transformers(); }) return Rule{}.in_transformers();
  return false;
}

/// Which of a rule's numbers this library makes.
template <class Rule>
std::string numerics_text(std::string_view kind) {
  if constexpr (requires { Rule::is_trained; }) return "none: the numbers are parameters of a model";
  if (kind == "bias") return "exact";
  return in_transformers<Rule>() ? "exact, and hf: the float32 steps of the transformers library"
                                 : "exact only: the transformers library has no such rule, so there is no hf";
}

template <class Rule>
std::string example_of(std::string_view kind, bool has_lists) {
  std::string text = fmt::format(R"({{"rule": "{}")", Rule::name);
  if constexpr (requires { Rule::example; }) {
    return fmt::format("{}, {}}}", text, Rule::example);
  } else if (kind == "absolute") {
    text += R"(, "width": 512)";
  } else if (kind == "rotary") {
    if (needs_theta<Rule>()) text += R"(, "theta": 10000)";
    text += fmt::format(R"(, "head_dim": {})", has_lists ? 8 : 128);
  }
  each_field<Rule>([&](const auto& field) {
    if (field.required) text += fmt::format(R"(, "{}": {})", field.name, example_value(field));
  });
  return text + "}";
}

template <class Rule>
RuleInfo describe(const std::string& kind) {
  RuleInfo info{kind,
                std::string(Rule::name),
                std::string(Rule::summary),
                std::string(Rule::formula),
                std::string(Rule::citation),
                in_transformers<Rule>(),
                numerics_text<Rule>(kind),
                {},
                {},
                {}};
  bool has_lists = false;
  each_field<Rule>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(Rule{}.*field.member)>;
    const bool bounded = !std::is_enum_v<Value> && !std::is_same_v<Value, bool>;
    const std::string bound = is_list<Value> ? fmt::format("for each {} {}", info.kind == "bias" ? "head" : "pair", field.bound.text)
                                             : std::string(field.bound.text);
    has_lists = has_lists || is_list<Value>;
    info.fields.push_back({std::string(field.name), type_text<Value>(), bounded ? bound : type_text<Value>(), std::string(field.doc),
                           field.required, field.required ? "" : default_text(Rule{}.*field.member)});
  });
  info.common_fields = common_fields(info.kind);
  if (!needs_theta<Rule>()) std::erase_if(info.common_fields, [](const FieldInfo& field) { return field.name == "theta"; });
  info.example = example_of<Rule>(info.kind, has_lists);
  return info;
}

}  // namespace

std::vector<RuleInfo> list_rules() {
  std::vector<RuleInfo> rules;
  for_each_rotary_rule([&]<class Rule>(const Rule&) { rules.push_back(describe<Rule>("rotary")); });
  for_each_absolute_rule([&]<class Rule>(const Rule&) { rules.push_back(describe<Rule>("absolute")); });
  for_each_bias_rule([&]<class Rule>(const Rule&) { rules.push_back(describe<Rule>("bias")); });
  return rules;
}

}  // namespace gnomon
