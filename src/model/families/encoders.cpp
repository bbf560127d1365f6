// SPDX-License-Identifier: Apache-2.0
// Encoders of text and speech. Sources: transformers 5.24, the code published with each, the released files.
#include <fmt/format.h>

#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto learned = Encoding::learned;

// Content, c2p and p2c are summed and divided by the root of their number.
void deberta(HfContext& model) {
  const auto& keys = model.keys();
  if (const auto relative = keys.boolean("relative_attention"); relative && !relative->value) return model.use_learned(0, 0);
  std::string terms;
  if (const auto* types = keys.find("pos_att_type"); types != nullptr) terms = types->dump();  // a list, or texts joined by |
  bias::Deberta rule;
  rule.c2p = terms.find("c2p") != std::string::npos;
  rule.p2c = terms.find("p2c") != std::string::npos;
  rule.share_key = keys.boolean("share_att_key").value_or(Boolean{false, {}}).value;
  const auto buckets = keys.integer("position_buckets"), most = keys.integer("max_relative_positions");
  rule.buckets = buckets && buckets->value > 0 ? buckets->value : 0;
  const auto length = model.declaration().length;
  rule.max_distance = most && most->value > 0 ? most->value : length ? length->value : 512;
  const int summed = 1 + (rule.c2p ? 1 : 0) + (rule.p2c ? 1 : 0);
  if (const int width = model.declaration().model.head_dim; width > 0) {
    model.set_softmax_scale({std::pow(width * summed, -0.5), keys.derived("head_dim, pos_att_type")});
  }
  if (rule.c2p || rule.p2c) model.use_bias(rule, buckets ? buckets->origin : family_default());
  if (const auto biased = keys.boolean("position_biased_input"); !biased || biased->value) model.use_learned(0, 0);
}

// Rotation only where position_embeddings_type asks for it; its other type is Transformer-XL's, which no rule here has.
void conformer(HfContext& model) {
  const auto& keys = model.keys();
  const auto type = keys.text("position_embeddings_type");
  if (type && type->value == "rotary") {
    RotaryDeclaration rotary;
    rotary.theta = keys.number("rotary_embedding_base").value_or(Number{10000, family_default()});
    rotary.rotary_dim = Integer{model.declaration().model.head_dim, model.declaration().head_dim_origin};
    return model.use_rotary(rotary);
  }
  if (type && type->value != "relative") return;
  model.doubts().add("rule-not-available", {keys.full("position_embeddings_type")},
                     "relative positions as in Transformer-XL are known but not offered by this version");
}

// Sinusoids of the distance meet the content of the query through a projection of their own, beside two biases: no rule here has it.
void transformer_xl(HfContext& model) {
  const auto type = model.keys().text("attn_type");
  if (model.declaration().model.type == "xlnet" && (!type || type->value == "bi"))
    model.declaration().causal = {false, type ? type->origin : family_default()};
  model.doubts().add("rule-not-available", {model.keys().full("model_type")},
                     "relative positions of Transformer-XL, sinusoids of the distance, are known but not offered by this version");
}

// MPNet's own buckets beside its learned table, the same in every layer.
void mpnet(HfContext& model) {
  const auto buckets = model.keys().integer("relative_attention_num_buckets").value_or(Integer{32, family_default()});
  model.use_bias(bias::T5{buckets.value, 128, true}, buckets.origin);
}

}  // namespace

std::vector<Family> encoder_families() {
  return {
      {.name = "XLNet, Transformer-XL",
       .model_types = {"xlnet", "transfo-xl"},
       .class_prefix = "XLNet",
       .encoding = Encoding::other,
       .layers = 24,
       .heads = 16,
       .hidden_size = 1024,
       .hook = transformer_xl},
      {.name = "BERT",
       .model_types = {"bert", "electra", "distilbert", "albert", "ernie", "roc_bert", "mobilebert", "megatron-bert", "convbert",
                       "layoutlm", "bert-generation", "visual_bert", "splinter", "nezha", "big_bird", "squeezebert", "rembert", "canine"},
       .class_prefix = "Bert",
       .architectures = {"bert"},
       .encoding = learned,
       .causal = false,
       .layers = 12,
       .heads = 12,
       .length = 512},
      {.name = "RoBERTa",
       .model_types = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "roberta-prelayernorm", "data2vec-text",
                       "xmod", "ibert", "luke", "mluke", "layoutlmv3", "lilt", "phobert"},
       .class_prefix = "Roberta",
       .encoding = learned,
       .causal = false,
       .learned_offset = 2,  // padding_idx + 1
       .offset_in_length = true,
       .length = 512},
      {.name = "MPNet",
       .model_types = {"mpnet"},
       .class_prefix = "MPNet",
       .encoding = learned,
       .causal = false,
       .learned_offset = 2,
       .offset_in_length = true,
       .length = 512,
       .hook = mpnet},
      {.name = "ESM",
       .model_types = {"esm"},
       .class_prefix = "Esm",
       .encoding = learned,
       .causal = false,
       .position_type_key = true,
       .learned_offset = 2,
       .offset_in_length = true,
       .theta_key = "rope_theta",
       .theta = 10000},
      {.name = "DeBERTa",
       .model_types = {"deberta-v2", "deberta"},
       .class_prefix = "DebertaV2",
       .encoding = Encoding::other,
       .causal = false,
       .length = 512,
       .hook = deberta},
      {.name = "RoFormer",
       .model_types = {"roformer"},
       .class_prefix = "RoFormer",
       .causal = false,
       .layout = PairLayout::interleaved,
       .theta_key = "",
       .theta = 10000},
      {.name = "ModernBERT",
       .model_types = {"modernbert"},
       .class_prefix = "ModernBertFor",
       .causal = false,
       .theta_key = "global_rope_theta",
       .sliding_theta_key = "local_rope_theta",
       .theta = 160000,
       .v4_theta = 160000,
       .sliding_theta = 10000,
       .scales_sliding = true,
       .window_rule = WindowRule::pattern,
       .window = 128,
       .pattern = 3,
       .pattern_starts_full = true},
      {.name = "ModernBERT decoder",
       .model_types = {"modernbert-decoder"},
       .class_prefix = "ModernBertDecoder",
       .theta_key = "global_rope_theta",
       .sliding_theta_key = "local_rope_theta",
       .theta = 160000,
       .v4_theta = 160000,
       .sliding_theta = 10000,
       .scales_sliding = true,
       .window_rule = WindowRule::pattern,
       .window = 128,
       .pattern = 3,
       .pattern_starts_full = true},
      {.name = "nomic-bert",
       .model_types = {"nomic_bert"},
       .class_prefix = "NomicBert",
       .architectures = {"nomic-bert"},
       .since_v5 = true,
       .causal = false,
       .theta_key = "rotary_emb_base",
       .fraction_key = "rotary_emb_fraction",
       .theta = 1000,
       .partial = true},
      {.name = "jina-embeddings v3",
       .model_types = {"jina_embeddings_v3", "xlm-roberta-flash"},
       .since_v5 = true,
       .causal = false,
       .theta_key = "rotary_emb_base",
       .theta = 20000},
      {.name = "wav2vec2 Conformer",
       .model_types = {"wav2vec2-conformer"},
       .encoding = Encoding::other,
       .causal = false,
       .hook = conformer},
      {.name = "GTE", .model_types = {"gte", "new"}, .causal = false, .theta = 160000},
      {.name = "EuroBERT", .model_types = {"eurobert"}, .causal = false},
  };
}

}  // namespace gnomon::files
