// SPDX-License-Identifier: Apache-2.0
// Where a command takes its rule from: a rule object, a file with one, or a model.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "gnomon/spec.hpp"

namespace gnomon::cli {

/// The options PATH, --rotary and --layer, shared by all verbs that need a rule.
struct RotarySource {
  std::string path, rotary;
  std::optional<int> layer;

  void add_to(CLI::App& app);

  /// The spec that was named. A text that begins with `{` is a rule object, `@FILE` a file with one (`@-`: standard input), anything
  /// else the path of a model. Warnings about a model go to standard error. Throws Misuse or Error.
  RotarySpec read() const;
};

}  // namespace gnomon::cli
