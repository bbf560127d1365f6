// SPDX-License-Identifier: Apache-2.0
#include "gnomon/analysis/decay.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/cosine_sums.hpp"
#include "gnomon/error.hpp"

namespace gnomon {

double mean_cosine(const Frequencies& frequencies, std::int64_t distance) {
  double sum = 0;
  for (const double value : frequencies.inv_freq) sum += cos_sin(phase_at(distance, turns(value))).first;
  return sum / static_cast<double>(frequencies.inv_freq.size());
}

double decay_bound(const Frequencies& frequencies, std::int64_t distance) {
  double real = 0, imaginary = 0, sum = 0;
  for (const double value : frequencies.inv_freq) {
    const auto both = cos_sin(phase_at(distance, turns(value)));
    real += both.first, imaginary += both.second;
    sum += std::hypot(real, imaginary);
  }
  return sum / static_cast<double>(frequencies.inv_freq.size());
}

std::optional<std::int64_t> first_negative_distance(const Frequencies& frequencies, std::int64_t farthest) {
  if (farthest < 1 || farthest > longest_decay) {
    throw Error(ErrorCode::invalid_argument, fmt::format("farthest: expected a distance from 1 to {}, got {}", longest_decay, farthest));
  }
  std::optional<std::int64_t> found;
  CosineSums(frequencies.inv_freq).each(1, farthest, [&](std::int64_t distance, double sum) {
    if (sum < 0) found = distance;
    return !found;
  });
  return found;
}

}  // namespace gnomon
