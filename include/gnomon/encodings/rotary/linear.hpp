// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `linear`: Position Interpolation.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// Every frequency divided by `factor`, which equals dividing every position by it.
struct Linear {
  double factor = 1;

  static constexpr std::string_view name = "linear";
  static constexpr std::string_view summary = "Position Interpolation: all pairs slowed by one factor.";
  static constexpr std::string_view formula = "inv_freq[i] = theta^(-2i/rotary_dim) / factor";
  static constexpr std::string_view citation =
      "Chen et al. 2023, Extending Context Window via Positional Interpolation, arXiv:2306.15595, eq. 4";
  static constexpr std::tuple fields{
      required_field("factor", &Linear::factor, at_least(1), "how many times longer the context becomes"),
  };

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    auto result = unscaled_inv_freq<A>(input);
    for (auto& value : result) value = value / A::element(factor);
    return result;
  }
  bool in_transformers() const { return true; }
  bool operator==(const Linear&) const = default;
};

}  // namespace gnomon::rotary
