// SPDX-License-Identifier: Apache-2.0
#include "model/keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gnomon::files {
namespace {

using nlohmann::json;

constexpr double exact_integers = 9007199254740992;  // 2^53: beyond it a JSON number is not the integer it looks like

template <class T>
struct Kind;
template <>
struct Kind<double> {
  static constexpr std::string_view name = "a number";
  static std::optional<double> of(const json& value) { return value.is_number() ? std::optional(value.get<double>()) : std::nullopt; }
};
template <>
struct Kind<std::int64_t> {
  static constexpr std::string_view name = "an integer within ±2^53";
  static std::optional<std::int64_t> of(const json& value) {
    const auto number = Kind<double>::of(value);
    if (!number || !(std::abs(*number) <= exact_integers) || *number != std::trunc(*number)) return std::nullopt;
    return static_cast<std::int64_t>(*number);
  }
};
template <>
struct Kind<bool> {
  static constexpr std::string_view name = "true or false";
  static std::optional<bool> of(const json& value) { return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt; }
};
template <>
struct Kind<std::string> {
  static constexpr std::string_view name = "a text";
  static std::optional<std::string> of(const json& value) {
    return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
  }
};

}  // namespace

std::string quoted(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string quoted(double value) { return fmt::format("{}", value); }

bool is_positional(std::string_view key) {
  constexpr std::string_view words[] = {
      "alibi",   "attn_scale", "chunk",   "context",     "floor_scale", "interleav", "layer_types", "logn",
      "max_seq", "nope",       "ntk",     "partial",     "pos_emb",     "position",  "relative",    "rope",
      "rotary",  "seq_len",    "sliding", "temperature", "theta",       "window",    "yarn",
  };
  if (key == "chunk_size_feed_forward" || key == "temperature") return false;
  return std::any_of(std::begin(words), std::end(words), [&](auto word) { return key.find(word) != std::string_view::npos; });
}

const json* Keys::find(std::string_view key) const {
  const auto found = object_->find(key);
  if (found == object_->end()) return nullptr;
  asked_.insert(found.key());
  return &*found;
}

bool Keys::has(std::string_view key) const {
  const json* value = find(key);
  return value != nullptr && !value->is_null();
}

bool Keys::is_null(std::string_view key) const {
  const json* value = find(key);
  return value != nullptr && value->is_null();
}

const json* Keys::object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr || value->is_null()) return nullptr;
  if (!value->is_object()) {
    doubts_->add("value-kind", {full(key)}, fmt::format("{}: expected an object, got {}", full(key), quoted(*value)));
    return nullptr;
  }
  return value->empty() ? nullptr : value;
}

std::optional<List> Keys::list(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  const bool good = value->is_array() && std::all_of(value->begin(), value->end(), [](const json& item) { return item.is_number(); });
  if (good) return List{value->get<std::vector<double>>(), read(key)};
  doubts_->add("value-kind", {full(key)}, fmt::format("{}: expected a list of numbers, got {}", full(key), quoted(*value)));
  return std::nullopt;
}

template <class T>
std::optional<Sourced<T>> Keys::get(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (auto result = Kind<T>::of(*value)) return Sourced<T>{std::move(*result), read(key)};
  doubts_->add("value-kind", {full(key)}, fmt::format("{}: expected {}, got {}", full(key), Kind<T>::name, quoted(*value)));
  return std::nullopt;
}

template <class T>
std::optional<Sourced<T>> Keys::first(std::span<const std::string_view> keys) const {
  std::optional<Sourced<T>> chosen;
  for (const auto key : keys) {
    auto next = get<T>(key);
    if (!next) continue;
    if (!chosen) {
      chosen = std::move(next);
    } else if (next->value != chosen->value) {
      doubts_->add("keys-conflict", {chosen->origin.key, next->origin.key},
                   fmt::format("{} is {} but {} is {}; the first is used", chosen->origin.key, quoted(json(chosen->value)),
                               next->origin.key, quoted(json(next->value))));
    }
  }
  return chosen;
}

template std::optional<Number> Keys::first<double>(std::span<const std::string_view>) const;
template std::optional<Integer> Keys::first<std::int64_t>(std::span<const std::string_view>) const;
template std::optional<Boolean> Keys::first<bool>(std::span<const std::string_view>) const;
template std::optional<Text> Keys::first<std::string>(std::span<const std::string_view>) const;

std::vector<std::string> Keys::unread() const {
  std::vector<std::string> result;
  for (const auto& [key, value] : object_->items()) {
    if (!value.is_null() && !asked_.contains(key)) result.push_back(full(key));
  }
  return result;
}

}  // namespace gnomon::files
