// SPDX-License-Identifier: Apache-2.0
// positions, frequencies and tables.
#include <fmt/format.h>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

[[noreturn]] void refuse_positions(const std::string& got) {
  throw gnomon::Error(gnomon::ErrorCode::invalid_argument,
                      "positions: expected a range, a contiguous int32, int64 or float64 array, or a list of numbers, got " + got);
}

gnomon::Positions view_of(const nb::ndarray<nb::device::cpu>& array) {
  std::int64_t expected = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) > 1 && array.stride(axis) != expected) refuse_positions("one that is not contiguous");
    expected *= static_cast<std::int64_t>(array.shape(axis));
  }
  const std::size_t number = array.size();
  if (array.dtype() == nb::dtype<std::int64_t>()) return gnomon::Ids{{static_cast<const std::int64_t*>(array.data()), number}};
  if (array.dtype() == nb::dtype<std::int32_t>()) return gnomon::Ids32{{static_cast<const std::int32_t*>(array.data()), number}};
  if (array.dtype() == nb::dtype<double>()) return gnomon::Reals{{static_cast<const double*>(array.data()), number}};
  refuse_positions(
      fmt::format("an array of another dtype (code {}, {} bits); positions are never cast", array.dtype().code, array.dtype().bits));
}

bool is_range(nb::handle object) { return PyRange_Check(object.ptr()) != 0; }

void read_list(nb::handle object, PythonPositions& result) {
  bool whole = true;
  for (nb::handle item : object) {
    if (!nb::isinstance<nb::int_>(item) && !nb::isinstance<nb::float_>(item))
      refuse_positions("a list with " + std::string(nb::repr(item).c_str()));
    whole = whole && nb::isinstance<nb::int_>(item);
  }
  for (nb::handle item : object) {
    if (whole)
      result.ids.push_back(nb::cast<std::int64_t>(item));
    else
      result.reals.push_back(nb::cast<double>(item));
  }
  if (whole)
    result.view = gnomon::Ids{result.ids};
  else
    result.view = gnomon::Reals{result.reals};
}

/// A read-only NumPy view of memory that `owner` keeps alive.
template <class Element>
nb::object view(const void* data, std::initializer_list<std::size_t> shape, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const Element>(static_cast<const Element*>(data), shape, owner));
}

nb::object column(const gnomon::RotaryTable& table, const std::vector<std::byte>& values, nb::handle owner) {
  const std::initializer_list<std::size_t> shape{table.positions, table.pairs};
  switch (table.dtype) {
    case gnomon::DType::f64:
      return view<double>(values.data(), shape, owner);
    case gnomon::DType::f32:
      return view<float>(values.data(), shape, owner);
    case gnomon::DType::bf16:
      return view<std::uint16_t>(values.data(), shape, owner);
    default:
      return view<std::uint16_t>(values.data(), shape, owner).attr("view")("float16");
  }
}

}  // namespace

PythonPositions positions_of(nb::handle object) {
  PythonPositions result;
  result.owner = nb::borrow(object);
  if (is_range(object)) {
    result.view = gnomon::Range{nb::cast<std::int64_t>(object.attr("start")), nb::cast<std::int64_t>(object.attr("stop")),
                                nb::cast<std::int64_t>(object.attr("step"))};
  } else if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    read_list(object, result);
  } else {
    nb::ndarray<nb::ro, nb::device::cpu> array;
    if (!nb::try_cast(object, array, false)) refuse_positions(nb::repr(object.type()).c_str());
    result.owner = nb::cast(array);
    result.view = view_of(nb::ndarray<nb::device::cpu>(array));
  }
  return result;
}

gnomon::Frequencies frequencies_of(const std::variant<gnomon::Frequencies, gnomon::RotarySpec>& source, std::string_view numerics) {
  if (const auto* ready = std::get_if<gnomon::Frequencies>(&source)) return *ready;
  return gnomon::frequencies(std::get<gnomon::RotarySpec>(source), gnomon::numerics_of(numerics));
}

void bind_numbers(nb::module_& module) {
  using gnomon::Frequencies;
  using gnomon::RotaryTable;
  nb::class_<Frequencies>(module, "Frequencies", "Angular frequencies of a spec, in radians per position.")
      .def_prop_ro(
          "inv_freq",
          [](nb::handle_t<Frequencies> self) {
            const auto& values = nb::cast<const Frequencies&>(self).inv_freq;
            return view<double>(values.data(), {values.size()}, self);
          },
          "float64 (pairs), read-only: the frequency used, by definition.")
      .def_prop_ro(
          "wavelength",
          [](const Frequencies& self) {
            auto* values = new std::vector<double>(self.wavelength());
            nb::capsule owner(values, [](void* pointer) noexcept { delete static_cast<std::vector<double>*>(pointer); });
            return nb::cast(nb::ndarray<nb::numpy, double>(values->data(), {values->size()}, owner));
          },
          "float64 (pairs): 2π / inv_freq in positions, inf where a pair does not turn.")
      .def_prop_ro(
          "turns",
          [](nb::handle_t<Frequencies> self) {
            const auto& values = nb::cast<const Frequencies&>(self).turns;
            static_assert(sizeof(gnomon::Turns) == 16);
            return view<std::int64_t>(values.data(), {values.size(), 2}, self);
          },
          "int64 (pairs, 2), read-only: turns per position as whole turns and the bits of a fraction in units of 2^-64; the phase of "
          "position p is "
          "p * fraction modulo 2^64. Empty in hf.")
      .def_ro("attention_factor", &Frequencies::attention_factor, "Magnitude on cos and sin, kept apart from them.")
      .def_prop_ro("numerics", [](const Frequencies& self) { return std::string(gnomon::name_of(self.numerics)); })
      .def_ro("spec", &Frequencies::spec);

  nb::class_<RotaryTable>(module, "RotaryTable", "cos and sin of (position, pair), rounded once, without the magnitude.")
      .def_prop_ro(
          "cos",
          [](nb::handle_t<RotaryTable> self) {
            const auto& table = nb::cast<const RotaryTable&>(self);
            return column(table, table.cos, self);
          },
          "(positions, pairs), read-only; bf16 comes as uint16.")
      .def_prop_ro(
          "sin",
          [](nb::handle_t<RotaryTable> self) {
            const auto& table = nb::cast<const RotaryTable&>(self);
            return column(table, table.sin, self);
          },
          "(positions, pairs), read-only; bf16 comes as uint16.")
      .def_prop_ro("attention_factor", [](const RotaryTable& self) { return self.frequencies.attention_factor; })
      .def_prop_ro("numerics", [](const RotaryTable& self) { return std::string(gnomon::name_of(self.frequencies.numerics)); })
      .def_prop_ro("dtype", [](const RotaryTable& self) { return std::string(gnomon::name_of(self.dtype)); });

  module.def(
      "frequencies",
      [](const gnomon::RotarySpec& spec, std::string_view numerics, std::optional<std::int64_t> length) {
        return gnomon::frequencies(spec, gnomon::numerics_of(numerics), length);
      },
      "spec"_a, "numerics"_a = "exact", "length"_a = nb::none(),
      "Runs the rule of a RotarySpec. numerics 'exact': each frequency is the correctly rounded double of the real-number rule; 'hf': "
      "transformers' "
      "float32 steps. length: the sequence length, for rules that depend on it. Raises Error.");
  module.def(
      "rotary_table",
      [](const std::variant<Frequencies, gnomon::RotarySpec>& source, nb::handle positions, std::string_view dtype,
         std::string_view numerics) {
        const auto held = positions_of(positions);
        return gnomon::rotary_table(frequencies_of(source, numerics), held.view, gnomon::dtype_of(dtype));
      },
      "frequencies"_a, "positions"_a, "dtype"_a = "f32", "numerics"_a = "exact",
      "cos and sin at positions (a range, a 1-D int32, int64 or float64 array, or a list of numbers within ±2^33). dtype 'f64', 'f32', "
      "'bf16' or "
      "'f16'. numerics counts only when a RotarySpec is given. Raises Error.");
}
