// SPDX-License-Identifier: Apache-2.0
// llama.cpp: flags for a GGUF of the model. They change base and scaling of the layers without a window; widths, sections, factor tensors
// and a magnitude multiplier stay as the file has them, and factor tensors stay in force beside any scaling.
#include <fmt/format.h>

#include <algorithm>

#include "model/dialects/words.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view rules[] = {"default", "linear", "yarn"};
constexpr Engine engine{"the command line of llama.cpp", rules};
constexpr std::string_view rules_in_tensors[] = {"llama3", "proportional", "custom", "longrope"};

/// Whether the GGUF of a layer holds its frequencies as tensors, which no flag takes away.
bool is_in_tensors(const RotarySpec& own) {
  return std::find(std::begin(rules_in_tensors), std::end(rules_in_tensors), rule_name(own.rule)) != std::end(rules_in_tensors);
}

/// What yarn with a factor implies: the files of MLA models have mscale_all_dim, others do not.
double implied_magnitude(double factor, const RotarySpec& own) {
  const auto* yarn = std::get_if<rotary::Yarn>(&own.rule);
  if (yarn == nullptr || !is_latent(own)) return rotary::Yarn::magnitude(factor);
  return rotary::Yarn{.factor = factor, .mscale = yarn->mscale, .mscale_all_dim = yarn->mscale_all_dim}.attention_factor();
}

/// The multiplier of the magnitude in the file. Converters write one for longrope only; a GGUF at hand has what it has.
double file_multiplier(const Frame& frame, const RotarySpec& own) {
  if (std::holds_alternative<rotary::Longrope>(own.rule)) return effective_attention_factor(own);
  if (!frame.is_gguf) return 1;
  const auto* yarn = std::get_if<rotary::Yarn>(&own.rule);
  return effective_attention_factor(own) / (yarn != nullptr ? implied_magnitude(yarn->factor, own) : 1);
}

bool follows_flags(const Frame& frame, std::size_t layer) {
  return layer == 0 || frame.layers[layer].type != "sliding_attention" || frame.layers.front().type == "sliding_attention";
}

class Flags {
 public:
  void add(std::string_view flag, std::string value) { flags_.push_back(flag), flags_.push_back(std::move(value)); }
  void add(std::string_view flag, double value) { add(flag, fmt::format("{}", as_f32(value))); }
  OrderedJson take() { return std::move(flags_); }

 private:
  OrderedJson flags_ = OrderedJson::array();
};

void write_rule(const RotarySpec& said, const Frame& frame, Flags& flags, Remarks& remarks) {
  const RotarySpec& own = frame.layers.front().own;
  const double magnitude = effective_attention_factor(said), multiplier = file_multiplier(frame, own);
  if (const auto* yarn = std::get_if<rotary::Yarn>(&said.rule)) {
    flags.add("--rope-scaling", "yarn");
    flags.add("--rope-scale", yarn->factor);
    flags.add("--yarn-orig-ctx", fmt::format("{}", yarn->original_max_position_embeddings));
    flags.add("--yarn-beta-fast", yarn->beta_fast);
    flags.add("--yarn-beta-slow", yarn->beta_slow);
    check_ramp({"llama.cpp", {}}, said, false, 0, remarks);
    remarks.lose(
        0, "attention_factor",
        fmt::format("llama.cpp overwrites --yarn-attn-factor beside yarn; the key rope.scaling.attn_factor of the file can hold {} "
                    "(--to gguf)",
                    magnitude / implied_magnitude(yarn->factor, own)));
    return;
  }
  const auto* linear = std::get_if<rotary::Linear>(&said.rule);
  flags.add("--rope-scaling", linear != nullptr ? "linear" : "none");
  if (linear != nullptr) flags.add("--rope-scale", linear->factor);
  if (magnitude != multiplier) flags.add("--yarn-attn-factor", magnitude / multiplier);
}

void check_tensors(const RotarySpec& asked, const RotarySpec& own, Remarks& remarks) {
  if (!is_in_tensors(own)) return;
  const std::string_view rule = rule_name(own.rule);
  if (asked == own) {
    remarks.note(fmt::format("{} is in the tensors of the GGUF, and no flag states it", rule));
    if (rule == "longrope") {
      remarks.lose(0, "frequencies", "llama.cpp chooses a list of longrope by the configured context and keeps it for every sequence");
    }
  } else {
    remarks.lose(0, "frequencies", fmt::format("the tensors of {} in the GGUF stay in force beside every flag", rule));
  }
}

/// What is said of the first layers; their own rule needs no flags where it is in tensors.
RotarySpec leading(const Request& request, Remarks& remarks) {
  const RotarySpec &own = request.frame.layers.front().own, &asked = request.asked.front();
  if (asked != own || !is_in_tensors(own)) return in_rules_of(engine, request, 0, remarks);
  RotarySpec said = own;
  said.rule = rotary::Default{};
  said.attention_factor = effective_attention_factor(own);
  if (said.theta <= 0) said.theta = usual_theta;
  return said;
}

OrderedJson write(const Request& request, Remarks& remarks) {
  const RotarySpec &own = request.frame.layers.front().own, &asked = request.asked.front();
  check_tensors(asked, own, remarks);
  check_axes_in_ggml(asked, 0, remarks);
  const RotarySpec said = leading(request, remarks);
  Flags flags;
  flags.add("--rope-freq-base", said.theta);
  write_rule(said, request.frame, flags, remarks);
  if (request.context > 0) flags.add("--ctx-size", fmt::format("{}", request.context));
  for (std::size_t layer = 1; layer < request.asked.size(); layer++) {
    const std::string why = follows_flags(request.frame, layer) ? "flags set one rule for all layers without a window"
                                                                : "flags do not reach layers with a window; they stay as the file has them";
    for (const auto field : {"frequencies", "attention_factor"}) remarks.lose(layer, field, why);
  }
  return flags.take();
}

/// Flags by name.
class Arguments {
 public:
  explicit Arguments(const OrderedJson& flags) : flags_(flags) {}
  const std::string* find(std::string_view flag) const {
    for (std::size_t i = 0; i + 1 < flags_.size(); i += 2) {
      if (flags_[i] == flag) return flags_[i + 1].get_ptr<const std::string*>();
    }
    return nullptr;
  }
  /// As the programs read it: an f32.
  double number(std::string_view flag, double otherwise) const {
    const auto* text = find(flag);
    return text != nullptr ? static_cast<double>(std::stof(*text)) : otherwise;
  }
  std::optional<std::int64_t> count(std::string_view flag) const {
    const auto* text = find(flag);
    return text != nullptr ? std::optional<std::int64_t>(std::stoll(*text)) : std::nullopt;
  }

 private:
  const OrderedJson& flags_;
};

RotarySpec read_layer(const Arguments& flags, const Frame& frame, const LayerFrame& layer) {
  auto context = flags.count("--ctx-size");
  if (!context) context = frame.declared;
  const std::string* type = flags.find("--rope-scaling");
  const double factor = flags.number("--rope-scale", 1);
  RotarySpec spec = layer.own;
  spec.theta = flags.number("--rope-freq-base", spec.theta);
  spec.attention_factor.reset();
  spec.rule = rotary::Default{};
  double magnitude = flags.number("--yarn-attn-factor", 1);
  if (type != nullptr && *type == "linear") spec.rule = rotary::Linear{factor};
  if (type != nullptr && *type == "yarn") {
    rotary::Yarn yarn{.factor = factor,
                      .original_max_position_embeddings = flags.count("--yarn-orig-ctx").value_or(context.value_or(1)),
                      .beta_fast = flags.number("--yarn-beta-fast", 32),
                      .beta_slow = flags.number("--yarn-beta-slow", 1)};
    if (const auto* own = std::get_if<rotary::Yarn>(&layer.own.rule); own != nullptr && is_latent(layer.own)) {
      yarn.mscale = own->mscale, yarn.mscale_all_dim = own->mscale_all_dim;  // in the file, and no flag states it
    }
    spec.rule = yarn;
    magnitude = implied_magnitude(factor, layer.own);
  }
  magnitude *= file_multiplier(frame, layer.own);
  if (magnitude != effective_attention_factor(spec)) spec.attention_factor = magnitude;
  return is_in_tensors(layer.own) ? with_divisors(spec, divisors_of(layer.own, context), context) : spec;
}

ReadBack read(const OrderedJson& setting, const Frame& frame) {
  const Arguments flags(setting);
  ReadBack result;
  for (std::size_t layer = 0; layer < frame.layers.size(); layer++) {
    const LayerFrame& framed = frame.layers[layer];
    result.emplace_back(follows_flags(frame, layer) ? read_layer(flags, frame, framed) : framed.own);
  }
  return result;
}

}  // namespace

const DialectFile llama_cpp_dialect{Form::flags, write, {read}};

}  // namespace gnomon::files
