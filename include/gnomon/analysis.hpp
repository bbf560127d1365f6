// SPDX-License-Identifier: Apache-2.0
// ⑤ Analysis: what encodings do, shown on small numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/analysis/aliasing.hpp"
#include "gnomon/analysis/base_bound.hpp"
#include "gnomon/analysis/decay.hpp"
#include "gnomon/analysis/extend.hpp"
#include "gnomon/analysis/method.hpp"
#include "gnomon/analysis/precision.hpp"
#include "gnomon/analysis/scaling_laws.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/spec.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// Which side of its bound a measured number must stay on. A NaN is on neither.
enum class Limit { at_most, at_least };
template <>
inline constexpr std::string_view enum_names<Limit>[] = {"at most", "at least"};
constexpr std::string_view name_of(Limit limit) { return enum_names<Limit>[static_cast<int>(limit)]; }

/// One statement about order, with the largest error or difference that was measured and the bound it is held to.
struct OrderCheck {
  std::string name;   ///< "permutation", "norm", "composition", "shift-1", "shift-1000000"
  std::string claim;  ///< the same as a formula: "|R(p) x| = a |x|"
  double measured = 0;
  Limit limit = Limit::at_most;
  double bound = 0;

  bool holds() const { return limit == Limit::at_most ? measured <= bound : measured >= bound; }
};

/// What was found about one way for order to enter attention.
struct OrderReport {
  std::string encoding;              ///< "none", "causal mask", or a rule's name
  std::optional<RotarySpec> rotary;  ///< for rotary encodings
  std::vector<OrderCheck> checks;

  bool holds() const;
};

/// Rotates the rows of x (1,1,T,D), float64 and contiguous, in place, row t for position start + t * step: gnomon::rotate, or another
/// engine under test.
using RotateRows = std::function<void(const TensorView& x, const Range& positions)>;

/// Checks, on six tokens in double precision, that attention without an encoding does not see order, attention(PX) = P attention(X) for
/// a permutation P of the tokens, and that every encoding makes it see order; and for one sample spec of every registered rotary rule
/// the laws below. Source: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762, section 3.5.
std::vector<OrderReport> check_order();

/// The same for one rotary spec, whose rotation R has the magnitude a:
///   permutation   attention(PX) differs from P attention(X) by at least 0.001
///   norm          |R(p) x| = a |x| over the rotated channels
///   composition   R(i)ᵀ R(j) = a R(j − i)
///   shift         ⟨R(i + s) q, R(j + s) k⟩ = ⟨R(i) q, R(j) k⟩ for s = 1 and for s = 1,000,000
/// For xpos, which is more than a rotation, permutation and shift-1 only. Errors are those of unit vectors, held to the roundings of double
/// arithmetic whatever the position. Throws what frequencies() throws for a bad spec. Source: Su et al. 2021, RoFormer, arXiv:2104.09864,
/// section 3.2.
OrderReport check_order(const RotarySpec& spec);

/// The same for rotations of queries and of keys made elsewhere, which should be those of the spec.
OrderReport check_order(const RotarySpec& spec, const RotateRows& rotate_queries, const RotateRows& rotate_keys);

/// Scores have drifted once the mean cosine has fallen by more than this.
inline constexpr double drift_limit = 0.01;

/// The distance from which two rotations are apart, and how far the search for it went.
struct Parting {
  std::optional<std::int64_t> position;  ///< the first, or nothing when there is none up to `searched`
  std::int64_t searched = 0;             ///< no earlier position and, without one, none up to this
};

/// How far the scores of two rotations of one head are apart at a distance d: the mean over the D channels of the cosine between what they
/// make of a unit vector along each, trace(A(d)ᵀ B(d)) / D. Where both turn the same pairs of channels this is the mean of
/// cos((inv_a - inv_b) d) over the pairs of the head; channels that do not turn have frequency 0. All axes stand at the same distance, as
/// in text; magnitudes do not count. Phases are integers, so the angles are exact at every distance.
class Drift {
 public:
  /// `length` as in frequencies(). Throws what frequencies() throws, and Error(invalid_argument) for heads of different widths.
  Drift(const RotarySpec& a, const RotarySpec& b, std::optional<std::int64_t> length = std::nullopt);

  /// 1 at distance 0 and for equal rotations.
  double mean_cosine(std::int64_t distance) const;

  /// The first distance at which 1 - mean_cosine exceeds `limit`, searched up to 2^33. No crossing is missed, however short: an interval is
  /// skipped only when a bound over all of it forbids one. A drift that stays close to the limit would make the search long: it ends early
  /// then, and `searched` says where.
  Parting parting(double limit = drift_limit) const;

 private:
  /// weight * cos(2π step d), step in units of 2^-64 turn, at most half a turn.
  struct Term {
    std::uint64_t step;
    double weight;
  };
  double least_mean_cosine(std::int64_t first, std::int64_t last) const;
  std::vector<Term> terms_;
  double total_ = 0;  // of the weights: two for each channel
};

}  // namespace gnomon
