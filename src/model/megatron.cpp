// SPDX-License-Identifier: Apache-2.0
// The arguments of Megatron-LM, as JSON or as text (arguments.cpp). Source: megatron/training/arguments.py and
// megatron/core/models/common/embeddings.
#include <fmt/format.h>

#include <algorithm>

#include "model/flat_reader.hpp"
#include "model/formats.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

class MegatronReader : FlatReader {
 public:
  MegatronReader(const json& root, const std::string& file, const std::string& path) : FlatReader(root, file, path, "megatron") {}

  Model read() {
    static const ShapeKeys names = {
        .hidden_size = {"hidden_size"},
        .layers = {"num_layers"},
        .heads = {"num_attention_heads"},
        .kv_heads = {"num_query_groups"},
        .head_dim = {"kv_channels"},
        .length = {"max_position_embeddings", "seq_length"},
    };
    read_shape(keys_, names, nullptr, declaration_, doubts_);
    if (const auto grouped = keys_.boolean("group_query_attention"); !grouped || !grouped->value) model().kv_heads = model().heads;
    latent_ = keys_.boolean("multi_latent_attention").value_or(Boolean{}).value;
    if (latent_) read_latent_width();
    scale_by_head_dim();
    declaration_.kinds.resize(4);
    read_layers();
    read_position();
    return finish();
  }

 private:
  static constexpr std::size_t still = 1, sliding = 2;  // a kind is their sum

  void read_latent_width() {
    const auto unturned = count("qk_head_dim").value_or(Integer{128, family_default()});
    turning_ = count("qk_pos_emb_head_dim").value_or(Integer{64, family_default()});
    model().head_dim = static_cast<int>(std::min<std::int64_t>(unturned.value + turning_.value, widest_head + 1));
    declaration_.head_dim_origin = keys_.derived("qk_head_dim + qk_pos_emb_head_dim");
  }

  // ── layers ──

  // A number N marks every N-th layer, a list says 1 for the layers it means.
  std::vector<bool> marks(const char* key, bool every_nth) {
    const auto layers = static_cast<std::size_t>(model().layers);
    std::vector<bool> marked(layers, false);
    const json* value = keys_.find(key);
    if (value == nullptr || value->is_null()) return marked;
    if (value->is_array()) {
      const auto list = per_layer(key, 0);
      for (std::size_t i = 0; i < layers; i++) marked[i] = (*list)[i] == 1;
    } else if (const auto period = count(key)) {
      for (std::size_t i = 0; i < layers; i++) marked[i] = ((i + 1) % static_cast<std::size_t>(period->value) == 0) == every_nth;
    }
    return marked;
  }

  void read_layers() {
    const auto unturned = marks("no_rope_freq", true);
    auto windowed = marks("window_attn_skip_freq", false);
    const auto window = read_window();
    if (!keys_.has("window_attn_skip_freq")) windowed.assign(windowed.size(), true);
    for (std::size_t i = 0; i < windowed.size(); i++)
      declaration_.kind_of_layer.push_back((unturned[i] ? still : 0U) + (window && windowed[i] ? sliding : 0U));
    for (const std::size_t kind : {sliding, sliding + still}) declaration_.kinds[kind].window = window;
  }

  // Keys to the left, beside the query itself; -1 is all of them.
  std::optional<Integer> read_window() {
    const auto sizes = keys_.list("window_size");
    if (!sizes || sizes->value.empty()) return std::nullopt;
    const double left = sizes->value.front();
    if (left < 0) return std::nullopt;
    if (left < 1e15 && left == static_cast<double>(static_cast<std::int64_t>(left)))
      return Integer{static_cast<std::int64_t>(left) + 1, sizes->origin};
    doubts_.add("value-invalid", {sizes->origin.key}, fmt::format("{}: expected whole numbers, got {}", sizes->origin.key, quoted(left)));
    return std::nullopt;
  }

  // ── position ──

  void read_position() {
    auto type = keys_.text("position_embedding_type").value_or(Text{"learned_absolute", family_default()});
    if (const auto old = keys_.boolean("use_rotary_position_embeddings"); old && old->value) type = {"rope", old->origin};
    const auto each = [&](auto&& change) { std::for_each(declaration_.kinds.begin(), declaration_.kinds.end(), change); };
    if (latent_ || type.value == "rope" || type.value == "yarn" || type.value == "mrope") {
      const RotaryDeclaration rotary = read_rotation(type);
      for (const std::size_t kind : {std::size_t{0}, sliding}) declaration_.kinds[kind].rotary = rotary;
    } else if (type.value == "learned_absolute") {
      if (!declaration_.length || model().hidden_size < 1) return;
      each([&](LayerKind& kind) {
        kind.absolute = AbsoluteSpec{absolute::Learned{.rows = declaration_.length->value}, model().hidden_size};
        kind.origins["absolute.rows"] = declaration_.length->origin;
      });
    } else if (type.value == "relative") {
      read_buckets();
    } else if (type.value != "none") {
      doubts_.add("position-unknown", {type.origin.key},
                  fmt::format("{}: unknown kind of position {}", type.origin.key, quoted(json(type.value))));
    }
  }

  void read_buckets() {
    const auto buckets = count("relative_attention_num_buckets").value_or(Integer{32, family_default()});
    const auto distance = count("relative_attention_max_distance").value_or(Integer{128, family_default()});
    const bias::T5 rule{buckets.value, distance.value, false};
    try {
      validate(BiasRule(rule));
    } catch (const std::exception& error) {
      doubts_.add("value-invalid", {buckets.origin.key, distance.origin.key}, error.what());
      return;
    }
    for (auto& kind : declaration_.kinds) {
      kind.bias = rule;
      kind.origins["bias.buckets"] = buckets.origin;
    }
  }

  RotaryDeclaration read_rotation(const Text& type) {
    RotaryDeclaration rotary = rotation("rotary_base", DefaultTheta{10000, "Megatron"});
    const auto fraction = keys_.number("rotary_percent");
    if (fraction && !latent_ && model().head_dim > 0) rotary.rotary_dim = width_of(model().head_dim, *fraction);
    if (latent_) {
      rotary.rotary_dim = turning_;
      rotary.rotary_offset = static_cast<int>(model().head_dim - turning_.value);
    }
    const auto interleaved = keys_.boolean("rotary_interleaved");
    if (latent_ || (interleaved && interleaved->value)) declaration_.layout = PairLayout::interleaved;
    if (interleaved) declaration_.layout_origin = interleaved->origin;
    if (const auto factor = keys_.number("rotary_seq_len_interpolation_factor")) set_linear(rotary, *factor);
    const auto scaled = keys_.boolean("use_rope_scaling");
    const auto factor = keys_.number("rope_scaling_factor");
    if (scaled && scaled->value)
      set_llama3(rotary, factor.value_or(Number{8, family_default()}), {1, family_default()}, {4, family_default()},
                 {8192, family_default()});
    const auto latent_type = keys_.text("rope_type");
    if (type.value == "yarn" || (latent_ && (!latent_type || latent_type->value == "yarn")))
      read_yarn(rotary, latent_ ? latent_type.value_or(Text{"yarn", family_default()}) : type);
    rotary.sections = keys_.list("mrope_section");
    return rotary;
  }

  // Two sets of names: of the multi-latent attention, and of the kind of position.
  void read_yarn(RotaryDeclaration& rotary, const Text& type) {
    rotary.type = {"yarn", type.origin};
    const std::tuple<const char*, const char*, const char*> names[] = {
        {"factor", "yarn_rotary_scaling_factor", "rotary_scaling_factor"},
        {"original_max_position_embeddings", "yarn_original_max_position_embeddings", "original_max_position_embeddings"},
        {"beta_fast", "yarn_beta_fast", "beta_fast"},
        {"beta_slow", "yarn_beta_slow", "beta_slow"},
        {"mscale", "yarn_mscale", "mscale"},
        {"mscale_all_dim", "yarn_mscale_all_dim", "mscale_all_dim"}};
    for (const auto& [field, key, latent_key] : names) {
      if (const auto value = keys_.number(key, latent_key)) rotary.numbers[field] = *value;
    }
    rotary.truncate = keys_.boolean("yarn_correction_range_round_to_int");
  }

  bool latent_ = false;
  Integer turning_;
};

}  // namespace

bool is_megatron(const json& root) {
  constexpr const char* keys[] = {
      "kv_channels",      "rotary_base", "rotary_percent",          "rotary_interleaved",         "use_rope_scaling",
      "num_query_groups", "seq_length",  "position_embedding_type", "tensor_model_parallel_size", "ffn_hidden_size"};
  const auto found = std::count_if(std::begin(keys), std::end(keys), [&](auto key) { return root.contains(key); });
  return root.contains("num_layers") && root.contains("num_attention_heads") && !root.contains("model_type") && found >= 2;
}

Model read_megatron(const json& root, const std::string& file, const std::string& path) { return MegatronReader(root, file, path).read(); }

}  // namespace gnomon::files
