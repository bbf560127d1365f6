// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>

#include "gnomon/error.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

constexpr std::uint64_t longest_kept_array = 1024;
constexpr std::uint64_t longest_name = 65535;
constexpr std::uint32_t most_axes = 8;
constexpr int deepest_array = 4;
constexpr std::uint64_t smallest_key = 8 + 1 + 4 + 1;     // length, name, type, value
constexpr std::uint64_t smallest_tensor = 8 + 4 + 4 + 8;  // length, axes, type, offset

enum ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64, value_types };

// Fixed sizes; 0 for texts and arrays.
constexpr std::uint64_t value_sizes[value_types] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Names come from the file and go into messages and JSON.
std::string printable(std::string_view bytes) {
  std::string result;
  for (const char c : bytes) {
    if (c >= 0x20 && c < 0x7f)
      result += c;
    else
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return result;
}

/// A cursor that cannot leave the file.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return bytes_.size() - offset_; }
  void now_reading(std::string what) { what_ = std::move(what); }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view string() {
    const auto length = number<std::uint64_t>();
    if (length > left()) refuse(fmt::format("a text of {} bytes, but {} are left", length, left()));
    const auto bytes = take(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void skip(std::uint64_t length) { take(length); }
  /// Throws unless `count` items of at least `size` bytes can still follow.
  void expect_room(std::uint64_t count, std::uint64_t size) const {
    if (count > left() / size) refuse(fmt::format("{} entries, but {} bytes are left", count, left()));
  }
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorCode::malformed, fmt::format("{}: {} at byte {}: {}", path_, what_, offset_, reason));
  }

 private:
  std::span<const std::byte> take(std::uint64_t length) {
    if (length > left()) refuse(fmt::format("the file ends here ({} bytes expected, {} left)", length, left()));
    const auto result = bytes_.subspan(offset_, length);
    offset_ += length;
    return result;
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::uint64_t offset_ = 0;
  std::string what_ = "header";
};

json read_scalar(Cursor& cursor, std::uint32_t type) {
  switch (type) {
    case u8:
      return cursor.number<std::uint8_t>();
    case i8:
      return cursor.number<std::int8_t>();
    case u16:
      return cursor.number<std::uint16_t>();
    case i16:
      return cursor.number<std::int16_t>();
    case u32:
      return cursor.number<std::uint32_t>();
    case i32:
      return cursor.number<std::int32_t>();
    case f32:
      return static_cast<double>(cursor.number<float>());
    case boolean:
      return cursor.number<std::uint8_t>() != 0;
    case text:
      return printable(cursor.string());
    case u64:
      return cursor.number<std::uint64_t>();
    case i64:
      return cursor.number<std::int64_t>();
    case f64:
      return cursor.number<double>();
    default:
      cursor.refuse(fmt::format("unknown value type {}", type));
  }
}

json read_array(Cursor& cursor, int depth) {
  const auto type = cursor.number<std::uint32_t>();
  const auto count = cursor.number<std::uint64_t>();
  if (type >= value_types) cursor.refuse(fmt::format("unknown element type {}", type));
  if (type == array && depth == deepest_array) cursor.refuse("arrays nested too deep");
  cursor.expect_room(count, type == text ? 8 : type == array ? 12 : value_sizes[type]);
  const bool fixed = value_sizes[type] != 0;
  if (fixed && count > longest_kept_array) {
    cursor.skip(count * value_sizes[type]);
    return nullptr;
  }
  json values = json::array();
  for (std::uint64_t i = 0; i < count; i++) {
    if (fixed)
      values.push_back(read_scalar(cursor, type));
    else if (type == text)
      cursor.string();
    else
      read_array(cursor, depth + 1);
  }
  return fixed ? values : json(nullptr);
}

void read_keys(Cursor& cursor, std::uint64_t count, GgufHeader& header) {
  for (std::uint64_t i = 0; i < count; i++) {
    cursor.now_reading(fmt::format("key {} of {}", i + 1, count));
    const auto raw = cursor.string();
    if (raw.empty() || raw.size() > longest_name) cursor.refuse(fmt::format("a name of {} bytes", raw.size()));
    const std::string name = printable(raw);
    cursor.now_reading("key " + name);
    const auto type = cursor.number<std::uint32_t>();
    json value = type == array ? read_array(cursor, 0) : read_scalar(cursor, type);
    if (!header.keys.emplace(name, std::move(value)).second) cursor.refuse("the key stands twice");
  }
}

bool is_about_position(std::string_view name) {
  constexpr std::string_view parts[] = {"rope_", "position_embd.", ".attn_sinks.", ".attn_q.", ".attn_k.", ".attn_rel_b."};
  return std::any_of(std::begin(parts), std::end(parts), [&](auto part) { return name.find(part) != std::string_view::npos; });
}

void read_tensors(Cursor& cursor, std::uint64_t count, GgufHeader& header) {
  for (std::uint64_t i = 0; i < count; i++) {
    cursor.now_reading(fmt::format("tensor {} of {}", i + 1, count));
    const auto raw = cursor.string();
    if (raw.size() > longest_name) cursor.refuse(fmt::format("a name of {} bytes", raw.size()));
    const std::string name = printable(raw);
    cursor.now_reading("tensor " + name);
    GgufTensor tensor;
    const auto axes = cursor.number<std::uint32_t>();
    if (axes > most_axes) cursor.refuse(fmt::format("{} axes", axes));
    for (std::uint32_t axis = 0; axis < axes; axis++) tensor.shape.push_back(cursor.number<std::uint64_t>());
    tensor.type = cursor.number<std::uint32_t>();
    tensor.offset = cursor.number<std::uint64_t>();
    if (is_about_position(name)) header.tensors.emplace(name, std::move(tensor));
  }
}

std::uint64_t alignment_of(const GgufHeader& header, const Cursor& cursor) {
  const auto found = header.keys.find("general.alignment");
  if (found == header.keys.end()) return 32;
  if (!found->is_number_unsigned() || !std::has_single_bit(found->get<std::uint64_t>()) || found->get<std::uint64_t>() > (1U << 20)) {
    cursor.refuse("general.alignment is not a power of two");
  }
  return found->get<std::uint64_t>();
}

}  // namespace

GgufHeader parse_gguf_header(std::span<const std::byte> bytes, const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "numbers are copied as they stand in the file");
  Cursor cursor(bytes, path);
  cursor.now_reading("magic");
  if (cursor.number<std::uint32_t>() != 0x46554747) cursor.refuse("not a GGUF file");
  cursor.now_reading("version");
  const auto version = cursor.number<std::uint32_t>();
  if ((version & 0xffff) == 0) cursor.refuse("a big-endian GGUF file, which is not supported");
  if (version != 2 && version != 3) cursor.refuse(fmt::format("GGUF version {}, expected 2 or 3", version));
  cursor.now_reading("number of tensors");
  const auto tensors = cursor.number<std::uint64_t>();
  cursor.expect_room(tensors, smallest_tensor);
  cursor.now_reading("number of keys");
  const auto keys = cursor.number<std::uint64_t>();
  cursor.expect_room(keys, smallest_key);
  GgufHeader header;
  read_keys(cursor, keys, header);
  read_tensors(cursor, tensors, header);
  cursor.now_reading("start of the data");
  const auto alignment = alignment_of(header, cursor);
  const auto start = (cursor.offset() + alignment - 1) / alignment * alignment;
  for (auto& [name, tensor] : header.tensors) {
    if (tensor.offset > UINT64_MAX - start) cursor.refuse(fmt::format("tensor {} lies at offset {}", name, tensor.offset));
    tensor.offset += start;
  }
  return header;
}

std::vector<float> read_f32_tensor(std::span<const std::byte> bytes, const GgufTensor& tensor, const std::string& name,
                                   const std::string& path) {
  const std::uint64_t count = tensor.shape.size() == 1 ? tensor.shape[0] : 0;
  if (tensor.type != 0 || count == 0 || tensor.offset > bytes.size() || count > (bytes.size() - tensor.offset) / sizeof(float)) {
    throw Error(ErrorCode::malformed,
                fmt::format("{}: tensor {}: expected f32 values with one axis inside the file (offset {}, {} values, {} bytes in the file)",
                            path, name, tensor.offset, count, bytes.size()));
  }
  std::vector<float> values(count);
  std::memcpy(values.data(), bytes.data() + tensor.offset, count * sizeof(float));
  return values;
}

}  // namespace gnomon::files
