// SPDX-License-Identifier: Apache-2.0
// What holds for every rotary rule, whatever its numbers are. A new rule is tested here with no edit of this file.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "support/pairs.hpp"
#include "support/property.hpp"
#include "support/strided.hpp"

namespace {

using namespace testing_support;
using gnomon::Direction;
using gnomon::RotarySpec;

constexpr SpecLimits narrow{.most_pairs = 24};
constexpr SpecLimits wide{.most_pairs = 128};

/// One head at one token, in double.
std::vector<double> draw_head(PropertyDraw& draw, const RotarySpec& spec) {
  std::vector<double> head(static_cast<std::size_t>(spec.head_dim));
  for (double& value : head) value = static_cast<double>(draw.whole(-1000, 1000)) / 512;
  return head;
}

template <class Element = double>
std::vector<double> rotated(const std::vector<double>& head, const RotarySpec& spec, std::int64_t position,
                            Direction direction = Direction::forward) {
  std::vector<Element> x(head.begin(), head.end());
  const auto width = static_cast<std::int64_t>(head.size());
  gnomon::rotate(gnomon::TensorView{x.data(), dtype_for<Element>(), {1, 1, 1, width}, {width, width, width, 1}}, gnomon::frequencies(spec),
                 gnomon::Range{position, position + 1}, {.direction = direction});
  return {x.begin(), x.end()};
}

double dot(const std::vector<double>& a, const std::vector<double>& b, int first, int past) {
  double sum = 0;
  for (int d = first; d < past; d++) sum += a[static_cast<std::size_t>(d)] * b[static_cast<std::size_t>(d)];
  return sum;
}
double rotary_dot(const RotarySpec& spec, const std::vector<double>& a, const std::vector<double>& b) {
  return dot(a, b, spec.rotary_offset, spec.rotary_offset + spec.rotary_dim);
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  RC_ASSERT(a.size() == b.size());
  for (std::size_t d = 0; d < a.size(); d++) {
    if (!(std::abs(a[d] - b[d]) <= tolerance))
      RC_FAIL("channel " + std::to_string(d) + ": " + std::to_string(a[d]) + " against " + std::to_string(b[d]));
  }
}

/// A bound on what rounding adds: |head| times the roundings of a few double operations, or of float ones and the kernel's cos and sin.
double slack(const RotarySpec& spec, double magnitude, double unit) {
  return unit * (magnitude * magnitude + 1) * 4 * static_cast<double>(spec.head_dim + 8);
}
constexpr double double_unit = 0x1p-50, float_unit = 2.5e-7;

std::int64_t draw_position(PropertyDraw& draw) {
  return draw.whole(0, 1) == 0 ? draw.whole(-100, 100) : draw.whole(-(std::int64_t{1} << 24), std::int64_t{1} << 24);
}

/// Roundings of T add up with the position: at most (|p| + 2) 2^-64 turns each.
double with_phase(double tolerance, std::int64_t reach) { return tolerance + 8 * (static_cast<double>(reach) + 2) * 0x1p-64 * 7; }

TEST(Property, NormIsKept) {
  for_every_rule(
      "norm", narrow,
      [](PropertyDraw& draw, const RotarySpec& spec) {
        const auto head = draw_head(draw, spec);
        const double magnitude = gnomon::effective_attention_factor(spec), before = std::sqrt(rotary_dot(spec, head, head)) * magnitude;
        const auto position = draw_position(draw);
        const auto in_double = rotated(head, spec, position), in_float = rotated<float>(head, spec, position);
        RC_ASSERT(std::abs(std::sqrt(rotary_dot(spec, in_double, in_double)) - before) <= before * 1e-14 + 1e-300);
        RC_ASSERT(std::abs(std::sqrt(rotary_dot(spec, in_float, in_float)) - before) <= before * 5e-7 + 1e-30);
      },
      Rules::rotations);
}

TEST(Property, TransposedAfterForwardIsTheSquaredMagnitude) {
  for_every_rule(
      "inverse", narrow,
      [](PropertyDraw& draw, const RotarySpec& spec) {
        const auto head = draw_head(draw, spec);
        const double magnitude = gnomon::effective_attention_factor(spec);
        auto expected = head;
        for (int d = 0; d < spec.rotary_dim; d++) expected[static_cast<std::size_t>(spec.rotary_offset + d)] *= magnitude * magnitude;
        const auto position = draw_position(draw);
        expect_close(rotated(rotated(head, spec, position), spec, position, Direction::transposed), expected,
                     slack(spec, magnitude, double_unit));
        expect_close(rotated<float>(rotated<float>(head, spec, position), spec, position, Direction::transposed), expected,
                     slack(spec, magnitude, float_unit));
      },
      Rules::rotations);
}

TEST(Property, TransposedIsTheAdjoint) {
  // <R x, y> = <x, Rᵀ y>: what makes `transposed` the gradient.
  for_every_rule("adjoint", narrow, [](PropertyDraw& draw, const RotarySpec& spec) {
    const auto x = draw_head(draw, spec), y = draw_head(draw, spec);
    const auto position = draw_position(draw);
    const double left = dot(rotated(x, spec, position), y, 0, spec.head_dim),
                 right = dot(x, rotated(y, spec, position, Direction::transposed), 0, spec.head_dim);
    RC_ASSERT(std::abs(left - right) <= slack(spec, gnomon::effective_attention_factor(spec), double_unit));
  });
}

TEST(Property, RelativePositionsCompose) {
  // R(i)ᵀ R(j) = R(j − i), each factor with its magnitude.
  for_every_rule(
      "composition", narrow,
      [](PropertyDraw& draw, const RotarySpec& spec) {
        const auto head = draw_head(draw, spec);
        const double magnitude = gnomon::effective_attention_factor(spec);
        const auto i = draw_position(draw), j = draw_position(draw);
        auto expected = rotated(head, spec, j - i);
        for (int d = 0; d < spec.rotary_dim; d++) expected[static_cast<std::size_t>(spec.rotary_offset + d)] *= magnitude;
        expect_close(rotated(rotated(head, spec, j), spec, i, Direction::transposed), expected,
                     with_phase(slack(spec, magnitude, double_unit), std::abs(i) + std::abs(j)));
      },
      Rules::rotations);
}

TEST(Property, ScoresDependOnTheDistanceOnly) {
  for_every_rule(
      "shift invariance", narrow,
      [](PropertyDraw& draw, const RotarySpec& spec) {
        const auto q = draw_head(draw, spec), k = draw_head(draw, spec);
        const auto i = draw_position(draw), j = draw_position(draw), shift = draw_position(draw);
        const double here = rotary_dot(spec, rotated(q, spec, i), rotated(k, spec, j));
        const double there = rotary_dot(spec, rotated(q, spec, i + shift), rotated(k, spec, j + shift));
        const double tolerance = with_phase(slack(spec, gnomon::effective_attention_factor(spec), double_unit), std::int64_t{1} << 26);
        RC_ASSERT(std::abs(here - there) <= 4 * tolerance);
      },
      Rules::rotations);
}

TEST(Property, LayoutsAreConjugateByThePermutation) {
  // Bit for bit, in the reference and in the kernel's f32 where no vector mixes with a tail.
  for_every_rule("layouts", narrow, [](PropertyDraw& draw, const RotarySpec& given) {
    auto spec = given;
    spec.layout = gnomon::PairLayout::half_split;
    auto other = spec;
    other.layout = gnomon::PairLayout::interleaved;
    const auto head = draw_head(draw, spec);
    auto permuted = head;
    for (int i = 0; i < spec.rotary_dim / 2; i++) {
      const auto from = channels(spec, i), to = channels(other, i);
      permuted[static_cast<std::size_t>(to.first)] = head[static_cast<std::size_t>(from.first)];
      permuted[static_cast<std::size_t>(to.second)] = head[static_cast<std::size_t>(from.second)];
    }
    const auto position = draw_position(draw);
    const auto a = rotated(head, spec, position), b = rotated(permuted, other, position);
    const auto af = rotated<float>(head, spec, position), bf = rotated<float>(permuted, other, position);
    for (int i = 0; i < spec.rotary_dim / 2; i++) {
      const auto from = channels(spec, i), to = channels(other, i);
      for (const auto& [first, second] : {std::pair(from.first, to.first), std::pair(from.second, to.second)}) {
        RC_ASSERT(a[static_cast<std::size_t>(first)] == b[static_cast<std::size_t>(second)]);
        RC_ASSERT(af[static_cast<std::size_t>(first)] == bf[static_cast<std::size_t>(second)]);
      }
    }
  });
}

TEST(Property, TokensHeadsAndBatchesDoNotMix) {
  // Permuting the tokens permutes the result: a token's numbers depend on its own position alone.
  for_every_rule("permutation", narrow, [](PropertyDraw& draw, const RotarySpec& spec) {
    const std::int64_t tokens = draw.whole(1, 6), heads = draw.whole(1, 3);
    Strided<float> x({1, heads, tokens, spec.head_dim}, Order::bthd);
    x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = static_cast<float>((h * 7 + t * 13 + d * 3) % 17) - 8; });
    std::vector<std::int64_t> positions, order;
    for (std::int64_t t = 0; t < tokens; t++) positions.push_back(draw_position(draw)), order.push_back(t);
    for (std::int64_t t = tokens - 1; t > 0; t--)
      std::swap(order[static_cast<std::size_t>(t)], order[static_cast<std::size_t>(draw.whole(0, t))]);
    Strided<float> shuffled({1, heads, tokens, spec.head_dim}, Order::bhtd);
    std::vector<std::int64_t> moved;
    for (const auto t : order) moved.push_back(positions[static_cast<std::size_t>(t)]);
    shuffled.each([&](auto b, auto h, auto t, auto d) { shuffled.at(b, h, t, d) = x.at(b, h, order[static_cast<std::size_t>(t)], d); });
    const auto frequencies = gnomon::frequencies(spec);
    gnomon::rotate(x.view(), frequencies, gnomon::Ids{positions});
    gnomon::rotate(shuffled.view(), frequencies, gnomon::Ids{moved});
    shuffled.each([&](auto b, auto h, auto t, auto d) {
      RC_ASSERT(same_bits(shuffled.at(b, h, t, d), x.at(b, h, order[static_cast<std::size_t>(t)], d)));
    });
  });
}

TEST(Property, PositionZeroIsTheMagnitude) {
  for_every_rule(
      "origin", narrow,
      [](PropertyDraw& draw, const RotarySpec& spec) {
        const auto head = draw_head(draw, spec), after = rotated(head, spec, 0);
        const double magnitude = gnomon::effective_attention_factor(spec);
        for (int d = 0; d < spec.head_dim; d++) {
          const bool turned = d >= spec.rotary_offset && d < spec.rotary_offset + spec.rotary_dim;
          RC_ASSERT(after[static_cast<std::size_t>(d)] == head[static_cast<std::size_t>(d)] * (turned ? magnitude : 1));
        }
      },
      Rules::rotations);
}

/// Rules whose factor alone separates them from the default one.
template <class Rule>
constexpr bool is_scaled_by_factor = requires(Rule rule) { rule.factor; } && !std::is_same_v<Rule, gnomon::rotary::Longrope> &&
                                     !std::is_same_v<Rule, gnomon::rotary::Proportional>;

TEST(Property, FactorOneIsTheDefaultRule) {
  int tested = 0;
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    if constexpr (is_scaled_by_factor<Rule>) {
      tested++;
      check_property("factor 1, rule " + std::string(Rule::name), [] {
        PropertyDraw draw;
        auto spec = draw_spec<Rule>(draw, wide), plain = spec;
        std::get<Rule>(spec.rule).factor = 1;
        spec.attention_factor.reset(), plain.attention_factor.reset();
        plain.rule = gnomon::rotary::Default{};
        RC_ASSERT(gnomon::effective_attention_factor(spec) == 1);
        RC_ASSERT(gnomon::frequencies(spec).inv_freq == gnomon::frequencies(plain).inv_freq);
        const auto hf =
            std::get<Rule>(spec.rule).in_transformers() ? gnomon::frequencies(spec, gnomon::Numerics::hf).inv_freq : std::vector<double>{};
        const auto hf_plain = gnomon::frequencies(plain, gnomon::Numerics::hf).inv_freq;
        for (std::size_t i = 0; i < hf.size(); i++) RC_ASSERT(std::abs(hf[i] - hf_plain[i]) <= 0x1p-22 * hf_plain[i]);
      });
    }
  });
  EXPECT_GE(tested, 4);
}

TEST(Property, FactorsSlowDownAndNeverSpeedUp) {
  // Between the default's frequency and that over the factor, for every rule that has a factor; a neighbour of the rule would leave it.
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    if constexpr (is_scaled_by_factor<Rule>) {
      check_property("slowing, rule " + std::string(Rule::name), [] {
        PropertyDraw draw;
        const auto spec = draw_spec<Rule>(draw, wide);
        auto plain = spec;
        plain.rule = gnomon::rotary::Default{};
        const double factor = std::get<Rule>(spec.rule).factor;
        const auto ours = gnomon::frequencies(spec).inv_freq, theirs = gnomon::frequencies(plain).inv_freq;
        for (std::size_t i = 0; i < ours.size(); i++) {
          RC_ASSERT(ours[i] <= theirs[i] * (1 + 0x1p-51));
          RC_ASSERT(ours[i] >= theirs[i] / factor * (1 - 0x1p-51));
        }
      });
    }
  });
}

TEST(Property, FrequenciesFallFromPairToPair) {
  for_every_rule("monotone", wide, [](PropertyDraw&, const RotarySpec& spec) {
    const bool listed =
        std::holds_alternative<gnomon::rotary::Longrope>(spec.rule) || std::holds_alternative<gnomon::rotary::Custom>(spec.rule);
    const auto frequencies = gnomon::frequencies(spec);
    RC_ASSERT(frequencies.inv_freq.size() == static_cast<std::size_t>(spec.rotary_dim / 2));
    RC_ASSERT(frequencies.turns.size() == frequencies.inv_freq.size());
    RC_ASSERT(std::isfinite(frequencies.attention_factor) && frequencies.attention_factor > 0);
    for (std::size_t i = 0; i < frequencies.inv_freq.size(); i++) {
      RC_ASSERT(std::isfinite(frequencies.inv_freq[i]) && frequencies.inv_freq[i] >= 0);
      if (i > 0 && !listed) RC_ASSERT(frequencies.inv_freq[i] <= frequencies.inv_freq[i - 1]);  // RC_ASSERT itself knows no short circuit
      RC_ASSERT(frequencies.turns[i] == gnomon::turns(frequencies.inv_freq[i]));
    }
    if (!std::visit([](const auto& rule) { return rule.in_transformers(); }, spec.rule)) return;
    const auto hf = gnomon::frequencies(spec, gnomon::Numerics::hf);
    for (std::size_t i = 0; i < hf.inv_freq.size(); i++) {
      RC_ASSERT(std::isfinite(hf.inv_freq[i]) && (hf.inv_freq[i] > 0) == (frequencies.inv_freq[i] > 0));
      RC_ASSERT(hf.inv_freq[i] == static_cast<double>(static_cast<float>(hf.inv_freq[i])));
    }
  });
}

TEST(Property, WidthAndOffsetDoNotChangeFrequencies) {
  // head_dim, rotary_offset and layout say where the rotation is applied; frequencies know rotary_dim alone.
  for_every_rule("width", wide, [](PropertyDraw& draw, const RotarySpec& spec) {
    auto other = spec;
    other.head_dim += static_cast<int>(draw.whole(0, 64));
    other.rotary_offset = static_cast<int>(draw.whole(0, other.head_dim - other.rotary_dim));
    other.layout = spec.layout == gnomon::PairLayout::half_split ? gnomon::PairLayout::interleaved : gnomon::PairLayout::half_split;
    RC_ASSERT(gnomon::frequencies(other).inv_freq == gnomon::frequencies(spec).inv_freq);
  });
}

TEST(Property, JsonRoundTripIsTheIdentity) {
  for_every_rule("JSON", wide, [](PropertyDraw&, const RotarySpec& spec) {
    const std::string text = gnomon::to_json(spec);
    const auto back = gnomon::rotary_from_json(text);
    RC_ASSERT(back == spec);
    RC_ASSERT(gnomon::to_json(back) == text);
    RC_ASSERT(text.find('\n') == std::string::npos);
  });
}

TEST(Property, JsonRoundTripOfSeveralAxesIsTheIdentity) {
  int several = 0;
  for_every_rule("JSON of axes", {.most_pairs = 64, .axes = true}, [&](PropertyDraw&, const RotarySpec& spec) {
    const std::string text = gnomon::to_json(spec);
    RC_ASSERT(gnomon::rotary_from_json(text) == spec);
    RC_ASSERT((text.find("\"sections\"") != std::string::npos) == !spec.sections.empty());
    RC_ASSERT((text.find("\"axes\"") != std::string::npos) == (spec.axes > 1));
    several += gnomon::position_axes(spec) > 1;
  });
  EXPECT_GT(several, 500);
}

TEST(Property, TablesAndKernelsAgree) {
  for_every_rule(
      "table", narrow,
      [](PropertyDraw& draw, const RotarySpec& spec) {
        const auto frequencies = gnomon::frequencies(spec);
        const auto position = draw_position(draw);
        const auto table = gnomon::rotary_table(frequencies, gnomon::Range{position, position + 1}, gnomon::DType::f64);
        const auto head = draw_head(draw, spec), after = rotated<float>(head, spec, position);
        for (int i = 0; i < spec.rotary_dim / 2; i++) {
          const auto [first, second] = channels(spec, i);
          const double c = table_cos(table, 0, static_cast<std::size_t>(i)) * frequencies.attention_factor,
                       s = table_sin(table, 0, static_cast<std::size_t>(i)) * frequencies.attention_factor;
          const double a = head[static_cast<std::size_t>(first)], b = head[static_cast<std::size_t>(second)];
          const double bound = 3.5e-7 * (std::abs(a) + std::abs(b)) * frequencies.attention_factor + 1e-300;
          RC_ASSERT(std::abs(after[static_cast<std::size_t>(first)] - (a * c - b * s)) <= bound);
          RC_ASSERT(std::abs(after[static_cast<std::size_t>(second)] - (b * c + a * s)) <= bound);
        }
      },
      Rules::rotations);
}

// Identities that tell a rule from its neighbours.

TEST(Property, LinearIsTheDefaultAtPositionsOverTheFactor) {
  check_property("linear divides positions", [] {
    PropertyDraw draw;
    auto spec = draw_spec<gnomon::rotary::Linear>(draw, narrow);
    const auto factor = draw.whole(1, 64);
    spec.rule = gnomon::rotary::Linear{.factor = static_cast<double>(factor)};
    auto plain = spec;
    plain.rule = gnomon::rotary::Default{};
    const auto head = draw_head(draw, spec);
    const auto position = draw.whole(-10000, 10000);
    expect_close(rotated(head, spec, position * factor), rotated(head, plain, position), 1e-8);
  });
}

TEST(Property, NtkKeepsTheFastestPairAndDividesTheSlowest) {
  check_property("ntk ends", [] {
    PropertyDraw draw;
    const auto spec = draw_spec<gnomon::rotary::Ntk>(draw, wide);
    auto plain = spec;
    plain.rule = gnomon::rotary::Default{};
    const double factor = std::get<gnomon::rotary::Ntk>(spec.rule).factor;
    const auto ours = gnomon::frequencies(spec).inv_freq, theirs = gnomon::frequencies(plain).inv_freq;
    RC_ASSERT(ours.front() == 1);
    RC_ASSERT(std::abs(ours.back() * factor - theirs.back()) <= 0x1p-51 * theirs.back());
  });
}

TEST(Property, YarnRampsDifferBetweenPaperAndCode) {
  // Both keep the fastest and divide the slowest pairs; between them they are two rules.
  gnomon::RotarySpec code{.rule = gnomon::rotary::Yarn{.factor = 16, .original_max_position_embeddings = 4096},
                          .theta = 10000,
                          .head_dim = 128,
                          .rotary_dim = 128};
  auto paper = code;
  std::get<gnomon::rotary::Yarn>(paper.rule).ramp = gnomon::rotary::YarnRamp::turns;
  const auto a = gnomon::frequencies(code).inv_freq, b = gnomon::frequencies(paper).inv_freq;
  EXPECT_EQ(a.front(), b.front());
  EXPECT_EQ(a.back(), b.back());
  auto plain = code;
  plain.rule = gnomon::rotary::Default{};
  const double keep_code = (a[30] / gnomon::frequencies(plain).inv_freq[30] - 1.0 / 16) / (1 - 1.0 / 16);
  const double keep_paper = (b[30] / gnomon::frequencies(plain).inv_freq[30] - 1.0 / 16) / (1 - 1.0 / 16);
  EXPECT_NEAR(keep_code - keep_paper, 0.367, 5e-4) << "Llama 2, pair 30";
}

TEST(Property, Llama3DependsOnItsBoundsOnly) {
  // original / low and original / high are all that matters (CSM's unusual numbers equal the ordinary ones).
  gnomon::RotarySpec usual{
      .rule = gnomon::rotary::Llama3{.factor = 32, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192},
      .theta = 500000,
      .head_dim = 64,
      .rotary_dim = 64};
  auto csm = usual;
  csm.rule =
      gnomon::rotary::Llama3{.factor = 32, .low_freq_factor = .125, .high_freq_factor = .5, .original_max_position_embeddings = 1024};
  EXPECT_EQ(gnomon::frequencies(usual).inv_freq, gnomon::frequencies(csm).inv_freq);
}

/// The frequencies of a spec and of the default rule in its place, for a length, in both profiles.
void expect_default(const RotarySpec& spec, std::optional<std::int64_t> length) {
  auto plain = spec;
  plain.rule = gnomon::rotary::Default{};
  for (const auto numerics : {gnomon::Numerics::exact, gnomon::Numerics::hf}) {
    RC_ASSERT(gnomon::frequencies(spec, numerics, length).inv_freq == gnomon::frequencies(plain, numerics).inv_freq);
  }
}

TEST(Property, ProportionalOfAllPairsIsTheDefaultRule) {
  check_property("proportional, all pairs", [] {
    PropertyDraw draw;
    auto spec = draw_spec<gnomon::rotary::Proportional>(draw, wide);
    auto& rule = std::get<gnomon::rotary::Proportional>(spec.rule);
    const auto slowed = gnomon::frequencies(spec).inv_freq;
    const double factor = rule.factor, share = rule.partial_rotary_factor;
    rule.factor = 1;
    const auto kept = gnomon::frequencies(spec).inv_freq;
    rule.partial_rotary_factor = 1;
    expect_default(spec, std::nullopt);
    // Fewer pairs turn, at the speed of the whole head's; a rule that spread them over fewer channels would change the second.
    const auto all = gnomon::frequencies(spec).inv_freq;
    for (std::size_t i = 0; i < all.size(); i++) {
      const bool turns = static_cast<double>(i + 1) <= share * static_cast<double>(all.size()) + 1e-6;
      RC_ASSERT(kept[i] == (turns ? all[i] : 0));
      RC_ASSERT(std::abs(slowed[i] * factor - kept[i]) <= 0x1p-51 * kept[i]);
    }
  });
}

TEST(Property, LongropeWithListsOfOnesIsTheDefaultRule) {
  check_property("longrope, ones", [] {
    PropertyDraw draw;
    auto spec = draw_spec<gnomon::rotary::Longrope>(draw, wide);
    auto& rule = std::get<gnomon::rotary::Longrope>(spec.rule);
    const auto ones = std::vector<double>(static_cast<std::size_t>(spec.rotary_dim / 2), 1.0), searched = rule.long_factor;
    const auto length = rule.original_max_position_embeddings;
    rule.short_factor = rule.long_factor = ones;
    for (const auto tokens : {std::int64_t{1}, length, length + 1}) expect_default(spec, tokens);
    rule.long_factor = searched;  // now the two lists differ: the first token beyond the original length is seen
    expect_default(spec, length);
    RC_ASSERT(searched == ones ||
              gnomon::frequencies(spec, gnomon::Numerics::exact, length + 1).inv_freq != gnomon::frequencies(spec).inv_freq);
  });
}

TEST(Property, DynamicIsTheDefaultRuleUpToItsTrainedLength) {
  check_property("dynamic, short", [] {
    PropertyDraw draw;
    auto spec = draw_spec<gnomon::rotary::Dynamic>(draw, wide);
    auto& rule = std::get<gnomon::rotary::Dynamic>(spec.rule);
    const auto trained = rule.max_position_embeddings;
    expect_default(spec, std::nullopt);
    expect_default(spec, draw.whole(1, trained));
    expect_default(spec, trained);
    // Beyond it the fastest pair keeps its speed and every other one slows down, the more the longer.
    rule.factor = std::fmax(rule.factor, 1.5);
    const auto early = gnomon::frequencies(spec).inv_freq, late = gnomon::frequencies(spec, gnomon::Numerics::exact, 2 * trained).inv_freq,
               later = gnomon::frequencies(spec, gnomon::Numerics::exact, 3 * trained).inv_freq;
    RC_ASSERT(late.front() == 1 && later.front() == 1);
    for (std::size_t i = 1; i < late.size(); i++) RC_ASSERT(later[i] < late[i] && late[i] < early[i]);
    // At twice the length the slowest pair is divided by factor + 1: the growth, not the factor.
    RC_ASSERT(std::abs(late.back() * (rule.factor + 1) - early.back()) <= 0x1p-50 * early.back());
  });
}

}  // namespace
