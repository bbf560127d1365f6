// SPDX-License-Identifier: Apache-2.0
// ③ Tables: cos and sin at chosen positions, rounded once.
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

/// Builds a table. `exact`: every entry within half an ulp of dtype (f64: 1 ulp) plus (|p| + 2) * 2^-64 turns. `hf`: one float32
/// product of position and frequency, cos and sin of that angle rounded to float32, then to dtype.
/// Throws Error(out_of_range) for a position that is NaN or beyond ±2^33.
RotaryTable rotary_table(const Frequencies& frequencies, const Positions& positions, DType dtype = DType::f32);

}  // namespace gnomon
