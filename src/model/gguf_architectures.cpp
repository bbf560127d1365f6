// SPDX-License-Identifier: Apache-2.0
// Source: llama.cpp, llama_model_rope_type and the reading of hyperparameters of each architecture.
#include "model/gguf_architectures.hpp"

#include <algorithm>
#include <iterator>

namespace gnomon::files {
namespace {

using enum GgufPairs;
constexpr GgufExtra learned = GgufExtra::learned, alibi = GgufExtra::alibi;
constexpr GgufWindow causal = GgufWindow::causal, symmetric = GgufWindow::symmetric, chunked = GgufWindow::chunked;

// clang-format off
constexpr GgufArchitecture table[] = {
    // Llama and what its converter permutes for the interleaved kernel
    {.name = "llama", .pairs = norm, .theta = 10000},
    {.name = "llama-embed", .pairs = norm, .theta = 10000, .causal = false},
    {.name = "llama4", .pairs = norm, .window = chunked, .period = 4, .window_size = 8192, .still_period = 4},
    {.name = "deci", .pairs = norm, .theta = 10000},
    {.name = "arcee", .pairs = norm},
    {.name = "baichuan", .pairs = norm, .theta = 10000, .layers_with_alibi = 40},
    {.name = "internlm2", .pairs = norm},
    {.name = "xverse", .pairs = norm, .theta = 10000},
    {.name = "minicpm", .pairs = norm, .theta = 10000},
    {.name = "olmo", .pairs = norm, .theta = 10000},
    {.name = "arctic", .pairs = norm},
    {.name = "chameleon", .pairs = norm, .theta = 10000},
    {.name = "deepseek", .pairs = norm, .theta = 10000},
    {.name = "bailingmoe", .pairs = norm},
    {.name = "granite", .pairs = norm, .theta = 10000},
    {.name = "granitemoe", .pairs = norm, .theta = 10000},
    {.name = "granitehybrid", .pairs = norm, .theta = 10000},
    {.name = "smollm3", .pairs = norm, .still_period = 4},
    {.name = "mistral3", .pairs = norm},
    {.name = "llada", .pairs = norm, .causal = false},
    {.name = "maincoder", .pairs = norm},
    {.name = "neo-bert", .pairs = norm, .theta = 10000, .causal = false},
    // interleaved by themselves
    {.name = "command-r", .pairs = norm},
    {.name = "cohere2", .pairs = norm, .window = causal, .period = 4, .full_layers_still = true},
    {.name = "chatglm", .pairs = norm, .theta = 10000},
    {.name = "glm4", .pairs = glm},
    {.name = "ernie4_5", .pairs = norm},
    {.name = "ernie4_5-moe", .pairs = norm},
    {.name = "gptj", .pairs = norm, .theta = 10000},
    {.name = "deepseek2", .pairs = norm, .latent = true},
    {.name = "deepseek2-ocr", .pairs = norm, .theta = 10000},
    {.name = "glm-dsa", .pairs = norm, .latent = true},
    {.name = "mistral4", .pairs = norm, .latent = true},
    {.name = "plm", .pairs = norm, .latent = true},
    // half_split
    {.name = "falcon", .theta = 10000},
    {.name = "falcon-h1"},
    {.name = "grok", .theta = 10000, .softmax_scale = 0.08838834764831845, .softcap = 30},
    {.name = "dbrx"},
    {.name = "stablelm", .theta = 10000},
    {.name = "bitnet", .theta = 10000},
    {.name = "qwen", .theta = 10000},
    {.name = "qwen2"},
    {.name = "qwen2moe"},
    {.name = "qwen3"},
    {.name = "qwen3moe"},
    {.name = "qwen3next", .attention_period = 4},
    {.name = "dream", .causal = false},
    {.name = "llada-moe", .causal = false},
    {.name = "rnd1", .causal = false},
    {.name = "olmo2", .window = causal, .period = 4, .sliding_unscaled = true},
    {.name = "olmoe", .theta = 10000},
    {.name = "phi2", .theta = 10000},
    {.name = "phi3", .theta = 10000},
    {.name = "phimoe", .theta = 10000},
    {.name = "plamo", .theta = 10000},
    {.name = "plamo2", .theta = 10000},
    {.name = "plamo3", .window = causal, .period = 8, .sliding_theta = 10000},
    {.name = "gemma", .theta = 10000},
    {.name = "gemma2", .theta = 10000, .window = causal, .period = 2, .window_size = 4096, .layers_scaled_by_width = 46, .softcap = 50},
    {.name = "gemma3", .theta = 1000000, .window = causal, .period = 6, .sliding_theta = 10000, .layers_scaled_by_width = 62},
    {.name = "gemma3n", .theta = 1000000, .window = causal, .period = 5, .sliding_theta = 10000, .softmax_scale = 1},
    {.name = "gemma4", .window = causal, .period = 6, .sliding_theta = 10000, .softmax_scale = 1},
    {.name = "gemma-embedding", .theta = 1000000, .causal = false, .window = symmetric, .period = 6, .sliding_theta = 10000},
    {.name = "starcoder2"},
    {.name = "openelm", .theta = 10000},
    {.name = "gptneox", .theta = 10000},
    {.name = "codeshell", .theta = 10000},
    {.name = "orion", .theta = 10000},
    {.name = "nemotron", .theta = 10000},
    {.name = "exaone"},
    {.name = "exaone4", .window = causal, .period = 4, .full_layers_still = true},
    {.name = "exaone-moe", .window = causal, .period = 4, .full_layers_still = true},
    {.name = "minicpm3", .latent = true},
    {.name = "bailingmoe2"},
    {.name = "dots1"},
    {.name = "hunyuan-moe"},
    {.name = "hunyuan-dense"},
    {.name = "hunyuan_vl", .pairs = glm_moe},
    {.name = "jais2"},
    {.name = "gpt-oss", .window = causal, .period = 2, .truncate = false},
    {.name = "lfm2"},
    {.name = "lfm2moe"},
    {.name = "smallthinker", .window = causal, .period = 4, .full_first = true, .full_layers_still = true},
    {.name = "seed_oss"},
    {.name = "grovemoe"},
    {.name = "apertus"},
    {.name = "minimax-m2"},
    {.name = "cogvlm", .theta = 10000},
    {.name = "pangu-embedded"},
    {.name = "afmoe", .theta = 10000, .window = causal, .period = 4, .full_layers_still = true},
    {.name = "mimo2", .window = causal},
    {.name = "step35", .window = causal, .sliding_unscaled = true},
    {.name = "glm4moe", .pairs = glm_moe},
    {.name = "nomic-bert", .theta = 10000, .causal = false},
    {.name = "nomic-bert-moe", .theta = 10000, .causal = false},
    {.name = "jina-bert-v3", .causal = false},
    {.name = "modern-bert", .causal = false, .window = symmetric, .period = 3, .full_first = true, .sliding_theta = 10000},
    {.name = "eurobert", .causal = false},
    // several axes
    {.name = "qwen2vl", .pairs = mrope},
    {.name = "paddleocr", .pairs = mrope},
    {.name = "qwen3vl", .pairs = imrope},
    {.name = "qwen3vlmoe", .pairs = imrope},
    {.name = "qwen35", .pairs = imrope, .attention_period = 4},
    {.name = "qwen35moe", .pairs = imrope, .attention_period = 4},
    // no rotation
    {.name = "gpt2", .pairs = none, .extra = learned},
    {.name = "starcoder", .pairs = none, .extra = learned},
    {.name = "bert", .pairs = none, .extra = learned, .causal = false},
    {.name = "mpt", .pairs = none, .extra = GgufExtra::optional},
    {.name = "bloom", .pairs = none, .extra = alibi},
    {.name = "refact", .pairs = none, .extra = alibi},
    {.name = "jais", .pairs = none, .extra = alibi},
    {.name = "jina-bert-v2", .pairs = none, .extra = alibi, .causal = false},
    {.name = "t5", .pairs = none, .extra = GgufExtra::t5, .softmax_scale = 1},
    {.name = "t5encoder", .pairs = none, .extra = GgufExtra::t5, .causal = false, .softmax_scale = 1},
    {.name = "jamba", .pairs = none},
    {.name = "nemotron_h", .pairs = none},
    {.name = "nemotron_h_moe", .pairs = none},
    {.name = "kimi-linear", .pairs = none, .latent = true},
    {.name = "wavtokenizer-dec", .pairs = none, .causal = false},
    {.name = "mamba", .pairs = none, .no_attention = true},
    {.name = "mamba2", .pairs = none, .no_attention = true},
    {.name = "rwkv6", .pairs = none, .no_attention = true},
    {.name = "rwkv6qwen2", .pairs = none, .no_attention = true},
    {.name = "rwkv7", .pairs = none, .no_attention = true},
    {.name = "arwkv7", .pairs = none, .no_attention = true},
};
// clang-format on

struct OtherName {
  std::string_view model_type, architecture;
};

/// Model types that the converter gives another name than their own.
constexpr OtherName other_names[] = {
    {"mistral", "llama"},
    {"mixtral", "llama"},
    {"internlm3", "llama"},
    {"llama4_text", "llama4"},
    {"nemotron-nas", "deci"},
    {"ministral3", "mistral3"},
    {"olmo3", "olmo2"},
    {"granitemoeshared", "granitemoe"},
    {"granitemoehybrid", "granitehybrid"},
    {"stablelm_epoch", "stablelm"},
    {"hunyuan_v1_dense", "hunyuan-dense"},
    {"hunyuan_v1_moe", "hunyuan-moe"},
    {"hunyuan_vl_text", "hunyuan_vl"},
    {"RefinedWeb", "falcon"},
    {"RefinedWebModel", "falcon"},
    {"falcon_h1", "falcon-h1"},
    {"lfm2_moe", "lfm2moe"},
    {"qwen2_moe", "qwen2moe"},
    {"qwen2_vl", "qwen2vl"},
    {"qwen2_vl_text", "qwen2vl"},
    {"qwen2_5_vl", "qwen2vl"},
    {"qwen2_5_vl_text", "qwen2vl"},
    {"qwen2_5_omni_text", "qwen2vl"},
    {"qwen2_5_omni_thinker", "qwen2vl"},
    {"qwen3_moe", "qwen3moe"},
    {"qwen3_next", "qwen3next"},
    {"qwen3_vl", "qwen3vl"},
    {"qwen3_vl_text", "qwen3vl"},
    {"qwen3_vl_moe", "qwen3vlmoe"},
    {"qwen3_vl_moe_text", "qwen3vlmoe"},
    {"qwen3_5", "qwen35"},
    {"qwen3_5_text", "qwen35"},
    {"qwen3_5_moe", "qwen35moe"},
    {"qwen3_5_moe_text", "qwen35moe"},
    {"paddleocr_vl", "paddleocr"},
    {"paddleocr_vl_text", "paddleocr"},
    {"phi", "phi2"},
    {"phi-msft", "phi2"},
    {"phi3_v", "phi3"},
    {"phi4mm", "phi3"},
    {"phi4_multimodal", "phi3"},
    {"gemma3_text", "gemma3"},
    {"gemma3n_text", "gemma3n"},
    {"gemma4_text", "gemma4"},
    {"deepseek_v2", "deepseek2"},
    {"deepseek_v3", "deepseek2"},
    {"deepseek_v32", "deepseek2"},
    {"kimi_k2", "deepseek2"},
    {"kimi_k25", "deepseek2"},
    {"youtu", "deepseek2"},
    {"glm4_moe_lite", "deepseek2"},
    {"glm", "chatglm"},
    {"glm4v", "glm4"},
    {"glm4_moe", "glm4moe"},
    {"glm4v_moe", "glm4moe"},
    {"glm_moe_dsa", "glm-dsa"},
    {"ernie4_5_text", "ernie4_5"},
    {"ernie4_5_moe", "ernie4_5-moe"},
    {"gpt_neox", "gptneox"},
    {"gpt_oss", "gpt-oss"},
    {"cohere", "command-r"},
    {"exaone_moe", "exaone-moe"},
    {"minimax_m2", "minimax-m2"},
    {"mimo_v2_flash", "mimo2"},
    {"bailing_moe", "bailingmoe"},
    {"modernbert", "modern-bert"},
    {"nomic_bert", "nomic-bert"},
};

}  // namespace

std::string_view gguf_name_of(std::string_view model_type) {
  const auto* found =
      std::find_if(std::begin(other_names), std::end(other_names), [&](const auto& entry) { return entry.model_type == model_type; });
  if (found != std::end(other_names)) return found->architecture;
  const auto* own = gguf_architecture(model_type);
  return own != nullptr ? own->name : std::string_view();
}

const GgufArchitecture* gguf_architecture(std::string_view name) {
  const auto* found = std::find_if(std::begin(table), std::end(table), [&](const auto& entry) { return entry.name == name; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace gnomon::files
