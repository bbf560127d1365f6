// SPDX-License-Identifier: Apache-2.0
// What operations check about the memory they are given.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "gnomon/tensor.hpp"

namespace gnomon {

/// Throws Error(invalid_argument).
[[noreturn]] void refuse(const std::string& message);

/// "(1, 2, 3, 4)"
std::string text(const std::array<std::int64_t, 4>& shape);

/// Throws unless the view has extents of at least 0, a contiguous last axis of `width` (which `what` names), and aligned memory.
void check_view(std::string_view name, const ConstTensorView& view, std::int64_t width, std::string_view what);

/// Throws unless out has the shape and dtype of x.
void check_same(const ConstTensorView& x, const TensorView& out);

/// First byte and the byte past the last one that a view with elements touches.
std::pair<std::uintptr_t, std::uintptr_t> extent(const ConstTensorView& view);

bool is_empty(const ConstTensorView& view);

/// Whether writing one head of a view with a contiguous last axis could change another.
bool overlaps_itself(const ConstTensorView& view);

/// Whether two views of one dtype name the same elements in the same order.
bool is_same_view(const ConstTensorView& a, const ConstTensorView& b);

/// Whether two views share no byte: because one ends before the other begins, or because both step alike along an axis and never meet
/// within a step, as the queries and keys of one fused projection. May be false for views that are apart in other ways.
bool are_apart(const ConstTensorView& a, const ConstTensorView& b);

/// Throws unless `out` can be written while `x` is read: the very same view, or memory of its own.
void check_written(const ConstTensorView& x, const TensorView& out);

}  // namespace gnomon
