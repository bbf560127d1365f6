// SPDX-License-Identifier: Apache-2.0
// ③ Bias tables: the numbers of the structure "score by distance", made once from a rule. None of them is ever n × n. Distance is
// key − query.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

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
/// cells, and three more values follow: query 0, key 0, and 0 to itself (BEiT).
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

/// The value of one score in double, from its definition: what kernels are tested against. `position` is that of the query in its sequence
/// (FIRE alone asks for it).
double bias_at(const BiasTable& table, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t position);

}  // namespace gnomon
