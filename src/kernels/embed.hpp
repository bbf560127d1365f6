// SPDX-License-Identifier: Apache-2.0
// What the add-rows kernels are given: plain pointers and numbers.
#pragma once

#include <cstdint>

#include "gnomon/tensor.hpp"

namespace gnomon::kernels {

/// out[k] = x_scale * x[k] + row_scale * row[k] for `width` elements; out has the dtype of x.
struct AddRow {
  const void* x;
  const void* row;
  void* out;
  float x_scale = 1, row_scale = 1;
};

/// f32, bf16 and f16, each in its own type. Float32 arithmetic, one rounding.
void add_row(DType x_dtype, DType row_dtype, const AddRow& job, std::int64_t width);

}  // namespace gnomon::kernels
