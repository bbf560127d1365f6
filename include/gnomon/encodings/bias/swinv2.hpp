// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `swinv2`: a small network of the logarithmic 2-D offset inside a window.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// score += 16 sigmoid(MLP(offset)), the offsets logarithmic, so that a larger window can follow a smaller one.
struct Swinv2 {
  std::int64_t window = 0;
  std::int64_t pretrained_window = 0;

  static constexpr std::string_view name = "swinv2";
  static constexpr std::string_view summary = "A small network of the logarithmic 2-D offset inside a square window of an image.";
  static constexpr std::string_view formula =
      "score[i, j] += 16 sigmoid(MLP(x_y, x_x))[h]\n"
      "x = sign(d) log2(1 + 8 |d| / (W - 1)) / log2 8, d = query - key, W = the pretrained window where there is one";
  static constexpr std::string_view citation =
      "Liu et al. 2022, Swin Transformer V2: Scaling Up Capacity and Resolution, arXiv:2111.09883, section 3.3";
  static constexpr std::string_view example = R"("window": 16)";
  static constexpr bool is_trained = true;
  static constexpr std::tuple fields{
      required_field("window", &Swinv2::window, at_least(1), "cells along a side of the window"),
      field("pretrained_window", &Swinv2::pretrained_window, at_least(0), "the window it was trained with; 0: this one"),
  };

  void check() const {}
  bool operator==(const Swinv2&) const = default;
};

}  // namespace gnomon::bias
