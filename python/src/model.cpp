// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/filesystem.h>

#include "bindings.hpp"
#include "spec/fields.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_model(nb::module_& module) {
  using gnomon::Doubt;
  using gnomon::LayerGroup;
  using gnomon::Model;
  nb::class_<Doubt>(module, "Doubt", "Something in a model's files that is missing, contradictory or not understood.")
      .def_ro("code", &Doubt::code)
      .def_prop_ro("level", [](const Doubt& doubt) { return std::string(gnomon::enum_name(doubt.level)); })
      .def_ro("keys", &Doubt::keys)
      .def_ro("message", &Doubt::message)
      .def("__repr__",
           [](const Doubt& doubt) { return std::string(gnomon::enum_name(doubt.level)) + " " + doubt.code + ": " + doubt.message; });
  nb::class_<LayerGroup>(module, "LayerGroup", "Layers that share one position set-up.")
      .def_ro("layers", &LayerGroup::layers)
      .def_prop_ro("rotary", [](const LayerGroup& group) { return group.spec.rotary; })
      .def_prop_ro("window", [](const LayerGroup& group) { return group.spec.mask.window; })
      .def_prop_ro("softmax_scale", [](const LayerGroup& group) { return group.spec.softmax_scale; })
      .def_prop_ro("softcap", [](const LayerGroup& group) { return group.spec.softcap; });
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
      .def_ro("groups", &Model::groups)
      .def_ro("doubts", &Model::doubts)
      .def_ro("unread", &Model::unread)
      .def(
          "rotary", [](const Model& model, std::optional<int> layer) { return gnomon::rotary_of(model, layer); }, "layer"_a = nb::none(),
          "The RotarySpec of a layer, or of the only rotary group. Raises Error.")
      .def("to_json", [](const Model& model) { return gnomon::to_json(model); }, "The object `gnomon inspect --json` prints.");
  module.def("read_model", &gnomon::read_model, "path"_a,
             "Reads a Hugging Face config.json (file or folder) or a GGUF file (header only). What is not understood becomes a doubt. "
             "Raises Error.");
}
