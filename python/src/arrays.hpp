// SPDX-License-Identifier: Apache-2.0
// Arrays as Python hands them in.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

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

/// Whole numbers of any integer type, one after the other, and their shape.
struct WholeArray {
  std::vector<std::int64_t> values;
  std::vector<std::int64_t> shape;
};

/// Reals are refused, not truncated, and so is what 64 bits do not hold.
inline WholeArray whole_array(std::string_view name, nb::handle object) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object array = numpy.attr("asarray")(object);
  WholeArray result{{}, nb::cast<std::vector<std::int64_t>>(array.attr("shape"))};
  if (nb::cast<std::size_t>(array.attr("size")) == 0) return result;  // NumPy calls an empty list float64
  if (!nb::cast<bool>(numpy.attr("can_cast")(array.attr("dtype"), "int64"))) {
    for (nb::handle item : array.attr("ravel")().attr("tolist")()) {
      std::int64_t number = 0;
      if (!nb::isinstance<nb::int_>(item) || !nb::try_cast(item, number))
        refuse(fmt::format("{}: expected whole numbers of 64 bits, got {}", name, nb::repr(item).c_str()));
    }
  }
  const auto flat = array.attr("astype")("int64").attr("ravel")();
  const auto values = nb::cast<nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(flat);
  result.values.assign(values.data(), values.data() + values.size());
  return result;
}

inline WholeArray whole_array(std::string_view name, nb::handle object, std::size_t axes) {
  auto result = whole_array(name, object);
  if (result.shape.size() != axes) refuse(fmt::format("{}: expected {} axes, got {}", name, axes, result.shape.size()));
  return result;
}

inline std::vector<std::int32_t> small_numbers_of(std::string_view name, const WholeArray& numbers) {
  std::vector<std::int32_t> result;
  for (const auto number : numbers.values) {
    if (number < std::numeric_limits<std::int32_t>::min() || number > std::numeric_limits<std::int32_t>::max())
      refuse(fmt::format("{}: expected 32-bit numbers, got {}", name, number));
    result.push_back(static_cast<std::int32_t>(number));
  }
  return result;
}

/// Pages of every row of the batch, (B, blocks), row by row; empty for None.
inline std::vector<std::int32_t> block_table_of(nb::handle object, std::int64_t batch) {
  if (object.is_none()) return {};
  const auto pages = whole_array("block_table", object);
  if (pages.shape.size() != 2 || pages.shape[0] != batch)
    refuse(fmt::format("block_table: expected shape ({}, blocks), got ({})", batch, fmt::join(pages.shape, ", ")));
  return small_numbers_of("block_table", pages);
}
