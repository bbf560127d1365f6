// SPDX-License-Identifier: Apache-2.0
// Tokens left out in the middle of a cache: what stays is where it would be had the others never been there.
#include <limits>

#include "recomputed.hpp"

namespace {

using namespace testing_support;
using gnomon::ErrorCode;

constexpr std::int64_t B = 3, H = 2, T = 200, D = 42, keep_first = 4, keep_last = 90;
const std::vector<std::int32_t> lengths{200, 100, 94};  // the last one stays as it is

using Evict = OnEveryTarget;

template <class Element>
void evicted(Order order, bool rotated) {
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Yarn{.factor = 8, .original_max_position_embeddings = 4096},
                                                .theta = 10000,
                                                .head_dim = D,
                                                .rotary_dim = 38,
                                                .rotary_offset = 2});
  const gnomon::Rotation rotation = frequencies;
  CachedKeys<Element> cache({B, H, T, D}, order, frequencies, gnomon::Range{0, T}, 31);
  Strided<Element> values({B, H, T, 24}, order);
  SequenceDraw draw(32);
  values.fill(draw);
  const auto old_values = values, old_keys = cache.keys;
  gnomon::ThreadPool pool(2);
  const auto kept =
      gnomon::evict_tokens(cache.keys.view(), values.view(), lengths, keep_first, keep_last, rotated ? &rotation : nullptr, &pool);
  ASSERT_EQ(kept, (std::vector<std::int32_t>{94, 94, 94}));
  const auto source = [&](std::int64_t b, std::int64_t slot) {
    return slot < keep_first ? slot : slot + lengths[static_cast<std::size_t>(b)] - 94;
  };
  Strided<Element> unrotated({B, H, 94, D}, Order::bhtd), now = unrotated;
  bool moved = true, as_they_were = true;
  now.each([&](auto b, auto h, auto t, auto d) {
    now.at(b, h, t, d) = cache.keys.at(b, h, t, d);
    unrotated.at(b, h, t, d) = cache.unrotated.at(b, h, source(b, t), d);
    as_they_were = as_they_were && same_bits(now.at(b, h, t, d), old_keys.at(b, h, source(b, t), d));
    if (d < 24) moved = moved && same_bits(values.at(b, h, t, d), old_values.at(b, h, source(b, t), d));
  });
  ASSERT_TRUE(moved) << "values";
  ASSERT_EQ(as_they_were, !rotated);
  if (!rotated) return;
  const auto share = [&](const auto& position) {
    return worst_share(
        frequencies.spec, unrotated, now, gnomon::Direction::forward, recomputed_error<Element>, [&](auto b, auto, auto t, int i) {
          return turn(
              static_cast<long double>(position(b, t)) * static_cast<long double>(frequencies.inv_freq[static_cast<std::size_t>(i)]),
              frequencies.attention_factor);
        });
  };
  ASSERT_LE(share([](auto, auto t) { return t; }), 1);
  ASSERT_GT(share(source), 20) << "keys left at their old positions would pass too";
  ASSERT_GT(share([](auto, auto t) { return t < keep_first ? t : t + 1; }), 20) << "off by one would pass too";
}
TEST_P(Evict, AsIfTheOthersHadNeverBeenThere) {
  for (const auto order : {Order::bhtd, Order::bthd, Order::backwards, Order::interleaved}) evicted<float>(order, true);
  evicted<std::uint16_t>(Order::bhtd, true), evicted<Half>(Order::bthd, true), evicted<double>(Order::padded, true);
  evicted<float>(Order::bhtd, false);
}
INSTANTIATE_TEST_SUITE_P(EveryTarget, Evict, testing::ValuesIn(targets()), target_name);

TEST(EvictTokens, KeepsAllWhereMoreThanThereIsIsToBeKept) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();  // twice that would be -2
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 8, .rotary_dim = 8});
  const gnomon::Rotation rotation = frequencies;
  SequenceDraw draw(7);
  Strided<float> keys({2, 1, 10, 8}, Order::bhtd), values = keys;
  keys.fill(draw);
  const auto before = keys.memory;
  const std::vector<std::int32_t> all{10, 3};
  EXPECT_EQ(gnomon::evict_tokens(keys.view(), values.view(), all, most, most, &rotation), all);
  EXPECT_EQ(keys.memory, before);
}

TEST(EvictRefuses, WhatDoesNotFit) {
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 8, .rotary_dim = 8});
  const gnomon::Rotation rotation = frequencies;
  Strided<float> keys({2, 1, 10, 8}, Order::bhtd), values = keys;
  const auto fault = [&](const std::vector<std::int32_t>& given, std::int64_t first, std::int64_t last, const gnomon::Rotation& by,
                         ErrorCode code, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::evict_tokens(keys.view(), values.view(), given, first, last, &by); }, code, words);
  };
  EXPECT_EQ(fault({10}, 1, 2, rotation, ErrorCode::invalid_argument, {"lengths", "2", "1"}), "");
  EXPECT_EQ(fault({10, 11}, 1, 2, rotation, ErrorCode::invalid_argument, {"lengths", "10", "11"}), "");
  EXPECT_EQ(fault({10, 9}, -1, 2, rotation, ErrorCode::invalid_argument, {"keep_first", "-1"}), "");
  EXPECT_EQ(fault({10, 9}, 1, -2, rotation, ErrorCode::invalid_argument, {"keep_last", "-2"}), "");
  gnomon::Rotation axes = rotation;
  const std::uint8_t axis[] = {0, 1, 0, 1};
  axes.axis = axis;
  EXPECT_EQ(fault({10, 9}, 1, 2, axes, ErrorCode::invalid_argument, {"rotation", "axis", "2"}), "");
  const auto table = gnomon::rotary_table(frequencies, gnomon::Range{0, 10});
  EXPECT_EQ(fault({10, 9}, 1, 2, table, ErrorCode::unsupported, {"table"}), "");
  EXPECT_EQ(refusal_fault([&] { gnomon::evict_tokens(keys.view(), keys.view(), std::vector<std::int32_t>{1, 1}, 1, 2, &rotation); },
                          ErrorCode::invalid_argument, {"values", "overlaps keys"}),
            "");
}

}  // namespace
