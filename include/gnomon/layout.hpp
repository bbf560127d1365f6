// SPDX-License-Identifier: Apache-2.0
// ④ Pair layouts: half_split and interleaved differ by a permutation of channels, which weights, biases, gains and cached keys can be
// moved by. Converted on both sides, queries and keys give the same scores.
#pragma once

#include <cstdint>
#include <vector>

#include "gnomon/spec.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// The permutation of one head from the spec's layout to another: channel d of the result is channel [d] of the original, (head_dim)
/// of them, as indices for `take` or `index_select`. Channels that do not rotate stay where they are.
/// Throws Error(invalid_argument) for a bad spec.
std::vector<std::int64_t> layout_permutation(const RotarySpec& spec, PairLayout to);

/// Moves the channels of every head along one axis from the spec's layout to another; use it with a spec of that layout from then on.
///
///   x      any dtype and strides, since it moves bytes. The heads lie one after the other along `axis`, and there are as many as its
///          extent holds: heads for queries, kv_heads for keys
///   axis   of the channels: 2 for a projection weight (1,1,heads·D,inputs), 3 for its bias (1,1,1,heads·D), for the gain of a norm over
///          queries or keys (1,1,1,D) and for cached keys (B,H,T,D)
///
/// In place. Scratch is 64 elements per channel of a head. Throws Error(invalid_argument) that names the argument for a bad spec or axis,
/// an extent that is no multiple of head_dim, and memory that does not fit.
void convert_layout(const TensorView& x, const RotarySpec& spec, PairLayout to, int axis);

/// The same into `out`, of x's shape and dtype. Memory that x and out share must be the very same view (then it is in place);
/// any other overlap is Error(invalid_argument).
void convert_layout(const ConstTensorView& x, const TensorView& out, const RotarySpec& spec, PairLayout to, int axis);

}  // namespace gnomon
