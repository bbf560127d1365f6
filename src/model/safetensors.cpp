// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "gnomon/error.hpp"
#include "model/keys.hpp"
#include "spec/strict_json.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

constexpr std::uint64_t largest_header = std::uint64_t{64} << 20;
constexpr std::size_t most_axes = 16;

// Bits of an element. A type that is not here (packed ones come and go) is not checked.
const std::map<std::string_view, std::uint64_t> bits = {{"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
                                                        {"U16", 16}, {"I16", 16}, {"F16", 16}, {"BF16", 16},   {"U32", 32},
                                                        {"I32", 32}, {"F32", 32}, {"U64", 64}, {"I64", 64},    {"F64", 64}};

struct Place {
  std::uint64_t begin, end;
  std::string_view name;
};

class HeaderReader {
 public:
  /// The data stand at the end of the file.
  HeaderReader(const std::string& path, std::uint64_t file_size, std::uint64_t data_size)
      : path_(path), data_begin_(file_size - data_size), data_size_(data_size) {}

  std::vector<TensorShape> read(const json& header) {
    std::vector<TensorShape> tensors;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      if (!entry.is_object()) refuse(name, "expected an object");
      TensorShape tensor{name, entry.value("dtype", json()).is_string() ? entry["dtype"].get<std::string>() : "", read_shape(name, entry)};
      const auto place = read_place(name, entry);
      check_size(tensor, place);
      tensor.begin = data_begin_ + place.begin;
      places_.push_back({place.begin, place.end, name});
      tensors.push_back(std::move(tensor));
    }
    check_overlaps();
    return tensors;
  }

 private:
  [[noreturn]] void refuse(const std::string& tensor, const std::string& reason) const {
    throw Error(ErrorCode::malformed, fmt::format("{}: tensor {}: {}", path_, quoted(json(tensor)), reason));
  }

  std::vector<std::uint64_t> read_shape(const std::string& name, const json& entry) const {
    const auto shape = entry.find("shape");
    if (shape == entry.end() || !shape->is_array() || shape->size() > most_axes) refuse(name, "expected a shape of at most 16 axes");
    if (!std::all_of(shape->begin(), shape->end(), [](const json& axis) { return axis.is_number_unsigned(); }))
      refuse(name, "expected a shape of whole numbers");
    return shape->get<std::vector<std::uint64_t>>();
  }

  Place read_place(const std::string& name, const json& entry) const {
    const auto offsets = entry.find("data_offsets");
    const bool good = offsets != entry.end() && offsets->is_array() && offsets->size() == 2 && (*offsets)[0].is_number_unsigned() &&
                      (*offsets)[1].is_number_unsigned();
    if (!good) refuse(name, "expected two data_offsets");
    const Place place{(*offsets)[0].get<std::uint64_t>(), (*offsets)[1].get<std::uint64_t>(), name};
    if (place.begin > place.end || place.end > data_size_) {
      refuse(name, fmt::format("data_offsets [{}, {}] lie outside the {} bytes of data", place.begin, place.end, data_size_));
    }
    return place;
  }

  void check_size(const TensorShape& tensor, const Place& place) const {
    const auto found = bits.find(tensor.dtype);
    if (found == bits.end()) return;
    std::uint64_t size = found->second;
    for (const auto axis : tensor.shape) {
      if (axis != 0 && size > std::numeric_limits<std::uint64_t>::max() / axis) refuse(tensor.name, "the shape is too large");
      size *= axis;
    }
    if (size / 8 != place.end - place.begin) {
      refuse(tensor.name, fmt::format("the shape needs {} bytes, the data_offsets give {}", size / 8, place.end - place.begin));
    }
  }

  void check_overlaps() {
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    for (std::size_t i = 1; i < places_.size(); i++) {
      if (places_[i].begin < places_[i - 1].end)
        refuse(std::string(places_[i].name), fmt::format("its data overlap those of {}", quoted(json(places_[i - 1].name))));
    }
  }

  const std::string& path_;
  std::uint64_t data_begin_, data_size_;
  std::vector<Place> places_;
};

std::uint64_t header_size(std::span<const std::byte> bytes) {
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  return size;
}

}  // namespace

bool is_safetensors(std::span<const std::byte> bytes) {
  return bytes.size() > 8 && bytes[8] == std::byte{'{'} && header_size(bytes) <= largest_header;
}

std::vector<TensorShape> parse_safetensors_header(std::span<const std::byte> bytes, const std::string& path) {
  const std::uint64_t size = bytes.size() < 8 ? 0 : header_size(bytes);
  if (bytes.size() < 8 || size > bytes.size() - 8 || size > largest_header) {
    throw Error(ErrorCode::malformed, fmt::format("{}: a header of {} bytes, but the file has {}", path, size, bytes.size()));
  }
  const json header = parse_strict({reinterpret_cast<const char*>(bytes.data()) + 8, size}, path);
  if (!header.is_object()) throw Error(ErrorCode::malformed, fmt::format("{}: expected a JSON object, got {}", path, header.type_name()));
  return HeaderReader(path, bytes.size(), bytes.size() - 8 - size).read(header);
}

}  // namespace gnomon::files
