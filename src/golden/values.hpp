// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gnomon/golden.hpp"

namespace gnomon {

/// Values in their JSON forms. Throws Error(malformed).
Values values_from_json(std::string_view text);

}  // namespace gnomon
