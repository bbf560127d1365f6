// SPDX-License-Identifier: Apache-2.0
// Memory for (B,H,T,D) tensors in every order a caller may hold them, with room around and between the rows that must stay untouched.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "elements.hpp"
#include "gnomon/tensor.hpp"

namespace testing_support {

/// How the axes lie in memory.
enum class Order {
  bhtd,         ///< contiguous
  bthd,         ///< what a projection leaves: heads inside tokens
  padded,       ///< rows longer than D, by an odd number of elements
  backwards,    ///< tokens and heads run down in memory
  interleaved,  ///< batches inside tokens inside heads, all strides unusual
};
inline constexpr Order all_orders[] = {Order::bhtd, Order::bthd, Order::padded, Order::backwards, Order::interleaved};

using Shape = std::array<std::int64_t, 4>;  // (B,H,T,D)

/// An element of f16, as bits; bf16 is std::uint16_t.
struct Half {
  std::uint16_t bits;
};

template <class Element>
constexpr gnomon::DType dtype_for() {
  if constexpr (std::is_same_v<Element, Half>) return gnomon::DType::f16;
  if constexpr (std::is_same_v<Element, double>) return gnomon::DType::f64;
  if constexpr (std::is_same_v<Element, float>) return gnomon::DType::f32;
  return gnomon::DType::bf16;
}

inline double decode(double value) { return value; }
inline double decode(float value) { return static_cast<double>(value); }
inline double decode(std::uint16_t value) { return decode_bf16(value); }
inline double decode(Half value) { return decode_f16(value.bits); }
template <class Element>
Element encode(double value) {
  if constexpr (std::is_same_v<Element, Half>)
    return {nearest_f16(value)};
  else if constexpr (std::is_same_v<Element, std::uint16_t>)
    return nearest_bf16(static_cast<float>(value));
  else
    return static_cast<Element>(value);
}

/// Half the distance from a number to its neighbours in an element type: one rounding to nearest.
template <class Element>
double half_ulp(double size) {
  constexpr bool half = std::is_same_v<Element, Half>, brain = std::is_same_v<Element, std::uint16_t>,
                 single = std::is_same_v<Element, float>;
  constexpr int digits = half ? 11 : brain ? 8 : single ? 24 : 53, least = half ? -14 : brain || single ? -126 : -1022;
  return std::ldexp(1.0, std::max(size == 0 ? least : std::ilogb(size), least) - digits);
}

template <class Element>
struct Strided {
  Shape shape{}, strides{};
  std::vector<Element> memory;
  std::int64_t origin = 0;

  Strided(Shape shape_, Order order) : shape(shape_) {
    const auto [B, H, T, D] = shape;
    switch (order) {
      case Order::bhtd:
        strides = {H * T * D, T * D, D, 1};
        break;
      case Order::bthd:
        strides = {T * H * D, D, H * D, 1};
        break;
      case Order::padded:
        strides = {H * T * (D + 3), T * (D + 3), D + 3, 1};
        break;
      case Order::backwards:
        strides = {H * T * D, -T * D, -D, 1};
        break;
      case Order::interleaved:
        strides = {D + 1, T * B * (D + 1), B * (D + 1), 1};
        break;
    }
    constexpr std::int64_t guard = 19;  // odd, so that rows are not aligned to vectors
    std::int64_t low = 0, high = 0;
    for (std::size_t axis = 0; axis < 4; axis++) {
      const std::int64_t reach = shape[axis] == 0 ? 0 : (shape[axis] - 1) * strides[axis];
      (reach < 0 ? low : high) += reach;
    }
    origin = guard - low;
    memory.resize(static_cast<std::size_t>(high - low + 1 + 2 * guard));
  }

  Element& at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
    return memory[static_cast<std::size_t>(origin + b * strides[0] + h * strides[1] + t * strides[2] + d)];
  }
  const Element& at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) const {
    return const_cast<Strided*>(this)->at(b, h, t, d);
  }
  gnomon::TensorView view() { return {memory.data() + origin, dtype_for<Element>(), shape, strides}; }
  gnomon::ConstTensorView view() const { return {memory.data() + origin, dtype_for<Element>(), shape, strides}; }

  template <class Visitor>
  void each(Visitor&& visit) const {
    for (std::int64_t b = 0; b < shape[0]; b++)
      for (std::int64_t h = 0; h < shape[1]; h++)
        for (std::int64_t t = 0; t < shape[2]; t++)
          for (std::int64_t d = 0; d < shape[3]; d++) visit(b, h, t, d);
  }

  /// Random bits everywhere (NaNs among them), then numbers of size about 1 in the tensor.
  template <class Draw>
  void fill(Draw& draw) {
    fill_with_bits(draw);
    each([&](auto b, auto h, auto t, auto d) {
      at(b, h, t, d) = encode<Element>(static_cast<double>(draw.whole(-(1 << 24), 1 << 24)) * 0x1p-23);
    });
  }
  template <class Draw>
  void fill_with_bits(Draw& draw) {
    for (Element& element : memory) {
      const auto bits = static_cast<std::uint64_t>(draw.whole(0, INT64_MAX));
      std::memcpy(&element, &bits, sizeof(Element));
    }
  }
};

/// The same numbers in another order or type.
template <class To, class From>
Strided<To> converted(const Strided<From>& from, Order order = Order::bhtd) {
  Strided<To> to(from.shape, order);
  from.each([&](auto b, auto h, auto t, auto d) { to.at(b, h, t, d) = encode<To>(decode(from.at(b, h, t, d))); });
  return to;
}

template <class Element>
bool same_bits(const Element& a, const Element& b) {
  return std::memcmp(&a, &b, sizeof(Element)) == 0;
}

}  // namespace testing_support
