// SPDX-License-Identifier: Apache-2.0
// Any text as the JSON file of another tool: LitGPT, Meta, Mistral, TensorRT-LLM, Megatron.
#include "check_model.hpp"
#include "fuzz.hpp"
#include "model/formats.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    gnomon::fuzz::check_model(
        gnomon::files::read_json(std::string_view(reinterpret_cast<const char*>(data), size), "params.json", "params.json"));
  } catch (const gnomon::Error& error) {
    gnomon::fuzz::demand(error.code() == gnomon::ErrorCode::malformed, "a text that cannot be read is malformed");
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"n_layer": 6, "n_head": 8, "n_query_groups": 2, "n_embd": 512, "block_size": 4096, "rope_base": 10000, "head_size": 64,
          "rotary_percentage": 1.0, "rope_n_elem": 64, "rope_condense_ratio": 2, "rope_local_base_freq": 100, "sliding_window_size": 64,
          "rope_indices": [1, 1, 0, 1, 1, 0],
          "rope_adjustments": {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_seq_len": 8192}})",
      R"({"dim": 512, "n_layers": 8, "n_heads": 8, "n_kv_heads": 2, "rope_theta": 500000.0, "use_scaled_rope": true, "use_hf_rope": false,
          "no_rope_layer_interval": 4, "layer_types": ["conv", "full_attention"], "attention_chunk_size": 64, "rope_scale_factor": 8,
          "attn_temperature_tuning": true, "floor_scale": 8192, "attn_scale": 0.1, "max_seq_len": 1024, "partial_rotary_factor": 0.5})",
      R"({"dim": 512, "n_layers": 8, "n_heads": 8, "n_kv_heads": 2, "head_dim": 64, "hidden_dim": 99, "rope_theta": 1e6,
          "sliding_window": [64, null], "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "max_position_embeddings": 4096,
          "yarn": {"factor": 4, "original_max_position_embeddings": 1024, "beta": 32, "alpha": 1, "apply_scale": false},
          "llama_4_scaling": {"original_max_position_embeddings": 1024, "beta": 0.1}})",
      R"({"version": "1", "pretrained_config": {"architecture": "LlamaForCausalLM", "num_hidden_layers": 4, "num_attention_heads": 8,
          "hidden_size": 512, "max_position_embeddings": 2048, "rotary_base": 500000.0, "rotary_pct": 0.5,
          "position_embedding_type": "rope_gpt_neox", "rotary_scaling": {"type": "dynamic", "alpha": 100}}})",
      R"({"num_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "kv_channels": 64, "position_embedding_type": "rope",
          "rotary_base": 10000, "rotary_percent": 0.5, "rotary_interleaved": true, "window_size": [63, 0], "window_attn_skip_freq": 2,
          "no_rope_freq": [0, 1, 0, 1], "use_rope_scaling": true, "rope_scaling_factor": 8, "seq_length": 4096,
          "multi_latent_attention": false, "relative_attention_num_buckets": 32})"};
}

std::vector<std::string> fuzz_dictionary() {
  std::vector<std::string> pieces = {"\"alibi\"",
                                     "\"alibi_with_scale\"",
                                     "\"relative\"",
                                     "\"learned_absolute\"",
                                     "\"chatglm\"",
                                     "\"long_rope\"",
                                     "\"yarn\"",
                                     "\"head_dim\": 65536,",
                                     "\"n_heads\": 1,",
                                     "\"n_layers\": 65536,",
                                     "\"factor\": 0.5,",
                                     "\"beta_fast\": 2,",
                                     "\"no_rope_freq\": 1,",
                                     "\"sliding_window\": [],",
                                     "\"mscale\": 1,",
                                     "\"multi_latent_attention\": true,"};
  pieces.insert(pieces.end(), json_pieces.begin(), json_pieces.end());
  return pieces;
}
