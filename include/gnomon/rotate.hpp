// SPDX-License-Identifier: Apache-2.0
// ④ rotate: the structure "rotate pairs", (a, b) ← R(angle)·(a, b), for every rotary rule.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "gnomon/executor.hpp"
#include "gnomon/frequencies.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/table.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// forward: a' = a cos − b sin, b' = b cos + a sin, times the magnitude. transposed: the same with the opposite sine and the same
/// magnitude, which is the gradient of forward, and its inverse where the magnitude is 1.
enum class Direction { forward, transposed };
template <>
inline constexpr std::string_view enum_names<Direction>[] = {"forward", "transposed"};

/// Queries and keys turn alike; only the magnitudes of xpos are reciprocal for them.
enum class Side { query, key };
template <>
inline constexpr std::string_view enum_names<Side>[] = {"query", "key"};

/// How heads are rotated: plain numbers, made once. A view: the frequencies or the table must outlive it.
struct Rotation {
  std::span<const Turns> turns;           ///< (pairs), per position; empty where a table gives cos and sin
  std::span<const std::uint8_t> axis;     ///< (pairs), or empty: the position axis that drives each pair
  std::span<const double> log_magnitude;  ///< (pairs), or empty: xpos
  std::int64_t centre = 0;                ///< xpos
  std::optional<TableView> table;         ///< given cos and sin; the positions are then rows of it
  int head_dim = 0;
  int rotary_offset = 0;
  PairLayout layout = PairLayout::half_split;
  double magnitude = 1;  ///< on cos and sin; 1 to move cached keys

  Rotation() = default;
  /// cos and sin are made in the kernel. Throws Error(unsupported) for `hf` frequencies, whose angles exist as tables only.
  Rotation(const Frequencies& frequencies);
  /// cos and sin are read from a table, of either profile; its position p must be its row p.
  Rotation(const RotaryTable& table);

  std::int64_t pairs() const { return table ? table->pairs : static_cast<std::int64_t>(turns.size()); }
  /// How many position axes drive the pairs.
  std::int64_t axes() const { return axis.empty() ? 1 : 1 + std::int64_t{*std::max_element(axis.begin(), axis.end())}; }
};

/// One tensor of a call; `out` may be the very same view.
struct RotateOperand {
  ConstTensorView x;
  TensorView out;
  Side side = Side::query;
};

struct RotateOptions {
  Direction direction = Direction::forward;
  bool positions_per_head = false;  ///< positions have a head axis: (axes, B, H, T)
  Executor* executor = nullptr;     ///< none: the calling thread does the work
};

/// Rotates channels [rotary_offset, rotary_offset + 2 * pairs) of every head; the other channels pass unchanged.
///
///   operands   tensors (B,H,T,D), D = head_dim, with the same B, T and dtype and any H: the queries and keys of a layer share the work
///              of making cos and sin. Any dtype; any strides with a contiguous last axis. f64 runs the double reference, the other types
///              the kernel of this CPU
///   positions  one per token, (T) or (B,T), in the order positions.hpp gives for several axes and for positions_per_head. With a table:
///              its rows
///   rotation   exact frequencies: cos and sin are made in the kernel from the integer phase, within 1.2e-7 at every |p| <= 2^33; or a
///              table, whose numbers are applied as they are
///
/// Every result is rounded once to its dtype, to nearest even, and does not depend on the executor. Scratch is a few rows of cos and sin
/// for each task (and 4 bytes a token for Packed positions). Throws Error(invalid_argument) that names the argument for a shape, stride or
/// dtype that does not fit and for operands that share memory; Error(out_of_range) for a position beyond ±2^33, a row the table has not,
/// or a position at which a magnitude of xpos leaves the range of float32.
/// Source: Su et al. 2021, RoFormer, arXiv:2104.09864, eq. 34; Sun et al. 2022, arXiv:2212.10554, for the magnitudes of xpos.
void rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions,
            const RotateOptions& options = {});

/// One tensor, in place.
void rotate(const TensorView& x, const Rotation& rotation, const Positions& positions, const RotateOptions& options = {});

/// One tensor, into `out`, of x's shape and dtype. Memory that x and out share must be the very same view (then it is in place); any
/// other overlap is Error(invalid_argument).
void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions,
            const RotateOptions& options = {});

namespace reference {
/// The same in double arithmetic with cos and sin from the C library's double functions, rounded once: what every kernel is tested
/// against, and the last entry of the list of implementations. The arguments must be as rotate demands them; nothing is checked.
void rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions,
            const RotateOptions& options = {});
void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions,
            const RotateOptions& options = {});
}  // namespace reference

/// The CPU target whose code runs: "AVX3", "AVX2", …, "SCALAR".
std::string_view kernel_target();

}  // namespace gnomon
