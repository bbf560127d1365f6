// SPDX-License-Identifier: Apache-2.0
// GGUF: the keys under the architecture's prefix, with llama.cpp's defaults. What rotates is in gguf_rotary.cpp.
#include "model/gguf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gnomon/error.hpp"
#include "model/formats.hpp"
#include "model/tensors.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

std::string architecture_of(const GgufHeader& header, const std::string& path) {
  const auto found = header.keys.find("general.architecture");
  if (found == header.keys.end() || !found->is_string()) {
    throw Error(ErrorCode::malformed, path + ": key general.architecture: expected the name of an architecture, and it is not in the file");
  }
  return found->get<std::string>();
}

json keys_under(const json& keys, const std::string& prefix) {
  json result = json::object();
  for (const auto& [name, value] : keys.items()) {
    if (name.starts_with(prefix)) result[name.substr(prefix.size())] = value;
  }
  return result;
}

}  // namespace

GgufContent::GgufContent(std::span<const std::byte> file, GgufHeader parsed, const std::string& path)
    : bytes(file),
      header(std::move(parsed)),
      name(architecture_of(header, path)),
      object(keys_under(header.keys, name + ".")),
      architecture(gguf_architecture(name)) {}

GgufReader::GgufReader(std::span<const std::byte> file_bytes, GgufHeader parsed, const std::string& file, const std::string& path)
    : GgufContent(file_bytes, std::move(parsed), path), FlatReader(object, file, path, "gguf", name + ".") {
  model().type = name;
  declaration_.family = family_of_architecture(name);
}

Model GgufReader::read() {
  if (architecture == nullptr) {
    static const GgufArchitecture unknown;
    architecture = &unknown;
    doubts_.add("layout-unknown", {"general.architecture"},
                fmt::format("general.architecture: the pair layout of {} is not known", quoted(json(name))));
  }
  for (const auto* key : {"attention.head_count", "attention.head_count_kv"}) settle_counts(key);
  read_shape();
  if (architecture->no_attention) {
    declaration_.kind_of_layer.assign(static_cast<std::size_t>(model().layers), no_attention);
    return finish();
  }
  read_score();
  read_layers();
  read_rotations();
  read_extras();
  return finish();
}

// ── shape ──

// One number of heads per layer. A layer with none is no attention; where the numbers differ the first stands for all.
void GgufReader::settle_counts(const std::string& key) {
  auto& counts = object[key];
  if (!counts.is_array()) {
    if (counts.is_null()) object.erase(key);
    return;
  }
  attends_.resize(std::max(attends_.size(), counts.size()), true);
  json first;
  bool same = true;
  for (std::size_t i = 0; i < counts.size(); i++) {
    if (counts[i] == 0) attends_[i] = false;
    if (counts[i] == 0) continue;
    if (first.is_null()) first = counts[i];
    same = same && counts[i] == first;
  }
  if (!same) {
    doubts_.add("heads-vary", {keys_.full(key)},
                fmt::format("{} differs from layer to layer; {}, the first, is shown", keys_.full(key), quoted(first)));
  }
  counts = first.is_null() ? json(0) : first;
}

void GgufReader::read_shape() {
  static const ShapeKeys names = {
      .hidden_size = {"embedding_length"},
      .layers = {"block_count"},
      .heads = {"attention.head_count"},
      .kv_heads = {"attention.head_count_kv"},
      .head_dim = {"attention.key_length_mla", "attention.key_length"},
      .length = {"context_length"},
  };
  // The width of an absorbed key, which is no contradiction.
  if (keys_.has("attention.key_length_mla")) object.erase("attention.key_length");
  if (architecture->no_attention) {
    for (const auto* key : {"attention.head_count", "attention.head_count_kv"}) object[key] = 1;
  }
  files::read_shape(keys_, names, nullptr, declaration_, doubts_);
  if (architecture->no_attention) model().heads = model().kv_heads = 0;
  for (const auto* key : {"attention.value_length", "attention.value_length_mla", "attention.value_length_swa", "attention.key_length"})
    keys_.find(key);
  // Layers that only predict further tokens stand at the end.
  if (const auto drafts = keys_.integer("nextn_predict_layers"); drafts && drafts->value > 0 && drafts->value < model().layers)
    model().layers -= static_cast<int>(drafts->value);
  decoder_ = architecture->extra == GgufExtra::t5 && name == "t5";
  encoder_layers_ = static_cast<std::size_t>(model().layers);
  if (const auto layers = count("decoder_block_count"); decoder_ && layers && layers->value <= 65536)
    model().layers = static_cast<int>(layers->value);
}

// ── score ──

void GgufReader::read_score() {
  const bool by_width = architecture->layers_scaled_by_width == model().layers && model().heads > 0 && model().hidden_size > 0;
  const auto scale = keys_.number(name == "grok" ? "attention.output_scale" : "attention.scale");
  if (scale && scale->value != 0) {
    declaration_.softmax_scale = *scale;
  } else if (by_width && architecture->layers_scaled_by_width > 0) {
    declaration_.softmax_scale = {std::pow(model().hidden_size / model().heads, -0.5), family_default()};
  } else if (architecture->softmax_scale) {
    declaration_.softmax_scale = {*architecture->softmax_scale, family_default()};
  } else {
    scale_by_head_dim();
  }
  declaration_.softcap = keys_.number("attn_logit_softcapping");
  if (!declaration_.softcap && architecture->softcap) declaration_.softcap = Number{*architecture->softcap, family_default()};
  const auto stated = keys_.boolean("attention.causal");
  declaration_.causal = stated ? *stated : Boolean{architecture->causal, family_default()};
}

// ── layers ──

void GgufReader::read_layers() {
  const auto layers = static_cast<std::size_t>(model().layers);
  declaration_.kinds.resize(kinds);
  read_window(layers);
  mark_still_layers();
  if (const auto pattern = count("full_attention_interval"); pattern || architecture->attention_period > 0) {
    const auto every = static_cast<std::size_t>(pattern ? pattern->value : architecture->attention_period);
    for (std::size_t i = 0; i < layers; i++) {
      if ((i + 1) % every != 0) declaration_.kind_of_layer[i] = no_attention;
    }
  }
  for (std::size_t i = 0; i < std::min(layers, attends_.size()); i++) {
    if (!attends_[i]) declaration_.kind_of_layer[i] = no_attention;
  }
}

void GgufReader::read_window(std::size_t layers) {
  declaration_.kind_of_layer.assign(layers, full);
  std::optional<Integer> window;
  if (const auto stated = keys_.integer("attention.sliding_window"); stated && stated->value != 0)
    window = count("attention.sliding_window");
  const bool is_stated = keys_.has("attention.sliding_window");
  if (!is_stated && architecture->window_size) {
    window = Integer{*architecture->window_size, family_default()};
    doubts_.add("window-missing-family-default", {keys_.full("attention.sliding_window")},
                fmt::format("{} is not in the file; the family's {} is used", keys_.full("attention.sliding_window"), window->value));
  }
  if (window && architecture->window == GgufWindow::none) {
    doubts_.add("engine-ignores-key", {window->origin.key},
                fmt::format("{} = {}: llama.cpp's code for {} lets every query see all keys", window->origin.key, window->value, name));
  }
  if (window || architecture->sliding_theta) mark_sliding_layers();
  for (const auto kind : {sliding, still_sliding})
    (architecture->window == GgufWindow::chunked ? declaration_.kinds[kind].chunk : declaration_.kinds[kind].window) = window;
}

// A period, or one flag per layer.
void GgufReader::mark_sliding_layers() {
  auto& kind_of_layer = declaration_.kind_of_layer;
  const json* pattern = keys_.find("attention.sliding_window_pattern");
  if (pattern != nullptr && pattern->is_array()) {
    const auto flags = per_layer("attention.sliding_window_pattern", false);
    for (std::size_t i = 0; i < flags->size(); i++) kind_of_layer[i] = (*flags)[i] == false || (*flags)[i] == 0 ? full : sliding;
    return;
  }
  std::int64_t period = architecture->period;
  if (const auto stated = count("attention.sliding_window_pattern")) period = stated->value;
  for (std::size_t i = 0; i < kind_of_layer.size(); i++) {
    const auto place = period > 0 ? (i + (architecture->full_first ? 0 : 1)) % static_cast<std::size_t>(period) : 1;
    kind_of_layer[i] = place == 0 ? full : sliding;
  }
}

void GgufReader::mark_still_layers() {
  auto& kind_of_layer = declaration_.kind_of_layer;
  const bool has_window = declaration_.kinds[sliding].window || declaration_.kinds[sliding].chunk;
  // A window of 0 tells a Llama 4 without chunks, all of whose layers rotate.
  const bool windows_off = architecture->window == GgufWindow::chunked && !has_window;
  for (std::size_t i = 0; i < kind_of_layer.size(); i++) {
    const bool by_period =
        architecture->still_period > 0 && (i + 1) % static_cast<std::size_t>(architecture->still_period) == 0 && !windows_off;
    const bool by_kind = architecture->full_layers_still && has_window && kind_of_layer[i] == full;
    if (by_period || by_kind) kind_of_layer[i] = kind_of_layer[i] == full ? still_full : still_sliding;
  }
}

// ── what enters besides a rotation ──

void GgufReader::read_extras() {
  read_temperature();
  for (std::size_t i = 0; i < declaration_.kind_of_layer.size(); i++) {
    const auto kind = declaration_.kind_of_layer[i];
    if (kind != no_attention && header.tensors.contains(fmt::format("blk.{}.attn_sinks.weight", i)))
      declaration_.kinds[kind].sink_logits = true;
  }
  const bool optional = architecture->extra == GgufExtra::optional;
  if (architecture->extra == GgufExtra::learned || (optional && header.tensors.contains("position_embd.weight"))) read_learned_rows();
  const auto maximum = keys_.number("attention.max_alibi_bias");
  const bool by_layers = architecture->layers_with_alibi > 0 && architecture->layers_with_alibi == model().layers;
  if (architecture->extra == GgufExtra::alibi || by_layers || maximum) read_slopes(maximum);
  if (architecture->extra == GgufExtra::t5) read_buckets();
}

// Llama 4: constants of the code, on the layers that do not rotate. Others state a scale and count from the trained length.
void GgufReader::read_temperature() {
  const auto scale = keys_.number("attention.temperature_scale");
  if (name == "llama4") {
    for (const auto kind : {still_full, still_sliding}) declaration_.kinds[kind].query_temperature = StepTemperature{0.1, 8192, 1};
  }
  if (!scale || scale->value == 0) return;
  auto floor = count("attention.temperature_length");
  if (!floor) floor = count("rope.scaling.original_context_length");
  if (!floor) floor = declaration_.length;
  if (!floor) return;
  for (auto& kind : declaration_.kinds) {
    kind.query_temperature = StepTemperature{scale->value, floor->value, 0};
    kind.origins["query_temperature.attn_scale"] = scale->origin;
    kind.origins["query_temperature.floor_scale"] = floor->origin;
  }
}

void GgufReader::read_learned_rows() {
  std::optional<Integer> rows = declaration_.length;
  const auto tensor = header.tensors.find("position_embd.weight");
  if (tensor != header.tensors.end() && tensor->second.shape.size() == 2 && tensor->second.shape[1] <= 1000000000) {
    Origin origin = keys_.read("");
    origin.key = tensor->first;
    rows = Integer{static_cast<std::int64_t>(tensor->second.shape[1]), std::move(origin)};
  }
  if (!rows || rows->value < 1 || model().hidden_size < 1) return;
  for (auto& kind : declaration_.kinds) {
    kind.absolute = AbsoluteSpec{absolute::Learned{.rows = rows->value}, model().hidden_size};
    kind.origins["absolute.rows"] = rows->origin;
  }
}

void GgufReader::read_slopes(const std::optional<Number>& maximum) {
  const double most = maximum ? maximum->value : 8;
  if (most == 0 || model().heads < 1 || model().heads > 65536) return;
  if (!(most > 0 && most <= 1024)) {
    doubts_.add("value-invalid", {maximum->origin.key}, fmt::format("{}: expected 0 to 1024, got {}", maximum->origin.key, quoted(most)));
    return;
  }
  const auto rule = bias::Alibi::of_heads(model().heads, most, !declaration_.causal.value);
  for (auto& kind : declaration_.kinds) {
    kind.bias = rule;
    kind.origins["bias.slopes"] = maximum ? maximum->origin : family_default();
  }
}

// The main part of a model of two is its decoder.
void GgufReader::read_buckets() {
  const auto stated = count("attention.relative_buckets_count");
  const Integer buckets = stated ? *stated : Integer{32, family_default()};
  if (buckets.value < 4 || buckets.value > 240) {  // 128 distances leave no room for more
    doubts_.add("value-invalid", {buckets.origin.key}, fmt::format("{}: expected 4 to 240, got {}", buckets.origin.key, buckets.value));
    return;
  }
  const auto with_buckets = [&](bool bidirectional) {
    LayerKind kind;
    kind.bias = bias::T5{buckets.value, 128, bidirectional};
    kind.causal = Boolean{!bidirectional, family_default()};
    kind.origins["bias.buckets"] = buckets.origin;
    return kind;
  };
  declaration_.kinds = {with_buckets(!decoder_), with_buckets(true)};
  declaration_.kind_of_layer.assign(static_cast<std::size_t>(model().layers), 0);
  if (!decoder_) return;
  declaration_.part = "decoder";
  declaration_.other_parts.push_back({"encoder", std::vector<std::size_t>(encoder_layers_, 1)});
}

Model read_gguf(std::span<const std::byte> bytes, const std::string& file, const std::string& path) {
  GgufHeader header = parse_gguf_header(bytes, path);
  std::vector<TensorShape> shapes;
  for (const auto& [name, tensor] : header.tensors) {
    shapes.push_back({name, "", {tensor.shape.rbegin(), tensor.shape.rend()}});  // ggml counts from the fastest axis
  }
  Model model = GgufReader(bytes, std::move(header), file, path).read();
  check_tensors(shapes, file, model);
  return model;
}

}  // namespace gnomon::files
