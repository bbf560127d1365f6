// SPDX-License-Identifier: Apache-2.0
#include "gnomon/analysis/precision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "gnomon/error.hpp"
#include "plan/phase.hpp"
#include "plan/round.hpp"

namespace gnomon {
namespace {

constexpr Pipeline pipelines[] = {
    {"exact", DType::f64, DType::f64, std::nullopt, DType::f32, "gnomon: the angle is never rounded"},
    {"f64", DType::f64, DType::f64, DType::f64, DType::f32, "diffusers (Flux, Wan)"},
    {"f32", DType::f32, DType::f32, DType::f32, DType::f32, "most engines: ggml, SGLang, torchtune, Llama 4 in transformers"},
    {"f32, table bf16", DType::f32, DType::f32, DType::f32, DType::bf16, "transformers and vLLM with a bf16 model"},
    {"f32, table f16", DType::f32, DType::f32, DType::f32, DType::f16, "the same with an f16 model"},
    {"position bf16", DType::f32, DType::bf16, DType::f32, DType::f32, "position ids made in the type of the activations"},
    {"angle bf16", DType::bf16, DType::bf16, DType::bf16, DType::bf16, "an outer product under autocast to bf16"},
    {"angle f16", DType::f16, DType::f16, DType::f16, DType::f16, "the same to f16, or .half() on the frequencies"},
};

constexpr std::int64_t search = std::int64_t{1} << 20;  // how far from the start of a range an angle is looked for that is wrong

int digits(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 53;
    case DType::f32:
      return 24;
    case DType::bf16:
      return 8;
    default:
      return 11;
  }
}

double rounded(double value, DType dtype) {
  return visit_dtype(dtype, [&]<class Element>(Element) { return static_cast<double>(widen(round<Element>(value))); });
}

void check(const Range& positions) {
  validate(Positions(positions));
  if (positions.step != 1) throw Error(ErrorCode::invalid_argument, fmt::format("positions: expected step 1, got {}", positions.step));
  if (positions.start < 0) throw Error(ErrorCode::out_of_range, fmt::format("positions: expected 0 or more, got {}", positions.start));
  if (positions.stop <= positions.start) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("positions: expected at least one, got {} up to {}", positions.start, positions.stop));
  }
}

/// Angles of one pipeline, by position, held against exact ones.
class Angles {
 public:
  Angles(const Pipeline& pipeline, const std::vector<double>& inv_freq) : pipeline_(pipeline), exact_(inv_freq) {
    for (const double value : inv_freq) rounded_.push_back(rounded(value, pipeline.frequency));
  }

  /// The largest error over the pairs, in radians, π where it is that or more; and the pair.
  std::pair<double, int> error(std::int64_t position) const {
    if (!pipeline_.angle) return {0, 0};
    const double place = rounded(static_cast<double>(position), pipeline_.position);
    return visit_dtype(*pipeline_.angle, [&]<class Element>(Element) { return largest<Element>(static_cast<double>(position), place); });
  }

  /// A position below which no error reaches angle_limit: each of three roundings is relative.
  std::int64_t harmless_before() const {
    if (!pipeline_.angle) return std::numeric_limits<std::int64_t>::max();
    const double unit = std::ldexp(1, -digits(pipeline_.frequency)) + std::ldexp(1, -digits(pipeline_.position)) +
                        std::ldexp(1, -digits(*pipeline_.angle));
    const double fastest = *std::max_element(exact_.begin(), exact_.end());
    return fastest > 0 ? static_cast<std::int64_t>(std::min(angle_limit / (2 * unit * fastest), 0x1p33)) : max_position;
  }

 private:
  template <class Element>
  std::pair<double, int> largest(double position, double place) const {
    double worst = 0;
    int pair = 0;
    for (std::size_t i = 0; i < exact_.size(); i++) {
      const double high = position * exact_[i], low = std::fma(position, exact_[i], -high);
      const double error = std::abs((static_cast<double>(widen(round<Element>(place * rounded_[i]))) - high) - low);
      if (!(error <= worst)) worst = error, pair = static_cast<int>(i);
      if (!(worst < std::numbers::pi)) return {std::numbers::pi, pair};
    }
    return {worst, pair};
  }

  const Pipeline& pipeline_;
  const std::vector<double>& exact_;
  std::vector<double> rounded_;
};

void find_worst(const Angles& angles, const Range& positions, Precision& result) {
  for (std::int64_t position = positions.start; position < positions.stop && result.worst < std::numbers::pi; position++) {
    const auto found = angles.error(position);
    if (found.first > result.worst) result.worst = found.first, result.worst_position = position, result.worst_pair = found.second;
  }
}

void find_wrong(const Angles& angles, const Range& positions, Precision& result) {
  result.searched = std::min(std::max(positions.stop, positions.start + search), max_position);
  for (std::int64_t position = std::max(positions.start, angles.harmless_before()); position <= result.searched; position++) {
    if (angles.error(position).first <= angle_limit) continue;
    result.wrong_from = position;
    return;
  }
}

bool same_angles(const Pipeline& a, const Pipeline& b) {
  return a.frequency == b.frequency && a.position == b.position && a.angle == b.angle;
}

/// Whole numbers up to 2^digits are all there; beyond, neighbours meet within a few steps.
std::optional<std::int64_t> first_merged(std::int64_t start, DType dtype) {
  if (digits(dtype) > 33) return std::nullopt;
  std::int64_t position = std::max(start, std::int64_t{1} << digits(dtype));
  while (rounded_position(position, dtype) != rounded_position(position + 1, dtype)) position++;
  return position;
}

/// Whole numbers from 0 to `last` that a type has.
std::int64_t representable(std::int64_t last, DType dtype) {
  const std::int64_t dense = std::int64_t{1} << std::min(digits(dtype), 40);
  if (dtype == DType::f16) last = std::min<std::int64_t>(last, 65504);
  std::int64_t number = std::min(last, dense) + 1;
  for (std::int64_t low = dense, step = 2; low < last; low *= 2, step *= 2) number += (std::min(last, 2 * low) - low) / step;
  return number;
}

Precision measured(const Pipeline& pipeline, const std::vector<double>& inv_freq, const Range& positions) {
  Precision result;
  result.distinct = distinct_positions(positions, pipeline.position);
  result.merged_from = first_merged(positions.start, pipeline.position);
  const Angles angles(pipeline, inv_freq);
  find_worst(angles, positions, result);
  find_wrong(angles, positions, result);
  return result;
}

}  // namespace

std::span<const Pipeline> list_pipelines() { return pipelines; }

std::pair<double, double> rotation(const Pipeline& pipeline, double inv_freq, std::int64_t position) {
  const double frequency = rounded(inv_freq, pipeline.frequency), place = rounded_position(position, pipeline.position);
  std::pair<double, double> both;
  if (pipeline.angle) {
    const double angle = rounded(frequency * place, *pipeline.angle);
    both = {std::cos(angle), std::sin(angle)};
  } else {
    both = cos_sin(phase_at(position, turns(frequency)));
  }
  return {rounded(both.first, pipeline.table), rounded(both.second, pipeline.table)};
}

double rounded_position(std::int64_t position, DType dtype) { return rounded(static_cast<double>(position), dtype); }

std::int64_t distinct_positions(const Range& positions, DType dtype) {
  check(positions);
  const std::int64_t first = positions.start, last = positions.stop - 1;
  const double low = rounded_position(first, dtype), high = rounded_position(last, dtype);
  // Rounding keeps the order, so what is met are the numbers the type has from first to last, and those beyond that the ends go to.
  const std::int64_t between = representable(last, dtype) - (first > 0 ? representable(first - 1, dtype) : 0);
  if (low == high) return 1;
  return between + (low < static_cast<double>(first) ? 1 : 0) + (high > static_cast<double>(last) ? 1 : 0);
}

std::vector<Precision> precision(const Frequencies& frequencies, const Range& positions) {
  check(positions);
  if (positions.stop - positions.start > most_precise) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("positions: expected at most {}, got {}", most_precise, positions.stop - positions.start));
  }
  std::vector<Precision> result;
  for (const Pipeline& pipeline : pipelines) {
    const bool known = !result.empty() && same_angles(result.back().pipeline, pipeline);
    Precision one = known ? result.back() : measured(pipeline, frequencies.inv_freq, positions);
    one.pipeline = pipeline;
    one.table_error = std::ldexp(1, -digits(pipeline.table) - 1);
    result.push_back(one);
  }
  return result;
}

}  // namespace gnomon
