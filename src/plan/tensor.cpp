// SPDX-License-Identifier: Apache-2.0
#include "gnomon/tensor.hpp"

#include <fmt/format.h>

#include "gnomon/error.hpp"

namespace gnomon {

DType dtype_of(std::string_view name) {
  for (const auto dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("dtype: expected f64 | f32 | bf16 | f16, got \"{}\"", name));
}

}  // namespace gnomon
