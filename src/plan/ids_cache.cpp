// SPDX-License-Identifier: Apache-2.0
// New tokens behind a cache: chunks of a prompt, decoded tokens, windows and trees of drafts.
#include <algorithm>

#include "plan/ids.hpp"

namespace gnomon {
namespace {

void check_state(std::string_view name, const SequenceState& state) {
  for (const auto value : {state.position.value, state.slot.value, state.tokens.value}) {
    if (value >= 0 && value <= max_position) continue;
    refuse_ids(fmt::format("{}: expected a position, a slot and a token count of 0 to 2^33, got {}", name, value));
  }
}

/// How many new tokens lead to each one: 0, 1, 2, … for a chain.
std::vector<std::int64_t> depths(std::size_t index, const NewTokens& added) {
  std::vector<std::int64_t> depth(static_cast<std::size_t>(added.tokens.value));
  if (!added.parents.empty() && added.parents.size() != depth.size()) {
    refuse_ids(fmt::format("sequences[{}].parents: expected one for each of {} tokens, got {}", index, depth.size(), added.parents.size()));
  }
  for (std::size_t i = 0; i < depth.size(); i++) {
    const auto own = static_cast<std::int64_t>(i), parent = added.parents.empty() ? own - 1 : added.parents[i];
    if (parent < -1 || parent >= own) {
      refuse_ids(fmt::format("sequences[{}].parents[{}]: expected -1 or a token before it, got {}", index, i, parent));
    }
    depth[i] = parent == -1 ? 0 : depth[static_cast<std::size_t>(parent)] + 1;
  }
  return depth;
}

void check(const CacheStep& step) {
  std::int64_t number = 0;
  for (std::size_t s = 0; s < step.sequences.size(); s++) {
    check_state(fmt::format("sequences[{}]", s), step.sequences[s].state);
    number = bounded(number + total(fmt::format("sequences[{}].tokens", s), std::span(&step.sequences[s].tokens, 1)));
  }
}

}  // namespace

SequenceState advanced(const SequenceState& state, TokenCount accepted) {
  check_state("state", state);
  if (accepted.value < 0 || accepted.value > max_position)
    refuse_ids(fmt::format("accepted: expected 0 to 2^33 tokens, got {}", accepted.value));
  return {{state.position.value + accepted.value}, {state.slot.value + accepted.value}, {state.tokens.value + accepted.value}};
}

std::vector<NewTokens> prefill_chunks(const SequenceState& state, TokenCount prompt, TokenCount chunk) {
  if (chunk.value < 1) refuse_ids(fmt::format("chunk: expected at least 1 token, got {}", chunk.value));
  std::vector<NewTokens> chunks;
  const std::int64_t length = total("prompt", std::span(&prompt, 1));
  for (std::int64_t done = 0; done < length; done += chunk.value) {
    chunks.push_back({advanced(state, {done}), {std::min(chunk.value, length - done)}, {}});
  }
  return chunks;
}

PositionIds position_ids(const CacheStep& step) {
  check(step);
  PositionIds ids;
  for (std::size_t s = 0; s < step.sequences.size(); s++) {
    const auto& added = step.sequences[s];
    for (const auto depth : depths(s, added)) ids.values.push_back(added.state.position.value + depth);
  }
  ids.tokens = static_cast<std::int64_t>(ids.values.size());
  validate(ids.view());
  return ids;
}

std::vector<CacheSlot> cache_slots(const CacheStep& step) {
  check(step);
  std::vector<CacheSlot> slots;
  for (std::size_t s = 0; s < step.sequences.size(); s++) {
    const auto& added = step.sequences[s];
    depths(s, added);
    for (std::int64_t i = 0; i < added.tokens.value; i++) slots.push_back({added.state.slot.value + i});
  }
  return slots;
}

}  // namespace gnomon
