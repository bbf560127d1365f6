// SPDX-License-Identifier: Apache-2.0
// GGUF: the keys under the architecture's prefix, with llama.cpp's defaults.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gnomon/error.hpp"
#include "gnomon/frequencies.hpp"
#include "model/declaration.hpp"
#include "model/formats.hpp"
#include "model/gguf_header.hpp"
#include "model/shape.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

enum LayerType : std::size_t { full, sliding };

// Some architectures give one number of heads per layer, mostly the same one.
bool is_one_count(std::string_view key, const json& value) {
  return key.starts_with("attention.head_count") && value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [&](const json& entry) { return entry == value.front(); });
}

json keys_under(const json& keys, const std::string& prefix) {
  json result = json::object();
  for (const auto& [name, value] : keys.items()) {
    if (!name.starts_with(prefix)) continue;
    const std::string key = name.substr(prefix.size());
    result[key] = is_one_count(key, value) ? value.front() : value;
  }
  return result;
}

std::string architecture_of(const GgufHeader& header, const std::string& path) {
  const auto found = header.keys.find("general.architecture");
  if (found == header.keys.end() || !found->is_string()) {
    throw Error(ErrorCode::malformed, path + ": key general.architecture: expected the name of an architecture, and it is not in the file");
  }
  return found->get<std::string>();
}

class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, const std::string& file, const std::string& path)
      : bytes_(bytes),
        header_(parse_gguf_header(bytes, path)),
        architecture_(architecture_of(header_, path)),
        object_(keys_under(header_.keys, architecture_ + ".")),
        keys_(object_, file, architecture_ + ".", doubts_) {
    model().path = path;
    model().format = "gguf";
    model().type = architecture_;
  }

  Model read() {
    identify_family();
    read_shape();
    read_score();
    read_layers();
    read_rotary();
    for (const auto& key : keys_.unread()) {
      if (is_positional(key)) model().unread.push_back(key);
    }
    return assemble(std::move(declaration_), doubts_);
  }

 private:
  Model& model() { return declaration_.model; }
  const Family* family() const { return declaration_.family; }

  void identify_family() {
    declaration_.family = family_of_architecture(architecture_);
    if (family() != nullptr) {
      declaration_.layout = family()->gguf_layout;
    } else {
      doubts_.add("layout-unknown", {"general.architecture"},
                  fmt::format("general.architecture: the pair layout of {} is not known", quoted(json(architecture_))));
    }
  }

  // ── shape, score ──

  void read_shape() {
    static const ShapeKeys names = {
        .hidden_size = {"embedding_length"},
        .layers = {"block_count"},
        .heads = {"attention.head_count"},
        .kv_heads = {"attention.head_count_kv"},
        .head_dim = {"attention.key_length"},
        .length = {"context_length"},
    };
    files::read_shape(keys_, names, nullptr, declaration_, doubts_);
  }

  std::optional<Integer> count(std::string_view key) { return read_count(keys_, {key}, doubts_); }

  void read_score() {
    const auto& origin = declaration_.head_dim_origin;
    const bool from_width = family() != nullptr && family()->gguf_scale && family()->gguf_scale->layers == model().layers;
    if (const auto scale = keys_.number("attention.scale"); scale && scale->value != 0) {
      declaration_.softmax_scale = *scale;
    } else if (from_width && model().heads > 0 && model().hidden_size > 0) {
      declaration_.softmax_scale = {std::pow(model().hidden_size / model().heads, -0.5), family_default()};
    } else if (model().head_dim > 0) {
      declaration_.softmax_scale = {std::pow(model().head_dim, -0.5), {"derived", origin.file, "head_dim"}};
    }
    declaration_.softcap = keys_.number("attn_logit_softcapping");
    if (!declaration_.softcap && family() != nullptr && family()->softcap)
      declaration_.softcap = Number{*family()->softcap, family_default()};
    if (const auto causal = keys_.boolean("attention.causal")) declaration_.causal = *causal;
  }

  // ── layers ──

  void read_layers() {
    const auto layers = static_cast<std::size_t>(model().layers);
    declaration_.kinds.resize(2);
    declaration_.kind_of_layer.assign(layers, full);
    if (family() == nullptr) return;
    if (family()->window_rule == WindowRule::pattern) read_pattern(layers);
    if (family()->window_rule == WindowRule::every_layer) declaration_.kind_of_layer.assign(layers, sliding);
    if (family()->window_rule == WindowRule::pattern || family()->window_rule == WindowRule::every_layer) read_window();
  }

  // A period, or one flag per layer.
  void read_pattern(std::size_t layers) {
    std::int64_t period = family()->pattern;
    const json* pattern = keys_.find("attention.sliding_window_pattern");
    if (pattern != nullptr && pattern->is_array()) {
      for (std::size_t i = 0; i < std::min(layers, pattern->size()); i++) {
        declaration_.kind_of_layer[i] = (*pattern)[i] == false || (*pattern)[i] == 0 ? full : sliding;
      }
      if (pattern->size() < layers) {
        doubts_.add(
            "layer-list-short", {keys_.full("attention.sliding_window_pattern")},
            fmt::format("{} has {} entries for {} layers", keys_.full("attention.sliding_window_pattern"), pattern->size(), layers));
      }
      return;
    }
    if (const auto read = count("attention.sliding_window_pattern")) period = read->value;
    for (std::size_t i = 0; i < layers; i++) {
      if ((i + 1) % static_cast<std::size_t>(period) != 0) declaration_.kind_of_layer[i] = sliding;
    }
  }

  void read_window() {
    auto window = count("attention.sliding_window");
    if (!window && family()->window && !keys_.has("attention.sliding_window")) {
      window = Integer{*family()->window, family_default()};
      doubts_.add("window-missing-family-default", {keys_.full("attention.sliding_window")},
                  fmt::format("{} is not in the file; the family's {} is used", keys_.full("attention.sliding_window"), *family()->window));
    }
    declaration_.kinds[sliding].window = window;
  }

  // ── rotation ──

  void read_rotary() {
    const bool separate = family() != nullptr && family()->sliding_theta;
    RotaryDeclaration rotary;
    rotary.block = keys_.full("rope.scaling");
    read_width(rotary);
    rotary.theta = keys_.number("rope.freq_base");
    RotaryDeclaration unscaled = rotary;
    read_scaling(rotary);
    read_tensors(rotary);
    default_theta(rotary, family() == nullptr ? std::nullopt : family()->theta, "rope.freq_base");
    declaration_.kinds[full].rotary = rotary;
    if (!separate) {
      const auto base = keys_.number("rope.freq_base_swa");
      if (base) rotary.theta = base;
      declaration_.kinds[sliding].rotary = rotary;
      return;
    }
    unscaled.theta = keys_.number("rope.freq_base_swa");
    if (!unscaled.theta) unscaled.theta = Number{*family()->sliding_theta, family_default()};
    declaration_.kinds[sliding].rotary = unscaled;
  }

  void read_width(RotaryDeclaration& rotary) {
    rotary.rotary_dim = count("rope.dimension_count");
    if (!rotary.rotary_dim && !keys_.has("rope.dimension_count") && model().head_dim > 0)
      rotary.rotary_dim = Integer{model().head_dim, family_default()};
  }

  void default_theta(RotaryDeclaration& rotary, std::optional<double> otherwise, std::string_view key) {
    if (rotary.theta || !otherwise) return;
    rotary.theta = Number{*otherwise, family_default()};
    doubts_.add("theta-missing-family-default", {keys_.full(key)},
                fmt::format("{} is not in the file; the family's {} is used", keys_.full(key), quoted(*otherwise)));
  }

  void read_scaling(RotaryDeclaration& rotary) {
    auto factor = keys_.number("rope.scaling.factor");
    if (const auto old = keys_.number("rope.scale_linear"); !factor) factor = old;
    rotary.type = keys_.text("rope.scaling.type").value_or(Text{"linear", family_default()});
    const bool unscaled = !factor || factor->value == 0 || factor->value == 1;
    if (rotary.type.value == "none" || (rotary.type.value == "linear" && unscaled)) rotary.type.value = "default";
    if (factor) rotary.numbers["factor"] = *factor;
    if (const auto original = keys_.number("rope.scaling.original_context_length"))
      rotary.numbers["original_max_position_embeddings"] = *original;
    if (const auto fast = keys_.number("rope.scaling.yarn_beta_fast")) rotary.numbers["beta_fast"] = *fast;
    if (const auto slow = keys_.number("rope.scaling.yarn_beta_slow")) rotary.numbers["beta_slow"] = *slow;
    if (const auto log = keys_.number("rope.scaling.yarn_log_multiplier"); log && log->value != 0) {
      rotary.numbers["mscale"] = {1, log->origin};
      rotary.numbers["mscale_all_dim"] = *log;
    }
    // With factor lists it is the magnitude itself.
    if (const auto magnitude = keys_.number("rope.scaling.attn_factor"); magnitude && magnitude->value != 1)
      (has_factor_lists() ? rotary.attention_factor : rotary.magnitude_multiplier) = magnitude;
    keys_.find("rope.scaling.finetuned");  // a mark only
    check_unsupported(rotary);
    read_sections(rotary);
  }

  bool has_factor_lists() const {
    return std::any_of(header_.rope_tensors.begin(), header_.rope_tensors.end(),
                       [](const auto& named) { return named.first.find("rope_factors_") != std::string::npos; });
  }

  void check_unsupported(const RotaryDeclaration& rotary) {
    if (const auto weight = keys_.number("rope.scaling.yarn_ext_factor"); rotary.type.value == "yarn" && weight && weight->value != 1) {
      doubts_.add(
          "rule-not-available", {weight->origin.key},
          fmt::format("{} = {}: a weighted ramp is known but not offered by this version", weight->origin.key, quoted(weight->value)));
    }
  }

  // Four numbers, padded with zeros. Which axis drives which pair is code of the architecture: Qwen3-VL and what follows take turns.
  void read_sections(RotaryDeclaration& rotary) {
    auto sections = keys_.list("rope.dimension_sections");
    if (!sections) return;
    while (!sections->value.empty() && sections->value.back() == 0) sections->value.pop_back();
    if (sections->value.empty()) return;
    rotary.sections = std::move(sections);
    rotary.sections_interleaved = architecture_.starts_with("qwen3vl") || architecture_.starts_with("qwen35");
  }

  // Scalings that have no key of their own are written as frequency divisors, one per pair.
  void read_tensors(RotaryDeclaration& rotary) {
    for (const auto& [name, tensor] : header_.rope_tensors) {
      if (name.find("rope_factors_") != std::string::npos) {
        Origin origin = keys_.read("");
        origin.key = name;
        rotary.type = {"longrope", origin};
        const auto factors = read_f32_tensor(bytes_, tensor, name, model().path);
        rotary.lists[name.find("long") != std::string::npos ? "long_factor" : "short_factor"] = {{factors.begin(), factors.end()}, origin};
      } else if (name.find("rope_freqs.") != std::string::npos) {
        read_divisors(name, read_f32_tensor(bytes_, tensor, name, model().path), rotary);
      }
    }
  }

  void read_divisors(const std::string& name, const std::vector<float>& divisors, RotaryDeclaration& rotary) {
    if (std::all_of(divisors.begin(), divisors.end(), [](float divisor) { return divisor == 1; })) return;
    const auto llama3 = rotary.type.value == "default" ? recognise_llama3(divisors, rotary) : std::nullopt;
    if (!llama3) {
      doubts_.add("frequency-tensor", {name},
                  fmt::format("tensor {}: {} frequency divisors that match no rule this version knows", name, divisors.size()));
      return;
    }
    const Origin origin{"derived", keys_.read("").file, name};
    rotary.type = {"llama3", origin};
    rotary.numbers["factor"] = {llama3->factor, origin};
    rotary.numbers["low_freq_factor"] = {llama3->low_freq_factor, origin};
    rotary.numbers["high_freq_factor"] = {llama3->high_freq_factor, origin};
    rotary.numbers["original_max_position_embeddings"] = {static_cast<double>(llama3->original_max_position_embeddings), origin};
  }

  // The released constants but for the factor, which is the divisor of the slowest pair.
  std::optional<rotary::Llama3> recognise_llama3(const std::vector<float>& divisors, const RotaryDeclaration& rotary) const {
    const auto pairs = static_cast<int>(divisors.size());
    if (!rotary.theta || !rotary.rotary_dim || rotary.rotary_dim->value != 2 * static_cast<std::int64_t>(divisors.size()))
      return std::nullopt;
    const rotary::Llama3 rule{divisors.back(), 1, 4, 8192};
    RotarySpec scaled{rule, rotary.theta->value, 2 * pairs, 2 * pairs, 0, PairLayout::half_split, {}};
    RotarySpec plain{rotary::Default{}, rotary.theta->value, 2 * pairs, 2 * pairs, 0, PairLayout::half_split, {}};
    try {
      const auto with = frequencies(scaled).inv_freq, without = frequencies(plain).inv_freq;
      for (std::size_t i = 0; i < divisors.size(); i++) {
        if (!(std::abs(without[i] / with[i] - divisors[i]) <= 1e-5 * divisors[i])) return std::nullopt;
      }
    } catch (const Error&) {
      return std::nullopt;  // not a rule at all, such as a factor below 1
    }
    return rule;
  }

  std::span<const std::byte> bytes_;
  GgufHeader header_;
  std::string architecture_;
  json object_;
  Doubts doubts_;
  Keys keys_;
  Declaration declaration_;
};

}  // namespace

Model read_gguf(std::span<const std::byte> bytes, const std::string& file, const std::string& path) {
  return GgufReader(bytes, file, path).read();
}

}  // namespace gnomon::files
