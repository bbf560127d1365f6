// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `xpos`: rotation with a decay by distance.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// The frequencies are the unscaled ones; beside them every pair has a magnitude that depends on the position, reciprocal for queries
/// and keys, so that a score decays with the distance. The centre keeps the magnitudes near 1; with a cache it must stay what it was
/// when the keys were stored.
struct Xpos {
  double scale_base = 512;
  std::int64_t centre = 0;

  static constexpr std::string_view name = "xpos";
  static constexpr std::string_view summary = "xPos: rotation, and a magnitude per pair that makes scores decay with the distance.";
  static constexpr std::string_view formula =
      "inv_freq[i]  = theta^(-2i/rotary_dim)\n"
      "zeta[i]      = (2i/rotary_dim + 0.4) / 1.4\n"
      "magnitude[i] = zeta[i]^((position - centre) / scale_base) on queries, its reciprocal on keys";
  static constexpr std::string_view citation = "Sun et al. 2022, A Length-Extrapolatable Transformer, arXiv:2212.10554, algorithm 1";
  static constexpr std::tuple fields{
      field("scale_base", &Xpos::scale_base, positive(), "positions over which a magnitude changes by zeta"),
      field("centre", &Xpos::centre, {}, "the position at which every magnitude is 1"),
  };

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    return unscaled_inv_freq<A>(input);
  }
  /// Natural logarithm of each pair's query magnitude, per position beyond the centre; negative.
  std::vector<double> log_magnitude(const RuleInput& input) const {
    std::vector<double> result;
    for (int i = 0; i < input.pairs(); i++) {
      const auto zeta = (DoubleDouble(5 * 2 * i) + DoubleDouble(2 * input.rotary_dim)) / DoubleDouble(7 * input.rotary_dim);
      result.push_back(static_cast<double>(log(zeta) / DoubleDouble(scale_base)));
    }
    return result;
  }
  bool in_transformers() const { return false; }
  bool operator==(const Xpos&) const = default;
};

}  // namespace gnomon::rotary
