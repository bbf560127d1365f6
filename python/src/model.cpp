// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/filesystem.h>

#include "bindings.hpp"
#include "spec/fields.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_model(nb::module_& module) {
  using gnomon::Doubt;
  using gnomon::DriftCost;
  using gnomon::LayerGroup;
  using gnomon::Model;
  nb::class_<DriftCost>(module, "DriftCost", "How far scores drift where a file is read the other way.")
      .def_ro("position", &DriftCost::position)
      .def_ro("distance", &DriftCost::distance)
      .def_ro("mean_cosine", &DriftCost::mean_cosine);
  nb::class_<Doubt>(module, "Doubt", "Something in a model's files that is missing, contradictory or not understood.")
      .def_ro("code", &Doubt::code)
      .def_prop_ro("level", [](const Doubt& doubt) { return std::string(gnomon::enum_name(doubt.level)); })
      .def_ro("keys", &Doubt::keys)
      .def_ro("message", &Doubt::message)
      .def_prop_ro("cost", &Doubt::cost)
      .def("__repr__",
           [](const Doubt& doubt) { return std::string(gnomon::enum_name(doubt.level)) + " " + doubt.code + ": " + doubt.message; });
  nb::class_<LayerGroup>(module, "LayerGroup", "Layers of one part that share one position set-up.")
      .def_ro("part", &LayerGroup::part)
      .def_ro("layers", &LayerGroup::layers)
      .def_prop_ro("absolute", [](const LayerGroup& group) { return group.spec.absolute; })
      .def_prop_ro("rotary", [](const LayerGroup& group) { return group.spec.rotary; })
      .def_prop_ro("bias", [](const LayerGroup& group) { return group.spec.bias; })
      .def_prop_ro("causal", [](const LayerGroup& group) { return group.spec.mask.causal; })
      .def_prop_ro("window", [](const LayerGroup& group) { return group.spec.mask.window; })
      .def_prop_ro("chunk", [](const LayerGroup& group) { return group.spec.mask.chunk; })
      .def_prop_ro("softmax_scale", [](const LayerGroup& group) { return group.spec.softmax_scale; })
      .def_prop_ro("softcap", [](const LayerGroup& group) { return group.spec.softcap; })
      .def_prop_ro("sink_logits", [](const LayerGroup& group) { return group.spec.sink_logits; })
      .def(
          "to_json", [](const LayerGroup& group) { return gnomon::to_json(group.spec); },
          "The set-up of these layers as one JSON object: absolute, rotary, bias, mask and the rest.");
  nb::class_<Model>(module, "Model", "The position set-up of a model, as its files state it.")
      .def_ro("path", &Model::path)
      .def_ro("format", &Model::format)
      .def_ro("type", &Model::type)
      .def_ro("layers", &Model::layers)
      .def_ro("heads", &Model::heads)
      .def_ro("kv_heads", &Model::kv_heads)
      .def_ro("head_dim", &Model::head_dim)
      .def_ro("hidden_size", &Model::hidden_size)
      .def_ro("declared", &Model::declared)
      .def_ro("derived", &Model::derived)
      .def_ro("original", &Model::original)
      .def_ro("non_attention_layers", &Model::non_attention_layers)
      .def_ro("groups", &Model::groups)
      .def_ro("doubts", &Model::doubts)
      .def_ro("unread", &Model::unread)
      .def(
          "rotary", [](const Model& model, std::optional<int> layer) { return gnomon::rotary_of(model, layer); }, "layer"_a = nb::none(),
          "The RotarySpec of a layer, or of the only rotary group. Raises Error.")
      .def("to_json", [](const Model& model) { return gnomon::to_json(model); }, "The object `gnomon inspect --json` prints.");
  module.def("read_model", &gnomon::read_model, "path"_a,
             "Reads a file of format hf, gguf (header only), meta, executorch, mistral, litgpt, tensorrt-llm or megatron, found by its "
             "content, or a folder with the files of one model, whose contradictions become doubts, as does what is not understood. "
             "Raises Error.");
}
