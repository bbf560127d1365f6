// SPDX-License-Identifier: Apache-2.0
// rotate against a plain in-place read and write of the same buffer, in the same run: only the ratio travels between machines.
// A wrong result gets no time: each case is checked against the double reference first.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gnomon/gnomon.hpp"

namespace {

constexpr std::int64_t heads = 40, head_dim = 128;  // 32 query and 8 key heads in one buffer

struct Case {
  std::vector<float> data;
  gnomon::TensorView view;
  gnomon::Frequencies frequencies;
  gnomon::Range positions;

  Case(std::int64_t tokens, gnomon::PairLayout layout) : data(static_cast<std::size_t>(heads * tokens * head_dim)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (auto& value : data) value = normal(random);
    view = {data.data(), gnomon::DType::f32, {1, heads, tokens, head_dim}, {heads * tokens * head_dim, tokens * head_dim, head_dim, 1}};
    gnomon::RotarySpec spec{gnomon::rotary::Default{}, 500000, head_dim, head_dim};
    spec.layout = layout;
    frequencies = gnomon::frequencies(spec);
    positions = {1'000'000, 1'000'000 + tokens};
  }

  bool right() {
    std::vector<float> expected(data.size()), got(data.size());
    const auto into = [&](std::vector<float>& to) { return gnomon::TensorView{to.data(), view.dtype, view.shape, view.strides}; };
    gnomon::reference::rotate(view, into(expected), frequencies, positions);
    gnomon::rotate(view, into(got), frequencies, positions);
    for (std::size_t i = 0; i < got.size(); i++) {
      if (!(std::abs(got[i] - expected[i]) < 5e-6F)) return false;
    }
    return true;
  }
};

/// Reads and writes every element once; the barrier keeps the loop from being removed.
void touch(std::vector<float>& data) {
  for (auto& value : data) value += 1.0F;
  benchmark::ClobberMemory();
}

template <class Body>
double best_seconds(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void rotate(benchmark::State& state, gnomon::PairLayout layout) {
  Case run(state.range(0), layout);
  if (!run.right()) {
    state.SkipWithError("wrong result");
    return;
  }
  double plain = HUGE_VAL, rotated = HUGE_VAL;
  for (auto _ : state) {
    plain = std::min(plain, best_seconds([&] { touch(run.data); }));
    rotated = std::min(rotated, best_seconds([&] { gnomon::rotate(run.view, run.frequencies, run.positions); }));
  }
  state.counters["ratio"] = plain / rotated;
  state.counters["GB/s"] = 2e-9 * static_cast<double>(run.data.size() * sizeof(float)) / rotated;
  state.SetLabel(std::string(gnomon::kernel_target()));
}

BENCHMARK_CAPTURE(rotate, f32_half_split, gnomon::PairLayout::half_split)->Arg(1)->Arg(32)->Arg(4096)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rotate, f32_interleaved, gnomon::PairLayout::interleaved)->Arg(1)->Arg(32)->Arg(4096)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
