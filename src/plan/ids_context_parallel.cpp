// SPDX-License-Identifier: Apache-2.0
// Context parallel: each document of a packed row in 2 · ranks chunks, one from the front and one from the back for each rank.
#include "plan/ids.hpp"

namespace gnomon {
namespace {

void check(const ContextParallel& shard) {
  count(Packed{shard.cu_seqlens});
  if (shard.ranks < 1 || shard.ranks > max_ids) refuse_ids(fmt::format("ranks: expected at least 1, got {}", shard.ranks));
  if (shard.rank < 0 || shard.rank >= shard.ranks) {
    refuse_ids(fmt::format("rank: expected 0 to {}, got {}", shard.ranks - 1, shard.rank));
  }
  const std::int64_t parts = 2 * shard.ranks;
  for (std::size_t d = 1; d < shard.cu_seqlens.size(); d++) {
    const std::int64_t length = std::int64_t{shard.cu_seqlens[d]} - shard.cu_seqlens[d - 1];
    if (length % parts == 0) continue;
    refuse_ids(fmt::format("cu_seqlens: document {} has {} tokens, expected a multiple of 2 · ranks = {}: pad it to {}", d - 1, length,
                           parts, (length / parts + 1) * parts));
  }
}

/// Calls visit(begin of the document, position in it) for every token of the rank.
void for_each_token(const ContextParallel& shard, auto&& visit) {
  check(shard);
  for (std::size_t d = 1; d < shard.cu_seqlens.size(); d++) {
    const std::int64_t begin = shard.cu_seqlens[d - 1], size = (shard.cu_seqlens[d] - begin) / (2 * shard.ranks);
    for (const std::int64_t chunk : {shard.rank, 2 * shard.ranks - 1 - shard.rank}) {
      for (std::int64_t i = 0; i < size; i++) visit(begin, chunk * size + i);
    }
  }
}

}  // namespace

std::vector<std::int64_t> packed_tokens(const ContextParallel& shard) {
  std::vector<std::int64_t> indexes;
  for_each_token(shard, [&](std::int64_t begin, std::int64_t position) { indexes.push_back(begin + position); });
  return indexes;
}

PositionIds position_ids(const ContextParallel& shard) {
  PositionIds ids;
  for_each_token(shard, [&](std::int64_t, std::int64_t position) { ids.values.push_back(position); });
  ids.tokens = static_cast<std::int64_t>(ids.values.size());
  return ids;
}

}  // namespace gnomon
