// SPDX-License-Identifier: Apache-2.0
// Llama and what shares its code. Sources: transformers 5.24 (llama, llama4, mllama, csm, arcee, apertus, smollm3, granite, …), the
// released files.
#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto interleaved = PairLayout::interleaved;

// Its rotate_half is (x2, -x1), where that of all others is (-x2, x1).
void nanochat(HfContext& model) {
  model.doubts().add("rotation-reversed", {model.keys().full("model_type")},
                     "the code of nanochat turns each pair by minus the angle; the numbers here are those of the usual direction");
}

// Cross-attention layers see an image: no position enters there.
void mllama(HfContext& model) {
  for (const auto kind : model.kinds_of(LayerType::cross)) model.kind(kind).rotary.reset();
}

// Llama 4 tempers the queries of the layers that do not rotate.
void llama4(HfContext& model) {
  const auto& keys = model.keys();
  const auto* tuned = keys.find("attn_temperature_tuning");  // true or false, in some files a number
  if (tuned != nullptr && (*tuned == false || *tuned == 0)) return;
  const auto scale = keys.number("attn_scale").value_or(Number{0.1, family_default()});
  const auto floor = keys.integer("floor_scale").value_or(Integer{8192, family_default()});
  if (floor.value < 1) {
    model.doubts().add("value-invalid", {floor.origin.key},
                       fmt::format("{}: expected a positive integer, got {}", floor.origin.key, floor.value));
    return;
  }
  for (std::size_t kind = 0; kind < model.layers().size(); kind++) {
    if (!model.kind(kind).rotary) model.set_temperature(kind, StepTemperature{scale.value, floor.value, 1}, scale.origin);
  }
}

}  // namespace

std::vector<Family> llama_families() {
  return {
      {
          .name = "Llama",
          .model_types = {"llama"},
          .class_prefix = "LlamaFor",
          .architectures = {"llama"},
          .gguf_layout = interleaved,  // the converter permutes the rows of q and k
          .theta = 10000,              // Llama 1 and 2 files state none
      },
      {
          .name = "Llama 4",
          .model_types = {"llama4_text", "llama4"},
          .class_prefix = "Llama4For",
          .architectures = {"llama4"},
          .layout = interleaved,
          .gguf_layout = interleaved,
          .theta = 500000,
          .v4_theta = 500000,
          .layers = 48,
          .heads = 40,
          .kv_heads = 8,
          .head_dim = 128,
          .length = 131072,
          .hidden_size = 5120,
          .window_rule = WindowRule::chunked_where_rotating,
          .window = 8192,
          .rotates = Rotates::all_but_nth,
          .hook = llama4,
      },
      {
          .name = "Llama 3.2 Vision",
          .model_types = {"mllama_text_model", "mllama"},
          .class_prefix = "MllamaFor",
          .theta = 500000,
          .v4_theta = 500000,
          .hook = mllama,
      },
      {.name = "CSM", .model_types = {"csm"}, .class_prefix = "CsmFor", .theta = 500000, .v4_theta = 500000},
      {.name = "CSM depth decoder", .model_types = {"csm_depth_decoder_model"}, .theta = 500000, .v4_theta = 500000},
      {.name = "Arcee", .model_types = {"arcee"}, .class_prefix = "ArceeFor", .architectures = {"arcee"}, .gguf_layout = interleaved},
      {.name = "Apertus", .model_types = {"apertus"}, .class_prefix = "ApertusFor", .theta = 12000000, .v4_theta = 12000000},
      {
          .name = "SmolLM3",
          .model_types = {"smollm3"},
          .class_prefix = "SmolLM3For",
          .architectures = {"smollm3"},
          .gguf_layout = interleaved,
          .theta = 2000000,
          .v4_theta = 2000000,
          .window_rule = WindowRule::sliding_where_still,
          .rotates = Rotates::all_but_nth,
      },
      {
          .name = "Granite",
          .model_types = {"granite", "granitemoe", "granitemoeshared"},
          .class_prefix = "Granite",
          .architectures = {"granite", "granitemoe"},
          .gguf_layout = interleaved,
          .theta = 10000,
          .softmax_scale = 1,
          .scale_key = "attention_multiplier",
      },
      {.name = "HyperCLOVA X", .model_types = {"hyperclovax"}, .theta = 10000, .scale_key = "attention_multiplier"},
      {.name = "Yi, Orion, Xverse, Aquila, Seed-OSS and others with Llama's code",
       .model_types = {"Yi",
                       "orion",
                       "xverse",
                       "aquila",
                       "seed_oss",
                       "deepseek",
                       "solar",
                       "dots1",
                       "mimo",
                       "telechat",
                       "skywork",
                       "cwm",
                       "diffllama",
                       "jais2",
                       "doge",
                       "bitnet",
                       "emu3_text_model",
                       "chameleon",
                       "hunyuan_video_text",
                       "ernie4_5_text",
                       "olmoe",
                       "aria_text",
                       "flex_olmo",
                       "solar_open"},
       .window_rule = WindowRule::after_max_window_layers},
      {.name = "Baichuan, InternLM and others whose first files state no base",
       .model_types = {"internlm", "minicpm"},
       .architectures = {"minicpm"},
       .gguf_layout = interleaved,
       .theta = 10000},
      {.name = "InternLM 2",
       .model_types = {"internlm2", "internlm3"},
       .class_prefix = "InternLM",
       .architectures = {"internlm2"},
       .gguf_layout = interleaved},
      {.name = "Nemotron-NAS",
       .model_types = {"nemotron-nas"},
       .class_prefix = "DeciLMFor",
       .architectures = {"deci"},
       .gguf_layout = interleaved},
      {.name = "Nemotron",
       .model_types = {"nemotron"},
       .class_prefix = "NemotronFor",
       .architectures = {"nemotron"},
       .theta = 10000,
       .partial = true,
       .rotary_fraction = 0.5},
      {.name = "Helium",
       .model_types = {"helium"},
       .class_prefix = "HeliumFor",
       .layout = interleaved,
       .theta = 100000,
       .v4_theta = 100000},
      {.name = "OLMo",
       .model_types = {"olmo"},
       .class_prefix = "OlmoFor",
       .architectures = {"olmo"},
       .gguf_layout = interleaved,
       .theta = 10000},
      {.name = "OLMo 2", .model_types = {"olmo2"}, .class_prefix = "Olmo2For", .architectures = {"olmo2"}},
      {.name = "StableLM",
       .model_types = {"stablelm", "stablelm_epoch"},
       .class_prefix = "StableLm",
       .architectures = {"stablelm"},
       .theta = 10000,
       .partial = true,
       .rotary_fraction = 0.25},
      {.name = "Hunyuan",
       .model_types = {"hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan", "hunyuan_vl_text", "hunyuan_vl"},
       .class_prefix = "HunYuan",
       .architectures = {"hunyuan-dense", "hunyuan-moe"},
       .theta = 10000},
      {.name = "EXAONE 3",
       .model_types = {"exaone"},
       .class_prefix = "ExaoneFor",
       .architectures = {"exaone"},
       .theta = 500000,
       .v4_theta = 500000},
      {.name = "nanochat", .model_types = {"nanochat"}, .since_v5 = true, .hook = nanochat},
      {.name = "JetMoE and others that state all they need",
       .model_types = {"jetmoe", "sarvam_moe", "moshi", "kyutai_speech_to_text", "higgs_audio_v2"}},
      {.name = "HY-V3", .model_types = {"hy_v3"}, .since_v5 = true, .theta = 11158840},
  };
}

}  // namespace gnomon::files
