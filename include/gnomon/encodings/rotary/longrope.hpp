// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `longrope`: a searched divisor for every pair, one list for short sequences and one for long ones.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// Sequences up to the original length use the short list, longer ones the long list. The list belongs to the sequence, not to the
/// cache: decide it before the first chunk, because keys rotated with the other list do not match. The magnitude is the same for both.
struct Longrope {
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  std::int64_t original_max_position_embeddings = 0;
  double factor = 1;

  static constexpr std::string_view name = "longrope";
  static constexpr std::string_view summary = "LongRoPE: a divisor for every pair, one list for short and one for long sequences.";
  static constexpr std::string_view formula =
      "divisor     = short_factor if length <= original else long_factor\n"
      "inv_freq[i] = 1 / (divisor[i] * theta^(2i/rotary_dim))\n"
      "magnitude   = sqrt(1 + ln factor / ln original), 1 for a factor up to 1";
  static constexpr std::string_view citation = "Ding et al. 2024, LongRoPE, arXiv:2402.13753, section 3.2";
  static constexpr std::tuple fields{
      required_field("short_factor", &Longrope::short_factor, positive(), "divisor of each pair up to the original length"),
      required_field("long_factor", &Longrope::long_factor, positive(), "divisor of each pair beyond it"),
      required_field("original_max_position_embeddings", &Longrope::original_max_position_embeddings, at_least(1),
                     "the trained length, in tokens"),
      required_field("factor", &Longrope::factor, positive(), "how many times longer the context became; it sets the magnitude"),
  };

  /// The list for a sequence of input.length tokens.
  const std::vector<double>& divisors(const RuleInput& input) const {
    return input.length.value_or(0) > original_max_position_embeddings ? long_factor : short_factor;
  }

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    const auto& divisor = divisors(input);
    auto result = periods<A>(input);
    for (std::size_t i = 0; i < result.size(); i++) result[i] = A::over(1, A::element(divisor[i]) * result[i]);
    return result;
  }
  double attention_factor() const {
    if (factor <= 1) return 1;
    return std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original_max_position_embeddings)));
  }
  void check(const RuleInput& input) const {
    check_list("short_factor", short_factor, input);
    check_list("long_factor", long_factor, input);
    if (factor > 1 && original_max_position_embeddings < 2) {
      throw Error(ErrorCode::invalid_argument,
                  "original_max_position_embeddings: longrope divides by its logarithm; expected at least 2, got 1");
    }
  }
  bool in_transformers() const { return true; }
  bool operator==(const Longrope&) const = default;
};

}  // namespace gnomon::rotary
