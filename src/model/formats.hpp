// SPDX-License-Identifier: Apache-2.0
// One function per format: from the bytes of a file to a Model. `file` names it in origins, `path` in messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "gnomon/model.hpp"

namespace gnomon::files {

Model read_hf(std::string_view text, const std::string& file, const std::string& path);
Model read_gguf(std::span<const std::byte> bytes, const std::string& file, const std::string& path);

/// Throws Error(invalid_argument) with the first doubt of level error, which forbids to trust the numbers.
void refuse_doubtful(const Model& model);

}  // namespace gnomon::files
