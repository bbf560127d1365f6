// SPDX-License-Identifier: Apache-2.0
// transformers: keys of config.json. Version 5 has rope_parameters, one object or one for each type of layer; version 4 has rope_theta with
// rope_scaling beside it. A compatible config says both, and each version reads its own half.
#include <fmt/format.h>

#include <algorithm>

#include "model/dialects/words.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view rules_v5[] = {"default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"};
constexpr std::string_view rules_v4[] = {"default", "linear", "dynamic", "yarn", "longrope", "llama3"};
constexpr std::string_view with_magnitude[] = {"yarn", "longrope"};
constexpr Engine version_5{"transformers", rules_v5}, version_4{"transformers 4", rules_v4};

/// The base of dynamic grows from max_position_embeddings on; for every other rule that is the length the model is to be used at.
void write_length(const Request& request, const std::vector<RotarySpec>& said, OrderedJson& setting, Remarks& remarks) {
  if (request.context > 0) setting["max_position_embeddings"] = request.context;
  bool found = false;
  for (std::size_t layer = 0; layer < said.size(); layer++) {
    const auto* dynamic = std::get_if<rotary::Dynamic>(&said[layer].rule);
    if (dynamic == nullptr) continue;
    if (found && setting["max_position_embeddings"] != dynamic->max_position_embeddings) {
      remarks.lose(layer, "frequencies", "dynamic grows from max_position_embeddings, of which a config has one");
      continue;
    }
    setting["max_position_embeddings"] = dynamic->max_position_embeddings;
    found = true;
  }
}

/// Whether the code of the model has its rotation as a constant.
bool is_fixed(const Frame& frame) { return frame.theta_key.empty(); }

ReadBack constants_of(const Frame& frame) {
  ReadBack result;
  for (const auto& layer : frame.layers) result.emplace_back(layer.own);
  return result;
}

std::vector<RotarySpec> said_by(const Engine& engine, const Request& request, Remarks& remarks) {
  std::vector<RotarySpec> said;
  for (std::size_t layer = 0; layer < request.asked.size(); layer++) {
    said.push_back(in_rules_of(engine, request, layer, remarks));
    const auto& spec = said.back();
    check_magnitude(engine, spec, with_magnitude, layer, remarks);
    if (is_fixed(request.frame)) {
      for (const auto field : {"frequencies", "attention_factor"}) {
        remarks.lose(layer, field,
                     fmt::format("the code of transformers for {} has a constant base and reads no rule", request.frame.model_type));
      }
    }
    if (std::holds_alternative<rotary::Proportional>(spec.rule) && spec.rotary_dim != spec.head_dim && spec.rotary_offset == 0) {
      remarks.lose(layer, "width", fmt::format("{} takes proportional from the whole head", engine.name));
    }
  }
  return said;
}

OrderedJson block_of(const RotarySpec& said) {
  OrderedJson block = rope_block(said);
  const bool has_magnitude = std::holds_alternative<rotary::Yarn>(said.rule) || std::holds_alternative<rotary::Longrope>(said.rule);
  if (has_magnitude && said.attention_factor) block["attention_factor"] = *said.attention_factor;
  return block;
}

OrderedJson parameters_of(const RotarySpec& said) {
  OrderedJson block = {{"rope_type", nullptr}, {"rope_theta", said.theta}};
  if (const auto fraction = partial_rotary_factor(said)) block["partial_rotary_factor"] = *fraction;
  block.update(block_of(said));
  return block;
}

// ── version 5 ──

OrderedJson write_v5(const Request& request, Remarks& remarks) {
  OrderedJson setting = OrderedJson::object();
  const auto said = said_by(version_5, request, remarks);
  write_length(request, said, setting, remarks);
  std::vector<OrderedJson> blocks;
  std::transform(said.begin(), said.end(), std::back_inserter(blocks), parameters_of);
  const auto parameters = by_layer_type(version_5, request, blocks, remarks);
  for (std::size_t layer = 0; layer < said.size(); layer++) {
    check_ramp(version_5, said[layer], !is_by_layer_type(parameters), layer, remarks);
  }
  setting["rope_parameters"] = parameters;
  return setting;
}

ReadBack read_v5(const OrderedJson& setting, const Frame& frame) {
  if (is_fixed(frame)) return constants_of(frame);
  ReadBack result;
  OrderedJson keys = setting;
  const OrderedJson& parameters = setting["rope_parameters"];
  for (std::size_t layer = 0; layer < frame.layers.size(); layer++) {
    keys["rope_parameters"] = block_of_layer(parameters, frame.layers[layer]);
    result.push_back(read_as_config(keys, frame, layer));
    if (!result.back() || !is_by_layer_type(parameters)) continue;
    if (auto* yarn = std::get_if<rotary::Yarn>(&result.back()->rule)) yarn->truncate = true;  // it looks for the flag beside the types
  }
  return result;
}

// ── version 4 ──

OrderedJson write_v4(const Request& request, Remarks& remarks) {
  OrderedJson setting = OrderedJson::object();
  const auto said = said_by(version_4, request, remarks);
  check_ramp(version_4, said.front(), true, 0, remarks);
  const RotarySpec& leading = said.front();
  write_length(request, said, setting, remarks);
  write_base(request.frame, leading, setting);
  setting["rope_scaling"] = nullptr;
  if (!std::holds_alternative<rotary::Default>(leading.rule) || !leading.sections.empty()) {
    OrderedJson block = block_of(leading);
    block["type"] = block["rope_type"];  // the spelling before 4.43
    setting["rope_scaling"] = block;
  }
  if (const auto* longrope = std::get_if<rotary::Longrope>(&leading.rule)) {
    // It looks for the length here, and then takes the ratio of the lengths for the factor, which an explicit magnitude overrules.
    setting["original_max_position_embeddings"] = longrope->original_max_position_embeddings;
    setting["rope_scaling"]["attention_factor"] = effective_attention_factor(leading);
  }
  if (const auto* yarn = std::get_if<rotary::Yarn>(&leading.rule);
      yarn != nullptr &&
      static_cast<double>(request.context) != yarn->factor * static_cast<double>(yarn->original_max_position_embeddings)) {
    remarks.note("transformers before 4.56 takes max_position_embeddings / original_max_position_embeddings for the factor of yarn");
  }
  write_sliding_base(version_4, request, said, setting, remarks);
  return setting;
}

ReadBack read_v4(const OrderedJson& setting, const Frame& frame) {
  if (is_fixed(frame)) return constants_of(frame);
  ReadBack result;
  OrderedJson keys = setting;
  keys.erase("rope_parameters");  // not a key of this version
  for (std::size_t layer = 0; layer < frame.layers.size(); layer++) {
    result.push_back(read_as_config(keys, frame, layer));
  }
  return result;
}

// ── both ──

OrderedJson write_compatible(const Request& request, Remarks& remarks) {
  OrderedJson setting = write_v4(request, remarks);
  setting["rope_parameters"] = write_v5(request, remarks)["rope_parameters"];
  return setting;
}

}  // namespace

const DialectFile transformers_dialect{Form::json, write_v5, {read_v5}};
const DialectFile transformers_v4_dialect{Form::json, write_v4, {read_v4}};
const DialectFile compatible_dialect{Form::json, write_compatible, {read_v5, read_v4}};

}  // namespace gnomon::files
