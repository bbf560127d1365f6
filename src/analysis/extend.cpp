// SPDX-License-Identifier: Apache-2.0
// The rules that could replace a model's own at another length, and what each changes.
#include "gnomon/analysis/extend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gnomon/analysis.hpp"
#include "gnomon/error.hpp"
#include "gnomon/frequencies.hpp"

namespace gnomon {
namespace {

/// The base of the frequencies at a length, for rules that only change the base.
std::optional<double> base_in_effect(const RotarySpec& spec, std::int64_t length) {
  if (std::holds_alternative<rotary::Default>(spec.rule)) return spec.theta;
  const double exponent = spec.rotary_dim / (spec.rotary_dim - 2.0);
  if (const auto* ntk = std::get_if<rotary::Ntk>(&spec.rule)) return spec.theta * std::pow(ntk->factor, exponent);
  const auto* dynamic = std::get_if<rotary::Dynamic>(&spec.rule);
  if (dynamic == nullptr) return std::nullopt;
  return static_cast<double>(dynamic->base<ExactArithmetic>(rule_inputs(spec, length).front()));
}

/// How much further a pair turns at the new length than it ever did in training, where it never completed a turn there.
void find_unseen(const Frequencies& trained, std::int64_t length, const Frequencies& extended, std::int64_t to, Extension& result) {
  constexpr double rounding = 1e-9;
  const auto wavelength = trained.wavelength();
  for (std::size_t i = 0; i < wavelength.size(); i++) {
    if (trained.inv_freq[i] == 0 || wavelength[i] <= static_cast<double>(length)) continue;
    const double ratio = extended.inv_freq[i] / trained.inv_freq[i] * (static_cast<double>(to) / static_cast<double>(length));
    if (ratio <= 1 + rounding) continue;
    result.unseen_pairs++;
    result.overshoot = std::max(result.overshoot, ratio);
  }
}

Extension extension(const Training& training, std::int64_t to, const Frequencies& trained, std::string method) {
  Extension result;
  result.method = std::move(method);
  result.spec = with_method(training.spec, result.method, training.original);
  const Drift drift(training.spec, result.spec, training.length);
  result.drift_cosine = drift.mean_cosine(training.length);
  result.drifts_from = drift.parting().position;
  if (result.drifts_from > training.length) result.drifts_from.reset();
  const Frequencies extended = frequencies(result.spec, Numerics::exact, to);
  find_unseen(trained, training.length, extended, to, result);
  result.negative_from = first_negative_distance(extended, to);
  const int dimension = 2 * pairs_with_a_turn(trained, training.length);
  const auto base = base_in_effect(result.spec, to);
  if (base && *base > 1 && dimension > 0) result.limit = extrapolation_limit(*base, dimension, result.spec.rotary_dim);
  return result;
}

std::vector<std::string> methods_to_try(const Training& training, std::int64_t to, int pairs) {
  const double factor = static_cast<double>(to) / static_cast<double>(training.original);
  std::vector<std::string> methods{"none"};
  for (const std::string_view family : {"linear", "ntk", "dynamic", "yarn", "llama3", "longrope"}) {
    methods.push_back(fmt::format("{}:{}", family, factor));
  }
  if (pairs > 0) methods.push_back(fmt::format("theta:{:.0f}", std::ceil(base_for_limit(to, 2 * pairs, training.spec.rotary_dim))));
  return methods;
}

void check(const Training& training, std::int64_t to) {
  if (training.original < 7 || training.original > training.length) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("original: expected 7 up to the trained length {}, got {}", training.length, training.original));
  }
  if (training.length >= longest_decay) {
    throw Error(ErrorCode::unsupported,
                fmt::format("to: the model is for {} positions already, and {} are searched at most", training.length, longest_decay));
  }
  if (to <= training.length || to > longest_decay) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("to: expected more than the trained length {}, up to {}, got {}", training.length, longest_decay, to));
  }
}

}  // namespace

Training training_of(const Model& model, std::optional<int> layer) {
  const RotarySpec spec = rotary_of(model, layer);
  const auto original = model.original ? model.original : model.declared;
  if (!original) throw Error(ErrorCode::invalid_argument, "the model does not state the length it was trained at");
  // Growing with the text is what dynamic does beyond the training.
  if (const auto* dynamic = std::get_if<rotary::Dynamic>(&spec.rule)) {
    return {spec, dynamic->max_position_embeddings, dynamic->max_position_embeddings};
  }
  // The factor of llama3 is no ratio of lengths: 8 for 16 times as long in Llama 3.1, 32 in Llama 3.2.
  const bool by_declaration = std::holds_alternative<rotary::Llama3>(spec.rule) && model.declared;
  return {spec, std::max({*original, by_declaration ? 0 : model.derived.value_or(0), model.declared.value_or(0)}), *original};
}

ExtensionReport extend(const Training& training, std::int64_t to) {
  check(training, to);
  const Frequencies trained = frequencies(training.spec, Numerics::exact, training.length);
  ExtensionReport report{training, to, pairs_with_a_turn(trained, training.length), {}, {}, {}};
  const bool plain = std::holds_alternative<rotary::Default>(training.spec.rule) && training.spec.theta > 1;
  if (plain) report.critical_base = critical_base(training.spec.theta, training.original, to);
  if (to <= quick_base_bound) report.smallest_base = smallest_base(training.spec.rotary_dim, to);
  for (auto& method : methods_to_try(training, to, report.pairs_with_a_turn)) {
    try {
      report.extensions.push_back(extension(training, to, trained, std::move(method)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;  // the rule of the model does not know this method
    }
  }
  return report;
}

}  // namespace gnomon
