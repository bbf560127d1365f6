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
#include "golden/sha256.hpp"
#include "support/elements.hpp"

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

/// A golden file and its spec. Positions of several axes are one list after the other.
template <class Spec>
struct GoldenOf {
  std::string name;
  json data;
  Spec spec;
  const json& exact() const { return data.at("exact"); }
  std::vector<std::int64_t> positions() const { return data.at("positions").get<std::vector<std::int64_t>>(); }
  std::vector<double> reals() const { return data.at("real_positions").get<std::vector<double>>(); }
};

struct Golden : GoldenOf<gnomon::RotarySpec> {
  gnomon::Frequencies frequencies(gnomon::Numerics numerics = gnomon::Numerics::exact) const {
    return gnomon::frequencies(spec, numerics,
                               data.contains("length") ? std::optional(data.at("length").get<std::int64_t>()) : std::nullopt);
  }
  std::vector<std::size_t> pairs() const { return data.at("pairs").get<std::vector<std::size_t>>(); }
  std::vector<std::size_t> axis() const {
    return data.contains("axis") ? data.at("axis").get<std::vector<std::size_t>>()
                                 : std::vector<std::size_t>(static_cast<std::size_t>(spec.rotary_dim / 2));
  }
  bool is_pure_rotation() const { return !exact().contains("log_magnitude"); }
};
using GoldenRows = GoldenOf<gnomon::AbsoluteSpec>;

template <class File>
std::vector<File> files_in(std::string_view kind, auto&& spec_of) {
  std::vector<File> result;
  for (const auto& [name, hash] : manifest()) {
    if (!name.starts_with(kind)) continue;
    auto data = json::parse(bytes_of(folder / name));
    auto spec = spec_of(data.at("spec").dump());
    result.push_back({name, std::move(data), std::move(spec)});
  }
  return result;
}

const std::vector<Golden>& files() {
  static const auto all = files_in<Golden>("rotary/", gnomon::rotary_from_json);
  return all;
}
const std::vector<GoldenRows>& absolute_files() {
  static const auto all = files_in<GoldenRows>("absolute/", gnomon::absolute_from_json);
  return all;
}

double ulp(double value, int bits) { return std::ldexp(1.0, std::ilogb(value) - bits + 1); }
double phase_bound(double position) { return (std::abs(position) + 2) * 0x1p-64 * 6.283185307179587; }

TEST(Manifest, HashesAreRight) {
  EXPECT_EQ(gnomon::sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") << "FIPS 180-4";
  EXPECT_EQ(gnomon::sha256(std::string(1000, 'a')), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
  for (const auto& [name, hash] : manifest())
    EXPECT_EQ(gnomon::sha256(bytes_of(folder / name)), hash) << name << " changed: run tools/make-golden, or undo the edit";
}

TEST(Manifest, NamesEveryFile) {
  std::set<std::string> listed, found;
  for (const auto& [name, hash] : manifest()) listed.insert(name);
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".json") found.insert(fs::relative(entry.path(), folder).generic_string());
  }
  EXPECT_EQ(listed, found);
  EXPECT_GE(listed.size(), 48U);
  EXPECT_EQ(listed.size(), files().size() + absolute_files().size());
}

TEST(Manifest, EveryRuleHasAFileWithProvenance) {
  std::set<std::string> rules;
  const auto look_at = [&](const auto& golden) {
    rules.insert(std::string(gnomon::rule_name(golden.spec.rule)));
    const auto& provenance = golden.data.at("provenance");
    for (const char* key : {"script", "mpmath", "bits", "formula"}) EXPECT_TRUE(provenance.contains(key)) << golden.name << " " << key;
  };
  for (const auto& golden : files()) look_at(golden);
  for (const auto& golden : absolute_files()) look_at(golden);
  EXPECT_TRUE(rules.contains("sinusoidal")) << "the one absolute rule that gives numbers";
  gnomon::for_each_rotary_rule(
      [&]<class Rule>(const Rule&) { EXPECT_TRUE(rules.contains(std::string(Rule::name))) << Rule::name << " has no golden file"; });
}

TEST(Golden, ExactFrequencies) {
  for (const auto& golden : files()) {
    const auto ours = golden.frequencies();
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

TEST(Golden, AxisOfEachPair) {
  int several = 0;
  for (const auto& golden : files()) {
    const auto ours = golden.frequencies().axis;
    if (!golden.data.contains("axis")) {
      EXPECT_TRUE(ours.empty()) << golden.name;
      continue;
    }
    several++;
    EXPECT_EQ(std::vector<std::size_t>(ours.begin(), ours.end()), golden.axis()) << golden.name;
  }
  EXPECT_GE(several, 4);
}

TEST(Golden, MagnitudesOfXpos) {
  for (const auto& golden : files()) {
    const auto ours = golden.frequencies();
    if (golden.is_pure_rotation()) {
      EXPECT_TRUE(ours.log_magnitude.empty()) << golden.name;
      continue;
    }
    const auto& stored = golden.exact().at("log_magnitude");
    ASSERT_EQ(ours.log_magnitude.size(), stored.size()) << golden.name;
    for (std::size_t i = 0; i < stored.size(); i++) EXPECT_EQ(ours.log_magnitude[i], number(stored[i])) << golden.name << " pair " << i;
    EXPECT_EQ(ours.centre, golden.data.at("spec").at("centre").get<std::int64_t>());
  }
}

TEST(Golden, HfFrequencies) {
  int compared = 0;
  for (const auto& golden : files()) {
    if (golden.data.at("hf").is_null()) {
      EXPECT_THROW(golden.frequencies(gnomon::Numerics::hf), gnomon::Error) << golden.name;
      continue;
    }
    compared++;
    const auto ours = golden.frequencies(gnomon::Numerics::hf).inv_freq;
    const auto& inv_freq = golden.data.at("hf").at("inv_freq");
    ASSERT_EQ(ours.size(), inv_freq.size()) << golden.name;
    for (std::size_t i = 0; i < ours.size(); i++) EXPECT_EQ(ours[i], number(inv_freq[i])) << golden.name << " pair " << i;
  }
  EXPECT_GE(compared, 28);
}

/// Compares a table with stored rows: beside the phase bound of the position, `ulps` of the type, or none up to the position exact_to.
template <class Position>
void compare_rows(const Golden& golden, const gnomon::RotaryTable& table, const std::vector<Position>& positions, const json& cosines,
                  const json& sines, int bits, double ulps, double exact_to = -1) {
  const auto pairs = golden.pairs(), axis = golden.axis();
  ASSERT_EQ(table.positions, cosines.size()) << golden.name;
  for (std::size_t p = 0; p < table.positions; p++) {
    for (std::size_t k = 0; k < pairs.size(); k++) {
      const Position position = positions[axis[pairs[k]] * table.positions + p];
      for (const auto& [ours, stored] : {std::pair(table_cos(table, p, pairs[k]), number(cosines[p][k])),
                                         std::pair(table_sin(table, p, pairs[k]), number(sines[p][k]))}) {
        const double place = std::abs(static_cast<double>(position)), allowed = place <= exact_to ? 0 : ulps;
        const double bound = stored == 0 ? 0 : allowed * ulp(stored, bits) + phase_bound(place);
        EXPECT_LE(std::abs(ours - stored), bound) << golden.name << " position " << position << " pair " << pairs[k];
      }
    }
  }
}

TEST(Golden, ExactTables) {
  for (const auto& golden : files()) {
    if (!golden.is_pure_rotation()) continue;
    const auto frequencies = golden.frequencies();
    const auto positions = golden.positions();
    const auto reals = golden.reals();
    const auto& exact = golden.exact();
    // The stored f64 is itself rounded: half an ulp more. The stored f32 is the nearest one, and so is ours but where the phase's own
    // rounding matters; then it is a neighbour.
    compare_rows(golden, gnomon::rotary_table(frequencies, gnomon::Ids{positions}, DType::f64), positions, exact.at("cos_f64"),
                 exact.at("sin_f64"), 53, 1.5);
    compare_rows(golden, gnomon::rotary_table(frequencies, gnomon::Reals{reals}, DType::f64), reals, exact.at("real_cos_f64"),
                 exact.at("real_sin_f64"), 53, 1.5);
    compare_rows(golden, gnomon::rotary_table(frequencies, gnomon::Ids{positions}, DType::f32), positions, exact.at("cos_f32"),
                 exact.at("sin_f32"), 24, 1, (1 << 24) + 1);
  }
}

TEST(Golden, HfTables) {
  for (const auto& golden : files()) {
    if (golden.data.at("hf").is_null()) continue;
    const auto table = gnomon::rotary_table(golden.frequencies(gnomon::Numerics::hf), gnomon::Ids{golden.positions()});
    const auto pairs = golden.pairs();
    for (std::size_t p = 0; p < table.positions; p++) {
      for (std::size_t k = 0; k < pairs.size(); k++) {
        EXPECT_EQ(table_cos(table, p, pairs[k]), number(golden.data.at("hf").at("cos_f32")[p][k]))
            << golden.name << " place " << p << " pair " << pairs[k];
        EXPECT_EQ(table_sin(table, p, pairs[k]), number(golden.data.at("hf").at("sin_f32")[p][k]))
            << golden.name << " place " << p << " pair " << pairs[k];
      }
    }
  }
}

/// The unit vector of a pair after the rotation, in f32: its cos and sin with the magnitude, for every position.
std::vector<std::pair<double, double>> unit_vectors(const Golden& golden, std::size_t pair, gnomon::Side side) {
  const auto& spec = golden.spec;
  const auto positions = golden.positions();
  const auto i = static_cast<std::int64_t>(pair), D = static_cast<std::int64_t>(spec.head_dim),
             T = static_cast<std::int64_t>(golden.exact().at("cos_f64").size());
  const bool half_split = spec.layout == gnomon::PairLayout::half_split;
  const auto first = spec.rotary_offset + (half_split ? i : 2 * i), second = half_split ? first + spec.rotary_dim / 2 : first + 1;
  std::vector<float> x(static_cast<std::size_t>(T * D), 0.0F);
  const auto at = [&](std::int64_t t, std::int64_t channel) -> float& { return x[static_cast<std::size_t>(t * D + channel)]; };
  for (std::int64_t t = 0; t < T; t++) at(t, first) = 1;
  const gnomon::TensorView view{x.data(), DType::f32, {1, 1, T, D}, {T * D, T * D, D, 1}};
  const gnomon::RotateOperand operand{gnomon::ConstTensorView{x.data(), DType::f32, view.shape, view.strides}, view, side};
  const auto frequencies = golden.frequencies();
  gnomon::rotate(std::span(&operand, 1), frequencies, gnomon::Ids{positions});
  std::vector<std::pair<double, double>> result;
  for (std::int64_t t = 0; t < T; t++) result.emplace_back(at(t, first), at(t, second));
  return result;
}

TEST(Golden, Kernel) {
  for (const auto& golden : files()) {
    const auto& exact = golden.exact();
    const auto positions = golden.positions();
    const auto pairs = golden.pairs(), axis = golden.axis();
    const double factor = golden.frequencies().attention_factor;
    for (std::size_t k = 0; k < pairs.size(); k++) {
      for (const auto side : {gnomon::Side::query, gnomon::Side::key}) {
        const auto ours = unit_vectors(golden, pairs[k], side);
        for (std::size_t p = 0; p < ours.size(); p++) {
          double m = factor;
          if (!golden.is_pure_rotation()) {
            const double xpos = number(exact.at("magnitude_f64")[p][k]);
            m *= side == gnomon::Side::query ? xpos : 1 / xpos;
          }
          const double position = static_cast<double>(positions[axis[pairs[k]] * ours.size() + p]);
          const double bound = m * (1.2e-7 + (m == 1 ? 0 : 0x1p-23) + phase_bound(position));
          EXPECT_NEAR(ours[p].first, m * number(exact.at("cos_f64")[p][k]), bound) << golden.name << " position " << position;
          EXPECT_NEAR(ours[p].second, m * number(exact.at("sin_f64")[p][k]), bound) << golden.name << " position " << position;
        }
      }
    }
  }
}

/// Compares the rows of an absolute encoding with stored ones: `ulps` of the type beside the phase bound of the position.
template <class Position>
void compare_embedding(const GoldenRows& golden, const std::vector<Position>& positions, const gnomon::Positions& given, DType dtype,
                       const json& stored_rows, int bits, double ulps, gnomon::Numerics numerics = gnomon::Numerics::exact) {
  const auto table = gnomon::embedding_table(golden.spec, given, dtype, numerics);
  const auto columns = golden.data.at("columns").get<std::vector<std::size_t>>(),
             axis = golden.data.at("axis").get<std::vector<std::size_t>>();
  const auto& rule = std::get<gnomon::absolute::Sinusoidal>(golden.spec.rule);
  const auto width = static_cast<std::size_t>(golden.spec.width);
  ASSERT_EQ(table.positions, stored_rows.size()) << golden.name;
  for (std::size_t p = 0; p < table.positions; p++) {
    for (std::size_t k = 0; k < columns.size(); k++) {
      const double place = static_cast<double>(positions[axis[k] * table.positions + p]) + static_cast<double>(rule.offset);
      const double stored = number(stored_rows[p][k]), bound = stored == 0 ? 0 : ulps * ulp(stored, bits) + rule.scale * phase_bound(place);
      EXPECT_LE(std::abs(table_entry(table.rows, dtype, p * width + columns[k]) - stored), bound)
          << golden.name << " place " << place << " column " << columns[k];
    }
  }
}

TEST(Golden, SinusoidalRows) {
  for (const auto& golden : absolute_files()) {
    const auto positions = golden.positions();
    const auto reals = golden.reals();
    const gnomon::Positions ids = gnomon::Ids{positions};
    compare_embedding(golden, positions, ids, DType::f64, golden.exact().at("rows_f64"), 53, 2.5);
    compare_embedding(golden, positions, ids, DType::f32, golden.exact().at("rows_f32"), 24, 1);
    compare_embedding(golden, reals, gnomon::Reals{reals}, DType::f64, golden.exact().at("real_rows_f64"), 53, 2.5);
  }
}

TEST(Golden, HfSinusoidalRows) {
  int compared = 0;
  for (const auto& golden : absolute_files()) {
    const auto positions = golden.positions();
    if (golden.data.at("hf").is_null()) {
      EXPECT_THROW(gnomon::embedding_table(golden.spec, gnomon::Ids{positions}, DType::f32, gnomon::Numerics::hf), gnomon::Error)
          << golden.name;
      continue;
    }
    compared++;
    const auto ours = gnomon::embedding_table(golden.spec, gnomon::Ids{positions}, DType::f32, gnomon::Numerics::hf);
    const auto& rows = golden.data.at("hf").at("rows_f32");
    const auto columns = golden.data.at("columns").get<std::vector<std::size_t>>();
    for (std::size_t p = 0; p < ours.positions; p++) {
      for (std::size_t k = 0; k < columns.size(); k++) {
        EXPECT_EQ(table_entry(ours.rows, DType::f32, p * static_cast<std::size_t>(golden.spec.width) + columns[k]), number(rows[p][k]))
            << golden.name << " position " << positions[p] << " column " << columns[k];
      }
    }
  }
  EXPECT_GE(compared, 5);
}

TEST(Golden, TellsNeighboursApart) {
  // The check would see each of the common wrong turns.
  std::map<std::string, std::vector<double>> exact;
  for (const auto& golden : files()) exact[golden.name] = golden.frequencies().inv_freq;
  EXPECT_NE(exact.at("rotary/default-llama2.json"), exact.at("rotary/default-llama3.json"));
  EXPECT_NE(exact.at("rotary/llama3-3.1-8b.json"), exact.at("rotary/llama3-equal-bounds.json"));
  EXPECT_NE(exact.at("rotary/yarn-smollm2.json"), exact.at("rotary/ntk-smollm2.json"));
  EXPECT_EQ(exact.at("rotary/dynamic-100.json"), exact.at("rotary/default-llama2.json"));
  EXPECT_NE(exact.at("rotary/dynamic-2049.json"), exact.at("rotary/default-llama2.json")) << "one token beyond the trained length";
  EXPECT_NE(exact.at("rotary/longrope-phi-3.5-4096.json"), exact.at("rotary/longrope-phi-3.5-4097.json"))
      << "the list belongs to the length";
  for (const auto& golden : files()) {
    if (golden.data.at("hf").is_null()) continue;
    EXPECT_NE(exact.at(golden.name), golden.frequencies(gnomon::Numerics::hf).inv_freq) << golden.name << ": exact and hf are two things";
  }
}

}  // namespace
