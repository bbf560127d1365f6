// SPDX-License-Identifier: Apache-2.0
// What `gnomon positions` makes and prints: a builder turns the words of the command line into ids.
#pragma once

#include <charconv>
#include <span>
#include <string>
#include <vector>

#include "gnomon/position_ids.hpp"
#include "output.hpp"
#include "text.hpp"

namespace CLI {
class App;
}

namespace gnomon::cli {

/// What builders take, as texts: they are read when the builder runs, so that a bad one is named with what was expected.
struct IdOptions {
  std::vector<std::string> arguments;
  std::string side = "left", width, offset, chunk, cached = "0", tree, ranks, rank, family, version = "original", merge = "2";
  std::string fresh = "1", temporal_merge, tokens_per_second, check;
  bool json = false;
};

/// Something beside the ids, for machines and for people: a text, or rows of numbers.
struct IdExtra {
  std::string name, json, text;
  PositionIds rows{};
};

/// The ids of one layout: all of them, or of one chunk or rank.
struct IdPart {
  std::string title;
  IdLayout layout;
  PositionIds ids;
  std::vector<IdExtra> extras;
};

/// One kind of layout: its words in the help, and how its ids are made.
struct IdBuilder {
  const char *name, *summary, *argument, *argument_help, *examples;
  std::vector<IdPart> (*build)(const IdOptions&);
  void (*add_options)(CLI::App& app, IdOptions& options);
};

/// All of them, in the order of the help.
std::span<const IdBuilder> id_builders();

void print_ids_json(Output& out, const std::string& builder, const std::vector<IdPart>& parts);
void print_ids(Output& out, const std::vector<IdPart>& parts);

/// Throws Misuse that names the argument for a text that is no number of that type.
template <class Number>
Number number_of(std::string_view argument, std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  throw Misuse(fmt::format("{}: expected a {}number, got \"{}\"", argument, std::is_integral_v<Number> ? "whole " : "",
                           printable(text.substr(0, 40))));
}

/// A check for CLI11, which takes an empty text for an option that was left out.
std::string text_problem(const std::string& text);

/// The lists of one axis as JSON, row by row, and one list.
std::string json_rows(const PositionIds& ids, std::int64_t axis);
std::string json_list(const std::vector<std::int64_t>& numbers);

}  // namespace gnomon::cli
