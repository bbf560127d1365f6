// SPDX-License-Identifier: Apache-2.0
// GGUF: typed keys under the name of the architecture, and tensors. Rules without keys of their own are written as frequency divisors, one
// for each pair (rope_freqs.weight); a magnitude is a multiplier of the one that the type implies.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/dialects/words.hpp"
#include "model/gguf_architectures.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view rules[] = {"default", "linear", "yarn", "longrope", "llama3", "proportional", "custom"};
constexpr Engine engine{"llama.cpp", rules};
constexpr std::string_view divisors_tensor = "rope_freqs.weight", long_tensor = "rope_factors_long.weight",
                           short_tensor = "rope_factors_short.weight";

constexpr std::size_t most_sections = 4;

/// These architectures scale no layer with a window; the others have one scaling for all.
bool sliding_is_unscaled(const Frame& frame) {
  const auto is = [&](std::string_view name) { return frame.architecture.starts_with(name); };
  return is("gemma3") || is("gemma4") || is("olmo2");
}

bool is_sliding(const LayerFrame& layer) { return layer.type == "sliding_attention"; }

std::string prefix_of(const Frame& frame) { return frame.architecture.empty() ? "<architecture>" : frame.architecture; }

/// Whether llama.cpp's code for the architecture moves the magnitude of mscale_all_dim into the softmax scale.
bool is_latent(const Frame& frame) {
  const auto* architecture = gguf_architecture(frame.architecture);
  return architecture != nullptr && architecture->latent;
}

/// DeepSeek's files hold a tenth of mscale_all_dim, and their code takes mscale to be the same; others hold it as it is beside an mscale
/// of 1.
bool holds_a_tenth(const Frame& frame) { return frame.architecture.starts_with("deepseek"); }

/// Yarn as the key yarn_log_multiplier has it.
rotary::Yarn with_log_multiplier(rotary::Yarn yarn, const Frame& frame, double all_dim) {
  yarn.mscale = holds_a_tenth(frame) ? all_dim : 1;
  yarn.mscale_all_dim = all_dim;
  return yarn;
}

/// Builds the list of keys.
class Writer {
 public:
  explicit Writer(std::string prefix) : prefix_(std::move(prefix)) {}
  void key(std::string_view name, std::string_view type, OrderedJson value) {
    add(prefix_ + "." + std::string(name), type, std::move(value));
  }
  void number(std::string_view name, double value) { key(name, "f32", as_f32(value)); }
  void tensor(std::string_view name, const std::vector<double>& values) {
    OrderedJson list = OrderedJson::array();
    for (const double value : values) list.push_back(as_f32(value));
    add(std::string(name), "tensor f32", std::move(list));
  }
  OrderedJson take() { return std::move(keys_); }

 private:
  void add(std::string name, std::string_view type, OrderedJson value) {
    keys_.push_back({{"key", std::move(name)}, {"type", type}, {"value", std::move(value)}});
  }
  std::string prefix_;
  OrderedJson keys_ = OrderedJson::array();
};

void write_rule(const rotary::Default&, const RotarySpec&, Writer&) {}
void write_rule(const rotary::Linear& rule, const RotarySpec&, Writer& writer) {
  writer.key("rope.scaling.type", "string", "linear");
  writer.number("rope.scaling.factor", rule.factor);
}
void write_rule(const rotary::Yarn& rule, const RotarySpec&, Writer& writer) {
  writer.key("rope.scaling.type", "string", "yarn");
  writer.number("rope.scaling.factor", rule.factor);
  writer.key("rope.scaling.original_context_length", "u32", rule.original_max_position_embeddings);
  writer.number("rope.scaling.yarn_beta_fast", rule.beta_fast);
  writer.number("rope.scaling.yarn_beta_slow", rule.beta_slow);
}
void write_rule(const rotary::Longrope& rule, const RotarySpec&, Writer& writer) {
  writer.key("rope.scaling.type", "string", "longrope");
  writer.key("rope.scaling.original_context_length", "u32", rule.original_max_position_embeddings);
  writer.tensor(long_tensor, rule.long_factor);
  writer.tensor(short_tensor, rule.short_factor);
}
template <class Rule>
void write_rule(const Rule&, const RotarySpec& said, Writer& writer) {
  writer.tensor(divisors_tensor, divisors_of(said, std::nullopt));
}

/// What yarn implies for cos and sin in this file, and the key that makes it so.
double write_log_multiplier(const rotary::Yarn& yarn, const Frame& frame, Writer& writer) {
  const double all_dim = yarn.mscale_all_dim.value_or(0);
  if (!is_latent(frame) || all_dim == 0) return rotary::Yarn::magnitude(yarn.factor);
  writer.number("rope.scaling.yarn_log_multiplier", holds_a_tenth(frame) ? 0.1 * all_dim : all_dim);
  return with_log_multiplier(yarn, frame, all_dim).attention_factor();
}

void write_leading(const RotarySpec& said, const Frame& frame, Writer& writer) {
  writer.number("rope.freq_base", said.theta > 0 ? said.theta : usual_theta);
  writer.key("rope.dimension_count", "u32", said.rotary_dim);
  if (!said.sections.empty() && said.sections.size() <= most_sections) {
    std::vector<int> four = said.sections;
    four.resize(most_sections);
    writer.key("rope.dimension_sections", "array i32", four);
  }
  const auto* yarn = std::get_if<rotary::Yarn>(&said.rule);
  const double multiplier = effective_attention_factor(said) / (yarn != nullptr ? write_log_multiplier(*yarn, frame, writer) : 1);
  if (multiplier != 1) writer.number("rope.scaling.attn_factor", multiplier);
  std::visit([&](const auto& rule) { write_rule(rule, said, writer); }, said.rule);
}

void check(const RotarySpec& said, std::size_t layer, Remarks& remarks) {
  check_ramp(engine, said, false, layer, remarks);
  check_axes_in_ggml(said, layer, remarks);
  if (said.sections.size() > most_sections) remarks.lose(layer, "axes", "GGUF has room for the sections of four axes");
  if (std::holds_alternative<rotary::Longrope>(said.rule)) {
    remarks.lose(layer, "frequencies", "llama.cpp chooses a list of longrope by the configured context and keeps it for every sequence");
  }
  const std::string_view name = rule_name(said.rule);
  if (name == "llama3" || name == "proportional" || name == "custom") {
    remarks.note(
        fmt::format("{} has no keys in GGUF; its frequencies are divisors in the tensor {}, which not every architecture of "
                    "llama.cpp loads",
                    name, divisors_tensor));
  }
}

void write_sliding(const Request& request, const std::vector<RotarySpec>& said, Writer& writer, Remarks& remarks) {
  bool found = false;
  for (std::size_t layer = 1; layer < said.size(); layer++) {
    const RotarySpec& spec = said[layer];
    const bool sliding = is_sliding(request.frame.layers[layer]) && !is_sliding(request.frame.layers.front()), first = sliding && !found;
    if (first && spec.theta != said.front().theta) writer.number("rope.freq_base_swa", spec.theta > 0 ? spec.theta : usual_theta);
    if (first && spec.rotary_dim != said.front().rotary_dim) writer.key("rope.dimension_count_swa", "u32", spec.rotary_dim);
    found = found || sliding;
    if (spec == said.front()) continue;
    remarks.lose(layer, "frequencies",
                 sliding ? "layers with a window have a base of their own in GGUF, but scaling is the architecture's"
                         : "GGUF tells layers apart by their window only");
    remarks.lose(layer, "attention_factor", "GGUF has one magnitude for all layers");
    remarks.lose(layer, "width", "GGUF has a width for all layers and one for those with a window");
    remarks.lose(layer, "axes", "GGUF has the same sections for all layers");
  }
}

OrderedJson write(const Request& request, Remarks& remarks) {
  Writer writer(prefix_of(request.frame));
  std::vector<RotarySpec> said;
  for (std::size_t layer = 0; layer < request.asked.size(); layer++) {
    if (request.frame.architecture.empty()) {
      const auto& type = request.frame.model_type;
      remarks.lose_certainly(layer, "architecture",
                             fmt::format("how llama.cpp names the architecture of {} is not known here, and its keys begin with that name",
                                         type.empty() ? "a file that does not name its model" : type));
    }
    said.push_back(in_rules_of(engine, request, layer, remarks));
    check(said.back(), layer, remarks);
  }
  if (request.context > 0) writer.key("context_length", "u32", request.context);
  write_leading(said.front(), request.frame, writer);
  write_sliding(request, said, writer, remarks);
  return writer.take();
}

/// The keys by name, without the architecture.
class Keys {
 public:
  Keys(const OrderedJson& keys, const std::string& prefix) {
    for (const auto& entry : keys) {
      std::string name = entry["key"];
      if (name.starts_with(prefix + ".")) name.erase(0, prefix.size() + 1);
      values_[name] = entry["value"];
    }
  }
  bool has(std::string_view name) const { return values_.contains(name); }
  /// As a file holds it: rounded to f32.
  double number(std::string_view name, double otherwise) const {
    return has(name) ? static_cast<double>(values_[std::string(name)].get<float>()) : otherwise;
  }
  std::int64_t count(std::string_view name, std::int64_t otherwise) const {
    return has(name) ? values_[std::string(name)].get<std::int64_t>() : otherwise;
  }
  std::string text(std::string_view name) const { return has(name) ? values_[std::string(name)].get<std::string>() : ""; }
  std::vector<double> numbers(std::string_view name) const {
    std::vector<double> result;
    if (!has(name)) return result;
    for (const auto& value : values_[std::string(name)]) result.push_back(static_cast<double>(value.get<float>()));
    return result;
  }

 private:
  OrderedJson values_ = OrderedJson::object();
};

RotaryRule rule_in(const Keys& keys, const Frame& frame, std::optional<std::int64_t> context) {
  const std::string type = keys.text("rope.scaling.type");
  const auto original = keys.count("rope.scaling.original_context_length", context.value_or(0));
  if (type == "linear") return rotary::Linear{keys.number("rope.scaling.factor", 1)};
  if (type == "yarn") {
    const rotary::Yarn yarn{.factor = keys.number("rope.scaling.factor", 1),
                            .original_max_position_embeddings = original,
                            .beta_fast = keys.number("rope.scaling.yarn_beta_fast", 32),
                            .beta_slow = keys.number("rope.scaling.yarn_beta_slow", 1)};
    const double multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0);
    if (multiplier == 0) return yarn;
    return with_log_multiplier(yarn, frame, holds_a_tenth(frame) ? multiplier / 0.1F : multiplier);
  }
  if (keys.has(long_tensor)) {  // one of the lists for good
    const auto list = keys.numbers(context.value_or(0) > original ? long_tensor : short_tensor);
    return rotary::Longrope{list, list, original, 1};
  }
  return rotary::Default{};
}

RotarySpec read_layer(const Keys& keys, const Frame& frame, const LayerFrame& layer) {
  const auto context = keys.has("context_length") ? std::optional(keys.count("context_length", 0)) : frame.declared;
  const bool sliding = is_sliding(layer) && !is_sliding(frame.layers.front()), scaled = !(sliding && sliding_is_unscaled(frame));
  RotarySpec spec = layer.own;
  spec.attention_factor.reset();
  spec.rule = scaled ? rule_in(keys, frame, context) : RotaryRule{rotary::Default{}};
  spec.theta = keys.number("rope.freq_base", usual_theta);
  if (sliding) spec.theta = keys.number("rope.freq_base_swa", spec.theta);
  spec.rotary_dim = static_cast<int>(keys.count("rope.dimension_count", spec.head_dim));
  if (sliding) spec.rotary_dim = static_cast<int>(keys.count("rope.dimension_count_swa", spec.rotary_dim));
  spec.sections.clear();
  for (const double section : keys.numbers("rope.dimension_sections")) {
    if (section > 0) spec.sections.push_back(static_cast<int>(section));
  }
  if (spec.sections.empty()) spec.section_order = SectionOrder::chunked;  // else the architecture's own
  const double magnitude = effective_attention_factor(spec) * keys.number("rope.scaling.attn_factor", 1);
  if (scaled && magnitude != effective_attention_factor(spec)) spec.attention_factor = magnitude;
  const auto divisors = keys.numbers(divisors_tensor);
  return scaled && divisors.size() == static_cast<std::size_t>(spec.rotary_dim / 2) ? with_divisors(spec, divisors, context) : spec;
}

ReadBack read(const OrderedJson& setting, const Frame& frame) {
  const Keys keys(setting, prefix_of(frame));
  ReadBack result;
  for (const auto& layer : frame.layers) result.emplace_back(read_layer(keys, frame, layer));
  return result;
}

}  // namespace

const DialectFile gguf_dialect{Form::keys, write, {read}};

}  // namespace gnomon::files
