// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <algorithm>

#include "text.hpp"

namespace gnomon::cli {
namespace {

constexpr std::size_t label_width = 12;
constexpr char kept_space = '\x1f';  // a space where no line is broken; no text of a file holds one, since printable() spells it out

std::string cost_text(const DriftCost& cost) {
  const std::string at_length = fmt::format("at {} the mean cosine is {:.3f}", cost.distance, cost.mean_cosine);
  if (!cost.position) return "scores do not drift by 1 % at any distance that was searched; " + at_length;
  return fmt::format("scores drift by more than 1 % from distance {} on; {}", *cost.position, at_length);
}

}  // namespace

std::string row_of(std::vector<std::string> parts, std::string_view separator) {
  for (auto& part : parts) std::replace(part.begin(), part.end(), ' ', kept_space);
  return joined(parts, separator);
}

void row(Output& out, std::string_view label, std::string_view text) {
  std::string lines = wrapped(text, line_width(), label_width);
  std::replace(lines.begin(), lines.end(), kept_space, ' ');
  out.print(" {}{}\n", styled(Style::label, fmt::format("{:<{}}", label, label_width - 1)), lines);
}

std::string layer_ranges(const std::vector<int>& layers) {
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) end++;
    ranges.push_back(end - i == 1 ? fmt::format("{}", layers[i]) : fmt::format("{}-{}", layers[i], layers[end - 1]));
    i = end;
  }
  if (ranges.size() > 8) {
    ranges[3] = "…";
    ranges.erase(ranges.begin() + 4, ranges.end() - 1);
  }
  return joined(ranges);
}

std::string doubt_text(const Doubt& doubt) {
  const Style style = doubt.level == Level::error ? Style::error : doubt.level == Level::warning ? Style::warning : Style::note;
  std::string text = styled(style, fmt::format("{} {}:", enum_names<Level>[static_cast<std::size_t>(doubt.level)], printable(doubt.code))) +
                     " " + printable(doubt.message);
  std::vector<std::string> unnamed;
  for (const auto& key : doubt.keys) {
    if (doubt.message.find(key) == std::string::npos) unnamed.push_back(printable(key));
  }
  if (!unnamed.empty()) text += fmt::format(" [{}]", joined(unnamed));
  if (const auto cost = doubt.cost()) text += ". In an engine that reads it otherwise, " + cost_text(*cost);
  return text;
}

}  // namespace gnomon::cli
