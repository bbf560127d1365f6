// SPDX-License-Identifier: Apache-2.0
// gnomon freqs: the frequencies of a rule, pair by pair.
#include <cmath>
#include <memory>

#include "gnomon/frequencies.hpp"
#include "output.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  RotarySource source;
  std::string numerics = "exact";
  SequenceLength length;
  bool json = false;
};

void print_json(Output& out, const Frequencies& result, const SequenceLength& length) {
  out.print("{{\"schema\": 1, \"rotary\": {}, \"numerics\": \"{}\", \"length\": {}, ", to_json(result.spec), name_of(result.numerics),
            length.json());
  out.print("\"inv_freq\": {}, \"wavelength\": {}, \"attention_factor\": {}}}\n", json_numbers(result.inv_freq),
            json_numbers(result.wavelength()), json_number(result.attention_factor));
}

/// The same widths and base without scaling, to say how much slower each pair became; zeros for a rule without a base.
std::vector<double> unscaled(const Frequencies& result) {
  RotarySpec spec = result.spec;
  spec.rule = rotary::Default{};
  if (spec.theta == 0) return std::vector<double>(result.inv_freq.size());
  return frequencies(spec, result.numerics).inv_freq;
}

std::string quotient(double numerator, double denominator) {
  return denominator == 0 || numerator == 0 ? "-" : fmt::format("{:.6g}", numerator / denominator);
}

void print_people(Output& out, const Frequencies& result, std::optional<std::int64_t> length) {
  const auto wavelength = result.wavelength(), before = unscaled(result);
  out.print("{}\n", printable(to_json(result.spec)));
  out.print("{} pairs · numerics {} · attention_factor {}\n\n", result.inv_freq.size(), name_of(result.numerics), result.attention_factor);
  std::string head = fmt::format("{:>5}  {:>22}  {:>22}  {:>12}", "pair", "inv_freq", "wavelength", "slowed by");
  if (length) head += fmt::format("  {:>16}", fmt::format("turns in {}", *length));
  out.print("{}\n", styled(Style::label, head));
  for (std::size_t i = 0; i < result.inv_freq.size(); i++) {
    const std::string wave = std::isfinite(wavelength[i]) ? fmt::format("{}", wavelength[i]) : "infinite";
    out.print("{:>5}  {:>22}  {:>22}  {:>12}", i, result.inv_freq[i], wave, quotient(before[i], result.inv_freq[i]));
    if (length) out.print("  {:>16}", quotient(static_cast<double>(*length), wavelength[i]));
    out.write("\n");
  }
}

int run(const Options& options) {
  const Numerics numerics = numerics_of(options.numerics);
  const Frequencies result = frequencies(options.source.read(), numerics, options.length.value());
  Output out;
  options.json ? print_json(out, result, options.length) : print_people(out, result, options.length.value());
  out.finish();
  return 0;
}

}  // namespace

Verb add_freqs(CLI::App& root) {
  auto* app = root.add_subcommand("freqs", "Frequencies and wavelengths of a rule or a model, pair by pair");
  const auto options = std::make_shared<Options>();
  options->source.add_to(*app);
  app->add_option("--numerics", options->numerics, "exact (default), or hf: the float32 steps of the transformers library")
      ->type_name("exact|hf");
  options->length.add_to(*app, "Length of the sequence: for rules that depend on it, and to count turns");
  app->add_flag("--json", options->json, "Print one JSON object; its numbers read back to the same double");
  app->footer(
      "Examples:\n"
      "  gnomon freqs config.json\n"
      "  gnomon freqs model.gguf --length 8192\n"
      "  gnomon freqs gemma-3/ --layer 5 --json\n"
      "  gnomon freqs --rotary '{\"rule\": \"linear\", \"theta\": 10000, \"head_dim\": 64, \"factor\": 4}'\n"
      "  gnomon freqs --rotary @rule.json --numerics hf --json");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
