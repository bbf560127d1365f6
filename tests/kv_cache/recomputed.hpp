// SPDX-License-Identifier: Apache-2.0
// What cached keys should be: unrotated keys, turned at their positions by cos and sin in long double, magnitude included.
#pragma once

#include <gtest/gtest.h>

#include "gnomon/kv_cache.hpp"
#include "support/random_spec.hpp"
#include "support/targets.hpp"
#include "support/turned.hpp"

namespace testing_support {

/// Errors of cos, sin and the loop, of the first rotation and of the second, and the rounding of what was stored between them.
template <class Element>
constexpr double recomputed_error = std::is_same_v<Element, double>          ? 1e-12
                                    : std::is_same_v<Element, float>         ? 6e-7
                                    : std::is_same_v<Element, std::uint16_t> ? 0x1p-8
                                                                             : 0x1p-10;

/// Keys as a cache holds them: random, rotated at `positions`.
template <class Element>
struct CachedKeys {
  Strided<Element> unrotated, keys;
  CachedKeys(const Shape& shape, Order order, const gnomon::Rotation& rotation, const gnomon::Positions& positions, std::uint64_t seed)
      : unrotated(shape, order), keys(shape, order) {
    SequenceDraw draw(seed);
    unrotated.fill(draw);
    keys = unrotated;
    rotate(rotation, positions);
  }
  void rotate(const gnomon::Rotation& rotation, const gnomon::Positions& positions) {
    const gnomon::RotateOperand operand{keys.view(), keys.view(), gnomon::Side::key};
    gnomon::rotate({&operand, 1}, rotation, positions);
  }
  /// The worst error over what is allowed, against the keys rotated at position(axis, b, t) by these frequencies.
  template <class Position>
  double share(const gnomon::Frequencies& frequencies, Position&& position) const {
    return worst_share(
        frequencies.spec, unrotated, keys, gnomon::Direction::forward, recomputed_error<Element>, [&](auto b, auto, auto t, int i) {
          const auto pair = static_cast<std::size_t>(i);
          const auto at = static_cast<long double>(position(frequencies.axis.empty() ? 0 : frequencies.axis[pair], b, t));
          const double decay = frequencies.log_magnitude.empty() ? 0 : frequencies.log_magnitude[pair];
          return turn(
              at * static_cast<long double>(frequencies.inv_freq[pair]),
              frequencies.attention_factor * std::exp(-decay * (static_cast<double>(at) - static_cast<double>(frequencies.centre))));
        });
  }
};

}  // namespace testing_support
