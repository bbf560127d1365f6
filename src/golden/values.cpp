// SPDX-License-Identifier: Apache-2.0
// Values as files hold them: npy and CSV; JSON is json.cpp's, safetensors has a file of its own.
#include "golden/values.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>

#include "model/safetensors.hpp"

namespace gnomon {
namespace {

constexpr std::size_t largest_text = std::size_t{64} << 20;
constexpr std::size_t most_pairs = std::size_t{1} << 20;
constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr std::string_view csv_header = "position,pair,cos,sin,attention_factor\n";

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::malformed, message); }

/// What stands behind `key` in the header of an npy file, a Python dict that NumPy always writes alike.
std::string_view behind(std::string_view header, std::string_view key, char end) {
  const auto place = header.find(key);
  if (place == std::string_view::npos) refuse(fmt::format("npy: its header has no {}", key));
  header.remove_prefix(place + key.size());
  const auto last = header.find(end);
  if (last == std::string_view::npos) refuse(fmt::format("npy: {} in its header has no end", key));
  return header.substr(0, last);
}

/// "2, 5, 64" as three numbers.
std::vector<std::size_t> shape_of(std::string_view text) {
  std::vector<std::size_t> shape;
  while (!text.empty()) {
    if (text.front() == ' ' || text.front() == ',') {
      text.remove_prefix(1);
      continue;
    }
    std::size_t extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent > (std::size_t{1} << 40) || shape.size() == 8) refuse("npy: a shape that is no list of extents");
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  return shape;
}

std::vector<double> elements(std::string_view type, std::string_view bytes, std::size_t number) {
  if (type == "<f8") return elements_of<double>(bytes, number, "npy");
  if (type == "<f4") return elements_of<float>(bytes, number, "npy");
  if (type == "<f2") return elements_of<F16>(bytes, number, "npy");
  if (type == "<u2") return elements_of<Bf16>(bytes, number, "npy");
  refuse("npy: expected float64, float32, float16, or bf16 as uint16, little endian");
}

Values values_from_npy(std::string_view bytes) {
  if (bytes.size() < 12) refuse("npy: the file ends inside its header");
  const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])); };
  const bool first_version = byte(6) == 1;
  const std::size_t prefix = first_version ? 10 : 12;
  const std::size_t length = byte(8) | byte(9) << 8 | (first_version ? 0 : byte(10) << 16 | byte(11) << 24);
  if (bytes.size() - prefix < length) refuse("npy: the file ends inside its header");
  const std::string_view header = bytes.substr(prefix, length);
  const std::string_view order = behind(header, "'fortran_order':", ',');
  const bool fortran = order.ends_with("True");
  if (!fortran && !order.ends_with("False")) refuse("npy: expected fortran_order to be True or False");
  const auto shape = shape_of(behind(header, "'shape': (", ')'));
  const std::string_view type = behind(header, "'descr': '", '\''), data = bytes.substr(prefix + length);
  Values values;
  if (shape.size() == 1 && shape[0] >= 1 && shape[0] <= most_pairs) {
    values.inv_freq = elements(type, data, shape[0]);
    return values;
  }
  if (shape.size() != 3 || shape[0] != 2 || shape[1] == 0 || shape[2] == 0) {
    refuse(fmt::format("npy: expected the shape (pairs), frequencies, or (2, positions, pairs), cos then sin, got ({})",
                       fmt::join(shape, ", ")));
  }
  if (fortran) refuse("npy: the array is in Fortran order; save it with numpy.ascontiguousarray(array)");
  if (shape[1] > (std::size_t{1} << 30) / shape[2]) refuse("npy: more than 2^30 cosines");
  values.rows = shape[1], values.width = shape[2];
  const std::size_t half = values.rows * values.width;
  values.cos = elements(type, data, 2 * half);
  values.sin.assign(values.cos.begin() + static_cast<std::ptrdiff_t>(half), values.cos.end());
  values.cos.resize(half);
  return values;
}

/// Takes a number and the sign behind it off the front of a line.
template <class Number>
Number take(std::string_view& text, char separator, std::size_t line) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto used = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || used >= text.size() || text[used] != separator) refuse(fmt::format("csv: line {} is not five numbers", line));
  text.remove_prefix(used + 1);
  return number;
}

Values values_from_csv(std::string_view text) {
  text.remove_prefix(csv_header.size());
  Values values;
  for (std::size_t line = 2; !text.empty(); line++) {
    const auto position = take<std::int64_t>(text, ',', line);
    const auto pair = take<std::size_t>(text, ',', line);
    const auto cosine = take<double>(text, ',', line), sine = take<double>(text, ',', line);
    values.attention_factor = take<double>(text, '\n', line);
    constexpr std::int64_t farthest = std::int64_t{1} << 33;
    if (!std::isfinite(cosine) || !std::isfinite(sine) || !std::isfinite(*values.attention_factor) || position > farthest ||
        position < -farthest) {
      refuse(fmt::format("csv: line {}: a number that is not finite, or a position beyond ±2^33", line));
    }
    if (pair == 0) values.positions.push_back(position);
    if (values.positions.size() == 1 && pair == values.width) values.width++;
    if (values.positions.empty() || position != values.positions.back() || pair >= values.width ||
        values.cos.size() != (values.positions.size() - 1) * values.width + pair) {
      refuse(fmt::format("csv: line {}: pairs do not follow each other, position by position", line));
    }
    values.cos.push_back(cosine), values.sin.push_back(sine);
  }
  values.rows = values.positions.size();
  if (values.cos.size() != values.rows * values.width || values.rows == 0) refuse("csv: the last position lacks pairs");
  return values;
}

}  // namespace

Values values_from(std::string_view bytes) {
  if (bytes.starts_with(npy_magic)) return values_from_npy(bytes);
  if (files::is_safetensors(std::as_bytes(std::span(bytes)))) return values_from_safetensors(bytes);
  if (bytes.size() > largest_text) refuse(fmt::format("{} bytes; at most 64 MiB of text are read", bytes.size()));
  if (bytes.starts_with(csv_header)) return values_from_csv(bytes);
  return values_from_json(bytes);
}

}  // namespace gnomon
