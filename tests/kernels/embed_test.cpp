// SPDX-License-Identifier: Apache-2.0
// Rows added to embeddings: the kernels of every target against numbers worked out here, the fused lookup, and its gradient.
#include "gnomon/embed.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;
using gnomon::ErrorCode;
using gnomon::RowsView;
using gnomon::TensorView;

/// (rows, width) with a gap after each row.
template <class Element>
struct Table {
  std::int64_t rows, width, stride;
  std::vector<Element> memory;

  Table(std::int64_t rows_, std::int64_t width_, SequenceDraw& draw)
      : rows(rows_), width(width_), stride(width_ + 3), memory(static_cast<std::size_t>(rows_ * (width_ + 3))) {
    for (Element& element : memory) element = encode<Element>(static_cast<double>(draw.whole(-(1 << 20), 1 << 20)) * 0x1p-19);
  }
  double at(std::int64_t row, std::int64_t column) const { return decode(memory[static_cast<std::size_t>(row * stride + column)]); }
  RowsView view(std::int64_t offset = 0) const { return {memory.data(), dtype_for<Element>(), rows, width, stride, offset}; }
};

/// One rounding to the type of x; float32 arithmetic adds its own.
template <class Element>
double tolerance(double truth, double size) {
  if constexpr (std::is_same_v<Element, double>) return size * 0x1p-51;
  const int bits = std::is_same_v<Element, float> ? 24 : std::is_same_v<Element, Half> ? 11 : 8;
  const int least = std::is_same_v<Element, Half> ? -14 : -126;
  const double ulp = std::ldexp(1, std::max(truth == 0 ? least : std::ilogb(truth), least) - bits + 1);
  return ulp / 2 * (1 + 1e-9) + 3 * size * 0x1p-24;
}

template <class Element, class Row>
void adds_rows(SequenceDraw& draw, std::int64_t width, Order order, bool per_row, double scale) {
  const Shape shape{2, 1, 5, width};
  const std::int64_t offset = draw.whole(0, 2);
  const Table<Row> table(9, width, draw);
  std::vector<std::int64_t> positions(static_cast<std::size_t>(per_row ? 10 : 5));
  for (auto& position : positions) position = draw.whole(0, table.rows - offset - 1);
  Strided<Element> x(shape, order), out(shape, Order::bhtd);
  x.fill(draw);
  gnomon::add_positions(std::as_const(x).view(), out.view(), table.view(offset), gnomon::Ids{positions}, {.scale = scale});
  x.each([&](auto b, auto h, auto t, auto d) {
    const auto position = positions[static_cast<std::size_t>(per_row ? b * 5 + t : t)];
    const double from_x = scale * decode(x.at(b, h, t, d)), from_row = table.at(position + offset, d), truth = from_x + from_row;
    ASSERT_NEAR(decode(out.at(b, h, t, d)), truth, tolerance<Element>(truth, std::abs(from_x) + std::abs(from_row)))
        << "width " << width << " position " << position << " offset " << offset;
    if (std::abs(table.at(position + offset, d) - table.at(position, d)) > 0.1 * std::abs(truth) && offset > 0) {
      EXPECT_NE(decode(out.at(b, h, t, d)), from_x + table.at(position, d)) << "a forgotten offset would be noticed";
    }
  });
  gnomon::add_positions(x.view(), x.view(), table.view(offset), gnomon::Ids{positions}, {.scale = scale});
  x.each([&](auto b, auto h, auto t, auto d) { ASSERT_TRUE(same_bits(x.at(b, h, t, d), out.at(b, h, t, d))) << "in place"; });
}

template <class Element>
void adds_rows_of_every_type() {
  SequenceDraw draw(71);
  for (const std::int64_t width : {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65}) {
    for (const auto order : {Order::bhtd, Order::padded, Order::backwards}) {
      const bool per_row = draw.whole(0, 1) == 1;
      adds_rows<Element, float>(draw, width, order, per_row, 1);
      adds_rows<Element, std::uint16_t>(draw, width, order, per_row, 0.5);
      adds_rows<Element, Half>(draw, width, order, !per_row, 22.62741699796952);
      adds_rows<Element, double>(draw, width, order, per_row, 1);
    }
  }
}

using Embed = OnEveryTarget;

TEST_P(Embed, RowsAreAddedF32) { adds_rows_of_every_type<float>(); }
TEST_P(Embed, RowsAreAddedBf16) { adds_rows_of_every_type<std::uint16_t>(); }
TEST_P(Embed, RowsAreAddedF16) { adds_rows_of_every_type<Half>(); }
TEST_P(Embed, RowsAreAddedF64) { adds_rows_of_every_type<double>(); }

/// Every value of a type of two bytes, scaled: products that float32 holds, so that one rounding is all there is.
template <class Element>
void rounds_every_value() {
  constexpr std::int64_t width = 64, tokens = 65536 / width;
  Strided<Element> x({1, 1, tokens, width}, Order::bhtd);
  x.each([&](auto, auto, auto t, auto d) {
    const auto bits = static_cast<std::uint16_t>(t * width + d);
    std::memcpy(&x.at(0, 0, t, d), &bits, sizeof bits);
  });
  const std::vector<float> nothing(width, -0.0F);  // added to a zero, it leaves the sign
  const RowsView rows{nothing.data(), gnomon::DType::f32, 1, width, width, 0};
  const std::vector<std::int64_t> positions(tokens);
  int ties = 0;
  for (const double scale : {1.0, 1.5, 1.25, 1 + 0x1p-8, 1 + 0x1p-11}) {
    auto out = x;
    gnomon::add_positions(std::as_const(x).view(), out.view(), rows, gnomon::Ids{positions}, {.scale = scale});
    x.each([&](auto, auto, auto t, auto d) {
      const double product = decode(x.at(0, 0, t, d)) * scale, got = decode(out.at(0, 0, t, d));
      if (std::isnan(product)) {
        ASSERT_TRUE(std::isnan(got)) << "a NaN became " << got;
        return;
      }
      ASSERT_TRUE(same_bits(out.at(0, 0, t, d), encode<Element>(product))) << decode(x.at(0, 0, t, d)) << " times " << scale << ": " << got;
      ties += std::isfinite(got) && std::abs(got - product) == half_ulp<Element>(std::abs(product)) ? 1 : 0;
    });
  }
  EXPECT_GT(ties, 10000) << "the test would not see which way they go";
}
TEST_P(Embed, EveryValueIsRoundedToTheNearestBf16) { rounds_every_value<std::uint16_t>(); }
TEST_P(Embed, EveryValueIsRoundedToTheNearestF16) { rounds_every_value<Half>(); }

// A NaN of a float32 table with low bits set: rounding to bf16 carried out of it, into 0 or minus 0.
TEST_P(Embed, ANaNOfAFloat32TableStaysOne) {
  const auto expect_nan = [](auto element, std::uint32_t bits) {
    using Element = decltype(element);
    SequenceDraw draw(76);
    Table<float> table(1, 40, draw);  // vectors and a tail
    std::fill(table.memory.begin(), table.memory.end(), std::bit_cast<float>(bits));
    Strided<Element> x({1, 1, 1, 40}, Order::bhtd);
    x.fill(draw);
    gnomon::add_positions(x.view(), x.view(), table.view(), gnomon::Range{0, 1});
    for (std::int64_t d = 0; d < 40; d++) EXPECT_TRUE(std::isnan(decode(x.at(0, 0, 0, d)))) << bits << " " << d;
  };
  for (const std::uint32_t bits : {0x7fffffffU, 0xffffffffU, 0x7f800001U}) {
    expect_nan(std::uint16_t{}, bits);
    expect_nan(Half{}, bits);
    expect_nan(float{}, bits);
  }
}

TEST_P(Embed, TheFusedLookupIsTheLookupThenTheRows) {
  SequenceDraw draw(72);
  const Table<float> tokens(50, 37, draw), table(12, 37, draw);
  std::vector<std::int64_t> ids(14);
  for (auto& id : ids) id = draw.whole(0, 49);
  Strided<float> x({2, 1, 7, 37}, Order::bhtd), fused({2, 1, 7, 37}, Order::padded);
  x.each([&](auto b, auto h, auto t, auto d) {
    x.at(b, h, t, d) = static_cast<float>(tokens.at(ids[static_cast<std::size_t>(b * 7 + t)], d));
  });
  gnomon::add_positions(x.view(), x.view(), table.view(2), gnomon::Range{3, 10}, {.scale = 6.0});
  gnomon::embed_tokens(ids, tokens.view(), fused.view(), table.view(2), gnomon::Range{3, 10}, {.scale = 6.0});
  x.each([&](auto b, auto h, auto t, auto d) { ASSERT_EQ(x.at(b, h, t, d), fused.at(b, h, t, d)); });
}

/// Runs the tasks the last first, each on a thread of its own.
class Backwards final : public gnomon::Executor {
 public:
  void run(std::size_t tasks, const std::function<void(std::size_t)>& body) override {
    most = std::max(most, tasks);
    for (std::size_t task = tasks; task > 0; task--) std::thread([&] { body(task - 1); }).join();
  }
  std::size_t width() const override { return 3; }
  std::size_t most = 0;
};

TEST_P(Embed, TheGradientOfALookupIsTheSumInTheOrderOfTheTokens) {
  SequenceDraw draw(73);
  constexpr std::int64_t width = 133, tokens = 900;
  Strided<float> gradient({1, 1, tokens, width}, Order::bhtd);
  gradient.fill(draw);
  std::vector<std::int64_t> ids(tokens);
  for (auto& id : ids) id = draw.whole(0, 5);  // every row many times, so that the order of the sums shows
  std::vector<float> expected(8 * width, 0.25F), serial = expected, threaded = expected;
  for (std::int64_t t = 0; t < tokens; t++) {
    for (std::int64_t c = 0; c < width; c++) {
      expected[static_cast<std::size_t>((ids[static_cast<std::size_t>(t)] + 2) * width + c)] += 0.5F * gradient.at(0, 0, t, c);
    }
  }
  const auto into = [](std::vector<float>& sum) {
    return TensorView{sum.data(), gnomon::DType::f32, {1, 1, 8, width}, {8 * width, 8 * width, width, 1}};
  };
  Backwards executor;
  gnomon::scatter_add_rows(std::as_const(gradient).view(), gnomon::Ids{ids}, 2, into(serial), {.scale = 0.5});
  gnomon::scatter_add_rows(std::as_const(gradient).view(), gnomon::Ids{ids}, 2, into(threaded), {.scale = 0.5, .executor = &executor});
  EXPECT_EQ(serial, expected);
  EXPECT_EQ(threaded, expected);
  EXPECT_GT(executor.most, 1U) << "the work was lent";
  std::vector<float> reversed(8 * width, 0.25F);
  for (std::int64_t t = tokens; t-- > 0;) {
    for (std::int64_t c = 0; c < width; c++) {
      reversed[static_cast<std::size_t>((ids[static_cast<std::size_t>(t)] + 2) * width + c)] += 0.5F * gradient.at(0, 0, t, c);
    }
  }
  EXPECT_NE(reversed, expected) << "another order would be noticed";
}

TEST_P(Embed, ThreadsChangeNothing) {
  SequenceDraw draw(74);
  const Table<float> table(700, 256, draw);
  Strided<float> x({3, 1, 700, 256}, Order::bhtd);
  x.fill(draw);
  auto lent = x;
  Backwards executor;
  gnomon::add_positions(x.view(), x.view(), table.view(), gnomon::Range{0, 700});
  gnomon::add_positions(lent.view(), lent.view(), table.view(), gnomon::Range{0, 700}, {.executor = &executor});
  EXPECT_EQ(std::memcmp(x.memory.data(), lent.memory.data(), x.memory.size() * sizeof(float)), 0);
  EXPECT_GT(executor.most, 1U);
}

INSTANTIATE_TEST_SUITE_P(Target, Embed, testing::ValuesIn(targets()), target_name);

TEST(EmbedRefusals, NameTheArgument) {
  SequenceDraw draw(75);
  const Table<float> table(10, 8, draw), narrow(10, 6, draw);
  Strided<float> x({1, 1, 3, 8}, Order::bhtd);
  Strided<double> other({1, 1, 3, 8}, Order::bhtd);
  x.fill(draw);
  const auto before = x;
  const std::vector<std::int64_t> beyond{0, 8, 1}, negative{0, -1, 2};
  const std::vector<double> reals{0, 0.5, 1};
  const auto add = [&](const RowsView& rows, const gnomon::Positions& positions) {
    return [&, rows, positions] { gnomon::add_positions(x.view(), x.view(), rows, positions); };
  };
  EXPECT_EQ(refusal_fault(add(table.view(2), gnomon::Ids{beyond}), ErrorCode::out_of_range,
                          {"positions: 8 has no row", "0 to 7", "10 rows", "offset 2"}),
            "");
  EXPECT_EQ(refusal_fault(add(table.view(2), gnomon::Ids{negative}), ErrorCode::out_of_range, {"positions: -1"}), "")
      << "the rows before position 0 are not positions";
  EXPECT_EQ(refusal_fault(add(table.view(std::numeric_limits<std::int64_t>::max()), gnomon::Range{0, 3}), ErrorCode::invalid_argument,
                          {"table: ", "an offset of 0 to the number of rows", "10 rows"}),
            "");
  for (const double scale : {std::nan(""), HUGE_VAL, 1e39}) {
    EXPECT_EQ(refusal_fault([&] { gnomon::add_positions(x.view(), x.view(), table.view(), gnomon::Range{0, 3}, {.scale = scale}); },
                            ErrorCode::invalid_argument, {"scale: expected a finite number"}),
              "");
  }
  EXPECT_EQ(refusal_fault(add(table.view(), gnomon::Reals{reals}), ErrorCode::invalid_argument, {"positions", "integers"}), "");
  EXPECT_EQ(refusal_fault(add(table.view(), gnomon::Range{0, 4}), ErrorCode::invalid_argument, {"positions: expected 3"}), "");
  EXPECT_EQ(refusal_fault(add(narrow.view(), gnomon::Range{0, 3}), ErrorCode::invalid_argument, {"x: expected shape", "6", "width"}), "");
  EXPECT_EQ(refusal_fault([&] { gnomon::add_positions(x.view(), other.view(), table.view(), gnomon::Range{0, 3}); },
                          ErrorCode::invalid_argument, {"out: expected the dtype of x"}),
            "");
  const std::vector<std::int64_t> ids{0, 10, 2}, few{0, 1};
  const auto embed = [&](const std::vector<std::int64_t>& of) {
    return [&] { gnomon::embed_tokens(of, table.view(), x.view(), table.view(), gnomon::Range{0, 3}); };
  };
  EXPECT_EQ(refusal_fault(embed(ids), ErrorCode::out_of_range, {"ids[1]: expected 0 to 9, got 10"}), "");
  EXPECT_EQ(refusal_fault(embed(few), ErrorCode::invalid_argument, {"ids: expected 3"}), "");
  const TensorView half{x.memory.data(), gnomon::DType::bf16, {1, 1, 10, 8}, {80, 80, 8, 1}};
  EXPECT_EQ(refusal_fault([&] { gnomon::scatter_add_rows(std::as_const(x).view(), gnomon::Range{0, 3}, 0, half); },
                          ErrorCode::invalid_argument, {"sum: expected f32 or f64, got bf16"}),
            "");
  EXPECT_EQ(std::memcmp(x.memory.data(), before.memory.data(), x.memory.size() * sizeof(float)), 0) << "nothing is written";
}

}  // namespace
