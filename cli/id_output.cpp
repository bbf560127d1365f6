// SPDX-License-Identifier: Apache-2.0
// Ids of `gnomon positions` as JSON and as a table.
#include <algorithm>

#include "id_builders.hpp"

namespace gnomon::cli {
namespace {

std::string json_ids(const PositionIds& ids) {
  std::vector<std::string> axes;
  for (std::int64_t axis = 0; axis < ids.axes; axis++) axes.push_back(json_rows(ids, axis));
  return "[" + joined(axes) + "]";
}

constexpr std::size_t label_width = 15;

/// One list in columns where it fits the line, else with its stretches drawn together: "0..111", "4 ×6", padding as "·".
std::string row_text(const PositionIds& ids, std::int64_t axis, std::int64_t row, const std::vector<std::uint8_t>& mask,
                     std::size_t column) {
  std::string wide, narrow;
  const auto is_padding = [&](std::int64_t t) { return !mask.empty() && mask[static_cast<std::size_t>(row * ids.tokens + t)] == 0; };
  for (std::int64_t t = 0; t < ids.tokens; t++) {
    wide += fmt::format("{:>{}}", is_padding(t) ? "·" : fmt::format("{}", ids.at(axis, row, t).value), column);
  }
  if (label_width + column * static_cast<std::size_t>(ids.tokens) <= line_width()) return wide;
  for (std::int64_t t = 0, next = 0; t < ids.tokens; t = next) {
    const auto first = ids.at(axis, row, t).value;
    const auto reaches = [&](std::int64_t step) {
      std::int64_t end = t + 1;
      while (end < ids.tokens && is_padding(end) == is_padding(t) && ids.at(axis, row, end).value == first + (end - t) * step) end++;
      return end;
    };
    const auto rising = is_padding(t) ? t : reaches(1), equal = reaches(0);
    next = std::max(rising, equal);
    const std::string value = is_padding(t) ? "·" : fmt::format("{}", first);
    if (next == t + 1)
      narrow += fmt::format("  {}", value);
    else if (equal >= rising)
      narrow += fmt::format("  {} ×{}", value, next - t);
    else
      narrow += fmt::format("  {}..{}", first, first + (next - t) - 1);
  }
  return narrow;
}

/// Every list under a label of its own: "row 0 time", "table_rows 1".
void print_lists(Output& out, std::string_view name, const PositionIds& ids, const std::vector<std::uint8_t>& mask, std::size_t column) {
  constexpr std::string_view axis_names[] = {"time", "height", "width"};
  for (std::int64_t row = 0; row < ids.batch; row++) {
    for (std::int64_t axis = 0; axis < ids.axes; axis++) {
      std::string label(ids.axes > 1 && ids.batch == 1 ? axis_names[axis] : name);
      if (ids.batch > 1) label += fmt::format(" {}", row);
      if (ids.axes > 1 && ids.batch > 1) label += fmt::format(" {}", axis_names[axis]);
      out.print("{:<{}}{}\n", label, label_width, row_text(ids, axis, row, mask, column));
    }
  }
}

void print_part(Output& out, const IdPart& part) {
  if (!part.title.empty()) out.print("{}\n", styled(Style::label, part.title));
  std::int64_t largest = 0;
  const auto enlarge = [&](const PositionIds& ids) {
    for (const auto value : ids.values) largest = std::max(largest, value);
  };
  enlarge(part.ids);
  for (const auto& extra : part.extras) enlarge(extra.rows);
  const std::size_t column = 2 + fmt::formatted_size("{}", largest);
  print_lists(out, part.ids.batch > 1 ? "row" : "position", part.ids, padding_mask(part.layout), column);
  for (const auto& extra : part.extras) {
    if (extra.text.empty())
      print_lists(out, extra.name, extra.rows, {}, column);
    else
      out.print("{:<{}}  {}\n", extra.name, label_width, wrapped(extra.text, line_width(), label_width + 2));
  }
}

}  // namespace

std::string json_list(const std::vector<std::int64_t>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

std::string json_rows(const PositionIds& ids, std::int64_t axis) {
  std::vector<std::string> rows;
  for (std::int64_t row = 0; row < ids.batch; row++) {
    const auto begin = ids.values.begin() + (axis * ids.batch + row) * ids.tokens;
    rows.push_back(json_list({begin, begin + ids.tokens}));
  }
  return "[" + joined(rows) + "]";
}

void print_ids_json(Output& out, const std::string& builder, const std::vector<IdPart>& parts) {
  std::vector<std::string> texts;
  for (const auto& part : parts) {
    std::string text = part.title.empty() ? "" : fmt::format("\"title\": {}, ", json_quote(part.title));
    for (const auto& extra : part.extras) text += fmt::format("\"{}\": {}, ", extra.name, extra.json);
    texts.push_back(fmt::format("{{{}\"ids\": {}}}", text, json_ids(part.ids)));
  }
  out.print("{{\"schema\": 1, \"builder\": {}, \"parts\": [{}]}}\n", json_quote(builder), joined(texts));
}

void print_ids(Output& out, const std::vector<IdPart>& parts) {
  for (const auto& part : parts) {
    if (&part != parts.data()) out.write("\n");
    print_part(out, part);
  }
}

}  // namespace gnomon::cli
