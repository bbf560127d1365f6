// SPDX-License-Identifier: Apache-2.0
// Where positions come from: several axes, one list per batch row or per head, real numbers, packed documents. Angles are worked out here,
// from the axis of each pair written down by hand.
#include <gtest/gtest.h>

#include <numeric>
#include <span>

#include "support/random_spec.hpp"
#include "support/targets.hpp"
#include "support/turned.hpp"

namespace {

using namespace testing_support;
using gnomon::Direction;
using gnomon::ErrorCode;
using gnomon::PairLayout;
using gnomon::RotarySpec;
using gnomon::SectionOrder;

using Axes = std::vector<int>;

struct Model {
  const char* name;
  RotarySpec spec;
  Axes axis;        ///< that drives each pair
  Axes step = {};   ///< each pair's exponent is -2 step / width of the frequencies it belongs to; empty: its own number
  Axes width = {};  ///< the width of these
};

std::vector<Model> models(PairLayout layout) {
  const auto spec = [&](int pairs, int axes, std::vector<int> sections, SectionOrder order = SectionOrder::chunked) {
    return RotarySpec{.rule = gnomon::rotary::Default{},
                      .theta = 10000,
                      .head_dim = 2 * pairs + 3,
                      .rotary_dim = 2 * pairs,
                      .rotary_offset = 1,
                      .layout = layout,
                      .axes = axes,
                      .sections = std::move(sections),
                      .section_order = order};
  };
  std::vector<Model> list = {
      {"text", spec(8, 1, {}), Axes(8, 0)},
      {"chunked", spec(9, 1, {2, 3, 4}), {0, 0, 1, 1, 1, 2, 2, 2, 2}},
      {"chunked, one alone", spec(8, 1, {1, 1, 6}), {0, 1, 2, 2, 2, 2, 2, 2}},
      {"interleaved", spec(8, 1, {4, 2, 2}, SectionOrder::interleaved), {0, 1, 2, 0, 1, 2, 0, 0}},
      {"interleaved, uneven", spec(11, 1, {5, 4, 2}, SectionOrder::interleaved), {0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 1}},
      {"interleaved, two axes", spec(7, 1, {4, 3}, SectionOrder::interleaved), {0, 1, 0, 1, 0, 1, 0}},
      {"time last", spec(7, 1, {3, 2, 2}, SectionOrder::time_last), {1, 2, 1, 2, 0, 0, 0}},
      {"time last, three axes that turn", spec(5, 1, {2, 1, 1, 1}, SectionOrder::time_last), {1, 2, 3, 0, 0}},
      {"axial", spec(8, 2, {}), {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 2, 3, 0, 1, 2, 3}, Axes(8, 8)},
      {"axial, uneven", spec(7, 3, {4, 2, 1}), {0, 0, 0, 0, 1, 1, 2}, {0, 1, 2, 3, 0, 1, 0}, {8, 8, 8, 8, 4, 4, 2}},
  };
  for (auto& model : list) {
    if (!model.step.empty()) continue;
    model.step.resize(model.axis.size());
    std::iota(model.step.begin(), model.step.end(), 0);
    model.width = Axes(model.axis.size(), model.spec.rotary_dim);
  }
  return list;
}

/// How many lists there are, of what, and how a list is read.
struct Lists {
  std::int64_t axes, batch, heads, tokens;  // 1 where the rows or the heads share a list
  std::vector<double> values;               // in the order (axes, batch, heads, tokens)

  double at(std::int64_t axis, std::int64_t b, std::int64_t h, std::int64_t t) const {
    return values[static_cast<std::size_t>(((axis * batch + (batch == 1 ? 0 : b)) * heads + (heads == 1 ? 0 : h)) * tokens + t)];
  }
};

constexpr double kernel_error = 1.2e-7 + 3 * 0x1p-24, double_error = 1e-12;
template <class Element>
constexpr double error_of = std::is_same_v<Element, double> ? double_error : kernel_error;

template <class Element, class Value>
void expect_angles(const Model& model, SequenceDraw& draw, bool per_row, bool per_head) {
  constexpr std::int64_t B = 2, H = 2, T = 3;
  const std::int64_t axes = 1 + *std::max_element(model.axis.begin(), model.axis.end());
  Lists lists{axes, per_row ? B : 1, per_head ? H : 1, T, {}};
  std::vector<Value> given;
  for (std::int64_t k = 0; k < axes * lists.batch * lists.heads * T; k++) {
    given.push_back(static_cast<Value>(draw.whole(-40000, 40000)) / static_cast<Value>(std::is_same_v<Value, double> ? 8.5 : 1));
    lists.values.push_back(static_cast<double>(given.back()));
  }
  gnomon::Positions positions;
  if constexpr (std::is_same_v<Value, std::int32_t>) positions = gnomon::Ids32{given};
  if constexpr (std::is_same_v<Value, std::int64_t>) positions = gnomon::Ids{given};
  if constexpr (std::is_same_v<Value, double>) positions = gnomon::Reals{given};
  const auto direction = draw.whole(0, 1) == 0 ? Direction::forward : Direction::transposed;
  const auto run = rotated<Element>(draw, {B, H, T, model.spec.head_dim}, gnomon::frequencies(model.spec), positions,
                                    {.direction = direction, .positions_per_head = per_head});
  std::vector<long double> frequencies;
  for (std::size_t i = 0; i < model.axis.size(); i++) {  // the frequency stored is a double, so the test rounds to one too
    frequencies.push_back(static_cast<double>(std::pow(10000.0L, -2.0L * model.step[i] / model.width[i])));
  }
  const auto share = [&](const Axes& axis) {
    return worst_share(model.spec, run.x, run.out, direction, error_of<Element>, [&](auto b, auto h, auto t, int i) {
      const auto pair = static_cast<std::size_t>(i);
      return turn(static_cast<long double>(lists.at(axis[pair], b, h, t)) * frequencies[pair]);
    });
  };
  ASSERT_LE(share(model.axis), 1) << model.name << (per_row ? ", per row" : "") << (per_head ? ", per head" : "");
  if (axes == 1) return;
  Axes wrong = model.axis;  // a section that begins one pair too late
  for (std::size_t i = 1; i < wrong.size(); i++) wrong[i] = model.axis[i - 1];
  ASSERT_GT(share(wrong), 10) << model.name;
  ASSERT_GT(share(Axes(wrong.size(), 0)), 10) << model.name << ": the axes are all the first";
}

using Where = OnEveryTarget;

template <class Element>
void every_model() {
  SequenceDraw draw(81);
  for (const auto layout : {PairLayout::half_split, PairLayout::interleaved})
    for (const auto& model : models(layout))
      for (const bool per_row : {false, true})
        for (const bool per_head : {false, true}) {
          expect_angles<Element, std::int32_t>(model, draw, per_row, per_head);
          expect_angles<Element, std::int64_t>(model, draw, per_row, per_head);
          expect_angles<Element, double>(model, draw, per_row, per_head);
        }
}

TEST_P(Where, EveryAxisRowAndHeadF32) { every_model<float>(); }
TEST_P(Where, EveryAxisRowAndHeadBf16) { every_model<std::uint16_t>(); }
TEST_P(Where, EveryAxisRowAndHeadF16) { every_model<Half>(); }
TEST_P(Where, EveryAxisRowAndHeadF64) { every_model<double>(); }

/// What two forms of positions make of the same numbers.
template <class Element>
bool alike(const RotarySpec& spec, const Shape& shape, const gnomon::Positions& a, const gnomon::Positions& b, bool per_head = false) {
  SequenceDraw first(82), second(82);
  const auto frequencies = gnomon::frequencies(spec);
  return same_tensor(rotated<Element>(first, shape, frequencies, a, {.positions_per_head = per_head}).out,
                     rotated<Element>(second, shape, frequencies, b, {.positions_per_head = per_head}).out);
}

template <class Element>
void packed_documents() {
  const auto list = models(PairLayout::half_split);
  const auto &text = list[0].spec, &chunked = list[1].spec;
  const std::vector<std::int32_t> bounds{0, 3, 3, 7, 10};  // the second document is empty
  const std::vector<std::int64_t> ids{0, 1, 2, 0, 1, 2, 3, 0, 1, 2};
  const gnomon::Positions packed = gnomon::Packed{bounds};
  EXPECT_TRUE((alike<Element>(text, {2, 2, 10, text.head_dim}, packed, gnomon::Ids{ids})));
  EXPECT_FALSE((alike<Element>(text, {2, 2, 10, text.head_dim}, packed, gnomon::Range{0, 10}))) << "a document that counts on";
  EXPECT_TRUE((alike<Element>(text, {2, 2, 5, text.head_dim}, packed, gnomon::Ids{ids}))) << "bounds over all rows of the batch";
  EXPECT_TRUE((alike<Element>(text, {1, 2, 5, text.head_dim}, packed, gnomon::Ids{ids}, true))) << "a list for each head";
  std::vector<std::int64_t> thrice(ids);
  for (int k = 0; k < 2; k++) thrice.insert(thrice.end(), ids.begin(), ids.end());
  EXPECT_TRUE((alike<Element>(chunked, {2, 2, 10, chunked.head_dim}, packed, gnomon::Ids{thrice}))) << "every axis alike";
}

TEST_P(Where, PackedDocuments) {
  packed_documents<float>();
  packed_documents<std::uint16_t>();
  packed_documents<Half>();
  packed_documents<double>();
}

TEST_P(Where, ARangeStandsForEveryAxisAlike) {
  const auto spec = models(PairLayout::interleaved)[3].spec;
  std::vector<std::int32_t> counted(3 * 7);
  for (std::size_t k = 0; k < counted.size(); k++) counted[k] = static_cast<std::int32_t>(100 + 3 * (k % 7));
  const Shape shape{2, 2, 7, spec.head_dim};
  EXPECT_TRUE((alike<float>(spec, shape, gnomon::Range{100, 121, 3}, gnomon::Ids32{counted})));
  std::vector<std::int64_t> rows(14), heads(14), both(28);
  std::iota(rows.begin(), rows.end(), 5), std::iota(heads.begin(), heads.end(), 5), std::iota(both.begin(), both.end(), 5);
  const auto text = models(PairLayout::interleaved)[0].spec;
  EXPECT_TRUE((alike<float>(text, {2, 2, 7, text.head_dim}, gnomon::Range{5, 19}, gnomon::Ids{rows})));
  EXPECT_TRUE((alike<float>(text, {2, 2, 7, text.head_dim}, gnomon::Range{5, 19}, gnomon::Ids{heads}, true)));
  EXPECT_TRUE((alike<float>(text, {2, 2, 7, text.head_dim}, gnomon::Range{5, 33}, gnomon::Ids{both}, true)));
}

TEST_P(Where, RealNumbersThatAreWholeAreTheIntegers) {
  SequenceDraw draw(83);
  for (const auto& model : models(PairLayout::half_split)) {
    const std::int64_t axes = 1 + *std::max_element(model.axis.begin(), model.axis.end());
    std::vector<std::int64_t> ids;
    for (std::int64_t k = 0; k < axes * 6; k++) ids.push_back(draw.whole(-gnomon::max_position, gnomon::max_position));
    const std::vector<double> reals(ids.begin(), ids.end());
    EXPECT_TRUE((alike<float>(model.spec, {2, 2, 6, model.spec.head_dim}, gnomon::Reals{reals}, gnomon::Ids{ids}))) << model.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Target, Where, testing::ValuesIn(targets()), target_name);

class BadLists : public testing::Test {
 protected:
  RotarySpec spec = models(PairLayout::half_split)[1].spec;  // three axes
  std::vector<float> memory = std::vector<float>(4096, 1.0F);
  std::vector<std::int64_t> ids = std::vector<std::int64_t>(400);
  std::vector<double> reals = std::vector<double>(400);

  gnomon::TensorView view(std::int64_t batch, std::int64_t heads, std::int64_t tokens) {
    const std::int64_t D = spec.head_dim;
    return {memory.data(), gnomon::DType::f32, {batch, heads, tokens, D}, {heads * tokens * D, tokens * D, D, 1}};
  }
  std::string refused(std::size_t number, bool per_head, std::initializer_list<const char*> words) {
    const auto frequencies = gnomon::frequencies(spec);
    const auto call = [&](const gnomon::Positions& positions) {
      return refusal_fault([&] { gnomon::rotate(view(2, 2, 3), frequencies, positions, {.positions_per_head = per_head}); },
                           ErrorCode::invalid_argument, words);
    };
    return call(gnomon::Ids{std::span(ids).first(number)}) + call(gnomon::Reals{std::span(reals).first(number)});
  }
};

TEST_F(BadLists, OfAnotherNumber) {
  const auto frequencies = gnomon::frequencies(spec);
  for (const std::size_t fine : {9, 18})
    EXPECT_NO_THROW(gnomon::rotate(view(2, 2, 3), frequencies, gnomon::Ids{std::span(ids).first(fine)}));
  for (const std::size_t bad : {0, 1, 3, 6, 8, 10, 17, 19, 36}) {
    const std::string got = "got " + std::to_string(bad);
    EXPECT_EQ(refused(bad, false, {"positions", "9", "18", got.c_str(), "axis"}), "") << bad;
  }
  for (const std::size_t fine : {18, 36}) {
    EXPECT_NO_THROW(gnomon::rotate(view(2, 2, 3), frequencies, gnomon::Ids{std::span(ids).first(fine)}, {.positions_per_head = true}));
  }
  for (const std::size_t bad : {3, 6, 9, 12, 35, 72}) EXPECT_EQ(refused(bad, true, {"positions", "18", "36", "axis", "head"}), "") << bad;
}

TEST_F(BadLists, OfARangeOrOfDocuments) {
  const auto frequencies = gnomon::frequencies(spec);
  const auto call = [&](const gnomon::Positions& positions, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::rotate(view(2, 2, 3), frequencies, positions); }, ErrorCode::invalid_argument, words);
  };
  EXPECT_EQ(call(gnomon::Range{0, 9}, {"positions", "3", "6", "got 9"}), "") << "a range stands for every axis, it lists none";
  const std::vector<std::int32_t> short_of{0, 2}, none{}, late{1, 3}, down{0, 2, 1, 3}, negative{-1, 3};
  EXPECT_EQ(call(gnomon::Packed{short_of}, {"positions", "3", "6", "got 2"}), "");
  EXPECT_EQ(call(gnomon::Packed{none}, {"cu_seqlens", "0", "empty"}), "");
  EXPECT_EQ(call(gnomon::Packed{late}, {"cu_seqlens", "0", "1"}), "");
  EXPECT_EQ(call(gnomon::Packed{down}, {"cu_seqlens[2]", "2", "1"}), "");
  EXPECT_EQ(call(gnomon::Packed{negative}, {"cu_seqlens", "-1"}), "");
}

TEST_F(BadLists, OfHeadsThatAreNotTheSame) {
  const auto frequencies = gnomon::frequencies(spec);
  auto q = view(1, 2, 3), k = view(1, 1, 3);
  k.data = memory.data() + 2048;
  const gnomon::RotateOperand both[] = {{q, q}, {k, k}};
  EXPECT_EQ(refusal_fault([&] { gnomon::rotate(both, frequencies, gnomon::Range{0, 6}, {.positions_per_head = true}); },
                          ErrorCode::invalid_argument, {"positions_per_head", "heads"}),
            "");
  EXPECT_NO_THROW(gnomon::rotate(both, frequencies, gnomon::Range{0, 3}));
}

}  // namespace
