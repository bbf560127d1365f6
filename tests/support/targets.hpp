// SPDX-License-Identifier: Apache-2.0
// Forces one CPU target of Highway after the other, and makes sure that the forced one is the one that runs.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <string>
#include <vector>

#include "gnomon/rotate.hpp"

namespace testing_support {

/// Targets this CPU has and this compiler makes code for.
inline std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> result;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) result.push_back(left & -left);
  return result;
}

/// A test that runs once per target. It fails when another target's code would run.
class OnEveryTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_EQ(gnomon::kernel_target(), hwy::TargetName(GetParam()));
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string target_name(const testing::TestParamInfo<std::int64_t>& info) { return hwy::TargetName(info.param); }

}  // namespace testing_support
