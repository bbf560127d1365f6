// SPDX-License-Identifier: Apache-2.0
// A real number for oracles: MPFR with 256 bits. Nothing here knows gnomon.
#pragma once

#include <mpfr.h>

#include <cstdint>
#include <utility>

namespace oracle {

/// A 256-bit number. Every operation rounds once, to nearest; 256 bits leave more than 150 to spare over anything tested.
class Real {
 public:
  Real() { mpfr_init2(value_, bits), mpfr_set_zero(value_, 1); }
  Real(double x) { mpfr_init2(value_, bits), mpfr_set_d(value_, x, MPFR_RNDN); }
  Real(int x) { mpfr_init2(value_, bits), mpfr_set_si(value_, x, MPFR_RNDN); }
  Real(long x) { mpfr_init2(value_, bits), mpfr_set_si(value_, x, MPFR_RNDN); }
  Real(unsigned long x) { mpfr_init2(value_, bits), mpfr_set_ui(value_, x, MPFR_RNDN); }
  Real(const Real& other) { mpfr_init2(value_, bits), mpfr_set(value_, other.value_, MPFR_RNDN); }
  Real(Real&& other) noexcept { mpfr_init2(value_, bits), mpfr_swap(value_, other.value_); }
  Real& operator=(Real other) noexcept { return mpfr_swap(value_, other.value_), *this; }
  ~Real() { mpfr_clear(value_); }

  /// The nearest double, subnormal range included.
  double to_double() const { return mpfr_get_d(value_, MPFR_RNDN); }
  /// The nearest float, subnormal range included.
  float to_float() const { return mpfr_get_flt(value_, MPFR_RNDN); }
  /// The nearest integer; the value must fit.
  unsigned long to_unsigned() const { return mpfr_get_ui(value_, MPFR_RNDN); }
  long to_long() const { return mpfr_get_si(value_, MPFR_RNDN); }
  /// e with 2^e <= |x| < 2^(e+1); x must not be 0.
  long exponent() const { return mpfr_get_exp(value_) - 1; }
  bool is_zero() const { return mpfr_zero_p(value_) != 0; }

  friend Real operator+(const Real& a, const Real& b) { return binary(mpfr_add, a, b); }
  friend Real operator-(const Real& a, const Real& b) { return binary(mpfr_sub, a, b); }
  friend Real operator*(const Real& a, const Real& b) { return binary(mpfr_mul, a, b); }
  friend Real operator/(const Real& a, const Real& b) { return binary(mpfr_div, a, b); }
  friend Real operator-(const Real& a) { return unary(mpfr_neg, a); }
  friend bool operator<(const Real& a, const Real& b) { return mpfr_less_p(a.value_, b.value_) != 0; }
  friend bool operator>(const Real& a, const Real& b) { return mpfr_greater_p(a.value_, b.value_) != 0; }
  friend bool operator<=(const Real& a, const Real& b) { return mpfr_lessequal_p(a.value_, b.value_) != 0; }
  friend bool operator>=(const Real& a, const Real& b) { return mpfr_greaterequal_p(a.value_, b.value_) != 0; }
  friend bool operator==(const Real& a, const Real& b) { return mpfr_equal_p(a.value_, b.value_) != 0; }

  friend Real abs(const Real& a) { return unary(mpfr_abs, a); }
  friend Real exp(const Real& a) { return unary(mpfr_exp, a); }
  friend Real log(const Real& a) { return unary(mpfr_log, a); }
  friend Real sqrt(const Real& a) { return unary(mpfr_sqrt, a); }
  friend Real cos(const Real& a) { return unary(mpfr_cos, a); }
  friend Real sin(const Real& a) { return unary(mpfr_sin, a); }
  friend Real pow(const Real& a, const Real& b) { return binary(mpfr_pow, a, b); }
  friend Real floor(const Real& a) { return whole(mpfr_floor, a); }
  friend Real ceil(const Real& a) { return whole(mpfr_ceil, a); }
  friend Real round_to_even(const Real& a) { return whole(mpfr_roundeven, a); }
  friend Real scaled(const Real& a, long exponent) {
    Real result;
    mpfr_mul_2si(result.value_, a.value_, exponent, MPFR_RNDN);
    return result;
  }
  static Real pi() {
    Real result;
    mpfr_const_pi(result.value_, MPFR_RNDN);
    return result;
  }

 private:
  static constexpr mpfr_prec_t bits = 256;
  static Real unary(int (*f)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t), const Real& a) {
    Real result;
    f(result.value_, a.value_, MPFR_RNDN);
    return result;
  }
  static Real binary(int (*f)(mpfr_ptr, mpfr_srcptr, mpfr_srcptr, mpfr_rnd_t), const Real& a, const Real& b) {
    Real result;
    f(result.value_, a.value_, b.value_, MPFR_RNDN);
    return result;
  }
  static Real whole(int (*f)(mpfr_ptr, mpfr_srcptr), const Real& a) {
    Real result;
    f(result.value_, a.value_);
    return result;
  }
  mpfr_t value_;
};

inline Real clamp(const Real& x, const Real& low, const Real& high) { return x < low ? low : x > high ? high : x; }
inline const Real& min(const Real& a, const Real& b) { return b < a ? b : a; }
inline const Real& max(const Real& a, const Real& b) { return b > a ? b : a; }

/// A binary floating-point format: significand bits (hidden one included) and the exponent of its smallest normal number.
struct Format {
  int bits;
  int min_exponent;
};
inline constexpr Format f64_format{53, -1022}, f32_format{24, -126}, bf16_format{8, -126}, f16_format{11, -14};

/// Spacing of the format's numbers around x.
inline Real ulp(const Real& x, Format format) {
  const long exponent = x.is_zero() ? format.min_exponent : x.exponent();
  return scaled(Real(1), (exponent < format.min_exponent ? format.min_exponent : exponent) - format.bits + 1);
}

/// |value - truth| in units of the format's spacing around the truth.
inline double error_in_ulps(double value, const Real& truth, Format format) {
  return (abs(Real(value) - truth) / ulp(truth, format)).to_double();
}

}  // namespace oracle
