// SPDX-License-Identifier: Apache-2.0
// Specs that cannot be used, as values and as JSON: refused, with the field named.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gnomon/frequencies.hpp"
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

}  // namespace
