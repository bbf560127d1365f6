// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `swin`: a trained value per head and 2-D offset inside a window.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// score += table[offset][h], with a row for every offset of two cells of a square window.
struct Swin {
  std::int64_t window = 0;
  std::int64_t rows = 0;

  static constexpr std::string_view name = "swin";
  static constexpr std::string_view summary = "A trained value for each 2-D offset inside a square window of an image.";
  static constexpr std::string_view formula = "score[i, j] += table[(dy + W - 1) (2W - 1) + dx + W - 1][h], (dy, dx) = query - key";
  static constexpr std::string_view citation =
      "Liu et al. 2021, Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv:2103.14030, section 3.2";
  static constexpr std::string_view example = R"("window": 7, "rows": 169)";
  static constexpr bool is_trained = true;
  static constexpr std::tuple fields{
      required_field("window", &Swin::window, image_side(), "cells along a side of the window, W"),
      required_field("rows", &Swin::rows, at_least(1), "rows of the trained table, (2W - 1)^2"),
  };

  static Swin of_window(std::int64_t window) { return {window, (2 * window - 1) * (2 * window - 1)}; }
  void check() const {
    if (rows == of_window(window).rows) return;
    throw Error(ErrorCode::invalid_argument,
                "rows: expected (2W - 1)^2 = " + std::to_string(of_window(window).rows) + ", got " + std::to_string(rows));
  }
  bool operator==(const Swin&) const = default;
};

}  // namespace gnomon::bias
