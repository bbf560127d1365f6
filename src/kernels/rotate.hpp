// SPDX-License-Identifier: Apache-2.0
// What the rotate kernel is given: plain pointers and numbers, never a spec.
#pragma once

#include <cstdint>
#include <span>

#include "gnomon/phase.hpp"
#include "gnomon/table.hpp"
#include "plan/position_grid.hpp"

namespace gnomon::kernels {

/// A tensor (B,H,T,D) read from `x` and written to `out` (which may be x).
struct RotateTensor {
  const void* x = nullptr;
  void* out = nullptr;
  std::int64_t heads = 0;
  std::int64_t x_strides[3] = {};    // of B, H, T, in elements
  std::int64_t out_strides[3] = {};  // of B, H, T, in elements
  bool reciprocal = false;           // of the magnitudes of xpos
};

/// How cos and sin of a position are made: each from its own phase, or as a product of two, off by 4e-7, which 16-bit types do not show.
enum class CosSin { by_phase, by_steps };

struct RotateJob {
  std::span<const RotateTensor> tensors;
  std::int64_t head_dim = 0;

  const Turns* turns = nullptr;           // (pairs), per position; null with a table
  const std::uint8_t* axis = nullptr;     // (pairs), or null
  const double* log_magnitude = nullptr;  // (pairs), or null
  std::int64_t centre = 0;
  const TableView* table = nullptr;  // or null
  const PositionGrid* positions = nullptr;

  std::int64_t pairs = 0;
  std::int64_t rotary_offset = 0;
  bool interleaved = false;
  bool transposed = false;
  float magnitude = 1;
  CosSin cos_sin = CosSin::by_phase;
  bool prefetch = false;  // the tensors are larger than the caches
};

/// What one task rotates of every tensor: rows of the batch and tokens.
struct RotatePart {
  std::int64_t batch_begin = 0, batch_end = 0, token_begin = 0, token_end = 0;
};

void rotate(DType dtype, const RotateJob& job, const RotatePart& part);

/// Name of the CPU target whose code runs.
const char* target_name();

}  // namespace gnomon::kernels
