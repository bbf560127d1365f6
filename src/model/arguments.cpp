// SPDX-License-Identifier: Apache-2.0
// Arguments as people keep them: `--flag value` of a launch script, `name ..... value` of a log, or `name: value` of a simple YAML file
// with lists and one object inside another. Values become JSON, and the formats of JSON files read them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gnomon/error.hpp"
#include "model/formats.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

constexpr std::size_t largest_arguments = std::size_t{4} << 20;
constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

bool is_name(std::string_view text) {
  return !text.empty() &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == std::string_view::npos;
}

json scalar(std::string_view text) {
  if (text.empty() || text == "null" || text == "None" || text == "~") return nullptr;
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return std::string(text.substr(1, text.size() - 2));
  std::int64_t whole = 0;
  const char* end = text.data() + text.size();
  if (const auto result = std::from_chars(text.data(), end, whole); result.ec == std::errc{} && result.ptr == end) return whole;
  double number = 0;
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec == std::errc{} && result.ptr == end && std::isfinite(number)) return number;
  return std::string(text);
}

json value_of(std::string_view text) {
  const bool list = text.size() >= 2 && ((text.front() == '[' && text.back() == ']') || (text.front() == '(' && text.back() == ')'));
  if (!list) return scalar(text);
  json values = json::array();
  for (text = text.substr(1, text.size() - 2); !trimmed(text).empty();) {
    const auto comma = std::min(text.find(','), text.size());
    values.push_back(scalar(trimmed(text.substr(0, comma))));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return values;
}

class ArgumentReader {
 public:
  ArgumentReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  json read() {
    while (!text_.empty()) {
      const auto end = std::min(text_.find('\n'), text_.size());
      read_line(text_.substr(0, end));
      text_.remove_prefix(std::min(end + 1, text_.size()));
      line_++;
    }
    return std::move(root_);
  }

 private:
  void read_line(std::string_view line) {
    const bool indented = !line.empty() && (line.front() == ' ' || line.front() == '\t');
    line = trimmed(line);
    if (line.empty() || line.front() == '#' || line.starts_with("---")) return;
    if (line.starts_with("- ")) return read_item(trimmed(line.substr(2)));
    if (line.find("--") != std::string_view::npos && !is_assignment(line)) return read_flags(line);
    read_assignment(line, indented);
  }

  static bool is_assignment(std::string_view line) {
    const auto colon = line.find(':');
    return colon != std::string_view::npos && is_name(line.substr(0, colon)) && !line.starts_with("--");
  }

  // What follows "- " under a name without a value.
  void read_item(std::string_view text) {
    if (parent_.empty()) return;
    auto& list = root_[parent_];
    if (list.is_null()) list = json::array();
    if (list.is_array()) list.push_back(value_of(text));
  }

  // Every word that begins with two dashes is a name; the words up to the next are its value.
  void read_flags(std::string_view line) {
    std::string name;
    json values = json::array();
    const auto flush = [&] {
      if (!name.empty()) set(root_, name, values.empty() ? json(true) : values.size() == 1 ? values.front() : values);
      values = json::array();
    };
    while (!line.empty()) {
      const auto end = std::min(line.find_first_of(" \t"), line.size());
      const std::string_view word = line.substr(0, end);
      line = trimmed(line.substr(end));
      if (word.starts_with("--")) {
        flush();
        const auto equals = std::min(word.find('='), word.size());
        name = word.substr(2, equals - 2);
        if (equals < word.size()) values.push_back(value_of(word.substr(equals + 1)));
      } else if (!name.empty() && word != "\\" && !word.empty()) {
        values.push_back(value_of(word));
      }
    }
    flush();
  }

  void read_assignment(std::string_view line, bool indented) {
    auto end = line.find_first_of(":= \t");
    if (end == std::string_view::npos || !is_name(line.substr(0, end))) return;
    const std::string_view name = line.substr(0, end);
    auto rest = trimmed(line.substr(end));
    if (rest.starts_with(":") || rest.starts_with("=")) {
      rest = trimmed(rest.substr(1));
    } else if (const auto dots = rest.find_first_not_of('.'); dots != std::string_view::npos && dots >= 2) {
      rest = trimmed(rest.substr(dots));
      indented = false;  // a log is indented as a whole
    } else {
      return;
    }
    if (indented && !parent_.empty()) {
      auto& object = root_[parent_];
      if (object.is_null()) object = json::object();
      if (object.is_object()) set(object, std::string(name), value_of(rest));
      return;
    }
    parent_ = rest.empty() ? normal(std::string(name)) : "";
    set(root_, std::string(name), value_of(rest));
  }

  static std::string normal(std::string name) {
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }

  void set(json& object, std::string name, json value) {
    name = normal(std::move(name));
    if (!object.emplace(name, std::move(value)).second)
      throw Error(ErrorCode::malformed, fmt::format("{}: line {}: {} stands twice", path_, line_, name));
  }

  std::string_view text_;
  const std::string& path_;
  json root_ = json::object();
  std::string parent_;  ///< the last name without a value
  int line_ = 1;
};

bool is_utf8(std::string_view text) {
  try {
    (void)json(std::string(text)).dump();
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

}  // namespace

Model read_arguments(std::string_view text, const std::string& file, const std::string& path) {
  if (text.size() <= largest_arguments && text.find('\0') == std::string_view::npos && is_utf8(text)) {
    const json root = ArgumentReader(text, path).read();
    if (is_megatron(root)) return read_megatron(root, file, path);
    if (is_litgpt(root)) return read_litgpt(root, file, path);
  }
  throw Error(ErrorCode::malformed, fmt::format("{}: neither a GGUF file nor JSON, nor the arguments of Megatron or LitGPT", path));
}

}  // namespace gnomon::files
