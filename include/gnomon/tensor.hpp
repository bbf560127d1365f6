// SPDX-License-Identifier: Apache-2.0
// ① Tensors: borrowed, strided views of the caller's memory. The API has one axis order, (B,H,T,D); any memory order is a
// permutation of the strides. Nothing here owns or allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gnomon {

/// Element types. bf16 is the upper half of an f32; f16 is IEEE binary16.
enum class DType { f64, f32, bf16, f16 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) { return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2; }

/// "f64", "f32", "bf16" or "f16".
constexpr std::string_view name_of(DType dtype) {
  return dtype == DType::f64 ? "f64" : dtype == DType::f32 ? "f32" : dtype == DType::bf16 ? "bf16" : "f16";
}

/// The inverse of name_of. Throws Error(invalid_argument) that lists the four names.
DType dtype_of(std::string_view name);

/// A writable view. Strides count elements, may be negative, and the last one must be 1 where an operation says so.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> shape{};    // (B,H,T,D)
  std::array<std::int64_t, 4> strides{};  // in elements
};

/// A read-only view; a TensorView converts to it.
struct ConstTensorView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> shape{};    // (B,H,T,D)
  std::array<std::int64_t, 4> strides{};  // in elements

  ConstTensorView() = default;
  ConstTensorView(const void* data_, DType dtype_, std::array<std::int64_t, 4> shape_, std::array<std::int64_t, 4> strides_)
      : data(data_), dtype(dtype_), shape(shape_), strides(strides_) {}
  ConstTensorView(const TensorView& view) : data(view.data), dtype(view.dtype), shape(view.shape), strides(view.strides) {}
};

}  // namespace gnomon
