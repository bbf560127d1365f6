// SPDX-License-Identifier: Apache-2.0
// What the decode kernel is given: few query rows against the keys of one head, plain pointers and numbers.
#pragma once

#include <cstdint>

#include "gnomon/tensor.hpp"

namespace gnomon::kernels {

/// Rows one task takes: the queries of a group of heads that share a key head.
inline constexpr std::int64_t most_decode_rows = 16;

/// Keys or values (B,Hk,T,width), or pages of them (pages,Hk,page_size,width).
struct DecodeCache {
  const void* data = nullptr;
  std::int64_t strides[3] = {};  // of B or pages, Hk and T, in elements
  std::int64_t width = 0;
};

/// Keys [begin, end) that rows [first_row, first_row + rows) all see.
struct DecodeRange {
  std::int64_t begin, end, first_row, rows;
};

/// Of a row: its position among the keys, and the numbers of its head.
struct DecodeBias {
  float slope = 0;  // times |distance|, to be subtracted; in the unit of the scores
  bool symmetric = false;
  const float* values = nullptr;  // (distances) as the table has them, of which a task reads few, or null
  std::int64_t least = 0, distances = 0;
};

/// Scores are exponents of 2 throughout: queries and slopes have been multiplied by log2(e).
struct DecodeTask {
  DType dtype = DType::f32;
  DecodeCache k, v;
  std::int64_t b = 0, h = 0;                  // of the cache
  const std::int32_t* block_table = nullptr;  // (blocks) of this row of the batch, or null
  std::int64_t page_size = 1;

  const float* q = nullptr;  // (rows, width), scale and temperature in them
  std::int64_t rows = 0;
  float softcap = 0;                       // 0: none; c log2(e), scores without a softcap come in the same unit
  const std::int64_t* diagonal = nullptr;  // (rows)
  const DecodeBias* bias = nullptr;        // (tables, rows)
  std::int64_t tables = 0;

  const DecodeRange* ranges = nullptr;
  std::int64_t number = 0;
};

/// What a split of the keys adds to a row: weights exp2(score − maximum), their sum, and (width) values weighted by them.
struct DecodePartial {
  float maximum, sum;
};

/// Writes a partial for each row, and (rows, v.width) weighted values.
void decode(const DecodeTask& task, DecodePartial* partials, float* values);

}  // namespace gnomon::kernels
