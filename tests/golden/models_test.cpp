// SPDX-License-Identifier: Apache-2.0
// The set-ups of real models against the committed numbers of tools/make-model-golden, which took them from an independent answer key.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "gnomon/model.hpp"
#include "gnomon/table.hpp"
#include "golden/sha256.hpp"
#include "support/elements.hpp"

namespace {

using namespace testing_support;
using gnomon::DType;
using gnomon::Numerics;
using nlohmann::json;
namespace fs = std::filesystem;

const fs::path folder = fs::path(GNOMON_TEST_DATA) / "golden" / "models";
const fs::path configs = fs::path(GNOMON_TEST_DATA) / "model" / "data" / "configs";

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

const std::vector<json>& lines() {
  static const auto all = [] {
    std::vector<json> result;
    std::istringstream stream(bytes_of(folder / "models.jsonl"));
    for (std::string line; std::getline(stream, line);) result.push_back(json::parse(line));
    return result;
  }();
  return all;
}

double number(const json& hex) { return std::strtod(hex.get_ref<const std::string&>().c_str(), nullptr); }

std::optional<std::int64_t> length_of(const json& line) {
  return line.at("length").is_null() ? std::nullopt : std::optional(line.at("length").get<std::int64_t>());
}

/// What differs between a spec's numbers and those of a line; empty when nothing does.
std::string difference(const gnomon::RotarySpec& spec, const json& line, Numerics numerics) {
  const bool exact = numerics == Numerics::exact;
  const auto& stored = line.at(exact ? "exact" : "hf");
  const auto frequencies = gnomon::frequencies(spec, numerics, length_of(line));
  const auto pairs = line.at("pairs").get<std::vector<std::size_t>>();
  const auto positions = line.at("positions").get<std::vector<std::int64_t>>();
  if (frequencies.inv_freq.size() != pairs.back() + 1) return "pairs: " + std::to_string(frequencies.inv_freq.size());
  std::vector<std::int64_t> of_every_axis;
  for (int axis = 0; axis < gnomon::position_axes(spec); axis++) {
    of_every_axis.insert(of_every_axis.end(), positions.begin(), positions.end());
  }
  const auto table = gnomon::rotary_table(frequencies, gnomon::Ids{of_every_axis}, exact ? DType::f64 : DType::f32);
  for (std::size_t k = 0; k < pairs.size(); k++) {
    const std::string pair = " of pair " + std::to_string(pairs[k]);
    if (frequencies.inv_freq[pairs[k]] != number(stored.at("inv_freq")[k])) return "inv_freq" + pair;
    for (std::size_t p = 0; p < positions.size(); p++) {
      // f64: 1 ulp, the stored value's own half, and the phase; float32 values are the same ones.
      const double bound = exact ? 0x1.8p-53 + static_cast<double>(positions[p] + 2) * 0x1p-61 : 0;
      for (const auto& [name, ours] : {std::pair("cos", table_cos(table, p, pairs[k])), std::pair("sin", table_sin(table, p, pairs[k]))}) {
        if (!(std::abs(ours - number(stored.at(name)[p][k])) <= bound)) return name + pair + " at " + std::to_string(positions[p]);
      }
    }
  }
  return "";
}

/// In both numerics, where the line has both.
std::string difference(const gnomon::RotarySpec& spec, const json& line) {
  const auto exact = difference(spec, line, Numerics::exact);
  if (!exact.empty() || line.at("hf").is_null()) return exact;
  const auto hf = difference(spec, line, Numerics::hf);
  return hf.empty() ? "" : "hf " + hf;
}

TEST(Models, HashIsRight) {
  EXPECT_EQ(gnomon::sha256(bytes_of(folder / "models.jsonl")) + "  models.jsonl\n", bytes_of(folder / "MANIFEST.sha256"));
}

TEST(Models, SetUpsGiveTheirNumbers) {
  std::set<std::string> names;
  for (const auto& line : lines()) {
    const auto spec = gnomon::rotary_from_json(line.at("rotary").dump());
    EXPECT_EQ(difference(spec, line), "") << line.at("models").dump();
    EXPECT_NEAR(gnomon::frequencies(spec).attention_factor, line.at("rotary").at("attention_factor").get<double>(), 1e-15);
    for (const auto& model : line.at("models")) names.insert(model.at("config"));
  }
  EXPECT_GE(lines().size(), 80U);
  EXPECT_GE(names.size(), 140U) << "the models that rotate";
}

TEST(Models, NoSetUpGivesTheNumbersOfAnother) {
  int told_apart = 0;
  for (std::size_t k = 0; k < lines().size(); k++) {
    const auto& line = lines()[k];
    const auto& other = lines()[(k + 1) % lines().size()];
    if (line.at("length") != other.at("length") || line.at("exact") == other.at("exact")) continue;
    EXPECT_NE(difference(gnomon::rotary_from_json(other.at("rotary").dump()), line), "") << line.at("models").dump();
    told_apart++;
  }
  EXPECT_GE(told_apart, 60);
}

/// What differs between a line and the group of a config that holds its layers; empty when nothing does.
std::string difference_of_config(const json& model, const json& line) try {
  const auto read = gnomon::read_model(configs / model.at("config").get<std::string>());
  const int layer = model.at("layers").is_array() ? model.at("layers").front().get<int>() : 0;
  std::string found = "no group of layer " + std::to_string(layer) + " rotates";
  for (const auto& group : read.groups) {
    if (!group.spec.rotary || std::find(group.layers.begin(), group.layers.end(), layer) == group.layers.end()) continue;
    found = difference(*group.spec.rotary, line);
    if (found.empty()) break;
  }
  return found;
} catch (const gnomon::Error& error) {
  return error.what();
}

TEST(Models, ConfigsAreReadAsTheirSetUps) {
  std::set<std::string> missing;
  for (const auto& line : lines()) {
    for (const auto& model : line.at("models")) {
      if (!model.at("sure").get<bool>()) continue;
      if (fs::exists(configs / model.at("config").get<std::string>())) {
        EXPECT_EQ(difference_of_config(model, line), "") << model.dump() << line.at("rotary").dump();
      } else {
        missing.insert(model.at("config"));
      }
    }
  }
  if (!missing.empty()) GTEST_SKIP() << missing.size() << " configs are not in " << configs << ", the first of them " << *missing.begin();
}

}  // namespace
