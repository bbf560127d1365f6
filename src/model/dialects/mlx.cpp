// SPDX-License-Identifier: Apache-2.0
// mlx-lm: rope_theta and rope_scaling in config.json, the type under "type" first. Newer versions read the attention_factor of yarn, older
// ones only mscale and mscale_all_dim, with defaults of their own; both are written, and both have to come to the same.
#include <fmt/format.h>

#include <cmath>

#include "model/dialects/words.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view rules[] = {"default", "linear", "yarn", "longrope", "llama3", "proportional"};
constexpr std::string_view with_magnitude[] = {"yarn", "longrope"};
constexpr Engine engine{"mlx-lm", rules};

void write_yarn(const rotary::Yarn& yarn, const RotarySpec& said, OrderedJson& block) {
  // The code of latent attention takes its softmax scale from mscale_all_dim; elsewhere it counts for cos and sin alone.
  const double asked = effective_attention_factor(said), all_dim = is_latent(said) ? yarn.mscale_all_dim.value_or(0) : 0;
  if (asked == rotary::Yarn::magnitude(yarn.factor) && all_dim == 0) {
    block.erase("mscale"), block.erase("mscale_all_dim");  // one of them alone means something else here
    return;
  }
  if (yarn.factor > 1) {
    const double mscale = (asked * rotary::Yarn::magnitude(yarn.factor, all_dim) - 1) / (0.1 * std::log(yarn.factor));
    block["mscale"] = std::stod(fmt::format("{:.12g}", mscale));  // 1, not 0.9999999999999998
    block["mscale_all_dim"] = all_dim;
  }
  block["attention_factor"] = asked;
}

OrderedJson block_for(const RotarySpec& said) {
  OrderedJson block = rope_block(said);
  OrderedJson result = {{"type", block["rope_type"]}};
  result.update(block);
  if (const auto* yarn = std::get_if<rotary::Yarn>(&said.rule)) write_yarn(*yarn, said, result);
  return result;
}

void check(const RotarySpec& said, std::size_t layer, Remarks& remarks) {
  check_magnitude(engine, said, with_magnitude, layer, remarks);
  check_ramp(engine, said, false, layer, remarks);
  if (std::holds_alternative<rotary::Longrope>(said.rule)) {
    remarks.lose(layer, "frequencies", "mlx-lm uses long_factor of longrope for every sequence, also for short ones");
    remarks.lose(layer, "attention_factor", "mlx-lm computes the magnitude of longrope from max_position_embeddings / original");
  }
  if (const auto* yarn = std::get_if<rotary::Yarn>(&said.rule); yarn != nullptr && yarn->factor <= 1) {
    remarks.lose(layer, "attention_factor", "mlx-lm has no magnitude beside a factor of 1, but in its newest versions");
  }
  if (!said.sections.empty())
    remarks.lose(layer, "axes", "mlx-lm reads no sections: text is the same, images and video are placed otherwise");
  if (std::holds_alternative<rotary::Proportional>(said.rule) && said.rotary_dim != said.head_dim && said.rotary_offset == 0) {
    remarks.lose(layer, "width", "mlx-lm takes proportional from the whole head");
  }
}

OrderedJson write(const Request& request, Remarks& remarks) {
  std::vector<RotarySpec> said;
  for (std::size_t layer = 0; layer < request.asked.size(); layer++) {
    said.push_back(in_rules_of(engine, request, layer, remarks));
    check(said.back(), layer, remarks);
  }
  const RotarySpec& leading = said.front();
  OrderedJson setting = OrderedJson::object();
  if (request.context > 0) setting["max_position_embeddings"] = request.context;
  write_base(request.frame, leading, setting);
  setting["rope_scaling"] = nullptr;
  if (!std::holds_alternative<rotary::Default>(leading.rule)) setting["rope_scaling"] = block_for(leading);
  write_sliding_base(engine, request, said, setting, remarks);
  return setting;
}

RotarySpec as_run(RotarySpec spec, std::optional<std::int64_t> context) {
  spec.sections.clear();
  spec.section_order = SectionOrder::chunked;
  if (auto* yarn = std::get_if<rotary::Yarn>(&spec.rule)) yarn->truncate = true;
  auto* longrope = std::get_if<rotary::Longrope>(&spec.rule);
  if (longrope == nullptr) return spec;
  longrope->short_factor = longrope->long_factor;
  if (context) longrope->factor = static_cast<double>(*context) / static_cast<double>(longrope->original_max_position_embeddings);
  spec.attention_factor.reset();
  return spec;
}

/// In the words of transformers: an explicit magnitude in the place of mscale and mscale_all_dim, whose defaults are 1 and 0 here.
OrderedJson with_explicit_magnitude(OrderedJson setting, bool reads_attention_factor) {
  auto& block = setting["rope_scaling"];
  if (!block.is_object() || block.value("type", "") != "yarn") return setting;
  const double factor = block["factor"];
  if (!reads_attention_factor || !block.contains("attention_factor")) {
    block["attention_factor"] =
        rotary::Yarn::magnitude(factor, block.value("mscale", 1.0)) / rotary::Yarn::magnitude(factor, block.value("mscale_all_dim", 0.0));
  }
  block.erase("mscale"), block.erase("mscale_all_dim");
  return setting;
}

ReadBack read_version(const OrderedJson& setting, const Frame& frame, bool reads_attention_factor) {
  const auto keys = with_explicit_magnitude(setting, reads_attention_factor);
  const auto context =
      setting.contains("max_position_embeddings") ? std::optional(setting["max_position_embeddings"].get<std::int64_t>()) : frame.declared;
  ReadBack result;
  for (std::size_t layer = 0; layer < frame.layers.size(); layer++) {
    result.push_back(read_as_config(keys, frame, layer));
    if (!result.back()) continue;
    result.back() = as_run(*result.back(), context);
    if (auto* yarn = std::get_if<rotary::Yarn>(&result.back()->rule); yarn != nullptr && is_latent(*result.back()))
      yarn->mscale_all_dim = setting["rope_scaling"].value("mscale_all_dim", 0.0);
  }
  return result;
}

ReadBack read_newer(const OrderedJson& setting, const Frame& frame) { return read_version(setting, frame, true); }
ReadBack read_older(const OrderedJson& setting, const Frame& frame) { return read_version(setting, frame, false); }

}  // namespace

const DialectFile mlx_dialect{Form::json, write, {read_newer, read_older}};

}  // namespace gnomon::files
