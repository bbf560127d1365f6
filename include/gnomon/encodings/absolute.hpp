// SPDX-License-Identifier: Apache-2.0
// ② The list of absolute rules: rows added to the input. To add one: write its file, include it here and name it in the variant.
#pragma once

#include <variant>

#include "gnomon/encodings/absolute/learned.hpp"
#include "gnomon/encodings/absolute/sinusoidal.hpp"

namespace gnomon {

using AbsoluteRule = std::variant<absolute::Sinusoidal, absolute::Learned>;

/// Calls `visit` with a default-constructed rule of every alternative, in the order of the list.
void for_each_absolute_rule(auto&& visit) { for_each_rule<AbsoluteRule>(visit); }

}  // namespace gnomon
