// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "arrays.hpp"
#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

/// The arrays of a call: one, or queries and keys.
std::vector<nb::object> arrays_of(nb::handle x) {
  if (!nb::isinstance<nb::tuple>(x)) return {nb::borrow(x)};
  const auto pair = nb::cast<nb::tuple>(x);
  if (pair.size() != 2) refuse(fmt::format("x: expected an array or a pair (q, k), got a tuple of {}", pair.size()));
  return {nb::object(pair[0]), nb::object(pair[1])};
}

struct Call {
  std::vector<gnomon::RotateOperand> operands;
  std::vector<nb::object> owners;

  Call(nb::handle x, nb::handle out, std::string_view side, const std::optional<std::string>& dtype) {
    const auto from = arrays_of(x);
    const auto to = out.is_none() ? from : arrays_of(out);
    if (to.size() != from.size()) refuse("out: expected as many arrays as x");
    for (std::size_t i = 0; i < from.size(); i++) {
      auto written = array_of<nb::ndarray<nb::device::cpu>>(out.is_none() ? "x" : "out", to[i], "a writable array");
      gnomon::RotateOperand operand;
      operand.out = view_of(out.is_none() ? "x" : "out", written, dtype);
      operand.x = operand.out;
      if (!out.is_none()) {
        auto read = array_of<nb::ndarray<nb::ro, nb::device::cpu>>("x", from[i], "an array");
        operand.x = view_of("x", read, dtype);
        owners.push_back(nb::cast(read));
      }
      owners.push_back(nb::cast(written));
      operand.side = from.size() == 2 && i == 1 ? gnomon::Side::key : enum_argument<gnomon::Side>("side", side);
      operands.push_back(operand);
    }
  }
};

nb::object rotate(nb::object x, nb::handle frequencies, nb::handle positions, nb::object out, std::string_view direction,
                  std::string_view side, bool positions_per_head, int threads, const std::optional<std::string>& dtype) {
  std::optional<PythonFrequencies> numbers;
  gnomon::Rotation rotation;
  if (nb::isinstance<gnomon::RotaryTable>(frequencies)) {
    rotation = gnomon::Rotation(*nb::inst_ptr<gnomon::RotaryTable>(frequencies));
  } else {
    rotation = gnomon::Rotation(numbers.emplace(frequencies).get());
  }
  const auto held = positions_of("positions", positions);
  const Call call(x, out, side, dtype);
  check_stated(dtype, {call.operands[0].x.dtype});
  const auto executor = executor_of(threads);
  const gnomon::RotateOptions options{enum_argument<gnomon::Direction>("direction", direction), positions_per_head, executor.get()};
  {
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::rotate(call.operands, rotation, held.view, options);
  }
  return out.is_none() ? x : out;
}

/// A matrix of cos or sin, its rows contiguous.
template <class Array>
gnomon::TableView table_of(const Array& cos, const Array& sin, const std::optional<std::string>& stated) {
  for (const auto* part : {&cos, &sin}) {
    if (part->ndim() != 2) refuse(fmt::format("cos and sin: expected (rows, pairs), got {} axes", part->ndim()));
    if (!has_contiguous_rows(*part)) refuse("cos and sin: expected a contiguous last axis");
  }
  if (cos.shape(0) != sin.shape(0) || cos.shape(1) != sin.shape(1) || cos.dtype() != sin.dtype() || cos.stride(0) != sin.stride(0)) {
    refuse(fmt::format("sin: expected the shape, strides and dtype of cos ({}, {}), got ({}, {})", cos.shape(0), cos.shape(1), sin.shape(0),
                       sin.shape(1)));
  }
  return {cos.data(),
          sin.data(),
          dtype_of_array("cos", cos.dtype(), stated),
          static_cast<std::int64_t>(cos.shape(0)),
          static_cast<std::int64_t>(cos.shape(1)),
          cos.stride(0)};
}

nb::object rotate_with(nb::object x, nb::handle cos, nb::handle sin, nb::handle rows, int rotary_offset, std::string_view layout,
                       nb::object out, std::string_view direction, int threads, const std::optional<std::string>& dtype) {
  using Array = nb::ndarray<nb::ro, nb::device::cpu>;
  const auto cosine = array_of<Array>("cos", nb::borrow(cos), "an array"), sine = array_of<Array>("sin", nb::borrow(sin), "an array");
  const Call call(x, out, "query", dtype);
  gnomon::Rotation rotation;
  rotation.table = table_of(cosine, sine, dtype);
  check_stated(dtype, {call.operands[0].x.dtype, rotation.table->dtype});
  rotation.head_dim = static_cast<int>(std::clamp<std::int64_t>(call.operands[0].x.shape[3], 0, gnomon::widest_head));
  rotation.rotary_offset = rotary_offset;
  rotation.layout = enum_argument<gnomon::PairLayout>("layout", layout);
  PythonPositions held;
  if (rows.is_none()) {
    held.view = gnomon::Range{0, rotation.table->rows};
  } else {
    held = positions_of("rows", rows);
  }
  const auto executor = executor_of(threads);
  const gnomon::RotateOptions options{enum_argument<gnomon::Direction>("direction", direction), false, executor.get()};
  {
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::rotate(call.operands, rotation, held.view, options);
  }
  return out.is_none() ? x : out;
}

std::array<std::int64_t, 4> four(std::string_view name, const std::vector<std::int64_t>& values) {
  if (values.size() != 4) refuse(fmt::format("{}: expected 4 numbers, got {}", name, values.size()));
  return {values[0], values[1], values[2], values[3]};
}

/// x address, out address, shape, strides of x, strides of out.
using RawTensor =
    std::tuple<std::uintptr_t, std::uintptr_t, std::vector<std::int64_t>, std::vector<std::int64_t>, std::vector<std::int64_t>>;

/// For frameworks whose tensors give a pointer faster than DLPack does.
void rotate_raw(const std::vector<RawTensor>& tensors, std::string_view dtype, std::uintptr_t positions, std::size_t positions_count,
                const RawRotation& raw, bool transposed, int threads) {
  const auto type = gnomon::dtype_of(dtype);
  std::vector<gnomon::RotateOperand> operands;
  for (const auto& [x, out, shape, x_strides, out_strides] : tensors) {
    const gnomon::ConstTensorView from(reinterpret_cast<const void*>(x), type, four("shape", shape), four("x_strides", x_strides));
    operands.push_back({from, {reinterpret_cast<void*>(out), type, from.shape, four("out_strides", out_strides)}});
  }
  const auto rotation = rotation_of(raw);
  const gnomon::Ids ids{{reinterpret_cast<const std::int64_t*>(positions), positions_count}};
  const auto executor = executor_of(threads);
  const nb::gil_scoped_release without_the_interpreter;
  gnomon::rotate(operands, rotation, ids, {transposed ? gnomon::Direction::transposed : gnomon::Direction::forward, false, executor.get()});
}

}  // namespace

gnomon::Rotation rotation_of(const RawRotation& raw) {
  const auto& [turns, axis, head_dim, rotary_dim, rotary_offset, interleaved, magnitude] = raw;
  gnomon::Rotation rotation;
  rotation.turns = {reinterpret_cast<const gnomon::Turns*>(turns), static_cast<std::size_t>(std::max(rotary_dim, 0) / 2)};
  if (axis != 0) rotation.axis = {reinterpret_cast<const std::uint8_t*>(axis), rotation.turns.size()};
  rotation.head_dim = head_dim;
  rotation.rotary_offset = rotary_offset;
  rotation.layout = interleaved ? gnomon::PairLayout::interleaved : gnomon::PairLayout::half_split;
  rotation.magnitude = magnitude;
  return rotation;
}

void bind_rotate(nb::module_& module) {
  module.def(
      "rotate", &rotate, "x"_a, "frequencies"_a, "positions"_a, nb::kw_only(), "out"_a = nb::none(), "direction"_a = "forward",
      "side"_a = "query", "positions_per_head"_a = false, "threads"_a = 1, "dtype"_a = nb::none(),
      "Rotates pairs of channels of x (B, H, T, D), in place when out is None, and returns what was written. x: an array, or a pair (q, k) "
      "with the same B, T and D, which share the work of making cos and sin; out alike. Arrays are NumPy or DLPack on the CPU, float64, "
      "float32, float16 or bfloat16 (as uint16 with dtype='bf16' in NumPy), contiguous last axis, never copied. frequencies: a Frequencies "
      "or RotarySpec, exact, or a RotaryTable, whose rows the positions then are. positions: one per token (T), or per row and token (B, "
      "T); "
      "with several axes first one such list for each; with positions_per_head also per head, (B, H, T). direction 'transposed' is the "
      "gradient. side 'key' takes the reciprocal magnitudes of xpos (in a pair q and k have their own). Raises Error. Source: Su et al. "
      "2021, "
      "arXiv:2104.09864, eq. 34.");
  module.def(
      "rotate_with", &rotate_with, "x"_a, "cos"_a, "sin"_a, "rows"_a = nb::none(), nb::kw_only(), "rotary_offset"_a = 0,
      "layout"_a = "half_split", "out"_a = nb::none(), "direction"_a = "forward", "threads"_a = 1, "dtype"_a = nb::none(),
      "rotate with given cos and sin (rows, pairs) of any float dtype: x' = a cos - b sin, b cos + a sin, whatever the numbers are. rows: "
      "which row each token takes, (T) or (B, T); None: row t for token t, or row b T + t where there are as many. Raises Error.");
  module.def(
      "rotate_raw", &rotate_raw, "tensors"_a, "dtype"_a, "positions"_a, "positions_count"_a, "rotation"_a, "transposed"_a, "threads"_a,
      "rotate by data pointers, for frameworks: tensors are (x, out, shape, strides of x, strides of out), positions points to int64, "
      "rotation is (turns, axis, head_dim, rotary_dim, rotary_offset, interleaved, magnitude), turns points to (rotary_dim / 2, 2) 64-bit "
      "integers (Frequencies.turns), axis to (rotary_dim / 2) bytes or is 0. The pointers are trusted. Raises Error.");
  module.def("kernel_target", [] { return std::string(gnomon::kernel_target()); }, "Name of the CPU target whose kernels run, as 'AVX2'.");
}
