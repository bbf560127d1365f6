// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gnomon/error.hpp"
#include "gnomon/golden.hpp"
#include "plan/round.hpp"

namespace gnomon {

/// Values in their JSON forms. Throws Error(malformed).
Values values_from_json(std::string_view text);

/// Values as the tensors of a safetensors file. Throws Error(malformed).
Values values_from_safetensors(std::string_view bytes);

/// The first `number` elements of little-endian bytes. Throws Error(malformed), which begins with `where`, when there are fewer or one is
/// not finite.
template <class Element>
std::vector<double> elements_of(std::string_view bytes, std::size_t number, std::string_view where) {
  if (bytes.size() / sizeof(Element) < number) {
    throw Error(ErrorCode::malformed, fmt::format("{}: the file ends before its {} values do", where, number));
  }
  std::vector<double> result(number);
  for (std::size_t i = 0; i < number; i++) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
    if constexpr (std::is_integral_v<Element>) {
      result[i] = static_cast<double>(element);
    } else {
      result[i] = static_cast<double>(widen(element));
    }
    if (!std::isfinite(result[i])) throw Error(ErrorCode::malformed, fmt::format("{}: value {} is not finite", where, i));
  }
  return result;
}

}  // namespace gnomon
