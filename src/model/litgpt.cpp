// SPDX-License-Identifier: Apache-2.0
// LitGPT's configuration, as JSON. Source: litgpt/config.py and litgpt/model.py. It rotates half_split whatever the model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/flat_reader.hpp"
#include "model/formats.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

enum LayerType : std::size_t { full, sliding };
constexpr int largest_gemma_3 = 62;  // layers

class LitgptReader : FlatReader {
 public:
  LitgptReader(const json& root, const std::string& file, const std::string& path) : FlatReader(root, file, path, "litgpt") {}

  Model read() {
    static const ShapeKeys names = {
        .hidden_size = {"n_embd"},
        .layers = {"n_layer"},
        .heads = {"n_head"},
        .kv_heads = {"n_query_groups"},
        .head_dim = {"head_size"},
        .length = {"block_size"},
    };
    read_shape(keys_, names, nullptr, declaration_, doubts_);
    if (keys_.has("rope_local_base_freq")) model().type = "gemma3_text";  // the one family here whose layers have two bases
    read_score();
    declaration_.kinds.resize(2);
    read_layers();
    read_rotation();
    return finish();
  }

 private:
  void read_score() {
    // The largest Gemma 3 has another scale, which a file without the scalar does not say.
    if (!keys_.has("rope_local_base_freq") || model().layers != largest_gemma_3) scale_by_head_dim();
    if (const auto scalar = keys_.number("attention_scores_scalar"); scalar && scalar->value > 0)
      declaration_.softmax_scale = {std::pow(scalar->value, -0.5), scalar->origin};
    declaration_.softcap = keys_.number("attention_logit_softcapping");
  }

  // An index of 1 is a sliding layer, or one that turns at the local base; a file with one list means both by it.
  void read_layers() {
    declaration_.kind_of_layer.assign(static_cast<std::size_t>(model().layers), full);
    const auto window = count("sliding_window_size");
    auto indices = per_layer("sliding_window_indices", 0);
    const auto rope_indices = per_layer("rope_indices", 0);
    if (!indices) indices = rope_indices;
    if (!indices && window) std::fill(declaration_.kind_of_layer.begin(), declaration_.kind_of_layer.end(), sliding);
    for (std::size_t i = 0; indices && i < indices->size(); i++) declaration_.kind_of_layer[i] = (*indices)[i] == 1 ? sliding : full;
    declaration_.kinds[sliding].window = window;
  }

  void read_rotation() {
    RotaryDeclaration rotary = rotation("rope_base", DefaultTheta{10000, "LitGPT's class"});
    read_width(rotary);
    if (const auto interleave = keys_.boolean("rope_interleave"); interleave && interleave->value) {
      declaration_.layout = PairLayout::interleaved;
      declaration_.layout_origin = interleave->origin;
    }
    const RotaryDeclaration unscaled = rotary;
    if (const auto ratio = keys_.number("rope_condense_ratio")) set_linear(rotary, *ratio);
    if (const json* adjustments = keys_.object("rope_adjustments"))
      read_adjustments(keys_.inside(*adjustments, "rope_adjustments"), rotary);
    declaration_.kinds[full].rotary = rotary;
    declaration_.kinds[sliding].rotary = rotary;
    if (const auto local = keys_.number("rope_local_base_freq")) {
      declaration_.kinds[sliding].rotary = unscaled;
      declaration_.kinds[sliding].rotary->theta = local;
    }
  }

  void read_width(RotaryDeclaration& rotary) {
    const auto width = keys_.integer("rope_n_elem");
    const auto fraction = keys_.number("rotary_percentage");
    if (model().head_dim == 0) return;
    const Integer from_fraction = width_of(model().head_dim, fraction ? *fraction : Number{0.25, family_default()});
    if (width && fraction && width->value != from_fraction.value) {
      doubts_.add("rotary-width-conflict", {width->origin.key, fraction->origin.key},
                  fmt::format("{} is {} but {} gives {} of {}; the first is used", width->origin.key, width->value, fraction->origin.key,
                              from_fraction.value, model().head_dim));
    }
    if (!width && !fraction) {
      doubts_.add("rotary-width-not-in-file", {keys_.full("rotary_percentage")},
                  fmt::format("no rotated width in the file; the {} of LitGPT's class is used", from_fraction.value));
    }
    rotary.rotary_dim = width ? *width : from_fraction;
  }

  // The keys that are there choose the rule: the factor alone is linear, with betas yarn, with bands llama3.
  void read_adjustments(const Keys& block, RotaryDeclaration& rotary) {
    rotary.block = "rope_adjustments";
    const auto factor = block.number("factor");
    const bool yarn = block.has("beta_fast") || block.has("beta_slow") || block.has("mscale");
    const bool bands = block.has("low_freq_factor") || block.has("high_freq_factor");
    if (factor) rotary.numbers["factor"] = *factor;
    rotary.length_is_settled = true;  // Gemma 3 is the one model with a factor alone, and its length stands behind it
    rotary.type = {yarn ? "yarn" : bands ? "llama3" : "linear", block.read("factor")};
    for (const auto* name : {"low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      if (const auto value = block.number(name)) rotary.numbers[name] = *value;
    }
    if (const auto original = block.number("original_max_seq_len")) rotary.numbers["original_max_position_embeddings"] = *original;
    for (auto& key : block.unread()) model().unread.push_back(std::move(key));
  }
};

}  // namespace

bool is_litgpt(const json& root) {
  constexpr const char* keys[] = {"block_size", "n_query_groups", "rope_n_elem", "rotary_percentage", "rope_condense_ratio"};
  const auto found = std::count_if(std::begin(keys), std::end(keys), [&](auto key) { return root.contains(key); });
  return root.contains("n_layer") && !root.contains("model_type") && found >= 2;
}

Model read_litgpt(const json& root, const std::string& file, const std::string& path) { return LitgptReader(root, file, path).read(); }

}  // namespace gnomon::files
