// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <tuple>

#include "gnomon/gnomon.hpp"
#include "spec/fields.hpp"

void bind_error(nanobind::module_& module);
void bind_spec(nanobind::module_& module);
void bind_numbers(nanobind::module_& module);
void bind_position_ids(nanobind::module_& parent);
void bind_rotate(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_attention_statistics(nanobind::module_& module);
void bind_kv_cache(nanobind::module_& module);
void bind_layout(nanobind::module_& module);
void bind_embed(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_compare(nanobind::module_& module);
void bind_golden(nanobind::module_& module);
void bind_analysis(nanobind::module_& module);
void bind_convert(nanobind::module_& module);

/// Positions as Python hands them in, kept alive beside the view of them.
struct PythonPositions {
  gnomon::Positions view;
  nanobind::object owner;
  std::vector<double> reals;
  std::vector<std::int64_t> ids;
};

/// From a range, a 1-D or 2-D int32, int64 or float64 array (NumPy or DLPack) without a copy, or a list of ints or floats. Throws
/// Error that names the argument.
PythonPositions positions_of(std::string_view name, nanobind::handle object);

/// What an operation is given as frequencies: a Frequencies as it is, or those of a RotarySpec, made here with the numerics named beside
/// it, exact if none are. Throws Error for numerics that are not those of the Frequencies.
class PythonFrequencies {
 public:
  explicit PythonFrequencies(nanobind::handle source, std::optional<std::string_view> numerics = std::nullopt);
  const gnomon::Frequencies& get() const { return made_ ? *made_ : *given_; }

 private:
  std::optional<gnomon::Frequencies> made_;
  const gnomon::Frequencies* given_ = nullptr;
};

/// A rotation of frameworks whose tensors give addresses, of turns: nothing is derived per call. Addresses of turns and axis (0: one
/// axis), head_dim, rotary_dim, rotary_offset, interleaved, magnitude.
using RawRotation = std::tuple<std::uintptr_t, std::uintptr_t, int, int, int, bool, double>;
gnomon::Rotation rotation_of(const RawRotation& raw);

/// Threads for one call, kept for the next one; none for a count of 1.
std::shared_ptr<gnomon::Executor> executor_of(int threads);

/// An enumeration by its name. Throws Error that lists the names.
template <class Enum>
Enum enum_argument(std::string_view argument, std::string_view name) {
  if (const auto value = gnomon::enum_of<Enum>(name)) return *value;
  throw gnomon::Error(gnomon::ErrorCode::invalid_argument,
                      std::string(argument) + ": expected " + gnomon::enum_choices<Enum>() + ", got \"" + std::string(name) + "\"");
}
