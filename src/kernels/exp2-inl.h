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

/// 2^t for t <= 0, within 2e-7 relative; exactly 0 below -126, so that -inf leaves nothing; NaN stays.
HWY_INLINE VF exp2_of_nonpositive(VF t) {
  const F f;
  const VF magic = hn::Set(f, 0x1.8p23f + 127);  // rounds to a whole number and leaves it, biased as an exponent, in the lower bits
  const VF rounded = hn::Add(t, magic);
  const VF x = hn::Sub(t, hn::Sub(rounded, magic));
  VF p = hn::MulAdd(hn::Set(f, 1.5461448e-4f), x, hn::Set(f, 1.3390867e-3f));
  p = hn::MulAdd(p, x, hn::Set(f, 9.6180569e-3f));
  p = hn::MulAdd(p, x, hn::Set(f, 5.5503570e-2f));
  p = hn::MulAdd(p, x, hn::Set(f, 2.4022651e-1f));
  p = hn::MulAdd(p, x, hn::Set(f, 6.9314718e-1f));
  p = hn::MulAdd(p, x, hn::Set(f, 1.0f));
  const VF power = hn::BitCast(f, hn::ShiftLeft<23>(hn::BitCast(U(), rounded)));
  return hn::IfThenZeroElse(hn::Lt(t, hn::Set(f, -126.0f)), hn::Mul(p, power));
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
