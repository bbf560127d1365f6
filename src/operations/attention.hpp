// SPDX-License-Identifier: Apache-2.0
// The checks that every form of attention shares, and what its kernel of tiles is given.
#pragma once

#include "gnomon/attention.hpp"
#include "kernels/attention.hpp"
#include "operations/rotate.hpp"

namespace gnomon {

/// Throws unless a list has as many numbers as `what` says.
void check_size(std::string_view name, std::size_t size, std::int64_t expected, std::string_view what);

/// Throws unless k has the batch, the width and the dtype of q, and a number of heads that divides its own.
void check_heads(const ConstTensorView& q, const ConstTensorView& k);

/// What options must fit to: B, Hq, Tq, Tk.
struct AttentionShape {
  std::int64_t batch, heads, queries, keys;
};
/// Throws Error(invalid_argument) for options that do not.
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
