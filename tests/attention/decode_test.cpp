// SPDX-License-Identifier: Apache-2.0
// Few queries against a long cache: the decode kernel against the double reference, on every CPU target.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gnomon/attention.hpp"
#include "operations/decode.hpp"
#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"
#include "support/turned.hpp"

namespace {

using namespace testing_support;
using gnomon::AttentionOptions;

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class Element>
struct Call {
  Strided<Element> q, k, v, out;
  std::vector<float> log_sum_exp, maximum;

  Call(std::int64_t batch, std::int64_t kv_heads, std::int64_t group, std::int64_t queries, std::int64_t keys, std::int64_t width,
       std::int64_t value_width, std::uint64_t seed = 1, Order order = Order::padded)
      : q({batch, kv_heads * group, queries, width}, Order::bthd),
        k({batch, kv_heads, keys, width}, order),
        v({batch, kv_heads, keys, value_width}, order),
        out({batch, kv_heads * group, queries, value_width}, Order::interleaved) {
    SequenceDraw draw(seed);
    q.fill(draw), k.fill(draw), v.fill(draw), out.fill_with_bits(draw);
  }
  void run(AttentionOptions options) {
    const gnomon::CacheView cache{k.view(), v.view(), k.shape[2]};
    ASSERT_TRUE(gnomon::decode_fits(q.view(), cache, options)) << "another implementation would be tested";
    log_sum_exp.assign(static_cast<std::size_t>(out.shape[0] * out.shape[1] * out.shape[2]), 7);
    maximum = log_sum_exp;
    options.log_sum_exp = log_sum_exp.data();
    options.maximum = maximum.data();
    gnomon::attention(std::as_const(q).view(), std::as_const(k).view(), std::as_const(v).view(), out.view(), options);
  }
  /// The worst error over what is allowed, of the result and of the two numbers a row, against the reference with these options.
  double share(AttentionOptions options) const {
    const auto q2 = converted<double>(q), k2 = converted<double>(k), v2 = converted<double>(v);
    Strided<double> truth(out.shape, Order::bhtd);
    auto lse = log_sum_exp, most = maximum;
    options.log_sum_exp = lse.data();
    options.maximum = most.data();
    gnomon::reference::attention(q2.view(), k2.view(), v2.view(), truth.view(), options);
    double worst = 0;
    const auto take = [&](double got, double expected, double bound) {
      if (std::isnan(got) != std::isnan(expected)) worst = HUGE_VAL;
      if (std::isnan(got) || got == expected) return;
      worst = std::max(worst, std::abs(got - expected) / bound);
    };
    out.each([&](auto b, auto h, auto t, auto d) {
      const double expected = truth.at(b, h, t, d);
      take(decode(out.at(b, h, t, d)), expected, 3e-6 + half_ulp<Element>(std::abs(expected) + 3e-6));
    });
    for (std::size_t i = 0; i < lse.size(); i++) {
      const double size = std::max(1.0, std::abs(static_cast<double>(lse[i])));
      take(static_cast<double>(log_sum_exp[i]), static_cast<double>(lse[i]), 2e-6 * size);
      take(static_cast<double>(maximum[i]), static_cast<double>(most[i]), 2e-6 * size);
    }
    return worst;
  }
};

using Decode = OnEveryTarget;

template <class Element>
void shapes() {
  struct Shape4 {
    std::int64_t group, queries, keys, width, value_width;
  };
  for (const auto& s : {Shape4{1, 1, 4097, 128, 128},
                        {4, 1, 1025, 64, 64},
                        {1, 1, 0, 8, 8},
                        {3, 1, 1, 40, 40},
                        {2, 1, 7, 96, 24},
                        {8, 1, 1023, 72, 72},
                        {4, 1, 1024, 80, 33},
                        {1, 2, 65, 17, 256},
                        {5, 3, 64, 250, 7},
                        {16, 1, 63, 128, 128},
                        {1, 16, 130, 1, 1},
                        {2, 1, 1100, 576, 512}}) {
    SCOPED_TRACE(testing::Message() << s.group << " heads, " << s.queries << " queries, " << s.keys << " keys, widths " << s.width << ", "
                                    << s.value_width);
    for (const auto order : {Order::bhtd, Order::bthd, Order::backwards}) {
      if (s.keys > 1000 && order != Order::bthd) continue;
      Call<Element> call(s.keys > 1000 ? 1 : 2, 2, s.group, s.queries, s.keys, s.width, s.value_width, 1, order);
      const auto memory = call.out;
      call.run({});
      ASSERT_LE(call.share({}), 1);
      if (s.keys > 1) {
        AttentionOptions wrong;
        wrong.scale = 1.01 / std::sqrt(static_cast<double>(s.width));
        ASSERT_GT(call.share(wrong), 1.5) << "any scale would pass";
      }
      auto rest = call.out;
      rest.each([&](auto b, auto h, auto t, auto d) { rest.at(b, h, t, d) = memory.at(b, h, t, d); });
      ASSERT_EQ(std::memcmp(rest.memory.data(), memory.memory.data(), rest.memory.size() * sizeof(Element)), 0) << "memory outside out";
    }
  }
}
TEST_P(Decode, EveryShape) { shapes<float>(), shapes<std::uint16_t>(), shapes<Half>(); }

/// Every way to see a part of the keys; what nobody sees holds NaN, and so do values.
template <class Element>
void masks() {
  const std::int32_t ends[] = {700, 1100}, begins[] = {3, 1030};
  for (int which = 0; which < 6; which++) {
    SCOPED_TRACE(which);
    constexpr std::int64_t T = 3, K = 1100;
    gnomon::MaskOptions wanted;
    wanted.queries = T;
    wanted.keys = K;
    wanted.right = 0;
    if (which >= 1) wanted.left = 40;
    if (which >= 2) wanted.keep_first = 5;
    if (which >= 3) wanted.key_end = ends;
    if (which >= 4) wanted.key_begin = begins;
    if (which == 5) wanted.left = 0;
    const auto mask = gnomon::key_intervals(wanted);
    Call<Element> call(2, 2, 2, T, K, 64, 64);
    for (std::int64_t b = 0; b < 2; b++)
      for (std::int64_t j = 0; j < K; j++) {
        bool seen = false;
        for (std::int64_t t = 0; t < T; t++) seen = seen || mask.sees(b, t, j);
        if (seen) continue;
        for (std::int64_t h = 0; h < 2; h++) call.k.at(b, h, j, 5) = call.v.at(b, h, j, 6) = encode<Element>(std::nan(""));
      }
    AttentionOptions options;
    options.mask = &mask;
    call.run(options);
    ASSERT_LE(call.share(options), 1);
    auto moved = mask;  // off by one key
    for (auto& end : moved.end) end = std::max(end - 1, 0);
    for (std::size_t i = 0; i < moved.begin.size(); i++) moved.begin[i] = std::min(moved.begin[i], moved.end[i]);
    options.mask = &moved;
    ASSERT_GT(call.share(options), 2);
    if (which >= 2) {
      auto without = mask;
      without.keep_first = 0;
      options.mask = &without;
      ASSERT_GT(call.share(options), 2) << "the sinks would not matter";
    }
  }
}
TEST_P(Decode, MasksAndWhatTheyHide) { masks<float>(), masks<std::uint16_t>(); }

TEST_P(Decode, NaNReachesItsOwnRowOnly) {
  const auto mask = gnomon::key_intervals([] {
    gnomon::MaskOptions wanted;
    wanted.queries = 2;
    wanted.keys = 70;
    wanted.right = 0;
    return wanted;
  }());
  AttentionOptions options;
  options.mask = &mask;
  for (int which = 0; which < 3; which++) {
    Call<float> call(1, 1, 2, 2, 70, 32, 32);
    if (which == 0) call.k.at(0, 0, 69, 3) = std::nanf("");  // the last key, which query 1 alone sees
    if (which == 1) call.v.at(0, 0, 69, 3) = std::nanf("");
    if (which == 2) call.q.at(0, 0, 1, 3) = std::nanf("");  // T16 (e)
    call.run(options);
    EXPECT_LE(call.share(options), 1);
    EXPECT_TRUE(std::isnan(call.out.at(0, 0, 1, 3)));
    EXPECT_FALSE(std::isnan(call.out.at(0, 0, 0, 3)));
    EXPECT_EQ(std::isnan(call.out.at(0, 1, 1, 3)), which != 2);
  }
}

template <class Element>
void options_of_every_kind() {
  constexpr std::int64_t T = 2, K = 1500, H = 8;
  Call<Element> call(2, 2, 4, T, K, 64, 64, 3);
  gnomon::MaskOptions wanted;
  wanted.queries = T;
  wanted.keys = K;
  wanted.right = 0;
  const auto mask = gnomon::key_intervals(wanted);
  SequenceDraw draw(8);
  gnomon::SlopeBias slopes;
  gnomon::DistanceBias distances{H, -300, 290, {}};
  std::vector<float> sinks, factors;
  for (int h = 0; h < H; h++) slopes.slopes.push_back(std::exp2(-static_cast<float>(h) - 1)), sinks.push_back(static_cast<float>(h) - 3);
  for (int i = 0; i < H * 290; i++) distances.values.push_back(static_cast<float>(draw.whole(-1000, 1000)) * 2e-3f);
  for (int i = 0; i < 2 * T; i++) factors.push_back(0.5f + static_cast<float>(i));
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 64, .rotary_dim = 64});
  const gnomon::BiasTable both[] = {slopes, distances};
  auto other_slopes = slopes;
  std::swap(other_slopes.slopes[0], other_slopes.slopes[1]);
  const gnomon::BiasTable swapped[] = {other_slopes, distances};
  AttentionOptions options;
  const auto check = [&](const char* what, const AttentionOptions& wrong) {
    SCOPED_TRACE(what);
    call.run(options);
    ASSERT_LE(call.share(options), 1);
    ASSERT_GT(call.share(wrong), 2) << "would pass without it";
  };
  auto before = options;
  options.bias = both;
  before.bias = swapped;
  check("biases without a mask: distance 0 at the last query's own key", before);
  before = options;
  options.mask = &mask;
  check("causal", before);
  before = options;
  options.softcap = 5;
  check("softcap", before);
  before = options;
  options.sink_logits = sinks;
  check("sink logits", before);
  before = options;
  options.query_factors = factors;
  check("query factors", before);
  before = options;
  options.rotate_queries = gnomon::RotationOnLoad{frequencies, gnomon::Range{K - T, K}};
  check("rotated queries", before);
  before = options;
  options.scale = 0.3;
  check("scale", before);
}
TEST_P(Decode, EveryOption) { options_of_every_kind<float>(), options_of_every_kind<std::uint16_t>(), options_of_every_kind<Half>(); }

TEST_P(Decode, ExtremeScores) {
  for (const float size : {0.0f, 1e4f, -1e4f, 1e18f}) {
    Call<float> call(1, 1, 4, 1, 300, 64, 64);
    for (std::int64_t j = 0; j < 300; j++) call.k.at(0, 0, j, 0) = size;
    for (std::int64_t h = 0; h < 4; h++) call.q.at(0, h, 0, 0) = 8;
    if (size == 1e18f) call.k.at(0, 0, 7, 0) = 2e18f;  // one key takes it all
    AttentionOptions options;
    options.scale = size == 1e18f ? 1e-3 : 1;
    for (std::int64_t j = 0; j < 300; j++)
      for (std::int64_t d = 1; d < 64; d++) call.k.at(0, 0, j, d) = 0;
    call.run(options);
    EXPECT_LE(call.share(options), 1) << size;
  }
  Call<float> hidden(1, 1, 2, 1, 100, 16, 16);  // scores of −inf: as if no key were seen
  for (std::int64_t j = 0; j < 100; j++) hidden.k.at(0, 0, j, 0) = -infinity;
  for (std::int64_t h = 0; h < 2; h++) hidden.q.at(0, h, 0, 0) = 1;
  hidden.run({});
  EXPECT_EQ(hidden.out.at(0, 0, 0, 0), 0);
  EXPECT_EQ(hidden.log_sum_exp[0], -infinity);
  EXPECT_LE(hidden.share({}), 1);
}

TEST_P(Decode, AnyNumberOfThreadsGivesTheSameBits) {
  Call<std::uint16_t> call(2, 2, 4, 1, 5000, 64, 64);
  call.run({});
  const auto alone = call;
  for (const std::size_t threads : {2, 3, 7}) {
    gnomon::ThreadPool pool(threads);
    AttentionOptions options;
    options.executor = &pool;
    call.run(options);
    EXPECT_TRUE(same_tensor(alone.out, call.out));
    EXPECT_EQ(alone.log_sum_exp, call.log_sum_exp);
    EXPECT_EQ(alone.maximum, call.maximum);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, Decode, testing::ValuesIn(targets()), target_name);

TEST(T16, DecodeOfOneQuery) {  // (d): slope 0.5, head width 2, q = (1, 0) at position 2
  Call<float> call(1, 1, 1, 1, 3, 2, 1);
  const float keys[][2] = {{1, 0}, {0, 1}, {1, 1}};
  for (std::int64_t j = 0; j < 3; j++) {
    call.k.at(0, 0, j, 0) = keys[j][0], call.k.at(0, 0, j, 1) = keys[j][1];
    call.v.at(0, 0, j, 0) = static_cast<float>(j + 1);
  }
  call.q.at(0, 0, 0, 0) = 1, call.q.at(0, 0, 0, 1) = 0;
  const gnomon::BiasTable slope[] = {gnomon::SlopeBias{{0.5f}}}, wrong[] = {gnomon::SlopeBias{{-0.5f}}};
  AttentionOptions options;
  options.bias = slope;
  call.run(options);
  EXPECT_NEAR(call.out.at(0, 0, 0, 0), 2.37920998108, 1e-6);
  options.bias = wrong;
  call.run(options);
  EXPECT_GT(std::abs(call.out.at(0, 0, 0, 0) - 2.37920998108f), 0.1f);
}

}  // namespace
