// SPDX-License-Identifier: Apache-2.0
// Drift: how far the scores of two rotations are apart, as a sum of cosines, and where that sum first falls below a limit.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "gnomon/analysis.hpp"
#include "gnomon/error.hpp"
#include "gnomon/frequencies.hpp"
#include "plan/phase.hpp"

namespace gnomon {
namespace {

constexpr std::int64_t farthest = std::int64_t{1} << 33;  // the positions for which the angles of `exact` are promised
constexpr std::size_t most_cosines = 4'000'000;           // what one search may cost: some 0.1 s

/// A channel of a head: the channel it turns with, and how fast.
struct Channel {
  int partner = -1;
  std::uint64_t step = 0;
};

std::vector<Channel> channels(const RotarySpec& spec, std::optional<std::int64_t> length) {
  const auto made = frequencies(spec, Numerics::exact, length);
  std::vector<Channel> result(static_cast<std::size_t>(spec.head_dim));
  const int pairs = spec.rotary_dim / 2;
  for (int i = 0; i < pairs; i++) {
    const bool halves = spec.layout == PairLayout::half_split;
    const int first = spec.rotary_offset + (halves ? i : 2 * i), second = first + (halves ? pairs : 1);
    const std::uint64_t step = made.turns[static_cast<std::size_t>(i)].fraction;
    result[static_cast<std::size_t>(first)] = {second, step};
    result[static_cast<std::size_t>(second)] = {first, step};
  }
  return result;
}

}  // namespace

Drift::Drift(const RotarySpec& a, const RotarySpec& b, std::optional<std::int64_t> length) {
  const auto left = channels(a, length), right = channels(b, length);
  if (a.head_dim != b.head_dim) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("drift: expected two heads of one width, got head_dim {} and {}", a.head_dim, b.head_dim));
  }
  std::map<std::uint64_t, int> weights;
  const auto add = [&](std::uint64_t step, int weight) { weights[std::min(step, -step)] += weight; };  // cos is even
  for (std::size_t c = 0; c < left.size(); c++) {
    if (left[c].partner == right[c].partner) {
      add(left[c].step - right[c].step, 2);
    } else {  // only the diagonals meet: cos x cos y = (cos(x - y) + cos(x + y)) / 2
      add(left[c].step - right[c].step, 1);
      add(left[c].step + right[c].step, 1);
    }
  }
  for (const auto& [step, weight] : weights) terms_.push_back({step, static_cast<double>(weight)});
  total_ = 2.0 * a.head_dim;
}

double Drift::mean_cosine(std::int64_t distance) const { return least_mean_cosine(distance, distance); }

// A lower bound over all distances from first to last; for a single distance, its value.
double Drift::least_mean_cosine(std::int64_t first, std::int64_t last) const {
  __extension__ using u128 = unsigned __int128;
  constexpr std::uint64_t half_turn = std::uint64_t{1} << 63;
  double sum = 0;
  for (const auto& [step, weight] : terms_) {
    const std::uint64_t start = static_cast<std::uint64_t>(first) * step;
    const u128 swept = static_cast<u128>(last - first) * step;
    double least = -1;  // where the sweep passes half a turn
    if (swept < half_turn - start) least = std::min(cos_sin(start).first, cos_sin(start + static_cast<std::uint64_t>(swept)).first);
    sum += weight * least;
  }
  return sum / total_;
}

Parting Drift::parting(double limit) const {
  std::size_t budget = most_cosines;
  std::vector<std::pair<std::int64_t, std::int64_t>> intervals{{1, farthest}};  // the nearest last
  while (!intervals.empty()) {
    const auto [first, last] = intervals.back();
    if (budget < 2 * terms_.size()) return {std::nullopt, first - 1};
    budget -= 2 * terms_.size();
    intervals.pop_back();
    if (1 - least_mean_cosine(first, last) <= limit) continue;
    if (first == last) return {first, first};
    const std::int64_t middle = first + (last - first) / 2;
    intervals.emplace_back(middle + 1, last);
    intervals.emplace_back(first, middle);
  }
  return {std::nullopt, farthest};
}

}  // namespace gnomon
