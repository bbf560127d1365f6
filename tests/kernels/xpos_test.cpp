// SPDX-License-Identifier: Apache-2.0
// The magnitudes of xpos, which are reciprocal for queries and keys: worked out here from the definition, in long double.
#include <gtest/gtest.h>

#include "support/random_spec.hpp"
#include "support/targets.hpp"
#include "support/turned.hpp"

namespace {

using namespace testing_support;
using gnomon::Direction;
using gnomon::ErrorCode;
using gnomon::PairLayout;
using gnomon::RotateOperand;
using gnomon::Side;

constexpr int pairs = 19;
constexpr double scale_base = 512;

gnomon::RotarySpec spec_of(PairLayout layout, std::int64_t centre) {
  return {.rule = gnomon::rotary::Xpos{.scale_base = scale_base, .centre = centre},
          .theta = 10000,
          .head_dim = 2 * pairs + 2,
          .rotary_dim = 2 * pairs,
          .rotary_offset = 2,
          .layout = layout};
}

/// cos and sin times zeta^((p - centre) / scale_base), or its reciprocal.
Turn xpos(double position, int pair, std::int64_t centre, Side side) {
  const auto frequency = static_cast<double>(std::pow(10000.0L, -static_cast<long double>(pair) / pairs));
  const long double zeta = (static_cast<long double>(pair) / pairs + 0.4L) / 1.4L;
  const long double power = std::pow(zeta, (static_cast<long double>(position) - static_cast<long double>(centre)) / scale_base);
  return turn(static_cast<long double>(position) * frequency, static_cast<double>(side == Side::query ? power : 1 / power));
}

// cos and sin within the contract; the magnitude rounded once, and with it two products, a sum.
constexpr double kernel_error = 1.2e-7 + 5 * 0x1p-24;
template <class Element>
constexpr double error_of = std::is_same_v<Element, double> ? 1e-12 : kernel_error;

using Xpos = OnEveryTarget;

/// Queries and keys in one call, in either order, over several blocks of tokens and a batch that shares its positions or does not.
template <class Element>
void both_sides(PairLayout layout, bool keys_first, bool per_row, bool real, Direction direction) {
  constexpr std::int64_t B = 2, T = 43, centre = 40;
  SequenceDraw draw(91);
  const auto spec = spec_of(layout, centre);
  const auto frequencies = gnomon::frequencies(spec);
  std::vector<double> reals;
  std::vector<std::int32_t> ids;
  for (std::int64_t k = 0; k < (per_row ? B : 1) * T; k++) {
    reals.push_back(static_cast<double>(draw.whole(-2000, 2000)) + (real ? 0.25 : 0));
    ids.push_back(static_cast<std::int32_t>(reals.back()));
  }
  const gnomon::Positions positions = real ? gnomon::Positions(gnomon::Reals{reals}) : gnomon::Positions(gnomon::Ids32{ids});
  Strided<Element> q({B, 4, T, spec.head_dim}, Order::bthd), k({B, 2, T, spec.head_dim}, Order::bhtd);
  q.fill(draw), k.fill(draw);
  auto q_out = q, k_out = k;
  const RotateOperand query{q_out.view(), q_out.view(), Side::query}, key{k_out.view(), k_out.view(), Side::key};
  const RotateOperand operands[] = {keys_first ? key : query, keys_first ? query : key};
  gnomon::rotate(operands, frequencies, positions, {.direction = direction});
  const auto share = [&](const Strided<Element>& x, const Strided<Element>& out, Side side, std::int64_t about) {
    std::vector<Turn> turns;  // worked out once for all heads
    for (const double position : reals) {
      for (int i = 0; i < pairs; i++) turns.push_back(xpos(position, i, about, side));
    }
    return worst_share(spec, x, out, direction, error_of<Element>,
                       [&](auto b, auto, auto t, int i) { return turns[static_cast<std::size_t>((per_row ? b * T + t : t) * pairs + i)]; });
  };
  ASSERT_LE(share(q, q_out, Side::query, centre), 1) << "queries";
  ASSERT_LE(share(k, k_out, Side::key, centre), 1) << "keys";
  ASSERT_GT(share(q, q_out, Side::key, centre), 10) << "the sides swapped would pass too";
  ASSERT_GT(share(k, k_out, Side::query, centre), 10) << "the sides swapped would pass too";
  ASSERT_GT(share(q, q_out, Side::query, 0), 10) << "the centre forgotten would pass too";
}

template <class Element>
void every_way() {
  for (const auto layout : {PairLayout::half_split, PairLayout::interleaved})
    for (const bool keys_first : {false, true})
      for (const bool per_row : {false, true})
        for (const bool real : {false, true}) {
          const auto direction = keys_first == per_row ? Direction::forward : Direction::transposed;
          both_sides<Element>(layout, keys_first, per_row, real, direction);
        }
}

TEST_P(Xpos, QueriesAndKeysInOneCallF32) { every_way<float>(); }
TEST_P(Xpos, QueriesAndKeysInOneCallBf16) { every_way<std::uint16_t>(); }
TEST_P(Xpos, QueriesAndKeysInOneCallF16) { every_way<Half>(); }
TEST_P(Xpos, QueriesAndKeysInOneCallF64) { every_way<double>(); }

TEST_P(Xpos, ScoresDependOnTheDistanceAlone) {
  // The same query and key at three places: one score; further apart it is smaller in size at first sight of the magnitudes.
  SequenceDraw draw(92);
  const auto spec = spec_of(PairLayout::half_split, 100);
  const auto frequencies = gnomon::frequencies(spec);
  Strided<float> x({1, 1, 1, spec.head_dim}, Order::bhtd);
  x.fill(draw);
  for (int d = 0; d < spec.rotary_offset; d++) x.at(0, 0, 0, d) = 0;
  const auto score = [&](std::int64_t at, std::int64_t distance) {
    auto q = x, k = x;
    const RotateOperand query{q.view(), q.view(), Side::query}, key{k.view(), k.view(), Side::key};
    gnomon::rotate(std::span(&query, 1), frequencies, gnomon::Range{at + distance, at + distance + 1});
    gnomon::rotate(std::span(&key, 1), frequencies, gnomon::Range{at, at + 1});
    double sum = 0;
    x.each([&](auto b, auto h, auto t, auto d) { sum += static_cast<double>(q.at(b, h, t, d)) * static_cast<double>(k.at(b, h, t, d)); });
    return sum;
  };
  for (const std::int64_t distance : {0, 1, 30}) {
    for (const std::int64_t at : {0, 900, -900}) EXPECT_NEAR(score(at, distance), score(100, distance), 2e-5) << at << " " << distance;
  }
  EXPECT_GT(score(0, 0), score(0, 3000)) << "no decay";
}

INSTANTIATE_TEST_SUITE_P(Target, Xpos, testing::ValuesIn(targets()), target_name);

TEST(XposRange, FarPositionsAreRefused) {
  // The steepest pair, zeta = 0.4 / 1.4, changes by exp(87), the edge of float32, over 87 * 512 / ln 3.5 = 35557 positions.
  const auto frequencies = gnomon::frequencies(spec_of(PairLayout::half_split, 1000));
  std::vector<float> memory(static_cast<std::size_t>(3 * (2 * pairs + 2)), 1.0F);
  const std::int64_t D = 2 * pairs + 2;
  const gnomon::TensorView x{memory.data(), gnomon::DType::f32, {1, 1, 3, D}, {3 * D, 3 * D, D, 1}};
  const auto refused = [&](const gnomon::Positions& positions, std::initializer_list<const char*> words) {
    const auto before = memory;
    const auto fault = refusal_fault([&] { gnomon::rotate(x, frequencies, positions); }, ErrorCode::out_of_range, words);
    return memory == before ? fault : "memory was written before the refusal; " + fault;
  };
  const std::vector<std::int64_t> fine{0, 36556, -34556}, past{0, 36558, 1}, before{-34558, 0, 1};
  const std::vector<double> real{0, 0.5, 36558.5};
  const std::vector<std::int32_t> narrow{0, 2000000000, 1};
  EXPECT_NO_THROW(gnomon::rotate(x, frequencies, gnomon::Ids{fine}));
  for (const float value : memory) EXPECT_TRUE(std::isfinite(value) && std::abs(value) < 1e38F);
  EXPECT_EQ(refused(gnomon::Ids{past}, {"positions", "36558", "35558", "xpos"}), "");
  EXPECT_EQ(refused(gnomon::Ids{before}, {"positions", "-34558", "xpos"}), "");
  EXPECT_EQ(refused(gnomon::Reals{real}, {"positions", "36558.5", "xpos"}), "");
  EXPECT_EQ(refused(gnomon::Ids32{narrow}, {"positions", "2000000000", "xpos"}), "");
  EXPECT_EQ(refused(gnomon::Range{36556, 36559}, {"positions", "36558", "xpos"}), "");
  EXPECT_EQ(refused(gnomon::Range{-34556, -34559, -1}, {"positions", "-34558", "xpos"}), "");
}

}  // namespace
