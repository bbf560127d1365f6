// SPDX-License-Identifier: Apache-2.0
// The options of attention as Python gives them, for every operation that takes them.
#pragma once

#include <fmt/format.h>
#include <nanobind/stl/array.h>

#include <array>
#include <string_view>

#include "arrays.hpp"
#include "bindings.hpp"

/// What a call was given, None where a default holds.
struct GivenAttentionOptions {
  std::optional<double> scale, softcap;
  nanobind::handle bias;
  const gnomon::KeyIntervals* mask;
  nanobind::handle mask_tensor, sink_logits, query_factors, rotate_queries, rotate_keys;
};

/// The options of a call on (B,Hq,Tq,Tk), and what they borrow from.
class PythonAttentionOptions {
 public:
  gnomon::AttentionOptions view;

  PythonAttentionOptions(const GivenAttentionOptions& given, const std::array<std::int64_t, 4>& shape, int threads)
      : sink_logits_(floats("sink_logits", given.sink_logits)),
        query_factors_(floats("query_factors", given.query_factors)),
        executor_(executor_of(threads)) {
    frequencies_.reserve(2);
    positions_.reserve(2);
    view.scale = given.scale;
    view.softcap = given.softcap;
    add_bias(given, given.bias, shape);
    view.bias = bias_;
    view.mask = given.mask;
    set_mask_tensor(given.mask_tensor, shape);
    view.sink_logits = sink_logits_;
    view.query_factors = query_factors_;
    view.rotate_queries = rotation("rotate_queries", given.rotate_queries);
    view.rotate_keys = rotation("rotate_keys", given.rotate_keys);
    view.executor = executor_.get();
  }
  PythonAttentionOptions(const PythonAttentionOptions&) = delete;

  /// A float32 array (B, Hq, Tq), contiguous, to be written; null for None.
  float* written(const char* name, nanobind::handle given, const std::array<std::int64_t, 4>& shape) {
    namespace nb = nanobind;
    if (given.is_none()) return nullptr;
    const auto array = array_of<nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>>(
        name, given, "a writable, contiguous float32 array (B, H, T)");
    for (std::size_t axis = 0; axis < 3; axis++) {
      if (static_cast<std::int64_t>(array.shape(axis)) == shape[axis]) continue;
      refuse(
          fmt::format("{}: expected shape ({}, {}, {}), got {} on axis {}", name, shape[0], shape[1], shape[2], array.shape(axis), axis));
    }
    owners_.push_back(nb::cast(array));
    return array.data();
  }

 private:
  static std::vector<float> floats(const char* name, nanobind::handle given) {
    namespace nb = nanobind;
    std::vector<float> result;
    if (given.is_none()) return result;
    nb::ndarray<const float, nb::c_contig, nb::device::cpu> array;
    if (nb::try_cast(given, array)) return {array.data(), array.data() + array.size()};
    if (!nb::try_cast(given, result)) refuse(fmt::format("{}: expected numbers, got {}", name, nb::repr(given.type()).c_str()));
    return result;
  }

  /// The largest |distance| between a query and a key, (B,Hq,Tq,Tk).
  static std::int64_t reach_of(const gnomon::KeyIntervals* mask, const std::array<std::int64_t, 4>& shape) {
    std::int64_t reach = std::max(shape[2], shape[3]);
    if (mask == nullptr) return reach;
    for (const std::int64_t diagonal : mask->diagonal) reach = std::max({reach, diagonal, shape[3] - diagonal});
    return reach;
  }

  static gnomon::BiasTable table_of(const gnomon::BiasRule& rule, std::int64_t reach) {
    try {
      return gnomon::bias_table(rule, reach);
    } catch (const gnomon::Error& error) {
      throw gnomon::Error(error.code(), fmt::format("bias: no table can be made of the rule alone ({}); use bias_table", error.what()));
    }
  }

  void add_bias(const GivenAttentionOptions& given, nanobind::handle bias, const std::array<std::int64_t, 4>& shape) {
    namespace nb = nanobind;
    if (bias.is_none()) return;
    if (nb::isinstance<nb::list>(bias) || nb::isinstance<nb::tuple>(bias)) {
      for (nb::handle item : bias) add_bias(given, item, shape);
      return;
    }
    gnomon::BiasTable table;
    if (gnomon::BiasRule rule; nb::try_cast(bias, rule)) {
      table = table_of(rule, reach_of(given.mask, shape));
    } else if (!nb::try_cast(bias, table)) {
      refuse(fmt::format(
          "bias: expected a SlopeBias, DistanceBias, FireBias or GridBias, a rule without trained numbers, or a list of them, got {}",
          nb::repr(bias.type()).c_str()));
    }
    bias_.push_back(std::move(table));
  }

  std::optional<gnomon::RotationOnLoad> rotation(const char* name, nanobind::handle given) {
    namespace nb = nanobind;
    if (given.is_none()) return std::nullopt;
    if (!nb::isinstance<nb::tuple>(given) || nb::len(given) != 2) {
      refuse(fmt::format("{}: expected a pair (frequencies, positions), got {}", name, nb::repr(given.type()).c_str()));
    }
    const auto pair = nb::cast<nb::tuple>(given);
    positions_.push_back(positions_of(name, pair[1]));
    owners_.push_back(nb::borrow(given));
    if (RawRotation raw; nb::isinstance<nb::tuple>(pair[0]) && nb::try_cast(pair[0], raw))
      return gnomon::RotationOnLoad{rotation_of(raw), positions_.back().view};
    if (nb::isinstance<gnomon::RotaryTable>(pair[0]))
      return gnomon::RotationOnLoad{*nb::inst_ptr<gnomon::RotaryTable>(pair[0]), positions_.back().view};
    frequencies_.emplace_back(pair[0]);
    return gnomon::RotationOnLoad{frequencies_.back().get(), positions_.back().view};
  }

  void set_mask_tensor(nanobind::handle given, const std::array<std::int64_t, 4>& shape) {
    namespace nb = nanobind;
    if (given.is_none()) return;
    auto array = array_of<nb::ndarray<nb::ro, nb::device::cpu>>("mask_tensor", given, "an array of bool or float32");
    gnomon::MaskTensor mask;
    if (array.dtype() == nb::dtype<float>()) {
      mask.kind = gnomon::MaskTensor::Kind::additive;
    } else if (array.dtype() != nb::dtype<bool>() && array.dtype() != nb::dtype<std::uint8_t>()) {
      refuse(fmt::format("mask_tensor: expected bool, or float32 to be added to the scores, got {}", name_of_dtype(array.dtype())));
    }
    if (array.ndim() > 4) refuse(fmt::format("mask_tensor: expected at most 4 axes (B, H, Tq, Tk), got {}", array.ndim()));
    mask.data = array.data();
    for (std::size_t axis = 4 - array.ndim(); axis < 4; axis++) {
      const std::size_t own = axis - (4 - array.ndim());
      const auto extent = static_cast<std::int64_t>(array.shape(own));
      if (extent != 1 && extent != shape[axis]) {
        refuse(fmt::format("mask_tensor: expected an axis of {} or 1 in the place of axis {} of (B, H, Tq, Tk), got {}", shape[axis], axis,
                           extent));
      }
      mask.strides[axis] = extent == 1 ? 0 : array.stride(own);
    }
    owners_.push_back(nb::cast(array));
    view.mask_tensor = mask;
  }

  std::vector<gnomon::BiasTable> bias_;
  std::vector<float> sink_logits_, query_factors_;
  std::vector<PythonFrequencies> frequencies_;
  std::vector<PythonPositions> positions_;
  std::vector<nanobind::object> owners_;
  std::shared_ptr<gnomon::Executor> executor_;
};
