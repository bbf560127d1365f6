// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file.
#include "check_model.hpp"
#include "fuzz.hpp"
#include "model/formats.hpp"
#include "model/gguf_writer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    gnomon::fuzz::check_model(gnomon::files::read_gguf(std::as_bytes(std::span(data, size)), "model.gguf", "model.gguf"));
  } catch (const gnomon::Error& error) {
    gnomon::fuzz::demand(error.code() == gnomon::ErrorCode::malformed, "bytes that cannot be read are malformed");
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  using gnomon::test::small_model;
  std::vector<std::string> seeds;
  for (const std::string architecture : {"llama", "llama4", "qwen2", "gemma2", "gemma3", "phi3", "deepseek2", "gpt-oss", "bloom", "mpt",
                                         "t5", "gpt2", "lfm2", "modern-bert", "unheard_of"}) {
    auto writer = small_model(architecture).f32(architecture + ".rope.freq_base", 1e6F).u32(architecture + ".rope.dimension_count", 32);
    writer.u32(architecture + ".attention.sliding_window", 512)
        .array(architecture + ".attention.sliding_window_pattern", 7, std::vector<std::uint8_t>{1, 0, 1});
    seeds.push_back(writer.file());
    writer.text(architecture + ".rope.scaling.type", "yarn")
        .f32(architecture + ".rope.scaling.factor", 4)
        .u32(architecture + ".rope.scaling.original_context_length", 1024);
    writer.u32(architecture + ".attention.relative_buckets_count", 32)
        .f32(architecture + ".attention.max_alibi_bias", 8)
        .array(architecture + ".attention.head_count_kv", 5, std::vector<std::int32_t>{2, 0, 2})
        .u32(architecture + ".attention.key_length_mla", 96)
        .f32(architecture + ".attention.temperature_scale", 0.1F)
        .f32(architecture + ".rope.scaling.yarn_log_multiplier", 0.1F);
    writer.tensor_header("position_embd.weight", {512, 1024}, 0, 0).tensor_header("blk.0.attn_sinks.weight", {8}, 0, 0);
    writer.tensor_header("blk.0.attn_q.weight", {512, 512}, 0, 0).tensor_header("blk.0.attn_k.weight", {512, 128}, 0, 0);
    writer.texts("tokenizer.ggml.tokens", {"a", "b"}).u32("general.alignment", 64);
    seeds.push_back(writer.file());
  }
  seeds.push_back(small_model("llama").f32("llama.rope.freq_base", 500000).tensor("rope_freqs.weight", std::vector<float>(32, 1)).file());
  seeds.push_back(small_model("llama").f32("llama.rope.freq_base", 500000).tensor("rope_freqs.weight", std::vector<float>(32, 8)).file());
  return seeds;
}

std::vector<std::string> fuzz_dictionary() {
  std::vector<std::string> pieces = {"GGUF",
                                     "rope_freqs.weight",
                                     "rope_factors_long.weight",
                                     "general.architecture",
                                     "llama",
                                     "gemma3",
                                     "yarn",
                                     "linear",
                                     "longrope",
                                     "phi3",
                                     "t5",
                                     "bloom",
                                     "attention.key_length",
                                     "rope.scaling.alpha",
                                     "qwen2vl",
                                     "rope_factors_short.weight",
                                     "rope.dimension_sections",
                                     "rope.scaling.original_context_length"};
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{9}, std::uint64_t{1} << 31, std::uint64_t{1} << 61,
                                     std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    pieces.emplace_back(reinterpret_cast<const char*>(&number), 8);
    pieces.emplace_back(reinterpret_cast<const char*>(&number), 4);
  }
  return pieces;
}
