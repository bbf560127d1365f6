// SPDX-License-Identifier: Apache-2.0
// Mistral's params.json. Sources: mistral-inference (args.py, transformer_layers.py), and vLLM's reader of the keys it does not have.
#include <fmt/format.h>

#include "model/flat_reader.hpp"
#include "model/formats.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

class MistralReader : FlatReader {
 public:
  MistralReader(const json& root, const std::string& file, const std::string& path) : FlatReader(root, file, path, "mistral") {}

  Model read() {
    static const ShapeKeys names = {
        .hidden_size = {"dim"},
        .layers = {"n_layers"},
        .heads = {"n_heads"},
        .kv_heads = {"n_kv_heads"},
        .head_dim = {"head_dim"},
        .length = {"max_position_embeddings", "max_seq_len"},
    };
    read_shape(keys_, names, nullptr, declaration_, doubts_);
    read_latent_attention();
    scale_by_head_dim();
    declaration_.layout = PairLayout::interleaved;
    rotary_ = read_rotation();
    read_temperature();
    if (const auto causal = keys_.boolean("causal")) declaration_.causal = *causal;
    read_layers();
    for (const auto* part : {"vision_encoder", "multimodal"}) {
      if (keys_.object(part) != nullptr) model().unread.emplace_back(part);
    }
    return finish();
  }

 private:
  // Queries and keys are a part without position and a rotated part behind it; head_dim is another width then.
  void read_latent_attention() {
    still_ = count("qk_nope_head_dim");
    turning_ = count("qk_rope_head_dim");
    if (!still_ || !turning_) return;
    model().head_dim = static_cast<int>(std::min<std::int64_t>(still_->value + turning_->value, widest_head + 1));
    declaration_.head_dim_origin = keys_.derived("qk_nope_head_dim + qk_rope_head_dim");
  }

  RotaryDeclaration read_rotation() {
    const DefaultTheta otherwise = keys_.has("sliding_window") ? DefaultTheta{10000, "Mistral's code beside a sliding window"}
                                                               : DefaultTheta{1000000, "Mistral's code without a sliding window"};
    RotaryDeclaration rotary = rotation("rope_theta", otherwise);
    if (still_ && turning_) {
      rotary.rotary_dim = *turning_;
      rotary.rotary_offset = static_cast<int>(still_->value);
    }
    if (const json* yarn = keys_.object("yarn")) read_yarn(keys_.inside(*yarn, "yarn"), rotary);
    return rotary;
  }

  void read_yarn(const Keys& block, RotaryDeclaration& rotary) {
    rotary.block = "yarn";
    rotary.type = {"yarn", block.read("factor")};
    const std::pair<const char*, const char*> names[] = {{"factor", "factor"},
                                                         {"original_max_position_embeddings", "original_max_position_embeddings"},
                                                         {"beta", "beta_fast"},
                                                         {"alpha", "beta_slow"}};
    for (const auto& [key, field] : names) {
      if (const auto value = block.number(key)) rotary.numbers[field] = *value;
    }
    if (const auto applied = block.boolean("apply_scale"); applied && !applied->value) rotary.attention_factor = Number{1, applied->origin};
    for (auto& key : block.unread()) model().unread.push_back(std::move(key));
  }

  void read_temperature() {
    const json* scaling = keys_.object("llama_4_scaling");
    if (scaling == nullptr) return;
    const Keys block = keys_.inside(*scaling, "llama_4_scaling");
    const auto beta = block.number("beta");
    const auto length = read_count(block, {"original_max_position_embeddings"}, doubts_);
    if (!beta || !length) {
      doubts_.add("scaling-field-missing", {"llama_4_scaling"}, "llama_4_scaling: expected beta and original_max_position_embeddings");
    } else if (beta->value != 0) {
      kind_.query_temperature = StepTemperature{beta->value, length->value, 0};
      kind_.origins["query_temperature.attn_scale"] = beta->origin;
      kind_.origins["query_temperature.floor_scale"] = length->origin;
    }
  }

  // One window for all layers, or a list that is repeated over them, null where a layer sees everything.
  void read_layers() {
    kind_.rotary = rotary_;
    const json* window = keys_.find("sliding_window");
    const auto layers = static_cast<std::size_t>(model().layers);
    if (window == nullptr || !window->is_array() || window->empty()) {
      kind_.window = count("sliding_window");
      declaration_.kinds = {kind_};
      declaration_.kind_of_layer.assign(layers, 0);
      return;
    }
    for (std::size_t i = 0; i < std::min(window->size(), layers); i++) declaration_.kinds.push_back(with_window((*window)[i]));
    for (std::size_t i = 0; i < layers; i++) declaration_.kind_of_layer.push_back(i % window->size());
  }

  LayerKind with_window(const json& value) {
    LayerKind kind = kind_;
    if (value.is_null()) return kind;
    if (value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 9e15) {
      kind.window = Integer{value.get<std::int64_t>(), keys_.read("sliding_window")};
    } else {
      doubts_.add("value-invalid", {"sliding_window"},
                  fmt::format("sliding_window: expected a positive integer or null for each layer, got {}", quoted(value)));
    }
    return kind;
  }

  std::optional<Integer> still_, turning_;
  RotaryDeclaration rotary_;
  LayerKind kind_;
};

}  // namespace

bool is_mistral(const json& root) {
  return root.contains("dim") && root.contains("n_layers") && root.contains("n_heads") && root.contains("head_dim");
}

Model read_mistral(const json& root, const std::string& file, const std::string& path) { return MistralReader(root, file, path).read(); }

}  // namespace gnomon::files
