// SPDX-License-Identifier: Apache-2.0
// The table of known mistakes. To add one: a function that gives the numbers, and a line in the table with its name and cause.
#include "golden/mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "plan/phase.hpp"
#include "plan/round.hpp"

namespace gnomon {
namespace {

using Suspects = std::vector<Suspect>;
using Frequencies64 = std::vector<double>;
using Angle = std::function<std::pair<double, double>(double position, double inv_freq)>;

constexpr double pi = 3.14159265358979323846;

// Numbers.

/// cos and sin of position times frequency, exactly; of positions an engine made of the true ones, too.
std::pair<double, double> exact_angle(double position, double inv_freq) { return cos_sin(phase_at(position, turns(inv_freq))); }

/// Of an angle that was rounded, and is what it is.
std::pair<double, double> of_radians(double angle) { return {std::cos(angle), std::sin(angle)}; }

Suspect suspect(const Case& c, std::string found, double magnitude, Frequencies64 inv_freq, const Angle& angle = exact_angle) {
  Suspect result{std::move(found), magnitude, {std::move(inv_freq), {}, {}}};
  for (const auto position : c.positions) {
    for (const double w : result.numbers.inv_freq) {
      const auto [cosine, sine] = angle(static_cast<double>(position), w);
      result.numbers.cos.push_back(cosine), result.numbers.sin.push_back(sine);
    }
  }
  return result;
}

/// The numbers of another spec; none where it cannot be.
void add_spec(Suspects& list, const Case& c, std::string found, RotarySpec spec, std::optional<std::int64_t> length) {
  try {
    const auto made = frequencies(spec, Numerics::exact, length);
    list.push_back(suspect(c, std::move(found), made.attention_factor, made.inv_freq));
  } catch (const Error&) {
  }
}
void add_spec(Suspects& list, const Case& c, std::string found, RotarySpec spec) {
  add_spec(list, c, std::move(found), std::move(spec), c.golden.length);
}

/// Right frequencies, other positions or arithmetic.
Suspect with_angle(const Case& c, std::string found, const Angle& angle) {
  return suspect(c, std::move(found), c.golden.attention_factor, c.golden.exact.inv_freq, angle);
}
Suspect with_frequencies(const Case& c, std::string found, Frequencies64 inv_freq) {
  return suspect(c, std::move(found), c.golden.attention_factor, std::move(inv_freq));
}

/// Frequencies by `change`, one by one; none beyond what a phase can hold.
Suspects changed(const Case& c, std::string found, double (*change)(double)) {
  Frequencies64 values = c.golden.exact.inv_freq;
  for (auto& value : values) value = change(value);
  if (!std::all_of(values.begin(), values.end(), [](double value) { return value >= 0 && value < 0x1p53; })) return {};
  return {with_frequencies(c, std::move(found), std::move(values))};
}

// Specs.

template <class Rule>
const Rule* rule_in(const Case& c) {
  return std::get_if<Rule>(&c.golden.spec.rule);
}

RotarySpec with_rule(const Case& c, RotaryRule rule) {
  RotarySpec spec = c.golden.spec;
  spec.rule = std::move(rule);
  return spec;
}
RotarySpec with_theta(const Case& c, double theta) {
  RotarySpec spec = c.golden.spec;
  spec.theta = theta;
  return spec;
}

/// The rule's own factor, where it has one.
std::optional<double> factor_of(const RotarySpec& spec) {
  return std::visit(
      [](const auto& rule) -> std::optional<double> {
        if constexpr (requires { rule.factor; }) return rule.factor;
        return std::nullopt;
      },
      spec.rule);
}
RotarySpec with_factor(const Case& c, double factor) {
  RotarySpec spec = c.golden.spec;
  std::visit(
      [&](auto& rule) {
        if constexpr (requires { rule.factor; }) rule.factor = factor;
      },
      spec.rule);
  return spec;
}

std::optional<std::int64_t> original_length(const RotarySpec& spec) {
  return std::visit(
      [](const auto& rule) -> std::optional<std::int64_t> {
        if constexpr (requires { rule.original_max_position_embeddings; }) return rule.original_max_position_embeddings;
        if constexpr (requires { rule.max_position_embeddings; }) return rule.max_position_embeddings;
        return std::nullopt;
      },
      spec.rule);
}
RotarySpec with_original_length(const Case& c, std::int64_t length) {
  RotarySpec spec = c.golden.spec;
  std::visit(
      [&](auto& rule) {
        if constexpr (requires { rule.original_max_position_embeddings; }) rule.original_max_position_embeddings = length;
        if constexpr (requires { rule.max_position_embeddings; }) rule.max_position_embeddings = length;
      },
      spec.rule);
  return spec;
}

Frequencies64 unscaled(const RotarySpec& golden_spec, double theta, int denominator) {
  RotarySpec spec{.rule = rotary::Default{}, .theta = theta, .head_dim = denominator, .rotary_dim = denominator};
  auto all = frequencies(spec).inv_freq;
  all.resize(std::min(all.size(), static_cast<std::size_t>(golden_spec.rotary_dim / 2)));
  return all;
}

// What fits: a parameter found from the frequencies that the values have.

struct Rounded {
  double value;
  int digits;
};

/// x with few digits first: 10000, then 9999.7.
std::vector<Rounded> roundings(double x) {
  std::vector<Rounded> result;
  for (const int digits : {1, 2, 3, 4, 6, 9}) {
    const int power = digits - 1 - static_cast<int>(std::floor(std::log10(x)));
    const double scale = std::pow(10.0, std::abs(power));
    const double rounded = power > 0 ? std::round(x * scale) / scale : std::round(x / scale) * scale;
    const bool fresh = result.empty() || result.back().value != rounded;
    if (std::abs(rounded / x - 1) < 0.01 && fresh) result.push_back({rounded, digits});
  }
  result.push_back({x, 17});
  return result;
}

/// Where a falling or rising function of x takes the wanted value, by bisection of ln x; nothing where it does not.
std::optional<double> solve(double low, double high, const std::function<double(double)>& excess) {
  double at_low = excess(low);
  if (!(at_low * excess(high) < 0)) return std::nullopt;
  for (int i = 0; i < 60; i++) {
    const double middle = std::sqrt(low * high), here = excess(middle);
    if (here * at_low > 0) {
      low = middle, at_low = here;
    } else {
      high = middle;
    }
  }
  return std::sqrt(low * high);
}

/// Fits one parameter of the spec to the frequency of a fast, a middle and the slowest pair; `describe` says what was found.
Suspects fitted(const Case& c, double low, double high, const std::function<RotarySpec(double)>& with,
                const std::function<std::string(double)>& describe) {
  Suspects list;
  const std::size_t pairs = c.golden.exact.inv_freq.size();
  if (c.inv_freq.size() != pairs) return list;
  for (const std::size_t pair : {pairs - 1, pairs / 2, std::size_t{1}}) {
    if (pair >= pairs || c.golden.exact.inv_freq[pair] == 0) continue;
    try {
      const auto excess = [&](double x) {
        return frequencies(with(x), Numerics::exact, c.golden.length).inv_freq[pair] - c.inv_freq[pair];
      };
      const auto x = solve(low, high, excess);
      if (!x) continue;
      for (const auto& rounded : roundings(*x)) {
        const std::size_t before = list.size();
        add_spec(list, c, describe(rounded.value), with(rounded.value));
        if (list.size() > before) list.back().digits = rounded.digits;
      }
    } catch (const Error&) {
    }
  }
  return list;
}

// The mistakes, in the order of the table.

std::pair<double, double> float32_angle(double position, double inv_freq) {
  return of_radians(static_cast<float>(position) * static_cast<float>(inv_freq));
}

Suspects float32_product(const Case& c) {
  const auto& golden = c.golden;
  const auto* found = c.positions.empty() ? "frequencies made in float32" : "angles are one float32 product of position and frequency";
  Suspects list;
  for (const auto* made : {golden.hf ? &*golden.hf : nullptr, &golden.exact}) {
    if (made == nullptr) continue;
    auto values = made->inv_freq;
    for (auto& value : values) value = static_cast<float>(value);
    list.push_back(suspect(c, found, golden.attention_factor, values, float32_angle));
  }
  return list;
}

Suspects float32_steps(const Case& c) {
  const auto& spec = c.golden.spec;
  if (spec.theta <= 0 || spec.axes > 1) return {};
  const auto base = unscaled(spec, spec.theta, spec.rotary_dim);
  const auto step = static_cast<float>(std::pow(spec.theta, -2.0 / spec.rotary_dim));
  Frequencies64 iterated, powers;
  float product = 1;
  for (std::size_t i = 0; i < base.size(); i++, product *= step) {
    const auto scale = static_cast<float>(c.golden.exact.inv_freq[i] / base[i]);
    iterated.push_back(product * scale);
    powers.push_back(static_cast<float>(std::pow(static_cast<double>(step), static_cast<double>(i))) * scale);
  }
  return {suspect(c, "each frequency from the one before, in float32", c.golden.attention_factor, iterated, float32_angle),
          suspect(c, "powers of one float32 step", c.golden.attention_factor, powers, float32_angle)};
}

Suspects unscaled_rule(const Case& c) {
  Suspects list;
  if (const auto* rule = rule_in<rotary::Proportional>(c)) {
    if (rule->factor != 1) add_spec(list, c, "no division by the factor", with_factor(c, 1));
  } else if (!rule_in<rotary::Default>(c) && c.golden.spec.theta > 0) {
    RotarySpec spec = with_rule(c, rotary::Default{});
    spec.attention_factor.reset();
    add_spec(list, c, fmt::format("plain frequencies of theta {} instead of {}", spec.theta, rule_name(c.golden.spec.rule)), spec);
  }
  return list;
}

Suspects theta_10000(const Case& c) {
  Suspects list;
  const double theta = c.golden.spec.theta;
  if (theta > 0 && theta != 10000) add_spec(list, c, fmt::format("theta 10000 instead of {}", theta), with_theta(c, 10000));
  return list;
}

Suspects parameters_ignored(const Case& c) {
  Suspects list;
  const double theta = c.golden.spec.theta;
  if (theta <= 0 || theta == 10000 || rule_in<rotary::Default>(c)) return list;
  RotarySpec spec = with_rule(c, rotary::Default{});
  spec.theta = 10000;
  spec.attention_factor.reset();
  add_spec(list, c, fmt::format("theta 10000 without scaling instead of {} with theta {}", rule_name(c.golden.spec.rule), theta), spec);
  return list;
}

Suspects theta(const Case& c) {
  if (c.golden.spec.theta <= 0) return {};
  return fitted(
      c, 1.0001, 1e15, [&](double x) { return with_theta(c, x); },
      [&](double x) { return fmt::format("theta {} instead of {}", x, c.golden.spec.theta); });
}

Suspects exponent(const Case& c) {
  const auto& spec = c.golden.spec;
  const auto pairs = static_cast<std::size_t>(spec.rotary_dim / 2);
  if (spec.theta <= 0 || spec.axes > 1) return {};
  const auto base = unscaled(spec, spec.theta, spec.rotary_dim);
  Suspects list;
  const auto add = [&](std::string found, auto&& power_of) {
    Frequencies64 values;
    for (std::size_t i = 0; i < pairs; i++) {
      values.push_back(c.golden.exact.inv_freq[i] / base[i] * std::pow(spec.theta, -power_of(static_cast<double>(i))));
    }
    list.push_back(with_frequencies(c, std::move(found), std::move(values)));
  };
  add("exponent i/r instead of 2i/r", [&](double i) { return i / spec.rotary_dim; });
  if (pairs > 1) add("exponent i/(r/2 - 1) instead of 2i/r", [&](double i) { return i / static_cast<double>(pairs - 1); });
  return list;
}

Suspects head_dim_exponent(const Case& c) {
  const auto& spec = c.golden.spec;
  Suspects list;
  if (spec.rotary_dim == spec.head_dim || spec.theta <= 0 || spec.axes > 1 || spec.head_dim % 2 != 0) return list;
  RotarySpec whole = spec;
  whole.rotary_dim = whole.head_dim, whole.rotary_offset = 0, whole.sections.clear();
  add_spec(list, c, fmt::format("exponent over head_dim {} instead of rotary_dim {}", spec.head_dim, spec.rotary_dim), whole);
  const auto pairs = static_cast<std::size_t>(spec.rotary_dim / 2);
  for (auto& made : list)
    made = suspect(c, made.found, made.attention_factor,
                   {made.numbers.inv_freq.begin(), made.numbers.inv_freq.begin() + static_cast<std::ptrdiff_t>(pairs)});
  return list;
}

Suspects whole_head(const Case& c) {
  const auto& spec = c.golden.spec;
  Suspects list;
  RotarySpec whole = spec;
  whole.rotary_dim = whole.head_dim, whole.rotary_offset = 0, whole.sections.clear();
  if (rule_in<rotary::Proportional>(c)) whole.rule = rotary::Default{};
  if (whole == spec || spec.axes > 1) return list;
  add_spec(list, c, fmt::format("all {} pairs of the head turn", spec.head_dim / 2), whole);
  return list;
}

Suspects re_spread(const Case& c) {
  Suspects list;
  const auto* rule = rule_in<rotary::Proportional>(c);
  if (rule == nullptr) return list;
  RotarySpec spec = with_rule(c, rotary::Default{});
  spec.rotary_dim = 2 * rule->turning(rule_inputs(c.golden.spec).front());
  const auto found = fmt::format("exponent over the {} turning channels instead of head_dim {}", spec.rotary_dim, spec.head_dim);
  add_spec(list, c, found, spec);
  if (list.empty()) return list;
  auto padded = list.front().numbers.inv_freq;
  padded.resize(c.golden.exact.inv_freq.size(), 0);
  list.push_back(with_frequencies(c, found, padded));
  return list;
}

Suspects scaled_twice(const Case& c) {
  Suspects list;
  if (const auto factor = factor_of(c.golden.spec); factor && *factor != 1) {
    add_spec(list, c, fmt::format("factor {} instead of {}, its square", *factor * *factor, *factor), with_factor(c, *factor * *factor));
  }
  return list;
}

Suspects factor(const Case& c) {
  const auto own = factor_of(c.golden.spec);
  if (!own) return {};
  return fitted(
      c, 1, 1e9, [&](double x) { return with_factor(c, std::max(x, 1.0)); },
      [&](double x) { return fmt::format("factor {} instead of {}", x, *own); });
}

Suspects other_original_length(const Case& c) {
  Suspects list;
  const auto own = original_length(c.golden.spec);
  if (!own) return list;
  std::vector<std::int64_t> lengths;
  const auto factor = factor_of(c.golden.spec).value_or(1);
  lengths.push_back(std::llround(static_cast<double>(*own) * std::min(factor, 1e6)));
  for (int power = 8; power <= 22; power++) lengths.push_back(std::int64_t{1} << power);
  for (const auto length : lengths) {
    if (length == *own) continue;
    add_spec(list, c, fmt::format("original length {} instead of {}", length, *own), with_original_length(c, length));
  }
  return list;
}

Suspects llama3_constants(const Case& c) {
  Suspects list;
  const rotary::Llama3 published{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192};
  if (const auto* rule = rule_in<rotary::Llama3>(c); rule != nullptr && *rule != published) {
    add_spec(list, c, "factor 8, bounds 1 and 4, original length 8192, whatever the file says", with_rule(c, published));
  }
  return list;
}

Suspects yarn_truncate(const Case& c) {
  const auto* own = rule_in<rotary::Yarn>(c);
  Suspects list;
  if (own == nullptr) return list;
  rotary::Yarn rule = *own;
  rule.truncate = !rule.truncate;
  add_spec(list, c, rule.truncate ? "bounds of the ramp rounded to whole pairs" : "bounds of the ramp not rounded", with_rule(c, rule));
  return list;
}

Suspects yarn_ramp(const Case& c) {
  const auto* own = rule_in<rotary::Yarn>(c);
  Suspects list;
  if (own == nullptr) return list;
  rotary::Yarn rule = *own;
  const bool turning = rule.ramp == rotary::YarnRamp::turns;
  rule.ramp = turning ? rotary::YarnRamp::pair_index : rotary::YarnRamp::turns;
  add_spec(list, c, turning ? "ramp over the pair index instead of turns" : "ramp over turns instead of the pair index",
           with_rule(c, rule));
  if (c.golden.spec.axes > 1) return list;
  const auto base = unscaled(c.golden.spec, c.golden.spec.theta, c.golden.spec.rotary_dim);
  Frequencies64 reversed;
  for (std::size_t i = 0; i < base.size(); i++) reversed.push_back(base[i] * (1 + 1 / rule.factor) - c.golden.exact.inv_freq[i]);
  list.push_back(with_frequencies(c, "ramp reversed: fast pairs interpolated, slow ones kept", reversed));
  return list;
}

Suspects yarn_betas(const Case& c) {
  const auto* own = rule_in<rotary::Yarn>(c);
  Suspects list;
  if (own == nullptr || (own->beta_fast == 32 && own->beta_slow == 1)) return list;
  rotary::Yarn rule = *own;
  rule.beta_fast = 32, rule.beta_slow = 1;
  add_spec(list, c, fmt::format("beta_fast 32 and beta_slow 1 instead of {} and {}", own->beta_fast, own->beta_slow), with_rule(c, rule));
  return list;
}

Suspects longrope_list(const Case& c) {
  Suspects list;
  const auto* rule = rule_in<rotary::Longrope>(c);
  if (rule == nullptr) return list;
  const auto own = rule->original_max_position_embeddings;
  const bool is_long = c.golden.length.value_or(0) > own;
  add_spec(list, c, is_long ? "the short list for a long sequence" : "the long list for a short sequence", c.golden.spec,
           is_long ? own : own + 1);
  return list;
}

Suspects dynamic_length(const Case& c) {
  Suspects list;
  const auto* rule = rule_in<rotary::Dynamic>(c);
  if (rule == nullptr) return list;
  const auto trained = rule->max_position_embeddings;
  add_spec(list, c, "the base of the trained length", c.golden.spec, trained);
  for (std::int64_t length = 2; length <= 1024; length *= 2) {
    add_spec(list, c, fmt::format("the base of length {}", length * trained), c.golden.spec, length * trained);
  }
  return list;
}

Suspects another_rule(const Case& c) {
  const auto& spec = c.golden.spec;
  const auto s = factor_of(spec);
  Suspects list;
  if (!s || *s <= 1 || spec.theta <= 0) return list;
  const auto own = rule_name(spec.rule);
  const auto add = [&](std::string_view name, RotaryRule rule) {
    if (name != own) add_spec(list, c, fmt::format("{} with factor {} instead of {}", name, *s, own), with_rule(c, std::move(rule)));
  };
  add("linear", rotary::Linear{.factor = *s});
  add("ntk", rotary::Ntk{.factor = *s});
  if (const auto length = original_length(spec)) {
    add("yarn", rotary::Yarn{.factor = *s, .original_max_position_embeddings = *length});
    add("llama3", rotary::Llama3{.factor = *s, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = *length});
  }
  RotarySpec multiplied = with_rule(c, rotary::Default{});
  multiplied.theta *= *s;
  add_spec(list, c, fmt::format("theta times {} instead of {}", *s, own), multiplied);
  return list;
}

/// The frequencies with every one divided by x: found as the quotient at the middle of the pairs that turn.
Suspects divided(const Case& c) {
  const auto& right = c.golden.exact.inv_freq;
  Suspects list;
  if (c.inv_freq.size() != right.size()) return list;
  for (const std::size_t pair : {std::size_t{0}, right.size() / 4}) {
    const double quotient = right[pair] / c.inv_freq[pair];
    if (!(quotient > 1e-9 && quotient < 1e9)) continue;
    for (const auto& x : roundings(quotient)) {
      auto values = right;
      for (auto& value : values) value /= x.value;
      list.push_back(with_frequencies(c, fmt::format("every frequency divided by {}", x.value), std::move(values)));
      list.back().digits = x.digits;
    }
  }
  return list;
}

/// theta and a division at once: a straight line through the logarithms.
Suspects theta_and_divided(const Case& c) {
  const auto& spec = c.golden.spec;
  Suspects list;
  const std::size_t pairs = c.golden.exact.inv_freq.size();
  if (c.inv_freq.size() != pairs || pairs < 2 || spec.axes > 1 || !(c.inv_freq.front() > 0) || !(c.inv_freq.back() > 0)) return list;
  const double theta = std::pow(c.inv_freq.front() / c.inv_freq.back(), static_cast<double>(pairs) / static_cast<double>(pairs - 1));
  const double divisor = 1 / c.inv_freq.front();
  if (!(theta > 1 && theta < 1e15 && divisor > 1e-9 && divisor < 1e9)) return list;
  for (const auto& s : roundings(divisor)) {
    for (const auto& base : roundings(theta)) {
      auto values = unscaled(spec, base.value, spec.rotary_dim);
      for (auto& value : values) value /= s.value;
      const auto found = fmt::format("theta {}, every frequency divided by {}", base.value, s.value);
      list.push_back(suspect(c, found, 1, std::move(values)));
      list.back().digits = 3 + std::max(s.digits, base.digits);  // two parameters are less simple than one
    }
  }
  return list;
}

template <class Type>
double rounded(double value) {
  return static_cast<double>(widen(round<Type>(value)));
}

Suspects positions_in_16_bits(const Case& c) {
  return {with_angle(c, "positions rounded to bf16", [](double p, double w) { return exact_angle(rounded<Bf16>(p), w); }),
          with_angle(c, "positions rounded to f16",
                     [](double p, double w) { return exact_angle(rounded<F16>(std::clamp(p, -65504.0, 65504.0)), w); })};
}

template <class Type>
void add_16_bit_frequencies(Suspects& list, const Case& c, std::string_view type) {
  auto values = c.golden.exact.inv_freq;
  for (auto& value : values) value = rounded<Type>(value);
  if (!std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); })) return;
  list.push_back(with_frequencies(c, fmt::format("frequencies rounded to {}", type), values));
  list.push_back(suspect(c, fmt::format("frequencies and angles rounded to {}", type), c.golden.attention_factor, values,
                         [](double p, double w) { return of_radians(rounded<Type>(rounded<Type>(p) * w)); }));
}
Suspects frequencies_in_16_bits(const Case& c) {
  Suspects list;
  add_16_bit_frequencies<F16>(list, c, "f16");
  add_16_bit_frequencies<Bf16>(list, c, "bf16");
  return list;
}

Suspects angles_in_16_bits(const Case& c) {
  return {with_angle(c, "angles rounded to bf16", [](double p, double w) { return of_radians(rounded<Bf16>(p * w)); }),
          with_angle(c, "angles rounded to f16", [](double p, double w) { return of_radians(rounded<F16>(p * w)); })};
}

Suspects offset(const Case& c) {
  Suspects list;
  for (const int d : {1, -1, 2, -2}) {
    list.push_back(with_angle(c, fmt::format("position p stands for p {} {}", d > 0 ? '+' : '-', std::abs(d)),
                              [d](double p, double w) { return exact_angle(p + d, w); }));
  }
  return list;
}

Suspects not_rotated(const Case& c) {
  return {with_angle(c, "every position is 0", [](double, double w) { return exact_angle(0, w); })};
}

Suspects clamped(const Case& c) {
  Suspects list;
  const auto length = original_length(c.golden.spec);
  if (!length) return list;
  for (const auto last : {*length - 1, *length}) {
    const auto limit = static_cast<double>(last);
    list.push_back(with_angle(c, fmt::format("positions beyond {} taken for {}", last, last),
                              [limit](double p, double w) { return exact_angle(std::min(p, limit), w); }));
  }
  return list;
}

Suspects whole_positions(const Case& c) {
  const auto* rule = rule_in<rotary::Linear>(c);
  if (rule == nullptr) return {};
  const double s = rule->factor;
  return {with_angle(c, fmt::format("positions divided by {} and cut to integers", s),
                     [s](double p, double w) { return of_radians(std::floor(p / s) * (w * s)); })};
}

Suspects swapped(const Case& c) {
  return {with_angle(c, "sin stands where cos should", [](double p, double w) {
    const auto [cosine, sine] = exact_angle(p, w);
    return std::pair(sine, cosine);
  })};
}

Suspects sine_sign(const Case& c) {
  return {with_angle(c, "the other way round: sin has the other sign", [](double p, double w) { return exact_angle(-p, w); })};
}

Suspects periods(const Case& c) {
  return changed(c, "1 / frequency", [](double w) { return 1 / w; });
}
Suspects wavelengths(const Case& c) {
  return changed(c, "2 pi / frequency", [](double w) { return 2 * pi / w; });
}
Suspects in_turns(const Case& c) {
  return changed(c, "frequency / 2 pi", [](double w) { return w / (2 * pi); });
}

Suspects divisors(const Case& c) {
  const auto& spec = c.golden.spec;
  if (spec.theta <= 0 || spec.axes > 1 || rule_in<rotary::Default>(c)) return {};
  auto values = unscaled(spec, spec.theta, spec.rotary_dim);
  for (std::size_t i = 0; i < values.size(); i++) {
    if (c.golden.exact.inv_freq[i] == 0) return {};
    values[i] /= c.golden.exact.inv_freq[i];
  }
  return {with_frequencies(c, "plain frequency / frequency", std::move(values))};
}

Suspects degrees(const Case& c) {
  Suspects list = changed(c, "frequency times 180 / pi", [](double w) { return w * (180 / pi); });
  for (auto& other : changed(c, "frequency times pi / 180", [](double w) { return w * (pi / 180); })) list.push_back(std::move(other));
  return list;
}

Suspects reversed(const Case& c) {
  return {with_frequencies(c, "the slowest pair first", {c.golden.exact.inv_freq.rbegin(), c.golden.exact.inv_freq.rend()})};
}

// float32-product comes first: verify allows it what it allows to nothing else.
constexpr Hypothesis table[] = {
    {"float32-product", "the float32 pipeline of transformers and most engines", float32_product},
    {"float32-steps", "ggml makes frequencies from a float32 step theta^(-2/r), whose rounding grows with the pair", float32_steps},
    {"unscaled", "the scaling was dropped: its key was not read, or its type not known", unscaled_rule},
    {"theta-10000", "theta was not found where the reader looked, and 10000 taken for it", theta_10000},
    {"rope-parameters-ignored", "a reader that does not know rope_parameters takes theta 10000 and no scaling", parameters_ignored},
    {"scaled-twice", "the scaling was applied to frequencies that had it already", scaled_twice},
    {"re-spread", "a proportional rotation taken for a partial one, whose exponent runs over the rotated channels", re_spread},
    {"head-dim-exponent", "the exponent of a partial rotation taken over the whole head", head_dim_exponent},
    {"whole-head", "the partial rotary factor was ignored", whole_head},
    {"llama3-constants", "code with the constants of Llama 3.1 fixed in it", llama3_constants},
    {"yarn-truncate", "engines disagree on rounding the bounds of YaRN's ramp to whole pairs", yarn_truncate},
    {"yarn-ramp", "YaRN's ramp as the paper's text has it, or turned round", yarn_ramp},
    {"yarn-betas", "beta_fast and beta_slow were not read", yarn_betas},
    {"longrope-list", "the list of LongRoPE chosen by the length of the cache instead of the sequence, or always the same one",
     longrope_list},
    {"dynamic-length", "dynamic NTK with the base of another length than the sequence's", dynamic_length},
    {"factor", "another factor: max_position_embeddings / original instead of the stated one, or a default", factor},
    {"original-length", "original_max_position_embeddings was not read, or the extended length taken for it", other_original_length},
    {"another-rule", "the factor applied by another method", another_rule},
    {"theta", "another base: a default, or that of another layer or model", theta},
    {"exponent", "another exponent in theta^(-2i/r)", exponent},
    {"divided", "every frequency, or every position, divided by one number: a linear scaling too much, or of other layers", divided},
    {"theta-and-divided", "another base and a linear scaling: the set-up of another layer or model", theta_and_divided},
    {"positions-16-bit", "positions cast to the dtype of the activations", positions_in_16_bits},
    {"frequencies-16-bit", "a half-precision cast of the model took its frequencies with it", frequencies_in_16_bits},
    {"angles-16-bit", "the product of position and frequency under autocast", angles_in_16_bits},
    {"offset", "positions counted from another start: 1, or past a padding row", offset},
    {"not-rotated", "positions were never set: every token stands at 0", not_rotated},
    {"clamped", "positions cut at the trained length", clamped},
    {"whole-positions", "scaled positions kept as integers", whole_positions},
    {"cos-sin-swapped", "tables in the order (sin, cos), as timm hands them out", swapped},
    {"sine-sign", "the transposed rotation: that of the gradient, or of moving a key back", sine_sign},
    {"periods", "MLX calls theta^(2i/r) freqs; they are periods", periods},
    {"wavelengths", "wavelengths taken for frequencies", wavelengths},
    {"turns", "frequencies in turns taken for radians", in_turns},
    {"divisors", "GGUF's rope_freqs are divisors of the plain frequencies, 1 where nothing is scaled", divisors},
    {"degrees", "degrees and radians mixed", degrees},
    {"reversed", "the order of the pairs turned round", reversed},
};

// Magnitudes.

constexpr MagnitudeHypothesis magnitudes[] = {
    {"magnitude-missing", "no magnitude was applied", [](const Golden&) { return 1.0; }},
    {"magnitude-twice", "the magnitude was applied twice: to cos and sin and once more, or again when a cached key was moved",
     [](const Golden& golden) { return golden.attention_factor * golden.attention_factor; }},
    {"magnitude-implied", "the stated attention_factor, or the pair mscale and mscale_all_dim, was ignored",
     [](const Golden& golden) {
       RotarySpec spec = golden.spec;
       spec.attention_factor.reset();
       if (auto* yarn = std::get_if<rotary::Yarn>(&spec.rule)) yarn->mscale.reset();
       return effective_attention_factor(spec);
     }},
    {"magnitude-multiplied", "the stated attention_factor was taken for a multiplier of the rule's own",
     [](const Golden& golden) {
       RotarySpec spec = golden.spec;
       spec.attention_factor.reset();
       return golden.attention_factor * effective_attention_factor(spec);
     }},
    {"magnitude-root", "the magnitude was taken for that of a score, and its root applied",
     [](const Golden& golden) { return std::sqrt(golden.attention_factor); }},
};

}  // namespace

std::span<const Hypothesis> hypotheses() { return table; }
std::span<const MagnitudeHypothesis> magnitude_hypotheses() { return magnitudes; }

std::vector<MistakeInfo> list_mistakes() {
  std::vector<MistakeInfo> list;
  for (const auto& hypothesis : table) list.push_back({hypothesis.name, hypothesis.cause});
  for (const auto& hypothesis : magnitudes) list.push_back({hypothesis.name, hypothesis.cause});
  list.push_back(magnitude_mistake);
  list.push_back(layout_mistake);
  list.push_back(exact_numbers);
  return list;
}

}  // namespace gnomon
