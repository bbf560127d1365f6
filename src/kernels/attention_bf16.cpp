// SPDX-License-Identifier: Apache-2.0
// Attention in bf16 where the CPU multiplies pairs of bf16 (VDPBF16PS): the tiles of attention-inl.h hold two in each word. Queries, keys
// and values stay what they are; weights are rounded to bf16, and their sum is that of the rounded ones. Sums are float32.
#include "kernels/attention.hpp"
#include "kernels/attention_plan.hpp"
#include "kernels/attention_tables.hpp"

// One target is wanted; the baseline cannot be left out.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX2)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_bf16.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/elements-inl.h"

#if HWY_ARCH_X86 && HWY_TARGET == HWY_AVX3
// Functions of this file are compiled for one instruction more than the target has; they are called where the CPU has it.
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
#include "kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {
namespace {

HWY_INLINE __m512bh pairs_of(VF words) { return (__m512bh)_mm512_castps_si512(words.raw); }

/// As exp2_of_nonpositive, but within 2e-4: a rounding to bf16 follows, which is ten times that.
HWY_INLINE VF rough_exp2_of_nonpositive(VF t) {
  const F f;
  const VF magic = hn::Set(f, 0x1.8p23f + 126);
  t = hn::Max(hn::Set(f, -126.0f), t);
  const VF rounded = hn::Add(t, magic);
  const VF x = hn::Sub(t, hn::Sub(rounded, magic));
  VF p = hn::MulAdd(hn::Set(f, 2 * 0.05583834f), x, hn::Set(f, 2 * 0.24203594f));
  p = hn::MulAdd(p, x, hn::Set(f, 2 * 0.69313675f));
  p = hn::MulAdd(p, x, hn::Set(f, 2.0f));
  return hn::Mul(p, hn::BitCast(f, hn::ShiftLeft<23>(hn::BitCast(U(), rounded))));
}

struct Paired {
  using Elements = ElementsBf16;
  using Element = std::uint16_t;
  using Rotated = std::uint16_t;
  static constexpr int keys = 2;
  static constexpr bool scales_queries = false;  // the scale would round them
  static std::int64_t words(std::int64_t channels) { return (channels + 1) / 2; }
  static bool reads_in_place(const Element* k, const AttentionJob& job) {
    return job.width % 2 == 0 && job.k.strides[2] % 2 == 0 && reinterpret_cast<std::uintptr_t>(k) % sizeof(float) == 0;
  }
  static HWY_INLINE VF dot(VF sum, VF a, VF b) { return VF{_mm512_dpbf16_ps(sum.raw, pairs_of(a), pairs_of(b))}; }

  static void read_row(const Element* x, std::int64_t channels, float* to) {
    auto* elements = reinterpret_cast<Element*>(to);
    std::copy_n(x, channels, elements);
    std::fill(elements + channels, elements + 2 * round_up(words(channels), 4), Element{0});
  }

  /// Two rows become one of pairs; after an odd last row come zeros.
  static HWY_NOINLINE VF pack_panel(const Element* x, std::int64_t stride, std::int64_t rows, std::int64_t number, float* to) {
    VF unusual = hn::Zero(F());
    Element zeros[block_lanes] = {}, padded[2][block_lanes] = {};
    for (std::int64_t row = 0; row < rows; row += 2, to += block_lanes) {
      const Element *first = x + row * stride, *second = row + 1 < rows ? first + stride : zeros;
      if (number < block_lanes) {
        std::copy_n(first, number, padded[0]);
        std::copy_n(second, number, padded[1]);
        first = padded[0];
        second = padded[1];
      }
      for (std::int64_t d = 0; d < round_up(number, lanes); d += lanes) {
        const VF low = ElementsBf16::load(first + d), high = ElementsBf16::load(second + d);
        unusual = hn::Add(unusual, hn::Add(hn::Sub(low, low), hn::Sub(high, high)));
        hn::Store(hn::Or(high, hn::BitCast(F(), hn::ShiftRight<16>(hn::BitCast(U(), low)))), F(), to + d);
      }
    }
    return unusual;
  }
  static void clean(float* from, const float* end) {
    const auto is_finite = [](Element bits) { return (bits & 0x7f80) != 0x7f80; };
    for (auto* element = reinterpret_cast<Element*>(from); element != reinterpret_cast<const Element*>(end); element++)
      *element = is_finite(*element) ? *element : Element{0};
  }

  /// As weigh_rows; two rows of scores become one of pairs.
  static void weigh(const Tile& tile, float* maximum, float* sum, float* rescale) {
    const F f;
    const VF ones = hn::BitCast(f, hn::Set(U(), 0x3f803f80u));
    for (int c = 0; c < block_lanes; c += lanes) {
      const VF before = hn::Load(f, maximum + c), now = hn::Load(f, tile.maximum + c);
      const VF shift = hn::IfThenElse(hn::Eq(now, hn::Set(f, minus_infinity)), hn::Zero(f), now);
      const VF factor = exp2_of_nonpositive(hn::Sub(before, shift));
      VF sums = hn::Zero(f);
      const float* from = tile.scores + c;
      float* to = tile.scores + c;
      for (std::int64_t row = 0; row < tile.keys; row += 2, from += 2 * score_stride, to += score_stride) {
        const VF first = rough_exp2_of_nonpositive(hn::Sub(hn::Load(f, from), shift));
        const VF second = row + 1 < tile.keys ? rough_exp2_of_nonpositive(hn::Sub(hn::Load(f, from + score_stride), shift)) : hn::Zero(f);
        const VF pairs = interleaved(first, second);
        sums = dot(sums, pairs, ones);
        hn::Store(pairs, f, to);
      }
      hn::Store(now, f, maximum + c);
      hn::Store(factor, f, rescale + c);
      hn::Store(hn::MulAdd(hn::Load(f, sum + c), factor, sums), f, sum + c);
    }
  }
  static float weight(const Tile& tile, std::int64_t row, std::int64_t lane) {
    const auto* pairs = reinterpret_cast<const Element*>(tile.scores + row / 2 * score_stride + lane);
    return ElementsBf16::widen(pairs[row % 2]);
  }

 private:
  /// Rounded to nearest even, side by side in each word.
  static HWY_INLINE VF interleaved(VF first, VF second) {
    alignas(64) static constexpr std::uint16_t order[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const auto both = (__m512i)_mm512_cvtne2ps_pbh(second.raw, first.raw);
    return VF{_mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_load_si512(order), both))};
  }
};

}  // namespace

void run_paired(const AttentionJob& job) { run_units<Paired>(job); }

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace gnomon::kernels {

bool pairs_are_fast() {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
  // AMD's cores issue them as fast as float32 products, each worth two. On Intel's Sapphire Rapids they were measured at a quarter of that
  // rate, so that the widened kernel, which does not round its weights, is twice as fast there.
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
#else
  return false;
#endif
}

bool attention_in_pairs(const AttentionJob& job) {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
  if (job.dtype != DType::bf16 || !__builtin_cpu_supports("avx512bf16")) return false;
  N_AVX3::run_paired(job);
  return true;
#else
  (void)job;
  return false;
#endif
}

}  // namespace gnomon::kernels
#endif
