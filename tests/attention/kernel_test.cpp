// SPDX-License-Identifier: Apache-2.0
// The attention kernel against the double reference, on every CPU target of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>

#include "gnomon/attention.hpp"
#include "gnomon/bias_table.hpp"
#include "gnomon/frequencies.hpp"
#include "gnomon/mask.hpp"
#include "operations/attention.hpp"
#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;
using gnomon::AttentionOptions;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct Sizes {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, width = 64, value_width = 64;
};

/// Inputs of a call, and the memory its options look at.
template <class Element>
struct Call {
  Sizes sizes;
  Strided<Element> q, k, v;
  AttentionOptions options;
  std::optional<gnomon::KeyIntervals> mask;
  std::vector<gnomon::BiasTable> bias;
  std::vector<float> sinks, factors, additive;
  std::vector<std::uint8_t> allowed;
  std::vector<std::int64_t> query_positions, key_positions;
  std::optional<gnomon::Frequencies> frequencies;

  template <class Draw>
  Call(const Sizes& s, Draw& draw, Order order = Order::bhtd)
      : sizes(s),
        q({s.batch, s.heads, s.queries, s.width}, order),
        k({s.batch, s.kv_heads, s.keys, s.width}, order),
        v({s.batch, s.kv_heads, s.keys, s.value_width}, order) {
    for (auto* x : {&q, &k, &v}) x->fill(draw);
  }
  Call(const Call&) = delete;

  void see(gnomon::MaskOptions wanted) {
    wanted.queries = sizes.queries;
    wanted.keys = sizes.keys;
    mask = gnomon::key_intervals(wanted);
    options.mask = &*mask;
  }
  /// What the mask tensor adds to a score.
  float added(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t j) const {
    if (!options.mask_tensor) return 0;
    const auto& m = options.mask_tensor->strides;
    const auto at = static_cast<std::size_t>(b * m[0] + h * m[1] + t * m[2] + j * m[3]);
    if (options.mask_tensor->kind == gnomon::MaskTensor::Kind::additive) return additive[at];
    return allowed[at] != 0 ? 0 : -infinity;
  }
  void add(gnomon::BiasTable table) {
    bias.push_back(std::move(table));
    options.bias = bias;
  }
};

template <class Element>
struct Result {
  Strided<Element> out;
  std::vector<float> log_sum_exp, maximum;
};

template <class Element>
Result<Element> run(const Call<Element>& call, Order order = Order::bhtd, gnomon::Executor* executor = nullptr) {
  const auto& s = call.sizes;
  const auto rows = static_cast<std::size_t>(s.batch * s.heads * s.queries);
  Result<Element> result{{{s.batch, s.heads, s.queries, s.value_width}, order}, std::vector<float>(rows), std::vector<float>(rows)};
  SequenceDraw draw(1);
  result.out.fill_with_bits(draw);
  AttentionOptions options = call.options;
  options.log_sum_exp = result.log_sum_exp.data();
  options.maximum = result.maximum.data();
  options.executor = executor;
  gnomon::attention(call.q.view(), call.k.view(), call.v.view(), result.out.view(), options);
  return result;
}

template <class Element>
Result<double> truth(const Call<Element>& call) {
  const auto& s = call.sizes;
  const auto rows = static_cast<std::size_t>(s.batch * s.heads * s.queries);
  Result<double> result{{{s.batch, s.heads, s.queries, s.value_width}, Order::bhtd}, std::vector<float>(rows), std::vector<float>(rows)};
  AttentionOptions options = call.options;
  options.log_sum_exp = result.log_sum_exp.data();
  options.maximum = result.maximum.data();
  const auto q = converted<double>(call.q), k = converted<double>(call.k), v = converted<double>(call.v);
  gnomon::reference::attention(q.view(), k.view(), v.view(), result.out.view(), options);
  return result;
}

/// One row by a plain loop in float32, whose error is the yardstick: the least that arithmetic of this width costs.
template <class Element>
std::vector<float> plain_row(const Call<Element>& call, const Strided<float>& q, const Strided<float>& k, std::int64_t b, std::int64_t h,
                             std::int64_t t) {
  const auto& s = call.sizes;
  const auto& o = call.options;
  const std::int64_t kv = h / (s.heads / s.kv_heads);
  const auto row = static_cast<std::size_t>((o.mask == nullptr || o.mask->batch == 1 ? 0 : b) * s.queries + t);
  const std::int64_t diagonal = o.mask == nullptr ? t + s.keys - s.queries : o.mask->diagonal[row];
  const std::int64_t first = o.mask == nullptr ? 0 : o.mask->first[row];
  std::vector<float> scores(static_cast<std::size_t>(s.keys), -infinity), out(static_cast<std::size_t>(s.value_width));
  const float sink = o.sink_logits.empty() ? -infinity : o.sink_logits[static_cast<std::size_t>(h)];
  float maximum = sink;
  for (std::int64_t j = 0; j < s.keys; j++) {
    if (o.mask != nullptr && !o.mask->sees(b, t, j)) continue;
    float score = 0;
    for (std::int64_t d = 0; d < s.width; d++) score += q.at(b, h, t, d) * k.at(b, kv, j, d);
    const auto by_batch = static_cast<std::int64_t>(o.query_factors.size()) == s.queries ? 0 : b * s.queries;
    if (!o.query_factors.empty()) score *= o.query_factors[static_cast<std::size_t>(by_batch + t)];
    score *= static_cast<float>(o.scale.value_or(1 / std::sqrt(static_cast<double>(s.width))));
    if (o.softcap) score = static_cast<float>(*o.softcap) * std::tanh(score / static_cast<float>(*o.softcap));
    for (const auto& table : o.bias) score += static_cast<float>(gnomon::bias_at(table, h, diagonal, j, diagonal - first));
    score += call.added(b, h, t, j);
    scores[static_cast<std::size_t>(j)] = score;
    maximum = std::max(maximum, score);
  }
  float sum = sink == -infinity ? 0 : std::exp(sink - maximum);
  for (std::int64_t j = 0; j < s.keys; j++) {
    const float score = scores[static_cast<std::size_t>(j)], weight = score == -infinity ? 0 : std::exp(score - maximum);
    sum += weight;
    for (std::int64_t d = 0; d < s.value_width; d++)
      out[static_cast<std::size_t>(d)] += weight * static_cast<float>(decode(call.v.at(b, kv, j, d)));
  }
  for (float& x : out) x = sum == 0 ? 0 : x / sum;
  return out;
}

/// Errors of many results, beside those of a plain loop. A root mean square needs more numbers than one small result has.
class Errors {
 public:
  /// `weights`: the relative rounding of weights, where they are rounded; errors of a row then have the size of its values times that.
  explicit Errors(double weights = 0) : weights_(weights) {}
  template <class Element>
  testing::AssertionResult add(const Call<Element>& call, const Result<Element>& got) {
    const auto real = truth(call);
    const auto& s = call.sizes;
    auto q = converted<float>(call.q), k = converted<float>(call.k);
    const auto& o = call.options;
    if (o.rotate_queries) gnomon::reference::rotate(q.view(), q.view(), o.rotate_queries->rotation, o.rotate_queries->positions);
    if (o.rotate_keys) gnomon::reference::rotate(k.view(), k.view(), o.rotate_keys->rotation, o.rotate_keys->positions);
    for (std::int64_t b = 0; b < s.batch; b++)
      for (std::int64_t h = 0; h < s.heads; h++)
        for (std::int64_t t = 0; t < s.queries; t++) {
          const auto plain = plain_row(call, q, k, b, h, t);
          for (std::int64_t d = 0; d < s.value_width; d++) {
            const double expected = real.out.at(b, h, t, d), found = decode(got.out.at(b, h, t, d));
            if (std::isfinite(expected) != std::isfinite(found))
              return testing::AssertionFailure()
                     << "at " << b << " " << h << " " << t << " " << d << ": " << found << ", expected " << expected;
            if (!std::isfinite(expected)) continue;
            const double error = std::abs(found - expected), one = half_ulp<Element>(std::abs(expected));
            if (!(error <= one + 1e-5 + 2 * weights_))
              return testing::AssertionFailure()
                     << "at " << b << " " << h << " " << t << " " << d << ": " << found << ", expected " << expected;
            worst_ = std::max(worst_, error - one);
            squares_ += error * error;
            roundings_ += one * one;
            plain_ += std::pow(static_cast<double>(plain[static_cast<std::size_t>(d)]) - expected, 2);
            number_++;
          }
        }
    for (const auto& [list, expected, name] :
         {std::tuple(&got.log_sum_exp, &real.log_sum_exp, "log_sum_exp"), std::tuple(&got.maximum, &real.maximum, "maximum")}) {
      for (std::size_t i = 0; i < list->size(); i++) {
        const float x = (*list)[i], y = (*expected)[i];
        if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= (4e-6 + weights_) * std::max(1.0f, std::abs(y))) continue;
        return testing::AssertionFailure() << name << " of row " << i << ": " << x << ", expected " << y;
      }
    }
    return testing::AssertionSuccess();
  }

  ~Errors() {
    const double rms = std::sqrt(squares_ / number_), plain = std::sqrt(plain_ / number_);
    EXPECT_LE(rms, 2 * plain + std::sqrt(roundings_ / number_) + weights_ / 4);
    std::cout << "[ measured ] " << gnomon::kernel_target() << ": rms error " << rms << ", of a plain loop " << plain << ", worst "
              << worst_ << " beyond a rounding, of " << number_ << "\n";
  }

 private:
  double weights_, squares_ = 0, plain_ = 0, roundings_ = 0, number_ = 0, worst_ = 0;
};

/// Every kind of mask, for any lengths.
const std::pair<const char*, std::function<gnomon::MaskOptions(std::int64_t, std::int64_t)>> masks[] = {
    {"none", [](auto, auto) { return gnomon::MaskOptions(); }},
    {"causal",
     [](auto, auto) {
       gnomon::MaskOptions m;
       m.right = 0;
       return m;
     }},
    {"causal, top left",
     [](auto, auto) {
       gnomon::MaskOptions m;
       m.right = 0;
       m.alignment = gnomon::Alignment::top_left;
       return m;
     }},
    {"window",
     [](auto, auto) {
       gnomon::MaskOptions m;
       m.right = 0;
       m.left = 36;
       return m;
     }},
    {"both sides",
     [](auto, auto) {
       gnomon::MaskOptions m;
       m.right = 20;
       m.left = 9;
       return m;
     }},
    {"window and first keys",
     [](auto, auto) {
       gnomon::MaskOptions m;
       m.right = 0;
       m.left = 30;
       m.keep_first = 4;
       return m;
     }},
    {"chunk",
     [](auto, auto) {
       gnomon::MaskOptions m;
       m.right = 0;
       m.chunk = 50;
       return m;
     }},
    {"prefix",
     [](auto, auto) {
       gnomon::MaskOptions m;
       m.right = 0;
       m.prefix = 21;
       return m;
     }},
};

using Attention = OnEveryTarget;

TEST_P(Attention, LengthsAndMasks) {
  SequenceDraw draw(51);
  Errors errors;
  const std::int64_t lengths[] = {1, 7, 63, 64, 65, 130, 257};
  for (const auto& [name, mask] : masks)
    for (const auto queries : lengths)
      for (const auto keys : lengths) {
        Call<float> call({.queries = queries, .keys = keys, .width = 16, .value_width = 16}, draw);
        if (std::string_view(name) != "none") call.see(mask(queries, keys));
        ASSERT_TRUE(errors.add(call, run(call))) << name << " " << queries << " x " << keys;
      }
}

TEST_P(Attention, NoQueriesOrNoKeys) {
  SequenceDraw draw(52);
  Call<float> none({.queries = 0, .keys = 5}, draw);
  run(none);
  Call<float> blind({.heads = 2, .queries = 3, .keys = 0}, draw);
  const auto result = run(blind);
  result.out.each([&](auto b, auto h, auto t, auto d) { ASSERT_EQ(result.out.at(b, h, t, d), 0); });
  for (const float x : result.log_sum_exp) EXPECT_EQ(x, -infinity);
  for (const float x : result.maximum) EXPECT_EQ(x, -infinity);
}

TEST_P(Attention, WidthsOfEveryKind) {
  SequenceDraw draw(53);
  Errors errors;
  for (const std::int64_t width : {1, 8, 15, 33, 64, 80, 96, 127, 128, 200, 256, 300})
    for (const std::int64_t value_width : {std::int64_t{1}, std::int64_t{40}, width, std::int64_t{130}}) {
      Call<float> call({.heads = 2, .queries = 70, .keys = 75, .width = width, .value_width = value_width}, draw);
      gnomon::MaskOptions causal;
      causal.right = 0;
      call.see(causal);
      ASSERT_TRUE(errors.add(call, run(call))) << width << " and " << value_width;
    }
}

template <class Element>
void groups_of_heads_in_every_order() {
  SequenceDraw draw(54);
  Errors errors;
  for (const auto& [heads, kv_heads] : {std::pair(1, 1), std::pair(3, 1), std::pair(4, 2), std::pair(8, 2), std::pair(5, 5)})
    for (const auto in : all_orders)
      for (const std::int64_t queries : {5, 70, 140}) {
        Call<Element> call({2, heads, kv_heads, queries, 131, 24, 40}, draw, in);
        gnomon::MaskOptions window;
        window.right = 0;
        window.left = 99;
        call.see(window);
        ASSERT_TRUE(errors.add(call, run(call, all_orders[draw.whole(0, 4)]))) << heads << " over " << kv_heads << ", " << queries;
      }
}
TEST_P(Attention, GroupsOfHeadsInEveryOrderF32) { groups_of_heads_in_every_order<float>(); }
TEST_P(Attention, GroupsOfHeadsInEveryOrderBf16) { groups_of_heads_in_every_order<std::uint16_t>(); }
TEST_P(Attention, GroupsOfHeadsInEveryOrderF16) { groups_of_heads_in_every_order<Half>(); }

TEST_P(Attention, PackedDocumentsAndPadding) {
  SequenceDraw draw(55);
  Errors errors;
  const std::vector<std::int32_t> queries{0, 3, 3, 70, 71, 140, 260}, keys{0, 9, 12, 62, 100, 180, 301};
  for (const bool same : {true, false})
    for (const bool biased : {false, true}) {
      Call<float> call({.heads = 2, .kv_heads = 2, .queries = 260, .keys = same ? 260 : 301, .width = 16, .value_width = 16}, draw);
      gnomon::MaskOptions packed;
      packed.right = 0;
      packed.keep_first = 2;
      packed.left = 40;
      packed.cu_seqlens_q = queries;
      packed.cu_seqlens_k = same ? queries : keys;
      call.see(packed);
      if (biased) call.add(gnomon::SlopeBias{{0.5F, 0.25F}, true});
      ASSERT_TRUE(errors.add(call, run(call))) << same << biased;
    }
  const std::vector<std::int32_t> begin{0, 17, 130}, end{130, 130, 130}, half{65, 130, 0};
  for (const bool left : {true, false}) {
    Call<float> call({.batch = 3, .queries = 130, .keys = 130, .width = 16, .value_width = 16}, draw);
    gnomon::MaskOptions padding;
    padding.right = 0;
    if (left) padding.key_begin = begin;
    padding.key_end = left ? end : half;
    call.see(padding);
    ASSERT_TRUE(errors.add(call, run(call))) << left;
  }
}

/// One of each way to change scores, alone or together.
struct Change {
  const char* name;
  void (*apply)(Call<float>&, SequenceDraw&);
};
gnomon::DistanceBias distances(std::int64_t heads, SequenceDraw& draw) {
  gnomon::DistanceBias bias{heads, -60, 90, {}};
  for (std::int64_t i = 0; i < heads * 90; i++) bias.values.push_back(static_cast<float>(even(draw, -3, 3)));
  return bias;
}
gnomon::FireBias fire(std::int64_t heads, SequenceDraw& draw) {
  gnomon::FireBias bias;
  bias.heads = heads;
  bias.c = 0.3F;
  bias.threshold = 30;
  for (int k = 0; k < 32; k++) {
    bias.weights1.push_back(static_cast<float>(even(draw, -2, 2)));
    bias.bias1.push_back(static_cast<float>(even(draw, -1, 1)));
    for (std::int64_t h = 0; h < heads; h++) bias.weights2.push_back(static_cast<float>(even(draw, -1, 1)));
  }
  for (std::int64_t h = 0; h < heads; h++) bias.bias2.push_back(static_cast<float>(even(draw, -1, 1)));
  return bias;
}
const Change changes[] = {
    {"slopes", [](auto& call, auto&) { call.add(gnomon::SlopeBias{{0.5F, 0.0625F}}); }},
    {"symmetric slopes", [](auto& call, auto&) { call.add(gnomon::SlopeBias{{0.1F, -0.01F}, true}); }},
    {"distances", [](auto& call, auto& draw) { call.add(distances(2, draw)); }},
    {"two rows",
     [](auto& call, auto& draw) {
       call.add(distances(2, draw));
       call.add(gnomon::SlopeBias{{0.2F, 0.7F}});
     }},
    {"fire", [](auto& call, auto& draw) { call.add(fire(2, draw)); }},
    {"softcap", [](auto& call, auto&) { call.options.softcap = 0.7; }},
    {"softcap and distances",
     [](auto& call, auto& draw) {
       call.options.softcap = 20;
       call.add(distances(2, draw));
     }},
    {"scale", [](auto& call, auto&) { call.options.scale = -0.4; }},
    {"sinks",
     [](auto& call, auto&) {
       call.sinks = {1.5F, -infinity};
       call.options.sink_logits = call.sinks;
     }},
    {"temperature",
     [](auto& call, auto& draw) {
       for (std::int64_t t = 0; t < 2 * call.sizes.queries; t++) call.factors.push_back(static_cast<float>(even(draw, 0.5, 2)));
       call.options.query_factors = call.factors;
     }},
    {"boolean mask",
     [](auto& call, auto& draw) {
       const auto& s = call.sizes;
       for (std::int64_t i = 0; i < 2 * s.queries * s.keys; i++) call.allowed.push_back(draw.whole(0, 2) == 0 ? 0 : 3);
       call.options.mask_tensor =
           gnomon::MaskTensor{call.allowed.data(), gnomon::MaskTensor::Kind::boolean, {s.queries * s.keys, 0, s.keys, 1}};
     }},
    {"additive mask",
     [](auto& call, auto& draw) {
       const auto& s = call.sizes;
       for (std::int64_t i = 0; i < 2 * s.queries * s.keys; i++)
         call.additive.push_back(draw.whole(0, 3) == 0 ? -infinity : static_cast<float>(even(draw, -2, 2)));
       call.options.mask_tensor =
           gnomon::MaskTensor{call.additive.data(), gnomon::MaskTensor::Kind::additive, {0, s.queries * s.keys, 1, s.queries}};
     }},
};

TEST_P(Attention, ChangesOfScoresUnderMasks) {
  SequenceDraw draw(56);
  for (const auto& change : changes) {
    Errors errors;
    for (const auto& [name, mask] : masks)
      for (const auto& [queries, keys] : {std::pair(1, 70), std::pair(100, 100), std::pair(150, 300), std::pair(140, 31)}) {
        Call<float> call({.batch = 2, .heads = 2, .queries = queries, .keys = keys, .width = 20, .value_width = 12}, draw);
        if (std::string_view(name) != "none") call.see(mask(queries, keys));
        change.apply(call, draw);
        ASSERT_TRUE(errors.add(call, run(call))) << change.name << ", " << name << ", " << queries << " x " << keys;
      }
  }
}

TEST_P(Attention, FireMeasuresLengthsFromTheFirstTokenOfASequence) {
  SequenceDraw draw(59);
  Errors errors;
  const std::vector<std::int32_t> documents{0, 3, 70, 71, 140, 260}, begin{0, 17, 130}, end{260, 260, 260};
  for (const bool packed : {true, false}) {
    Call<float> call({.batch = 3, .heads = 2, .queries = 260, .keys = 260, .width = 16, .value_width = 16}, draw);
    gnomon::MaskOptions mask;
    mask.right = 0;
    if (packed) mask.cu_seqlens_q = mask.cu_seqlens_k = documents;
    if (!packed) mask.key_begin = begin, mask.key_end = end;
    call.see(mask);
    call.add(fire(2, draw));
    ASSERT_TRUE(errors.add(call, run(call))) << packed;
  }
}

TEST_P(Attention, ImagesInATable) {
  SequenceDraw draw(57);
  Errors errors;
  for (const auto& [height, width] :
       {std::pair(1, 1), std::pair(7, 7), std::pair(14, 14), std::pair(5, 32), std::pair(40, 3), std::pair(2, 65)})
    for (const bool class_token : {false, true}) {
      const std::int64_t tokens = height * width + (class_token ? 1 : 0);
      gnomon::GridBias grid{2, height, width, class_token, {}};
      const std::int64_t offsets = (2 * height - 1) * (2 * width - 1) + (class_token ? 3 : 0);
      for (std::int64_t i = 0; i < 2 * offsets; i++) grid.values.push_back(static_cast<float>(even(draw, -2, 2)));
      Call<float> call({.heads = 2, .queries = tokens, .keys = tokens, .width = 16, .value_width = 16}, draw);
      call.add(grid);
      ASSERT_TRUE(errors.add(call, run(call))) << height << " x " << width << " " << class_token;
    }
}

template <class Element>
void rotation_on_load() {
  SequenceDraw draw(58);
  Errors errors;
  for (const auto layout : {gnomon::PairLayout::half_split, gnomon::PairLayout::interleaved})
    for (const bool both : {true, false}) {
      Call<Element> call({.batch = 2, .heads = 4, .kv_heads = 2, .queries = 140, .keys = 270, .width = 48, .value_width = 16}, draw);
      gnomon::MaskOptions causal;
      causal.right = 0;
      call.see(causal);
      gnomon::RotarySpec spec{gnomon::rotary::Default{}, 10000, 48, 40};
      spec.rotary_offset = 4;
      spec.attention_factor = 1.25;
      spec.layout = layout;
      call.frequencies = gnomon::frequencies(spec);
      for (int i = 0; i < 2 * 270; i++) call.key_positions.push_back(draw.whole(0, 100000));
      if (both) call.options.rotate_queries = gnomon::RotationOnLoad{*call.frequencies, gnomon::Range{130, 270}};
      call.options.rotate_keys = gnomon::RotationOnLoad{*call.frequencies, gnomon::Ids{call.key_positions}};
      ASSERT_TRUE(errors.add(call, run(call))) << both;
    }
}
TEST_P(Attention, RotationOnLoadF32) { rotation_on_load<float>(); }
TEST_P(Attention, RotationOnLoadBf16) { rotation_on_load<std::uint16_t>(); }
TEST_P(Attention, RotationOnLoadF16) { rotation_on_load<Half>(); }

TEST_P(Attention, ExtremeScores) {
  SequenceDraw draw(59);
  for (const float size : {0.0F, 1e4F, -1e4F, 1e18F}) {
    Call<float> call({.queries = 70, .keys = 200, .width = 8, .value_width = 8}, draw);
    call.q.each([&](auto b, auto h, auto t, auto d) { call.q.at(b, h, t, d) = d == 0 ? size : 0; });
    Errors errors;
    ASSERT_TRUE(errors.add(call, run(call))) << size;
    // The weight of the largest score is 1 where the others are far below.
    call.k.at(0, 0, 150, 0) = 4;
    const auto result = run(call);
    if (size >= 1e4F) {
      for (std::int64_t d = 0; d < 8; d++) EXPECT_EQ(result.out.at(0, 0, 3, d), call.v.at(0, 0, 150, d));
    }
  }
  Call<float> call({.heads = 2, .queries = 70, .keys = 100, .width = 8, .value_width = 8}, draw);
  call.add(gnomon::SlopeBias{{1, 1e30F}, true});
  const auto result = run(call);
  for (std::int64_t t = 0; t < 70; t++) EXPECT_EQ(result.out.at(0, 1, t, 3), call.v.at(0, 0, t + 30, 3));
}

// transformers pads with the least finite number, and a row of nothing else is the mean of its values there.
TEST_P(Attention, FiniteMasksHideNothing) {
  SequenceDraw draw(61);
  for (const std::int64_t queries : {1, 40}) {
    for (const float least : {std::numeric_limits<float>::lowest(), -2.5e38F, -1e30F}) {
      Call<float> call({.queries = queries, .keys = 130, .width = 8, .value_width = 8}, draw);
      call.additive.assign(130, least);
      call.options.mask_tensor = gnomon::MaskTensor{call.additive.data(), gnomon::MaskTensor::Kind::additive, {0, 0, 0, 1}};
      double mean = 0;
      for (std::int64_t key = 0; key < 130; key++) mean += static_cast<double>(call.v.at(0, 0, key, 3)) / 130;
      EXPECT_NEAR(static_cast<double>(run(call).out.at(0, 0, 0, 3)), mean, 1e-5) << least;
      Errors errors;
      ASSERT_TRUE(errors.add(call, run(call))) << least;
      call.additive[7] = 0;  // the only one that counts
      EXPECT_EQ(run(call).out.at(0, 0, 0, 3), call.v.at(0, 0, 7, 3)) << least;
      call.additive[7] = infinity;
      EXPECT_TRUE(std::isnan(run(call).out.at(0, 0, 0, 3)));
    }
  }
}

TEST_P(Attention, NaNStaysInItsRow) {
  SequenceDraw draw(60);
  constexpr std::int64_t tokens = 200, width = 40;
  gnomon::MaskOptions causal;
  causal.right = 0;
  for (const float bad : {not_a_number, infinity, -infinity, std::bit_cast<float>(0x7f812345U)}) {
    Call<float> clean({.queries = tokens, .keys = tokens, .width = width, .value_width = width}, draw);
    clean.see(causal);
    const auto expected = run(clean);
    for (const int where : {0, 1, 2}) {
      Call<float> call({.queries = tokens, .keys = tokens, .width = width, .value_width = width}, draw);
      call.see(causal);
      for (const auto& [to, from] : {std::pair(&call.q, &clean.q), std::pair(&call.k, &clean.k), std::pair(&call.v, &clean.v)}) *to = *from;
      auto& x = where == 0 ? call.q : where == 1 ? call.k : call.v;
      x.at(0, 0, 100, 7) = bad;
      const auto got = run(call);
      for (std::int64_t t = 0; t < tokens; t++) {
        const bool touched = where == 0 ? t == 100 : t >= 100;
        for (std::int64_t d = 0; d < width; d++) {
          if (!touched || (where == 2 && d != 7)) {
            ASSERT_EQ(got.out.at(0, 0, t, d), expected.out.at(0, 0, t, d)) << bad << " " << where << " " << t;
          } else if (where != 1 || std::isnan(bad)) {  // a score of −inf is a weight of 0
            ASSERT_FALSE(std::isfinite(got.out.at(0, 0, t, d))) << bad << " " << where << " " << t;
          }
        }
      }
    }
  }
}

TEST_P(Attention, ThreadsChangeNothing) {
  SequenceDraw draw(61);
  Call<float> call({.batch = 2, .heads = 4, .kv_heads = 2, .queries = 400, .keys = 500, .width = 32, .value_width = 32}, draw);
  gnomon::MaskOptions causal;
  causal.right = 0;
  call.see(causal);
  const auto alone = run(call);
  for (std::size_t threads = 1; threads <= 4; threads++) {
    gnomon::ThreadPool pool(threads);
    const auto together = run(call, Order::bhtd, &pool);
    EXPECT_EQ(std::memcmp(alone.out.memory.data(), together.out.memory.data(), alone.out.memory.size() * sizeof(float)), 0) << threads;
    EXPECT_EQ(alone.log_sum_exp, together.log_sum_exp);
    EXPECT_EQ(alone.maximum, together.maximum);
  }
}

/// The kernel itself, with or without leaving out tiles.
void run_slopes(const Call<float>& call, bool skip, Result<float>& to) {
  AttentionOptions options = call.options;
  options.log_sum_exp = to.log_sum_exp.data();
  options.maximum = to.maximum.data();
  gnomon::TileCall tiles(call.q.view(), call.k.view(), call.v.view(), to.out.view(), options);
  tiles.job.skip = skip;
  gnomon::kernels::attention(tiles.job);
}

TEST_P(Attention, SkippedTilesChangeNoBit) {
  SequenceDraw draw(63);
  constexpr std::int64_t tokens = 1500;
  for (const bool causal : {true, false})
    for (const bool padded : {true, false}) {
      Call<float> call({.batch = 2, .heads = 4, .kv_heads = 2, .queries = tokens, .keys = tokens, .width = 16, .value_width = 16}, draw);
      gnomon::MaskOptions mask;
      if (causal) mask.right = 0;
      const std::vector<std::int32_t> begin{0, 700};
      if (padded) mask.key_begin = begin;
      call.see(mask);
      call.add(gnomon::SlopeBias{{1, 0.5F, 0.125F, 0.01F}, true});
      // Far keys that matter all the same: a bound on the bias alone would leave them out.
      for (std::int64_t d = 0; d < 16; d++) call.k.at(0, 0, 3, d) = call.q.at(0, 0, 1400, d) * 1000;
      auto all = run(call), some = run(call);
      run_slopes(call, false, all);
      run_slopes(call, true, some);
      EXPECT_EQ(std::memcmp(all.out.memory.data(), some.out.memory.data(), all.out.memory.size() * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(all.log_sum_exp.data(), some.log_sum_exp.data(), all.log_sum_exp.size() * sizeof(float)), 0);
      EXPECT_EQ(all.maximum, some.maximum);
      for (std::int64_t d = 0; d < 16; d++) EXPECT_NEAR(some.out.at(0, 0, 1400, d), call.v.at(0, 0, 3, d), 1e-6);
      // A NaN in what is left out does not matter; that is how we know that something was.
      if (!padded && causal) {
        call.v.at(1, 1, 10, 0) = not_a_number;
        run_slopes(call, true, some);
        EXPECT_TRUE(std::isfinite(some.out.at(1, 2, 1499, 0)));
        EXPECT_TRUE(std::isnan(some.out.at(1, 2, 11, 0)));
        EXPECT_TRUE(std::isnan(some.out.at(1, 3, 1499, 0))) << "a slope of 0.01 reaches there";
      }
    }
}

bool has_products_of_pairs() {
#if HWY_ARCH_X86
  return (HWY_TARGETS & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

/// The same through products of pairs, where the CPU has them, whether or not they are what is fast there.
class InPairs : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_products_of_pairs()) GTEST_SKIP() << "this CPU, or this build for one target, has no products of pairs of bf16";
  }
  static Result<std::uint16_t> run_pairs(const Call<std::uint16_t>& call, gnomon::Executor* executor = nullptr, bool skip = true) {
    auto result = run(call);
    SequenceDraw draw(2);
    result.out.fill_with_bits(draw);
    AttentionOptions options = call.options;
    options.log_sum_exp = result.log_sum_exp.data();
    options.maximum = result.maximum.data();
    options.executor = executor;
    gnomon::TileCall tiles(call.q.view(), call.k.view(), call.v.view(), result.out.view(), options);
    tiles.job.skip = skip;
    EXPECT_TRUE(gnomon::kernels::attention_in_pairs(tiles.job));
    return result;
  }
  static constexpr double weight_rounding = 0x1p-9;
};

TEST_F(InPairs, LengthsWidthsAndMasks) {
  SequenceDraw draw(71);
  Errors errors(weight_rounding);
  for (const auto& [name, mask] : masks)
    for (const auto& [queries, keys] : {std::pair(1, 70), std::pair(63, 64), std::pair(100, 101), std::pair(150, 299), std::pair(140, 31)})
      for (const auto& [width, value_width] : {std::pair(16, 16), std::pair(33, 7), std::pair(128, 80), std::pair(64, 64)}) {
        Call<std::uint16_t> call({2, 4, 2, queries, keys, width, value_width}, draw, all_orders[draw.whole(0, 4)]);
        if (std::string_view(name) != "none") call.see(mask(queries, keys));
        ASSERT_TRUE(errors.add(call, run_pairs(call)))
            << name << ", " << queries << " x " << keys << ", " << width << " and " << value_width;
      }
}

TEST_F(InPairs, ChangesOfScores) {
  SequenceDraw draw(72);
  Errors errors(weight_rounding);
  for (int which = 0; which < 6; which++) {
    Call<std::uint16_t> call({.batch = 2, .heads = 2, .queries = 150, .keys = 299, .width = 40, .value_width = 24}, draw);
    call.see(masks[which == 5 ? 5 : 1].second(150, 299));
    if (which == 0) call.add(gnomon::SlopeBias{{0.5F, 0.0625F}});
    if (which == 1) call.add(distances(2, draw));
    if (which == 2) call.add(fire(2, draw));
    if (which == 3) call.options.softcap = 5;
    if (which == 4) call.options.scale = -0.3;
    for (std::int64_t t = 0; t < 150; t++) call.factors.push_back(static_cast<float>(even(draw, 0.5, 2)));
    call.options.query_factors = call.factors;
    call.sinks = {0.5F, -1};
    call.options.sink_logits = call.sinks;
    ASSERT_TRUE(errors.add(call, run_pairs(call))) << which;
  }
}

TEST_F(InPairs, RotationOnLoad) {
  SequenceDraw draw(73);
  Call<std::uint16_t> call({.batch = 1, .heads = 4, .kv_heads = 2, .queries = 140, .keys = 270, .width = 48, .value_width = 16}, draw);
  call.frequencies = gnomon::frequencies({gnomon::rotary::Default{}, 10000, 48, 40});
  call.options.rotate_queries = gnomon::RotationOnLoad{*call.frequencies, gnomon::Range{130, 270}};
  call.options.rotate_keys = gnomon::RotationOnLoad{*call.frequencies, gnomon::Range{0, 270}};
  Errors errors(4 * weight_rounding);  // turned queries and keys are rounded to bf16 again
  ASSERT_TRUE(errors.add(call, run_pairs(call)));
}

TEST_F(InPairs, NaNStaysInItsRow) {
  SequenceDraw draw(74);
  constexpr std::int64_t tokens = 150, width = 40;
  gnomon::MaskOptions window;
  window.right = 0;
  window.left = 30;
  Call<std::uint16_t> call({.queries = tokens, .keys = tokens, .width = width, .value_width = width}, draw);
  call.see(window);
  const auto expected = run_pairs(call);
  for (const int where : {0, 1, 2}) {
    auto& x = where == 0 ? call.q : where == 1 ? call.k : call.v;
    const auto before = x.at(0, 0, 75, 7);
    x.at(0, 0, 75, 7) = 0x7fc1;
    const auto got = run_pairs(call);
    x.at(0, 0, 75, 7) = before;
    for (std::int64_t t = 0; t < tokens; t++) {
      const bool touched = where == 0 ? t == 75 : t >= 75 && t <= 105;
      for (std::int64_t d = 0; d < width; d++) {
        if (touched && (where != 2 || d == 7)) {
          ASSERT_TRUE(is_nan_bf16(got.out.at(0, 0, t, d))) << where << " " << t;
        } else {
          ASSERT_EQ(got.out.at(0, 0, t, d), expected.out.at(0, 0, t, d)) << where << " " << t;
        }
      }
    }
  }
}

TEST_F(InPairs, ThreadsAndSkippingChangeNothing) {
  SequenceDraw draw(75);
  Call<std::uint16_t> call({.heads = 4, .kv_heads = 2, .queries = 700, .keys = 701, .width = 32, .value_width = 32}, draw);
  gnomon::MaskOptions causal;
  causal.right = 0;
  call.see(causal);
  call.add(gnomon::SlopeBias{{1, 0.5F, 0.25F, 0.01F}});
  const auto alone = run_pairs(call), all = run_pairs(call, nullptr, false);
  gnomon::ThreadPool pool(3);
  const auto together = run_pairs(call, &pool);
  EXPECT_EQ(std::memcmp(alone.out.memory.data(), all.out.memory.data(), alone.out.memory.size() * 2), 0);
  EXPECT_EQ(std::memcmp(alone.out.memory.data(), together.out.memory.data(), alone.out.memory.size() * 2), 0);
  EXPECT_EQ(alone.log_sum_exp, all.log_sum_exp);
}

TEST_P(Attention, NeighboursOfAMaskAreToldApart) {
  SequenceDraw draw(62);
  Call<float> call({.queries = 20, .keys = 50, .width = 16, .value_width = 16}, draw);
  const auto given = [&](gnomon::Alignment alignment, std::int64_t left, std::int64_t right) {
    gnomon::MaskOptions mask;
    mask.alignment = alignment;
    mask.left = left;
    mask.right = right;
    call.see(mask);
  };
  using enum gnomon::Alignment;
  given(lower_right, 7, 0);
  const auto right = run(call);
  for (const auto& [alignment, left, ahead] :
       {std::tuple(top_left, 7, 0), std::tuple(lower_right, 8, 0), std::tuple(lower_right, 6, 0), std::tuple(lower_right, 7, 1)}) {
    given(alignment, left, ahead);
    const auto wrong = run(call);
    for (std::int64_t t = 0; t < 19; t++) EXPECT_NE(wrong.out.at(0, 0, t, 0), right.out.at(0, 0, t, 0)) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Attention, testing::ValuesIn(targets()), target_name);

}  // namespace
