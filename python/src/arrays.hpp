// SPDX-License-Identifier: Apache-2.0
// Arrays as Python hands them in.
#pragma once

#include <fmt/format.h>

#include "bindings.hpp"

namespace nb = nanobind;

[[noreturn]] inline void refuse(const std::string& message) { throw gnomon::Error(gnomon::ErrorCode::invalid_argument, message); }

inline gnomon::DType dtype_of_array(std::string_view name, const nb::dlpack::dtype& dtype, const std::optional<std::string>& stated) {
  if (dtype == nb::dtype<double>()) return gnomon::DType::f64;
  if (dtype == nb::dtype<float>()) return gnomon::DType::f32;
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  if (dtype.bits == 16 && code == nb::dlpack::dtype_code::Bfloat) return gnomon::DType::bf16;
  if (dtype.bits == 16 && code == nb::dlpack::dtype_code::Float) return gnomon::DType::f16;
  if (dtype == nb::dtype<std::uint16_t>() && stated == "bf16") return gnomon::DType::bf16;
  refuse(fmt::format("{}: expected float64, float32, float16, bfloat16, or uint16 with dtype=\"bf16\", got code {} with {} bits", name,
                     dtype.code, dtype.bits));
}

/// Arrays are taken as they are: a silent copy would lose what is written.
template <class Array>
Array array_of(std::string_view name, nb::handle object, const char* expected) {
  Array array;
  if (!nb::try_cast(object, array, false)) {
    refuse(fmt::format("{}: expected {} on the CPU (NumPy or DLPack), got {}", name, expected, nb::repr(object.type()).c_str()));
  }
  return array;
}

/// (B,H,T,D) as the core sees it.
template <class Array>
gnomon::TensorView view_of(std::string_view name, const Array& array, const std::optional<std::string>& stated) {
  if (array.ndim() != 4) refuse(fmt::format("{}: expected 4 axes (B, H, T, D), got {}", name, array.ndim()));
  gnomon::TensorView view;
  view.data = const_cast<void*>(static_cast<const void*>(array.data()));
  view.dtype = dtype_of_array(name, array.dtype(), stated);
  for (std::size_t axis = 0; axis < 4; axis++) {
    view.shape[axis] = static_cast<std::int64_t>(array.shape(axis));
    view.strides[axis] = array.stride(axis);
  }
  if (array.size() == 0) view.strides[3] = 1;  // NumPy says 0
  return view;
}
