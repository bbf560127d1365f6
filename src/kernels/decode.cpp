// SPDX-License-Identifier: Apache-2.0
// The decode kernel: few query rows against many keys, so bound by reading the cache. Each key and value is read once for all rows that
// share it, and what comes next is prefetched evenly. One source, compiled for every CPU target.
#include "kernels/decode.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

// Dots and sums are arrays of vectors; where vectors have no size, those of NEON run.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/elements-inl.h"
#include "kernels/exp2-inl.h"
#include "kernels/softmax_row.hpp"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

constexpr std::int64_t decode_lanes = HWY_LANES(float), decode_step = 2 * decode_lanes;  // channels read at once: two vectors
constexpr std::int64_t block_keys = 32;                                                  // a multiple of the lanes of every target
constexpr float no_score = -std::numeric_limits<float>::infinity();

// Rows that share a pass over the keys: as many as the registers hold sums for.
#undef GNOMON_DECODE_ROWS
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define GNOMON_DECODE_ROWS 4
#else
#define GNOMON_DECODE_ROWS 2
#endif

/// Channels [0, decode_step) of a row as two vectors. Queries and results are kept in the order this gives.
template <class Elements>
struct Pair {
  using Element = typename Elements::Element;
  static constexpr std::int64_t place(std::int64_t d) { return d; }
#if HWY_TARGET != HWY_SCALAR
  static HWY_INLINE void load(const Element* x, VF& a, VF& b) {
    a = Elements::load(x);
    b = Elements::load(x + decode_lanes);
  }
#else
  static HWY_INLINE void load(const Element* x, VF& a, VF& b) {
    a = hn::Set(F(), Elements::widen(x[0]));
    b = hn::Set(F(), Elements::widen(x[1]));
  }
#endif
};

#if HWY_TARGET != HWY_SCALAR
/// Two bf16 stand in each 32-bit lane: the even ones by a shift, the odd ones by a mask.
template <>
struct Pair<ElementsBf16> {
  using Element = std::uint16_t;
  static constexpr std::int64_t place(std::int64_t d) { return d / decode_step * decode_step + d % 2 * decode_lanes + d % decode_step / 2; }
  static HWY_INLINE void load(const std::uint16_t* x, VF& a, VF& b) {
    const VU both = hn::LoadU(U(), reinterpret_cast<const std::uint32_t*>(x));
    a = hn::BitCast(F(), hn::ShiftLeft<16>(both));
    b = hn::BitCast(F(), hn::And(both, hn::Set(U(), 0xffff0000u)));
  }
};
#endif

/// The last channels of a row whose width is no multiple of the step, with zeros after them.
template <class Elements>
HWY_INLINE void load_rest(const typename Elements::Element* x, std::int64_t number, VF& a, VF& b) {
  typename Elements::Element padded[decode_step] = {};
  std::copy(x, x + number, padded);
  Pair<Elements>::load(padded, a, b);
}

#if HWY_TARGET != HWY_SCALAR
/// Sums over each 128-bit block of four vectors: lane i of a block is that of vector i.
HWY_INLINE VF block_sums(VF v0, VF v1, VF v2, VF v3) {
  const F f;
  const hn::RepartitionToWide<F> wide;
  const VF a = hn::Add(hn::InterleaveLower(f, v0, v1), hn::InterleaveUpper(f, v0, v1));
  const VF b = hn::Add(hn::InterleaveLower(f, v2, v3), hn::InterleaveUpper(f, v2, v3));
  const auto a2 = hn::BitCast(wide, a), b2 = hn::BitCast(wide, b);
  return hn::Add(hn::BitCast(f, hn::InterleaveLower(wide, a2, b2)), hn::BitCast(f, hn::InterleaveUpper(wide, a2, b2)));
}
#endif

/// Keys scored together: a vector of scores.
constexpr std::int64_t score_keys = decode_lanes, quads = (score_keys + 3) / 4;

/// Which four keys quad i of a vector of scores holds, so that they come out in order.
constexpr std::int64_t quad_key(std::int64_t i) { return quads == 4 ? (i == 1 ? 8 : i == 2 ? 4 : 4 * i) : 4 * i; }

/// The sums of blocks, (quads) vectors, added up to a vector of scores.
HWY_INLINE VF total(const float* sums) {
  const F f;
  const VF x0 = hn::Load(f, sums);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (quads == 2) {
    const VF x1 = hn::Load(f, sums + decode_lanes);
    return hn::Add(hn::ConcatLowerLower(f, x1, x0), hn::ConcatUpperUpper(f, x1, x0));
  }
  if constexpr (quads == 4) {
    const VF x1 = hn::Load(f, sums + decode_lanes), x2 = hn::Load(f, sums + 2 * decode_lanes), x3 = hn::Load(f, sums + 3 * decode_lanes);
    const VF y0 = hn::Add(hn::ConcatLowerLower(f, x1, x0), hn::ConcatUpperUpper(f, x1, x0));
    const VF y1 = hn::Add(hn::ConcatLowerLower(f, x3, x2), hn::ConcatUpperUpper(f, x3, x2));
    return hn::Add(hn::OddEvenBlocks(y1, y0), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(y0, y1)));
  }
#endif
  return x0;
}

template <class Element>
HWY_INLINE void prefetch_step(const Element* x, std::int64_t channel) {
  constexpr std::int64_t bytes = decode_step * static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t line = 0; line < bytes; line += 64) {
    if (bytes >= 64 || channel * static_cast<std::int64_t>(sizeof(Element)) % 64 == 0)
      hwy::Prefetch(reinterpret_cast<const char*>(x + channel) + line);
  }
}

/// Rows of keys or of values of a block, by pointer, so that pages and strides are nobody's business; and of the block after it.
template <class Element>
struct Block {
  const Element* rows[block_keys];
  const Element* next[block_keys];
};

#if HWY_TARGET != HWY_SCALAR
/// Four keys, `rows` queries: their products summed to a block of four lanes for each query.
template <class Elements, int rows, bool ahead>
HWY_INLINE void score_four(const float* HWY_RESTRICT q, std::int64_t stride, const Block<typename Elements::Element>& keys,
                           std::int64_t key, std::int64_t width, float* sums) {
  constexpr int chains = rows == 1 ? 2 : 1;  // enough sums to hide the latency of adding to one
  const F f;
  const auto* const* x = keys.rows + key;
  VF dot[4][rows][chains];
#pragma GCC unroll 4
  for (int r = 0; r < 4; r++)
#pragma GCC unroll 4
    for (int g = 0; g < rows; g++)
#pragma GCC unroll 2
      for (int c = 0; c < chains; c++) dot[r][g][c] = hn::Zero(f);
  const auto add = [&](std::int64_t d, const VF(&a)[4], const VF(&b)[4]) HWY_ATTR {
#pragma GCC unroll 4
    for (int g = 0; g < rows; g++) {
      const VF q0 = hn::Load(f, q + g * stride + d), q1 = hn::Load(f, q + g * stride + d + decode_lanes);
#pragma GCC unroll 4
      for (int r = 0; r < 4; r++) dot[r][g][0] = hn::MulAdd(q0, a[r], dot[r][g][0]);
#pragma GCC unroll 4
      for (int r = 0; r < 4; r++) dot[r][g][chains - 1] = hn::MulAdd(q1, b[r], dot[r][g][chains - 1]);
    }
  };
  VF a[4], b[4];
  std::int64_t d = 0;
  for (; d + decode_step <= width; d += decode_step) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
      if constexpr (ahead) prefetch_step(keys.next[key + r], d);
      Pair<Elements>::load(x[r] + d, a[r], b[r]);
    }
    add(d, a, b);
  }
  if (d < width) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) load_rest<Elements>(x[r] + d, width - d, a[r], b[r]);
    add(d, a, b);
  }
#pragma GCC unroll 4
  for (int g = 0; g < rows; g++) {
    if constexpr (chains == 2) {
#pragma GCC unroll 4
      for (int r = 0; r < 4; r++) dot[r][g][0] = hn::Add(dot[r][g][0], dot[r][g][1]);
    }
    hn::Store(block_sums(dot[0][g][0], dot[1][g][0], dot[2][g][0], dot[3][g][0]), f, sums + g * quads * decode_lanes);
  }
}
#endif

/// scores[g][0, number) of `rows` queries; `number` is rounded up to whole vectors of keys.
template <class Elements, int rows, bool ahead>
HWY_NOINLINE void score_block(const float* HWY_RESTRICT q, std::int64_t stride, const Block<typename Elements::Element>& keys,
                              std::int64_t number, std::int64_t width, float* scores) {
#if HWY_TARGET != HWY_SCALAR
  HWY_ALIGN float sums[rows * quads * decode_lanes];
  for (std::int64_t j = 0; j < number; j += score_keys) {
    for (std::int64_t i = 0; i < quads; i++) {
      score_four<Elements, rows, ahead>(q, stride, keys, j + quad_key(i), width, sums + i * decode_lanes);
    }
#pragma GCC unroll 4
    for (int g = 0; g < rows; g++) hn::Store(total(sums + g * quads * decode_lanes), F(), scores + g * block_keys + j);
  }
#else
  for (int g = 0; g < rows; g++) {
    for (std::int64_t j = 0; j < number; j++) {
      float sum = 0;
      for (std::int64_t d = 0; d < width; d++) sum += q[g * stride + d] * Elements::widen(keys.rows[j][d]);
      scores[g * block_keys + j] = sum;
    }
  }
#endif
}

/// result = factor * result + weights · values, for `rows` queries and channels [d, d + pairs * decode_step) of the values.
template <class Elements, int rows, int pairs, bool ahead>
HWY_INLINE void add_channels(const float* HWY_RESTRICT weights, const Block<typename Elements::Element>& values, std::int64_t number,
                             std::int64_t d, std::int64_t width, const float* factors, float* HWY_RESTRICT result, std::int64_t stride) {
  const F f;
  VF sum[rows][2 * pairs];
#pragma GCC unroll 4
  for (int g = 0; g < rows; g++) {
    const VF factor = hn::Set(f, factors[g]);
#pragma GCC unroll 8
    for (int c = 0; c < 2 * pairs; c++) sum[g][c] = hn::Mul(factor, hn::Load(f, result + g * stride + d + c * decode_lanes));
  }
  const bool whole = d + pairs * decode_step <= width;
  for (std::int64_t j = 0; j < number; j++) {
    const auto* x = values.rows[j] + d;
    VF v[2 * pairs];
    if (whole) {
#pragma GCC unroll 4
      for (int c = 0; c < pairs; c++) {
        if constexpr (ahead) prefetch_step(values.next[j], d + c * decode_step);
        Pair<Elements>::load(x + c * decode_step, v[2 * c], v[2 * c + 1]);
      }
    } else {
      load_rest<Elements>(x, width - d, v[0], v[1]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < rows; g++) {
      const VF weight = hn::Set(f, weights[g * block_keys + j]);
#pragma GCC unroll 8
      for (int c = 0; c < 2 * pairs; c++) sum[g][c] = hn::MulAdd(weight, v[c], sum[g][c]);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < rows; g++) {
#pragma GCC unroll 8
    for (int c = 0; c < 2 * pairs; c++) hn::Store(sum[g][c], f, result + g * stride + d + c * decode_lanes);
  }
}

template <class Elements, int rows, bool ahead>
HWY_NOINLINE void add_block(const float* weights, const Block<typename Elements::Element>& values, std::int64_t number, std::int64_t width,
                            const float* factors, float* result, std::int64_t stride) {
  constexpr int pairs = rows * 2 > GNOMON_DECODE_ROWS ? 2 : 4;
  std::int64_t d = 0;
  for (; d + pairs * decode_step <= width; d += pairs * decode_step) {
    add_channels<Elements, rows, pairs, ahead>(weights, values, number, d, width, factors, result, stride);
  }
  for (; d < width; d += decode_step) {
    add_channels<Elements, rows, 1, ahead>(weights, values, number, d, width, factors, result, stride);
  }
}

template <class Elements>
class Decoder {
 public:
  using Element = typename Elements::Element;

  Decoder(const DecodeTask& task, DecodePartial* partials) : task_(task), partials_(partials) {
    q_stride_ = padded(task.k.width);
    result_stride_ = padded(task.v.width);
    memory_.resize(static_cast<std::size_t>(task.rows * (q_stride_ + result_stride_ + block_keys)) + 16);
    const auto misplaced = reinterpret_cast<std::uintptr_t>(memory_.data()) % 64 / sizeof(float);
    q_ = memory_.data() + (16 - misplaced) % 16;
    result_ = q_ + task.rows * q_stride_;
    scores_ = result_ + task.rows * result_stride_;
    for (std::int64_t row = 0; row < task.rows; row++) {
      for (std::int64_t d = 0; d < task.k.width; d++) q_[row * q_stride_ + Pair<Elements>::place(d)] = task.q[row * task.k.width + d];
      partials_[row] = {no_score, 0};
    }
  }

  void run(float* values) {
    for (std::int64_t i = 0; i < task_.number; i++) add_range(task_.ranges[i]);
    for (std::int64_t row = 0; row < task_.rows; row++) {
      for (std::int64_t d = 0; d < task_.v.width; d++)
        values[row * task_.v.width + d] = result_[row * result_stride_ + Pair<Elements>::place(d)];
    }
  }

 private:
  static std::int64_t padded(std::int64_t width) { return (width + decode_step - 1) / decode_step * decode_step; }

  const Element* at(const DecodeCache& cache, std::int64_t key) const {
    const auto* data = static_cast<const Element*>(cache.data) + task_.h * cache.strides[1];
    if (task_.block_table == nullptr) return data + task_.b * cache.strides[0] + key * cache.strides[2];
    return data + task_.block_table[key / task_.page_size] * cache.strides[0] + key % task_.page_size * cache.strides[2];
  }

  /// Pointers to keys [begin, end), the last of them again where there are less than a block.
  void point(const DecodeCache& cache, std::int64_t begin, std::int64_t end, const Element** to) const {
    std::int64_t key = begin;
    for (std::int64_t j = 0; j < block_keys;) {
      const std::int64_t page_end = task_.block_table == nullptr ? end : (key / task_.page_size + 1) * task_.page_size;
      const std::int64_t number = std::min(std::min(page_end, end) - key, block_keys - j);
      const Element* row = at(cache, key);
      for (std::int64_t i = 0; i < number; i++, row += cache.strides[2]) to[j + i] = row;
      j += number;
      key += number;
      if (key < end) continue;
      std::fill(to + j, to + block_keys, to[j - 1]);
      return;
    }
  }

  void add_range(const DecodeRange& range) {
    point(task_.k, range.begin, range.end, keys_.next);
    point(task_.v, range.begin, range.end, values_.next);
    for (std::int64_t key = range.begin; key < range.end; key += block_keys) {
      std::copy_n(keys_.next, block_keys, keys_.rows);
      std::copy_n(values_.next, block_keys, values_.rows);
      const std::int64_t end = std::min(key + block_keys, range.end);
      if (end < range.end) point(task_.k, end, range.end, keys_.next);
      if (end < range.end) point(task_.v, end, range.end, values_.next);
      add(range, key, end - key);
    }
  }

  void add(const DecodeRange& range, std::int64_t key, std::int64_t number) {
    float factors[most_decode_rows];
    const std::int64_t past = range.first_row + range.rows;
    for_rows(range.first_row, past, [&]<int rows, bool ahead>(std::int64_t row) {
      score_block<Elements, rows, ahead>(q_ + row * q_stride_, q_stride_, keys_, number, task_.k.width, scores_ + row * block_keys);
    });
    for (std::int64_t row = range.first_row; row < past; row++) factors[row] = weigh(row, key, number);
    for_rows(range.first_row, past, [&]<int rows, bool ahead>(std::int64_t row) {
      add_block<Elements, rows, ahead>(scores_ + row * block_keys, values_, number, task_.v.width, factors + row,
                                       result_ + row * result_stride_, result_stride_);
    });
  }

  /// Rows in the largest groups there are; the first one asks for what comes next.
  template <class Body>
  static void for_rows(std::int64_t begin, std::int64_t end, Body&& body) {
    bool ahead = true;
    for (std::int64_t row = begin; row < end; ahead = false) {
      const std::int64_t left = end - row;
#if GNOMON_DECODE_ROWS == 4
      if (left >= 4) {
        ahead ? body.template operator()<4, true>(row) : body.template operator()<4, false>(row);
        row += 4;
        continue;
      }
#endif
      if (left >= 2) {
        ahead ? body.template operator()<2, true>(row) : body.template operator()<2, false>(row);
        row += 2;
      } else {
        ahead ? body.template operator()<1, true>(row) : body.template operator()<1, false>(row);
        row += 1;
      }
    }
  }

  /// Scores to weights, in place; what the results so far are to be multiplied by.
  float weigh(std::int64_t row, std::int64_t key, std::int64_t number) {
    const F f;
    float* scores = scores_ + row * block_keys;
    if (task_.softcap != 0) cap(scores, number);
    for (std::int64_t table = 0; table < task_.tables; table++) {
      add_bias(task_.bias[table * task_.rows + row], key - task_.diagonal[row], number, scores);
    }
    const std::int64_t whole = (number + decode_lanes - 1) / decode_lanes * decode_lanes;
    std::fill(scores + number, scores + whole, no_score);
    VF most = hn::Load(f, scores);
    for (std::int64_t j = decode_lanes; j < whole; j += decode_lanes) most = hn::Max(hn::Load(f, scores + j), most);
    DecodePartial& partial = partials_[row];
    const float greatest = std::max(partial.maximum, hn::GetLane(hn::MaxOfLanes(f, most)));
    const VF shift = hn::Set(f, greatest == no_score ? 0 : greatest);
    VF sum = hn::Zero(f);
    for (std::int64_t j = 0; j < whole; j += decode_lanes) {
      const VF weight = exp2_of_nonpositive(hn::Sub(hn::Load(f, scores + j), shift));
      hn::Store(weight, f, scores + j);
      sum = hn::Add(sum, weight);
    }
    const float factor = hn::GetLane(exp2_of_nonpositive(hn::Sub(hn::Set(f, partial.maximum), shift)));
    partial = {greatest, partial.sum * factor + hn::GetLane(hn::SumOfLanes(f, sum))};
    return factor;
  }

  void cap(float* scores, std::int64_t number) const {
    const F f;
    const VF to = hn::Set(f, task_.softcap), from = hn::Set(f, 1 / task_.softcap);
    for (std::int64_t j = 0; j < number; j += decode_lanes) {
      hn::Store(hn::Mul(to, tanh_of(hn::Mul(hn::Load(f, scores + j), from))), f, scores + j);
    }
  }

  /// distance: of the first key.
  static void add_bias(const DecodeBias& bias, std::int64_t distance, std::int64_t number, float* scores) {
    if (bias.values == nullptr) {
      for (std::int64_t j = 0; j < number; j++) {
        const std::int64_t d = distance + j;
        scores[j] -= bias.slope * static_cast<float>(d < 0 ? -d : bias.symmetric ? d : 0);
      }
      return;
    }
    for (std::int64_t j = 0; j < number; j++) {
      scores[j] += static_cast<float>(log2_e) * bias.values[std::clamp<std::int64_t>(distance + j - bias.least, 0, bias.distances - 1)];
    }
  }

  const DecodeTask& task_;
  DecodePartial* partials_;
  std::int64_t q_stride_ = 0, result_stride_ = 0;
  std::vector<float> memory_;
  float *q_ = nullptr, *result_ = nullptr, *scores_ = nullptr;  // (rows, ·)
  Block<Element> keys_, values_;
};

void run_decode(const DecodeTask& task, DecodePartial* partials, float* values) {
  if (task.dtype == DType::f32) return Decoder<ElementsF32>(task, partials).run(values);
  if (task.dtype == DType::bf16) return Decoder<ElementsBf16>(task, partials).run(values);
  Decoder<ElementsF16>(task, partials).run(values);
}

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(run_decode);

void decode(const DecodeTask& task, DecodePartial* partials, float* values) { HWY_DYNAMIC_DISPATCH(run_decode)(task, partials, values); }

}  // namespace gnomon::kernels
#endif
