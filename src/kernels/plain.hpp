// SPDX-License-Identifier: Apache-2.0
// The yardsticks of benchmarks: a plain read, a read and write in place, and sums of products in registers, with the vectors of this CPU.
#pragma once

#include <cstdint>

namespace gnomon::kernels {

/// Reads, changes and writes every byte of a buffer once. bytes: a multiple of 1024.
void read_and_write(void* data, std::int64_t bytes, bool prefetch);

/// Reads every byte of a buffer once; the result depends on all of them. bytes: a multiple of 1024.
std::uint32_t read(const void* data, std::int64_t bytes, bool prefetch);

/// Products added up in registers, as fast as the CPU can: what no kernel of f32 surpasses. Returns the operations done, two a product.
double multiply_and_add(std::int64_t rounds);

/// The same of pairs of bf16; returns 0 where the CPU has no such product.
double multiply_and_add_pairs(std::int64_t rounds);

}  // namespace gnomon::kernels
