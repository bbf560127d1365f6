// SPDX-License-Identifier: Apache-2.0
// rotate's kernels against the double reference, on every CPU target of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "support/pairs.hpp"
#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;
using gnomon::Direction;
using gnomon::PairLayout;

constexpr double f32_unit = 0x1p-24;           // one rounding
constexpr double trigonometry_bound = 1.2e-7;  // of cos and of sin, at every position of the contract

struct Job {
  gnomon::RotarySpec spec;
  std::int64_t batch = 2, heads = 2, tokens = 3;
  Order in = Order::bhtd, out = Order::bhtd;
  bool in_place = false;
  bool per_row = false;
  Direction direction = Direction::forward;
  bool far = false;  ///< positions up to 2^33 instead of 2^15
};

/// Positions in the form the job asks for, with the memory they borrow.
struct GivenPositions {
  std::vector<std::int32_t> ids32;
  std::vector<std::int64_t> ids;
  gnomon::Positions positions;
  std::int64_t at(std::size_t index) const {
    if (const auto* range = std::get_if<gnomon::Range>(&positions)) return range->start + static_cast<std::int64_t>(index) * range->step;
    return ids.empty() ? ids32[index] : ids[index];
  }
};
enum class Form { range, ids32, ids };

void draw_positions(SequenceDraw& draw, const Job& job, Form form, GivenPositions& given) {
  const std::int64_t number = job.per_row ? job.batch * job.tokens : job.tokens;
  const std::int64_t reach = !job.far ? 1 << 15 : form == Form::ids32 ? (std::int64_t{1} << 31) - 1 : gnomon::max_position;
  if (form == Form::range) {
    const std::int64_t step = draw.whole(0, 1) == 0 ? draw.whole(1, 1000) : -draw.whole(1, 1000);
    const std::int64_t start = step > 0 ? reach - (number - 1) * step : -reach - (number - 1) * step;
    given.positions = gnomon::Range{start, start + number * step, step};
    return;
  }
  for (std::int64_t k = 0; k < number; k++) {
    const std::int64_t position = k == 0 ? -reach : k == 1 ? reach : draw.whole(-reach, reach);
    if (form == Form::ids32)
      given.ids32.push_back(static_cast<std::int32_t>(position));
    else
      given.ids.push_back(position);
  }
  if (form == Form::ids32)
    given.positions = gnomon::Ids32{given.ids32};
  else
    given.positions = gnomon::Ids{given.ids};
}

/// Worst error of a run as a share of its bound, and worst error over (|a| + |b|) times the magnitude.
struct Worst {
  double share = 0, relative = 0;
};

/// The bound of one rotated element: cos and sin within the contract, then the roundings of the loop (a product, a sum, and with
/// magnitudes their own and the products with them), then one rounding to the element type.
template <class Element>
double bound_of(double size, double truth, double magnitude, std::int64_t position) {
  const double phase = (std::abs(static_cast<double>(position)) + 2) * 0x1p-64 * 2 * 3.141592653589793;
  double bound = size * (trigonometry_bound + phase + f32_unit + (magnitude == 1 ? 0 : 4 * f32_unit));
  if constexpr (sizeof(Element) == 2) bound += half_ulp<Element>(std::abs(truth) + bound);
  return bound + 0x1p-149;
}

template <class Element>
void compare(const Job& job, const Strided<Element>& before, const Strided<Element>& after, const GivenPositions& given, Worst& worst) {
  const auto frequencies = gnomon::frequencies(job.spec);
  auto truth = converted<double>(before);
  gnomon::reference::rotate(truth.view(), truth.view(), frequencies, given.positions, {.direction = job.direction});
  const double magnitude = frequencies.attention_factor;
  for (std::int64_t b = 0; b < job.batch; b++)
    for (std::int64_t h = 0; h < job.heads; h++)
      for (std::int64_t t = 0; t < job.tokens; t++)
        for (int i = 0; i < job.spec.rotary_dim / 2; i++) {
          const auto [first, second] = channels(job.spec, i);
          const auto position = given.at(static_cast<std::size_t>(job.per_row ? b * job.tokens + t : t));
          const double decay =
              frequencies.log_magnitude.empty()
                  ? 1
                  : std::exp(frequencies.log_magnitude[static_cast<std::size_t>(i)] * static_cast<double>(position - frequencies.centre));
          const double size =
              magnitude * decay * (std::abs(decode(before.at(b, h, t, first))) + std::abs(decode(before.at(b, h, t, second))));
          for (const int channel : {first, second}) {
            const double real = truth.at(b, h, t, channel), got = decode(after.at(b, h, t, channel));
            const double bound = bound_of<Element>(size, real, magnitude * decay, position);
            if (std::is_same_v<Element, Half> && std::isinf(got) && std::abs(real) + bound >= 65520) continue;
            ASSERT_LE(std::abs(got - real), bound)
                << "b " << b << " h " << h << " t " << t << " channel " << channel << " position " << position << "\n"
                << gnomon::to_json(job.spec);
            worst.share = std::max(worst.share, std::abs(got - real) / bound);
            if (size > 0) worst.relative = std::max(worst.relative, std::abs(got - real) / size);
          }
        }
}

/// Channels outside the rotated ones carry x's bits, and memory outside the tensor keeps its own.
template <class Element>
void expect_rest_untouched(const Job& job, const Strided<Element>& x, const Strided<Element>& memory_before, Strided<Element> after) {
  const int first = job.spec.rotary_offset, past = first + job.spec.rotary_dim;
  bool equal = true;
  x.each([&](auto b, auto h, auto t, auto d) {
    if (d < first || d >= past) equal = equal && same_bits(after.at(b, h, t, d), x.at(b, h, t, d));
  });
  EXPECT_TRUE(equal) << "a channel that is not rotated changed: " << gnomon::to_json(job.spec);
  x.each([&](auto b, auto h, auto t, auto d) { after.at(b, h, t, d) = memory_before.at(b, h, t, d); });
  EXPECT_EQ(std::memcmp(after.memory.data(), memory_before.memory.data(), after.memory.size() * sizeof(Element)), 0)
      << "memory outside the tensor changed: " << gnomon::to_json(job.spec);
}

template <class Element>
void run(const Job& job, Form form, SequenceDraw& draw, Worst& worst) {
  const Shape shape{job.batch, job.heads, job.tokens, job.spec.head_dim};
  const auto frequencies = gnomon::frequencies(job.spec);
  GivenPositions given;
  draw_positions(draw, job, form, given);
  Strided<Element> x(shape, job.in);
  x.fill(draw);
  for (std::int64_t d = 0; d < shape[3]; d++) {  // bits of every kind, NaNs included, where nothing is rotated
    if (d >= job.spec.rotary_offset && d < job.spec.rotary_offset + job.spec.rotary_dim) continue;
    const auto bits = static_cast<std::uint64_t>(draw.whole(0, INT64_MAX));
    if (job.batch * job.heads * job.tokens > 0) std::memcpy(&x.at(0, 0, 0, d), &bits, sizeof(Element));
  }
  Strided<Element> out(shape, job.out);
  out.fill_with_bits(draw);
  const auto out_before = out;
  gnomon::rotate(std::as_const(x).view(), out.view(), frequencies, given.positions, {.direction = job.direction});
  compare(job, x, out, given, worst);
  expect_rest_untouched(job, x, out_before, out);

  auto in_place = x;
  gnomon::rotate(in_place.view(), frequencies, given.positions, {.direction = job.direction});
  expect_rest_untouched(job, x, x, in_place);
  bool equal = true;
  x.each([&](auto b, auto h, auto t, auto d) { equal = equal && same_bits(in_place.at(b, h, t, d), out.at(b, h, t, d)); });
  EXPECT_TRUE(equal) << "in place and out of place differ: " << gnomon::to_json(job.spec);
}

gnomon::RotarySpec plain(int head_dim, int rotary_dim, int offset, PairLayout layout) {
  return {.rule = gnomon::rotary::Default{},
          .theta = 10000,
          .head_dim = head_dim,
          .rotary_dim = rotary_dim,
          .rotary_offset = offset,
          .layout = layout};
}

const PairLayout layouts[] = {PairLayout::half_split, PairLayout::interleaved};
const Direction directions[] = {Direction::forward, Direction::transposed};
const Form forms[] = {Form::range, Form::ids32, Form::ids};

using Rotate = OnEveryTarget;

template <class Element>
void sizes_around_the_vector_width() {
  SequenceDraw draw(31);
  Worst worst;
  for (const int pairs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 17, 24, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129}) {
    for (const auto layout : layouts)
      for (const auto direction : directions) {
        const int offset = static_cast<int>(draw.whole(0, 3)), tail = static_cast<int>(draw.whole(0, 3));
        const Job job{.spec = plain(2 * pairs + offset + tail, 2 * pairs, offset, layout), .direction = direction};
        for (const auto form : forms) run<Element>(job, form, draw, worst);
      }
  }
  std::cout << "[ measured ] " << gnomon::kernel_target() << " " << gnomon::name_of(dtype_for<Element>()) << ": worst error "
            << worst.relative << " of |a| + |b|, " << worst.share << " of its bound\n";
}

TEST_P(Rotate, SizesAroundTheVectorWidthF32) { sizes_around_the_vector_width<float>(); }
TEST_P(Rotate, SizesAroundTheVectorWidthBf16) { sizes_around_the_vector_width<std::uint16_t>(); }
TEST_P(Rotate, SizesAroundTheVectorWidthF16) { sizes_around_the_vector_width<Half>(); }

template <class Element>
void orders_and_positions() {
  SequenceDraw draw(32);
  Worst worst;
  for (const auto in : all_orders)
    for (const auto out : all_orders)
      for (const auto layout : layouts)
        for (const bool per_row : {false, true}) {
          const Job job{
              .spec = plain(44, 38, 4, layout), .batch = 3, .heads = 2, .tokens = 5, .in = in, .out = out, .per_row = per_row, .far = true};
          run<Element>(job, forms[draw.whole(0, 2)], draw, worst);
        }
}

TEST_P(Rotate, OrdersAndPositionsF32) { orders_and_positions<float>(); }
TEST_P(Rotate, OrdersAndPositionsBf16) { orders_and_positions<std::uint16_t>(); }
TEST_P(Rotate, OrdersAndPositionsF16) { orders_and_positions<Half>(); }

template <class Element>
void every_rule() {
  SequenceDraw draw(33);
  Worst worst;
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    for (int round = 0; round < 20; round++) {
      Job job{.spec = draw_spec<Rule>(draw, {.most_pairs = 70}),
              .batch = draw.whole(1, 3),
              .heads = draw.whole(1, 4),
              .tokens = draw.whole(1, 40)};
      job.in = all_orders[draw.whole(0, 4)];
      job.out = all_orders[draw.whole(0, 4)];
      job.per_row = draw.whole(0, 1) == 1;
      job.direction = directions[draw.whole(0, 1)];
      job.far = draw.whole(0, 1) == 1;
      run<Element>(job, forms[draw.whole(0, 2)], draw, worst);
    }
  });
  std::cout << "[ measured ] " << gnomon::kernel_target() << " " << gnomon::name_of(dtype_for<Element>()) << ", magnitudes: worst error "
            << worst.relative << " of (|a| + |b|) * magnitude, " << worst.share << " of its bound\n";
}

TEST_P(Rotate, EveryRuleF32) { every_rule<float>(); }
TEST_P(Rotate, EveryRuleBf16) { every_rule<std::uint16_t>(); }
TEST_P(Rotate, EveryRuleF16) { every_rule<Half>(); }

TEST_P(Rotate, LongRunsOfTokens) {
  // More tokens than any block of rows a kernel may keep, with a batch, so that rows are made, reused and made again.
  SequenceDraw draw(34);
  Worst worst;
  for (const int pairs : {1, 5, 64})
    for (const bool per_row : {false, true}) {
      const Job job{.spec = plain(2 * pairs, 2 * pairs, 0, PairLayout::half_split),
                    .batch = 2,
                    .heads = 1,
                    .tokens = 301,
                    .in = Order::bthd,
                    .per_row = per_row};
      for (const auto form : forms) run<float>(job, form, draw, worst);
    }
}

TEST_P(Rotate, RowsDoNotDependOnThoseBeforeThem) {
  // Phases of positions that follow each other are sums. A carry lost in one is 2^-32 turn: only thousands of them can be seen.
  SequenceDraw draw(40);
  constexpr std::int64_t tokens = 5000;
  const auto spec = plain(42, 42, 0, PairLayout::half_split);
  const auto frequencies = gnomon::frequencies(spec);
  Strided<float> x({1, 1, tokens, spec.head_dim}, Order::bhtd);
  x.fill(draw);
  auto alone = x;
  gnomon::rotate(x.view(), frequencies, gnomon::Range{0, tokens});
  for (const std::int64_t t : {std::int64_t{2}, tokens / 2, tokens - 1}) {
    const gnomon::TensorView one{&alone.at(0, 0, t, 0), gnomon::DType::f32, {1, 1, 1, spec.head_dim}, alone.strides};
    gnomon::rotate(one, frequencies, gnomon::Range{t, t + 1});
    for (std::int64_t d = 0; d < spec.head_dim; d++) ASSERT_EQ(x.at(0, 0, t, d), alone.at(0, 0, t, d)) << "token " << t << " channel " << d;
  }
}

TEST_P(Rotate, CosAndSinKeepTheContractAtEveryDistance) {
  // The unit vector (1, 0) becomes (cos, sin): nothing else is in the result.
  SequenceDraw draw(35);
  constexpr int pairs = 64;
  const auto spec = plain(2 * pairs, 2 * pairs, 0, PairLayout::half_split);
  const auto frequencies = gnomon::frequencies(spec);
  std::map<int, double> worst;
  for (const int bits : {0, 8, 12, 17, 20, 24, 27, 31, 33}) {
    constexpr std::int64_t tokens = 2000;
    std::vector<std::int64_t> ids(tokens, std::int64_t{1} << bits);
    for (std::size_t k = 1; k < ids.size(); k++) ids[k] = draw.whole(-(std::int64_t{1} << bits), std::int64_t{1} << bits);
    Strided<float> x({1, 1, tokens, spec.head_dim}, Order::bhtd);
    x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = d < pairs ? 1.0F : 0.0F; });
    auto truth = converted<double>(x);
    gnomon::rotate(x.view(), frequencies, gnomon::Ids{ids});
    gnomon::reference::rotate(truth.view(), truth.view(), frequencies, gnomon::Ids{ids});
    x.each([&](auto b, auto h, auto t, auto d) {
      worst[bits] = std::max(worst[bits], std::abs(static_cast<double>(x.at(b, h, t, d)) - truth.at(b, h, t, d)));
    });
    EXPECT_LE(worst[bits], trigonometry_bound) << "positions up to 2^" << bits;
  }
  std::cout << "[ measured ] " << gnomon::kernel_target() << " cos and sin:";
  for (const auto& [bits, error] : worst) std::cout << " 2^" << bits << " " << error;
  std::cout << "\n";
}

TEST_P(Rotate, PolynomialsKeepTheContractAtEveryPhase) {
  // Phases walked evenly over the whole turn, the quadrant borders included: a frequency of 2 pi / 2^k steps one 2^-k turn.
  const auto spec = plain(2, 2, 0, PairLayout::half_split);
  gnomon::Frequencies frequencies = gnomon::frequencies(spec);
  constexpr std::int64_t tokens = 1 << 20;
  frequencies.inv_freq = {2 * 3.141592653589793 / static_cast<double>(tokens)};
  frequencies.turns = {gnomon::turns(frequencies.inv_freq[0])};
  Strided<float> x({1, 1, tokens, 2}, Order::bhtd);
  x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = d == 0 ? 1.0F : 0.0F; });
  auto truth = converted<double>(x);
  gnomon::rotate(x.view(), frequencies, gnomon::Range{0, tokens});
  gnomon::reference::rotate(truth.view(), truth.view(), frequencies, gnomon::Range{0, tokens});
  double worst = 0, longest = 0;
  for (std::int64_t t = 0; t < tokens; t++) {
    for (int d = 0; d < 2; d++) worst = std::max(worst, std::abs(static_cast<double>(x.at(0, 0, t, d)) - truth.at(0, 0, t, d)));
    longest = std::max(longest, std::abs(static_cast<double>(std::max(std::abs(x.at(0, 0, t, 0)), std::abs(x.at(0, 0, t, 1))))));
  }
  EXPECT_LE(worst, trigonometry_bound);
  EXPECT_LE(longest, 1) << "a cosine beyond 1";
  std::cout << "[ measured ] " << gnomon::kernel_target() << " cos and sin over 2^20 phases of one turn: worst " << worst << "\n";
}

TEST_P(Rotate, RealPositionsToo) {
  SequenceDraw draw(36);
  for (const auto layout : layouts) {
    const auto spec = plain(20, 14, 2, layout);
    const auto frequencies = gnomon::frequencies(spec);
    std::vector<double> reals;
    for (int k = 0; k < 24; k++) reals.push_back(even(draw, -1e5, 1e5));
    for (const std::int64_t batch : {1, 3}) {
      const auto tokens = static_cast<std::int64_t>(reals.size()) / batch;  // one per token, then one per batch row and token
      Strided<float> x({batch, 2, tokens, spec.head_dim}, Order::bthd);
      x.fill(draw);
      auto truth = converted<double>(x);
      gnomon::rotate(x.view(), frequencies, gnomon::Reals{reals});
      gnomon::reference::rotate(truth.view(), truth.view(), frequencies, gnomon::Reals{reals});
      x.each([&](auto b, auto h, auto t, auto d) { ASSERT_NEAR(static_cast<double>(x.at(b, h, t, d)), truth.at(b, h, t, d), 1e-6); });
    }
  }
}

TEST_P(Rotate, EmptyTensorsAreNothingToDo) {
  SequenceDraw draw(37);
  const auto spec = plain(16, 16, 0, PairLayout::half_split);
  const auto frequencies = gnomon::frequencies(spec);
  for (const Shape shape : {Shape{0, 2, 3, 16}, Shape{2, 0, 3, 16}, Shape{2, 2, 0, 16}, Shape{0, 0, 0, 16}}) {
    Strided<float> x(shape, Order::bhtd);
    x.fill_with_bits(draw);
    const auto before = x;
    gnomon::rotate(x.view(), frequencies, gnomon::Range{0, shape[2]});
    EXPECT_EQ(std::memcmp(x.memory.data(), before.memory.data(), x.memory.size() * sizeof(float)), 0);
    gnomon::rotate(gnomon::TensorView{nullptr, gnomon::DType::bf16, shape, {1, 1, 1, 1}}, frequencies, gnomon::Range{0, shape[2]});
  }
}

TEST_P(Rotate, ABroadcastInputIsRead) {
  // Strides of 0 are fine where nothing is written: one key shared by every head.
  SequenceDraw draw(38);
  const auto spec = plain(24, 24, 0, PairLayout::half_split);
  const auto frequencies = gnomon::frequencies(spec);
  Strided<float> x({1, 1, 4, 24}, Order::bhtd), out({2, 3, 4, 24}, Order::bhtd);
  x.fill(draw);
  const gnomon::ConstTensorView wide(x.memory.data() + x.origin, gnomon::DType::f32, {2, 3, 4, 24}, {0, 0, 24, 1});
  gnomon::rotate(wide, out.view(), frequencies, gnomon::Range{5, 9});
  gnomon::rotate(x.view(), frequencies, gnomon::Range{5, 9});
  out.each([&](auto b, auto h, auto t, auto d) { ASSERT_EQ(out.at(b, h, t, d), x.at(0, 0, t, d)) << b << h; });
}

TEST_P(Rotate, F64RunsTheReference) {
  SequenceDraw draw(39);
  const auto spec = plain(38, 34, 2, PairLayout::interleaved);
  const auto frequencies = gnomon::frequencies(spec);
  Strided<double> x({2, 2, 5, 38}, Order::bthd);
  x.fill(draw);
  auto truth = x;
  gnomon::rotate(x.view(), frequencies, gnomon::Range{1000000, 1000005});
  gnomon::reference::rotate(truth.view(), truth.view(), frequencies, gnomon::Range{1000000, 1000005});
  EXPECT_EQ(std::memcmp(x.memory.data(), truth.memory.data(), x.memory.size() * sizeof(double)), 0);
}

INSTANTIATE_TEST_SUITE_P(Target, Rotate, testing::ValuesIn(targets()), target_name);

TEST(Targets, AreSeveral) {
  std::cout << "[ targets  ]";
  for (const auto target : targets()) std::cout << " " << hwy::TargetName(target);
  std::cout << "; chosen by default: " << gnomon::kernel_target() << "\n";
  EXPECT_FALSE(targets().empty());
}

}  // namespace
