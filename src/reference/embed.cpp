// SPDX-License-Identifier: Apache-2.0
// The double reference of add_positions.
#include "gnomon/embed.hpp"
#include "plan/position_grid.hpp"
#include "plan/round.hpp"

namespace gnomon::reference {

void add_positions(const ConstTensorView& x, const TensorView& out, const RowsView& table, const Positions& positions,
                   const EmbedOptions& options) {
  const PositionGrid grid(positions, grid_strides(positions, 1, x.shape[0], 1, false, x.shape[2]));
  const auto add = [&]<class Element, class Row>(Element, Row) {
    for (std::int64_t b = 0; b < x.shape[0]; b++) {
      for (std::int64_t t = 0; t < x.shape[2]; t++) {
        const auto* from = static_cast<const Element*>(x.data) + b * x.strides[0] + t * x.strides[2];
        auto* to = static_cast<Element*>(out.data) + b * out.strides[0] + t * out.strides[2];
        const auto* row = static_cast<const Row*>(table.data) + (grid.whole(0, b, 0, t) + table.offset) * table.row_stride;
        for (std::int64_t c = 0; c < table.width; c++) to[c] = round<Element>(options.scale * widen(from[c]) + widen(row[c]));
      }
    }
  };
  visit_dtype(x.dtype, [&]<class Element>(Element) { visit_dtype(table.dtype, [&]<class Row>(Row) { add(Element{}, Row{}); }); });
}

}  // namespace gnomon::reference
