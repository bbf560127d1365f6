// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `fire`: a small network of the logarithmic distance, divided by that of the query's own position.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// score += f_h of a number from 0 to 1 at any length. Network and numbers are trained; the numbers are stated as they took effect.
struct Fire {
  double c = 0;
  double threshold = 0;
  double epsilon = 1e-6;

  static constexpr std::string_view name = "fire";
  static constexpr std::string_view summary = "A small network of the logarithmic distance as a share of that to the first token.";
  static constexpr std::string_view formula =
      "score[i, j] += f(ln(c (i - j) + 1) / max(ln(c max(threshold, i) + 1), epsilon))[h], j <= i\n"
      "f(x) = W2 relu(W1 x + b1) + b2";
  static constexpr std::string_view citation =
      "Li et al. 2024, Functional Interpolation for Relative Positions Improves Long Context Transformers, arXiv:2310.04418, section 3";
  static constexpr std::string_view example = R"("c": 0.1, "threshold": 512)";
  static constexpr bool is_trained = true;
  static constexpr std::tuple fields{
      required_field("c", &Fire::c, positive(), "how early the logarithm bends"),
      required_field("threshold", &Fire::threshold, positive(), "position up to which all queries divide by the same number"),
      field("epsilon", &Fire::epsilon, positive(), "least number that is divided by"),
  };

  void check() const {}
  bool operator==(const Fire&) const = default;
};

}  // namespace gnomon::bias
