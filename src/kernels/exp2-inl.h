// SPDX-License-Identifier: Apache-2.0
// The functions of scores: 2^t for weights, tanh for the softcap. Compiled once per CPU target.

#if defined(GNOMON_KERNELS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_KERNELS_EXP2_INL_H_
#undef GNOMON_KERNELS_EXP2_INL_H_
#else
#define GNOMON_KERNELS_EXP2_INL_H_
#endif

#include "kernels/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

/// 2^t for t <= 0, within 2e-7 relative; exactly 0 below -125.5, so that -inf leaves nothing; NaN stays. Nothing is subnormal: products of
/// such numbers take a CPU a hundred times as long.
HWY_INLINE VF exp2_of_nonpositive(VF t) {
  const F f;
  // Rounds to a whole number n and leaves n + 126 in the lower bits: the exponent of 2^(n - 1), and of 0 where n = -126. The polynomial is
  // that of 2 * 2^x.
  const VF magic = hn::Set(f, 0x1.8p23f + 126), least = hn::Set(f, -126.0f);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  t = hn::Max(least, t);  // in this order x86 keeps a NaN; the maximum of others drops it
#else
  t = hn::IfThenElse(hn::Lt(t, least), least, t);
#endif
  const VF rounded = hn::Add(t, magic);
  const VF x = hn::Sub(t, hn::Sub(rounded, magic));
  VF p = hn::MulAdd(hn::Set(f, 2 * 1.3264728e-3f), x, hn::Set(f, 2 * 9.671513e-3f));
  p = hn::MulAdd(p, x, hn::Set(f, 2 * 5.5507332e-2f));
  p = hn::MulAdd(p, x, hn::Set(f, 2 * 2.4022244e-1f));
  p = hn::MulAdd(p, x, hn::Set(f, 2 * 6.93147e-1f));
  p = hn::MulAdd(p, x, hn::Set(f, 2.0f));
  return hn::Mul(p, hn::BitCast(f, hn::ShiftLeft<23>(hn::BitCast(U(), rounded))));
}

/// tanh within 2e-7 relative.
HWY_INLINE VF tanh_of(VF x) {
  const F f;
  const VF z = hn::Mul(x, x), size = hn::Abs(x);
  VF p = hn::MulAdd(hn::Set(f, -0x1.84d2e6p-8f), z, hn::Set(f, 0x1.561e9ap-6f));
  p = hn::MulAdd(p, z, hn::Set(f, -0x1.b8f0fcp-5f));
  p = hn::MulAdd(p, z, hn::Set(f, 0x1.110d3ap-3f));
  p = hn::MulAdd(p, z, hn::Set(f, -0x1.555552p-2f));
  const VF small = hn::MulAdd(hn::Mul(p, z), x, x);
  const VF e = exp2_of_nonpositive(hn::Mul(size, hn::Set(f, -2.8853901f))), one = hn::Set(f, 1.0f);  // -2 log2(e)
  const VF large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(f, 0.65f)), small, large);
}

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
