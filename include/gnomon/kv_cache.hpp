// SPDX-License-Identifier: Apache-2.0
// ④ kv_cache: what happens to cached keys and values when positions change. A rotation of a rotated key adds up with the first one, so all
// of it is the structure "rotate pairs", with the difference of two phases, which is exact, and no magnitude that was there before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gnomon/attention.hpp"
#include "gnomon/executor.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/rotate.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

// Every cache below is (B,Hk,T,D) or, in pages, (pages,Hk,page_size,D): any dtype and any strides with a contiguous last axis. Keys become
// what they would be had they been rotated at their new positions, within the rounding of the stored type. That rounding is paid each time:
// move keys from their true position once, not in many small steps (case T22).

/// Moves cached keys: each was rotated at some position p, by `rotation`, and becomes what it would be at p + delta. The magnitude of the
/// rotation is in the keys already and is not applied again (T12); xpos multiplies by its own factor for the distance moved.
/// deltas: one for every position axis, (axes), or also for every sequence, (axes,B). cos and sin are made once for many tokens.
/// Throws as rotate does, and Error(unsupported) for a table, whose angles have no differences.
/// Source: Su et al. 2021, arXiv:2104.09864, eq. 16: R(p + d) = R(d) R(p).
void shift_keys(const TensorView& keys, const Rotation& rotation, std::span<const std::int64_t> deltas, Executor* executor = nullptr);

/// The same with a delta of its own for every token: (T) or (B,T), with several axes one such list for each.
void shift_keys(const TensorView& keys, const Rotation& rotation, const Positions& deltas, Executor* executor = nullptr);

/// Takes cached keys from one rule to another at the positions they stand at, (T) or (B,T): a dynamic base that grew, longrope from short
/// to long, YaRN on or off, another theta. Each turns by p · (to − from), exact in integers, and takes the ratio of the two magnitudes.
/// Both rotations must turn the same channels in the same layout by the same axes: Error(invalid_argument) names what differs.
/// Throws as rotate does; Error(unsupported) for a table and for two xpos rotations with different centres.
void rebase_keys(const TensorView& keys, const Rotation& from, const Rotation& to, const Positions& positions,
                 Executor* executor = nullptr);

/// Keeps the first `keep_first` (attention sinks) and the last `keep_last` tokens of every row of the batch, moves them together and
/// renumbers them: the keys moved by n slots are rotated by −n positions. A row that is no longer than both together stays as it is.
///
///   keys, values  (B,Hk,T,D) and (B,Hk,T,Dv), in place
///   lengths       (B), tokens in the cache of each row; the result has the new ones
///   rotation      that the keys had, on one position axis; null where they have none (ALiBi, keys cached unrotated)
///
/// With several position axes slots and positions are not the same numbers: evict without a rotation, then shift_keys with a delta for
/// each token. Throws as shift_keys does, and Error(invalid_argument) for negative numbers and lengths that do not fit.
/// Source: Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, section 3.2, with keys that were cached rotated.
std::vector<std::int32_t> evict_tokens(const TensorView& keys, const TensorView& values, std::span<const std::int32_t> lengths,
                                       std::int64_t keep_first, std::int64_t keep_last, const Rotation* rotation,
                                       Executor* executor = nullptr);

/// Where in the cache of its row each new token goes: (B), the slot of the first one of each row, which the others follow; or (B,T), the
/// slot of each, −1 for one that is not kept (padding). A slot is not a position.
struct Slots {
  std::span<const std::int32_t> values;
};

struct AppendOptions {
  std::optional<RotationOnLoad> rotate_keys;  ///< none: the keys are stored as they are
  std::span<const std::int32_t> block_table;  ///< (B,blocks), as in PagedCache; empty: the cache is contiguous
  Executor* executor = nullptr;
};

/// Writes new keys, rotated at their positions on the way, and values into a cache: keys are read once and written once.
///
///   k, v          (B,Hk,T,D) and (B,Hk,T,Dv)
///   keys, values  (B,Hk,slots,D) and (B,Hk,slots,Dv), or the pages; memory of their own
///
/// Throws as rotate does; Error(invalid_argument) for shapes that do not fit and two tokens for one slot; Error(out_of_range) for a slot
/// the cache has not and a page that does not exist. Then nothing is written.
void append_tokens(const ConstTensorView& k, const ConstTensorView& v, const TensorView& keys, const TensorView& values, const Slots& slots,
                   const AppendOptions& options = {});

}  // namespace gnomon
