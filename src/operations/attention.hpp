// SPDX-License-Identifier: Apache-2.0
// The checks that every form of attention shares, and what its kernel of tiles is given.
#pragma once

#include "gnomon/attention.hpp"
#include "kernels/attention.hpp"
#include "operations/rotate.hpp"

namespace gnomon {

/// Throws Error(invalid_argument) for options that do not fit to B, Hq, Tq, Tk and D.
struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, width, value_width;
};
void check_options(const AttentionShape& shape, const AttentionOptions& options);

/// A call as plain pointers and numbers. A view of the options, which must outlive it; tests and benchmarks change the job.
class TileCall {
 public:
  TileCall(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
           const AttentionOptions& options);
  TileCall(const TileCall&) = delete;
  TileCall& operator=(const TileCall&) = delete;

  kernels::AttentionJob job;

 private:
  struct Load {
    Load(const ConstTensorView& x, const RotationOnLoad& load);
    PositionGrid grid;
    kernels::RotateJob job;
  };
  std::optional<Load> queries_, keys_;
};

}  // namespace gnomon
