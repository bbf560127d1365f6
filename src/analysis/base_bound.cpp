// SPDX-License-Identifier: Apache-2.0
#include "gnomon/analysis/base_bound.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "analysis/cosine_sums.hpp"
#include "gnomon/error.hpp"

namespace gnomon {
namespace {

constexpr std::int64_t per_decade = 90'000, decades = 12;

/// 1.0000, 1.0001, …, 9.9999, 10.000, …
double candidate(std::int64_t number) {
  return static_cast<double>(10'000 + number % per_decade) * std::pow(10.0, static_cast<double>(number / per_decade)) / 10'000;
}

double cosine_sum(double theta, int pairs, std::int64_t distance) {
  const double ratio = std::pow(theta, -1.0 / pairs);
  double angle = static_cast<double>(distance), sum = 0;
  for (int i = 0; i < pairs; i++, angle *= ratio) sum += std::cos(angle);
  return sum;
}

/// A distance up to `length` at which the sum is negative, or 0. Not the first one but the deepest one near it, because that stays negative
/// for the most of the thetas that follow.
std::int64_t failing_distance(double theta, int pairs, std::int64_t length) {
  std::vector<double> inv_freq;
  for (int i = 0; i < pairs; i++) inv_freq.push_back(std::pow(theta, -static_cast<double>(i) / pairs));
  std::int64_t first = 0, deepest = 0;
  double least = 0;
  CosineSums(inv_freq).each(1, length, [&](std::int64_t distance, double sum) {
    if (sum < 0 && first == 0) first = distance;
    if (sum < least) least = sum, deepest = distance;
    return first == 0 || distance < first + first / 4;
  });
  return deepest;
}

}  // namespace

std::optional<double> smallest_base(int rotary_dim, std::int64_t length) {
  if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > 4096) {
    throw Error(ErrorCode::invalid_argument, fmt::format("rotary_dim: expected an even number from 2 to 4096, got {}", rotary_dim));
  }
  if (length < 1 || length > longest_base_bound) {
    throw Error(ErrorCode::invalid_argument, fmt::format("length: expected 1 to {}, got {}", longest_base_bound, length));
  }
  const int pairs = rotary_dim / 2;
  std::int64_t failing = 0;
  for (std::int64_t number = 0; number < decades * per_decade; number++) {
    const double theta = candidate(number);
    if (failing != 0 && cosine_sum(theta, pairs, failing) < 0) continue;
    failing = failing_distance(theta, pairs, length);
    if (failing == 0) return theta;
  }
  return std::nullopt;
}

}  // namespace gnomon
