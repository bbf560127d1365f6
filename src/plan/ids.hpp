// SPDX-License-Identifier: Apache-2.0
// What the builders of position ids share.
#pragma once

#include <fmt/format.h>

#include "gnomon/error.hpp"
#include "gnomon/position_ids.hpp"

namespace gnomon {

[[noreturn]] inline void refuse_ids(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

/// How many ids one call makes at most; what is asked for may come from anywhere.
inline constexpr std::int64_t max_ids = (std::int64_t{1} << 31) - 1;

/// A sum or product of counts that are not negative. Throws Error(out_of_range) beyond max_ids.
inline std::int64_t bounded(std::int64_t value) {
  if (value <= max_ids) return value;
  throw Error(ErrorCode::out_of_range, fmt::format("position ids: expected at most {} in one call, got {}", max_ids, value));
}
inline std::int64_t bounded_product(std::int64_t a, std::int64_t b) { return a == 0 || b == 0 ? 0 : bounded(bounded(a) * bounded(b)); }

/// A sum of lengths, none of them negative.
std::int64_t total(std::string_view name, std::span<const TokenCount> lengths);

/// All of them 0.
inline PositionIds blank_ids(std::int64_t axes, std::int64_t batch, std::int64_t tokens) {
  const auto number = static_cast<std::size_t>(bounded_product(axes, bounded_product(batch, tokens)));
  return {std::vector<std::int64_t>(number), axes, batch, tokens};
}

}  // namespace gnomon
