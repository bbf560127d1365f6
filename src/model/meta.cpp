// SPDX-License-Identifier: Apache-2.0
// Meta's params.json, and the files of llama2.c and executorch, which use the same names. Sources: llama_models/llama3/model.py and
// llama4/model.py; run.c; examples/models/llama/model_args.py of executorch.
#include <fmt/format.h>

#include <algorithm>

#include "model/flat_reader.hpp"
#include "model/formats.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

// Keys that one of the three has and Mistral's file, which always states head_dim, does not.
constexpr const char* own_keys[] = {
    "use_scaled_rope",     "use_hf_rope",          "multiple_of",          "ffn_dim_multiplier", "no_rope_layer_interval",
    "nope_layer_interval", "attention_chunk_size", "attention_multiplier", "layer_types",        "rope_freq_base"};
constexpr const char* executorch_keys[] = {"use_hf_rope", "no_rope_layer_interval", "attention_multiplier", "layer_types",
                                           "rope_freq_base"};

bool has_any(const json& root, const auto& keys) {
  return std::any_of(std::begin(keys), std::end(keys), [&](auto key) { return root.contains(key); });
}

/// Shapes of Llama 3.2: use_scaled_rope means another factor in their Hugging Face files than in Meta's code.
struct Shape {
  int layers, width;
};
constexpr Shape llama_3_2[] = {{16, 2048}, {28, 3072}};

class MetaReader : FlatReader {
 public:
  MetaReader(const json& root, const std::string& file, const std::string& path)
      : FlatReader(root, file, path, has_any(root, executorch_keys) ? "executorch" : "meta"),
        llama4_(root.contains("nope_layer_interval") || root.contains("attention_chunk_size")) {}

  Model read() {
    if (const auto type = keys_.text("model_type")) model().type = type->value;
    static const ShapeKeys names = {
        .hidden_size = {"dim"},
        .layers = {"n_layers"},
        .heads = {"n_heads"},
        .kv_heads = {"n_kv_heads"},
        .head_dim = {"head_dim"},
        .length = {"max_seq_len", "max_context_len"},
    };
    read_shape(keys_, names, nullptr, declaration_, doubts_);
    scale_by_head_dim();
    if (const auto scale = keys_.number("attention_multiplier")) declaration_.softmax_scale = *scale;
    read_layout();
    declaration_.kinds.resize(2);
    declaration_.kinds[rotating].rotary = read_rotation();
    read_layers();
    keys_.find("qk_norm_before_rope");  // where a norm stands, not a position
    return finish();
  }

 private:
  enum LayerType : std::size_t { rotating, still };

  // The weights stand as Meta trained them, unless the file says that they are those of the Hugging Face model.
  void read_layout() {
    declaration_.layout = PairLayout::interleaved;
    const auto permuted = keys_.boolean("use_hf_rope");
    if (!permuted) return;
    if (permuted->value) declaration_.layout = PairLayout::half_split;
    declaration_.layout_origin = permuted->origin;
  }

  RotaryDeclaration read_rotation() {
    const auto scaled = keys_.boolean("use_scaled_rope");
    const bool is_scaled = scaled && scaled->value;
    const DefaultTheta otherwise = is_scaled || llama4_ ? DefaultTheta{500000, "Meta's code for Llama 3"}
                                                        : DefaultTheta{10000, "llama2.c and of Meta's code for Llama 1 and 2"};
    const bool old_name = !keys_.has("rope_theta") && keys_.has("rope_freq_base");
    RotaryDeclaration rotary = rotation(old_name ? "rope_freq_base" : "rope_theta", otherwise);
    if (const auto fraction = keys_.number("partial_rotary_factor"); fraction && model().head_dim > 0)
      rotary.rotary_dim = width_of(model().head_dim, *fraction);
    const auto factor = keys_.number("rope_scale_factor", "rope_scaling_factor");
    const auto high = keys_.number("rope_high_freq_factor");
    if (is_scaled) scale(rotary, *scaled, factor, high);
    return rotary;
  }

  // The rest of the rule is constants of the code.
  void scale(RotaryDeclaration& rotary, const Boolean& scaled, const std::optional<Number>& factor, const std::optional<Number>& high) {
    const Number constant{llama4_ ? 16.0 : 8.0, family_default()};
    set_llama3(rotary, factor.value_or(constant), {1, family_default()}, high.value_or(Number{llama4_ ? 1.0 : 4.0, family_default()}),
               {8192, family_default()});
    rotary.type.origin = scaled.origin;
    if (factor) return;
    const auto small = std::find_if(std::begin(llama_3_2), std::end(llama_3_2), [&](const Shape& shape) {
      return shape.layers == model().layers && shape.width == model().hidden_size;
    });
    if (llama4_ || small == std::end(llama_3_2)) {
      doubts_.add("scaling-constants", {scaled.origin.key},
                  fmt::format("{} states no factor; the constants of Meta's code are used: {}, bands 1 and {}, length 8192",
                              scaled.origin.key, constant.value, rotary.numbers["high_freq_factor"].value));
    } else {
      doubt_factor(rotary, scaled);
    }
  }

  void doubt_factor(RotaryDeclaration& rotary, const Boolean& scaled) {
    const std::vector<std::string> keys = {scaled.origin.key};
    doubts_.add("scaling-factor-unstated", keys,
                fmt::format("{} states no factor: Meta's code has 8, the Hugging Face files of a Llama of this shape say 32; 8 is used",
                            scaled.origin.key));
    rotary.other_readings.push_back(
        {"scaling-factor-unstated", keys, [](RotaryDeclaration& other) { other.numbers["factor"].value = 32; }});
  }

  void read_layers() {
    declaration_.kind_of_layer.assign(static_cast<std::size_t>(model().layers), rotating);
    if (const auto interval = read_count(keys_, {"no_rope_layer_interval", "nope_layer_interval"}, doubts_)) {
      const auto every = static_cast<std::size_t>(interval->value);
      for (std::size_t i = every; i <= declaration_.kind_of_layer.size(); i += every) declaration_.kind_of_layer[i - 1] = still;
    }
    declaration_.kinds[rotating].chunk = count("attention_chunk_size");  // layers without rotation see everything
    read_temperature();
    const auto types = per_layer("layer_types", "full_attention");
    for (std::size_t i = 0; types && i < types->size(); i++) {
      if ((*types)[i] == "conv")
        declaration_.kind_of_layer[i] = no_attention;
      else if ((*types)[i] != "full_attention")
        doubt_layer_type((*types)[i]);
    }
  }

  void doubt_layer_type(const json& type) {
    doubts_.add("layer-type-unknown", {keys_.full("layer_types")},
                fmt::format("{}: unknown layer type {}", keys_.full("layer_types"), quoted(type)));
  }

  // Llama 4 multiplies the queries of the layers that do not rotate.
  void read_temperature() {
    const auto tuned = keys_.boolean("attn_temperature_tuning");
    const auto floor = count("floor_scale");
    const auto scale = keys_.number("attn_scale");
    if (!tuned || !tuned->value) return;
    auto& kind = declaration_.kinds[still];
    kind.query_temperature = StepTemperature{scale ? scale->value : 0.1, floor ? floor->value : 8192, 1};
    kind.origins["query_temperature.attn_scale"] = scale ? scale->origin : family_default();
    kind.origins["query_temperature.floor_scale"] = floor ? floor->origin : family_default();
  }

  bool llama4_;
};

}  // namespace

bool is_meta(const json& root) {
  // llama2.c says "llama"; DistilBERT has the same names for its shape.
  if (const auto type = root.find("model_type"); type != root.end() && *type != "llama") return false;
  return root.contains("dim") && root.contains("n_layers") && root.contains("n_heads") &&
         (!root.contains("head_dim") || has_any(root, own_keys));
}

Model read_meta(const json& root, const std::string& file, const std::string& path) { return MetaReader(root, file, path).read(); }

}  // namespace gnomon::files
