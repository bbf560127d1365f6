// SPDX-License-Identifier: Apache-2.0
// vLLM: the words of transformers 5 in --hf-overrides. It makes one table for the configured length, so nothing depends on the sequence. Of
// yarn it reads no magnitude but a multiplier of its own, attn_factor; of longrope one for each list.
#include <fmt/format.h>

#include "model/dialects/words.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view rules[] = {"default", "linear", "yarn", "longrope", "llama3", "proportional"};
constexpr std::string_view with_magnitude[] = {"yarn", "longrope"};
constexpr Engine engine{"vLLM", rules};

/// The classes of MLA models turn yarn into a rule that knows mscale and mscale_all_dim but not truncate.
bool is_mla(const LayerFrame& layer) { return is_latent(layer.own); }

void write_yarn(const rotary::Yarn& yarn, const RotarySpec& said, bool mla, OrderedJson& block) {
  const bool pair = mla && yarn.mscale.value_or(0) != 0 && yarn.mscale_all_dim.value_or(0) != 0;
  if (!pair) block.erase("mscale"), block.erase("mscale_all_dim");
  RotarySpec implied = said;
  implied.attention_factor.reset();
  const double made = pair ? effective_attention_factor(implied) : rotary::Yarn::magnitude(yarn.factor);
  if (const double asked = effective_attention_factor(said); asked != made) block["attn_factor"] = asked / made;
}

OrderedJson block_for(const Request& request, std::size_t layer, Remarks& remarks) {
  const auto said = in_rules_of(engine, request, layer, remarks);
  const bool mla = is_mla(request.frame.layers[layer]);
  check_magnitude(engine, said, with_magnitude, layer, remarks);
  check_ramp(engine, said, !mla, layer, remarks);
  OrderedJson block = {{"rope_type", nullptr}, {"rope_theta", said.theta}};
  if (const auto fraction = partial_rotary_factor(said)) block["partial_rotary_factor"] = *fraction;
  block.update(rope_block(said));
  if (const auto* yarn = std::get_if<rotary::Yarn>(&said.rule)) write_yarn(*yarn, said, mla, block);
  if (std::holds_alternative<rotary::Longrope>(said.rule)) {
    block["short_mscale"] = block["long_mscale"] = effective_attention_factor(said);
    remarks.lose(layer, "frequencies", "vLLM chooses a list of longrope by --max-model-len and keeps it for every sequence");
  }
  if (const auto* rule = std::get_if<rotary::Proportional>(&said.rule); rule != nullptr) {
    if (rule->factor != 1) remarks.lose(layer, "frequencies", "vLLM ignores the factor of proportional");
    if (said.rotary_dim != said.head_dim && !mla) remarks.lose(layer, "width", "vLLM takes proportional from the whole head");
  }
  const bool sections = !said.sections.empty() && rule_name(said.rule) != "default" && rule_name(said.rule) != "yarn";
  if (sections) remarks.lose(layer, "axes", "vLLM reads sections beside default and yarn only; images and video are placed otherwise");
  return block;
}

OrderedJson write(const Request& request, Remarks& remarks) {
  std::vector<OrderedJson> blocks;
  for (std::size_t layer = 0; layer < request.asked.size(); layer++) blocks.push_back(block_for(request, layer, remarks));
  OrderedJson overrides = OrderedJson::object();
  if (request.context > 0) overrides["max_position_embeddings"] = request.context;
  overrides["rope_parameters"] = by_layer_type(engine, request, blocks, remarks);
  OrderedJson flags = {"--hf-overrides", overrides.dump()};
  if (request.context > 0) flags.push_back("--max-model-len"), flags.push_back(std::to_string(request.context));
  return flags;
}

std::optional<RotarySpec> read_layer(OrderedJson block, std::optional<std::int64_t> context, const Frame& frame, std::size_t layer) {
  const bool mla = is_mla(frame.layers[layer]);
  block.erase("attention_factor");
  if (!mla) block.erase("mscale"), block.erase("mscale_all_dim");
  if (block.contains("long_mscale")) block["attention_factor"] = block["long_mscale"];
  auto result = read_as_config({{"rope_parameters", block}}, frame, layer);
  if (!result) return result;
  if (auto* yarn = std::get_if<rotary::Yarn>(&result->rule); yarn != nullptr && mla) yarn->truncate = true;
  if (auto* proportional = std::get_if<rotary::Proportional>(&result->rule)) proportional->factor = 1;
  if (auto* longrope = std::get_if<rotary::Longrope>(&result->rule)) {
    const bool is_long = context.value_or(0) > longrope->original_max_position_embeddings;
    (is_long ? longrope->short_factor : longrope->long_factor) = is_long ? longrope->long_factor : longrope->short_factor;
  }
  if (rule_name(result->rule) != "default" && rule_name(result->rule) != "yarn") {
    result->sections.clear();
    result->section_order = SectionOrder::chunked;
  }
  return result;
}

ReadBack read(const OrderedJson& flags, const Frame& frame) {
  OrderedJson overrides;
  std::optional<std::int64_t> context = frame.declared;
  for (std::size_t i = 0; i + 1 < flags.size(); i += 2) {
    if (flags[i] == "--hf-overrides") overrides = OrderedJson::parse(flags[i + 1].get<std::string>());
    if (flags[i] == "--max-model-len") context = std::stoll(flags[i + 1].get<std::string>());
  }
  ReadBack result;
  for (std::size_t layer = 0; layer < frame.layers.size(); layer++) {
    result.push_back(read_layer(block_of_layer(overrides["rope_parameters"], frame.layers[layer]), context, frame, layer));
  }
  return result;
}

}  // namespace

const DialectFile vllm_dialect{Form::flags, write, {read}};

}  // namespace gnomon::files
