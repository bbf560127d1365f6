// SPDX-License-Identifier: Apache-2.0
// Phases: angles as unsigned integers, in units of 2^-64 turn. Range reduction is exact and nothing grows with the position.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "gnomon/encodings/arithmetic.hpp"
#include "gnomon/phase.hpp"

namespace gnomon {

inline std::uint64_t phase_at(std::int64_t position, const Turns& turns) { return static_cast<std::uint64_t>(position) * turns.fraction; }

/// A real position: its nearest integer takes the wrapping product, the rest (exact in double, at most 1/2) a product of its own.
/// The whole turns count only here: an integer position turns them into nothing.
inline std::uint64_t phase_at(double position, const Turns& turns) {
  __extension__ using i128 = __int128;
  const double nearest = std::rint(position);
  const auto rest = static_cast<std::int64_t>(std::ldexp(position - nearest, 63));  // below 2^62 in size; exact down to 2^-63
  const i128 product = static_cast<i128>(rest) * static_cast<i128>(turns.fraction);
  const auto part = static_cast<std::uint64_t>((product + (static_cast<i128>(1) << 62)) >> 63);
  return phase_at(static_cast<std::int64_t>(nearest), turns) + part +
         2 * static_cast<std::uint64_t>(rest) * static_cast<std::uint64_t>(turns.whole);
}

/// cos and sin in double, within 1 ulp (two roundings; the worst seen is 0.95). An eighth of a turn is added so that the top two bits are
/// the nearest quadrant and the rest lies within ±1/8 turn, where the C library needs no reduction of its own; the angle keeps what one
/// double would round away.
inline std::pair<double, double> cos_sin(std::uint64_t phase) {
  const std::uint64_t shifted = phase + (std::uint64_t{1} << 61);
  const auto quadrant = static_cast<unsigned>(shifted >> 62);
  const auto residual = static_cast<std::int64_t>(shifted & ((std::uint64_t{1} << 62) - 1)) - (std::int64_t{1} << 61);
  const auto upper = static_cast<double>(residual);
  const auto lower = static_cast<double>(residual - static_cast<std::int64_t>(upper));
  const DoubleDouble angle = DoubleDouble(upper, lower) * DoubleDouble(two_pi.hi * 0x1p-64, two_pi.lo * 0x1p-64);
  const double c = std::cos(angle.hi), s = std::sin(angle.hi);
  double cosine = c - angle.lo * s, sine = s + angle.lo * c;
  if ((quadrant & 1) != 0) std::swap(cosine, sine);
  if (((quadrant + 1) & 2) != 0) cosine = -cosine;
  if ((quadrant & 2) != 0) sine = -sine;
  return {cosine, sine};
}

}  // namespace gnomon
