// SPDX-License-Identifier: Apache-2.0
// The add-rows kernel: one source, compiled for every CPU target and chosen at run time.
#include "kernels/embed.hpp"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embed.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

template <class X, class Row>
void add(const AddRow& job, std::int64_t width) {
  const auto* x = static_cast<const typename X::Element*>(job.x);
  const auto* row = static_cast<const typename Row::Element*>(job.row);
  auto* out = static_cast<typename X::Element*>(job.out);
  constexpr bool narrows = sizeof(typename X::Element) < sizeof(typename Row::Element);
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
  const VF x_scale = hn::Set(F(), job.x_scale), row_scale = hn::Set(F(), job.row_scale);
  for (; i + lanes <= width; i += lanes) {
    // Two products and a sum, not a fused one: the elements of a tail and of every target come out the same.
    const VF sum = hn::Add(hn::Mul(X::load(x + i), x_scale), hn::Mul(Row::load(row + i), row_scale));
    X::store(narrows ? plain_nan(sum) : sum, out + i);
  }
#endif
  for (; i < width; i++) {
    const float from_x = X::widen(x[i]) * job.x_scale, from_row = Row::widen(row[i]) * job.row_scale;
    out[i] = X::narrow(narrows ? plain_nan(from_x + from_row) : from_x + from_row);
  }
}

template <class X>
void add_to(DType row_dtype, const AddRow& job, std::int64_t width) {
  if (row_dtype == DType::f32) return add<X, ElementsF32>(job, width);
  if (row_dtype == DType::bf16) return add<X, ElementsBf16>(job, width);
  add<X, ElementsF16>(job, width);
}

void run_add_row(DType x_dtype, DType row_dtype, const AddRow& job, std::int64_t width) {
  if (x_dtype == DType::f32) return add_to<ElementsF32>(row_dtype, job, width);
  if (x_dtype == DType::bf16) return add_to<ElementsBf16>(row_dtype, job, width);
  add_to<ElementsF16>(row_dtype, job, width);
}

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(run_add_row);

void add_row(DType x_dtype, DType row_dtype, const AddRow& job, std::int64_t width) {
  HWY_DYNAMIC_DISPATCH(run_add_row)(x_dtype, row_dtype, job, width);
}

}  // namespace gnomon::kernels
#endif
