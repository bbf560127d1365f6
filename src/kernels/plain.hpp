// SPDX-License-Identifier: Apache-2.0
// The yardstick of benchmarks: a plain in-place read and write with the vectors of this CPU.
#pragma once

#include <cstdint>

namespace gnomon::kernels {

/// Reads, changes and writes every byte of a buffer once. bytes: a multiple of 1024.
void read_and_write(void* data, std::int64_t bytes, bool prefetch);

}  // namespace gnomon::kernels
