// SPDX-License-Identifier: Apache-2.0
// Known mistakes: each a hypothesis that gives the numbers an engine would make under it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/golden.hpp"

namespace gnomon {

/// Numbers made under a hypothesis, at the positions of a Case.
struct Suspect {
  std::string found;
  double attention_factor = 1;
  GoldenNumbers numbers;
  int digits = 0;  ///< of a parameter that was fitted to the values; 0 where none was
};

/// What a hypothesis may look at.
struct Case {
  const Golden& golden;
  std::vector<std::int64_t> positions;  ///< of the rows to make; none where there are frequencies only
  std::vector<double> inv_freq;         ///< the frequencies that the values have, where they can be told; else empty
};

/// A mistake in frequencies, positions, arithmetic or order. Its suspects come the likeliest first; there are none where the mistake
/// cannot be made with this rule.
struct Hypothesis {
  std::string_view name, cause;
  std::vector<Suspect> (*suspects)(const Case&);
};
std::span<const Hypothesis> hypotheses();

/// A mistake in the magnitude: which one it would give, or 0 where it cannot be made.
struct MagnitudeHypothesis {
  std::string_view name, cause;
  double (*magnitude)(const Golden&);
};
std::span<const MagnitudeHypothesis> magnitude_hypotheses();

/// Those that verify finds by itself.
inline constexpr MistakeInfo layout_mistake{
    "layout", "pairs (i, i + r/2) were taken for pairs (2i, 2i + 1) or the other way round; weights and tables have one layout"};
inline constexpr MistakeInfo magnitude_mistake{"magnitude", "cos and sin carry a magnitude that no known mistake gives"};
inline constexpr MistakeInfo exact_numbers{
    "exact-numbers", "no mistake: angles that were not rounded, held to the float32 pipeline; compare with --numerics exact"};

}  // namespace gnomon
