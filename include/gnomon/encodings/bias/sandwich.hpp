// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `sandwich`: the inner product of two sinusoidal rows, with a factor per head.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// What is left of sinusoidal rows in a score when they meet neither weights nor content; nothing is trained.
struct Sandwich {
  std::int64_t heads = 0;
  std::int64_t width = 128;

  static constexpr std::string_view name = "sandwich";
  static constexpr std::string_view summary =
      "The inner product of two sinusoidal rows, which depends on their distance, with a factor per head.";
  static constexpr std::string_view formula =
      "score[i, j] += H / (8 (h + 1)) sum over k = 1 .. width / 2 of cos((i - j) 10000^(-2k / width))";
  static constexpr std::string_view citation =
      "Chi et al. 2023, Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis, arXiv:2212.10356, section 5";
  static constexpr std::string_view example = R"("heads": 8)";
  static constexpr std::tuple fields{
      required_field("heads", &Sandwich::heads, at_least(1), "query heads, H"),
      field("width", &Sandwich::width, at_least(1), "columns of the sinusoidal rows, an even number"),
  };

  void check() const {
    if (width % 2 == 0) return;
    throw Error(ErrorCode::invalid_argument, "width: expected an even number, got " + std::to_string(width));
  }
  bool operator==(const Sandwich&) const = default;
};

}  // namespace gnomon::bias
