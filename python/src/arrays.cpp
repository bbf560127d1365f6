// SPDX-License-Identifier: Apache-2.0
#include "arrays.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

std::string name_of_dtype(const nb::dlpack::dtype& dtype) {
  constexpr std::array kinds{"int", "uint", "float", "opaque", "bfloat", "complex"};  // in the order of DLPack's codes
  if (dtype == nb::dtype<bool>()) return "bool";
  if (dtype.code < kinds.size()) return fmt::format("{}{}", kinds[dtype.code], dtype.bits);
  return fmt::format("a dtype of {} bits", dtype.bits);
}

gnomon::DType dtype_of_array(std::string_view name, const nb::dlpack::dtype& dtype, const std::optional<std::string>& stated) {
  if (dtype == nb::dtype<double>()) return gnomon::DType::f64;
  if (dtype == nb::dtype<float>()) return gnomon::DType::f32;
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  if (dtype.bits == 16 && code == nb::dlpack::dtype_code::Bfloat) return gnomon::DType::bf16;
  if (dtype.bits == 16 && code == nb::dlpack::dtype_code::Float) return gnomon::DType::f16;
  if (dtype == nb::dtype<std::uint16_t>() && stated == "bf16") return gnomon::DType::bf16;
  refuse(
      fmt::format("{}: expected float64, float32, float16, bfloat16, or uint16 with dtype=\"bf16\", got {}", name, name_of_dtype(dtype)));
}

void check_stated(const std::optional<std::string>& stated, std::initializer_list<gnomon::DType> found) {
  if (!stated || std::ranges::find(found, gnomon::dtype_of(*stated)) != found.end()) return;
  refuse(fmt::format("dtype: expected none, or that of an array, got {} beside {}", *stated, gnomon::name_of(*found.begin())));
}

std::string description_of(nb::handle object) {
  if (!nb::isinstance(object, nb::module_::import_("numpy").attr("ndarray"))) return nb::repr(object.type()).c_str();
  const nb::object dtype = object.attr("dtype"), flags = object.attr("flags");
  const auto is = [](nb::handle owner, const char* property) { return nb::cast<bool>(owner.attr(property)); };
  return fmt::format("a{}{}{} {} array of shape {}", is(flags, "writeable") ? "" : " read-only",
                     is(flags, "c_contiguous") ? "" : " non-contiguous", is(dtype, "isnative") ? "" : " big-endian",
                     nb::cast<std::string>(dtype.attr("name")), nb::repr(object.attr("shape")).c_str());
}

WholeArray whole_array(std::string_view name, nb::handle object) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object array = numpy.attr("asarray")(object);
  nb::ndarray<const std::int64_t, nb::c_contig, nb::device::cpu> whole;
  if (!nb::try_cast(array, whole, false)) {
    const bool empty = nb::cast<std::size_t>(array.attr("size")) == 0;  // an empty list is one of float64
    if (!empty && !nb::cast<bool>(numpy.attr("can_cast")(array.attr("dtype"), "int64"))) {
      for (nb::handle item : array.attr("ravel")().attr("tolist")()) {
        std::int64_t number = 0;
        if (!nb::isinstance<nb::int_>(item) || !nb::try_cast(item, number))
          refuse(fmt::format("{}: expected whole numbers of 64 bits, got {}", name, nb::repr(item).c_str()));
      }
    }
    whole = nb::cast<decltype(whole)>(array.attr("astype")("int64", "C"));
  }
  WholeArray result{{whole.data(), whole.data() + whole.size()}, {}};
  for (std::size_t axis = 0; axis < whole.ndim(); axis++) result.shape.push_back(static_cast<std::int64_t>(whole.shape(axis)));
  return result;
}

WholeArray whole_array(std::string_view name, nb::handle object, std::size_t axes) {
  auto result = whole_array(name, object);
  if (result.shape.size() != axes) refuse(fmt::format("{}: expected {} axes, got {}", name, axes, result.shape.size()));
  return result;
}

std::vector<std::int32_t> small_numbers_of(std::string_view name, const WholeArray& numbers) {
  std::vector<std::int32_t> result;
  for (const auto number : numbers.values) {
    if (number < std::numeric_limits<std::int32_t>::min() || number > std::numeric_limits<std::int32_t>::max())
      refuse(fmt::format("{}: expected 32-bit numbers, got {}", name, number));
    result.push_back(static_cast<std::int32_t>(number));
  }
  return result;
}

std::vector<std::int32_t> block_table_of(nb::handle object, std::int64_t batch) {
  if (object.is_none()) return {};
  const auto pages = whole_array("block_table", object);
  if (pages.shape.size() != 2 || pages.shape[0] != batch)
    refuse(fmt::format("block_table: expected shape ({}, blocks), got ({})", batch, fmt::join(pages.shape, ", ")));
  return small_numbers_of("block_table", pages);
}
