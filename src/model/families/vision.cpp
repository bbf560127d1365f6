// SPDX-License-Identifier: Apache-2.0
// Images: plain encoders and the towers of vision-language models. Sources: transformers 5.24, the released files.
#include <algorithm>
#include <numbers>
#include <optional>

#include "model/families.hpp"
#include "model/hf_context.hpp"

namespace gnomon::files {
namespace {

constexpr auto other = Encoding::other;

struct Sides {
  std::int64_t height, width;
};

void refuse(HfContext& model, std::string_view key, std::string_view expected) {
  model.doubts().add("value-invalid", {model.keys().full(key)},
                     fmt::format("{}: expected {}, got {}", model.keys().full(key), expected, model.keys().find(key)->dump()));
}

// Height and width: one number, or a list of them.
std::optional<Sides> sides(HfContext& model, std::string_view key, std::int64_t otherwise) {
  constexpr double longest = 1 << 20;
  if (!model.keys().has(key)) return Sides{otherwise, otherwise};
  const auto& value = *model.keys().find(key);
  const auto is_side = [](const nlohmann::json& side) {
    return side.is_number() && side.get<double>() >= 1 && side.get<double>() <= longest && side == std::trunc(side.get<double>());
  };
  if (is_side(value)) return Sides{value.get<std::int64_t>(), value.get<std::int64_t>()};
  if (value.is_array() && value.size() == 2 && is_side(value[0]) && is_side(value[1])) return Sides{value[0], value[1]};
  refuse(model, key, "a side or two of 1 to 1048576 pixels");
  return std::nullopt;
}

// The image in patches.
std::optional<Sides> patches(HfContext& model, std::int64_t image_size, std::int64_t patch_size) {
  const auto image = sides(model, "image_size", image_size), patch = sides(model, "patch_size", patch_size);
  if (!image || !patch) return std::nullopt;
  const Sides result{image->height / patch->height, image->width / patch->width};
  if (result.height > 0 && result.width > 0) return result;
  refuse(model, model.keys().has("patch_size") ? "patch_size" : "image_size", "a patch that fits into the image");
  return std::nullopt;
}

void learned_patches(HfContext& model, std::int64_t image, std::int64_t patch, int extra) {
  const auto grid = patches(model, image, patch);
  if (!grid) return;
  model.use_learned(grid->height * grid->width + extra, 0, model.keys().derived("image_size, patch_size"));
  for (auto& kind : model.declaration().kinds) kind.origins["absolute.rows"] = model.keys().derived("image_size, patch_size");
}

void vit(HfContext& model) { learned_patches(model, 224, 16, 1); }   // a class token
void deit(HfContext& model) { learned_patches(model, 224, 16, 2); }  // and one for distillation
void clip(HfContext& model) { learned_patches(model, 224, 32, 1); }
void siglip(HfContext& model) { learned_patches(model, 224, 16, 0); }

void clip_text(HfContext& model) { model.use_learned(model.count({"max_position_embeddings"}, 77), 0); }

// Biases for every offset of two patches and three for the class token; a table of positions only when asked for.
void beit(HfContext& model) {
  model.keys().find("relative_position_bias_table_rows");  // follows from the patches
  const auto grid = patches(model, 224, 16);
  if (!grid) return;
  const std::int64_t window = grid->height;
  if (window != grid->width || window > 1 << 15) return refuse(model, "image_size", "a square of at most 32768 patches a side, for biases");
  model.use_bias(bias::Beit{window, (2 * window - 1) * (2 * window - 1) + 3}, model.keys().derived("image_size, patch_size"));
  if (const auto table = model.keys().boolean("use_absolute_position_embeddings"); table && table->value)
    learned_patches(model, 224, 16, 1);
}

// Stages double the width and the heads: the width of a head stays.
void swin_shape(HfContext& model) {
  const auto depths = model.keys().list("depths"), heads = model.keys().list("num_heads");
  auto& shape = model.declaration().model;
  shape.hidden_size = static_cast<int>(std::min<std::int64_t>(model.count({"embed_dim"}, 96), widest_head));
  double layers = 0;
  for (const double depth : depths ? depths->value : std::vector<double>{2, 2, 6, 2}) layers += depth;
  shape.layers = layers >= 0 && layers <= 65536 ? static_cast<int>(layers) : 0;
  const double first = heads && !heads->value.empty() ? heads->value.front() : 3;
  if (!(first >= 1 && first <= widest_head)) return;
  shape.heads = shape.kv_heads = static_cast<int>(first);
  shape.head_dim = shape.hidden_size / shape.heads;
  model.declaration().head_dim_origin = model.keys().derived("embed_dim / num_heads");
}

void swin(HfContext& model) {
  const auto window = model.keys().integer("window_size").value_or(Integer{7, family_default()});
  if (window.value < 1 || window.value > 1 << 15) return;
  model.use_bias(bias::Swin{window.value, (2 * window.value - 1) * (2 * window.value - 1)}, window.origin);
}

void swinv2(HfContext& model) {
  const auto window = model.keys().integer("window_size").value_or(Integer{7, family_default()});
  const auto pretrained = model.keys().list("pretrained_window_sizes");
  const double trained = pretrained && !pretrained->value.empty() ? pretrained->value.front() : 0;
  model.use_bias(bias::Swinv2{window.value, trained >= 0 && trained <= 1 << 15 ? static_cast<std::int64_t>(trained) : 0}, window.origin);
  model.set_softmax_scale({0, family_default()});  // cosine attention with a learned scale
}

RotaryDeclaration whole_head(HfContext& model, const Number& theta) {
  RotaryDeclaration rotary;
  rotary.theta = theta;
  rotary.rotary_dim = Integer{model.declaration().model.head_dim, model.declaration().head_dim_origin};
  return rotary;
}

Number theta_or(HfContext& model, double otherwise) {
  if (const auto* block = model.keys().object("rope_parameters")) {
    if (const auto theta = model.keys().inside(*block, "rope_parameters").number("rope_theta")) return *theta;
  }
  return model.keys().number("rope_theta").value_or(Number{otherwise, family_default()});
}

// Rows drive the first half of the pairs and columns the second, with the same frequencies.
void axial(HfContext& model, const Number& theta) {
  RotaryDeclaration rotary = whole_head(model, theta);
  rotary.axes = 2;
  model.use_rotary(rotary);
}

void qwen_tower(HfContext& model) { axial(model, {10000, family_default()}); }

// Its table of positions is resized to the image.
void qwen3_tower(HfContext& model) {
  model.use_learned(model.count({"num_position_embeddings"}, 2304), 0);
  axial(model, {10000, family_default()});
}

void llama4_tower(HfContext& model) {
  learned_patches(model, 448, 14, 1);
  axial(model, theta_or(model, 10000));
}

// A list of frequencies for a rule of its own: pairs of the first half are rows, of the second columns.
void use_listed(HfContext& model, const std::vector<double>& inv_freq, const Origin& origin) {
  const double half = static_cast<double>(inv_freq.size()) / 2;
  RotaryDeclaration rotary = whole_head(model, {0, origin});
  rotary.type = Text{"custom", origin};
  rotary.lists["inv_freq"] = List{inv_freq, origin};
  rotary.sections = List{{half, half}, origin};
  model.use_rotary(rotary);
}

std::vector<double> pixtral_frequencies(int pairs, double theta) {
  std::vector<double> result;
  for (const int first : {0, 1}) {  // even frequencies for rows, odd ones for columns
    for (int i = first; i < pairs; i += 2) result.push_back(std::pow(theta, -static_cast<double>(i) / pairs));
  }
  return result;
}

void pixtral(HfContext& model) {
  const Number theta = theta_or(model, 10000);
  const int pairs = model.declaration().model.head_dim / 2;
  if (pairs < 2 || pairs > widest_head || !(theta.value > 0)) return;
  use_listed(model, pixtral_frequencies(pairs, theta.value), theta.origin);
}

// Positions are coordinates from -1 to 1, and a turn is one unit: 2 pi is part of the frequency.
void dinov3(HfContext& model) {
  const Number theta = theta_or(model, 100);
  const int pairs = model.declaration().model.head_dim / 2;
  if (pairs < 2 || pairs > widest_head || !(theta.value > 0)) return;
  std::vector<double> inv_freq;
  for (int i = 0; i < pairs; i++)
    inv_freq.push_back(2 * std::numbers::pi * std::pow(theta.value, -static_cast<double>(i % (pairs / 2)) / (pairs / 2)));
  use_listed(model, inv_freq, theta.origin);
  for (const auto key : {"pos_embed_rope_normalize_coords", "pos_embed_rope_rescale_coords", "pos_embed_rope_dtype"})
    model.keys().find(key);
}

}  // namespace

std::vector<Family> vision_families() {
  return {
      {.name = "ViT",
       .model_types = {"vit", "dinov2", "vit_mae", "vit_msn", "ijepa"},
       .class_prefix = "ViT",
       .encoding = other,
       .causal = false,
       .is_image = true,
       .hook = vit},
      {.name = "DeiT", .model_types = {"deit"}, .class_prefix = "DeiT", .encoding = other, .causal = false, .is_image = true, .hook = deit},
      {.name = "BEiT",
       .model_types = {"beit", "data2vec-vision"},
       .class_prefix = "Beit",
       .encoding = other,
       .causal = false,
       .is_image = true,
       .hook = beit},
      {.name = "Swin",
       .model_types = {"swin", "maskformer-swin", "donut-swin"},
       .class_prefix = "Swin",
       .encoding = other,
       .causal = false,
       .is_image = true,
       .shape = swin_shape,
       .hook = swin},
      {.name = "Swin V2",
       .model_types = {"swinv2"},
       .encoding = other,
       .causal = false,
       .is_image = true,
       .shape = swin_shape,
       .hook = swinv2},
      {.name = "CLIP vision",
       .model_types = {"clip_vision_model"},
       .tower_of = {"clip", "llava", "llava_next"},
       .encoding = other,
       .causal = false,
       .layers = 12,
       .heads = 12,
       .hidden_size = 768,
       .is_image = true,
       .hook = clip},
      {.name = "CLIP text",
       .model_types = {"clip_text_model", "clip"},
       .class_prefix = "CLIP",
       .encoding = other,
       .layers = 12,
       .heads = 8,
       .length = 77,
       .hidden_size = 512,
       .hook = clip_text},
      {.name = "SigLIP vision",
       .model_types = {"siglip_vision_model"},
       .tower_of = {"siglip", "gemma3", "paligemma"},
       .encoding = other,
       .causal = false,
       .layers = 12,
       .heads = 12,
       .hidden_size = 768,
       .is_image = true,
       .hook = siglip},
      {.name = "SigLIP text",
       .model_types = {"siglip_text_model", "siglip"},
       .encoding = Encoding::learned,
       .causal = false,
       .layers = 12,
       .heads = 12,
       .length = 64,
       .hidden_size = 768},
      {.name = "Pixtral",
       .model_types = {"pixtral"},
       .encoding = other,
       .causal = false,
       .layers = 24,
       .heads = 16,
       .hidden_size = 1024,
       .is_image = true,
       .hook = pixtral},
      {.name = "DINOv3",
       .model_types = {"dinov3_vit"},
       .class_prefix = "DINOv3",
       .encoding = other,
       .causal = false,
       .is_image = true,
       .hook = dinov3},
      {.name = "Qwen2-VL vision",
       .model_types = {"qwen2_vl_vision", "qwen2_5_vl_vision"},
       .tower_of = {"qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen2_5_omni_thinker"},
       .encoding = other,
       .causal = false,
       .layers = 32,
       .heads = 16,
       .hidden_size = 1280,
       .hidden_keys = {"embed_dim"},
       .layer_keys = {"depth"},
       .is_image = true,
       .hook = qwen_tower},
      {.name = "Qwen3-VL vision",
       .model_types = {"qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_5_vision", "qwen3_5_moe_vision"},
       .tower_of = {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"},
       .encoding = other,
       .causal = false,
       .layers = 27,
       .heads = 16,
       .hidden_size = 1152,
       .layer_keys = {"depth"},
       .is_image = true,
       .hook = qwen3_tower},
      {.name = "Llama 4 vision",
       .model_types = {"llama4_vision_model"},
       .tower_of = {"llama4"},
       .encoding = other,
       .causal = false,
       .layout = PairLayout::interleaved,
       .layers = 34,
       .heads = 16,
       .hidden_size = 768,
       .is_image = true,
       .hook = llama4_tower},
  };
}

}  // namespace gnomon::files
