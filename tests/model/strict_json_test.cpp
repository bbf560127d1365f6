// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "gnomon/error.hpp"
#include "spec/strict_json.hpp"

namespace gnomon {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_strict(text, "the text");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::malformed);
    return error.what();
  }
  return "";
}

TEST(StrictJson, ReadsWhatIsJson) {
  EXPECT_EQ(parse_strict(R"( {"a": [1, -2, 2.5, "é", null, true], "b": {"a": 1}} )", "text").dump(),
            R"({"a":[1,-2,2.5,"é",null,true],"b":{"a":1}})");
  EXPECT_EQ(parse_strict("[{\"a\":1},{\"a\":2}]", "text").size(), 2U);
  EXPECT_EQ(parse_strict("7", "text"), 7);
}

TEST(StrictJson, NamesTheDuplicateKey) {
  EXPECT_EQ(refusal(R"({"a": 1, "a": 1})"), "the text: duplicate key \"a\"");
  EXPECT_EQ(refusal(R"({"x": [{"b": {"c": 1, "c": 2}}]})"), "the text: duplicate key \"x.b.c\"");
  EXPECT_EQ(refusal(R"({"rope_scaling": {"factor": 1}, "rope_scaling": null})"), "the text: duplicate key \"rope_scaling\"");
  EXPECT_EQ(refusal(R"({"a": 1, "\u0061": 1})"), "the text: duplicate key \"a\"");
}

TEST(StrictJson, RefusesWhatIsNot) {
  for (const std::string_view text : {"", " ", "{", "[1,]", "{\"a\":1,}", "{'a':1}", "[NaN]", "[Infinity]", "[1e999]", "{} {}", "[1] x",
                                      "// c\n1", "[01]", "\"\xff\"", "\xff", "[\"\xc3\x28\"]", "[\"\\ud800\"]", "{\"a\"}", "nul"}) {
    const std::string message = refusal(text);
    EXPECT_TRUE(message.starts_with("the text: not valid JSON: ")) << text << " → " << message;
    for (const char c : message) EXPECT_LT(static_cast<unsigned char>(c), 0x80) << "messages must be valid UTF-8";
  }
}

TEST(StrictJson, BoundsTheDepth) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_strict(nested(json_depth_limit), "text"));
  EXPECT_NE(refusal(nested(json_depth_limit + 1)).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(10000000, '[')).find("nested deeper"), std::string::npos);
}

}  // namespace
}  // namespace gnomon
