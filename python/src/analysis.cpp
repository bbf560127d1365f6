// SPDX-License-Identifier: Apache-2.0
// gnomon.analysis: the calculators.
#include <fmt/format.h>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

std::vector<std::int64_t> distances_of(nb::handle object) {
  const auto held = positions_of("distances", object);
  std::vector<std::int64_t> result;
  if (const auto* range = std::get_if<gnomon::Range>(&held.view)) {
    const auto number = static_cast<std::int64_t>(gnomon::count(*range));
    for (std::int64_t i = 0; i < number; i++) result.push_back(range->start + i * range->step);
  } else if (const auto* ids = std::get_if<gnomon::Ids>(&held.view)) {
    result.assign(ids->values.begin(), ids->values.end());
  } else if (const auto* short_ids = std::get_if<gnomon::Ids32>(&held.view)) {
    result.assign(short_ids->values.begin(), short_ids->values.end());
  } else {
    throw gnomon::Error(gnomon::ErrorCode::invalid_argument, "distances: expected whole numbers");
  }
  return result;
}

gnomon::Range range_of(nb::handle object) {
  const auto held = positions_of("positions", object);
  if (const auto* range = std::get_if<gnomon::Range>(&held.view)) return *range;
  throw gnomon::Error(gnomon::ErrorCode::invalid_argument, "positions: expected a range");
}

template <class Calculate>
std::vector<double> for_each_distance(const gnomon::Frequencies& frequencies, nb::handle distances, Calculate calculate) {
  std::vector<double> result;
  for (const auto distance : distances_of(distances)) result.push_back(calculate(frequencies, distance));
  return result;
}

void bind_structs(nb::module_& module) {
  using gnomon::Alias, gnomon::Extension, gnomon::ExtensionReport, gnomon::Pipeline, gnomon::Precision, gnomon::Training;
  nb::class_<Alias>(module, "Alias", "A distance at which a key looks more like one beside the query than at the distances around it.")
      .def_ro("distance", &Alias::distance)
      .def_ro("mean_cosine", &Alias::mean_cosine);

  nb::class_<Pipeline>(module, "Pipeline", "How an engine comes to cos and sin: the type each number on the way is rounded to.")
      .def_prop_ro("name", [](const Pipeline& self) { return std::string(self.name); })
      .def_prop_ro("frequency", [](const Pipeline& self) { return std::string(gnomon::name_of(self.frequency)); })
      .def_prop_ro("position", [](const Pipeline& self) { return std::string(gnomon::name_of(self.position)); })
      .def_prop_ro(
          "angle",
          [](const Pipeline& self) { return self.angle ? std::optional(std::string(gnomon::name_of(*self.angle))) : std::nullopt; },
          "None where the angle is not rounded.")
      .def_prop_ro("table", [](const Pipeline& self) { return std::string(gnomon::name_of(self.table)); })
      .def_prop_ro("used_by", [](const Pipeline& self) { return std::string(self.used_by); });

  nb::class_<Precision>(module, "Precision", "What a pipeline makes of a range of positions. Angles are in radians.")
      .def_ro("pipeline", &Precision::pipeline)
      .def_ro("worst", &Precision::worst, "Largest error of an angle in the range; π, which is any angle, ends the search.")
      .def_ro("worst_position", &Precision::worst_position)
      .def_ro("worst_pair", &Precision::worst_pair)
      .def_ro("wrong_from", &Precision::wrong_from, "The first position with an angle wrong by more than 0.01, or None up to `searched`.")
      .def_ro("searched", &Precision::searched)
      .def_ro("table_error", &Precision::table_error, "What the rounding of cos and sin alone adds at most.")
      .def_ro("distinct", &Precision::distinct, "Positions of the range that are still different after rounding.")
      .def_ro("merged_from", &Precision::merged_from, "The first position that becomes the same number as the next one, or None.");

  nb::class_<Training>(module, "Training", "What a model was trained with.")
      .def(
          "__init__",
          [](Training* self, gnomon::RotarySpec spec, std::int64_t length, std::optional<std::int64_t> original) {
            new (self) Training{std::move(spec), length, original.value_or(length)};
          },
          "spec"_a, "length"_a, "original"_a = nb::none(),
          "length: the longest it saw with this spec; original: the length before any scaling, from which factors count.")
      .def_ro("spec", &Training::spec)
      .def_ro("length", &Training::length)
      .def_ro("original", &Training::original);

  nb::class_<Extension>(module, "Extension", "One way to run a model at another length.")
      .def_ro("method", &Extension::method, "As with_method takes it.")
      .def_ro("spec", &Extension::spec)
      .def_ro("drift_cosine", &Extension::drift_cosine,
              "Mean cosine between this rotation and the trained one at the trained length: 1 is no change.")
      .def_ro("drifts_from", &Extension::drifts_from, "The first distance of the trained length at which it is below 0.99, or None.")
      .def_ro("unseen_pairs", &Extension::unseen_pairs, "Pairs without a full turn in training that turn further now.")
      .def_ro("overshoot", &Extension::overshoot, "How many times as far, at most.")
      .def_ro("negative_from", &Extension::negative_from, "As first_negative_distance up to the new length.")
      .def_ro("limit", &Extension::limit, "As extrapolation_limit of the base in effect, or None where not only the base changes.");

  nb::class_<ExtensionReport>(module, "ExtensionReport", "What extend() finds.")
      .def_ro("training", &ExtensionReport::training)
      .def_ro("to", &ExtensionReport::to)
      .def_ro("pairs_with_a_turn", &ExtensionReport::pairs_with_a_turn)
      .def_ro("critical_base", &ExtensionReport::critical_base)
      .def_ro("smallest_base", &ExtensionReport::smallest_base)
      .def_ro("extensions", &ExtensionReport::extensions);
}

void bind_decay(nb::module_& module) {
  module.def(
      "mean_cosine",
      [](const gnomon::Frequencies& frequencies, nb::handle distances) {
        return for_each_distance(frequencies, distances, gnomon::mean_cosine);
      },
      "frequencies"_a, "distances"_a,
      "Mean over the pairs of cos(distance * inv_freq) for each of the distances (a range, a list or an integer array): the score of a "
      "key that equals its query. Men et al. 2024, arXiv:2405.14591, section 4. Raises Error.");
  module.def(
      "decay_bound",
      [](const gnomon::Frequencies& frequencies, nb::handle distances) {
        return for_each_distance(frequencies, distances, gnomon::decay_bound);
      },
      "frequencies"_a, "distances"_a, "RoFormer's bound of scores by distance, arXiv:2104.09864, section 3.4.3. Raises Error.");
  module.def(
      "first_negative_distance", &gnomon::first_negative_distance, "frequencies"_a, "farthest"_a,
      "The first distance at which mean_cosine is negative, so that a similar key scores below a random one, or None. Raises Error.");
  module.def("aliases", &gnomon::aliases, "frequencies"_a, "farthest"_a,
             "In each octave of distances the local maximum at which mean_cosine is largest. Raises Error.");
  module.def("smallest_base", &gnomon::smallest_base, "rotary_dim"_a, "length"_a, "digits"_a = 2,
             "The smallest theta of so many significant digits with which mean_cosine is not negative over a length, or None. Men et al. "
             "2024, arXiv:2405.14591. Raises Error.");
}

void bind_scaling_laws(nb::module_& module) {
  module.def("pairs_with_a_turn", &gnomon::pairs_with_a_turn, "frequencies"_a, "length"_a,
             "Pairs whose wavelength is at most the length. Raises Error.");
  module.def("critical_dimension", &gnomon::critical_dimension, "theta"_a, "rotary_dim"_a, "trained"_a,
             "Channels that saw a full turn in training. Liu et al. 2023, arXiv:2310.05209, as the next three. Raises Error.");
  module.def("extrapolation_limit", &gnomon::extrapolation_limit, "base"_a, "dimension"_a, "rotary_dim"_a,
             "The length a model reaches that was tuned with a larger base at its trained length. Raises Error.");
  module.def("base_for_limit", &gnomon::base_for_limit, "length"_a, "dimension"_a, "rotary_dim"_a, "The inverse. Raises Error.");
  module.def("critical_base", &gnomon::critical_base, "theta"_a, "trained"_a, "tuned"_a,
             "Above this base a model tuned at a length reaches beyond it. Raises Error.");
}

void bind_precision(nb::module_& module) {
  module.def(
      "precision",
      [](const gnomon::Frequencies& frequencies, nb::handle positions) { return gnomon::precision(frequencies, range_of(positions)); },
      "frequencies"_a, "positions"_a, "Every pipeline over the positions of a range with step 1. Raises Error.");
  module.def(
      "list_pipelines", [] { return std::vector(gnomon::list_pipelines().begin(), gnomon::list_pipelines().end()); },
      "The pipelines found in the field, the most exact first.");
  module.def("rotation", &gnomon::rotation, "pipeline"_a, "inv_freq"_a, "position"_a,
             "cos and sin a pipeline makes of a frequency and a position.");
  module.def(
      "distinct_positions",
      [](nb::handle positions, std::string_view dtype) { return gnomon::distinct_positions(range_of(positions), gnomon::dtype_of(dtype)); },
      "positions"_a, "dtype"_a, "How many different numbers the positions of a range with step 1 become in a type. Raises Error.");
}

void bind_extend(nb::module_& module) {
  module.def("known_methods", &gnomon::known_methods, "\"none, linear:FACTOR, …\"");
  module.def(
      "method_advice", [](std::string_view method) { return std::string(gnomon::method_advice(method)); }, "method"_a,
      "What a method is good for and what it costs, in a sentence.");
  module.def("with_method", &gnomon::with_method, "spec"_a, "method"_a, "original"_a = nb::none(),
             "The spec with the rule a method names ('yarn:4') in the place of its own. original: the trained length, for methods that "
             "need it. Raises Error.");
  module.def("training_of", &gnomon::training_of, "model"_a, "layer"_a = nb::none(),
             "What the files of a model say about its training. Raises Error.");
  module.def("extend", &gnomon::extend, "training"_a, "to"_a, "The methods that apply at a length, and what each changes. Raises Error.");
}

}  // namespace

void bind_analysis(nb::module_& module) {
  nb::module_ analysis = module.def_submodule("analysis", "What encodings do, in numbers: decay, aliasing, precision, extension.");
  bind_structs(analysis);
  bind_decay(analysis);
  bind_scaling_laws(analysis);
  bind_precision(analysis);
  bind_extend(analysis);
}
