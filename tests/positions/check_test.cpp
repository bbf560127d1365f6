// SPDX-License-Identifier: Apache-2.0
// check_ids names what people got wrong. The wrong ids are those of the reports, written out or made by their own words, never by the
// check.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include "gnomon/position_ids.hpp"
#include "support/elements.hpp"

namespace {

using namespace gnomon;
using testing_support::refusal_fault;
using List = std::vector<std::int64_t>;
using Codes = std::set<std::string>;

PositionIds row(List values) {
  const auto tokens = static_cast<std::int64_t>(values.size());
  return {std::move(values), 1, 1, tokens};
}

/// The codes of what is found, and that there is something to find.
Codes mistakes(const PositionIds& given, const IdLayout& layout) {
  const auto report = check_ids(given, layout);
  EXPECT_FALSE(report.right());
  Codes codes;
  for (const auto& mistake : report.mistakes) codes.insert(mistake.code);
  return codes;
}

SequenceState state(std::int64_t position, std::int64_t slot, std::int64_t tokens) { return {{position}, {slot}, {tokens}}; }
CacheStep decode(const std::vector<SequenceState>& states, std::int64_t tokens = 1) {
  CacheStep step;
  for (const auto& own : states) step.sequences.push_back({own, {tokens}, {}});
  return step;
}

TEST(CheckIds, RightIdsAreRight) {
  const std::vector<TokenCount> lengths{{5}, {3}};
  const std::vector<IdLayout> layouts{padded_batch(lengths, PaddingSide::left), packed_row(lengths, TokenCount{9}),
                                      decode({state(9, 12, 12), state(4, 4, 4)}, 3), ContextParallel{{0, 8, 16}, 2, 1},
                                      vision_batch({}, {{TextRun{{2}}, ImageRun{{1, 4, 6}}, TextRun{{1}}}}, PaddingSide::left)};
  for (const auto& layout : layouts) {
    const auto ids = std::visit([](const auto& own) { return position_ids(own); }, layout);
    const auto report = check_ids(ids, layout);
    EXPECT_TRUE(report.right());
    EXPECT_GT(report.compared, 0);
  }
}

TEST(CheckIds, PaddingThatCounts) {
  const TextBatch batch = padded_batch(std::vector<TokenCount>{{112}}, PaddingSide::left, TokenCount{140});
  List counted(140);
  std::iota(counted.begin(), counted.end(), 0);
  EXPECT_EQ(mistakes(row(counted), batch), Codes{"padding-counted"});
  const auto report = check_ids(row(counted), batch);
  EXPECT_EQ(report.compared, 112);
  EXPECT_EQ(report.different, 112);
  EXPECT_EQ(report.first->token, 28);
  EXPECT_EQ(report.first->expected, AxisValue{0});
  EXPECT_EQ(report.first->got, AxisValue{28});
}

TEST(CheckIds, PaddingMayHaveAnyValidPosition) {
  const TextBatch batch{1, 5, {0, 0, 1, 1, 1}, {}};
  EXPECT_TRUE(check_ids(row({1, 1, 0, 1, 2}), batch).right()) << "transformers fills in 1";
  EXPECT_EQ(mistakes(row({-1, -1, 0, 1, 2}), batch), Codes{"negative-padding"}) << "cumsum - 1 as it is";
  EXPECT_TRUE(check_ids(row({-1, -1, 0, 1, 2}), TextBatch{1, 5, {0, 0, 1, 1, 1}, {-1}}).right()) << "OPT before its offset";
  EXPECT_EQ(mistakes(row({1, 2, 3, 4}), TextBatch{1, 4, {0, 1, 1, 1}, {}}), Codes{"offset-included"})
      << "rows of OPT's table are no positions";
}

TEST(CheckIds, DocumentsThatRunOn) {
  const TextBatch batch{1, 6, {1, 1, 2, 2, 2, 0}, {}};
  EXPECT_EQ(mistakes(row({0, 1, 2, 3, 4, 0}), batch), (Codes{"documents-run-on", "padding-counted"})) << "both give these ids";
  EXPECT_EQ(mistakes(row({0, 1, 2, 3, 4}), packed_row(std::vector<TokenCount>{{2}, {3}})), Codes{"documents-run-on"});
  EXPECT_EQ(mistakes({{0, 1, 2, 3}, 1, 2, 2}, TextBatch{2, 2, {1, 1, 1, 1}, {}}), Codes{"rows-run-on"});
}

TEST(CheckIds, DecodingFromTheWrongNumber) {
  EXPECT_EQ(mistakes(row({30, 30}), decode({state(30, 30, 30), state(25, 30, 25)})), (Codes{"longest-for-all", "slot-as-position"}));
  EXPECT_EQ(mistakes(row({30, 30}), decode({state(30, 30, 30), state(25, 25, 25)})), Codes{"longest-for-all"});
  EXPECT_EQ(mistakes(row({12}), decode({state(9, 14, 12)})), Codes{"count-as-position"}) << "T28: 12 tokens, position 9";
  EXPECT_EQ(mistakes(row({14}), decode({state(9, 14, 12)})), Codes{"slot-as-position"});
  EXPECT_EQ(mistakes(row({0, 1, 2}), decode({state(512, 512, 512)}, 3)), Codes{"restarted"}) << "the second chunk of a prompt";
  EXPECT_EQ(mistakes(row({6}), decode({state(7, 7, 7)})), Codes{"one-too-few"}) << "T27: the first draft forward is at 7";
  EXPECT_EQ(mistakes(row({8, 9}), decode({state(7, 7, 7)}, 2)), Codes{"one-too-many"});
  EXPECT_EQ(mistakes(row({7, 7, 7}), decode({state(7, 7, 7)}, 3)), Codes{"window-stands-still"});
  EXPECT_EQ(mistakes(row({7, 8, 9}), CacheStep{{{state(7, 7, 7), {3}, {-1, 0, 0}}}}), Codes{"tree-as-chain"});
}

TEST(CheckIds, ShardsOfAContext) {
  const ContextParallel shard{{0, 4, 8}, 2, 0};  // holds 0 3 4 7
  EXPECT_EQ(mistakes(row({0, 3, 4, 7}), shard), Codes{"packed-index-as-position"});
  EXPECT_EQ(mistakes(row({1, 2, 1, 2}), shard), Codes{"another-rank"});
  EXPECT_EQ(mistakes(row({0, 1, 0, 1}), shard), Codes{"one-chunk-per-rank"});
  // Documents of 8 and 4: the rank holds 0 1 6 7 and 0 3; of the row cut as one 0 1 2 and 9 10 11, the last at 1 2 3 of their document.
  const ContextParallel uneven{{0, 8, 12}, 2, 0};
  EXPECT_EQ(mistakes(row({0, 1, 2, 1, 2, 3}), uneven), Codes{"row-cut-as-one"});
  EXPECT_EQ(mistakes(row({0, 1, 2, 3, 4, 5}), uneven), Codes{"counted-on-the-rank"});
  EXPECT_EQ(mistakes(row({0, 1, 6, 7, 0, 2}), uneven), Codes{}) << "nothing known explains it";
  EXPECT_EQ(mistakes(row({0, 3, 0}), shard), Codes{"another-shape"});
}

TEST(CheckIds, PositionsThatWereRounded) {
  const auto from = [](std::int64_t first, std::size_t number) {
    List list(number);
    std::iota(list.begin(), list.end(), first);
    return list;
  };
  // T03: 65536 + k in bf16.
  List coarse;
  for (int k = 0; k < 1024; k++) coarse.push_back(k <= 256 ? 65536 : k <= 767 ? 66048 : 66560);
  EXPECT_EQ(mistakes(row(coarse), decode({state(65536, 65536, 65536)}, 1024)), Codes{"rounded-to-bf16"});
  // T02: in bf16 257 is 256, 259 is 260; in f16 2049 is 2048.
  EXPECT_EQ(mistakes(row({256, 256, 258, 260}), decode({state(256, 0, 0)}, 4)), Codes{"rounded-to-bf16"});
  EXPECT_EQ(mistakes(row({2048, 2048, 2050}), decode({state(2048, 0, 1)}, 3)), Codes{"rounded-to-f16"});
  EXPECT_EQ(mistakes(row({16777216, 16777216, 16777218}), decode({state(16777216, 0, 1)}, 3)), Codes{"rounded-to-f32"}) << "T04";
  EXPECT_TRUE(check_ids(row(from(65536, 4)), decode({state(65536, 0, 0)}, 4)).right());
}

// T28: 4 tokens of text, an image of 2 × 3 merged patches, 2 tokens of text.
constexpr std::int64_t time_axis[] = {0, 1, 2, 3, 4, 4, 4, 4, 4, 4, 7, 8}, height_axis[] = {0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 7, 8},
                       width_axis[] = {0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8};
PositionIds axes(std::span<const std::int64_t> t, std::span<const std::int64_t> h, std::span<const std::int64_t> w) {
  PositionIds ids{{}, 3, 1, 12};
  for (const auto axis : {t, h, w}) ids.values.insert(ids.values.end(), axis.begin(), axis.end());
  return ids;
}
VisionBatch image_batch(VisionFamily family = VisionFamily::qwen2_vl) {
  return vision_batch({family}, {{TextRun{{4}}, ImageRun{{1, 4, 6}}, TextRun{{2}}}}, PaddingSide::left);
}

TEST(CheckIds, AnImageTakenWrongly) {
  EXPECT_TRUE(check_ids(axes(time_axis, height_axis, width_axis), image_batch()).right());
  EXPECT_EQ(mistakes(axes(time_axis, width_axis, height_axis), image_batch()), Codes{"height-width-swapped"});
  EXPECT_EQ(mistakes(axes(width_axis, height_axis, time_axis), image_batch()), Codes{"axes-reversed"});
  auto lying = axes(time_axis, height_axis, width_axis);  // 3 rows of 2 for 2 rows of 3
  const List rows{4, 4, 5, 5, 6, 6}, columns{4, 5, 4, 5, 4, 5};
  std::copy(rows.begin(), rows.end(), lying.values.begin() + 16);
  std::copy(columns.begin(), columns.end(), lying.values.begin() + 28);
  EXPECT_EQ(mistakes(lying, image_batch()), Codes{"grid-transposed"});
  List line(12);
  std::iota(line.begin(), line.end(), 0);
  EXPECT_EQ(mistakes(axes(line, line, line), image_batch()), Codes{"text-only"});
  auto counted = axes(time_axis, height_axis, width_axis);
  for (std::size_t i : {10U, 22U, 34U}) counted.values[i] = 10, counted.values[i + 1] = 11;
  EXPECT_EQ(mistakes(counted, image_batch()), Codes{"tokens-counted"}) << "as many positions as tokens";
  auto scaled = axes(time_axis, height_axis, width_axis);
  for (std::size_t i = 4; i < 10; i++) scaled.values[i] = 8;
  EXPECT_EQ(mistakes(scaled, image_batch(VisionFamily::qwen2_5_vl)), Codes{"stills-scaled"}) << "transformers/issues/45325";
}

TEST(CheckIds, TheVersionOfAVideo) {
  VisionModel model{VisionFamily::qwen2_5_vl, MropeVersion::original};
  const auto batch = vision_batch(model, {{TextRun{{1}}, VideoRun{{4, 2, 2}, 0.5}, TextRun{{1}}}}, PaddingSide::left);
  EXPECT_TRUE(check_ids({{0, 1, 2, 3, 4, 5, 0, 1, 1, 1, 1, 5, 0, 1, 1, 1, 1, 5}, 3, 1, 6}, batch).right());
  const PositionIds truncated{{0, 1, 1, 1, 1, 2, 0, 1, 1, 1, 1, 2, 0, 1, 1, 1, 1, 2}, 3, 1, 6};
  EXPECT_EQ(mistakes(truncated, batch), (Codes{"version-transformers-5.0", "version-transformers-5.3"})) << "0.5 s truncated to 0";
  const auto slow = vision_batch(model, {{VideoRun{{3, 2, 2}, 2}, TextRun{{1}}}}, PaddingSide::left);
  EXPECT_EQ(mistakes({{0, 1, 2, 3, 0, 0, 0, 3, 0, 0, 0, 3}, 3, 1, 4}, slow), Codes{"seconds-ignored"});
}

TEST(CheckIds, RowsBeforeAxesAndPaddingInABatch) {
  const auto batch = vision_batch({}, {{TextRun{{1}}}, {TextRun{{1}}, ImageRun{{1, 2, 4}}}}, PaddingSide::left);
  EXPECT_TRUE(check_ids({{0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 2}, 3, 2, 3}, batch).right());
  EXPECT_EQ(mistakes({{0, 0, 2, 0, 1, 1, 0, 0, 2, 0, 1, 1, 0, 0, 2, 0, 1, 2}, 3, 2, 3}, batch), Codes{"padding-shifts"});
  const auto full = vision_batch({}, {{TextRun{{3}}}, {TextRun{{1}}, ImageRun{{1, 2, 4}}}}, PaddingSide::left);
  EXPECT_EQ(mistakes({{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 1, 0, 1, 1, 0, 1, 2}, 3, 2, 3}, full), Codes{"rows-before-axes"});
}

TEST(CheckIds, EveryMistakeHasACodeOfItsOwnAndStandsInTheDocs) {
  std::ifstream file(GNOMON_SOURCE_DIR "/docs/positions.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  Codes codes;
  for (const auto& mistake : list_id_mistakes()) {
    EXPECT_TRUE(codes.insert(mistake.code).second) << mistake.code;
    EXPECT_FALSE(mistake.message.empty());
    EXPECT_NE(page.find("`" + mistake.code + "`"), std::string::npos) << mistake.code << " is missing in docs/positions.md";
  }
}

TEST(CheckIds, BadInputIsNamed) {
  const TextBatch batch{1, 3, {1, 1, 1}, {}};
  EXPECT_EQ(refusal_fault([&] { check_ids({{0, 1}, 1, 1, 3}, batch); }, ErrorCode::invalid_argument, {"ids", "3 numbers", "2"}), "");
  EXPECT_EQ(refusal_fault([&] { check_ids(row({0, 1, 2}), ContextParallel{{0, 7}, 2, 0}); }, ErrorCode::invalid_argument, {"pad it to 8"}),
            "")
      << "T27: six ids for seven tokens have lost one; the layout itself says so";
  EXPECT_FALSE(check_ids(row({0, INT64_MAX, INT64_MIN}), batch).right());
}

}  // namespace
