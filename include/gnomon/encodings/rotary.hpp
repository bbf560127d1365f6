// SPDX-License-Identifier: Apache-2.0
// ② The list of rotary rules. To add one: write its file, include it here and name it in the variant. Everything else follows.
#pragma once

#include <variant>

#include "gnomon/encodings/rotary/custom.hpp"
#include "gnomon/encodings/rotary/default.hpp"
#include "gnomon/encodings/rotary/dynamic.hpp"
#include "gnomon/encodings/rotary/linear.hpp"
#include "gnomon/encodings/rotary/llama3.hpp"
#include "gnomon/encodings/rotary/longrope.hpp"
#include "gnomon/encodings/rotary/ntk.hpp"
#include "gnomon/encodings/rotary/proportional.hpp"
#include "gnomon/encodings/rotary/xpos.hpp"
#include "gnomon/encodings/rotary/yarn.hpp"

namespace gnomon {

using RotaryRule = std::variant<rotary::Default, rotary::Linear, rotary::Ntk, rotary::Dynamic, rotary::Yarn, rotary::Longrope,
                                rotary::Llama3, rotary::Proportional, rotary::Xpos, rotary::Custom>;

/// Calls `visit` with a default-constructed rule of every alternative, in the order of the list.
void for_each_rotary_rule(auto&& visit) { for_each_rule<RotaryRule>(visit); }

}  // namespace gnomon
