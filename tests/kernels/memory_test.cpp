// SPDX-License-Identifier: Apache-2.0
// Several tensors in one call, and the memory they may share: fused projections are taken, an overlap is not, and the verdict of the check
// is held against the bytes that are really touched.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;
using gnomon::ConstTensorView;
using gnomon::DType;
using gnomon::Error;
using gnomon::ErrorCode;
using gnomon::PairLayout;
using gnomon::RotateOperand;
using gnomon::TensorView;

gnomon::Frequencies plain(int head_dim, int rotary_dim, PairLayout layout) {
  return gnomon::frequencies(
      {.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = head_dim, .rotary_dim = rotary_dim, .layout = layout});
}

RotateOperand in_place(const TensorView& view) { return {view, view}; }

using Operands = OnEveryTarget;

/// Random tensors with these numbers of heads, rotated in one call, bit for bit what separate calls make.
template <class Element>
void one_call_is_separate_calls(const std::vector<std::int64_t>& heads, bool out_of_place) {
  SequenceDraw draw(51);
  for (const auto layout : {PairLayout::half_split, PairLayout::interleaved}) {
    const auto frequencies = plain(38, 34, layout);
    for (const std::int64_t batch : {1, 3}) {
      constexpr std::int64_t tokens = 37;
      std::vector<std::int64_t> ids;
      for (std::int64_t k = 0; k < batch * tokens; k++) ids.push_back(draw.whole(-1000000, 1000000));
      std::vector<Strided<Element>> x, together, alone;
      std::size_t order = 0;
      for (const auto number : heads) {
        x.emplace_back(Shape{batch, number, tokens, 38}, all_orders[order++ % 5]);
        x.back().fill(draw);
        alone.emplace_back(Shape{batch, number, tokens, 38}, all_orders[order % 5]);
      }
      together = out_of_place ? alone : x;
      std::vector<RotateOperand> operands;
      for (std::size_t i = 0; i < heads.size(); i++) {
        operands.push_back(out_of_place ? RotateOperand{std::as_const(x[i]).view(), together[i].view()} : in_place(together[i].view()));
        gnomon::rotate(std::as_const(x[i]).view(), alone[i].view(), frequencies, gnomon::Ids{ids});
      }
      gnomon::rotate(operands, frequencies, gnomon::Ids{ids});
      for (std::size_t i = 0; i < heads.size(); i++) {
        int different = 0;
        x[i].each([&](auto b, auto h, auto t, auto d) { different += !same_bits(together[i].at(b, h, t, d), alone[i].at(b, h, t, d)); });
        EXPECT_EQ(different, 0) << "operand " << i << " of " << heads.size() << ", batch " << batch;
      }
    }
  }
}

TEST_P(Operands, QueriesAndKeysInOneCall) {
  for (const bool out_of_place : {false, true}) {
    one_call_is_separate_calls<float>({8, 2}, out_of_place);
    one_call_is_separate_calls<std::uint16_t>({8, 2}, out_of_place);
    one_call_is_separate_calls<Half>({2, 8}, out_of_place);
    one_call_is_separate_calls<double>({3, 1}, out_of_place);
  }
}
TEST_P(Operands, ThreeInOneCall) { one_call_is_separate_calls<float>({4, 1, 7}, false); }
TEST_P(Operands, OneOfThemEmpty) {
  one_call_is_separate_calls<float>({4, 0}, true);
  one_call_is_separate_calls<float>({0, 4}, true);
  one_call_is_separate_calls<std::uint16_t>({2, 0, 3}, false);
}

TEST_P(Operands, AnEmptyOneHasNoMemoryToShare) {
  const auto frequencies = plain(8, 8, PairLayout::half_split);
  std::vector<float> memory(512, 1.0F);
  const TensorView full{memory.data(), DType::f32, {2, 2, 3, 8}, {48, 24, 8, 1}};
  for (const std::int64_t offset : {0, 1, 24, 40, 100}) {
    for (const std::int64_t stride : {-100, -8, 0, 8, 100}) {
      const TensorView none{memory.data() + offset, DType::f32, {2, 0, 3, 8}, {stride, stride, stride, 1}};
      const RotateOperand both[] = {in_place(full), in_place(none)}, turned[] = {in_place(none), in_place(full)};
      EXPECT_NO_THROW(gnomon::rotate(both, frequencies, gnomon::Range{0, 3})) << offset << " " << stride;
      EXPECT_NO_THROW(gnomon::rotate(turned, frequencies, gnomon::Range{0, 3})) << offset << " " << stride;
    }
  }
}

/// q and k as slices of one buffer that holds q, k and v; v must keep its bits.
template <class Element>
void fused(bool token_major, std::int64_t batch, std::int64_t tokens) {
  SequenceDraw draw(52);
  constexpr std::int64_t q_heads = 6, k_heads = 2, D = 20, all = q_heads + 2 * k_heads;
  const auto frequencies = plain(D, D, PairLayout::half_split);
  std::vector<Element> memory(static_cast<std::size_t>(batch * tokens * all * D));
  for (auto& element : memory) element = encode<Element>(static_cast<double>(draw.whole(-1000, 1000)) / 500);
  const auto before = memory;
  const std::int64_t head_step = token_major ? D : tokens * D, token_step = token_major ? all * D : D;
  const auto slice = [&](std::int64_t first, std::int64_t number) {
    return TensorView{
        memory.data() + first * head_step, dtype_for<Element>(), {batch, number, tokens, D}, {all * tokens * D, head_step, token_step, 1}};
  };
  const RotateOperand operands[] = {in_place(slice(0, q_heads)), in_place(slice(q_heads, k_heads))};
  gnomon::rotate(operands, frequencies, gnomon::Range{5, 5 + tokens});
  const auto together = memory;
  memory = before;
  gnomon::rotate(slice(0, q_heads), frequencies, gnomon::Range{5, 5 + tokens});
  gnomon::rotate(slice(q_heads, k_heads), frequencies, gnomon::Range{5, 5 + tokens});
  EXPECT_EQ(std::memcmp(memory.data(), together.data(), memory.size() * sizeof(Element)), 0);
  const std::int64_t b = batch - 1, t = tokens - 1;
  for (std::int64_t d = 0; d < D; d++) {
    const auto at = static_cast<std::size_t>(b * all * tokens * D + (q_heads + k_heads) * head_step + t * token_step + d);
    EXPECT_TRUE(same_bits(together[at], before[at])) << "the values were written";
  }
  // One head too many: the last query head is the first key head.
  const RotateOperand overlapping[] = {in_place(slice(0, q_heads + 1)), in_place(slice(q_heads, k_heads))};
  EXPECT_EQ(refusal_fault([&] { gnomon::rotate(overlapping, frequencies, gnomon::Range{5, 5 + tokens}); }, ErrorCode::invalid_argument,
                          {"operands"}),
            "");
}

TEST_P(Operands, SlicesOfOneFusedProjection) {
  for (const bool token_major : {true, false}) {
    for (const std::int64_t batch : {1, 3}) {
      for (const std::int64_t tokens : {1, 4}) {
        fused<float>(token_major, batch, tokens);
        fused<std::uint16_t>(token_major, batch, tokens);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Target, Operands, testing::ValuesIn(targets()), target_name);

TEST(OperandsTogether, MustBeOfOneKind) {
  const auto frequencies = plain(8, 8, PairLayout::half_split);
  std::vector<float> memory(1024, 1.0F);
  const TensorView q{memory.data(), DType::f32, {2, 2, 3, 8}, {48, 24, 8, 1}};
  TensorView k{memory.data() + 512, DType::f32, {2, 1, 3, 8}, {24, 24, 8, 1}};
  const auto refused = [&](std::initializer_list<const char*> words) {
    const RotateOperand both[] = {in_place(q), in_place(k)};
    return refusal_fault([&] { gnomon::rotate(both, frequencies, gnomon::Range{0, q.shape[2]}); }, ErrorCode::invalid_argument, words);
  };
  k.shape[0] = 1;
  EXPECT_EQ(refused({"operands", "(2, 2, 3, 8)", "(1, 1, 3, 8)"}), "");
  k.shape = {2, 1, 2, 8};
  EXPECT_EQ(refused({"operands", "(2, 1, 2, 8)"}), "");
  k.shape = {2, 1, 3, 8};
  k.dtype = DType::bf16;
  EXPECT_EQ(refused({"operands", "f32", "bf16"}), "");
  EXPECT_EQ(refusal_fault([&] { gnomon::rotate(std::span<const RotateOperand>(), frequencies, gnomon::Range{0, 3}); },
                          ErrorCode::invalid_argument, {"operands", "none"}),
            "");
}

// ---- The check against the bytes.

constexpr std::int64_t room = 64;  // elements on each side of where a view begins

/// Every element a view touches, and whether it touches one twice.
struct Touched {
  std::set<std::int64_t> elements;
  bool twice = false;
};
Touched touched(const TensorView& view, const float* origin) {
  Touched result;
  const auto begin = static_cast<const float*>(view.data) - origin;
  for (std::int64_t b = 0; b < view.shape[0]; b++)
    for (std::int64_t h = 0; h < view.shape[1]; h++)
      for (std::int64_t t = 0; t < view.shape[2]; t++)
        for (std::int64_t d = 0; d < view.shape[3]; d++) {
          const auto at = begin + b * view.strides[0] + h * view.strides[1] + t * view.strides[2] + d;
          result.twice = !result.elements.insert(at).second || result.twice;
        }
  return result;
}
bool disjoint(const Touched& a, const Touched& b) {
  return std::none_of(a.elements.begin(), a.elements.end(), [&](std::int64_t at) { return b.elements.contains(at); });
}

class Verdicts {
 public:
  Verdicts() : memory_(4096, 1.0F) {}

  /// A view with small random strides, some of them nested as tensors have them, some anyhow.
  TensorView draw_view(SequenceDraw& draw, const Shape& shape) {
    std::array<std::int64_t, 4> strides{0, 0, 0, 1};
    if (draw.whole(0, 3) == 0) {
      for (std::size_t axis = 0; axis < 3; axis++) strides[axis] = draw.whole(-14, 14);
    } else {
      std::array<std::size_t, 3> order{0, 1, 2};
      for (std::size_t i = 2; i > 0; i--) std::swap(order[i], order[static_cast<std::size_t>(draw.whole(0, static_cast<std::int64_t>(i)))]);
      std::int64_t step = shape[3] + draw.whole(0, 6);
      for (const auto axis : order) {
        strides[axis] = draw.whole(0, 4) == 0 ? -step : step;
        step = step * shape[axis] + (draw.whole(0, 2) == 0 ? draw.whole(-2, 6) : 0);
      }
    }
    return {origin() + draw.whole(-room, room), DType::f32, shape, strides};
  }
  /// The same strides, begun somewhere else: what a fused projection is made of.
  TensorView moved(SequenceDraw& draw, TensorView view, std::int64_t heads) {
    view.data = static_cast<float*>(view.data) + draw.whole(-16, 16);
    view.shape[1] = heads;
    return view;
  }
  float* origin() { return memory_.data() + 2048; }
  const float* origin() const { return memory_.data() + 2048; }

  /// Whether the check lets these operands pass.
  bool accepted(std::span<const RotateOperand> operands, const gnomon::Frequencies& frequencies) {
    try {
      gnomon::rotate(operands, frequencies, gnomon::Range{0, operands[0].x.shape[2]});
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      return false;
    }
  }

 private:
  std::vector<float> memory_;
};

std::string text(const TensorView& view, const float* origin) {
  std::string result = "at " + std::to_string(static_cast<const float*>(view.data) - origin) + " shape";
  for (const auto extent : view.shape) result += " " + std::to_string(extent);
  result += " strides";
  for (const auto stride : view.strides) result += " " + std::to_string(stride);
  return result;
}

/// Axes sorted by their steps, each at least as long as what the axes below it reach over: a check need not know more.
bool nested(const TensorView& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;
  for (std::size_t i = 0; i < 3; i++) {
    if (view.shape[i] > 1) axes.emplace_back(std::abs(view.strides[i]), view.shape[i]);
  }
  std::sort(axes.begin(), axes.end());
  std::int64_t reach = view.shape[3];
  for (const auto& [step, number] : axes) {
    if (step < reach) return false;
    reach += step * (number - 1);
  }
  return true;
}

TEST(Memory, AnOutputThatMeetsItselfIsNeverTaken) {
  SequenceDraw draw(53);
  Verdicts verdicts;
  const auto frequencies = plain(4, 4, PairLayout::half_split);
  std::map<std::pair<bool, bool>, int> counts;
  for (int round = 0; round < 40000; round++) {
    const auto view = verdicts.draw_view(draw, {draw.whole(1, 3), draw.whole(1, 3), draw.whole(1, 3), 4});
    const RotateOperand operand = in_place(view);
    const bool taken = verdicts.accepted(std::span(&operand, 1), frequencies), twice = touched(view, verdicts.origin()).twice;
    ASSERT_FALSE(taken && twice) << text(view, verdicts.origin());
    ASSERT_TRUE(taken || !nested(view)) << "a nested view refused: " << text(view, verdicts.origin());
    counts[{taken, twice}]++;
  }
  EXPECT_GT((counts[{true, false}]), 5000);
  EXPECT_GT((counts[{false, true}]), 5000);
}

TEST(Memory, TwoTensorsThatMeetAreNeverTaken) {
  SequenceDraw draw(54);
  Verdicts verdicts;
  const auto frequencies = plain(4, 4, PairLayout::half_split);
  int apart_taken = 0, apart_refused = 0, overlaps = 0;
  for (int round = 0; round < 60000; round++) {
    const std::int64_t batch = draw.whole(1, 3), tokens = draw.whole(1, 3);
    const auto a = verdicts.draw_view(draw, {batch, draw.whole(1, 3), tokens, 4});
    const auto b =
        draw.whole(0, 1) == 0 ? verdicts.moved(draw, a, draw.whole(1, 3)) : verdicts.draw_view(draw, {batch, draw.whole(1, 3), tokens, 4});
    const auto bytes_a = touched(a, verdicts.origin()), bytes_b = touched(b, verdicts.origin());
    if (bytes_a.twice || bytes_b.twice) continue;
    // As two tensors of a call; then b read and a written, where they have one shape.
    const RotateOperand both[] = {in_place(a), in_place(b)};
    const bool taken = verdicts.accepted(both, frequencies), apart = disjoint(bytes_a, bytes_b);
    ASSERT_FALSE(taken && !apart) << text(a, verdicts.origin()) << "; " << text(b, verdicts.origin());
    overlaps += !apart;
    apart_taken += taken;
    apart_refused += apart && !taken;
    const auto ends = [](const Touched& t) { return std::pair(*t.elements.begin(), *t.elements.rbegin()); };
    const auto [a_first, a_last] = ends(bytes_a);
    const auto [b_first, b_last] = ends(bytes_b);
    const bool one_after_the_other = nested(a) && nested(b) && (a_last < b_first || b_last < a_first);
    ASSERT_TRUE(taken || !one_after_the_other) << text(a, verdicts.origin()) << "; " << text(b, verdicts.origin());
    if (a.shape != b.shape) continue;
    const RotateOperand through{a, b};
    bool same = a.data == b.data;  // a step along an axis of one element is never taken
    for (std::size_t axis = 0; axis < 4; axis++) same = same && (a.shape[axis] == 1 || a.strides[axis] == b.strides[axis]);
    const bool copied = verdicts.accepted(std::span(&through, 1), frequencies);
    ASSERT_FALSE(copied && !apart && !same) << text(a, verdicts.origin()) << " into " << text(b, verdicts.origin());
  }
  EXPECT_GT(apart_taken, 5000);
  EXPECT_GT(overlaps, 5000);
  std::cout << "[ measured ] of " << apart_taken + apart_refused << " pairs that are apart, " << apart_refused << " are refused\n";
}

TEST(Memory, HeadsThatFitBetweenHeadsAreTaken) {
  // (token, head, [q k v], D): q, k and v of a head side by side, so that each view has gaps the others stand in.
  const auto frequencies = plain(8, 8, PairLayout::half_split);
  constexpr std::int64_t batch = 2, heads = 4, tokens = 5, D = 8;
  std::vector<float> memory(batch * heads * tokens * 3 * D, 1.0F);
  const auto slice = [&](std::int64_t part) {
    return TensorView{memory.data() + part * D, DType::f32, {batch, heads, tokens, D}, {tokens * heads * 3 * D, 3 * D, heads * 3 * D, 1}};
  };
  const RotateOperand both[] = {in_place(slice(0)), in_place(slice(1))};
  EXPECT_NO_THROW(gnomon::rotate(both, frequencies, gnomon::Range{0, tokens}));
  const RotateOperand copied{slice(0), slice(2)};
  EXPECT_NO_THROW(gnomon::rotate(std::span(&copied, 1), frequencies, gnomon::Range{0, tokens}));
  const RotateOperand twice[] = {in_place(slice(0)), in_place(slice(0))};
  EXPECT_EQ(refusal_fault([&] { gnomon::rotate(twice, frequencies, gnomon::Range{0, tokens}); }, ErrorCode::invalid_argument, {"operands"}),
            "");
}

}  // namespace
