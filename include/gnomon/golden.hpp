// SPDX-License-Identifier: Apache-2.0
// ⑤ Golden files: what a rule means in numbers, written down once; and what is wrong with numbers made elsewhere (docs/golden.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/frequencies.hpp"
#include "gnomon/spec.hpp"

namespace gnomon {

/// Frequencies, and cos and sin without the magnitude.
struct GoldenNumbers {
  std::vector<double> inv_freq;  ///< (pairs), radians per position
  std::vector<double> cos, sin;  ///< (positions, pairs)
  bool operator==(const GoldenNumbers&) const = default;
};

/// The numbers of one rotary spec. Where it has several position axes, every axis stands at the same position, as for text.
struct Golden {
  std::string source;  ///< where the spec came from, for people
  RotarySpec spec;
  std::optional<std::int64_t> length;  ///< of the sequence, for rules that depend on it
  std::vector<std::int64_t> positions;
  double attention_factor = 1;      ///< the magnitude, which belongs on cos and sin once
  GoldenNumbers exact;              ///< doubles: frequencies correctly rounded, cos and sin within 1 ulp
  std::optional<GoldenNumbers> hf;  ///< transformers' float32 values, for rules it has
  bool operator==(const Golden&) const = default;
};

/// The positions of a golden file that asks for no others: 0, 1, 2, some that 16 bits cannot hold, and far ones up to 2^20 - 1.
std::span<const std::int64_t> golden_positions();

/// The most cosines (positions x pairs) a golden file may hold: 2^19.
inline constexpr std::size_t largest_golden = std::size_t{1} << 19;

/// Makes the numbers. Throws what frequencies() and rotary_table() throw, Error(invalid_argument) for no position, one that stands twice,
/// and more than largest_golden cosines.
Golden make_golden(const RotarySpec& spec, std::span<const std::int64_t> positions = golden_positions(),
                   std::optional<std::int64_t> length = std::nullopt);

/// The golden file as text: one JSON object (docs/golden.md) with hexadecimal numbers and, last, the SHA-256 of what precedes it.
std::string to_json(const Golden& golden);

/// Reads what to_json wrote. Throws Error(malformed) for anything else, a hash that is not that of the text among it; read_golden also
/// Error(io).
Golden golden_from_json(std::string_view text);
Golden read_golden(const std::filesystem::path& path);

/// Numbers an engine made: frequencies, a table of cos and sin, or a rotated vector; at least one of the three.
struct Values {
  std::vector<double> inv_freq;            ///< (pairs)
  std::vector<std::int64_t> positions;     ///< of the rows; empty: those of the golden file, in its order
  std::size_t rows = 0, width = 0;         ///< of cos and sin, or of `rotated`
  std::vector<double> cos, sin;            ///< (rows, width): width is the pairs, or the rotated channels with every value there twice
  std::vector<double> input;               ///< (width) a vector of the full head, and
  std::vector<double> rotated;             ///< (rows, width) what the engine made of it at each position
  std::optional<double> attention_factor;  ///< a magnitude stated beside cos and sin
};

/// Reads values: JSON (as `gnomon freqs` and `gnomon table` print it, or plain lists), npy of shape (2, positions, pairs), CSV as
/// `gnomon table` prints it, or tensors of a safetensors file by their names (docs/golden.md). The form is recognised by content. Throws
/// Error(malformed); read_values also Error(io).
Values values_from(std::string_view bytes);
Values read_values(const std::filesystem::path& path);

/// A known mistake, as it was found in values.
struct Mistake {
  std::string name;   ///< one of list_mistakes()
  std::string found;  ///< "theta 10000 instead of 500000"
  std::string cause;  ///< where it comes from
};

/// Mistakes that together explain the values.
struct Explanation {
  std::vector<Mistake> mistakes;
  double residual = 0;  ///< the largest difference that is left: of cos and sin, else relative, of frequencies
};

/// The largest difference from the golden numbers.
struct Deviation {
  std::string value;          ///< "inv_freq", "cos" or "sin"
  std::int64_t position = 0;  ///< of cos and sin
  std::size_t pair = 0;
  double got = 0, expected = 0;
};

/// What verify() found.
struct Verification {
  bool agrees = false;
  Numerics numerics = Numerics::exact;    ///< which numbers of the golden file the values were held to
  std::string precision;                  ///< of the values, recognised: "f64", "f32", "bf16", "f16" or "6 digits"
  double tolerance = 0;                   ///< of cos and sin; relative for frequencies
  std::size_t positions = 0;              ///< rows compared: those whose position is in the golden file
  std::optional<Deviation> worst;         ///< empty where shapes differ
  std::vector<Explanation> explanations;  ///< the best first; empty when they agree, or when no known mistake explains them
  std::vector<std::string> notes;
};

/// Compares values with a golden file; where they differ, tries every known mistake. The tolerance follows the precision of the values
/// unless one is given. Cos and sin agree with the magnitude on them or without; a rotated vector has to carry it.
/// Throws Error(invalid_argument) for values without a number, with another shape than their kind allows or without a position of the
/// golden file, Error(unsupported) for `hf` where the golden file has no such numbers.
Verification verify(const Values& values, const Golden& golden, Numerics numerics = Numerics::exact,
                    std::optional<double> tolerance = std::nullopt);

/// The object `gnomon verify --json` prints (docs/golden.md), on one line.
std::string to_json(const Verification& verification);

/// Every mistake that verify() can name, for surfaces and docs/golden.md.
struct MistakeInfo {
  std::string_view name, cause;
};
std::vector<MistakeInfo> list_mistakes();

}  // namespace gnomon
