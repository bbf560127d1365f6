// SPDX-License-Identifier: Apache-2.0
// The texts: golden files both ways, values as JSON, and what verify found.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "gnomon/gnomon.h"
#include "gnomon/golden.hpp"
#include "golden/sha256.hpp"
#include "golden/values.hpp"
#include "spec/strict_json.hpp"

namespace gnomon {
namespace {

using nlohmann::json;

constexpr std::size_t largest_text = std::size_t{64} << 20;
constexpr std::string_view hash_key = ",\n \"sha256\": \"";

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::malformed, message); }

std::string quoted(const std::string& text) { return json(text).dump(-1, ' ', false, json::error_handler_t::replace); }

// Writing. Python's form of a hexadecimal float, as in the files of tools/make-golden; every reader of C's takes it.

template <class Numbers>
std::string hex_list(const Numbers& values) {
  std::string text = "[";
  for (const double value : values) text += fmt::format("{}\"{:a}\"", text.size() > 1 ? ", " : "", value);
  return text + "]";
}

std::string hex_rows(const std::vector<double>& values, std::size_t columns) {
  std::string text;
  for (std::size_t first = 0; first < values.size(); first += columns) {
    text += (text.empty() ? "[\n   " : ",\n   ") + hex_list(std::span(values).subspan(first, columns));
  }
  return text + "]";
}

std::string numbers_to_json(const GoldenNumbers& numbers) {
  const std::size_t pairs = numbers.inv_freq.size();
  return fmt::format("{{\n  \"inv_freq\": {},\n  \"cos\": {},\n  \"sin\": {}}}", hex_list(numbers.inv_freq), hex_rows(numbers.cos, pairs),
                     hex_rows(numbers.sin, pairs));
}

// Reading.

/// A finite JSON number, or a text with a hexadecimal one.
double number_of(const json& value, std::string_view key) {
  double number = 0;
  if (value.is_number()) {
    number = value.get<double>();
  } else if (value.is_string()) {
    std::string_view text = value.get_ref<const std::string&>();
    const bool negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    if (!text.starts_with("0x")) refuse(fmt::format("{}: expected a number or a text as \"0x1.8p+0\"", key));
    text.remove_prefix(2);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::hex);
    if (error != std::errc() || end != text.data() + text.size()) refuse(fmt::format("{}: not a hexadecimal number of a double", key));
    if (negative) number = -number;
  } else {
    refuse(fmt::format("{}: expected numbers, got {}", key, value.type_name()));
  }
  if (!std::isfinite(number)) refuse(fmt::format("{}: expected finite numbers", key));
  return number;
}

std::vector<double> numbers_of(const json& value, std::string_view key) {
  if (!value.is_array()) refuse(fmt::format("{}: expected a list of numbers, got {}", key, value.type_name()));
  std::vector<double> numbers;
  numbers.reserve(value.size());
  for (const auto& item : value) numbers.push_back(number_of(item, key));
  return numbers;
}

struct Rows {
  std::size_t rows = 0, width = 0;
  std::vector<double> numbers;
};

Rows rows_of(const json& value, std::string_view key) {
  if (!value.is_array() || value.empty()) refuse(fmt::format("{}: expected a list of rows", key));
  Rows result{value.size(), 0, {}};
  for (const auto& row : value) {
    const auto numbers = numbers_of(row, key);
    if (result.width == 0) result.width = numbers.size();
    if (numbers.empty() || numbers.size() != result.width) refuse(fmt::format("{}: expected rows of one length, at least 1", key));
    result.numbers.insert(result.numbers.end(), numbers.begin(), numbers.end());
  }
  return result;
}

std::vector<std::int64_t> positions_of(const json& value) {
  if (!value.is_array()) refuse("positions: expected a list of integers");
  std::vector<std::int64_t> positions;
  for (const auto& item : value) {
    const double position = number_of(item, "positions");
    if (position != std::trunc(position) || std::abs(position) > 0x1p33) refuse("positions: expected integers within ±2^33");
    positions.push_back(static_cast<std::int64_t>(position));
  }
  return positions;
}

const json& member(const json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(fmt::format("{}: missing", key));
  return *found;
}

void check_keys(const json& object, std::string_view what, const std::set<std::string, std::less<>>& known) {
  if (!object.is_object()) refuse(fmt::format("{}: expected an object, got {}", what, object.type_name()));
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key)) refuse(fmt::format("{}: unknown key \"{}\"", what, key));
  }
}

GoldenNumbers golden_numbers(const json& object, std::string_view what, std::size_t positions, std::size_t pairs) {
  check_keys(object, what, {"inv_freq", "cos", "sin"});
  GoldenNumbers numbers{numbers_of(member(object, "inv_freq"), "inv_freq"), {}, {}};
  if (numbers.inv_freq.size() != pairs) refuse(fmt::format("{}.inv_freq: expected {} pairs, got {}", what, pairs, numbers.inv_freq.size()));
  if (!std::all_of(numbers.inv_freq.begin(), numbers.inv_freq.end(), [](double w) { return w >= 0 && w < 0x1p53; })) {
    refuse(fmt::format("{}.inv_freq: expected frequencies from 0 to below 2^53", what));
  }
  for (const auto& [key, list] : {std::pair("cos", &numbers.cos), std::pair("sin", &numbers.sin)}) {
    auto table = rows_of(member(object, key), key);
    if (table.rows != positions || table.width != pairs) {
      refuse(fmt::format("{}.{}: expected {} rows of {} pairs, got {} of {}", what, key, positions, pairs, table.rows, table.width));
    }
    *list = std::move(table.numbers);
  }
  return numbers;
}

void check_hash(std::string_view text) {
  const auto place = text.rfind(hash_key);
  if (place == std::string_view::npos) refuse("not a golden file: it does not end in its sha256");
  const auto stated = text.substr(place + hash_key.size(), 64);
  if (stated != sha256(std::string(text.substr(0, place)))) refuse("sha256: not that of the text before it; the file was changed");
}

Golden read_golden_object(const json& object) {
  check_keys(object, "golden file", {"schema", "provenance", "rotary", "length", "attention_factor", "positions", "exact", "hf", "sha256"});
  if (member(object, "schema") != 1) refuse("schema: expected 1");
  Golden golden;
  golden.spec = rotary_from_json(member(object, "rotary").dump());
  const auto& provenance = member(object, "provenance");
  check_keys(provenance, "provenance", {"program", "source"});
  const auto& source = member(provenance, "source");
  if (!source.is_string()) refuse("provenance.source: expected a text");
  golden.source = source.get<std::string>();
  if (const auto& length = member(object, "length"); !length.is_null()) golden.length = positions_of(json::array({length})).front();
  if (golden.length && *golden.length < 1) refuse("length: expected at least 1");
  golden.attention_factor = number_of(member(object, "attention_factor"), "attention_factor");
  if (!(golden.attention_factor > 0)) refuse("attention_factor: expected a positive number");
  golden.positions = positions_of(member(object, "positions"));
  const auto pairs = static_cast<std::size_t>(golden.spec.rotary_dim / 2);
  golden.exact = golden_numbers(member(object, "exact"), "exact", golden.positions.size(), pairs);
  if (const auto& hf = member(object, "hf"); !hf.is_null()) golden.hf = golden_numbers(hf, "hf", golden.positions.size(), pairs);
  return golden;
}

/// cos and sin must have one shape.
void take_table(const json& cos, const json& sin, Values& values) {
  auto cosines = rows_of(cos, "cos"), sines = rows_of(sin, "sin");
  if (cosines.rows != sines.rows || cosines.width != sines.width) {
    refuse(
        fmt::format("sin: expected the shape of cos, {} rows of {}, got {} of {}", cosines.rows, cosines.width, sines.rows, sines.width));
  }
  values.rows = cosines.rows, values.width = cosines.width;
  values.cos = std::move(cosines.numbers), values.sin = std::move(sines.numbers);
}

Values values_of_object(const json& object) {
  Values values;
  if (object.contains("inv_freq")) values.inv_freq = numbers_of(object["inv_freq"], "inv_freq");
  if (object.contains("positions")) values.positions = positions_of(object["positions"]);
  if (object.contains("attention_factor")) values.attention_factor = number_of(object["attention_factor"], "attention_factor");
  if (object.contains("cos") || object.contains("sin")) take_table(member(object, "cos"), member(object, "sin"), values);
  if (object.contains("rotated")) {
    if (!values.cos.empty()) refuse("rotated: stands beside cos and sin; give one of the two");
    values.input = numbers_of(member(object, "input"), "input");
    auto table = rows_of(object["rotated"], "rotated");
    values.rows = table.rows, values.width = table.width, values.rotated = std::move(table.numbers);
  }
  return values;
}

json mistake_json(const Mistake& mistake) { return {{"mistake", mistake.name}, {"found", mistake.found}, {"cause", mistake.cause}}; }

}  // namespace

std::string to_json(const Golden& golden) {
  std::string text = fmt::format(
      "{{\"schema\": 1,\n \"provenance\": {{\"program\": \"gnomon {}\", \"source\": {}}},\n \"rotary\": {},\n \"length\": {},\n"
      " \"attention_factor\": \"{:a}\",\n \"positions\": [{}],\n \"exact\": {},\n \"hf\": {}",
      gnomon_version(), quoted(golden.source), to_json(golden.spec), golden.length ? std::to_string(*golden.length) : "null",
      golden.attention_factor, fmt::join(golden.positions, ", "), numbers_to_json(golden.exact),
      golden.hf ? numbers_to_json(*golden.hf) : "null");
  const std::string hash = sha256(text);
  return text.append(hash_key) + hash + "\"}\n";
}

Golden golden_from_json(std::string_view text) {
  if (text.size() > largest_text) refuse(fmt::format("{} bytes; at most 64 MiB are read", text.size()));
  const json object = parse_strict(text, "golden file");
  check_hash(text);
  return read_golden_object(object);
}

Values values_from_json(std::string_view text) {
  const json value = parse_strict(text, "values");
  if (value.is_object()) return values_of_object(value);
  if (!value.is_array() || value.empty()) refuse("values: expected an object with inv_freq, cos and sin, or a list of numbers");
  Values values;
  if (!value.front().is_array()) {
    values.inv_freq = numbers_of(value, "values");
  } else if (value.size() == 2) {
    take_table(value[0], value[1], values);
  } else {
    refuse("values: expected a list of frequencies, or two lists of rows, cos and sin");
  }
  return values;
}

std::string to_json(const Verification& found) {
  nlohmann::ordered_json object{{"schema", 1},
                                {"agrees", found.agrees},
                                {"numerics", name_of(found.numerics)},
                                {"precision", found.precision},
                                {"tolerance", found.tolerance},
                                {"positions", found.positions},
                                {"worst", nullptr},
                                {"explanations", json::array()},
                                {"notes", found.notes}};
  if (found.worst) {
    const auto& worst = *found.worst;
    object["worst"] = {{"value", worst.value}, {"pair", worst.pair}, {"got", worst.got}, {"expected", worst.expected}};
    if (worst.value != "inv_freq") object["worst"]["position"] = worst.position;
  }
  for (const auto& explanation : found.explanations) {
    json mistakes = json::array();
    for (const auto& mistake : explanation.mistakes) mistakes.push_back(mistake_json(mistake));
    object["explanations"].push_back({{"residual", explanation.residual}, {"mistakes", mistakes}});
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace gnomon
