// SPDX-License-Identifier: Apache-2.0
#include "model/hf_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

namespace gnomon::files {

using nlohmann::json;

namespace {

struct Label {
  std::string_view name;
  LayerType type;
};

// Words of layer_types, layers_block_type and attention_layers.
constexpr Label labels[] = {
    {"full_attention", LayerType::full},
    {"attention", LayerType::full},
    {"global", LayerType::full},
    {"global_attention", LayerType::full},
    {"indexed_attention", LayerType::full},
    {"deepseek_sparse_attention", LayerType::full},
    {"minimax_m3_sparse", LayerType::full},
    {"hybrid", LayerType::full},
    {"sliding_attention", LayerType::sliding},
    {"hybrid_sliding", LayerType::sliding},
    {"local", LayerType::sliding},
    {"local_attention", LayerType::sliding},
    {"chunked_attention", LayerType::chunked},
    {"compressed_sparse_attention", LayerType::compressed},
    {"heavily_compressed_attention", LayerType::compressed},
    {"cross_attention", LayerType::cross},
    {"linear_attention", LayerType::none},
    {"mamba", LayerType::none},
    {"mamba2", LayerType::none},
    {"conv", LayerType::none},
    {"recurrent", LayerType::none},
    {"moe", LayerType::none},
    {"mlp", LayerType::none},
};

class LayerReader {
 public:
  LayerReader(const Keys& keys, const Declaration& declaration, Doubts& doubts)
      : keys_(keys), declaration_(declaration), doubts_(doubts), layers_(static_cast<std::size_t>(declaration.model.layers)) {}

  LayerPlan plan() {
    // Each asks for its own key and says whether it was there.
    if (!(read_labels("layer_types") || read_labels("layers_block_type") || read_labels("attention_layers") || read_attention_types() ||
          read_block_types() || read_numbers("hybrid_layer_pattern", {LayerType::full, LayerType::sliding}) ||
          read_numbers("attn_type_list", {LayerType::none, LayerType::full}) || read_compress_ratios() || read_letters() ||
          read_attention_indices() || read_attention_period())) {
      read_pattern();
    }
    if (family() != nullptr && family()->has_no_attention) layers_.assign(layers_.size(), Layer{.type = LayerType::none});
    read_block_configs();
    mark_cross_attention();
    mark_still_layers();
    read_lists_of_numbers();
    read_overrides();
    return group();
  }

 private:
  const Family* family() const { return declaration_.family; }
  bool follows(WindowRule rule) const { return family() != nullptr && family()->window_rule == rule; }

  const json* array(std::string_view key) const {
    const json* value = keys_.find(key);
    if (value == nullptr || value->is_null()) return nullptr;
    if (value->is_array()) return value;
    doubts_.add("value-kind", {keys_.full(key)}, fmt::format("{}: expected an array, got {}", keys_.full(key), quoted(*value)));
    return nullptr;
  }

  void check_length(std::string_view key, std::size_t size) {
    if (size == layers_.size()) return;
    const std::string text = fmt::format("{} has {} entries for {} layers", keys_.full(key), size, layers_.size());
    if (size > layers_.size()) {
      doubts_.add("layer-list-length", {keys_.full(key)}, text);
    } else {
      doubts_.add("layer-list-short", {keys_.full(key)}, text);
    }
  }

  void set(std::size_t layer, LayerType type, std::string_view label = {}) {
    layers_[layer].type = type;
    layers_[layer].label = label;
  }

  // ── lists ──

  bool read_labels(std::string_view key) {
    const json* list = array(key);
    if (list == nullptr) return keys_.has(key);  // of a wrong kind: doubted, and no pattern may be made up for it
    check_length(key, list->size());
    if (list->size() < layers_.size()) layers_.resize(list->size());
    for (std::size_t i = 0; i < layers_.size(); i++) set_label(i, key, (*list)[i]);
    return true;
  }

  void set_label(std::size_t layer, std::string_view key, const json& name) {
    const auto found = std::find_if(std::begin(labels), std::end(labels), [&](const Label& label) { return name == label.name; });
    if (found != std::end(labels)) return set(layer, found->type, found->name);
    doubts_.add("layer-type-unknown", {keys_.full(key)}, fmt::format("{}: unknown layer type {}", keys_.full(key), quoted(name)));
  }

  // GPT-Neo: [[["global", "local"], 12]], names and how often they repeat.
  bool read_attention_types() {
    constexpr std::size_t most = 65536;  // repetitions of one run
    const json* runs = array("attention_types");
    if (runs == nullptr) return keys_.has("attention_types");
    std::vector<const json*> names;
    std::size_t count = 0;
    for (const auto& run : *runs) {
      const bool good = run.is_array() && run.size() == 2 && run[0].is_array() && run[1].is_number_unsigned() && run[1] <= most;
      if (!good) {
        doubts_.add("value-kind", {keys_.full("attention_types")},
                    fmt::format("{}: expected pairs of a list of types and how often it repeats, got {}", keys_.full("attention_types"),
                                quoted(run)));
        return true;
      }
      const auto times = run[1].get<std::size_t>();
      count += run[0].size() * times;
      for (std::size_t i = 0; i < times && names.size() < layers_.size(); i++) {
        for (const auto& name : run[0]) names.push_back(&name);
      }
    }
    check_length("attention_types", count);
    if (names.size() < layers_.size()) layers_.resize(names.size());
    for (std::size_t i = 0; i < layers_.size(); i++) set_label(i, "attention_types", *names[i]);
    return true;
  }

  // RecurrentGemma: a run that repeats, and all its attention is local.
  bool read_block_types() {
    const json* run = array("block_types");
    if (run == nullptr || run->empty()) return false;
    for (std::size_t i = 0; i < layers_.size(); i++) {
      set_label(i, "block_types", (*run)[i % run->size()]);
      if (layers_[i].type == LayerType::full) set(i, LayerType::sliding);
    }
    return true;
  }

  bool read_numbers(std::string_view key, const std::vector<LayerType>& meaning) {
    const auto list = keys_.has(key) ? keys_.list(key) : std::nullopt;
    if (!list) return false;
    check_length(key, list->value.size());
    for (std::size_t i = 0; i < std::min(layers_.size(), list->value.size()); i++) {
      set(i, meaning[list->value[i] == 0 ? 0 : 1]);
    }
    return true;
  }

  // Layers with a ratio see compressed keys beside their window. One entry more belongs to a layer that drafts tokens.
  bool read_compress_ratios() {
    const auto list = keys_.has("compress_ratios") ? keys_.list("compress_ratios") : std::nullopt;
    if (!list) return false;
    if (list->value.size() != layers_.size() + 1) check_length("compress_ratios", list->value.size());
    for (std::size_t i = 0; i < std::min(layers_.size(), list->value.size()); i++) {
      set(i, list->value[i] == 0 ? LayerType::sliding : LayerType::compressed);
    }
    return true;
  }

  // Nemotron-H: a letter for each layer, of which only * is attention.
  bool read_letters() {
    const auto letters = keys_.text("hybrid_override_pattern");
    if (!letters) return false;
    check_length("hybrid_override_pattern", letters->value.size());
    for (std::size_t i = 0; i < std::min(layers_.size(), letters->value.size()); i++) {
      if (letters->value[i] != '*') set(i, LayerType::none);
    }
    return true;
  }

  bool read_attention_indices() {
    for (const auto key : {"attn_layer_indices", "full_attn_idxs"}) {
      if (const auto list = keys_.has(key) ? keys_.list(key) : std::nullopt) return only(list->value, 0);
    }
    const json* linear = keys_.object("linear_attn_config");  // Kimi counts its layers from 1
    if (linear == nullptr) return false;
    const auto list = keys_.inside(*linear, "linear_attn_config").list("full_attn_layers");
    return list && only(list->value, 1);
  }

  bool only(const std::vector<double>& indices, int first) {
    for (std::size_t i = 0; i < layers_.size(); i++) set(i, LayerType::none);
    for (const double index : indices) {
      const double layer = index - first;
      if (layer >= 0 && layer < static_cast<double>(layers_.size())) set(static_cast<std::size_t>(layer), LayerType::full);
    }
    return true;
  }

  bool read_attention_period() {
    const auto period = keys_.integer("attn_layer_period"), offset = keys_.integer("attn_layer_offset");
    if (!period || period->value < 1) return false;
    const auto remainder = static_cast<std::size_t>(offset ? std::max<std::int64_t>(offset->value, 0) : 0);
    for (std::size_t i = 0; i < layers_.size(); i++) {
      if (i % static_cast<std::size_t>(period->value) != remainder) set(i, LayerType::none);
    }
    return true;
  }

  // ── patterns ──

  void read_pattern() {
    if (follows(WindowRule::every_layer)) {
      for (std::size_t i = 0; i < layers_.size(); i++) set(i, LayerType::sliding);
    } else if (follows(WindowRule::after_max_window_layers)) {
      read_late_window();
    } else if (follows(WindowRule::linear_pattern) || (family() == nullptr && keys_.has("full_attention_interval"))) {
      every_nth(keys_.integer("full_attention_interval"), LayerType::none);
    } else if (follows(WindowRule::pattern)) {
      if (!keys_.is_null("sliding_window")) read_sliding_pattern();
    } else if (family() == nullptr) {
      read_unknown_window();
    }
  }

  void read_late_window() {
    const auto first = keys_.integer("max_window_layers").value_or(Integer{family()->max_window_layers, family_default()});
    const auto used = keys_.boolean("use_sliding_window");
    for (std::size_t i = 0; used && used->value && i < layers_.size(); i++) {
      if (static_cast<std::int64_t>(i) >= first.value) set(i, LayerType::sliding);
    }
  }

  // A number, or letters as LLLG, of which L slides.
  void read_sliding_pattern() {
    if (const json* value = keys_.find("sliding_window_pattern"); value != nullptr && value->is_string()) {
      const auto letters = value->get<std::string>();
      for (std::size_t i = 0; i < layers_.size() && !letters.empty(); i++) {
        if (letters[i % letters.size()] == 'L' && i + 1 < layers_.size()) set(i, LayerType::sliding);
      }
      return;
    }
    every_nth(keys_.integer("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"), LayerType::sliding);
  }

  void every_nth(std::optional<Integer> read, LayerType others) {
    const auto pattern = read.value_or(Integer{family() != nullptr ? family()->pattern : 0, family_default()});
    if (pattern.value < 1) {
      doubts_.add("value-invalid", {pattern.origin.key},
                  fmt::format("{}: expected a positive integer, got {}", pattern.origin.key, pattern.value));
      return;
    }
    const std::int64_t full = family() != nullptr && family()->pattern_starts_full ? 0 : pattern.value - 1;
    for (std::size_t i = 0; i < layers_.size(); i++) {
      if (static_cast<std::int64_t>(i) % pattern.value != full) set(i, others);
    }
  }

  // In an unknown family a window without a pattern is taken to hold everywhere.
  void read_unknown_window() {
    if (keys_.has("sliding_window_pattern") || keys_.has("global_attn_every_n_layers")) return read_sliding_pattern();
    const bool off = !keys_.boolean("use_sliding_window").value_or(Boolean{true, {}}).value;
    if (off || !(keys_.has("sliding_window") || keys_.has("sliding_window_size"))) return;
    for (std::size_t i = 0; i < layers_.size(); i++) set(i, LayerType::sliding);
  }

  // ── marks on single layers ──

  // Nemotron-NAS: a block may have had its attention removed, or replaced by a linear layer.
  void read_block_configs() {
    const json* blocks = array("block_configs");
    for (std::size_t i = 0; blocks != nullptr && i < std::min(layers_.size(), blocks->size()); i++) {
      const json& block = (*blocks)[i];
      if (!block.is_object() || !block.contains("attention") || !block["attention"].is_object()) continue;
      for (const auto key : {"no_op", "replace_with_linear"}) {
        if (block["attention"].value(key, json()) == true) set(i, LayerType::none);
      }
    }
  }

  void mark_cross_attention() {
    const auto list = keys_.has("cross_attention_layers") ? keys_.list("cross_attention_layers") : std::nullopt;
    if (!list) return;
    for (const double index : list->value) {
      if (index >= 0 && index < static_cast<double>(layers_.size())) set(static_cast<std::size_t>(index), LayerType::cross);
    }
  }

  void mark_still_layers() {
    if (!read_no_rope_list()) {
      const auto interval = keys_.integer("no_rope_layer_interval", "nope_layer_interval");
      const bool by_family = family() != nullptr && family()->rotates == Rotates::all_but_nth;
      if (interval || by_family) mark_every_nth(interval ? interval->value : family()->still_interval);
    }
    if (family() == nullptr) return;
    const auto slides = [](const Layer& layer) { return layer.type == LayerType::sliding; };
    if (family()->rotates == Rotates::sliding_layers && std::any_of(layers_.begin(), layers_.end(), slides)) {
      for (auto& layer : layers_) layer.rotates = slides(layer);
    }
    settle_by_rotation();
  }

  // 1 means that the layer rotates. An empty list is the default interval, as in the code of the families that have it.
  bool read_no_rope_list() {
    const auto list = keys_.has("no_rope_layers") ? keys_.list("no_rope_layers") : std::nullopt;
    if (!list) return false;
    const std::string key = keys_.full("no_rope_layers");
    if (list->value.empty()) {
      doubts_.add("no-rope-list-empty", {key}, fmt::format("{} is empty, which stands for every {}th layer", key, still_interval()));
      mark_every_nth(still_interval());
      return true;
    }
    check_length("no_rope_layers", list->value.size());
    std::size_t still = 0;
    for (std::size_t i = 0; i < std::min(layers_.size(), list->value.size()); i++) {
      layers_[i].rotates = list->value[i] != 0;
      still += layers_[i].rotates ? 0 : 1;
    }
    if (2 * still > layers_.size()) {
      doubts_.add("no-rope-list-inverted", {key},
                  fmt::format("{}: 1 means that a layer rotates, and {} of {} are 0", key, still, layers_.size()));
    }
    return true;
  }

  std::int64_t still_interval() const { return family() != nullptr ? family()->still_interval : 4; }

  void mark_every_nth(std::int64_t interval) {
    if (interval < 1) return;
    for (std::size_t i = 0; i < layers_.size(); i++) layers_[i].rotates = (static_cast<std::int64_t>(i) + 1) % interval != 0;
  }

  void settle_by_rotation() {
    const bool listed = keys_.has("layer_types");
    if (follows(WindowRule::chunked_where_rotating) && !listed) {
      for (auto& layer : layers_) layer.type = layer.rotates ? LayerType::chunked : LayerType::full;
    }
    if (follows(WindowRule::sliding_where_still) && !listed && keys_.boolean("use_sliding_window").value_or(Boolean{}).value) {
      for (auto& layer : layers_) layer.type = layer.rotates ? LayerType::full : LayerType::sliding;
    }
  }

  // Step-3.x: a base and a width for each layer. Entries beyond the layers belong to those that draft tokens.
  void read_lists_of_numbers() {
    read_list("rope_theta", &Layer::theta);
    read_list("partial_rotary_factors", &Layer::fraction);
  }

  void read_list(std::string_view key, std::optional<double> Layer::* member) {
    const json* value = keys_.find(key);
    if (value == nullptr || !value->is_array()) return;
    const auto list = keys_.list(key);
    if (!list) return;
    if (list->value.size() < layers_.size()) check_length(key, list->value.size());
    for (std::size_t i = 0; i < std::min(layers_.size(), list->value.size()); i++) layers_[i].*member = list->value[i];
  }

  // transformers 5 writes {"05": {"head_dim": 512}, …} for layers that differ.
  void read_overrides() {
    const json* overrides = keys_.object("per_layer_config");
    if (overrides == nullptr) return;
    const Keys all = keys_.inside(*overrides, "per_layer_config");
    for (std::size_t i = 0; i < layers_.size(); i++) {
      for (const auto& name : {fmt::format("{}", i), fmt::format("{:02}", i), fmt::format("{:03}", i)}) {
        const auto one = overrides->find(name);
        if (one != overrides->end() && one->is_object()) layers_[i].head_dim = all.inside(*one, name).integer("head_dim");
      }
    }
  }

  LayerPlan group() {
    LayerPlan plan;
    for (auto& layer : layers_) {
      if (layer.type == LayerType::none) {
        plan.kind_of_layer.push_back(no_attention);
        continue;
      }
      const auto same = std::find(plan.kinds.begin(), plan.kinds.end(), layer);
      plan.kind_of_layer.push_back(static_cast<std::size_t>(same - plan.kinds.begin()));
      if (same == plan.kinds.end()) plan.kinds.push_back(std::move(layer));
    }
    return plan;
  }

  const Keys& keys_;
  const Declaration& declaration_;
  Doubts& doubts_;
  std::vector<Layer> layers_;
};

}  // namespace

LayerPlan plan_layers(const Keys& keys, const Declaration& declaration, Doubts& doubts) {
  return LayerReader(keys, declaration, doubts).plan();
}

}  // namespace gnomon::files
