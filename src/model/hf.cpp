// SPDX-License-Identifier: Apache-2.0
// Hugging Face config.json: v4 (rope_scaling beside rope_theta), v5 (rope_parameters, flat or per layer type) and older spellings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/declaration.hpp"
#include "model/formats.hpp"
#include "model/hf_rotary.hpp"
#include "model/shape.hpp"
#include "spec/fields.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

constexpr std::size_t full = index(LayerType::full), sliding = index(LayerType::sliding);

// Keys that change how position enters: in a family this library does not know they make every number doubtful.
constexpr std::string_view decisive_keys[] = {
    "abacus_scale",
    "alibi",
    "attention_chunk_size",
    "attn_config",
    "compress_ratios",
    "compress_rope_theta",
    "dual_chunk_attention_config",
    "full_attention_interval",
    "global_rope_theta",
    "hybrid_layer_pattern",
    "hybrid_override_pattern",
    "local_rope_theta",
    "mla_use_nope",
    "no_rope_layers",
    "no_rope_layer_interval",
    "partial_rotary_factors",
    "position_embedding_type",
    "qk_rope_head_dim",
    "relative_attention",
    "relative_attention_num_buckets",
    "rope_adjustments",
    "rope_condense_ratio",
    "rope_n_elem",
    "rope_ratio",
    "rotary_value",
    "swa_rope_theta",
    "use_dynamic_ntk",
    "use_logn_attn",
    "use_rope",
};

bool is_idle(const json& value) {
  return value.is_null() || value == false || value == 0 || value == 1 || (value.is_structured() && value.empty()) || value == "" ||
         value == "rope" || value == "rotary";
}

class HfReader {
 public:
  HfReader(const json& root, const std::string& file, const std::string& path)
      : root_(root), top_(root, file, "", doubts_), keys_(pick_block(file)) {
    model().path = path;
    model().format = "hf";
  }

  Model read() {
    identify_family();
    read_shape();
    read_score();
    read_layer_types();
    rotary_.emplace(keys_, declaration_, doubts_);
    read_rotary();
    read_windows();
    report_leftovers();
    return assemble(std::move(declaration_), doubts_);
  }

 private:
  Model& model() { return declaration_.model; }
  const Family* family() const { return declaration_.family; }

  // ── which object describes the text model ──

  Keys pick_block(const std::string& file) {
    const json* text = top_.object("text_config");
    if (text == nullptr || root_.contains("num_hidden_layers") || root_.contains("n_layer")) return top_;
    return Keys(*text, file, "text_config.", doubts_);
  }

  void identify_family() {
    auto type = keys_.text("model_type");
    if (!type) type = top_.text("model_type");
    if (type) {
      model().type = type->value;
      declaration_.family = family_of_model_type(type->value);
    } else {
      identify_by_class();
    }
    if (family() != nullptr) {
      declaration_.layout = family()->layout;
    } else if (type) {
      doubts_.add("family-unknown", {type->origin.key},
                  fmt::format("{}: no family {} is known; the file is read by its keys, half_split assumed", type->origin.key,
                              quoted(json(type->value))));
    }
  }

  void identify_by_class() {
    std::string name;
    if (const json* classes = top_.find("architectures");
        classes != nullptr && classes->is_array() && !classes->empty() && classes->front().is_string()) {
      name = classes->front().get<std::string>();
    }
    declaration_.family = family_of_class(name);
    if (family() != nullptr) model().type = family()->model_types.front();
    doubts_.add("model-type-missing", {"model_type", "architectures"},
                family() != nullptr
                    ? fmt::format("model_type is missing; {} says {}", quoted(json(name)), family()->name)
                    : std::string("model_type is missing and no known class is named; the file is read by its keys, half_split assumed"));
  }

  // ── shape, lengths, score ──

  void read_shape() {
    static const ShapeKeys names = {
        .hidden_size = {"hidden_size", "n_embd", "d_model"},
        .layers = {"num_hidden_layers", "n_layer", "num_layers"},
        .heads = {"num_attention_heads", "n_head"},
        .kv_heads = {"num_key_value_heads", "n_head_kv"},
        .head_dim = {"head_dim"},
        .length = {"max_position_embeddings", "n_positions"},
    };
    files::read_shape(keys_, names, family(), declaration_, doubts_);
    for (const auto key : {"max_sequence_length", "model_max_length", "seq_length"}) {
      if (auto length = keys_.integer(key)) declaration_.other_lengths.push_back(std::move(*length));
    }
  }

  void read_score() {
    const int head_dim = model().head_dim;
    if (head_dim > 0) declaration_.softmax_scale = {std::pow(head_dim, -0.5), {"derived", declaration_.head_dim_origin.file, "head_dim"}};
    if (family() != nullptr && family()->query_pre_attn_scalar) {
      const auto scalar = keys_.number("query_pre_attn_scalar").value_or(Number{*family()->query_pre_attn_scalar, family_default()});
      if (scalar.value > 0 && std::isfinite(scalar.value)) {
        declaration_.softmax_scale = {std::pow(scalar.value, -0.5), scalar.origin};
      } else {
        doubts_.add("value-invalid", {scalar.origin.key},
                    fmt::format("{}: expected a positive number, got {}", scalar.origin.key, quoted(scalar.value)));
      }
    }
    declaration_.softcap = keys_.number("attn_logit_softcapping");
    if (!declaration_.softcap && family() != nullptr && family()->softcap && !keys_.is_null("attn_logit_softcapping")) {
      declaration_.softcap = Number{*family()->softcap, family_default()};
    }
    if (const auto both_ways = keys_.boolean("use_bidirectional_attention")) declaration_.causal = {!both_ways->value, both_ways->origin};
  }

  // ── layers ──

  void read_layer_types() {
    const auto layers = static_cast<std::size_t>(model().layers);
    declaration_.kinds.resize(layer_type_names.size());
    const json* list = keys_.find("layer_types");
    if (list == nullptr || list->is_null()) {
      read_layer_pattern(layers);
      return;
    }
    if (!list->is_array()) {
      doubts_.add("value-kind", {keys_.full("layer_types")},
                  fmt::format("{}: expected an array, got {}", keys_.full("layer_types"), quoted(*list)));
      return;
    }
    if (list->size() > layers) {
      doubts_.add("layer-list-length", {keys_.full("layer_types")},
                  fmt::format("{} has {} entries for {} layers", keys_.full("layer_types"), list->size(), layers));
    } else if (list->size() < layers) {
      doubts_.add("layer-list-short", {keys_.full("layer_types")},
                  fmt::format("{} has {} entries for {} layers", keys_.full("layer_types"), list->size(), layers));
    }
    for (std::size_t i = 0; i < std::min(layers, list->size()); i++) declaration_.kind_of_layer.push_back(layer_type((*list)[i]));
    listed_ = true;
  }

  std::size_t layer_type(const json& name) {
    for (std::size_t type = 0; type < layer_type_names.size(); type++) {
      if (name == layer_type_names[type]) return type;
    }
    doubts_.add("layer-type-unknown", {keys_.full("layer_types")},
                fmt::format("{}: unknown layer type {}", keys_.full("layer_types"), quoted(name)));
    return full;
  }

  void read_layer_pattern(std::size_t layers) {
    declaration_.kind_of_layer.assign(layers, full);
    if (family() == nullptr) return;
    if (family()->window_rule == WindowRule::pattern) {
      const auto pattern =
          keys_.integer("sliding_window_pattern", "_sliding_window_pattern").value_or(Integer{family()->pattern, family_default()});
      if (pattern.value < 1) {
        doubts_.add("value-invalid", {pattern.origin.key},
                    fmt::format("{}: expected a positive integer, got {}", pattern.origin.key, pattern.value));
        return;
      }
      for (std::size_t i = 0; i < layers; i++) {
        if ((i + 1) % static_cast<std::size_t>(pattern.value) != 0) declaration_.kind_of_layer[i] = sliding;
      }
    } else if (family()->window_rule == WindowRule::every_layer) {
      std::fill(declaration_.kind_of_layer.begin(), declaration_.kind_of_layer.end(), sliding);
    } else if (family()->window_rule == WindowRule::after_max_window_layers) {
      const auto first = keys_.integer("max_window_layers").value_or(Integer{family()->max_window_layers, family_default()});
      const auto used = keys_.boolean("use_sliding_window");
      for (std::size_t i = 0; used && used->value && i < layers; i++) {
        if (static_cast<std::int64_t>(i) >= first.value) declaration_.kind_of_layer[i] = sliding;
      }
    }
  }

  void read_windows() {
    const bool known = family() != nullptr;
    if (known && family()->window_rule == WindowRule::none && !listed_) return;
    auto window = keys_.integer("sliding_window", "sliding_window_size");
    if (is_switched_off()) return;
    if (window && window->value < 1) {
      doubts_.add("value-invalid", {window->origin.key},
                  fmt::format("{}: expected a positive integer or null, got {}", window->origin.key, window->value));
      window.reset();
    } else if (!window && known && family()->window && keys_.find("sliding_window") == nullptr) {
      window = default_window();
    }
    declaration_.kinds[sliding].window = window;
    if (!known && !listed_) declaration_.kinds[full].window = window;
  }

  // A key of Qwen's code, off unless it says otherwise; other families do not read it.
  bool is_switched_off() {
    if (family() == nullptr) return !keys_.boolean("use_sliding_window").value_or(Boolean{true, {}}).value;
    if (family()->window_rule != WindowRule::after_max_window_layers) return false;
    return !keys_.boolean("use_sliding_window").value_or(Boolean{false, {}}).value;
  }

  Integer default_window() {
    const auto key = keys_.full("sliding_window");
    if (uses(sliding)) {
      doubts_.add("window-missing-family-default", {key},
                  fmt::format("{} is not in the file; the family's {} is used", key, *family()->window));
    }
    return {*family()->window, family_default()};
  }

  bool uses(std::size_t type) const {
    return std::find(declaration_.kind_of_layer.begin(), declaration_.kind_of_layer.end(), type) != declaration_.kind_of_layer.end();
  }

  // ── rotation ──

  void read_rotary() {
    if (!rotary_->is_declared()) {
      doubts_.add("position-unknown", {"model_type"}, "an unknown family, and no key says how position enters");
      return;
    }
    for (const LayerType type : {LayerType::full, LayerType::sliding}) {
      if (uses(index(type))) declaration_.kinds[index(type)].rotary = rotary_->of(type);
    }
  }

  // ── what was not read ──

  void report_leftovers() {
    check_interleaved_key();
    check_suspected_scaling();
    model().unread = rotary_->unread();
    for (const auto& key : {"pos_emb", "rotary"}) {  // they say what the family implies
      if (const json* value = keys_.find(key); value != nullptr && *value != "rotary" && *value != true)
        model().unread.push_back(keys_.full(key));
    }
    std::vector<std::string> decisive;
    for (const auto& key : keys_.unread()) {
      const std::string_view name = std::string_view(key).substr(keys_.full("").size());
      const bool decides = std::find(std::begin(decisive_keys), std::end(decisive_keys), name) != std::end(decisive_keys);
      if (is_positional(name) || decides) model().unread.push_back(key);
      if (family() == nullptr && decides && !is_idle(*keys_.find(name))) decisive.push_back(key);
    }
    if (!decisive.empty()) {
      doubts_.add("keys-not-understood", decisive,
                  fmt::format("{} change how position enters, and no rule reads them in an unknown family", fmt::join(decisive, ", ")));
    }
    report_other_parts();
    std::sort(model().unread.begin(), model().unread.end());
  }

  void check_interleaved_key() {
    for (const auto key : {"rope_interleaved", "rope_interleave"}) {
      const auto interleaved = keys_.boolean(key);
      if (!interleaved || interleaved->value == (declaration_.layout == PairLayout::interleaved)) continue;
      doubts_.add("layout-conflict", {interleaved->origin.key},
                  fmt::format("{} is {}, but the layout of this family is {}", interleaved->origin.key, interleaved->value,
                              enum_name(declaration_.layout)));
    }
  }

  // Copies of Llama 3.1 to 3.3 that lost their scaling are common.
  void check_suspected_scaling() {
    if (model().type != "llama" || !declaration_.length || declaration_.length->value != 131072) return;
    const auto& rotary = declaration_.kinds[full].rotary;
    if (!rotary || rotary->type.value != "default" || !rotary->theta || rotary->theta->value != 500000) return;
    doubts_.add("scaling-missing-suspected", {"rope_scaling"},
                "131072 positions at base 500000 without rope_scaling: the released models of this shape carry llama3 scaling");
  }

  void report_other_parts() {
    for (const auto& [key, value] : root_.items()) {
      if (!value.is_object() || !key.ends_with("_config") || keys_.full("") == key + ".") continue;
      const bool has_position =
          std::any_of(value.items().begin(), value.items().end(), [](const auto& item) { return is_positional(item.key()); });
      if (has_position) model().unread.push_back(key);
    }
  }

  const json& root_;
  Doubts doubts_;
  Declaration declaration_;
  Keys top_, keys_;
  std::optional<HfRotary> rotary_;
  bool listed_ = false;  // whether layer_types is in the file
};

}  // namespace

bool is_hf(const json& root) {
  constexpr const char* keys[] = {"model_type", "architectures", "text_config", "num_hidden_layers", "n_layer"};
  return std::any_of(std::begin(keys), std::end(keys), [&](auto key) { return root.contains(key); });
}

Model read_hf(const json& root, const std::string& file, const std::string& path) { return HfReader(root, file, path).read(); }

}  // namespace gnomon::files
