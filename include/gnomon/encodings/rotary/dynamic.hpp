// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `dynamic`: NTK-aware scaling whose base grows with the sequence.
#pragma once

#include <algorithm>

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// Up to the trained length nothing is scaled; beyond it the base grows with the length of the sequence. The length is part of the
/// numbers: decide it before the first chunk, because keys rotated with another base do not match.
struct Dynamic {
  double factor = 1;
  std::int64_t max_position_embeddings = 0;

  static constexpr std::string_view name = "dynamic";
  static constexpr std::string_view summary = "Dynamic NTK: the base grows with the sequence, from the trained length on.";
  static constexpr std::string_view formula =
      "growth      = factor * max(length, trained) / trained - (factor - 1)\n"
      "base        = theta * growth^(rotary_dim/(rotary_dim-2))\n"
      "inv_freq[i] = base^(-2i/rotary_dim)";
  static constexpr std::string_view citation =
      "emozilla 2023, Dynamically Scaled RoPE; as restated in Peng et al. 2023, YaRN, arXiv:2309.00071, section 3.3";
  static constexpr std::tuple fields{
      required_field("factor", &Dynamic::factor, at_least(1), "how fast the base grows beyond the trained length"),
      required_field("max_position_embeddings", &Dynamic::max_position_embeddings, at_least(1),
                     "the trained length, in tokens: where the base starts to grow"),
  };

  /// The base in effect for a sequence of input.length tokens.
  template <class A>
  typename A::Scalar base(const RuleInput& input) const {
    using S = typename A::Scalar;
    const std::int64_t length = std::max(input.length.value_or(0), max_position_embeddings);
    const S growth = S(factor) * S(static_cast<double>(length)) / S(static_cast<double>(max_position_embeddings)) - (S(factor) - S(1));
    return S(input.theta) * A::pow(growth, S(input.rotary_dim) / S(input.rotary_dim - 2));
  }

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    const auto grown = base<A>(input);
    std::vector<typename A::Element> result;
    for (int i = 0; i < input.pairs(); i++) result.push_back(A::over(1, A::power(grown, 2 * i, input.rotary_dim)));
    return result;
  }
  void check(const RuleInput& input) const {
    if (input.rotary_dim < 4) {
      throw Error(ErrorCode::invalid_argument,
                  "rotary_dim: dynamic needs at least 4 rotated channels (its exponent divides by rotary_dim - 2), got " +
                      std::to_string(input.rotary_dim));
    }
  }
  bool in_transformers() const { return true; }
  bool operator==(const Dynamic&) const = default;
};

}  // namespace gnomon::rotary
