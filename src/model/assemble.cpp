// SPDX-License-Identifier: Apache-2.0
// From a declaration to a model: equal layers become one group.
#include <fmt/format.h>

#include <algorithm>

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

Setup make_setup(const Declaration& declaration, const LayerKind& kind, Doubts& doubts) {
  Setup setup;
  auto& [layers, spec, origins] = setup.group;
  if (kind.rotary) {
    auto result = make_rotary(declaration, *kind.rotary, doubts);
    spec.rotary = std::move(result.spec);
    setup.extent = result.extent;
    origins = std::move(result.origins);
  }
  spec.mask.causal = declaration.causal.value;
  origins["mask.causal"] = declaration.causal.origin;
  settle_window(declaration, kind, setup, doubts);
  spec.softmax_scale = declaration.softmax_scale.value;
  origins["softmax_scale"] = declaration.softmax_scale.origin;
  if (declaration.softcap) {
    spec.softcap = declaration.softcap->value;
    origins["softcap"] = declaration.softcap->origin;
  }
  if (declaration.length) origins["length.declared"] = declaration.length->origin;
  return setup;
}

// The layers without a window set the length; a model of windows only takes the first.
std::size_t leading_kind(const Declaration& declaration) {
  for (const auto kind : declaration.kind_of_layer) {
    if (!declaration.kinds[kind].window) return kind;
  }
  return declaration.kind_of_layer.empty() ? 0 : declaration.kind_of_layer.front();
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

}  // namespace

Model assemble(Declaration declaration, Doubts& doubts) {
  std::vector<std::optional<Setup>> setups(declaration.kinds.size());
  Model& model = declaration.model;
  for (std::size_t layer = 0; layer < declaration.kind_of_layer.size(); layer++) {
    const std::size_t kind = declaration.kind_of_layer[layer];
    if (!setups[kind]) setups[kind] = make_setup(declaration, declaration.kinds[kind], doubts);
    auto same = std::find_if(model.groups.begin(), model.groups.end(),
                             [&](const LayerGroup& group) { return group.spec == setups[kind]->group.spec; });
    if (same == model.groups.end()) same = model.groups.insert(same, setups[kind]->group);
    same->layers.push_back(static_cast<int>(layer));
  }
  if (declaration.length) model.declared = declaration.length->value;
  if (!declaration.kind_of_layer.empty()) {
    const auto& extent = setups[leading_kind(declaration)]->extent;
    model.derived = extent.derived;
    model.original = extent.original;
  }
  check_lengths(declaration, doubts);
  model.doubts = doubts.take();
  return std::move(model);
}

}  // namespace gnomon::files
