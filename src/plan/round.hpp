// SPDX-License-Identifier: Apache-2.0
// One rounding from double to each element type, to nearest even, and back. Our own code, because Highway 1.0.3 truncates.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "gnomon/tensor.hpp"

namespace gnomon {

/// Elements of the 16-bit types, as bits.
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float widen(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }
inline double widen(F16 value) {
  const int exponent = (value.bits >> 10) & 31, mantissa = value.bits & 1023;
  const double sign = (value.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  return sign * std::ldexp(exponent == 0 ? mantissa : mantissa + 1024, (exponent == 0 ? 1 : exponent) - 25);
}
inline float widen(float value) { return value; }
inline double widen(double value) { return value; }

/// Rounds a double to `digits` bits of mantissa, to nearest even, with the smallest exponent of a normal number given: what a direct
/// conversion does, without the double rounding of a way through f32. nearbyint follows the default rounding mode, nearest even.
inline double round_to(double value, int digits, int least_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int unit = std::max(std::ilogb(value), least_exponent) - (digits - 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}

template <class To>
To round(double value);
template <>
inline double round<double>(double value) {
  return value;
}
template <>
inline float round<float>(double value) {
  return static_cast<float>(value);
}
template <>
inline Bf16 round<Bf16>(double value) {
  if (std::isnan(value)) return {static_cast<std::uint16_t>(std::signbit(value) ? 0xffc0 : 0x7fc0)};
  // round_to leaves at most 8 significant bits, so the conversions that follow are exact, or overflow to infinity as they should.
  return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(round_to(value, 8, -126))) >> 16)};
}
template <>
inline F16 round<F16>(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return {static_cast<std::uint16_t>(sign | 0x7e00)};
  const double size = std::abs(round_to(value, 11, -14));
  if (size >= 65536) return {static_cast<std::uint16_t>(sign | 0x7c00)};
  if (size < 0x1p-14) return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::ldexp(size, 24)))};
  const int exponent = std::ilogb(size);
  const auto mantissa = static_cast<std::uint16_t>(std::ldexp(size, 10 - exponent)) & 1023;
  return {static_cast<std::uint16_t>(sign | ((exponent + 15) << 10) | mantissa)};
}

/// Calls visit with a value of the element type a dtype stands for.
template <class Visitor>
auto visit_dtype(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::f64:
      return visit(double{});
    case DType::f32:
      return visit(float{});
    case DType::bf16:
      return visit(Bf16{});
    default:
      return visit(F16{});
  }
}

}  // namespace gnomon
