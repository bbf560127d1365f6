// SPDX-License-Identifier: Apache-2.0
#include "model/shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace gnomon::files {
namespace {

constexpr std::int64_t most_layers = 65536;

class ShapeReader {
 public:
  ShapeReader(const Keys& keys, const ShapeKeys& names, const Family* class_defaults, Declaration& declaration, Doubts& doubts)
      : keys_(keys), names_(names), defaults_(class_defaults), declaration_(declaration), model_(declaration.model), doubts_(doubts) {}

  void read() {
    model_.hidden_size = value_or_0(count(names_.hidden_size, otherwise(&Family::hidden_size)));
    read_layers();
    read_heads();
    read_head_dim();
    if (!names_.length.empty()) declaration_.length = count(names_.length, defaults_ != nullptr ? defaults_->length : std::nullopt);
  }

 private:
  static int value_or_0(const std::optional<Integer>& read) { return read ? static_cast<int>(read->value) : 0; }
  bool is_there(const ShapeKeys::Names& names) const {
    return std::any_of(names.begin(), names.end(), [&](auto name) { return keys_.has(name); });
  }
  std::optional<std::int64_t> otherwise(std::optional<int> Family::* member) const {
    return defaults_ != nullptr && defaults_->*member ? std::optional<std::int64_t>(*(defaults_->*member)) : std::nullopt;
  }

  std::optional<Integer> count(const ShapeKeys::Names& names, std::optional<std::int64_t> otherwise = std::nullopt) {
    if (is_there(names) || !otherwise) return read_count(keys_, names, doubts_);
    const std::string key = keys_.full(names.front());
    doubts_.add("shape-missing-family-default", {key}, fmt::format("{} is not in the file; the family's {} is used", key, *otherwise));
    return Integer{*otherwise, family_default()};
  }

  void demand(const ShapeKeys::Names& names) {
    const std::string key = keys_.full(names.front());
    if (!is_there(names)) doubts_.add("shape-missing", {key}, fmt::format("{} is not in the file", key));
  }

  void read_layers() {
    const bool listed = names_.layer_count && !is_there(names_.layers);
    const auto layers = listed ? names_.layer_count : count(names_.layers, otherwise(&Family::layers));
    if (!layers) return demand(names_.layers);
    if (layers->value <= most_layers) {
      model_.layers = static_cast<int>(layers->value);
    } else {
      doubts_.add("value-invalid", {layers->origin.key},
                  fmt::format("{}: expected at most {}, got {}", layers->origin.key, most_layers, layers->value));
    }
  }

  void read_heads() {
    const auto heads = count(names_.heads, otherwise(&Family::heads));
    if (!heads) demand(names_.heads);
    const auto kv_heads = count(names_.kv_heads, otherwise(&Family::kv_heads));
    model_.heads = value_or_0(heads);
    model_.kv_heads = kv_heads ? value_or_0(kv_heads) : model_.heads;
    if (model_.heads > 0 && model_.heads % model_.kv_heads != 0) {
      doubts_.add("heads-not-divisible", {keys_.full(names_.heads.front()), keys_.full(names_.kv_heads.front())},
                  fmt::format("{} heads over {} key and value heads", model_.heads, model_.kv_heads));
    }
  }

  void read_head_dim() {
    const auto read = names_.width ? names_.width : count(names_.head_dim, otherwise(&Family::head_dim));
    if (read) {
      model_.head_dim = value_or_0(read);
      declaration_.head_dim_origin = read->origin;
    } else if (!is_there(names_.head_dim)) {
      derive_head_dim(keys_.full(names_.hidden_size.front()), keys_.full(names_.heads.front()));
    }
  }

  void derive_head_dim(const std::string& width, const std::string& heads) {
    const std::string key = keys_.full(names_.head_dim.front());
    if (model_.hidden_size == 0 || model_.heads == 0) {
      doubts_.add("shape-missing", {key}, fmt::format("{} is not in the file and cannot be computed from {} / {}", key, width, heads));
    } else if (model_.hidden_size % model_.heads != 0) {
      doubts_.add(
          "head-dim-fractional", {width, heads},
          fmt::format("{} / {} is {} / {}, not an integer, and there is no {}", width, heads, model_.hidden_size, model_.heads, key));
    } else {
      model_.head_dim = model_.hidden_size / model_.heads;
      declaration_.head_dim_origin = keys_.derived(width + " / " + heads);
    }
  }

  const Keys& keys_;
  const ShapeKeys& names_;
  const Family* defaults_;
  Declaration& declaration_;
  Model& model_;
  Doubts& doubts_;
};

}  // namespace

void read_shape(const Keys& keys, const ShapeKeys& names, const Family* class_defaults, Declaration& declaration, Doubts& doubts) {
  ShapeReader(keys, names, class_defaults, declaration, doubts).read();
}

std::optional<Integer> read_count(const Keys& keys, const ShapeKeys::Names& names, Doubts& doubts) {
  const auto read = keys.first<std::int64_t>(names);
  if (!read || (read->value >= 1 && read->value <= std::numeric_limits<int>::max())) return read;
  doubts.add("value-invalid", {read->origin.key}, fmt::format("{}: expected a positive integer, got {}", read->origin.key, read->value));
  return std::nullopt;
}

}  // namespace gnomon::files
