// SPDX-License-Identifier: Apache-2.0
// Conventions of attention by numbers worked by hand (T16), on the double reference and on attention() in double and in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gnomon/attention.hpp"

namespace gnomon::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One batch row and one head, given as numbers.
struct Small {
  std::int64_t queries, keys, width, value_width;
  std::vector<double> q, k, v;
  AttentionOptions options;
};

struct Result {
  std::vector<double> out;
  std::vector<float> log_sum_exp, maximum;
};

template <class Element>
Result run(const Small& input, decltype(reference::attention)* function) {
  constexpr DType dtype = sizeof(Element) == 8 ? DType::f64 : DType::f32;
  std::vector<Element> q(input.q.begin(), input.q.end()), k(input.k.begin(), input.k.end()), v(input.v.begin(), input.v.end());
  std::vector<Element> out(static_cast<std::size_t>(input.queries * input.value_width), Element{77});
  const auto view = [](std::vector<Element>& memory, std::int64_t tokens, std::int64_t width) {
    return TensorView{memory.data(), dtype, {1, 1, tokens, width}, {tokens * width, tokens * width, width, 1}};
  };
  Result result;
  result.log_sum_exp.resize(static_cast<std::size_t>(input.queries));
  result.maximum.resize(static_cast<std::size_t>(input.queries));
  AttentionOptions options = input.options;
  options.log_sum_exp = result.log_sum_exp.data();
  options.maximum = result.maximum.data();
  function(ConstTensorView(view(q, input.queries, input.width)), ConstTensorView(view(k, input.keys, input.width)),
           ConstTensorView(view(v, input.keys, input.value_width)), view(out, input.queries, input.value_width), options);
  result.out.assign(out.begin(), out.end());
  return result;
}

/// Calls `check` with the result of each implementation and the error it is granted.
template <class Check>
void everywhere(const Small& input, Check&& check) {
  decltype(reference::attention)* whole = gnomon::attention;
  {
    SCOPED_TRACE("the reference in double");
    check(run<double>(input, reference::attention), 1e-11);
  }
  {
    SCOPED_TRACE("the reference in f32");
    check(run<float>(input, reference::attention), 2e-7);
  }
  {
    SCOPED_TRACE("attention in double");
    check(run<double>(input, whole), 1e-11);
  }
  {
    SCOPED_TRACE("attention in f32");
    check(run<float>(input, whole), 2e-6);
  }
}

/// Values that read out the weights of three keys, and their sum with the values 1, 2 and 3.
const std::vector<double> unit_values{1, 0, 0, 1, 0, 1, 0, 2, 0, 0, 1, 3};

TEST(Attention, T16AlibiByHand) {
  const std::vector<BiasTable> slope{SlopeBias{{0.5F}}}, shifted{SlopeBias{{0.5F}}, DistanceBias{1, 0, 1, {1.25F}}},
      forward{SlopeBias{{-0.5F}}};
  const std::vector<double> expected{0.220691375999, 0.179407266926, 0.599901357075, 2.37920998108};
  Small input{1, 3, 2, 4, {1, 0}, {1, 0, 0, 1, 1, 1}, unit_values, {}};
  for (const auto* bias : {&slope, &shifted}) {
    input.options.bias = *bias;
    everywhere(input, [&](const Result& got, double error) {
      for (std::size_t i = 0; i < 4; i++) EXPECT_NEAR(got.out[i], expected[i], 3 * error) << i;
    });
  }
  input.options.bias = forward;
  everywhere(input, [&](const Result& got, double) { EXPECT_GT(std::abs(got.out[3] - expected[3]), 0.1) << "the sign of the distance"; });
}

TEST(Attention, T16RowWithoutKeysIsZero) {
  KeyIntervals mask;
  mask.queries = 2;
  mask.keys = 3;
  mask.begin = {0, 2};
  mask.end = {3, 2};
  mask.first = {0, 0};
  mask.diagonal = {1, 2};
  Small input{2, 3, 2, 4, {1, 0, 1, 0}, {1, 0, 0, 1, 1, 1}, unit_values, {}};
  input.options.mask = &mask;
  everywhere(input, [](const Result& got, double) {
    for (std::size_t i = 0; i < 8; i++) EXPECT_EQ(got.out[i] != 0, i < 4) << i;
    EXPECT_EQ(static_cast<double>(got.log_sum_exp[1]), -infinity);
    EXPECT_EQ(static_cast<double>(got.maximum[1]), -infinity);
  });
  const std::vector<float> sink{0.75F};
  input.options.sink_logits = sink;
  everywhere(input, [](const Result& got, double) {
    for (std::size_t i = 4; i < 8; i++) EXPECT_EQ(got.out[i], 0) << i;
    EXPECT_FLOAT_EQ(got.log_sum_exp[1], 0.75F) << "the sink is the whole denominator";
    EXPECT_EQ(static_cast<double>(got.maximum[1]), -infinity) << "the sink is no score";
  });
}

TEST(Attention, T16AllKeysHiddenByAMaskTensor) {
  Small input{1, 3, 2, 4, {1, 0}, {1, 0, 0, 1, 1, 1}, unit_values, {}};
  const std::uint8_t no[3]{};
  const float minus[3]{-HUGE_VALF, -HUGE_VALF, -HUGE_VALF};
  for (const MaskTensor tensor :
       {MaskTensor{no, MaskTensor::Kind::boolean, {0, 0, 3, 1}}, MaskTensor{minus, MaskTensor::Kind::additive, {0, 0, 3, 1}}}) {
    input.options.mask_tensor = tensor;
    everywhere(input, [](const Result& got, double) { EXPECT_EQ(got.out, (std::vector<double>{0, 0, 0, 0})); });
  }
}

TEST(Attention, T16NanStaysInItsRow) {
  for (std::size_t row = 0; row < 3; row++) {
    Small input{3, 3, 2, 4, {1, 0, 0, 1, 1, 1}, {1, 0, 0, 1, 1, 1}, unit_values, {}};
    input.q[2 * row] = std::nan("");
    everywhere(input, [&](const Result& got, double) {
      for (std::size_t i = 0; i < got.out.size(); i++) EXPECT_EQ(std::isnan(got.out[i]), i / 4 == row) << i;
    });
  }
}

TEST(Attention, NanThatIsMaskedDoesNotReachTheResult) {
  KeyIntervals mask;
  mask.queries = 1;
  mask.keys = 3;
  mask.begin = {0};
  mask.end = {2};
  mask.first = {0};
  mask.diagonal = {1};
  Small input{1, 3, 2, 4, {1, 0}, {1, 0, 0, 1, std::nan(""), 1}, unit_values, {}};
  input.options.mask = &mask;
  input.v[9] = std::nan("");
  everywhere(input, [](const Result& got, double) {
    for (const double x : got.out) EXPECT_FALSE(std::isnan(x));
  });
}

TEST(Attention, SoftcapComesBeforeTheBias) {
  // Scores 3 and 0, the second key is the query's own: softmax(2 tanh(3 / 2) − 1, 0).
  const std::vector<BiasTable> bias{SlopeBias{{1.0F}}};
  Small input{1, 2, 1, 1, {3}, {1, 0}, {1, 0}, {}};
  input.options.scale = 1;
  input.options.softcap = 2;
  input.options.bias = bias;
  const double capped = 2 * std::tanh(1.5) - 1, after = 2 * std::tanh((3.0 - 1) / 2);
  const auto weight = [](double score) { return 1 / (1 + std::exp(-score)); };
  everywhere(input, [&](const Result& got, double error) {
    EXPECT_NEAR(got.out[0], weight(capped), error);
    EXPECT_GT(std::abs(got.out[0] - weight(after)), 0.1) << "softcap after the bias";
  });
}

TEST(Attention, SoftcapComesBeforeTheMask) {
  const float additive[2]{0.5F, -HUGE_VALF};
  Small input{1, 2, 1, 1, {3}, {1, 0}, {1, 5}, {}};
  input.options.softcap = 2;
  input.options.mask_tensor = MaskTensor{additive, MaskTensor::Kind::additive, {0, 0, 2, 1}};
  everywhere(input, [](const Result& got, double error) {
    EXPECT_EQ(got.out[0], 1) << "a softcap after the mask would let the hidden key in with −2";
    EXPECT_NEAR(static_cast<double>(got.log_sum_exp[0]), 2 * std::tanh(1.5) + 0.5, 1e-7 + error) << "an additive mask is not capped";
  });
}

TEST(Attention, SinkLogitOnlyAddsToTheDenominator) {
  Small input{1, 2, 1, 1, {1}, {1, -1}, {4, 2}, {}};
  const std::vector<float> sink{0.5F};
  input.options.sink_logits = sink;
  const double e = std::exp(1.0), sum = e + 1 / e + std::exp(0.5);
  everywhere(input, [&](const Result& got, double error) {
    EXPECT_NEAR(got.out[0], (4 * e + 2 / e) / sum, 4 * error);
    EXPECT_GT(std::abs(got.out[0] - (4 * e + 2 / e) / (e + 1 / e)), 0.5) << "without the sink";
    EXPECT_NEAR(static_cast<double>(got.log_sum_exp[0]), std::log(sum), 1e-7 + error);
    EXPECT_EQ(got.maximum[0], 1.0F) << "the sink is no score";
  });
}

TEST(Attention, TemperatureMultipliesTheQuery) {
  Small input{2, 2, 1, 1, {1, 1}, {1, 0}, {1, 0}, {}};
  const std::vector<float> factors{1, 3};
  input.options.query_factors = factors;
  input.options.softcap = 2;
  const auto weight = [](double score) { return 1 / (1 + std::exp(-score)); };
  everywhere(input, [&](const Result& got, double error) {
    EXPECT_NEAR(got.out[0], weight(2 * std::tanh(0.5)), error);
    EXPECT_NEAR(got.out[1], weight(2 * std::tanh(1.5)), error);
    EXPECT_GT(std::abs(got.out[1] - weight(3 * 2 * std::tanh(0.5))), 0.01) << "the factor after the softcap";
  });
}

}  // namespace
}  // namespace gnomon::test
