// SPDX-License-Identifier: Apache-2.0
#include "gnomon/analysis/aliasing.hpp"

#include <fmt/format.h>

#include <bit>

#include "analysis/cosine_sums.hpp"
#include "gnomon/analysis/decay.hpp"
#include "gnomon/error.hpp"

namespace gnomon {

std::vector<Alias> aliases(const Frequencies& frequencies, std::int64_t farthest) {
  if (farthest < 1 || farthest > longest_decay) {
    throw Error(ErrorCode::invalid_argument, fmt::format("farthest: expected a distance from 1 to {}, got {}", longest_decay, farthest));
  }
  const auto octave = [](std::int64_t distance) { return std::bit_width(static_cast<std::uint64_t>(distance)); };
  const auto pairs = static_cast<double>(frequencies.inv_freq.size());
  std::vector<Alias> result;
  double before = pairs, here = pairs;  // the sums at distance - 2 and distance - 1; that of distance 0 is the number of pairs
  CosineSums(frequencies.inv_freq).each(1, farthest + 1, [&](std::int64_t distance, double sum) {
    if (before < here && here >= sum) {
      const Alias peak{distance - 1, here / pairs};
      if (result.empty() || octave(result.back().distance) != octave(peak.distance)) {
        result.push_back(peak);
      } else if (result.back().mean_cosine < peak.mean_cosine) {
        result.back() = peak;
      }
    }
    before = here, here = sum;
    return true;
  });
  return result;
}

}  // namespace gnomon
