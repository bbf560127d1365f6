// SPDX-License-Identifier: Apache-2.0
// The library against the committed numbers of tools/make-golden, which knows the formulas and nothing of gnomon.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "support/elements.hpp"
#include "support/sha256.hpp"

namespace {

using namespace testing_support;
using gnomon::DType;
using nlohmann::json;
namespace fs = std::filesystem;

const fs::path folder = fs::path(GNOMON_TEST_DATA) / "golden";

std::string bytes_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// File name to SHA-256, as sha256sum writes it.
std::map<std::string, std::string> manifest() {
  std::map<std::string, std::string> result;
  std::ifstream stream(folder / "MANIFEST.sha256");
  for (std::string hash, name; stream >> hash >> name;) result[name] = hash;
  return result;
}

double number(const json& hex) { return std::strtod(hex.get_ref<const std::string&>().c_str(), nullptr); }

/// A golden file and its spec.
struct Golden {
  std::string name;
  json data;
  gnomon::RotarySpec spec;
  const json& exact() const { return data.at("exact"); }
  std::vector<std::int64_t> positions() const { return data.at("positions").get<std::vector<std::int64_t>>(); }
  std::vector<std::size_t> pairs() const { return data.at("pairs").get<std::vector<std::size_t>>(); }
};

const std::vector<Golden>& files() {
  static const std::vector<Golden> all = [] {
    std::vector<Golden> result;
    for (const auto& [name, hash] : manifest()) {
      auto data = json::parse(bytes_of(folder / name));
      auto spec = gnomon::rotary_from_json(data.at("spec").dump());
      result.push_back({name, std::move(data), std::move(spec)});
    }
    return result;
  }();
  return all;
}

double ulp(double value, int bits) { return std::ldexp(1.0, std::ilogb(value) - bits + 1); }
double phase_bound(double position) { return (std::abs(position) + 2) * 0x1p-64 * 6.283185307179587; }

TEST(Manifest, HashesAreRight) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") << "FIPS 180-4";
  EXPECT_EQ(sha256(std::string(1000, 'a')), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
  for (const auto& [name, hash] : manifest())
    EXPECT_EQ(sha256(bytes_of(folder / name)), hash) << name << " changed: run tools/make-golden, or undo the edit";
}

TEST(Manifest, NamesEveryFile) {
  std::set<std::string> listed, found;
  for (const auto& [name, hash] : manifest()) listed.insert(name);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".json") found.insert(fs::relative(entry.path(), folder).generic_string());
  }
  EXPECT_EQ(listed, found);
  EXPECT_GE(listed.size(), 20U);
}

TEST(Manifest, EveryRuleHasAFileWithProvenance) {
  std::set<std::string> rules;
  for (const auto& golden : files()) {
    rules.insert(std::string(gnomon::rule_name(golden.spec.rule)));
    const auto& provenance = golden.data.at("provenance");
    for (const char* key : {"script", "mpmath", "bits", "formula"}) EXPECT_TRUE(provenance.contains(key)) << golden.name << " " << key;
  }
  gnomon::for_each_rotary_rule(
      [&]<class Rule>(const Rule&) { EXPECT_TRUE(rules.contains(std::string(Rule::name))) << Rule::name << " has no golden file"; });
}

TEST(Golden, ExactFrequencies) {
  for (const auto& golden : files()) {
    const auto ours = gnomon::frequencies(golden.spec);
    const auto& inv_freq = golden.exact().at("inv_freq");
    const auto& turns = golden.exact().at("turns");
    ASSERT_EQ(ours.inv_freq.size(), inv_freq.size()) << golden.name;
    for (std::size_t i = 0; i < ours.inv_freq.size(); i++) {
      EXPECT_EQ(ours.inv_freq[i], number(inv_freq[i])) << golden.name << " pair " << i;
      EXPECT_EQ(ours.turns[i].whole, turns[i][0].get<std::int64_t>()) << golden.name << " pair " << i;
      EXPECT_EQ(ours.turns[i].fraction, std::strtoull(turns[i][1].get_ref<const std::string&>().c_str(), nullptr, 16))
          << golden.name << " pair " << i;
    }
    const double magnitude = number(golden.exact().at("attention_factor"));
    EXPECT_LE(std::abs(ours.attention_factor - magnitude), 2 * ulp(magnitude, 53)) << golden.name;
  }
}

TEST(Golden, HfFrequencies) {
  int compared = 0;
  for (const auto& golden : files()) {
    if (golden.data.at("hf").is_null()) {
      EXPECT_THROW(gnomon::frequencies(golden.spec, gnomon::Numerics::hf), gnomon::Error) << golden.name;
      continue;
    }
    compared++;
    const auto ours = gnomon::frequencies(golden.spec, gnomon::Numerics::hf).inv_freq;
    const auto& inv_freq = golden.data.at("hf").at("inv_freq");
    ASSERT_EQ(ours.size(), inv_freq.size()) << golden.name;
    for (std::size_t i = 0; i < ours.size(); i++) EXPECT_EQ(ours[i], number(inv_freq[i])) << golden.name << " pair " << i;
  }
  EXPECT_GE(compared, 15);
}

/// Compares a table with stored rows: `ulps` of the type beside the phase bound of the position.
template <class Position>
void compare_rows(const Golden& golden, const gnomon::RotaryTable& table, const std::vector<Position>& positions, const json& cosines,
                  const json& sines, int bits, double ulps) {
  const auto pairs = golden.pairs();
  for (std::size_t p = 0; p < positions.size(); p++) {
    for (std::size_t k = 0; k < pairs.size(); k++) {
      for (const auto& [ours, stored] : {std::pair(table_cos(table, p, pairs[k]), number(cosines[p][k])),
                                         std::pair(table_sin(table, p, pairs[k]), number(sines[p][k]))}) {
        const double bound = stored == 0 ? 0 : ulps * ulp(stored, bits) + phase_bound(static_cast<double>(positions[p]));
        EXPECT_LE(std::abs(ours - stored), bound) << golden.name << " position " << positions[p] << " pair " << pairs[k];
      }
    }
  }
}

TEST(Golden, ExactTables) {
  for (const auto& golden : files()) {
    const auto frequencies = gnomon::frequencies(golden.spec);
    const auto positions = golden.positions();
    const auto reals = golden.data.at("real_positions").get<std::vector<double>>();
    const auto& exact = golden.exact();
    // The stored f64 is itself rounded: half an ulp more. The stored f32 is the nearest one, and so is ours but where the phase's own
    // rounding matters; then it is a neighbour.
    compare_rows(golden, gnomon::rotary_table(frequencies, gnomon::Ids{positions}, DType::f64), positions, exact.at("cos_f64"),
                 exact.at("sin_f64"), 53, 1.5);
    compare_rows(golden, gnomon::rotary_table(frequencies, gnomon::Reals{reals}, DType::f64), reals, exact.at("real_cos_f64"),
                 exact.at("real_sin_f64"), 53, 1.5);
    const auto near = std::vector<std::int64_t>(positions.begin(), positions.begin() + 8);
    compare_rows(golden, gnomon::rotary_table(frequencies, gnomon::Ids{near}, DType::f32), near, exact.at("cos_f32"), exact.at("sin_f32"),
                 24, 0);
    compare_rows(golden, gnomon::rotary_table(frequencies, gnomon::Ids{positions}, DType::f32), positions, exact.at("cos_f32"),
                 exact.at("sin_f32"), 24, 1);
  }
}

TEST(Golden, HfTables) {
  for (const auto& golden : files()) {
    if (golden.data.at("hf").is_null()) continue;
    const auto table = gnomon::rotary_table(gnomon::frequencies(golden.spec, gnomon::Numerics::hf), gnomon::Ids{golden.positions()});
    const auto positions = golden.positions();
    const auto pairs = golden.pairs();
    for (std::size_t p = 0; p < positions.size(); p++) {
      for (std::size_t k = 0; k < pairs.size(); k++) {
        EXPECT_EQ(table_cos(table, p, pairs[k]), number(golden.data.at("hf").at("cos_f32")[p][k]))
            << golden.name << " position " << positions[p] << " pair " << pairs[k];
        EXPECT_EQ(table_sin(table, p, pairs[k]), number(golden.data.at("hf").at("sin_f32")[p][k]))
            << golden.name << " position " << positions[p] << " pair " << pairs[k];
      }
    }
  }
}

TEST(Golden, Kernel) {
  // The unit vector of a pair becomes its cos and sin, times the magnitude.
  for (const auto& golden : files()) {
    const auto& spec = golden.spec;
    const auto frequencies = gnomon::frequencies(spec);
    const auto positions = golden.positions();
    const auto pairs = golden.pairs();
    const bool half_split = spec.layout == gnomon::PairLayout::half_split;
    for (std::size_t k = 0; k < pairs.size(); k++) {
      const auto i = static_cast<std::int64_t>(pairs[k]), D = static_cast<std::int64_t>(spec.head_dim),
                 T = static_cast<std::int64_t>(positions.size());
      const auto first = spec.rotary_offset + (half_split ? i : 2 * i), second = half_split ? first + spec.rotary_dim / 2 : first + 1;
      std::vector<float> x(static_cast<std::size_t>(T * D), 0.0F);
      for (std::int64_t t = 0; t < T; t++) x[static_cast<std::size_t>(t * D + first)] = 1;
      gnomon::rotate(gnomon::TensorView{x.data(), DType::f32, {1, 1, T, D}, {T * D, T * D, D, 1}}, frequencies, gnomon::Ids{positions});
      for (std::size_t p = 0; p < positions.size(); p++) {
        const double m = frequencies.attention_factor, c = m * number(golden.exact().at("cos_f64")[p][k]),
                     s = m * number(golden.exact().at("sin_f64")[p][k]);
        const double bound = m * (1.2e-7 + (m == 1 ? 0 : 0x1p-23) + phase_bound(static_cast<double>(positions[p])));
        EXPECT_NEAR(static_cast<double>(x[p * static_cast<std::size_t>(D) + static_cast<std::size_t>(first)]), c, bound)
            << golden.name << " position " << positions[p];
        EXPECT_NEAR(static_cast<double>(x[p * static_cast<std::size_t>(D) + static_cast<std::size_t>(second)]), s, bound)
            << golden.name << " position " << positions[p];
      }
    }
  }
}

TEST(Golden, TellsNeighboursApart) {
  // The check would see each of the common wrong turns.
  std::map<std::string, std::vector<double>> exact;
  for (const auto& golden : files()) exact[golden.name] = gnomon::frequencies(golden.spec).inv_freq;
  EXPECT_NE(exact.at("rotary/default-llama2.json"), exact.at("rotary/default-llama3.json"));
  EXPECT_NE(exact.at("rotary/llama3-3.1-8b.json"), exact.at("rotary/llama3-equal-bounds.json"));
  EXPECT_NE(exact.at("rotary/yarn-smollm2.json"), exact.at("rotary/ntk-smollm2.json"));
  for (const auto& golden : files()) {
    if (golden.data.at("hf").is_null()) continue;
    EXPECT_NE(exact.at(golden.name), gnomon::frequencies(golden.spec, gnomon::Numerics::hf).inv_freq)
        << golden.name << ": exact and hf are two things";
  }
}

}  // namespace
