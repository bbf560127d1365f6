// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "gnomon/error.hpp"
#include "gnomon/model.hpp"
#include "model/folder.hpp"
#include "model/formats.hpp"
#include "model/mapped_file.hpp"
#include "model/safetensors.hpp"

namespace gnomon {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_text = std::size_t{64} << 20;

std::string group_text(const LayerGroup& group) {
  const auto& layers = group.layers;
  std::string how = "no positions";
  if (group.spec.absolute) how = rule_name(group.spec.absolute->rule);
  if (group.spec.bias) how = rule_name(*group.spec.bias);
  if (group.spec.rotary) how = fmt::format("{} of theta {}", rule_name(group.spec.rotary->rule), group.spec.rotary->theta);
  return fmt::format("{} in layer {}{}", how, layers.front(), layers.size() > 1 ? fmt::format(" and {} more", layers.size() - 1) : "");
}

// Words alone are JSON too, as Python writes it; among others they begin a command.
bool is_json(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos) return false;
  text.remove_prefix(first);
  if (std::string_view("{[\"0123456789").find(text.front()) != std::string_view::npos) return true;
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  constexpr std::string_view words[] = {"null", "true", "false", "NaN", "Infinity", "-Infinity"};
  return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

Model read_file(std::span<const std::byte> bytes, const std::string& name, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) return files::read_gguf(bytes, name, path);
  if (text.empty()) throw Error(ErrorCode::malformed, fmt::format("{}: the file is empty", path));
  if (files::is_safetensors(bytes)) {
    throw Error(ErrorCode::malformed,
                fmt::format("{}: a safetensors file has shapes and no set-up; give the folder it lies in, with its config.json", path));
  }
  if (text.size() > largest_text)
    throw Error(ErrorCode::malformed, fmt::format("{}: {} bytes, too large for a config.json", path, text.size()));
  return is_json(text) ? files::read_json(text, name, path) : files::read_arguments(text, name, path);
}

}  // namespace

void files::refuse_doubtful(const Model& model) {
  for (const auto& doubt : model.doubts) {
    if (doubt.level == Level::error)
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}: {}", model.path, doubt.code, doubt.message));
  }
}

std::optional<Level> Model::worst() const {
  std::optional<Level> worst;
  for (const auto& doubt : doubts) worst = std::max(worst, std::optional(doubt.level));
  return worst;
}

Model read_model(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return files::read_folder(path);
  const files::MappedFile mapped(path);
  return read_file(mapped.bytes(), path.filename().string(), path.string());
}

Model model_from(std::string_view bytes, const std::string& name) { return read_file(std::as_bytes(std::span(bytes)), name, name); }

RotarySpec rotary_of(const Model& model, std::optional<int> layer) {
  files::refuse_doubtful(model);
  const auto refuse = [&](const std::string& reason) -> RotarySpec {
    std::string groups;
    for (const auto& group : model.groups) groups += (groups.empty() ? "" : "; ") + group_text(group);
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {} (groups: {})", model.path, reason, groups));
  };
  // Layers are numbered anew in each part: those of the main part, whose groups come first, are meant.
  const auto is_meant = [&](const LayerGroup& group) { return group.part == model.groups.front().part; };
  if (!layer) {
    std::vector<RotarySpec> specs;
    for (const auto& group : model.groups) {
      if (is_meant(group) && group.spec.rotary && std::find(specs.begin(), specs.end(), *group.spec.rotary) == specs.end())
        specs.push_back(*group.spec.rotary);
    }
    if (specs.size() == 1) return specs.front();
    return refuse(specs.empty() ? "no layer rotates" : "several rotary groups, name a layer");
  }
  for (const auto& group : model.groups) {
    if (!is_meant(group) || std::find(group.layers.begin(), group.layers.end(), *layer) == group.layers.end()) continue;
    return group.spec.rotary ? *group.spec.rotary : refuse(fmt::format("layer {} does not rotate", *layer));
  }
  return refuse(fmt::format("layer {} is not one of its {} layers", *layer, model.layers));
}

}  // namespace gnomon
