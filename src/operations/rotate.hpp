// SPDX-License-Identifier: Apache-2.0
// The checks of rotate, for operations that rotate inside.
#pragma once

#include <span>

#include "gnomon/rotate.hpp"
#include "kernels/rotate.hpp"
#include "plan/position_grid.hpp"

namespace gnomon {

/// Throws what rotate throws for its arguments; nothing is said about memory. Settles how the positions are shared.
PositionGrid::Strides check_rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions,
                                   const RotateOptions& options);

/// What the kernel needs to know of a rotation, which must outlive it as the positions must; tensors are the caller's to fill in.
kernels::RotateJob rotate_job(const Rotation& rotation, const PositionGrid& grid);

/// rotate of arguments that are checked already, with what check_rotate settled.
void run_rotate(std::span<const RotateOperand> operands, const Rotation& rotation, const Positions& positions,
                const PositionGrid::Strides& strides, const RotateOptions& options, kernels::CosSin cos_sin = kernels::CosSin::by_phase);

}  // namespace gnomon
