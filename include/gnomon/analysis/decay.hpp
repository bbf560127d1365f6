// SPDX-License-Identifier: Apache-2.0
// ⑤ Long-term decay: what distance alone does to a score. Several axes stand at the same distance, as in text; the magnitudes of a rule
// (attention_factor, xpos) are left out.
#pragma once

#include <cstdint>
#include <optional>

#include "gnomon/frequencies.hpp"

namespace gnomon {

/// Mean over the pairs of cos(distance * inv_freq): the score of a key that equals its query, 1 at distance 0. Times the number of pairs
/// it is B_m of Men et al. 2024, Base of RoPE Bounds Context Length, arXiv:2405.14591, section 4. The angles are exact.
double mean_cosine(const Frequencies& frequencies, std::int64_t distance);

/// Mean over j of |S_j|, S_j = Σ_{i<j} exp(√-1 * distance * inv_freq[i]), j = 1 … pairs: what bounds a score at that distance, up to how
/// unlike neighbouring pairs are. (pairs + 1) / 2 at distance 0. Source: Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.4.3, figure 2.
double decay_bound(const Frequencies& frequencies, std::int64_t distance);

/// The first distance from 1 to `farthest` at which mean_cosine is negative, so that a similar key scores below a random one; nothing
/// when there is none. Source: as mean_cosine, theorem 2. Throws Error(invalid_argument) unless 1 <= farthest <= longest_decay.
std::optional<std::int64_t> first_negative_distance(const Frequencies& frequencies, std::int64_t farthest);

/// The farthest distance that is searched one by one: 2^22.
inline constexpr std::int64_t longest_decay = std::int64_t{1} << 22;

}  // namespace gnomon
