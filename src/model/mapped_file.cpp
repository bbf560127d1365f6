// SPDX-License-Identifier: Apache-2.0
#include "model/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "gnomon/error.hpp"

namespace gnomon::files {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& reason) {
  throw Error(ErrorCode::io, path.string() + ": cannot be read: " + reason);
}

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // opening a pipe must not wait for a writer
  if (file.value < 0) fail(path, std::strerror(errno));
  struct stat status{};
  if (fstat(file.value, &status) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(path, S_ISDIR(status.st_mode) ? "it is a folder" : "it is not a regular file");
  if (status.st_size == 0) return;
  void* data = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED) fail(path, std::strerror(errno));
  data_ = data;
  size_ = static_cast<std::size_t>(status.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace gnomon::files
