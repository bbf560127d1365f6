// SPDX-License-Identifier: Apache-2.0
// ② The rule vocabulary: all that a file in encodings/<kind>/ may see. A rule is a struct with
//
//   static constexpr std::string_view name, summary, formula, citation;
//   static constexpr auto fields = std::tuple(field("factor", &Rule::factor, at_least(1), "…"), …);
//   template <class A> std::vector<typename A::Element> inv_freq(const RuleInput&) const;       a rotary rule itself
//   bool in_transformers() const;                                                               whether the `hf` profile exists for it
//   double attention_factor() const;          optional: the magnitude the rule implies (1 when absent)
//   void check(const RuleInput&) const;       optional: what no single field can tell (absolute: check(int width), bias: check())
//   static constexpr bool needs_theta;        optional: false for a rule without a base
//   static constexpr std::string_view example;  optional: fields of its example, where those of the field list would not fit together
//   static constexpr bool is_trained;         optional: true where the numbers are parameters of a model
//
// From these follow the variant, JSON both ways with strict key checks, `gnomon list` and `explain`, the Python class, the
// documentation table and the property tests.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "gnomon/encodings/arithmetic.hpp"
#include "gnomon/error.hpp"

namespace gnomon {

/// What every rotary rule may know beside its own fields.
struct RuleInput {
  double theta = 0;                                   ///< base of the frequencies
  int head_dim = 0;                                   ///< full width of a query or key
  int rotary_dim = 0;                                 ///< channels these frequencies rotate, even; pairs = rotary_dim / 2
  std::optional<std::int64_t> length = std::nullopt;  ///< of the sequence, in tokens; the trained length where none is given
  int pairs() const { return rotary_dim / 2; }
};

/// Whether a rule has a base; `custom` is given its frequencies and has none.
template <class Rule>
constexpr bool needs_theta() {
  if constexpr (requires { Rule::needs_theta; }) {
    return Rule::needs_theta;
  } else {
    return true;
  }
}

/// theta^(2i/rotary_dim) for every pair i: the inverse of the unscaled frequency.
template <class A>
std::vector<typename A::Element> periods(const RuleInput& input) {
  std::vector<typename A::Element> result;
  for (int i = 0; i < input.pairs(); i++) result.push_back(A::power(input.theta, 2 * i, input.rotary_dim));
  return result;
}

/// theta^(-2i/rotary_dim) for every pair i: the unscaled frequency, in radians per position (Su et al. 2021, section 3.2.2).
template <class A>
std::vector<typename A::Element> unscaled_inv_freq(const RuleInput& input) {
  auto result = periods<A>(input);
  for (auto& value : result) value = A::over(1, value);
  return result;
}

/// Throws Error(invalid_argument) unless a list has one value for each pair.
inline void check_list(std::string_view name, const std::vector<double>& list, const RuleInput& input) {
  if (list.size() == static_cast<std::size_t>(input.pairs())) return;
  throw Error(ErrorCode::invalid_argument, std::string(name) + ": expected one value for each of the " + std::to_string(input.pairs()) +
                                               " pairs, got " + std::to_string(list.size()));
}

/// The numbers a field may hold; NaN and infinity are never among them.
struct Bound {
  double low = -std::numeric_limits<double>::infinity();
  bool low_included = true;
  std::string_view text = "a finite number";
  double high = std::numeric_limits<double>::infinity();
};
constexpr Bound at_least(int low) {
  return {static_cast<double>(low), true, low == 1 ? "a number of at least 1" : "a number of at least 0"};
}
constexpr Bound positive() { return {0, false, "a positive number"}; }
/// Cells along a side of an image: 2^15 of them have offsets that 32 bits number.
constexpr Bound image_side() { return {1, true, "a number of 1 to 32768", 1 << 15}; }
constexpr Bound fraction() { return {0, false, "a number above 0 and at most 1", 1}; }

/// One field of a rule: its JSON and Python name, the member, what it (or each value of a list) may hold, one line of documentation.
/// A member is a double, std::int64_t, bool, std::optional<double>, std::vector<double> or an enumeration.
template <class Rule, class Value>
struct Field {
  std::string_view name;
  Value Rule::* member;
  Bound bound;
  std::string_view doc;
  bool required;  ///< without a default: a text that leaves it out is refused
};
template <class Rule, class Value>
constexpr Field<Rule, Value> field(std::string_view name, Value Rule::* member, Bound bound, std::string_view doc) {
  return {name, member, bound, doc, false};
}
template <class Rule, class Value>
constexpr Field<Rule, Value> required_field(std::string_view name, Value Rule::* member, Bound bound, std::string_view doc) {
  return {name, member, bound, doc, true};
}

/// Names of an enumeration that is a field; a rule file specialises it beside its enumeration, in the order of the values.
template <class Enum>
inline constexpr std::string_view enum_names[] = {""};

/// Calls `visit` with a default-constructed rule of every alternative of a list, in its order: for_each_rule<RotaryRule>(visit).
template <class... Rules>
void for_each_rule(auto&& visit, const std::variant<Rules...>*) {
  (visit(Rules{}), ...);
}
template <class List>
void for_each_rule(auto&& visit) {
  for_each_rule(visit, static_cast<const List*>(nullptr));
}

}  // namespace gnomon
