// SPDX-License-Identifier: Apache-2.0
#include "gnomon/mask.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "gnomon/error.hpp"
#include "gnomon/positions.hpp"

namespace gnomon {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void check_sequence(std::string_view name, std::span<const std::int32_t> list, std::size_t size, std::int64_t last) {
  if (list.size() != size) refuse(fmt::format("{}: expected {} numbers, got {}", name, size, list.size()));
  if (list[0] != 0 || list.back() != last) {
    refuse(fmt::format("{}: expected to begin at 0 and to end at {}, got {} to {}", name, last, list[0], list.back()));
  }
  if (!std::is_sorted(list.begin(), list.end())) refuse(fmt::format("{}: expected numbers that do not descend", name));
}

void check_padding(const MaskOptions& options) {
  const auto &begin = options.key_begin, &end = options.key_end;
  if (!begin.empty() && !end.empty() && begin.size() != end.size()) {
    refuse(fmt::format("key_end: expected as many numbers as key_begin has ({}), got {}", begin.size(), end.size()));
  }
  for (std::size_t b = 0; b < std::max(begin.size(), end.size()); b++) {
    const std::int64_t from = begin.empty() ? 0 : begin[b], to = end.empty() ? options.keys : end[b];
    if (from < 0 || to < from || to > options.keys) {
      refuse(fmt::format("{}: expected 0 <= key_begin <= key_end <= {}, got {} and {} in row {}", end.empty() ? "key_begin" : "key_end",
                         options.keys, from, to, b));
    }
  }
}

void check(const MaskOptions& options) {
  for (const auto& [name, length] : {std::pair("queries", options.queries), std::pair("keys", options.keys)}) {
    if (length < 0) refuse(fmt::format("{}: expected at least 0, got {}", name, length));
    if (length >= std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorCode::out_of_range, fmt::format("{}: expected fewer than 2^31, got {}", name, length));
    }
  }
  for (const auto& [name, value] : {std::pair("left", options.left), std::pair("right", options.right)}) {
    if (value && *value < 0) refuse(fmt::format("{}: expected at least 0 (a window of 1 sees the query's own key), got {}", name, *value));
  }
  const std::int64_t furthest = std::numeric_limits<std::int32_t>::max() - options.queries;
  if (options.offset && (*options.offset >= furthest || *options.offset <= -furthest)) {
    throw Error(ErrorCode::out_of_range, fmt::format("offset: expected a key slot below 2^31, got {}", *options.offset));
  }
  if (options.offset && !options.cu_seqlens_q.empty()) refuse("offset: packed documents are aligned each for itself; leave it out");
  if (options.chunk && *options.chunk < 1) refuse(fmt::format("chunk: expected at least 1, got {}", *options.chunk));
  for (const auto& [name, value] : {std::pair("prefix", options.prefix), std::pair("keep_first", options.keep_first)}) {
    if (value < 0) refuse(fmt::format("{}: expected at least 0, got {}", name, value));
  }
  check_padding(options);
  if (options.cu_seqlens_q.empty() && options.cu_seqlens_k.empty()) return;
  if (!options.key_begin.empty() || !options.key_end.empty())
    refuse("cu_seqlens_q: packed documents have no padding; leave key_begin and key_end out");
  const std::size_t size = std::max(options.cu_seqlens_q.size(), options.cu_seqlens_k.size());
  check_sequence("cu_seqlens_q", options.cu_seqlens_q, size, options.queries);
  check_sequence("cu_seqlens_k", options.cu_seqlens_k, size, options.keys);
}

/// A sequence: its queries, counted on from `query`, and the keys [key_begin, key_end).
struct Sequence {
  std::int64_t query, queries, key_begin, key_end;
};

void fill(const MaskOptions& options, const Sequence& sequence, std::int64_t row, KeyIntervals& to) {
  const auto& [query, queries, key_begin, key_end] = sequence;
  const std::int64_t offset = options.offset.value_or(options.alignment == Alignment::lower_right ? key_end - queries : key_begin);
  for (std::int64_t t = 0; t < queries; t++) {
    const std::int64_t diagonal = offset + t;
    std::int64_t begin = key_begin, end = key_end;
    // A width beyond the keys is no limit; comparing before adding keeps the sums in range.
    if (options.left && *options.left < options.keys) begin = std::max(begin, diagonal - *options.left);
    if (options.right && *options.right < options.keys) end = std::min(end, diagonal + *options.right + 1);
    if (options.chunk) {
      const std::int64_t chunk = std::min(*options.chunk, std::int64_t{1} << 32);  // beyond every slot, and sums stay in range
      const std::int64_t number = diagonal < key_begin ? -1 : (diagonal - key_begin) / chunk;
      begin = std::max(begin, key_begin + number * chunk);
      end = std::min(end, key_begin + (number + 1) * chunk);
    }
    end = std::clamp(std::max(end, key_begin + std::min(options.prefix, options.keys)), key_begin, key_end);
    const auto at = static_cast<std::size_t>(row * to.queries + query + t);
    to.begin[at] = static_cast<std::int32_t>(std::min(begin, end));
    to.end[at] = static_cast<std::int32_t>(end);
    to.first[at] = static_cast<std::int32_t>(key_begin);
    to.diagonal[at] = static_cast<std::int32_t>(diagonal);
  }
}

double factor(const StepTemperature& step, double position) {
  return 1 +
         step.attn_scale * std::log(1 + std::floor((position + static_cast<double>(step.offset)) / static_cast<double>(step.floor_scale)));
}
double factor(const LogTemperature& log, double position) {
  return std::max(1.0, std::log(position + 1) / std::log(static_cast<double>(log.length)));
}

}  // namespace

MaskOptions::MaskOptions(const Mask& mask, std::int64_t queries_, std::int64_t keys_)
    : queries(queries_), keys(keys_), chunk(mask.chunk), keep_first(mask.keep_first) {
  if (mask.causal) right = 0;
  if (mask.window) left = mask.causal ? *mask.window - 1 : *mask.window / 2;
  if (mask.window && !mask.causal) right = *mask.window / 2;
}

KeyIntervals key_intervals(const MaskOptions& options) {
  check(options);
  KeyIntervals result;
  result.queries = options.queries;
  result.keys = options.keys;
  result.keep_first = std::min(std::max(options.keep_first, options.prefix), options.keys);
  result.batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::max(options.key_begin.size(), options.key_end.size())));
  for (auto* list : {&result.begin, &result.end, &result.first, &result.diagonal}) {
    list->resize(static_cast<std::size_t>(result.batch * result.queries));
  }
  if (!options.cu_seqlens_q.empty()) {
    for (std::size_t d = 1; d < options.cu_seqlens_q.size(); d++) {
      const auto query = options.cu_seqlens_q[d - 1];
      fill(options, {query, options.cu_seqlens_q[d] - query, options.cu_seqlens_k[d - 1], options.cu_seqlens_k[d]}, 0, result);
    }
    return result;
  }
  for (std::int64_t b = 0; b < result.batch; b++) {
    const auto row = static_cast<std::size_t>(b);
    fill(options,
         {0, options.queries, options.key_begin.empty() ? 0 : options.key_begin[row],
          options.key_end.empty() ? options.keys : options.key_end[row]},
         b, result);
  }
  return result;
}

std::vector<float> query_factors(const QueryTemperature& temperature, std::span<const std::int64_t> positions) {
  validate(Ids{positions});
  std::vector<float> result;
  result.reserve(positions.size());
  for (const auto position : positions) {
    const double value = std::visit([&](const auto& rule) { return factor(rule, static_cast<double>(position)); }, temperature);
    if (!std::isfinite(value)) {  // its logarithm is of 0 or less, or divided by 0
      throw Error(ErrorCode::out_of_range,
                  fmt::format("positions: {} has no temperature by this rule, whose formula gives {}", position, value));
    }
    result.push_back(static_cast<float>(value));
  }
  return result;
}

}  // namespace gnomon
