// SPDX-License-Identifier: Apache-2.0
#include "kernels/plain.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/plain.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <bool ahead>
void touch(std::uint32_t* x, std::int64_t words) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto bit = hn::Set(d, 1u);
  for (std::int64_t i = 0; i < words; i += 4 * lanes) {
    if constexpr (ahead) {
      for (std::int64_t line = 0; line < 4 * lanes; line += 16) hwy::Prefetch(x + i + 1024 + line);
    }
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    const auto c = hn::LoadU(d, x + i + 2 * lanes), e = hn::LoadU(d, x + i + 3 * lanes);
    hn::StoreU(hn::Xor(a, bit), d, x + i);
    hn::StoreU(hn::Xor(b, bit), d, x + i + lanes);
    hn::StoreU(hn::Xor(c, bit), d, x + i + 2 * lanes);
    hn::StoreU(hn::Xor(e, bit), d, x + i + 3 * lanes);
  }
}

template <bool ahead>
std::uint32_t take(const std::uint32_t* x, std::int64_t words) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::int64_t i = 0; i < words; i += 4 * lanes) {
    if constexpr (ahead) {
      for (std::int64_t line = 0; line < 4 * lanes; line += 16) hwy::Prefetch(x + i + 1024 + line);
    }
    a = hn::Xor(a, hn::LoadU(d, x + i));
    b = hn::Xor(b, hn::LoadU(d, x + i + lanes));
    c = hn::Xor(c, hn::LoadU(d, x + i + 2 * lanes));
    e = hn::Xor(e, hn::LoadU(d, x + i + 3 * lanes));
  }
  HWY_ALIGN std::uint32_t all[HWY_MAX_BYTES / sizeof(std::uint32_t)];
  hn::Store(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)), d, all);
  std::uint32_t result = 0;
  for (std::int64_t i = 0; i < lanes; i++) result ^= all[i];
  return result;
}

std::uint32_t run_take(const std::uint32_t* x, std::int64_t words, bool ahead) {
  return ahead ? take<true>(x, words) : take<false>(x, words);
}

void run_touch(std::uint32_t* x, std::int64_t words, bool ahead) { ahead ? touch<true>(x, words) : touch<false>(x, words); }

/// Twelve sums hide the latency and fit the registers of every target. Not to be inlined: within a larger function GCC 12 keeps one of them
/// in memory.
HWY_NOINLINE double run_products(std::int64_t rounds) {
  constexpr int sums = 12;
  const hn::ScalableTag<float> d;
  const auto half = hn::Set(d, 0.5f);
  // Each its own number, or a compiler adds equal ones up once.
  const auto start = [&](float number) HWY_ATTR { return hn::Set(d, number); };
  auto a = start(0), b = start(1), c = start(2), e = start(3), f = start(4), g = start(5), h = start(6), i = start(7), j = start(8),
       k = start(9), l = start(10), m = start(11);
  for (std::int64_t round = 0; round < rounds; round++) {
    for (auto* x : {&a, &b, &c, &e, &f, &g, &h, &i, &j, &k, &l, &m}) *x = hn::MulAdd(*x, half, half);
  }
  auto total = a;
  for (const auto* x : {&b, &c, &e, &f, &g, &h, &i, &j, &k, &l, &m}) total = hn::Add(total, *x);
  HWY_ALIGN volatile float kept = hn::GetLane(total);
  (void)kept;
  return 2.0 * sums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(run_touch);
HWY_EXPORT(run_take);
HWY_EXPORT(run_products);

void read_and_write(void* data, std::int64_t bytes, bool prefetch) {
  HWY_DYNAMIC_DISPATCH(run_touch)(static_cast<std::uint32_t*>(data), bytes / 4, prefetch);
}

std::uint32_t read(const void* data, std::int64_t bytes, bool prefetch) {
  return HWY_DYNAMIC_DISPATCH(run_take)(static_cast<const std::uint32_t*>(data), bytes / 4, prefetch);
}

double multiply_and_add(std::int64_t rounds) { return HWY_DYNAMIC_DISPATCH(run_products)(rounds); }

#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
namespace {

__attribute__((target("avx512f,avx512bf16"), noinline)) double products_of_pairs(std::int64_t rounds) {
  constexpr int sums = 12;
  __m512 sum[sums];
#pragma GCC unroll 12
  for (int i = 0; i < sums; i++) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const auto ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  for (std::int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
    for (auto& x : sum) x = _mm512_dpbf16_ps(x, ones, ones);
  }
  float total = 0;
#pragma GCC unroll 12
  for (auto& x : sum) total += _mm512_reduce_add_ps(x);
  volatile float kept = total;
  (void)kept;
  return 4.0 * sums * 16 * static_cast<double>(rounds);
}

}  // namespace

double multiply_and_add_pairs(std::int64_t rounds) { return __builtin_cpu_supports("avx512bf16") ? products_of_pairs(rounds) : 0; }
#else
double multiply_and_add_pairs(std::int64_t) { return 0; }
#endif

}  // namespace gnomon::kernels
#endif
