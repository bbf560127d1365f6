// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `alibi`: a slope per head times the distance.
#pragma once

#include <bit>
#include <cmath>

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// score += -slope[h] * |query - key|. The slopes are plain values: of_heads() gives the usual ones, trained ones fit as well.
struct Alibi {
  std::int64_t heads = 0;
  std::vector<double> slopes;
  bool symmetric = false;

  static constexpr std::string_view name = "alibi";
  static constexpr std::string_view summary = "A penalty that grows in proportion to the distance, with a slope per head.";
  static constexpr std::string_view formula =
      "score[i, j] += -slope[h] |i - j|\n"
      "n = 2^floor(log2 H)\n"
      "slope[h] = 2^(-8 (h + 1) / n) for h < n, 2^(-4 (2 (h - n) + 1) / n) for the rest";
  static constexpr std::string_view citation =
      "Press et al. 2022, Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation, arXiv:2108.12409, "
      "section 3";
  static constexpr std::string_view example = R"("heads": 4, "slopes": [0.25, 0.0625, 0.015625, 0.00390625])";
  static constexpr std::tuple fields{
      required_field("heads", &Alibi::heads, at_least(1), "query heads"),
      required_field("slopes", &Alibi::slopes, at_least(0), "penalty per position of distance, a value for each head"),
      field("symmetric", &Alibi::symmetric, {}, "whether keys after the query are penalised too, in a model that sees both ways"),
  };

  /// The slopes of the paper for any number of heads, as its authors' code continues them beyond a power of two. `bias_max` is 8 in the
  /// paper; MPT can state another one.
  static Alibi of_heads(std::int64_t heads, double bias_max = 8, bool symmetric = false) {
    Alibi rule{heads, {}, symmetric};
    const auto whole = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
    const auto count = static_cast<double>(whole);
    for (std::int64_t h = 0; h < heads; h++) {
      const double steps = h < whole ? static_cast<double>(h + 1) : static_cast<double>(2 * (h - whole) + 1) / 2;
      rule.slopes.push_back(std::exp2(-bias_max * steps / count));
    }
    return rule;
  }
  void check() const {
    if (slopes.size() != static_cast<std::size_t>(heads)) {
      throw Error(ErrorCode::invalid_argument,
                  "slopes: expected one value for each of the " + std::to_string(heads) + " heads, got " + std::to_string(slopes.size()));
    }
  }
  bool operator==(const Alibi&) const = default;
};

}  // namespace gnomon::bias
