// SPDX-License-Identifier: Apache-2.0
#include "positions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "text.hpp"

namespace gnomon::cli {
namespace {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

[[noreturn]] void refuse(std::string_view text, std::string_view problem) {
  throw Misuse(fmt::format("--positions: expected START:STOP:STEP (stop exclusive) or numbers with commas, got \"{}\": {}",
                           printable(text.substr(0, 80)), problem));
}

Range range_in(std::string_view text) {
  auto parts = split(text, ':');
  std::transform(parts.begin(), parts.end(), parts.begin(), trimmed);
  if (parts.size() > 3) refuse(text, "more than two colons");
  const auto bound = [&](std::size_t index, std::string_view name, std::int64_t missing) {
    if (index >= parts.size() || parts[index].empty()) return missing;
    const auto value = number_in<std::int64_t>(parts[index]);
    if (!value) refuse(text, fmt::format("the {} is not an integer of 64 bits", name));
    return *value;
  };
  if (parts[1].empty()) refuse(text, "the stop is missing");
  const Range range{bound(0, "start", 0), bound(1, "stop", 0), bound(2, "step", 1)};
  if (count(range) == 0) refuse(text, "it holds no position");
  return range;
}

}  // namespace

PositionList::PositionList(std::string_view text) {
  if (trimmed(text).empty()) refuse(text, "it holds no position");
  if (text.find(':') != std::string_view::npos) {
    all_ = range_in(text);
  } else {
    for (const auto untrimmed : split(text, ',')) {
      const auto part = trimmed(untrimmed);
      const auto integer = number_in<std::int64_t>(part);
      if (integer) integers_.push_back(*integer);
      const auto real = number_in<double>(part);
      if (!real) refuse(text, fmt::format("\"{}\" is not a number", printable(part.substr(0, 40))));
      reals_.push_back(*real);
    }
    if (integers_.size() == reals_.size()) {
      all_ = Ids{integers_};
    } else {
      all_ = Reals{reals_};
    }
  }
  validate(all_);
}

double PositionList::largest() const {
  if (const auto* range = std::get_if<Range>(&all_)) {
    const auto last = range->start + static_cast<std::int64_t>(size() - 1) * range->step;
    return static_cast<double>(std::max(range->start, last));
  }
  return *std::max_element(reals_.begin(), reals_.end());
}

std::vector<std::int64_t> PositionList::integers() const {
  constexpr std::size_t most = std::size_t{1} << 24;
  if (size() > most) throw Misuse(fmt::format("--positions: {} of them; at most {} are taken here", size(), most));
  if (std::holds_alternative<Reals>(all_)) throw Misuse("--positions: expected integers, got real numbers");
  const auto* range = std::get_if<Range>(&all_);
  if (range == nullptr) return integers_;
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < size(); i++) result.push_back(range->start + static_cast<std::int64_t>(i) * range->step);
  return result;
}

Positions PositionList::part(std::size_t first, std::size_t number) const {
  if (const auto* range = std::get_if<Range>(&all_)) {
    const auto from = range->start + static_cast<std::int64_t>(first) * range->step;
    // One past the last in steps: within the contract's range plus a step, or the original stop where that would overflow.
    std::int64_t stop = range->stop;
    if (first + number < size()) stop = range->start + static_cast<std::int64_t>(first + number) * range->step;
    return Range{from, stop, range->step};
  }
  if (std::holds_alternative<Ids>(all_)) return Ids{std::span(integers_).subspan(first, number)};
  return Reals{std::span(reals_).subspan(first, number)};
}

}  // namespace gnomon::cli
