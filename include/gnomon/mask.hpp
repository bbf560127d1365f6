// SPDX-License-Identifier: Apache-2.0
// ③ Masks: the structure "mask", one interval of keys for each query and the first few, as integers made once for all layers alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gnomon/spec.hpp"

namespace gnomon {

/// Which keys each query sees: key j where begin <= j < end, or first <= j < min(first + keep_first, end). An empty interval sees nothing.
/// Immutable, four integers a query: share it between layers and threads.
struct KeyIntervals {
  std::int64_t batch = 1;  ///< rows of the lists: B, or 1 where all rows of the batch are alike
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t keep_first = 0;
  std::vector<std::int32_t> begin;     ///< (batch, queries)
  std::vector<std::int32_t> end;       ///< (batch, queries)
  std::vector<std::int32_t> first;     ///< (batch, queries): where the sequence of the query begins, from which keep_first counts
  std::vector<std::int32_t> diagonal;  ///< (batch, queries): the key slot the query itself stands at; distance = key − diagonal

  bool sees(std::int64_t b, std::int64_t query, std::int64_t key) const {
    const auto at = static_cast<std::size_t>((batch == 1 ? 0 : b) * queries + query);
    return key < end[at] && (key >= begin[at] || (key >= first[at] && key < first[at] + keep_first));
  }
};

/// Where the last query stands when there are fewer queries than keys, or more: at the last key (a cache), or query 0 at key 0 (ONNX
/// without a cache, encoders with cross attention).
enum class Alignment { lower_right, top_left };
template <>
inline constexpr std::string_view enum_names<Alignment>[] = {"lower_right", "top_left"};

/// What intervals are made of; whatever is given restricts further, but for `prefix` and keep_first, which let keys in again.
struct MaskOptions {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  Alignment alignment = Alignment::lower_right;
  std::optional<std::int64_t> offset;  ///< key slot that query 0 stands at, in the place of what the alignment says
  std::optional<std::int64_t> left;    ///< keys seen before the query's own: window W counts itself, so left = W − 1
  std::optional<std::int64_t> right;   ///< keys seen after the query's own: 0 is causal
  std::optional<std::int64_t> chunk;   ///< keys of the same chunk only, counted from the first key of the sequence
  std::int64_t prefix = 0;             ///< the first keys of a sequence, which all its queries see (prefix language models)
  std::int64_t keep_first = 0;         ///< the first keys of a sequence, seen through window and chunk, but not ahead (attention sinks)
  /// Padding: the keys [key_begin[b], key_end[b]) of each batch row exist; queries stand at the end of them (lower_right), or at key_begin
  /// (top_left). Lists of B, or empty.
  std::span<const std::int32_t> key_begin;
  std::span<const std::int32_t> key_end;
  /// Packed documents, in one row: document d holds queries [cu_seqlens_q[d], cu_seqlens_q[d + 1]) and the same of the keys. Each is
  /// aligned for itself. Both or neither; for the same tokens give one list twice.
  std::span<const std::int32_t> cu_seqlens_q;
  std::span<const std::int32_t> cu_seqlens_k;

  MaskOptions() = default;
  /// What a model's layer declares: causal is right = 0; a causal window W has left = W − 1, in a bidirectional model left = right = W / 2.
  MaskOptions(const Mask& mask, std::int64_t queries, std::int64_t keys);
};

/// Makes the intervals. Throws Error(invalid_argument) that names the field for negative lengths, a window or chunk below 1, lists that do
/// not fit to each other or to the lengths, and packed documents beside padding; Error(out_of_range) for 2^31 keys or more.
KeyIntervals key_intervals(const MaskOptions& options);

/// What queries at these positions are multiplied by: a factor for each. Throws as validate(positions), and Error(out_of_range) where the
/// formula has no value: a logarithm of 0 or less, or divided by ln 1.
/// Source: Llama 4 and Ministral 3 (StepTemperature), Qwen 1 (LogTemperature); see spec.hpp.
std::vector<float> query_factors(const QueryTemperature& temperature, std::span<const std::int64_t> positions);

}  // namespace gnomon
