// SPDX-License-Identifier: Apache-2.0
// What is done to a tile of scores that the micro-kernel cannot do in passing: softcap, scores by distance, masks of any pattern.
// Compiled once per CPU target.

#if defined(GNOMON_KERNELS_ATTENTION_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_KERNELS_ATTENTION_BIAS_INL_H_
#undef GNOMON_KERNELS_ATTENTION_BIAS_INL_H_
#else
#define GNOMON_KERNELS_ATTENTION_BIAS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>

#include "kernels/attention_tables.hpp"
#include "kernels/attention_tile-inl.h"
#include "kernels/softmax_row.hpp"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {
namespace {  // a file compiled for more than its target must not lend its code to others

/// Calls change(vector, row, c) for each vector of a tile and stores what it returns.
template <class Change>
HWY_INLINE void change_scores(const Tile& tile, const Change& change) {
  for (std::int64_t row = 0; row < tile.keys; row++) {
    for (int c = 0; c < vectors; c++) hn::Store(change(hn::Load(F(), tile.at(row, c)), row, c), F(), tile.at(row, c));
  }
}

/// Where a change to a column of scores leaves them. The last change also masks them and takes their maximum.
class Finish {
 public:
  Finish(const Tile& tile, int c, bool last)
      : tile_(tile),
        scores_(tile.at(0, c)),
        c_(c),
        last_(last),
        edge_(last && tile.has_edge(0, tile.keys)),
        most_(hn::Load(F(), tile.maximum + c * lanes)),
        most_before_(most_) {}
  ~Finish() {
    if (last_) hn::Store(hn::Max(most_, most_before_), F(), tile_.maximum + c_ * lanes);
  }
  Finish(const Finish&) = delete;
  Finish& operator=(const Finish&) = delete;

  HWY_INLINE void add(VF bias, std::int64_t row) { store(hn::Add(bias, hn::Load(F(), scores_ + row * score_stride)), row); }
  HWY_INLINE void store(VF score, std::int64_t row) {
    if (edge_) score = hn::IfThenElse(visible(*tile_.lists, c_, tile_.key + row), score, hn::Set(F(), minus_infinity));
    const VF most = hn::Max(score, most_before_);  // two maxima in turn: neither waits for the row before
    most_before_ = most_;
    most_ = most;
    hn::Store(score, F(), scores_ + row * score_stride);
  }

 private:
  const Tile& tile_;
  float* scores_;
  int c_;
  bool last_, edge_;
  VF most_, most_before_;
};

inline void cap_scores(const Tile& tile, double cap) {
  const F f;
  const VF to = hn::Set(f, static_cast<float>(cap * log2_e)), from = hn::Set(f, static_cast<float>(1 / (cap * log2_e)));
  change_scores(tile, [&](VF score, std::int64_t, int) HWY_ATTR { return hn::Mul(to, tanh_of(hn::Mul(score, from))); });
}

/// The sum of the biases that depend on the distance alone, at `number` distances that run down from `distance`.
class DistanceRow {
 public:
  DistanceRow(std::span<const BiasTable> tables, std::int64_t head) : tables_(tables), head_(head) {}

  void fill(std::int64_t distance, std::int64_t number, float* to) const {
    double sums[block_lanes + tile_keys] = {};
    for (const auto& table : tables_) {
      if (const auto* slope = std::get_if<SlopeBias>(&table)) add(*slope, distance, number, sums);
      if (const auto* values = std::get_if<DistanceBias>(&table)) add(*values, distance, number, sums);
    }
    for (std::int64_t x = 0; x < number; x++) to[x] = static_cast<float>(sums[x] * log2_e);
  }

 private:
  void add(const SlopeBias& bias, std::int64_t distance, std::int64_t number, double* sums) const {
    const auto slope = static_cast<double>(bias.slopes[static_cast<std::size_t>(head_)]), ahead = bias.symmetric ? -slope : 0.0;
    for (std::int64_t x = 0; x < number; x++) {
      const auto d = static_cast<double>(distance - x);
      sums[x] += d * (d > 0 ? ahead : slope);
    }
  }
  void add(const DistanceBias& bias, std::int64_t distance, std::int64_t number, double* sums) const {
    // Beyond the last value, within, and before the first.
    const float* values = bias.values.data() + head_ * bias.distances;
    const std::int64_t last = bias.distances - 1, start = distance - bias.least;
    const std::int64_t within = std::clamp<std::int64_t>(start - last, 0, number),
                       before = std::clamp<std::int64_t>(start + 1, within, number);
    for (std::int64_t x = 0; x < within; x++) sums[x] += static_cast<double>(values[last]);
    for (std::int64_t x = within; x < before; x++) sums[x] += static_cast<double>(values[start - x]);
    for (std::int64_t x = before; x < number; x++) sums[x] += static_cast<double>(values[0]);
  }
  std::span<const BiasTable> tables_;
  std::int64_t head_;
};

/// The same bias where the diagonals of the lanes do not run on: at a seam of packed documents.
inline void add_distances_by_lane(const Tile& tile, const DistanceRow& row) {
  HWY_ALIGN float values[block_lanes];
  for (std::int64_t r = 0; r < tile.keys; r++) {
    for (int lane = 0; lane < block_lanes; lane++) row.fill(tile.key + r - tile.lists->diagonal[lane], 1, values + lane);
    for (int c = 0; c < vectors; c++)
      hn::Store(hn::Add(hn::Load(F(), tile.at(r, c)), hn::Load(F(), values + c * lanes)), F(), tile.at(r, c));
  }
}

inline void add_distances(const Tile& tile) {
  change_scores(
      tile, [&](VF score, std::int64_t row, int c) HWY_ATTR { return hn::Add(score, hn::LoadU(F(), tile.row_bias + c * lanes - row)); });
}

/// The lines of FIRE at the queries of one vector of lanes. Keys follow each other, so distances fall, and a lane steps down from piece to
/// piece.
class FireWalk {
 public:
  FireWalk(const FireTable::Head& head, const float* inverse, VF first_logs) : head_(head), inverse_(hn::Load(F(), inverse)) {
    HWY_ALIGN float x[lanes];
    hn::Store(hn::Mul(first_logs, inverse_), F(), x);
    std::size_t piece = head.piece_at(x[0]);
    for (int lane = 0; lane < lanes; lane++) {  // not far from its neighbour
      while (piece + 1 < head.from.size() && x[lane] >= head.from[piece + 1]) piece++;
      enter(lane, x[lane], piece);
      piece = piece_[lane];
    }
  }

  /// Adds the values of rows from `row` on, whose logarithms of distances are `step` apart, up to where a lane must step down before it
  /// goes on. Returns that row. No call is within the loop, so that its vectors stay in registers.
  HWY_INLINE std::int64_t follow(std::int64_t row, std::int64_t end, const float* logs, std::int64_t step, Finish& finish) {
    const F f;
    const VF inverse = inverse_;
    logs += row * step;
    VF x = hn::Mul(hn::LoadU(f, logs), inverse);
    const auto below = hn::Lt(x, hn::Load(f, from_));
    if (!hn::AllFalse(f, below)) step_down(x, below);
    const VF from = hn::Load(f, from_), slope = hn::Load(f, slope_), value = hn::Load(f, value_);
    do {
      finish.add(hn::MulAdd(slope, hn::Sub(x, from), value), row);
      if (++row == end) break;
      logs += step;
      x = hn::Mul(hn::LoadU(f, logs), inverse);
    } while (HWY_LIKELY(hn::AllFalse(f, hn::Lt(x, from))));
    return row;
  }

 private:
  HWY_NOINLINE void step_down(VF x, hn::Mask<F> below) {
    HWY_ALIGN float by_lane[lanes];
    hn::Store(x, F(), by_lane);
    while (!hn::AllFalse(F(), below)) {  // seldom more than one
      const auto lane = static_cast<int>(hn::FindFirstTrue(F(), below));
      if (piece_[lane] > 0) enter(lane, by_lane[lane], piece_[lane] - 1);
      below = hn::AndNot(hn::FirstN(F(), static_cast<std::size_t>(lane) + 1), below);
    }
  }
  void enter(int lane, float x, std::size_t piece) {
    while (piece > 0 && x < head_.from[piece]) piece--;
    piece_[lane] = piece;
    from_[lane] = head_.from[piece];
    slope_[lane] = head_.slope[piece];
    value_[lane] = head_.value[piece];
  }
  const FireTable::Head& head_;
  VF inverse_;
  HWY_ALIGN float from_[lanes], slope_[lanes], value_[lanes];
  std::size_t piece_[lanes];
};

/// inverse: (block_lanes), of the lengths of the queries. logs: scratch of block_lanes + tile_keys.
inline void add_fire(const Tile& tile, const FireTable& table, std::int64_t head, const float* inverse, bool consecutive, float* logs,
                     bool last) {
  HWY_ALIGN float by_lane[tile_keys * lanes];
  if (consecutive) table.read_logs(tile.lists->diagonal[0] - tile.key - tile.keys + 1, block_lanes + tile.keys - 1, logs);
  for (int c = 0; c < vectors; c++) {
    const float* first = logs + tile.keys - 1 + c * lanes;
    if (!consecutive) {
      for (std::int64_t i = 0; i < tile.keys * lanes; i++)
        by_lane[i] = table.log_of(tile.lists->diagonal[c * lanes + i % lanes] - tile.key - i / lanes);
      first = by_lane;
    }
    const std::int64_t step = consecutive ? -1 : lanes;
    FireWalk walk(table.head(head), inverse + c * lanes, hn::LoadU(F(), first));
    Finish finish(tile, c, last);
    for (std::int64_t row = 0; row < tile.keys;) row = walk.follow(row, tile.keys, first, step, finish);
  }
}

/// The offsets of one vector of queries: within a row of the image their places in the table follow each other, so that a few loads give
/// all of them.
class GridRuns {
 public:
  GridRuns(const GridTable& table, std::int64_t head, const std::int32_t* queries)
      : offsets_(table.offsets(head)), class_values_(table.class_values(head)) {
    for (int lane = 0; lane < lanes; lane++) {
      const std::int32_t start = table.query_index(queries[lane]) - lane;
      if (table.class_token() && queries[lane] == 0) class_lane_ = lane;
      if (lane > 0 && start == starts_[number_ - 1]) continue;
      before_[number_] = hn::FirstN(F(), static_cast<std::size_t>(lane));
      starts_[number_++] = start;
    }
  }

  /// Where one load gives all values of a key but the class token, at key index 0; null where it does not.
  const float* only_run() const { return number_ == 1 && class_lane_ < 0 ? offsets_ + starts_[0] : nullptr; }

  HWY_INLINE VF at(std::int32_t key_index, bool class_key) const {
    const F f;
    const float* from = offsets_ - key_index;
    VF values = hn::LoadU(f, from + starts_[0]);
    if constexpr (lanes > 1) {
      for (int i = 1; i < number_; i++) values = hn::IfThenElse(before_[i], values, hn::LoadU(f, from + starts_[i]));
    }
    if (class_key) values = hn::Set(f, class_values_[1]);
    if (class_lane_ < 0) return values;
    const auto up_to = hn::FirstN(f, static_cast<std::size_t>(class_lane_ + 1)),
               before = hn::FirstN(f, static_cast<std::size_t>(class_lane_));
    return hn::IfThenElse(hn::AndNot(before, up_to), hn::Set(f, class_values_[class_key ? 2 : 0]), values);
  }

 private:
  const float *offsets_, *class_values_;
  int number_ = 0, class_lane_ = -1;
  hn::Mask<F> before_[lanes];  // lanes before each run
  std::int32_t starts_[lanes];
};

inline void add_grid(const Tile& tile, const GridTable& table, std::int64_t head, bool last) {
  const std::int32_t* key_index = table.key_indices(tile.key);
  for (int c = 0; c < vectors; c++) {
    const GridRuns runs(table, head, tile.lists->diagonal + c * lanes);
    Finish finish(tile, c, last);
    const float* from = runs.only_run();
    const bool class_key = table.class_token() && tile.key == 0;
    const std::int64_t others = from == nullptr ? tile.keys : class_key ? 1 : 0;
    for (std::int64_t row = 0; row < others; row++) finish.add(runs.at(key_index[row], class_key && row == 0), row);
    for (std::int64_t row = others; row < tile.keys; row++) finish.add(hn::LoadU(F(), from - key_index[row]), row);
  }
}

/// A mask tensor, at the queries of a lane block.
class MaskReader {
 public:
  MaskReader(const AttentionMask& mask, std::int64_t b, std::int64_t head, std::int64_t query, std::int64_t queries)
      : mask_(mask), start_(b * mask.strides[0] + head * mask.strides[1] + query * mask.strides[2]), queries_(queries) {}

  /// What is added to a score; −inf hides the key.
  float value(std::int64_t lane, std::int64_t key) const {
    if (lane >= queries_) return 0;
    const std::int64_t at = start_ + lane * mask_.strides[2] + key * mask_.strides[3];
    if (!mask_.additive) return static_cast<const std::uint8_t*>(mask_.data)[at] != 0 ? 0 : minus_infinity;
    return mask_addend(static_cast<const float*>(mask_.data)[at]);
  }
  bool hides(std::int64_t lane, std::int64_t key) const { return mask_.data != nullptr && value(lane, key) == minus_infinity; }

  void add(const Tile& tile) const {
    const F f;
    HWY_ALIGN float values[block_lanes];
    for (std::int64_t r = 0; r < tile.keys; r++) {
      for (int lane = 0; lane < block_lanes; lane++) values[lane] = value(lane, tile.key + r);
      for (int c = 0; c < vectors; c++) {
        const VF given = hn::Load(f, values + c * lanes), hidden = hn::Set(f, minus_infinity);
        const VF sum = hn::MulAdd(given, hn::Set(f, static_cast<float>(log2_e)), hn::Load(f, tile.at(r, c)));
        hn::Store(hn::IfThenElse(hn::Eq(given, hidden), hidden, sum), f, tile.at(r, c));
      }
    }
  }

 private:
  const AttentionMask& mask_;
  std::int64_t start_, queries_;
};

/// The intervals and the running maximum once more, after changes to the scores.
inline void finish_scores(const Tile& tile) {
  for (int c = 0; c < vectors; c++) {
    Finish finish(tile, c, true);
    for (std::int64_t row = 0; row < tile.keys; row++) finish.store(hn::Load(F(), tile.at(row, c)), row);
  }
}

}  // namespace
}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
