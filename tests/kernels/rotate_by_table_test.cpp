// SPDX-License-Identifier: Apache-2.0
// rotate with given cos and sin: tables of every dtype and profile, and numbers of anybody's, which need not be a rotation.
#include <gtest/gtest.h>

#include <limits>

#include "support/random_spec.hpp"
#include "support/targets.hpp"
#include "support/turned.hpp"

namespace {

using namespace testing_support;
using gnomon::Direction;
using gnomon::DType;
using gnomon::ErrorCode;
using gnomon::Numerics;
using gnomon::PairLayout;
using gnomon::Rotation;
using gnomon::TableView;

constexpr DType dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
const PairLayout layouts[] = {PairLayout::half_split, PairLayout::interleaved};
const Direction directions[] = {Direction::forward, Direction::transposed};

// An entry read as float32, the magnitude on it, then a product and a sum.
constexpr double kernel_error = 5 * 0x1p-24, double_error = 4 * 0x1p-53;
template <class Element>
constexpr double error_of = std::is_same_v<Element, double> ? double_error : kernel_error;

gnomon::RotarySpec yarn(int pairs, PairLayout layout, int offset = 0) {
  return {.rule = gnomon::rotary::Yarn{.factor = 8, .original_max_position_embeddings = 4096},  // its magnitude is not 1
          .theta = 10000,
          .head_dim = 2 * pairs + 2 * offset,
          .rotary_dim = 2 * pairs,
          .rotary_offset = offset,
          .layout = layout};
}

using ByTable = OnEveryTarget;

template <class Element>
void every_table(int pairs, SequenceDraw& draw) {
  for (const auto layout : layouts)
    for (const auto numerics : {Numerics::exact, Numerics::hf})
      for (const auto dtype : dtypes) {
        const auto spec = yarn(pairs, layout, static_cast<int>(draw.whole(0, 2)));
        const auto table = gnomon::rotary_table(gnomon::frequencies(spec, numerics), gnomon::Range{1000, 1040}, dtype);
        ASSERT_GT(table.frequencies.attention_factor, 1.1);
        std::vector<std::int64_t> rows;
        for (int k = 0; k < 2 * 5; k++) rows.push_back(k == 0 ? 39 : k == 1 ? 0 : draw.whole(0, 39));
        for (const auto direction : directions) {
          const auto run = rotated<Element>(draw, {2, 2, 5, spec.head_dim}, table, gnomon::Ids{rows}, {.direction = direction});
          const auto share = [&](std::int64_t shift, double magnitude) {
            return worst_share(spec, run.x, run.out, direction, error_of<Element>, [&](auto b, auto, auto t, int i) {
              const auto row = static_cast<std::size_t>((rows[static_cast<std::size_t>(b * 5 + t)] + shift + 40) % 40);
              return Turn{table_cos(table, row, static_cast<std::size_t>(i)) * magnitude,
                          table_sin(table, row, static_cast<std::size_t>(i)) * magnitude};
            });
          };
          const double magnitude = table.frequencies.attention_factor;
          ASSERT_LE(share(0, magnitude), 1) << pairs << " pairs, " << gnomon::name_of(dtype) << " " << gnomon::to_json(spec);
          ASSERT_GT(share(1, magnitude), 10) << "the row after it would pass too";
          ASSERT_GT(share(0, magnitude * magnitude), 10) << "the magnitude applied twice would pass too";
          ASSERT_GT(share(0, 1), 10) << "the magnitude forgotten would pass too";
        }
      }
}

TEST_P(ByTable, AppliesItsRows) {
  SequenceDraw draw(71);
  for (const int pairs : {1, 7, 8, 9, 16, 17, 33, 64, 65}) {
    every_table<float>(pairs, draw);
    every_table<std::uint16_t>(pairs, draw);
    every_table<Half>(pairs, draw);
    every_table<double>(pairs, draw);
    if (HasFatalFailure()) return;
  }
}

/// Random numbers in rows further apart than they are long, as ONNX and others hand them over.
template <class Element>
void anybodys_numbers(SequenceDraw& draw) {
  constexpr std::int64_t rows = 9, stride = 29;
  for (const auto layout : layouts)
    for (const std::int64_t pairs : {1, 5, 16, 27}) {
      std::vector<float> cosine(rows * stride), sine(rows * stride);
      for (auto* list : {&cosine, &sine}) {
        for (auto& value : *list) value = static_cast<float>(draw.whole(-(1 << 20), 1 << 20)) * 0x1p-18F;
      }
      Rotation rotation;
      rotation.table = TableView(cosine.data(), sine.data(), DType::f32, rows, pairs, stride);
      rotation.head_dim = static_cast<int>(2 * pairs + 3), rotation.rotary_offset = 1, rotation.layout = layout, rotation.magnitude = 0.75;
      const gnomon::RotarySpec spec{.rule = gnomon::rotary::Default{},
                                    .head_dim = rotation.head_dim,
                                    .rotary_dim = static_cast<int>(2 * pairs),
                                    .rotary_offset = 1,
                                    .layout = layout};
      for (const auto direction : directions) {
        const auto [x, out] =
            rotated<Element>(draw, {2, 2, 3, rotation.head_dim}, rotation, gnomon::Range{8, 2, -2}, {.direction = direction});
        const auto share = worst_share(spec, x, out, direction, error_of<Element>, [&](auto, auto, auto t, int i) {
          const auto at = static_cast<std::size_t>((8 - 2 * t) * stride + i);
          return Turn{static_cast<double>(cosine[at]) * 0.75, static_cast<double>(sine[at]) * 0.75};
        });
        ASSERT_LE(share, 1) << pairs;
        for (std::int64_t b = 0; b < 2; b++) {
          for (const std::int64_t d : {std::int64_t{0}, 2 * pairs + 1, 2 * pairs + 2}) {
            ASSERT_TRUE(same_bits(x.at(b, 1, 2, d), out.at(b, 1, 2, d))) << "channel " << d;
          }
        }
      }
    }
}

TEST_P(ByTable, AppliesAnybodysNumbers) {
  SequenceDraw draw(72);
  anybodys_numbers<float>(draw);
  anybodys_numbers<std::uint16_t>(draw);
  anybodys_numbers<Half>(draw);
  anybodys_numbers<double>(draw);
}

TEST_P(ByTable, RowsInEveryFormAreTheSame) {
  SequenceDraw draw(73);
  const auto spec = yarn(19, PairLayout::half_split);
  const auto table = gnomon::rotary_table(gnomon::frequencies(spec), gnomon::Range{0, 20});
  const std::vector<std::int32_t> narrow{4, 6, 8, 10};
  const std::vector<std::int64_t> wide(narrow.begin(), narrow.end());
  Strided<float> x({1, 2, 4, spec.head_dim}, Order::bhtd);
  x.fill(draw);
  auto first = x, second = x, third = x, made = x;
  gnomon::rotate(first.view(), table, gnomon::Ids32{narrow});
  gnomon::rotate(second.view(), table, gnomon::Ids{wide});
  gnomon::rotate(third.view(), table, gnomon::Range{4, 12, 2});
  EXPECT_TRUE(same_tensor(first, second));
  EXPECT_TRUE(same_tensor(first, third));
  gnomon::rotate(made.view(), gnomon::frequencies(spec), gnomon::Ids{wide});
  made.each([&](auto b, auto h, auto t, auto d) { ASSERT_NEAR(made.at(b, h, t, d), first.at(b, h, t, d), 2e-6); });
  const std::vector<std::int32_t> ends{0, 1, 4};  // documents of 1 and 3 tokens: rows 0, 0, 1, 2
  const std::vector<std::int64_t> counted{0, 0, 1, 2};
  first = second = x;
  gnomon::rotate(first.view(), table, gnomon::Packed{ends});
  gnomon::rotate(second.view(), table, gnomon::Ids{counted});
  EXPECT_TRUE(same_tensor(first, second));
}

TEST_P(ByTable, NaNStaysNaN) {
  // Payloads that rounding to 16 bits would carry out of, or round to infinity.
  for (const std::uint32_t payload : {0x7fffffffU, 0xffffffffU, 0x7f800001U, 0xff800001U, 0x7fc00000U, 0x7f808000U}) {
    for (const auto layout : layouts)
      for (const int pairs : {1, 7, 16, 33})
        for (const bool in_sine : {false, true}) {
          std::vector<float> cosine(static_cast<std::size_t>(pairs), 0.5F), sine(cosine);
          const int hurt = pairs / 2;
          (in_sine ? sine : cosine)[static_cast<std::size_t>(hurt)] = std::bit_cast<float>(payload);
          Rotation rotation;
          rotation.table = TableView(cosine.data(), sine.data(), DType::f32, 1, pairs, pairs);
          rotation.head_dim = 2 * pairs, rotation.layout = layout;
          const auto expect_nan = [&]<class Element>(Element) {
            Strided<Element> x({1, 1, 1, 2 * pairs}, Order::bhtd);
            x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = encode<Element>(1); });
            gnomon::rotate(x.view(), rotation, gnomon::Range{0, 1});
            for (int i = 0; i < pairs; i++) {
              const int first = layout == PairLayout::half_split ? i : 2 * i,
                        second = layout == PairLayout::half_split ? i + pairs : first + 1;
              for (const int d : {first, second}) {
                ASSERT_EQ(std::isnan(decode(x.at(0, 0, 0, d))), i == hurt)
                    << std::hex << payload << std::dec << " channel " << d << " of " << 2 * pairs << " " << sizeof(Element);
              }
            }
          };
          expect_nan(float{});
          expect_nan(std::uint16_t{});
          expect_nan(Half{});
        }
  }
}

INSTANTIATE_TEST_SUITE_P(Target, ByTable, testing::ValuesIn(targets()), target_name);

class BadTable : public testing::Test {
 protected:
  gnomon::RotaryTable table = gnomon::rotary_table(gnomon::frequencies(yarn(4, PairLayout::half_split)), gnomon::Range{0, 10});
  std::vector<float> memory = std::vector<float>(96, 1.0F);
  gnomon::TensorView x{memory.data(), DType::f32, {2, 2, 3, 8}, {48, 24, 8, 1}};

  std::string refused(const Rotation& rotation, const gnomon::Positions& positions, ErrorCode code,
                      std::initializer_list<const char*> words) {
    const auto before = memory;
    const auto fault = refusal_fault([&] { gnomon::rotate(x, rotation, positions); }, code, words);
    return memory == before ? fault : "memory was written before the refusal; " + fault;
  }
};

TEST_F(BadTable, RowsItHasNot) {
  EXPECT_NO_THROW(gnomon::rotate(x, table, gnomon::Range{7, 10}));
  const auto words = {"positions", "table", "rows 0 to 9"};
  EXPECT_EQ(refused(table, gnomon::Range{8, 11}, ErrorCode::out_of_range, words), "");
  EXPECT_EQ(refused(table, gnomon::Range{8, 11}, ErrorCode::out_of_range, {"got 10"}), "");
  EXPECT_EQ(refused(table, gnomon::Range{1, -2, -1}, ErrorCode::out_of_range, {"got -1"}), "");
  const std::vector<std::int64_t> past{0, 10, 1}, before{0, 1, -1}, far{0, gnomon::max_position, 3};
  EXPECT_EQ(refused(table, gnomon::Ids{past}, ErrorCode::out_of_range, {"table", "10"}), "");
  EXPECT_EQ(refused(table, gnomon::Ids{before}, ErrorCode::out_of_range, {"table", "-1"}), "");
  EXPECT_EQ(refused(table, gnomon::Ids{far}, ErrorCode::out_of_range, words), "");
  const std::vector<std::int32_t> past32{0, std::numeric_limits<std::int32_t>::max(), 1},
      before32{std::numeric_limits<std::int32_t>::min(), 0, 0};
  EXPECT_EQ(refused(table, gnomon::Ids32{past32}, ErrorCode::out_of_range, words), "");
  EXPECT_EQ(refused(table, gnomon::Ids32{before32}, ErrorCode::out_of_range, words), "");
}

TEST_F(BadTable, PackedDocumentsLongerThanIt) {
  gnomon::RotaryTable little = gnomon::rotary_table(gnomon::frequencies(yarn(4, PairLayout::half_split)), gnomon::Range{0, 2});
  const std::vector<std::int32_t> one{0, 3}, two{0, 1, 3};
  EXPECT_EQ(refused(little, gnomon::Packed{one}, ErrorCode::out_of_range, {"table", "rows 0 to 1", "2"}), "");
  EXPECT_NO_THROW(gnomon::rotate(x, little, gnomon::Packed{two}));
}

TEST_F(BadTable, PositionsThatAreNoRows) {
  const std::vector<double> reals{0, 1, 2};
  EXPECT_EQ(refused(table, gnomon::Reals{reals}, ErrorCode::invalid_argument, {"positions", "integers", "table"}), "");
  EXPECT_EQ(refused(table, gnomon::Range{0, 4}, ErrorCode::invalid_argument, {"positions", "3", "6", "4"}), "");
}

TEST_F(BadTable, OneThatDoesNotFitTheHead) {
  Rotation rotation(table);
  rotation.table->pairs = 5;
  EXPECT_EQ(refused(rotation, gnomon::Range{0, 3}, ErrorCode::invalid_argument, {"rotation", "head_dim (8)"}), "");
  rotation.table->pairs = 0;
  EXPECT_EQ(refused(rotation, gnomon::Range{0, 3}, ErrorCode::invalid_argument, {"rotation", "pair"}), "");
  rotation = table;
  rotation.table->cos = nullptr;
  EXPECT_EQ(refused(rotation, gnomon::Range{0, 3}, ErrorCode::invalid_argument, {"table", "null"}), "");
}

TEST_F(BadTable, OneWithoutRows) {
  Rotation rotation(table);
  rotation.table->rows = 0;
  EXPECT_EQ(refused(rotation, gnomon::Range{0, 3}, ErrorCode::out_of_range, {"table"}), "");
}

}  // namespace
