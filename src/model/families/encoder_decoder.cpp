// SPDX-License-Identifier: Apache-2.0
// Encoders with decoders. The main part, to which shape and length belong, is the decoder. Sources: transformers 5.24, the released files.
#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto other = Encoding::other;

Origin origin_of(const HfContext& model, std::string_view key) { return model.keys().has(key) ? model.keys().read(key) : family_default(); }

double inverse_root(std::int64_t width) { return width > 0 ? std::pow(static_cast<double>(width), -0.5) : 0; }

// The part that sees both ways, with a head of its own width.
LayerKind encoder_kind(HfContext& model, std::initializer_list<std::string_view> heads) {
  LayerKind kind;
  kind.causal = Boolean{false, family_default()};
  const std::int64_t count = model.count(heads, model.declaration().model.heads);
  if (count > 0 && model.declaration().model.hidden_size % count == 0) {
    kind.softmax_scale = Number{inverse_root(model.declaration().model.hidden_size / count), family_default()};
  }
  return kind;
}

// One table of buckets per stack, shared by its layers (UMT5: one per layer), none in cross-attention, and no 1 / sqrt(head_dim).
void t5(HfContext& model) {
  const auto& keys = model.keys();
  const auto buckets = keys.integer("relative_attention_num_buckets").value_or(Integer{32, family_default()});
  const auto distance = keys.integer("relative_attention_max_distance").value_or(Integer{128, family_default()});
  const auto bias = [&](bool both_ways) { return bias::T5{buckets.value, distance.value, both_ways}; };
  LayerKind encoder;
  encoder.causal = Boolean{false, family_default()};
  encoder.bias = bias(true);
  model.declaration().part = "decoder";
  model.use_bias(bias(false), buckets.origin);
  model.add_part("encoder", model.count({"num_layers"}, model.declaration().model.layers), encoder);
  for (auto& kind : model.declaration().kinds) {
    kind.origins["bias.buckets"] = buckets.origin;
    kind.origins["bias.max_distance"] = distance.origin;
  }
}

void both_stacks(HfContext& model, const std::optional<AbsoluteSpec>& encoder_rows, const std::optional<AbsoluteSpec>& decoder_rows) {
  LayerKind encoder = encoder_kind(model, {"encoder_attention_heads"});
  encoder.absolute = encoder_rows;
  model.declaration().part = "decoder";
  for (auto& kind : model.declaration().kinds) kind.absolute = decoder_rows;
  model.add_part("encoder", model.count({"encoder_layers", "num_layers", "num_hidden_layers"}, 0), encoder);
}

// BART's tables begin at row 2, whose rows come on top of the length in the file.
void bart(HfContext& model) {
  const std::int64_t rows = model.count({"max_position_embeddings"}, 1024) + 2;
  both_stacks(model, model.learned(rows, 2), model.learned(rows, 2));
}

void blenderbot(HfContext& model) {
  const std::int64_t rows = model.count({"max_position_embeddings"}, 128);
  both_stacks(model, model.learned(rows, 0), model.learned(rows, 0));
}

AbsoluteSpec sinusoids(HfContext& model, absolute::SinusoidDenominator denominator, std::int64_t offset) {
  absolute::Sinusoidal rule;
  rule.order = absolute::SinusoidOrder::sin_cos;
  rule.denominator = denominator;
  rule.offset = offset;
  return {rule, model.declaration().model.hidden_size};
}

void marian(HfContext& model) {
  const auto rows = sinusoids(model, absolute::SinusoidDenominator::width, 0);
  both_stacks(model, rows, rows);
}

// fairseq's sinusoids: half of the width minus one, from row padding_idx + 1 on.
void m2m(HfContext& model) {
  const auto rows = sinusoids(model, absolute::SinusoidDenominator::half_minus_one, model.count({"pad_token_id"}, 1) + 1);
  both_stacks(model, rows, rows);
}

void whisper(HfContext& model) {
  model.keys().find("max_source_positions");  // of computed rows
  both_stacks(model, sinusoids(model, absolute::SinusoidDenominator::half_minus_one, 0),
              model.learned(model.count({"max_target_positions"}, 448), 0));
  for (auto& kind : model.declaration().kinds) kind.origins["absolute.rows"] = origin_of(model, "max_target_positions");
}

// Both stacks rotate part of each head; the encoder sees both ways.
void moonshine(HfContext& model) {
  LayerKind encoder = encoder_kind(model, {"encoder_num_attention_heads"});
  if (!model.declaration().kinds.empty()) encoder.rotary = model.kind(0).rotary;
  model.declaration().part = "decoder";
  model.add_part("encoder", model.count({"encoder_num_hidden_layers"}, 0), encoder);
}

}  // namespace

std::vector<Family> encoder_decoder_families() {
  return {
      {.name = "T5",
       .model_types = {"t5", "mt5", "umt5", "switch_transformers", "byt5", "pop2piano"},
       .class_prefix = "T5",
       .architectures = {"t5", "t5encoder"},
       .encoding = other,
       .softmax_scale = 1,
       .layer_keys = {"num_decoder_layers", "num_layers"},
       .hook = t5},
      {.name = "BART",
       .model_types = {"bart", "mbart", "plbart", "mvp", "led", "bigbird_pegasus"},
       .class_prefix = "Bart",
       .encoding = other,
       .layer_keys = {"decoder_layers"},
       .head_keys = {"decoder_attention_heads"},
       .hook = bart},
      {.name = "Blenderbot",
       .model_types = {"blenderbot", "blenderbot-small"},
       .encoding = other,
       .layer_keys = {"decoder_layers"},
       .head_keys = {"decoder_attention_heads"},
       .hook = blenderbot},
      {.name = "Marian, Pegasus",
       .model_types = {"marian", "pegasus"},
       .encoding = other,
       .layer_keys = {"decoder_layers"},
       .head_keys = {"decoder_attention_heads"},
       .hook = marian},
      {.name = "M2M-100, NLLB",
       .model_types = {"m2m_100", "nllb-moe"},
       .encoding = other,
       .layer_keys = {"decoder_layers"},
       .head_keys = {"decoder_attention_heads"},
       .hook = m2m},
      {.name = "Whisper",
       .model_types = {"whisper"},
       .class_prefix = "WhisperFor",
       .encoding = other,
       .layer_keys = {"decoder_layers"},
       .head_keys = {"decoder_attention_heads"},
       .hook = whisper},
      {.name = "Moonshine",
       .model_types = {"moonshine"},
       .class_prefix = "Moonshine",
       .layout = PairLayout::interleaved,
       .theta = 10000,
       .partial = true,
       .rotary_fraction = 0.9,
       .layer_keys = {"decoder_num_hidden_layers"},
       .head_keys = {"decoder_num_attention_heads"},
       .hook = moonshine},
  };
}

}  // namespace gnomon::files
