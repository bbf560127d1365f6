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
  out.print(
      R"({{"schema": 1, "kind": {}, "name": {}, "summary": {}, "formula": {}, "citation": {}, "in_transformers": {}, "numerics": {}, )",
      json_quote(rule.kind), json_quote(rule.name), json_quote(rule.summary), json_quote(rule.formula), json_quote(rule.citation),
      rule.in_transformers, json_quote(rule.numerics));
  out.print("\"fields\": {}, \"common_fields\": {}, \"example\": {}}}\n", json_fields(rule.fields), json_fields(rule.common_fields),
            rule.example);
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
  if (!rule.common_fields.empty()) {
    section(fmt::format("fields of every {} object", rule.kind));
    print_fields(out, rule.common_fields);
  }
  section("numerics");
  paragraph(rule.numerics);
  section("source");
  paragraph(rule.citation);
  section("try it");
  if (rule.kind == "rotary") {
    out.print("    gnomon freqs --rotary {}\n", shell_quote(rule.example));
  } else {
    out.print("    in Python: gnomon.{}.from_json('{}')\n", rule.kind == "bias" ? "bias" : "AbsoluteSpec", rule.example);
  }
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
