// SPDX-License-Identifier: Apache-2.0
// ② Bias rule `kerple`: a logarithmic or a power-law penalty of the distance, with two numbers per head.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::bias {

/// Which conditionally positive definite kernel the penalty is.
enum class KerpleKind { log, power };

/// score += -r1[h] ln(1 + r2[h] |query - key|), or -r1[h] |query - key|^r2[h]. Trained, but two plain numbers a head: they are stated.
struct Kerple {
  std::int64_t heads = 0;
  KerpleKind kind = KerpleKind::log;
  std::vector<double> r1;
  std::vector<double> r2;

  static constexpr std::string_view name = "kerple";
  static constexpr std::string_view summary = "A penalty that grows with the logarithm or a power of the distance, two numbers per head.";
  static constexpr std::string_view formula =
      "log: score[i, j] += -r1[h] ln(1 + r2[h] |i - j|)\n"
      "power: score[i, j] += -r1[h] |i - j|^r2[h]";
  static constexpr std::string_view citation =
      "Chi et al. 2022, KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, arXiv:2205.09921, section 4";
  static constexpr std::string_view example = R"("heads": 2, "kind": "log", "r1": [1, 0.5], "r2": [0.5, 0.25])";
  static constexpr std::tuple fields{
      required_field("heads", &Kerple::heads, at_least(1), "query heads"),
      required_field("kind", &Kerple::kind, {}, "whether the penalty is logarithmic or a power law"),
      required_field("r1", &Kerple::r1, positive(), "size of the penalty, a value for each head"),
      required_field("r2", &Kerple::r2, positive(), "log: factor of the distance; power: exponent, at most 2; a value for each head"),
  };

  void check() const {
    for (const auto& [field, list] : {std::pair("r1", &r1), std::pair("r2", &r2)}) {
      if (list->size() == static_cast<std::size_t>(heads)) continue;
      throw Error(ErrorCode::invalid_argument, std::string(field) + ": expected one value for each of the " + std::to_string(heads) +
                                                   " heads, got " + std::to_string(list->size()));
    }
    if (kind == KerpleKind::log) return;
    for (const double exponent : r2) {
      if (exponent <= 2) continue;
      throw Error(ErrorCode::invalid_argument, "r2: expected an exponent of at most 2, got " + std::to_string(exponent));
    }
  }
  bool operator==(const Kerple&) const = default;
};

}  // namespace gnomon::bias

template <>
inline constexpr std::string_view gnomon::enum_names<gnomon::bias::KerpleKind>[] = {"log", "power"};
