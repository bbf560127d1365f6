// SPDX-License-Identifier: Apache-2.0
// Positions that do not fit what they are given to: lists of several axes, bounds of packed documents, magnitudes out of range.
#include <gtest/gtest.h>

#include <numeric>

#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "support/elements.hpp"

namespace {

using namespace testing_support;
using gnomon::DType, gnomon::ErrorCode;

gnomon::RotarySpec spec_of(gnomon::RotaryRule rule, std::vector<int> sections = {}) {
  return {.rule = std::move(rule), .theta = 10000, .head_dim = 16, .rotary_dim = 16, .sections = std::move(sections)};
}

/// Rotates `tokens` rows of a head of 16.
void rotate(const gnomon::Frequencies& frequencies, const gnomon::Positions& positions, std::int64_t tokens) {
  std::vector<float> x(static_cast<std::size_t>(16 * tokens), 1.0F);
  gnomon::rotate(gnomon::TensorView{x.data(), DType::f32, {1, 1, tokens, 16}, {16 * tokens, 16 * tokens, 16, 1}}, frequencies, positions);
}

std::vector<std::int64_t> ids(std::size_t number) {
  std::vector<std::int64_t> result(number);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

TEST(BadPositions, NoListForEachAxis) {
  const auto frequencies = gnomon::frequencies(spec_of(gnomon::rotary::Default{}, {4, 2, 2}));
  for (const std::size_t number : {1U, 4U, 5U, 8U}) {
    const auto given = ids(number);
    const std::string got = "got " + std::to_string(number);
    EXPECT_EQ(refusal_fault([&] { gnomon::rotary_table(frequencies, gnomon::Ids{given}); }, ErrorCode::invalid_argument,
                            {"positions", "3 axes", got.c_str()}),
              "");
    EXPECT_EQ(refusal_fault([&] { rotate(frequencies, gnomon::Ids{given}, 4); }, ErrorCode::invalid_argument,
                            {"positions", "expected 12", "axis", got.c_str()}),
              "")
        << "4 would be the positions of text, which one list cannot say for three axes";
  }
  const auto twelve = ids(12);
  EXPECT_NO_THROW(rotate(frequencies, gnomon::Ids{twelve}, 4));
  EXPECT_NO_THROW(rotate(frequencies, gnomon::Range{0, 4}, 4));
  EXPECT_NE(refusal_fault([&] { rotate(frequencies, gnomon::Ids{twelve}, 4); }, ErrorCode::invalid_argument, {}), "") << "not refused";
}

TEST(BadPositions, BoundsOfPackedDocuments) {
  const auto frequencies = gnomon::frequencies(spec_of(gnomon::rotary::Default{}));
  const gnomon::AbsoluteSpec rows{.rule = gnomon::absolute::Sinusoidal{}, .width = 16};
  const auto refused = [&](const std::vector<std::int32_t>& bounds, std::initializer_list<const char*> words) {
    const gnomon::Packed packed{bounds};
    std::string faults = refusal_fault([&] { gnomon::validate(packed); }, ErrorCode::invalid_argument, words);
    faults += refusal_fault([&] { gnomon::count(packed); }, ErrorCode::invalid_argument, words);
    faults += refusal_fault([&] { gnomon::rotary_table(frequencies, packed); }, ErrorCode::invalid_argument, words);
    faults += refusal_fault([&] { gnomon::embedding_table(rows, packed); }, ErrorCode::invalid_argument, words);
    return faults + refusal_fault([&] { rotate(frequencies, packed, 4); }, ErrorCode::invalid_argument, words);
  };
  EXPECT_EQ(refused({}, {"cu_seqlens", "begins with 0", "empty"}), "");
  EXPECT_EQ(refused({1, 4}, {"cu_seqlens", "begins with 0", "got 1"}), "");
  EXPECT_EQ(refused({-4, 0}, {"cu_seqlens", "begins with 0", "got -4"}), "");
  EXPECT_EQ(refused({0, 3, 2, 4}, {"cu_seqlens[2]", "at least 3", "got 2"}), "") << "lengths instead of bounds look like this";
  EXPECT_EQ(refused({0, -1}, {"cu_seqlens[1]", "at least 0", "got -1"}), "");
  const std::vector<std::int32_t> empty_documents{0, 0, 4, 4}, none{0}, another_row{0, 2, 5};
  EXPECT_NO_THROW(rotate(frequencies, gnomon::Packed{empty_documents}, 4));
  EXPECT_EQ(gnomon::rotary_table(frequencies, gnomon::Packed{none}).positions, 0U);
  EXPECT_EQ(refusal_fault([&] { rotate(frequencies, gnomon::Packed{another_row}, 4); }, ErrorCode::invalid_argument,
                          {"positions", "expected 4", "got 5"}),
            "");
}

TEST(BadPositions, WhereAMagnitudeOfXposLeavesFloat32) {
  // zeta of the fastest pair is 2/7: |ln zeta| / 512 a position, and float32 ends at about e^87.
  const auto frequencies = gnomon::frequencies(spec_of(gnomon::rotary::Xpos{.centre = 1000}));
  for (const std::int64_t position : {1000, 36500, -34500}) EXPECT_NO_THROW(rotate(frequencies, gnomon::Range{position, position + 1}, 1));
  for (const std::int64_t position : {std::int64_t{36600}, std::int64_t{-34600}, gnomon::max_position, -gnomon::max_position}) {
    const std::string at = std::to_string(position);
    EXPECT_EQ(refusal_fault([&] { rotate(frequencies, gnomon::Range{position, position + 1}, 1); }, ErrorCode::out_of_range,
                            {"positions", "xpos", "float32", at.c_str()}),
              "");
  }
  EXPECT_EQ(refusal_fault([&] { gnomon::rotary_table(frequencies, gnomon::Range{0, 1}); }, ErrorCode::unsupported, {"xpos", "table"}), "");
}

TEST(BadPositions, Lengths) {
  const auto spec = spec_of(gnomon::rotary::Dynamic{.factor = 2, .max_position_embeddings = 2048});
  for (const auto numerics : {gnomon::Numerics::exact, gnomon::Numerics::hf}) {
    for (const std::int64_t length : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
      const std::string got = "got " + std::to_string(length);
      EXPECT_EQ(refusal_fault([&] { gnomon::frequencies(spec, numerics, length); }, ErrorCode::invalid_argument,
                              {"length", "at least 1", got.c_str()}),
                "");
    }
    EXPECT_NO_THROW(gnomon::frequencies(spec, numerics, INT64_MAX));
  }
}

}  // namespace
