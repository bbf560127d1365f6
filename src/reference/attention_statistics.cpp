// SPDX-License-Identifier: Apache-2.0
// The double reference of attention statistics: the weights of a query from the definition of softmax, and sums over them.
#include "gnomon/attention_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/scores.hpp"

namespace gnomon::reference {
namespace {

/// The weights of the keys a query sees.
std::vector<std::pair<std::int64_t, double>> weights_of(const Scores& scores, std::int64_t keys, double sink, std::int64_t b,
                                                        std::int64_t h, std::int64_t t) {
  std::vector<std::pair<std::int64_t, double>> weights;
  double most = sink;
  for (std::int64_t j = 0; j < keys; j++) {
    if (const auto score = scores.at(b, h, t, j)) {
      weights.emplace_back(j, *score);
      most = std::isnan(*score) ? *score : std::max(*score, most);  // std::max(x, NaN) is x: one NaN stays
    }
  }
  if (most < -1e30) return {};
  double sum = std::isinf(sink) ? 0 : std::exp(sink - most);
  for (auto& [key, weight] : weights) sum += weight = std::exp(weight - most);
  for (auto& [key, weight] : weights) weight /= sum;
  return weights;
}

void write(std::span<float> list, std::size_t at, double value) {
  if (!list.empty()) list[at] = static_cast<float>(value);
}

}  // namespace

void attention_statistics(const ConstTensorView& q, const ConstTensorView& k, const AttentionStatistics& statistics,
                          const AttentionOptions& options) {
  const Scores scores(q, k, options);
  const auto& edges = statistics.distance_edges;
  const std::size_t bins = edges.empty() ? 0 : edges.size() - 1;
  std::fill(statistics.mass_by_distance.begin(), statistics.mass_by_distance.end(), 0.0);
  for (std::int64_t b = 0; b < q.shape[0]; b++) {
    for (std::int64_t h = 0; h < q.shape[1]; h++) {
      const auto head = static_cast<std::size_t>(b * q.shape[1] + h);
      const double sink = options.sink_logits.empty() ? -std::numeric_limits<double>::infinity()
                                                      : static_cast<double>(options.sink_logits[static_cast<std::size_t>(h)]);
      for (std::int64_t t = 0; t < q.shape[2]; t++) {
        const std::int64_t diagonal = scores.diagonal(b, t), first = scores.first(b, t);
        double mass = 0, entropy = 0, maximum = 0, distance = 0, first_mass = 0, window_mass = 0;
        const auto weights = weights_of(scores, k.shape[2], sink, b, h, t);
        for (const auto& [key, p] : weights) mass += p;
        for (const auto& [key, p] : weights) {
          const std::int64_t back = diagonal - key;
          if (p != 0) entropy -= p / mass * std::log(p / mass);
          maximum = std::isnan(p) ? p : std::max(p, maximum);
          if (mass != 0) distance += p / mass * static_cast<double>(back);
          if (key >= first && key - first < statistics.first_keys) first_mass += p;
          if (std::abs(back) < statistics.window) window_mass += p;
          const auto above = std::upper_bound(edges.begin(), edges.end(), back);
          if (above != edges.begin() && above != edges.end() && !statistics.mass_by_distance.empty())
            statistics.mass_by_distance[head * bins + static_cast<std::size_t>(above - edges.begin()) - 1] += p;
        }
        const std::size_t at = head * static_cast<std::size_t>(q.shape[2]) + static_cast<std::size_t>(t);
        write(statistics.mass, at, mass);
        write(statistics.entropy, at, entropy);
        write(statistics.maximum, at, maximum);
        write(statistics.mean_distance, at, distance);
        write(statistics.first_mass, at, first_mass);
        write(statistics.window_mass, at, window_mass);
      }
    }
  }
}

}  // namespace gnomon::reference
