// SPDX-License-Identifier: Apache-2.0
// cos and sin of integer phases, in float32 vectors; compiled once per CPU target.

#if defined(GNOMON_KERNELS_COS_SIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_KERNELS_COS_SIN_INL_H_
#undef GNOMON_KERNELS_COS_SIN_INL_H_
#else
#define GNOMON_KERNELS_COS_SIN_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The upper half of the 64-bit products of 32-bit lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V upper_product(D d, V a, V b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, static_cast<std::uint32_t>((std::uint64_t{hn::GetLane(a)} * hn::GetLane(b)) >> 32));
#else
  const hn::RepartitionToWide<D> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd =
      hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, b))));
  return hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
#endif
}

/// cos and sin of phases given by their upper 32 bits, in units of 2^-32 turn. The quadrant is split off as an integer and the rest,
/// within ±1/8 turn, goes to polynomials of degree 8 and 7. Absolute error below 1.2e-7, the dropped lower bits included.
template <class DF, class VU, class VF = hn::Vec<DF>>
HWY_INLINE void cos_sin(DF df, VU phase, VF& cosine, VF& sine) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  // Without its top two bits a phase is, as a signed number, the distance from the nearest quadrant. The lower 32 bits of the phase are
  // gone: below 1.5e-9 rad.
  const VF x = hn::Mul(hn::ConvertTo(df, hn::BitCast(di, hn::ShiftLeft<2>(phase))), hn::Set(df, 0x1.921fb6p-32f));  // 2 pi * 2^-34
  const VF x2 = hn::Mul(x, x);
  VF s = hn::MulAdd(hn::Set(df, -1.9515295891e-4f), x2, hn::Set(df, 8.3321608736e-3f));
  s = hn::MulAdd(s, x2, hn::Set(df, -1.6666654611e-1f));
  s = hn::MulAdd(hn::Mul(s, x2), x, x);
  VF c = hn::MulAdd(hn::Set(df, 2.443315711809948e-5f), x2, hn::Set(df, -1.388731625493765e-3f));
  c = hn::MulAdd(c, x2, hn::Set(df, 4.166664568298827e-2f));
  c = hn::MulAdd(c, x2, hn::Set(df, -0.5f));
  c = hn::MulAdd(c, x2, hn::Set(df, 1.0f));
  // With an eighth of a turn added, they are the number of that quadrant.
  const VU quadrant = hn::Add(phase, hn::Set(du, 0x20000000u)), next = hn::Add(phase, hn::Set(du, 0x60000000u));
  const VU sign = hn::Set(du, 0x80000000u);
  const auto odd = hn::RebindMask(df, hn::TestBit(quadrant, hn::Set(du, 0x40000000u)));
  cosine = hn::Xor(hn::IfThenElse(odd, s, c), hn::BitCast(df, hn::And(next, sign)));
  sine = hn::Xor(hn::IfThenElse(odd, c, s), hn::BitCast(df, hn::And(quadrant, sign)));
}

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
