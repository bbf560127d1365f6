// SPDX-License-Identifier: Apache-2.0
// The double reference of attention: score by score, nothing shared with the kernels.
#include "gnomon/attention.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "plan/round.hpp"
#include "reference/scores.hpp"

namespace gnomon::reference {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

class Rows {
 public:
  Rows(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out, const AttentionOptions& options)
      : q_(q), k_(k), out_(out), options_(options), scores_(q, k, options), values_(in_double(v, std::nullopt)) {}

  template <class Element>
  void run() {
    for (std::int64_t b = 0; b < q_.shape[0]; b++) {
      for (std::int64_t h = 0; h < q_.shape[1]; h++) {
        for (std::int64_t t = 0; t < q_.shape[2]; t++) row<Element>(b, h, t);
      }
    }
  }

 private:
  template <class Element>
  void row(std::int64_t b, std::int64_t h, std::int64_t t) {
    const std::int64_t keys = k_.shape[2], kv = h / (q_.shape[1] / k_.shape[1]), width = out_.shape[3];
    double maximum = minus_infinity;
    bool poisoned = false;
    std::vector<std::optional<double>> scores(static_cast<std::size_t>(keys));
    for (std::int64_t j = 0; j < keys; j++) {
      auto& score = scores[static_cast<std::size_t>(j)];
      score = scores_.at(b, h, t, j);
      if (!score) continue;
      poisoned |= std::isnan(*score);
      maximum = std::max(maximum, *score);
    }
    const double sink =
        options_.sink_logits.empty() ? minus_infinity : static_cast<double>(options_.sink_logits[static_cast<std::size_t>(h)]);
    const double top = std::max(maximum, sink), shift = std::isinf(top) && top < 0 ? 0 : top;
    double sum = std::exp(sink - shift);
    std::vector<double> output(static_cast<std::size_t>(width));
    for (std::int64_t j = 0; j < keys; j++) {
      const auto& score = scores[static_cast<std::size_t>(j)];
      if (!score) continue;
      const double weight = std::exp(*score - shift);
      sum += weight;
      const double* value = &values_[static_cast<std::size_t>(((b * k_.shape[1] + kv) * keys + j) * width)];
      for (std::int64_t d = 0; d < width; d++) output[static_cast<std::size_t>(d)] += weight * value[d];
    }
    auto* to = static_cast<Element*>(out_.data) + b * out_.strides[0] + h * out_.strides[1] + t * out_.strides[2];
    for (std::int64_t d = 0; d < width; d++) {
      const double value = output[static_cast<std::size_t>(d)];
      to[d] = round<Element>(poisoned ? std::nan("") : sum == 0 ? 0 : value / sum);
    }
    const auto at = static_cast<std::size_t>((b * q_.shape[1] + h) * q_.shape[2] + t);
    if (options_.log_sum_exp != nullptr) options_.log_sum_exp[at] = static_cast<float>(poisoned ? std::nan("") : shift + std::log(sum));
    if (options_.maximum != nullptr) options_.maximum[at] = static_cast<float>(poisoned ? std::nan("") : maximum);
  }

  const ConstTensorView &q_, &k_;
  const TensorView& out_;
  const AttentionOptions& options_;
  Scores scores_;
  std::vector<double> values_;
};

}  // namespace

void attention(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
               const AttentionOptions& options) {
  Rows rows(q, k, v, out, options);
  visit_dtype(q.dtype, [&]<class Element>(Element) { rows.run<Element>(); });
}

}  // namespace gnomon::reference
