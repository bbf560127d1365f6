// SPDX-License-Identifier: Apache-2.0
// ExLlama: settings of its loaders beside the model's config.json. rope_alpha is the factor of ntk on the base of the file, rope_scale
// divides positions in the place of the file's own linear factor; a rule of another kind in the file stays as it is.
#include <fmt/format.h>

#include <cmath>

#include "model/dialects/words.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view name = "ExLlama";

bool is_plain(const RotarySpec& own) {
  return std::holds_alternative<rotary::Default>(own.rule) || std::holds_alternative<rotary::Linear>(own.rule);
}

double alpha_of(double ratio_of_bases, int width) {
  return width > 2 ? std::pow(ratio_of_bases, static_cast<double>(width - 2) / width) : 1;
}

void write_changes(const Request& request, OrderedJson& setting, Remarks& remarks) {
  const RotarySpec &own = request.frame.layers.front().own, &asked = request.asked.front();
  const auto length = request.context > 0 ? std::optional(request.context) : std::nullopt;
  auto fit = base_and_scale(asked, length);
  if (fit && fit->scale < 1) fit.reset();
  if (!is_plain(own)) {
    remarks.lose(0, "frequencies", fmt::format("{} keeps the rule {} of config.json beside its settings", name, rule_name(own.rule)));
  } else if (!fit) {
    remarks.lose(0, "frequencies", fmt::format("{} has settings for a base and a scale only, not for {}", name, rule_name(asked.rule)));
  } else if (depends_on_length(asked)) {
    remarks.lose(0, "frequencies", fixed_length_reason(name, request, 0));
  }
  if (!is_plain(own) || !fit) return;
  setting["rope_alpha"] = std::stod(fmt::format("{:.12g}", alpha_of(fit->theta / own.theta, own.rotary_dim)));  // 4, not 3.9999999999999973
  setting["rope_scale"] = fit->scale;
}

OrderedJson write(const Request& request, Remarks& remarks) {
  OrderedJson setting = OrderedJson::object();
  if (request.context > 0) setting["max_seq_len"] = request.context;
  const RotarySpec &own = request.frame.layers.front().own, &asked = request.asked.front();
  if (asked == own) {
    remarks.note("the model's own rule needs no setting: ExLlama reads the base, and a rule it knows, from config.json");
  } else {
    write_changes(request, setting, remarks);
  }
  for (std::size_t layer = 0; layer < request.asked.size(); layer++) {
    const RotarySpec& spec = request.asked[layer];
    remarks.lose(layer, "attention_factor", fmt::format("{} has no setting for a magnitude", name));
    if (std::holds_alternative<rotary::Xpos>(spec.rule) && !std::holds_alternative<rotary::Xpos>(request.frame.layers[layer].own.rule)) {
      remarks.lose(layer, "decay", fmt::format("{} has no magnitudes that decay with the distance", name));
    }
    if (layer > 0 && spec != asked) remarks.lose(layer, "frequencies", fmt::format("{} has one alpha and one scale for all layers", name));
  }
  return setting;
}

ReadBack read(const OrderedJson& setting, const Frame& frame) {
  ReadBack result;
  for (const auto& layer : frame.layers) {
    RotarySpec spec = layer.own;
    const double alpha = setting.value("rope_alpha", 1.0);
    if (alpha != 1) spec.theta *= std::pow(alpha, static_cast<double>(spec.rotary_dim) / (spec.rotary_dim - 2));
    if (setting.contains("rope_scale") && is_plain(spec)) {
      const double scale = setting["rope_scale"];
      spec.rule = scale == 1 ? RotaryRule{rotary::Default{}} : RotaryRule{rotary::Linear{scale}};
    }
    result.emplace_back(std::move(spec));
  }
  return result;
}

}  // namespace

const DialectFile exllama_dialect{Form::json, write, {read}};

}  // namespace gnomon::files
