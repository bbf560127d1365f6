// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `llama3`: the scaling of Llama 3.1 and later.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// Pairs whose wavelength is below original/high_freq_factor are kept, those above original/low_freq_factor divided by `factor`,
/// those between blended linearly in turns.
struct Llama3 {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 0;

  static constexpr std::string_view name = "llama3";
  static constexpr std::string_view summary = "Llama 3.1 scaling: three bands by wavelength.";
  static constexpr std::string_view formula =
      "w           = theta^(-2i/rotary_dim)\n"
      "t           = (original * w / (2 pi) - low_freq_factor) / (high_freq_factor - low_freq_factor)\n"
      "inv_freq[i] = w for t > 1, w / factor for t < 0, (1 - t) * w / factor + t * w between";
  static constexpr std::string_view citation =
      "Llama Team 2024, The Llama 3 Herd of Models, arXiv:2407.21783, and the code published with it";
  static constexpr std::tuple fields{
      required_field("factor", &Llama3::factor, at_least(1), "how much slower the slowest pairs become"),
      required_field("low_freq_factor", &Llama3::low_freq_factor, positive(),
                     "pairs with fewer turns than this in the trained length are divided"),
      required_field("high_freq_factor", &Llama3::high_freq_factor, positive(), "pairs with more turns than this are kept"),
      required_field("original_max_position_embeddings", &Llama3::original_max_position_embeddings, at_least(1),
                     "the trained length, in tokens"),
  };

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    using E = typename A::Element;
    using S = typename A::Scalar;
    const S original(static_cast<double>(original_max_position_embeddings));
    const E longest_kept = A::element(original / S(high_freq_factor)), shortest_divided = A::element(original / S(low_freq_factor));
    auto result = unscaled_inv_freq<A>(input);
    for (auto& value : result) {
      const E wavelength = A::over(S(two_pi), value);
      if (wavelength > shortest_divided) {
        value = value / A::element(factor);
      } else if (!(wavelength < longest_kept)) {  // never true when both bounds are equal, but at equality
        const E blend = low_freq_factor == high_freq_factor ? E(1)
                                                            : (A::over(original, wavelength) - A::element(low_freq_factor)) /
                                                                  A::element(S(high_freq_factor) - S(low_freq_factor));
        value = (E(1) - blend) * value / A::element(factor) + blend * value;
      }
    }
    return result;
  }
  void check(const RuleInput&) const {
    if (high_freq_factor < low_freq_factor) {
      throw Error(ErrorCode::invalid_argument, "high_freq_factor: expected at least low_freq_factor (" + std::to_string(low_freq_factor) +
                                                   "), got " + std::to_string(high_freq_factor));
    }
  }
  bool in_transformers() const { return true; }
  bool operator==(const Llama3&) const = default;
};

}  // namespace gnomon::rotary
