// SPDX-License-Identifier: Apache-2.0
// Any text as a config.json.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "check_model.hpp"
#include "fuzz.hpp"
#include "model/formats.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    gnomon::fuzz::check_model(gnomon::files::read_json({reinterpret_cast<const char*>(data), size}, "config.json", "config.json"));
  } catch (const gnomon::Error& error) {
    gnomon::fuzz::demand(error.code() == gnomon::ErrorCode::malformed, "a text that cannot be read is malformed");
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(GNOMON_FUZZ_CONFIGS)) {
    std::ifstream file(entry.path());
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

std::vector<std::string> fuzz_dictionary() {
  std::vector<std::string> pieces = {
      "\"model_type\": \"gemma3_text\",",
      "\"model_type\": \"qwen2\",",
      "\"model_type\": \"unheard_of\",",
      "\"text_config\": {",
      "\"rope_theta\": 1e6,",
      "\"rope_theta\": \"1\",",
      "\"rope_theta\": -1,",
      "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 4096},",
      "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
      "\"original_max_position_embeddings\": 8192},",
      "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e6}, \"sliding_attention\": null},",
      "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2},",
      "\"rope_parameters\": {\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25},",
      "\"rope_parameters\": {\"rope_type\": \"default\", \"mrope_section\": [16, 24, 24], \"mrope_interleaved\": true},",
      "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2},",
      "\"rope_scaling\": {\"type\": \"dynamic\", \"alpha\": 1000},",
      "\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1], \"long_factor\": [1, 2]},",
      "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [], \"long_factor\": [-1, null]},",
      "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [0, 1e9, -1]},",
      "\"short_factor\": 1,",
      "\"long_factor\": [1e308],",
      "\"mrope_section\": [24, 20, 20],",
      "\"mrope_interleaved\": 1,",
      "\"original_max_position_embeddings\": 1,",
      "\"layer_types\": [\"full_attention\", \"sliding_attention\"],",
      "\"sliding_window\": 128,",
      "\"sliding_window_pattern\": 3,",
      "\"use_sliding_window\": true,",
      "\"head_dim\": 3,",
      "\"head_dim\": 65536,",
      "\"num_hidden_layers\": 65536,",
      "\"partial_rotary_factor\": 0.3,",
      "\"rotary_dim\": 7,",
      "\"factor\": null,",
      "\"beta_fast\": 0,",
      "\"attention_factor\": 0,",
      "\"rope_condense_ratio\": 3,",
      "\"max_position_embeddings\": 1,"};
  pieces.insert(pieces.end(), json_pieces.begin(), json_pieces.end());
  return pieces;
}
