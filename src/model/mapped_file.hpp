// SPDX-License-Identifier: Apache-2.0
// A file as read-only memory, so that reading the header of a model of many gigabytes costs its header.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace gnomon::files {

class MappedFile {
 public:
  /// Throws Error(io) for anything but a regular file that can be read.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gnomon::files
