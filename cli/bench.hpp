// SPDX-License-Identifier: Apache-2.0
// What the benchmarks share: memory as a serving engine would ask for it, numbers to put into it, and a clock.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "gnomon/tensor.hpp"
#include "plan/round.hpp"

namespace gnomon::cli {

struct BenchOptions {
  int threads = 0;  // 0: two, where there are as many cores
  bool json = false;

  std::size_t threads_or_two() const {
    return threads > 0 ? static_cast<std::size_t>(threads) : std::min(std::max(1U, std::thread::hardware_concurrency()), 2U);
  }
};

int bench_kv(const BenchOptions& options);
int bench_decode(const BenchOptions& options);
int bench_attention(const BenchOptions& options);

/// Memory on huge pages where the system has them, as a serving engine would ask for: small ones cost both sides of a ratio time, and not
/// the same.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : size_((bytes + page - 1) / page * page), data_(static_cast<std::byte*>(std::aligned_alloc(page, size_))) {
    if (data_ == nullptr) throw std::bad_alloc();
    madvise(data_.get(), size_, MADV_HUGEPAGE);  // a wish; a kernel without them says no
    std::memset(data_.get(), 0, size_);
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t page = 2 << 20;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

/// Numbers of size about 1 in every dtype but f64, by their bits.
inline void fill_with_numbers(std::byte* data, std::int64_t bytes, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  const auto size = size_of(dtype);
  for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(size)) {
    const auto bits = static_cast<std::uint32_t>(random());
    const std::uint32_t f32 = 0x3f000000u | (bits & 0x80ffffffu);
    const auto half = static_cast<std::uint16_t>(dtype == DType::bf16 ? f32 >> 16 : 0x3800u | (bits & 0x87ffu));
    dtype == DType::f32 ? std::memcpy(data + i, &f32, 4) : std::memcpy(data + i, &half, 2);
  }
}

/// Elements [first, first + number) in double.
inline std::vector<double> in_double(const std::byte* data, DType dtype, std::int64_t first, std::int64_t number) {
  std::vector<double> result;
  visit_dtype(dtype, [&]<class Element>(Element element) {
    for (std::int64_t i = first; i < first + number; i++) {
      std::memcpy(&element, data + i * static_cast<std::int64_t>(sizeof element), sizeof element);
      result.push_back(widen(element));
    }
  });
  return result;
}

template <class Body>
double seconds(std::int64_t repeats, Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < repeats; i++) body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(repeats);
}

/// Best times of a yardstick, which comes in two forms, and of what is measured, taken in turn so that all see the same machine. One thread
/// is timed by the time it ran, so that whoever shares its core does not count.
struct BestTimes {
  double plain = std::numeric_limits<double>::infinity(), measured = plain;

  template <class Plain, class Measured>
  BestTimes(bool one_thread, int milliseconds, Plain&& plain_body, Measured&& measured_body) {
    const auto clock = one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const auto take = [&](double& best, const auto& body) {
      const double start = seconds_of(clock);
      body();
      best = std::min(best, seconds_of(clock) - start);
    };
    const double end = seconds_of(CLOCK_MONOTONIC) + milliseconds * 1e-3;
    for (int round = 0; round < 5 || (round < 400 && seconds_of(CLOCK_MONOTONIC) < end); round++) {
      take(plain, [&] { plain_body(false); });
      take(measured, measured_body);
      take(plain, [&] { plain_body(true); });
    }
  }

 private:
  static double seconds_of(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
};

}  // namespace gnomon::cli
