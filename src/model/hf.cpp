// SPDX-License-Identifier: Apache-2.0
// Hugging Face config.json: v4 (rope_scaling beside rope_theta), v5 (rope_parameters, flat or per layer type) and older spellings.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "model/declaration.hpp"
#include "model/formats.hpp"
#include "model/hf_context.hpp"
#include "model/hf_engines.hpp"
#include "model/hf_layers.hpp"
#include "model/hf_rotary.hpp"
#include "model/shape.hpp"
#include "spec/fields.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

// Keys that change how position enters: in a family this library does not know they make every number doubtful when no rule read them.
constexpr std::string_view decisive_keys[] = {
    "attn_config",
    "dual_chunk_attention_config",
    "mla_use_nope",
    "relative_attention",
    "relative_attention_num_buckets",
    "rope_adjustments",
    "rope_n_elem",
    "use_rope",
};

bool is_idle(const json& value) {
  return value.is_null() || value == false || value == 0 || value == 1 || (value.is_structured() && value.empty()) || value == "" ||
         value == "rope" || value == "rotary";
}

// Families that one key gives away, for files without a model_type.
struct Sign {
  std::string_view key, model_type;
};
constexpr Sign signs[] = {{"position_buckets", "deberta-v2"}, {"relative_attention_num_buckets", "t5"}, {"kv_channels", "chatglm"}};

// ── parts beside the text ──

struct Tower {
  std::string_view key, part;
};
constexpr Tower towers[] = {{"vision_config", "vision"}, {"audio_config", "audio"}, {"encoder", "encoder"}};
bool is_tower(std::string_view key) {
  return std::any_of(std::begin(towers), std::end(towers), [&](const Tower& tower) { return tower.key == key; });
}

bool has_layers(const json& object) { return object.contains("num_hidden_layers") || object.contains("n_layer"); }

/// A part that nobody asked for: another tower, or another model in the same file.
bool is_a_part(const json& object) { return object.is_object() && (has_layers(object) || object.contains("depth")); }

/// Reads one object that describes a stack of layers: a model, its text part, or a tower for images or sound.
class HfReader {
 public:
  /// `family` is null where the object itself must tell.
  HfReader(const Keys& keys, const Keys& top, const Family* family, Doubts& doubts) : top_(top), keys_(keys), doubts_(doubts) {
    declaration_.family = family;
  }

  Model read() {
    identify_family();
    read_shape();
    read_score();
    plan_ = plan_layers(keys_, declaration_, doubts_);
    declaration_.kinds.resize(plan_.kinds.size());
    declaration_.kind_of_layer = plan_.kind_of_layer;
    rotary_.emplace(keys_, declaration_, doubts_);
    HfContext context(keys_, plan_.kinds, declaration_, doubts_);
    read_encoding(context);
    for (std::size_t kind = 0; kind < plan_.kinds.size(); kind++) {
      read_mask(plan_.kinds[kind], declaration_.kinds[kind]);
      read_own_width(plan_.kinds[kind], declaration_.kinds[kind]);
    }
    for (auto& kind : declaration_.kinds) read_extras(kind);
    if (family() != nullptr && family()->hook != nullptr) family()->hook(context);
    for (auto& kind : declaration_.kinds) read_latent_scale(kind);
    note_readers(keys_, declaration_, doubts_);
    check_suspected_scaling();
    check_suspected_base();
    report_leftovers();
    return assemble(std::move(declaration_), doubts_);
  }

 private:
  Model& model() { return declaration_.model; }
  const Family* family() const { return declaration_.family; }

  // ── which family ──

  void identify_family() {
    auto type = keys_.text("model_type");
    if (!type) type = top_.text("model_type");
    if (type) {
      model().type = type->value;
      if (family() == nullptr) declaration_.family = family_of_model_type(type->value);
    } else if (family() == nullptr) {
      identify_otherwise();
    }
    if (family() != nullptr) {
      declaration_.causal = {family()->causal, family_default()};
      declaration_.layout = family()->layout;
      read_layout_key(family()->layout_key);
    } else {
      declaration_.layout = keys_.has("kv_lora_rank") ? PairLayout::interleaved : PairLayout::half_split;  // as DeepSeek, who invented it
      read_layout_key(true);
      if (type) {
        doubts_.add("family-unknown", {type->origin.key},
                    fmt::format("{}: no family {} is known; the file is read by its keys, {} assumed", type->origin.key,
                                quoted(json(type->value)), enum_name(declaration_.layout)));
      }
    }
  }

  void identify_otherwise() {
    std::string name;
    if (const json* classes = top_.find("architectures");
        classes != nullptr && classes->is_array() && !classes->empty() && classes->front().is_string()) {
      name = classes->front().get<std::string>();
    }
    declaration_.family = family_of_class(name);
    std::string sign = quoted(json(name));
    for (const auto& [key, model_type] : signs) {
      if (family() != nullptr || !keys_.has(key)) continue;
      declaration_.family = family_of_model_type(model_type);
      sign = keys_.full(key);
    }
    if (family() != nullptr) model().type = family()->model_types.front();
    doubts_.add("model-type-missing", {"model_type", "architectures"},
                family() != nullptr
                    ? fmt::format("model_type is missing; {} says {}", sign, family()->name)
                    : std::string("model_type is missing and no known class is named; the file is read by its keys, half_split assumed"));
  }

  void read_layout_key(bool decides) {
    for (const auto key : {"rope_interleaved", "rope_interleave"}) {
      const auto interleaved = keys_.boolean(key);
      if (!interleaved || interleaved->value == (declaration_.layout == PairLayout::interleaved)) continue;
      if (decides) {
        declaration_.layout = interleaved->value ? PairLayout::interleaved : PairLayout::half_split;
        declaration_.layout_origin = interleaved->origin;
        continue;
      }
      doubts_.add("layout-conflict", {interleaved->origin.key},
                  fmt::format("{} is {}, but the layout of this family is {}", interleaved->origin.key, interleaved->value,
                              enum_name(declaration_.layout)));
      const PairLayout asked = interleaved->value ? PairLayout::interleaved : PairLayout::half_split;
      other_layout_ = {"layout-conflict", {interleaved->origin.key}, [asked](RotaryDeclaration& other) { other.layout = asked; }};
    }
  }

  // ── shape, lengths, score ──

  // The family's own spelling where it is there, else the field's.
  ShapeKeys::Names spellings(std::vector<std::string_view> Family::* own, ShapeKeys::Names names) const {
    if (family() == nullptr) return names;
    for (const auto key : family()->*own) {
      if (keys_.has(key)) return {key};
    }
    return names;
  }

  void read_shape() {
    HfContext context(keys_, plan_.kinds, declaration_, doubts_);
    if (family() != nullptr && family()->shape != nullptr) return family()->shape(context);
    ShapeKeys names = {
        .hidden_size = spellings(&Family::hidden_keys, {"hidden_size", "n_embd", "n_embed", "d_model", "dim"}),
        .layers = spellings(&Family::layer_keys, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}),
        .heads = spellings(&Family::head_keys, {"num_attention_heads", "n_head", "n_heads", "num_heads"}),
        .kv_heads = {"num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "n_kv_heads"},
        .head_dim = {"head_dim", "kv_channels", "attention_head_size", "attention_head_dim", "d_kv"},
        .length = spellings(&Family::length_keys, {"max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"}),
    };
    names.width = latent_width();
    names.layer_count = listed_layers();
    read_lengths(names.length);
    files::read_shape(keys_, names, family(), declaration_, doubts_);
    if (const auto one = keys_.boolean("multi_query"); one && one->value && !keys_.has("new_decoder_architecture")) model().kv_heads = 1;
    if (family() == nullptr || !family()->offset_in_length || !declaration_.length) return;
    declaration_.usable = Integer{declaration_.length->value - family()->learned_offset, keys_.derived(declaration_.length->origin.key)};
  }

  void read_lengths(ShapeKeys::Names& names) {
    if (family() != nullptr && family()->is_image) {
      keys_.find("max_position_embeddings");  // copied from the text model: an image has none
      return names.clear();
    }
    for (const auto key : {"seq_length", "max_sequence_length", "model_max_length", "max_target_positions"}) {
      if (std::any_of(names.begin(), names.end(), [&](auto name) { return keys_.has(name); })) {
        if (auto length = keys_.integer(key)) declaration_.other_lengths.push_back(std::move(*length));
      } else if (keys_.has(key) && std::string_view(key) != "max_target_positions") {
        names = {key};
      }
    }
  }

  std::optional<Integer> listed_layers() {
    for (const auto key : {"layer_types", "layers_block_type", "hybrid_override_pattern"}) {
      const json* list = keys_.find(key);
      if (list == nullptr || !(list->is_array() || list->is_string())) continue;
      const std::size_t count = list->is_array() ? list->size() : list->get_ref<const std::string&>().size();
      return Integer{static_cast<std::int64_t>(count), keys_.derived(keys_.full(key))};
    }
    return std::nullopt;
  }

  // Queries and keys of latent attention: channels without position, then the rotated ones.
  std::optional<Integer> latent_width() {
    const auto still = keys_.integer("qk_nope_head_dim"), rotated = keys_.integer("qk_rope_head_dim");
    if (!still || !rotated) return std::nullopt;
    const std::int64_t width = still->value + rotated->value;
    const std::string sum = still->origin.key + " + " + rotated->origin.key;
    if (width < 1 || width > widest_head || still->value < 0 || rotated->value < 0) {
      doubts_.add("value-invalid", {still->origin.key, rotated->origin.key},
                  fmt::format("{} is {}, expected 1 to {}", sum, width, widest_head));
      return std::nullopt;
    }
    for (const auto key : {"qk_head_dim", "head_dim"}) {
      const auto stated = keys_.integer(key);
      if (!stated || stated->value == width) continue;
      doubts_.add("head-dim-conflict", {stated->origin.key, still->origin.key, rotated->origin.key},
                  fmt::format("{} = {} is not the width of queries and keys, {} = {}; the sum is used", stated->origin.key, stated->value,
                              sum, width));
    }
    return Integer{width, keys_.derived(sum)};
  }

  void read_score() {
    const int head_dim = model().head_dim;
    if (head_dim > 0) declaration_.softmax_scale = {std::pow(head_dim, -0.5), {"derived", declaration_.head_dim_origin.file, "head_dim"}};
    if (family() != nullptr && family()->softmax_scale) declaration_.softmax_scale = {*family()->softmax_scale, family_default()};
    const std::string_view multiplier = family() != nullptr                 ? family()->scale_key
                                        : keys_.has("attention_multiplier") ? "attention_multiplier"
                                                                            : "";
    if (const auto scale = multiplier.empty() ? std::nullopt : keys_.number(multiplier)) declaration_.softmax_scale = *scale;
    if (keys_.has("query_pre_attn_scalar") || (family() != nullptr && family()->query_pre_attn_scalar)) read_query_scalar();
    declaration_.softcap = keys_.number("attn_logit_softcapping");
    if (!declaration_.softcap && family() != nullptr && family()->softcap && !keys_.is_null("attn_logit_softcapping")) {
      declaration_.softcap = Number{*family()->softcap, family_default()};
    }
    if (const json* value = keys_.find("use_bidirectional_attention"); value != nullptr && value->is_string()) return;  // for images only
    if (const auto both_ways = keys_.boolean("use_bidirectional_attention")) declaration_.causal = {!both_ways->value, both_ways->origin};
  }

  void read_query_scalar() {
    const double otherwise = family() != nullptr ? family()->query_pre_attn_scalar.value_or(model().head_dim) : model().head_dim;
    const auto scalar = keys_.number("query_pre_attn_scalar").value_or(Number{otherwise, family_default()});
    if (scalar.value > 0 && std::isfinite(scalar.value)) {
      declaration_.softmax_scale = {std::pow(scalar.value, -0.5), scalar.origin};
    } else {
      doubts_.add("value-invalid", {scalar.origin.key},
                  fmt::format("{}: expected a positive number, got {}", scalar.origin.key, quoted(scalar.value)));
    }
  }

  // ── how position enters ──

  void read_encoding(HfContext& context) {
    if (const auto alibi = read_alibi()) return context.use_alibi(alibi->value, alibi->origin);
    switch (encoding()) {
      case Encoding::rotary:
        for (std::size_t kind = 0; kind < plan_.kinds.size(); kind++) {
          auto& rotary = declaration_.kinds[kind].rotary = rotary_->of(plan_.kinds[kind]);
          if (rotary && other_layout_) rotary->other_readings.push_back(*other_layout_);
        }
        break;
      case Encoding::alibi: {
        const auto bias_max = keys_.number("alibi_bias_max").value_or(Number{8, family_default()});
        context.use_alibi(bias_max.value, bias_max.origin);
        break;
      }
      case Encoding::learned:
        context.use_learned(0, family() != nullptr ? family()->learned_offset : 0);
        break;
      case Encoding::none:
        check_still_slice();
        break;
      case Encoding::other:
        break;
    }
  }

  // The largest slope's exponent, where a key of the file says that the biases are linear.
  std::optional<Number> read_alibi() {
    const json* attention = keys_.object("attn_config");
    const Keys inner = attention != nullptr ? keys_.inside(*attention, "attn_config") : keys_;
    std::optional<Boolean> asked = keys_.boolean("alibi", "use_alibi");
    if (attention != nullptr && !asked) asked = inner.boolean("alibi");
    const auto type = keys_.text("position_embedding_type");
    const bool by_type = type && type->value == "alibi";
    if (!(asked && asked->value) && !by_type) return std::nullopt;
    if (by_type && family() != nullptr && family()->encoding != Encoding::alibi && !family()->position_type_key) {
      doubts_.add("model-type-vs-position-type", {"model_type", type->origin.key},
                  fmt::format("{} has other positions, but {} is \"alibi\"; ALiBi is used", family()->name, type->origin.key));
    }
    if (const auto learned = keys_.boolean("learned_pos_emb"); learned && learned->value) {
      doubts_.add("alibi-vs-learned", {learned->origin.key, asked->origin.key},
                  fmt::format("{} beside {}: ALiBi is used and no table is added", learned->origin.key, asked->origin.key));
    }
    auto bias_max = inner.number("alibi_bias_max");
    return bias_max ? *bias_max : Number{8, asked ? asked->origin : type->origin};
  }

  Encoding encoding() {
    if (const auto learned = keys_.boolean("learned_pos_emb"); learned && !learned->value)
      return rotates_by_attn_config() ? Encoding::rotary : Encoding::none;
    if (rotates_by_attn_config()) return Encoding::rotary;
    if (keys_.boolean("mla_use_nope").value_or(Boolean{}).value) return Encoding::none;
    if (family() == nullptr && !keys_.boolean("use_rope").value_or(Boolean{true, {}}).value) return Encoding::none;
    const auto type = keys_.text("position_embedding_type");
    const bool decides = family() == nullptr || family()->position_type_key;
    if (type && type->value.starts_with("relative_key")) {
      doubts_.add("rule-not-available", {type->origin.key},
                  fmt::format("{}: the rule {} is known but not offered by this version", type->origin.key, quoted(json(type->value))));
    }
    if (type && decides) {
      if (type->value == "rope" || type->value == "rotary") return Encoding::rotary;
      if (type->value == "nope" || type->value == "none") return Encoding::none;
      if (type->value == "absolute" || type->value == "learned" || type->value == "learned_absolute") return Encoding::learned;
    }
    if (family() != nullptr) return family()->encoding;
    if (rotary_->is_declared()) return Encoding::rotary;
    doubts_.add("position-unknown", {"model_type"}, "an unknown family, and no key says how position enters");
    return Encoding::other;
  }

  // Latent attention can have the slice for rotation in projections and cache and never turn it.
  void check_still_slice() {
    const auto width = keys_.integer("qk_rope_head_dim");
    if (!width) return;
    doubts_.add("rope-width-not-rotated", {width->origin.key},
                fmt::format("{} = {}, but no layer rotates", width->origin.key, width->value));
  }

  bool rotates_by_attn_config() {  // MPT
    const json* attention = keys_.object("attn_config");
    return attention != nullptr && keys_.inside(*attention, "attn_config").boolean("rope").value_or(Boolean{}).value;
  }

  // ── what a layer sees ──

  void read_mask(const Layer& layer, LayerKind& kind) {
    if (layer.type == LayerType::cross) kind.causal = Boolean{false, family_default()};
    if (layer.type == LayerType::sliding || layer.type == LayerType::compressed) kind.window = window();
    if (layer.type == LayerType::chunked) kind.chunk = chunk();
    if (kind.window && kind.window->value > 0 && keys_.has("attention_chunk_size")) {
      doubts_.add("chunk-and-window", {keys_.full("attention_chunk_size"), kind.window->origin.key},
                  fmt::format("{} stands beside {}; the window is used", keys_.full("attention_chunk_size"), kind.window->origin.key));
    }
    kind.sink_logits = family() != nullptr && family()->sink_logits;
    if (kind.sink_logits) kind.origins["sink_logits"] = family_default();
  }

  std::optional<Integer> window() {
    const bool needs_switch = family() != nullptr && family()->window_rule == WindowRule::after_max_window_layers;
    if (needs_switch && !keys_.boolean("use_sliding_window").value_or(Boolean{}).value) return std::nullopt;
    auto window = keys_.integer("sliding_window", "sliding_window_size", "attention_window_size", "local_attention", "window_size");
    if (window && window->value < 1) {
      doubts_.add("value-invalid", {window->origin.key},
                  fmt::format("{}: expected a positive integer or null, got {}", window->origin.key, window->value));
      return std::nullopt;
    }
    if (window || family() == nullptr || !family()->window || keys_.find("sliding_window") != nullptr) return window;
    const auto key = keys_.full("sliding_window");
    doubts_.add("window-missing-family-default", {key},
                fmt::format("{} is not in the file; the family's {} is used", key, *family()->window));
    return Integer{*family()->window, family_default()};
  }

  std::optional<Integer> chunk() {
    if (keys_.has("attention_chunk_size")) return read_count(keys_, {"attention_chunk_size"}, doubts_);
    if (family() == nullptr || !family()->window || keys_.find("attention_chunk_size") != nullptr) return std::nullopt;
    return Integer{*family()->window, family_default()};
  }

  void read_own_width(const Layer& layer, LayerKind& kind) {
    const bool by_width = declaration_.softmax_scale.origin.key == "head_dim";
    if (!layer.head_dim || layer.head_dim->value < 1 || !by_width) return;
    kind.softmax_scale = Number{std::pow(static_cast<double>(layer.head_dim->value), -0.5), keys_.derived(layer.head_dim->origin.key)};
  }

  void read_extras(LayerKind& kind) {
    if (const auto rotated = keys_.boolean("rotary_value"); rotated && rotated->value && kind.rotary) {
      kind.rotates_values = true;
      kind.origins["rotates_values"] = rotated->origin;
      doubts_.add("values-rotated", {rotated->origin.key},
                  fmt::format("{}: values are rotated too, which most engines do not do", rotated->origin.key));
    }
    read_temperature(kind);
    if (const json* chunks = keys_.object("dual_chunk_attention_config"))
      read_dual_chunk(keys_.inside(*chunks, "dual_chunk_attention_config"), kind);
  }

  void read_temperature(LayerKind& kind) {
    if (const auto used = keys_.boolean("use_logn_attn"); used && used->value && declaration_.length) {
      kind.query_temperature = LogTemperature{declaration_.length->value};
      kind.origins["query_temperature"] = used->origin;
    }
    if (!kind.rotary || !kind.rotary->query_scale || kind.rotary->query_scale->value == 0) return;
    const auto original = kind.rotary->numbers.find("original_max_position_embeddings");
    if (original == kind.rotary->numbers.end() || !(original->second.value >= 1 && original->second.value < 1e15)) return;
    kind.query_temperature = StepTemperature{kind.rotary->query_scale->value, static_cast<std::int64_t>(original->second.value), 0};
    kind.origins["query_temperature"] = kind.rotary->query_scale->origin;
  }

  void read_dual_chunk(const Keys& keys, LayerKind& kind) {
    const auto chunk = keys.integer("chunk_size"), local = keys.integer("local_size"),
               original = keys.integer("original_max_position_embeddings");
    if (!chunk || !local) return;
    if (chunk->value < 1 || local->value < 0 || local->value >= chunk->value) {
      doubts_.add("value-invalid", {chunk->origin.key, local->origin.key},
                  fmt::format("{} is {} and {} is {}; expected 0 <= local < chunk", chunk->origin.key, chunk->value, local->origin.key,
                              local->value));
      return;
    }
    kind.dual_chunk = DualChunk{chunk->value, local->value, original ? original->value : 0};
    kind.origins["dual_chunk"] = chunk->origin;
  }

  void read_latent_scale(LayerKind& kind) {
    if (!kind.rotary || !keys_.has("qk_rope_head_dim")) return;
    const auto magnitude = latent_magnitude(*kind.rotary);
    if (!magnitude) return;
    kind.softmax_scale = Number{declaration_.softmax_scale.value * *magnitude * *magnitude,
                                keys_.derived("head_dim, " + kind.rotary->numbers.find("mscale_all_dim")->second.origin.key)};
  }

  // ── doubts about the whole, and what was not read ──

  // Copies of Llama 3.1 to 3.3 that lost their scaling are common.
  void check_suspected_scaling() {
    if (model().type != "llama" || !declaration_.length || declaration_.length->value != 131072 || declaration_.kinds.empty()) return;
    auto& rotary = declaration_.kinds.front().rotary;
    if (!rotary || rotary->type.value != "default" || !rotary->theta || rotary->theta->value != 500000) return;
    doubts_.add("scaling-missing-suspected", {"rope_scaling"},
                "131072 positions at base 500000 without rope_scaling: the released models of this shape carry llama3 scaling");
    rotary->other_readings.push_back({"scaling-missing-suspected", {"rope_scaling"}, [](RotaryDeclaration& other) {
                                        other.type.value = "llama3";
                                        other.numbers = {{"factor", {8, {}}},
                                                         {"low_freq_factor", {1, {}}},
                                                         {"high_freq_factor", {4, {}}},
                                                         {"original_max_position_embeddings", {8192, {}}}};
                                      }});
  }

  // A Llama 3 whose base was lost reads as a Llama 2, whose files state none.
  void check_suspected_base() {
    if (model().type != "llama" || declaration_.kinds.empty()) return;
    auto& rotary = declaration_.kinds.front().rotary;
    if (!rotary || !rotary->theta || rotary->theta->origin.how != "family default") return;
    const auto vocabulary = keys_.integer("vocab_size");
    const bool scaled = rotary->type.value == "llama3", large = vocabulary && vocabulary->value >= 128000;
    if (!scaled && !large) return;
    const std::string key = keys_.full("rope_theta");
    doubts_.add(
        "theta-missing-suspected", {key},
        fmt::format("{} is not in the file, which has {}: Llama 3 and its successors state 500000, and {} is used", key,
                    scaled ? "llama3 scaling" : fmt::format("a vocabulary of {}", vocabulary->value), quoted(rotary->theta->value)));
    rotary->other_readings.push_back(
        {"theta-missing-suspected", {key}, [](RotaryDeclaration& other) { other.theta = Number{500000, {}}; }});
  }

  void report_leftovers() {
    check_expected_keys();
    check_disabled_window();
    model().unread = rotary_->unread();
    for (const auto& key : {"pos_emb", "rotary"}) {  // they say what the family implies
      if (const json* value = keys_.find(key); value != nullptr && *value != "rotary" && *value != true)
        model().unread.push_back(keys_.full(key));
    }
    for (const auto key :
         {"max_window_layers", "full_attention_interval", "qk_nope_head_dim", "indexer_rope_interleave", "sliding_window_pattern",
          "original_rope", "kv_channels", "offset_alibi", "chunk_size_feed_forward", "use_mrope", "rope_theta"})
      keys_.find(key);  // of no effect here, or read where it has one
    if (family() == nullptr) keys_.find("use_sliding_window");
    std::vector<std::string> decisive;
    for (const auto& key : keys_.unread()) {
      const std::string_view name = std::string_view(key).substr(keys_.full("").size());
      const json& value = *keys_.find(name);
      const bool decides = std::find(std::begin(decisive_keys), std::end(decisive_keys), name) != std::end(decisive_keys);
      if (value.is_object() && name.ends_with("_config")) {
        if (is_a_part(value) && !is_tower(name)) model().unread.push_back(key);
        continue;
      }
      if (is_positional(name) || decides) model().unread.push_back(key);
      if (family() == nullptr && decides && !is_idle(value)) decisive.push_back(key);
    }
    if (!decisive.empty()) {
      doubts_.add("keys-not-understood", decisive,
                  fmt::format("{} change how position enters, and no rule reads them in an unknown family", fmt::join(decisive, ", ")));
    }
    std::sort(model().unread.begin(), model().unread.end());
  }

  void check_expected_keys() {
    if (family() == nullptr) return;
    std::vector<std::string> missing;
    for (const auto key : family()->expected_keys) {
      if (!keys_.has(key)) missing.push_back(keys_.full(key));
    }
    if (missing.size() < family()->expected_keys.size() || missing.empty() || keys_.has("rope_parameters")) return;
    doubts_.add("trimmed-file", missing,
                fmt::format("released files of {} state {}; this one was trimmed", family()->name, fmt::join(missing, ", ")));
  }

  // A window that would matter, if another key did not switch it off.
  void check_disabled_window() {
    if (family() == nullptr || family()->window_rule != WindowRule::after_max_window_layers) return;
    const auto used = keys_.boolean("use_sliding_window");
    const auto window = keys_.integer("sliding_window");
    if (!window || !declaration_.length || window->value >= declaration_.length->value || (used && used->value)) return;
    const std::string key = keys_.full("use_sliding_window");
    doubts_.add("window-disabled", {window->origin.key, key},
                fmt::format("{} = {} has no effect: {} is not true", window->origin.key, window->value, key));
  }

  const Keys& top_;
  const Keys& keys_;
  Doubts& doubts_;
  Declaration declaration_;
  LayerPlan plan_;
  std::optional<HfRotary> rotary_;
  std::optional<OtherReading> other_layout_;  ///< what the file asks for, where the family's code has another
};

// ── models of several parts ──

constexpr std::string_view text_objects[] = {"text_config", "llm_config", "language_config", "thinker_config", "decoder"};

/// The objects from the root down to the one that describes the text model.
std::vector<Keys> path_to_text(const json& root, const std::string& file, Doubts& doubts) {
  std::vector<Keys> path = {Keys(root, file, "", doubts)};
  const json* here = &root;
  while (!has_layers(*here)) {
    const json* next = nullptr;
    for (const auto key : text_objects) {
      if (next != nullptr || path.back().find(key) == nullptr) continue;
      next = path.back().object(key);
      if (next != nullptr) path.push_back(path.back().inside(*next, key));
    }
    if (next == nullptr) break;
    here = next;
  }
  return path;
}

const Family* tower_family(const Keys& tower, const std::string& parent) {
  if (const auto type = tower.text("model_type")) {
    if (const auto* family = family_of_tower(type->value)) return family;
    if (const auto* family = family_of_model_type(type->value); family != nullptr && type->value != parent) return family;
  }
  return family_of_tower(parent);
}

/// Adds the towers whose family is known; the others are named among what was not read.
void add_towers(const std::vector<Keys>& path, Model& model, Doubts& doubts) {
  for (const auto& keys : path) {
    for (const auto& key : keys.unread()) {  // of objects that hold others alone; the text has named its own
      const auto name = std::string_view(key).substr(keys.full("").size());
      if (is_a_part(*keys.find(name)) && !is_tower(name)) model.unread.push_back(key);
    }
    for (const auto& [name, part] : towers) {
      const json* value = keys.find(name);
      if (value == nullptr || !value->is_object() || value->empty()) continue;
      const Keys tower = keys.inside(*value, name);
      const auto parent = keys.text("model_type");
      const Family* family = tower_family(tower, parent ? parent->value : model.type);
      if (family == nullptr) {
        model.unread.push_back(keys.full(name));
        continue;
      }
      Model read = HfReader(tower, tower, family, doubts).read();
      for (auto& group : model.groups) {
        if (group.part.empty()) group.part = "text";
      }
      for (auto& group : read.groups) {
        group.part = part;
        if (part == "encoder") group.spec.mask.causal = false;
        model.groups.push_back(std::move(group));
      }
      model.unread.insert(model.unread.end(), read.unread.begin(), read.unread.end());
      for (auto& doubt : read.doubts) model.doubts.push_back(std::move(doubt));
    }
  }
}

Model read_root(const json& root, const std::string& file, const std::string& path) {
  Doubts doubts;
  const std::vector<Keys> objects = path_to_text(root, file, doubts);
  Model model = HfReader(objects.back(), objects.front(), nullptr, doubts).read();
  model.path = path;
  model.format = "hf";
  add_towers(objects, model, doubts);
  std::stable_sort(model.doubts.begin(), model.doubts.end(), [](const Doubt& a, const Doubt& b) { return a.level > b.level; });
  return model;
}

}  // namespace

bool is_hf(const json& root) {
  constexpr const char* keys[] = {"model_type", "architectures", "text_config", "num_hidden_layers", "n_layer"};
  return std::any_of(std::begin(keys), std::end(keys), [&](auto key) { return root.contains(key); });
}

Model read_hf(const json& root, const std::string& file, const std::string& path) { return read_root(root, file, path); }

}  // namespace gnomon::files
