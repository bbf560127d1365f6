// SPDX-License-Identifier: Apache-2.0
// gnomon check: what is doubtful about models, and nothing else.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>

#include "gnomon/error.hpp"
#include "gnomon/model.hpp"
#include "output.hpp"
#include "rows.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  std::vector<std::string> paths;
  bool strict = false, json = false;
};

/// What was found under one path: a model, or why there is none.
struct Found {
  std::string path;
  std::optional<Model> model;
  std::string problem;
};

/// One line on standard error that is overwritten, on a terminal and once a second has passed.
class Progress {
 public:
  explicit Progress(std::size_t total) : total_(total) {}
  ~Progress() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  void step() {
    done_++;
    const bool due = std::chrono::steady_clock::now() - start_ > std::chrono::seconds(1);
    if (!due || isatty(STDERR_FILENO) != 1) return;
    shown_ = true;
    std::fputs(fmt::format("\r{} of {} checked", done_, total_).c_str(), stderr);
  }

 private:
  std::size_t total_, done_ = 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<Found> read_all(const std::vector<std::string>& paths) {
  std::vector<Found> found;
  Progress progress(paths.size());
  for (const auto& path : paths) {
    if (path.empty()) throw Misuse("check: a path is empty");
    try {
      found.push_back({path, model_at(path), ""});
    } catch (const Error& error) {
      found.push_back({path, std::nullopt, error.what()});
    }
    progress.step();
  }
  return found;
}

struct Counts {
  std::array<int, 3> doubts{};  // by level
  int unreadable = 0;
  int of(Level level) const { return doubts[static_cast<std::size_t>(level)]; }
};

Counts counts_of(const std::vector<Found>& found) {
  Counts counts;
  for (const auto& [path, model, problem] : found) {
    if (!model) {
      counts.unreadable++;
      continue;
    }
    for (const auto& doubt : model->doubts) counts.doubts[static_cast<std::size_t>(doubt.level)]++;
  }
  return counts;
}

std::string json_found(const Found& found) {
  if (!found.model) return fmt::format(R"({{"path": {}, "problem": {}}})", json_quote(found.path), json_quote(found.problem));
  std::vector<std::string> doubts;
  for (const auto& doubt : found.model->doubts) doubts.push_back(to_json(doubt));
  return fmt::format(R"({{"path": {}, "format": {}, "type": {}, "doubts": [{}]}})", json_quote(found.path), json_quote(found.model->format),
                     json_quote(found.model->type), joined(doubts));
}

void print_json(Output& out, const std::vector<Found>& found, const Counts& counts) {
  std::vector<std::string> models;
  for (const auto& one : found) models.push_back(json_found(one));
  out.print("{{\"schema\": 1, \"errors\": {}, \"warnings\": {}, \"notes\": {}, \"unreadable\": {}, \"models\": [{}]}}\n",
            counts.of(Level::error), counts.of(Level::warning), counts.of(Level::note), counts.unreadable, joined(models));
}

void print_people(Output& out, const std::vector<Found>& found, const Counts& counts) {
  for (const auto& [path, model, problem] : found) {
    if (!model || model->doubts.empty()) continue;
    out.print("{}\n", styled(Style::label, printable(path)));
    for (const auto& doubt : model->doubts) out.print("  {}\n", wrapped(doubt_text(doubt), line_width(), 4));
    out.write("\n");
  }
  const auto models = static_cast<int>(found.size()) - counts.unreadable;
  std::string summary =
      fmt::format("{} checked: {}, {}, {}", counted(models, "model", "models"), counted(counts.of(Level::error), "error", "errors"),
                  counted(counts.of(Level::warning), "warning", "warnings"), counted(counts.of(Level::note), "note", "notes"));
  if (counts.unreadable > 0) summary += fmt::format("; {} could not be read", counts.unreadable);
  out.print("{}\n", summary);
}

int run(const Options& options) {
  const auto found = read_all(options.paths);
  const auto counts = counts_of(found);
  Output out;
  options.json ? print_json(out, found, counts) : print_people(out, found, counts);
  out.finish();
  for (const auto& [path, model, problem] : found) {
    if (!model) message(printable(problem));
  }
  if (counts.unreadable > 0) return 2;
  const bool grave = counts.of(Level::error) + counts.of(Level::warning) > 0;
  return grave || (options.strict && counts.of(Level::note) > 0) ? 1 : 0;
}

}  // namespace

Verb add_check(CLI::App& root) {
  auto* app = root.add_subcommand("check", "What is missing, contradictory or not understood in models: the doubts alone");
  const auto options = std::make_shared<Options>();
  app->add_option("PATH", options->paths,
                  "config.json, a folder with one, or a GGUF file; several are checked one after the other; - is standard input")
      ->type_name("PATH")
      ->option_text("...")
      ->required();
  app->add_flag("--strict", options->strict, "Exit with 1 for notes too");
  app->add_flag("--json", options->json, "Print one JSON object (docs/check.md)");
  app->footer(
      "Exits with 0 when there are at most notes, with 1 for a warning or an error, with 2 when a path cannot be read (the others are "
      "checked\n"
      "all the same). gnomon explain CODE tells what a doubt means and how to end it.\n\n"
      "Examples:\n"
      "  gnomon check Llama-3.1-8B/\n"
      "  gnomon check models/*.gguf\n"
      "  gnomon check --strict --json config.json");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
