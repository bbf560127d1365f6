// SPDX-License-Identifier: Apache-2.0
// Any text as arguments: flags, a log, simple YAML.
#include "check_model.hpp"
#include "fuzz.hpp"
#include "model/formats.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    gnomon::fuzz::check_model(gnomon::files::read_arguments({reinterpret_cast<const char*>(data), size}, "run.sh", "run.sh"));
  } catch (const gnomon::Error& error) {
    gnomon::fuzz::demand(error.code() == gnomon::ErrorCode::malformed, "a text that cannot be read is malformed");
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "python pretrain.py \\\n --num-layers 4 --hidden-size 512 \\\n --num-attention-heads=8 --rotary-base 10000 --rotary-percent 0.5 "
      "--position-embedding-type rope --use-rope-scaling --seq-length 4096 --window-size 63 0\n",
      "  hidden_size ........ 512\n  num_layers ........ 4\n  num_attention_heads .... 8\n  seq_length .... 64\n  rotary_base ... 1e4\n"
      "  window_size ..... (63, 0)\n  position_embedding_type ..... rope\n",
      "block_size: 4096\nn_layer: 4\nn_head: 8\nn_embd: 512\nhead_size: 64\nrotary_percentage: 1.0\nrope_base: 500000\n"
      "rope_adjustments:\n  factor: 8.0\nrope_indices:\n- 1\n- 0\n- 1\n- 0\nsliding_window_size: null\n"};
}

std::vector<std::string> fuzz_dictionary() {
  return {"--",
          "--num-layers 65536",
          "\n",
          ": ",
          " .... ",
          "=",
          "- 1\n",
          "[",
          "]",
          "(1, 2)",
          "null",
          "1e999",
          "nan",
          "inf",
          "-1",
          "\\",
          "\"",
          "\xc3",
          "\t",
          "--kv-channels 65536",
          "--rotary-percent 0.3",
          "--no-rope-freq 1",
          "--multi-latent-attention",
          "  factor: 2\n",
          "rope_adjustments:\n"};
}
