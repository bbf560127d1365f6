// SPDX-License-Identifier: Apache-2.0
// `exact` frequencies and their turns against the rules as real numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "gnomon/frequencies.hpp"
#include "support/random_spec.hpp"
#include "support/real.hpp"
#include "support/rules_oracle.hpp"

namespace {

using namespace testing_support;
using oracle::Real;

struct Measured {
  double worst = 0;
  long inexact = 0, values = 0;
};

void compare(const gnomon::RotarySpec& spec, Measured& measured, std::optional<std::int64_t> length = std::nullopt) {
  const auto ours = gnomon::frequencies(spec, gnomon::Numerics::exact, length);
  const auto truth = oracle::frequencies(spec, length.value_or(0));
  ASSERT_EQ(ours.inv_freq.size(), truth.size());
  for (std::size_t i = 0; i < truth.size(); i++) {
    const double error = oracle::error_in_ulps(ours.inv_freq[i], truth[i], oracle::f64_format);
    ASSERT_LE(error, 0.5001) << gnomon::to_json(spec) << " pair " << i << ": got " << ours.inv_freq[i] << ", real " << truth[i].to_double();
    measured.worst = std::max(measured.worst, error);
    measured.inexact += ours.inv_freq[i] != truth[i].to_double();
    measured.values++;
  }
}

TEST(Frequencies, AreTheCorrectlyRoundedRule) {
  gnomon::for_each_rotary_rule([]<class Rule>(const Rule&) {
    SequenceDraw draw(20240601);
    Measured measured;
    for (int round = 0; round < 60; round++) compare(draw_spec<Rule>(draw), measured);
    std::cout << "[ measured ] " << Rule::name << ": worst " << measured.worst << " ulp, not correctly rounded " << measured.inexact
              << " of " << measured.values << "\n";
    EXPECT_LE(measured.inexact, measured.values / 1000);
  });
}

/// Lengths around the trained one, where a rule changes, and anywhere.
template <class Draw>
std::int64_t draw_length(Draw& draw, std::int64_t trained) {
  if (draw.whole(0, 1) == 0) return std::max<std::int64_t>(1, trained + draw.whole(-2, 2));
  return static_cast<std::int64_t>(scaled(draw, 1, 0x1p33));
}

template <class Rule>
std::int64_t trained_length(const Rule& rule) {
  if constexpr (requires { rule.max_position_embeddings; }) return rule.max_position_embeddings;
  if constexpr (requires { rule.original_max_position_embeddings; }) return rule.original_max_position_embeddings;
  return 4096;
}

TEST(Frequencies, OfALengthAreTheCorrectlyRoundedRule) {
  gnomon::for_each_rotary_rule([]<class Rule>(const Rule&) {
    SequenceDraw draw(20240602);
    Measured measured;
    long changed = 0;
    for (int round = 0; round < 60; round++) {
      const auto spec = draw_spec<Rule>(draw);
      const auto length = draw_length(draw, trained_length(std::get<Rule>(spec.rule)));
      compare(spec, measured, length);
      const auto ours = gnomon::frequencies(spec, gnomon::Numerics::exact, length);
      EXPECT_EQ(ours.length, length);
      changed += ours.inv_freq != gnomon::frequencies(spec).inv_freq;
    }
    constexpr bool by_length = std::is_same_v<Rule, gnomon::rotary::Dynamic> || std::is_same_v<Rule, gnomon::rotary::Longrope>;
    EXPECT_EQ(changed > 0, by_length) << Rule::name;
    EXPECT_LE(measured.inexact, measured.values / 1000);
  });
}

TEST(Frequencies, OfSeveralAxesAreThoseOfEachAxis) {
  // Sections share out one list of frequencies; axes begin anew, each as a rotation of its own width.
  gnomon::for_each_rotary_rule([]<class Rule>(const Rule&) {
    SequenceDraw draw(20240603);
    for (int round = 0; round < 40; round++) {
      auto spec = draw_spec<Rule>(draw, {.most_pairs = 48, .axes = true});
      const auto ours = gnomon::frequencies(spec);
      if (spec.axes == 1) {
        auto text = spec;
        text.sections.clear(), text.section_order = gnomon::SectionOrder::chunked;
        ASSERT_EQ(ours.inv_freq, gnomon::frequencies(text).inv_freq) << gnomon::to_json(spec);
        continue;
      }
      std::size_t first = 0;
      for (int axis = 0; axis < spec.axes; axis++) {
        auto alone = spec;
        alone.axes = 1, alone.sections.clear();
        alone.rotary_dim = spec.sections.empty() ? spec.rotary_dim / spec.axes : 2 * spec.sections[static_cast<std::size_t>(axis)];
        const auto truth = oracle::frequencies(alone);
        for (std::size_t i = 0; i < truth.size(); i++) {
          ASSERT_LE(oracle::error_in_ulps(ours.inv_freq[first + i], truth[i], oracle::f64_format), 0.5001) << gnomon::to_json(spec);
          ASSERT_EQ(ours.axis[first + i], axis) << gnomon::to_json(spec);
        }
        first += truth.size();
      }
      ASSERT_EQ(first, ours.inv_freq.size());
    }
  });
}

TEST(Frequencies, MagnitudesOfXposAreTheRealOnes) {
  SequenceDraw draw(20240604);
  long inexact = 0, values = 0;
  for (int round = 0; round < 100; round++) {
    auto spec = draw_spec<gnomon::rotary::Xpos>(draw);
    auto& rule = std::get<gnomon::rotary::Xpos>(spec.rule);
    if (round % 2 == 0) rule.scale_base = scaled(draw, 1, 4096);
    const auto ours = gnomon::frequencies(spec);
    ASSERT_EQ(ours.log_magnitude.size(), ours.inv_freq.size());
    ASSERT_EQ(ours.centre, rule.centre);
    for (std::size_t i = 0; i < ours.log_magnitude.size(); i++) {
      const Real truth = oracle::log_magnitude(rule, spec, static_cast<int>(i));
      ASSERT_LE(oracle::error_in_ulps(ours.log_magnitude[i], truth, oracle::f64_format), 0.5001) << gnomon::to_json(spec) << " pair " << i;
      ASSERT_LT(ours.log_magnitude[i], 0);
      inexact += ours.log_magnitude[i] != truth.to_double(), values++;
    }
  }
  EXPECT_LE(inexact, values / 1000);
}

TEST(Frequencies, OfModelsAreTheCorrectlyRoundedRule) {
  using namespace gnomon;
  const RotarySpec specs[] = {
      {.rule = rotary::Default{}, .theta = 10000, .head_dim = 128, .rotary_dim = 128},
      {.rule = rotary::Default{}, .theta = 1, .head_dim = 8, .rotary_dim = 8},
      {.rule = rotary::Default{}, .theta = 0.5, .head_dim = 8, .rotary_dim = 8},
      {.rule = rotary::Default{}, .theta = 1e12, .head_dim = 65536, .rotary_dim = 256},
      {.rule = rotary::Linear{.factor = 8}, .theta = 1e6, .head_dim = 256, .rotary_dim = 256},
      {.rule = rotary::Ntk{.factor = 4}, .theta = 100000, .head_dim = 64, .rotary_dim = 64},
      {.rule = rotary::Ntk{.factor = 1000}, .theta = 10000, .head_dim = 128, .rotary_dim = 128},
      {.rule = rotary::Ntk{.factor = 3}, .theta = 10000, .head_dim = 4, .rotary_dim = 4},
      {.rule = rotary::Yarn{.factor = 4, .original_max_position_embeddings = 32768}, .theta = 1e6, .head_dim = 128, .rotary_dim = 128},
      {.rule = rotary::Yarn{.factor = 32, .original_max_position_embeddings = 4096, .truncate = false},
       .theta = 150000,
       .head_dim = 64,
       .rotary_dim = 64},
      {.rule = rotary::Yarn{.factor = 4, .original_max_position_embeddings = 128}, .theta = 10000, .head_dim = 64, .rotary_dim = 64},
      {.rule = rotary::Yarn{.factor = 4, .original_max_position_embeddings = 131072}, .theta = 10000, .head_dim = 64, .rotary_dim = 64},
      {.rule = rotary::Yarn{.factor = 4, .original_max_position_embeddings = 4096}, .theta = 10, .head_dim = 64, .rotary_dim = 64},
      {.rule = rotary::Yarn{.factor = 64, .original_max_position_embeddings = 4096, .beta_fast = 1, .beta_slow = 1},
       .theta = 50000,
       .head_dim = 64,
       .rotary_dim = 64},
      {.rule = rotary::Yarn{.factor = 16, .original_max_position_embeddings = 4096, .beta_fast = 1, .beta_slow = 1, .truncate = false},
       .theta = 50000,
       .head_dim = 64,
       .rotary_dim = 64},
      {.rule = rotary::Yarn{.factor = 16, .original_max_position_embeddings = 2}, .theta = 10000, .head_dim = 64, .rotary_dim = 64},
      {.rule = rotary::Yarn{.factor = 16, .original_max_position_embeddings = 4096, .ramp = rotary::YarnRamp::turns},
       .theta = 10000,
       .head_dim = 128,
       .rotary_dim = 128},
      {.rule = rotary::Llama3{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192},
       .theta = 500000,
       .head_dim = 128,
       .rotary_dim = 128},
      {.rule = rotary::Llama3{.factor = 16, .low_freq_factor = 1, .high_freq_factor = 1, .original_max_position_embeddings = 8192},
       .theta = 500000,
       .head_dim = 128,
       .rotary_dim = 128},
      {.rule = rotary::Llama3{.factor = 32, .low_freq_factor = .125, .high_freq_factor = .5, .original_max_position_embeddings = 1024},
       .theta = 500000,
       .head_dim = 64,
       .rotary_dim = 64},
  };
  Measured measured;
  for (const auto& spec : specs) compare(spec, measured);
  EXPECT_EQ(measured.inexact, 0);
}

TEST(Frequencies, SpanTheWholeRangeOfTheta) {
  // Extreme bases keep their digits: what overflows or underflows on the way would show.
  for (const double theta : {1e-3, 1.0000000000000002, 1e30, 1e100, 1e300}) {
    Measured measured;
    compare({.rule = gnomon::rotary::Default{}, .theta = theta, .head_dim = 16, .rotary_dim = 16}, measured);
  }
}

TEST(Frequencies, MagnitudeIsTheRealOne) {
  SequenceDraw draw(7);
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    for (int round = 0; round < 200; round++) {
      const auto spec = draw_spec<Rule>(draw, {.most_pairs = 4});
      const double ours = gnomon::effective_attention_factor(spec);
      ASSERT_LE(oracle::error_in_ulps(ours, oracle::magnitude(spec), oracle::f64_format), 3) << gnomon::to_json(spec);
      ASSERT_EQ(gnomon::frequencies(spec).attention_factor, ours);
    }
  });
}

TEST(Frequencies, WavelengthIsTwoPiOverTheFrequency) {
  SequenceDraw draw(8);
  for (int round = 0; round < 20; round++) {
    const auto ours = gnomon::frequencies(draw_spec<gnomon::rotary::Default>(draw));
    const auto wavelength = ours.wavelength();
    ASSERT_EQ(wavelength.size(), ours.inv_freq.size());
    for (std::size_t i = 0; i < wavelength.size(); i++) {
      ASSERT_EQ(wavelength[i], (Real(2) * Real::pi() / Real(ours.inv_freq[i])).to_double());
    }
  }
  gnomon::Frequencies still;
  still.inv_freq = {0.0};
  EXPECT_TRUE(std::isinf(still.wavelength().at(0)));
}

/// N + T 2^-64 turns of a double, correctly rounded.
gnomon::Turns real_turns(double inv_freq) {
  const Real turns = scaled(Real(inv_freq) / (Real(2) * Real::pi()), 64);
  const Real rounded = round_to_even(turns), whole = floor(scaled(rounded, -64));
  return {whole.to_long(), (rounded - scaled(whole, 64)).to_unsigned()};
}

void compare_turns(double inv_freq) {
  const auto ours = gnomon::turns(inv_freq), truth = real_turns(inv_freq);
  ASSERT_EQ(ours.whole, truth.whole) << std::hexfloat << inv_freq;
  ASSERT_EQ(ours.fraction, truth.fraction) << std::hexfloat << inv_freq;
}

TEST(Turns, AreCorrectlyRounded) {
  SequenceDraw draw(9);
  for (int round = 0; round < 20000; round++) compare_turns(scaled(draw, 1e-12, 4));
  for (int round = 0; round < 20000; round++) compare_turns(scaled(draw, 0x1p-80, 0x1p52));
  for (const double value : {0.0, 0x1p-1074, 0x1p-1022, 0x1p-66, 0x1p-62, 0x1p-61, 0x1.921fb54442d18p-62, 0x1.921fb54442d18p-63, 1.0,
                             0x1.921fb54442d18p+2, 0x1.921fb54442d19p+2, 0x1.921fb54442d17p+2, 0x1.fffffffffffffp+52}) {
    compare_turns(value);
  }
}

TEST(Turns, NearWholeTurnsCarry) {
  // The doubles nearest to k turns: the fraction is close to 0 or to 2^64, the hardest place for a carry.
  for (int k = 1; k < 2000; k++) {
    const double turn = (Real(2) * Real::pi() * Real(k)).to_double();
    for (const double value : {std::nextafter(turn, 0.0), turn, std::nextafter(turn, 1e9)}) compare_turns(value);
  }
}

TEST(Turns, RefuseWhatTheContractDoesNotCover) {
  for (const double value : {-1e-300, -1.0, 0x1p53, HUGE_VAL, std::nan("")}) EXPECT_THROW(gnomon::turns(value), gnomon::Error) << value;
}

}  // namespace
