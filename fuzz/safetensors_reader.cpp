// SPDX-License-Identifier: Apache-2.0
// Any bytes as the header of a safetensors file, and its shapes against a model.
#include <span>

#include "check_model.hpp"
#include "fuzz.hpp"
#include "model/formats.hpp"
#include "model/safetensors.hpp"

namespace {

constexpr std::string_view configs[] = {
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "rope_theta": 1e4})",
    R"({"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "kv_channels": 16, "seq_length": 64})",
    R"({"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "kv_channels": 16, "position_embedding_type": "relative"})"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto tensors = gnomon::files::parse_safetensors_header(std::as_bytes(std::span(data, size)), "m.safetensors");
    for (const auto config : configs) {
      gnomon::Model model = gnomon::files::read_json(config, "config.json", "config.json");
      gnomon::files::check_tensors(tensors, "m.safetensors", model);
      gnomon::fuzz::check_model(model);
    }
  } catch (const gnomon::Error& error) {
    gnomon::fuzz::demand(error.code() == gnomon::ErrorCode::malformed, "bytes that cannot be read are malformed");
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (
      const std::string header :
      {R"({"layers.0.self_attn.q_proj.weight": {"dtype": "F16", "shape": [32, 1], "data_offsets": [0, 64]}, "layers.0.self_attn.k_proj.weight": {"dtype": "F16", "shape": [4, 1], "data_offsets": [64, 72]}})",
       R"({"__metadata__": {"format": "pt"}, "wpe.weight": {"dtype": "U8", "shape": [8, 2], "data_offsets": [0, 16]}, "embeddings.position_embeddings.weight": {"dtype": "F16", "shape": [8, 2], "data_offsets": [16, 48]}})",
       R"({"layers.1.self_attn.rotary_emb.inv_freq": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}, "layers.0.self_attn.sinks": {"dtype": "F32", "shape": [4], "data_offsets": [32, 48]}, "relative_attention_bias.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [48, 56]}})"}) {
    const std::uint64_t size = header.size();
    seeds.push_back(std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string(80, '\0'));
  }
  return seeds;
}

std::vector<std::string> fuzz_dictionary() {
  std::vector<std::string> pieces = {"\"data_offsets\": [0, 8]",
                                     "\"shape\": [18446744073709551615, 2]",
                                     "\"dtype\": \"F8_E4M3\",",
                                     "[0, 0]",
                                     "{}",
                                     "\"layers.99999999999.self_attn.q_proj.weight\":",
                                     "\"encoder.wpe.weight\":"};
  pieces.insert(pieces.end(), json_pieces.begin(), json_pieces.end());
  return pieces;
}
