// SPDX-License-Identifier: Apache-2.0
// gnomon extend: the rules that could take a model to another length, ready to paste, and what each costs.
#include "gnomon/analysis/extend.hpp"

#include <algorithm>
#include <memory>

#include "gnomon/analysis/scaling_laws.hpp"
#include "output.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  RotarySource source;
  std::int64_t to = 0, trained = 0;
  const CLI::Option* trained_option = nullptr;
  bool json = false;
};

Training training_for(const Options& options, const RotarySource::Read& read) {
  if (options.trained_option->count() > 0) {
    if (options.trained < 7) throw Misuse(fmt::format("--trained-length: expected at least 7, got {}", options.trained));
    return {read.spec, options.trained, options.trained};
  }
  const bool stated = read.model && (read.model->original || read.model->declared);
  if (!stated) throw Misuse("the trained length is not known: give --trained-length N");
  return training_of(*read.model, options.source.layer());
}

/// The widest window of the layers that were read, where all of them have one: beyond it there are no distances to extend to.
std::optional<std::int64_t> window_of(const Options& options, const RotarySource::Read& read) {
  std::optional<std::int64_t> widest;
  if (!read.model) return widest;
  const auto layer = options.source.layer();
  for (const auto& group : read.model->groups) {
    const bool picked = !layer || std::count(group.layers.begin(), group.layers.end(), *layer) > 0;
    if (!group.spec.rotary || !picked) continue;
    if (!group.spec.mask.window) return std::nullopt;
    widest = std::max(widest, group.spec.mask.window);
  }
  return widest;
}

// ---- for machines ------------------------------------------------------------------------------------------------

std::string json_optional(const std::optional<std::int64_t>& value) { return value ? fmt::format("{}", *value) : "null"; }
std::string json_optional(const std::optional<double>& value) { return value ? json_number(*value) : "null"; }

std::string json_extension(const Extension& one) {
  return fmt::format(R"({{"method": {}, "rotary": {}, "advice": {}, "drift_cosine": {}, "drifts_from": {}, "unseen_pairs": {}, )"
                     R"("overshoot": {}, "negative_from": {}, "limit": {}}})",
                     json_quote(one.method), to_json(one.spec), json_quote(method_advice(one.method)), json_number(one.drift_cosine),
                     json_optional(one.drifts_from), one.unseen_pairs, json_number(one.overshoot), json_optional(one.negative_from),
                     json_optional(one.limit));
}

void print_json(Output& out, const ExtensionReport& report) {
  std::vector<std::string> extensions;
  std::transform(report.extensions.begin(), report.extensions.end(), std::back_inserter(extensions), json_extension);
  out.print("{{\"schema\": 1, \"rotary\": {}, \"trained\": {}, \"original\": {}, \"to\": {}, \"pairs_with_a_turn\": {}, ",
            to_json(report.training.spec), report.training.length, report.training.original, report.to, report.pairs_with_a_turn);
  out.print("\"critical_base\": {}, \"smallest_base\": {}, \"extensions\": [{}]}}\n", json_optional(report.critical_base),
            json_optional(report.smallest_base), joined(extensions));
}

// ---- for people --------------------------------------------------------------------------------------------------

void print_situation(Output& out, const ExtensionReport& report) {
  const auto& [spec, length, original] = report.training;
  const int pairs = spec.rotary_dim / 2, whole = report.pairs_with_a_turn;
  labelled(out, "model", summary(spec));
  labelled(out, "trained", fmt::format("{} positions{}", length, original != length ? fmt::format(", {} before scaling", original) : ""));
  labelled(out, "to",
           fmt::format("{} positions, {:.4g} times the {} that factors count from", report.to,
                       static_cast<double>(report.to) / static_cast<double>(original), original));
  labelled(out, "turns",
           fmt::format("{} of {} pairs completed a turn in training (critical dimension {} of {}){}", whole, pairs, 2 * whole, 2 * pairs,
                       whole < pairs ? fmt::format("; pairs {} to {} never did", whole, pairs - 1) : ""));
  if (report.smallest_base) {
    labelled(out, "base",
             fmt::format("{} is the smallest of two digits that keeps similar keys above random ones over {} positions, "
                         "unscaled (Base of RoPE Bounds Context Length)",
                         grouped(*report.smallest_base), report.to));
  }
  if (report.critical_base) {
    labelled(out, report.smallest_base ? "" : "base",
             fmt::format("Tuned at {}, a base above {} reaches further than that length (Scaling Laws of RoPE-based Extrapolation)",
                         report.to, grouped(*report.critical_base)));
  }
}

std::string unseen_text(const Extension& one) {
  return one.unseen_pairs == 0 ? "none" : fmt::format("{}, to {:.3g} x", counted(one.unseen_pairs, "pair", "pairs"), one.overshoot);
}

void print_table(Output& out, const ExtensionReport& report) {
  const std::string trained = fmt::format("at {}", report.training.length);
  out.print("\n{}\n", styled(Style::label, fmt::format("{:<16}{:^24}  {:>20}{:>16}{:>18}", "", "short texts: same score", "unseen angles",
                                                       "score can be", "predicted limit")));
  out.print("{}\n", styled(Style::label, fmt::format("{:<16}{:>11}{:>13}  {:>20}{:>16}{:>18}", "method", trained, "99 % up to",
                                                     fmt::format("up to {}", report.to), "negative from", "when tuned")));
  for (const auto& one : report.extensions) {
    const std::string kept = one.drifts_from ? fmt::format("{}", *one.drifts_from - 1) : "all of it";
    out.print("{:<16}{:>11.3f}{:>13}  {:>20}{:>16}{:>18}\n", one.method, one.drift_cosine, kept, unseen_text(one),
              one.negative_from ? fmt::format("{}", *one.negative_from) : "never", one.limit ? grouped(*one.limit) : "-");
  }
}

void print_legend(Output& out) {
  out.write("\n");
  labelled(out, "same score", "mean cosine between this rotation and the trained one at a distance; 1 is no change");
  labelled(out, "unseen", "pairs that never completed a turn in training and now turn further, and how many times as far");
  labelled(out, "negative", "from this distance on a similar key can score below a random one");
  labelled(out, "limit", "how far a base reaches after tuning at the trained length; for methods that change only the base");
}

void print_rules(Output& out, const ExtensionReport& report) {
  for (const auto& one : report.extensions) {
    const double magnitude = effective_attention_factor(one.spec);
    const std::string scores = magnitude == 1 ? "" : fmt::format("; all scores x {:.4g}, short texts included", magnitude * magnitude);
    out.print("\n{}  {}\n", styled(Style::label, one.method),
              wrapped(fmt::format("{}{}", method_advice(one.method), scores), line_width() - one.method.size() - 2, 2));
    out.print("  {}\n", printable(to_json(one.spec)));
  }
}

void print_people(Output& out, const ExtensionReport& report, std::optional<std::int64_t> window) {
  print_situation(out, report);
  if (window)
    labelled(out, "window", fmt::format("these layers see {} keys only, so longer texts hold no longer distances for them", *window));
  print_table(out, report);
  print_legend(out);
  print_rules(out, report);
}

int run(const Options& options) {
  const auto read = options.source.read_all();
  const ExtensionReport report = extend(training_for(options, read), options.to);
  Output out;
  options.json ? print_json(out, report) : print_people(out, report, window_of(options, read));
  out.finish();
  return 0;
}

}  // namespace

Verb add_extend(CLI::App& root) {
  auto* app = root.add_subcommand("extend", "Rules that take a model to a longer context, ready to paste, and what each costs");
  const auto options = std::make_shared<Options>();
  options->source.add_to(*app);
  app->add_option("--to", options->to, "The length that is wanted")->check(integer_problem)->type_name("LENGTH")->required();
  options->trained_option =
      app->add_option("--trained-length", options->trained, "The length the weights were trained at (default: what the files say)")
          ->check(integer_problem)
          ->type_name("N");
  app->add_flag("--json", options->json, "Print one JSON object (docs/extend.md)");
  app->footer(
      "Factors count from the trained length, or from the one before scaling where the model is scaled already.\n"
      "gnomon eval --method auto measures these methods on the model itself.\n\n"
      "Examples:\n"
      "  gnomon extend Llama-2-7B/ --to 32768\n"
      "  gnomon extend gemma-3/ --layer 5 --to 262144 --json\n"
      "  gnomon extend --rotary '{\"rule\": \"default\", \"theta\": 10000, \"head_dim\": 64}' --trained-length 2048 --to 8192");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
