// SPDX-License-Identifier: Apache-2.0
// gnomon inspect: the position set-up of a model, where each value comes from, and what is doubtful about it.
#include <memory>

#include "gnomon/model.hpp"
#include "model_text.hpp"
#include "output.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {

Verb add_inspect(CLI::App& root) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto* app = root.add_subcommand("inspect", "What a model declares about position, where each value comes from, what is doubtful");
  const auto options = std::make_shared<Options>();
  app->add_option("PATH", options->path, "config.json, params.json, a GGUF file, or a folder with them; - is standard input")
      ->type_name("PATH")
      ->option_text(" ")
      ->required();
  app->add_flag("--json", options->json, "Print one JSON object (docs/inspect.md)");
  app->footer(
      "Exits with 1 when a doubt is a warning or an error, so that a script can stop there.\n\n"
      "Examples:\n"
      "  gnomon inspect Llama-3.1-8B/\n"
      "  gnomon inspect model.gguf --json");
  return {app, [options] {
            if (options->path.empty()) throw Misuse("inspect: the path is empty");
            const Model model = model_at(options->path);
            Output out;
            options->json ? out.write(to_json(model) + "\n") : print_model(out, model);
            out.finish();
            const auto worst = model.worst();
            return worst && *worst >= Level::warning ? 1 : 0;
          }};
}

}  // namespace gnomon::cli
