// SPDX-License-Identifier: Apache-2.0
// gnomon, the command line. Exit codes: 0; 1 for doubts (inspect, check), differences (compare, verify, positions --check), losses (convert
// --verify) and checks that fail (check-order); 2 for wrong use, unreadable input and numbers that cannot be made.
#include <algorithm>
#include <exception>
#include <new>

#include "gnomon/error.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

constexpr int failure = 2;

constexpr Verb (*built_in[])(CLI::App&) = {add_list,      add_explain,     add_inspect, add_check,   add_compare,    add_convert,
                                           add_golden,    add_verify,      add_extend,  add_analyze, add_freqs,      add_table,
                                           add_positions, add_check_order, add_bench,   add_version, add_completion, add_help};

std::string root_footer() {
  std::string text = "From the Python package:\n";
  for (const auto& external : external_verbs) text += fmt::format("  {:<28}{}\n", external.name, external.summary);
  return text +
         "\nExamples:\n"
         "  gnomon inspect model.gguf              what a model declares about position, and what is doubtful\n"
         "  gnomon check models/*/config.json      what is doubtful about each of them\n"
         "  gnomon compare a.gguf config.json      whether both mean the same, and what it costs if not\n"
         "  gnomon explain yarn                    what a rule does, and what it needs\n"
         "  gnomon freqs config.json --json        the frequencies of a model\n"
         "  gnomon analyze config.json             turns, decay, aliasing, and how far each dtype is safe\n"
         "  gnomon extend config.json --to 131072  what a longer context needs, and what it costs short texts\n"
         "  gnomon convert config.json --to vllm   the same setting in another engine's words, and what is lost\n"
         "  gnomon check-order                     why position is needed, and that each rule gives it\n"
         "  gnomon table config.json --positions 0:8192 --out rope.npy\n"
         "  gnomon eval model.gguf --text book.txt --method none --method yarn:4\n"
         "\nA rule is named by a model's path, an object '{\"rule\": …}' or a file @FILE with one. gnomon VERB --help tells more.\n"
         "Exit codes: 0; 1 for doubts (inspect, check), differences (compare, verify, positions --check), losses (convert --verify) and\n"
         "checks that fail (check-order); 2 for wrong use, unreadable input, and numbers that cannot be made.";
}

void set_up(CLI::App& root) {
  root.set_help_flag("-h,--help", "Print this help");
  root.get_formatter()->column_width(30);
  root.get_formatter()->label("REQUIRED", "(required)");
  root.get_formatter()->label("Positionals", "Arguments");
  root.get_formatter()->label("OPTIONS", "options");
  root.get_formatter()->label("SUBCOMMAND", "VERB");
  root.require_subcommand(1);
}

int run_verb(const CLI::App& root, const std::vector<Verb>& verbs) {
  for (const auto& verb : verbs) {
    if (root.got_subcommand(verb.app)) return verb.run();
  }
  return failure;
}

int print(const std::string& text) {
  Output out;
  out.write(text);
  out.finish();
  return 0;
}

int run(int argc, char** argv) {
  CLI::App root("Exact positional encodings of Transformers: what a model declares, the numbers it means, and what is doubtful.", "gnomon");
  set_up(root);
  std::vector<Verb> verbs;
  for (const auto add : built_in) verbs.push_back(add(root));
  for (const auto& verb : verbs) verb.app->group("Verbs");
  root.set_version_flag("--version", [] { return version_line(); }, "Print the version");
  root.footer(root_footer());

  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    message("a verb is missing; this is the help\n\n" + root.help());
    return failure;
  }
  const auto names = verb_names(root);
  const bool built = std::any_of(verbs.begin(), verbs.end(), [&](const Verb& verb) { return verb.app->get_name() == arguments[0]; });
  const bool option = arguments[0].starts_with('-');
  if (option && arguments[0] != "-h" && arguments[0] != "--help" && arguments[0] != "--version") {
    throw Misuse(fmt::format("{}: no option of gnomon itself; a verb comes first (see gnomon --help)", printable(arguments[0])));
  }
  if (!option && !built) run_external(arguments[0], {arguments.begin() + 1, arguments.end()}, root);

  try {
    std::reverse(arguments.begin(), arguments.end());  // the order CLI11 takes them in
    root.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    return print(root.help());
  } catch (const CLI::CallForVersion& version) {
    return print(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    std::vector<std::string> words;  // a verb, and one below it: positions pad
    for (auto selected = root.get_subcommands(); !selected.empty(); selected = selected.front()->get_subcommands()) {
      words.push_back(selected.front()->get_name());
    }
    words.push_back("--help");
    const std::string place = words.size() > 1 ? words.front() + ": " : "";
    throw Misuse(fmt::format("{}{} (see gnomon {})", place, printable(error.what()), joined(words, " ")));
  }
  return run_verb(root, verbs);
}

}  // namespace
}  // namespace gnomon::cli

int main(int argc, char** argv) {
  using namespace gnomon::cli;
  ignore_write_signals();
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    message("not enough memory");
  } catch (const std::exception& error) {
    message(error.what());
  }
  return failure;
}
