// SPDX-License-Identifier: Apache-2.0
// The double reference of rotate: one loop per pair, nothing shared with the kernels.
#include "gnomon/rotate.hpp"

#include <cmath>

#include "plan/phase.hpp"
#include "plan/position_grid.hpp"
#include "plan/round.hpp"

namespace gnomon::reference {
namespace {

double element_at(const void* data, DType dtype, std::int64_t index) {
  return visit_dtype(dtype, [&]<class Element>(Element) -> double { return widen(static_cast<const Element*>(data)[index]); });
}

template <class Element>
class Loop {
 public:
  Loop(const RotateOperand& operand, const Rotation& rotation, const PositionGrid& grid, Direction direction)
      : x_(operand.x),
        out_(operand.out),
        rotation_(rotation),
        grid_(grid),
        sine_sign_(direction == Direction::forward ? 1 : -1),
        exponent_sign_(operand.side == Side::query ? 1 : -1) {}

  void run() const {
    for (std::int64_t b = 0; b < x_.shape[0]; b++) {
      for (std::int64_t t = 0; t < x_.shape[2]; t++) {
        for (std::int64_t h = 0; h < x_.shape[1]; h++) rotate_head(b, h, t);
      }
    }
  }

 private:
  void rotate_head(std::int64_t b, std::int64_t h, std::int64_t t) const {
    const auto* from = static_cast<const Element*>(x_.data) + b * x_.strides[0] + h * x_.strides[1] + t * x_.strides[2];
    auto* to = static_cast<Element*>(out_.data) + b * out_.strides[0] + h * out_.strides[1] + t * out_.strides[2];
    if (from != to) std::copy(from, from + x_.shape[3], to);
    const bool interleaved = rotation_.layout == PairLayout::interleaved;
    for (std::int64_t i = 0; i < rotation_.pairs(); i++) {
      const std::int64_t first = rotation_.rotary_offset + (interleaved ? 2 * i : i),
                         second = first + (interleaved ? 1 : rotation_.pairs());
      const auto [c, s] = numbers(b, h, t, i);
      const double magnitude = rotation_.magnitude * decay(b, h, t, i);
      const double cosine = c * magnitude, sine = sine_sign_ * s * magnitude;
      const double a = widen(to[first]), b2 = widen(to[second]);
      to[first] = round<Element>(a * cosine - b2 * sine);
      to[second] = round<Element>(b2 * cosine + a * sine);
    }
  }

  int axis(std::int64_t pair) const { return rotation_.axis.empty() ? 0 : rotation_.axis[static_cast<std::size_t>(pair)]; }

  std::pair<double, double> numbers(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t pair) const {
    if (rotation_.table) {
      const auto& table = *rotation_.table;
      const std::int64_t index = grid_.whole(0, b, h, t) * table.row_stride + pair;
      return {element_at(table.cos, table.dtype, index), element_at(table.sin, table.dtype, index)};
    }
    const auto& turns = rotation_.turns[static_cast<std::size_t>(pair)];
    return cos_sin(grid_.is_real() ? phase_at(grid_.real(axis(pair), b, h, t), turns) : phase_at(grid_.whole(axis(pair), b, h, t), turns));
  }

  double decay(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t pair) const {
    if (rotation_.log_magnitude.empty()) return 1;
    const int at = axis(pair);
    const double position = grid_.is_real() ? grid_.real(at, b, h, t) : static_cast<double>(grid_.whole(at, b, h, t));
    return std::exp(exponent_sign_ * rotation_.log_magnitude[static_cast<std::size_t>(pair)] *
                    (position - static_cast<double>(rotation_.centre)));
  }

  const ConstTensorView& x_;
  const TensorView& out_;
  const Rotation& rotation_;
  const PositionGrid& grid_;
  double sine_sign_, exponent_sign_;
};

}  // namespace

void rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions, const RotateOptions& options) {
  for (const auto& operand : operands) {
    const auto& shape = operand.x.shape;
    const PositionGrid grid(positions, grid_strides(positions, rotation.axes(), shape[0], shape[1], options.positions_per_head, shape[2]));
    visit_dtype(operand.x.dtype, [&]<class Element>(Element) { Loop<Element>(operand, rotation, grid, options.direction).run(); });
  }
}

void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions,
            const RotateOptions& options) {
  const RotateOperand operand{x, out};
  reference::rotate(std::span(&operand, 1), rotation, positions, options);
}

}  // namespace gnomon::reference
