// SPDX-License-Identifier: Apache-2.0
// Attention statistics: against mathematics where the weights are known, and the kernels against the double reference.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "gnomon/attention_statistics.hpp"
#include "support/elements.hpp"
#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;
using gnomon::AttentionOptions;
using gnomon::ErrorCode;

struct Sizes {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, width = 8;
};

/// All that can be measured, with its memory.
struct Measured {
  std::vector<float> mass, entropy, maximum, mean_distance, first_mass, window_mass;
  std::vector<double> mass_by_distance;

  std::vector<std::vector<float>*> rows() { return {&mass, &entropy, &maximum, &mean_distance, &first_mass, &window_mass}; }
  gnomon::AttentionStatistics into(const Sizes& s, std::span<const std::int64_t> edges) {
    for (auto* list : rows()) list->assign(static_cast<std::size_t>(s.batch * s.heads * s.queries), -7.0f);
    mass_by_distance.assign(static_cast<std::size_t>(s.batch * s.heads) * (edges.size() - 1), -7.0);
    gnomon::AttentionStatistics to;
    to.first_keys = 3;
    to.window = 9;
    to.distance_edges = edges;
    to.mass = mass;
    to.entropy = entropy;
    to.maximum = maximum;
    to.mean_distance = mean_distance;
    to.first_mass = first_mass;
    to.window_mass = window_mass;
    to.mass_by_distance = mass_by_distance;
    return to;
  }
};

/// Inputs of a call, and the memory its options look at.
template <class Element>
struct Call {
  Sizes sizes;
  Strided<Element> q, k;
  AttentionOptions options;
  std::optional<gnomon::KeyIntervals> mask;
  std::vector<gnomon::BiasTable> bias;
  std::vector<float> sinks, factors, additive;
  std::vector<std::uint8_t> allowed;
  std::optional<gnomon::Frequencies> frequencies;
  std::vector<std::int64_t> edges{-40, -3, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

  explicit Call(const Sizes& s, Order order = Order::bhtd, std::uint64_t seed = 1)
      : sizes(s), q({s.batch, s.heads, s.queries, s.width}, order), k({s.batch, s.kv_heads, s.keys, s.width}, order) {
    SequenceDraw draw(seed);
    q.fill(draw);
    k.fill(draw);
  }
  Call(const Call&) = delete;

  void see(gnomon::MaskOptions wanted) {
    wanted.queries = sizes.queries;
    wanted.keys = sizes.keys;
    mask = gnomon::key_intervals(wanted);
    options.mask = &*mask;
  }
  void causal() {
    gnomon::MaskOptions wanted;
    wanted.right = 0;
    see(wanted);
  }
  void equal_scores() {
    for (auto* x : {&q, &k}) x->each([&](auto b, auto h, auto t, auto d) { x->at(b, h, t, d) = encode<Element>(0); });
  }

  std::vector<float> log_sum_exp() const {
    const auto& s = sizes;
    std::vector<float> result(static_cast<std::size_t>(s.batch * s.heads * s.queries));
    const auto q64 = converted<double>(q), k64 = converted<double>(k);
    const Strided<double> v({s.batch, s.kv_heads, s.keys, 1}, Order::bhtd);
    Strided<double> out({s.batch, s.heads, s.queries, 1}, Order::bhtd);
    AttentionOptions forward = options;
    forward.log_sum_exp = result.data();
    gnomon::reference::attention(q64.view(), k64.view(), v.view(), out.view(), forward);
    return result;
  }
  Measured measure(gnomon::Executor* executor = nullptr) const {
    Measured got;
    AttentionOptions given = options;
    given.executor = executor;
    gnomon::attention_statistics(q.view(), k.view(), log_sum_exp(), got.into(sizes, edges), given);
    return got;
  }
  Measured truth() const {
    Measured wanted;
    const auto q64 = converted<double>(q), k64 = converted<double>(k);
    gnomon::reference::attention_statistics(q64.view(), k64.view(), wanted.into(sizes, edges), options);
    return wanted;
  }
};

testing::AssertionResult near(Measured got, Measured wanted, const Sizes& sizes) {
  const char* const names[] = {"mass", "entropy", "maximum", "mean_distance", "first_mass", "window_mass"};
  for (std::size_t i = 0; i < 6; i++) {
    const double bound = i == 3 ? 4e-6 * static_cast<double>(sizes.keys) : 1e-5;
    for (std::size_t at = 0; at < got.mass.size(); at++) {
      const auto a = static_cast<double>((*got.rows()[i])[at]), b = static_cast<double>((*wanted.rows()[i])[at]);
      if (!(std::abs(a - b) <= bound)) return testing::AssertionFailure() << names[i] << "[" << at << "]: got " << a << ", expected " << b;
    }
  }
  for (std::size_t at = 0; at < got.mass_by_distance.size(); at++) {
    const double a = got.mass_by_distance[at], b = wanted.mass_by_distance[at];
    if (!(std::abs(a - b) <= 1e-5 * static_cast<double>(sizes.queries)))
      return testing::AssertionFailure() << "mass_by_distance[" << at << "]: got " << a << ", expected " << b;
  }
  return testing::AssertionSuccess();
}

// Equal scores: every weight is 1 / n, so that everything measured has a formula. Both the kernel and the reference must meet it.
class EqualScores : public testing::TestWithParam<bool> {
 protected:
  template <class Element>
  static Measured of(const Call<Element>& call) {
    return GetParam() ? call.truth() : call.measure();
  }
};
INSTANTIATE_TEST_SUITE_P(ByWhom, EqualScores, testing::Bool(), [](const auto& by) { return by.param ? "reference" : "kernel"; });

TEST_P(EqualScores, HaveTheEntropyOfTheirNumber) {
  Call<float> call({1, 1, 1, 100, 100, 8});
  call.equal_scores();
  call.causal();
  const auto got = of(call);
  for (std::size_t t = 0; t < 100; t++) {
    const double n = static_cast<double>(t) + 1;
    EXPECT_NEAR(got.entropy[t], std::log(n), 1e-5);
    EXPECT_TRUE(t == 0 || std::abs(got.entropy[t] - std::log2(n)) > 0.1) << "bits would pass";
    EXPECT_NEAR(got.maximum[t], 1 / n, 1e-6);
    EXPECT_NEAR(got.mass[t], 1, 1e-6);
  }
  EXPECT_EQ(got.entropy[0], 0);  // one key
  EXPECT_EQ(got.mean_distance[0], 0);
}

TEST_P(EqualScores, CountDistanceBackwards) {
  Call<float> call({1, 1, 1, 100, 100, 8});
  call.equal_scores();
  call.causal();
  const auto got = of(call);
  for (std::size_t t = 0; t < 100; t++) EXPECT_NEAR(got.mean_distance[t], static_cast<double>(t) / 2, 1e-4);
  EXPECT_GT(got.mean_distance[99] - -49.5f, 90) << "key - query would pass";
  // Bin [8, 16) of edges that start at -40, -3, 0, 1, 2, 4, 8: query t has so many keys there, of weight 1 / (t + 1).
  double wanted = 0;
  for (int t = 8; t < 100; t++) wanted += static_cast<double>(std::min(t, 15) - 7) / (t + 1);
  EXPECT_NEAR(got.mass_by_distance[6], wanted, 1e-4);
  EXPECT_EQ(got.mass_by_distance[0], 0);  // ahead
  EXPECT_EQ(got.mass_by_distance[1], 0);
}

TEST_P(EqualScores, HaveTheirShareOfTheFirstKeysAndTheWindow) {
  Call<float> call({1, 1, 1, 100, 100, 8});
  call.equal_scores();
  call.causal();
  const auto got = of(call);
  EXPECT_NEAR(got.first_mass[99], 0.03, 1e-6);   // 3 of 100 keys
  EXPECT_NEAR(got.window_mass[99], 0.09, 1e-6);  // 9 of them, the query's own included
  EXPECT_GT(std::abs(got.window_mass[99] - 0.10), 0.005) << "a window that does not count itself would pass";
  EXPECT_NEAR(got.first_mass[1], 1, 1e-6);
}

TEST_P(EqualScores, BidirectionalWindowsReachBothWays) {
  Call<float> call({1, 1, 1, 65, 65, 8});
  call.equal_scores();
  const auto got = of(call);
  EXPECT_NEAR(got.window_mass[32], 17.0 / 65, 1e-6);
  EXPECT_NEAR(got.mean_distance[0], -32, 1e-4);
}

TEST_P(EqualScores, LeaveTheSinkItsShare) {
  Call<float> call({1, 1, 1, 1, 7, 8});
  call.equal_scores();
  call.sinks = {0};
  call.options.sink_logits = call.sinks;
  const auto got = of(call);
  EXPECT_NEAR(got.mass[0], 7.0 / 8, 1e-6);
  EXPECT_NEAR(got.entropy[0], std::log(7.0), 1e-6) << "of the keys alone";
  EXPECT_NEAR(got.maximum[0], 1.0 / 8, 1e-6);
  EXPECT_NEAR(got.mean_distance[0], 3, 1e-5) << "of the keys alone";
}

TEST_P(EqualScores, OfNoKeyAreZeros) {
  Call<float> call({1, 1, 1, 3, 5, 8});
  gnomon::MaskOptions wanted;
  wanted.right = 0;
  const std::int32_t begin[] = {5};
  wanted.key_begin = begin;
  call.see(wanted);
  auto got = of(call);
  for (const auto* list : got.rows()) EXPECT_EQ(*list, std::vector<float>(3, 0.0f));
  EXPECT_EQ(got.mass_by_distance, std::vector<double>(call.edges.size() - 1, 0.0));
}

TEST(StatisticsOfPackedDocuments, CountTheFirstKeysOfEach) {
  Call<float> call({1, 1, 1, 60, 60, 8});
  call.equal_scores();
  const std::int32_t starts[] = {0, 20, 60};
  gnomon::MaskOptions wanted;
  wanted.right = 0;
  wanted.cu_seqlens_q = wanted.cu_seqlens_k = starts;
  call.see(wanted);
  const auto got = call.measure();
  EXPECT_NEAR(got.first_mass[59], 3.0 / 40, 1e-6);
  EXPECT_NEAR(got.first_mass[20], 1, 1e-6) << "key 20 is the first of its document, not one beyond the first 3";
  EXPECT_NEAR(got.mean_distance[59], 19.5, 1e-4);
}

// The kernels against the reference.
class StatisticsKernel : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, StatisticsKernel, testing::ValuesIn(targets()), target_name);

constexpr Sizes odd_sizes[] = {{1, 1, 1, 1, 1, 1},     {1, 2, 1, 7, 7, 8},     {2, 4, 2, 65, 65, 33},
                               {1, 3, 1, 33, 130, 64}, {1, 1, 1, 130, 63, 16}, {2, 2, 2, 5, 200, 80}};

template <class Element>
void check(const std::function<void(Call<Element>&)>& with) {
  std::uint64_t seed = 5;
  for (const auto& sizes : odd_sizes) {
    Call<Element> call(sizes, all_orders[seed % 5], seed);
    with(call);
    EXPECT_TRUE(near(call.measure(), call.truth(), sizes)) << sizes.queries << " queries, " << sizes.keys << " keys";
    seed++;
  }
}

TEST_P(StatisticsKernel, AgreesWithoutMask) {
  check<float>([](auto&) {});
  check<std::uint16_t>([](auto&) {});
  check<Half>([](auto&) {});
}

TEST_P(StatisticsKernel, AgreesUnderMasks) {
  check<float>([](auto& call) { call.causal(); });
  check<Half>([](auto& call) {
    gnomon::MaskOptions wanted;
    wanted.left = 10;
    wanted.right = 0;
    wanted.keep_first = 2;
    call.see(wanted);
  });
  check<std::uint16_t>([](auto& call) {
    gnomon::MaskOptions wanted;
    wanted.right = 0;
    const std::vector<std::int32_t> begin(static_cast<std::size_t>(call.sizes.batch), static_cast<std::int32_t>(call.sizes.keys / 3));
    wanted.key_begin = begin;
    call.see(wanted);
  });
}

TEST_P(StatisticsKernel, AgreesUnderMaskTensors) {
  check<float>([](auto& call) {
    SequenceDraw draw(3);
    call.allowed.resize(static_cast<std::size_t>(call.sizes.queries * call.sizes.keys));
    for (auto& seen : call.allowed) seen = static_cast<std::uint8_t>(draw.whole(0, 1));
    call.options.mask_tensor = {call.allowed.data(), gnomon::MaskTensor::Kind::boolean, {0, 0, call.sizes.keys, 1}};
  });
  check<float>([](auto& call) {
    SequenceDraw draw(4);
    call.additive.resize(static_cast<std::size_t>(call.sizes.heads * call.sizes.keys));
    for (auto& added : call.additive)
      added = draw.whole(0, 3) == 0 ? -std::numeric_limits<float>::infinity() : static_cast<float>(even(draw, -2, 2));
    call.options.mask_tensor = {call.additive.data(), gnomon::MaskTensor::Kind::additive, {0, call.sizes.keys, 0, 1}};
  });
}

TEST_P(StatisticsKernel, OfNothingButTheLeastNumberAreZeros) {
  check<float>([](auto& call) {
    call.additive.assign(static_cast<std::size_t>(call.sizes.keys), std::numeric_limits<float>::lowest());
    call.options.mask_tensor = {call.additive.data(), gnomon::MaskTensor::Kind::additive, {0, 0, 0, 1}};
  });
}

TEST_P(StatisticsKernel, AgreesWithBiases) {
  check<float>([](auto& call) {
    const std::vector<float> slopes(static_cast<std::size_t>(call.sizes.heads), 0.25f);
    gnomon::DistanceBias values{call.sizes.heads, -20, 41, {}};
    SequenceDraw draw(6);
    for (std::int64_t i = 0; i < call.sizes.heads * 41; i++) values.values.push_back(static_cast<float>(even(draw, -1, 1)));
    call.bias = {gnomon::SlopeBias{slopes, true}, values};
    call.options.bias = call.bias;
    call.causal();
  });
  check<std::uint16_t>([](auto& call) {
    gnomon::FireBias fire;
    fire.heads = call.sizes.heads;
    fire.c = 0.5f;
    fire.threshold = 4;
    fire.weights1 = {1.5f, -2};
    fire.bias1 = {-0.25f, 1};
    fire.weights2.assign(static_cast<std::size_t>(2 * fire.heads), 0.75f);
    fire.bias2.assign(static_cast<std::size_t>(fire.heads), 0.1f);
    call.bias = {fire};
    call.options.bias = call.bias;
    call.causal();
  });
}

TEST_P(StatisticsKernel, AgreesWithBiasesWhereDocumentsMeet) {
  Call<float> call({1, 2, 1, 70, 70, 16});
  call.bias = {gnomon::SlopeBias{{0.25f, 0.5f}, false}};
  call.options.bias = call.bias;
  const std::int32_t starts[] = {0, 3, 41, 70};
  gnomon::MaskOptions wanted;
  wanted.right = 0;
  wanted.cu_seqlens_q = wanted.cu_seqlens_k = starts;
  call.see(wanted);
  EXPECT_TRUE(near(call.measure(), call.truth(), call.sizes));
}

TEST_P(StatisticsKernel, AgreesWithSoftcapSinksScaleAndTemperature) {
  check<float>([](auto& call) {
    call.options.scale = 2.5;
    call.options.softcap = 1.75;
    call.sinks.assign(static_cast<std::size_t>(call.sizes.heads), 0.5f);
    call.options.sink_logits = call.sinks;
    call.factors.assign(static_cast<std::size_t>(call.sizes.batch * call.sizes.queries), 1.25f);
    call.factors.back() = 0.5f;
    call.options.query_factors = call.factors;
    call.causal();
  });
}

TEST_P(StatisticsKernel, AgreesWithRotationOnLoad) {
  check<std::uint16_t>([](auto& call) {
    if (call.sizes.width % 2 != 0) return;
    call.frequencies = gnomon::frequencies(gnomon::RotarySpec{.rule = gnomon::rotary::Default{},
                                                              .theta = 10000,
                                                              .head_dim = static_cast<int>(call.sizes.width),
                                                              .rotary_dim = static_cast<int>(call.sizes.width)});
    const auto from = call.sizes.keys - std::min(call.sizes.queries, call.sizes.keys);
    call.options.rotate_queries = {gnomon::Rotation(*call.frequencies), gnomon::Range{from, from + call.sizes.queries, 1}};
    call.options.rotate_keys = {gnomon::Rotation(*call.frequencies), gnomon::Range{0, call.sizes.keys, 1}};
    call.causal();
  });
}

TEST_P(StatisticsKernel, MassOfAllDistancesIsTheMass) {
  Call<float> call({1, 2, 1, 300, 300, 16});
  call.causal();
  call.edges = gnomon::doubling_edges(300);
  const auto got = call.measure();
  for (std::size_t h = 0; h < 2; h++) {
    double by_distance = 0, by_row = 0;
    const std::size_t bins = call.edges.size() - 1;
    for (std::size_t i = 0; i < bins; i++) by_distance += got.mass_by_distance[h * bins + i];
    for (std::size_t t = 0; t < 300; t++) by_row += static_cast<double>(got.mass[h * 300 + t]);
    EXPECT_NEAR(by_distance, 300, 1e-3);
    EXPECT_NEAR(by_row, 300, 1e-3);
  }
}

TEST_P(StatisticsKernel, ExtremeScoresCostNoMoreThanTheirRounding) {
  Call<float> call({1, 1, 1, 40, 40, 8});
  call.options.scale = 1e4;
  call.causal();
  const auto got = call.measure(), wanted = call.truth();
  const auto log_sum_exp = call.log_sum_exp();
  for (std::size_t t = 0; t < 40; t++) {
    const double rounding = 4 * std::abs(static_cast<double>(log_sum_exp[t])) * 0x1p-24 + 1e-6;
    EXPECT_NEAR(got.mass[t], 1, rounding);
    EXPECT_NEAR(got.maximum[t], wanted.maximum[t], rounding);
    EXPECT_NEAR(got.entropy[t], wanted.entropy[t], 10 * rounding);
  }
}

TEST_P(StatisticsKernel, NanStaysInTheRowsThatSeeIt) {
  Call<float> call({1, 1, 1, 40, 40, 8});
  call.causal();
  call.k.at(0, 0, 30, 3) = std::numeric_limits<float>::quiet_NaN();
  auto got = call.measure();
  for (const auto* list : got.rows()) {
    for (std::size_t t = 0; t < 40; t++) EXPECT_EQ(std::isnan((*list)[t]), t >= 30) << t;
  }
}

TEST(Statistics, DoNotDependOnTheThreads) {
  Call<float> call({2, 3, 1, 200, 200, 32});
  call.causal();
  gnomon::ThreadPool pool(3);
  auto alone = call.measure(), together = call.measure(&pool);
  for (std::size_t i = 0; i < 6; i++) EXPECT_EQ(*alone.rows()[i], *together.rows()[i]);
  EXPECT_EQ(alone.mass_by_distance, together.mass_by_distance);
}

TEST(Statistics, WriteOnlyWhatIsAskedFor) {
  const Call<float> call({1, 2, 1, 20, 20, 8});
  std::vector<float> entropy(40);
  gnomon::AttentionStatistics only;
  only.entropy = entropy;
  gnomon::attention_statistics(call.q.view(), call.k.view(), call.log_sum_exp(), only, call.options);
  EXPECT_EQ(entropy, call.measure().entropy);
}

TEST(Statistics, RefuseWhatDoesNotFit) {
  const Call<float> call({1, 4, 2, 5, 6, 8});
  const auto log_sum_exp = call.log_sum_exp();
  const auto refused = [&](auto&& change, std::initializer_list<const char*> words) {
    Measured got;
    auto statistics = got.into(call.sizes, call.edges);
    auto k = call.k.view();
    std::span<const float> sums = log_sum_exp;
    change(statistics, k, sums);
    return refusal_fault([&] { gnomon::attention_statistics(call.q.view(), k, sums, statistics); }, ErrorCode::invalid_argument, words);
  };
  EXPECT_EQ(refused([](auto&, auto& k, auto&) { k.shape[1] = 3; }, {"k", "heads", "4", "3"}), "");
  EXPECT_EQ(refused([](auto&, auto& k, auto&) { k.dtype = gnomon::DType::bf16; }, {"k", "f32", "bf16"}), "");
  EXPECT_EQ(refused([](auto&, auto&, auto& sums) { sums = sums.first(19); }, {"log_sum_exp", "20", "19"}), "");
  EXPECT_EQ(refused([](auto&, auto&, auto& sums) { sums = {}; }, {"log_sum_exp", "20", "0"}), "");
  EXPECT_EQ(refused([](auto& to, auto&, auto&) { to.entropy = to.entropy.first(3); }, {"entropy", "20", "3"}), "");
  EXPECT_EQ(refused([](auto& to, auto&, auto&) { to.mass_by_distance = to.mass_by_distance.first(3); }, {"mass_by_distance", "48", "3"}),
            "");
  EXPECT_EQ(refused([](auto& to, auto&, auto&) { to.window = -1; }, {"window", "-1"}), "");
  EXPECT_EQ(refused([](auto& to, auto&, auto&) { to.first_keys = -2; }, {"first_keys", "-2"}), "");
  const std::int64_t level[] = {0, 4, 4, 8};
  EXPECT_EQ(refused([&](auto& to, auto&, auto&) { to.distance_edges = level; }, {"distance_edges", "4 after 4"}), "");
}

TEST(DoublingEdges, EndAtTheFirstPowerOfTwoThatHoldsTheKeys) {
  EXPECT_EQ(gnomon::doubling_edges(0), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(gnomon::doubling_edges(1), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(gnomon::doubling_edges(8), (std::vector<std::int64_t>{0, 1, 2, 4, 8}));
  EXPECT_EQ(gnomon::doubling_edges(9).back(), 16);
  EXPECT_THROW(gnomon::doubling_edges(-1), gnomon::Error);
}

}  // namespace
