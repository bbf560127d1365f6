// SPDX-License-Identifier: Apache-2.0
// ③ Bias tables: the numbers of the structure "score by distance", made once from a rule. None of them is ever n × n. Distance is
// key − query.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "gnomon/encodings/bias.hpp"

namespace gnomon {

/// −slope[h] · |distance|; where it is not symmetric, keys after the query get 0.
struct SlopeBias {
  std::vector<float> slopes;  ///< (H)
  bool symmetric = false;
};

/// A value for each head and distance; beyond either end the value at that end.
struct DistanceBias {
  std::int64_t heads = 0;
  std::int64_t least = 0;      ///< distance of the first value
  std::int64_t distances = 0;  ///< values a head has, at least 1
  std::vector<float> values;   ///< (H, distances)
};

/// FIRE: f_h(ln(c·d + 1) / max(ln(c·max(threshold, p) + 1), epsilon)), d = query − key (0 for keys after the query), p = position of the
/// query in its sequence; f is a network 1 → hidden → H with ReLU, piecewise linear, one piece between two of its breakpoints.
struct FireBias {
  std::int64_t heads = 0;
  float c = 0;
  float threshold = 0;
  float epsilon = 1e-6f;
  std::vector<float> weights1, bias1;  ///< (hidden)
  std::vector<float> weights2;         ///< (H, hidden)
  std::vector<float> bias2;            ///< (H)
};

/// A value for each 2-D offset of two cells of an image of height × width cells, in the order of rows: query − key, (2 height − 1)
/// (2 width − 1) of them, offset (dy, dx) at (dy + height − 1)(2 width − 1) + dx + width − 1. With `class_token`, token 0 is none of the
/// cells, and three more values follow: query 0, key 0, and 0 to itself (BEiT). A query is the cell of its key slot
/// (KeyIntervals.diagonal), which must be one of the grid.
struct GridBias {
  std::int64_t heads = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool class_token = false;
  std::vector<float> values;  ///< (H, offsets)
};

using BiasTable = std::variant<SlopeBias, DistanceBias, FireBias, GridBias>;

/// Heads a table has values for.
std::int64_t heads_of(const BiasTable& table);

/// Throws Error(invalid_argument) that names the field for lists that do not fit to each other, NaN, numbers above 1e38 in size (−inf is
/// allowed in `values`, where it hides a key), and more than 2^20 heads, 2^40 distances, 1024 hidden units or
/// 4096 cells a side. attention does so for each of its tables.
void validate(const BiasTable& table);

/// The value of one score in double, from its definition: what kernels are tested against. `position` is that of the query in its sequence
/// (FIRE alone asks for it). The table is one that validate accepts. Throws Error(out_of_range) for a head it does not have, and for
/// queries and keys that are no cells of its grid, or beyond 2^40.
double bias_at(const BiasTable& table, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t position);

/// Trained numbers of a rule, for H heads.
struct BiasParameters {
  std::int64_t heads = 0;
  std::span<const float> table;     ///< t5, swin, beit: (rows, H), as checkpoints hold it
  std::span<const float> weights1;  ///< fire: (hidden); swinv2: (hidden, 2), the weights of dy and dx
  std::span<const float> bias1;     ///< fire, swinv2: (hidden)
  std::span<const float> weights2;  ///< fire, swinv2: (H, hidden)
  std::span<const float> bias2;     ///< fire: (H)
};

inline constexpr std::int64_t largest_reach = std::int64_t{1} << 24;

/// The table of a rule, computed in double and rounded once to f32. `reach` is the largest |distance| that is needed, which rules by
/// distance alone have values for (t5 up to its max_distance). Throws Error(invalid_argument) that names the field for an invalid rule,
/// numbers that are missing, too many or not asked for, and a reach below 0; Error(out_of_range) for one above 2^24; Error(unsupported) for
/// deberta, whose score depends on content. Sources: the citation of each rule.
BiasTable bias_table(const BiasRule& rule, std::int64_t reach, const BiasParameters& parameters = {});

/// The bucket of a distance, key − query: the exact floor of the formula, as where the logarithm of a power comes out an integer the
/// integers are compared. Throws as validate(rule), and Error(out_of_range) for a max_distance of 2^31 or more.
std::int64_t t5_bucket(const bias::T5& rule, std::int64_t distance);

/// Falcon's ALiBi as it was trained: slope and position are rounded to bf16 and so is their product, which is then scaled with the score
/// (1 / sqrt(D)). The stairs stand at positions of keys, not at distances, so no table holds them: (H, keys), a MaskTensor that all queries
/// share (additive, strides 0, keys, 0, 1). Throws as validate(rule) and validate(positions).
/// Source: the alibi of the transformers library's Falcon modules, 5.24.
std::vector<float> falcon_bias(const bias::Alibi& rule, std::span<const std::int64_t> positions, double scale);

}  // namespace gnomon
