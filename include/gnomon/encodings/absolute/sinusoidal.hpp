// SPDX-License-Identifier: Apache-2.0
// ② Absolute rule `sinusoidal`: rows of sines and cosines, in every order and denominator in use.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon {
namespace absolute {

/// Where sines and cosines stand in a row.
enum class SinusoidOrder {
  interleaved,  ///< sin, cos, sin, cos, … (the paper)
  sin_cos,      ///< all sines, then all cosines (Marian, fairseq, Whisper)
  cos_sin,      ///< all cosines, then all sines
};

/// What the exponent of frequency j is divided by.
enum class SinusoidDenominator {
  width,           ///< theta^(-2j/width): the paper
  half_minus_one,  ///< theta^(-j/(width/2 - 1)): the slowest frequency is exactly 1/theta (tensor2tensor, fairseq, Whisper)
};

/// What becomes of the last column when a row has an odd number of them.
enum class OddWidth {
  refuse,
  extra_sine,  ///< one sine more than cosines
  zero_pad,    ///< a zero in the last column
};

/// E[p] = scale * (sin, cos)(w_j (p + offset)). With several axes a row is as many equal parts, one for the position on each axis:
/// the 2-D form of vision models. Nothing has a default that code in the field disagrees about.
struct Sinusoidal {
  SinusoidOrder order = SinusoidOrder::interleaved;
  SinusoidDenominator denominator = SinusoidDenominator::width;
  double theta = 10000;
  OddWidth odd_width = OddWidth::refuse;
  double scale = 1;
  std::int64_t offset = 0;
  std::int64_t axes = 1;

  static constexpr std::string_view name = "sinusoidal";
  static constexpr std::string_view summary = "Rows of sines and cosines of the position, added to the input.";
  static constexpr std::string_view formula =
      "w[j]  = theta^(-2j/C) or theta^(-j/(C/2 - 1)), C = width / axes\n"
      "E[p]  = scale * (sin(w[j] (p + offset)), cos(w[j] (p + offset)))";
  static constexpr std::string_view citation = "Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762, section 3.5";
  static constexpr std::tuple fields{
      required_field("order", &Sinusoidal::order, {}, "interleaved: sin, cos, sin, …; or all sines first, or all cosines first"),
      required_field("denominator", &Sinusoidal::denominator, {}, "what the exponent is divided by: the width, or half of it minus one"),
      field("theta", &Sinusoidal::theta, positive(), "base of the frequencies"),
      field("odd_width", &Sinusoidal::odd_width, {}, "for an odd width: refuse it, one sine more, or a zero at the end"),
      field("scale", &Sinusoidal::scale, positive(), "factor on every value"),
      field("offset", &Sinusoidal::offset, at_least(0), "added to every position"),
      field("axes", &Sinusoidal::axes, at_least(1), "parts of a row, each with the position on one axis"),
  };

  bool in_transformers() const { return true; }
  /// Columns for one axis.
  int columns(int width) const { return width / static_cast<int>(axes); }
  /// Frequencies of one axis; with an extra sine there is one more than cosines.
  int sines(int width) const { return (columns(width) + (odd_width == OddWidth::extra_sine ? 1 : 0)) / 2; }
  int cosines(int width) const { return columns(width) / 2; }

  /// Angular frequency of each sine of an axis, in radians per position.
  template <class A>
  std::vector<typename A::Element> inv_freq(int width) const {
    std::vector<typename A::Element> result;
    for (int j = 0; j < sines(width); j++) {
      result.push_back(A::over(1, denominator == SinusoidDenominator::width ? A::power(theta, 2 * j, columns(width))
                                                                            : A::power(theta, j, columns(width) / 2 - 1)));
    }
    return result;
  }
  void check(int width) const {
    if (axes > 8 || width % axes != 0) {
      throw Error(ErrorCode::invalid_argument,
                  "axes: expected 1 to 8 parts of equal width, got " + std::to_string(axes) + " of width " + std::to_string(width));
    }
    if (offset > std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorCode::invalid_argument, "offset: expected at most 2147483647, got " + std::to_string(offset));
    }
    if (columns(width) % 2 != 0 && odd_width == OddWidth::refuse) {
      throw Error(ErrorCode::invalid_argument, "width: expected an even number of columns for each axis, got " +
                                                   std::to_string(columns(width)) + "; odd_width says what to do otherwise");
    }
    if (denominator == SinusoidDenominator::half_minus_one && columns(width) / 2 < 2) {
      throw Error(ErrorCode::invalid_argument,
                  "width: half_minus_one divides by width / 2 - 1; expected at least 4 columns, got " + std::to_string(columns(width)));
    }
  }
  bool operator==(const Sinusoidal&) const = default;
};

}  // namespace absolute

template <>
inline constexpr std::string_view enum_names<absolute::SinusoidOrder>[] = {"interleaved", "sin_cos", "cos_sin"};
template <>
inline constexpr std::string_view enum_names<absolute::SinusoidDenominator>[] = {"width", "half_minus_one"};
template <>
inline constexpr std::string_view enum_names<absolute::OddWidth>[] = {"refuse", "extra_sine", "zero_pad"};

}  // namespace gnomon
