// SPDX-License-Identifier: Apache-2.0
// Arrays as Python hands them in.
#pragma once

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <span>

#include "bindings.hpp"

namespace nb = nanobind;

[[noreturn]] inline void refuse(const std::string& message) { throw gnomon::Error(gnomon::ErrorCode::invalid_argument, message); }

/// "float32", as NumPy and torch say it.
std::string name_of_dtype(const nb::dlpack::dtype& dtype);

gnomon::DType dtype_of_array(std::string_view name, const nb::dlpack::dtype& dtype, const std::optional<std::string>& stated);

/// A `dtype` that says what the 16-bit integers of a call hold, where no array of it has that dtype, is a mistake.
void check_stated(const std::optional<std::string>& stated, std::initializer_list<gnomon::DType> found);

/// What an object is that was not taken: its type, or what may be wrong with an array of NumPy.
std::string description_of(nb::handle object);

/// Arrays are taken as they are: a silent copy would lose what is written.
template <class Array>
Array array_of(std::string_view name, nb::handle object, const char* expected) {
  Array array;
  if (!nb::try_cast(object, array, false)) {
    refuse(fmt::format("{}: expected {} on the CPU (NumPy or DLPack), got {}", name, expected, description_of(object)));
  }
  return array;
}

/// The view of an array whose axes are the last ones of `places`; the other axes of the view have the extent 1.
template <class Array>
gnomon::TensorView placed(const Array& array, gnomon::DType dtype, std::span<const std::size_t> places) {
  gnomon::TensorView view{const_cast<void*>(static_cast<const void*>(array.data())), dtype, {1, 1, 1, 1}, {}};
  places = places.last(array.ndim());
  for (std::size_t axis = 0; axis < places.size(); axis++) {
    view.shape[places[axis]] = static_cast<std::int64_t>(array.shape(axis));
    view.strides[places[axis]] = array.stride(axis);
  }
  if (array.size() == 0) view.strides[3] = 1;  // NumPy says 0
  return view;
}
inline constexpr std::array<std::size_t, 4> every_axis{0, 1, 2, 3};

/// Of a matrix. NumPy gives the axes of an empty one the stride 0.
template <class Array>
bool has_contiguous_rows(const Array& array) {
  return array.size() == 0 || array.shape(1) == 1 || array.stride(1) == 1;
}

/// (B,H,T,D) as the core sees it.
template <class Array>
gnomon::TensorView view_of(std::string_view name, const Array& array, const std::optional<std::string>& stated) {
  if (array.ndim() != 4) refuse(fmt::format("{}: expected 4 axes (B, H, T, D), got {}", name, array.ndim()));
  return placed(array, dtype_of_array(name, array.dtype(), stated), every_axis);
}

/// Whole numbers of any integer type, one after the other, and their shape.
struct WholeArray {
  std::vector<std::int64_t> values;
  std::vector<std::int64_t> shape;
};

/// Reals are refused, not truncated, and so is what 64 bits do not hold.
WholeArray whole_array(std::string_view name, nb::handle object);
WholeArray whole_array(std::string_view name, nb::handle object, std::size_t axes);

std::vector<std::int32_t> small_numbers_of(std::string_view name, const WholeArray& numbers);

/// Pages of every row of the batch, (B, blocks), row by row; empty for None.
std::vector<std::int32_t> block_table_of(nb::handle object, std::int64_t batch);
