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

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(run_touch);
HWY_EXPORT(run_take);

void read_and_write(void* data, std::int64_t bytes, bool prefetch) {
  HWY_DYNAMIC_DISPATCH(run_touch)(static_cast<std::uint32_t*>(data), bytes / 4, prefetch);
}

std::uint32_t read(const void* data, std::int64_t bytes, bool prefetch) {
  return HWY_DYNAMIC_DISPATCH(run_take)(static_cast<const std::uint32_t*>(data), bytes / 4, prefetch);
}

}  // namespace gnomon::kernels
#endif
