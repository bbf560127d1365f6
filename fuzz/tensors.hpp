// SPDX-License-Identifier: Apache-2.0
// Bytes as numbers and as views of an arena, for targets that call operations on tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gnomon/executor.hpp"

namespace gnomon::fuzz {

inline constexpr std::int64_t arena = 1 << 15;  // elements; views must lie within it, which is the caller's business

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::int64_t byte() { return at_ < size_ ? data_[at_++] : 0; }
  /// From low to high; low once the bytes are used up.
  std::int64_t whole(std::int64_t low, std::int64_t high) { return low + byte() % (high - low + 1); }
  bool one_in(int number) { return byte() % number == number - 1; }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

struct View {
  std::int64_t begin = 0;
  std::array<std::int64_t, 4> shape{}, strides{};

  template <class Visitor>
  void each(Visitor&& visit) const {
    for (std::int64_t b = 0; b < shape[0]; b++)
      for (std::int64_t h = 0; h < shape[1]; h++)
        for (std::int64_t t = 0; t < shape[2]; t++)
          for (std::int64_t d = 0; d < shape[3]; d++) visit(begin + b * strides[0] + h * strides[1] + t * strides[2] + d, d);
  }
  bool fits() const {
    std::int64_t low = begin, high = begin;
    for (std::size_t axis = 0; axis < 4; axis++) {
      const std::int64_t reach = shape[axis] == 0 ? 0 : (shape[axis] - 1) * strides[axis];
      (reach < 0 ? low : high) += reach;
    }
    return low >= 0 && high < arena;
  }
};

/// Nested strides in a random order of the axes, sometimes with gaps, backwards, or of any size.
inline View read_view(Bytes& bytes, const std::array<std::int64_t, 4>& shape, std::int64_t begin) {
  View view{begin, shape, {0, 0, 0, 1}};
  std::array<std::size_t, 3> order{0, 1, 2};
  std::swap(order[0], order[static_cast<std::size_t>(bytes.whole(0, 2))]);
  std::swap(order[1], order[static_cast<std::size_t>(bytes.whole(1, 2))]);
  std::int64_t step = shape[3] + bytes.whole(0, 3);
  for (const auto axis : order) {
    view.strides[axis] = step;
    step *= shape[axis];
  }
  for (std::size_t axis = 0; axis < 3; axis++) {
    if (!bytes.one_in(6)) continue;
    if (bytes.one_in(2)) {
      view.strides[axis] = bytes.whole(-60, 60);
    } else {
      view.begin += view.strides[axis] * std::max<std::int64_t>(shape[axis] - 1, 0);
      view.strides[axis] = -view.strides[axis];
    }
  }
  if (bytes.one_in(40)) view.strides[3] = bytes.whole(-1, 2);
  return view;
}

/// Runs the tasks from the last to the first.
class Backwards final : public Executor {
 public:
  void run(std::size_t tasks, const std::function<void(std::size_t)>& body) override {
    for (std::size_t task = tasks; task > 0; task--) body(task - 1);
  }
  std::size_t width() const override { return 5; }
};

/// Random bytes, `length` of them each.
inline std::vector<std::string> random_seeds(int length) {
  std::vector<std::string> seeds;
  for (int seed = 0; seed < 64; seed++) {
    std::string input;
    std::uint32_t state = static_cast<std::uint32_t>(seed) + 1;
    for (int i = 0; i < length; i++) {
      state = state * 1664525 + 1013904223;
      input.push_back(static_cast<char>(state >> 24));
    }
    seeds.push_back(input);
  }
  return seeds;
}

/// Bytes at the edge of something.
inline std::vector<std::string> byte_pieces() {
  std::vector<std::string> pieces;
  for (const char byte : {0, 1, 2, 3, 4, 5, 7, 31, 32, 33, 63, 127, -128, -1}) {
    pieces.emplace_back(1, byte);
    pieces.emplace_back(8, byte);
  }
  return pieces;
}

}  // namespace gnomon::fuzz
