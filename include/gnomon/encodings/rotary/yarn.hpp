// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `yarn`: interpolation by parts and a magnitude.
#pragma once

#include <algorithm>

#include "gnomon/encodings/rule.hpp"

namespace gnomon {
namespace rotary {

/// What the blend between kept and interpolated pairs is linear in.
enum class YarnRamp {
  pair_index,  ///< the authors' code and every shipped checkpoint
  turns,       ///< the text of the paper
};

/// Fast pairs (more than beta_fast turns in the original length) keep their speed, slow ones (fewer than beta_slow) are divided by
/// `factor`, those between are blended. Scores are sharpened by the magnitude `attention_factor` on cos and sin of both q and k.
struct Yarn {
  double factor = 1;
  std::int64_t original_max_position_embeddings = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> mscale = std::nullopt;
  std::optional<double> mscale_all_dim = std::nullopt;
  YarnRamp ramp = YarnRamp::pair_index;

  static constexpr std::string_view name = "yarn";
  static constexpr std::string_view summary = "YaRN: interpolation by parts with a magnitude on cos and sin.";
  static constexpr std::string_view formula =
      "w           = theta^(-2i/rotary_dim)\n"
      "r           = clamp((i - low) / (high - low), 0, 1)\n"
      "inv_freq[i] = w * ((1 - r) + r / factor)\n"
      "low, high   = rotary_dim * ln(original / (2 pi beta)) / (2 ln theta) for beta_fast, beta_slow; floored, ceiled when truncate\n"
      "magnitude   = 0.1 ln factor + 1";
  static constexpr std::string_view citation = "Peng et al. 2023, YaRN, arXiv:2309.00071, sections 3.2 to 3.4";
  static constexpr std::tuple fields{
      required_field("factor", &Yarn::factor, at_least(1), "how many times longer the context becomes"),
      required_field("original_max_position_embeddings", &Yarn::original_max_position_embeddings, at_least(1),
                     "the trained length, in tokens"),
      field("beta_fast", &Yarn::beta_fast, positive(), "pairs with more turns than this in the trained length are kept"),
      field("beta_slow", &Yarn::beta_slow, positive(), "pairs with fewer turns than this are divided by factor"),
      field("truncate", &Yarn::truncate, {}, "whether the bounds of the ramp are rounded outwards to whole pairs"),
      field("mscale", &Yarn::mscale, at_least(0),
            "numerator of the magnitude: (0.1 mscale ln factor + 1) over the same with mscale_all_dim"),
      field("mscale_all_dim", &Yarn::mscale_all_dim, at_least(0), "denominator of the magnitude; both must be non-zero to count"),
      field("ramp", &Yarn::ramp, {}, "pair_index: as the authors' code; turns: as the paper's text"),
  };

  /// Where the ramp begins and ends, in pairs; they need not be whole when truncate is false.
  template <class A>
  std::pair<typename A::Scalar, typename A::Scalar> bounds(const RuleInput& input) const {
    using S = typename A::Scalar;
    using std::ceil, std::floor, std::log;
    const auto pair_with = [&](double turns) {
      const S two_pi_turns = S(turns * 2) * S(two_pi) / S(2);
      return S(input.rotary_dim) * log(S(static_cast<double>(original_max_position_embeddings)) / two_pi_turns) /
             (S(2) * log(S(input.theta)));
    };
    S low = pair_with(beta_fast), high = pair_with(beta_slow);
    if (truncate) low = floor(low), high = ceil(high);
    low = std::max(low, S(0));
    high = std::min(high, S(input.rotary_dim - 1));
    return {low, low == high ? high + S(0.001) : high};
  }

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    using E = typename A::Element;
    using S = typename A::Scalar;
    const auto [low, high] = bounds<A>(input);
    const E turns_of_one = A::element(S(static_cast<double>(original_max_position_embeddings)) / S(two_pi));
    auto result = periods<A>(input);
    for (int i = 0; i < input.pairs(); i++) {
      E& value = result[static_cast<std::size_t>(i)];
      const E kept = A::over(1, value), interpolated = A::over(1, A::element(factor) * value);
      E blend = ramp == YarnRamp::pair_index ? (E(i) - A::element(low)) / A::element(high - low)
                                             : (A::element(beta_fast) - kept * turns_of_one) / A::element(S(beta_fast) - S(beta_slow));
      blend = std::min(std::max(blend, E(0)), E(1));
      const E keep = E(1) - blend;
      value = interpolated * (E(1) - keep) + kept * keep;
    }
    return result;
  }

  /// What a factor implies for cos and sin (section 3.4), with the multiplier of DeepSeek's mscale.
  static double magnitude(double factor, double mscale = 1) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

  double attention_factor() const {
    if (mscale.value_or(0) != 0 && mscale_all_dim.value_or(0) != 0) return magnitude(factor, *mscale) / magnitude(factor, *mscale_all_dim);
    return magnitude(factor);
  }
  void check(const RuleInput& input) const {
    if (beta_fast < beta_slow) {
      throw Error(ErrorCode::invalid_argument,
                  "beta_fast: expected at least beta_slow (" + std::to_string(beta_slow) + "), got " + std::to_string(beta_fast));
    }
    if (ramp == YarnRamp::turns && beta_fast == beta_slow) {
      throw Error(ErrorCode::invalid_argument,
                  "beta_fast: a ramp over turns needs it above beta_slow, both are " + std::to_string(beta_fast));
    }
    if (input.theta <= 1) {
      throw Error(ErrorCode::invalid_argument,
                  "theta: yarn needs a base above 1 (it divides by ln theta), got " + std::to_string(input.theta));
    }
  }
  bool in_transformers() const { return ramp == YarnRamp::pair_index; }
  bool operator==(const Yarn&) const = default;
};

}  // namespace rotary

template <>
inline constexpr std::string_view enum_names<rotary::YarnRamp>[] = {"pair_index", "turns"};

}  // namespace gnomon
