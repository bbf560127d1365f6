// SPDX-License-Identifier: Apache-2.0
// Values as engines export them: buffers of a module in a safetensors file.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>

#include "golden/values.hpp"
#include "model/safetensors.hpp"

namespace gnomon {
namespace {

constexpr std::size_t most_values = std::size_t{1} << 30;  // of one tensor, as in npy

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::malformed, message); }

/// A tensor seen as rows of its last axis.
struct Rows {
  std::string name;
  std::size_t rows = 0, width = 0;
  std::vector<double> numbers;
  bool operator==(const Rows& other) const { return rows == other.rows && width == other.width && numbers == other.numbers; }
};

class TensorReader {
 public:
  explicit TensorReader(std::string_view bytes)
      : bytes_(bytes), tensors_(files::parse_safetensors_header(std::as_bytes(std::span(bytes)), "safetensors")) {}

  Values read() {
    Values values;
    if (const auto list = find({"inv_freq"})) values.inv_freq = list->numbers;
    if (const auto list = find({"positions", "position_ids"})) take_positions(*list, values);
    if (const auto factor = find({"attention_factor"})) values.attention_factor = single(*factor);
    take_table(values);
    if (const auto rotated = find({"rotated"})) {
      if (!values.cos.empty()) refuse("rotated: stands beside cos and sin; give one of the two");
      const auto input = find({"input"});
      if (!input) refuse("input: missing");
      values.input = input->numbers;
      values.rows = rotated->rows, values.width = rotated->width, values.rotated = rotated->numbers;
    }
    return values;
  }

 private:
  /// The tensor with one of these names, alone or behind those of its modules, as "model.rotary_emb.inv_freq". A buffer that each layer
  /// has once more must be the same there.
  std::optional<Rows> find(std::initializer_list<std::string_view> names) const {
    std::optional<Rows> found;
    for (const auto& tensor : tensors_) {
      const auto name = std::string_view(tensor.name).substr(tensor.name.rfind('.') + 1);
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      Rows rows = read(tensor);
      if (found && *found != rows) refuse(fmt::format("{} and {}: expected one tensor, got two that differ", found->name, rows.name));
      if (!found) found = std::move(rows);
    }
    return found;
  }

  Rows read(const files::TensorShape& tensor) const {
    std::size_t number = 1;
    for (const auto axis : tensor.shape) {
      if (axis == 0 || axis > most_values / number) refuse(fmt::format("{}: expected 1 to 2^30 values", tensor.name));
      number *= axis;
    }
    const std::size_t width = tensor.shape.empty() ? 1 : tensor.shape.back();
    return {tensor.name, number / width, width, numbers(tensor, number)};
  }

  std::vector<double> numbers(const files::TensorShape& tensor, std::size_t number) const {
    const auto data = bytes_.substr(tensor.begin);  // inside the file, as the header's reader saw
    if (tensor.dtype == "F64") return elements_of<double>(data, number, tensor.name);
    if (tensor.dtype == "F32") return elements_of<float>(data, number, tensor.name);
    if (tensor.dtype == "F16") return elements_of<F16>(data, number, tensor.name);
    if (tensor.dtype == "BF16") return elements_of<Bf16>(data, number, tensor.name);
    if (tensor.dtype == "I64") return elements_of<std::int64_t>(data, number, tensor.name);
    if (tensor.dtype == "I32") return elements_of<std::int32_t>(data, number, tensor.name);
    refuse(fmt::format("{}: expected F64, F32, F16, BF16, I64 or I32, got {}", tensor.name, tensor.dtype));
  }

  void take_positions(const Rows& list, Values& values) const {
    for (const double position : list.numbers) {
      if (position != std::trunc(position) || std::abs(position) > 0x1p33) {
        refuse(fmt::format("{}: expected integers within ±2^33", list.name));
      }
      values.positions.push_back(static_cast<std::int64_t>(position));
    }
  }

  double single(const Rows& factor) const {
    if (factor.numbers.size() != 1) refuse(fmt::format("{}: expected one number, got {}", factor.name, factor.numbers.size()));
    return factor.numbers.front();
  }

  /// A table of its own positions, or a cache, whose rows stand for positions 0, 1, 2, …
  void take_table(Values& values) const {
    if (const auto both = find({"cos_sin_cache"})) {
      if (both->width % 2 != 0) refuse(fmt::format("{}: expected rows of cos and then sin, got {} columns", both->name, both->width));
      values.rows = both->rows, values.width = both->width / 2;
      for (std::size_t i = 0; i < both->numbers.size(); i++) {
        (i % both->width < values.width ? values.cos : values.sin).push_back(both->numbers[i]);
      }
      return count_rows(values);
    }
    auto cos = find({"cos", "cos_cached"}), sin = find({"sin", "sin_cached"});
    if (cos.has_value() != sin.has_value()) refuse(fmt::format("{}: missing", cos ? "sin" : "cos"));
    if (!cos) return;
    if (cos->rows != sin->rows || cos->width != sin->width) {
      refuse(fmt::format("{}: expected the shape of {}, {} rows of {}, got {} of {}", sin->name, cos->name, cos->rows, cos->width,
                         sin->rows, sin->width));
    }
    values.rows = cos->rows, values.width = cos->width;
    values.cos = std::move(cos->numbers), values.sin = std::move(sin->numbers);
    if (cos->name.ends_with("_cached")) count_rows(values);
  }

  static void count_rows(Values& values) {
    if (!values.positions.empty()) return;
    values.positions.resize(values.rows);
    std::iota(values.positions.begin(), values.positions.end(), 0);
  }

  std::string_view bytes_;
  std::vector<files::TensorShape> tensors_;
};

}  // namespace

Values values_from_safetensors(std::string_view bytes) { return TensorReader(bytes).read(); }

}  // namespace gnomon
