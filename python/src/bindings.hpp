// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "gnomon/gnomon.hpp"

void bind_error(nanobind::module_& module);
void bind_spec(nanobind::module_& module);
void bind_numbers(nanobind::module_& module);
void bind_rotate(nanobind::module_& module);
void bind_layout(nanobind::module_& module);
void bind_model(nanobind::module_& module);

/// Positions as Python hands them in, kept alive beside the view of them.
struct PythonPositions {
  gnomon::Positions view;
  nanobind::object owner;
  std::vector<double> reals;
  std::vector<std::int64_t> ids;
};

/// From a range, a 1-D or 2-D int32, int64 or float64 array (NumPy or DLPack) without a copy, or a list of ints or floats.
PythonPositions positions_of(nanobind::handle object);

/// Frequencies, or a RotarySpec with the numerics named beside it.
gnomon::Frequencies frequencies_of(const std::variant<gnomon::Frequencies, gnomon::RotarySpec>& source, std::string_view numerics);
