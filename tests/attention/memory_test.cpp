// SPDX-License-Identifier: Apache-2.0
// What attention needs beside its inputs and output, measured from outside, at a length whose n × n scores would take 16 GiB a head.
#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>
#include <iostream>
#include <optional>
#include <random>
#include <string>

#include "gnomon/attention.hpp"
#include "gnomon/bias_table.hpp"
#include "gnomon/frequencies.hpp"

namespace {

using gnomon::DType;

/// A field of what the system says of this process, in bytes; −1 where it does not.
std::int64_t resident(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != field + ":") continue;
    std::int64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return -1;
}

/// Bytes that `work` adds to what is resident, at its peak; none where the kernel does not tell.
template <class Work>
std::optional<std::int64_t> added_at_peak(const Work& work) {
  malloc_trim(0);                                 // what earlier work gave back is not to be had for nothing
  std::ofstream("/proc/self/clear_refs") << "5";  // begins VmHWM anew
  const std::int64_t before = resident("VmRSS"), peak = resident("VmHWM");
  if (before < 0 || peak - before > (1 << 20)) return std::nullopt;
  work();
  return resident("VmHWM") - before;
}

class MemoryOfAttention : public testing::Test {
 protected:
  static constexpr std::int64_t n = 65536, heads = 1, width = 8;
  std::vector<float> q = random(heads), k = random(1), v = random(1), out = std::vector<float>(heads * n * width, 1.0F);
  gnomon::KeyIntervals causal = [] {
    gnomon::MaskOptions wanted;
    wanted.queries = wanted.keys = n;
    wanted.right = 0;
    return gnomon::key_intervals(wanted);
  }();
  gnomon::AttentionOptions options;

  MemoryOfAttention() { options.mask = &causal; }

  static std::vector<float> random(std::int64_t number) {
    std::mt19937 bits(7);
    std::vector<float> result(static_cast<std::size_t>(number * n * width));
    for (auto& x : result) x = std::uniform_real_distribution<float>(-1, 1)(bits);
    return result;
  }
  gnomon::ConstTensorView view(const std::vector<float>& x) const {
    const auto number = static_cast<std::int64_t>(x.size()) / (n * width);
    return {x.data(), DType::f32, {1, number, n, width}, {number * n * width, n * width, width, 1}};
  }
  void run() {
    gnomon::attention(view(q), view(k), view(v), {out.data(), DType::f32, {1, heads, n, width}, {heads * n * width, n * width, width, 1}},
                      options);
  }
  void expect_linear(const char* what) {
    const auto bytes = added_at_peak([&] { run(); });
    if (!bytes) GTEST_SKIP() << "this system does not tell a process its peak";
    constexpr std::int64_t scratch = 2 << 20, linear = heads * n * 3 * sizeof(float);
    EXPECT_LE(*bytes, scratch + linear);
    std::cout << "[ measured ] " << what << ": " << static_cast<double>(*bytes) / (1 << 20) << " MiB beside inputs and output\n";
  }
};

TEST_F(MemoryOfAttention, ByDistance) {
  const gnomon::BiasTable tables[] = {gnomon::SlopeBias{{1e-5F}, false},
                                      gnomon::DistanceBias{heads, -n, n, std::vector<float>(heads * n, 0.25F)}};
  options.bias = tables;
  expect_linear("a slope and a row of distances");
}

TEST_F(MemoryOfAttention, Fire) {
  const gnomon::BiasTable fire = gnomon::FireBias{heads, 0.1F, 16, 1e-6F, {1, -2, 3}, {0, 1, -0.5F}, {0.5F, -1, 1}, {0.25F}};
  options.bias = {&fire, 1};
  expect_linear("FIRE");
}

TEST_F(MemoryOfAttention, RotatedOnLoad) {
  const auto frequencies = gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = width, .rotary_dim = width});
  const gnomon::RotationOnLoad rotation{{frequencies}, gnomon::Range{0, n}};
  options.rotate_queries = options.rotate_keys = rotation;
  expect_linear("rotated on load");
}

}  // namespace
