// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "fields.hpp"
#include "gnomon/spec.hpp"

namespace gnomon {
namespace {

constexpr int widest_head = 65536;

[[noreturn]] void refuse(std::string_view name, std::string_view expected, const std::string& got) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: expected {}, got {}", name, expected, got));
}

void check_number(std::string_view name, double value, const Bound& bound) {
  const bool above = bound.low_included ? value >= bound.low : value > bound.low;
  if (!std::isfinite(value) || !above) refuse(name, bound.text, fmt::format("{}", value));
}

template <class Rule>
void check_fields(const Rule& rule) {
  each_field<Rule>([&](const auto& field) {
    const auto& value = rule.*field.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, double> || std::is_same_v<Value, std::int64_t>) {
      check_number(field.name, static_cast<double>(value), field.bound);
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      if (value) check_number(field.name, *value, field.bound);
    }
  });
}

void check_widths(const RotarySpec& spec) {
  if (spec.head_dim < 1 || spec.head_dim > widest_head) {
    refuse("head_dim", fmt::format("an integer from 1 to {}", widest_head), fmt::format("{}", spec.head_dim));
  }
  if (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0) {
    refuse("rotary_dim", "an even number of at least 2 (channels turn in pairs)", fmt::format("{}", spec.rotary_dim));
  }
  if (spec.rotary_dim > spec.head_dim) {
    refuse("rotary_dim", fmt::format("at most head_dim ({})", spec.head_dim), fmt::format("{}", spec.rotary_dim));
  }
  if (spec.rotary_offset < 0 || spec.rotary_offset > spec.head_dim - spec.rotary_dim) {
    refuse("rotary_offset", fmt::format("0 to head_dim - rotary_dim ({})", spec.head_dim - spec.rotary_dim),
           fmt::format("{}", spec.rotary_offset));
  }
}

}  // namespace

void validate(const RotarySpec& spec) {
  check_number("theta", spec.theta, positive());
  check_widths(spec);
  if (spec.attention_factor) check_number("attention_factor", *spec.attention_factor, at_least(0));
  std::visit(
      [&](const auto& rule) {
        check_fields(rule);
        if constexpr (requires { rule.check(spec.width()); }) rule.check(spec.width());
      },
      spec.rule);
}

double effective_attention_factor(const RotarySpec& spec) {
  if (spec.attention_factor) return *spec.attention_factor;
  return std::visit(
      [](const auto& rule) {
        if constexpr (requires { rule.attention_factor(); }) return rule.attention_factor();
        return 1.0;
      },
      spec.rule);
}

std::string_view rule_name(const RotaryRule& rule) {
  return std::visit([](const auto& alternative) { return std::remove_cvref_t<decltype(alternative)>::name; }, rule);
}

}  // namespace gnomon
