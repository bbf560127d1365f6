// SPDX-License-Identifier: Apache-2.0
// The kernel of attention statistics: one source, compiled for every CPU target and chosen at run time.
//
// A tile of scores is held transposed, K Qᵀ: rows are keys, read as they lie; lanes are queries. So every sum over the keys of a query is
// lane by lane. Sums of one tile are float32, sums of tiles double.
#include "kernels/attention_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_statistics.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "hwy/contrib/math/math-inl.h"
#include "kernels/elements-inl.h"
#include "kernels/softmax_row.hpp"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

std::int64_t rows_of_statistics() { return 2 * static_cast<std::int64_t>(hn::Lanes(F())); }

/// A row of a tensor as float32.
inline void widen_head(const ConstTensorView& x, std::int64_t b, std::int64_t head, std::int64_t token, float* to) {
  const std::int64_t offset = b * x.strides[0] + head * x.strides[1] + token * x.strides[2];
  if (x.dtype == DType::f32) {
    std::copy_n(static_cast<const float*>(x.data) + offset, x.shape[3], to);
    return;
  }
  const auto* bits = static_cast<const std::uint16_t*>(x.data) + offset;
  const auto widen = x.dtype == DType::bf16 ? ElementsBf16::widen : ElementsF16::widen;
  for (std::int64_t d = 0; d < x.shape[3]; d++) to[d] = widen(bits[d]);
}

/// A block of queries of one head, one in each lane of two vectors.
class StatisticsBlock {
 public:
  StatisticsBlock(const StatisticsJob& job, std::int64_t b, std::int64_t head, std::int64_t query)
      : job_(job),
        b_(b),
        head_(head),
        query_(query),
        queries_(std::min(block_, job.q.shape[2] - query)),
        width_(job.q.shape[3]),
        q_(floats(width_ * block_)),
        k_(floats(tile_keys * width_)),
        scores_(floats(tile_keys * block_)),
        bias_(floats(tile_keys * block_)),
        log_sum_exp_(floats(block_)),
        seen_(static_cast<std::size_t>(block_)),
        diagonal_(static_cast<std::size_t>(block_)),
        totals_(static_cast<std::size_t>(block_)) {
    read_intervals();
    load_queries();
  }

  void run(double* bins) {
    std::int64_t begin = job_.k.shape[2], end = 0;
    for (const auto& seen : seen_) {
      if (seen.begin < seen.end) begin = std::min<std::int64_t>(begin, seen.begin);
      if (seen.kept_begin < seen.kept_end) begin = std::min<std::int64_t>(begin, seen.kept_begin);
      end = std::max<std::int64_t>(end, std::max(seen.end, seen.kept_end));
    }
    for (std::int64_t key = begin; key < end; key += tile_keys) visit(key, std::min(tile_keys, end - key), bins);
    for (std::int64_t lane = 0; lane < queries_; lane++) write(lane);
  }

 private:
  static constexpr std::int64_t tile_keys = 64;
  static constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

  /// What a query sees: [begin, end) and [kept_begin, kept_end), and which keys are the first of its sequence.
  struct Seen {
    std::int32_t begin = 0, end = 0, kept_begin = 0, kept_end = 0, first = 0, first_end = 0;
    bool sees(std::int64_t key) const { return (key >= begin && key < end) || (key >= kept_begin && key < kept_end); }
  };
  struct Totals {
    double mass = 0, entropy = 0, distance = 0, first = 0, window = 0;
    float maximum = 0;
  };

  static std::vector<float> floats(std::int64_t number) { return std::vector<float>(static_cast<std::size_t>(number)); }
  template <class List>
  static auto& at(List& list, std::int64_t index) {
    return list[static_cast<std::size_t>(index)];
  }

  void read_intervals() {
    const std::int64_t keys = job_.k.shape[2];
    for (std::int64_t lane = 0; lane < block_; lane++) {
      auto& seen = at(seen_, lane);
      // Lanes past the last query see nothing, and stand where a query would.
      const std::int64_t query = query_ + std::min(lane, queries_ - 1);
      if (job_.mask == nullptr) {
        seen.end = static_cast<std::int32_t>(keys);
        at(diagonal_, lane) = static_cast<std::int32_t>(query + keys - job_.q.shape[2]);
      } else {
        const auto& mask = *job_.mask;
        const auto row = static_cast<std::size_t>((mask.batch == 1 ? 0 : b_) * mask.queries + query);
        seen.begin = mask.begin[row];
        seen.end = mask.end[row];
        seen.first = seen.kept_begin = mask.first[row];
        seen.kept_end = static_cast<std::int32_t>(std::min<std::int64_t>(seen.first + mask.keep_first, seen.end));
        at(diagonal_, lane) = mask.diagonal[row];
      }
      seen.first_end = static_cast<std::int32_t>(std::min(seen.first + std::min(job_.statistics->first_keys, keys), keys));
      if (lane >= queries_) seen = {};
    }
    for (std::int64_t lane = 1; lane < queries_; lane++) consecutive_ &= at(diagonal_, lane) == diagonal_[0] + lane;
  }

  void load_queries() {
    for (std::int64_t lane = 0; lane < queries_; lane++) {
      widen_head(job_.q, b_, head_, query_ + lane, k_.data());
      const auto& factors = job_.query_factors;
      const bool by_batch = static_cast<std::int64_t>(factors.size()) != job_.q.shape[2];
      const float factor = factors.empty() ? 1 : at(factors, (by_batch ? b_ * job_.q.shape[2] : 0) + query_ + lane);
      for (std::int64_t d = 0; d < width_; d++) at(q_, d * block_ + lane) = at(k_, d) * (job_.scale * factor);
      const float log_sum = job_.log_sum_exp[(b_ * job_.q.shape[1] + head_) * job_.q.shape[2] + query_ + lane];
      at(log_sum_exp_, lane) = log_sum < -1e30f ? 0 : log_sum;  // a query that sees nothing, or less than any model scores
    }
  }

  void visit(std::int64_t key, std::int64_t keys, double* bins) {
    bool any = false, all = true;
    for (std::int64_t lane = 0; lane < queries_; lane++) {
      const auto& seen = at(seen_, lane);
      any |= std::max<std::int64_t>(seen.begin, key) < std::min<std::int64_t>(seen.end, key + keys) ||
             std::max<std::int64_t>(seen.kept_begin, key) < std::min<std::int64_t>(seen.kept_end, key + keys);
      all &= seen.begin <= key && key + keys <= seen.end;
    }
    if (!any) return;
    const std::int64_t kv_head = head_ / (job_.q.shape[1] / job_.k.shape[1]);
    if (job_.k.dtype == DType::f32) {
      const auto* k = static_cast<const float*>(job_.k.data) + b_ * job_.k.strides[0] + kv_head * job_.k.strides[1];
      score(k + key * job_.k.strides[2], job_.k.strides[2], keys);
    } else {
      for (std::int64_t r = 0; r < keys; r++) widen_head(job_.k, b_, kv_head, key + r, k_.data() + r * width_);
      score(k_.data(), width_, keys);
    }
    if (job_.softcap != 0) cap(keys);
    if (!job_.bias.empty()) add_bias(key, keys);
    if (job_.mask_tensor != nullptr) add_mask(key, keys);
    if (!all || queries_ < block_) hide(key, keys);
    weigh(key, keys);
    sort_by_distance(key, keys, bins);
  }

  /// Rows of scores, four at a time; those past the last key hold what the last one has.
  void score(const float* k, std::int64_t stride, std::int64_t keys) {
    const F f;
    for (std::int64_t r = 0; r < keys; r += 4) {
      const float *k0 = k + r * stride, *k1 = k + std::min(r + 1, keys - 1) * stride, *k2 = k + std::min(r + 2, keys - 1) * stride,
                  *k3 = k + std::min(r + 3, keys - 1) * stride;
      VF a0 = hn::Zero(f), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
      const float* q = q_.data();
      for (std::int64_t d = 0; d < width_; d++, q += block_) {
        const VF first = hn::LoadU(f, q), second = hn::LoadU(f, q + lanes_);
        const VF x0 = hn::Set(f, k0[d]), x1 = hn::Set(f, k1[d]), x2 = hn::Set(f, k2[d]), x3 = hn::Set(f, k3[d]);
        a0 = hn::MulAdd(x0, first, a0);
        b0 = hn::MulAdd(x0, second, b0);
        a1 = hn::MulAdd(x1, first, a1);
        b1 = hn::MulAdd(x1, second, b1);
        a2 = hn::MulAdd(x2, first, a2);
        b2 = hn::MulAdd(x2, second, b2);
        a3 = hn::MulAdd(x3, first, a3);
        b3 = hn::MulAdd(x3, second, b3);
      }
      float* to = scores_.data() + r * block_;
      store_row(a0, b0, to);
      store_row(a1, b1, to + block_);
      store_row(a2, b2, to + 2 * block_);
      store_row(a3, b3, to + 3 * block_);
    }
  }
  HWY_INLINE void store_row(VF first, VF second, float* to) const {
    hn::StoreU(first, F(), to);
    hn::StoreU(second, F(), to + lanes_);
  }

  void cap(std::int64_t keys) {
    const F f;
    const VF cap = hn::Set(f, job_.softcap), inverse = hn::Set(f, 1 / job_.softcap);
    for (float* x = scores_.data(); x != scores_.data() + keys * block_; x += lanes_) {
      const VF score = hn::LoadU(f, x);
      const VF capped = hn::Mul(cap, hn::Tanh(f, hn::Mul(score, inverse)));
      hn::StoreU(hn::IfThenElse(hn::Eq(score, score), capped, score), f, x);  // NaN stays
    }
  }

  /// The bias of row r begins at bias_[origin − step · r]: where it follows from lane − r alone, one row serves them all.
  void add_bias(std::int64_t key, std::int64_t keys) {
    const F f;
    const bool by_distance = consecutive_ && std::all_of(job_.bias.begin(), job_.bias.end(), [](const BiasTable& table) {
                               return std::holds_alternative<SlopeBias>(table) || std::holds_alternative<DistanceBias>(table);
                             });
    if (by_distance) {
      for (std::int64_t x = 0; x < block_ + keys - 1; x++) at(bias_, x) = bias(0, key - diagonal_[0] - (x - (keys - 1)), 0);
    } else {
      for (std::int64_t r = 0; r < keys; r++) {
        for (std::int64_t lane = 0; lane < queries_; lane++) {
          const std::int64_t diagonal = at(diagonal_, lane);
          at(bias_, r * block_ + lane) = bias(diagonal, key + r, diagonal - at(seen_, lane).first);
        }
      }
    }
    for (std::int64_t r = 0; r < keys; r++) {
      const float* from = bias_.data() + (by_distance ? keys - 1 - r : r * block_);
      float* to = scores_.data() + r * block_;
      for (std::int64_t c = 0; c < block_; c += lanes_) hn::StoreU(hn::Add(hn::LoadU(f, to + c), hn::LoadU(f, from + c)), f, to + c);
    }
  }
  float bias(std::int64_t query, std::int64_t key, std::int64_t position) const {
    double sum = 0;
    for (const auto& table : job_.bias) sum += bias_at(table, head_, query, key, position);
    return static_cast<float>(sum);
  }

  void add_mask(std::int64_t key, std::int64_t keys) {
    const auto& mask = *job_.mask_tensor;
    const std::int64_t start = b_ * mask.strides[0] + head_ * mask.strides[1];
    for (std::int64_t lane = 0; lane < queries_; lane++) {
      for (std::int64_t r = 0; r < keys; r++) {
        const std::int64_t index = start + (query_ + lane) * mask.strides[2] + (key + r) * mask.strides[3];
        float& score = at(scores_, r * block_ + lane);
        if (mask.kind == MaskTensor::Kind::boolean) {
          if (static_cast<const std::uint8_t*>(mask.data)[index] == 0) score = minus_infinity;
        } else {
          const float added = mask_addend(static_cast<const float*>(mask.data)[index]);
          score = added == minus_infinity ? minus_infinity : score + added;
        }
      }
    }
  }

  void hide(std::int64_t key, std::int64_t keys) {
    for (std::int64_t r = 0; r < keys; r++) {
      for (std::int64_t lane = 0; lane < block_; lane++) {
        if (!at(seen_, lane).sees(key + r)) at(scores_, r * block_ + lane) = minus_infinity;
      }
    }
  }

  /// Scores become weights, and the sums over them grow.
  void weigh(std::int64_t key, std::int64_t keys) {
    for (std::int64_t c = 0; c < block_; c += lanes_) weigh_lanes(key, keys, c);
  }
  void weigh_lanes(std::int64_t key, std::int64_t keys, std::int64_t c) {
    const F f;
    const VF zero = hn::Zero(f), log_sum = hn::LoadU(f, log_sum_exp_.data() + c);
    const VF window = hn::Set(f, static_cast<float>(job_.statistics->window));
    const auto diagonal = hn::LoadU(I(), diagonal_.data() + c);
    VF mass = zero, entropy = zero, distance = zero, near = zero, most = zero;
    for (std::int64_t r = 0; r < keys; r++) {
      float* x = scores_.data() + r * block_ + c;
      const VF exponent = hn::Sub(hn::LoadU(f, x), log_sum);
      const VF p = hn::IfThenElse(hn::Eq(exponent, exponent), hn::Exp(f, exponent), exponent);  // NaN stays
      const VF back = hn::ConvertTo(f, hn::Sub(diagonal, hn::Set(I(), static_cast<std::int32_t>(key + r))));
      hn::StoreU(p, f, x);
      mass = hn::Add(mass, p);
      entropy = hn::Sub(entropy, hn::IfThenZeroElse(hn::Eq(p, zero), hn::Mul(p, exponent)));
      distance = hn::MulAdd(p, back, distance);
      near = hn::Add(near, hn::IfThenElseZero(hn::Lt(hn::Abs(back), window), p));
      most = hn::Max(most, p);
    }
    HWY_ALIGN float sums[5][HWY_MAX_BYTES / 4];
    hn::Store(mass, f, sums[0]);
    hn::Store(entropy, f, sums[1]);
    hn::Store(distance, f, sums[2]);
    hn::Store(near, f, sums[3]);
    hn::Store(most, f, sums[4]);
    for (std::int64_t lane = 0; lane < lanes_; lane++) {
      auto& total = at(totals_, c + lane);
      total.mass += static_cast<double>(sums[0][lane]);
      total.entropy += static_cast<double>(sums[1][lane]);
      total.distance += static_cast<double>(sums[2][lane]);
      total.window += static_cast<double>(sums[3][lane]);
      total.maximum = std::max(total.maximum, sums[4][lane]);
      const auto& seen = at(seen_, c + lane);
      const std::int64_t end = std::min<std::int64_t>(seen.first_end, key + keys);
      for (std::int64_t j = std::max<std::int64_t>(seen.first, key); j < end; j++) {
        total.first += static_cast<double>(at(scores_, (j - key) * block_ + c + lane));
      }
    }
  }

  /// Adds the weights of the tile to the bins it reaches: mostly one, for bins are wide where tiles are many.
  void sort_by_distance(std::int64_t key, std::int64_t keys, double* bins) {
    const auto& edges = job_.statistics->distance_edges;
    if (edges.empty()) return;
    const auto [nearest, farthest] = std::minmax_element(diagonal_.begin(), diagonal_.end());
    const std::int64_t least = *nearest - (key + keys - 1), most = *farthest - key;
    const auto number = static_cast<std::int64_t>(edges.size()) - 1;
    std::int64_t bin = std::max<std::int64_t>(std::upper_bound(edges.begin(), edges.end(), least) - edges.begin() - 1, 0);
    for (; bin < number && at(edges, bin) <= most; bin++) {
      const std::int64_t begin = std::max(at(edges, bin), least), end = std::min(at(edges, bin + 1) - 1, most);
      bins[bin] += begin == least && end == most ? sum_of(keys) : sum_between(key, keys, begin, end);
    }
  }
  double sum_of(std::int64_t keys) const {
    VF sum = hn::Zero(F());
    for (std::int64_t x = 0; x < keys * block_; x += lanes_) sum = hn::Add(sum, hn::LoadU(F(), scores_.data() + x));
    return total_of(sum);
  }
  /// Of the weights with begin <= how far back <= end.
  double sum_between(std::int64_t key, std::int64_t keys, std::int64_t begin, std::int64_t end) const {
    const I i;
    const auto least = hn::Set(i, static_cast<std::int32_t>(begin)), most = hn::Set(i, static_cast<std::int32_t>(end));
    VF sum = hn::Zero(F());
    for (std::int64_t c = 0; c < block_; c += lanes_) {
      const auto diagonal = hn::LoadU(i, diagonal_.data() + c);
      for (std::int64_t r = 0; r < keys; r++) {
        const auto back = hn::Sub(diagonal, hn::Set(i, static_cast<std::int32_t>(key + r)));
        const auto outside = hn::RebindMask(F(), hn::Or(hn::Lt(back, least), hn::Gt(back, most)));
        sum = hn::Add(sum, hn::IfThenZeroElse(outside, hn::LoadU(F(), scores_.data() + r * block_ + c)));
      }
    }
    return total_of(sum);
  }
  static double total_of(VF sum) { return static_cast<double>(hn::GetLane(hn::SumOfLanes(F(), sum))); }

  void write(std::int64_t lane) const {
    const auto& total = at(totals_, lane);
    const auto& statistics = *job_.statistics;
    const auto index = static_cast<std::size_t>((b_ * job_.q.shape[1] + head_) * job_.q.shape[2] + query_ + lane);
    const auto put = [&](std::span<float> list, double value) {
      if (!list.empty()) list[index] = static_cast<float>(std::isnan(total.mass) ? total.mass : value);
    };
    const bool sees = total.mass != 0;
    // The weights are divided by their sum: that takes the sink logit, and the rounding of log_sum_exp, out of the entropy.
    put(statistics.entropy, sees ? std::max(0.0, total.entropy / total.mass + std::log(total.mass)) : 0);
    put(statistics.mean_distance, sees ? total.distance / total.mass : 0);
    put(statistics.mass, total.mass);
    put(statistics.maximum, static_cast<double>(total.maximum));
    put(statistics.first_mass, total.first);
    put(statistics.window_mass, total.window);
  }

  const StatisticsJob& job_;
  const std::int64_t b_, head_, query_;
  const std::int64_t lanes_ = static_cast<std::int64_t>(hn::Lanes(F())), block_ = 2 * lanes_;
  const std::int64_t queries_, width_;
  std::vector<float> q_, k_, scores_, bias_, log_sum_exp_;  // (width, block), (tile_keys, width), twice (tile_keys, block), (block)
  std::vector<Seen> seen_;
  std::vector<std::int32_t> diagonal_;
  std::vector<Totals> totals_;
  bool consecutive_ = true;  // each diagonal is one more than that of the query before
};

void run_attention_statistics(const StatisticsJob& job, std::int64_t b, std::int64_t head, std::int64_t query, double* bins) {
  StatisticsBlock(job, b, head, query).run(bins);
}

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(rows_of_statistics);
HWY_EXPORT(run_attention_statistics);

std::int64_t statistics_block() { return HWY_DYNAMIC_DISPATCH(rows_of_statistics)(); }
void attention_statistics(const StatisticsJob& job, std::int64_t b, std::int64_t head, std::int64_t query, double* bins) {
  HWY_DYNAMIC_DISPATCH(run_attention_statistics)(job, b, head, query, bins);
}

}  // namespace gnomon::kernels
#endif
