// SPDX-License-Identifier: Apache-2.0
// gnomon verify: whether numbers an engine made agree with a golden file, and if not, which known mistake explains them.
#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>

#include "gnomon/golden.hpp"
#include "output.hpp"
#include "positions.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  std::string values, golden, positions, numerics = "exact", tolerance;
  bool json = false;
};

std::optional<double> tolerance_in(const std::string& text) {
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || !(value < 1)) {
    throw Misuse(fmt::format("--tolerance: expected a number above 0 and below 1, got \"{}\"", printable(text)));
  }
  return value;
}

void print_worst(Output& out, const Deviation& worst) {
  const bool frequency = worst.value == "inv_freq";
  out.print("worst      {} of pair {}{}: {} instead of {}\n", worst.value, worst.pair,
            frequency ? "" : fmt::format(" at position {}", worst.position), worst.got, worst.expected);
}

void print_explanations(Output& out, const Verification& found) {
  if (found.explanations.empty()) out.write("mistake    none of the known ones explains the values\n");
  bool first = true;
  for (const auto& explanation : found.explanations) {
    std::string_view label = first ? "mistake    " : "or         ";
    for (const auto& mistake : explanation.mistakes) {
      out.print("{}{}: {}\n", label, styled(Style::label, mistake.name), printable(mistake.found));
      out.print("           {}\n", wrapped(mistake.cause, line_width(), 11));
      label = "and        ";
    }
    out.print("           what is left differs by {:.2g}\n", explanation.residual);
    first = false;
  }
}

void print_people(Output& out, const Verification& found, const Golden& golden) {
  out.print("golden     {} · {} · {} pairs\n", printable(golden.source), rule_name(golden.spec.rule), golden.exact.inv_freq.size());
  out.print("values     {}{} · held to {:.2g} of {}\n", found.precision,
            found.positions > 0 ? fmt::format(" · {} positions", found.positions) : "", found.tolerance, name_of(found.numerics));
  out.print("verdict    {}\n", found.agrees ? styled(Style::good, "they agree") : styled(Style::error, "they differ"));
  if (!found.agrees) {
    if (found.worst) print_worst(out, *found.worst);
    print_explanations(out, found);
  }
  for (const auto& note : found.notes) out.print("note       {}\n", wrapped(note, line_width(), 11));
}

int run(const Options& options) {
  const Golden golden = read_golden(options.golden);
  Values values = options.values == "-" ? values_from(standard_input()) : read_values(options.values);
  if (!options.positions.empty()) values.positions = PositionList(options.positions).integers();
  const auto found = verify(values, golden, numerics_of(options.numerics), tolerance_in(options.tolerance));
  Output out;
  if (options.json) {
    out.print("{}\n", to_json(found));
  } else {
    print_people(out, found, golden);
  }
  out.finish();
  return found.agrees ? 0 : 1;
}

}  // namespace

Verb add_verify(CLI::App& root) {
  auto* app =
      root.add_subcommand("verify", "Whether an engine's numbers agree with a golden file, and which known mistake explains them if not");
  const auto options = std::make_shared<Options>();
  app->add_option("VALUES", options->values,
                  "JSON, npy, CSV or safetensors: frequencies, a table of cos and sin, or a rotated vector; - is standard input")
      ->type_name("PATH")
      ->option_text(" ")
      ->required();
  app->add_option("--golden", options->golden, "The golden file, as `gnomon golden` writes it")->type_name("FILE")->required();
  app->add_option("--positions", options->positions, "Which positions the rows stand for (default: those of the golden file)")
      ->type_name("P");
  app->add_option("--numerics", options->numerics, "Which numbers of the golden file to hold them to (default exact)")
      ->type_name("exact|hf");
  app->add_option("--tolerance", options->tolerance, "Allowed difference (default: by the precision of the values)")->type_name("X");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "Exits with 0 when the values agree, with 1 when they differ. docs/golden.md lists the known mistakes.\n\n"
      "Examples:\n"
      "  gnomon verify rope.npy --golden golden.json\n"
      "  gnomon verify rope.npy --golden golden.json --positions 0:8192 --numerics hf\n"
      "  gnomon verify inv_freq.json --golden golden.json --json");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
