// SPDX-License-Identifier: Apache-2.0
// What holds for rotations with several position axes, and for positions of packed documents.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "support/pairs.hpp"
#include "support/property.hpp"
#include "support/strided.hpp"

namespace {

using namespace testing_support;
using gnomon::DType;
using gnomon::RotarySpec;

constexpr SpecLimits several{.most_pairs = 24, .axes = true};

std::vector<std::int64_t> draw_ids(PropertyDraw& draw, int axes, int tokens) {
  std::vector<std::int64_t> ids;
  for (int k = 0; k < axes * tokens; k++) ids.push_back(draw.whole(0, 1) == 0 ? draw.whole(-50, 50) : draw.whole(-(1 << 24), 1 << 24));
  return ids;
}

/// Rows of random numbers, one head.
template <class Element>
Strided<Element> draw_rows(PropertyDraw& draw, const RotarySpec& spec, int tokens) {
  Strided<Element> x({1, 1, tokens, spec.head_dim}, Order::bhtd);
  x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = encode<Element>(static_cast<double>(draw.whole(-1000, 1000)) / 512); });
  return x;
}

template <class Element>
Strided<Element> rotated(Strided<Element> x, const gnomon::Frequencies& frequencies, const gnomon::Positions& positions) {
  gnomon::rotate(x.view(), frequencies, positions);
  return x;
}

/// The same frequencies on one axis.
gnomon::Frequencies on_one_axis(const RotarySpec& spec) {
  auto flat = spec;
  flat.rule = gnomon::rotary::Custom{gnomon::frequencies(spec).inv_freq};
  flat.theta = 0, flat.axes = 1, flat.attention_factor = gnomon::effective_attention_factor(spec);
  flat.sections.clear(), flat.section_order = gnomon::SectionOrder::chunked;
  return gnomon::frequencies(flat);
}

TEST(Axes, EachPairTurnsAsOnItsAxisAlone) {
  for_every_rule(
      "pair by pair", several,
      [](PropertyDraw& draw, const RotarySpec& spec) {
        const int axes = gnomon::position_axes(spec), tokens = static_cast<int>(draw.whole(1, 4));
        const auto ids = draw_ids(draw, axes, tokens);
        const auto together = gnomon::frequencies(spec), alone = on_one_axis(spec);
        const auto table = gnomon::rotary_table(together, gnomon::Ids{ids}, DType::f64);
        RC_ASSERT(table.positions == static_cast<std::size_t>(tokens));
        const auto wide = draw_rows<double>(draw, spec, tokens);
        const auto narrow = converted<float>(wide);
        const auto wide_after = rotated(wide, together, gnomon::Ids{ids});
        const auto narrow_after = rotated(narrow, together, gnomon::Ids{ids});
        for (int axis = 0; axis < axes; axis++) {
          const std::span own(ids.data() + axis * tokens, static_cast<std::size_t>(tokens));
          const auto single = gnomon::rotary_table(alone, gnomon::Ids{own}, DType::f64);
          const auto wide_alone = rotated(wide, alone, gnomon::Ids{own});
          const auto narrow_alone = rotated(narrow, alone, gnomon::Ids{own});
          for (std::size_t i = 0; i < table.pairs; i++) {
            if (axes > 1 && together.axis[i] != axis) continue;
            const auto [first, second] = channels(spec, static_cast<int>(i));
            for (int t = 0; t < tokens; t++) {
              const auto row = static_cast<std::size_t>(t);
              RC_ASSERT(table_cos(table, row, i) == table_cos(single, row, i));
              RC_ASSERT(table_sin(table, row, i) == table_sin(single, row, i));
              for (const int d : {first, second}) {
                RC_ASSERT(same_bits(wide_after.at(0, 0, t, d), wide_alone.at(0, 0, t, d)));
                RC_ASSERT(same_bits(narrow_after.at(0, 0, t, d), narrow_alone.at(0, 0, t, d)));
              }
            }
          }
        }
      },
      Rules::rotations);
}

TEST(Axes, EqualPositionsAreThePlainRotation) {
  // Text in a vision model: sections only share out positions, so with equal ones they are not seen, bit for bit.
  for_every_rule("text", several, [](PropertyDraw& draw, const RotarySpec& given) {
    auto spec = given;
    if (spec.axes > 1) return;  // frequencies that begin anew are no plain rotation
    auto plain = spec;
    plain.sections.clear(), plain.section_order = gnomon::SectionOrder::chunked;
    const int axes = gnomon::position_axes(spec), tokens = static_cast<int>(draw.whole(1, 4));
    const auto text = draw_ids(draw, 1, tokens);
    std::vector<std::int64_t> ids;
    for (int axis = 0; axis < axes; axis++) ids.insert(ids.end(), text.begin(), text.end());
    const auto with = gnomon::frequencies(spec), without = gnomon::frequencies(plain);
    const auto x = draw_rows<float>(draw, spec, tokens);
    RC_ASSERT(rotated(x, with, gnomon::Ids{ids}).memory == rotated(x, without, gnomon::Ids{text}).memory);
    const gnomon::Range range{text[0], text[0] + 3 * tokens, 3};
    RC_ASSERT(rotated(x, with, range).memory == rotated(x, without, range).memory);
    if (!with.log_magnitude.empty()) return;
    RC_ASSERT(gnomon::rotary_table(with, gnomon::Ids{ids}).cos == gnomon::rotary_table(without, gnomon::Ids{text}).cos);
    RC_ASSERT(gnomon::rotary_table(with, range).sin == gnomon::rotary_table(without, range).sin);
  });
}

TEST(Axes, TransposingTheGridExchangesTheHalves) {
  check_property("transposed grid", [] {
    PropertyDraw draw;
    auto spec = draw_spec<gnomon::rotary::Default>(draw, {.most_pairs = 16});
    spec.head_dim += spec.rotary_dim, spec.rotary_dim *= 2, spec.axes = 2;
    const int rows = static_cast<int>(draw.whole(1, 4)), columns = static_cast<int>(draw.whole(1, 4)), half = spec.rotary_dim / 4;
    std::vector<std::int64_t> grid, transposed;
    for (int k = 0; k < rows * columns; k++) grid.push_back(k / columns);
    for (int k = 0; k < rows * columns; k++) grid.push_back(k % columns);
    transposed.assign(grid.begin() + rows * columns, grid.end());
    transposed.insert(transposed.end(), grid.begin(), grid.begin() + rows * columns);
    const auto frequencies = gnomon::frequencies(spec);
    const auto there = gnomon::rotary_table(frequencies, gnomon::Ids{grid}),
               back = gnomon::rotary_table(frequencies, gnomon::Ids{transposed});
    for (std::size_t p = 0; p < there.positions; p++) {
      for (std::size_t i = 0; i < there.pairs; i++) {
        const std::size_t other = (i + static_cast<std::size_t>(half)) % there.pairs;
        RC_ASSERT(table_cos(there, p, i) == table_cos(back, p, other));
        RC_ASSERT(table_sin(there, p, i) == table_sin(back, p, other));
      }
    }
    // Only on the diagonal are rows and columns the same: a port that swapped them is seen anywhere else.
    if (rows > 1 && columns > 1) RC_ASSERT(there.sin != back.sin);
  });
}

TEST(Axes, PackedPositionsAreTheSpelledOutOnes) {
  for_every_rule("packed", several, [](PropertyDraw& draw, const RotarySpec& spec) {
    std::vector<std::int32_t> bounds{0};
    std::vector<std::int64_t> once, ids;
    for (auto documents = draw.whole(1, 4); documents > 0; documents--) {
      const auto length = static_cast<std::int32_t>(draw.whole(0, 5));
      for (std::int32_t k = 0; k < length; k++) once.push_back(k);
      bounds.push_back(bounds.back() + length);
    }
    const int tokens = bounds.back();
    if (tokens == 0) return;
    for (int axis = 0; axis < gnomon::position_axes(spec); axis++) ids.insert(ids.end(), once.begin(), once.end());
    const auto frequencies = gnomon::frequencies(spec);
    const auto x = draw_rows<float>(draw, spec, tokens);
    const auto packed = rotated(x, frequencies, gnomon::Packed{bounds});
    RC_ASSERT(packed.memory == rotated(x, frequencies, gnomon::Ids{ids}).memory);
    // Seen: one position for the whole row. It differs wherever a second document has a second token.
    if (std::is_sorted(once.begin(), once.end(), std::less_equal<>())) return;
    if (frequencies.log_magnitude.empty()) {
      const auto table = gnomon::rotary_table(frequencies, gnomon::Packed{bounds});
      RC_ASSERT(table.cos == gnomon::rotary_table(frequencies, gnomon::Ids{ids}).cos);
      RC_ASSERT(table.sin != gnomon::rotary_table(frequencies, gnomon::Range{0, tokens}).sin);
    }
  });
}

}  // namespace
