// SPDX-License-Identifier: Apache-2.0
// A JSON file: parsed once, and given to the format its keys belong to.
#include <fmt/format.h>

#include <algorithm>

#include "gnomon/error.hpp"
#include "model/formats.hpp"
#include "spec/strict_json.hpp"

namespace gnomon::files {
namespace {

using nlohmann::json;

struct JsonFormat {
  bool (*is)(const json& root);
  Model (*read)(const json& root, const std::string& file, const std::string& path);
};

// Those with the most particular keys first: a file of llama2.c says "model_type": "llama" as well.
constexpr JsonFormat formats[] = {
    {is_litgpt, read_litgpt}, {is_tensorrt_llm, read_tensorrt_llm}, {is_megatron, read_megatron},
    {is_meta, read_meta},     {is_mistral, read_mistral},           {is_hf, read_hf},
};

// Python writes NaN and Infinity, which are not JSON. Files carry them in keys that have nothing to do with position (a time step limit),
// so they are read as texts: harmless there, and of the wrong kind wherever a number is expected.
std::string quote_python_constants(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool in_text = false;
  for (std::size_t i = 0; i < text.size();) {
    if (!in_text) {
      bool quoted_one = false;
      for (const std::string_view constant : {"NaN", "-Infinity", "Infinity"}) {
        if (!text.substr(i).starts_with(constant)) continue;
        result.append("\"").append(constant).append("\"");
        i += constant.size();
        quoted_one = true;
        break;
      }
      if (quoted_one) continue;
    }
    if (in_text && text[i] == '\\' && i + 1 < text.size())
      result += text[i++];
    else if (text[i] == '"')
      in_text = !in_text;
    result += text[i++];
  }
  return result;
}

}  // namespace

json parse_document(std::string_view text, const std::string& path) {
  const bool has_constants = text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  json root = has_constants ? parse_strict(quote_python_constants(text), path) : parse_strict(text, path);
  if (!root.is_object()) throw Error(ErrorCode::malformed, fmt::format("{}: expected a JSON object, got {}", path, root.type_name()));
  return root;
}

bool is_model(const json& root) {
  return std::any_of(std::begin(formats), std::end(formats), [&](const JsonFormat& format) { return format.is(root); });
}

Model read_document(const json& root, const std::string& file, const std::string& path) {
  const auto* format = std::find_if(std::begin(formats), std::end(formats), [&](const JsonFormat& one) { return one.is(root); });
  if (format != std::end(formats)) return format->read(root, file, path);
  throw Error(ErrorCode::malformed,
              fmt::format("{}: a JSON object, but not the config.json of a Hugging Face model (no model_type, no architectures, no "
                          "num_hidden_layers), nor of another format that is known",
                          path));
}

Model read_json(std::string_view text, const std::string& file, const std::string& path) {
  return read_document(parse_document(text, path), file, path);
}

}  // namespace gnomon::files
