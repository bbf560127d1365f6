// SPDX-License-Identifier: Apache-2.0
// What holds for absolute encodings, whatever their numbers are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "support/elements.hpp"
#include "support/property.hpp"

namespace {

using namespace testing_support;
using gnomon::AbsoluteSpec;
using gnomon::DType;
using gnomon::absolute::Sinusoidal, gnomon::absolute::SinusoidDenominator, gnomon::absolute::SinusoidOrder;

std::vector<double> rows(const AbsoluteSpec& spec, const gnomon::Positions& positions) {
  const auto table = gnomon::embedding_table(spec, positions, DType::f64);
  std::vector<double> result(table.rows.size() / sizeof(double));
  std::memcpy(result.data(), table.rows.data(), table.rows.size());
  return result;
}
std::vector<double> row(const AbsoluteSpec& spec, std::int64_t position) { return rows(spec, gnomon::Range{position, position + 1}); }

TEST(Absolute, JsonRoundTripIsTheIdentity) {
  gnomon::for_each_absolute_rule([]<class Rule>(const Rule&) {
    check_property("JSON, rule " + std::string(Rule::name), [] {
      PropertyDraw draw;
      const auto spec = draw_absolute_spec<Rule>(draw);
      const std::string text = gnomon::to_json(spec);
      RC_LOG() << text << "\n";
      const auto back = gnomon::absolute_from_json(text);
      RC_ASSERT(back == spec);
      RC_ASSERT(gnomon::to_json(back) == text);
      RC_ASSERT(text.find('\n') == std::string::npos);
      RC_ASSERT(gnomon::rule_name(spec.rule) == Rule::name);
    });
  });
}

/// One axis and an even width, so that columns are pairs.
AbsoluteSpec draw_pairs(PropertyDraw& draw) {
  auto spec = draw_absolute_spec<Sinusoidal>(draw);
  auto& rule = std::get<Sinusoidal>(spec.rule);
  rule.axes = 1, spec.width = static_cast<int>(2 * draw.whole(2, 32)), rule.offset = draw.whole(0, 3);
  rule.odd_width = gnomon::absolute::OddWidth::refuse;
  return spec;
}

/// The rotation that moves a row by some positions: the same frequencies, and pairs of (cos, sin) or, backwards, of (sin, cos).
gnomon::Frequencies frequencies_of(const AbsoluteSpec& spec) {
  const auto& rule = std::get<Sinusoidal>(spec.rule);
  gnomon::RotarySpec rotary{.rule = gnomon::rotary::Default{}, .theta = rule.theta, .head_dim = spec.width, .rotary_dim = spec.width};
  rotary.layout = rule.order == SinusoidOrder::interleaved ? gnomon::PairLayout::interleaved : gnomon::PairLayout::half_split;
  if (rule.denominator == SinusoidDenominator::half_minus_one) {
    std::vector<double> list;
    for (int j = 0; j < spec.width / 2; j++) list.push_back(std::pow(rule.theta, -static_cast<double>(j) / (spec.width / 2 - 1)));
    rotary.rule = gnomon::rotary::Custom{list}, rotary.theta = 0;
  }
  return gnomon::frequencies(rotary);
}

TEST(Absolute, ARowMovesByARotation) {
  // PE(p + k) = R(k) PE(p), Vaswani et al. 2017, section 3.5: for the paper's frequencies the very rotation of `default`.
  check_property("sinusoidal, rotation", [] {
    PropertyDraw draw;
    const auto spec = draw_pairs(draw);
    RC_LOG() << gnomon::to_json(spec) << "\n";
    const auto& rule = std::get<Sinusoidal>(spec.rule);
    const auto frequencies = frequencies_of(spec);
    const auto position = draw.whole(0, 5000), distance = draw.whole(1, 5000);
    const auto moved = [&](gnomon::Direction direction) {
      auto result = row(spec, position);
      const std::int64_t width = spec.width;
      gnomon::rotate(gnomon::TensorView{result.data(), DType::f64, {1, 1, 1, width}, {width, width, width, 1}}, frequencies,
                     gnomon::Range{distance, distance + 1}, {.direction = direction});
      return result;
    };
    const bool cosine_first = rule.order == SinusoidOrder::cos_sin;
    const auto there = row(spec, position + distance);
    const auto right = moved(cosine_first ? gnomon::Direction::forward : gnomon::Direction::transposed),
               wrong = moved(cosine_first ? gnomon::Direction::transposed : gnomon::Direction::forward);
    double error = 0, wrong_error = 0;
    for (std::size_t c = 0; c < there.size(); c++) {
      error = std::max(error, std::abs(right[c] - there[c]));
      wrong_error = std::max(wrong_error, std::abs(wrong[c] - there[c]));
    }
    RC_ASSERT(error <= 1e-11 * rule.scale);  // the custom frequencies are rounded once more
    RC_ASSERT(wrong_error > 1e-4 * rule.scale);
  });
}

TEST(Absolute, SeveralAxesAreRowsSideBySide) {
  check_property("sinusoidal, axes", [] {
    PropertyDraw draw;
    auto spec = draw_absolute_spec<Sinusoidal>(draw), alone = spec;
    const auto axes = std::get<Sinusoidal>(spec.rule).axes;
    std::get<Sinusoidal>(alone.rule).axes = 1;
    alone.width = spec.width / static_cast<int>(axes);
    std::vector<std::int64_t> ids;
    for (std::int64_t axis = 0; axis < axes; axis++) ids.push_back(draw.whole(-100000, 100000));
    std::vector<double> expected;
    for (const auto position : ids) {
      const auto part = row(alone, position);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    RC_ASSERT(rows(spec, gnomon::Ids{ids}) == expected);
  });
}

TEST(Absolute, OffsetAndScaleAreWhatTheySay) {
  check_property("sinusoidal, offset and scale", [] {
    PropertyDraw draw;
    auto spec = draw_absolute_spec<Sinusoidal>(draw), plain = spec;
    auto& rule = std::get<Sinusoidal>(spec.rule);
    auto& bare = std::get<Sinusoidal>(plain.rule);
    rule.scale = 8, bare.scale = 1, bare.offset = 0;
    const auto position = draw.whole(-100000, 100000);
    auto expected = row(plain, position + rule.offset);
    for (double& value : expected) value *= 8;
    RC_ASSERT(row(spec, position) == expected);
  });
}

TEST(Absolute, PackedPositionsAreTheSpelledOutOnes) {
  check_property("sinusoidal, packed", [] {
    PropertyDraw draw;
    const auto spec = draw_absolute_spec<Sinusoidal>(draw);
    std::vector<std::int64_t> once{0, 1, 2, 0, 0, 1}, ids;
    const std::vector<std::int32_t> bounds{0, 3, 3, 4, 6};
    for (std::int64_t axis = 0; axis < std::get<Sinusoidal>(spec.rule).axes; axis++) ids.insert(ids.end(), once.begin(), once.end());
    RC_ASSERT(rows(spec, gnomon::Packed{bounds}) == rows(spec, gnomon::Ids{ids}));
    RC_ASSERT(rows(spec, gnomon::Packed{bounds}) != rows(spec, gnomon::Range{0, 6}));
  });
}

}  // namespace
