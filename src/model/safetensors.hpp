// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file: names, shapes and where the data begin. No tensor is read.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/tensors.hpp"

namespace gnomon::files {

/// Whether the bytes begin as a safetensors file does: a length, then a JSON object.
bool is_safetensors(std::span<const std::byte> bytes);

/// Throws Error(malformed) for a header that is longer than the file or 64 MiB, no JSON, or whose tensors overlap, lie outside the file or
/// have a size other than their shape's.
std::vector<TensorShape> parse_safetensors_header(std::span<const std::byte> bytes, const std::string& path);

}  // namespace gnomon::files
