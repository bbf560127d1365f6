// SPDX-License-Identifier: Apache-2.0
// Model files written by tests.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "gnomon/model.hpp"
#include "model/formats.hpp"

namespace gnomon::test {

using nlohmann::json;
namespace fs = std::filesystem;

/// A folder that goes away with the test.
class Folder {
 public:
  Folder() {
    static int count = 0;
    path_ = fs::temp_directory_path() / ("gnomon-model-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
    return path_ / name;
  }

 private:
  fs::path path_;
};

inline Model read_text(std::string_view text, const std::string& name = "config.json") {
  const Folder folder;
  return read_model(folder.write(name, text));
}

inline Model read(const json& config) { return read_text(config.dump()); }

/// The same without a file, for tests that read thousands.
inline Model read_in_memory(std::string_view text) { return files::read_json(text, "config.json", "config.json"); }

/// A small model of a family with the given keys set; a null value removes nothing, it stands in the file.
inline json config(std::string_view model_type, const json& keys) {
  json result = {{"model_type", model_type},  {"hidden_size", 4096},      {"num_hidden_layers", 12},
                 {"num_attention_heads", 32}, {"num_key_value_heads", 8}, {"max_position_embeddings", 4096}};
  if (!keys.is_null()) result.update(keys);  // {} is null to the JSON library
  return result;
}

inline Model llama(const json& keys) { return read(config("llama", keys)); }

inline const Doubt* find_doubt(const Model& model, std::string_view code) {
  const auto found = std::find_if(model.doubts.begin(), model.doubts.end(), [&](const Doubt& doubt) { return doubt.code == code; });
  return found == model.doubts.end() ? nullptr : &*found;
}

/// The codes of a model's doubts, for messages and for comparing whole lists.
inline std::string codes(const Model& model) {
  std::string result;
  for (const auto& doubt : model.doubts) result += (result.empty() ? "" : " ") + doubt.code;
  return result;
}

}  // namespace gnomon::test
