// SPDX-License-Identifier: Apache-2.0
// What must hold for every model a reader returns, however odd its file.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gnomon/gnomon.hpp"

namespace gnomon::fuzz {

inline void demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

inline void check_model(const Model& model) {
  const bool doubtful = model.worst() == Level::error;
  std::vector<int> seen(static_cast<std::size_t>(model.layers), 0);
  for (const int layer : model.non_attention_layers) seen.at(static_cast<std::size_t>(layer))++;
  const std::string first = model.groups.empty() ? "" : model.groups.front().part;
  std::size_t counted = model.non_attention_layers.size();
  for (const auto& group : model.groups) {
    demand(!group.layers.empty(), "a group has layers");
    if (group.spec.rotary) validate(*group.spec.rotary);
    if (group.spec.absolute) validate(*group.spec.absolute);
    if (group.spec.bias) validate(*group.spec.bias);
    counted += group.part == first ? group.layers.size() : 0;
  }
  // The shape is that of the main part, which comes first but has no group where none of its layers is attention.
  const bool is_main = first.empty() || counted == seen.size();
  for (const auto& group : model.groups) {
    for (const int layer : group.layers) {
      demand(layer >= 0, "layers count from 0");
      if (!is_main || group.part != first) continue;
      demand(layer < model.layers, "a layer is one of the model's");
      seen[static_cast<std::size_t>(layer)]++;
    }
  }
  for (const int count : seen) demand(!is_main || count == 1 || (doubtful && count == 0), "a layer stands in one group");
  demand(nlohmann::json::parse(to_json(model)).at("schema") == 1, "the object is JSON");
  try {
    const RotarySpec spec = rotary_of(model);
    demand(!doubtful, "numbers are refused beside an error");
    demand(rotary_from_json(to_json(spec)) == spec, "the rotary object reads back");
  } catch (const Error&) {  // several groups, none, or doubtful
  }
}

}  // namespace gnomon::fuzz
