// SPDX-License-Identifier: Apache-2.0
// Attention of few queries against a long cache, contiguous or in pages: the first implementation of attention's list.
#pragma once

#include <cstdint>
#include <span>

#include "gnomon/attention.hpp"

namespace gnomon {

/// Keys and values (B,Hk,T,·), or pages (pages,Hk,page_size,·) with the blocks of each row of the batch.
struct CacheView {
  const ConstTensorView& keys;
  const ConstTensorView& values;
  std::int64_t length;  ///< Tk
  std::span<const std::int32_t> block_table = {};
};

/// Whether decode takes a call: few rows for each key head, and nothing asked for that it has no loop for.
bool decode_fits(const ConstTensorView& q, const CacheView& cache, const AttentionOptions& options);

/// Every split of the keys of every key head is a task, of a size that does not depend on the threads; what they give is added up in their
/// order, so that the result is the same to the last bit for any executor. The arguments are checked already.
void decode(const ConstTensorView& q, const CacheView& cache, const TensorView& out, const AttentionOptions& options);

}  // namespace gnomon
