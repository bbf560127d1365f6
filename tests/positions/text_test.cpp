// SPDX-License-Identifier: Apache-2.0
// Rows of text, steps behind a cache and context-parallel shards: ids counted by hand in public bug reports (T26, T27).
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "gnomon/position_ids.hpp"
#include "support/elements.hpp"

namespace {

using namespace gnomon;
using testing_support::refusal_fault;
using List = std::vector<std::int64_t>;

std::vector<TokenCount> counts(const List& numbers) {
  std::vector<TokenCount> result;
  for (const auto number : numbers) result.push_back({number});
  return result;
}

List values(const std::vector<CacheSlot>& slots) {
  List result;
  for (const auto slot : slots) result.push_back(slot.value);
  return result;
}

SequenceState text_state(std::int64_t tokens) { return {{tokens}, {tokens}, {tokens}}; }

TEST(TextIds, LeftPaddingIsNotCounted) {
  const TextBatch masked{1, 5, {0, 0, 1, 1, 1}, {}};
  EXPECT_EQ(position_ids(masked).values, (List{0, 0, 0, 1, 2}));
  EXPECT_EQ(padded_batch(counts({3}), PaddingSide::left, TokenCount{5}), masked);
  EXPECT_EQ(next_states(masked).front(), (SequenceState{{3}, {5}, {3}})) << "position 3 lies in slot 5";

  const auto long_batch = padded_batch(counts({112}), PaddingSide::left, TokenCount{140});
  const auto ids = position_ids(long_batch);
  EXPECT_EQ(ids.at(0, 0, 28).value, 0);
  EXPECT_EQ(ids.at(0, 0, 139).value, 111);
  EXPECT_EQ(next_states(long_batch).front().position.value, 112);
}

TEST(TextIds, EveryRowGoesOnFromItsOwnEnd) {
  const auto states = next_states(padded_batch(counts({30, 25, 0}), PaddingSide::left));
  ASSERT_EQ(states.size(), 3U);
  EXPECT_EQ(states[0].position.value, 30);
  EXPECT_EQ(states[1].position.value, 25);
  EXPECT_EQ(states[2], (SequenceState{{0}, {30}, {0}})) << "a row of padding has no negative index";
  const CacheStep step{{{states[0], {1}, {}}, {states[1], {1}, {}}, {states[2], {1}, {}}}};
  EXPECT_EQ(position_ids(step).values, (List{30, 25, 0}));
  EXPECT_EQ(values(cache_slots(step)), (List{30, 30, 30}));
}

TEST(TextIds, RightPaddingAndHoles) {
  EXPECT_EQ(position_ids(padded_batch(counts({2, 4}), PaddingSide::right)).values, (List{0, 1, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(position_ids(TextBatch{1, 5, {1, 0, 1, 1, 0}, {-1}}).values, (List{0, -1, 1, 2, -1}));
}

TEST(TextIds, PackedDocumentsBeginAnew) {
  EXPECT_EQ(position_ids(TextBatch{1, 6, {1, 1, 2, 2, 2, 0}, {}}).values, (List{0, 1, 0, 1, 2, 0}));
  EXPECT_EQ(packed_row(counts({2, 3}), TokenCount{6}), (TextBatch{1, 6, {1, 1, 2, 2, 2, 0}, {}}));
  EXPECT_EQ(cu_seqlens(counts({2, 3})), (std::vector<std::int32_t>{0, 2, 5}));
  EXPECT_EQ(position_ids(TextBatch{2, 3, {7, 7, 9, 9, 9, 7}, {}}).values, (List{0, 1, 0, 0, 1, 0})) << "rows are apart";
}

TEST(TextIds, RowsOfLearnedTables) {
  const TextBatch batch{1, 5, {0, 0, 1, 1, 1}, {}};
  EXPECT_EQ(table_rows(batch, 2), (List{1, 1, 2, 3, 4})) << "OPT: positions -1 -1 0 1 2 and two rows";
  EXPECT_EQ(table_rows(TextBatch{1, 4, {1, 1, 1, 0}, {}}, 1 + 1), (List{2, 3, 4, 1})) << "RoBERTa, padding_idx 1: padding keeps it";
  EXPECT_EQ(table_rows(TextBatch{1, 4, {1, 1, 1, 0}, {}}, 0 + 1), (List{1, 2, 3, 0})) << "padding_idx 0";
  EXPECT_EQ(refusal_fault([&] { table_rows(batch, 0); }, ErrorCode::invalid_argument, {"offset", "padding"}), "");
  EXPECT_EQ(refusal_fault([&] { table_rows(batch, -2); }, ErrorCode::invalid_argument, {"offset", "-2"}), "");
}

TEST(CacheIds, ChunksOfAPromptAreItsPositions) {
  rc::check("chunks make the positions of the whole prompt", [] {
    const auto prompt = *rc::gen::inRange<std::int64_t>(0, 60), chunk = *rc::gen::inRange<std::int64_t>(1, 70);
    const SequenceState state{{*rc::gen::inRange(0, 50)}, {*rc::gen::inRange(0, 50)}, {7}};
    List positions, slots, expected(static_cast<std::size_t>(prompt));
    for (const auto& part : prefill_chunks(state, {prompt}, {chunk})) {
      RC_ASSERT(part.tokens.value >= 1 && part.tokens.value <= chunk);
      const CacheStep step{{part}};
      for (const auto id : position_ids(step).values) positions.push_back(id);
      for (const auto slot : cache_slots(step)) slots.push_back(slot.value);
    }
    std::iota(expected.begin(), expected.end(), state.position.value);
    RC_ASSERT(positions == expected);
    std::iota(expected.begin(), expected.end(), state.slot.value);
    RC_ASSERT(slots == expected);
  });
}

TEST(CacheIds, DraftsFollowTheText) {
  const auto after_seven = text_state(7);
  EXPECT_EQ(position_ids(CacheStep{{{after_seven, {1}, {}}}}).values, (List{7}));
  EXPECT_EQ(position_ids(CacheStep{{{advanced(after_seven, {1}), {1}, {}}}}).values, (List{8}));
  EXPECT_EQ(position_ids(CacheStep{{{after_seven, {4}, {}}}}).values, (List{7, 8, 9, 10})) << "a window of 4 rows to verify";
}

TEST(CacheIds, AStateBeyondThePositionsThereAreIsRefused) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(refusal_fault([] { advanced({{most}, {0}, {0}}, {1}); }, ErrorCode::invalid_argument, {"state: ", "2^33"}), "");
  for (const std::int64_t accepted : {std::int64_t{-1}, most})
    EXPECT_EQ(refusal_fault([&] { advanced(text_state(7), {accepted}); }, ErrorCode::invalid_argument, {"accepted: ", "2^33"}), "");
}

TEST(CacheIds, ATreeIsAsDeepAsItsPaths) {
  //      0 ─ 1 ─ 3
  //  7 <   └ 2
  //      4
  const NewTokens tree{text_state(7), {5}, {-1, 0, 0, 1, -1}};
  EXPECT_EQ(position_ids(CacheStep{{tree}}).values, (List{7, 8, 8, 9, 7}));
  EXPECT_EQ(values(cache_slots(CacheStep{{tree}})), (List{7, 8, 9, 10, 11})) << "keys of one position lie apart";
}

TEST(CacheIds, AfterAnImageThePositionLagsTheSlot) {
  const SequenceState state{{9}, {12}, {12}};  // T28: 12 tokens, the largest position 8
  const CacheStep step{{{state, {2}, {}}}};
  EXPECT_EQ(on_axes(position_ids(step), 3).values, (List{9, 10, 9, 10, 9, 10}));
  EXPECT_EQ(values(cache_slots(step)), (List{12, 13}));
  EXPECT_EQ(state.rope_delta(), -3);
}

TEST(ContextParallelIds, HeadAndTailOfEveryDocument) {
  const ContextParallel first{{0, 4, 8}, 2, 0}, second{{0, 4, 8}, 2, 1};
  EXPECT_EQ(packed_tokens(first), (List{0, 3, 4, 7}));
  EXPECT_EQ(position_ids(first).values, (List{0, 3, 0, 3}));
  EXPECT_EQ(packed_tokens(second), (List{1, 2, 5, 6}));
  EXPECT_EQ(position_ids(second).values, (List{1, 2, 1, 2}));
  EXPECT_EQ(position_ids(ContextParallel{{0, 16}, 2, 1}).values, (List{4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(ContextParallelIds, NoTokenIsDropped) {
  EXPECT_EQ(refusal_fault([] { position_ids(ContextParallel{{0, 7}, 2, 0}); }, ErrorCode::invalid_argument, {"7 tokens", "pad it to 8"}),
            "");
  EXPECT_EQ(refusal_fault([] { packed_tokens(ContextParallel{{0, 8, 10}, 2, 0}); }, ErrorCode::invalid_argument, {"document 1", "to 4"}),
            "");
  rc::check("the ranks share out the row", [] {
    const auto ranks = *rc::gen::inRange<std::int64_t>(1, 6);
    ContextParallel shard{{0}, ranks, 0};
    for (const auto parts : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4))) {
      shard.cu_seqlens.push_back(shard.cu_seqlens.back() + static_cast<std::int32_t>(2 * ranks) * parts);
    }
    std::multiset<std::int64_t> seen;
    std::set<std::size_t> sizes;
    for (shard.rank = 0; shard.rank < ranks; shard.rank++) {
      const auto indexes = packed_tokens(shard);
      seen.insert(indexes.begin(), indexes.end());
      sizes.insert(indexes.size());
    }
    RC_ASSERT(static_cast<std::int32_t>(seen.size()) == shard.cu_seqlens.back());
    RC_ASSERT(std::set(seen.begin(), seen.end()).size() == seen.size());
    RC_ASSERT(sizes.size() == 1U);
  });
}

TEST(ContextParallelIds, IdsOfSeveralAxesAreShardedAlike) {
  const ContextParallel shard{{0, 8}, 2, 0};
  PositionIds ids{{}, 3, 1, 8};
  for (std::int64_t i = 0; i < 24; i++) ids.values.push_back(100 + i);
  EXPECT_EQ(take(ids, packed_tokens(shard)).values, (List{100, 101, 106, 107, 108, 109, 114, 115, 116, 117, 122, 123}));
  EXPECT_EQ(refusal_fault([&] { take(ids, List{8}); }, ErrorCode::out_of_range, {"indexes", "0 to 7", "8"}), "");
}

TEST(PositionIds, BadInputIsNamed) {
  const auto refused = [](auto&& call, std::initializer_list<const char*> words, ErrorCode code = ErrorCode::invalid_argument) {
    EXPECT_EQ(refusal_fault(call, code, words), "");
  };
  refused([] { padded_batch(counts({3, -1}), PaddingSide::left); }, {"lengths[1]", "-1"});
  refused([] { padded_batch(counts({3}), PaddingSide::left, TokenCount{2}); }, {"width", "at least 3", "2"});
  refused([] { padded_batch(counts({1, std::int64_t{1} << 40}), PaddingSide::left); }, {"at most 2147483647"}, ErrorCode::out_of_range);
  refused([] { packed_row(counts({INT64_MAX, INT64_MAX})); }, {"at most 2147483647"}, ErrorCode::out_of_range);
  refused([] { position_ids(TextBatch{2, 3, {1, 1}, {}}); }, {"documents", "2 × 3", "2"});
  refused([] { next_states(TextBatch{1, 2, {1, 2}, {}}); }, {"row 0", "several"});
  refused([] { prefill_chunks({}, {5}, {0}); }, {"chunk", "0"});
  refused([] { prefill_chunks({}, {-5}, {1}); }, {"prompt", "-5"});
  refused([] { position_ids(CacheStep{{{{{-1}, {0}, {0}}, {1}, {}}}}); }, {"sequences[0]", "-1"});
  refused([] { position_ids(CacheStep{{{text_state(1), {2}, {0}}}}); }, {"sequences[0].parents", "2 tokens", "1"});
  refused([] { position_ids(CacheStep{{{text_state(1), {2}, {-1, 1}}}}); }, {"parents[1]", "before it", "1"});
  refused([] { position_ids(CacheStep{{{text_state(max_position), {2}, {}}}}); }, {"2^33"}, ErrorCode::out_of_range);
  refused([] { packed_tokens(ContextParallel{{0, 4}, 2, 2}); }, {"rank", "0 to 1", "2"});
  refused([] { packed_tokens(ContextParallel{{0, 4}, 0, 0}); }, {"ranks", "0"});
  refused([] { packed_tokens(ContextParallel{{1, 4}, 2, 0}); }, {"cu_seqlens"});
  refused([] { on_axes(PositionIds{{}, 3, 1, 0}, 3); }, {"axes"});
}

}  // namespace
