// SPDX-License-Identifier: Apache-2.0
#include "model/dialects/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnomon/frequencies.hpp"
#include "model/formats.hpp"
#include "spec/fields.hpp"

namespace gnomon::files {
namespace {

bool knows(std::span<const std::string_view> rules, std::string_view name) {
  return std::find(rules.begin(), rules.end(), name) != rules.end();
}

constexpr std::string_view sliding_base = "rope_local_base_freq";

bool near(double a, double b) { return std::abs(a - b) <= 1e-11 * std::abs(b); }

std::optional<std::int64_t> known(std::int64_t context) { return context > 0 ? std::optional(context) : std::nullopt; }

RotarySpec with_rule(RotarySpec spec, RotaryRule rule, double theta) {
  const double magnitude = effective_attention_factor(spec);
  spec.rule = std::move(rule);
  spec.theta = theta;
  spec.attention_factor.reset();
  if (effective_attention_factor(spec) != magnitude) spec.attention_factor = magnitude;
  return spec;
}

}  // namespace

void Remarks::note(const std::string& text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

std::optional<BaseAndScale> base_and_scale(const RotarySpec& spec, std::optional<std::int64_t> length) {
  const auto inv_freq = frequencies(spec, Numerics::exact, length).inv_freq;
  if (std::any_of(inv_freq.begin(), inv_freq.end(), [](double value) { return value == 0; })) return std::nullopt;
  const double width = spec.rotary_dim, fastest = inv_freq.front(), slowest = inv_freq.back();
  BaseAndScale found{spec.theta > 0 ? spec.theta : usual_theta, near(fastest, 1) ? 1 : 1 / fastest};
  if (inv_freq.size() > 1) found.theta = std::pow(fastest / slowest, width / (width - 2));
  if (near(found.theta, spec.theta)) found.theta = spec.theta;
  for (std::size_t i = 0; i < inv_freq.size(); i++) {
    if (!near(std::pow(found.theta, -2.0 * static_cast<double>(i) / width) / found.scale, inv_freq[i])) return std::nullopt;
  }
  return found;
}

double softmax_multiplier(const RotarySpec& spec) {
  const auto* yarn = std::get_if<rotary::Yarn>(&spec.rule);
  const double all_dim = yarn != nullptr && is_latent(spec) ? yarn->mscale_all_dim.value_or(0) : 0;
  return all_dim != 0 ? std::pow(rotary::Yarn::magnitude(yarn->factor, all_dim), 2) : 1;
}

bool depends_on_length(const RotarySpec& spec) {
  return std::holds_alternative<rotary::Dynamic>(spec.rule) || std::holds_alternative<rotary::Longrope>(spec.rule);
}

std::string fixed_length_reason(std::string_view engine, const Request& request, std::size_t layer) {
  const std::string length = request.context > 0 ? fmt::format("{} tokens", request.context) : "the trained length";
  return fmt::format("{} decides nothing by the length of a sequence; what {} gives for {} is used for every length", engine,
                     rule_name(request.asked[layer].rule), length);
}

RotarySpec in_rules_of(const Engine& engine, const Request& request, std::size_t layer, Remarks& remarks) {
  const RotarySpec& asked = request.asked[layer];
  const std::string_view rule = rule_name(asked.rule);
  if (knows(engine.rules, rule)) return asked;
  const auto fit = base_and_scale(asked, known(request.context));
  if (std::holds_alternative<rotary::Xpos>(asked.rule)) {
    remarks.lose_certainly(layer, "decay",
                           fmt::format("{} has no magnitudes that decay with the distance (xpos); pairs only turn", engine.name));
  }
  if (fit && (fit->scale == 1 || (fit->scale > 1 && knows(engine.rules, "linear")))) {
    if (depends_on_length(asked)) {
      remarks.lose(layer, "frequencies", fixed_length_reason(engine.name, request, layer));
    } else if (fit->theta != asked.theta) {
      remarks.note(fmt::format("{} has no rule {}; the same frequencies are written as base {}", engine.name, rule, fit->theta));
    }
    return with_rule(asked, fit->scale == 1 ? RotaryRule{rotary::Default{}} : RotaryRule{rotary::Linear{fit->scale}}, fit->theta);
  }
  if (asked.theta <= 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} has no rule {}, and these frequencies are no powers of one base", engine.name, rule));
  }
  remarks.lose(layer, "frequencies", fmt::format("{} has no rule {}; base {} without scaling is written", engine.name, rule, asked.theta));
  return with_rule(asked, rotary::Default{}, asked.theta);
}

void check_magnitude(const Engine& engine, const RotarySpec& said, std::span<const std::string_view> with_magnitude, std::size_t layer,
                     Remarks& remarks) {
  const double magnitude = effective_attention_factor(said);
  if (magnitude == 1 || knows(with_magnitude, rule_name(said.rule))) return;
  remarks.lose(layer, "attention_factor",
               fmt::format("{} applies no attention_factor with the rule {}; {} becomes 1", engine.name, rule_name(said.rule), magnitude));
}

OrderedJson rope_block(const RotarySpec& spec) {
  OrderedJson block = {{"rope_type", std::string(rule_name(spec.rule))}};
  std::visit(
      [&](const auto& rule) {
        using Rule = std::remove_cvref_t<decltype(rule)>;
        each_field<Rule>([&](const auto& field) {
          const auto& value = rule.*field.member;
          using Value = std::remove_cvref_t<decltype(value)>;
          const bool of_the_config = std::is_same_v<Rule, rotary::Dynamic> && field.name == "max_position_embeddings";
          if (of_the_config || (!field.required && value == Rule{}.*field.member)) return;
          if constexpr (std::is_same_v<Value, std::optional<double>>) {
            block[std::string(field.name)] = *value;
          } else if constexpr (!std::is_enum_v<Value>) {
            block[std::string(field.name)] = value;
          }
        });
      },
      spec.rule);
  if (!spec.sections.empty()) {
    auto sections = spec.sections;
    if (spec.section_order == SectionOrder::time_last) {  // an order of the code alone, which names time last here too
      std::rotate(sections.begin(), sections.begin() + 1, sections.end());
    } else {
      block["mrope_interleaved"] = spec.section_order == SectionOrder::interleaved;
    }
    block["mrope_section"] = sections;
  }
  return block;
}

bool is_by_layer_type(const OrderedJson& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const OrderedJson& value) { return value.is_object(); });
}

OrderedJson by_layer_type(const Engine& engine, const Request& request, const std::vector<OrderedJson>& blocks, Remarks& remarks) {
  const auto& layers = request.frame.layers;
  if (std::all_of(blocks.begin(), blocks.end(), [&](const OrderedJson& block) { return block == blocks.front(); })) return blocks.front();
  OrderedJson parameters;
  for (std::size_t layer = 0; layer < blocks.size(); layer++) {
    OrderedJson& block = parameters[layers[layer].type];
    if (block.is_null()) block = blocks[layer];
    if (block == blocks[layer]) continue;
    remarks.lose(layer, "frequencies",
                 fmt::format("{} tells layers apart by their type, and others are {} too", engine.name, layers[layer].type));
  }
  if (parameters.size() == 1) return blocks.front();
  return parameters;
}

OrderedJson block_of_layer(const OrderedJson& parameters, const LayerFrame& layer) {
  return is_by_layer_type(parameters) ? parameters.value(layer.type, OrderedJson::object()) : parameters;
}

void write_sliding_base(const Engine& engine, const Request& request, const std::vector<RotarySpec>& said, OrderedJson& setting,
                        Remarks& remarks) {
  for (std::size_t layer = 1; layer < said.size(); layer++) {
    if (said[layer] == said.front()) continue;
    const bool sliding = request.frame.layers[layer].type == "sliding_attention" && request.frame.model_type.starts_with("gemma3");
    if (sliding && std::holds_alternative<rotary::Default>(said[layer].rule)) {
      setting[std::string(sliding_base)] = said[layer].theta;
    } else {
      remarks.lose(layer, "frequencies", fmt::format("{} has one rule for all layers of this model", engine.name));
    }
  }
}

void check_ramp(const Engine& engine, const RotarySpec& said, bool has_truncate, std::size_t layer, Remarks& remarks) {
  const auto* yarn = std::get_if<rotary::Yarn>(&said.rule);
  if (yarn == nullptr) return;
  if (yarn->ramp == rotary::YarnRamp::turns) {
    remarks.lose(layer, "frequencies", fmt::format("{} has the ramp of yarn over pairs, not over turns", engine.name));
  } else if (!yarn->truncate && !has_truncate) {
    remarks.lose(layer, "frequencies", fmt::format("{} ignores truncate: false and rounds the ramp of yarn to whole pairs", engine.name));
  }
}

std::optional<double> partial_rotary_factor(const RotarySpec& spec) {
  const bool whole = spec.rotary_dim == spec.head_dim || spec.rotary_offset != 0;
  if (whole || std::holds_alternative<rotary::Proportional>(spec.rule)) return std::nullopt;
  const double fraction = static_cast<double>(spec.rotary_dim) / spec.head_dim;
  const bool cut = static_cast<int>(spec.head_dim * fraction) < spec.rotary_dim;
  return cut ? std::nextafter(fraction, 1.0) : fraction;
}

void write_base(const Frame& frame, const RotarySpec& said, OrderedJson& setting) {
  if (!frame.theta_key.empty()) setting[frame.theta_key] = said.theta;
  if (frame.fraction_key.empty()) return;
  if (const auto fraction = partial_rotary_factor(said)) setting[frame.fraction_key] = *fraction;
}

std::optional<RotarySpec> read_as_config(const OrderedJson& keys, const Frame& frame, std::size_t layer) {
  const LayerFrame& framed = frame.layers[layer];
  const int width = is_latent(framed.own) ? framed.own.rotary_dim : framed.own.head_dim;
  const auto family = keys.contains(sliding_base) ? "gemma3_text" : "llama";  // the code that reads the key, else any that reads the others
  OrderedJson config = {{"model_type", family},     {"hidden_size", width}, {"num_attention_heads", 1}, {"num_hidden_layers", 1},
                        {"num_key_value_heads", 1}, {"head_dim", width},    {"sliding_window", 4096},   {"layer_types", {framed.type}}};
  if (frame.declared) config["max_position_embeddings"] = *frame.declared;
  config.update(keys);
  const Model model = read_json(config.dump(), "config.json", "what was written");
  if (model.groups.empty() || !model.groups.front().spec.rotary) return std::nullopt;
  RotarySpec result = *model.groups.front().spec.rotary;
  result.layout = framed.own.layout;
  result.rotary_offset = framed.own.rotary_offset;
  result.head_dim = framed.own.head_dim;
  return result;
}

std::vector<double> divisors_of(const RotarySpec& spec, std::optional<std::int64_t> length) {
  RotarySpec plain = spec;
  plain.rule = rotary::Default{};
  if (plain.theta <= 0) plain.theta = usual_theta;
  const auto with = frequencies(spec, Numerics::exact, length).inv_freq, without = frequencies(plain).inv_freq;
  std::vector<double> result;
  for (std::size_t i = 0; i < with.size(); i++) {
    result.push_back(std::min(without[i] / with[i], 1e30));  // also of a pair that stands still
  }
  return result;
}

RotarySpec with_divisors(const RotarySpec& spec, const std::vector<double>& divisors, std::optional<std::int64_t> length) {
  if (std::all_of(divisors.begin(), divisors.end(), [](double divisor) { return divisor == 1; })) return spec;
  rotary::Custom rule{frequencies(spec, Numerics::exact, length).inv_freq};
  for (std::size_t i = 0; i < rule.inv_freq_given.size(); i++) rule.inv_freq_given[i] /= divisors[i];
  return with_rule(spec, rule, 0);
}

double as_f32(double value) {
  if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max()))) {
    throw Error(ErrorCode::unsupported, fmt::format("{} is too large for the float32 that llama.cpp keeps it in", value));
  }
  return std::stod(fmt::format("{}", static_cast<float>(value)));
}

// ggml gives axis a the pairs a, a + 3, … below 3 * sections[a], and what is left a fourth position id, which is 0 in text.
void check_axes_in_ggml(const RotarySpec& spec, std::size_t layer, Remarks& remarks) {
  if (spec.section_order == SectionOrder::time_last)
    remarks.lose_certainly(layer, "axes", "llama.cpp has no rotation whose first axis has the last pairs");
  if (spec.section_order != SectionOrder::interleaved || spec.sections.size() != 3) return;
  std::string left;
  for (int i = 0; i < spec.rotary_dim / 2; i++) {
    if (i >= 3 * spec.sections[static_cast<std::size_t>(i % 3)]) left += fmt::format("{}{}", left.empty() ? "" : ", ", i);
  }
  if (left.empty()) return;
  remarks.lose_certainly(layer, "axes", fmt::format("llama.cpp turns pairs {} by a fourth position id, which is 0 in text", left));
}

}  // namespace gnomon::files
