// SPDX-License-Identifier: Apache-2.0
// gnomon completion: a script for bash, zsh or fish, generated from the tree of verbs and options. What an option takes stands in its
// type name: words between bars are its choices, PATH and FILE are files.
#include <algorithm>
#include <memory>

#include "gnomon/model.hpp"
#include "gnomon/spec.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

/// What may stand after an option, or as an argument of a verb.
struct Values {
  std::vector<std::string> words;
  bool files = false;
};

struct OptionInfo {
  std::string name, description;
  bool takes_value = false;
  Values values;
};

struct VerbInfo {
  std::string name, description;
  std::vector<OptionInfo> options;
  Values arguments;
};

Values values_of(const std::string& type, const CLI::App& root) {
  Values values;
  if (type == "VERB") values.words = verb_names(root);
  if (type == "RULE") {
    for (const auto& rule : list_rules()) values.words.push_back(rule.name);
    for (const auto& doubt : list_doubts()) values.words.emplace_back(doubt.code);
  }
  values.files = type.find("PATH") != std::string::npos || type == "FILE";
  if (values.files || type.find('|') == std::string::npos) return values;
  for (std::string_view rest = type; !rest.empty();) {
    const auto word = rest.substr(0, rest.find('|'));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    values.words.emplace_back(word);
  }
  return values;
}

/// A verb's own verbs are words after it; their options are offered together.
void add_part(VerbInfo& verb, const VerbInfo& part) {
  verb.arguments.words.push_back(part.name);
  for (const auto& option : part.options) {
    const auto known = [&](const OptionInfo& other) { return other.name == option.name; };
    if (std::none_of(verb.options.begin(), verb.options.end(), known)) verb.options.push_back(option);
  }
}

VerbInfo verb_info(const CLI::App& app, const CLI::App& root) {
  VerbInfo verb{app.get_name(), app.get_description(), {}, {}};
  for (const auto* option : app.get_options()) {
    if (option->get_positional()) verb.arguments = values_of(option->get_type_name(), root);
    for (const auto& name : option->get_lnames()) {
      const bool takes_value = option->get_items_expected_max() > 0;
      verb.options.push_back(
          {"--" + name, option->get_description(), takes_value, takes_value ? values_of(option->get_type_name(), root) : Values{}});
    }
  }
  for (const auto* part : app.get_subcommands([](const CLI::App*) { return true; })) add_part(verb, verb_info(*part, root));
  return verb;
}

std::vector<VerbInfo> all_verbs(const CLI::App& root) {
  std::vector<VerbInfo> verbs;
  for (const auto* app : root.get_subcommands([](const CLI::App*) { return true; })) verbs.push_back(verb_info(*app, root));
  for (const auto& external : external_verbs) {
    verbs.push_back({std::string(external.name), std::string(external.summary), {{"--help", "Print this help", false, {}}}, {{}, true}});
  }
  return verbs;
}

std::string names_of(const std::vector<VerbInfo>& verbs) {
  std::vector<std::string> names;
  names.reserve(verbs.size());
  for (const auto& verb : verbs) names.push_back(verb.name);
  return joined(names, " ");
}

std::string options_of(const VerbInfo& verb) {
  std::vector<std::string> names;
  names.reserve(verb.options.size());
  for (const auto& option : verb.options) names.push_back(option.name);
  return joined(names, " ");
}

// bash: a function that looks at the verb, at the option before the word, then at the word itself.
std::string bash_values(const Values& values) {
  if (!values.files) return fmt::format("COMPREPLY=($(compgen -W {} -- \"$word\"))", shell_quote(joined(values.words, " ")));
  return "compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\")";
}

void print_bash(Output& out, const std::vector<VerbInfo>& verbs) {
  out.write(
      "# bash completion for gnomon. Use: source <(gnomon completion bash)\n"
      "_gnomon() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" verb=\"${COMP_WORDS[1]}\"\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n");
  out.print("    COMPREPLY=($(compgen -W {} -- \"$word\"))\n    return\n  fi\n", shell_quote(names_of(verbs) + " --help --version"));
  out.write("  case \"$verb\" in\n");
  for (const auto& verb : verbs) {
    out.print("    {})\n      case \"$before\" in\n", verb.name);
    for (const auto& option : verb.options) {
      if (option.takes_value) out.print("        {}) {}; return ;;\n", option.name, bash_values(option.values));
    }
    out.print("      esac\n      if [[ \"$word\" == -* ]]; then COMPREPLY=($(compgen -W {} -- \"$word\")); return; fi\n",
              shell_quote(options_of(verb)));
    out.print("      {} ;;\n", bash_values(verb.arguments));
  }
  out.write("  esac\n}\ncomplete -F _gnomon gnomon\n");
}

/// Text inside single quotes where `:` and brackets have a meaning, as in zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '\'' ? "'\\''" : c == ':' || c == '[' || c == ']' ? std::string{'\\', c} : std::string(1, c);
  return escaped;
}

std::string zsh_values(const Values& values) {
  if (values.files) return "_files";
  return values.words.empty() ? " " : "(" + joined(values.words, " ") + ")";
}

void print_zsh(Output& out, const std::vector<VerbInfo>& verbs) {
  out.write(
      "#compdef gnomon\n"
      "# zsh completion for gnomon. Use: source <(gnomon completion zsh), or save it as _gnomon in a folder of $fpath\n"
      "_gnomon() {\n"
      "  local -a verbs\n"
      "  verbs=(\n");
  for (const auto& verb : verbs) out.print("    '{}:{}'\n", verb.name, zsh_text(verb.description));
  out.write(
      "  )\n"
      "  if ((CURRENT == 2)); then _describe verb verbs; return; fi\n"
      "  local verb=$words[2]\n"
      "  shift words; ((CURRENT--))\n"
      "  case $verb in\n");
  for (const auto& verb : verbs) {
    out.print("    {}) _arguments", verb.name);
    for (const auto& option : verb.options) {
      const std::string value = option.takes_value ? fmt::format(":value:{}", zsh_values(option.values)) : "";
      out.print(" \\\n      '{}[{}]{}'", option.name, zsh_text(option.description), value);
    }
    if (verb.arguments.files || !verb.arguments.words.empty()) out.print(" \\\n      '*:argument:{}'", zsh_values(verb.arguments));
    out.write(" ;;\n");
  }
  // Found through $fpath, the file is the body of the function; sourced, it has to announce it.
  out.write("  esac\n}\nif [[ $funcstack[1] == _gnomon ]]; then _gnomon \"$@\"; else compdef _gnomon gnomon; fi\n");
}

void print_fish(Output& out, const std::vector<VerbInfo>& verbs) {
  out.write("# fish completion for gnomon. Use: gnomon completion fish | source\ncomplete -c gnomon -f\n");
  for (const auto& verb : verbs) {
    out.print("complete -c gnomon -n __fish_use_subcommand -a {} -d {}\n", verb.name, shell_quote(verb.description));
  }
  for (const auto& verb : verbs) {
    const std::string condition = fmt::format("complete -c gnomon -n '__fish_seen_subcommand_from {}'", verb.name);
    for (const auto& option : verb.options) {
      std::string_view value = !option.takes_value ? "" : option.values.files ? " -rF" : " -x";
      out.print("{} -l {}{}", condition, option.name.substr(2), value);
      if (!option.values.words.empty()) out.print(" -a {}", shell_quote(joined(option.values.words, " ")));
      out.print(" -d {}\n", shell_quote(option.description));
    }
    if (verb.arguments.files) out.print("{} -F\n", condition);
    if (!verb.arguments.words.empty()) out.print("{} -a {}\n", condition, shell_quote(joined(verb.arguments.words, " ")));
  }
}

int run(const CLI::App& root, const std::string& shell) {
  const auto verbs = all_verbs(root);
  Output out;
  if (shell == "bash") {
    print_bash(out, verbs);
  } else if (shell == "zsh") {
    print_zsh(out, verbs);
  } else if (shell == "fish") {
    print_fish(out, verbs);
  } else {
    throw Misuse(fmt::format("completion: expected bash | zsh | fish, got \"{}\"", printable(shell)));
  }
  out.finish();
  return 0;
}

}  // namespace

Verb add_completion(CLI::App& root) {
  auto* app = root.add_subcommand("completion", "Shell completion: a script for bash, zsh or fish");
  const auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash, zsh or fish")->type_name("bash|zsh|fish")->option_text(" ")->required();
  app->footer(
      "Examples:\n"
      "  source <(gnomon completion bash)\n"
      "  gnomon completion bash > ~/.local/share/bash-completion/completions/gnomon\n"
      "  gnomon completion fish | source");
  return {app, [&root, shell] { return run(root, *shell); }};
}

}  // namespace gnomon::cli
