// SPDX-License-Identifier: Apache-2.0
// Specs that cannot be used, as values and as JSON: refused, with the field named.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gnomon/frequencies.hpp"
#include "gnomon/table.hpp"
#include "support/elements.hpp"

namespace {

using namespace testing_support;
using gnomon::ErrorCode;
using gnomon::RotarySpec;

const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();

RotarySpec good(gnomon::RotaryRule rule = gnomon::rotary::Default{}) {
  return {.rule = rule, .theta = 10000, .head_dim = 64, .rotary_dim = 64};
}

std::string refused(const RotarySpec& spec, std::initializer_list<const char*> words) {
  const std::string fault = refusal_fault([&] { gnomon::validate(spec); }, ErrorCode::invalid_argument, words);
  if (!fault.empty()) return fault;
  return refusal_fault([&] { gnomon::frequencies(spec); }, ErrorCode::invalid_argument, words);
}

TEST(BadSpec, Theta) {
  for (const double theta : {0.0, -0.0, -10000.0, nan, infinity, -infinity}) {
    auto spec = good();
    spec.theta = theta;
    EXPECT_EQ(refused(spec, {"theta"}), "") << theta;
  }
}

TEST(BadSpec, Widths) {
  const auto width = [](int head_dim, int rotary_dim, int offset = 0) {
    auto spec = good();
    spec.head_dim = head_dim, spec.rotary_dim = rotary_dim, spec.rotary_offset = offset;
    return spec;
  };
  constexpr int most = std::numeric_limits<int>::max(), least = std::numeric_limits<int>::min();
  for (const int head_dim : {0, -1, 65537, most, least}) EXPECT_EQ(refused(width(head_dim, 2), {"head_dim"}), "") << head_dim;
  for (const int rotary_dim : {0, -2, 1, 3, 63, most, least, least + 2})
    EXPECT_EQ(refused(width(64, rotary_dim), {"rotary_dim"}), "") << rotary_dim;
  for (const int rotary_dim : {66, 128, most - 1})
    EXPECT_EQ(refused(width(64, rotary_dim), {"rotary_dim", "head_dim", "64"}), "") << rotary_dim;
  for (const int offset : {-1, 33, most, least}) EXPECT_EQ(refused(width(64, 32, offset), {"rotary_offset"}), "") << offset;
  EXPECT_NO_THROW(gnomon::validate(width(64, 32, 32)));
  EXPECT_NO_THROW(gnomon::validate(width(65, 64, 1)));
  EXPECT_NO_THROW(gnomon::validate(width(65536, 65536)));
}

TEST(BadSpec, Magnitude) {
  for (const double magnitude : {-1.0, nan, infinity}) {
    auto spec = good();
    spec.attention_factor = magnitude;
    EXPECT_EQ(refused(spec, {"attention_factor"}), "") << magnitude;
  }
}

TEST(BadSpec, Factors) {
  using namespace gnomon::rotary;
  for (const double factor : {0.0, 0.999, -2.0, nan, infinity}) {
    EXPECT_EQ(refused(good(Linear{.factor = factor}), {"factor"}), "") << factor;
    EXPECT_EQ(refused(good(Ntk{.factor = factor}), {"factor"}), "") << factor;
    EXPECT_EQ(refused(good(Yarn{.factor = factor, .original_max_position_embeddings = 4096}), {"factor"}), "") << factor;
    EXPECT_EQ(refused(good(Llama3{.factor = factor, .original_max_position_embeddings = 8192}), {"factor"}), "") << factor;
  }
}

TEST(BadSpec, Yarn) {
  using gnomon::rotary::Yarn;
  const Yarn fine{.factor = 4, .original_max_position_embeddings = 4096};
  EXPECT_NO_THROW(gnomon::validate(good(fine)));
  const auto with = [&](auto change) {
    Yarn rule = fine;
    change(rule);
    return good(rule);
  };
  for (const std::int64_t length : {std::int64_t{0}, std::int64_t{-4096}}) {
    EXPECT_EQ(refused(with([&](Yarn& rule) { rule.original_max_position_embeddings = length; }), {"original_max_position_embeddings"}), "");
  }
  for (const double bad : {0.0, -1.0, nan, infinity}) {
    EXPECT_EQ(refused(with([&](Yarn& rule) { rule.beta_fast = bad; }), {"beta_fast"}), "") << bad;
    EXPECT_EQ(refused(with([&](Yarn& rule) { rule.beta_slow = bad; }), {"beta_slow"}), "") << bad;
  }
  for (const double bad : {-1.0, nan, infinity}) {
    EXPECT_EQ(refused(with([&](Yarn& rule) { rule.mscale = bad; }), {"mscale"}), "") << bad;
    EXPECT_EQ(refused(with([&](Yarn& rule) { rule.mscale_all_dim = bad; }), {"mscale_all_dim"}), "") << bad;
  }
  EXPECT_EQ(refused(with([&](Yarn& rule) { rule.beta_fast = 1, rule.beta_slow = 32; }), {"beta_fast", "beta_slow"}), "");
  auto spec = good(fine);
  for (const double theta : {1.0, 0.5}) {  // its bounds divide by ln theta
    spec.theta = theta;
    EXPECT_EQ(refused(spec, {"theta"}), "") << theta;
  }
}

TEST(BadSpec, Llama3) {
  using gnomon::rotary::Llama3;
  const Llama3 fine{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192};
  EXPECT_NO_THROW(gnomon::validate(good(fine)));
  auto rule = fine;
  rule.low_freq_factor = 5;
  EXPECT_EQ(refused(good(rule), {"high_freq_factor", "low_freq_factor"}), "");
  rule = fine, rule.high_freq_factor = 1;  // equal bounds are legal: no pair is blended
  EXPECT_NO_THROW(gnomon::validate(good(rule)));
  for (const double bad : {0.0, -1.0, nan, infinity}) {
    rule = fine, rule.low_freq_factor = bad;
    EXPECT_EQ(refused(good(rule), {"low_freq_factor"}), "") << bad;
    rule = fine, rule.high_freq_factor = bad;
    EXPECT_EQ(refused(good(rule), {"high_freq_factor"}), "") << bad;
  }
  rule = fine, rule.original_max_position_embeddings = 0;
  EXPECT_EQ(refused(good(rule), {"original_max_position_embeddings"}), "");
}

TEST(BadSpec, NtkNeedsFourChannels) {
  auto spec = good(gnomon::rotary::Ntk{.factor = 2});
  spec.rotary_dim = 2;
  EXPECT_EQ(refused(spec, {"rotary_dim", "ntk"}), "");
}

TEST(BadSpec, Dynamic) {
  using gnomon::rotary::Dynamic;
  EXPECT_NO_THROW(gnomon::validate(good(Dynamic{.factor = 2, .max_position_embeddings = 2048})));
  for (const std::int64_t length : {0, -2048}) {
    EXPECT_EQ(refused(good(Dynamic{.factor = 2, .max_position_embeddings = length}), {"max_position_embeddings", "at least 1"}), "");
  }
  for (const double factor : {0.0, 0.5, nan, infinity}) {
    EXPECT_EQ(refused(good(Dynamic{.factor = factor, .max_position_embeddings = 2048}), {"factor", "at least 1"}), "") << factor;
  }
  auto spec = good(Dynamic{.factor = 2, .max_position_embeddings = 2048});
  spec.rotary_dim = 2;
  EXPECT_EQ(refused(spec, {"rotary_dim", "dynamic", "at least 4", "got 2"}), "");
}

TEST(BadSpec, Longrope) {
  using gnomon::rotary::Longrope;
  const std::vector<double> ones(32, 1.0);
  const Longrope fine{.short_factor = ones, .long_factor = ones, .original_max_position_embeddings = 4096, .factor = 32};
  EXPECT_NO_THROW(gnomon::validate(good(fine)));
  const auto with = [&](auto change) {
    Longrope rule = fine;
    change(rule);
    return good(rule);
  };
  EXPECT_NO_THROW(gnomon::validate(with([](Longrope& rule) { rule.long_factor[0] = 0.9978; }))) << "shipped lists go below 1";
  for (const std::size_t length : {std::size_t{0}, std::size_t{31}, std::size_t{33}, std::size_t{64}}) {
    const std::string got = "got " + std::to_string(length);
    EXPECT_EQ(refused(with([&](Longrope& rule) { rule.short_factor.resize(length, 1); }), {"short_factor", "32 pairs", got.c_str()}), "");
    EXPECT_EQ(refused(with([&](Longrope& rule) { rule.long_factor.resize(length, 1); }), {"long_factor", "32 pairs", got.c_str()}), "");
  }
  for (const double bad : {0.0, -0.0, -1.0, nan, infinity, -infinity}) {
    EXPECT_EQ(refused(with([&](Longrope& rule) { rule.short_factor[5] = bad; }), {"short_factor[5]", "positive"}), "") << bad;
    EXPECT_EQ(refused(with([&](Longrope& rule) { rule.long_factor[31] = bad; }), {"long_factor[31]", "positive"}), "") << bad;
    EXPECT_EQ(refused(with([&](Longrope& rule) { rule.factor = bad; }), {"factor", "positive"}), "") << bad;
  }
  EXPECT_EQ(refused(with([](Longrope& rule) { rule.original_max_position_embeddings = 0; }), {"original_max_position_embeddings"}), "");
  EXPECT_EQ(
      refused(with([](Longrope& rule) { rule.original_max_position_embeddings = 1; }), {"original_max_position_embeddings", "at least 2"}),
      "")
      << "the magnitude divides by its logarithm";
  EXPECT_NO_THROW(gnomon::validate(with([](Longrope& rule) { rule.original_max_position_embeddings = 1, rule.factor = 1; })));
}

TEST(BadSpec, Proportional) {
  using gnomon::rotary::Proportional;
  EXPECT_NO_THROW(gnomon::validate(good(Proportional{.partial_rotary_factor = 1.0 / 32})));
  for (const double bad : {0.0, -0.25, 1.0000001, 2.0, nan, infinity}) {
    EXPECT_EQ(refused(good(Proportional{.partial_rotary_factor = bad}), {"partial_rotary_factor", "above 0 and at most 1"}), "") << bad;
  }
  EXPECT_EQ(refused(good(Proportional{.partial_rotary_factor = 0.03}), {"partial_rotary_factor", "at least one turning pair", "32"}), "");
  EXPECT_EQ(refused(good(Proportional{.partial_rotary_factor = 0.5, .factor = 0.5}), {"factor", "at least 1", "0.5"}), "");
}

TEST(BadSpec, Xpos) {
  using gnomon::rotary::Xpos;
  EXPECT_NO_THROW(gnomon::validate(good(Xpos{.centre = -7})));
  for (const double bad : {0.0, -512.0, nan, infinity})
    EXPECT_EQ(refused(good(Xpos{.scale_base = bad}), {"scale_base", "positive"}), "") << bad;
}

TEST(BadSpec, Custom) {
  using gnomon::rotary::Custom;
  const auto custom = [](std::vector<double> list) {
    auto spec = good(Custom{std::move(list)});
    spec.theta = 0, spec.rotary_dim = 6;
    return spec;
  };
  EXPECT_NO_THROW(gnomon::validate(custom({1, 0, 0.5})));
  EXPECT_EQ(refused(custom({1, 0.5}), {"inv_freq", "3 pairs", "got 2"}), "");
  EXPECT_EQ(refused(custom({}), {"inv_freq", "3 pairs", "got 0"}), "");
  EXPECT_EQ(refused(custom({1, 0.5, 0.25, 0.125}), {"inv_freq", "3 pairs", "got 4"}), "");
  for (const double bad : {-1e-300, -1.0, nan, infinity})
    EXPECT_EQ(refused(custom({1, 0.5, bad}), {"inv_freq[2]", "at least 0"}), "") << bad;
  EXPECT_EQ(refusal_fault([&] { gnomon::frequencies(custom({1, 0x1p53, 1})); }, ErrorCode::invalid_argument, {"inv_freq[1]", "2^53"}), "");
  auto spec = custom({1, 0, 0.5});
  spec.theta = 10000;
  EXPECT_EQ(refused(spec, {"theta", "none", "custom", "10000"}), "");
}

TEST(BadSpec, Axes) {
  constexpr int most = std::numeric_limits<int>::max(), least = std::numeric_limits<int>::min();
  const auto axes = [](int number, std::vector<int> sections = {}, gnomon::SectionOrder order = gnomon::SectionOrder::chunked) {
    auto spec = good();
    spec.axes = number, spec.sections = std::move(sections), spec.section_order = order;
    return spec;
  };
  for (const int number : {0, -1, 9, most, least}) {
    const std::string got = "got " + std::to_string(number);
    EXPECT_EQ(refused(axes(number), {"axes", "1 to 8", got.c_str()}), "");
  }
  EXPECT_EQ(refused(axes(3), {"axes", "divisor of the 32 pairs", "got 3"}), "");
  EXPECT_NO_THROW(gnomon::validate(axes(8)));
  EXPECT_NO_THROW(gnomon::validate(axes(1, {10, 11, 11})));
  EXPECT_NO_THROW(gnomon::validate(axes(3, {10, 11, 11})));
  for (const int number : {1, 3}) {
    EXPECT_EQ(refused(axes(number, {16, 24, 24}), {"sections", "32 pairs", "[16, 24, 24]"}), "") << "the sections of a wider head";
    EXPECT_EQ(refused(axes(number, {10, 11, 10}), {"sections", "32 pairs", "[10, 11, 10]"}), "");
    EXPECT_EQ(refused(axes(number, {20, 12, 0}), {"sections", "at least one pair", "[20, 12, 0]"}), "");
    EXPECT_EQ(refused(axes(number, {40, -4, -4}), {"sections", "at least one pair", "[40, -4, -4]"}), "");
    EXPECT_EQ(refused(axes(number, {most, most, 34}), {"sections", "32 pairs"}), "") << "a sum beyond int";
  }
  EXPECT_EQ(refused(axes(1, {32}), {"sections", "2 to 8 axes", "[32]"}), "");
  EXPECT_EQ(refused(axes(1, {4, 4, 4, 4, 4, 4, 4, 2, 2}), {"sections", "2 to 8 axes"}), "");
  EXPECT_EQ(refused(axes(2, {10, 11, 11}), {"sections", "2 axes", "[10, 11, 11]"}), "");
  EXPECT_EQ(refused(axes(3, {10, 11, 11}, gnomon::SectionOrder::interleaved), {"section_order", "chunked", "interleaved"}), "");
  EXPECT_EQ(refused(axes(3, {10, 11, 11}, gnomon::SectionOrder::time_last), {"section_order", "chunked", "time_last"}), "");
  EXPECT_EQ(refused(axes(1, {}, gnomon::SectionOrder::time_last), {"sections", "pairs of each axis", "none"}), "");
  EXPECT_EQ(refused(axes(1, {10, 10, 12}, gnomon::SectionOrder::time_last), {"sections", "as many pairs", "[10, 10, 12]"}), "");
  auto narrow = axes(3, {30, 1, 1});
  narrow.rule = gnomon::rotary::Ntk{.factor = 2};
  EXPECT_EQ(refused(narrow, {"rotary_dim", "ntk", "got 2"}), "") << "an axis of one pair";
  // A list belongs to all pairs of an axis.
  auto listed = axes(2);
  listed.rule = gnomon::rotary::Longrope{.short_factor = std::vector<double>(32, 1.0),
                                         .long_factor = std::vector<double>(32, 1.0),
                                         .original_max_position_embeddings = 4096,
                                         .factor = 1};
  EXPECT_EQ(refused(listed, {"short_factor", "16 pairs", "got 32"}), "");
}

using gnomon::AbsoluteSpec;
using gnomon::absolute::Learned, gnomon::absolute::Sinusoidal;

std::string refused(const AbsoluteSpec& spec, std::initializer_list<const char*> words) {
  const std::string fault = refusal_fault([&] { gnomon::validate(spec); }, ErrorCode::invalid_argument, words);
  if (!fault.empty() || std::holds_alternative<Learned>(spec.rule)) return fault;
  return refusal_fault([&] { gnomon::embedding_table(spec, gnomon::Range{0, 1}); }, ErrorCode::invalid_argument, words);
}

TEST(BadSpec, Learned) {
  const auto learned = [](std::int64_t rows, std::int64_t offset) { return AbsoluteSpec{.rule = Learned{rows, offset}, .width = 768}; };
  EXPECT_NO_THROW(gnomon::validate(learned(514, 2)));
  EXPECT_EQ(refused(learned(2, 2), {"offset", "less than rows (2)", "got 2"}), "");
  EXPECT_EQ(refused(learned(514, 515), {"offset", "less than rows (514)", "got 515"}), "");
  EXPECT_EQ(refused(learned(514, -1), {"offset", "at least 0", "-1"}), "");
  for (const std::int64_t rows : {0, -512}) EXPECT_EQ(refused(learned(rows, 0), {"rows", "at least 1"}), "") << rows;
  EXPECT_EQ(
      refusal_fault([&] { gnomon::embedding_table(learned(514, 2), gnomon::Range{0, 1}); }, ErrorCode::unsupported, {"rule", "learned"}),
      "");
}

TEST(BadSpec, Sinusoidal) {
  using gnomon::absolute::OddWidth, gnomon::absolute::SinusoidDenominator, gnomon::absolute::SinusoidOrder;
  const auto rows = [](int width, const Sinusoidal& rule = {}) { return AbsoluteSpec{.rule = rule, .width = width}; };
  EXPECT_NO_THROW(gnomon::validate(rows(2)));
  for (const int width : {0, -2, 65537}) EXPECT_EQ(refused(rows(width), {"width", "1 to 65536"}), "") << width;
  for (const int width : {1, 7, 511}) {
    const std::string got = "got " + std::to_string(width);
    EXPECT_EQ(refused(rows(width), {"width", "even", "odd_width", got.c_str()}), "");
    EXPECT_NO_THROW(gnomon::validate(rows(width, {.odd_width = OddWidth::extra_sine})));
    EXPECT_NO_THROW(gnomon::validate(rows(width, {.odd_width = OddWidth::zero_pad})));
  }
  for (const int width : {2, 3}) {
    const Sinusoidal rule{.denominator = SinusoidDenominator::half_minus_one, .odd_width = OddWidth::zero_pad};
    const std::string got = "got " + std::to_string(width);
    EXPECT_EQ(refused(rows(width, rule), {"width", "half_minus_one", "at least 4", got.c_str()}), "") << "a division by zero";
  }
  for (const std::int64_t axes : {3, 5, 9, 16}) {
    const std::string got = "got " + std::to_string(axes) + " of width 16";
    EXPECT_EQ(refused(rows(16, {.axes = axes}), {"axes", "1 to 8", got.c_str()}), "");
  }
  for (const std::int64_t axes : {0, -2}) EXPECT_EQ(refused(rows(16, {.axes = axes}), {"axes", "at least 1"}), "");
  EXPECT_EQ(refused(rows(6, {.axes = 2}), {"width", "even", "each axis", "got 3"}), "");
  for (const double bad : {0.0, -1.0, nan, infinity}) {
    EXPECT_EQ(refused(rows(16, {.theta = bad}), {"theta", "positive"}), "") << bad;
    EXPECT_EQ(refused(rows(16, {.scale = bad}), {"scale", "positive"}), "") << bad;
  }
  EXPECT_EQ(refused(rows(16, {.offset = -1}), {"offset", "at least 0", "-1"}), "");
}

TEST(BadSpec, HfHasOneFormOfSinusoids) {
  using gnomon::absolute::SinusoidOrder;
  for (const Sinusoidal& rule :
       {Sinusoidal{.order = SinusoidOrder::interleaved}, Sinusoidal{.order = SinusoidOrder::cos_sin},
        Sinusoidal{.order = SinusoidOrder::sin_cos, .scale = 2}, Sinusoidal{.order = SinusoidOrder::sin_cos, .axes = 2}}) {
    EXPECT_EQ(
        refusal_fault(
            [&] { gnomon::embedding_table({.rule = rule, .width = 16}, gnomon::Range{0, 1}, gnomon::DType::f32, gnomon::Numerics::hf); },
            ErrorCode::unsupported, {"numerics", "hf", "sin_cos"}),
        "");
  }
}

TEST(BadSpec, HfHasNoXposAndNoCustom) {
  auto spec = good(gnomon::rotary::Xpos{});
  EXPECT_EQ(refusal_fault([&] { gnomon::frequencies(spec, gnomon::Numerics::hf); }, ErrorCode::unsupported, {"hf", "xpos"}), "");
  spec.rule = gnomon::rotary::Custom{std::vector<double>(32, 0.5)};
  spec.theta = 0;
  EXPECT_EQ(refusal_fault([&] { gnomon::frequencies(spec, gnomon::Numerics::hf); }, ErrorCode::unsupported, {"hf", "custom"}), "");
}

TEST(BadSpec, HfHasNoNtk) {
  const auto spec = good(gnomon::rotary::Ntk{.factor = 2});
  EXPECT_EQ(refusal_fault([&] { gnomon::frequencies(spec, gnomon::Numerics::hf); }, ErrorCode::unsupported, {"hf", "ntk"}), "");
}

TEST(BadSpec, NumericsAndLength) {
  EXPECT_EQ(gnomon::numerics_of("exact"), gnomon::Numerics::exact);
  EXPECT_EQ(gnomon::numerics_of("hf"), gnomon::Numerics::hf);
  EXPECT_EQ(refusal_fault([] { gnomon::numerics_of("fast"); }, ErrorCode::invalid_argument, {"exact", "hf", "fast"}), "");
  EXPECT_EQ(refusal_fault([] { gnomon::frequencies(good(), gnomon::Numerics::exact, 0); }, ErrorCode::invalid_argument, {"length", "0"}),
            "");
}

// The same through JSON, where more can be wrong.

std::string refused_text(const std::string& text, std::initializer_list<const char*> words) {
  try {
    gnomon::rotary_from_json(text);
  } catch (const gnomon::Error& error) {
    const std::string message = error.what();
    if (error.code() != ErrorCode::malformed && error.code() != ErrorCode::invalid_argument) return "another code: " + message;
    for (const char* word : words) {
      if (message.find(word) == std::string::npos) return "the message does not name \"" + std::string(word) + "\": " + message;
    }
    return "";
  } catch (const std::exception& other) {
    return std::string("another exception: ") + other.what();
  }
  return "not refused";
}

TEST(BadJson, IsTakenWhenGood) {
  const auto spec = gnomon::rotary_from_json(R"({"rule":"default","theta":10000,"head_dim":64})");
  EXPECT_EQ(spec, good());
  EXPECT_EQ(gnomon::rotary_from_json(R"( {"head_dim":64, "rotary_dim":64, "rotary_offset":0, "layout":"half_split", "rule":"default",
    "theta":1e4, "attention_factor":1.0} )"),
            good());
}

TEST(BadJson, OfAnotherForm) {
  for (const char* text :
       {"", " ", "{", "[]", "null", "1", "\"default\"", "{\"rule\":\"default\",}", "{'rule':'default'}", "{\"rule\" \"default\"}",
        "{\"rule\":\"default\",\"theta\":10000,\"head_dim\":64} trailing", "\xff\xfe{}",
        "{\"rule\":\"default\",\"theta\":NaN,\"head_dim\":64}", "{\"rule\":\"default\",\"theta\":Infinity,\"head_dim\":64}",
        "{\"rule\":\"default\",\"theta\":1e999,\"head_dim\":64}"}) {
    EXPECT_EQ(refused_text(text, {}), "") << text;
  }
  EXPECT_EQ(refused_text(std::string(100000, '['), {}), "");
}

TEST(BadJson, Keys) {
  EXPECT_EQ(refused_text(R"({"theta":10000,"head_dim":64})", {"rule"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","head_dim":64})", {"theta"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000})", {"head_dim"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"linear","theta":10000,"head_dim":64})", {"factor"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":64,"factor":2})", {"factor"}), "") << "a key of another rule";
  EXPECT_EQ(refused_text(R"({"rule":"linear","theta":10000,"head_dim":64,"factor":2,"Factor":2})", {"Factor"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"linear","theta":10000,"head_dim":64,"factor":2,"factor":2})", {"factor"}), "")
      << "duplicate, even equal";
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"theta":500000,"head_dim":64})", {"theta"}), "") << "duplicate";
  EXPECT_EQ(refused_text(R"({"rule":"made_up","theta":10000,"head_dim":64})", {"made_up", "default"}), "")
      << "unknown rules are never ignored";
}

TEST(BadJson, Values) {
  EXPECT_EQ(refused_text(R"({"rule":1,"theta":10000,"head_dim":64})", {"rule"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":"10000","head_dim":64})", {"theta"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":null,"head_dim":64})", {"theta"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":0,"head_dim":64})", {"theta"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":64.5})", {"head_dim"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":63})", {"rotary_dim"}), "")
      << "rotary_dim follows head_dim and is odd";
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":1e300})", {"head_dim"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":18446744073709551680})", {"head_dim"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":64,"rotary_dim":true})", {"rotary_dim"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":64,"rotary_dim":128})", {"rotary_dim"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":64,"layout":"neox"})", {"layout", "half_split"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"default","theta":10000,"head_dim":64,"attention_factor":-1})", {"attention_factor"}), "");
  EXPECT_EQ(refused_text(R"({"rule":"yarn","theta":10000,"head_dim":64,"factor":2,"original_max_position_embeddings":4096,"truncate":0})",
                         {"truncate"}),
            "");
  EXPECT_EQ(refused_text(R"({"rule":"yarn","theta":10000,"head_dim":64,"factor":2,"original_max_position_embeddings":4096,"ramp":"paper"})",
                         {"ramp"}),
            "");
  EXPECT_EQ(refused_text(R"({"rule":"yarn","theta":10000,"head_dim":64,"factor":2,"original_max_position_embeddings":4096.5})",
                         {"original_max_position_embeddings"}),
            "");
  EXPECT_EQ(refused_text(R"({"rule":"yarn","theta":10000,"head_dim":64,"factor":0.5,"original_max_position_embeddings":4096})", {"factor"}),
            "");
}

TEST(BadJson, Lists) {
  const auto longrope = [](const std::string& brief, const std::string& extended = "[1,2]") {
    return R"({"rule":"longrope","theta":10000,"head_dim":4,"original_max_position_embeddings":4096,"factor":2,"short_factor":)" + brief +
           R"(,"long_factor":)" + extended + "}";
  };
  EXPECT_NO_THROW(gnomon::rotary_from_json(longrope("[1,1.5]")));
  for (const char* kind : {"1", "\"[1,2]\"", "true", "null", "{\"0\":1,\"1\":2}"}) {
    EXPECT_EQ(refused_text(longrope(kind), {"short_factor", "a list of numbers", "got"}), "") << kind;
    EXPECT_EQ(refused_text(longrope("[1,1]", kind), {"long_factor", "a list of numbers", "got"}), "") << kind;
  }
  for (const char* element : {"\"2\"", "null", "[2]", "{}", "true"}) {
    EXPECT_EQ(refused_text(longrope("[1," + std::string(element) + "]"), {"short_factor[1]", "a number", "got"}), "") << element;
  }
  EXPECT_EQ(refused_text(longrope("[1]"), {"short_factor", "2 pairs", "got 1"}), "");
  EXPECT_EQ(refused_text(longrope("[1,-1]"), {"short_factor[1]", "positive", "-1"}), "");
  EXPECT_EQ(refused_text(longrope("[1,1e400]"), {}), "");
  EXPECT_EQ(refused_text(longrope("[1,NaN]"), {}), "");
  EXPECT_EQ(refused_text(
                R"({"rule":"longrope","theta":10000,"head_dim":4,"original_max_position_embeddings":4096,"factor":2,"short_factor":[1,1]})",
                {"long_factor", "missing"}),
            "");
  for (const char* kind : {"[2]", "{\"factor\":2}", "\"2\"", "null", "true"}) {
    EXPECT_EQ(
        refused_text(R"({"rule":"linear","theta":10000,"head_dim":4,"factor":)" + std::string(kind) + "}", {"factor", "a number", "got"}),
        "")
        << kind;
    EXPECT_EQ(
        refused_text(R"({"rule":"dynamic","theta":10000,"head_dim":4,"factor":2,"max_position_embeddings":)" + std::string(kind) + "}",
                     {"max_position_embeddings", "a number", "got"}),
        "")
        << kind;
  }
}

TEST(BadJson, ThetaOfRulesWithAndWithoutABase) {
  const std::string custom = R"({"rule":"custom","head_dim":4,"inv_freq":[1,0.5])";
  EXPECT_NO_THROW(gnomon::rotary_from_json(custom + "}"));
  EXPECT_NO_THROW(gnomon::rotary_from_json(custom + R"(,"theta":null})"));
  for (const char* theta : {"10000", "0", "\"10000\"", "[10000]"}) {
    EXPECT_EQ(refused_text(custom + R"(,"theta":)" + theta + "}", {"theta", "null", "without a base", "got"}), "") << theta;
  }
  for (const std::string rule : {R"({"head_dim":4,"rule":"xpos")", R"({"head_dim":4,"rule":"proportional","partial_rotary_factor":0.5)",
                                 R"({"head_dim":4,"rule":"dynamic","factor":2,"max_position_embeddings":2048)"}) {
    EXPECT_EQ(refused_text(rule + "}", {"theta", "missing"}), "") << rule;
    EXPECT_EQ(refused_text(rule + R"(,"theta":null})", {"theta", "a number", "null"}), "") << rule;
  }
  EXPECT_EQ(refused_text(R"({"rule":"xpos","theta":10000,"head_dim":4,"centre":0.5})", {"centre", "an integer", "0.5"}), "");
}

TEST(BadJson, Axes) {
  const auto with = [](const std::string& keys) { return R"({"rule":"default","theta":10000,"head_dim":16,)" + keys + "}"; };
  EXPECT_NO_THROW(gnomon::rotary_from_json(with(R"("sections":[2,3,3],"section_order":"interleaved")")));
  for (const char* kind : {"[2]", "\"2\"", "null", "{}", "true"})
    EXPECT_EQ(refused_text(with(R"("axes":)" + std::string(kind)), {"axes", "a number", "got"}), "") << kind;
  EXPECT_EQ(refused_text(with(R"("axes":2.5)"), {"axes", "an integer", "2.5"}), "");
  EXPECT_EQ(refused_text(with(R"("axes":1e400)"), {}), "");
  EXPECT_EQ(refused_text(with(R"("axes":9)"), {"axes", "1 to 8", "9"}), "");
  for (const char* kind : {"8", "\"[2,3,3]\"", "null", "{\"t\":2}", "true"})
    EXPECT_EQ(refused_text(with(R"("sections":)" + std::string(kind)), {"sections", "a list of integers", "got"}), "") << kind;
  for (const char* element : {"\"3\"", "null", "[3]", "{}", "3.5"})
    EXPECT_EQ(refused_text(with(R"("sections":[2,3,)" + std::string(element) + "]"), {"sections", "got"}), "") << element;
  EXPECT_EQ(refused_text(with(R"("sections":[2,3,4])"), {"sections", "8 pairs", "[2, 3, 4]"}), "");
  EXPECT_EQ(refused_text(with(R"("sections":[2,3,3],"section_order":1)"), {"section_order", "chunked", "interleaved", "1"}), "");
  EXPECT_EQ(refused_text(with(R"("sections":[2,3,3],"section_order":"mrope")"), {"section_order", "chunked", "mrope"}), "");
  EXPECT_EQ(refused_text(with(R"("axes":2,"sections":[4,4],"section_order":"interleaved")"), {"section_order", "chunked", "interleaved"}),
            "");
  EXPECT_EQ(refused_text(with(R"("mrope_section":[2,3,3])"), {"mrope_section"}), "") << "a dialect's key";
}

std::string refused_rows(const std::string& text, std::initializer_list<const char*> words) {
  const auto read = [&] { gnomon::absolute_from_json(text); };
  const std::string fault = refusal_fault(read, ErrorCode::invalid_argument, words);
  return fault.empty() || refusal_fault(read, ErrorCode::malformed, words).empty() ? "" : fault;
}

TEST(BadJson, AbsoluteRules) {
  const std::string paper = R"({"rule":"sinusoidal","order":"interleaved","denominator":"width")";
  EXPECT_NO_THROW(gnomon::absolute_from_json(paper + R"(,"width":16})"));
  EXPECT_NO_THROW(gnomon::absolute_from_json(R"({"rule":"learned","width":768,"rows":514,"offset":2})"));
  for (const char* text : {"", "[]", "null", "{", R"({"rule":"learned"} x)", R"({"rule":"learned","width":1e400,"rows":5})"})
    EXPECT_EQ(refused_rows(text, {}), "") << text;
  EXPECT_EQ(refused_rows(R"({"width":16})", {"rule", "missing"}), "");
  EXPECT_EQ(refused_rows(R"({"rule":"alibi","width":16})", {"rule", "sinusoidal, learned", "alibi"}), "");
  EXPECT_EQ(refused_rows(paper + "}", {"width", "missing"}), "");
  EXPECT_EQ(refused_rows(R"({"rule":"sinusoidal","width":16,"denominator":"width"})", {"order", "missing"}), "") << "no default to guess";
  EXPECT_EQ(refused_rows(R"({"rule":"sinusoidal","width":16,"order":"interleaved"})", {"denominator", "missing"}), "");
  EXPECT_EQ(refused_rows(R"({"rule":"sinusoidal","width":16,"order":"sin","denominator":"width"})", {"order", "sin_cos", "sin"}), "");
  EXPECT_EQ(refused_rows(paper + R"(,"width":16,"odd_width":true})", {"odd_width", "zero_pad", "true"}), "");
  EXPECT_EQ(refused_rows(paper + R"(,"width":7})", {"width", "even", "got 7"}), "");
  EXPECT_EQ(refused_rows(paper + R"(,"width":[16]})", {"width", "a number", "[16]"}), "");
  EXPECT_EQ(refused_rows(paper + R"(,"width":16,"theta":{"base":1}})", {"theta", "a number", "got"}), "");
  EXPECT_EQ(refused_rows(paper + R"(,"width":16,"axes":3})", {"axes", "got 3 of width 16"}), "");
  EXPECT_EQ(refused_rows(paper + R"(,"width":16,"rows":512})", {"rows", "unknown key", "sinusoidal"}), "") << "a key of another rule";
  EXPECT_EQ(refused_rows(paper + R"(,"width":16,"width":16})", {"width"}), "") << "duplicate, even equal";
  EXPECT_EQ(refused_rows(R"({"rule":"learned","width":768})", {"rows", "missing"}), "");
  EXPECT_EQ(refused_rows(R"({"rule":"learned","width":768,"rows":[514]})", {"rows", "a number", "[514]"}), "");
  EXPECT_EQ(refused_rows(R"({"rule":"learned","width":768,"rows":514.5})", {"rows", "an integer", "514.5"}), "");
  EXPECT_EQ(refused_rows(R"({"rule":"learned","width":768,"rows":1e300})", {"rows", "an integer"}), "");
  EXPECT_EQ(refused_rows(R"({"rule":"learned","width":768,"rows":514,"offset":514})", {"offset", "less than rows (514)", "got 514"}), "");
}

}  // namespace
