// SPDX-License-Identifier: Apache-2.0
// What two files of one folder say otherwise about one model: by meaning, not by spelling.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gnomon/compare.hpp"
#include "model/doubts.hpp"
#include "model/folder.hpp"

namespace gnomon::files {
namespace {

/// "rotary.theta 500000.0 against 10000.0"; a list is named only.
std::vector<std::string> texts_of(const std::vector<Difference>& differences) {
  constexpr std::size_t longest = 40;
  std::vector<std::string> texts;
  for (const auto& [field, a, b] : differences) {
    texts.push_back(a.size() + b.size() > longest ? field : fmt::format("{} {} against {}", field, a, b));
  }
  return texts;
}

std::string where(const LayerComparison& compared, const Model& model) {
  if (compared.layers.empty() || compared.layers.size() == static_cast<std::size_t>(model.layers)) return "";
  return fmt::format(" (layer {}{})", compared.layers.front(), compared.layers.size() > 1 ? " and others" : "");
}

bool is_doubtful(const Model& model) { return model.worst() == Level::error; }

}  // namespace

void compare_files(Model& model, const std::string& name, const Model& other, const std::string& other_name) {
  if (is_doubtful(model) || is_doubtful(other)) return;  // its numbers are not to be trusted, which is said already
  const Comparison comparison = compare(model, other);
  Doubts doubts;
  const std::vector<std::string> keys = {name, other_name};
  const auto add = [&](const std::vector<Difference>& differences, const std::string& layers) {
    if (differences.empty()) return;
    const std::string text = fmt::format("{} and {}: {}{}", name, other_name, fmt::join(texts_of(differences), ", "), layers);
    doubts.add("files-conflict", keys, text);
  };
  add(comparison.differences, "");
  for (const auto& compared : comparison.layers) {
    add(compared.differences, where(compared, model));
    if (!compared.drift) continue;
    doubts.set_dispute("files-conflict", keys, {*compared.a, *compared.b, std::max<std::int64_t>(1, compared.drift->distances.back())});
  }
  doubts.append_to(model);
}

}  // namespace gnomon::files
