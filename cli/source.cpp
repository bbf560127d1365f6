// SPDX-License-Identifier: Apache-2.0
#include "source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "gnomon/frequencies.hpp"
#include "output.hpp"
#include "text.hpp"

namespace gnomon::cli {
namespace {

constexpr std::size_t largest_rule_file = std::size_t{1} << 20;

/// All of an open file, at most `largest` bytes. Throws Error.
std::string read_all_of(std::FILE* file, std::size_t largest, std::string_view problem) {
  std::string text;
  for (std::size_t read = 1; read > 0 && text.size() <= largest;) {
    constexpr std::size_t step = std::size_t{1} << 16;
    const std::size_t before = text.size();
    text.resize(before + step);
    read = std::fread(text.data() + before, 1, step, file);
    text.resize(before + read);
  }
  if (std::ferror(file) != 0) throw Error(ErrorCode::io, std::strerror(errno));
  if (text.size() > largest) throw Error(ErrorCode::malformed, std::string(problem));
  return text;
}

std::string read_file(const std::string& name) {
  const bool standard_input = name == "-";
  const auto close = [standard_input](std::FILE* file) { return standard_input ? 0 : std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(standard_input ? stdin : std::fopen(name.c_str(), "rb"), close);
  if (!file) throw Error(ErrorCode::io, std::strerror(errno));
  return read_all_of(file.get(), largest_rule_file, "more than 1 MiB: not a rule object (a model's path takes no @)");
}

RotarySpec read_rule_file(const std::string& name) {
  try {
    return rotary_from_json(read_file(name));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("@{}: {}", name, error.what()));
  }
}

bool is_literal(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

RotarySpec read_literal(const std::string& text) {
  try {
    return rotary_from_json(text);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--rotary: {}", error.what()));
  }
}

/// How to choose among the groups that the library's message lists.
std::string hint(const Model& model, std::optional<int> layer) {
  const auto rotating =
      std::count_if(model.groups.begin(), model.groups.end(), [](const auto& group) { return group.spec.rotary.has_value(); });
  return !layer && rotating > 1 && model.worst() != Level::error ? "; --layer N picks one" : "";
}

RotarySpec rotary_in(const Model& model, std::optional<int> layer) {
  try {
    return rotary_of(model, layer);
  } catch (const Error& error) {
    throw Error(error.code(), printable(error.what()) + hint(model, layer));
  }
}

RotarySource::Read read_from_model(const std::string& path, std::optional<int> layer) {
  Model model = model_at(path);
  RotarySpec spec = rotary_in(model, layer);
  for (const auto& doubt : model.doubts) {
    if (doubt.level == Level::warning) message(fmt::format("warning: {}: {}", printable(doubt.code), printable(doubt.message)));
  }
  return {std::move(spec), std::move(model)};
}

}  // namespace

std::string standard_input() { return read_all_of(stdin, std::size_t{64} << 20, "standard input: more than 64 MiB; give a path"); }

Model model_at(const std::string& path) { return path == "-" ? model_from(standard_input(), path) : read_model(path); }

void RotarySource::add_to(CLI::App& app) {
  path_option_ = app.add_option("PATH", path_, "A model: config.json, a folder with one, or a GGUF file; or one of the forms of --rotary")
                     ->type_name("PATH")
                     ->option_text(" ");
  rotary_option_ = app.add_option("--rotary", rotary_, "A rule object '{…}', @FILE with one (@-: standard input), or a model's path")
                       ->type_name("RULE|PATH");
  layer_option_ = app.add_option("--layer", layer_, "Layer of the model, from 0; needed where its layers differ")
                      ->check(integer_problem)
                      ->type_name("N");
}

bool RotarySource::given() const { return path_option_->count() + rotary_option_->count() + layer_option_->count() > 0; }

std::string RotarySource::name() const { return (path_.empty() ? rotary_ : path_) + (layer() ? fmt::format(", layer {}", *layer()) : ""); }

const std::string& RotarySource::text() const {
  if (path_.empty() == rotary_.empty()) {
    throw Misuse(path_.empty() ? "a rule is needed: give a model's path, or --rotary '{…}'"
                               : "two rules were given: a path and --rotary; one is needed");
  }
  return path_.empty() ? rotary_ : path_;
}

std::optional<std::string> RotarySource::model_path() const {
  return is_literal(text()) || text().front() == '@' ? std::nullopt : std::optional(text());
}

RotarySource::Read RotarySource::read_all() const {
  const bool literal = is_literal(text()), file = text().front() == '@';
  if ((literal || file) && layer()) throw Misuse("--layer: picks a layer of a model, and a rule object was given");
  if (literal) return {read_literal(text()), std::nullopt};
  return file ? Read{read_rule_file(text().substr(1)), std::nullopt} : read_from_model(text(), layer());
}

void SequenceLength::add_to(CLI::App& app, const std::string& help) {
  option_ = app.add_option("--length", value_, help)->check(integer_problem)->type_name("N");
}

void SequenceLength::tell_what_lies_beyond(const RotarySpec& spec, double last) const {
  if (last < 0) return;
  const auto needed = static_cast<std::int64_t>(last) + 1;
  if (frequencies(spec, Numerics::exact, needed).inv_freq == frequencies(spec, Numerics::exact, value()).inv_freq) return;
  message(fmt::format("note: these are the numbers of {}; a sequence that reaches position {} has others with {} (--length {})",
                      value() ? fmt::format("a sequence of {}", *value()) : "the trained length", last, rule_name(spec.rule), needed));
}

}  // namespace gnomon::cli
