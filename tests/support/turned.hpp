// SPDX-License-Identifier: Apache-2.0
// What a rotation must give, worked out pair by pair from cos and sin that the test states.
#pragma once

#include <algorithm>
#include <cmath>

#include "gnomon/rotate.hpp"
#include "pairs.hpp"
#include "strided.hpp"

namespace testing_support {

/// cos and sin of a pair, with any magnitude in them.
struct Turn {
  double cosine, sine;
};

inline Turn turn(long double angle, double magnitude = 1) {
  return {static_cast<double>(std::cos(angle)) * magnitude, static_cast<double>(std::sin(angle)) * magnitude};
}

/// The worst error of `out` over what is allowed: `relative` of the pair's size, and one rounding to the element type. Infinite for a NaN.
template <class Element, class Turns>
double worst_share(const gnomon::RotarySpec& spec, const Strided<Element>& x, const Strided<Element>& out, gnomon::Direction direction,
                   double relative, Turns&& turns) {
  double worst = 0;
  const auto [B, H, T, D] = x.shape;
  for (std::int64_t b = 0; b < B; b++)
    for (std::int64_t h = 0; h < H; h++)
      for (std::int64_t t = 0; t < T; t++)
        for (int i = 0; i < spec.rotary_dim / 2; i++) {
          const auto [first, second] = channels(spec, i);
          const Turn to = turns(b, h, t, i);
          const double sine = direction == gnomon::Direction::forward ? to.sine : -to.sine;
          const double a = decode(x.at(b, h, t, first)), b2 = decode(x.at(b, h, t, second));
          const double expected[] = {a * to.cosine - b2 * sine, b2 * to.cosine + a * sine};
          const double size = (std::abs(a) + std::abs(b2)) * (std::abs(to.cosine) + std::abs(to.sine));
          for (int side = 0; side < 2; side++) {
            const double error = std::abs(decode(out.at(b, h, t, side == 0 ? first : second)) - expected[side]);
            const double share = error / (size * relative + half_ulp<Element>(std::abs(expected[side]) + size * relative));
            worst = std::isnan(share) ? HUGE_VAL : std::max(worst, share);
          }
        }
  return worst;
}

/// Random numbers, rotated into memory of another order.
template <class Element>
struct Rotated {
  Strided<Element> x, out;
};
template <class Element, class Draw>
Rotated<Element> rotated(Draw& draw, const Shape& shape, const gnomon::Rotation& rotation, const gnomon::Positions& positions,
                         const gnomon::RotateOptions& options = {}, gnomon::Side side = gnomon::Side::query) {
  Rotated<Element> result{{shape, Order::bthd}, {shape, Order::padded}};
  result.x.fill(draw);
  const gnomon::RotateOperand operand{std::as_const(result.x).view(), result.out.view(), side};
  gnomon::rotate(std::span(&operand, 1), rotation, positions, options);
  return result;
}

/// Whether two tensors of one shape hold the same bits.
template <class Element>
bool same_tensor(const Strided<Element>& a, const Strided<Element>& b) {
  bool same = a.shape == b.shape;
  if (same) a.each([&](auto i, auto h, auto t, auto d) { same = same && same_bits(a.at(i, h, t, d), b.at(i, h, t, d)); });
  return same;
}

}  // namespace testing_support
