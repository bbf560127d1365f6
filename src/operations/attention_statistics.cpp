// SPDX-License-Identifier: Apache-2.0
#include "gnomon/attention_statistics.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "gnomon/error.hpp"
#include "kernels/attention_statistics.hpp"
#include "operations/attention.hpp"
#include "operations/views.hpp"
#include "plan/round.hpp"

namespace gnomon {
namespace {

void check_statistics(const AttentionStatistics& statistics, const ConstTensorView& q) {
  if (statistics.first_keys < 0) refuse(fmt::format("first_keys: expected at least 0, got {}", statistics.first_keys));
  if (statistics.window < 0) refuse(fmt::format("window: expected at least 0, got {}", statistics.window));
  const auto& edges = statistics.distance_edges;
  if (edges.size() == 1) refuse("distance_edges: expected at least 2 numbers, got 1");
  for (std::size_t i = 1; i < edges.size(); i++) {
    if (edges[i] <= edges[i - 1])
      refuse(fmt::format("distance_edges: expected numbers that ascend, got {} after {}", edges[i], edges[i - 1]));
  }
  const std::int64_t heads = q.shape[0] * q.shape[1], bins = edges.empty() ? 0 : static_cast<std::int64_t>(edges.size()) - 1;
  for (const auto& [name, list] : {std::pair("mass", &statistics.mass), std::pair("entropy", &statistics.entropy),
                                   std::pair("maximum", &statistics.maximum), std::pair("mean_distance", &statistics.mean_distance),
                                   std::pair("first_mass", &statistics.first_mass), std::pair("window_mass", &statistics.window_mass)}) {
    if (!list->empty()) check_size(name, list->size(), heads * q.shape[2], "B x Hq x Tq");
  }
  const auto& histogram = statistics.mass_by_distance;
  if (!histogram.empty()) check_size("mass_by_distance", histogram.size(), heads * bins, "B x Hq x bins");
}

/// Heads as the kernel takes them: the caller's, or a copy in float32 that is rotated.
class LoadedHeads {
 public:
  LoadedHeads(const ConstTensorView& x, const std::optional<RotationOnLoad>& load, Side side, Executor* executor) : view_(x) {
    if (!load) return;
    const auto& [batch, heads, tokens, width] = x.shape;
    copy_.reserve(static_cast<std::size_t>(batch * heads * tokens * width));
    visit_dtype(x.dtype, [&]<class Element>(Element) {
      for (std::int64_t row = 0; row < x.shape[0] * x.shape[1] * x.shape[2]; row++) {
        const std::int64_t t = row % x.shape[2], h = row / x.shape[2] % x.shape[1], b = row / x.shape[2] / x.shape[1];
        const auto* from = static_cast<const Element*>(x.data) + b * x.strides[0] + h * x.strides[1] + t * x.strides[2];
        for (std::int64_t d = 0; d < x.shape[3]; d++) copy_.push_back(static_cast<float>(widen(from[d])));
      }
    });
    const TensorView copy{copy_.data(), DType::f32, x.shape, {heads * tokens * width, tokens * width, width, 1}};
    const RotateOperand operand{copy, copy, side};
    rotate({&operand, 1}, load->rotation, load->positions, {Direction::forward, false, executor});
    view_ = copy;
  }
  LoadedHeads(const LoadedHeads&) = delete;
  LoadedHeads& operator=(const LoadedHeads&) = delete;
  const ConstTensorView& view() const { return view_; }

 private:
  std::vector<float> copy_;
  ConstTensorView view_;
};

/// One task for each block of queries, whatever the threads: so the order of every sum is settled.
void run_blocks(const kernels::StatisticsJob& job, Executor* executor) {
  const auto& shape = job.q.shape;
  const auto& statistics = *job.statistics;
  const std::size_t bins = statistics.distance_edges.empty() ? 0 : statistics.distance_edges.size() - 1;
  const std::int64_t block = kernels::statistics_block(), blocks = (shape[2] + block - 1) / block, heads = shape[0] * shape[1];
  std::vector<double> masses(static_cast<std::size_t>(heads * blocks) * bins);
  const auto body = [&](std::size_t task) {
    const auto head = static_cast<std::int64_t>(task) / blocks, index = static_cast<std::int64_t>(task) % blocks;
    kernels::attention_statistics(job, head / shape[1], head % shape[1], index * block, masses.data() + task * bins);
  };
  const auto tasks = static_cast<std::size_t>(heads * blocks);
  run_tasks(executor, tasks, body);
  if (statistics.mass_by_distance.empty()) return;
  std::fill(statistics.mass_by_distance.begin(), statistics.mass_by_distance.end(), 0.0);
  for (std::size_t task = 0; task < tasks; task++) {
    for (std::size_t bin = 0; bin < bins; bin++)
      statistics.mass_by_distance[task / static_cast<std::size_t>(blocks) * bins + bin] += masses[task * bins + bin];
  }
}

}  // namespace

std::vector<std::int64_t> doubling_edges(std::int64_t keys) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (keys < 0) refuse(fmt::format("keys: expected at least 0, got {}", keys));
  if (keys > most) throw Error(ErrorCode::out_of_range, fmt::format("keys: expected at most 2^40, got {}", keys));
  std::vector<std::int64_t> edges{0, 1};
  while (edges.back() < keys) edges.push_back(2 * edges.back());
  return edges;
}

void attention_statistics(const ConstTensorView& q, const ConstTensorView& k, std::span<const float> log_sum_exp,
                          const AttentionStatistics& statistics, const AttentionOptions& options) {
  check_heads(q, k);
  check_options({q.shape[0], q.shape[1], q.shape[2], k.shape[2]}, options);
  check_statistics(statistics, q);
  check_size("log_sum_exp", log_sum_exp.size(), q.shape[0] * q.shape[1] * q.shape[2], "B x Hq x Tq");
  if (is_empty(q) || q.dtype == DType::f64) return reference::attention_statistics(q, k, statistics, options);
  const LoadedHeads queries(q, options.rotate_queries, Side::query, options.executor);
  const LoadedHeads keys(k, options.rotate_keys, Side::key, options.executor);
  kernels::StatisticsJob job;
  job.q = queries.view();
  job.k = keys.view();
  job.log_sum_exp = log_sum_exp.data();
  job.scale = static_cast<float>(options.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape[3]))));
  job.softcap = static_cast<float>(options.softcap.value_or(0));
  job.bias = options.bias;
  job.mask = options.mask;
  job.mask_tensor = options.mask_tensor ? &*options.mask_tensor : nullptr;
  job.query_factors = options.query_factors;
  job.statistics = &statistics;
  run_blocks(job, options.executor);
}

}  // namespace gnomon
