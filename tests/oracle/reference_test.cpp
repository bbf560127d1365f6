// SPDX-License-Identifier: Apache-2.0
// The double reference of rotate against MPFR.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "gnomon/rotate.hpp"
#include "support/pairs.hpp"
#include "support/random_spec.hpp"
#include "support/real.hpp"
#include "support/strided.hpp"

namespace {

using namespace testing_support;
using gnomon::Direction;
using oracle::Real;

struct Rotated {
  Real first, second, size;  ///< size: (|a| + |b|) times the magnitude
};

Rotated rotate_pair(double a, double b, const Real& position, double inv_freq, double magnitude, Direction direction) {
  const Real angle = position * Real(inv_freq), c = cos(angle), s = direction == Direction::forward ? sin(angle) : -sin(angle),
             m(magnitude);
  return {m * (Real(a) * c - Real(b) * s), m * (Real(b) * c + Real(a) * s), m * (abs(Real(a)) + abs(Real(b)))};
}

/// Worst error beyond the one rounding to the element type, in 2^-53 of (|a| + |b|) times the magnitude.
template <class Element>
double worst_excess(const gnomon::RotarySpec& spec, Order order, const std::vector<double>& reals, const std::vector<std::int64_t>& ids,
                    Direction direction, oracle::Format format, SequenceDraw& draw) {
  const auto T = static_cast<std::int64_t>(ids.empty() ? reals.size() : ids.size());
  Strided<Element> x({2, 2, T, spec.head_dim}, order), out({2, 2, T, spec.head_dim}, Order::bhtd);
  x.fill(draw), out.fill(draw);
  const auto frequencies = gnomon::frequencies(spec);
  const gnomon::Positions positions = ids.empty() ? gnomon::Positions(gnomon::Reals{reals}) : gnomon::Positions(gnomon::Ids{ids});
  gnomon::reference::rotate(std::as_const(x).view(), out.view(), frequencies, positions, {.direction = direction});
  double worst = 0;
  for (int b = 0; b < 2; b++)
    for (int h = 0; h < 2; h++)
      for (std::int64_t t = 0; t < T; t++)
        for (int i = 0; i < spec.rotary_dim / 2; i++) {
          const auto [first, second] = channels(spec, i);
          const Real position =
              ids.empty() ? Real(reals[static_cast<std::size_t>(t)]) : Real(static_cast<long>(ids[static_cast<std::size_t>(t)]));
          const auto truth = rotate_pair(decode(x.at(b, h, t, first)), decode(x.at(b, h, t, second)), position,
                                         frequencies.inv_freq[static_cast<std::size_t>(i)], frequencies.attention_factor, direction);
          const Real phase = scaled((abs(position) + Real(2)) * Real(2) * Real::pi(), -64) * truth.size;
          for (const auto& [got, real] :
               {std::pair(out.at(b, h, t, first), truth.first), std::pair(out.at(b, h, t, second), truth.second)}) {
            const Real error = abs(Real(decode(got)) - real) - phase - ulp(real, format) * Real(0.5);
            if (error > Real(0)) worst = std::max(worst, (scaled(error, 53) / truth.size).to_double());
          }
        }
  return worst;
}

template <class Element>
void check(const char* name, oracle::Format format) {
  SequenceDraw draw(21);
  double worst = 0;
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    if (!is_pure_rotation<Rule>) return;
    for (const Order order : all_orders) {
      const auto spec = draw_spec<Rule>(draw, {.most_pairs = 12});
      const auto direction = draw.whole(0, 1) == 0 ? Direction::forward : Direction::transposed;
      std::vector<std::int64_t> ids{0, -5, 131071, gnomon::max_position, static_cast<std::int64_t>(scaled(draw, 1, 0x1p33))};
      worst = std::max(worst, worst_excess<Element>(spec, order, {}, ids, direction, format, draw));
      std::vector<double> reals{0.5, -1.0 / 3, 1e5 + 1.0 / 7, scaled(draw, 1e-3, 0x1p33)};
      worst = std::max(worst, worst_excess<Element>(spec, order, reals, {}, direction, format, draw));
    }
  });
  std::cout << "[ measured ] reference rotate " << name << ": half an ulp of the result + " << worst
            << " * 2^-53 * (|a| + |b|) * magnitude\n";
  EXPECT_LE(worst, 3);
}

TEST(Reference, F64IsWithinAFewRoundings) { check<double>("f64", oracle::f64_format); }
TEST(Reference, F32IsRoundedOnce) { check<float>("f32", oracle::f32_format); }
TEST(Reference, Bf16IsRoundedOnce) { check<std::uint16_t>("bf16", oracle::bf16_format); }

}  // namespace
