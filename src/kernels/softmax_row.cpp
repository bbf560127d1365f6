// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax_row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gnomon::kernels {
namespace {

constexpr double ln_2 = 0.6931471805599453, infinity = std::numeric_limits<double>::infinity();

}  // namespace

SoftmaxRow::SoftmaxRow(double maximum, const float* sink_logit) : maximum_(maximum) {
  const double sink = sink_logit == nullptr ? -infinity : static_cast<double>(*sink_logit) * log2_e;
  const double top = std::max(maximum, sink);
  shift_ = top == -infinity ? 0 : top;
  sum_ = std::exp2(sink - shift_);
}

double SoftmaxRow::add(double maximum, double sum) {
  const double factor = std::exp2(maximum - shift_);
  sum_ += factor * sum;
  return factor;
}

float SoftmaxRow::log_sum_exp() const { return static_cast<float>((shift_ + std::log2(sum_)) * ln_2); }

float SoftmaxRow::maximum() const {
  const bool is_nan = std::isnan(sum_) && maximum_ < infinity;
  return is_nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(maximum_ * ln_2);
}

}  // namespace gnomon::kernels
