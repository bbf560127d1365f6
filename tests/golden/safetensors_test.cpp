// SPDX-License-Identifier: Apache-2.0
// Values as the tensors of a safetensors file, written here byte by byte.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "gnomon/golden.hpp"
#include "plan/round.hpp"
#include "support/elements.hpp"

namespace {

using gnomon::ErrorCode;
using gnomon::Golden;
using testing_support::refusal_fault;

/// Tensors one after the other.
class File {
 public:
  template <class Element>
  File& add(const std::string& name, const char* dtype, const std::vector<std::size_t>& shape, const std::vector<double>& values) {
    const std::size_t begin = data_.size();
    for (const double value : values) {
      Element element;
      if constexpr (std::is_integral_v<Element>) {
        element = static_cast<Element>(value);
      } else {
        element = gnomon::round<Element>(value);
      }
      data_.append(reinterpret_cast<const char*>(&element), sizeof element);
    }
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }
  std::string bytes() const {
    const std::string header = header_.dump();
    const std::uint64_t size = header.size();
    std::string file(reinterpret_cast<const char*>(&size), sizeof size);
    return file + header + data_;
  }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

Golden golden() {
  const std::vector<std::int64_t> positions{0, 1, 2, 3};
  return gnomon::make_golden({.rule = gnomon::rotary::Linear{.factor = 4}, .theta = 12345, .head_dim = 8, .rotary_dim = 8}, positions);
}

gnomon::Verification verified(const File& file) { return gnomon::verify(gnomon::values_from(file.bytes()), golden()); }

std::vector<double> rows(const std::vector<double>& cos, const std::vector<double>& sin) {
  std::vector<double> result;
  for (std::size_t row = 0; row < 4; row++) {
    for (const auto* list : {&cos, &sin}) result.insert(result.end(), list->begin() + 4 * row, list->begin() + 4 * row + 4);
  }
  return result;
}

TEST(SafetensorsValues, FrequenciesOfEveryType) {
  const auto inv_freq = golden().exact.inv_freq;
  const std::string name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  EXPECT_EQ(verified(File().add<double>(name, "F64", {4}, inv_freq)).precision, "f64");
  EXPECT_TRUE(verified(File().add<double>("inv_freq", "F64", {4}, inv_freq)).agrees);
  EXPECT_TRUE(verified(File().add<float>(name, "F32", {1, 4}, inv_freq)).agrees);
  EXPECT_FALSE(verified(File().add<gnomon::Bf16>(name, "BF16", {4}, inv_freq)).agrees) << "nobody stores them in 16 bits on purpose";
  EXPECT_EQ(gnomon::values_from(File().add<gnomon::F16>(name, "F16", {2}, {0.5, 1024}).bytes()).inv_freq, (std::vector{0.5, 1024.0}));
  auto wrong = inv_freq;
  for (double& value : wrong) value *= 4;
  EXPECT_EQ(verified(File().add<float>(name, "F32", {4}, wrong)).explanations.at(0).mistakes.at(0).name, "unscaled");
}

TEST(SafetensorsValues, TablesAndCaches) {
  const auto& [inv_freq, cos, sin] = golden().exact;
  EXPECT_TRUE(verified(File().add<float>("cos", "F32", {1, 1, 4, 4}, cos).add<float>("sin", "F32", {4, 4}, sin)).agrees);
  EXPECT_TRUE(verified(File().add<gnomon::Bf16>("a.cos", "BF16", {4, 4}, cos).add<gnomon::Bf16>("a.sin", "BF16", {4, 4}, sin)).agrees);
  EXPECT_TRUE(verified(File().add<gnomon::F16>("cos_sin_cache", "F16", {4, 8}, rows(cos, sin))).agrees);
  EXPECT_FALSE(verified(File().add<gnomon::F16>("cos_sin_cache", "F16", {4, 8}, rows(sin, cos))).agrees) << "sine first";
  // The rows of a cache are positions 0, 1, 2, …, whatever those of the golden file are.
  const std::vector<std::int64_t> other{3, 1};
  const auto some = gnomon::make_golden(golden().spec, other);
  const auto cached =
      gnomon::values_from(File().add<float>("cos_cached", "F32", {4, 4}, cos).add<float>("sin_cached", "F32", {4, 4}, sin).bytes());
  EXPECT_EQ(gnomon::verify(cached, some).positions, 2U);
  EXPECT_TRUE(gnomon::verify(cached, some).agrees);
  const auto stated = File()
                          .add<float>("cos", "F32", {1, 4}, {cos.begin() + 4, cos.begin() + 8})
                          .add<float>("sin", "F32", {1, 4}, {sin.begin() + 4, sin.begin() + 8})
                          .add<std::int64_t>("positions", "I64", {1}, {1});
  EXPECT_TRUE(gnomon::verify(gnomon::values_from(stated.bytes()), some).agrees);
}

TEST(SafetensorsValues, RotatedVectors) {
  const std::vector<double> input{1, 2, 3, 4, 5, 6, 7, 8};
  const auto& [inv_freq, cos, sin] = golden().exact;
  std::vector<double> turned(8);
  for (std::size_t i = 0; i < 4; i++) {
    turned[i] = input[i] * cos[8 + i] - input[i + 4] * sin[8 + i];
    turned[i + 4] = input[i + 4] * cos[8 + i] + input[i] * sin[8 + i];
  }
  File file;
  file.add<double>("input", "F64", {8}, input)
      .add<double>("rotated", "F64", {1, 8}, turned)
      .add<std::int32_t>("positions", "I32", {1}, {2});
  EXPECT_TRUE(verified(file).agrees);
  file.add<std::int32_t>("positions", "I32", {1}, {3});
  EXPECT_FALSE(verified(file).agrees);
}

TEST(SafetensorsValues, ABufferOfEachLayerCountsOnce) {
  const auto inv_freq = golden().exact.inv_freq;
  File file;
  file.add<double>("layers.0.inv_freq", "F64", {4}, inv_freq).add<double>("layers.1.inv_freq", "F64", {4}, inv_freq);
  EXPECT_TRUE(verified(file).agrees);
  file.add<double>("layers.2.inv_freq", "F64", {4}, {1, 2, 3, 4});
  EXPECT_EQ(refusal_fault([&] { verified(file); }, ErrorCode::malformed, {"layers.0.inv_freq", "layers.2.inv_freq", "differ"}), "");
}

TEST(SafetensorsValues, BadFilesAreRefused) {
  const auto refused = [](const std::string& bytes, std::initializer_list<const char*> words) {
    return refusal_fault([&] { gnomon::values_from(bytes); }, ErrorCode::malformed, words);
  };
  const std::string good = File().add<float>("inv_freq", "F32", {4}, {1, 1, 1, 1}).bytes();
  EXPECT_EQ(refused(good.substr(0, good.size() - 1), {"inv_freq", "outside"}), "");
  EXPECT_EQ(refused(good.substr(0, 20), {"header"}), "");
  EXPECT_EQ(refused(File().add<float>("inv_freq", "F8_E4M3", {8}, {1, 1}).bytes(), {"inv_freq", "F64", "F8_E4M3"}), "");
  EXPECT_EQ(refused(File().add<float>("inv_freq", "F32", {5}, {1, 1}).bytes(), {"inv_freq", "20 bytes"}), "");
  EXPECT_EQ(refused(File().add<float>("inv_freq", "F32", {0}, {}).bytes(), {"inv_freq", "1 to 2^30"}), "");
  EXPECT_EQ(refused(File().add<float>("inv_freq", "F32", {1}, {std::nan("")}).bytes(), {"inv_freq", "not finite"}), "");
  EXPECT_EQ(refused(File().add<float>("cos", "F32", {1}, {1}).bytes(), {"sin", "missing"}), "");
  EXPECT_EQ(refused(File().add<float>("cos", "F32", {1}, {1}).add<float>("sin", "F32", {2}, {1, 1}).bytes(), {"sin", "shape of cos"}), "");
  EXPECT_EQ(refused(File().add<float>("cos_sin_cache", "F32", {1, 3}, {1, 1, 1}).bytes(), {"cos_sin_cache", "3 columns"}), "");
  EXPECT_EQ(refused(File().add<float>("positions", "F32", {1}, {0.5}).bytes(), {"positions", "integers"}), "");
  EXPECT_EQ(refused(File().add<float>("attention_factor", "F32", {2}, {1, 1}).bytes(), {"attention_factor", "one number"}), "");
  EXPECT_EQ(refused(File().add<float>("rotated", "F32", {1, 1}, {1}).bytes(), {"input", "missing"}), "");
}

}  // namespace
