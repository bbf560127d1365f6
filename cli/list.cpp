// SPDX-License-Identifier: Apache-2.0
// gnomon list: every rule, by kind, with one line about it.
#include <algorithm>
#include <memory>

#include "gnomon/spec.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

void print_json(Output& out) {
  out.write(R"({"schema": 1, "rules": [)");
  std::string_view separator;
  for (const auto& rule : list_rules()) {
    out.print("{}{{\"kind\": {}, \"name\": {}, \"summary\": {}, \"in_transformers\": {}}}", separator, json_quote(rule.kind),
              json_quote(rule.name), json_quote(rule.summary), rule.in_transformers);
    separator = ", ";
  }
  out.write("]}\n");
}

void print_table(Output& out) {
  const auto rules = list_rules();
  std::size_t widest = 0;
  for (const auto& rule : rules) widest = std::max(widest, rule.name.size());
  std::string_view kind;
  for (const auto& rule : rules) {
    if (rule.kind != kind) out.print("{}{}\n", kind.empty() ? "" : "\n", styled(Style::label, rule.kind));
    kind = rule.kind;
    out.print("  {:<{}}   {}\n", rule.name, widest, rule.summary);
  }
  if (on_terminal()) out.print("\n{}\n", styled(Style::label, "gnomon explain RULE shows formula, fields, source and an example."));
}

}  // namespace

Verb add_list(CLI::App& root) {
  auto* app = root.add_subcommand("list", "All rules, by kind, with one line about each");
  const auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "Print one JSON object");
  app->footer("Examples:\n  gnomon list\n  gnomon list --json");
  return {app, [json] {
            Output out;
            *json ? print_json(out) : print_table(out);
            out.finish();
            return 0;
          }};
}

}  // namespace gnomon::cli
