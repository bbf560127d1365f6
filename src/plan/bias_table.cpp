// SPDX-License-Identifier: Apache-2.0
#include "gnomon/bias_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace gnomon {
namespace {

std::int64_t heads_of(const SlopeBias& bias) { return static_cast<std::int64_t>(bias.slopes.size()); }
std::int64_t heads_of(const auto& bias) { return bias.heads; }

double at(const SlopeBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t) {
  if (key > query && !bias.symmetric) return 0;
  return -static_cast<double>(bias.slopes[static_cast<std::size_t>(head)]) * static_cast<double>(std::abs(key - query));
}

double at(const DistanceBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t) {
  const std::int64_t index = std::clamp<std::int64_t>(key - query - bias.least, 0, bias.distances - 1);
  return bias.values[static_cast<std::size_t>(head * bias.distances + index)];
}

double at(const FireBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t position) {
  const double c = bias.c, distance = static_cast<double>(std::max<std::int64_t>(query - key, 0));
  const double length = std::max(static_cast<double>(bias.threshold), static_cast<double>(position));
  const double x = std::log(c * distance + 1) / std::max(std::log(c * length + 1), static_cast<double>(bias.epsilon));
  double sum = bias.bias2[static_cast<std::size_t>(head)];
  for (std::size_t k = 0; k < bias.weights1.size(); k++) {
    const double hidden = std::max(0.0, static_cast<double>(bias.weights1[k]) * x + static_cast<double>(bias.bias1[k]));
    sum += static_cast<double>(bias.weights2[static_cast<std::size_t>(head) * bias.weights1.size() + k]) * hidden;
  }
  return sum;
}

double at(const GridBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t) {
  const std::int64_t offsets = (2 * bias.height - 1) * (2 * bias.width - 1), rows = offsets + (bias.class_token ? 3 : 0);
  std::int64_t index;
  if (bias.class_token && (query == 0 || key == 0)) {
    index = offsets + (query != 0 ? 1 : key != 0 ? 0 : 2);
  } else {
    const std::int64_t shift = bias.class_token ? 1 : 0, i = query - shift, j = key - shift;
    index = (i / bias.width - j / bias.width + bias.height - 1) * (2 * bias.width - 1) + i % bias.width - j % bias.width + bias.width - 1;
  }
  return bias.values[static_cast<std::size_t>(head * rows + index)];
}

}  // namespace

std::int64_t heads_of(const BiasTable& table) {
  return std::visit([](const auto& bias) { return heads_of(bias); }, table);
}

double bias_at(const BiasTable& table, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t position) {
  return std::visit([&](const auto& bias) { return at(bias, head, query, key, position); }, table);
}

}  // namespace gnomon
