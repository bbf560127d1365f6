// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "fields.hpp"
#include "gnomon/spec.hpp"

namespace gnomon {
namespace {

[[noreturn]] void refuse(std::string_view name, std::string_view expected, const std::string& got) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: expected {}, got {}", name, expected, got));
}

void check_number(std::string_view name, double value, const Bound& bound) {
  const bool above = bound.low_included ? value >= bound.low : value > bound.low;
  if (!std::isfinite(value) || !above || value > bound.high) refuse(name, bound.text, fmt::format("{}", value));
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
    } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
      for (std::size_t i = 0; i < value.size(); i++) check_number(fmt::format("{}[{}]", field.name, i), value[i], field.bound);
    }
  });
}

void check_head_dim(std::string_view name, int width) {
  if (width < 1 || width > widest_head) refuse(name, fmt::format("an integer from 1 to {}", widest_head), fmt::format("{}", width));
}

void check_widths(const RotarySpec& spec) {
  check_head_dim("head_dim", spec.head_dim);
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

void check_axes(const RotarySpec& spec) {
  const int pairs = spec.rotary_dim / 2;
  if (spec.axes < 1 || spec.axes > most_axes) refuse("axes", fmt::format("1 to {}", most_axes), fmt::format("{}", spec.axes));
  if (spec.sections.empty()) {
    if (spec.section_order != SectionOrder::chunked) refuse("sections", "the pairs of each axis, where the order is not chunked", "none");
    if (pairs % spec.axes != 0) refuse("axes", fmt::format("a divisor of the {} pairs", pairs), fmt::format("{}", spec.axes));
    return;
  }
  const std::string given = fmt::format("[{}]", fmt::join(spec.sections, ", "));
  if (spec.sections.size() > most_axes || spec.sections.size() < 2) refuse("sections", fmt::format("2 to {} axes", most_axes), given);
  if (spec.axes > 1 && spec.sections.size() != static_cast<std::size_t>(spec.axes)) {
    refuse("sections", fmt::format("one number of pairs for each of the {} axes", spec.axes), given);
  }
  std::int64_t sum = 0;
  for (const int section : spec.sections) {
    if (section < 1) refuse("sections", "at least one pair for each axis", given);
    sum += section;
  }
  if (sum != pairs) refuse("sections", fmt::format("numbers that sum to the {} pairs", pairs), given);
  if (spec.axes > 1 && spec.section_order != SectionOrder::chunked) {
    refuse("section_order", "chunked where every axis has frequencies of its own", std::string(enum_name(spec.section_order)));
  }
  if (spec.section_order == SectionOrder::time_last &&
      std::adjacent_find(spec.sections.begin() + 1, spec.sections.end(), std::not_equal_to<>()) != spec.sections.end()) {
    refuse("sections", "as many pairs for each axis after the first, where the order is time_last", given);
  }
}

void check_theta(const RotarySpec& spec) {
  const bool needed = std::visit([](const auto& rule) { return needs_theta<std::remove_cvref_t<decltype(rule)>>(); }, spec.rule);
  if (needed) return check_number("theta", spec.theta, positive());
  if (spec.theta != 0) refuse("theta", fmt::format("none: the rule {} has no base", rule_name(spec.rule)), fmt::format("{}", spec.theta));
}

}  // namespace

void validate(const RotarySpec& spec) {
  check_theta(spec);
  check_widths(spec);
  check_axes(spec);
  if (spec.attention_factor) check_number("attention_factor", *spec.attention_factor, at_least(0));
  std::visit(
      [&](const auto& rule) {
        check_fields(rule);
        if constexpr (requires { rule.check(RuleInput{}); }) {
          for (const auto& input : rule_inputs(spec)) rule.check(input);
        }
      },
      spec.rule);
}

void validate(const AbsoluteSpec& spec) {
  check_head_dim("width", spec.width);
  std::visit(
      [&](const auto& rule) {
        check_fields(rule);
        rule.check(spec.width);
      },
      spec.rule);
}

void validate(const BiasRule& rule) {
  std::visit(
      [](const auto& alternative) {
        check_fields(alternative);
        alternative.check();
      },
      rule);
}

int position_axes(const RotarySpec& spec) {
  return spec.axes > 1 || spec.sections.empty() ? spec.axes : static_cast<int>(spec.sections.size());
}

std::vector<RuleInput> rule_inputs(const RotarySpec& spec, std::optional<std::int64_t> length) {
  std::vector<RuleInput> inputs;
  for (int axis = 0; axis < spec.axes; axis++) {
    const bool listed = spec.axes > 1 && !spec.sections.empty();
    const int width = listed ? 2 * spec.sections[static_cast<std::size_t>(axis)] : spec.rotary_dim / spec.axes;
    inputs.push_back({spec.theta, spec.head_dim, width, length});
  }
  return inputs;
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

std::string_view rule_name(const BiasRule& rule) {
  return std::visit([](const auto& alternative) { return std::remove_cvref_t<decltype(alternative)>::name; }, rule);
}

std::string_view rule_name(const AbsoluteRule& rule) {
  return std::visit([](const auto& alternative) { return std::remove_cvref_t<decltype(alternative)>::name; }, rule);
}

}  // namespace gnomon
