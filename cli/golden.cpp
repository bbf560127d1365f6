// SPDX-License-Identifier: Apache-2.0
// gnomon golden: the numbers of a rule or a model, written down for any engine to be compared with.
#include "gnomon/golden.hpp"

#include <algorithm>
#include <memory>

#include "output.hpp"
#include "positions.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

struct Options {
  RotarySource source;
  std::string positions, out;
  SequenceLength length;
  const CLI::Option* out_option = nullptr;
  bool json = false;
};

std::vector<std::int64_t> positions_of(const std::string& text) {
  if (text.empty()) return {golden_positions().begin(), golden_positions().end()};
  const PositionList list(text);
  if (list.size() > largest_golden) {
    throw Misuse(fmt::format("--positions: {} of them; a golden file holds at most {} cosines", list.size(), largest_golden));
  }
  return list.integers();
}

int run(const Options& options) {
  const auto positions = positions_of(options.positions);
  Golden golden = make_golden(options.source.read(), positions, options.length.value());
  golden.source = options.source.name();
  const auto out = options.out_option->count() > 0 ? std::make_unique<Output>(options.out) : std::make_unique<Output>();
  out->write(to_json(golden));
  out->finish();
  options.length.tell_what_lies_beyond(golden.spec, static_cast<double>(*std::max_element(positions.begin(), positions.end())));
  return 0;
}

}  // namespace

Verb add_golden(CLI::App& root) {
  auto* app = root.add_subcommand("golden", "A golden file: frequencies, cos and sin of a rule or a model, for `gnomon verify`");
  const auto options = std::make_shared<Options>();
  options->source.add_to(*app);
  app->add_option("--positions", options->positions, "START:STOP:STEP as in Python (stop exclusive), or integers with commas")
      ->type_name("P");
  options->length.add_to(*app);
  options->out_option = app->add_option("--out", options->out, "Write to FILE; it appears complete or not at all")->type_name("FILE");
  app->add_flag("--json", options->json, "Print one JSON object, as always");
  app->footer(
      "Numbers are hexadecimal, exact and (for rules the transformers library has) hf; the last key is the SHA-256 of what precedes it.\n\n"
      "Examples:\n"
      "  gnomon golden config.json --out golden.json\n"
      "  gnomon golden config.json --positions 0:4096 --out golden.json\n"
      "  gnomon golden --rotary '{\"rule\": \"ntk\", \"theta\": 10000, \"head_dim\": 64, \"factor\": 4}' --positions 0,1,4095");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
