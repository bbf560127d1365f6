// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `ntk`: NTK-aware scaling with a fixed base. Other changes of the base are not called ntk here.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// theta becomes theta * factor^(rotary_dim/(rotary_dim-2)): the fastest pair keeps its speed, the slowest is divided by `factor`.
struct Ntk {
  double factor = 1;

  static constexpr std::string_view name = "ntk";
  static constexpr std::string_view summary =
      "NTK-aware scaling: a larger base, so that fast pairs keep their speed and slow ones are interpolated.";
  static constexpr std::string_view formula =
      "base        = theta * factor^(rotary_dim/(rotary_dim-2))\n"
      "inv_freq[i] = base^(-2i/rotary_dim)";
  static constexpr std::string_view citation =
      "bloc97 2023, NTK-Aware Scaled RoPE; as restated in Peng et al. 2023, YaRN, arXiv:2309.00071, section 3.1";
  static constexpr std::tuple fields{
      required_field("factor", &Ntk::factor, at_least(1), "how many times slower the slowest pair becomes"),
  };

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    // base^(2i/r) = theta^(2i/r) * factor^(2i/(r-2)): the two powers need no rounded intermediate base.
    auto result = periods<A>(input);
    for (int i = 0; i < input.pairs(); i++) {
      auto& value = result[static_cast<std::size_t>(i)];
      value = A::over(1, value * A::power(factor, 2 * i, input.rotary_dim - 2));
    }
    return result;
  }
  void check(const RuleInput& input) const {
    if (input.rotary_dim < 4) {
      throw Error(ErrorCode::invalid_argument,
                  "rotary_dim: ntk needs at least 4 rotated channels (its exponent divides by rotary_dim - 2), got " +
                      std::to_string(input.rotary_dim));
    }
  }
  bool in_transformers() const { return false; }
  bool operator==(const Ntk&) const = default;
};

}  // namespace gnomon::rotary
