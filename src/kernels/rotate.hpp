// SPDX-License-Identifier: Apache-2.0
// What the rotate kernel is given: plain pointers and numbers, never a spec.
#pragma once

#include <cstdint>

#include "gnomon/phase.hpp"

namespace gnomon::kernels {

/// One tensor (B,H,T,D) read from `x` and written to `out` (which may be x), rotated by phases p * turns[i].fraction.
struct RotateJob {
  const void* x = nullptr;
  void* out = nullptr;
  std::int64_t batch = 0, heads = 0, tokens = 0, head_dim = 0;
  std::int64_t x_strides[3] = {};    // of B, H, T, in elements
  std::int64_t out_strides[3] = {};  // of B, H, T, in elements

  const Turns* turns = nullptr;  // (pairs), per position
  std::int64_t pairs = 0;
  std::int64_t rotary_offset = 0;
  bool interleaved = false;
  bool transposed = false;
  float magnitude = 1;

  const std::int32_t* ids32 = nullptr;  // at most one list of ids; without one the positions are start, start + step, …
  const std::int64_t* ids = nullptr;
  std::int64_t start = 0, step = 1;
  bool per_row = false;  // positions are (B,T) instead of (T)

  std::int64_t position(std::int64_t b, std::int64_t t) const {
    const std::int64_t index = per_row ? b * tokens + t : t;
    return ids != nullptr ? ids[index] : ids32 != nullptr ? ids32[index] : start + index * step;
  }
};

void rotate_f32(const RotateJob& job);
void rotate_bf16(const RotateJob& job);

/// Name of the CPU target whose code runs.
const char* target_name();

}  // namespace gnomon::kernels
