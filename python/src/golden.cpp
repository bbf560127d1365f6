// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/filesystem.h>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

nb::module_ json() { return nb::module_::import_("json"); }

bool is_path(nb::handle object) { return nb::isinstance<nb::str>(object) || nb::hasattr(object, "__fspath__"); }

/// A path, or an object of the JSON form with lists or arrays in it.
gnomon::Values values_of(nb::handle object) {
  if (is_path(object)) return gnomon::read_values(nb::cast<std::filesystem::path>(object));
  const auto as_list = nb::cpp_function([](nb::handle array) { return array.attr("tolist")(); });
  return gnomon::values_from(nb::cast<std::string>(json().attr("dumps")(object, "default"_a = as_list)));
}

using RotarySource = std::variant<gnomon::RotarySpec, gnomon::Model, std::filesystem::path>;

gnomon::Golden make_golden(const RotarySource& source, const std::optional<std::vector<std::int64_t>>& positions,
                           std::optional<std::int64_t> length) {
  const auto make = [&](const gnomon::RotarySpec& spec) {
    return positions ? gnomon::make_golden(spec, *positions, length) : gnomon::make_golden(spec, gnomon::golden_positions(), length);
  };
  if (const auto* spec = std::get_if<gnomon::RotarySpec>(&source)) return make(*spec);
  const auto* path = std::get_if<std::filesystem::path>(&source);
  const gnomon::Model model = path != nullptr ? gnomon::read_model(*path) : std::get<gnomon::Model>(source);
  auto golden = make(gnomon::rotary_of(model));
  golden.source = model.path;
  return golden;
}

gnomon::Golden golden_of(nb::handle object) {
  if (is_path(object)) return gnomon::read_golden(nb::cast<std::filesystem::path>(object));
  return nb::cast<gnomon::Golden>(object);
}

}  // namespace

void bind_golden(nb::module_& module) {
  using gnomon::Golden;
  nb::class_<Golden>(module, "Golden", "The numbers of one RotarySpec, exact and hf, to compare an engine's with.")
      .def_ro("source", &Golden::source)
      .def_ro("spec", &Golden::spec)
      .def_ro("length", &Golden::length)
      .def_ro("positions", &Golden::positions)
      .def_ro("attention_factor", &Golden::attention_factor)
      .def("to_json", [](const Golden& golden) { return gnomon::to_json(golden); }, "The golden file as `gnomon golden` writes it.");
  module.def("golden", &make_golden, "source"_a, "positions"_a = nb::none(), "length"_a = nb::none(),
             "Makes a Golden of a RotarySpec, or of a model or the files at a path where all its layers share one, at integer positions "
             "(None: some near, some far). length: the sequence length, for rules that depend on it. Raises "
             "Error.");
  module.def("read_golden", &gnomon::read_golden, "path"_a, "Reads a golden file and checks its hash. Raises Error.");
  module.def(
      "verify",
      [](nb::handle values, nb::handle golden, std::string_view numerics, std::optional<double> tolerance) {
        const auto found = gnomon::verify(values_of(values), golden_of(golden), gnomon::numerics_of(numerics), tolerance);
        return json().attr("loads")(gnomon::to_json(found));
      },
      nb::sig("def verify(values: object, golden: object, numerics: str = 'exact', tolerance: float | None = None) -> dict"), "values"_a,
      "golden"_a, "numerics"_a = "exact", "tolerance"_a = nb::none(),
      "Compares values with a Golden or the path of a golden file. values: the path of a JSON, npy, CSV or safetensors file, or a dict "
      "with any of "
      "inv_freq, cos and sin (with positions, attention_factor), input and rotated, as lists or arrays. Gives the object that `gnomon "
      "verify "
      "--json` prints, with the known mistakes that explain a difference. Raises Error.");
  module.def(
      "list_mistakes",
      [] {
        nb::list list;
        for (const auto& mistake : gnomon::list_mistakes()) {
          nb::dict entry;
          entry["name"] = mistake.name;
          entry["cause"] = mistake.cause;
          list.append(entry);
        }
        return list;
      },
      "The mistakes that verify can name, as dicts with name and cause.");
}
