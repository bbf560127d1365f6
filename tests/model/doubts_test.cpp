// SPDX-License-Identifier: Apache-2.0
// docs/doubts.md says what the table of codes says.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <map>
#include <set>

#include "gnomon/model.hpp"

namespace gnomon {
namespace {

const std::map<std::string, Level> sections = {{"## Errors", Level::error}, {"## Warnings", Level::warning}, {"## Notes", Level::note}};

std::string row(const DoubtInfo& info) {
  return "| `" + std::string(info.code) + "` | " + std::string(info.cause) + " | " + std::string(info.cost) + " | " +
         std::string(info.remedy) + " |";
}

TEST(Doubts, ThePageHasEveryCodeUnderItsLevelAndNoOther) {
  std::ifstream page(GNOMON_SOURCE_DIR "/docs/doubts.md");
  ASSERT_TRUE(page);
  std::vector<std::string> rows[3], expected[3];
  std::optional<Level> level;
  for (std::string line; std::getline(page, line);) {
    if (const auto found = sections.find(line); found != sections.end()) level = found->second;
    if (level && line.starts_with("| `")) rows[static_cast<int>(*level)].push_back(line);
  }
  for (const auto& info : list_doubts()) expected[static_cast<int>(info.level)].push_back(row(info));
  for (const int i : {0, 1, 2}) EXPECT_EQ(rows[i], expected[i]);
}

TEST(Doubts, CodesAreUniqueAndKebabCase) {
  std::set<std::string_view> seen;
  for (const auto& info : list_doubts()) {
    EXPECT_TRUE(seen.insert(info.code).second) << info.code;
    for (const char c : info.code)
      EXPECT_TRUE(std::islower(static_cast<unsigned char>(c)) || c == '-' || std::isdigit(static_cast<unsigned char>(c))) << info.code;
    EXPECT_FALSE(info.cause.empty() || info.cost.empty() || info.remedy.empty()) << info.code;
  }
}

}  // namespace
}  // namespace gnomon
