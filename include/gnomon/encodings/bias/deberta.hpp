// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `deberta`: trained vectors per bucket of distances, multiplied with the query and the key.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// Content to position and position to content: score += q·K[bucket(i - j)] + k·Q[bucket(j - i)]; every term, that of the content
/// included, is divided by sqrt(head_dim * terms), which is the model's softmax scale.
struct Deberta {
  std::int64_t buckets = 0;
  std::int64_t max_distance = 0;
  bool c2p = true;
  bool p2c = true;
  bool share_key = true;

  static constexpr std::string_view name = "deberta";
  static constexpr std::string_view summary = "Trained vectors for each bucket of distances, multiplied with query and key.";
  static constexpr std::string_view formula =
      "score[i, j] += q[i] . K[bucket(i - j)] + k[j] . Q[bucket(j - i)]\n"
      "m = buckets / 2; bucket(d) = d for |d| <= m, otherwise sign(d) (m + ceil(ln(|d| / m) / ln((max_distance - 1) / m) (m - 1)))";
  static constexpr std::string_view citation =
      "He et al. 2021, DeBERTa: Decoding-enhanced BERT with Disentangled Attention, arXiv:2006.03654, section 3.1; DeBERTaV3, "
      "arXiv:2111.09543";
  static constexpr std::string_view example = R"("buckets": 256, "max_distance": 512)";
  static constexpr bool is_trained = true;
  static constexpr std::tuple fields{
      required_field("buckets", &Deberta::buckets, at_least(0), "logarithmic buckets of each side; 0: a row for every distance"),
      required_field("max_distance", &Deberta::max_distance, at_least(1), "distance from which on all share the last bucket"),
      field("c2p", &Deberta::c2p, {}, "whether queries are multiplied with the vectors of positions"),
      field("p2c", &Deberta::p2c, {}, "whether keys are multiplied with the vectors of positions"),
      field("share_key", &Deberta::share_key, {}, "whether positions go through the projections of content"),
  };

  void check() const {
    if (c2p || p2c) return;
    throw Error(ErrorCode::invalid_argument, "c2p: expected c2p or p2c to be true, got neither");
  }
  bool operator==(const Deberta&) const = default;
};

}  // namespace gnomon::bias
