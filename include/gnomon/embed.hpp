// SPDX-License-Identifier: Apache-2.0
// ④ embed: the structure "add rows", x ← x + E[position], for every absolute rule, alone or fused with the lookup of token embeddings.
#pragma once

#include <cstdint>
#include <span>

#include "gnomon/executor.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/table.hpp"
#include "gnomon/tensor.hpp"

namespace gnomon {

/// A table of rows: learned positions, token embeddings, or a made EmbeddingTable. A view; the memory must outlive it.
struct RowsView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t width = 0;       ///< C
  std::int64_t row_stride = 0;  ///< from one row to the next, in elements; a row is contiguous
  std::int64_t offset = 0;      ///< row of position 0; rows - offset is the trained length

  RowsView() = default;
  RowsView(const void* data_, DType dtype_, std::int64_t rows_, std::int64_t width_, std::int64_t row_stride_, std::int64_t offset_ = 0)
      : data(data_), dtype(dtype_), rows(rows_), width(width_), row_stride(row_stride_), offset(offset_) {}
  RowsView(const EmbeddingTable& table)
      : RowsView(table.rows.data(), table.dtype, static_cast<std::int64_t>(table.positions), table.spec.width, table.spec.width) {}
};

struct EmbedOptions {
  double scale = 1;              ///< on what the rows are added to: x, or the token embeddings (sqrt(C) in the paper)
  Executor* executor = nullptr;  ///< none: the calling thread does the work
};

/// out = scale * x + E[position + offset]. x and out (B,1,T,C), C = table.width; any dtype, any strides with a contiguous last axis; out
/// may be the very same view as x. The table may have another dtype. positions: (T) or (B,T) integers; each must have a row.
/// Float32 products and a sum (double where x is f64), rounded once. The result does not depend on the executor.
/// Throws Error(invalid_argument) that names the argument, Error(out_of_range) for a position without a row: it names the position, the
/// trained length, the rows and the offset.
/// Source: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762, section 3.5.
void add_positions(const ConstTensorView& x, const TensorView& out, const RowsView& table, const Positions& positions,
                   const EmbedOptions& options = {});

/// The same with x[b, t] = tokens[ids[b, t]], which is never written down: out = scale * tokens[id] + E[position + offset].
/// ids: B·T token ids, row by row; each must be a row of `tokens`.
void embed_tokens(std::span<const std::int64_t> ids, const RowsView& tokens, const TensorView& out, const RowsView& table,
                  const Positions& positions, const EmbedOptions& options = {});

/// The gradient of a lookup: sum[row(b, t)] += scale * gradient[b, t], row(b, t) = index(b, t) + offset. gradient (B,1,T,C) of any dtype;
/// sum is (1,1,rows,C), f32 or f64, and is added to. The sum over the tokens of a row is taken in their order, in the type of `sum`, so
/// that it is the same on every run and for every executor.
/// Throws as add_positions.
void scatter_add_rows(const ConstTensorView& gradient, const Positions& indexes, std::int64_t offset, const TensorView& sum,
                      const EmbedOptions& options = {});

namespace reference {
/// add_positions in double, rounded once: what the kernels are tested against, and what runs f64. The arguments must be as add_positions
/// demands them; nothing is checked.
void add_positions(const ConstTensorView& x, const TensorView& out, const RowsView& table, const Positions& positions,
                   const EmbedOptions& options = {});
}  // namespace reference

}  // namespace gnomon
