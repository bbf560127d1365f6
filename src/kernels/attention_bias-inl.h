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

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {
namespace {  // a file compiled for more than its target must not lend its code to others

constexpr double log2_e = 1.4426950408889634;  // scores are exponents of 2

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
      : tile_(tile), c_(c), last_(last), edge_(last && tile.has_edge(0, tile.keys)), most_(hn::Load(F(), tile.maximum + c * lanes)) {}
  ~Finish() {
    if (last_) hn::Store(most_, F(), tile_.maximum + c_ * lanes);
  }
  Finish(const Finish&) = delete;
  Finish& operator=(const Finish&) = delete;

  HWY_INLINE void store(VF score, std::int64_t row) {
    if (edge_) score = hn::IfThenElse(visible(*tile_.lists, c_, tile_.key + row), score, hn::Set(F(), minus_infinity));
    most_ = hn::Max(score, most_);
    hn::Store(score, F(), tile_.at(row, c_));
  }

 private:
  const Tile& tile_;
  int c_;
  bool last_, edge_;
  VF most_;
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

  /// The value at the logarithms of the distances of the lanes.
  HWY_INLINE VF at(VF logs) {
    const F f;
    const VF x = hn::Mul(logs, inverse_);
    if (HWY_UNLIKELY(!hn::AllFalse(f, hn::Lt(x, hn::Load(f, from_))))) step_down(x);
    return hn::MulAdd(hn::Load(f, slope_), hn::Sub(x, hn::Load(f, from_)), hn::Load(f, value_));
  }

 private:
  HWY_NOINLINE void step_down(VF logs) {
    HWY_ALIGN float x[lanes];
    hn::Store(logs, F(), x);
    for (int lane = 0; lane < lanes; lane++) {
      if (x[lane] < from_[lane] && piece_[lane] > 0) enter(lane, x[lane], piece_[lane] - 1);
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
  const F f;
  HWY_ALIGN float by_lane[lanes];
  const std::int64_t last_key = tile.key + tile.keys - 1, number = block_lanes + tile.keys - 1;
  if (consecutive) {
    for (std::int64_t x = 0; x < number; x++) logs[x] = table.log_of(tile.lists->diagonal[0] - last_key + x);
  }
  for (int c = 0; c < vectors; c++) {
    const auto logs_at = [&](std::int64_t row) HWY_ATTR {
      if (consecutive) return hn::LoadU(f, logs + tile.keys - 1 + c * lanes - row);
      for (int lane = 0; lane < lanes; lane++) by_lane[lane] = table.log_of(tile.lists->diagonal[c * lanes + lane] - tile.key - row);
      return hn::Load(f, by_lane);
    };
    FireWalk walk(table.head(head), inverse + c * lanes, logs_at(0));
    Finish finish(tile, c, last);
    for (std::int64_t row = 0; row < tile.keys; row++) finish.store(hn::Add(hn::Load(f, tile.at(row, c)), walk.at(logs_at(row))), row);
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
  const F f;
  std::int32_t key_index[tile_keys];
  for (std::int64_t row = 0; row < tile.keys; row++) key_index[row] = table.key_index(tile.key + row);
  for (int c = 0; c < vectors; c++) {
    const GridRuns runs(table, head, tile.lists->diagonal + c * lanes);
    Finish finish(tile, c, last);
    for (std::int64_t row = 0; row < tile.keys; row++) {
      const VF values = runs.at(key_index[row], table.class_token() && tile.key + row == 0);
      finish.store(hn::Add(hn::Load(f, tile.at(row, c)), values), row);
    }
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
    const float given = static_cast<const float*>(mask_.data)[at];
    return given == given ? given : std::numeric_limits<float>::quiet_NaN();
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
