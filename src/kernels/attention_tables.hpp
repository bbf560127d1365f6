// SPDX-License-Identifier: Apache-2.0
// Biases that are more than a number for each distance, as the attention kernel walks them. Made once a call; scores are exponents of 2.
#pragma once

#include <cstdint>
#include <vector>

#include "gnomon/bias_table.hpp"

namespace gnomon::kernels {

/// FIRE: the network of a head as what it is, a line between any two of its breakpoints.
class FireTable {
 public:
  struct Head {
    std::vector<float> from, slope, value;  // piece i begins at from[i], which is the least number for the first, with value[i]
    std::size_t piece_at(float x) const;
  };
  /// `distances`: for how many logarithms are kept.
  FireTable(const FireBias& bias, std::int64_t distances);

  const Head& head(std::int64_t h) const { return heads_[static_cast<std::size_t>(h)]; }
  /// ln(c d + 1); 0 for keys after the query.
  float log_of(std::int64_t distance) const;
  /// The same at `number` distances from `distance` up.
  void read_logs(std::int64_t distance, std::int64_t number, float* to) const;
  /// What that is multiplied by, for a query at a position.
  float inverse_length(std::int64_t position) const;

 private:
  double c_, threshold_, epsilon_;
  std::vector<Head> heads_;
  std::vector<float> logs_;
};

/// A table of offsets of image cells, with room before and after each head's values for vectors that reach over.
class GridTable {
 public:
  GridTable(const GridBias& bias, std::int64_t room);

  const float* offsets(std::int64_t head) const { return values_.data() + head * stride_ + room_; }
  /// The values of query 0, key 0 and 0 to itself.
  const float* class_values(std::int64_t head) const { return offsets(head) + offsets_; }
  bool class_token() const { return class_token_; }
  /// The offset of a query and a key stands at query_index(query) - key_indices(key)[0].
  std::int32_t query_index(std::int64_t query) const;
  const std::int32_t* key_indices(std::int64_t key) const { return key_indices_.data() + key; }

 private:
  std::int64_t offsets_, room_, stride_;
  std::int32_t centre_;
  bool class_token_;
  std::vector<float> values_;
  std::vector<std::int32_t> key_indices_;  // (keys); that of the class token is not used
};

}  // namespace gnomon::kernels
