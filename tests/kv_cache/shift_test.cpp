// SPDX-License-Identifier: Apache-2.0
// Moved keys against keys rotated where they are now; each wrong way that people took is told apart.
#include "recomputed.hpp"

namespace {

using namespace testing_support;
using gnomon::ErrorCode;
using gnomon::PairLayout;

constexpr std::int64_t B = 2, H = 3, T = 2 * 64 + 5, first = 1000;

gnomon::RotarySpec yarn(PairLayout layout) {
  return {.rule = gnomon::rotary::Yarn{.factor = 8, .original_max_position_embeddings = 4096},
          .theta = 10000,
          .head_dim = 42,
          .rotary_dim = 38,
          .rotary_offset = 2,
          .layout = layout};
}

using Shift = OnEveryTarget;

/// One delta for each sequence; contiguous caches, heads inside tokens, and strides of every kind.
template <class Element>
void by_sequence(PairLayout layout, Order order) {
  const auto frequencies = gnomon::frequencies(yarn(layout));
  ASSERT_GT(frequencies.attention_factor, 1.2);
  const std::int64_t deltas[] = {-900, 1 << 20};
  CachedKeys<Element> cache({B, H, T, 42}, order, frequencies, gnomon::Range{first, first + T}, 5);
  const auto untouched = cache.keys;
  gnomon::shift_keys(cache.keys.view(), frequencies, deltas);
  const auto moved = [&](auto, auto b, auto t) { return first + t + deltas[b]; };
  ASSERT_LE(cache.share(frequencies, moved), 1);
  ASSERT_GT(cache.share(frequencies, [&](auto, auto, auto t) { return first + t; }), 20) << "keys left as they were would pass too";
  ASSERT_GT(cache.share(frequencies, [&](auto, auto b, auto t) { return first + t - deltas[b]; }), 20) << "the sign would not matter";
  ASSERT_GT(cache.share(frequencies, [&](auto, auto, auto t) { return first + t + deltas[0]; }), 20) << "one delta for all would pass too";
  auto rest = cache.keys;
  rest.each([&](auto b, auto h, auto t, auto d) {
    if (d >= 2 && d < 40) rest.at(b, h, t, d) = untouched.at(b, h, t, d);
  });
  ASSERT_EQ(std::memcmp(rest.memory.data(), untouched.memory.data(), rest.memory.size() * sizeof(Element)), 0) << "other memory changed";

  CachedKeys<Element> twice({B, H, T, 42}, order, frequencies, gnomon::Range{first, first + T}, 5);
  gnomon::rotate(twice.keys.view(), frequencies, gnomon::Range{deltas[0], deltas[0] + T});  // any positions: the size alone tells
  ASSERT_GT(twice.share(frequencies, [&](auto, auto, auto t) { return first + t + deltas[0] + t; }), 20)
      << "the magnitude applied twice would pass too";
}
TEST_P(Shift, EachSequenceByItsDelta) {
  for (const auto layout : {PairLayout::half_split, PairLayout::interleaved}) {
    for (const auto order : all_orders) {
      by_sequence<float>(layout, order), by_sequence<std::uint16_t>(layout, order), by_sequence<Half>(layout, order);
    }
    by_sequence<double>(layout, Order::bthd);
  }
}

TEST_P(Shift, EachTokenByItsDelta) {  // self-extend: p becomes p / 4
  const auto frequencies = gnomon::frequencies(yarn(PairLayout::half_split));
  CachedKeys<float> cache({B, H, T, 42}, Order::bhtd, frequencies, gnomon::Range{first, first + T}, 6);
  std::vector<std::int64_t> deltas;
  for (std::int64_t t = 0; t < T; t++) deltas.push_back((first + t) / 4 - (first + t));
  gnomon::shift_keys(cache.keys.view(), frequencies, gnomon::Ids{deltas});
  EXPECT_LE(cache.share(frequencies, [](auto, auto, auto t) { return (first + t) / 4; }), 1);
  EXPECT_GT(cache.share(frequencies, [](auto, auto, auto t) { return first + t; }), 100);
}

/// M-RoPE with image tokens: each axis has its own positions and its own delta.
TEST_P(Shift, EachAxisByItsDelta) {
  gnomon::RotarySpec spec{.rule = gnomon::rotary::Default{}, .theta = 1e6, .head_dim = 128, .rotary_dim = 128};
  spec.sections = {16, 24, 24};
  const auto frequencies = gnomon::frequencies(spec);
  std::vector<std::int64_t> positions;
  for (std::int64_t axis = 0; axis < 3; axis++)
    for (std::int64_t t = 0; t < T; t++) positions.push_back(axis == 0 ? 7 : axis == 1 ? t / 8 : t % 8);
  CachedKeys<float> cache({B, H, T, 128}, Order::bhtd, frequencies, gnomon::Ids{positions}, 7);
  const std::int64_t deltas[] = {100, 200, -300, 400, 500, 600};  // (axes, B)
  gnomon::shift_keys(cache.keys.view(), frequencies, deltas);
  const auto at = [&](auto axis, auto t) { return positions[static_cast<std::size_t>(axis * T + t)]; };
  EXPECT_LE(cache.share(frequencies, [&](auto axis, auto b, auto t) { return at(axis, t) + deltas[axis * 2 + b]; }), 1);
  EXPECT_GT(cache.share(frequencies, [&](auto axis, auto b, auto t) { return at(axis, t) + deltas[b]; }), 100)
      << "the first axis' delta for all axes would pass too";
  EXPECT_GT(cache.share(frequencies, [&](auto axis, auto b, auto t) { return at(axis, t) + deltas[b * 3 + axis]; }), 100)
      << "deltas in the order (B, axes) would pass too";
}

TEST_P(Shift, XposAlsoTakesItsFactorForTheDistance) {
  const gnomon::RotarySpec spec{
      .rule = gnomon::rotary::Xpos{.scale_base = 512, .centre = 700}, .theta = 10000, .head_dim = 64, .rotary_dim = 64};
  const auto frequencies = gnomon::frequencies(spec);
  CachedKeys<float> cache({B, H, T, 64}, Order::bthd, frequencies, gnomon::Range{first, first + T}, 8);
  const std::int64_t delta = -800;
  gnomon::shift_keys(cache.keys.view(), frequencies, std::span(&delta, 1));
  EXPECT_LE(cache.share(frequencies, [&](auto, auto, auto t) { return first + t + delta; }), 1);
  auto plain = frequencies;
  plain.log_magnitude.clear();
  CachedKeys<float> turned({B, H, T, 64}, Order::bthd, frequencies, gnomon::Range{first, first + T}, 8);
  gnomon::shift_keys(turned.keys.view(), plain, std::span(&delta, 1));
  EXPECT_GT(turned.share(frequencies, [&](auto, auto, auto t) { return first + t + delta; }), 1e4) << "a pure rotation would pass too";
}

TEST_P(Shift, AnyNumberOfThreadsGivesTheSameBits) {
  const auto frequencies = gnomon::frequencies(yarn(PairLayout::half_split));
  gnomon::ThreadPool pool(5);
  const std::int64_t deltas[] = {-31, 17};
  CachedKeys<std::uint16_t> alone({B, 8, 1500, 42}, Order::bhtd, frequencies, gnomon::Range{0, 1500}, 9), together = alone;
  gnomon::shift_keys(alone.keys.view(), frequencies, deltas);
  gnomon::shift_keys(together.keys.view(), frequencies, deltas, &pool);
  EXPECT_TRUE(same_tensor(alone.keys, together.keys));
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, Shift, testing::ValuesIn(targets()), target_name);

/// YaRN, factor 8: the magnitude of a cached key after a shift, over that of the unrotated key.
TEST(T12, TheMagnitudeIsAppliedOnce) {  // sglang/pull/33558, TensorRT-LLM/pull/16379
  for (const auto& [factor, magnitude] :
       {std::pair(8.0, 1.20794415416798), std::pair(32.0, 1.34657359027997), std::pair(128.0, 1.48520302639196)}) {
    const gnomon::RotarySpec spec{.rule = gnomon::rotary::Yarn{.factor = factor, .original_max_position_embeddings = 4096},
                                  .theta = 10000,
                                  .head_dim = 64,
                                  .rotary_dim = 64};
    const auto frequencies = gnomon::frequencies(spec);
    CachedKeys<double> cache({1, 1, 1, 64}, Order::bhtd, frequencies, gnomon::Range{100, 101}, 3);
    const auto ratio = [&] {
      double before = 0, after = 0;
      for (int d = 0; d < 64; d++) before += std::pow(cache.unrotated.at(0, 0, 0, d), 2), after += std::pow(cache.keys.at(0, 0, 0, d), 2);
      return std::sqrt(after / before);
    };
    const std::int64_t delta = -50;
    gnomon::shift_keys(cache.keys.view(), frequencies, std::span(&delta, 1));
    EXPECT_NEAR(ratio(), magnitude, 1e-13);
    cache.rotate(frequencies, gnomon::Range{-50, -49});  // what a shift with the first rotation's magnitude does
    EXPECT_NEAR(ratio(), magnitude * magnitude, 1e-13);
  }
}

TEST(T22, AContextShiftIsOneRotation) {  // llama.cpp/issues/4097, 5652, 9743; transformers/issues/35350
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 4, .rotary_dim = 4});
  const auto shifted = [&](std::vector<double> key, std::int64_t delta) {
    gnomon::shift_keys({key.data(), gnomon::DType::f64, {1, 1, 1, 4}, {4, 4, 4, 1}}, frequencies, std::span(&delta, 1));
    return key;
  };
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return std::abs(x - y) < 6e-12; });
  };
  const std::vector<double> at_seven{-1.21705754181, 1.71533061116, 2.91869336175, 4.13008969569};
  const std::vector<double> at_four{1.61676386506, 1.83844287658, -2.71773335790, 4.07677909502};
  EXPECT_TRUE(near(shifted({1, 2, 3, 4}, 7), at_seven));
  EXPECT_TRUE(near(shifted(at_seven, -3), at_four));
  EXPECT_FALSE(near(shifted(at_seven, 3), at_four)) << "the sign would not matter";
}

TEST(T22, ManySmallStepsAreNotOneLargeOne) {
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 4, .rotary_dim = 4});
  const auto moved = [&]<class Element>(Element, std::int64_t steps) {
    Strided<Element> key({1, 1, 1, 4}, Order::bhtd);
    for (int d = 0; d < 4; d++) key.at(0, 0, 0, d) = encode<Element>(d + 1);
    gnomon::rotate(key.view(), frequencies, gnomon::Range{1000, 1001});
    const std::int64_t delta = -1000 / steps;
    for (std::int64_t step = 0; step < steps; step++) gnomon::shift_keys(key.view(), frequencies, std::span(&delta, 1));
    std::vector<double> result;
    for (int d = 0; d < 4; d++) result.push_back(decode(key.at(0, 0, 0, d)));
    return result;
  };
  EXPECT_EQ(moved(std::uint16_t{}, 1), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(moved(std::uint16_t{}, 1000), (std::vector<double>{-0.255859375, 2.8125, 3.15625, 3.65625})) << "useless, and known to be";
  const auto small = moved(float{}, 1000);  // the errors of cos and sin (1.2e-7) add up; with those in double 2.4e-6 is left
  for (int d = 0; d < 4; d++) EXPECT_NEAR(small[static_cast<std::size_t>(d)], d + 1, 1000 * 1.2e-7 * 5);
}

TEST(ShiftRefuses, WhatItCannotDo) {
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 4, .rotary_dim = 4});
  std::vector<float> memory(64);
  const gnomon::TensorView keys{memory.data(), gnomon::DType::f32, {2, 2, 4, 4}, {32, 16, 4, 1}};
  const std::vector<std::int64_t> one{1}, three{1, 2, 3}, far{std::int64_t{1} << 34};
  const auto fault = [&](const gnomon::TensorView& view, const gnomon::Rotation& rotation, const std::vector<std::int64_t>& deltas,
                         ErrorCode code, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::shift_keys(view, rotation, deltas); }, code, words);
  };
  EXPECT_EQ(fault(keys, frequencies, three, ErrorCode::invalid_argument, {"deltas", "1 or 1 x 2", "3"}), "");
  EXPECT_EQ(fault(keys, frequencies, far, ErrorCode::out_of_range, {"2^33"}), "");
  const auto table = gnomon::rotary_table(frequencies, gnomon::Range{0, 10});
  EXPECT_EQ(fault(keys, table, one, ErrorCode::unsupported, {"rotation", "table"}), "");
  const auto hf = gnomon::frequencies(frequencies.spec, gnomon::Numerics::hf);
  EXPECT_EQ(refusal_fault([&] { gnomon::shift_keys(keys, hf, one); }, ErrorCode::unsupported, {"hf"}), "");
  auto other = keys;
  other.shape[3] = 2;
  EXPECT_EQ(fault(other, frequencies, one, ErrorCode::invalid_argument, {"keys", "4", "2"}), "");
  other = keys;
  other.strides[0] = 0;
  EXPECT_EQ(fault(other, frequencies, one, ErrorCode::invalid_argument, {"keys", "share memory"}), "");
  const auto xpos = gnomon::frequencies({.rule = gnomon::rotary::Xpos{}, .theta = 10000, .head_dim = 4, .rotary_dim = 4});
  EXPECT_EQ(fault(keys, xpos, {1 << 20}, ErrorCode::out_of_range, {"xpos"}), "");
}

}  // namespace
