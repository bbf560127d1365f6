// SPDX-License-Identifier: Apache-2.0
// ④ rotate: the structure "rotate pairs", (a, b) ← R(angle)·(a, b), for every rotary rule.
#pragma once

#include <span>
#include <string_view>

#include "gnomon/frequencies.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// forward: a' = a cos − b sin, b' = b cos + a sin, times the magnitude. transposed: the same with the opposite sine and the same
/// magnitude, which is the gradient of forward, and its inverse where the magnitude is 1.
enum class Direction { forward, transposed };

/// How heads are rotated: plain numbers, made once from exact frequencies. A view: the frequencies must outlive it.
struct Rotation {
  std::span<const Turns> turns;  ///< (pairs), per position
  int head_dim = 0;
  int rotary_offset = 0;
  PairLayout layout = PairLayout::half_split;
  double magnitude = 1;  ///< on cos and sin; 1 to move cached keys

  Rotation() = default;
  /// Throws Error(unsupported) for `hf` frequencies, whose angles exist as tables only.
  Rotation(const Frequencies& frequencies);
};

/// Rotates channels [rotary_offset, rotary_offset + 2 * pairs) of every head; the other channels pass unchanged.
///
///   x          (B,H,T,D), D = head_dim; any dtype; any strides with a contiguous last axis. f32 and bf16 with integer positions run
///              the kernel of this CPU; f64, f16 and real positions run the double reference
///   positions  T of them, shared by the batch, or B·T, row by row
///   rotation   exact frequencies: cos and sin are made in the kernel from the integer phase, within 1.2e-7 at every |p| <= 2^33
///
/// In place. Every result is rounded once to its dtype, to nearest even. Scratch is a few rows of cos and sin; the calling thread
/// does the work. Throws Error(invalid_argument) that names the argument for a shape, stride or dtype that does not fit,
/// Error(out_of_range) for a position beyond ±2^33.
/// Source: Su et al. 2021, RoFormer, arXiv:2104.09864, eq. 34.
void rotate(const TensorView& x, const Rotation& rotation, const Positions& positions, Direction direction = Direction::forward);

/// The same into `out`, of x's shape and dtype. Memory that x and out share must be the very same view (then it is in place);
/// any other overlap is Error(invalid_argument).
void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions,
            Direction direction = Direction::forward);

namespace reference {
/// The same in double arithmetic with cos and sin from the C library's double functions: what every kernel is tested against, and the
/// last entry of the list of implementations. Rounds once, to x's dtype.
void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions,
            Direction direction = Direction::forward);
}  // namespace reference

/// The CPU target whose code runs: "AVX3", "AVX2", …, "SCALAR".
std::string_view kernel_target();

}  // namespace gnomon
