// SPDX-License-Identifier: Apache-2.0
// gnomon help: the help of the program or of one verb.
#include <memory>

#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

int run(const CLI::App& root, const std::string& verb) {
  Output out;
  if (verb.empty()) {
    // root.help() would print the help of the verb that is running, this one.
    out.write(root.get_formatter()->make_help(&root, root.get_name(), CLI::AppFormatMode::Normal));
  } else {
    const auto found = root.get_subcommands([&](const CLI::App* app) { return app->get_name() == verb; });
    if (found.empty()) run_external(verb, {"--help"}, root);
    out.write(found.front()->help("gnomon", CLI::AppFormatMode::Normal));
  }
  out.finish();
  return 0;
}

}  // namespace

Verb add_help(CLI::App& root) {
  auto* app = root.add_subcommand("help", "This help, or the help of a verb");
  const auto verb = std::make_shared<std::string>();
  app->add_option("VERB", *verb, "Name of a verb")->type_name("VERB")->option_text(" ");
  app->footer("Examples:\n  gnomon help\n  gnomon help table");
  return {app, [&root, verb] { return run(root, *verb); }};
}

}  // namespace gnomon::cli
