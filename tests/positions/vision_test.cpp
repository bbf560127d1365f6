// SPDX-License-Identifier: Apache-2.0
// M-RoPE ids: the hand-counted example of T28, and the points on which behaviour versions differ, computed from their descriptions.
#include <gtest/gtest.h>

#include <algorithm>

#include "gnomon/position_ids.hpp"
#include "support/elements.hpp"

namespace {

using namespace gnomon;
using testing_support::refusal_fault;
using List = std::vector<std::int64_t>;
using Runs = std::vector<TokenRun>;

constexpr VisionFamily families[] = {VisionFamily::qwen2_vl, VisionFamily::qwen2_5_vl, VisionFamily::qwen3_vl, VisionFamily::glm4v,
                                     VisionFamily::ernie4_5_vl};
constexpr MropeVersion versions[] = {MropeVersion::original, MropeVersion::transformers_5_0, MropeVersion::transformers_5_3,
                                     MropeVersion::transformers_5_24};

TextRun text(std::int64_t tokens) { return {{tokens}}; }

PositionIds ids_of(const VisionModel& model, const Runs& runs) { return position_ids(vision_batch(model, {runs}, PaddingSide::left)); }

/// (t,h,w) of each token as one number of base 100.
List triples(const PositionIds& ids) {
  List result;
  for (std::int64_t t = 0; t < ids.tokens; t++) {
    result.push_back((ids.at(0, 0, t).value * 100 + ids.at(1, 0, t).value) * 100 + ids.at(2, 0, t).value);
  }
  return result;
}

TEST(VisionIds, AnImageBetweenText) {
  const Runs runs{text(4), ImageRun{{1, 4, 6}}, text(2)};
  const List expected{0, 10101, 20202, 30303, 40404, 40405, 40406, 40504, 40505, 40506, 70707, 80808};
  for (const auto family : families) {
    for (const auto version : versions) {
      const auto batch = vision_batch({family, version}, {runs}, PaddingSide::left);
      EXPECT_EQ(triples(position_ids(batch)), expected) << name_of(family) << " " << name_of(version) << ": all agree on still images";
      EXPECT_EQ(next_states(batch).front(), (SequenceState{{9}, {12}, {12}}));
    }
  }
}

TEST(VisionIds, TextIsTextOnEveryAxis) {
  const auto ids = ids_of({}, {text(5)});
  EXPECT_EQ(ids.values, on_axes(PositionIds{{0, 1, 2, 3, 4}, 1, 1, 5}, 3).values);
}

TEST(VisionIds, ALongVideoSeparatesTheVersions) {
  const Runs runs{text(1), VideoRun{{8, 4, 4}}, text(1)};  // 8 frames of 2 × 2, 1 s apart
  const auto after = [&](VisionFamily family, MropeVersion version) { return ids_of({family, version}, runs).values[33]; };
  EXPECT_EQ(after(VisionFamily::qwen2_vl, MropeVersion::original), 1 + 7 + 1);
  EXPECT_EQ(after(VisionFamily::qwen2_vl, MropeVersion::transformers_5_24), 1 + 2) << "the temporal extent is ignored";
  EXPECT_EQ(after(VisionFamily::qwen2_5_vl, MropeVersion::original), 1 + 14 + 1) << "two positions a second";
  EXPECT_EQ(after(VisionFamily::qwen2_5_vl, MropeVersion::transformers_5_3), 1 + 2);
  const auto batch = vision_batch({VisionFamily::qwen2_5_vl, MropeVersion::transformers_5_24}, {runs}, PaddingSide::left);
  EXPECT_EQ(next_states(batch).front().position.value, 1 + 14 + 1) << "decoding goes on beyond the largest id, in every version";
}

TEST(VisionIds, SecondsBetweenFrames) {
  const auto frames = [](MropeVersion version, double seconds, double per_second) {
    VisionModel model{VisionFamily::qwen2_5_vl, version};
    model.tokens_per_second = per_second;
    auto ids = ids_of(model, {VideoRun{{6, 2, 2}, seconds}}).values;
    ids.resize(6);
    return ids;
  };
  for (const auto version : versions) EXPECT_EQ(frames(version, 1, 2), (List{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(frames(MropeVersion::original, 0.5, 2), (List{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(frames(MropeVersion::transformers_5_3, 0.5, 2), (List{0, 0, 0, 0, 0, 0})) << "half a second became none";
  EXPECT_EQ(frames(MropeVersion::transformers_5_24, 0.75, 2), (List{0, 1, 3, 4, 6, 7}));
  EXPECT_EQ(frames(MropeVersion::transformers_5_0, 1.75, 2), (List{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(frames(MropeVersion::original, 1.75, 2), (List{0, 3, 7, 10, 14, 17}));
}

TEST(VisionIds, ErnieMergesFrames) {
  VisionModel ernie{VisionFamily::ernie4_5_vl};
  EXPECT_EQ(triples(ids_of(ernie, {VideoRun{{4, 2, 2}}, text(1)})), (List{0, 10000, 20202}));
  ernie.temporal_merge = 1;
  EXPECT_EQ(triples(ids_of(ernie, {VideoRun{{2, 2, 2}}, text(1)})), (List{0, 10000, 20202}));
  EXPECT_EQ(triples(ids_of({VisionFamily::ernie4_5_vl}, {ImageRun{{1, 2, 4}}})), (List{0, 1})) << "an image is not merged in time";
}

TEST(VisionIds, TokenTypesAndRunsAgree) {
  const std::vector<std::int8_t> types{-1, -1, 0, 1, 1, 0, 1, 0, 0, 2, 2, 2, 2, 0, 1, 1};
  const std::vector<Grid> images{{1, 2, 4}, {1, 2, 2}, {1, 4, 2}}, videos{{2, 4, 2}};
  const auto read = vision_batch({VisionFamily::qwen2_vl}, 2, types, images, videos);
  const auto written = vision_batch(
      {VisionFamily::qwen2_vl},
      {{text(1), ImageRun{images[0]}, text(1), ImageRun{images[1]}, text(1)}, {text(1), VideoRun{videos[0]}, text(1), ImageRun{images[2]}}},
      PaddingSide::left);
  EXPECT_EQ(read.rows, written.rows);
  EXPECT_EQ(position_ids(read), position_ids(written));
  EXPECT_EQ(position_ids(read).at(0, 0, 0).value, 0) << "padding";
}

TEST(VisionIds, FramesBehindTimestamps) {
  const std::vector<std::int8_t> types{0, 2, 2, 0, 0, 2, 2, 0};
  for (const auto family : {VisionFamily::qwen3_vl, VisionFamily::glm4v}) {
    const auto batch = vision_batch({family}, 1, types, {}, std::vector<Grid>{{2, 2, 4}});
    EXPECT_EQ(triples(position_ids(batch)), (List{0, 10101, 10102, 30303, 40404, 50505, 50506, 70707}));
    EXPECT_EQ(refusal_fault([&] { ids_of({family}, {VideoRun{{2, 2, 4}}}); }, ErrorCode::invalid_argument, {"timestamp", "t = 2"}), "");
  }
}

TEST(VisionIds, BadInputIsNamed) {
  const auto refused = [](auto&& call, std::initializer_list<const char*> words, ErrorCode code = ErrorCode::invalid_argument) {
    EXPECT_EQ(refusal_fault(call, code, words), "");
  };
  VisionModel merge_in_qwen{VisionFamily::qwen2_vl}, seconds_in_glm{VisionFamily::glm4v}, no_merge;
  merge_in_qwen.temporal_merge = 2;
  seconds_in_glm.tokens_per_second = 2;
  no_merge.spatial_merge = 0;
  refused([&] { ids_of(merge_in_qwen, {}); }, {"temporal_merge", "qwen2_vl"});
  refused([&] { ids_of(seconds_in_glm, {text(1)}); }, {"tokens_per_second", "glm4v"});
  refused([&] { ids_of(no_merge, {text(1)}); }, {"spatial_merge", "0"});
  refused([] { ids_of({}, {ImageRun{{1, 3, 4}}}); }, {"grid", "h", "multiple of 2", "3"});
  refused([] { ids_of({}, {ImageRun{{0, 2, 2}}}); }, {"grid", "t", "0"});
  refused([] { ids_of({}, {text(-1)}); }, {"text", "-1"});
  refused([] { ids_of({VisionFamily::ernie4_5_vl}, {VideoRun{{3, 2, 2}}}); }, {"grid", "t", "multiple of 2", "3"});
  refused([] { ids_of({VisionFamily::qwen2_5_vl}, {VideoRun{{1, 2, 2}, -1}}); }, {"second_per_grid", "-1"});
  refused([] { ids_of({}, {ImageRun{{1 << 20, 1 << 20, 1 << 20}}}); }, {"at most 2147483647"}, ErrorCode::out_of_range);
  refused([] { ids_of({VisionFamily::qwen2_5_vl}, {VideoRun{{100000, 2, 2}, 1e6}}); }, {"second_per_grid"}, ErrorCode::out_of_range);

  using Types = std::vector<std::int8_t>;
  const auto read = [](const Types& types, std::vector<Grid> images, std::vector<Grid> videos = {}, std::vector<double> seconds = {}) {
    vision_batch({}, 1, types, images, videos, seconds);
  };
  refused([&] { read({0, 1}, {}); }, {"1 more image tokens"});
  refused([&] { read({0, 1}, {{1, 2, 4}}); }, {"2 tokens in a row", "image 0", "got 1"});
  refused([&] { read({0, 1, 1}, {{1, 2, 2}}); }, {"1 more image tokens"});
  refused([&] { read({0}, {{1, 2, 2}}); }, {"images", "1 more"});
  refused([&] { read({0}, {}, {{1, 2, 2}}); }, {"videos", "1 more"});
  refused([&] { read({0, 3}, {}); }, {"token_types", "3"});
  refused([&] { read({0}, {}, {}, {1.0}); }, {"second_per_grid", "0 videos", "1"});
  const auto frames = [](std::int64_t number) {
    vision_batch({VisionFamily::qwen3_vl}, 1, Types{0, 2}, {}, std::vector<Grid>{{number, 2, 2}});
  };
  refused([&] { frames(1 << 30); }, {"videos", "more frames", "2 tokens"});
  refused([&] { frames(0); }, {"grid", "t", "0"});
  refused([&] { frames(2); }, {"videos", "1 more"});
  refused([] { vision_batch({}, 2, Types{0, 0, 0}, {}, {}); }, {"equal width", "3 in 2"});
  refused([] { position_ids(VisionBatch{{}, {{text(2)}}, 3, {0, 0, 1}}); }, {"mask", "2 tokens in row 0", "got 1"});
}

}  // namespace
