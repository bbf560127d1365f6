// SPDX-License-Identifier: Apache-2.0
// gnomon check-order: attention without positions is blind to order; each encoding makes it see, and rotations keep their laws.
#include "gnomon/analysis.hpp"

#include <algorithm>
#include <memory>

#include "output.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  RotarySource source;
  bool json = false;
};

bool hold(const std::vector<OrderReport>& reports) {
  return std::all_of(reports.begin(), reports.end(), [](const OrderReport& report) { return report.holds(); });
}

std::string json_check(const OrderCheck& check) {
  return fmt::format(R"({{"name": {}, "claim": {}, "measured": {}, "limit": "{}", "bound": {}, "holds": {}}})", json_quote(check.name),
                     json_quote(check.claim), json_number(check.measured), name_of(check.limit), json_number(check.bound), check.holds());
}

std::string json_report(const OrderReport& report) {
  std::vector<std::string> checks;
  std::transform(report.checks.begin(), report.checks.end(), std::back_inserter(checks), json_check);
  return fmt::format(R"({{"encoding": {}, "rotary": {}, "holds": {}, "checks": [{}]}})", json_quote(report.encoding),
                     report.rotary ? to_json(*report.rotary) : "null", report.holds(), joined(checks));
}

void print_json(Output& out, const std::vector<OrderReport>& reports) {
  std::vector<std::string> texts;
  std::transform(reports.begin(), reports.end(), std::back_inserter(texts), json_report);
  out.print("{{\"schema\": 1, \"holds\": {}, \"reports\": [{}]}}\n", hold(reports), joined(texts));
}

std::string verdict(bool holds) { return holds ? styled(Style::good, "ok") : styled(Style::error, "FAILS"); }

void print_people(Output& out, const std::vector<OrderReport>& reports) {
  out.write("Six tokens, in double. P puts them in another order; R(p) rotates for position p, with magnitude a.\n\n");
  for (const auto& report : reports) {
    out.print("{}{}\n", report.rotary ? "rotary " : "", styled(Style::label, report.encoding));
    for (const auto& check : report.checks) {
      const bool error = check.limit == Limit::at_most;
      const std::string measured = error ? fmt::format("{:.1e}", check.measured) : fmt::format("{:.3f}", check.measured);
      out.print("  {:<46}  {:<10}  {:>7}   {:<8}  {:<7.2g}  {}\n", check.claim, error ? "error" : "difference", measured,
                name_of(check.limit), check.bound, verdict(check.holds()));
    }
    out.write("\n");
  }
  out.print("{}\n", hold(reports) ? "Every statement holds." : "A statement does not hold.");
}

int run(const Options& options) {
  const auto reports = options.source.given() ? std::vector{check_order(options.source.read())} : check_order();
  Output out;
  options.json ? print_json(out, reports) : print_people(out, reports);
  out.finish();
  return hold(reports) ? 0 : 1;
}

}  // namespace

Verb add_check_order(CLI::App& root) {
  auto* app = root.add_subcommand("check-order", "Shows that attention needs positions, and checks what each encoding promises");
  const auto options = std::make_shared<Options>();
  options->source.add_to(*app);
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "Without a rule: attention alone, every encoding, and a sample of every rotary rule. Exits with 1 when a statement does not hold.\n\n"
      "Examples:\n"
      "  gnomon check-order\n"
      "  gnomon check-order --json\n"
      "  gnomon check-order config.json\n"
      "  gnomon check-order --rotary '{\"rule\": \"linear\", \"theta\": 10000, \"head_dim\": 64, \"factor\": 4}'");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
