// SPDX-License-Identifier: Apache-2.0
// What the shapes of tensors say about position, and whether it is what the keys say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gnomon/model.hpp"

namespace gnomon::files {

struct TensorShape {
  std::string name;
  std::string dtype;                 ///< empty where it does not matter
  std::vector<std::uint64_t> shape;  ///< the slowest axis first
  std::uint64_t begin = 0;           ///< of its data, in a file that was read for them
};

/// Compares the shapes with the set-up of the model's layers: rows of query projections, of learned positions (which are taken over) and of
/// tables of buckets, frequencies kept as a buffer, sink logits. Each kind of contradiction becomes one doubt.
void check_tensors(std::span<const TensorShape> tensors, const std::string& file, Model& model);

}  // namespace gnomon::files
