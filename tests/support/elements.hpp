// SPDX-License-Identifier: Apache-2.0
// Element types as tests see them: decoded and rounded by plain integer code, written independently of the library's.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gnomon/table.hpp"

namespace testing_support {

inline double decode_bf16(std::uint16_t bits) { return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16)); }

inline double decode_f16(std::uint16_t bits) {
  const double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1f;
  const double fraction = (bits & 0x3ff) / 1024.0;
  if (exponent == 0x1f) return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return exponent == 0 ? sign * fraction * 0x1p-14 : sign * (1 + fraction) * std::ldexp(1.0, exponent - 15);
}

/// f32 to bf16, to nearest, ties to the even neighbour. Walks to the neighbours instead of adding a rounding constant.
inline std::uint16_t nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto lower = static_cast<std::uint16_t>(bits >> 16);
  if (std::isnan(value)) return static_cast<std::uint16_t>(lower | 0x40);
  const std::uint32_t rest = bits & 0xffff;
  const auto upper = static_cast<std::uint16_t>(lower + 1);  // away from zero; after the largest finite number comes infinity
  if (rest < 0x8000) return lower;
  if (rest > 0x8000) return upper;
  return (lower & 1) == 0 ? lower : upper;
}

/// To f16, to nearest, ties to the even neighbour: of all 31745 values from 0 to infinity, the nearest. Infinity stands where 2^16 would.
inline std::uint16_t nearest_f16(double value) {
  static const std::vector<double> sizes = [] {
    std::vector<double> list;
    for (std::uint16_t bits = 0; bits < 0x7c00; bits++) list.push_back(decode_f16(bits));
    list.push_back(65536);
    return list;
  }();
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const double size = std::abs(value);
  const auto above = std::upper_bound(sizes.begin(), sizes.end(), size);
  if (above == sizes.end()) return sign | 0x7c00;
  const auto lower = static_cast<std::uint16_t>(above - sizes.begin() - 1);
  const double to_lower = size - *(above - 1), to_upper = *above - size;  // exact: the neighbours are close
  const bool up = to_upper < to_lower || (to_upper == to_lower && (lower & 1) != 0);
  return static_cast<std::uint16_t>(sign | (lower + (up ? 1 : 0)));
}

inline bool is_nan_f16(std::uint16_t bits) { return (bits & 0x7fff) > 0x7c00; }

inline bool is_nan_bf16(std::uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }

/// Entry `index` of a column of a table.
inline double table_entry(const std::vector<std::byte>& column, gnomon::DType dtype, std::size_t index) {
  const std::byte* at = column.data() + index * gnomon::size_of(dtype);
  if (dtype == gnomon::DType::f64) {
    double value;
    return std::memcpy(&value, at, sizeof value), value;
  }
  if (dtype == gnomon::DType::f32) {
    float value;
    return std::memcpy(&value, at, sizeof value), static_cast<double>(value);
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == gnomon::DType::bf16 ? decode_bf16(bits) : decode_f16(bits);
}

inline double table_cos(const gnomon::RotaryTable& table, std::size_t position, std::size_t pair) {
  return table_entry(table.cos, table.dtype, position * table.pairs + pair);
}
inline double table_sin(const gnomon::RotaryTable& table, std::size_t position, std::size_t pair) {
  return table_entry(table.sin, table.dtype, position * table.pairs + pair);
}

/// A message when `call` does not throw gnomon::Error of this code with every given word in its text; empty when it does.
template <class Call>
std::string refusal_fault(Call&& call, gnomon::ErrorCode code, std::initializer_list<const char*> words) {
  try {
    call();
  } catch (const gnomon::Error& error) {
    const std::string text = error.what();
    if (error.code() != code) return "refused with another code: " + text;
    for (const char* word : words) {
      if (text.find(word) == std::string::npos) return "the message does not name \"" + std::string(word) + "\": " + text;
    }
    return "";
  } catch (const std::exception& other) {
    return std::string("another exception than gnomon::Error: ") + other.what();
  }
  return "not refused";
}

}  // namespace testing_support
