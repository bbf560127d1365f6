// SPDX-License-Identifier: Apache-2.0
// Cached keys and values: appended, moved, rebased, evicted.
#include <fmt/format.h>

#include "arrays.hpp"
#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Written = nb::ndarray<nb::device::cpu>;
using Read = nb::ndarray<nb::ro, nb::device::cpu>;
using Name = const std::optional<std::string>&;

nb::object shift_keys(nb::object keys, nb::handle frequencies, nb::handle deltas, bool per_token, int threads, Name dtype) {
  const auto array = array_of<Written>("keys", keys, "a writable array");
  const auto view = view_of("keys", array, dtype);
  const PythonFrequencies numbers(frequencies);
  const auto executor = executor_of(threads);
  check_stated(dtype, {view.dtype});
  if (per_token) {
    const auto held = positions_of("deltas", deltas);
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::shift_keys(view, numbers.get(), held.view, executor.get());
  } else {
    const auto moves = whole_array("deltas", deltas).values;
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::shift_keys(view, numbers.get(), moves, executor.get());
  }
  return keys;
}

nb::object rebase_keys(nb::object keys, nb::handle old, nb::handle now, nb::handle positions, int threads, Name dtype) {
  const auto array = array_of<Written>("keys", keys, "a writable array");
  const PythonFrequencies from(old), to(now);
  const auto held = positions_of("positions", positions);
  const auto executor = executor_of(threads);
  const auto view = view_of("keys", array, dtype);
  check_stated(dtype, {view.dtype});
  {
    const nb::gil_scoped_release without_the_interpreter;
    gnomon::rebase_keys(view, from.get(), to.get(), held.view, executor.get());
  }
  return keys;
}

std::vector<std::int32_t> evict_tokens(nb::handle keys, nb::handle values, nb::handle lengths, std::int64_t keep_first,
                                       std::int64_t keep_last, nb::handle frequencies, int threads, Name dtype) {
  const auto key_array = array_of<Written>("keys", nb::borrow(keys), "a writable array");
  const auto value_array = array_of<Written>("values", nb::borrow(values), "a writable array");
  std::optional<PythonFrequencies> numbers;
  std::optional<gnomon::Rotation> rotation;
  if (!frequencies.is_none()) rotation.emplace(numbers.emplace(frequencies).get());
  const auto executor = executor_of(threads);
  const auto key_view = view_of("keys", key_array, dtype), value_view = view_of("values", value_array, dtype);
  check_stated(dtype, {key_view.dtype, value_view.dtype});
  const auto tokens = small_numbers_of("lengths", whole_array("lengths", lengths));
  const nb::gil_scoped_release without_the_interpreter;
  return gnomon::evict_tokens(key_view, value_view, tokens, keep_first, keep_last, rotation ? &*rotation : nullptr, executor.get());
}

void append_tokens(nb::handle k, nb::handle v, nb::handle keys, nb::handle values, nb::handle slots, nb::handle frequencies,
                   nb::handle positions, nb::handle block_table, int threads, Name dtype) {
  const auto new_keys = array_of<Read>("k", nb::borrow(k), "an array"), new_values = array_of<Read>("v", nb::borrow(v), "an array");
  const auto key_array = array_of<Written>("keys", nb::borrow(keys), "a writable array");
  const auto value_array = array_of<Written>("values", nb::borrow(values), "a writable array");
  if (frequencies.is_none() != positions.is_none()) refuse("positions: expected with frequencies, and without them neither");
  std::optional<PythonFrequencies> numbers;
  PythonPositions held;
  gnomon::AppendOptions options;
  if (!frequencies.is_none()) {
    held = positions_of("positions", positions);
    options.rotate_keys = gnomon::RotationOnLoad{numbers.emplace(frequencies).get(), held.view};
  }
  const auto places = small_numbers_of("slots", whole_array("slots", slots));
  const auto table = block_table_of(block_table, static_cast<std::int64_t>(new_keys.shape(0)));
  options.block_table = table;
  const auto executor = executor_of(threads);
  options.executor = executor.get();
  const auto k_view = view_of("k", new_keys, dtype), v_view = view_of("v", new_values, dtype);
  const auto key_view = view_of("keys", key_array, dtype), value_view = view_of("values", value_array, dtype);
  check_stated(dtype, {k_view.dtype, v_view.dtype, key_view.dtype, value_view.dtype});
  const nb::gil_scoped_release without_the_interpreter;
  gnomon::append_tokens(k_view, v_view, key_view, value_view, {places}, options);
}

}  // namespace

void bind_kv_cache(nb::module_& module) {
  module.def(
      "shift_keys", &shift_keys, "keys"_a, "frequencies"_a, "deltas"_a, nb::kw_only(), "per_token"_a = false, "threads"_a = 1,
      "dtype"_a = nb::none(),
      "Moves cached keys (B, Hk, T, D) in place, and returns them: each was rotated at some position p and becomes what it would be "
      "at p + delta. The magnitude of the rotation is not applied again. frequencies: an exact Frequencies or RotarySpec. deltas: a "
      "whole number, one for every position axis, or (axes, B); with per_token as positions in rotate, (T) or (B, T) for every axis. "
      "Raises Error. Source: Su et al. 2021, arXiv:2104.09864, eq. 16.");
  module.def(
      "rebase_keys", &rebase_keys, "keys"_a, "old"_a, "new"_a, "positions"_a, nb::kw_only(), "threads"_a = 1, "dtype"_a = nb::none(),
      "Takes cached keys (B, Hk, T, D) in place from one rule to another at the positions they stand at, and returns them: a dynamic "
      "base that grew, longrope from short to long, YaRN on or off, another theta. old, new: exact Frequencies or RotarySpec that "
      "turn the same channels. positions: as in rotate. Raises Error.");
  module.def("evict_tokens", &evict_tokens, "keys"_a, "values"_a, "lengths"_a, "keep_first"_a, "keep_last"_a, "frequencies"_a = nb::none(),
             nb::kw_only(), "threads"_a = 1, "dtype"_a = nb::none(),
             "Keeps the first keep_first (attention sinks) and the last keep_last tokens of every row of a cache, moves them together in "
             "place and renumbers them; returns the new lengths. keys, values: (B, Hk, T, D). lengths: (B), tokens in each row. "
             "frequencies: what the keys were rotated by, None where they were not. Raises Error. Source: Xiao et al. 2023, "
             "arXiv:2309.17453.");
  module.def("append_tokens", &append_tokens, "k"_a, "v"_a, "keys"_a, "values"_a, "slots"_a, nb::kw_only(), "frequencies"_a = nb::none(),
             "positions"_a = nb::none(), "block_table"_a = nb::none(), "threads"_a = 1, "dtype"_a = nb::none(),
             "Writes new keys k and values v (B, Hk, T, D) into a cache, the keys rotated on the way where frequencies and positions are "
             "given. keys, values: (B, Hk, slots, D), or pages (pages, Hk, page_size, D) with block_table (B, blocks). slots: (B), where "
             "the first token of each row goes, or (B, T), -1 for a token that is not kept. Raises Error; then nothing is written.");
}
