// SPDX-License-Identifier: Apache-2.0
#include "gnomon/analysis/scaling_laws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "gnomon/error.hpp"

namespace gnomon {
namespace {

constexpr double two_pi_rounded = 2 * std::numbers::pi;

void check_base(std::string_view name, double base) {
  if (base > 1 && std::isfinite(base)) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: expected a number above 1, got {}", name, base));
}

void check_length(std::string_view name, std::int64_t length) {
  if (length >= 7) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: expected at least 7 (no pair completes a turn in less), got {}", name, length));
}

void check_width(int rotary_dim) {
  if (rotary_dim >= 2 && rotary_dim % 2 == 0) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("rotary_dim: expected an even number from 2 on, got {}", rotary_dim));
}

void check_dimension(int dimension, int rotary_dim) {
  check_width(rotary_dim);
  if (dimension >= 1 && dimension <= rotary_dim) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("dimension: expected 1 to rotary_dim = {}, got {}", rotary_dim, dimension));
}

double turns_of_one(std::int64_t length) { return static_cast<double>(length) / two_pi_rounded; }

}  // namespace

int pairs_with_a_turn(const Frequencies& frequencies, std::int64_t length) {
  if (length < 1) throw Error(ErrorCode::invalid_argument, fmt::format("length: expected at least 1, got {}", length));
  const auto wavelength = frequencies.wavelength();
  return static_cast<int>(
      std::count_if(wavelength.begin(), wavelength.end(), [&](double wave) { return wave <= static_cast<double>(length); }));
}

int critical_dimension(double theta, int rotary_dim, std::int64_t trained) {
  check_base("theta", theta);
  check_width(rotary_dim);
  check_length("trained", trained);
  const double pairs = rotary_dim / 2.0 * std::log(turns_of_one(trained)) / std::log(theta);
  return 2 * static_cast<int>(std::min(std::ceil(pairs), rotary_dim / 2.0));
}

double extrapolation_limit(double base, int dimension, int rotary_dim) {
  check_base("base", base);
  check_dimension(dimension, rotary_dim);
  return two_pi_rounded * std::pow(base, static_cast<double>(dimension) / rotary_dim);
}

double base_for_limit(std::int64_t length, int dimension, int rotary_dim) {
  check_length("length", length);
  check_dimension(dimension, rotary_dim);
  return std::pow(turns_of_one(length), static_cast<double>(rotary_dim) / dimension);
}

double critical_base(double theta, std::int64_t trained, std::int64_t tuned) {
  check_base("theta", theta);
  check_length("trained", trained);
  check_length("tuned", tuned);
  return std::pow(theta, std::log(turns_of_one(tuned)) / std::log(turns_of_one(trained)));
}

}  // namespace gnomon
