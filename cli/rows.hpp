// SPDX-License-Identifier: Apache-2.0
// What the verbs about models print for people: labelled rows, layers, doubts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gnomon/model.hpp"
#include "output.hpp"

namespace gnomon::cli {

/// Parts with a separator between them; lines are broken between parts only.
std::string row_of(std::vector<std::string> parts, std::string_view separator = " · ");

/// One labelled row; a long text continues under its beginning.
void row(Output& out, std::string_view label, std::string_view text);

/// "0-4, 6-10, 12"; of many ranges the first three and the last.
std::string layer_ranges(const std::vector<int>& layers);

/// Level, code, message, keys that the message does not name, and the cost.
std::string doubt_text(const Doubt& doubt);

}  // namespace gnomon::cli
