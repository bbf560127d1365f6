// SPDX-License-Identifier: Apache-2.0
// ② The list of rotary rules. To add one: write its file, include it here and name it in the variant. Everything else follows.
#pragma once

#include <variant>

#include "gnomon/encodings/rotary/default.hpp"
#include "gnomon/encodings/rotary/linear.hpp"
#include "gnomon/encodings/rotary/llama3.hpp"
#include "gnomon/encodings/rotary/ntk.hpp"
#include "gnomon/encodings/rotary/yarn.hpp"

namespace gnomon {

using RotaryRule = std::variant<rotary::Default, rotary::Linear, rotary::Ntk, rotary::Yarn, rotary::Llama3>;

/// Calls `visit` with a default-constructed rule of every alternative, in the order of the list.
template <class Visitor, class... Rules>
void for_each_rule(Visitor&& visit, const std::variant<Rules...>*) {
  (visit(Rules{}), ...);
}
template <class Visitor>
void for_each_rotary_rule(Visitor&& visit) {
  for_each_rule(visit, static_cast<const RotaryRule*>(nullptr));
}

}  // namespace gnomon
