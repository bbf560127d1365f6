// SPDX-License-Identifier: Apache-2.0
#include "model/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "gnomon/error.hpp"
#include "model/doubts.hpp"
#include "model/formats.hpp"
#include "model/gguf_header.hpp"
#include "model/mapped_file.hpp"
#include "model/safetensors.hpp"

namespace gnomon::files {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_files = 4096;
constexpr std::size_t largest_config = std::size_t{1} << 20;  // a folder holds other JSON, such as vocabularies

// Which of several files is the model: the order of trust.
constexpr std::string_view formats_by_trust[] = {"hf", "mistral", "meta", "executorch", "litgpt", "tensorrt-llm", "megatron", "gguf"};

struct Reading {
  std::string name;
  Model model;
};

struct Shapes {
  std::string name;
  std::vector<TensorShape> tensors;
};

class FolderReader {
 public:
  explicit FolderReader(const fs::path& folder) : folder_(folder) {}

  Model read() {
    for (const auto& file : list()) look_at(file);
    if (readings_.empty()) {
      if (first_error_) throw *first_error_;
      throw Error(ErrorCode::io, fmt::format("{}: a folder without config.json, params.json or a GGUF file", folder_.string()));
    }
    std::stable_sort(readings_.begin(), readings_.end(), [](const Reading& a, const Reading& b) { return trust(a) < trust(b); });
    Reading chosen = std::move(readings_.front());
    Model& model = chosen.model;
    model.path = folder_.string();
    for (std::size_t i = 1; i < readings_.size(); i++) compare_files(model, chosen.name, readings_[i].model, readings_[i].name);
    for (const auto& shapes : shapes_) check_tensors(shapes.tensors, shapes.name, model);
    doubts_.append_to(model);
    return std::move(model);
  }

 private:
  static std::size_t trust(const Reading& reading) {
    const auto place = std::find(std::begin(formats_by_trust), std::end(formats_by_trust), reading.model.format);
    return static_cast<std::size_t>(place - std::begin(formats_by_trust)) + (reading.model.layers == 0 ? 100 : 0);
  }

  std::vector<fs::path> list() const {
    std::vector<fs::path> files;
    std::error_code error;
    for (auto entry = fs::directory_iterator(folder_, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
      std::error_code unreadable;  // a link to itself is no file
      if (entry->is_regular_file(unreadable)) files.push_back(entry->path());
    }
    if (error) throw Error(ErrorCode::io, fmt::format("{}: cannot be read: {}", folder_.string(), error.message()));
    if (files.size() > most_files)
      throw Error(ErrorCode::io, fmt::format("{}: {} files, expected at most {}", folder_.string(), files.size(), most_files));
    std::sort(files.begin(), files.end());
    return files;
  }

  void look_at(const fs::path& file) {
    const std::string name = file.filename().string();
    std::optional<MappedFile> mapped;
    try {
      mapped.emplace(file);
      read(name, file.string(), *mapped);
    } catch (const Error& error) {
      if (mapped && !belongs(mapped->text())) return;
      if (!first_error_) first_error_ = error;
      doubts_.add("file-unreadable", {name}, fmt::format("{} was left out: {}", name, error.what()));
    }
  }

  // What cannot be read matters where it would have been a model's.
  static bool belongs(std::string_view text) {
    if (text.starts_with("GGUF") || is_safetensors(std::as_bytes(std::span(text)))) return true;
    if (text.size() > largest_config || text.find('{') == std::string_view::npos) return false;
    constexpr std::string_view keys[] = {"\"model_type\"", "\"num_hidden_layers\"", "\"n_layers\"", "\"n_layer\"", "\"num_layers\""};
    return std::any_of(std::begin(keys), std::end(keys), [&](auto key) { return text.find(key) != std::string_view::npos; });
  }

  void read(const std::string& name, const std::string& path, const MappedFile& file) {
    const std::string_view text = file.text();
    if (text.starts_with("GGUF")) {
      if (is_another_part(file.bytes(), path)) return;
      readings_.push_back({name, read_gguf(file.bytes(), name, path)});
    } else if (is_safetensors(file.bytes())) {
      shapes_.push_back({name, parse_safetensors_header(file.bytes(), path)});
    } else if (const auto first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
               first != std::string_view::npos && text[first] == '{' && text.size() <= largest_config) {
      const auto root = parse_document(text, path);
      if (is_model(root)) readings_.push_back({name, read_document(root, name, path)});
    }
  }

  // A later piece of a file in several, or the vision part that stands in a file of its own.
  static bool is_another_part(std::span<const std::byte> bytes, const std::string& path) {
    const auto header = parse_gguf_header(bytes, path);
    return header.keys.value("split.no", nlohmann::json(0)) != 0 || header.keys.value("general.architecture", nlohmann::json()) == "clip";
  }

  const fs::path folder_;
  std::vector<Reading> readings_;
  std::vector<Shapes> shapes_;
  std::optional<Error> first_error_;
  Doubts doubts_;
};

}  // namespace

Model read_folder(const fs::path& folder) { return FolderReader(folder).read(); }

}  // namespace gnomon::files
