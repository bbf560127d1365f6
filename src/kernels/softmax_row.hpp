// SPDX-License-Identifier: Apache-2.0
// How a row of attention ends, in base 2: its sink logit, its denominator, and what callers are told of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace gnomon::kernels {

inline constexpr double log2_e = 1.4426950408889634;  // scores are exponents of 2

/// What an additive mask adds. Finite numbers hide nothing, however large: bounded so that none becomes an infinity in base 2, where others
/// are added. -inf, which hides, +inf and NaN stay; a NaN has no low bits, which rounding to bf16 relies on.
inline float mask_addend(float given) {
  constexpr float most = 1e38f;
  if (given != given) return std::numeric_limits<float>::quiet_NaN();
  return std::isfinite(given) ? std::clamp(given, -most, most) : given;
}

/// Sums weights exp2(score - maximum) that were made against several maxima.
class SoftmaxRow {
 public:
  /// `maximum` of all scores in base 2, -inf for a row that sees nothing; a sink logit as the caller gave it, or null. The sink takes part
  /// in the denominator, not in the maximum.
  SoftmaxRow(double maximum, const float* sink_logit);

  /// Adds weights by their sum. Returns the factor that brings them, and values weighted by them, to this row.
  double add(double maximum, double sum);

  /// A weight of this row over the denominator; 0 for a row that sees nothing.
  double share(double weight) const { return sum_ == 0 ? 0 : weight / sum_; }

  float log_sum_exp() const;  // in natural units
  float maximum() const;      // in natural units; NaN also where the sum alone tells of a NaN among the scores

 private:
  double maximum_, shift_, sum_;
};

}  // namespace gnomon::kernels
