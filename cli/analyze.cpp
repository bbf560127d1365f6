// SPDX-License-Identifier: Apache-2.0
// gnomon analyze: what a rotation does over a length: turns, decay, aliasing, and how far each way to compute it is safe.
#include <algorithm>
#include <cmath>
#include <memory>

#include "gnomon/analysis.hpp"
#include "output.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

constexpr std::int64_t longest = std::int64_t{1} << 21;

struct Options {
  RotarySource source;
  std::int64_t length = 0;
  std::string positions;
  const CLI::Option* length_option = nullptr;
  bool json = false;
};

/// All that is shown, as the library's calculators give it.
struct Analysis {
  Frequencies frequencies;
  std::int64_t length;
  Range positions;
  std::vector<std::int64_t> distances;
  std::optional<std::int64_t> negative_from;
  std::optional<double> base;
  std::vector<Alias> repeats;
  std::vector<Precision> pipelines;
};

/// 1, 4, 16, … and the length.
std::vector<std::int64_t> sample_distances(std::int64_t length) {
  std::vector<std::int64_t> result;
  for (std::int64_t distance = 1; distance < length; distance *= 4) result.push_back(distance);
  result.push_back(length);
  return result;
}

std::int64_t length_of(const Options& options, const RotarySource::Read& read) {
  if (options.length_option->count() > 0) {
    if (options.length < 1 || options.length > longest) {
      throw Misuse(fmt::format("--length: expected 1 to {}, got {}", longest, options.length));
    }
    return options.length;
  }
  const bool stated = read.model && (read.model->original || read.model->declared);
  if (!stated) throw Misuse("the length is not known: give --length N, the longest text the rotation is for");
  const std::int64_t stated_length = training_of(*read.model, options.source.layer()).length;
  if (stated_length > longest) {
    message(fmt::format("note: the model is for {} positions; only the first {} are analysed", stated_length, longest));
  }
  return std::min(stated_length, longest);
}

/// "START:STOP", by default all positions of the length.
Range range_of(const std::string& text, std::int64_t length) {
  if (text.empty()) return {0, length, 1};
  const std::size_t colon = text.find(':');
  const std::string start = text.substr(0, colon), stop = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (!integer_problem(start).empty() || !integer_problem(stop).empty()) {
    throw Misuse(fmt::format("--positions: expected START:STOP, got \"{}\"", printable(text)));
  }
  return {std::stoll(start), std::stoll(stop), 1};
}

Analysis analyze(const Options& options) {
  const auto read = options.source.read_all();
  const std::int64_t length = length_of(options, read);
  const Range positions = range_of(options.positions, length);
  Frequencies made = frequencies(read.spec, Numerics::exact, length);
  Analysis result{made, length, positions, sample_distances(length), first_negative_distance(made, 2 * longest), {}, {}, {}};
  if (length <= quick_base_bound && made.inv_freq.size() <= 256) result.base = smallest_base(read.spec.rotary_dim, length);
  result.repeats = aliases(made, length);
  result.pipelines = precision(made, positions);
  return result;
}

// ---- for machines ------------------------------------------------------------------------------------------------

template <class Number>
std::string json_optional(const std::optional<Number>& value) {
  if constexpr (std::is_same_v<Number, double>) return value ? json_number(*value) : "null";
  return value ? fmt::format("{}", *value) : "null";
}

std::vector<double> turns_in(const Analysis& analysis) {
  std::vector<double> result;
  for (const double wave : analysis.frequencies.wavelength()) result.push_back(static_cast<double>(analysis.length) / wave);
  return result;
}

std::string json_precision(const Precision& one) {
  const auto& pipeline = one.pipeline;
  return fmt::format(
      R"({{"name": {}, "frequency": "{}", "position": "{}", "angle": {}, "table": "{}", "used_by": {}, "worst": {}, "worst_position": {}, )"
      R"("worst_pair": {}, "wrong_from": {}, "searched": {}, "table_error": {}, "distinct": {}, "merged_from": {}}})",
      json_quote(pipeline.name), name_of(pipeline.frequency), name_of(pipeline.position),
      pipeline.angle ? json_quote(name_of(*pipeline.angle)) : "null", name_of(pipeline.table), json_quote(pipeline.used_by),
      json_number(one.worst), one.worst_position, one.worst_pair, json_optional(one.wrong_from), one.searched, json_number(one.table_error),
      one.distinct, json_optional(one.merged_from));
}

void print_json(Output& out, const Analysis& analysis) {
  const auto& made = analysis.frequencies;
  out.print("{{\"schema\": 1, \"rotary\": {}, \"length\": {}, \"wavelength\": {}, \"turns\": {}, \"pairs_with_a_turn\": {}, ",
            to_json(made.spec), analysis.length, json_numbers(made.wavelength()), json_numbers(turns_in(analysis)),
            pairs_with_a_turn(made, analysis.length));
  std::vector<std::string> decay, repeats, pipelines;
  for (const auto distance : analysis.distances) {
    decay.push_back(fmt::format(R"({{"distance": {}, "mean_cosine": {}, "bound": {}}})", distance, json_number(mean_cosine(made, distance)),
                                json_number(decay_bound(made, distance))));
  }
  for (const auto& alias : analysis.repeats) {
    repeats.push_back(fmt::format(R"({{"distance": {}, "mean_cosine": {}}})", alias.distance, json_number(alias.mean_cosine)));
  }
  for (const auto& one : analysis.pipelines) pipelines.push_back(json_precision(one));
  out.print("\"decay\": [{}], \"negative_from\": {}, \"smallest_base\": {}, \"aliases\": [{}], ", joined(decay),
            json_optional(analysis.negative_from), json_optional(analysis.base), joined(repeats));
  out.print("\"positions\": [{}, {}], \"precision\": [{}]}}\n", analysis.positions.start, analysis.positions.stop, joined(pipelines));
}

// ---- for people --------------------------------------------------------------------------------------------------

constexpr std::string_view blocks[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
constexpr std::string_view levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

/// A gap and a bar of up to `width` columns, to an eighth of one; nothing for nothing.
std::string bar(double fraction, int width) {
  const auto eighths = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * 8));
  std::string text = eighths == 0 ? "" : "  ";
  for (int i = 0; i < eighths / 8; i++) text += blocks[8];
  return text + std::string(blocks[eighths % 8]);
}

/// A column for each pair, or for several: how many turns, on a logarithmic scale; a dot where there is less than one.
std::string turns_picture(const std::vector<double>& turns) {
  constexpr std::size_t columns = 64;
  const std::size_t group = (turns.size() + columns - 1) / columns;
  const double most = std::log(std::max(*std::max_element(turns.begin(), turns.end()), 2.0));
  std::string text;
  for (std::size_t i = 0; i < turns.size(); i += group) {
    const double number = turns[i];
    if (number < 1) {
      text += "·";
    } else {
      text += levels[std::min<std::size_t>(7, static_cast<std::size_t>(8 * std::log(number) / most))];
    }
  }
  return text;
}

void print_turns(Output& out, const Analysis& analysis) {
  const auto turns = turns_in(analysis);
  const int whole = pairs_with_a_turn(analysis.frequencies, analysis.length), pairs = static_cast<int>(turns.size());
  const auto [least, most] = std::minmax_element(turns.begin(), turns.end());
  labelled(out, "turns",
           fmt::format("{} of {} pairs complete a turn in {} positions: the fastest {:.4g} turns, the slowest {:.3g}", whole, pairs,
                       analysis.length, *most, *least));
  labelled(out, "", turns_picture(turns));
  labelled(out, "", fmt::format("pair 0 to pair {}, logarithmic; a dot is less than one turn", pairs - 1));
  if (whole < pairs) {
    labelled(out, "",
             fmt::format("Channels that saw a full turn in a training of this length: {} of {} (the critical dimension). The other "
                         "{} pairs meet new angles at every longer distance.",
                         2 * whole, 2 * pairs, pairs - whole));
  }
}

void print_decay(Output& out, const Analysis& analysis) {
  out.write("\n");
  labelled(out, "decay", "what distance does to the score of a key that equals its query (1 at distance 0), and RoFormer's bound");
  out.print("{}\n", styled(Style::label, fmt::format("{:>12}{:>12}{:>9}", "distance", "score", "bound")));
  for (const auto distance : analysis.distances) {
    const double score = mean_cosine(analysis.frequencies, distance);
    out.print("{:>12}{:>12.4f}{:>9.2f}{}\n", distance, score, decay_bound(analysis.frequencies, distance), bar(score, 40));
  }
  if (analysis.negative_from) {
    labelled(out, "",
             fmt::format("From distance {} on the score can be negative: a similar key then counts less than a random one.",
                         *analysis.negative_from));
  } else {
    labelled(out, "", fmt::format("It stays positive up to {} at least.", 2 * longest));
  }
  if (analysis.base) {
    labelled(out, "",
             fmt::format("For {} positions of {} channels an unscaled base of {} keeps it positive (the smallest of two digits).",
                         analysis.length, analysis.frequencies.spec.rotary_dim, grouped(*analysis.base)));
  }
}

void print_aliases(Output& out, const Analysis& analysis) {
  out.write("\n");
  labelled(out, "aliasing", "distances at which the rotation most nearly repeats, the nearest of each octave (1 would be a repetition)");
  out.print("{}\n", styled(Style::label, fmt::format("{:>12}{:>12}", "distance", "score")));
  for (const auto& alias : analysis.repeats) {
    out.print("{:>12}{:>12.4f}         {}\n", alias.distance, alias.mean_cosine, bar(alias.mean_cosine, 40));
  }
  if (analysis.repeats.empty()) labelled(out, "", "none: no distance looks nearer than those around it");
}

std::string error_text(double error) { return error == 0 ? "none" : error >= 3.14 ? "any angle" : fmt::format("{:.1e}", error); }

/// "1.0 M", "65 000".
std::string far(std::int64_t position) {
  return position < 1'000'000 ? grouped(static_cast<double>(position)) : fmt::format("{:.1f} M", static_cast<double>(position) / 1e6);
}

void print_precision(Output& out, const Analysis& analysis) {
  const auto& positions = analysis.positions;
  out.write("\n");
  labelled(out, "precision",
           fmt::format("errors of angles at positions {} to {}, in radians, by the types that numbers are rounded to on the way",
                       positions.start, positions.stop - 1));
  out.print("{}\n", styled(Style::label, fmt::format("  {:<16}{:>10}{:>12}{:>10}{:>10}  {}", "way", "worst", "wrong from", "distinct",
                                                     "cos, sin", "used by")));
  for (const auto& one : analysis.pipelines) {
    const std::string wrong = !one.pipeline.angle ? "never"
                              : one.wrong_from    ? fmt::format("{}", *one.wrong_from)
                                                  : "> " + far(one.searched);
    out.print("  {:<16}{:>10}{:>12}{:>10}{:>10.0e}  {}\n", one.pipeline.name, error_text(one.worst), wrong, one.distinct, one.table_error,
              one.pipeline.used_by);
  }
  labelled(out, "",
           fmt::format("Wrong: an angle is off by more than {} rad. Distinct: positions still told apart. The error under cos, sin "
                       "is what their own type adds.",
                       angle_limit));
  const auto coarse = std::find_if(analysis.pipelines.begin(), analysis.pipelines.end(),
                                   [](const Precision& one) { return one.pipeline.position == DType::bf16; });
  if (coarse == analysis.pipelines.end() || !coarse->merged_from) return;
  labelled(out, "",
           fmt::format("A cast of positions to bf16 leaves {} of {}; {} and {} are the first to become one.", coarse->distinct,
                       positions.stop - positions.start, *coarse->merged_from, *coarse->merged_from + 1));
}

void print_people(Output& out, const Analysis& analysis) {
  labelled(out, "rule", summary(analysis.frequencies.spec));
  labelled(out, "length", fmt::format("{}", analysis.length));
  print_turns(out, analysis);
  print_decay(out, analysis);
  print_aliases(out, analysis);
  print_precision(out, analysis);
}

int run(const Options& options) {
  const Analysis analysis = analyze(options);
  Output out;
  options.json ? print_json(out, analysis) : print_people(out, analysis);
  out.finish();
  return 0;
}

}  // namespace

Verb add_analyze(CLI::App& root) {
  auto* app = root.add_subcommand("analyze", "What a rotation does over a length: turns, decay, aliasing, precision of each dtype");
  const auto options = std::make_shared<Options>();
  options->source.add_to(*app);
  options->length_option = app->add_option("--length", options->length, "Length of the texts (default: what the model was trained for)")
                               ->check(integer_problem)
                               ->type_name("N");
  app->add_option("--positions", options->positions, "Positions START:STOP that precision is measured at (default: 0 to the length)")
      ->type_name("P");
  app->add_flag("--json", options->json, "Print one JSON object (docs/analyze.md)");
  app->footer(
      "Examples:\n"
      "  gnomon analyze Llama-3.1-8B/\n"
      "  gnomon analyze model.gguf --length 32768 --json\n"
      "  gnomon analyze --rotary '{\"rule\": \"default\", \"theta\": 10000, \"head_dim\": 128}' --length 4096\n"
      "  gnomon analyze config.json --positions 65536:66560     what a cast would do to the positions of an image");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
