// SPDX-License-Identifier: Apache-2.0
#include "gnomon/analysis/base_bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "analysis/cosine_sums.hpp"
#include "gnomon/error.hpp"

namespace gnomon {
namespace {

constexpr int decades = 12;

/// With two digits 1.0, 1.1, …, 9.9, 10, 11, …
double candidate(std::int64_t number, std::int64_t one) {
  return static_cast<double>(one + number % (9 * one)) * std::pow(10.0, static_cast<double>(number / (9 * one))) / static_cast<double>(one);
}

double cosine_sum(double theta, int pairs, std::int64_t distance) {
  const double ratio = std::pow(theta, -1.0 / pairs);
  double angle = static_cast<double>(distance), sum = 0;
  for (int i = 0; i < pairs; i++, angle *= ratio) sum += std::cos(angle);
  return sum;
}

/// Distances up to `length` at which a sum is negative, the deepest minima of the first ones that are; empty when there is none. They stay
/// negative for many of the thetas that follow, and each for others.
std::vector<std::int64_t> failing_distances(double theta, int pairs, std::int64_t length) {
  constexpr std::size_t most = 64;
  std::vector<double> inv_freq;
  for (int i = 0; i < pairs; i++) inv_freq.push_back(std::pow(theta, -static_cast<double>(i) / pairs));
  std::vector<std::pair<double, std::int64_t>> minima;
  std::int64_t last = length;
  double before = pairs, here = pairs;
  CosineSums(inv_freq).each(1, length + 1, [&](std::int64_t distance, double sum) {
    if (here < 0 && here <= before && here <= sum) minima.emplace_back(here, distance - 1);
    if (here < 0 && last == length) last = std::min(length, distance + distance / 4);
    before = here, here = sum;
    return distance <= last;
  });
  if (minima.empty() && before < 0) minima.emplace_back(before, length);  // the sum still falls where the length ends
  std::sort(minima.begin(), minima.end());
  std::vector<std::int64_t> distances;
  for (std::size_t i = 0; i < std::min(most, minima.size()); i++) distances.push_back(minima[i].second);
  return distances;
}

}  // namespace

std::optional<double> smallest_base(int rotary_dim, std::int64_t length, int digits) {
  if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > 4096) {
    throw Error(ErrorCode::invalid_argument, fmt::format("rotary_dim: expected an even number from 2 to 4096, got {}", rotary_dim));
  }
  if (length < 1 || length > longest_base_bound) {
    throw Error(ErrorCode::invalid_argument, fmt::format("length: expected 1 to {}, got {}", longest_base_bound, length));
  }
  if (digits < 1 || digits > 6) throw Error(ErrorCode::invalid_argument, fmt::format("digits: expected 1 to 6, got {}", digits));
  const int pairs = rotary_dim / 2;
  const std::int64_t one = std::llround(std::pow(10, digits - 1));
  std::vector<std::int64_t> failing;
  for (std::int64_t number = 0; number < decades * 9 * one; number++) {
    const double theta = candidate(number, one);
    const auto fails = [&](std::int64_t distance) { return cosine_sum(theta, pairs, distance) < 0; };
    const auto found = std::find_if(failing.begin(), failing.end(), fails);
    if (found != failing.end()) {
      std::rotate(failing.begin(), found, found + 1);  // it is the first to be asked next time
      continue;
    }
    failing = failing_distances(theta, pairs, length);
    if (failing.empty()) return theta;
  }
  return std::nullopt;
}

}  // namespace gnomon
