// SPDX-License-Identifier: Apache-2.0
// Random specs of any registered rule, drawn from its field list, so that a new rule is tested the moment it stands in the list.
#pragma once

#include <rapidcheck.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gnomon/error.hpp"
#include "gnomon/spec.hpp"

namespace testing_support {

/// Draws from a fixed sequence: for tests that measure.
class SequenceDraw {
 public:
  explicit SequenceDraw(std::uint64_t seed) : engine_(seed) {}
  /// A whole number in [low, high].
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % (static_cast<std::uint64_t>(high - low) + 1));
  }

 private:
  std::mt19937_64 engine_;
};

/// Draws inside a RapidCheck property: what fails is shrunk.
class PropertyDraw {
 public:
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(low, high + 1));  // the whole range from the first case on
  }
};

/// A real number in [low, high], evenly spread over the exponents.
template <class Draw>
double scaled(Draw& draw, double low, double high) {
  constexpr std::int64_t steps = std::int64_t{1} << 40;
  const double value = low * std::pow(high / low, static_cast<double>(draw.whole(0, steps)) / static_cast<double>(steps));
  return std::fmin(std::fmax(value, low), high);
}

/// A real number in [low, high], evenly spread.
template <class Draw>
double even(Draw& draw, double low, double high) {
  constexpr std::int64_t steps = std::int64_t{1} << 40;
  return low + (high - low) * static_cast<double>(draw.whole(0, steps)) / static_cast<double>(steps);
}

/// A value for a field: of the size its name has in models, else anything its bound allows. Every other draw is a whole number.
template <class Draw>
double draw_number(Draw& draw, std::string_view name, const gnomon::Bound& bound) {
  double low = 0x1p-6, high = 0x1p12;
  if (name == "factor") low = 1, high = 128;
  if (name == "original_max_position_embeddings") low = 64, high = 0x1p21;
  if (name.starts_with("beta_") || name.ends_with("_freq_factor")) low = 0.25, high = 64;
  if (name.starts_with("mscale")) low = 0.25, high = 2;
  if (name == "partial_rotary_factor") low = 0.1, high = 1;
  if (name == "scale_base") low = 0x1p29, high = 0x1p33;  // magnitudes stay within float32 at every position of the contract
  if (name == "inv_freq") low = 1e-9, high = 4;
  if (name == "axes") low = 1, high = 4;
  if (name.ends_with("_factor") && name != "partial_rotary_factor" && !name.ends_with("_freq_factor")) low = 0.9, high = 64;
  low = std::fmax(low, bound.low);
  const double value = scaled(draw, low, high);
  return draw.whole(0, 1) == 0 || high < 2 ? value : std::fmax(std::round(value), std::ceil(low));
}

template <class Draw, class Value>
void draw_field(Draw& draw, Value& value, std::string_view name, const gnomon::Bound& bound, int pairs) {
  if constexpr (std::is_same_v<Value, std::vector<double>>) {
    for (int i = 0; i < pairs; i++) value.push_back(draw_number(draw, name, bound));
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = draw.whole(0, 1) == 1;
  } else if constexpr (std::is_enum_v<Value>) {
    value = static_cast<Value>(draw.whole(0, static_cast<std::int64_t>(std::size(gnomon::enum_names<Value>)) - 1));
  } else if constexpr (std::is_same_v<Value, double>) {
    value = draw_number(draw, name, bound);
  } else if constexpr (std::is_integral_v<Value>) {
    value = static_cast<Value>(std::fmax(std::round(draw_number(draw, name, bound)), std::ceil(bound.low)));
  } else {
    static_assert(std::is_same_v<Value, std::optional<double>>, "a kind of field the generator does not know: teach it");
    if (draw.whole(0, 2) > 0) value = draw_number(draw, name, bound);
  }
}

/// A list gets a value for each of the pairs.
template <class Rule, class Draw>
Rule draw_rule(Draw& draw, int pairs) {
  Rule rule;
  std::apply([&](const auto&... field) { (draw_field(draw, rule.*field.member, field.name, field.bound, pairs), ...); }, Rule::fields);
  return rule;
}

/// xpos alone has magnitudes that depend on the position, so norms are not kept and nothing is undone by the opposite sine.
template <class Rule>
constexpr bool is_pure_rotation = !requires(const Rule& rule) { rule.log_magnitude(gnomon::RuleInput{}); };

/// Limits of what random_spec draws.
struct SpecLimits {
  double least_theta = 1.5;
  double greatest_theta = 1e9;
  int most_pairs = 128;
  bool axes = false;  ///< sections or several axes in most specs
};

/// Cuts `pairs` into `number` parts of at least one pair.
template <class Draw>
std::vector<int> draw_sections(Draw& draw, int pairs, int number) {
  std::vector<int> sections;
  for (int left = number; left > 1; left--) {
    sections.push_back(static_cast<int>(draw.whole(1, pairs - left + 1)));
    pairs -= sections.back();
  }
  sections.push_back(pairs);
  return sections;
}

/// Sections of one list of frequencies, or axes with frequencies of their own, in equal shares or in sections; or none of them.
template <class Draw>
void draw_axes(Draw& draw, gnomon::RotarySpec& spec) {
  const int pairs = spec.rotary_dim / 2, number = static_cast<int>(draw.whole(2, 4));
  const auto kind = draw.whole(0, 3);
  if (kind == 0 || pairs < number) return;
  if (kind > 1) spec.axes = number;
  if (kind < 3) spec.sections = draw_sections(draw, pairs, number);
  if (kind != 1) return;
  spec.section_order = static_cast<gnomon::SectionOrder>(draw.whole(0, 2));
  if (spec.section_order != gnomon::SectionOrder::time_last) return;
  spec.sections.assign(static_cast<std::size_t>(number), static_cast<int>(draw.whole(1, (pairs - 1) / (number - 1))));
  spec.sections[0] = pairs - (number - 1) * spec.sections[1];
}

/// A valid spec of the rule. Combinations the rule refuses are drawn again; a rule that refuses all of them fails the test.
template <class Rule, class Draw>
gnomon::RotarySpec draw_spec(Draw& draw, const SpecLimits& limits = {}) {
  std::string last;
  for (int attempt = 0; attempt < 100; attempt++) {
    gnomon::RotarySpec spec;
    spec.rotary_dim = 2 * static_cast<int>(draw.whole(1, limits.most_pairs));
    if (limits.axes) draw_axes(draw, spec);
    spec.rule = draw_rule<Rule>(draw, gnomon::rule_inputs(spec).front().pairs());
    spec.theta = scaled(draw, limits.least_theta, limits.greatest_theta);
    if (draw.whole(0, 1) == 1) spec.theta = std::fmax(std::round(spec.theta), 2);
    if (!gnomon::needs_theta<Rule>()) spec.theta = 0;
    spec.rotary_offset = draw.whole(0, 2) == 0 ? static_cast<int>(draw.whole(0, 9)) : 0;
    spec.head_dim = spec.rotary_dim + spec.rotary_offset + (draw.whole(0, 2) == 0 ? static_cast<int>(draw.whole(0, 9)) : 0);
    spec.layout = draw.whole(0, 1) == 0 ? gnomon::PairLayout::half_split : gnomon::PairLayout::interleaved;
    if (draw.whole(0, 3) == 0) {
      spec.attention_factor = even(draw, 0.5, 2);
      gnomon::RotarySpec implied = spec;  // an override equal to what the rule implies is none, by the JSON contract
      implied.attention_factor.reset();
      if (gnomon::effective_attention_factor(implied) == *spec.attention_factor) spec.attention_factor.reset();
    }
    try {
      gnomon::validate(spec);
      return spec;
    } catch (const gnomon::Error& error) {
      last = error.what();
    }
  }
  throw std::logic_error("no valid spec of the rule \"" + std::string(Rule::name) + "\" in 100 draws (" + last +
                         "): teach tests/support/random_spec.hpp the size of its fields");
}

/// A valid spec of an absolute rule, drawn in the same way.
template <class Rule, class Draw>
gnomon::AbsoluteSpec draw_absolute_spec(Draw& draw) {
  std::string last;
  for (int attempt = 0; attempt < 100; attempt++) {
    gnomon::AbsoluteSpec spec{.rule = draw_rule<Rule>(draw, 0), .width = static_cast<int>(draw.whole(1, 96))};
    try {
      gnomon::validate(spec);
      return spec;
    } catch (const gnomon::Error& error) {
      last = error.what();
    }
  }
  throw std::logic_error("no valid spec of the rule \"" + std::string(Rule::name) + "\" in 100 draws (" + last +
                         "): teach tests/support/random_spec.hpp the size of its fields");
}

}  // namespace testing_support
