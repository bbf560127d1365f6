// SPDX-License-Identifier: Apache-2.0
// What the kernel of attention statistics is given: plain pointers and numbers.
#pragma once

#include <cstdint>
#include <span>

#include "gnomon/attention_statistics.hpp"
#include "gnomon/bias_table.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon::kernels {

struct StatisticsJob {
  ConstTensorView q, k;  // f32, bf16 or f16, each of its own; rotated
  const float* log_sum_exp = nullptr;
  float scale = 1;
  float softcap = 0;  // 0: none
  std::span<const BiasTable> bias;
  const KeyIntervals* mask = nullptr;
  const MaskTensor* mask_tensor = nullptr;
  std::span<const float> query_factors;
  const AttentionStatistics* statistics = nullptr;
};

/// Queries of one block, on this CPU.
std::int64_t statistics_block();

/// One block of queries of one head: their numbers are written, and their masses by distance added to `bins`.
void attention_statistics(const StatisticsJob& job, std::int64_t b, std::int64_t head, std::int64_t query, double* bins);

}  // namespace gnomon::kernels
