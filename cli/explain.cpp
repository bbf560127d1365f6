// SPDX-License-Identifier: Apache-2.0
// gnomon explain: what a rule computes, what it needs, where it comes from, and an example to try; or what a doubt of inspect means.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "gnomon/model.hpp"
#include "gnomon/spec.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

/// What every rotary object has beside the fields of its rule; see RotarySpec.
const std::vector<FieldInfo>& rotary_fields() {
  static const std::vector<FieldInfo> fields{
      {"theta", "number", "a positive number", "base of the frequencies", true, ""},
      {"head_dim", "integer", "an integer from 1 to 65536", "full width of a query or key", true, ""},
      {"rotary_dim", "integer", "an even integer from 2 to head_dim", "how many channels turn; head_dim when left out", false, ""},
      {"rotary_offset", "integer", "an integer from 0 to head_dim - rotary_dim", "first channel that turns", false, "0"},
      {"layout", "half_split | interleaved", "half_split | interleaved",
       "which channels form pair i: (i, i + rotary_dim/2) or (2i, 2i + 1)", false, "\"half_split\""},
      {"attention_factor", "number", "a number of at least 0", "magnitude on cos and sin; what the rule implies when left out", false, ""},
  };
  return fields;
}

/// A value that makes a field's meaning visible: its default where that is allowed, a usual factor or length otherwise.
template <class Rule, class Value>
std::string example_value(const Field<Rule, Value>& field) {
  if constexpr (!std::is_same_v<Value, double> && !std::is_same_v<Value, std::int64_t>) {
    return "null";
  } else {
    if (field.name == "factor") return "4";
    const auto value = static_cast<double>(Rule{}.*field.member);
    const bool allowed = field.bound.low_included ? value >= field.bound.low : value > field.bound.low;
    return fmt::format("{}", allowed ? value : 8192);
  }
}

/// A rule object with all that is required and nothing else.
std::string example_of(std::string_view name) {
  std::string example;
  for_each_rotary_rule([&]<class Rule>(const Rule&) {
    if (Rule::name != name) return;
    example = fmt::format(R"({{"rule": "{}", "theta": 10000, "head_dim": 128)", name);
    const auto add = [&](const auto& field) {
      if (field.required) example += fmt::format(R"(, "{}": {})", field.name, example_value(field));
    };
    std::apply([&](const auto&... field) { (add(field), ...); }, Rule::fields);
    example += "}";
  });
  return example;
}

std::optional<RuleInfo> rule_named(const std::string& name) {
  for (const auto& rule : list_rules()) {
    if (rule.name == name) return rule;
  }
  return std::nullopt;
}

std::optional<DoubtInfo> doubt_named(const std::string& code) {
  for (const auto& doubt : list_doubts()) {
    if (doubt.code == code) return doubt;
  }
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& name) {
  std::vector<std::string> rules;
  for (const auto& rule : list_rules()) rules.push_back(rule.name);
  std::vector<std::string> known = rules;
  for (const auto& doubt : list_doubts()) known.emplace_back(doubt.code);
  throw Misuse(fmt::format("explain: \"{}\" is neither a rule nor a doubt of inspect{} (rules: {})", printable(name),
                           suggestion(name, known), joined(rules)));
}

std::string json_fields(const std::vector<FieldInfo>& fields) {
  std::vector<std::string> texts;
  texts.reserve(fields.size());
  for (const auto& field : fields) {
    texts.push_back(fmt::format(R"({{"name": {}, "type": {}, "bound": {}, "required": {}, "default": {}, "doc": {}}})",
                                json_quote(field.name), json_quote(field.type), json_quote(field.bound), field.required,
                                field.default_value.empty() ? "null" : field.default_value, json_quote(field.doc)));
  }
  return "[" + joined(texts) + "]";
}

void print_json(Output& out, const RuleInfo& rule) {
  out.print(R"({{"schema": 1, "kind": {}, "name": {}, "summary": {}, "formula": {}, "citation": {}, "in_transformers": {}, )",
            json_quote(rule.kind), json_quote(rule.name), json_quote(rule.summary), json_quote(rule.formula), json_quote(rule.citation),
            rule.in_transformers);
  out.print("\"fields\": {}, \"common_fields\": {}, \"example\": {}}}\n", json_fields(rule.fields), json_fields(rotary_fields()),
            example_of(rule.name));
}

void print_section(Output& out, std::string_view name) { out.print("\n  {}\n", styled(Style::label, name)); }
void print_paragraph(Output& out, std::string_view text) { out.print("    {}\n", wrapped(text, line_width(), 4)); }

void print_fields(Output& out, const std::vector<FieldInfo>& fields) {
  std::size_t widest = 0;
  for (const auto& field : fields) widest = std::max(widest, field.name.size());
  const std::string indent(widest + 6, ' ');
  for (const auto& field : fields) {
    const std::string need = field.required ? "required" : field.default_value.empty() ? "optional" : "default " + field.default_value;
    const std::string_view null = field.type == "number or null" ? ", or null" : "";
    out.print("    {:<{}}  {}\n", field.name, widest, wrapped(field.doc, line_width(), indent.size()));
    out.print("{}{}\n", indent, styled(Style::label, fmt::format("{}{}; {}", field.bound, null, need)));
  }
}

void print_people(Output& out, const RuleInfo& rule) {
  const auto section = [&](std::string_view name) { print_section(out, name); };
  const auto paragraph = [&](std::string_view text) { print_paragraph(out, text); };
  out.print("{} ({}): {}\n", rule.name, rule.kind, rule.summary);
  section("formula");
  for (std::string_view rest = rule.formula; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    out.print("    {}\n", line);
  }
  if (!rule.fields.empty()) {
    section("fields");
    print_fields(out, rule.fields);
  }
  section("fields of every rotary object");
  print_fields(out, rotary_fields());
  section("numerics");
  paragraph(rule.in_transformers ? "exact, and hf: the float32 steps of the transformers library"
                                 : "exact only: the transformers library has no such rule, so there is no hf");
  section("source");
  paragraph(rule.citation);
  section("try it");
  out.print("    gnomon freqs --rotary {}\n", shell_quote(example_of(rule.name)));
}

void print_json(Output& out, const DoubtInfo& doubt) {
  out.print("{{\"schema\": 1, \"kind\": \"doubt\", \"name\": {}, \"level\": {}, \"cause\": {}, \"cost\": {}, \"remedy\": {}}}\n",
            json_quote(doubt.code), json_quote(enum_names<Level>[static_cast<std::size_t>(doubt.level)]), json_quote(doubt.cause),
            json_quote(doubt.cost), json_quote(doubt.remedy));
}

void print_people(Output& out, const DoubtInfo& doubt) {
  out.print("{} (doubt of inspect, level {})\n", doubt.code, enum_names<Level>[static_cast<std::size_t>(doubt.level)]);
  for (const auto& [name, text] : {std::pair{"cause", doubt.cause}, {"cost", doubt.cost}, {"remedy", doubt.remedy}}) {
    print_section(out, name);
    print_paragraph(out, text);
  }
}

template <class Info>
int print(const Info& info, bool json) {
  Output out;
  json ? print_json(out, info) : print_people(out, info);
  out.finish();
  return 0;
}

}  // namespace

Verb add_explain(CLI::App& root) {
  struct Options {
    std::string rule;
    bool json = false;
  };
  auto* app = root.add_subcommand("explain", "A rule's formula, fields, source and an example; or a doubt of inspect");
  const auto options = std::make_shared<Options>();
  app->add_option("RULE", options->rule, "Name of a rule (gnomon list shows them), or code of a doubt")
      ->type_name("RULE")
      ->option_text(" ")
      ->required();
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer("Examples:\n  gnomon explain yarn\n  gnomon explain llama3 --json\n  gnomon explain theta-conflict");
  return {app, [options]() -> int {
            if (const auto rule = rule_named(options->rule)) return print(*rule, options->json);
            if (const auto doubt = doubt_named(options->rule)) return print(*doubt, options->json);
            refuse(options->rule);
          }};
}

}  // namespace gnomon::cli
