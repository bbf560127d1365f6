// SPDX-License-Identifier: Apache-2.0
// gnomon compare: whether two files mean the same, what differs, and how far scores drift.
#include "gnomon/compare.hpp"

#include <algorithm>
#include <memory>

#include "output.hpp"
#include "positions.hpp"
#include "rows.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  std::string a, b, positions, plot;
  const CLI::Option *positions_option = nullptr, *plot_option = nullptr;
  bool json = false;
};

std::string source_text(const Model& model) {
  return fmt::format("{} ({}{}{})", printable(model.path), model.format, model.type.empty() ? "" : ", ", printable(model.type));
}

/// A value as it fits in a column: a list of frequencies is long.
std::string cell(const std::string& value) {
  constexpr std::size_t most = 32;
  if (value == "null") return "-";
  return value.size() <= most ? printable(value) : printable(value.substr(0, most - 3)) + "...";
}

void print_differences(Output& out, const std::vector<Difference>& differences) {
  std::size_t field = 5, a = 1;
  for (const auto& difference : differences) {
    field = std::max(field, difference.field.size()), a = std::max(a, cell(difference.a).size());
  }
  out.print("  {}\n", styled(Style::label, fmt::format("{:<{}}  {:<{}}  {}", "field", field, "A", a, "B")));
  for (const auto& difference : differences) {
    out.print("  {:<{}}  {:<{}}  {}\n", difference.field, field, cell(difference.a), a, cell(difference.b));
  }
}

void print_drift(Output& out, const DriftColumn& drift) {
  const auto& parting = drift.parting;
  if (!parting.position && std::all_of(drift.mean_cosines.begin(), drift.mean_cosines.end(), [](double mean) { return mean == 1; })) {
    out.write("\n  for text, whose axes all stand at one position, angles are the same\n");
    return;
  }
  const std::string where = parting.position ? fmt::format("scores drift by more than 1 % from distance {} on", *parting.position)
                                             : fmt::format("scores drift by at most 1 % up to distance {}", parting.searched);
  out.print("\n  {}\n  {}\n", where, styled(Style::label, fmt::format("{:>12}  {:>12}", "distance", "mean cosine")));
  for (std::size_t i = 0; i < drift.distances.size(); i++) out.print("  {:>12}  {:>12.10f}\n", drift.distances[i], drift.mean_cosines[i]);
}

void print_layers(Output& out, const LayerComparison& compared, bool several_parts) {
  const bool equal = compared.differences.empty();
  out.print("\n{}layers {}: {}\n", several_parts ? printable(compared.part) + " " : "", layer_ranges(compared.layers),
            equal ? styled(Style::good, "equal") : styled(Style::warning, "different"));
  if (!equal && compared.differences.front().field == "layer") {
    out.print("  only {} has them\n", compared.differences.front().a == "null" ? "B" : "A");
  } else if (!equal) {
    print_differences(out, compared.differences);
  }
  if (compared.drift) print_drift(out, *compared.drift);
  for (const auto& note : compared.notes) out.print("  {} {}\n", styled(Style::note, "note:"), printable(note));
}

void print_doubts(Output& out, std::string_view name, const Model& model) {
  const auto warnings =
      std::count_if(model.doubts.begin(), model.doubts.end(), [](const Doubt& doubt) { return doubt.level == Level::warning; });
  if (warnings > 0) out.print("{} has {}; gnomon check tells.\n", name, counted(static_cast<int>(warnings), "warning", "warnings"));
}

void print_people(Output& out, const Comparison& comparison) {
  out.print("A  {}\nB  {}\n", source_text(comparison.a), source_text(comparison.b));
  if (!comparison.differences.empty()) {
    out.write("\n");
    print_differences(out, comparison.differences);
  }
  const auto& layers = comparison.layers;
  const bool several_parts = std::any_of(layers.begin(), layers.end(), [&](const auto& one) { return one.part != layers.front().part; });
  for (const auto& compared : layers) print_layers(out, compared, several_parts);
  out.write("\n");
  for (const auto& note : comparison.notes) out.print("{} {}\n", styled(Style::note, "note:"), printable(note));
  print_doubts(out, "A", comparison.a);
  print_doubts(out, "B", comparison.b);
  out.print("{}\n", comparison.equal() ? "A and B declare the same positions." : "A and B differ.");
}

void draw(const Comparison& comparison, const Options& options) {
  const bool drifts =
      std::any_of(comparison.layers.begin(), comparison.layers.end(), [](const auto& one) { return one.drift.has_value(); });
  if (!drifts) return message(fmt::format("no rotation differs, so {} is not drawn", printable(options.plot)));
  call_external("plot", {"drift", options.a, options.b, "--out", options.plot});
}

int run(const Options& options) {
  for (const auto* path : {&options.a, &options.b}) {
    if (path->empty()) throw Misuse("compare: a path is empty");
  }
  if (options.plot_option->count() > 0 && !options.plot.ends_with(".png") && !options.plot.ends_with(".svg")) {
    throw Misuse(fmt::format("--plot: expected a name that ends in .png or .svg, got \"{}\"", printable(options.plot)));
  }
  std::vector<std::int64_t> distances;
  if (options.positions_option->count() > 0) distances = PositionList(options.positions).integers();
  const Comparison comparison = compare(model_at(options.a), model_at(options.b), distances);
  if (options.plot_option->count() > 0) draw(comparison, options);
  Output out;
  options.json ? out.write(to_json(comparison) + "\n") : print_people(out, comparison);
  out.finish();
  return comparison.equal() ? 0 : 1;
}

}  // namespace

Verb add_compare(CLI::App& root) {
  auto* app = root.add_subcommand("compare", "Whether two files declare the same positions, what differs, and how far scores drift");
  const auto options = std::make_shared<Options>();
  app->add_option("A", options->a, "config.json, a folder with one, or a GGUF file; - is standard input")
      ->type_name("PATH")
      ->option_text(" ")
      ->required();
  app->add_option("B", options->b, "The other one, of any format")->type_name("PATH")->option_text(" ")->required();
  options->positions_option =
      app->add_option("--positions", options->positions, "Distances at which to tell the drift: START:STOP:STEP or numbers with commas");
  options->plot_option =
      app->add_option("--plot", options->plot, "Draw the drift by distance, as .png or .svg (needs the Python package)")->type_name("FILE");
  app->add_flag("--json", options->json, "Print one JSON object (docs/compare.md)");
  app->footer(
      "Exits with 0 when both mean the same, however they spell it, with 1 when they differ, with 2 when the numbers of one cannot be "
      "made.\n\n"
      "Examples:\n"
      "  gnomon compare Llama-3.1-8B/ llama-3.1-8b.gguf\n"
      "  gnomon compare before/config.json after/config.json --positions 1000,8192,131071\n"
      "  gnomon compare a.gguf b.gguf --plot drift.svg");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
