// SPDX-License-Identifier: Apache-2.0
// positions, frequencies and tables.
#include <fmt/format.h>

#include "arrays.hpp"
#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

struct PythonPacked {
  std::vector<std::int32_t> cu_seqlens;
};

[[noreturn]] void refuse_positions(std::string_view name, std::string_view got) {
  refuse(
      fmt::format("{}: expected a range, a Packed, a contiguous int32, int64 or float64 array, or a list of numbers, got {}", name, got));
}

gnomon::Positions positions_in(std::string_view name, const nb::ndarray<nb::ro, nb::device::cpu>& array) {
  const std::size_t number = array.size();
  std::int64_t expected = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (number > 0 && array.shape(axis) > 1 && array.stride(axis) != expected) refuse_positions(name, "one that is not contiguous");
    expected *= static_cast<std::int64_t>(array.shape(axis));
  }
  if (array.dtype() == nb::dtype<std::int64_t>()) return gnomon::Ids{{static_cast<const std::int64_t*>(array.data()), number}};
  if (array.dtype() == nb::dtype<std::int32_t>()) return gnomon::Ids32{{static_cast<const std::int32_t*>(array.data()), number}};
  if (array.dtype() == nb::dtype<double>()) return gnomon::Reals{{static_cast<const double*>(array.data()), number}};
  refuse_positions(name, fmt::format("one of {}; positions are never cast", name_of_dtype(array.dtype())));
}

/// A Python number that its type here may be too narrow for: then it is beyond the positions there are, and refused as the core refuses
/// those.
template <class Number>
Number number_of(nb::handle item, const auto& name) {
  Number number{};
  if (nb::try_cast(item, number)) return number;
  throw gnomon::Error(gnomon::ErrorCode::out_of_range,
                      fmt::format("{}: expected a number within ±2^33, got {}", name(), nb::repr(item).c_str()));
}

gnomon::Range range_of(std::string_view name, nb::handle object) {
  const auto part = [&](const char* which) {
    return number_of<std::int64_t>(object.attr(which), [&] { return fmt::format("{}.{}", name, which); });
  };
  return {part("start"), part("stop"), part("step")};
}

void read_list(std::string_view name, nb::handle object, PythonPositions& result) {
  bool whole = true;
  for (nb::handle item : object) {
    if (!nb::isinstance<nb::int_>(item) && !nb::isinstance<nb::float_>(item))
      refuse_positions(name, fmt::format("a list with {}", nb::repr(item).c_str()));
    whole = whole && nb::isinstance<nb::int_>(item);
  }
  const auto read = [&]<class Number>(std::vector<Number>& numbers) {
    for (nb::handle item : object) numbers.push_back(number_of<Number>(item, [&] { return fmt::format("{}[{}]", name, numbers.size()); }));
  };
  if (whole) {
    read(result.ids);
    result.view = gnomon::Ids{result.ids};
  } else {
    read(result.reals);
    result.view = gnomon::Reals{result.reals};
  }
}

/// A read-only NumPy view of memory that `owner` keeps alive.
template <class Element>
nb::object view(const void* data, std::initializer_list<std::size_t> shape, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const Element>(static_cast<const Element*>(data), shape, owner));
}

nb::object matrix(gnomon::DType dtype, const void* data, std::size_t rows, std::size_t columns, nb::handle owner) {
  switch (dtype) {
    case gnomon::DType::f64:
      return view<double>(data, {rows, columns}, owner);
    case gnomon::DType::f32:
      return view<float>(data, {rows, columns}, owner);
    case gnomon::DType::bf16:
      return view<std::uint16_t>(data, {rows, columns}, owner);
    default:
      return view<std::uint16_t>(data, {rows, columns}, owner).attr("view")("float16");
  }
}

nb::object column(const gnomon::RotaryTable& table, const std::vector<std::byte>& values, nb::handle owner) {
  return matrix(table.dtype, values.data(), table.positions, table.pairs, owner);
}

}  // namespace

PythonPositions positions_of(std::string_view name, nb::handle object) {
  PythonPositions result;
  result.owner = nb::borrow(object);
  if (PyRange_Check(object.ptr())) {
    result.view = range_of(name, object);
  } else if (nb::isinstance<PythonPacked>(object)) {
    result.view = gnomon::Packed{nb::inst_ptr<PythonPacked>(object)->cu_seqlens};
  } else if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    read_list(name, object, result);
  } else {
    nb::ndarray<nb::ro, nb::device::cpu> array;
    if (!nb::try_cast(object, array, false)) refuse_positions(name, description_of(object));
    result.owner = nb::cast(array);
    result.view = positions_in(name, array);
  }
  return result;
}

PythonFrequencies::PythonFrequencies(nb::handle source, std::optional<std::string_view> numerics) {
  const auto wanted = numerics ? std::optional(gnomon::numerics_of(*numerics)) : std::nullopt;
  if (nb::isinstance<gnomon::Frequencies>(source)) {
    given_ = nb::inst_ptr<gnomon::Frequencies>(source);
    if (wanted && *wanted != given_->numerics)
      refuse(fmt::format("numerics: expected those of the frequencies, {}, or none, got {}", gnomon::name_of(given_->numerics), *numerics));
  } else if (nb::isinstance<gnomon::RotarySpec>(source)) {
    made_ = gnomon::frequencies(*nb::inst_ptr<gnomon::RotarySpec>(source), wanted.value_or(gnomon::Numerics::exact));
  } else {
    throw nb::type_error(
        (std::string("frequencies: expected a Frequencies or RotarySpec, got ") + nb::repr(source.type()).c_str()).c_str());
  }
}

namespace {

void bind_packed(nb::module_& module) {
  nb::class_<PythonPacked>(module, "Packed", "Positions of documents packed into one row, each counted from 0.")
      .def(
          "__init__",
          [](PythonPacked* self, std::vector<std::int32_t> cu_seqlens) {
            new (self) PythonPacked{std::move(cu_seqlens)};
            gnomon::count(gnomon::Packed{self->cu_seqlens});
          },
          "cu_seqlens"_a,
          "cu_seqlens: 32-bit integers (documents + 1), where each document begins, from 0, and the row's end. Raises Error.")
      .def_ro("cu_seqlens", &PythonPacked::cu_seqlens);
}

void bind_frequencies(nb::module_& module) {
  using gnomon::Frequencies;
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
      .def_ro("length", &Frequencies::length, "The sequence length they are for, or None.")
      .def_prop_ro(
          "axis",
          [](nb::handle_t<Frequencies> self) {
            const auto& values = nb::cast<const Frequencies&>(self).axis;
            return view<std::uint8_t>(values.data(), {values.size()}, self);
          },
          "uint8 (pairs), read-only: the position axis that drives each pair; empty where there is one axis.")
      .def_prop_ro(
          "log_magnitude",
          [](nb::handle_t<Frequencies> self) {
            const auto& values = nb::cast<const Frequencies&>(self).log_magnitude;
            return view<double>(values.data(), {values.size()}, self);
          },
          "float64 (pairs), read-only: xpos, logarithm of a query's magnitude per position beyond the centre; else empty.")
      .def_ro("spec", &Frequencies::spec);

  module.def(
      "frequencies",
      [](const gnomon::RotarySpec& spec, std::string_view numerics, std::optional<std::int64_t> length) {
        return gnomon::frequencies(spec, gnomon::numerics_of(numerics), length);
      },
      "spec"_a, "numerics"_a = "exact", "length"_a = nb::none(),
      "Runs the rule of a RotarySpec. numerics 'exact': each frequency is the correctly rounded double of the real-number rule; 'hf': "
      "transformers' "
      "float32 steps. length: the sequence length, for rules that depend on it. Raises Error.");
}

void bind_rotary_table(nb::module_& module) {
  using gnomon::RotaryTable;
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
      "rotary_table",
      [](nb::handle source, nb::handle positions, std::string_view dtype, std::optional<std::string_view> numerics) {
        const auto held = positions_of("positions", positions);
        const PythonFrequencies frequencies(source, numerics);
        const nb::gil_scoped_release without_the_interpreter;
        return gnomon::rotary_table(frequencies.get(), held.view, gnomon::dtype_of(dtype));
      },
      nb::sig("def rotary_table(frequencies: Frequencies | RotarySpec, positions: object, dtype: str = 'f32', numerics: str | None = None) "
              "-> RotaryTable"),
      "frequencies"_a, "positions"_a, "dtype"_a = "f32", "numerics"_a = nb::none(),
      "cos and sin at positions (a range, a Packed, an int32, int64 or float64 array, or a list of numbers within ±2^33; for several axes "
      "one list "
      "for each, as (axes, P)). dtype 'f64', 'f32', "
      "'bf16' or "
      "'f16'. numerics: those a RotarySpec is run with, 'exact' when None; Frequencies have their own. Raises Error.");
}

void bind_embedding_table(nb::module_& module) {
  nb::class_<gnomon::EmbeddingTable>(module, "EmbeddingTable", "Rows of an absolute encoding, rounded once.")
      .def_prop_ro(
          "rows",
          [](nb::handle_t<gnomon::EmbeddingTable> self) {
            const auto& table = nb::cast<const gnomon::EmbeddingTable&>(self);
            return matrix(table.dtype, table.rows.data(), table.positions, static_cast<std::size_t>(table.spec.width), self);
          },
          "(positions, width), read-only; bf16 comes as uint16.")
      .def_ro("spec", &gnomon::EmbeddingTable::spec)
      .def_prop_ro("numerics", [](const gnomon::EmbeddingTable& self) { return std::string(gnomon::name_of(self.numerics)); })
      .def_prop_ro("dtype", [](const gnomon::EmbeddingTable& self) { return std::string(gnomon::name_of(self.dtype)); });

  module.def(
      "embedding_table",
      [](const gnomon::AbsoluteSpec& spec, nb::handle positions, std::string_view dtype, std::string_view numerics) {
        const auto held = positions_of("positions", positions);
        const nb::gil_scoped_release without_the_interpreter;
        return gnomon::embedding_table(spec, held.view, gnomon::dtype_of(dtype), gnomon::numerics_of(numerics));
      },
      "spec"_a, "positions"_a, "dtype"_a = "f32", "numerics"_a = "exact",
      "Rows of an AbsoluteSpec at positions, as for rotary_table. numerics 'hf': as transformers makes them. Raises Error.");
}

}  // namespace

void bind_numbers(nb::module_& module) {
  bind_packed(module);
  bind_frequencies(module);
  bind_rotary_table(module);
  bind_embedding_table(module);
}
