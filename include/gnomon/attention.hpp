// SPDX-License-Identifier: Apache-2.0
// ④ attention: softmax(softcap(scale · QKᵀ) + bias, mask, sink logits) · V, with rotation, scores by distance and masks inside. Nothing is
// ever n × n.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "gnomon/bias_table.hpp"
#include "gnomon/executor.hpp"
#include "gnomon/mask.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/rotate.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// Heads turned while they are loaded, so that keys can be cached unrotated. Views: the rotation and lists of positions must outlive it.
struct RotationOnLoad {
  Rotation rotation;
  Positions positions;  ///< (T) or (B,T), of the tensor that is turned
};

/// A mask tensor of any pattern, read as it is needed: (B,H,Tq,Tk), a stride of 0 where rows, heads or queries share it. Boolean: a byte,
/// 0 hides the key. Additive: f32, added after the softcap; −inf hides the key, and nothing else does: finite numbers beyond 1e38 count as
/// 1e38 of their sign, so that a row of them alone weighs its keys alike. NaN and +inf make the row NaN.
struct MaskTensor {
  enum class Kind { boolean, additive };
  const void* data = nullptr;
  Kind kind = Kind::boolean;
  std::array<std::int64_t, 4> strides{};  ///< of B, H, Tq, Tk, in elements
};

struct AttentionOptions {
  std::optional<double> scale;            ///< of q·k; none: 1 / sqrt(D)
  std::optional<double> softcap;          ///< c: scores become c · tanh(score / c), before the bias
  std::span<const BiasTable> bias;        ///< added to the scores; several are summed
  const KeyIntervals* mask = nullptr;     ///< none: all queries see all keys, and query t stands at key t + Tk − Tq
  std::optional<MaskTensor> mask_tensor;  ///< beside `mask`
  std::span<const float> sink_logits;     ///< (Hq), or empty: a logit that only adds to the denominator
  std::span<const float> query_factors;   ///< (Tq) or (B,Tq), or empty: the temperature each query is multiplied by, no NaN
  std::optional<RotationOnLoad> rotate_queries;
  std::optional<RotationOnLoad> rotate_keys;
  float* log_sum_exp = nullptr;  ///< (B,Hq,Tq), contiguous, written where given: ln of the denominator, −inf where no key is seen
  float* maximum = nullptr;      ///< (B,Hq,Tq), contiguous, written where given: the greatest score (sink logits apart), or −inf
  Executor* executor = nullptr;  ///< none: the calling thread does the work
};

/// One forward pass.
///
///   q    (B,Hq,Tq,D)   any strides with a contiguous last axis, as all four tensors; one dtype for all
///   k    (B,Hk,Tk,D)   Hq is a multiple of Hk: query head h reads key head h / (Hq / Hk)
///   v    (B,Hk,Tk,Dv)  its width may differ from D
///   out  (B,Hq,Tq,Dv)  memory of its own
///
/// f64 runs the double reference, the other types the kernel of this CPU, which accumulates in f32. A query that sees no key gives zeros. A
/// NaN in a key or value that is masked does not reach the result; any other does, in its own row only. Tiles of keys whose weights would
/// all underflow to exactly 0 by their bias are not computed. Cost follows the visible pairs; scratch is at most 2 MiB a task and O(T) a
/// head. The result does not depend on the executor.
/// Throws Error(invalid_argument) that names the argument for shapes, strides or dtypes that do not fit, overlapping memory, and lists of
/// a wrong length.
/// Sources: Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Dao et al. 2022, arXiv:2205.14135, for the order of the work.
void attention(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
               const AttentionOptions& options = {});

/// A cache of keys and values in pages: token t of batch row b stands in page block_table[b * blocks + t / page_size], at t % page_size.
struct PagedCache {
  ConstTensorView keys;                       ///< (pages, Hk, page_size, D)
  ConstTensorView values;                     ///< (pages, Hk, page_size, Dv)
  std::span<const std::int32_t> block_table;  ///< (B, blocks)
  std::span<const std::int32_t> lengths;      ///< (B): tokens in the cache of each row
};

/// The same against a paged cache: Tk is the longest of the lengths. Without a mask, query t of row b stands at key t + lengths[b] − Tq and
/// sees the keys up to itself. Throws also Error(out_of_range) for a page that does not exist and a length its row has no blocks for.
void attention(const ConstTensorView& q, const PagedCache& cache, const TensorView& out, const AttentionOptions& options = {});

namespace reference {
/// The same in double arithmetic, score by score, rounded once: what every kernel is tested against. Nothing is checked.
void attention(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
               const AttentionOptions& options = {});
}  // namespace reference

}  // namespace gnomon
