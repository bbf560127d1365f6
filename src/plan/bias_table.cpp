// SPDX-License-Identifier: Apache-2.0
#include "gnomon/bias_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <type_traits>

#include "gnomon/error.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/spec.hpp"
#include "round.hpp"

namespace gnomon {
namespace {

std::int64_t heads_of(const SlopeBias& bias) { return static_cast<std::int64_t>(bias.slopes.size()); }
std::int64_t heads_of(const auto& bias) { return bias.heads; }

double at(const SlopeBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t) {
  if (key > query && !bias.symmetric) return 0;
  return -static_cast<double>(bias.slopes[static_cast<std::size_t>(head)]) * static_cast<double>(std::abs(key - query));
}

double at(const DistanceBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t) {
  const std::int64_t index = std::clamp<std::int64_t>(key - query - bias.least, 0, bias.distances - 1);
  return bias.values[static_cast<std::size_t>(head * bias.distances + index)];
}

double at(const FireBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t position) {
  const double c = bias.c, distance = static_cast<double>(std::max<std::int64_t>(query - key, 0));
  const double length = std::max(static_cast<double>(bias.threshold), static_cast<double>(position));
  const double x = std::log(c * distance + 1) / std::max(std::log(c * length + 1), static_cast<double>(bias.epsilon));
  double sum = bias.bias2[static_cast<std::size_t>(head)];
  for (std::size_t k = 0; k < bias.weights1.size(); k++) {
    const double hidden = std::max(0.0, static_cast<double>(bias.weights1[k]) * x + static_cast<double>(bias.bias1[k]));
    sum += static_cast<double>(bias.weights2[static_cast<std::size_t>(head) * bias.weights1.size() + k]) * hidden;
  }
  return sum;
}

double at(const GridBias& bias, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t) {
  const std::int64_t offsets = (2 * bias.height - 1) * (2 * bias.width - 1), rows = offsets + (bias.class_token ? 3 : 0);
  std::int64_t index;
  if (bias.class_token && (query == 0 || key == 0)) {
    index = offsets + (query != 0 ? 1 : key != 0 ? 0 : 2);
  } else {
    const std::int64_t shift = bias.class_token ? 1 : 0, i = query - shift, j = key - shift;
    index = (i / bias.width - j / bias.width + bias.height - 1) * (2 * bias.width - 1) + i % bias.width - j % bias.width + bias.width - 1;
  }
  return bias.values[static_cast<std::size_t>(head * rows + index)];
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void check_size(std::string_view name, std::span<const float> numbers, std::int64_t expected, std::string_view what) {
  if (static_cast<std::int64_t>(numbers.size()) != expected)
    refuse(fmt::format("{}: expected {} numbers ({}), got {}", name, expected, what, numbers.size()));
}

constexpr std::int64_t farthest = std::int64_t{1} << 40;  // beyond any cache, and no sum of two distances overflows

/// Finite, or −inf where that hides a key. What is larger becomes an infinity in the units of the kernels, whose exponents are of 2, or
/// where three of them meet.
void check_values(std::string_view name, std::span<const float> numbers, bool may_hide = false) {
  constexpr float most = 1e38f;
  for (const float number : numbers) {
    if (std::abs(number) <= most || (may_hide && number == -std::numeric_limits<float>::infinity())) continue;
    refuse(fmt::format("{}: expected numbers up to {:g} in size{}, got {}", name, most, may_hide ? ", or -inf to hide a key" : "", number));
  }
}

void check(const SlopeBias& bias) { check_values("slopes", bias.slopes); }

void check(const DistanceBias& bias) {
  if (bias.distances < 1 || bias.distances > farthest)
    refuse(fmt::format("distances: expected at least 1 and at most 2^40, got {}", bias.distances));
  if (bias.least < -farthest || bias.least > farthest) refuse(fmt::format("least: expected -2^40 to 2^40, got {}", bias.least));
  check_size("values", bias.values, bias.heads * bias.distances, "heads x distances");
  check_values("values", bias.values, true);
}

void check(const FireBias& bias) {
  const auto hidden = static_cast<std::int64_t>(bias.weights1.size());
  if (hidden > 1024) refuse(fmt::format("weights1: expected at most 1024 hidden units, got {}", hidden));
  check_size("bias1", bias.bias1, hidden, "hidden");
  check_size("weights2", bias.weights2, bias.heads * hidden, "heads x hidden");
  check_size("bias2", bias.bias2, bias.heads, "heads");
  for (const auto& [name, list] : {std::pair("weights1", &bias.weights1), std::pair("bias1", &bias.bias1),
                                   std::pair("weights2", &bias.weights2), std::pair("bias2", &bias.bias2)}) {
    check_values(name, *list);
  }
  for (const auto& [name, value] : {std::pair("c", bias.c), std::pair("threshold", bias.threshold), std::pair("epsilon", bias.epsilon)}) {
    if (!std::isfinite(value) || value < 0 || (value == 0 && *name == 'e'))
      refuse(fmt::format("{}: expected a positive number, got {}", name, value));
  }
}

void check(const GridBias& bias) {
  if (bias.height < 1 || bias.width < 1 || bias.height > 4096 || bias.width > 4096) {
    refuse(fmt::format("height and width: expected 1 to 4096 cells, got {} and {}", bias.height, bias.width));
  }
  check_size("values", bias.values, bias.heads * ((2 * bias.height - 1) * (2 * bias.width - 1) + (bias.class_token ? 3 : 0)),
             "heads x offsets");
  check_values("values", bias.values, true);
}

void check_cell(std::string_view name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw Error(ErrorCode::out_of_range, fmt::format("{}: expected {} to {}, got {}", name, least, most, value));
}

/// A product of powers of numbers below 2^32, in digits to the base 2^32, the lowest first.
struct Power {
  std::int64_t base, exponent;
};
std::vector<std::uint32_t> product(std::initializer_list<Power> powers) {
  std::vector<std::uint32_t> digits{1};
  for (const auto& [base, exponent] : powers) {
    for (std::int64_t i = 0; i < exponent; i++) {
      std::uint64_t carry = 0;
      for (auto& digit : digits) {
        carry += static_cast<std::uint64_t>(digit) * static_cast<std::uint64_t>(base);
        digit = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
      if (carry != 0) digits.push_back(static_cast<std::uint32_t>(carry));
    }
  }
  return digits;
}

/// Whether ln(x / exact) / ln(furthest / exact) · steps >= step, as x^steps >= furthest^step · exact^(steps − step).
bool reaches(std::int64_t x, std::int64_t exact, std::int64_t furthest, std::int64_t steps, std::int64_t step) {
  const std::int64_t common = std::gcd(steps, step), n = steps / common, m = step / common;
  const auto left = product({{x, n}}), right = product({{furthest, m}, {exact, n - m}});
  if (left.size() != right.size()) return left.size() > right.size();
  return !std::lexicographical_compare(left.rbegin(), left.rend(), right.rbegin(), right.rend());
}

/// Values of all heads at the distances [least, most].
template <class Value>
DistanceBias by_distance(std::int64_t heads, std::int64_t least, std::int64_t most, Value&& value) {
  DistanceBias result{heads, least, most - least + 1, {}};
  result.values.reserve(static_cast<std::size_t>(heads * result.distances));
  for (std::int64_t h = 0; h < heads; h++) {
    for (std::int64_t distance = least; distance <= most; distance++) result.values.push_back(static_cast<float>(value(h, distance)));
  }
  return result;
}

/// A table (rows, H) as (H, rows).
std::vector<float> by_head(std::span<const float> table, std::int64_t heads) {
  const std::size_t columns = static_cast<std::size_t>(heads), rows = columns == 0 ? 0 : table.size() / columns;
  std::vector<float> result;
  result.reserve(table.size());
  for (std::size_t h = 0; h < columns; h++) {
    for (std::size_t row = 0; row < rows; row++) result.push_back(table[row * columns + h]);
  }
  return result;
}

BiasTable make(const bias::Alibi& rule, std::int64_t, const BiasParameters&) {
  return SlopeBias{{rule.slopes.begin(), rule.slopes.end()}, rule.symmetric};
}

BiasTable make(const bias::T5& rule, std::int64_t reach, const BiasParameters& parameters) {
  check_size("table", parameters.table, rule.buckets * parameters.heads, "buckets x heads");
  const std::int64_t furthest = std::min(reach, rule.max_distance);
  std::vector<std::int64_t> buckets;
  for (std::int64_t distance = -furthest; distance <= (rule.bidirectional ? furthest : 0); distance++)
    buckets.push_back(t5_bucket(rule, distance));
  return by_distance(parameters.heads, -furthest, rule.bidirectional ? furthest : 0, [&](std::int64_t h, std::int64_t distance) {
    const std::int64_t bucket = buckets[static_cast<std::size_t>(distance + furthest)];
    return parameters.table[static_cast<std::size_t>(bucket * parameters.heads + h)];
  });
}

BiasTable make(const bias::Kerple& rule, std::int64_t reach, const BiasParameters&) {
  return by_distance(rule.heads, -reach, reach, [&](std::int64_t h, std::int64_t distance) {
    const double r1 = rule.r1[static_cast<std::size_t>(h)], r2 = rule.r2[static_cast<std::size_t>(h)];
    const double size = std::abs(static_cast<double>(distance));
    return -r1 * (rule.kind == bias::KerpleKind::log ? std::log1p(r2 * size) : std::pow(size, r2));
  });
}

BiasTable make(const bias::Sandwich& rule, std::int64_t reach, const BiasParameters&) {
  std::vector<double> sums(static_cast<std::size_t>(reach + 1));
  for (std::int64_t k = 1; k <= rule.width / 2; k++) {
    const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(k) / static_cast<double>(rule.width));
    for (std::size_t distance = 0; distance < sums.size(); distance++)
      sums[distance] += std::cos(static_cast<double>(distance) * frequency);
  }
  return by_distance(rule.heads, -reach, reach, [&](std::int64_t h, std::int64_t distance) {
    return sums[static_cast<std::size_t>(std::abs(distance))] * static_cast<double>(rule.heads) / (8 * static_cast<double>(h + 1));
  });
}

BiasTable make(const bias::Fire& rule, std::int64_t, const BiasParameters& parameters) {
  const auto hidden = static_cast<std::int64_t>(parameters.bias1.size());
  check_size("weights1", parameters.weights1, hidden, "hidden, as bias1 has");
  check_size("weights2", parameters.weights2, parameters.heads * hidden, "heads x hidden");
  check_size("bias2", parameters.bias2, parameters.heads, "heads");
  const auto copy = [](std::span<const float> numbers) { return std::vector<float>(numbers.begin(), numbers.end()); };
  return FireBias{
      parameters.heads,          static_cast<float>(rule.c), static_cast<float>(rule.threshold), static_cast<float>(rule.epsilon),
      copy(parameters.weights1), copy(parameters.bias1),     copy(parameters.weights2),          copy(parameters.bias2)};
}

/// Swin and BEiT hold their rows in the order of GridBias.
BiasTable grid(std::int64_t window, std::int64_t rows, bool class_token, const BiasParameters& parameters) {
  check_size("table", parameters.table, rows * parameters.heads, "rows x heads");
  return GridBias{parameters.heads, window, window, class_token, by_head(parameters.table, parameters.heads)};
}
BiasTable make(const bias::Swin& rule, std::int64_t, const BiasParameters& parameters) {
  return grid(rule.window, rule.rows, false, parameters);
}
BiasTable make(const bias::Beit& rule, std::int64_t, const BiasParameters& parameters) {
  return grid(rule.window, rule.rows, true, parameters);
}

BiasTable make(const bias::Swinv2& rule, std::int64_t, const BiasParameters& parameters) {
  const std::size_t hidden = parameters.bias1.size(), heads = static_cast<std::size_t>(parameters.heads);
  check_size("weights1", parameters.weights1, static_cast<std::int64_t>(2 * hidden), "hidden, as bias1 has, x 2");
  check_size("weights2", parameters.weights2, static_cast<std::int64_t>(heads * hidden), "heads x hidden");
  check_size("bias2", parameters.bias2, 0, "the last layer of swinv2 has no bias");
  const std::int64_t trained = rule.pretrained_window > 0 ? rule.pretrained_window : rule.window;
  const auto coordinate = [&](std::int64_t d) {
    const double size = std::log2(1 + 8 * std::abs(static_cast<double>(d)) / static_cast<double>(std::max<std::int64_t>(trained - 1, 1)));
    return std::copysign(size / 3, static_cast<double>(d));
  };
  std::vector<float> rows;
  std::vector<double> active(hidden);
  for (std::int64_t dy = 1 - rule.window; dy < rule.window; dy++) {
    for (std::int64_t dx = 1 - rule.window; dx < rule.window; dx++) {
      for (std::size_t k = 0; k < hidden; k++) {
        const auto weight = [&](std::size_t axis) { return static_cast<double>(parameters.weights1[2 * k + axis]); };
        active[k] = std::max(0.0, weight(0) * coordinate(dy) + weight(1) * coordinate(dx) + static_cast<double>(parameters.bias1[k]));
      }
      for (std::size_t h = 0; h < heads; h++) {
        const double sum = std::inner_product(active.begin(), active.end(), &parameters.weights2[h * hidden], 0.0);
        rows.push_back(static_cast<float>(16 / (1 + std::exp(-sum))));
      }
    }
  }
  return GridBias{parameters.heads, rule.window, rule.window, false, by_head(rows, parameters.heads)};
}

BiasTable make(const bias::Deberta&, std::int64_t, const BiasParameters&) {
  throw Error(ErrorCode::unsupported,
              "rule: deberta multiplies trained vectors with queries and keys: a score by content, which no table holds");
}

/// Numbers a rule has no use for are a mistake, not a surplus.
template <class Rule>
void check_unused(const BiasParameters& parameters) {
  constexpr bool network = std::is_same_v<Rule, bias::Fire> || std::is_same_v<Rule, bias::Swinv2>;
  constexpr bool table = std::is_same_v<Rule, bias::T5> || std::is_same_v<Rule, bias::Swin> || std::is_same_v<Rule, bias::Beit>;
  if ((table || network) && parameters.heads < 1) refuse(fmt::format("heads: expected at least 1, got {}", parameters.heads));
  if (!table) check_size("table", parameters.table, 0, fmt::format("{} has no trained table", Rule::name));
  if (network) return;
  for (const auto& [name, numbers] : {std::pair("weights1", parameters.weights1), std::pair("bias1", parameters.bias1),
                                      std::pair("weights2", parameters.weights2), std::pair("bias2", parameters.bias2)})
    check_size(name, numbers, 0, fmt::format("{} has no network", Rule::name));
}

}  // namespace

std::int64_t heads_of(const BiasTable& table) {
  return std::visit([](const auto& bias) { return heads_of(bias); }, table);
}

void validate(const BiasTable& table) {
  constexpr std::int64_t most_heads = 1 << 20;
  if (heads_of(table) < 0 || heads_of(table) > most_heads)
    refuse(fmt::format("heads: expected 0 to {}, got {}", most_heads, heads_of(table)));
  std::visit([](const auto& bias) { check(bias); }, table);
}

double bias_at(const BiasTable& table, std::int64_t head, std::int64_t query, std::int64_t key, std::int64_t position) {
  check_cell("head", head, 0, heads_of(table) - 1);
  const auto* grid = std::get_if<GridBias>(&table);
  const std::int64_t least = grid != nullptr ? 0 : -farthest;
  const std::int64_t most = grid != nullptr ? grid->height * grid->width + (grid->class_token ? 1 : 0) - 1 : farthest;
  check_cell("query", query, least, most);
  check_cell("key", key, least, most);
  return std::visit([&](const auto& bias) { return at(bias, head, query, key, position); }, table);
}

BiasTable bias_table(const BiasRule& rule, std::int64_t reach, const BiasParameters& parameters) {
  validate(rule);
  if (reach < 0) refuse(fmt::format("reach: expected at least 0, got {}", reach));
  if (reach > largest_reach) throw Error(ErrorCode::out_of_range, fmt::format("reach: expected at most {}, got {}", largest_reach, reach));
  return std::visit(
      [&]<class Rule>(const Rule& of_kind) {
        check_unused<Rule>(parameters);
        return make(of_kind, reach, parameters);
      },
      rule);
}

std::int64_t t5_bucket(const bias::T5& rule, std::int64_t distance) {
  validate(BiasRule(rule));
  const std::int64_t furthest = rule.max_distance;
  if (furthest >= std::int64_t{1} << 31)
    throw Error(ErrorCode::out_of_range, fmt::format("max_distance: expected less than 2^31, got {}", furthest));
  distance = std::clamp(distance, -furthest, furthest);
  const std::int64_t count = rule.bidirectional ? rule.buckets / 2 : rule.buckets, exact = count / 2, steps = count - exact;
  const std::int64_t first = rule.bidirectional && distance > 0 ? count : 0;
  const std::int64_t x = rule.bidirectional ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
  if (x < exact) return first + x;
  const auto logarithm = [&](std::int64_t n) { return std::log1p(static_cast<double>(n - exact) / static_cast<double>(exact)); };
  const double step = logarithm(x) / logarithm(furthest) * static_cast<double>(steps), nearest = std::nearbyint(step);
  auto whole = static_cast<std::int64_t>(step);
  // So near to an integer that the logarithm, right to a few units in its last place, cannot say on which side.
  if (std::abs(step - nearest) < 1e-9 * std::max(nearest, 1.0)) {
    whole = static_cast<std::int64_t>(nearest);
    if (!reaches(x, exact, furthest, steps, whole)) whole--;
  }
  return first + std::min(count - 1, exact + whole);
}

std::vector<float> falcon_bias(const bias::Alibi& rule, std::span<const std::int64_t> positions, double scale) {
  validate(BiasRule(rule));
  validate(Ids{positions});
  const auto rounded = [](double value) { return static_cast<double>(widen(round<Bf16>(value))); };
  std::vector<float> result;
  result.reserve(rule.slopes.size() * positions.size());
  for (const double slope : rule.slopes) {
    for (const auto position : positions) {
      result.push_back(static_cast<float>(rounded(rounded(slope) * rounded(static_cast<double>(position))) * scale));
    }
  }
  return result;
}

}  // namespace gnomon
