// SPDX-License-Identifier: Apache-2.0
// ⑤ Extending a context: the rules that could replace a model's own, and what each changes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnomon/analysis/method.hpp"
#include "gnomon/spec.hpp"

namespace gnomon {

/// What a model was trained with.
struct Training {
  RotarySpec spec;
  std::int64_t length = 0;    ///< the longest it saw with this spec
  std::int64_t original = 0;  ///< the length before any scaling, from which factors count; the same where there was none
};

/// One way to run a model at another length.
struct Extension {
  std::string method;  ///< as with_method takes it
  RotarySpec spec;

  /// Short texts: the mean cosine (Drift) between this rotation and the trained one at the trained length, and the first distance from
  /// which it is below 0.99; nothing when there is none inside the trained length.
  double drift_cosine = 1;
  std::optional<std::int64_t> drifts_from;

  /// Long texts: pairs that never completed a turn in training and now turn further than they ever did, and how many times as far.
  int unseen_pairs = 0;
  double overshoot = 1;

  /// As first_negative_distance() up to the new length.
  std::optional<std::int64_t> negative_from;

  /// As extrapolation_limit() of the base in effect, for methods that only change the base; what the paper predicts after tuning.
  std::optional<double> limit;
};

struct ExtensionReport {
  Training training;
  std::int64_t to = 0;
  int pairs_with_a_turn = 0;             ///< in training
  std::optional<double> critical_base;   ///< for tuning at the new length; for rules with a base above 1
  std::optional<double> smallest_base;   ///< smallest_base() for the new length, where it was looked for: up to longest_base_bound
  std::vector<Extension> extensions;     ///< `none` first
};

/// Every method that applies, with a factor of to / original; theta with the base whose extrapolation_limit is `to`. Throws
/// Error(invalid_argument) unless 7 <= original <= length < to <= longest_decay, and what with_method() and frequencies() throw.
ExtensionReport extend(const Training& training, std::int64_t to);

}  // namespace gnomon
