// SPDX-License-Identifier: Apache-2.0
// A folder with the files of one model.
#pragma once

#include <filesystem>

#include "gnomon/model.hpp"

namespace gnomon::files {

/// Reads every file of the folder (not of folders in it) that a format knows, by its content: a config.json or params.json first, else a
/// GGUF file, is the model; what the others say otherwise becomes a doubt. Throws Error(io) for a folder without a model, and the error of
/// the only file that would be one.
Model read_folder(const std::filesystem::path& folder);

/// What `other` says otherwise about the layers both have, as doubts of `model`. `name` and `other_name` are their files'.
void compare_files(Model& model, const std::string& name, const Model& other, const std::string& other_name);

}  // namespace gnomon::files
