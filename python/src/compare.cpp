// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/filesystem.h>

#include <variant>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using gnomon::Drift;
using Source = std::variant<gnomon::Model, std::filesystem::path>;
using Distances = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

gnomon::Model model_of(const Source& source) {
  if (const auto* model = std::get_if<gnomon::Model>(&source)) return *model;
  return gnomon::read_model(std::get<std::filesystem::path>(source));
}

nb::ndarray<nb::numpy, double> mean_cosines(const Drift& drift, const Distances& distances) {
  const std::size_t count = distances.size();
  auto* values = new double[count];
  const nb::capsule owner(values, [](void* memory) noexcept { delete[] static_cast<double*>(memory); });
  for (std::size_t i = 0; i < count; i++) values[i] = drift.mean_cosine(distances.data()[i]);
  return nb::ndarray<nb::numpy, double>(values, {count}, owner);
}

}  // namespace

void bind_compare(nb::module_& module) {
  using gnomon::Comparison;
  using gnomon::Difference;
  using gnomon::DriftColumn;
  using gnomon::LayerComparison;
  module.attr("drift_limit") = gnomon::drift_limit;
  nb::class_<Drift>(
      module, "Drift",
      "How far the scores of two rotations of one head drift apart: the mean over its channels of the cosine between what they "
      "make of a unit vector. Raises Error for heads of different widths.")
      .def(nb::init<const gnomon::RotarySpec&, const gnomon::RotarySpec&, std::optional<std::int64_t>>(), "a"_a, "b"_a,
           "length"_a = nb::none())
      .def("mean_cosine", &Drift::mean_cosine, "distance"_a)
      .def("mean_cosine", &mean_cosines, "distances"_a, "At each of an int64 array of distances, as float64.")
      .def(
          "position", [](const Drift& drift, double limit) { return drift.parting(limit).position; }, "limit"_a = gnomon::drift_limit,
          "The first distance at which 1 - mean cosine exceeds `limit`, or None where none was found up to 2**33.");
  nb::class_<Difference>(module, "Difference", "A field in which two models differ; values as JSON text.")
      .def_ro("field", &Difference::field)
      .def_ro("a", &Difference::a)
      .def_ro("b", &Difference::b)
      .def("__repr__", [](const Difference& one) { return one.field + ": " + one.a + " | " + one.b; });
  nb::class_<DriftColumn>(module, "DriftColumn", "Mean cosines of a drift at some distances.")
      .def_prop_ro("position", [](const DriftColumn& column) { return column.parting.position; })
      .def_prop_ro("searched", [](const DriftColumn& column) { return column.parting.searched; })
      .def_ro("distances", &DriftColumn::distances)
      .def_ro("mean_cosines", &DriftColumn::mean_cosines);
  nb::class_<LayerComparison>(module, "LayerComparison", "Layers that have one set-up in A and one in B.")
      .def_ro("part", &LayerComparison::part)
      .def_ro("layers", &LayerComparison::layers)
      .def_ro("differences", &LayerComparison::differences)
      .def_ro("notes", &LayerComparison::notes)
      .def_ro("a", &LayerComparison::a)
      .def_ro("b", &LayerComparison::b)
      .def_ro("drift", &LayerComparison::drift);
  nb::class_<Comparison>(module, "Comparison", "What two models declare about position, side by side.")
      .def_prop_ro("equal", &Comparison::equal)
      .def_ro("differences", &Comparison::differences)
      .def_ro("layers", &Comparison::layers)
      .def_ro("notes", &Comparison::notes)
      .def(
          "to_json", [](const Comparison& comparison) { return gnomon::to_json(comparison); },
          "The object `gnomon compare --json` prints.");
  module.def(
      "compare",
      [](const Source& a, const Source& b, const std::vector<std::int64_t>& distances) {
        return gnomon::compare(model_of(a), model_of(b), distances);
      },
      "a"_a, "b"_a, "distances"_a = std::vector<std::int64_t>{},
      "Compares two models, or the files at two paths, by what they mean. Raises Error where the numbers of one cannot be made.");
}
