// SPDX-License-Identifier: Apache-2.0
// Released models against an answer key made without this library (data/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "gnomon/gnomon.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

const fs::path data = fs::path(GNOMON_TEST_DATA) / "model" / "data";

const json& answer_key() {
  static const json key = json::parse(std::ifstream(data / "expected.json"));
  return key;
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& item : answer_key().items()) result.push_back(item.key());
  return result;
}

bool has_rule(const std::string& name) {
  const auto rules = list_rules();
  return std::any_of(rules.begin(), rules.end(), [&](const RuleInfo& rule) { return rule.name == name; });
}

std::vector<int> layers_of(const json& expected, int count) {
  if (expected.is_array()) return expected.get<std::vector<int>>();
  std::vector<int> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; i++) all[static_cast<std::size_t>(i)] = i;
  return all;
}

void expect_rotary(const json& expected, const RotarySpec& spec) {
  const json got = json::parse(to_json(spec));
  for (const auto& [field, value] : expected.items()) {
    if (field.starts_with("inv_freq_")) continue;
    if (value.is_number_float())
      EXPECT_NEAR(got.at(field).get<double>(), value.get<double>(), 4e-16 * value.get<double>()) << field;
    else
      EXPECT_EQ(got.at(field), value) << field;
  }
  const auto compare = [&](const char* field, std::optional<std::int64_t> length) {
    const auto inv = frequencies(spec, Numerics::exact, length).inv_freq;
    const json pairs = expected.value(field, json::object());
    for (const auto& [pair, value] : pairs.items()) {
      EXPECT_NEAR(inv.at(std::stoul(pair)), value.get<double>(), 3e-16 * value.get<double>()) << "pair " << pair;
    }
  };
  compare("inv_freq_check", std::nullopt);
  if (const auto* longrope = std::get_if<rotary::Longrope>(&spec.rule)) {
    compare("inv_freq_check_long", longrope->original_max_position_embeddings + 1);
  }
}

class Configs : public testing::TestWithParam<std::string> {};

TEST_P(Configs, AsTheAnswerKeySays) {
  const json& expected = answer_key().at(GetParam());
  const Model model = read_model(data / "configs" / GetParam());
  EXPECT_EQ(model.layers, expected.at("layers"));
  for (const auto& code : expected.at("must_doubt"))
    EXPECT_NE(find_doubt(model, code.get<std::string>()), nullptr) << code << " is missing from: " << codes(model);
  const auto length = [](const json& value) { return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>()); };
  EXPECT_EQ(model.declared, length(expected["length"]["declared"]));
  EXPECT_EQ(model.derived, length(expected["length"]["derived"]));
  EXPECT_EQ(model.original, length(expected["length"]["original"]));

  ASSERT_EQ(model.groups.size(), expected["groups"].size());
  bool all_rules = true;
  for (std::size_t i = 0; i < model.groups.size(); i++) {
    const auto& group = model.groups[i];
    const json& want = expected["groups"][i];
    EXPECT_EQ(group.layers, layers_of(want["layers"], model.layers));
    EXPECT_EQ(group.spec.mask.window, length(want["window"]));
    EXPECT_EQ(group.spec.mask.causal, want["causal"]);
    EXPECT_NEAR(group.spec.softmax_scale, want["softmax_scale"].get<double>(), 1e-16);
    const std::string rule = want["rotary"]["rule"];
    if (!has_rule(rule)) {
      all_rules = false;
      EXPECT_FALSE(group.spec.rotary);
      ASSERT_NE(find_doubt(model, "rule-not-available"), nullptr) << codes(model);
      EXPECT_NE(find_doubt(model, "rule-not-available")->message.find(rule), std::string::npos);
      continue;
    }
    if (find_doubt(model, "dynamic-length-missing") != nullptr) {  // the base grows from a length the file does not state
      all_rules = false;
      continue;
    }
    ASSERT_TRUE(group.spec.rotary) << codes(model);
    expect_rotary(want["rotary"], *group.spec.rotary);
  }
  EXPECT_EQ(model.worst() == Level::error, !all_rules) << codes(model);
  EXPECT_TRUE(model.unread.empty()) << json(model.unread);
}

// Nothing beyond the answer key is doubted: a reader that cries wolf is not read.
TEST_P(Configs, NoOtherDoubts) {
  const json& expected = answer_key().at(GetParam());
  for (const auto& doubt : read_model(data / "configs" / GetParam()).doubts) {
    if (doubt.code == "rule-not-available") continue;
    EXPECT_NE(std::find(expected["must_doubt"].begin(), expected["must_doubt"].end(), doubt.code), expected["must_doubt"].end())
        << doubt.code;
  }
}

// A value that was not read, and a default that was not used, would leave the tests above green by luck: theta times 1.01 must show.
TEST_P(Configs, TheKeyTellsWrongNumbersApart) {
  const Model model = read_model(data / "configs" / GetParam());
  for (std::size_t i = 0; i < model.groups.size(); i++) {
    if (!model.groups[i].spec.rotary) continue;
    RotarySpec wrong = *model.groups[i].spec.rotary;
    wrong.theta *= 1.01;
    const auto inv = frequencies(wrong).inv_freq;
    bool told_apart = false;
    for (const auto& [pair, value] : answer_key().at(GetParam())["groups"][i]["rotary"]["inv_freq_check"].items()) {
      told_apart |= std::abs(inv.at(std::stoul(pair)) - value.get<double>()) > 3e-16 * value.get<double>();
    }
    EXPECT_TRUE(told_apart);
  }
}

INSTANTIATE_TEST_SUITE_P(Released, Configs, testing::ValuesIn(names()), [](const auto& param) {
  std::string name = param.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(ConfigsData, EveryFileIsInTheKey) {
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(data / "configs")) {
    EXPECT_TRUE(answer_key().contains(entry.path().filename().string())) << entry.path();
    files++;
  }
  EXPECT_EQ(files, answer_key().size());
  EXPECT_GE(files, 50U);
}

}  // namespace
}  // namespace gnomon::test
