// SPDX-License-Identifier: Apache-2.0
// Whether attention sees order: none without an encoding, and for rotations the laws that make scores a matter of distance.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "gnomon/analysis.hpp"
#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "spec/fields.hpp"

namespace gnomon {
namespace {

constexpr std::size_t tokens = 6, width = 16;  // X is (tokens, width)
constexpr std::array<std::size_t, tokens> permutation{3, 0, 5, 1, 2, 4};
constexpr double epsilon = std::numeric_limits<double>::epsilon();

/// Rows of doubles, one per token.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values = std::vector<double>(rows * columns);

  double& operator()(std::size_t row, std::size_t column) { return values[row * columns + column]; }
  double operator()(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
  TensorView view() {
    const auto height = static_cast<std::int64_t>(rows), stride = static_cast<std::int64_t>(columns);
    return {values.data(), DType::f64, {1, 1, height, stride}, {height * stride, height * stride, stride, 1}};
  }
};

/// Evenly spread in [-1, 1), the same on every machine.
Matrix random_matrix(std::size_t rows, std::size_t columns, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  Matrix matrix{rows, columns};
  for (double& value : matrix.values) value = static_cast<double>(engine() >> 11) * 0x1p-52 - 1;
  return matrix;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result{a.rows, b.columns};
  for (std::size_t i = 0; i < a.rows; i++) {
    for (std::size_t m = 0; m < a.columns; m++) {
      for (std::size_t j = 0; j < b.columns; j++) result(i, j) += a(i, m) * b(m, j);
    }
  }
  return result;
}

Matrix permuted(const Matrix& matrix) {
  Matrix result{matrix.rows, matrix.columns};
  for (std::size_t i = 0; i < matrix.rows; i++) {
    for (std::size_t j = 0; j < matrix.columns; j++) result(i, j) = matrix(permutation[i], j);
  }
  return result;
}

/// The larger of two errors; a NaN counts as larger than anything.
double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double largest_difference(const Matrix& a, const Matrix& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.values.size(); i++) largest = worse(largest, std::abs(a.values[i] - b.values[i]));
  return largest;
}

/// All that attention sees of X: a query, a key and a value per token, and what is added to the score of token i for token j.
struct Seen {
  Matrix q, k, v;
  Matrix bias{tokens, tokens};
};

/// softmax(Q Kᵀ / sqrt(D) + bias) V. For showing, not for use: it holds all scores at once, and knows one head in double.
Matrix attention(const Seen& seen) {
  Matrix result{tokens, seen.v.columns};
  for (std::size_t i = 0; i < tokens; i++) {
    std::array<double, tokens> weights{};
    for (std::size_t j = 0; j < tokens; j++) {
      for (std::size_t d = 0; d < seen.q.columns; d++) weights[j] += seen.q(i, d) * seen.k(j, d);
      weights[j] = weights[j] / std::sqrt(static_cast<double>(seen.q.columns)) + seen.bias(i, j);
    }
    const double greatest = *std::max_element(weights.begin(), weights.end());
    for (double& weight : weights) weight = std::exp(weight - greatest);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t j = 0; j < tokens; j++) {
      for (std::size_t d = 0; d < seen.v.columns; d++) result(i, d) += weights[j] / sum * seen.v(j, d);
    }
  }
  return result;
}

Seen project(const Matrix& x, std::size_t head_dim) {
  return {product(x, random_matrix(width, head_dim, 1)), product(x, random_matrix(width, head_dim, 2)),
          product(x, random_matrix(width, head_dim, 3))};
}

/// From X to what attention sees of it: the place where an encoding enters.
using Encode = std::function<Seen(const Matrix& x)>;

Seen with_causal_mask(Seen seen) {
  for (std::size_t i = 0; i < tokens; i++) {
    for (std::size_t j = i + 1; j < tokens; j++) seen.bias(i, j) = -std::numeric_limits<double>::infinity();
  }
  return seen;
}

Seen with_rows(const Matrix& x, const Matrix& rows) {
  Matrix sum = x;
  for (std::size_t i = 0; i < sum.values.size(); i++) sum.values[i] += rows.values[i];
  return project(sum, width);
}

Matrix sinusoids(int axes, const Positions& positions) {
  const absolute::Sinusoidal rule{.axes = axes};
  const EmbeddingTable table = embedding_table({rule, static_cast<int>(width)}, positions, DType::f64);
  Matrix rows{tokens, width};
  std::memcpy(rows.values.data(), table.rows.data(), table.rows.size());
  return rows;
}

Matrix sinusoids_of_a_grid() {
  constexpr std::int64_t rows_and_columns[] = {0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2};
  return sinusoids(2, Ids{rows_and_columns});
}

struct Encoding {
  std::string_view name;
  Seen (*encode)(const Matrix& x);
};

/// Encodings that are no rotation: what is added to X stands before the projection, what changes scores after it.
constexpr Encoding encodings[] = {
    {"causal mask", [](const Matrix& x) { return with_causal_mask(project(x, width)); }},
    {"sinusoidal", [](const Matrix& x) { return with_rows(x, sinusoids(1, Range{0, tokens})); }},
    {"2-D sinusoidal", [](const Matrix& x) { return with_rows(x, sinusoids_of_a_grid()); }},
    {"learned", [](const Matrix& x) { return with_rows(x, random_matrix(tokens, width, 6)); }},
};

/// The largest |attention(PX) − P attention(X)|. Positions belong to the places of tokens, so P does not move them.
double order_seen(const Encode& encode) {
  const Matrix x = random_matrix(tokens, width, 0);
  return largest_difference(attention(encode(permuted(x))), permuted(attention(encode(x))));
}

OrderCheck order_is_invisible(const Encode& encode) {
  // Only the order of the sums over keys differs: 2 n roundings of each of the two results, and no value is larger than `width`.
  return {"permutation", "attention(PX) = P attention(X)", order_seen(encode), Limit::at_most, 2 * tokens * epsilon * width};
}

OrderCheck order_is_visible(const Encode& encode) {
  return {"permutation", "attention(PX) ≠ P attention(X)", order_seen(encode), Limit::at_least, 1e-3};
}

Matrix unit_rows(std::size_t columns, std::uint64_t seed) {
  Matrix matrix = random_matrix(tokens, columns, seed);
  for (std::size_t i = 0; i < tokens; i++) {
    double square = 0;
    for (std::size_t d = 0; d < columns; d++) square += matrix(i, d) * matrix(i, d);
    for (std::size_t d = 0; d < columns; d++) matrix(i, d) /= std::sqrt(square);
  }
  return matrix;
}

/// The laws of a rotation, measured on a few unit vectors.
class RotationLaws {
 public:
  RotationLaws(const RotarySpec& spec, const RotateRows& rotate_queries, const RotateRows& rotate_keys)
      : spec_(spec),
        rotate_queries_(rotate_queries),
        rotate_keys_(rotate_keys),
        magnitude_(effective_attention_factor(spec)),
        q_(unit_rows(static_cast<std::size_t>(spec.head_dim), 4)),
        k_(unit_rows(static_cast<std::size_t>(spec.head_dim), 5)) {}

  OrderCheck norm() const {
    double error = 0;
    for (const auto& [rows, rotate] : {std::pair(&q_, &rotate_queries_), std::pair(&k_, &rotate_keys_)}) {
      const Matrix turned = rotated(*rows, *rotate, places(0, stride));
      for (std::size_t i = 0; i < tokens; i++) {
        const double before = std::sqrt(rotary_dot(*rows, i, *rows, i)), after = std::sqrt(rotary_dot(turned, i, turned, i));
        error = worse(error, std::abs(after - magnitude_ * before));
      }
    }
    return {"norm", "|R(p) x| = a |x|", error, Limit::at_most, roundings() * magnitude_};
  }

  OrderCheck composition() const {
    const Matrix q = rotated(q_, rotate_queries_, places(0, stride)), k = rotated(k_, rotate_keys_, places(0, stride));
    double error = 0;
    for (std::size_t i = 0; i < tokens; i++) {
      const Matrix apart = rotated(k_, rotate_keys_, places(-static_cast<std::int64_t>(i) * stride, stride));
      for (std::size_t j = 0; j < tokens; j++) {
        error = worse(error, std::abs(rotary_dot(q, i, k, j) - magnitude_ * rotary_dot(q_, i, apart, j)));
      }
    }
    return {"composition", "R(i)ᵀ R(j) = a R(j - i)", error, Limit::at_most, roundings() * magnitude_ * magnitude_};
  }

  OrderCheck shift(std::int64_t by) const {
    const auto scores = [&](std::int64_t start) {
      const Matrix q = rotated(q_, rotate_queries_, places(start, 1)), k = rotated(k_, rotate_keys_, places(start, 1));
      Matrix result{tokens, tokens};
      for (std::size_t i = 0; i < tokens; i++) {
        for (std::size_t j = 0; j < tokens; j++) result(i, j) = dot(q, i, k, j, 0, q.columns);
      }
      return result;
    };
    const double bound = roundings() * std::max(1.0, magnitude_ * magnitude_);
    return {fmt::format("shift-{}", by), fmt::format("score(i + s, j + s) = score(i, j), s = {}", by),
            largest_difference(scores(by), scores(0)), Limit::at_most, bound};
  }

 private:
  static constexpr std::int64_t stride = 199'999;  // places from 0 to a million, and no round distances

  static Range places(std::int64_t start, std::int64_t step) { return {start, start + static_cast<std::int64_t>(tokens) * step, step}; }

  static Matrix rotated(Matrix rows, const RotateRows& rotate, const Range& positions) {
    rotate(rows.view(), positions);
    return rows;
  }

  static double dot(const Matrix& a, std::size_t i, const Matrix& b, std::size_t j, std::size_t first, std::size_t past) {
    double sum = 0;
    for (std::size_t d = first; d < past; d++) sum += a(i, d) * b(j, d);
    return sum;
  }
  double rotary_dot(const Matrix& a, std::size_t i, const Matrix& b, std::size_t j) const {
    const auto first = static_cast<std::size_t>(spec_.rotary_offset);
    return dot(a, i, b, j, first, first + static_cast<std::size_t>(spec_.rotary_dim));
  }

  /// What rounding may add to a product of two rotated unit vectors, twice: cos, sin, two products and a sum for each channel (below
  /// 12 epsilon in all), then the sum over channels (D/2 epsilon). Angles add nothing: they are integers, exact at every position.
  double roundings() const { return (spec_.head_dim + 32) * epsilon; }

  const RotarySpec& spec_;
  const RotateRows& rotate_queries_;
  const RotateRows& rotate_keys_;
  double magnitude_;
  Matrix q_, k_;
};

constexpr int sample_dim = 16;

/// What a required field becomes: a usual factor, its default where that is allowed, a short trained length otherwise; in a list one number
/// for each pair.
template <class Rule, class Value>
void set_sample(Rule& rule, const Field<Rule, Value>& field) {
  if constexpr (std::is_same_v<Value, std::vector<double>>) {
    for (int i = 0; i < sample_dim / 2; i++) (rule.*field.member).push_back(field.name == "inv_freq" ? 1.0 / (i + 1) : 1.0 + i);
  } else if constexpr (std::is_arithmetic_v<Value>) {
    if (!field.required) return;
    if (field.name == "partial_rotary_factor") return void(rule.*field.member = Value(0.5));
    auto& value = rule.*field.member;
    const auto number = static_cast<double>(value);
    const bool allowed = field.bound.low_included ? number >= field.bound.low : number > field.bound.low;
    value = field.name == "factor" ? Value(4) : allowed ? value : Value(32);
  }
}

template <class Rule>
RotarySpec sample_spec() {
  Rule rule;
  each_field<Rule>([&](const auto& field) { set_sample(rule, field); });
  return {.rule = rule, .theta = needs_theta<Rule>() ? 10000.0 : 0.0, .head_dim = sample_dim, .rotary_dim = sample_dim};
}

}  // namespace

bool OrderReport::holds() const {
  return std::all_of(checks.begin(), checks.end(), [](const OrderCheck& check) { return check.holds(); });
}

OrderReport check_order(const RotarySpec& spec, const RotateRows& rotate_queries, const RotateRows& rotate_keys) {
  validate(spec);
  const auto encode = [&](const Matrix& x) {
    Seen seen = project(x, static_cast<std::size_t>(spec.head_dim));
    rotate_queries(seen.q.view(), Range{0, tokens});
    rotate_keys(seen.k.view(), Range{0, tokens});
    return seen;
  };
  const RotationLaws laws(spec, rotate_queries, rotate_keys);
  // The magnitudes of xpos are no rotation, and leave the range of numbers far from their centre; distances they keep.
  if (std::holds_alternative<rotary::Xpos>(spec.rule)) {
    return {std::string(rule_name(spec.rule)), spec, {order_is_visible(encode), laws.shift(1)}};
  }
  return {std::string(rule_name(spec.rule)),
          spec,
          {order_is_visible(encode), laws.norm(), laws.composition(), laws.shift(1), laws.shift(1'000'000)}};
}

OrderReport check_order(const RotarySpec& spec) {
  const Frequencies made = frequencies(spec);
  const auto rotate_rows = [&](Side side) -> RotateRows {
    return [&made, side](const TensorView& x, const Range& positions) {
      const RotateOperand operand{x, x, side};
      rotate(std::span(&operand, 1), made, positions);
    };
  };
  return check_order(spec, rotate_rows(Side::query), rotate_rows(Side::key));
}

std::vector<OrderReport> check_order() {
  std::vector<OrderReport> reports;
  reports.push_back({"none", std::nullopt, {order_is_invisible([](const Matrix& x) { return project(x, width); })}});
  for (const auto& [name, encode] : encodings) reports.push_back({std::string(name), std::nullopt, {order_is_visible(encode)}});
  for_each_rotary_rule([&]<class Rule>(const Rule&) { reports.push_back(check_order(sample_spec<Rule>())); });
  return reports;
}

}  // namespace gnomon
