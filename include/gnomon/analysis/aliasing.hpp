// SPDX-License-Identifier: Apache-2.0
// ⑤ Aliasing: distances at which a rotation nearly repeats.
#pragma once

#include <cstdint>
#include <vector>

#include "gnomon/frequencies.hpp"

namespace gnomon {

/// A distance at which a key looks more like one beside the query than at the distances around it.
struct Alias {
  std::int64_t distance = 0;
  double mean_cosine = 0;  ///< as mean_cosine(); 1 would be the rotation of distance 0
};

/// In each octave of distances (2 to 3, 4 to 7, …) up to `farthest` the local maximum at which mean_cosine is largest; an octave without
/// one is left out. Throws Error(invalid_argument) unless 1 <= farthest <= longest_decay.
std::vector<Alias> aliases(const Frequencies& frequencies, std::int64_t farthest);

}  // namespace gnomon
