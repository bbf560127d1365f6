// SPDX-License-Identifier: Apache-2.0
// Reading one object of a file key by key: values with their origins, wrong kinds as doubts, and a memory of what was not read.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/model.hpp"
#include "model/doubts.hpp"

namespace gnomon::files {

/// A value and where it came from.
template <class T>
struct Sourced {
  T value{};
  Origin origin;
};
using Number = Sourced<double>;
using Integer = Sourced<std::int64_t>;
using Boolean = Sourced<bool>;
using Text = Sourced<std::string>;
using List = Sourced<std::vector<double>>;

inline Origin family_default() { return {"family default", "", ""}; }

/// A value as it may be quoted in a message: short, and valid UTF-8.
std::string quoted(const nlohmann::json& value);
/// The shortest text that reads back to the same double.
std::string quoted(double value);

/// Whether a key's name speaks of position: such a key is reported when no rule read it.
bool is_positional(std::string_view key);

/// One object of a file. A key that is absent or null counts as not there. Asking for a key marks it as read.
class Keys {
 public:
  /// `object` and `doubts` must outlive the Keys; `prefix` stands before every key in origins and messages ("text_config.").
  Keys(const nlohmann::json& object, std::string file, std::string prefix, Doubts& doubts)
      : object_(&object), file_(std::move(file)), prefix_(std::move(prefix)), doubts_(&doubts) {}

  const nlohmann::json* find(std::string_view key) const;  ///< the value, even when it is null
  bool has(std::string_view key) const;                    ///< there and not null
  bool is_null(std::string_view key) const;

  // The first of several spellings that is there. A wrong kind is a doubt and counts as not there; spellings that are there with
  // different values are a doubt too.
  template <class... Names>
  std::optional<Number> number(Names... keys) const {
    return first<double>(std::array{std::string_view(keys)...});
  }
  template <class... Names>
  std::optional<Integer> integer(Names... keys) const {
    return first<std::int64_t>(std::array{std::string_view(keys)...});
  }
  template <class... Names>
  std::optional<Boolean> boolean(Names... keys) const {
    return first<bool>(std::array{std::string_view(keys)...});
  }
  template <class... Names>
  std::optional<Text> text(Names... keys) const {
    return first<std::string>(std::array{std::string_view(keys)...});
  }
  std::optional<List> list(std::string_view key) const;  ///< of numbers
  template <class T>
  std::optional<Sourced<T>> first(std::span<const std::string_view> keys) const;
  /// The object under a key; a doubt for another kind. Nothing for an empty one.
  const nlohmann::json* object(std::string_view key) const;

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  Origin read(std::string_view key) const { return {"read", file_, full(key)}; }
  Origin derived(std::string from) const { return {"derived", file_, std::move(from)}; }
  Keys inside(const nlohmann::json& object, std::string_view key) const { return {object, file_, full(key) + ".", *doubts_}; }

  /// Keys that were never asked for and hold something, with their prefix.
  std::vector<std::string> unread() const;

 private:
  template <class T>
  std::optional<Sourced<T>> get(std::string_view key) const;

  const nlohmann::json* object_;
  std::string file_, prefix_;
  Doubts* doubts_;
  mutable std::set<std::string_view> asked_;  ///< the object's own keys, so that nothing is copied
};

}  // namespace gnomon::files
