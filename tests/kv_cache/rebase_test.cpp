// SPDX-License-Identifier: Apache-2.0
// Keys taken from one rule to another against keys rotated by the other; the key left as it is, and the wrong magnitudes, are told apart.
#include "recomputed.hpp"

namespace {

using namespace testing_support;
using gnomon::ErrorCode;
using gnomon::PairLayout;

constexpr std::int64_t B = 2, H = 3, T = 70, first = 3000;

struct Change {
  const char* name;
  gnomon::Frequencies from, to;
};

std::vector<Change> changes(PairLayout layout) {
  gnomon::RotarySpec plain{
      .rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 42, .rotary_dim = 38, .rotary_offset = 2, .layout = layout};
  const auto with = [&](const gnomon::RotaryRule& rule, double theta = 10000, std::optional<std::int64_t> length = std::nullopt) {
    auto spec = plain;
    spec.rule = rule;
    spec.theta = theta;
    return gnomon::frequencies(spec, gnomon::Numerics::exact, length);
  };
  const gnomon::rotary::Dynamic dynamic{.factor = 2, .max_position_embeddings = 2048};
  gnomon::rotary::Longrope longrope{};
  longrope.original_max_position_embeddings = 4096;
  longrope.factor = 32;
  for (int i = 0; i < 19; i++) longrope.short_factor.push_back(1), longrope.long_factor.push_back(1 + 0.5 * i);
  const gnomon::rotary::Yarn yarn{.factor = 8, .original_max_position_embeddings = 4096};
  const gnomon::RotaryRule none = gnomon::rotary::Default{};
  return {{"theta", with(none), with(none, 500000)},
          {"dynamic growth", with(dynamic, 10000, 2048), with(dynamic, 10000, 4096)},
          {"longrope short to long", with(longrope, 10000, 4096), with(longrope, 10000, 4097)},
          {"yarn on", with(none), with(yarn)},
          {"yarn off", with(yarn), with(none)},
          {"xpos off", with(gnomon::rotary::Xpos{.scale_base = 512, .centre = 2900}), with(none)},
          {"xpos on", with(none), with(gnomon::rotary::Xpos{.scale_base = 512, .centre = 2900})}};
}

using Rebase = OnEveryTarget;

template <class Element>
void every_change(PairLayout layout, Order order) {
  for (const auto& [name, from, to] : changes(layout)) {
    SCOPED_TRACE(name);
    std::vector<std::int64_t> positions;
    for (std::int64_t k = 0; k < B * T; k++) positions.push_back(first + k);
    const auto at = [](auto, auto b, auto t) { return first + b * T + t; };
    CachedKeys<Element> cache({B, H, T, 42}, order, from, gnomon::Ids{positions}, 11);
    ASSERT_LE(cache.share(from, at), 1);
    ASSERT_GT(cache.share(to, at), 20) << "the key left as it is would pass too";
    gnomon::rebase_keys(cache.keys.view(), from, to, gnomon::Ids{positions});
    ASSERT_LE(cache.share(to, at), 1);
    if (from.attention_factor == to.attention_factor) continue;
    auto wrong = to;
    wrong.attention_factor = to.attention_factor * to.attention_factor / from.attention_factor;
    ASSERT_GT(cache.share(wrong, at), 10) << "the ratio of magnitudes would not matter";
  }
}
TEST_P(Rebase, FromEveryRuleToAnother) {
  for (const auto layout : {PairLayout::half_split, PairLayout::interleaved}) {
    every_change<float>(layout, Order::bhtd), every_change<float>(layout, Order::backwards);
    every_change<std::uint16_t>(layout, Order::bthd), every_change<Half>(layout, Order::padded), every_change<double>(layout, Order::bhtd);
  }
}

/// The difference of turns borrows from the whole ones, which real positions need: inv_freq beyond one turn a position.
TEST_P(Rebase, AtRealPositions) {
  gnomon::RotarySpec fast{.rule = gnomon::rotary::Custom{.inv_freq_given = {7.5, 0.9}}, .theta = 0, .head_dim = 4, .rotary_dim = 4};
  auto slow = fast;
  slow.rule = gnomon::rotary::Custom{.inv_freq_given = {13.0, 0.2}};
  const auto from = gnomon::frequencies(fast), to = gnomon::frequencies(slow);
  const std::vector<double> positions{0.5, -3.25, 1000.75};
  for (const auto& [a, b] : {std::pair(&from, &to), std::pair(&to, &from)}) {
    CachedKeys<double> cache({1, 1, 3, 4}, Order::bhtd, *a, gnomon::Reals{positions}, 12);
    gnomon::rebase_keys(cache.keys.view(), *a, *b, gnomon::Reals{positions});
    EXPECT_LE(cache.share(*b, [&](auto, auto, auto t) { return positions[static_cast<std::size_t>(t)]; }), 1);
  }
}
INSTANTIATE_TEST_SUITE_P(EveryTarget, Rebase, testing::ValuesIn(targets()), target_name);

TEST(T20, DynamicNtkAndCachedKeys) {  // transformers/issues/25104, Jjama3.jl/issues/7
  const gnomon::RotarySpec spec{
      .rule = gnomon::rotary::Dynamic{.factor = 2, .max_position_embeddings = 2048}, .theta = 10000, .head_dim = 128, .rotary_dim = 128};
  const auto from = gnomon::frequencies(spec, gnomon::Numerics::exact, 2048), to = gnomon::frequencies(spec, gnomon::Numerics::exact, 4096);
  CachedKeys<double> cache({1, 1, 1, 128}, Order::bhtd, from, gnomon::Range{1000, 1001}, 13);
  const auto before = cache.keys;
  gnomon::rebase_keys(cache.keys.view(), from, to, gnomon::Range{1000, 1001});
  const auto angle = [&](int pair) {  // by which the pair was turned
    const auto at = [&](const Strided<double>& keys) { return std::atan2(keys.at(0, 0, 0, pair + 64), keys.at(0, 0, 0, pair)); };
    return at(cache.keys) - at(before);
  };
  const auto same_turn = [](double a, double b) { return std::abs(std::remainder(a - b, 2 * 3.14159265358979323846)) < 1e-10; };
  EXPECT_TRUE(same_turn(angle(0), 0));
  EXPECT_TRUE(same_turn(angle(1), -14.9700320188));
  EXPECT_TRUE(same_turn(angle(32), -4.27661849162));
  EXPECT_NEAR(std::cos(angle(1)), -0.740, 5e-4);
  EXPECT_NEAR(std::cos(angle(32)), -0.422, 5e-4);
  EXPECT_FALSE(same_turn(0, -14.9700320188)) << "the key left as it is would pass too";
  EXPECT_FALSE(same_turn(-angle(1), -14.9700320188)) << "the sign would not matter";
}

TEST(RebaseRefuses, RotationsThatDoNotFitToEachOther) {
  std::vector<float> memory(64);
  const gnomon::TensorView keys{memory.data(), gnomon::DType::f32, {1, 1, 4, 8}, {32, 32, 8, 1}};
  const gnomon::RotarySpec spec{.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 8, .rotary_dim = 8};
  const auto from = gnomon::frequencies(spec);
  const auto fault = [&](const gnomon::Rotation& to, ErrorCode code, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::rebase_keys(keys, from, to, gnomon::Range{0, 4}); }, code, words);
  };
  auto narrow = spec, other = spec;
  narrow.rotary_dim = 6;
  EXPECT_EQ(fault(gnomon::frequencies(narrow), ErrorCode::invalid_argument, {"to", "pairs", "4", "3"}), "");
  other.layout = PairLayout::interleaved;
  EXPECT_EQ(fault(gnomon::frequencies(other), ErrorCode::invalid_argument, {"to", "layout"}), "");
  gnomon::Rotation axes = from;
  const std::uint8_t axis[] = {0, 1, 0, 1};
  axes.axis = axis;
  EXPECT_EQ(fault(axes, ErrorCode::invalid_argument, {"to", "axes", "1", "2"}), "");
  const auto table = gnomon::rotary_table(from, gnomon::Range{0, 10});
  EXPECT_EQ(fault(table, ErrorCode::unsupported, {"to", "table"}), "");
  gnomon::Rotation zero = from;
  zero.magnitude = 0;
  EXPECT_EQ(refusal_fault([&] { gnomon::rebase_keys(keys, zero, from, gnomon::Range{0, 4}); }, ErrorCode::invalid_argument,
                          {"from", "magnitude"}),
            "");
  gnomon::RotarySpec xpos{.rule = gnomon::rotary::Xpos{.centre = 0}, .theta = 10000, .head_dim = 8, .rotary_dim = 8}, moved = xpos;
  moved.rule = gnomon::rotary::Xpos{.centre = 9};
  const auto a = gnomon::frequencies(xpos), b = gnomon::frequencies(moved);
  EXPECT_EQ(
      refusal_fault([&] { gnomon::rebase_keys(keys, a, b, gnomon::Range{0, 4}); }, ErrorCode::unsupported, {"to", "centre", "0", "9"}), "");
}

}  // namespace
