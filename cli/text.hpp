// SPDX-License-Identifier: Apache-2.0
// Text for machines and for people.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/spec.hpp"

namespace gnomon::cli {

/// Wrong use of the command line; the message is a sentence for people.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The shortest decimal that reads back to the same double, with a point or an exponent; `null` for what JSON cannot say.
std::string json_number(double value);
std::string json_numbers(const std::vector<double>& values);

/// A JSON string with its quotes.
std::string json_quote(std::string_view text);

/// Text from a file made safe for a terminal: control characters become \xNN.
std::string printable(std::string_view text);

/// A spec in a few words: "yarn · theta 10000 · 64 of 128 channels · interleaved".
std::string summary(const RotarySpec& spec);

/// 20473564 -> "20 473 564". Rounded to an integer.
std::string grouped(double value);

/// "1 pair", "2 pairs".
std::string counted(int number, std::string_view singular, std::string_view plural);

/// "a, b" by ',' into "a" and " b".
std::vector<std::string_view> split(std::string_view text, char separator);

/// "a, b, c"
std::string joined(const std::vector<std::string>& parts, std::string_view separator = ", ");

/// Breaks a text at spaces so that no line is wider than `width`; the lines after the first begin with `indent` spaces.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

/// `; did you mean "yarn"?` for the known name nearest to `name`, or nothing when none is near.
std::string suggestion(std::string_view name, const std::vector<std::string>& known);

/// What is wrong with a text that should be an integer, or nothing. A check for CLI11, which takes an empty text for 0 and cuts large
/// values.
std::string integer_problem(const std::string& text);

/// A text as one word of a shell command.
std::string shell_quote(std::string_view text);

}  // namespace gnomon::cli
