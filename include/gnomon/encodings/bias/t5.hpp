// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `t5`: a trained value per head and bucket of distances.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// score += table[bucket(key - query)][h]: near distances have a bucket each, far ones share them logarithmically.
struct T5 {
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
  bool bidirectional = false;

  static constexpr std::string_view name = "t5";
  static constexpr std::string_view summary = "A trained value for each bucket of distances, near ones exact and far ones logarithmic.";
  static constexpr std::string_view formula =
      "score[i, j] += table[bucket(j - i)][h]\n"
      "n = buckets, or half of them for each side; e = n / 2\n"
      "bucket(x) = x for x < e, otherwise min(n - 1, e + floor(ln(x / e) / ln(max_distance / e) (n - e)))";
  static constexpr std::string_view citation =
      "Raffel et al. 2020, Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, arXiv:1910.10683, "
      "section 2.1";
  static constexpr bool is_trained = true;
  static constexpr std::tuple fields{
      field("buckets", &T5::buckets, at_least(1), "rows of the trained table"),
      field("max_distance", &T5::max_distance, at_least(1), "distance from which on all share the last bucket"),
      required_field("bidirectional", &T5::bidirectional, {}, "whether half of the buckets are for keys after the query"),
  };

  void check() const {
    const std::int64_t exact = buckets / (bidirectional ? 4 : 2);
    if (exact < 1) {
      throw Error(ErrorCode::invalid_argument,
                  "buckets: expected at least " + std::string(bidirectional ? "4" : "2") + ", got " + std::to_string(buckets));
    }
    if (max_distance <= exact) {
      throw Error(ErrorCode::invalid_argument, "max_distance: expected more than the " + std::to_string(exact) +
                                                   " distances with a bucket of their own, got " + std::to_string(max_distance));
    }
  }
  bool operator==(const T5&) const = default;
};

}  // namespace gnomon::bias
