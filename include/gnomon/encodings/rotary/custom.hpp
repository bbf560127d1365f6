// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `custom`: frequencies given by the caller.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// Frequencies from anywhere: learned, measured, or of a rule that has no file here. They are used as they are.
struct Custom {
  std::vector<double> inv_freq_given;

  static constexpr std::string_view name = "custom";
  static constexpr std::string_view summary = "Frequencies given as a list.";
  static constexpr std::string_view formula = "inv_freq[i] = the i-th value given";
  static constexpr std::string_view citation = "none: the numbers are the caller's";
  static constexpr std::tuple fields{
      required_field("inv_freq", &Custom::inv_freq_given, at_least(0), "angular frequency of each pair, in radians per position"),
  };
  static constexpr bool needs_theta = false;

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput&) const {
    std::vector<typename A::Element> result;
    for (const double value : inv_freq_given) result.push_back(A::element(value));
    return result;
  }
  void check(const RuleInput& input) const { check_list("inv_freq", inv_freq_given, input); }
  bool in_transformers() const { return false; }
  bool operator==(const Custom&) const = default;
};

}  // namespace gnomon::rotary
