// SPDX-License-Identifier: Apache-2.0
// Layout conversion: the permutation people had to find by hand, equal scores after it, and what happens with the wrong head count.
#include "gnomon/layout.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "gnomon/rotate.hpp"
#include "support/pairs.hpp"
#include "support/property.hpp"
#include "support/strided.hpp"

namespace {

using namespace testing_support;
using gnomon::ConstTensorView;
using gnomon::DType;
using gnomon::ErrorCode;
using gnomon::PairLayout;
using gnomon::RotarySpec;
using gnomon::TensorView;
using Indices = std::vector<std::int64_t>;

RotarySpec plain(int head_dim, PairLayout layout = PairLayout::half_split) {
  return {.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = head_dim, .rotary_dim = head_dim, .layout = layout};
}
PairLayout other(PairLayout layout) { return layout == PairLayout::half_split ? PairLayout::interleaved : PairLayout::half_split; }
RotarySpec with_layout(RotarySpec spec, PairLayout layout) {
  spec.layout = layout;
  return spec;
}

/// The rows 0, 1, 2, … of a projection of `rows` rows, after conversion: which row came from where.
Indices converted_rows(const RotarySpec& spec, std::int64_t rows, PairLayout to) {
  constexpr std::int64_t inputs = 3;
  std::vector<float> weight(static_cast<std::size_t>(rows * inputs));
  for (std::size_t i = 0; i < weight.size(); i++) weight[i] = static_cast<float>(static_cast<std::int64_t>(i) / inputs);
  gnomon::convert_layout(TensorView{weight.data(), DType::f32, {1, 1, rows, inputs}, {rows * inputs, rows * inputs, inputs, 1}}, spec, to,
                         2);
  Indices result;
  for (std::size_t i = 0; i < weight.size(); i += inputs) result.push_back(static_cast<std::int64_t>(weight[i]));
  return result;
}

TEST(Layout, T23PermutationWithGroupedKeyHeads) {
  EXPECT_EQ(converted_rows(plain(4), 8, PairLayout::interleaved), (Indices{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(converted_rows(plain(8), 8, PairLayout::interleaved), (Indices{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(converted_rows(plain(8, PairLayout::interleaved), 8, PairLayout::half_split), (Indices{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(gnomon::layout_permutation(plain(8), PairLayout::interleaved), (Indices{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(gnomon::layout_permutation(plain(8, PairLayout::interleaved), PairLayout::half_split), (Indices{0, 2, 4, 6, 1, 3, 5, 7}));
  // Seen: the 4 query heads used for the 8 rows of K. Heads of width 2 have nothing to permute.
  EXPECT_EQ(converted_rows(plain(2), 8, PairLayout::interleaved), (Indices{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Layout, T23RotatedKey) {
  std::vector<double> half{1, 2, 3, 4}, interleaved = half;
  const auto rotate = [](std::vector<double>& k, const RotarySpec& spec) {
    gnomon::rotate(TensorView{k.data(), DType::f64, {1, 1, 1, 4}, {4, 4, 4, 1}}, gnomon::frequencies(spec), gnomon::Range{7, 8});
  };
  const std::vector<double> right_half{-1.21705754181, 1.71533061116, 2.91869336175, 4.13008969569},
      right_interleaved{-0.560070943094, 2.16479110741, 2.71288161141, 4.20003254303};
  rotate(half, plain(4));
  rotate(interleaved, plain(4, PairLayout::interleaved));
  for (std::size_t d = 0; d < 4; d++) {
    EXPECT_NEAR(half[d], right_half[d], 1e-11);
    EXPECT_NEAR(interleaved[d], right_interleaved[d], 1e-11);
    EXPECT_GT(std::abs(half[d] - right_interleaved[d]), 0.05) << "the layouts are told apart";
  }
}

TEST(Layout, OtherChannelsStay) {
  // MLA: 128 channels without position, then 64 that rotate.
  RotarySpec spec = plain(192, PairLayout::interleaved);
  spec.rotary_dim = 64, spec.rotary_offset = 128;
  const auto permutation = gnomon::layout_permutation(spec, PairLayout::half_split);
  for (std::int64_t d = 0; d < 128; d++) EXPECT_EQ(permutation[static_cast<std::size_t>(d)], d);
  for (std::int64_t i = 0; i < 32; i++) {
    EXPECT_EQ(permutation[static_cast<std::size_t>(128 + i)], 128 + 2 * i);
    EXPECT_EQ(permutation[static_cast<std::size_t>(160 + i)], 128 + 2 * i + 1);
  }
}

TEST(Layout, EveryPairLandsWhereTheOtherLayoutLooksForIt) {
  for_every_rule("layout permutation", {.most_pairs = 24}, [](PropertyDraw&, const RotarySpec& spec) {
    const auto converted = with_layout(spec, other(spec.layout));
    const auto permutation = gnomon::layout_permutation(spec, converted.layout);
    const auto back = gnomon::layout_permutation(converted, spec.layout);
    for (std::size_t d = 0; d < permutation.size(); d++) RC_ASSERT(permutation[static_cast<std::size_t>(back[d])] == static_cast<int>(d));
    for (int i = 0; i < spec.rotary_dim / 2; i++) {
      const auto [first, second] = channels(spec, i);
      const auto [new_first, new_second] = channels(converted, i);
      RC_ASSERT(permutation[static_cast<std::size_t>(new_first)] == first);
      RC_ASSERT(permutation[static_cast<std::size_t>(new_second)] == second);
    }
    Indices identity(permutation.size());
    std::iota(identity.begin(), identity.end(), 0);
    RC_ASSERT(gnomon::layout_permutation(spec, spec.layout) == identity);
  });
}

/// A projection with a bias and a norm over each head: what a layer has in front of the rotation.
struct Projection {
  std::int64_t heads = 0, head_dim = 0, inputs = 0;
  std::vector<double> weight, bias, gain;  // (heads·D, inputs), (heads·D), (D)

  Projection(PropertyDraw& draw, std::int64_t heads_, std::int64_t head_dim_, std::int64_t inputs_)
      : heads(heads_), head_dim(head_dim_), inputs(inputs_) {
    const auto numbers = [&](std::int64_t size) {
      std::vector<double> values(static_cast<std::size_t>(size));
      for (double& value : values) value = static_cast<double>(draw.whole(-1000, 1000)) / 512;
      return values;
    };
    weight = numbers(heads * head_dim * inputs), bias = numbers(heads * head_dim), gain = numbers(head_dim);
  }

  void convert(const RotarySpec& spec, PairLayout to) {
    const std::int64_t rows = heads * head_dim;
    gnomon::convert_layout(TensorView{weight.data(), DType::f64, {1, 1, rows, inputs}, {0, 0, inputs, 1}}, spec, to, 2);
    gnomon::convert_layout(TensorView{bias.data(), DType::f64, {1, 1, 1, rows}, {0, 0, 0, 1}}, spec, to, 3);
    gnomon::convert_layout(TensorView{gain.data(), DType::f64, {1, 1, 1, head_dim}, {0, 0, 0, 1}}, spec, to, 3);
  }

  /// (heads, tokens, D), not yet rotated.
  std::vector<double> operator()(const std::vector<double>& x, std::int64_t tokens) const {
    std::vector<double> result;
    for (std::int64_t h = 0; h < heads; h++) {
      for (std::int64_t t = 0; t < tokens; t++) {
        std::vector<double> head(static_cast<std::size_t>(head_dim));
        double square = 1e-6;
        for (std::int64_t d = 0; d < head_dim; d++) {
          const std::int64_t row = h * head_dim + d;
          double& value = head[static_cast<std::size_t>(d)] = bias[static_cast<std::size_t>(row)];
          for (std::int64_t c = 0; c < inputs; c++) {
            value += weight[static_cast<std::size_t>(row * inputs + c)] * x[static_cast<std::size_t>(t * inputs + c)];
          }
          square += value * value / static_cast<double>(head_dim);
        }
        for (std::size_t d = 0; d < head.size(); d++) result.push_back(head[d] / std::sqrt(square) * gain[d]);
      }
    }
    return result;
  }
};

constexpr std::int64_t tokens = 3, inputs = 5, heads = 4, kv_heads = 2;

std::vector<double> rotated(std::vector<double> rows, std::int64_t number, const RotarySpec& spec) {
  const std::int64_t width = spec.head_dim;
  gnomon::rotate(TensorView{rows.data(), DType::f64, {1, number, tokens, width}, {0, tokens * width, width, 1}}, gnomon::frequencies(spec),
                 gnomon::Range{1000, 1000 + tokens});
  return rows;
}

/// (heads, queries, keys); a key head serves heads / kv_heads query heads.
std::vector<double> scores(const std::vector<double>& q, const std::vector<double>& k, std::int64_t width) {
  std::vector<double> result;
  for (std::int64_t h = 0; h < heads; h++) {
    for (std::int64_t i = 0; i < tokens; i++) {
      for (std::int64_t j = 0; j < tokens; j++) {
        const auto* query = q.data() + (h * tokens + i) * width;
        const auto* key = k.data() + (h * kv_heads / heads * tokens + j) * width;
        result.push_back(std::inner_product(query, query + width, key, 0.0));
      }
    }
  }
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); i++) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(Layout, ConvertedWeightsBiasesAndGainsGiveTheSameScores) {
  for_every_rule("equal scores", {.most_pairs = 12}, [](PropertyDraw& draw, const RotarySpec& spec) {
    std::vector<double> x(static_cast<std::size_t>(tokens * inputs));
    for (double& value : x) value = static_cast<double>(draw.whole(-1000, 1000)) / 512;
    Projection wq(draw, heads, spec.head_dim, inputs), wk(draw, kv_heads, spec.head_dim, inputs);
    const auto k = wk(x, tokens);
    const auto before = scores(rotated(wq(x, tokens), heads, spec), rotated(k, kv_heads, spec), spec.head_dim);

    const auto converted = with_layout(spec, other(spec.layout));
    wq.convert(spec, converted.layout), wk.convert(spec, converted.layout);
    const auto q = rotated(wq(x, tokens), heads, converted);
    const double magnitude = std::max(1.0, std::pow(gnomon::effective_attention_factor(spec), 2));
    const double bound = 4 * spec.head_dim * magnitude * 2 * 0x1p-48;
    RC_ASSERT(largest_difference(scores(q, rotated(wk(x, tokens), kv_heads, converted), spec.head_dim), before) <= bound);

    // Cached keys, rotated before they were converted.
    auto cached = rotated(k, kv_heads, spec);
    const std::int64_t width = spec.head_dim;
    gnomon::convert_layout(TensorView{cached.data(), DType::f64, {1, kv_heads, tokens, width}, {0, tokens * width, width, 1}}, spec,
                           converted.layout, 3);
    RC_ASSERT(largest_difference(scores(q, cached, spec.head_dim), before) <= bound);
  });
}

TEST(Layout, KeysLeftBehindGiveOtherScores) {
  check_property("keys left behind", [] {
    PropertyDraw draw;
    const RotarySpec spec = plain(16), converted = plain(16, PairLayout::interleaved);
    std::vector<double> x(static_cast<std::size_t>(tokens * inputs), 1);
    Projection wq(draw, heads, 16, inputs), wk(draw, kv_heads, 16, inputs);
    std::fill(wk.gain.begin(), wk.gain.end(), 1), std::fill(wq.gain.begin(), wq.gain.end(), 1);
    const auto before = scores(rotated(wq(x, tokens), heads, spec), rotated(wk(x, tokens), kv_heads, spec), 16);
    wq.convert(spec, PairLayout::interleaved);
    const auto after = scores(rotated(wq(x, tokens), heads, converted), rotated(wk(x, tokens), kv_heads, converted), 16);
    RC_ASSERT(largest_difference(after, before) > 0.01);
  });
}

/// Every element where the permutation says, in any order of memory and along any axis; everything around it untouched.
template <class Element>
void check_moves() {
  SequenceDraw draw(7);
  const RotarySpec spec{.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 7, .rotary_dim = 4, .rotary_offset = 2};
  const auto permutation = gnomon::layout_permutation(spec, PairLayout::interleaved);
  for (const Order order : all_orders) {
    for (std::size_t axis = 0; axis < 4; axis++) {
      Shape shape{2, 3, 4, 5};
      shape[axis] = 14;
      if (axis == 2) shape[3] = 150;  // more than one tile
      Strided<Element> x(shape, order), out(shape, order);
      x.fill_with_bits(draw), out.fill_with_bits(draw);
      auto in_place = x, expected = out, expected_in_place = x;
      x.each([&](auto b, auto h, auto t, auto d) {
        Shape from{b, h, t, d};
        from[axis] = from[axis] / 7 * 7 + permutation[static_cast<std::size_t>(from[axis] % 7)];
        expected.at(b, h, t, d) = expected_in_place.at(b, h, t, d) = x.at(from[0], from[1], from[2], from[3]);
      });
      gnomon::convert_layout(std::as_const(x).view(), out.view(), spec, PairLayout::interleaved, static_cast<int>(axis));
      gnomon::convert_layout(in_place.view(), spec, PairLayout::interleaved, static_cast<int>(axis));
      const std::size_t bytes = x.memory.size() * sizeof(Element);
      EXPECT_EQ(std::memcmp(out.memory.data(), expected.memory.data(), bytes), 0) << "axis " << axis;
      EXPECT_EQ(std::memcmp(in_place.memory.data(), expected_in_place.memory.data(), bytes), 0) << "axis " << axis << ", in place";
    }
  }
}

TEST(Layout, MovesBytesOfAnyDtypeStrideAndAxis) {
  check_moves<double>();
  check_moves<float>();
  check_moves<std::uint16_t>();
}

TEST(Layout, BadInputIsRefusedAndNothingIsWritten) {
  std::vector<float> memory(96);
  std::iota(memory.begin(), memory.end(), 0.0F);
  const auto before = memory;
  const TensorView x{memory.data(), DType::f32, {1, 1, 8, 3}, {24, 24, 3, 1}}, out{memory.data() + 24, DType::f32, x.shape, x.strides};
  const auto refused = [&](const ConstTensorView& from, const TensorView& to, const RotarySpec& spec, int axis,
                           std::initializer_list<const char*> words) {
    const auto fault =
        refusal_fault([&] { gnomon::convert_layout(from, to, spec, PairLayout::interleaved, axis); }, ErrorCode::invalid_argument, words);
    return memory == before ? fault : "memory was written; " + fault;
  };
  EXPECT_EQ(refused(x, out, plain(6), 2, {"x", "multiple of head_dim (6)", "8"}), "") << "the head count is that of the tensor";
  EXPECT_EQ(refused(x, out, plain(16), 2, {"x", "16", "8"}), "") << "the head_dim of another model";
  EXPECT_EQ(refused(x, out, plain(7), 2, {"rotary_dim", "even", "7"}), "");
  EXPECT_EQ(refused(x, out, plain(4), 4, {"axis", "0 to 3", "4"}), "");
  EXPECT_EQ(refused(x, out, plain(4), -1, {"axis", "-1"}), "");
  EXPECT_EQ(refused(x, out, plain(4), 3, {"x", "4", "3"}), "") << "the other axis";

  auto wrong = out;
  wrong.shape[3] = 2;
  EXPECT_EQ(refused(x, wrong, plain(4), 2, {"out", "(1, 1, 8, 3)", "(1, 1, 8, 2)"}), "");
  wrong = out;
  wrong.dtype = DType::f64;
  EXPECT_EQ(refused(x, wrong, plain(4), 2, {"out", "f32", "f64"}), "");
  wrong = out;
  wrong.data = memory.data() + 1;
  EXPECT_EQ(refused(x, wrong, plain(4), 2, {"out", "overlaps x"}), "");
  wrong = out;
  wrong.strides[2] = 2;
  EXPECT_EQ(refused(x, wrong, plain(4), 2, {"out", "share memory"}), "");
  wrong = out;
  wrong.data = nullptr;
  EXPECT_EQ(refused(x, wrong, plain(4), 2, {"out", "null"}), "");
}

TEST(Layout, EmptyTensorsAreTaken) {
  EXPECT_NO_THROW(
      gnomon::convert_layout(TensorView{nullptr, DType::f32, {1, 1, 8, 0}, {0, 0, 0, 1}}, plain(4), PairLayout::interleaved, 2));
  EXPECT_NO_THROW(
      gnomon::convert_layout(TensorView{nullptr, DType::f32, {1, 1, 0, 8}, {0, 0, 8, 1}}, plain(4), PairLayout::interleaved, 2));
}

}  // namespace
