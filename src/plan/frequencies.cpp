// SPDX-License-Identifier: Apache-2.0
#include "gnomon/frequencies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gnomon {
namespace {

template <class A>
std::vector<double> run(const RotarySpec& spec, std::optional<std::int64_t> length) {
  std::vector<double> result;
  std::visit(
      [&](const auto& rule) {
        for (const auto& input : rule_inputs(spec, length)) {
          for (const auto& value : rule.template inv_freq<A>(input)) result.push_back(static_cast<double>(value));
        }
      },
      spec.rule);
  return result;
}

std::vector<std::uint8_t> axis_of_pairs(const RotarySpec& spec) {
  const auto axes = static_cast<std::size_t>(position_axes(spec)), pairs = static_cast<std::size_t>(spec.rotary_dim / 2);
  if (axes == 1) return {};
  std::vector<std::uint8_t> result(pairs, 0);
  if (spec.section_order == SectionOrder::interleaved) {
    for (std::size_t axis = 1; axis < axes; axis++) {
      const std::size_t past = axes * static_cast<std::size_t>(spec.sections[axis]);
      for (std::size_t i = axis; i < std::min(past, pairs); i += axes) result[i] = static_cast<std::uint8_t>(axis);
    }
    return result;
  }
  if (spec.section_order == SectionOrder::time_last) {
    const std::size_t turning = pairs - static_cast<std::size_t>(spec.sections[0]);
    for (std::size_t i = 0; i < turning; i++) result[i] = static_cast<std::uint8_t>(1 + i % (axes - 1));
    return result;
  }
  std::size_t i = 0;
  for (std::size_t axis = 0; axis < axes; axis++) {
    const std::size_t number = spec.sections.empty() ? pairs / axes : static_cast<std::size_t>(spec.sections[axis]);
    for (std::size_t k = 0; k < number; k++) result[i++] = static_cast<std::uint8_t>(axis);
  }
  return result;
}

void add_magnitudes(const rotary::Xpos& rule, Frequencies& result) {
  for (const auto& input : rule_inputs(result.spec)) {
    for (const double value : rule.log_magnitude(input)) result.log_magnitude.push_back(value);
  }
  result.centre = rule.centre;
}

void check_range(const std::vector<double>& inv_freq) {
  for (std::size_t i = 0; i < inv_freq.size(); i++) {
    if (!(inv_freq[i] >= 0 && inv_freq[i] < 0x1p53)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("inv_freq[{}]: expected a frequency from 0 to below 2^53, the rule gives {}", i, inv_freq[i]));
    }
  }
}

}  // namespace

Numerics numerics_of(std::string_view name) {
  if (name == name_of(Numerics::exact)) return Numerics::exact;
  if (name == name_of(Numerics::hf)) return Numerics::hf;
  throw Error(ErrorCode::invalid_argument, fmt::format("numerics: expected exact | hf, got \"{}\"", name));
}

std::vector<double> Frequencies::wavelength() const {
  std::vector<double> result;
  for (const double value : inv_freq) {
    const double rounded = two_pi.hi / value;  // infinite for a frequency of 0 or next to it, where the longer division has no answer
    result.push_back(std::isinf(rounded) ? rounded : static_cast<double>(two_pi / DoubleDouble(value)));
  }
  return result;
}

Frequencies frequencies(const RotarySpec& spec, Numerics numerics, std::optional<std::int64_t> length) {
  validate(spec);
  if (length && *length < 1) throw Error(ErrorCode::invalid_argument, fmt::format("length: expected at least 1, got {}", *length));
  if (numerics == Numerics::hf && !std::visit([](const auto& rule) { return rule.in_transformers(); }, spec.rule)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("numerics: hf follows the transformers library step by step, which has no such {} rule; use exact",
                            rule_name(spec.rule)));
  }
  Frequencies result;
  result.spec = spec;
  result.numerics = numerics;
  result.length = length;
  result.inv_freq = numerics == Numerics::hf ? run<HfArithmetic>(spec, length) : run<ExactArithmetic>(spec, length);
  result.attention_factor = effective_attention_factor(spec);
  result.axis = axis_of_pairs(spec);
  if (const auto* xpos = std::get_if<rotary::Xpos>(&spec.rule)) add_magnitudes(*xpos, result);
  check_range(result.inv_freq);
  if (numerics == Numerics::exact) {
    for (const double value : result.inv_freq) result.turns.push_back(gnomon::turns(value));
  }
  return result;
}

}  // namespace gnomon
