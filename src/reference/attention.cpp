// SPDX-License-Identifier: Apache-2.0
// The double reference of attention: score by score, nothing shared with the kernels.
#include "gnomon/attention.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "plan/round.hpp"

namespace gnomon::reference {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// A copy in double, (B,H,T,D) contiguous, rotated if asked.
std::vector<double> in_double(const ConstTensorView& x, const std::optional<RotationOnLoad>& rotation) {
  const auto& [batch, heads, tokens, width] = x.shape;
  std::vector<double> copy(static_cast<std::size_t>(batch * heads * tokens * width));
  std::size_t at = 0;
  visit_dtype(x.dtype, [&]<class Element>(Element) {
    for (std::int64_t b = 0; b < x.shape[0]; b++) {
      for (std::int64_t h = 0; h < x.shape[1]; h++) {
        for (std::int64_t t = 0; t < x.shape[2]; t++) {
          const auto* row = static_cast<const Element*>(x.data) + b * x.strides[0] + h * x.strides[1] + t * x.strides[2];
          for (std::int64_t d = 0; d < x.shape[3]; d++) copy[at++] = widen(row[d]);
        }
      }
    }
  });
  if (rotation && !copy.empty()) {
    const TensorView view{copy.data(), DType::f64, x.shape, {heads * tokens * width, tokens * width, width, 1}};
    reference::rotate(view, view, rotation->rotation, rotation->positions);
  }
  return copy;
}

class Rows {
 public:
  Rows(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out, const AttentionOptions& options)
      : q_(q),
        k_(k),
        out_(out),
        options_(options),
        queries_(in_double(q, options.rotate_queries)),
        keys_(in_double(k, options.rotate_keys)),
        values_(in_double(v, std::nullopt)),
        scores_(static_cast<std::size_t>(k.shape[2])) {}

  template <class Element>
  void run() {
    for (std::int64_t b = 0; b < q_.shape[0]; b++) {
      for (std::int64_t h = 0; h < q_.shape[1]; h++) {
        for (std::int64_t t = 0; t < q_.shape[2]; t++) row<Element>(b, h, t);
      }
    }
  }

 private:
  bool sees(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
    if (options_.mask != nullptr && !options_.mask->sees(b, t, j)) return false;
    return !options_.mask_tensor || options_.mask_tensor->kind == MaskTensor::Kind::additive ||
           static_cast<const std::uint8_t*>(options_.mask_tensor->data)[mask_index(b, h, t, j)] != 0;
  }
  std::int64_t mask_index(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
    const auto& strides = options_.mask_tensor->strides;
    return b * strides[0] + h * strides[1] + t * strides[2] + j * strides[3];
  }

  double score(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
    const auto& [batch, heads, tokens, width] = q_.shape;
    const std::int64_t group = heads / k_.shape[1], kv = h / group;
    const double* query = &queries_[static_cast<std::size_t>(((b * heads + h) * tokens + t) * width)];
    const double* key = &keys_[static_cast<std::size_t>(((b * k_.shape[1] + kv) * k_.shape[2] + j) * width)];
    double dot = 0;
    for (std::int64_t d = 0; d < width; d++) dot += query[d] * key[d];
    const auto& factors = options_.query_factors;
    if (!factors.empty()) {
      const bool by_batch = static_cast<std::int64_t>(factors.size()) != tokens;
      dot *= static_cast<double>(factors[static_cast<std::size_t>(by_batch ? b * tokens + t : t)]);
    }
    double value = dot * options_.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
    if (options_.softcap) value = *options_.softcap * std::tanh(value / *options_.softcap);
    std::int64_t diagonal = t + k_.shape[2] - tokens, first = 0;
    if (options_.mask != nullptr) {
      const auto at = static_cast<std::size_t>((options_.mask->batch == 1 ? 0 : b) * tokens + t);
      diagonal = options_.mask->diagonal[at];
      first = options_.mask->first[at];
    }
    for (const auto& table : options_.bias) value += bias_at(table, h, diagonal, j, diagonal - first);
    if (options_.mask_tensor && options_.mask_tensor->kind == MaskTensor::Kind::additive) {
      value += static_cast<double>(static_cast<const float*>(options_.mask_tensor->data)[mask_index(b, h, t, j)]);
    }
    return value;
  }

  template <class Element>
  void row(std::int64_t b, std::int64_t h, std::int64_t t) {
    const std::int64_t keys = k_.shape[2], kv = h / (q_.shape[1] / k_.shape[1]), width = out_.shape[3];
    double maximum = minus_infinity;
    bool poisoned = false;
    std::vector<bool> seen(static_cast<std::size_t>(keys));
    for (std::int64_t j = 0; j < keys; j++) {
      const auto at = static_cast<std::size_t>(j);
      scores_[at] = minus_infinity;
      if (!sees(b, h, t, j)) continue;
      scores_[at] = score(b, h, t, j);
      // An additive mask of −inf hides the key whatever it holds.
      if (options_.mask_tensor && options_.mask_tensor->kind == MaskTensor::Kind::additive &&
          std::isinf(static_cast<const float*>(options_.mask_tensor->data)[mask_index(b, h, t, j)])) {
        scores_[at] = minus_infinity;
        continue;
      }
      seen[at] = true;
      poisoned |= std::isnan(scores_[at]);
      maximum = std::max(maximum, scores_[at]);
    }
    const double sink =
        options_.sink_logits.empty() ? minus_infinity : static_cast<double>(options_.sink_logits[static_cast<std::size_t>(h)]);
    const double top = std::max(maximum, sink), shift = std::isinf(top) && top < 0 ? 0 : top;
    double sum = std::exp(sink - shift);
    std::vector<double> output(static_cast<std::size_t>(width));
    for (std::int64_t j = 0; j < keys; j++) {
      if (!seen[static_cast<std::size_t>(j)]) continue;
      const double weight = std::exp(scores_[static_cast<std::size_t>(j)] - shift);
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
  std::vector<double> queries_, keys_, values_, scores_;
};

}  // namespace

void attention(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
               const AttentionOptions& options) {
  Rows rows(q, k, v, out, options);
  visit_dtype(q.dtype, [&]<class Element>(Element) { rows.run<Element>(); });
}

}  // namespace gnomon::reference
