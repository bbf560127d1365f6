// SPDX-License-Identifier: Apache-2.0
// Released models against an answer key made without this library (data/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "gnomon/gnomon.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

const fs::path data = fs::path(GNOMON_TEST_DATA) / "model" / "data";

// Dialects with a reader.
const std::set<std::string> dialects = {"hf", "litgpt", "params"};

// Files whose reader is not there yet.
const std::set<std::string> not_yet = {};

// What only a file marked "sure": false may say otherwise, with the reason.
const std::map<std::string, std::map<std::string, std::string>> differences = {
    {"facebook__dinov3-vits16-pretrain-lvd1689m.json",
     {{"rule", "2 pi is part of the frequency, so it is a list of frequencies: the default rule of that base has none"},
      {"theta", "a list has no base"},
      {"axes", "sections share the list out"}}},
    {"mistralai__Pixtral-12B-2409-vision.json",
     {{"rule", "transformers' code puts the even frequencies on the first half of the pairs and the odd ones on the second: a list"},
      {"theta", "a list has no base"},
      {"axes", "sections share the list out"},
      {"inv_freq_check", "the key counts the frequencies, the list counts the pairs of the checkpoint in transformers"}}},
};

const json& answer_key() {
  static const json key = json::parse(std::ifstream(data / "expected.json"));
  return key;
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& [name, entry] : answer_key().items()) {
    if (dialects.contains(entry["dialect"]) && !not_yet.contains(name)) result.push_back(name);
  }
  return result;
}

bool may_differ(const std::string& name, const std::string& field) {
  const auto found = differences.find(name);
  return found != differences.end() && found->second.contains(field);
}

/// Whether `got` is what the key says under `field`, or one of its alternatives.
bool agrees(const json& expected, const std::string& field, const json& got) {
  const std::function<bool(const json&, const json&)> near = [&](const json& a, const json& b) {
    if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), near);
    if (!a.is_number() || !b.is_number()) return a == b;
    return std::abs(a.get<double>() - b.get<double>()) <= 4e-16 * std::abs(a.get<double>());
  };
  const auto same = [&](const json& wanted) { return near(wanted, got); };
  if (same(expected.at(field))) return true;
  const auto others = expected.find(field + "_alt");
  return others != expected.end() && std::any_of(others->begin(), others->end(), same);
}

std::vector<int> layers_of(const json& expected, int count) {
  if (expected.is_array()) return expected.get<std::vector<int>>();
  std::vector<int> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; i++) all[static_cast<std::size_t>(i)] = i;
  return all;
}

json or_null(const std::optional<std::int64_t>& value) { return value ? json(*value) : json(nullptr); }

// The key's words for what this library says in another field.
const std::set<std::string> notes_of_the_key = {"inv_freq_check", "inv_freq_check_long", "inv_freq_at", "unit", "rotated_pairs"};
const std::map<std::string, json> words = {{"sin;cos", "sin_cos"}, {"h-1", "half_minus_one"}};

class Configs : public testing::TestWithParam<std::string> {
 protected:
  const json& expected() const { return answer_key().at(GetParam()); }
  const Model& model() const { return model_; }

  /// The groups the key speaks of: those of the main part where it names none.
  std::vector<LayerGroup> groups() const {
    const bool parts = expected().contains("parts");
    std::vector<LayerGroup> result;
    for (const auto& group : model_.groups) {
      if (parts || group.part.empty() || group.part == "text" || group.part == expected()["groups"][0].value("part", ""))
        result.push_back(group);
    }
    return result;
  }

  void expect_fields(const json& wanted, const std::string& got_text, const std::string& kind) const {
    const json got = got_text.empty() ? json(nullptr) : json::parse(got_text);
    if (wanted.is_null()) {
      EXPECT_TRUE(got.is_null()) << kind << ": " << got;
      return;
    }
    ASSERT_FALSE(got.is_null()) << kind << " is missing; doubts: " << codes(model_);
    for (const auto& [field, value] : wanted.items()) {
      if (notes_of_the_key.contains(field) || field.ends_with("_alt") || may_differ(GetParam(), field)) continue;
      if (field == "rows" && kind == "absolute" && !got.contains("rows")) continue;  // a computed table has no rows
      if (value.is_string() && words.contains(value)) {
        EXPECT_EQ(got.value(field, json()), words.at(value)) << kind << "." << field;
        continue;
      }
      EXPECT_TRUE(agrees(wanted, field, got.value(field, json())))
          << kind << "." << field << ": " << got.value(field, json()) << " instead of " << value;
    }
  }

  void expect_frequencies(const json& wanted, const RotarySpec& spec) const {
    const auto compare = [&](const char* field, std::optional<std::int64_t> length) {
      const auto inv = frequencies(spec, Numerics::exact, length).inv_freq;
      const json pairs = wanted.value(field, json::object());
      for (const auto& [pair, value] : pairs.items()) {
        EXPECT_NEAR(inv.at(std::stoul(pair)), value.get<double>(), 3e-16 * value.get<double>()) << "pair " << pair;
      }
    };
    if (!may_differ(GetParam(), "inv_freq_check")) compare("inv_freq_check", std::nullopt);
    if (const auto* longrope = std::get_if<rotary::Longrope>(&spec.rule)) {
      compare("inv_freq_check_long", longrope->original_max_position_embeddings + 1);
    }
  }

  void expect_group(const json& wanted, const LayerGroup& group) const {
    const PositionSpec& spec = group.spec;
    const json skip = wanted.value("skip", json::array());
    const auto skipped = [&](const char* field) { return std::find(skip.begin(), skip.end(), field) != skip.end(); };
    const json parts = expected().value("parts", json::object());
    EXPECT_EQ(group.layers, layers_of(wanted["layers"], parts.value(group.part, model_.layers)));
    const json& rotary = wanted["rotary"];
    if (rotary.is_null() || !rotary["rule"].is_null()) {
      if (find_doubt(model_, "dynamic-length-missing") == nullptr) {  // the base grows from a length the file does not state
        expect_fields(rotary, spec.rotary ? to_json(*spec.rotary) : "", "rotary");
        if (!rotary.is_null() && spec.rotary) expect_frequencies(rotary, *spec.rotary);
      }
    } else {
      EXPECT_FALSE(spec.rotary);  // the file does not say, which is an error
    }
    expect_fields(wanted["absolute"], spec.absolute ? to_json(*spec.absolute) : "", "absolute");
    expect_fields(wanted["bias"], spec.bias ? to_json(*spec.bias) : "", "bias");
    if (!skipped("mask")) {
      EXPECT_EQ(json(spec.mask.causal), wanted["mask"]["causal"]);
      EXPECT_TRUE(agrees(wanted["mask"], "window", or_null(spec.mask.window))) << "window " << or_null(spec.mask.window);
      EXPECT_TRUE(agrees(wanted["mask"], "chunk", or_null(spec.mask.chunk))) << "chunk " << or_null(spec.mask.chunk);
    }
    EXPECT_NEAR(spec.softmax_scale, wanted["softmax_scale"].is_null() ? 0 : wanted["softmax_scale"].get<double>(), 1e-16);
  }

 private:
  const Model model_ = read_model(data / "configs" / GetParam());
};

TEST_P(Configs, AsTheAnswerKeySays) {
  EXPECT_EQ(json(model().layers), expected()["layers_total"]);
  EXPECT_EQ(model().non_attention_layers, expected().value("non_attention_layers", std::vector<int>{}));
  EXPECT_TRUE(agrees(expected()["length"], "declared", or_null(model().declared))) << or_null(model().declared);
  EXPECT_TRUE(agrees(expected()["length"], "derived", or_null(model().derived))) << or_null(model().derived);
  EXPECT_TRUE(agrees(expected()["length"], "original", or_null(model().original))) << or_null(model().original);
  const auto got = groups();
  ASSERT_EQ(got.size(), expected()["groups"].size()) << codes(model());
  for (const auto& group : got) {
    const std::vector<int>& layers = group.layers;
    const auto wanted = std::find_if(expected()["groups"].begin(), expected()["groups"].end(), [&](const json& one) {
      const bool here = one["layers"] == "all" || one["layers"][0] == layers.front();
      return here && (!one.contains("part") || one["part"] == group.part);
    });
    ASSERT_NE(wanted, expected()["groups"].end()) << "layer " << layers.front();
    SCOPED_TRACE("part \"" + group.part + "\", layer " + std::to_string(layers.front()));
    expect_group(*wanted, group);
  }
}

TEST_P(Configs, EveryDoubtOfTheKeyIsRaised) {
  for (const auto& code : expected()["must_doubt"]) {
    EXPECT_NE(find_doubt(model(), code.get<std::string>()), nullptr) << code << " is missing from: " << codes(model());
  }
}

// Nothing graver than a note is doubted beyond the key: a reader that cries wolf is not read.
TEST_P(Configs, CleanFilesAreSilentButForNotes) {
  for (const auto& doubt : model().doubts) {
    const bool asked =
        std::find(expected()["must_doubt"].begin(), expected()["must_doubt"].end(), doubt.code) != expected()["must_doubt"].end();
    EXPECT_TRUE(asked || doubt.level == Level::note || may_differ(GetParam(), doubt.code)) << doubt.code << ": " << doubt.message;
  }
  for (const auto& key : model().unread) EXPECT_TRUE(key.starts_with("vision_config")) << key;  // a tower whose rule is not known in full
}

// A value that was not read, and a default that was not used, would leave the tests above green by luck: theta times 1.01 must show.
TEST_P(Configs, TheKeyTellsWrongNumbersApart) {
  const auto got = groups();
  for (std::size_t i = 0; i < got.size() && i < expected()["groups"].size(); i++) {
    if (!got[i].spec.rotary || std::holds_alternative<rotary::Custom>(got[i].spec.rotary->rule)) continue;
    RotarySpec wrong = *got[i].spec.rotary;
    wrong.theta *= 1.01;
    const auto inv = frequencies(wrong).inv_freq;
    bool told_apart = false;
    for (const auto& [pair, value] : expected()["groups"][i]["rotary"]["inv_freq_check"].items()) {
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
  EXPECT_EQ(files, 168U);
}

TEST(ConfigsData, OnlyUnsureFilesDiffer) {
  for (const auto& [name, fields] : differences) EXPECT_EQ(answer_key().at(name)["sure"], false) << name;
}

}  // namespace
}  // namespace gnomon::test
