// SPDX-License-Identifier: Apache-2.0
// gnomon convert: the rotary setting of a model in another engine's words, and what that engine cannot say.
#include "gnomon/convert.hpp"

#include <algorithm>
#include <memory>

#include "gnomon/analysis.hpp"
#include "output.hpp"
#include "rows.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  std::string to, method = "none", out;
  std::int64_t context = 0;
  const CLI::Option *context_option = nullptr, *out_option = nullptr;
  bool compatible = false, verify = false, json = false;

  ConvertOptions asked() const { return {method, context_option->count() > 0 ? std::optional(context) : std::nullopt, compatible}; }
};

Conversion convert_source(const Options& options, const RotarySource& source) {
  const Dialect dialect = dialect_of(options.to);
  if (const auto path = source.model_path()) {
    if (source.layer()) throw Misuse("--layer: convert writes all layers of a model; a layer alone is a rule, as --rotary '{…}'");
    return convert(model_at(*path), dialect, options.asked());
  }
  return convert(source.read(), dialect, options.asked());
}

std::string layers_text(const std::vector<int>& layers) {
  if (layers.empty()) return "";
  return fmt::format("{} {}: ", layers.size() == 1 ? "layer" : "layers", layer_ranges(layers));
}

std::string cost_text(const Loss& loss) {
  if (!loss.mean_cosine) return "";
  const std::string from = loss.apart_from ? fmt::format("Scores drift by more than 1 % from distance {} on", *loss.apart_from)
                                           : "Scores drift by less than 1 %";
  return fmt::format(". {}, mean cosine {:.3g} at {}", from, *loss.mean_cosine, loss.at);
}

void tell(const Conversion& conversion, bool several) {
  for (const auto& note : conversion.notes) message(fmt::format("note: {}", printable(note)));
  for (const auto& loss : conversion.losses) {
    message(fmt::format("lost: {}{}: {}{}", several ? layers_text(loss.layers) : "", loss.field, printable(loss.message), cost_text(loss)));
  }
}

/// "read back: equal" or what differs in a word; the losses say the rest.
std::string verdict(const Conversion& conversion) {
  if (conversion.losses.empty()) return "read back: equal to what was asked for";
  std::vector<std::string> fields;
  for (const auto& loss : conversion.losses) {
    if (std::find(fields.begin(), fields.end(), loss.field) == fields.end()) fields.push_back(loss.field);
  }
  return fmt::format("read back: differs in {}", joined(fields));
}

int run(const Options& options, const RotarySource& source) {
  const Conversion conversion = convert_source(options, source);
  const auto out = options.out_option->count() > 0 ? std::make_unique<Output>(options.out) : std::make_unique<Output>();
  out->write(options.json ? to_json(conversion) + "\n" : conversion.text);
  out->finish();
  if (!options.json) tell(conversion, conversion.layers.size() > 1);
  if (!options.verify) return 0;
  if (!options.json) message(verdict(conversion));
  return conversion.losses.empty() ? 0 : 1;
}

}  // namespace

Verb add_convert(CLI::App& root) {
  auto* app = root.add_subcommand("convert", "The rotary setting of a model in another engine's words, and what is lost");
  const auto options = std::make_shared<Options>();
  const auto source = std::make_shared<RotarySource>();
  source->add_to(*app);
  app->add_option("--to", options->to, "Who is to read it")
      ->type_name("transformers|transformers-v4|llama.cpp|gguf|vllm|exllama|mlx")
      ->required();
  app->add_option("--method", options->method, "Ask for another rule: " + known_methods())->type_name("METHOD");
  options->context_option =
      app->add_option("--context", options->context, "Tokens the engine is to be set up for (default: the length the setting reaches)")
          ->check(integer_problem)
          ->type_name("N");
  app->add_flag("--compatible", options->compatible, "With --to transformers: one config that versions 4 and 5 read alike");
  app->add_flag("--verify", options->verify, "Exit with 1 when the engine would not run what was asked for");
  options->out_option = app->add_option("--out", options->out, "Write to FILE; it appears complete or not at all")->type_name("FILE");
  app->add_flag("--json", options->json, "Print one JSON object with the setting, what is lost and what runs (docs/convert.md)");
  app->footer(
      "The setting goes to standard output; what is lost, each with its cost, to standard error.\n"
      "A method replaces the rule of all layers that rotate, or of those without a window where they differ.\n\n"
      "Examples:\n"
      "  gnomon convert config.json --to llama.cpp\n"
      "  gnomon convert Qwen3-0.6B/ --to vllm --method yarn:4 --verify\n"
      "  gnomon convert config.json --to transformers --compatible --out rope.json\n"
      "  gnomon convert --rotary '{\"rule\": \"ntk\", \"theta\": 10000, \"head_dim\": 128, \"factor\": 4}' --to exllama");
  return {app, [options, source] { return run(*options, *source); }};
}

}  // namespace gnomon::cli
