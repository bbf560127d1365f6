// SPDX-License-Identifier: Apache-2.0
// ② The two arithmetics a rule is written for. A rule is one template; `exact` instantiates it with about 100 bits and rounds once,
// `hf` instantiates it with the float32 steps of the transformers library, in their order. So both profiles share one formula.
#pragma once

#include <cmath>

namespace gnomon {

/// An unevaluated sum hi + lo, about 100 bits. Deterministic on every platform with correct std::fma (no fast-math).
struct DoubleDouble {
  double hi = 0, lo = 0;

  constexpr DoubleDouble() = default;
  constexpr DoubleDouble(double value) : hi(value) {}
  constexpr DoubleDouble(double high, double low) : hi(high), lo(low) {}
  explicit constexpr operator double() const { return hi + lo; }

  friend DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }
  friend DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
    DoubleDouble sum = two_sum(a.hi, b.hi);
    const DoubleDouble low = two_sum(a.lo, b.lo);
    sum = quick_two_sum(sum.hi, sum.lo + low.hi);
    return quick_two_sum(sum.hi, sum.lo + low.lo);
  }
  friend DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }
  friend DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
    const double product = a.hi * b.hi;
    return quick_two_sum(product, std::fma(a.hi, b.hi, -product) + (a.hi * b.lo + a.lo * b.hi));
  }
  friend DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
    const double first = a.hi / b.hi;
    DoubleDouble rest = a - DoubleDouble(first) * b;
    const double second = rest.hi / b.hi;
    rest = rest - DoubleDouble(second) * b;
    return quick_two_sum(first, second) + DoubleDouble(rest.hi / b.hi);
  }
  friend bool operator<(DoubleDouble a, DoubleDouble b) { return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo); }
  friend bool operator>(DoubleDouble a, DoubleDouble b) { return b < a; }
  friend bool operator==(DoubleDouble a, DoubleDouble b) { return a.hi == b.hi && a.lo == b.lo; }

  static DoubleDouble quick_two_sum(double a, double b) {  // |a| >= |b|
    const double sum = a + b;
    return {sum, b - (sum - a)};
  }
  static DoubleDouble two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
  }
};

inline DoubleDouble exp(DoubleDouble a) {
  constexpr DoubleDouble ln2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
  const double k = std::rint(a.hi / ln2.hi);
  DoubleDouble rest = a - DoubleDouble(k) * ln2;
  rest = {std::ldexp(rest.hi, -9), std::ldexp(rest.lo, -9)};  // below 7e-4, so nine Taylor terms reach 2^-105
  DoubleDouble sum = rest, term = rest;
  for (int n = 2; n <= 9; n++) {
    term = term * rest / DoubleDouble(n);
    sum = sum + term;
  }
  for (int i = 0; i < 9; i++) sum = DoubleDouble(2 * sum.hi, 2 * sum.lo) + sum * sum;  // expm1(2x) = 2 expm1(x) + expm1(x)^2
  sum = sum + DoubleDouble(1);
  return {std::ldexp(sum.hi, static_cast<int>(k)), std::ldexp(sum.lo, static_cast<int>(k))};
}

inline DoubleDouble log(DoubleDouble a) {  // one Newton step doubles the bits of the double logarithm
  const DoubleDouble guess(std::log(a.hi));
  return guess + (a * exp(-guess) - DoubleDouble(1));
}

inline DoubleDouble floor(DoubleDouble a) {
  const double whole = std::floor(a.hi);
  return whole == a.hi ? DoubleDouble::quick_two_sum(whole, std::floor(a.lo)) : DoubleDouble(whole);
}

inline DoubleDouble ceil(DoubleDouble a) { return -floor(-a); }

/// 2 pi to 106 bits.
inline constexpr DoubleDouble two_pi{0x1.921fb54442d18p+2, 0x1.1a62633145c07p-52};

/// About 100 bits throughout; the caller rounds the result to double once.
struct ExactArithmetic {
  using Element = DoubleDouble;  ///< what the library of the `hf` profile keeps in a float32 tensor
  using Scalar = DoubleDouble;   ///< what it keeps in a Python float
  static Element element(Scalar value) { return value; }
  static Element over(Scalar numerator, Element denominator) { return numerator / denominator; }
  static Scalar pow(Scalar base, Scalar exponent) { return exp(log(base) * exponent); }
  /// base^(numerator / denominator)
  static Element power(Scalar base, int numerator, int denominator) {
    return exp(log(base) * DoubleDouble(numerator) / DoubleDouble(denominator));
  }
};

/// The steps of transformers' float32 code: the base and the exponent rounded to float32, a correctly rounded power, and a scalar
/// over a tensor as the reciprocal times the scalar (which is how torch divides a Python number by a tensor).
struct HfArithmetic {
  using Element = float;
  using Scalar = double;
  static Element element(Scalar value) { return static_cast<float>(value); }
  static Element over(Scalar numerator, Element denominator) { return (1.0F / denominator) * static_cast<float>(numerator); }
  static Scalar pow(Scalar base, Scalar exponent) { return std::pow(base, exponent); }
  static Element power(Scalar base, int numerator, int denominator) {
    const float exponent = static_cast<float>(numerator) / static_cast<float>(denominator);
    return static_cast<float>(std::pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
  }
};

}  // namespace gnomon
