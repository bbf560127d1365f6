// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_tables.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/softmax_row.hpp"

namespace gnomon::kernels {
namespace {

/// Where a hidden unit turns on (going up) or off, and its line.
struct Bend {
  double at, slope, value;
};

FireTable::Head lines(const FireBias& bias, std::int64_t h) {
  const float* weights2 = bias.weights2.data() + h * static_cast<std::int64_t>(bias.weights1.size());
  double slope = 0, value = static_cast<double>(bias.bias2[static_cast<std::size_t>(h)]);  // of the line at x = 0
  std::vector<Bend> bends;
  for (std::size_t k = 0; k < bias.weights1.size(); k++) {
    const auto w = static_cast<double>(bias.weights1[k]), b = static_cast<double>(bias.bias1[k]), out = static_cast<double>(weights2[k]);
    const bool on = b > 0 || (b == 0 && w > 0);
    if (on) slope += w * out, value += b * out;
    if (w != 0 && -b / w > 0) bends.push_back(on ? Bend{-b / w, -w * out, -b * out} : Bend{-b / w, w * out, b * out});
  }
  std::sort(bends.begin(), bends.end(), [](const Bend& a, const Bend& c) { return a.at < c.at; });
  FireTable::Head head;
  // The first piece has no beginning: its value is that at 0.
  head.from = {0};
  head.slope = {static_cast<float>(slope * log2_e)};
  head.value = {static_cast<float>(value * log2_e)};
  for (const auto& bend : bends) {
    slope += bend.slope;
    value += bend.value;
    head.from.push_back(static_cast<float>(bend.at));
    head.slope.push_back(static_cast<float>(slope * log2_e));
    head.value.push_back(static_cast<float>((value + slope * static_cast<double>(head.from.back())) * log2_e));
  }
  return head;
}

}  // namespace

std::size_t FireTable::Head::piece_at(float x) const {
  const auto after = std::upper_bound(from.begin() + 1, from.end(), x);
  return static_cast<std::size_t>(after - from.begin()) - 1;
}

FireTable::FireTable(const FireBias& bias, std::int64_t distances)
    : c_(static_cast<double>(bias.c)), threshold_(static_cast<double>(bias.threshold)), epsilon_(static_cast<double>(bias.epsilon)) {
  for (std::int64_t h = 0; h < bias.heads; h++) heads_.push_back(lines(bias, h));
  for (std::int64_t d = 0; d < distances; d++) logs_.push_back(static_cast<float>(std::log(c_ * static_cast<double>(d) + 1)));
}

float FireTable::log_of(std::int64_t distance) const {
  if (distance <= 0) return 0;
  if (distance < static_cast<std::int64_t>(logs_.size())) return logs_[static_cast<std::size_t>(distance)];
  return static_cast<float>(std::log(c_ * static_cast<double>(distance) + 1));
}

void FireTable::read_logs(std::int64_t distance, std::int64_t number, float* to) const {
  const std::int64_t kept = static_cast<std::int64_t>(logs_.size()), after = std::clamp<std::int64_t>(-distance, 0, number),
                     known = std::clamp<std::int64_t>(kept - distance, after, number);
  std::fill_n(to, after, 0.0f);
  if (known > after) std::copy_n(logs_.data() + distance + after, known - after, to + after);
  for (std::int64_t i = known; i < number; i++) to[i] = log_of(distance + i);
}

float FireTable::inverse_length(std::int64_t position) const {
  const double length = std::max(threshold_, static_cast<double>(position));
  return static_cast<float>(1 / std::max(std::log(c_ * length + 1), epsilon_));
}

GridTable::GridTable(const GridBias& bias, std::int64_t room)
    : offsets_((2 * bias.height - 1) * (2 * bias.width - 1)),
      room_(room),
      stride_(offsets_ + (bias.class_token ? 3 : 0) + 2 * room),
      centre_(static_cast<std::int32_t>((bias.height - 1) * (2 * bias.width - 1) + bias.width - 1)),
      class_token_(bias.class_token),
      values_(static_cast<std::size_t>(bias.heads * stride_)),
      key_indices_(static_cast<std::size_t>(bias.height * bias.width + (bias.class_token ? 1 : 0))) {
  auto* index = key_indices_.data() + (bias.class_token ? 1 : 0);
  for (std::int64_t y = 0; y < bias.height; y++) {
    for (std::int64_t x = 0; x < bias.width; x++) *index++ = static_cast<std::int32_t>(y * (2 * bias.width - 1) + x);
  }
  const std::int64_t number = stride_ - 2 * room;
  for (std::int64_t h = 0; h < bias.heads; h++) {
    for (std::int64_t i = 0; i < number; i++) {
      values_[static_cast<std::size_t>(h * stride_ + room + i)] =
          static_cast<float>(static_cast<double>(bias.values[static_cast<std::size_t>(h * number + i)]) * log2_e);
    }
  }
}

std::int32_t GridTable::query_index(std::int64_t query) const {
  return centre_ + *key_indices(std::clamp<std::int64_t>(query, 0, static_cast<std::int64_t>(key_indices_.size()) - 1));
}

}  // namespace gnomon::kernels
