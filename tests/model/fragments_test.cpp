// SPDX-License-Identifier: Apache-2.0
// The configurations of T06, T07, T19 and T21 as a model's file states them: what is read is the spec whose numbers
// tests/encodings/cases_test.cpp checks.
#include <gtest/gtest.h>

#include "gnomon/frequencies.hpp"
#include "model/support.hpp"

namespace {

using gnomon::test::json;
using gnomon::test::llama;

gnomon::RotarySpec spec_of(gnomon::RotaryRule rule, double theta, int width) {
  return {.rule = rule, .theta = theta, .head_dim = width, .rotary_dim = width};
}

TEST(T06, AndT07AsAConfig) {
  const auto fragment = [](int head_dim, double factor) {
    return json{{"head_dim", head_dim},
                {"rope_theta", 500000.0},
                {"max_position_embeddings", 131072},
                {"rope_scaling",
                 {{"rope_type", "llama3"},
                  {"factor", factor},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 8192}}}};
  };
  for (const auto& [width, factor] : {std::pair(64, 32.0), std::pair(128, 8.0)}) {
    const auto read = gnomon::rotary_of(llama(fragment(width, factor)));
    EXPECT_EQ(read, spec_of(
                        gnomon::rotary::Llama3{
                            .factor = factor, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192},
                        500000, width));
    EXPECT_NE(read, spec_of(gnomon::rotary::Default{}, 500000, width)) << "seen: unscaled values";
  }
}

TEST(T19, AsAConfig) {
  const auto read = gnomon::rotary_of(llama({{"head_dim", 128},
                                             {"rope_theta", 10000.0},
                                             {"max_position_embeddings", 2048},
                                             {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}));
  EXPECT_EQ(read, spec_of(gnomon::rotary::Dynamic{.factor = 2, .max_position_embeddings = 2048}, 10000, 128));
  EXPECT_NE(read, spec_of(gnomon::rotary::Ntk{.factor = 2}, 10000, 128)) << "seen: a static base";
}

TEST(T21, AsAConfigInBothSpellings) {
  for (const char* type : {"longrope", "su"}) {
    const auto read =
        gnomon::rotary_of(llama({{"head_dim", 8},
                                 {"rope_theta", 10000.0},
                                 {"max_position_embeddings", 131072},
                                 {"original_max_position_embeddings", 4096},
                                 {"rope_scaling", {{"type", type}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 2, 4, 8}}}}}));
    EXPECT_EQ(read,
              spec_of(
                  gnomon::rotary::Longrope{
                      .short_factor = {1, 1, 1, 1}, .long_factor = {1, 2, 4, 8}, .original_max_position_embeddings = 4096, .factor = 32},
                  10000, 8))
        << type;
  }
}

}  // namespace
