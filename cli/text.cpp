// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace gnomon::cli {

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // so that every reader takes it for a real number
  return text;
}

std::string json_numbers(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) {
    if (text.size() > 1) text += ", ";
    text += json_number(value);
  }
  return text + "]";
}

std::string json_quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string printable(std::string_view text) {
  std::string safe;
  for (std::size_t i = 0; i < text.size(); i++) {
    const auto c = static_cast<unsigned char>(text[i]);
    // In UTF-8 the second block of control characters, U+0080 to U+009F, is C2 80 to C2 9F.
    const bool high_control = c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (c < 0x20 || c == 0x7f || high_control) {
      safe += fmt::format("\\x{:02x}", static_cast<unsigned>(high_control ? static_cast<unsigned char>(text[++i]) : c));
    } else {
      safe += text[i];
    }
  }
  return safe;
}

std::string summary(const RotarySpec& spec) {
  return fmt::format("{}{} · {} of {} channels · {}", rule_name(spec.rule), spec.theta > 0 ? fmt::format(" · theta {}", spec.theta) : "",
                     spec.rotary_dim, spec.head_dim, enum_names<PairLayout>[static_cast<std::size_t>(spec.layout)]);
}

std::string grouped(double value) {
  std::string text = fmt::format("{:.0f}", value);
  for (std::size_t end = text.size(); end > 3 && text[end - 4] != '-'; end -= 3) text.insert(end - 3, 1, ' ');
  return text;
}

std::string counted(int number, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", number, number == 1 ? singular : plural);
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    // Bytes that continue a UTF-8 character take no column.
    const auto columns = static_cast<std::size_t>(std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xc0) != 0x80; }));
    if (!result.empty() && column + 1 + columns > width) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!result.empty()) {
      result += ' ';
      column++;
    }
    result += word;
    column += columns;
  }
  return result;
}

namespace {

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> distance(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); i++) {
    for (std::size_t j = 0; j <= b.size(); j++) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  if (known.empty() || name.size() > 64) return "";
  const auto nearest =
      std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) { return edits(name, a) < edits(name, b); });
  const bool begins = !name.empty() && nearest->starts_with(name);
  if (!begins && edits(name, *nearest) > std::max<std::size_t>(1, nearest->size() / 2)) return "";
  return fmt::format("; did you mean \"{}\"?", *nearest);
}

std::string integer_problem(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool integer = error == std::errc() && end == text.data() + text.size();
  return integer ? "" : fmt::format("expected an integer of 64 bits, got \"{}\"", text);
}

std::string shell_quote(std::string_view text) {
  const std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@+";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace gnomon::cli
