// SPDX-License-Identifier: Apache-2.0
// One pair of functions per format: whether a file is one, and from its content to a Model. `file` names it in origins, `path` in messages.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "gnomon/model.hpp"

namespace gnomon::files {

/// The object of a JSON text, in which Python's NaN and Infinity count as texts. Throws Error(malformed).
nlohmann::json parse_document(std::string_view text, const std::string& path);

/// Whether one of the formats below knows the object.
bool is_model(const nlohmann::json& root);
/// Reads it by the first that does. Throws Error(malformed) where none does.
Model read_document(const nlohmann::json& root, const std::string& file, const std::string& path);
Model read_json(std::string_view text, const std::string& file, const std::string& path);

bool is_hf(const nlohmann::json& root);
Model read_hf(const nlohmann::json& root, const std::string& file, const std::string& path);

bool is_litgpt(const nlohmann::json& root);
Model read_litgpt(const nlohmann::json& root, const std::string& file, const std::string& path);

/// Meta's params.json, and the files of llama2.c and executorch, which use the same names.
bool is_meta(const nlohmann::json& root);
Model read_meta(const nlohmann::json& root, const std::string& file, const std::string& path);

/// Mistral's params.json.
bool is_mistral(const nlohmann::json& root);
Model read_mistral(const nlohmann::json& root, const std::string& file, const std::string& path);

/// The config.json of a checkpoint or an engine of TensorRT-LLM.
bool is_tensorrt_llm(const nlohmann::json& root);
Model read_tensorrt_llm(const nlohmann::json& root, const std::string& file, const std::string& path);

/// The arguments of Megatron-LM.
bool is_megatron(const nlohmann::json& root);
Model read_megatron(const nlohmann::json& root, const std::string& file, const std::string& path);

/// A text that is no JSON: arguments of Megatron or LitGPT, as flags, as a log, or as simple YAML. Throws Error(malformed) for any other.
Model read_arguments(std::string_view text, const std::string& file, const std::string& path);

Model read_gguf(std::span<const std::byte> bytes, const std::string& file, const std::string& path);

/// Throws Error(invalid_argument) with the first doubt of level error, which forbids to trust the numbers.
void refuse_doubtful(const Model& model);

}  // namespace gnomon::files
