// SPDX-License-Identifier: Apache-2.0
#include "operations/decode.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/decode.hpp"
#include "kernels/softmax_row.hpp"
#include "operations/tasks.hpp"
#include "plan/round.hpp"

namespace gnomon {
namespace {

using kernels::log2_e;  // scores are exponents of 2
constexpr double no_score = -std::numeric_limits<double>::infinity();
constexpr std::int64_t split_keys = 1024, widest = 1024;

/// What one query sees: keys [begin, end) and [kept, kept_end) before them.
struct Interval {
  std::int64_t begin, end, kept, kept_end, diagonal;
};

kernels::DecodeCache cache_of(const ConstTensorView& view) {
  return {view.data, {view.strides[0], view.strides[1], view.strides[2]}, view.shape[3]};
}

class Decode {
 public:
  Decode(const ConstTensorView& q, const CacheView& cache, const TensorView& out, const AttentionOptions& options)
      : q_(q),
        cache_(cache),
        out_(out),
        options_(options),
        batch_(q.shape[0]),
        heads_(cache.keys.shape[1]),
        group_(q.shape[1] / heads_),
        queries_(q.shape[2]),
        rows_(group_ * queries_),
        width_(q.shape[3]),
        value_width_(out.shape[3]),
        splits_(std::max<std::int64_t>((cache.length + split_keys - 1) / split_keys, 1)),
        partials_(static_cast<std::size_t>(batch_ * heads_ * splits_ * rows_)),
        values_(partials_.size() * static_cast<std::size_t>(value_width_)) {
    take_queries();
  }

  void run() {
    const std::int64_t bytes = batch_ * heads_ * cache_.length * (width_ + value_width_) * static_cast<std::int64_t>(size_of(q_.dtype));
    Executor* const executor = executor_worth(bytes, options_.executor);
    const auto for_each = [&](std::int64_t tasks, const std::function<void(std::size_t)>& body) {
      run_tasks(executor, static_cast<std::size_t>(tasks), body);
    };
    for_each(batch_ * heads_ * splits_, [&](std::size_t task) { run_split(static_cast<std::int64_t>(task)); });
    visit_dtype(q_.dtype, [&]<class Element>(Element) {
      for_each(batch_ * heads_ * rows_, [&](std::size_t row) { merge<Element>(static_cast<std::int64_t>(row)); });
    });
  }

 private:
  std::int64_t head_of(std::int64_t h, std::int64_t row) const { return h * group_ + row % group_; }

  // Rows of a key head stand together, those of one query side by side: (B,Hk,Tq,G,D).
  void take_queries() {
    std::vector<float> turned(static_cast<std::size_t>(batch_ * heads_ * rows_ * width_));
    const std::array<std::int64_t, 4> strides{heads_ * rows_ * width_, width_, heads_ * group_ * width_, 1};  // (B,Tq,Hq,D)
    const TensorView view{turned.data(), DType::f32, q_.shape, strides};
    visit_dtype(q_.dtype, [&]<class Element>(Element) {
      for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t t) {
        const auto* from = static_cast<const Element*>(q_.data) + b * q_.strides[0] + h * q_.strides[1] + t * q_.strides[2];
        float* to = turned.data() + b * strides[0] + h * strides[1] + t * strides[2];
        for (std::int64_t d = 0; d < width_; d++) to[d] = static_cast<float>(widen(from[d]));
      });
    });
    if (options_.rotate_queries) rotate(view, options_.rotate_queries->rotation, options_.rotate_queries->positions);
    scaled_.resize(turned.size());
    for_each_row([&](std::int64_t b, std::int64_t h, std::int64_t t) {
      const float* from = turned.data() + b * strides[0] + h * strides[1] + t * strides[2];
      float* to = &scaled_[static_cast<std::size_t>(((b * heads_ + h / group_) * rows_ + t * group_ + h % group_) * width_)];
      const double scale = options_.scale.value_or(1 / std::sqrt(static_cast<double>(width_))) * log2_e * factor(b, t);
      for (std::int64_t d = 0; d < width_; d++) to[d] = from[d] * static_cast<float>(scale);
    });
  }

  template <class Body>
  void for_each_row(Body&& body) const {
    for (std::int64_t b = 0; b < batch_; b++) {
      for (std::int64_t h = 0; h < q_.shape[1]; h++) {
        for (std::int64_t t = 0; t < queries_; t++) body(b, h, t);
      }
    }
  }

  double factor(std::int64_t b, std::int64_t t) const {
    const auto& factors = options_.query_factors;
    if (factors.empty()) return 1;
    const bool by_batch = static_cast<std::int64_t>(factors.size()) != queries_;
    return static_cast<double>(factors[static_cast<std::size_t>(by_batch ? b * queries_ + t : t)]);
  }

  kernels::DecodeBias bias_of(std::size_t table, std::int64_t head) const {
    const BiasTable& given = options_.bias[table];
    if (const auto* slope = std::get_if<SlopeBias>(&given)) {
      return {static_cast<float>(static_cast<double>(slope->slopes[static_cast<std::size_t>(head)]) * log2_e), slope->symmetric};
    }
    const auto& row = std::get<DistanceBias>(given);
    kernels::DecodeBias bias;
    bias.values = row.values.data() + head * row.distances;
    bias.least = row.least;
    bias.distances = row.distances;
    return bias;
  }

  Interval interval(std::int64_t b, std::int64_t t) const {
    if (options_.mask == nullptr) return {0, cache_.length, 0, 0, t + cache_.length - queries_};
    const KeyIntervals& mask = *options_.mask;
    const auto at = static_cast<std::size_t>((mask.batch == 1 ? 0 : b) * queries_ + t);
    const std::int64_t begin = mask.begin[at], end = mask.end[at], first = mask.first[at];
    return {begin, end, first, std::min(std::min(first + mask.keep_first, end), begin), mask.diagonal[at]};
  }

  /// What the rows see within a split: the keys that all see for all rows at once, the others query by query. Nothing is masked, so that
  /// what is hidden is not even read.
  std::vector<kernels::DecodeRange> ranges(const std::vector<Interval>& seen, std::int64_t begin, std::int64_t end) const {
    std::int64_t all_begin = begin, all_end = end;
    for (const auto& one : seen) all_begin = std::max(all_begin, one.begin), all_end = std::min(all_end, one.end);
    if (all_end <= all_begin) all_begin = all_end = end;
    std::vector<kernels::DecodeRange> result;
    const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t first_row, std::int64_t rows) {
      from = std::max(from, begin), to = std::min(to, end);
      if (from < to) result.push_back({from, to, first_row, rows});
    };
    for (std::int64_t t = 0; t < queries_; t++) {
      const Interval& one = seen[static_cast<std::size_t>(t)];
      add(one.kept, one.kept_end, t * group_, group_);
      add(one.begin, std::min(one.end, all_begin), t * group_, group_);
    }
    add(all_begin, all_end, 0, rows_);
    for (std::int64_t t = 0; t < queries_; t++) {
      const Interval& one = seen[static_cast<std::size_t>(t)];
      add(std::max(one.begin, all_end), one.end, t * group_, group_);
    }
    return result;
  }

  void run_split(std::int64_t task) {
    const std::int64_t split = task % splits_, h = task / splits_ % heads_, b = task / splits_ / heads_;
    std::vector<Interval> seen;
    std::vector<std::int64_t> diagonal;
    for (std::int64_t t = 0; t < queries_; t++) {
      seen.push_back(interval(b, t));
      diagonal.insert(diagonal.end(), static_cast<std::size_t>(group_), seen.back().diagonal);
    }
    std::vector<kernels::DecodeBias> bias;
    for (std::size_t table = 0; table < options_.bias.size(); table++) {
      for (std::int64_t row = 0; row < rows_; row++) bias.push_back(bias_of(table, head_of(h, row)));
    }
    const auto visible = ranges(seen, split * split_keys, std::min((split + 1) * split_keys, cache_.length));
    const bool paged = !cache_.block_table.empty();
    const auto blocks = static_cast<std::int64_t>(cache_.block_table.size()) / batch_;
    kernels::DecodeTask job;
    job.dtype = q_.dtype;
    job.k = cache_of(cache_.keys);
    job.v = cache_of(cache_.values);
    job.b = b;
    job.h = h;
    if (paged) job.block_table = cache_.block_table.data() + b * blocks;
    if (paged) job.page_size = cache_.keys.shape[2];
    job.q = &scaled_[static_cast<std::size_t>((b * heads_ + h) * rows_ * width_)];
    job.rows = rows_;
    job.softcap = static_cast<float>(options_.softcap.value_or(0) * log2_e);
    job.diagonal = diagonal.data();
    job.bias = bias.data();
    job.tables = static_cast<std::int64_t>(options_.bias.size());
    job.ranges = visible.data();
    job.number = static_cast<std::int64_t>(visible.size());
    const auto at = static_cast<std::size_t>(task * rows_);
    kernels::decode(job, &partials_[at], &values_[at * static_cast<std::size_t>(value_width_)]);
  }

  /// One row of the result, from what its splits gave, in their order.
  template <class Element>
  void merge(std::int64_t index) {
    const std::int64_t row = index % rows_, h = index / rows_ % heads_, b = index / rows_ / heads_, head = head_of(h, row),
                       t = row / group_;
    const auto part = [&](std::int64_t split) { return static_cast<std::size_t>(((b * heads_ + h) * splits_ + split) * rows_ + row); };
    double maximum = no_score;
    for (std::int64_t split = 0; split < splits_; split++) {
      maximum = std::max(maximum, static_cast<double>(partials_[part(split)].maximum));
    }
    const float* sink = options_.sink_logits.empty() ? nullptr : &options_.sink_logits[static_cast<std::size_t>(head)];
    kernels::SoftmaxRow whole(maximum, sink);
    std::vector<double> result(static_cast<std::size_t>(value_width_));
    for (std::int64_t split = 0; split < splits_; split++) {
      const auto& partial = partials_[part(split)];
      if (partial.sum == 0) continue;
      const double factor = whole.add(static_cast<double>(partial.maximum), static_cast<double>(partial.sum));
      const float* values = &values_[part(split) * result.size()];
      for (std::size_t d = 0; d < result.size(); d++) result[d] += factor * static_cast<double>(values[d]);
    }
    auto* to = static_cast<Element*>(out_.data) + b * out_.strides[0] + head * out_.strides[1] + t * out_.strides[2];
    for (std::size_t d = 0; d < result.size(); d++) to[d] = round<Element>(whole.share(result[d]));
    const auto at = static_cast<std::size_t>((b * q_.shape[1] + head) * queries_ + t);
    if (options_.log_sum_exp != nullptr) options_.log_sum_exp[at] = whole.log_sum_exp();
    if (options_.maximum != nullptr) options_.maximum[at] = whole.maximum();
  }

  const ConstTensorView& q_;
  const CacheView& cache_;
  const TensorView& out_;
  const AttentionOptions& options_;
  std::int64_t batch_, heads_, group_, queries_, rows_, width_, value_width_, splits_;
  std::vector<float> scaled_;  // (B,Hk,rows,D)
  std::vector<kernels::DecodePartial> partials_;
  std::vector<float> values_;
};

}  // namespace

bool decode_fits(const ConstTensorView& q, const CacheView& cache, const AttentionOptions& options) {
  const bool biases = std::all_of(options.bias.begin(), options.bias.end(), [](const BiasTable& table) {
    return std::holds_alternative<SlopeBias>(table) || std::holds_alternative<DistanceBias>(table);
  });
  return q.dtype != DType::f64 && q.shape[1] / cache.keys.shape[1] * q.shape[2] <= kernels::most_decode_rows && biases &&
         !options.mask_tensor && !options.rotate_keys && q.shape[3] <= widest && cache.values.shape[3] <= widest;
}

void decode(const ConstTensorView& q, const CacheView& cache, const TensorView& out, const AttentionOptions& options) {
  Decode(q, cache, out, options).run();
}

}  // namespace gnomon
