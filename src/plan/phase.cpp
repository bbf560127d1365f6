// SPDX-License-Identifier: Apache-2.0
#include "gnomon/phase.hpp"

#include <fmt/format.h>

#include <cmath>

#include "gnomon/error.hpp"

namespace gnomon {

Turns turns(double inv_freq) {
  __extension__ using u128 = unsigned __int128;
  if (!(inv_freq >= 0 && inv_freq < 0x1p53)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("inv_freq: expected 0 to below 2^53, got {}", inv_freq));
  }
  int exponent = 0;
  const auto mantissa =
      static_cast<std::uint64_t>(std::ldexp(std::frexp(inv_freq, &exponent), 53));  // inv_freq = mantissa * 2^(exponent-53)
  // 1/(2 pi) = C * 2^-130 with C of 128 bits, so turns * 2^64 = mantissa * C * 2^(exponent - 119); dropping the lowest 64 bits of the
  // product leaves an error far below half of 2^-64 turn for every frequency a model has.
  constexpr std::uint64_t c_high = 0xa2f9836e4e441529, c_low = 0xfc2757d1f534ddc1;
  const u128 low = static_cast<u128>(mantissa) * c_low, high = static_cast<u128>(mantissa) * c_high + (low >> 64);
  const int shift = 55 - exponent;  // at least 2, since exponent <= 53
  if (shift >= 128) return {0, 0};  // below half of 2^-64 turn
  const u128 value = high >> shift;
  const bool half = (high >> (shift - 1)) & 1;  // ties cannot occur: 2 pi is irrational
  const u128 rounded = value + (half ? 1 : 0);
  return {static_cast<std::int64_t>(rounded >> 64), static_cast<std::uint64_t>(rounded)};
}

}  // namespace gnomon
