// SPDX-License-Identifier: Apache-2.0
// ③ Phases: angles as integers. A frequency is turned into turns per position once; range reduction is exact from then on.
#pragma once

#include <cstdint>

namespace gnomon {

/// A frequency as turns per position: whole + fraction * 2^-64, from the exact double. The phase of an integer position p is
/// p * fraction mod 2^64, in units of 2^-64 turn; moving a key by d adds d * fraction. `whole` counts for real positions only.
struct Turns {
  std::int64_t whole = 0;
  std::uint64_t fraction = 0;
  bool operator==(const Turns&) const = default;
};

/// inv_freq (radians per position) / 2π, correctly rounded. Throws Error(invalid_argument) unless 0 <= inv_freq < 2^53.
Turns turns(double inv_freq);

}  // namespace gnomon
