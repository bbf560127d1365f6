// SPDX-License-Identifier: Apache-2.0
// Sums over the pairs of cos(distance * inv_freq), for runs of distances.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/phase.hpp"

namespace gnomon {

/// A block of distances is the exact phase of its first one, turned by a table of the distances from 0 to the block's end:
/// cos(a + b) = cos a cos b - sin a sin b. So there is no libm call per distance, and errors do not add up.
class CosineSums {
 public:
  static constexpr std::int64_t block = 64;
  using Block = std::array<double, block>;

  explicit CosineSums(const std::vector<double>& inv_freq) {
    for (const double value : inv_freq) {
      Pair pair{turns(value), {}, {}};
      for (std::int64_t j = 0; j < block; j++) {
        const auto both = cos_sin(phase_at(j, pair.turns));
        pair.cos[static_cast<std::size_t>(j)] = both.first;
        pair.sin[static_cast<std::size_t>(j)] = both.second;
      }
      pairs_.push_back(pair);
    }
  }

  /// At first, first + 1, …, first + block - 1.
  Block from(std::int64_t first) const {
    Block sums{};
    for (const auto& pair : pairs_) {
      const auto start = cos_sin(phase_at(first, pair.turns));
      const double c = start.first, s = start.second;
      for (std::size_t j = 0; j < block; j++) sums[j] += c * pair.cos[j] - s * pair.sin[j];
    }
    return sums;
  }

  /// Calls visit(distance, sum) for first, first + 1, …, last, until it returns false.
  template <class Visitor>
  void each(std::int64_t first, std::int64_t last, Visitor&& visit) const {
    for (std::int64_t begin = first; begin <= last; begin += block) {
      const Block sums = from(begin);
      for (std::int64_t j = 0; j < block && begin + j <= last; j++) {
        if (!visit(begin + j, sums[static_cast<std::size_t>(j)])) return;
      }
    }
  }

 private:
  struct Pair {
    Turns turns;
    Block cos, sin;
  };
  std::vector<Pair> pairs_;
};

}  // namespace gnomon
