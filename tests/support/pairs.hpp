// SPDX-License-Identifier: Apache-2.0
// Which two channels a pair is, for tests.
#pragma once

#include <utility>

#include "gnomon/spec.hpp"

namespace testing_support {

inline std::pair<int, int> channels(const gnomon::RotarySpec& spec, int pair) {
  const int base = spec.rotary_offset;
  if (spec.layout == gnomon::PairLayout::half_split) return {base + pair, base + pair + spec.rotary_dim / 2};
  return {base + 2 * pair, base + 2 * pair + 1};
}

}  // namespace testing_support
