// SPDX-License-Identifier: Apache-2.0
// The loops of attention over one tile of scores, in float32: rows are keys, lanes are queries. Compiled once per CPU target.

#if defined(GNOMON_KERNELS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_KERNELS_ATTENTION_TILE_INL_H_
#undef GNOMON_KERNELS_ATTENTION_TILE_INL_H_
#else
#define GNOMON_KERNELS_ATTENTION_TILE_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "kernels/attention_plan.hpp"
#include "kernels/elements-inl.h"
#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {
namespace {  // a file compiled for more than its target must not lend its code to others

// Blocking: micro-tiles of `micro_rows` rows x `vectors` vectors hide the latency of their sums and fit the registers.
constexpr int lanes = static_cast<int>(HWY_LANES(float));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr int vectors = 4, tile_keys = 128, row_gap = 16;  // 32 registers; the gap keeps rows of a tile out of the same cache sets
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr int vectors = 2, tile_keys = 96, row_gap = 0;
#elif HWY_TARGET == HWY_NEON || HWY_TARGET == HWY_SCALAR
constexpr int vectors = 4, tile_keys = 96, row_gap = 0;
#else
constexpr int vectors = 2, tile_keys = 96, row_gap = 0;
#endif
constexpr int micro_rows = 6;
constexpr int block_lanes = vectors * lanes;         // queries of a lane block, and value channels of a panel
constexpr int score_stride = block_lanes + row_gap;  // of a row of scores
constexpr int most_unit_lanes = 512;                 // queries of a unit

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Rows of the next micro-tile: sixes, but 8 is better as 4 + 4 than as 6 + 2.
constexpr int next_rows(std::int64_t left, int most) {
  return most >= 6 && left >= 6 && left != 8 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : left >= 1 ? 1 : 0;
}

/// Rows of keys and values that come next, asked for a few at a time while the cores are busy: into the second-level cache, because the
/// first is full.
struct Ahead {
  const char *k = nullptr, *v = nullptr;
  std::int64_t k_stride = 0, v_stride = 0, k_bytes = 0, v_bytes = 0;
  std::int64_t rows = 0;  // left

  HWY_INLINE void step() {
    for (int i = 0; i < 2 && rows > 0; i++, rows--, k += k_stride, v += v_stride) {
      for (std::int64_t line = 0; line < k_bytes; line += 64) __builtin_prefetch(k + line, 0, 2);
      for (std::int64_t line = 0; line < v_bytes; line += 64) __builtin_prefetch(v + line, 0, 2);
    }
  }
};

/// A tile of scores on its way: row r is key `key + r`.
struct Tile {
  std::int64_t key = 0, keys = 0;
  float* scores = nullptr;   // rows of score_stride
  float* maximum = nullptr;  // (block_lanes), running
  const LaneIntervals* lists = nullptr;
  KeyRange seen_by_all, kept_by_all;
  const KeyRange* by_vector = nullptr;  // (vectors), what the lanes of each see
  Ahead* ahead = nullptr;
  const float* row_bias = nullptr;  // that of lane l and row r at [l - r], or null

  bool has_edge(std::int64_t row, std::int64_t rows) const {
    const KeyRange part{key + row, key + row + rows};
    return !seen_by_all.contains(part) && !kept_by_all.contains(part);
  }
  float* at(std::int64_t row, int c) const { return scores + row * score_stride + c * lanes; }
};

/// Which lanes of vector c see a key.
HWY_INLINE hn::Mask<F> visible(const LaneIntervals& lists, int c, std::int64_t key) {
  const I i;
  const auto number = hn::Set(i, static_cast<std::int32_t>(key));
  const auto before_end = hn::Lt(number, hn::LoadU(i, lists.end + c * lanes));
  const auto before_begin = hn::Lt(number, hn::LoadU(i, lists.begin + c * lanes));
  const auto before_first = hn::Lt(number, hn::LoadU(i, lists.first + c * lanes));
  const auto before_keep_end = hn::Lt(number, hn::LoadU(i, lists.keep_end + c * lanes));
  const auto within = hn::Or(hn::Not(before_begin), hn::AndNot(before_first, before_keep_end));
  return hn::RebindMask(F(), hn::And(before_end, within));
}

/// Columns [first, first + number) of vectors that some lane of rows needs.
struct Columns {
  int first = 0, number = vectors;
};
inline Columns needed(const Tile& tile, std::int64_t row, std::int64_t rows) {
  const KeyRange part{tile.key + row, tile.key + row + rows};
  int first = 0, end = vectors;
  while (first + 1 < end && tile.by_vector[first].within(part).empty()) first++;
  while (end - 1 > first && tile.by_vector[end - 1].within(part).empty()) end--;
  return {first, end - first};
}

/// The keys of a tile and the queries of a lane block, in 32-bit words: a float32 each, or what else a format has.
struct Operands {
  const float* k;  // rows of k_stride
  std::int64_t k_stride;
  const float* q;  // (words, block_lanes)
  std::int64_t words;
  const float* factors;  // (block_lanes), of the scores of queries that are not multiplied by them already
};

/// scores[row, row + rows) = K Q^T in the columns from `first`, with the bias, the mask and the running maximum.
template <class Format, int rows, int columns, bool biased>
HWY_NOINLINE void score_rows(const Tile& tile, const Operands& operands, std::int64_t row, int first, bool edge) {
  const F f;
  const std::int64_t k_stride = operands.k_stride, words = operands.words;
  const float* HWY_RESTRICT k = operands.k + row * k_stride;
  const float* HWY_RESTRICT q = operands.q + first * lanes;
  VF sums[rows][columns];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sums[r][c] = hn::Zero(f);
  }
#pragma GCC unroll 4
  for (std::int64_t t = 0; t < words; t++) {
    VF query[columns];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) query[c] = hn::Load(f, q + t * block_lanes + c * lanes);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      const VF key = hn::Set(f, k[r * k_stride + t]);
#pragma GCC unroll 4
      for (int c = 0; c < columns; c++) sums[r][c] = Format::dot(sums[r][c], key, query[c]);
    }
  }
  if constexpr (!Format::scales_queries) {
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) {
      const VF factor = hn::Load(f, operands.factors + (first + c) * lanes);
#pragma GCC unroll 6
      for (int r = 0; r < rows; r++) sums[r][c] = hn::Mul(sums[r][c], factor);
    }
  }
  if constexpr (biased) {
    const float* bias = tile.row_bias + first * lanes - row;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; c++) sums[r][c] = hn::Add(sums[r][c], hn::LoadU(f, bias + c * lanes - r));
    }
  }
  if (edge) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
      for (int c = 0; c < columns; c++)
        sums[r][c] = hn::IfThenElse(visible(*tile.lists, first + c, tile.key + row + r), sums[r][c], hn::Set(f, minus_infinity));
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < columns; c++) {
    VF most = hn::Load(f, tile.maximum + (first + c) * lanes);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      most = hn::Max(sums[r][c], most);  // in this order: a NaN is not taken, it reaches the result by its weight
      hn::Store(sums[r][c], f, tile.at(row + r, first + c));
    }
    hn::Store(most, f, tile.maximum + (first + c) * lanes);
  }
}

/// At an edge, in the columns that need it only; nobody sees the others.
template <class Format, int rows, bool biased>
void score_edge(const Tile& tile, const Operands& operands, std::int64_t row) {
  const auto [first, number] = needed(tile, row, rows);
  for (int c = 0; c < vectors; c++) {
    if (c >= first && c < first + number) continue;
    for (int r = 0; r < rows; r++) hn::Store(hn::Set(F(), minus_infinity), F(), tile.at(row + r, c));
  }
  if (number == vectors) return score_rows<Format, rows, vectors, biased>(tile, operands, row, 0, true);
  if constexpr (vectors > 2) {
    if (number == 3) return score_rows<Format, rows, 3, biased>(tile, operands, row, first, true);
    if (number == 2) return score_rows<Format, rows, 2, biased>(tile, operands, row, first, true);
  }
  score_rows<Format, rows, 1, biased>(tile, operands, row, first, true);
}

template <class Format, bool biased>
void score(const Tile& tile, const Operands& operands) {
  for (std::int64_t row = 0; row < tile.keys;) {
    const int rows = next_rows(tile.keys - row, micro_rows);
    const bool edge = tile.has_edge(row, rows);
    tile.ahead->step();
    if (rows == 6) {
      edge ? score_edge<Format, 6, biased>(tile, operands, row) : score_rows<Format, 6, vectors, biased>(tile, operands, row, 0, false);
    } else if (rows == 4) {
      edge ? score_edge<Format, 4, biased>(tile, operands, row) : score_rows<Format, 4, vectors, biased>(tile, operands, row, 0, false);
    } else if (rows == 2) {
      score_rows<Format, 2, vectors, biased>(tile, operands, row, 0, edge);
    } else {
      score_rows<Format, 1, vectors, biased>(tile, operands, row, 0, edge);
    }
    row += rows;
  }
}

/// Scores become weights 2^(score - maximum). `maximum` of the block turns into that of the tile, the sum of weights follows, and
/// `rescale` is what earlier weights are worth now.
inline void weigh_rows(const Tile& tile, float* HWY_RESTRICT maximum, float* HWY_RESTRICT sum, float* HWY_RESTRICT rescale) {
  const F f;
  for (int c = 0; c < block_lanes; c += lanes) {
    const VF before = hn::Load(f, maximum + c), now = hn::Load(f, tile.maximum + c);
    const VF shift = hn::IfThenElse(hn::Eq(now, hn::Set(f, minus_infinity)), hn::Zero(f), now);
    const VF factor = exp2_of_nonpositive(hn::Sub(before, shift));
    VF even = hn::Zero(f), odd = hn::Zero(f);
    float* p = tile.scores + c;
    std::int64_t row = 0;
    for (; row + 2 <= tile.keys; row += 2, p += 2 * score_stride) {
      const VF first = exp2_of_nonpositive(hn::Sub(hn::Load(f, p), shift));
      const VF second = exp2_of_nonpositive(hn::Sub(hn::Load(f, p + score_stride), shift));
      even = hn::Add(even, first);
      odd = hn::Add(odd, second);
      hn::Store(first, f, p);
      hn::Store(second, f, p + score_stride);
    }
    if (row < tile.keys) {
      const VF last = exp2_of_nonpositive(hn::Sub(hn::Load(f, p), shift));
      even = hn::Add(even, last);
      hn::Store(last, f, p);
    }
    hn::Store(now, f, maximum + c);
    hn::Store(factor, f, rescale + c);
    hn::Store(hn::MulAdd(hn::Load(f, sum + c), factor, hn::Add(even, odd)), f, sum + c);
  }
}

/// out[rows queries][columns vectors] = rescale * out + P V. p: row r of the micro-tile at [r] of each row of weights; v: one panel.
template <class Format, int rows, int columns>
HWY_NOINLINE void output_rows(const float* HWY_RESTRICT p, const float* HWY_RESTRICT v, std::int64_t number, const float* rescale,
                              float* HWY_RESTRICT out, std::int64_t out_stride) {
  const F f;
  VF sums[rows][columns];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
    const VF factor = hn::Set(f, rescale[r]);
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) sums[r][c] = hn::Mul(factor, hn::Load(f, out + r * out_stride + c * lanes));
  }
#pragma GCC unroll 4
  for (std::int64_t key = 0; key < number; key++) {
    VF value[columns];
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) value[c] = hn::Load(f, v + key * block_lanes + c * lanes);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      const VF weight = hn::Set(f, p[key * score_stride + r]);
#pragma GCC unroll 4
      for (int c = 0; c < columns; c++) sums[r][c] = Format::dot(sums[r][c], weight, value[c]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int c = 0; c < columns; c++) hn::Store(sums[r][c], f, out + r * out_stride + c * lanes);
  }
}

/// One panel of value channels, of `columns` vectors, for all queries of a block.
template <class Format, int columns>
void output_panel(const Tile& tile, const KeyRange* groups, const float* v, const float* rescale, float* out, std::int64_t out_stride) {
  for (int row = 0; row < block_lanes;) {
    // Weights outside of what the rows of a group see are exactly 0.
    const KeyRange keys = groups++->within({tile.key, tile.key + tile.keys});
    const std::int64_t first = keys.empty() ? 0 : (keys.begin - tile.key) / Format::keys;
    const std::int64_t number = keys.empty() ? 0 : (keys.end - tile.key + Format::keys - 1) / Format::keys - first;
    const float* p = tile.scores + first * score_stride + row;
    const float* values = v + first * block_lanes;
    float* to = out + row * out_stride;
    const int rows = next_rows(block_lanes - row, micro_rows);
    if (rows == 6) {
      output_rows<Format, 6, columns>(p, values, number, rescale + row, to, out_stride);
    } else {
      output_rows<Format, 4, columns>(p, values, number, rescale + row, to, out_stride);
    }
    row += rows;
  }
}

}  // namespace
}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
