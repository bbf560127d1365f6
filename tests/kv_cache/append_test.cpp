// SPDX-License-Identifier: Apache-2.0
// New keys and values written into a cache, against keys rotated by themselves and copied; and what must not be written.
#include "recomputed.hpp"

namespace {

using namespace testing_support;
using gnomon::ErrorCode;

constexpr std::int64_t B = 2, H = 3, T = 5, D = 42, width = 24;

gnomon::Frequencies yarn() {
  return gnomon::frequencies({.rule = gnomon::rotary::Yarn{.factor = 8, .original_max_position_embeddings = 4096},
                              .theta = 10000,
                              .head_dim = D,
                              .rotary_dim = 38,
                              .rotary_offset = 2});
}

using Append = OnEveryTarget;

/// What the test expects in slot (row, slot): which new token, or none.
struct Written {
  std::int64_t b = -1, t = -1;
};

template <class Element, class Place>
void appended(const Shape& cache_shape, const std::vector<std::int32_t>& slots, const std::vector<std::int32_t>& table, Place&& place) {
  const auto frequencies = yarn();
  SequenceDraw draw(21);
  Strided<Element> k({B, H, T, D}, Order::bthd), v({B, H, T, width}, Order::padded), rotated = k;
  k.fill(draw), v.fill(draw);
  const std::vector<std::int64_t> positions{900, 901, 902, 903, 7, 0, 5, -3, 1 << 20, 8};
  gnomon::RotateOperand operand{std::as_const(k).view(), rotated.view(), gnomon::Side::key};
  gnomon::rotate({&operand, 1}, frequencies, gnomon::Ids{positions});
  for (const int how : {0, 1, 2}) {  // alone, by threads, unrotated
    Strided<Element> keys(cache_shape, Order::padded), values({cache_shape[0], H, cache_shape[2], width}, Order::bhtd);
    keys.fill_with_bits(draw), values.fill_with_bits(draw);
    auto expected_keys = keys, expected_values = values;
    const auto& from = how == 2 ? k : rotated;
    for (std::int64_t row = 0; row < cache_shape[0]; row++)
      for (std::int64_t slot = 0; slot < cache_shape[2]; slot++) {
        const Written token = place(row, slot);
        if (token.b < 0) continue;
        for (std::int64_t h = 0; h < H; h++) {
          for (std::int64_t d = 0; d < D; d++) expected_keys.at(row, h, slot, d) = from.at(token.b, h, token.t, d);
          for (std::int64_t d = 0; d < width; d++) expected_values.at(row, h, slot, d) = v.at(token.b, h, token.t, d);
        }
      }
    gnomon::ThreadPool pool(3);
    gnomon::AppendOptions options;
    if (how != 2) options.rotate_keys = gnomon::RotationOnLoad{frequencies, gnomon::Ids{positions}};
    options.block_table = table;
    if (how == 1) options.executor = &pool;
    gnomon::append_tokens(std::as_const(k).view(), std::as_const(v).view(), keys.view(), values.view(), {slots}, options);
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.memory.data(), b.memory.data(), a.memory.size() * sizeof(Element)) == 0;
    };
    ASSERT_TRUE(same(keys, expected_keys)) << how;
    ASSERT_TRUE(same(values, expected_values)) << how;
  }
}

template <class Element>
void every_form() {
  {
    SCOPED_TRACE("from a slot of each row on");
    appended<Element>({B, H, 9, D}, {4, 1}, {}, [](auto row, auto slot) {
      const std::int64_t t = slot - (row == 0 ? 4 : 1);
      return t >= 0 && t < T ? Written{row, t} : Written{};
    });
  }
  {
    SCOPED_TRACE("a slot for each token, padding left out");
    const std::vector<std::int32_t> slots{3, 4, 8, -1, 0, -1, -1, 2, 1, 0};
    appended<Element>({B, H, 9, D}, slots, {}, [&](auto row, auto slot) {
      for (std::int64_t t = 0; t < T; t++)
        if (slots[static_cast<std::size_t>(row * T + t)] == slot) return Written{row, t};
      return Written{};
    });
  }
  {
    SCOPED_TRACE("pages of three");
    const std::vector<std::int32_t> table{5, 2, 7, 0, 6, 1};  // (B, 3)
    appended<Element>({8, H, 3, D}, {2, 4}, table, [&](auto page, auto slot) {
      for (std::int64_t b = 0; b < B; b++)
        for (std::int64_t t = 0; t < T; t++) {
          const std::int64_t at = (b == 0 ? 2 : 4) + t;
          if (table[static_cast<std::size_t>(b * 3 + at / 3)] == page && at % 3 == slot) return Written{b, t};
        }
      return Written{};
    });
  }
}
TEST_P(Append, EveryFormOfSlots) { every_form<float>(), every_form<std::uint16_t>(), every_form<Half>(), every_form<double>(); }

TEST_P(Append, AxesAndRealPositions) {
  gnomon::RotarySpec spec{.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 32, .rotary_dim = 32};
  spec.sections = {4, 6, 6};
  const auto frequencies = gnomon::frequencies(spec);
  SequenceDraw draw(22);
  std::vector<double> positions;
  for (std::int64_t i = 0; i < 3 * B * T; i++) positions.push_back(static_cast<double>(draw.whole(-4000, 4000)) / 4);
  Strided<float> k({B, H, T, 32}, Order::bhtd), v = k, keys({B, H, 12, 32}, Order::bhtd), values = keys, rotated = k;
  k.fill(draw), v.fill(draw);
  const gnomon::RotateOperand operand{std::as_const(k).view(), rotated.view(), gnomon::Side::key};
  gnomon::rotate({&operand, 1}, frequencies, gnomon::Reals{positions});
  const std::vector<std::int32_t> slots{1, 6};
  gnomon::AppendOptions options;
  options.rotate_keys = gnomon::RotationOnLoad{frequencies, gnomon::Reals{positions}};
  gnomon::append_tokens(k.view(), v.view(), keys.view(), values.view(), {slots}, options);
  bool same = true;
  rotated.each([&](auto b, auto h, auto t, auto d) {
    same = same && keys.at(b, h, t + slots[static_cast<std::size_t>(b)], d) == rotated.at(b, h, t, d);
  });
  EXPECT_TRUE(same);
}
INSTANTIATE_TEST_SUITE_P(EveryTarget, Append, testing::ValuesIn(targets()), target_name);

TEST(AppendRefuses, AndWritesNothing) {
  const auto frequencies = yarn();
  Strided<float> k({B, H, T, D}, Order::bhtd), v({B, H, T, width}, Order::bhtd), keys({B, H, 9, D}, Order::bhtd),
      values({B, H, 9, width}, Order::bhtd);
  const auto before = keys.memory;
  const auto fault = [&](const std::vector<std::int32_t>& slots, ErrorCode code, std::initializer_list<const char*> words,
                         const std::vector<std::int32_t>& table = {}, std::int64_t positions = T) {
    gnomon::AppendOptions options;
    options.rotate_keys = gnomon::RotationOnLoad{frequencies, gnomon::Range{0, positions}};
    options.block_table = table;
    return refusal_fault([&] { gnomon::append_tokens(k.view(), v.view(), keys.view(), values.view(), {slots}, options); }, code, words);
  };
  EXPECT_EQ(fault({0, 5}, ErrorCode::out_of_range, {"slots", "row 1", "0 to 8", "token 4", "9"}), "");
  EXPECT_EQ(fault({0, -1}, ErrorCode::out_of_range, {"slots", "-1"}), "") << "−1 leaves a token out, not a row";
  EXPECT_EQ(fault({0, 1, 2}, ErrorCode::invalid_argument, {"slots", "2 or 2 x 5", "3"}), "");
  EXPECT_EQ(fault({0, 1, 2, 3, 1, 0, 1, 2, 3, 4}, ErrorCode::invalid_argument, {"slots", "two tokens", "slot 1", "row 0"}), "");
  EXPECT_EQ(fault({0, 0}, ErrorCode::invalid_argument, {"positions"}, {}, T + 1), "");
  EXPECT_EQ(fault({0, 4}, ErrorCode::invalid_argument, {"slots", "two tokens", "page 1"}, {1, 1}), "") << "a page that two rows share";
  EXPECT_EQ(fault({0, 4}, ErrorCode::out_of_range, {"block_table", "0 to 1", "2"}, {2, 1}), "");
  EXPECT_EQ(fault({0, 4}, ErrorCode::invalid_argument, {"block_table", "2", "3"}, {2, 1, 0}), "");
  EXPECT_EQ(refusal_fault([&] { gnomon::append_tokens(k.view(), v.view(), keys.view(), keys.view(), {std::vector<std::int32_t>{0, 0}}); },
                          ErrorCode::invalid_argument, {"values", "24", "42"}),
            "");
  EXPECT_EQ(refusal_fault(
                [&] { gnomon::append_tokens(keys.view(), values.view(), keys.view(), values.view(), {std::vector<std::int32_t>{0, 0}}); },
                ErrorCode::invalid_argument, {"keys", "overlaps k"}),
            "");
  EXPECT_EQ(std::memcmp(before.data(), keys.memory.data(), before.size() * sizeof(float)), 0);
}

}  // namespace
