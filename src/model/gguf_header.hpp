// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file, versions 2 and 3, little endian: its keys as one JSON object, and the tensors that say something about
// position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace gnomon::files {

struct GgufTensor {
  std::vector<std::uint64_t> shape;
  std::uint32_t type = 0;    ///< 0 is f32
  std::uint64_t offset = 0;  ///< from the start of the file
};

struct GgufHeader {
  /// Scalars, texts and short arrays of numbers; a long array, or one of texts, is null (no key about position is one).
  nlohmann::json keys = nlohmann::json::object();
  /// Tensors about position: frequency factors, learned rows, sink logits, and those whose shape is that of queries and keys.
  std::map<std::string, GgufTensor, std::less<>> tensors;
};

/// Throws Error(malformed) that names the key or tensor and the offset. No length in the file is trusted before it is compared with the
/// bytes that are left.
GgufHeader parse_gguf_header(std::span<const std::byte> bytes, const std::string& path);

/// The values of an f32 tensor with one axis. Throws Error(malformed) when they are not all inside the file.
std::vector<float> read_f32_tensor(std::span<const std::byte> bytes, const GgufTensor& tensor, const std::string& name,
                                   const std::string& path);

}  // namespace gnomon::files
