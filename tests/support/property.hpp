// SPDX-License-Identifier: Apache-2.0
// Properties of every registered rotary rule: one gtest body that runs a RapidCheck property per rule.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <functional>
#include <sstream>

#include "random_spec.hpp"

namespace testing_support {

/// The same cases in every run unless RC_PARAMS says otherwise (RC_PARAMS="seed=…" or "max_success=10000").
inline const bool seeded = [] { return setenv("RC_PARAMS", "seed=20240601", 0) == 0; }();

/// Type-erased, so that RapidCheck's templates are compiled once and not for every property and rule.
inline void check_property(const std::string& id, const std::function<void()>& property) {
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = id;
  const auto result = rc::detail::checkTestable(property, metadata);
  if (result.is<rc::detail::SuccessResult>()) return;
  if (!result.is<rc::detail::FailureResult>()) {
    std::ostringstream text;
    rc::detail::printResultMessage(result, text);
    ADD_FAILURE() << id << ": " << text.str();
    return;
  }
  // The shrunk example is dozens of raw draws; what the property logged says more.
  const auto& failure = result.get<rc::detail::FailureResult>();
  ADD_FAILURE() << id << ": falsified after " << failure.numSuccess + 1 << " cases\n" << failure.description;
}

enum class Rules { all, rotations };

/// Runs `property(draw, spec)` on random specs of every rule of the list, or of those that are nothing but rotations. A rule without valid
/// random specs fails.
inline void for_every_rule(const std::string& name, const SpecLimits& limits,
                           const std::function<void(PropertyDraw&, const gnomon::RotarySpec&)>& property, Rules which = Rules::all) {
  int rules = 0;
  gnomon::for_each_rotary_rule([&]<class Rule>(const Rule&) {
    rules++;
    if (which == Rules::rotations && !is_pure_rotation<Rule>) return;
    check_property(name + ", rule " + std::string(Rule::name), [&] {
      PropertyDraw draw;
      const auto spec = draw_spec<Rule>(draw, limits);
      RC_LOG() << gnomon::to_json(spec) << "\n";
      property(draw, spec);
    });
  });
  EXPECT_EQ(rules, static_cast<int>(std::variant_size_v<gnomon::RotaryRule>));
}

}  // namespace testing_support
