// SPDX-License-Identifier: Apache-2.0
// Where a command takes its rule from: a rule object, a file with one, or a model.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "gnomon/model.hpp"

namespace gnomon::cli {

/// What comes on standard input, to its end. Throws Error, for more than 64 MiB too.
std::string standard_input();

/// A model by its path; "-" is standard input. Throws as read_model().
Model model_at(const std::string& path);

/// The options PATH, --rotary and --layer, shared by all verbs that need a rule.
class RotarySource {
 public:
  void add_to(CLI::App& app);

  /// Whether any of the three was given, for verbs that can do without a rule.
  bool given() const;

  /// What was named, for people: a path with its layer, or the rule object itself.
  std::string name() const;

  /// The spec that was named. A text that begins with `{` is a rule object, `@FILE` a file with one (`@-`: standard input), anything
  /// else the path of a model. Warnings about a model go to standard error. Throws Misuse or Error.
  RotarySpec read() const { return read_all().spec; }

  /// The same, with the model it belongs to, where a model was named.
  struct Read {
    RotarySpec spec;
    std::optional<Model> model;
  };
  Read read_all() const;

  /// The path where a model was named, for verbs that take all of it. Throws Misuse as read().
  std::optional<std::string> model_path() const;
  /// The layer that was picked.
  std::optional<int> layer() const { return layer_option_->count() > 0 ? std::optional(layer_) : std::nullopt; }

 private:
  const std::string& text() const;
  std::string path_, rotary_;
  // Not an optional: CLI11 takes an empty text for one as "nothing", and that would pass in silence.
  int layer_ = 0;
  const CLI::Option *path_option_ = nullptr, *rotary_option_ = nullptr, *layer_option_ = nullptr;
};

/// The option --length of verbs that make numbers for a sequence: dynamic and longrope choose theirs by it.
class SequenceLength {
 public:
  void add_to(CLI::App& app, const std::string& help = "Length of the sequence, for rules that depend on it (default: the trained length)");
  std::optional<std::int64_t> value() const { return option_->count() > 0 ? std::optional(value_) : std::nullopt; }
  /// As JSON: the number, or null where none was given.
  std::string json() const { return option_->count() > 0 ? fmt::format("{}", value_) : "null"; }
  /// A note to standard error when a sequence that reaches position `last` has other numbers than those of this length.
  void tell_what_lies_beyond(const RotarySpec& spec, double last) const;

 private:
  std::int64_t value_ = 0;
  const CLI::Option* option_ = nullptr;
};

}  // namespace gnomon::cli
