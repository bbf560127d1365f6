// SPDX-License-Identifier: Apache-2.0
// What the attention kernel is given: plain pointers and numbers.
#pragma once

#include <cstdint>
#include <span>

#include "gnomon/bias_table.hpp"
#include "gnomon/executor.hpp"
#include "gnomon/tensor.hpp"
#include "kernels/rotate.hpp"

namespace gnomon::kernels {

/// Heads wider than this run the reference: their tiles would not fit the scratch.
inline constexpr std::int64_t widest_attention_head = 1024;

/// A tensor (B,H,T,·) with a contiguous last axis.
struct AttentionInput {
  const void* data = nullptr;
  std::int64_t strides[3] = {};  // of B, H, T, in elements
};

/// Lists of (B or 1, queries); all null: every query sees every key, and query t stands at key t + keys - queries.
struct AttentionIntervals {
  const std::int32_t* begin = nullptr;
  const std::int32_t* end = nullptr;
  const std::int32_t* first = nullptr;
  const std::int32_t* diagonal = nullptr;
  std::int64_t keep_first = 0;
  bool by_batch = false;
};

struct AttentionMask {
  const void* data = nullptr;  // null: none
  bool additive = false;       // f32, else bytes
  std::int64_t strides[4] = {};
};

struct AttentionJob {
  DType dtype = DType::f32;  // f32, bf16 or f16
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, width = 0, value_width = 0;
  AttentionInput q, k, v;
  void* out = nullptr;
  std::int64_t out_strides[3] = {};

  double scale = 1;
  double softcap = 0;  // 0: none
  std::span<const BiasTable> bias;
  AttentionIntervals intervals;
  AttentionMask mask;
  const float* sink_logits = nullptr;    // (heads), or null
  const float* query_factors = nullptr;  // (queries) or (batch, queries), or null
  bool factors_by_batch = false;
  const RotateJob* rotate_queries = nullptr;  // without tensors, or null
  const RotateJob* rotate_keys = nullptr;

  float* log_sum_exp = nullptr;  // (batch, heads, queries), or null
  float* maximum = nullptr;
  Executor* executor = nullptr;
  bool skip = true;  // tiles whose weights are all exactly 0 by their bias; off for tests
};

void attention(const AttentionJob& job);

/// The same in bf16 with the CPU's own products of pairs. Returns false, and does nothing, where it has none.
bool attention_in_pairs(const AttentionJob& job);

/// Whether it has them, and they are faster than products of widened float32.
bool pairs_are_fast();

}  // namespace gnomon::kernels
