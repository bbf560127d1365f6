// SPDX-License-Identifier: Apache-2.0
// The verbs of the command line: one file each, all with the same shape.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gnomon::cli {

/// A verb that is built in. `run` does the work after its options were parsed and returns the exit code; failures are exceptions.
struct Verb {
  CLI::App* app;
  std::function<int()> run;
};

Verb add_list(CLI::App& root);
Verb add_explain(CLI::App& root);
Verb add_inspect(CLI::App& root);
Verb add_check(CLI::App& root);
Verb add_compare(CLI::App& root);
Verb add_convert(CLI::App& root);
Verb add_freqs(CLI::App& root);
Verb add_table(CLI::App& root);
Verb add_positions(CLI::App& root);
Verb add_golden(CLI::App& root);
Verb add_verify(CLI::App& root);
Verb add_analyze(CLI::App& root);
Verb add_extend(CLI::App& root);
Verb add_check_order(CLI::App& root);
Verb add_bench(CLI::App& root);
Verb add_version(CLI::App& root);
Verb add_completion(CLI::App& root);
Verb add_help(CLI::App& root);

/// A verb that the Python package provides as a program of its own, `gnomon-NAME`.
struct ExternalVerb {
  std::string_view name, summary;
};
inline constexpr ExternalVerb external_verbs[] = {
    {"eval", "Loss of a model by position, inside and beyond its trained length, for several extension methods"},
    {"plot", "Pictures of frequencies, wavelengths and of what a rule changes, as PNG or SVG"},
    {"stats", "Where the attention of a model looks while it reads a text: entropy and shares by distance, layer by layer"},
};

/// Names of the built-in and the external verbs, in the order of the help.
std::vector<std::string> verb_names(const CLI::App& root);

/// Replaces this process by `gnomon-VERB`, looked for beside this executable first, then in PATH. Throws Misuse if there is none.
[[noreturn]] void run_external(const std::string& verb, const std::vector<std::string>& arguments, const CLI::App& root);

/// Runs `gnomon-VERB` beside this process and waits for it; it prints its own messages. Throws Misuse if there is none, Error(io) when it
/// fails.
void call_external(const std::string& verb, const std::vector<std::string>& arguments);

/// What `gnomon version` prints, as one line of text.
std::string version_line();

}  // namespace gnomon::cli
