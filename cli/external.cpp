// SPDX-License-Identifier: Apache-2.0
// Verbs that are programs of their own: gnomon-VERB, beside this executable or in PATH.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "gnomon/error.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& program) {
  std::error_code ignored;
  return fs::is_regular_file(program, ignored) && access(program.c_str(), X_OK) == 0;
}

std::vector<fs::path> search_path() {
  std::vector<fs::path> folders;
  std::error_code ignored;
  const auto self = fs::read_symlink("/proc/self/exe", ignored);
  if (!ignored) folders.push_back(self.parent_path());
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const auto folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.empty()) folders.emplace_back(folder);  // an empty entry would be the current folder, which nobody means
  }
  return folders;
}

bool is_external(std::string_view verb) {
  return std::any_of(std::begin(external_verbs), std::end(external_verbs), [&](const auto& known) { return known.name == verb; });
}

[[noreturn]] void replace_process(const fs::path& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  restore_write_signals();
  execv(program.c_str(), pointers.data());
  const std::string reason = std::strerror(errno);
  ignore_write_signals();
  throw Error(ErrorCode::io, fmt::format("cannot run {}: {}", printable(program.string()), reason));
}

std::optional<fs::path> program_of(const std::string& verb) {
  if (verb.find('/') != std::string::npos) return std::nullopt;
  for (const auto& folder : search_path()) {
    if (auto program = folder / ("gnomon-" + verb); can_run(program)) return program;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_missing(const std::string& verb) {
  throw Misuse(
      fmt::format("{} comes with the Python package of gnomon, which is not installed here "
                  "(there is no gnomon-{} beside this program or in PATH)",
                  verb, verb));
}

}  // namespace

std::vector<std::string> verb_names(const CLI::App& root) {
  std::vector<std::string> names;
  for (const auto* app : root.get_subcommands([](const CLI::App*) { return true; })) names.push_back(app->get_name());
  for (const auto& external : external_verbs) names.emplace_back(external.name);
  return names;
}

void run_external(const std::string& verb, const std::vector<std::string>& arguments, const CLI::App& root) {
  const std::string name = "gnomon-" + verb;
  if (const auto program = program_of(verb)) replace_process(*program, arguments);
  if (is_external(verb)) refuse_missing(verb);
  throw Misuse(fmt::format("unknown verb \"{}\"{} (gnomon help shows all; there is no {} beside this program or in PATH either)",
                           printable(verb), suggestion(verb, verb_names(root)), printable(name)));
}

void call_external(const std::string& verb, const std::vector<std::string>& arguments) {
  const auto program = program_of(verb);
  if (!program) refuse_missing(verb);
  const pid_t child = fork();
  if (child == 0) {
    try {
      replace_process(*program, arguments);
    } catch (const std::exception& error) {
      message(error.what());
    }
    _exit(2);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    throw Error(ErrorCode::io, fmt::format("cannot run {}: {}", printable(program->string()), std::strerror(errno)));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error(ErrorCode::io, fmt::format("gnomon {} failed", verb));
}

}  // namespace gnomon::cli
