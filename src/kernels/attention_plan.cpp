// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_plan.hpp"

#include <limits>

namespace gnomon::kernels {
namespace {

constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 2;
constexpr KeyRange nothing{far, -far};

void join(KeyRange& range, const KeyRange& other) {
  if (!other.empty()) range = {std::min(range.begin, other.begin), std::max(range.end, other.end)};
}
void meet(KeyRange& range, const KeyRange& other) { range = range.within(other); }

}  // namespace

BlockKeys read_intervals(const AttentionJob& job, std::int64_t b, std::int64_t query, std::int64_t queries, std::int64_t lanes,
                         const LaneIntervals& to) {
  const auto& given = job.intervals;
  const std::int64_t at = (given.by_batch ? b * job.queries : 0) + query;
  BlockKeys keys{nothing, nothing, {-far, far}, {-far, far}};
  for (std::int64_t lane = 0; lane < lanes; lane++) {
    const bool listed = given.begin != nullptr && lane < queries;
    to.begin[lane] = listed ? given.begin[at + lane] : 0;
    to.end[lane] = listed ? given.end[at + lane] : static_cast<std::int32_t>(job.keys);
    to.first[lane] = listed ? given.first[at + lane] : 0;
    to.keep_end[lane] = listed ? static_cast<std::int32_t>(std::min(to.first[lane] + given.keep_first, std::int64_t{to.end[lane]})) : 0;
    to.diagonal[lane] = listed                        ? given.diagonal[at + lane]
                        : lane > 0 && lane >= queries ? to.diagonal[lane - 1] + 1
                                                      : static_cast<std::int32_t>(query + lane + job.keys - job.queries);
    if (lane >= queries) continue;
    const KeyRange seen{to.begin[lane], to.end[lane]}, kept{to.first[lane], to.keep_end[lane]};
    join(keys.seen, seen);
    join(keys.kept, kept);
    meet(keys.seen_by_all, seen);
    meet(keys.kept_by_all, kept);
    keys.consecutive = keys.consecutive && (lane == 0 || to.diagonal[lane] == to.diagonal[lane - 1] + 1);
  }
  if (!keys.kept.empty() && keys.kept.end + 1 >= keys.seen.begin) {  // they touch, or would if one began a key earlier
    join(keys.seen, keys.kept);
    keys.kept = nothing;
  }
  return keys;
}

std::vector<AttentionUnit> attention_units(const AttentionJob& job, const AttentionCut& cut) {
  const std::int64_t group = job.heads / job.kv_heads, by_query = (job.queries + cut.lanes - 1) / cut.lanes, blocks = by_query * group;
  std::vector<std::int32_t> lists(static_cast<std::size_t>(5 * cut.lanes));
  const auto list = [&](std::int64_t number) { return lists.data() + number * cut.lanes; };
  const LaneIntervals intervals{list(0), list(1), list(2), list(3), list(4)};
  std::vector<AttentionUnit> units;
  std::vector<std::int64_t> costs(static_cast<std::size_t>(by_query));
  for (std::int64_t b = 0; b < job.batch; b++) {
    if (b == 0 || job.intervals.by_batch) {
      for (std::int64_t i = 0; i < by_query; i++) {
        const std::int64_t query = i * cut.lanes;
        const auto keys = read_intervals(job, b, query, std::min(cut.lanes, job.queries - query), cut.lanes, intervals);
        costs[static_cast<std::size_t>(i)] =
            1 + std::max<std::int64_t>(keys.seen.end - keys.seen.begin, 0) + std::max<std::int64_t>(keys.kept.end - keys.kept.begin, 0);
      }
    }
    for (std::int64_t h = 0; h < job.kv_heads; h++) {
      for (std::int64_t block = 0; block < blocks; block += cut.blocks) {
        AttentionUnit unit{b, h, block, std::min(cut.blocks, blocks - block)};
        for (std::int64_t i = block; i < block + unit.blocks; i++) unit.cost += costs[static_cast<std::size_t>(i / group)];
        units.push_back(unit);
      }
    }
  }
  std::stable_sort(units.begin(), units.end(), [](const auto& a, const auto& c) { return a.cost > c.cost; });
  return units;
}

}  // namespace gnomon::kernels
