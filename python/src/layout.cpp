// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "arrays.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

/// Any dtype of a size that a tensor can have: only bytes are moved.
gnomon::DType dtype_of_size(std::string_view name, const nb::dlpack::dtype& dtype) {
  if (dtype.lanes == 1 && dtype.bits == 16) return gnomon::DType::bf16;
  if (dtype.lanes == 1 && dtype.bits == 32) return gnomon::DType::f32;
  if (dtype.lanes == 1 && dtype.bits == 64) return gnomon::DType::f64;
  refuse(fmt::format("{}: expected elements of 2, 4 or 8 bytes, got {} bits; for others index with layout_permutation", name, dtype.bits));
}

/// An array of 1 to 4 axes, which are the last ones of its view.
template <class Array>
struct Padded {
  Array array;
  gnomon::TensorView view;

  Padded(std::string_view name, nb::handle object, const char* expected) : array(array_of<Array>(name, object, expected)) {
    if (array.ndim() < 1 || array.ndim() > 4) refuse(fmt::format("{}: expected 1 to 4 axes, got {}", name, array.ndim()));
    view = placed(array, dtype_of_size(name, array.dtype()), every_axis);
  }

  /// The place of an axis of the array; negative ones count from the end, as in NumPy.
  int place_of(int axis) const {
    const auto axes = static_cast<int>(array.ndim());
    if (axis < -axes || axis >= axes) refuse(fmt::format("axis: expected {} to {}, got {}", -axes, axes - 1, axis));
    return axis < 0 ? 4 + axis : 4 - axes + axis;
  }
};

nb::object convert_layout(nb::object x, const gnomon::RotarySpec& spec, std::string_view to, int axis, nb::object out) {
  const auto layout = enum_argument<gnomon::PairLayout>("to", to);
  if (out.is_none()) {
    const Padded<nb::ndarray<nb::device::cpu>> both("x", x, "a writable array");
    const int place = both.place_of(axis);
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::convert_layout(both.view, spec, layout, place);
  } else {
    const Padded<nb::ndarray<nb::ro, nb::device::cpu>> from("x", x, "an array");
    const Padded<nb::ndarray<nb::device::cpu>> into("out", out, "a writable array");
    const int place = from.place_of(axis);
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::convert_layout(from.view, into.view, spec, layout, place);
  }
  return out.is_none() ? x : out;
}

nb::object layout_permutation(const gnomon::RotarySpec& spec, std::string_view to) {
  auto* indices = new std::vector<std::int64_t>(gnomon::layout_permutation(spec, enum_argument<gnomon::PairLayout>("to", to)));
  nb::capsule owner(indices, [](void* pointer) noexcept { delete static_cast<std::vector<std::int64_t>*>(pointer); });
  return nb::cast(nb::ndarray<nb::numpy, std::int64_t>(indices->data(), {indices->size()}, owner));
}

}  // namespace

void bind_layout(nb::module_& module) {
  module.def(
      "convert_layout", &convert_layout, "x"_a, "spec"_a, nb::kw_only(), "to"_a, "axis"_a, "out"_a = nb::none(),
      "Moves the channels of every head along one axis from the spec's layout to another ('half_split' or 'interleaved'), in place when "
      "out is None, and returns what was written. x: a weight (heads*D, inputs) with axis=0, its bias (heads*D) or the gain of a norm "
      "(D) with axis=0, cached keys (B, H, T, D) with axis=-1; NumPy or DLPack on the CPU, elements of 2, 4 or 8 bytes, any strides, never "
      "copied. There are as many heads as the axis holds: for keys those of keys. Convert queries and keys, and use them with a spec of "
      "the new layout. Raises Error, also where the axis is no multiple of head_dim.");
  module.def("layout_permutation", &layout_permutation, "spec"_a, nb::kw_only(), "to"_a,
             "int64 (head_dim): channel d of a head in layout `to` is channel [d] of a head in the spec's layout. Channels that do not "
             "rotate stay. Raises Error.");
}
