// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/filesystem.h>

#include "bindings.hpp"
#include "spec/fields.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_convert(nb::module_& module) {
  using gnomon::Conversion;
  using gnomon::ConvertedLayers;
  using gnomon::Loss;
  nb::class_<Loss>(module, "Loss", "What an engine does otherwise than asked.")
      .def_ro("layers", &Loss::layers)
      .def_ro("field", &Loss::field)
      .def_ro("message", &Loss::message)
      .def_ro("mean_cosine", &Loss::mean_cosine)
      .def_ro("at", &Loss::at)
      .def_ro("apart_from", &Loss::apart_from)
      .def("__repr__", [](const Loss& loss) { return loss.field + ": " + loss.message; });
  nb::class_<ConvertedLayers>(module, "ConvertedLayers", "What was asked of some layers, and what the engine runs.")
      .def_ro("layers", &ConvertedLayers::layers)
      .def_ro("asked", &ConvertedLayers::asked)
      .def_ro("runs", &ConvertedLayers::runs);
  nb::class_<Conversion>(module, "Conversion", "A rotary setting in the words of an engine, and what is lost there.")
      .def_prop_ro("dialect", [](const Conversion& conversion) { return std::string(gnomon::enum_name(conversion.dialect)); })
      .def_prop_ro("form", [](const Conversion& conversion) { return std::string(gnomon::enum_name(conversion.form)); })
      .def_ro("text", &Conversion::text, "As it is pasted: a JSON object, arguments quoted for a shell, or one GGUF key a line.")
      .def_prop_ro(
          "setting",
          [](const Conversion& conversion) { return nb::module_::import_("json").attr("loads")(nb::str(conversion.setting.c_str())); },
          "The same as a dict, a list of arguments, or a list of keys.")
      .def_ro("context", &Conversion::context)
      .def_ro("layers", &Conversion::layers)
      .def_ro("losses", &Conversion::losses)
      .def_ro("notes", &Conversion::notes)
      .def(
          "to_json", [](const Conversion& conversion) { return gnomon::to_json(conversion); },
          "The object `gnomon convert --json` prints.");
  module.def(
      "convert",
      [](const std::variant<gnomon::Model, gnomon::RotarySpec, std::filesystem::path>& source, std::string_view to,
         const std::string& method, std::optional<std::int64_t> context, bool compatible) {
        const auto dialect = gnomon::dialect_of(to);
        const gnomon::ConvertOptions options{method, context, compatible};
        if (const auto* spec = std::get_if<gnomon::RotarySpec>(&source)) return gnomon::convert(*spec, dialect, options);
        if (const auto* model = std::get_if<gnomon::Model>(&source)) return gnomon::convert(*model, dialect, options);
        return gnomon::convert(gnomon::read_model(std::get<std::filesystem::path>(source)), dialect, options);
      },
      "source"_a, "to"_a, nb::kw_only(), "method"_a = "none", "context"_a = nb::none(), "compatible"_a = false,
      "Writes the rotary setting of a Model, the files at a path or a RotarySpec in a dialect (transformers, transformers-v4, llama.cpp, "
      "gguf, vllm, exllama, "
      "mlx), reads it back as that engine does and lists what is lost. Raises Error.");
}
