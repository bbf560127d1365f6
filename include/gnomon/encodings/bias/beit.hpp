// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `beit`: a trained value per head and 2-D offset of a whole image, and three for its class token.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// The table of `swin` over the whole image, and three rows more: class to patch, patch to class, class to itself.
struct Beit {
  std::int64_t window = 0;
  std::int64_t rows = 0;

  static constexpr std::string_view name = "beit";
  static constexpr std::string_view summary = "A trained value for each 2-D offset of patches, and three for the class token.";
  static constexpr std::string_view formula =
      "score[i, j] += table[(dy + W - 1) (2W - 1) + dx + W - 1][h], (dy, dx) = query - key\n"
      "class to patch: row N - 3, patch to class: N - 2, class to class: N - 1";
  static constexpr std::string_view citation =
      "Bao et al. 2022, BEiT: BERT Pre-Training of Image Transformers, arXiv:2106.08254, section 2.4 and its code";
  static constexpr std::string_view example = R"("window": 14, "rows": 732)";
  static constexpr bool is_trained = true;
  static constexpr std::tuple fields{
      required_field("window", &Beit::window, image_side(), "patches along a side of the image, W"),
      required_field("rows", &Beit::rows, at_least(1), "rows of the trained table, N = (2W - 1)^2 + 3"),
  };

  static Beit of_window(std::int64_t window) { return {window, (2 * window - 1) * (2 * window - 1) + 3}; }
  void check() const {
    if (rows == of_window(window).rows) return;
    throw Error(ErrorCode::invalid_argument,
                "rows: expected (2W - 1)^2 + 3 = " + std::to_string(of_window(window).rows) + ", got " + std::to_string(rows));
  }
  bool operator==(const Beit&) const = default;
};

}  // namespace gnomon::bias
