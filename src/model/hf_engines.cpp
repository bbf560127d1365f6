// SPDX-License-Identifier: Apache-2.0
// Sources: facts read in the code of transformers 4.57 and 5.24, vLLM, SGLang, llama.cpp and mlx-lm (docs/doubts.md).
#include "model/hf_engines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace gnomon::files {
namespace {

class Readers {
 public:
  Readers(const Keys& keys, Declaration& declaration, Doubts& doubts) : keys_(keys), declaration_(declaration), doubts_(doubts) {}

  void note() {
    for (const auto& kind : declaration_.kinds) {
      if (!kind.rotary) continue;
      note_yarn(*kind.rotary);
      note_others(*kind.rotary);
    }
    note_layers();
    warn_of_version_4();
  }

 private:
  static std::optional<double> number(const RotaryDeclaration& rotary, std::string_view name) {
    const auto found = rotary.numbers.find(name);
    return found == rotary.numbers.end() ? std::nullopt : std::optional(found->second.value);
  }
  void add(const std::string& key, const std::string& text) { doubts_.add("engine-ignores-key", {key}, fmt::format("{}: {}", key, text)); }

  void note_yarn(const RotaryDeclaration& rotary) {
    if (rotary.type.value != "yarn") return;
    const double factor = number(rotary, "factor").value_or(1);
    const double usual = rotary::Yarn::magnitude(factor);
    if (rotary.attention_factor && rotary.attention_factor->origin.how == "read" &&
        std::abs(rotary.attention_factor->value - usual) > 1e-12) {
      add(rotary.attention_factor->origin.key, fmt::format("vLLM and mlx-lm ignore it and scale cos and sin by {} instead of {}",
                                                           quoted(usual), quoted(rotary.attention_factor->value)));
    }
    if (rotary.truncate && !rotary.truncate->value) {
      add(rotary.truncate->origin.key, "llama.cpp and mlx-lm ignore it and round the bounds of the ramp to whole pairs");
    }
    const auto over = number(rotary, "mscale"), under = number(rotary, "mscale_all_dim");
    if (!over || !under || *over == 0 || *under == 0 || rotary.attention_factor) return;
    const double stated = rotary::Yarn::magnitude(factor, *over) / rotary::Yarn::magnitude(factor, *under);
    if (std::abs(stated - usual) > 1e-12 && !keys_.has("qk_rope_head_dim")) {
      add(rotary.numbers.find("mscale")->second.origin.key,
          fmt::format("vLLM ignores it for the type yarn and scales cos and sin by {} instead of {}", quoted(usual), quoted(stated)));
    }
  }

  void note_others(const RotaryDeclaration& rotary) {
    const std::string& type = rotary.type.value;
    if (type == "longrope") {
      if (const auto list = rotary.lists.find("short_factor"); list != rotary.lists.end()) {
        add(list->second.origin.key, "mlx-lm ignores it and uses long_factor at every length");
      }
    }
    const auto factor = rotary.numbers.find("factor");
    if (factor == rotary.numbers.end() || factor->second.value == 1) return;
    if (type == "proportional") add(factor->second.origin.key, "vLLM and SGLang ignore it and do not slow the pairs");
    if (type == "dynamic")
      add(factor->second.origin.key, "vLLM does not grow the base unless max_trained_positions is set: it runs unscaled");
  }

  void note_layers() {
    for (const auto key : {"rope_theta", "partial_rotary_factors"}) {
      if (const auto* value = keys_.find(key); value != nullptr && value->is_array()) {
        add(keys_.full(key), "a list with one entry per layer is read by the family's own code only");
      }
    }
    std::vector<std::string> types;
    for (const auto& kind : declaration_.kinds) {
      if (!kind.rotary) continue;
      const std::string& type = kind.rotary->type.value;
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
    const auto one_for_all = [](const std::string& type) { return type == "yarn" || type == "longrope"; };
    if (types.size() < 2 || std::none_of(types.begin(), types.end(), one_for_all)) return;
    const char* block = keys_.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
    add(keys_.full(block), fmt::format("llama.cpp has one scaling for all layers, and these have {}", fmt::join(types, " and ")));
  }

  // transformers 4 does not read rope_parameters: without the older keys beside it, it falls back to a default base and no scaling.
  void warn_of_version_4() {
    const Family* family = declaration_.family;
    if (family == nullptr || family->since_v5 || family->is_image || !keys_.has("rope_parameters") ||
        keys_.object("rope_scaling") != nullptr)
      return;
    if (!family->theta_key.empty() && keys_.has(family->theta_key)) return;
    const std::string key = keys_.full("rope_parameters");
    std::vector<std::string> lost;
    for (auto& kind : declaration_.kinds) {
      if (!kind.rotary || !kind.rotary->theta || kind.rotary->theta->origin.how != "read") continue;
      const bool local = kind.window && family->sliding_theta && !keys_.has(family->sliding_theta_key);
      const double fallback = local ? *family->sliding_theta : family->v4_theta;
      const bool rebased = kind.rotary->theta->value != fallback, unscaled = kind.rotary->type.value != "default";
      if (rebased) note_lost(lost, fmt::format("base {} instead of {}", quoted(fallback), quoted(kind.rotary->theta->value)));
      if (unscaled) note_lost(lost, kind.rotary->type.value + " scaling dropped");
      if (!rebased && !unscaled) continue;
      kind.rotary->other_readings.push_back({"rope-parameters-only", {key}, [fallback](RotaryDeclaration& other) {
                                               other.type.value = "default";
                                               other.theta = Number{fallback, family_default()};
                                             }});
    }
    if (lost.empty()) return;
    doubts_.add("rope-parameters-only", {key},
                fmt::format("{} is read by transformers 5 only; version 4, and converters of its time, run without an error with {}", key,
                            fmt::join(lost, ", ")));
  }

  static void note_lost(std::vector<std::string>& lost, std::string text) {
    if (std::find(lost.begin(), lost.end(), text) == lost.end()) lost.push_back(std::move(text));
  }

  const Keys& keys_;
  Declaration& declaration_;
  Doubts& doubts_;
};

}  // namespace

void note_readers(const Keys& keys, Declaration& declaration, Doubts& doubts) { Readers(keys, declaration, doubts).note(); }

}  // namespace gnomon::files
