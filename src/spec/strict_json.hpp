// SPDX-License-Identifier: Apache-2.0
// Strict JSON: the one door through which a JSON text enters the library.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gnomon {

/// Arrays and objects may stand inside each other this deep.
inline constexpr std::size_t json_depth_limit = 64;

/// Parses a whole text. Refuses what lenient parsers let pass: a key that stands twice in one object, nesting deeper than
/// json_depth_limit, text that is not UTF-8, comments, and the constants NaN and Infinity.
/// Throws Error(malformed); `what` names the text in the message ("config.json", "rotary spec").
nlohmann::json parse_strict(std::string_view text, std::string_view what);

}  // namespace gnomon
