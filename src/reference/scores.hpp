// SPDX-License-Identifier: Apache-2.0
// The scores of the double reference, one by one: what attention and its statistics are made of. Nothing is shared with the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "gnomon/attention.hpp"
#include "plan/round.hpp"

namespace gnomon::reference {

/// A copy in double, (B,H,T,D) contiguous, rotated if asked.
inline std::vector<double> in_double(const ConstTensorView& x, const std::optional<RotationOnLoad>& rotation, Side side = Side::query) {
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
    const RotateOperand operand{view, view, side};
    reference::rotate({&operand, 1}, rotation->rotation, rotation->positions);
  }
  return copy;
}

class Scores {
 public:
  Scores(const ConstTensorView& q, const ConstTensorView& k, const AttentionOptions& options)
      : q_(q),
        k_(k),
        options_(options),
        queries_(in_double(q, options.rotate_queries)),
        keys_(in_double(k, options.rotate_keys, Side::key)) {}

  /// The score of a query and a key; none where the key is hidden.
  std::optional<double> at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
    if (options_.mask != nullptr && !options_.mask->sees(b, t, j)) return std::nullopt;
    double added = 0;
    if (options_.mask_tensor) {
      const auto& strides = options_.mask_tensor->strides;
      const std::int64_t index = b * strides[0] + h * strides[1] + t * strides[2] + j * strides[3];
      if (options_.mask_tensor->kind == MaskTensor::Kind::boolean) {
        if (static_cast<const std::uint8_t*>(options_.mask_tensor->data)[index] == 0) return std::nullopt;
      } else {
        added = static_cast<double>(static_cast<const float*>(options_.mask_tensor->data)[index]);
        if (std::isfinite(added)) added = std::clamp(added, -1e38, 1e38);
        if (added == -std::numeric_limits<double>::infinity()) return std::nullopt;  // it hides the key whatever that holds
      }
    }
    return product(b, h, t, j) + bias(b, h, t, j) + added;
  }

  /// The key slot the query stands at.
  std::int64_t diagonal(std::int64_t b, std::int64_t t) const {
    return options_.mask != nullptr ? options_.mask->diagonal[row(b, t)] : t + k_.shape[2] - q_.shape[2];
  }
  /// Where the sequence of the query begins.
  std::int64_t first(std::int64_t b, std::int64_t t) const { return options_.mask != nullptr ? options_.mask->first[row(b, t)] : 0; }

 private:
  std::size_t row(std::int64_t b, std::int64_t t) const {
    return static_cast<std::size_t>((options_.mask->batch == 1 ? 0 : b) * q_.shape[2] + t);
  }

  double product(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
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
    const double value = dot * options_.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
    return options_.softcap ? *options_.softcap * std::tanh(value / *options_.softcap) : value;
  }

  double bias(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
    const std::int64_t query = diagonal(b, t);
    double sum = 0;
    for (const auto& table : options_.bias) sum += bias_at(table, h, query, j, query - first(b, t));
    return sum;
  }

  const ConstTensorView &q_, &k_;
  const AttentionOptions& options_;
  std::vector<double> queries_, keys_;
};

}  // namespace gnomon::reference
