// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `proportional`: only the fastest pairs turn.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// The fastest fraction of the pairs keeps the frequencies of the whole head, the others stand still. This is not partial rotation,
/// which spreads all frequencies over fewer channels: here rotary_dim is head_dim, and in half_split pair i is (i, i + head_dim/2).
struct Proportional {
  double partial_rotary_factor = 1;
  double factor = 1;

  static constexpr std::string_view name = "proportional";
  static constexpr std::string_view summary = "p-RoPE: the fastest pairs of the whole head turn, the others stand still.";
  static constexpr std::string_view formula =
      "turning     = floor(partial_rotary_factor * rotary_dim / 2)\n"
      "inv_freq[i] = theta^(-2i/rotary_dim) / factor for i < turning, else 0";
  static constexpr std::string_view citation = "Barbero et al. 2024, Round and Round We Go!, arXiv:2410.06205, section 6 (p-RoPE)";
  static constexpr std::tuple fields{
      required_field("partial_rotary_factor", &Proportional::partial_rotary_factor, fraction(), "which fraction of the pairs turns"),
      field("factor", &Proportional::factor, at_least(1), "how many times slower they turn"),
  };

  /// How many pairs turn. A product that is whole up to rounding is taken as whole.
  int turning(const RuleInput& input) const {
    const double channels = partial_rotary_factor * input.rotary_dim, whole = std::round(channels);
    return static_cast<int>((std::abs(channels - whole) <= 1e-6 ? whole : channels) / 2);
  }

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    using E = typename A::Element;
    auto result = unscaled_inv_freq<A>(input);
    for (int i = 0; i < input.pairs(); i++) {
      auto& value = result[static_cast<std::size_t>(i)];
      value = i < turning(input) ? value / A::element(factor) : E(0);
    }
    return result;
  }
  void check(const RuleInput& input) const {
    if (turning(input) == 0) {
      throw Error(ErrorCode::invalid_argument, "partial_rotary_factor: expected at least one turning pair, got " +
                                                   std::to_string(partial_rotary_factor) + " of " + std::to_string(input.pairs()));
    }
  }
  bool in_transformers() const { return true; }
  bool operator==(const Proportional&) const = default;
};

}  // namespace gnomon::rotary
