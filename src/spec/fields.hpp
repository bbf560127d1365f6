// SPDX-License-Identifier: Apache-2.0
// Walks over a rule's field list, for JSON, validation and the surfaces that describe rules.
#pragma once

#include <span>
#include <tuple>
#include <utility>

#include "gnomon/spec.hpp"

namespace gnomon {

template <class Rule, class Visitor>
void each_field(Visitor&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Rule::fields);
}

/// Position of `name` among the names of an enumeration, or nothing.
template <class Enum>
std::optional<Enum> enum_of(std::string_view name) {
  const std::span names(enum_names<Enum>);
  for (std::size_t i = 0; i < names.size(); i++) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

template <class Enum>
std::string_view enum_name(Enum value) {
  return enum_names<Enum>[static_cast<std::size_t>(value)];
}

/// "half_split | interleaved": the values of an enumeration, for messages and documentation.
template <class Enum>
std::string enum_choices() {
  std::string choices;
  for (const auto name : enum_names<Enum>) choices += (choices.empty() ? "" : " | ") + std::string(name);
  return choices;
}

}  // namespace gnomon
