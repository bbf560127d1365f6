// SPDX-License-Identifier: Apache-2.0
// From a declaration to a model: equal layers become one group.
#include <fmt/format.h>

#include <algorithm>

#include "gnomon/error.hpp"
#include "model/declaration.hpp"

namespace gnomon::files {
namespace {

/// The set-up of one kind of layers, without its layers.
struct Setup {
  LayerGroup group;
  Extent extent;
};

// A window beyond every length the model has is none; one beyond the declared length only is kept, since a scaling may reach it.
void settle_window(const Declaration& declaration, const LayerKind& kind, Setup& setup, Doubts& doubts) {
  if (!kind.window) return;
  const auto& [window, origin] = *kind.window;
  setup.group.origins["mask.window"] = origin;
  setup.group.spec.mask.window = window;
  if (!declaration.length || window <= declaration.length->value) return;
  const bool none = window > setup.extent.derived.value_or(0);
  if (none) setup.group.spec.mask.window.reset();
  doubts.add("window-larger-than-context", {origin.key, declaration.length->origin.key},
             fmt::format("{} = {} is larger than {} = {}; it masks nothing within that length{}", origin.key, window,
                         declaration.length->origin.key, declaration.length->value, none ? ", so there is no window" : ""));
}

// What the rule itself refuses is no set-up.
template <class Spec>
void keep_if_valid(std::optional<Spec>& spec, const char* name, Doubts& doubts) {
  if (!spec) return;
  try {
    validate(*spec);
  } catch (const Error& error) {
    doubts.add("value-invalid", {name}, fmt::format("{}: {}", name, error.what()));
    spec.reset();
  }
}

Setup make_setup(const Declaration& declaration, const LayerKind& kind, Doubts& doubts) {
  Setup setup;
  PositionSpec& spec = setup.group.spec;
  auto& origins = setup.group.origins;
  if (kind.rotary) {
    auto result = make_rotary(declaration, *kind.rotary, doubts);
    spec.rotary = std::move(result.spec);
    setup.extent = result.extent;
    origins = std::move(result.origins);
  }
  spec.absolute = kind.absolute;
  spec.bias = kind.bias;
  keep_if_valid(spec.absolute, "absolute", doubts);
  keep_if_valid(spec.bias, "bias", doubts);
  const Boolean& causal = kind.causal.value_or(declaration.causal);
  spec.mask.causal = causal.value;
  origins["mask.causal"] = causal.origin;
  settle_window(declaration, kind, setup, doubts);
  if (kind.chunk) {
    spec.mask.chunk = kind.chunk->value;
    origins["mask.chunk"] = kind.chunk->origin;
  }
  const Number& scale = kind.softmax_scale.value_or(declaration.softmax_scale);
  spec.softmax_scale = scale.value;
  origins["softmax_scale"] = scale.origin;
  if (declaration.softcap) {
    spec.softcap = declaration.softcap->value;
    origins["softcap"] = declaration.softcap->origin;
  }
  spec.sink_logits = kind.sink_logits;
  spec.query_temperature = kind.query_temperature;
  spec.rotates_values = kind.rotates_values;
  spec.rotates_output_back = kind.rotates_output_back;
  spec.dual_chunk = kind.dual_chunk;
  origins.insert(kind.origins.begin(), kind.origins.end());
  if (declaration.length) origins["length.declared"] = declaration.length->origin;
  return setup;
}

// The layers that rotate without a window set the length; of a model of windows only those that are scaled, or else the first.
std::optional<std::size_t> leading_kind(const Declaration& declaration) {
  std::optional<std::size_t> leading;
  int rank = 0;
  for (const auto kind : declaration.kind_of_layer) {
    if (kind == no_attention || !declaration.kinds[kind].rotary) continue;
    const int found = !declaration.kinds[kind].window ? 3 : declaration.kinds[kind].rotary->type.value != "default" ? 2 : 1;
    if (found > rank) rank = found, leading = kind;
  }
  return leading;
}

void check_lengths(const Declaration& declaration, Doubts& doubts) {
  const Model& model = declaration.model;
  for (const auto& other : declaration.other_lengths) {
    if (other.value == model.declared || other.value == model.derived || other.value == model.original) continue;
    if (!model.declared) continue;
    doubts.add("length-conflict", {declaration.length->origin.key, other.origin.key},
               fmt::format("{} = {} beside {} = {}", declaration.length->origin.key, *model.declared, other.origin.key, other.value));
  }
}

/// Builds the groups of each part; a kind is built once.
class Grouping {
 public:
  Grouping(Declaration& declaration, Doubts& doubts) : declaration_(declaration), doubts_(doubts), setups_(declaration.kinds.size()) {}

  void add(const std::string& part, const std::vector<std::size_t>& kind_of_layer) {
    auto& groups = declaration_.model.groups;
    const auto begin = static_cast<std::ptrdiff_t>(groups.size());
    for (std::size_t layer = 0; layer < kind_of_layer.size(); layer++) {
      if (kind_of_layer[layer] == no_attention) continue;
      const LayerGroup& wanted = of(kind_of_layer[layer]).group;
      auto same = std::find_if(groups.begin() + begin, groups.end(), [&](const LayerGroup& group) { return group.spec == wanted.spec; });
      if (same == groups.end()) {
        same = groups.insert(same, wanted);
        same->part = part;
      }
      same->layers.push_back(static_cast<int>(layer));
    }
  }

  const Setup& of(std::size_t kind) {
    if (!setups_[kind]) setups_[kind] = make_setup(declaration_, declaration_.kinds[kind], doubts_);
    return *setups_[kind];
  }

 private:
  Declaration& declaration_;
  Doubts& doubts_;
  std::vector<std::optional<Setup>> setups_;
};

}  // namespace

Model assemble(Declaration declaration, Doubts& doubts) {
  Model& model = declaration.model;
  Grouping grouping(declaration, doubts);
  grouping.add(declaration.part, declaration.kind_of_layer);
  for (const auto& part : declaration.other_parts) grouping.add(part.name, part.kind_of_layer);
  for (std::size_t layer = 0; layer < declaration.kind_of_layer.size(); layer++) {
    if (declaration.kind_of_layer[layer] == no_attention) model.non_attention_layers.push_back(static_cast<int>(layer));
  }
  if (declaration.length) model.declared = declaration.length->value;
  model.derived = declaration.usable ? declaration.usable->value : model.declared;
  if (const auto leading = leading_kind(declaration)) {
    const auto& extent = grouping.of(*leading).extent;
    model.derived = extent.derived;
    model.original = extent.original;
  }
  check_lengths(declaration, doubts);
  model.doubts = doubts.take();
  return std::move(model);
}

}  // namespace gnomon::files
