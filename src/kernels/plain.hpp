// SPDX-License-Identifier: Apache-2.0
// The yardsticks of benchmarks: a plain read, and a read and write in place, with the vectors of this CPU.
#pragma once

#include <cstdint>

namespace gnomon::kernels {

/// Reads, changes and writes every byte of a buffer once. bytes: a multiple of 1024.
void read_and_write(void* data, std::int64_t bytes, bool prefetch);

/// Reads every byte of a buffer once; the result depends on all of them. bytes: a multiple of 1024.
std::uint32_t read(const void* data, std::int64_t bytes, bool prefetch);

}  // namespace gnomon::kernels
