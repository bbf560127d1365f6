// SPDX-License-Identifier: Apache-2.0
// TensorRT-LLM: the config.json of a checkpoint or an engine. Source: tensorrt_llm/functional.py (PositionEmbeddingType, RopeParams) and
// models/modeling_utils.py.
#include <fmt/format.h>

#include <algorithm>

#include "model/flat_reader.hpp"
#include "model/formats.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

constexpr std::string_view rotary_types[] = {"rope_gptj", "rope_gpt_neox", "long_rope", "yarn", "mrope", "chatglm"};

const json& checkpoint_of(const json& root) {
  const auto engine = root.find("pretrained_config");
  return engine != root.end() && engine->is_object() ? *engine : root;
}

class TensorrtReader : FlatReader {
 public:
  TensorrtReader(const json& root, const std::string& file, const std::string& path)
      : FlatReader(checkpoint_of(root), file, path, "tensorrt-llm", &checkpoint_of(root) == &root ? "" : "pretrained_config.") {}

  Model read() {
    static const ShapeKeys names = {
        .hidden_size = {"hidden_size"},
        .layers = {"num_hidden_layers"},
        .heads = {"num_attention_heads"},
        .kv_heads = {"num_key_value_heads"},
        .head_dim = {"head_size"},
        .length = {"max_position_embeddings"},
    };
    if (const auto architecture = keys_.text("architecture")) model().type = architecture->value;
    read_shape(keys_, names, nullptr, declaration_, doubts_);
    scale_by_head_dim();
    declaration_.kinds.resize(1);
    declaration_.kind_of_layer.assign(static_cast<std::size_t>(model().layers), 0);
    read_position();
    return finish();
  }

 private:
  LayerKind& kind() { return declaration_.kinds.front(); }

  void read_position() {
    const auto type = keys_.text("position_embedding_type").value_or(Text{"learned_absolute", family_default()});
    if (std::find(std::begin(rotary_types), std::end(rotary_types), type.value) != std::end(rotary_types)) {
      read_rotation(type);
    } else if (type.value == "learned_absolute") {
      read_rows();
    } else if ((type.value == "alibi" || type.value == "alibi_with_scale") && model().heads > 0 && model().heads <= 65536) {
      read_slopes(type);
    } else if (type.value == "relative") {
      kind().bias = bias::T5{};
      kind().origins["bias.rule"] = type.origin;
    } else if (type.value != "alibi" && type.value != "alibi_with_scale") {
      doubts_.add("position-unknown", {type.origin.key},
                  fmt::format("{}: unknown kind of position {}", type.origin.key, quoted(json(type.value))));
    }
  }

  void read_rows() {
    if (!declaration_.length || model().hidden_size < 1) return;
    kind().absolute = AbsoluteSpec{absolute::Learned{.rows = declaration_.length->value}, model().hidden_size};
    kind().origins["absolute.rows"] = declaration_.length->origin;
  }

  // alibi_with_scale multiplies the slopes by the softmax scale too, as Falcon does.
  void read_slopes(const Text& type) {
    auto rule = bias::Alibi::of_heads(model().heads);
    if (type.value == "alibi_with_scale") {
      for (auto& slope : rule.slopes) slope *= declaration_.softmax_scale.value;
    }
    kind().bias = std::move(rule);
    kind().origins["bias.slopes"] = type.origin;
  }

  void read_rotation(const Text& type) {
    if (type.value == "rope_gptj" || type.value == "chatglm") declaration_.layout = PairLayout::interleaved;
    declaration_.layout_origin = type.origin;
    RotaryDeclaration rotary = rotation("rotary_base", DefaultTheta{10000, "TensorRT-LLM"});
    const auto width = keys_.integer("rotary_dim", "rotary_embedding_dim");
    const auto fraction = keys_.number("rotary_pct");
    if (width)
      rotary.rotary_dim = *width;
    else if (fraction && model().head_dim > 0)
      rotary.rotary_dim = width_of(model().head_dim, *fraction);
    else if (type.value == "chatglm" && model().head_dim > 0)
      rotary.rotary_dim = Integer{model().head_dim / 2, family_default()};
    if (const json* scaling = keys_.object("rotary_scaling")) read_scaling(keys_.inside(*scaling, "rotary_scaling"), rotary);
    read_lists(rotary);
    kind().rotary = std::move(rotary);
  }

  void read_scaling(const Keys& block, RotaryDeclaration& rotary) {
    rotary.block = keys_.full("rotary_scaling");
    rotary.type = block.text("type", "rope_type").value_or(rotary.type);
    read_rule_fields(block, rotary);
    rotary.sections = block.list("mrope_section");
    if (const auto alpha = block.number("alpha"); alpha && rotary.type.value == "dynamic") {
      rotary.type.value = "ntk";
      rotary.numbers["factor"] = *alpha;
      rotary.stated_as_alpha = true;
    }
    if (rotary.type.value == "mrope" || rotary.type.value == "none") rotary.type.value = "default";
    for (auto& key : block.unread()) model().unread.push_back(std::move(key));
  }

  void read_lists(RotaryDeclaration& rotary) {
    const auto short_list = keys_.list("longrope_scaling_short_factors"), long_list = keys_.list("longrope_scaling_long_factors");
    if (!short_list || !long_list) return;
    rotary.type = {"longrope", short_list->origin};
    rotary.lists["short_factor"] = *short_list;
    rotary.lists["long_factor"] = *long_list;
    if (const auto original = keys_.number("original_max_position_embeddings"))
      rotary.numbers["original_max_position_embeddings"] = *original;
  }
};

}  // namespace

bool is_tensorrt_llm(const json& root) {
  const json& checkpoint = checkpoint_of(root);
  const bool named = checkpoint.contains("architecture") && checkpoint.contains("num_hidden_layers");
  return named && (&checkpoint != &root || root.contains("mapping") || root.contains("position_embedding_type"));
}

Model read_tensorrt_llm(const json& root, const std::string& file, const std::string& path) {
  return TensorrtReader(root, file, path).read();
}

}  // namespace gnomon::files
