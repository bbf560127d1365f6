// SPDX-License-Identifier: Apache-2.0
// ③ Tables: cos and sin at chosen positions, and rows of absolute encodings, rounded once.
#pragma once

#include <cstddef>
#include <vector>

#include "gnomon/frequencies.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// cos and sin of (position, pair), without the magnitude, which stands beside them. Immutable; share it between threads.
struct RotaryTable {
  Frequencies frequencies;
  DType dtype = DType::f32;
  std::size_t positions = 0;  ///< P
  std::size_t pairs = 0;
  std::vector<std::byte> cos;  ///< (P, pairs) of dtype, contiguous
  std::vector<std::byte> sin;  ///< (P, pairs) of dtype, contiguous
};

/// The most entries (positions x pairs) a table may have: 2^36.
inline constexpr std::size_t largest_table = std::size_t{1} << 36;

/// Builds a table. With several position axes, positions are one list for each axis, and each pair takes its own. `exact`: every entry
/// within half an ulp of dtype (f64: 1 ulp) plus (|p| + 2) * 2^-64 turns. `hf`: one float32 product of position and frequency, cos and sin
/// of that angle rounded to float32, then to dtype. Throws Error(out_of_range) for a position that is NaN or beyond ±2^33,
/// Error(invalid_argument) for a table beyond largest_table or positions that are no list for each axis, Error(unsupported) for xpos, whose
/// magnitudes do not fit into one.
RotaryTable rotary_table(const Frequencies& frequencies, const Positions& positions, DType dtype = DType::f32);

/// A view of cos and sin, of a RotaryTable or of anybody: rows of `pairs` numbers, contiguous in a row.
struct TableView {
  const void* cos = nullptr;
  const void* sin = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t pairs = 0;
  std::int64_t row_stride = 0;  ///< from one row to the next, in elements

  TableView() = default;
  TableView(const void* cos_, const void* sin_, DType dtype_, std::int64_t rows_, std::int64_t pairs_, std::int64_t row_stride_)
      : cos(cos_), sin(sin_), dtype(dtype_), rows(rows_), pairs(pairs_), row_stride(row_stride_) {}
  TableView(const RotaryTable& table)
      : TableView(table.cos.data(), table.sin.data(), table.dtype, static_cast<std::int64_t>(table.positions),
                  static_cast<std::int64_t>(table.pairs), static_cast<std::int64_t>(table.pairs)) {}
};

/// Rows of an absolute encoding. Immutable; share it between threads.
struct EmbeddingTable {
  AbsoluteSpec spec;
  Numerics numerics = Numerics::exact;
  DType dtype = DType::f32;
  std::size_t positions = 0;    ///< P
  std::vector<std::byte> rows;  ///< (P, C) of dtype, contiguous
};

/// Builds the rows of an absolute encoding at chosen positions; with several axes, positions are one list for each axis. `exact`: every
/// entry within half an ulp of dtype (f64: 2 ulp) plus (|p| + 2) * 2^-64 turns, times the scale. `hf`: as transformers makes them:
/// double angles rounded once to float32 where the exponent is divided by the width (Marian, RoFormer), float32 throughout where it is
/// divided by half of it minus one (M2M-100, Whisper).
/// Throws Error(unsupported) for `learned`, whose rows are parameters of a model, and for `hf` with a form transformers does not have;
/// Error(out_of_range) and Error(invalid_argument) as rotary_table.
EmbeddingTable embedding_table(const AbsoluteSpec& spec, const Positions& positions, DType dtype = DType::f32,
                               Numerics numerics = Numerics::exact);

}  // namespace gnomon
