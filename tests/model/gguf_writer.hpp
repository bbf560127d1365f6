// SPDX-License-Identifier: Apache-2.0
// Writes GGUF headers, right and wrong ones, from the published description of the format.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gnomon::test {

class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version = 3) : version_(version) {}

  GgufWriter& text(std::string_view key, std::string_view value) {
    return begin(key, 8).raw(body_, std::uint64_t{value.size()}).append(body_, value);
  }
  GgufWriter& u32(std::string_view key, std::uint32_t value) { return begin(key, 4).raw(body_, value); }
  GgufWriter& i32(std::string_view key, std::int32_t value) { return begin(key, 5).raw(body_, value); }
  GgufWriter& u64(std::string_view key, std::uint64_t value) { return begin(key, 10).raw(body_, value); }
  GgufWriter& f32(std::string_view key, float value) { return begin(key, 6).raw(body_, value); }
  GgufWriter& f64(std::string_view key, double value) { return begin(key, 12).raw(body_, value); }
  GgufWriter& boolean(std::string_view key, bool value) { return begin(key, 7).raw(body_, static_cast<std::uint8_t>(value)); }
  template <class T>
  GgufWriter& array(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    begin(key, 9).raw(body_, type).raw(body_, std::uint64_t{values.size()});
    for (const auto& value : values) raw(body_, value);
    return *this;
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values) {
    begin(key, 9).raw(body_, std::uint32_t{8}).raw(body_, std::uint64_t{values.size()});
    for (const auto& value : values) raw(body_, std::uint64_t{value.size()}).append(body_, value);
    return *this;
  }
  /// A key whose value is written by hand.
  GgufWriter& bytes(std::string_view key, std::uint32_t type, std::string_view value) { return begin(key, type).append(body_, value); }

  /// An f32 tensor with one axis and its data.
  GgufWriter& tensor(std::string_view name, const std::vector<float>& values) {
    tensor_header(name, {values.size()}, 0, data_.size());
    for (const float value : values) raw(data_, value);
    data_.resize((data_.size() + 31) / 32 * 32);
    return *this;
  }
  GgufWriter& tensor_header(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type, std::uint64_t offset) {
    tensor_count++;
    raw(tensors_, std::uint64_t{name.size()}).append(tensors_, name).raw(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (const auto size : shape) raw(tensors_, size);
    return raw(tensors_, type).raw(tensors_, offset);
  }

  std::uint64_t key_count = 0, tensor_count = 0;  ///< may be falsified
  std::string_view magic = "GGUF";

  std::string header() const {
    std::string result(magic);
    GgufWriter copy(version_);
    copy.raw(result, version_).raw(result, tensor_count).raw(result, key_count);
    return result + body_ + tensors_;
  }
  std::string file() const {
    std::string result = header();
    if (!data_.empty()) result.resize((result.size() + 31) / 32 * 32);
    return result + data_;
  }

 private:
  GgufWriter& begin(std::string_view key, std::uint32_t type) {
    key_count++;
    return raw(body_, std::uint64_t{key.size()}).append(body_, key).raw(body_, type);
  }
  template <class T>
  GgufWriter& raw(std::string& to, const T& value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    return append(to, {bytes, sizeof(T)});
  }
  GgufWriter& append(std::string& to, std::string_view value) {
    to.append(value);
    return *this;
  }

  std::uint32_t version_;
  std::string body_, tensors_, data_;
};

/// The keys of a small model of an architecture; further keys can be added.
inline GgufWriter small_model(const std::string& architecture, std::uint32_t version = 3) {
  GgufWriter writer(version);
  writer.text("general.architecture", architecture).text("general.name", "small");
  writer.u32(architecture + ".block_count", 12).u32(architecture + ".embedding_length", 512).u32(architecture + ".context_length", 4096);
  writer.u32(architecture + ".attention.head_count", 8).u32(architecture + ".attention.head_count_kv", 2);
  return writer;
}

}  // namespace gnomon::test
