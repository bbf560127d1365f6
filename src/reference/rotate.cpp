// SPDX-License-Identifier: Apache-2.0
// The double reference of rotate: one loop per pair, nothing shared with the kernels.
#include "gnomon/rotate.hpp"

#include "plan/phase.hpp"
#include "plan/round.hpp"

namespace gnomon::reference {
namespace {

std::uint64_t phase_of(const Positions& positions, std::size_t index, const Turns& turns) {
  if (const auto* range = std::get_if<Range>(&positions))
    return phase_at(range->start + static_cast<std::int64_t>(index) * range->step, turns);
  if (const auto* ids = std::get_if<Ids32>(&positions)) return phase_at(static_cast<std::int64_t>(ids->values[index]), turns);
  if (const auto* wide = std::get_if<Ids>(&positions)) return phase_at(wide->values[index], turns);
  return phase_at(std::get<Reals>(positions).values[index], turns);
}

template <class Element>
class Loop {
 public:
  Loop(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions, Direction direction)
      : x_(x),
        out_(out),
        rotation_(rotation),
        positions_(positions),
        sign_(direction == Direction::forward ? 1 : -1),
        shared_(count(positions) == static_cast<std::size_t>(x.shape[2])) {}

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
    const auto pairs = static_cast<std::int64_t>(rotation_.turns.size());
    const bool interleaved = rotation_.layout == PairLayout::interleaved;
    for (std::int64_t i = 0; i < pairs; i++) {
      const std::int64_t first = rotation_.rotary_offset + (interleaved ? 2 * i : i), second = first + (interleaved ? 1 : pairs);
      const auto index = static_cast<std::size_t>(shared_ ? t : b * x_.shape[2] + t);
      const auto [c, s] = cos_sin(phase_of(positions_, index, rotation_.turns[static_cast<std::size_t>(i)]));
      const double cosine = c * rotation_.magnitude, sine = sign_ * s * rotation_.magnitude;
      const double a = widen(to[first]), b2 = widen(to[second]);
      to[first] = round<Element>(a * cosine - b2 * sine);
      to[second] = round<Element>(b2 * cosine + a * sine);
    }
  }

  const ConstTensorView& x_;
  const TensorView& out_;
  const Rotation& rotation_;
  const Positions& positions_;
  double sign_;
  bool shared_;
};

}  // namespace

void rotate(const ConstTensorView& x, const TensorView& out, const Rotation& rotation, const Positions& positions, Direction direction) {
  visit_dtype(x.dtype, [&]<class Element>(Element) { Loop<Element>(x, out, rotation, positions, direction).run(); });
}

}  // namespace gnomon::reference
