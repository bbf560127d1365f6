// SPDX-License-Identifier: Apache-2.0
// The checks that every form of attention shares.
#pragma once

#include "gnomon/attention.hpp"

namespace gnomon {

/// Throws Error(invalid_argument) for options that do not fit to B, Hq, Tq, Tk and D.
struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, width, value_width;
};
void check_options(const AttentionShape& shape, const AttentionOptions& options);

}  // namespace gnomon
