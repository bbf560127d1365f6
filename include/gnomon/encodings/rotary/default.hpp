// SPDX-License-Identifier: Apache-2.0
// ② Rotary rule `default`: no scaling.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::rotary {

/// inv_freq[i] = theta^(-2i/rotary_dim). Beyond the trained length nothing changes: it extrapolates.
struct Default {
  static constexpr std::string_view name = "default";
  static constexpr std::string_view summary = "Rotary position embedding without scaling.";
  static constexpr std::string_view formula = "inv_freq[i] = theta^(-2i/rotary_dim)";
  static constexpr std::string_view citation = "Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2";
  static constexpr std::tuple<> fields{};

  template <class A>
  std::vector<typename A::Element> inv_freq(const RuleInput& input) const {
    return unscaled_inv_freq<A>(input);
  }
  bool in_transformers() const { return true; }
  bool operator==(const Default&) const = default;
};

}  // namespace gnomon::rotary
