// SPDX-License-Identifier: Apache-2.0
// xpos: a rotation whose scores also decay with the distance, because queries and keys carry reciprocal magnitudes.
#include <gtest/gtest.h>

#include <cmath>

#include "gnomon/rotate.hpp"
#include "support/pairs.hpp"
#include "support/property.hpp"

namespace {

using namespace testing_support;
using gnomon::RotarySpec;
using gnomon::Side;

/// A spec whose magnitudes are seen within a few thousand positions.
RotarySpec draw_xpos(PropertyDraw& draw) {
  auto spec = draw_spec<gnomon::rotary::Xpos>(draw, {.most_pairs = 16});
  spec.rule = gnomon::rotary::Xpos{.scale_base = scaled(draw, 256, 4096), .centre = draw.whole(-2000, 2000)};
  spec.attention_factor.reset();
  return spec;
}

using Head = std::vector<double>;

Head draw_head(PropertyDraw& draw, const RotarySpec& spec) {
  Head head(static_cast<std::size_t>(spec.head_dim));
  for (double& value : head) value = static_cast<double>(draw.whole(-1000, 1000)) / 512;
  return head;
}

Head rotated(Head head, const RotarySpec& spec, std::int64_t position, Side side) {
  const auto width = static_cast<std::int64_t>(head.size());
  const gnomon::TensorView view{head.data(), gnomon::DType::f64, {1, 1, 1, width}, {width, width, width, 1}};
  const gnomon::RotateOperand operand{{head.data(), gnomon::DType::f64, view.shape, view.strides}, view, side};
  const auto frequencies = gnomon::frequencies(spec);
  gnomon::rotate(std::span(&operand, 1), frequencies, gnomon::Range{position, position + 1});
  return head;
}

double score(const RotarySpec& spec, const Head& q, const Head& k) {
  double sum = 0;
  for (int d = 0; d < spec.rotary_dim; d++) {
    const auto channel = static_cast<std::size_t>(spec.rotary_offset + d);
    sum += q[channel] * k[channel];
  }
  return sum;
}

TEST(Xpos, ScoresDependOnTheDistanceOnly) {
  check_property("xpos, shift invariance", [] {
    PropertyDraw draw;
    const auto spec = draw_xpos(draw);
    const auto q = draw_head(draw, spec), k = draw_head(draw, spec);
    const auto key = draw.whole(-2000, 2000), query = key + draw.whole(0, 2000), shift = draw.whole(-2000, 2000);
    const double here = score(spec, rotated(q, spec, query, Side::query), rotated(k, spec, key, Side::key));
    const double there = score(spec, rotated(q, spec, query + shift, Side::query), rotated(k, spec, key + shift, Side::key));
    RC_ASSERT(std::abs(here - there) <= 1e-10 * spec.rotary_dim);
  });
}

TEST(Xpos, QuerySideOnKeysIsNoticed) {
  // Seen: keys scaled as queries. Scores then change with the place, by the square of a magnitude for every step.
  check_property("xpos, wrong side", [] {
    PropertyDraw draw;
    const auto spec = draw_xpos(draw);
    Head q(static_cast<std::size_t>(spec.head_dim), 0.0);
    q[static_cast<std::size_t>(channels(spec, 0).first)] = 1;
    const auto position = draw.whole(-2000, 2000), shift = draw.whole(100, 2000);
    const auto square = [&](std::int64_t p, Side side) { return score(spec, rotated(q, spec, p, Side::query), rotated(q, spec, p, side)); };
    RC_ASSERT(std::abs(square(position, Side::key) - 1) <= 1e-12);
    RC_ASSERT(std::abs(square(position + shift, Side::key) - 1) <= 1e-12);
    RC_ASSERT(square(position + shift, Side::query) < 0.95 * square(position, Side::query));
  });
}

TEST(Xpos, ScoresDecayWithTheDistance) {
  // A pair's score with a key and with the key a quarter turn on are the two legs of its magnitude, which falls as zeta^(distance).
  check_property("xpos, decay", [] {
    PropertyDraw draw;
    const auto spec = draw_xpos(draw);
    const double scale_base = std::get<gnomon::rotary::Xpos>(spec.rule).scale_base;
    const int pair = static_cast<int>(draw.whole(0, spec.rotary_dim / 2 - 1));
    const auto [first, second] = channels(spec, pair);
    const auto unit = [&](int channel) {
      Head head(static_cast<std::size_t>(spec.head_dim), 0.0);
      head[static_cast<std::size_t>(channel)] = 1;
      return head;
    };
    const auto key = draw.whole(-2000, 2000);
    double before = HUGE_VAL;
    for (const std::int64_t distance : {0, 1, 10, 100, 1000, 3000}) {
      const auto q = rotated(unit(first), spec, key + distance, Side::query);
      const double size = std::hypot(score(spec, q, rotated(unit(first), spec, key, Side::key)),
                                     score(spec, q, rotated(unit(second), spec, key, Side::key)));
      const double zeta = (2.0 * pair / spec.rotary_dim + 0.4) / 1.4;
      RC_ASSERT(std::abs(size / std::pow(zeta, static_cast<double>(distance) / scale_base) - 1) <= 1e-12);
      RC_ASSERT(size < before);
      before = size;
    }
  });
}

TEST(Xpos, TheCentreMovesMagnitudesAndNoScore) {
  check_property("xpos, centre", [] {
    PropertyDraw draw;
    const auto spec = draw_xpos(draw);
    auto other = spec;
    std::get<gnomon::rotary::Xpos>(other.rule).centre += draw.whole(1, 1000);
    const auto q = draw_head(draw, spec), k = draw_head(draw, spec);
    const auto key = draw.whole(-1000, 1000), query = key + draw.whole(0, 1000);
    const double a = score(spec, rotated(q, spec, query, Side::query), rotated(k, spec, key, Side::key));
    const double b = score(spec, rotated(q, other, query, Side::query), rotated(k, other, key, Side::key));
    RC_ASSERT(std::abs(a - b) <= 1e-10 * spec.rotary_dim);
    // Keys of a cache whose centre moved no longer fit.
    Head unit(static_cast<std::size_t>(spec.head_dim), 0.0);
    unit[static_cast<std::size_t>(channels(spec, 0).first)] = 1;
    const double stale = score(spec, rotated(unit, other, query, Side::query), rotated(unit, spec, query, Side::key));
    RC_ASSERT(stale > 1);
  });
}

}  // namespace
