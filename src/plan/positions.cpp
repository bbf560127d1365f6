// SPDX-License-Identifier: Apache-2.0
#include "gnomon/positions.hpp"

#include <fmt/format.h>

#include <cmath>

#include "gnomon/error.hpp"

namespace gnomon {
namespace {

std::size_t count_range(const Range& range) {
  if (range.step == 0) throw Error(ErrorCode::invalid_argument, "positions: the step of a range must not be 0");
  const bool forward = range.step > 0;
  if (forward ? range.start >= range.stop : range.start <= range.stop) return 0;
  // Unsigned differences: start and stop may be as far apart as 64 bits allow.
  const auto gap = forward ? static_cast<std::uint64_t>(range.stop) - static_cast<std::uint64_t>(range.start)
                           : static_cast<std::uint64_t>(range.start) - static_cast<std::uint64_t>(range.stop);
  if (range.step == 1) return gap;  // the usual case, and a division is slow
  const auto step = forward ? static_cast<std::uint64_t>(range.step) : std::uint64_t{0} - static_cast<std::uint64_t>(range.step);
  return (gap - 1) / step + 1;
}

std::size_t count_packed(const Packed& packed) {
  const auto& bounds = packed.cu_seqlens;
  if (bounds.empty() || bounds[0] != 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("cu_seqlens: expected a list that begins with 0, got {}",
                                                         bounds.empty() ? "an empty one" : fmt::format("{}", bounds[0])));
  }
  for (std::size_t i = 1; i < bounds.size(); i++) {
    if (bounds[i] >= bounds[i - 1]) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("cu_seqlens[{}]: expected at least {}, the one before, got {}", i, bounds[i - 1], bounds[i]));
  }
  return static_cast<std::size_t>(bounds.back());
}

template <class Value>
void check(std::size_t index, Value value) {
  constexpr auto bound = static_cast<Value>(max_position);
  if (value >= -bound && value <= bound) return;
  throw Error(ErrorCode::out_of_range, fmt::format("positions[{}]: expected a number within ±2^33, got {}", index, value));
}

}  // namespace

std::size_t count(const Positions& positions) {
  if (const auto* range = std::get_if<Range>(&positions)) return count_range(*range);
  if (const auto* packed = std::get_if<Packed>(&positions)) return count_packed(*packed);
  return std::visit(
      [](const auto& list) -> std::size_t {
        if constexpr (requires { list.values; }) return list.values.size();
        return 0;
      },
      positions);
}

void validate(const Positions& positions) {
  if (const auto* range = std::get_if<Range>(&positions)) {
    const std::size_t number = count_range(*range);
    if (number == 0) return;
    check(0, range->start);
    // Wrapping, but right: the last position lies between start and stop.
    const auto last = static_cast<std::int64_t>(static_cast<std::uint64_t>(range->start) +
                                                static_cast<std::uint64_t>(range->step) * static_cast<std::uint64_t>(number - 1));
    check(number - 1, last);
    return;
  }
  if (const auto* packed = std::get_if<Packed>(&positions)) return void(count_packed(*packed));
  std::visit(
      [](const auto& list) {
        if constexpr (requires { list.values; }) {
          for (std::size_t i = 0; i < list.values.size(); i++) {
            using Value = std::remove_cvref_t<decltype(list.values[i])>;
            if constexpr (!std::is_same_v<Value, std::int32_t>) check(i, list.values[i]);  // every 32-bit integer is within 2^33
          }
        }
      },
      positions);
}

}  // namespace gnomon
