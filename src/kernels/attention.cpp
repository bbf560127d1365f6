// SPDX-License-Identifier: Apache-2.0
// The attention kernel: one source, compiled for every CPU target with vectors of a fixed size and chosen at run time.
#include "kernels/attention.hpp"

// Arrays of vectors are what its micro-tiles are made of; where vectors have no size, those of NEON run.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

void run_attention(const AttentionJob& job) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if (pairs_are_fast() && attention_in_pairs(job)) return;
#endif
  if (job.dtype == DType::f32) return run_units<Widened<ElementsF32>>(job);
  if (job.dtype == DType::bf16) return run_units<Widened<ElementsBf16>>(job);
  run_units<Widened<ElementsF16>>(job);
}

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(run_attention);

void attention(const AttentionJob& job) { HWY_DYNAMIC_DISPATCH(run_attention)(job); }

}  // namespace gnomon::kernels
#endif
