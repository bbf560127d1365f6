// SPDX-License-Identifier: Apache-2.0
// The rules as real numbers, written from their papers a second time. It uses gnomon's structs for their fields and nothing else of it.
#pragma once

#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "gnomon/spec.hpp"
#include "real.hpp"

namespace oracle {

/// theta^(-2i/r)
inline Real unscaled(const gnomon::RotarySpec& spec, int pair) { return pow(Real(spec.theta), -(Real(2 * pair) / Real(spec.rotary_dim))); }

inline Real frequency(const gnomon::rotary::Default&, const gnomon::RotarySpec& spec, int pair) { return unscaled(spec, pair); }

inline Real frequency(const gnomon::rotary::Linear& rule, const gnomon::RotarySpec& spec, int pair) {
  return unscaled(spec, pair) / Real(rule.factor);
}

inline Real frequency(const gnomon::rotary::Ntk& rule, const gnomon::RotarySpec& spec, int pair) {
  const Real r(spec.rotary_dim);
  const Real base = Real(spec.theta) * pow(Real(rule.factor), r / (r - Real(2)));
  return pow(base, -(Real(2 * pair) / r));
}

/// c(beta) = r ln(L0 / (2 pi beta)) / (2 ln theta)
inline Real yarn_correction(const gnomon::rotary::Yarn& rule, const gnomon::RotarySpec& spec, double beta) {
  const Real turns = Real(rule.original_max_position_embeddings) / (Real(2) * Real::pi() * Real(beta));
  return Real(spec.rotary_dim) * log(turns) / (Real(2) * log(Real(spec.theta)));
}

inline std::pair<Real, Real> yarn_bounds(const gnomon::rotary::Yarn& rule, const gnomon::RotarySpec& spec) {
  Real low = yarn_correction(rule, spec, rule.beta_fast), high = yarn_correction(rule, spec, rule.beta_slow);
  if (rule.truncate) low = floor(low), high = ceil(high);
  low = max(low, Real(0));
  high = min(high, Real(spec.rotary_dim - 1));
  if (low == high) high = high + Real(1) / Real(1000);
  return {low, high};
}

inline Real frequency(const gnomon::rotary::Yarn& rule, const gnomon::RotarySpec& spec, int pair) {
  const Real fast = unscaled(spec, pair), slow = fast / Real(rule.factor);
  Real kept;  // 1: the pair is untouched, 0: it is interpolated
  if (rule.ramp == gnomon::rotary::YarnRamp::turns) {
    const Real turns = Real(rule.original_max_position_embeddings) * fast / (Real(2) * Real::pi());
    kept = clamp((turns - Real(rule.beta_slow)) / (Real(rule.beta_fast) - Real(rule.beta_slow)), Real(0), Real(1));
  } else {
    const auto [low, high] = yarn_bounds(rule, spec);
    kept = Real(1) - clamp((Real(pair) - low) / (high - low), Real(0), Real(1));
  }
  return fast * kept + slow * (Real(1) - kept);
}

inline Real frequency(const gnomon::rotary::Llama3& rule, const gnomon::RotarySpec& spec, int pair) {
  const Real fast = unscaled(spec, pair), wavelength = Real(2) * Real::pi() / fast, original(rule.original_max_position_embeddings);
  if (wavelength < original / Real(rule.high_freq_factor)) return fast;
  if (wavelength > original / Real(rule.low_freq_factor)) return fast / Real(rule.factor);
  const Real t = (original / wavelength - Real(rule.low_freq_factor)) / (Real(rule.high_freq_factor) - Real(rule.low_freq_factor));
  return fast * ((Real(1) - t) / Real(rule.factor) + t);
}

/// At the trained length, unless a length is given.
inline Real frequency(const gnomon::rotary::Dynamic& rule, const gnomon::RotarySpec& spec, int pair, std::int64_t length = 0) {
  const Real r(spec.rotary_dim), trained(rule.max_position_embeddings), longer(std::max(length, rule.max_position_embeddings));
  const Real growth = Real(rule.factor) * longer / trained - (Real(rule.factor) - Real(1));
  return pow(Real(spec.theta) * pow(growth, r / (r - Real(2))), -(Real(2 * pair) / r));
}

inline Real frequency(const gnomon::rotary::Longrope& rule, const gnomon::RotarySpec& spec, int pair, std::int64_t length = 0) {
  const auto& list = length > rule.original_max_position_embeddings ? rule.long_factor : rule.short_factor;
  return unscaled(spec, pair) / Real(list[static_cast<std::size_t>(pair)]);
}

inline Real frequency(const gnomon::rotary::Proportional& rule, const gnomon::RotarySpec& spec, int pair) {
  const Real channels = Real(rule.partial_rotary_factor) * Real(spec.rotary_dim), whole = round_to_even(channels);
  const Real turning = floor((abs(channels - whole) <= Real(1e-6) ? whole : channels) / Real(2));
  return Real(pair) < turning ? unscaled(spec, pair) / Real(rule.factor) : Real(0);
}

inline Real frequency(const gnomon::rotary::Xpos&, const gnomon::RotarySpec& spec, int pair) { return unscaled(spec, pair); }

inline Real frequency(const gnomon::rotary::Custom& rule, const gnomon::RotarySpec&, int pair) {
  return Real(rule.inv_freq_given[static_cast<std::size_t>(pair)]);
}

template <class Rule>
Real frequency(const Rule&, const gnomon::RotarySpec&, int) {
  throw std::logic_error("tests/support/rules_oracle.hpp has no formula for the rule \"" + std::string(Rule::name) + "\": write one");
}

/// Frequencies of a spec in radians per position, to about 250 bits; of a sequence of `length` tokens (0: of the trained length).
inline std::vector<Real> frequencies(const gnomon::RotarySpec& spec, std::int64_t length = 0) {
  std::vector<Real> result;
  for (int i = 0; i < spec.rotary_dim / 2; i++) {
    result.push_back(std::visit(
        [&](const auto& rule) {
          if constexpr (requires { frequency(rule, spec, i, length); }) return frequency(rule, spec, i, length);
          return frequency(rule, spec, i);
        },
        spec.rule));
  }
  return result;
}

/// ln(((2i/r + 0.4) / 1.4)^(1/scale_base)): what a query's magnitude grows by from one position to the next.
inline Real log_magnitude(const gnomon::rotary::Xpos& rule, const gnomon::RotarySpec& spec, int pair) {
  const Real gamma = Real(4) / Real(10), share = Real(2 * pair) / Real(spec.rotary_dim);
  return log((share + gamma) / (Real(1) + gamma)) / Real(rule.scale_base);
}

/// m(s, k) = 1 for s <= 1, else 0.1 k ln s + 1
inline Real yarn_magnitude(double factor, double slope) {
  return factor <= 1 ? Real(1) : Real(slope) * log(Real(factor)) / Real(10) + Real(1);
}

/// The magnitude a spec has.
inline Real magnitude(const gnomon::RotarySpec& spec) {
  if (spec.attention_factor) return Real(*spec.attention_factor);
  if (const auto* longrope = std::get_if<gnomon::rotary::Longrope>(&spec.rule)) {
    if (longrope->factor <= 1) return Real(1);
    return sqrt(Real(1) + log(Real(longrope->factor)) / log(Real(longrope->original_max_position_embeddings)));
  }
  const auto* yarn = std::get_if<gnomon::rotary::Yarn>(&spec.rule);
  if (yarn == nullptr) return Real(1);
  if (yarn->mscale.value_or(0) != 0 && yarn->mscale_all_dim.value_or(0) != 0) {
    return yarn_magnitude(yarn->factor, *yarn->mscale) / yarn_magnitude(yarn->factor, *yarn->mscale_all_dim);
  }
  return yarn_magnitude(yarn->factor, 1);
}

}  // namespace oracle
