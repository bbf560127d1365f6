// SPDX-License-Identifier: Apache-2.0
// Elements of every kernel dtype as float32 vectors: read, and written rounded once to nearest even. Compiled once per CPU target.

#if defined(GNOMON_KERNELS_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_KERNELS_ELEMENTS_INL_H_
#undef GNOMON_KERNELS_ELEMENTS_INL_H_
#else
#define GNOMON_KERNELS_ELEMENTS_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

// Conversions of f16 in hardware, to nearest even. Elsewhere Highway 1.0.3 truncates, so the bits are worked out here.
#undef GNOMON_NATIVE_F16
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_TARGET == HWY_NEON
#define GNOMON_NATIVE_F16 1
#else
#define GNOMON_NATIVE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using U = hn::RebindToUnsigned<F>;
using I = hn::RebindToSigned<F>;
using VF = hn::Vec<F>;
using VU = hn::Vec<U>;

/// A NaN of the caller's float32 without what its lower half holds, which would carry into the upper one where bf16 is rounded.
HWY_INLINE float plain_nan(float value) { return value == value ? value : std::numeric_limits<float>::quiet_NaN(); }
HWY_INLINE VF plain_nan(VF value) {
  return hn::IfThenElse(hn::Eq(value, value), value, hn::Set(F(), std::numeric_limits<float>::quiet_NaN()));
}

/// f32 to bf16 in the upper half of each lane, to nearest even; the lower half is rubbish. A NaN has a lower half of zeros where the
/// 16-bit elements it comes from had, so the sum cannot carry into its upper half and it stays one; others pass through plain_nan.
HWY_INLINE VU round_bf16(VF value) {
  const U u;
  const auto bits = hn::BitCast(u, value);
  return hn::Add(hn::Add(bits, hn::Set(u, 0x7fffu)), hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u)));
}

struct ElementsF32 {
  using Element = float;
  static HWY_INLINE VF load(const float* x) { return hn::LoadU(F(), x); }
  static HWY_INLINE void store(VF value, float* x) { hn::StoreU(value, F(), x); }
  static float widen(float value) { return value; }
  static float narrow(float value) { return value; }
};

struct ElementsBf16 {
  using Element = std::uint16_t;
  static float widen(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }
  static std::uint16_t narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((value != value ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
#if HWY_TARGET != HWY_SCALAR
  using H = hn::Rebind<std::uint16_t, F>;
  static HWY_INLINE VF load(const std::uint16_t* x) { return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(U(), hn::LoadU(H(), x)))); }
  static HWY_INLINE void store(VF value, std::uint16_t* x) {
    hn::StoreU(hn::DemoteTo(H(), hn::BitCast(I(), hn::ShiftRight<16>(round_bf16(value)))), H(), x);
  }
#endif
};

struct ElementsF16 {
  using Element = std::uint16_t;
  static float widen(std::uint16_t value) {
    const std::uint32_t sign = (value & 0x8000u) << 16, size = value & 0x7fffu;
    if (size < 0x400) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-24f) | sign);
    return std::bit_cast<float>(((size << 13) + (size >= 0x7c00 ? 0x70000000u : 0x38000000u)) | sign);
  }
  static std::uint16_t narrow(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value), size = bits & 0x7fffffffu;
    std::uint32_t result;
    if (size > 0x7f800000u)
      result = 0x7e00;
    else if (size >= 0x477ff000u)
      result = 0x7c00;  // 65520: half way to what would be 2^16
    else if (size < 0x38800000u)
      result = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;  // units of 2^-24
    else
      result = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
    return static_cast<std::uint16_t>(result | ((bits >> 16) & 0x8000u));
  }
#if GNOMON_NATIVE_F16
  using H = hn::Rebind<hwy::float16_t, F>;
  static HWY_INLINE VF load(const std::uint16_t* x) {
    return hn::PromoteTo(F(), hn::LoadU(H(), reinterpret_cast<const hwy::float16_t*>(x)));
  }
  static HWY_INLINE void store(VF value, std::uint16_t* x) {
    hn::StoreU(hn::DemoteTo(H(), value), H(), reinterpret_cast<hwy::float16_t*>(x));
  }
#elif HWY_TARGET != HWY_SCALAR
  using H = hn::Rebind<std::uint16_t, F>;
  static HWY_INLINE VF load(const std::uint16_t* x) {
    const U u;
    const auto bits = hn::PromoteTo(u, hn::LoadU(H(), x));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(u, 0x8000u))), size = hn::And(bits, hn::Set(u, 0x7fffu));
    const auto small = hn::BitCast(u, hn::Mul(hn::ConvertTo(F(), hn::BitCast(I(), size)), hn::Set(F(), 0x1p-24f)));
    const auto shifted = hn::ShiftLeft<13>(size);
    const auto normal = hn::Add(shifted, hn::Set(u, 0x38000000u)), special = hn::Or(shifted, hn::Set(u, 0x7f800000u));
    const auto finite = hn::IfThenElse(hn::Gt(hn::Set(u, 0x400u), size), small, normal);
    return hn::BitCast(F(), hn::Or(hn::IfThenElse(hn::Gt(size, hn::Set(u, 0x7bffu)), special, finite), sign));
  }
  static HWY_INLINE void store(VF value, std::uint16_t* x) {
    const U u;
    const auto bits = hn::BitCast(u, value), size = hn::And(bits, hn::Set(u, 0x7fffffffu));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000u));
    const auto small =
        hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(F(), size), hn::Set(F(), 0.5f))), hn::Set(u, 0x3f000000u));  // units of 2^-24
    const auto tie = hn::And(hn::ShiftRight<13>(size), hn::Set(u, 1u));
    auto result = hn::ShiftRight<13>(hn::Add(hn::Sub(size, hn::Set(u, 0x38000000u - 0xfffu)), tie));
    result = hn::IfThenElse(hn::Gt(hn::Set(u, 0x38800000u), size), small, result);
    result = hn::IfThenElse(hn::Gt(size, hn::Set(u, 0x477fefffu)), hn::Set(u, 0x7c00u), result);
    result = hn::IfThenElse(hn::Gt(size, hn::Set(u, 0x7f800000u)), hn::Set(u, 0x7e00u), result);
    hn::StoreU(hn::DemoteTo(H(), hn::BitCast(I(), hn::Or(result, sign))), H(), x);
  }
#endif
};

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
