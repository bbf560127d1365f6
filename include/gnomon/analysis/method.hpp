// SPDX-License-Identifier: Apache-2.0
// ⑤ Extension methods as people write them: "yarn:4".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gnomon/spec.hpp"

namespace gnomon {

/// "none, linear:FACTOR, …" for messages and help.
std::string known_methods();

/// What a method is good for and what it costs, in a sentence.
std::string_view method_advice(std::string_view method);

/// The spec with another rule in the place of its own; base, widths, layout and axes stay. Methods, F being how many times longer than
/// `original` a context becomes:
///   none                               the spec as it is
///   linear:F ntk:F dynamic:F           as the rule of that name
///   yarn:F llama3:F                    with their usual fields (32 and 1; 1 and 4)
///   longrope:F                         the lists of the spec, which must be longrope
///   theta:BASE                         no scaling, another base
/// Throws Error(invalid_argument) that lists the methods for a text of another form, a factor below 1, a base not above 1, a method that
/// needs `original` when there is none, and what validate() refuses; Error(unsupported) for a rule that takes no scaling (custom, xpos,
/// proportional) and for axial rotations.
RotarySpec with_method(const RotarySpec& spec, std::string_view method, std::optional<std::int64_t> original);

}  // namespace gnomon
