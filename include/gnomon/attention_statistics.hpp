// SPDX-License-Identifier: Apache-2.0
// ④ Attention statistics: where the weights of attention lie, in a second pass over the scores. Nothing is ever n × n.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnomon/attention.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// What is measured, and the caller's memory it is written to; an empty span is not written. Weights are the p that attention multiplies
/// values by. How far back a key lies is diagonal − key here: 0 is the query's own key, positive ones are before it, negative ones after
/// it (distances of scores, key − query, have the opposite sign). A query that sees no key gives zeros, and so
/// does one whose scores are all below −1e30: a row of padding, masked by the least finite number as transformers does.
struct AttentionStatistics {
  std::int64_t first_keys = 4;                   ///< how many keys from the first of the query's sequence `first_mass` counts
  std::int64_t window = 128;                     ///< `window_mass` counts the keys less than this many from the query, its own included
  std::span<const std::int64_t> distance_edges;  ///< (bins + 1), ascending: bin i counts the keys edges[i] <= how far back < edges[i + 1]

  // (B,Hq,Tq), contiguous: a number for each query.
  std::span<float> mass;           ///< Σ p: 1, less what a sink logit takes
  std::span<float> entropy;        ///< nats, of p / Σ p: −Σ p ln p where there is no sink logit, 0 to the logarithm of the keys seen
  std::span<float> maximum;        ///< greatest p
  std::span<float> mean_distance;  ///< tokens, Σ p (diagonal − key) / Σ p
  std::span<float> first_mass;     ///< Σ p over the first keys
  std::span<float> window_mass;    ///< Σ p over the window

  // (B,Hq,bins), contiguous: sums of p over the queries of a head, so that those of several passes can be added.
  std::span<double> mass_by_distance;
};

/// Edges of bins that double in width, for up to `keys` keys before a query: 0, 1, 2, 4, … and the first power of 2 that is not below
/// `keys`. Throws Error(invalid_argument) for a number below 0 and Error(out_of_range) above 2^40.
std::vector<std::int64_t> doubling_edges(std::int64_t keys);

/// Measures the weights of one pass of attention. Their denominators are those attention left: each score is made once more and becomes
/// exp(score − log_sum_exp).
///
///   q, k         as given to attention; the same options, but for what attention itself writes
///   log_sum_exp  (B,Hq,Tq), contiguous, as attention wrote it
///
/// f64 runs the double reference, the other types the kernel of this CPU, which makes scores in f32: a weight errs by the rounding of its
/// score, 1e-7 of the score's size. Cost follows the visible pairs; scratch is O(T) a head. The result does not depend on the executor. A
/// NaN among the keys a query sees gives NaN in its row, and in the histogram of its head.
/// Throws Error(invalid_argument) that names the argument for shapes, strides, dtypes and sizes that do not fit and edges that do not
/// ascend.
/// Source: Zhong et al. 2024, Understanding the RoPE Extensions of LLMs: An Attention Perspective, arXiv:2406.13282, for entropy and mass
/// by distance; Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, for the mass on the first keys.
void attention_statistics(const ConstTensorView& q, const ConstTensorView& k, std::span<const float> log_sum_exp,
                          const AttentionStatistics& statistics, const AttentionOptions& options = {});

namespace reference {
/// The same in double arithmetic from the definitions, with denominators of its own: what the kernel is tested against. Nothing is
/// checked.
void attention_statistics(const ConstTensorView& q, const ConstTensorView& k, const AttentionStatistics& statistics,
                          const AttentionOptions& options = {});
}  // namespace reference

}  // namespace gnomon
