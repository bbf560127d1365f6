// SPDX-License-Identifier: Apache-2.0
// ⑤ Which channels saw a full turn in training, and how far that lets a base reach. Source of all: Liu et al. 2023, Scaling Laws of
// RoPE-based Extrapolation, arXiv:2310.05209, theorems 1 and 2. Widths are rotary widths. Each function throws Error(invalid_argument) for a
// base not above 1, a rotary_dim that is odd or below 2, a dimension that is not within it, and lengths below 7, in which nothing turns.
#pragma once

#include <cstdint>

#include "gnomon/frequencies.hpp"

namespace gnomon {

/// Pairs whose wavelength is at most `length`. Twice it is the critical dimension of any rule. Throws for a length below 1.
int pairs_with_a_turn(const Frequencies& frequencies, std::int64_t length);

/// Critical dimension 2 * ceil(rotary_dim/2 * log_theta(trained / 2π)), at most rotary_dim: channels that saw a full turn in training.
int critical_dimension(double theta, int rotary_dim, std::int64_t trained);

/// The length up to which a model can go that was tuned with `base` at its trained length: 2π * base^(dimension / rotary_dim).
double extrapolation_limit(double base, int dimension, int rotary_dim);

/// The inverse: the base whose extrapolation_limit is `length`, (length / 2π)^(rotary_dim / dimension).
double base_for_limit(std::int64_t length, int dimension, int rotary_dim);

/// Above this base a model tuned at length `tuned` goes on to extrapolation_limit(), at or below it ends at `tuned`:
/// theta^(log_{trained/2π}(tuned / 2π)).
double critical_base(double theta, std::int64_t trained, std::int64_t tuned);

}  // namespace gnomon
