// SPDX-License-Identifier: Apache-2.0
// How attention cuts its work, in integers: which keys a block of queries sees, and the units that tasks draw.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention.hpp"

namespace gnomon::kernels {

/// Keys [begin, end).
struct KeyRange {
  std::int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  bool contains(const KeyRange& other) const { return begin <= other.begin && other.end <= end; }
  KeyRange within(const KeyRange& other) const { return {std::max(begin, other.begin), std::min(end, other.end)}; }
};

/// The lists of a lane block: queries that fill the lanes of some vectors, in memory of the scratch. Lanes past the last query see
/// everything and stand where a query would; their results are dropped.
struct LaneIntervals {
  std::int32_t *begin, *end, *first, *keep_end, *diagonal;
};

/// What the queries of a lane block see. Keys in neither range are seen by none of them.
struct BlockKeys {
  KeyRange kept;         // the first few keys, where they lie apart
  KeyRange seen;         // the intervals
  KeyRange kept_by_all;  // parts of them without an edge
  KeyRange seen_by_all;
  bool consecutive = true;  // each diagonal is one more than that of the lane before
};
BlockKeys read_intervals(const AttentionJob& job, std::int64_t b, std::int64_t query, std::int64_t queries, std::int64_t lanes,
                         const LaneIntervals& to);

/// Sizes that a target and the widths of the heads settle.
struct AttentionCut {
  std::int64_t lanes = 0;   // queries of a lane block
  std::int64_t blocks = 0;  // lane blocks of a unit, which share each prepared tile of keys
  std::int64_t keys = 0;    // keys of a tile
};

/// A super-tile: lane blocks of the query heads of one KV head. Block i holds queries from lanes * (i / group) of the group's head
/// i % group, so that blocks which follow each other see much the same keys.
struct AttentionUnit {
  std::int64_t b = 0, kv_head = 0, block = 0, blocks = 0;
  std::int64_t cost = 0;  // in pairs of a lane block and a key
};

/// All of them, in descending cost: the longest first, so that no thread ends up alone with one.
std::vector<AttentionUnit> attention_units(const AttentionJob& job, const AttentionCut& cut);

}  // namespace gnomon::kernels
