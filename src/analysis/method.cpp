// SPDX-License-Identifier: Apache-2.0
// Methods as people write them, "yarn:4": a family and a number.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gnomon/analysis/method.hpp"
#include "gnomon/error.hpp"

namespace gnomon {
namespace {

struct Arguments {
  const RotarySpec& spec;
  std::string_view method;
  double number;
  std::optional<std::int64_t> length;

  std::int64_t original() const {
    if (length) return *length;
    throw Error(ErrorCode::invalid_argument, fmt::format("method {} needs the trained length, which is not known", method));
  }
};

[[noreturn]] void refuse(const Arguments& given) {
  throw Error(ErrorCode::unsupported, fmt::format("method {} cannot take the place of the rule {}{}", given.method,
                                                  rule_name(given.spec.rule), given.spec.axes > 1 ? " with several axes" : ""));
}

/// Whether the frequencies are powers of a base, shared by all rotated channels, so that one rule can take the place of another.
bool has_plain_base(const RotarySpec& spec) {
  return spec.axes == 1 && !std::holds_alternative<rotary::Custom>(spec.rule) && !std::holds_alternative<rotary::Xpos>(spec.rule) &&
         !std::holds_alternative<rotary::Proportional>(spec.rule);
}

RotarySpec replaced(const Arguments& given, RotaryRule rule) {
  if (!has_plain_base(given.spec)) refuse(given);
  RotarySpec result = given.spec;
  result.rule = std::move(rule);
  result.attention_factor.reset();
  return result;
}

/// Dividing positions makes sense for any frequencies, and two rules have a place of their own for it.
RotarySpec linear(const Arguments& given) {
  RotarySpec result = given.spec;
  if (auto* proportional = std::get_if<rotary::Proportional>(&result.rule)) {
    proportional->factor = given.number;
  } else if (auto* custom = std::get_if<rotary::Custom>(&result.rule)) {
    for (double& value : custom->inv_freq_given) value /= given.number;
  } else {
    return replaced(given, rotary::Linear{given.number});
  }
  return result;
}

RotarySpec longrope(const Arguments& given) {
  const auto* own = std::get_if<rotary::Longrope>(&given.spec.rule);
  if (own == nullptr) refuse(given);
  rotary::Longrope rule = *own;
  rule.factor = given.number;
  return replaced(given, rule);
}

RotarySpec other_base(const Arguments& given) {
  RotarySpec result = replaced(given, rotary::Default{});
  result.theta = given.number;
  return result;
}

struct Family {
  std::string_view name, argument, advice;
  RotarySpec (*make)(const Arguments&);
};

constexpr Family families[] = {
    {"linear", "FACTOR", "all pairs slowed alike, so nothing unseen, but near tokens blur; meant for a short fine-tuning", linear},
    {"ntk", "FACTOR", "usable without training; slow pairs pass what they saw, so take a factor above the ratio of the lengths",
     [](const Arguments& given) { return replaced(given, rotary::Ntk{given.number}); }},
    {"dynamic", "FACTOR",
     "texts up to the trained length stay as they are; the length must be known before the first token, or cached keys do not match",
     [](const Arguments& given) { return replaced(given, rotary::Dynamic{given.number, given.original()}); }},
    {"yarn", "FACTOR", "fast pairs kept, slow ones interpolated, scores sharpened; the usual choice, with or without a short fine-tuning",
     [](const Arguments& given) {
       return replaced(given, rotary::Yarn{.factor = given.number, .original_max_position_embeddings = given.original()});
     }},
    {"llama3", "FACTOR", "bands as in yarn, without its sharpening; meant for long training",
     [](const Arguments& given) {
       return replaced(given, rotary::Llama3{.factor = given.number, .original_max_position_embeddings = given.original()});
     }},
    {"longrope", "FACTOR", "the model's own lists, which were searched for its own factor", longrope},
    {"theta", "BASE", "no scaling, the base whose predicted limit is the new length; needs fine-tuning", other_base},
};

}  // namespace

std::string known_methods() {
  std::string text = "none";
  for (const auto& family : families) text += fmt::format(", {}:{}", family.name, family.argument);
  return text;
}

std::string_view method_advice(std::string_view method) {
  for (const auto& family : families) {
    if (method.substr(0, method.find(':')) == family.name) return family.advice;
  }
  return "the model as it is; pairs that never completed a turn meet angles they never saw";
}

RotarySpec with_method(const RotarySpec& spec, std::string_view method, std::optional<std::int64_t> original) {
  if (method == "none") return spec;
  const std::size_t colon = std::min(method.find(':'), method.size());
  const std::string_view name = method.substr(0, colon), digits = method.substr(std::min(colon + 1, method.size()));
  for (const auto& family : families) {
    if (name != family.name) continue;
    double number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool base = family.argument == "BASE", read = error == std::errc() && end == digits.data() + digits.size();
    if (!read || !std::isfinite(number) || !(base ? number > 1 : number >= 1)) {
      throw Error(ErrorCode::invalid_argument, fmt::format("method \"{}\": expected {}:{} with a number {}, got \"{}\"", method, family.name,
                                                           family.argument, base ? "above 1" : "of at least 1", digits));
    }
    const RotarySpec result = family.make({spec, method, number, original});
    validate(result);
    return result;
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("method \"{}\" is not known; known: {}", method, known_methods()));
}

}  // namespace gnomon
