// SPDX-License-Identifier: Apache-2.0
#include "gnomon/golden.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <set>

#include "gnomon/table.hpp"
#include "model/mapped_file.hpp"

namespace gnomon {
namespace {

// Beside small ones, several that bf16 (257, 1857, 4095) and f16 (4095, 8191, …) cannot hold, so that a cast of positions shows.
constexpr std::array<std::int64_t, 14> usual_positions{0, 1, 2, 7, 100, 257, 1000, 1857, 4095, 8191, 16385, 32767, 131071, 1048575};

template <class Element>
std::vector<double> widened(const std::vector<std::byte>& bytes) {
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return {elements.begin(), elements.end()};
}

GoldenNumbers numbers_of(const Frequencies& frequencies, std::span<const std::int64_t> positions) {
  std::vector<std::int64_t> of_every_axis;
  for (int axis = 0; axis < position_axes(frequencies.spec); axis++)
    of_every_axis.insert(of_every_axis.end(), positions.begin(), positions.end());
  const bool exact = frequencies.numerics == Numerics::exact;
  const RotaryTable table = rotary_table(frequencies, Ids{of_every_axis}, exact ? DType::f64 : DType::f32);
  if (exact) return {frequencies.inv_freq, widened<double>(table.cos), widened<double>(table.sin)};
  return {frequencies.inv_freq, widened<float>(table.cos), widened<float>(table.sin)};
}

void check_positions(std::span<const std::int64_t> positions, std::size_t pairs) {
  if (positions.empty()) throw Error(ErrorCode::invalid_argument, "positions: a golden file needs at least one");
  const std::set<std::int64_t> distinct(positions.begin(), positions.end());
  if (distinct.size() != positions.size()) throw Error(ErrorCode::invalid_argument, "positions: one of them stands twice");
  if (positions.size() <= largest_golden / pairs) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("positions: {} of them with {} pairs are more than the {} cosines of a golden file",
                                                       positions.size(), pairs, largest_golden));
}

/// Hands the text of a file to a reader, and names the file in what it refuses.
template <class Read>
auto read_file(const std::filesystem::path& path, Read&& read) {
  const files::MappedFile file(path);
  try {
    return read(file.text());
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace

std::span<const std::int64_t> golden_positions() { return usual_positions; }

Golden make_golden(const RotarySpec& spec, std::span<const std::int64_t> positions, std::optional<std::int64_t> length) {
  const Frequencies exact = frequencies(spec, Numerics::exact, length);
  check_positions(positions, exact.inv_freq.size());
  Golden golden{"", spec, length, {positions.begin(), positions.end()}, exact.attention_factor, numbers_of(exact, positions), std::nullopt};
  const bool in_transformers = std::visit([](const auto& rule) { return rule.in_transformers(); }, spec.rule);
  if (in_transformers) golden.hf = numbers_of(frequencies(spec, Numerics::hf, length), positions);
  return golden;
}

Golden read_golden(const std::filesystem::path& path) { return read_file(path, golden_from_json); }
Values read_values(const std::filesystem::path& path) { return read_file(path, values_from); }

}  // namespace gnomon
