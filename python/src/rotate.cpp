// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

[[noreturn]] void refuse(const std::string& message) { throw gnomon::Error(gnomon::ErrorCode::invalid_argument, message); }

gnomon::DType dtype_of_array(std::string_view name, const nb::dlpack::dtype& dtype, const std::optional<std::string>& stated) {
  if (dtype == nb::dtype<double>()) return gnomon::DType::f64;
  if (dtype == nb::dtype<float>()) return gnomon::DType::f32;
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  if (dtype.bits == 16 && code == nb::dlpack::dtype_code::Bfloat) return gnomon::DType::bf16;
  if (dtype.bits == 16 && code == nb::dlpack::dtype_code::Float) return gnomon::DType::f16;
  if (dtype == nb::dtype<std::uint16_t>() && stated == "bf16") return gnomon::DType::bf16;
  refuse(fmt::format("{}: expected float64, float32, float16, bfloat16, or uint16 with dtype=\"bf16\", got code {} with {} bits", name,
                     dtype.code, dtype.bits));
}

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
  return view;
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

gnomon::Direction direction_of(std::string_view name) {
  if (name == "forward") return gnomon::Direction::forward;
  if (name == "transposed") return gnomon::Direction::transposed;
  refuse(fmt::format("direction: expected forward | transposed, got \"{}\"", name));
}

nb::object rotate(nb::object x, const std::variant<gnomon::Frequencies, gnomon::RotarySpec>& frequencies, nb::handle positions,
                  nb::object out, std::string_view direction, const std::optional<std::string>& dtype) {
  const auto angles = frequencies_of(frequencies, "exact");
  const auto held = positions_of(positions);
  if (out.is_none()) {
    const auto array = array_of<nb::ndarray<nb::device::cpu>>("x", x, "a writable array");
    gnomon::rotate(view_of("x", array, dtype), angles, held.view, direction_of(direction));
    return x;
  }
  const auto from = array_of<nb::ndarray<nb::ro, nb::device::cpu>>("x", x, "an array");
  const auto to = array_of<nb::ndarray<nb::device::cpu>>("out", out, "a writable array");
  gnomon::rotate(view_of("x", from, dtype), view_of("out", to, dtype), angles, held.view, direction_of(direction));
  return out;
}

std::array<std::int64_t, 4> four(std::string_view name, const std::vector<std::int64_t>& values) {
  if (values.size() != 4) refuse(fmt::format("{}: expected 4 numbers, got {}", name, values.size()));
  return {values[0], values[1], values[2], values[3]};
}

/// For frameworks whose tensors give a pointer faster than DLPack does. The frequencies are turns, so nothing is derived per call.
void rotate_raw(std::uintptr_t x, std::uintptr_t out, std::string_view dtype, const std::vector<std::int64_t>& shape,
                const std::vector<std::int64_t>& x_strides, const std::vector<std::int64_t>& out_strides, std::uintptr_t positions,
                std::size_t positions_count, std::uintptr_t turns, int rotary_dim, int rotary_offset, bool interleaved, double magnitude,
                bool transposed) {
  const auto type = gnomon::dtype_of(dtype);
  const gnomon::ConstTensorView from(reinterpret_cast<const void*>(x), type, four("shape", shape), four("x_strides", x_strides));
  const gnomon::TensorView to{reinterpret_cast<void*>(out), type, from.shape, four("out_strides", out_strides)};
  gnomon::Rotation rotation;
  rotation.turns = {reinterpret_cast<const gnomon::Turns*>(turns), static_cast<std::size_t>(std::max(rotary_dim, 0) / 2)};
  rotation.head_dim = static_cast<int>(from.shape[3]);
  rotation.rotary_offset = rotary_offset;
  rotation.layout = interleaved ? gnomon::PairLayout::interleaved : gnomon::PairLayout::half_split;
  rotation.magnitude = magnitude;
  const gnomon::Ids ids{{reinterpret_cast<const std::int64_t*>(positions), positions_count}};
  gnomon::rotate(from, to, rotation, ids, transposed ? gnomon::Direction::transposed : gnomon::Direction::forward);
}

}  // namespace

void bind_rotate(nb::module_& module) {
  module.def(
      "rotate", &rotate, "x"_a, "frequencies"_a, "positions"_a, nb::kw_only(), "out"_a = nb::none(), "direction"_a = "forward",
      "dtype"_a = nb::none(),
      "Rotates pairs of channels of x (B, H, T, D), in place when out is None, and returns what was written. x and out: NumPy or DLPack "
      "arrays "
      "on the CPU, float64, float32, float16 or bfloat16 (as uint16 with dtype='bf16' in NumPy), contiguous last axis, never copied. "
      "frequencies: a Frequencies or RotarySpec, exact. positions: one per token (T), or per row and token (B, T). direction 'transposed' "
      "is the "
      "gradient. Raises Error. Source: Su et al. 2021, arXiv:2104.09864, eq. 34.");
  module.def("rotate_raw", &rotate_raw, "x"_a, "out"_a, "dtype"_a, "shape"_a, "x_strides"_a, "out_strides"_a, "positions"_a,
             "positions_count"_a, "turns"_a, "rotary_dim"_a, "rotary_offset"_a, "interleaved"_a, "magnitude"_a, "transposed"_a,
             "rotate by data pointers, for frameworks: positions points to int64, turns to (rotary_dim / 2, 2) 64-bit integers "
             "(Frequencies.turns). "
             "The pointers are trusted. Raises Error.");
  module.def("kernel_target", [] { return std::string(gnomon::kernel_target()); }, "Name of the CPU target whose kernels run, as 'AVX2'.");
}
