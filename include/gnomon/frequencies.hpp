// SPDX-License-Identifier: Apache-2.0
// ③ Frequencies: a rule turned into numbers, once.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gnomon/phase.hpp"
#include "gnomon/spec.hpp"

namespace gnomon {

/// `exact`: the real-number rule, each frequency correctly rounded to double, angles never rounded.
/// `hf`: transformers' float32 pipeline, operation by operation; only for rules transformers has.
enum class Numerics { exact, hf };
template <>
inline constexpr std::string_view enum_names<Numerics>[] = {"exact", "hf"};

/// The inverse of the name. Throws Error(invalid_argument) that lists the names.
Numerics numerics_of(std::string_view name);
constexpr std::string_view name_of(Numerics numerics) { return enum_names<Numerics>[static_cast<int>(numerics)]; }

/// Angular frequencies of a spec. The frequency stored is the frequency used: a double, by definition.
struct Frequencies {
  RotarySpec spec;
  Numerics numerics = Numerics::exact;
  std::optional<std::int64_t> length;  ///< of the sequence they are for, where one was given
  std::vector<double> inv_freq;        ///< (pairs), radians per position, not negative; in `hf` each is a float32 value
  double attention_factor = 1;         ///< magnitude on cos and sin, kept apart from them
  std::vector<Turns> turns;            ///< (pairs), of inv_freq; empty in `hf`, whose angles are float32 products
  std::vector<std::uint8_t> axis;      ///< (pairs), the position axis that drives each pair; empty where there is one axis
  std::vector<double> log_magnitude;   ///< (pairs), xpos: logarithm of a query's magnitude, per position beyond `centre`; else empty
  std::int64_t centre = 0;             ///< xpos: the position at which the magnitudes are 1

  /// 2π / inv_freq in positions; infinite where the frequency is 0.
  std::vector<double> wavelength() const;
};

/// Validates the spec and runs its rule. `length` is the sequence length, for rules that depend on it (dynamic, longrope); without one
/// the numbers are those of the trained length.
/// Throws Error(invalid_argument) for a bad spec, Error(unsupported) for `hf` with a rule transformers does not have.
Frequencies frequencies(const RotarySpec& spec, Numerics numerics = Numerics::exact, std::optional<std::int64_t> length = std::nullopt);

}  // namespace gnomon
