// SPDX-License-Identifier: Apache-2.0
// ② The rule vocabulary: all that a file in encodings/<kind>/ may see. A rule is a struct with
//
//   static constexpr std::string_view name, summary, formula, citation;
//   static constexpr auto fields = std::tuple(field("factor", &Rule::factor, at_least(1), "…"), …);
//   template <class A> std::vector<typename A::Element> inv_freq(const RotaryWidth&) const;     the rule itself
//   bool in_transformers() const;                                                               whether the `hf` profile exists for it
//   double attention_factor() const;          optional: the magnitude the rule implies (1 when absent)
//   void check(const RotaryWidth&) const;     optional: what no single field can tell
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
#include <vector>

#include "gnomon/encodings/arithmetic.hpp"
#include "gnomon/error.hpp"

namespace gnomon {

/// What every rotary rule may know beside its own fields.
struct RotaryWidth {
  double theta = 0;    ///< base of the frequencies
  int head_dim = 0;    ///< full width of a query or key
  int rotary_dim = 0;  ///< rotated channels, even; pairs = rotary_dim / 2
  int pairs() const { return rotary_dim / 2; }
};

/// theta^(2i/rotary_dim) for every pair i: the inverse of the unscaled frequency.
template <class A>
std::vector<typename A::Element> periods(const RotaryWidth& width) {
  std::vector<typename A::Element> result;
  for (int i = 0; i < width.pairs(); i++) result.push_back(A::power(width.theta, 2 * i, width.rotary_dim));
  return result;
}

/// theta^(-2i/rotary_dim) for every pair i: the unscaled frequency, in radians per position (Su et al. 2021, section 3.2.2).
template <class A>
std::vector<typename A::Element> unscaled_inv_freq(const RotaryWidth& width) {
  auto result = periods<A>(width);
  for (auto& value : result) value = A::over(1, value);
  return result;
}

/// The numbers a field may hold; NaN and infinity are never among them.
struct Bound {
  double low = -std::numeric_limits<double>::infinity();
  bool low_included = true;
  std::string_view text = "a finite number";
};
constexpr Bound at_least(int low) {
  return {static_cast<double>(low), true, low == 1 ? "a number of at least 1" : "a number of at least 0"};
}
constexpr Bound positive() { return {0, false, "a positive number"}; }

/// One field of a rule: its JSON and Python name, the member, what it may hold, one line of documentation.
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

}  // namespace gnomon
