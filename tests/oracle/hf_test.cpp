// SPDX-License-Identifier: Apache-2.0
// The `hf` profile against a second writing of transformers' float32 steps (version 5.24, src/transformers/modeling_rope_utils.py), with
// the power and the angle functions correctly rounded by MPFR. Every result must be the same float.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>

#include "gnomon/table.hpp"
#include "support/elements.hpp"
#include "support/random_spec.hpp"
#include "support/real.hpp"

namespace {

using namespace testing_support;
using oracle::Real;

/// base ** (arange(0, dim, 2, float32) / dim)
std::vector<float> pos_freqs(const gnomon::RotarySpec& spec) {
  std::vector<float> result;
  for (int channel = 0; channel < spec.rotary_dim; channel += 2) {
    const float exponent = static_cast<float>(channel) / static_cast<float>(spec.rotary_dim);
    result.push_back(pow(Real(static_cast<double>(static_cast<float>(spec.theta))), Real(static_cast<double>(exponent))).to_float());
  }
  return result;
}

/// A Python number over a float32 tensor: torch takes the reciprocal and multiplies.
float over(double scalar, float tensor) {
  const float reciprocal = 1.0F / tensor;
  return reciprocal * static_cast<float>(scalar);
}

std::vector<float> emulate(const gnomon::rotary::Default&, const gnomon::RotarySpec& spec) {
  auto result = pos_freqs(spec);
  for (float& value : result) value = 1.0F / value;
  return result;
}

std::vector<float> emulate(const gnomon::rotary::Linear& rule, const gnomon::RotarySpec& spec) {
  auto result = pos_freqs(spec);
  const auto factor = static_cast<float>(rule.factor);
  for (float& value : result) value = 1.0F / value, value = value / factor;
  return result;
}

std::vector<float> emulate(const gnomon::rotary::Yarn& rule, const gnomon::RotarySpec& spec) {
  const double base = spec.theta, dim = spec.rotary_dim, length = rule.original_max_position_embeddings;
  const auto correction = [&](double rotations) {
    return (dim * std::log(length / (rotations * 2 * std::numbers::pi))) / (2 * std::log(base));
  };
  double low = correction(rule.beta_fast), high = correction(rule.beta_slow);
  if (rule.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  if (low < 0) low = 0;
  if (high > dim - 1) high = dim - 1;
  if (low == high) high += 0.001;
  auto result = pos_freqs(spec);
  for (std::size_t i = 0; i < result.size(); i++) {
    const float extrapolation = 1.0F / result[i];
    const float slowed = static_cast<float>(rule.factor) * result[i];
    const float interpolation = 1.0F / slowed;
    const float moved = static_cast<float>(i) - static_cast<float>(low);
    float ramp = moved / static_cast<float>(high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    const float kept = 1.0F - ramp;
    const float dropped = 1.0F - kept;
    const float slow_part = interpolation * dropped;
    const float fast_part = extrapolation * kept;
    result[i] = slow_part + fast_part;
  }
  return result;
}

std::vector<float> emulate(const gnomon::rotary::Llama3& rule, const gnomon::RotarySpec& spec) {
  const double length = rule.original_max_position_embeddings;
  const auto low_wavelength = static_cast<float>(length / rule.low_freq_factor);
  const auto high_wavelength = static_cast<float>(length / rule.high_freq_factor);
  const auto factor = static_cast<float>(rule.factor);
  auto result = pos_freqs(spec);
  for (float& value : result) {
    value = 1.0F / value;
    const float wavelength = over(2 * std::numbers::pi, value);
    const float unsmoothed = value;
    if (wavelength > low_wavelength) value = value / factor;
    if (!(wavelength < high_wavelength) && !(wavelength > low_wavelength)) {
      const float moved = over(length, wavelength) - static_cast<float>(rule.low_freq_factor);
      const float smooth = moved / static_cast<float>(rule.high_freq_factor - rule.low_freq_factor);
      const float rest = 1.0F - smooth;
      const float product = rest * unsmoothed;
      const float slow_part = product / factor;
      const float fast_part = smooth * unsmoothed;
      value = slow_part + fast_part;
    }
  }
  return result;
}

// Up to the trained length the growth is 1 and the base is theta. The length is a Python integer, so all of this is Python's doubles.
std::vector<float> emulate(const gnomon::rotary::Dynamic& rule, const gnomon::RotarySpec& spec, std::int64_t length = 0) {
  const double dim = spec.rotary_dim, trained = static_cast<double>(rule.max_position_embeddings);
  const double seq_len = std::max(static_cast<double>(length), trained);
  auto grown = spec;
  grown.theta = spec.theta * std::pow((rule.factor * seq_len / trained) - (rule.factor - 1), dim / (dim - 2));
  auto result = pos_freqs(grown);
  for (float& value : result) value = 1.0F / value;
  return result;
}

std::vector<float> emulate(const gnomon::rotary::Longrope& rule, const gnomon::RotarySpec& spec, std::int64_t length = 0) {
  const auto& ext_factors = length > rule.original_max_position_embeddings ? rule.long_factor : rule.short_factor;
  auto result = pos_freqs(spec);
  for (std::size_t i = 0; i < result.size(); i++) {
    const float product = static_cast<float>(ext_factors[i]) * result[i];
    result[i] = 1.0F / product;
  }
  return result;
}

std::vector<float> emulate(const gnomon::rotary::Proportional& rule, const gnomon::RotarySpec& spec) {
  auto result = pos_freqs(spec);
  const auto factor = static_cast<float>(rule.factor);
  const double channels = rule.partial_rotary_factor * spec.rotary_dim, whole = std::round(channels);
  const auto turning = static_cast<std::size_t>((std::abs(channels - whole) <= 1e-6 ? whole : channels) / 2);
  for (std::size_t i = 0; i < result.size(); i++) result[i] = i < turning ? (1.0F / result[i]) / factor : 0.0F;
  return result;
}

template <class Rule>
std::vector<float> emulate(const Rule& rule, const gnomon::RotarySpec&) {
  if (rule.in_transformers())
    throw std::logic_error("tests/oracle/hf_test.cpp has no steps for the rule \"" + std::string(Rule::name) + "\"");
  return {};
}

TEST(Hf, FrequenciesAreTheSameFloats) {
  SequenceDraw draw(11);
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    long differ = 0, values = 0, moved = 0;
    for (int round = 0; round < 150; round++) {
      const auto spec = draw_spec<Rule>(draw);
      if (!std::get<Rule>(spec.rule).in_transformers()) continue;
      const auto ours = gnomon::frequencies(spec, gnomon::Numerics::hf), exact = gnomon::frequencies(spec);
      const auto theirs = emulate(std::get<Rule>(spec.rule), spec);
      ASSERT_EQ(ours.inv_freq.size(), theirs.size());
      ASSERT_EQ(ours.numerics, gnomon::Numerics::hf);
      for (std::size_t i = 0; i < theirs.size(); i++) {
        EXPECT_EQ(ours.inv_freq[i], static_cast<double>(theirs[i])) << gnomon::to_json(spec) << " pair " << i;
        differ += ours.inv_freq[i] != static_cast<double>(theirs[i]);
        moved += ours.inv_freq[i] != static_cast<double>(static_cast<float>(exact.inv_freq[i]));
        values++;
      }
    }
    std::cout << "[ measured ] hf " << Rule::name << ": " << differ << " of " << values << " differ; " << moved
              << " are not the rounded real frequency\n";
    EXPECT_TRUE(values == 0 || moved > 0) << "hf would be indistinguishable from rounding the exact frequency";
  });
}

template <class Rule>
void compare_lengths(SequenceDraw& draw, std::int64_t Rule::* trained) {
  long differ = 0, values = 0, changed = 0;
  for (int round = 0; round < 100; round++) {
    const auto spec = draw_spec<Rule>(draw);
    const auto& rule = std::get<Rule>(spec.rule);
    const auto length = draw.whole(0, 1) == 0 ? rule.*trained + draw.whole(0, 1) : static_cast<std::int64_t>(scaled(draw, 1, 1e7));
    const auto ours = gnomon::frequencies(spec, gnomon::Numerics::hf, length).inv_freq;
    const auto theirs = emulate(rule, spec, length), brief = emulate(rule, spec);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); i++) differ += ours[i] != static_cast<double>(theirs[i]), values++;
    changed += theirs != brief;
  }
  EXPECT_EQ(differ, 0) << "of " << values << ", " << Rule::name;
  EXPECT_GT(changed, 20) << "the length matters";
}

TEST(Hf, FrequenciesOfALengthAreTheSameFloats) {
  SequenceDraw draw(14);
  compare_lengths(draw, &gnomon::rotary::Dynamic::max_position_embeddings);
  compare_lengths(draw, &gnomon::rotary::Longrope::original_max_position_embeddings);
}

TEST(Hf, TablesAreTheRoundedFunctionsOfTheFloat32Angle) {
  SequenceDraw draw(12);
  std::vector<std::int64_t> positions{0, 1, -1, 4095, 131071, 1048575, 16777217, 134217729, gnomon::max_position, -gnomon::max_position};
  while (positions.size() < 60) positions.push_back(static_cast<std::int64_t>(scaled(draw, 1, 0x1p33)));
  const auto frequencies =
      gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 500000, .head_dim = 128, .rotary_dim = 128}, gnomon::Numerics::hf);
  const auto table = gnomon::rotary_table(frequencies, gnomon::Ids{positions});
  for (std::size_t p = 0; p < positions.size(); p++) {
    for (std::size_t i = 0; i < 64; i++) {
      const float angle = static_cast<float>(positions[p]) * static_cast<float>(frequencies.inv_freq[i]);
      const Real exact(static_cast<double>(angle));
      ASSERT_EQ(table_cos(table, p, i), static_cast<double>(cos(exact).to_float())) << positions[p] << " " << i;
      ASSERT_EQ(table_sin(table, p, i), static_cast<double>(sin(exact).to_float())) << positions[p] << " " << i;
    }
  }
}

TEST(Hf, NarrowTablesRoundTheFloat32Entries) {
  const auto frequencies =
      gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 64, .rotary_dim = 64}, gnomon::Numerics::hf);
  const gnomon::Range positions{0, 40000, 13};
  const auto wide = gnomon::rotary_table(frequencies, positions, gnomon::DType::f32),
             narrow = gnomon::rotary_table(frequencies, positions, gnomon::DType::bf16);
  for (std::size_t p = 0; p < wide.positions; p++) {
    for (std::size_t i = 0; i < wide.pairs; i++) {
      ASSERT_EQ(table_cos(narrow, p, i), decode_bf16(nearest_bf16(static_cast<float>(table_cos(wide, p, i)))));
      ASSERT_EQ(table_sin(narrow, p, i), decode_bf16(nearest_bf16(static_cast<float>(table_sin(wide, p, i)))));
    }
  }
}

TEST(Hf, IsRefusedForRulesTransformersLacks) {
  SequenceDraw draw(13);
  int refused = 0;
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    for (int round = 0; round < 20; round++) {
      const auto spec = draw_spec<Rule>(draw);
      if (std::get<Rule>(spec.rule).in_transformers()) continue;
      refused++;
      EXPECT_EQ(refusal_fault([&] { gnomon::frequencies(spec, gnomon::Numerics::hf); }, gnomon::ErrorCode::unsupported,
                              {"hf", Rule::name.data()}),
                "");
    }
  });
  EXPECT_GT(refused, 20) << "ntk and the ramp over turns";
}

}  // namespace
