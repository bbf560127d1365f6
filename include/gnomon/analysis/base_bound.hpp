// SPDX-License-Identifier: Apache-2.0
// ⑤ The smallest base with which a rotation can serve a length.
#pragma once

#include <cstdint>
#include <optional>

namespace gnomon {

/// The smallest theta of five significant digits, up to 10^12, for which Σ_i cos(m * theta^(-2i/rotary_dim)) >= 0 at every distance m from
/// 1 to `length`: below it a similar key can score less than a random one. Larger thetas may fail again, so it is no interval that begins
/// there. Nothing where no theta passes (rotary_dim 2). Source: Men et al. 2024, Base of RoPE Bounds Context Length, arXiv:2405.14591,
/// theorem 2 and table 2. Throws Error(invalid_argument) unless rotary_dim is even, 2 to 4096, and 1 <= length <= longest_base_bound.
std::optional<double> smallest_base(int rotary_dim, std::int64_t length);

/// The longest length smallest_base() takes: 2^20. It takes some seconds there, and time grows with the length.
inline constexpr std::int64_t longest_base_bound = std::int64_t{1} << 20;

}  // namespace gnomon
