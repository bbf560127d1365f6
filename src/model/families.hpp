// SPDX-License-Identifier: Apache-2.0
// What a family's code knows and its files do not say: one entry per family, for every format. The entries stand in families/, one file per
// group of related families, each with its sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gnomon/spec.hpp"

namespace gnomon::files {

struct HfContext;

/// How position enters, where one word says it all.
enum class Encoding {
  rotary,
  alibi,
  learned,
  none,   ///< nothing tells the layers where a token stands but their masks
  other,  ///< what the family's hook says
};

/// What the layers are when the file has no list of their types.
enum class WindowRule {
  none,                     ///< all see everything: the family's code has no window
  every_layer,              ///< all slide, when a window is given
  after_max_window_layers,  ///< they slide from layer max_window_layers on, when use_sliding_window is true
  pattern,                  ///< all but every n-th slide
  linear_pattern,           ///< all but every n-th have no attention
  chunked_where_rotating,   ///< the layers that rotate see their chunk
  sliding_where_still,      ///< the layers that do not rotate slide, when use_sliding_window is true
};

/// Which layers rotate when the file has no list of them.
enum class Rotates {
  all,
  sliding_layers,  ///< those that slide; all in a model without a window
  all_but_nth,     ///< all but every n-th
};

struct Family {
  std::string_view name{};
  std::vector<std::string_view> model_types{};    ///< model_type of config.json
  std::string_view class_prefix{};                ///< of architectures[0], for files without a model_type
  std::vector<std::string_view> architectures{};  ///< general.architecture of GGUF
  std::vector<std::string_view> tower_of{};  ///< model types whose vision_config or audio_config, without a type of its own, is this family
  bool since_v5 = false;                     ///< transformers 4 does not have it, so it cannot misread rope_parameters

  Encoding encoding = Encoding::rotary;
  bool causal = true;
  bool position_type_key = false;  ///< whether position_embedding_type of the file decides
  int learned_offset = 0;          ///< row of position 0
  bool offset_in_length = false;   ///< whether max_position_embeddings counts the rows before it

  PairLayout layout = PairLayout::half_split;
  PairLayout gguf_layout = PairLayout::half_split;
  bool layout_key = false;  ///< whether rope_interleave of the file decides

  std::string_view theta_key = "rope_theta";                    ///< spelling of the base in config.json; empty: a constant of the code
  std::string_view sliding_theta_key = "rope_local_base_freq";  ///< the same for sliding layers
  std::string_view fraction_key = "partial_rotary_factor";      ///< spelling of the partial width; empty: none
  std::optional<double> theta{};                                ///< base when the file states none
  std::optional<double> suspect_theta{};                        ///< a default of classes and converters that no released file states
  double v4_theta = 10000;                                      ///< what transformers 4 takes where it finds none at the top level
  std::optional<double> sliding_theta{};                        ///< base of sliding layers; its presence means they have their own
  std::optional<bool> scales_sliding{};                         ///< whether they are scaled too; empty: when they share the base
  bool partial = false;                                         ///< whether the family's code can rotate part of a head
  std::optional<double> rotary_fraction{}, sliding_fraction{};  ///< of a head, when the file states no width
  std::optional<int> rotary_dim{};                              ///< the same as a width
  bool rotates_tail = false;                                    ///< the last channels of a head, not the first
  std::optional<double> attention_factor{};                     ///< magnitude that the code forces
  std::vector<int> sections{};                                  ///< of an M-RoPE, when the file states none
  SectionOrder section_order = SectionOrder::chunked;           ///< theirs; of time_last, the file names time last too

  // Defaults of the family's configuration class, which nested text configs rely on.
  std::optional<int> layers{}, heads{}, kv_heads{}, head_dim{};
  std::optional<std::int64_t> length{};
  std::optional<int> hidden_size{};

  WindowRule window_rule = WindowRule::none;
  std::optional<std::int64_t> window{};  ///< when the file has no key for it
  int pattern = 0;                       ///< every pattern-th layer sees everything
  bool pattern_starts_full = false;      ///< the first of each run does, not the last
  int max_window_layers = 0;
  Rotates rotates = Rotates::all;
  int still_interval = 4;  ///< every how manieth layer does not rotate

  std::optional<double> softmax_scale{};          ///< a constant of the code
  std::string_view scale_key{};                   ///< spelling of the softmax scale itself
  std::optional<double> query_pre_attn_scalar{};  ///< softmax scale is its -1/2 power; the value when the file has no key
  std::optional<double> softcap{};                ///< when the file has no key
  bool sink_logits = false;
  bool length_is_scaled = false;                  ///< max_position_embeddings stands after linear scaling
  std::vector<std::string_view> expected_keys{};  ///< that every released file states: without them it was trimmed

  // Spellings that go before those every family may use.
  std::vector<std::string_view> hidden_keys{}, layer_keys{}, head_keys{}, length_keys{};
  bool has_no_attention = false;  ///< in any layer
  bool is_image = false;          ///< positions are patches: no length, and the hook knows their number

  /// Shape that no spelling of a single number tells.
  void (*shape)(HfContext&) = nullptr;
  /// What no field above can say of a config.json; runs when all else was read.
  void (*hook)(HfContext&) = nullptr;
};

/// Null for a name no family has.
const Family* family_of_model_type(std::string_view model_type);
const Family* family_of_class(std::string_view class_name);
const Family* family_of_architecture(std::string_view architecture);
/// The family of a vision or audio tower that does not name its own type.
const Family* family_of_tower(std::string_view model_type);

// One group of related families each.
std::vector<Family> llama_families();
std::vector<Family> mistral_families();
std::vector<Family> qwen_families();
std::vector<Family> gemma_families();
std::vector<Family> phi_families();
std::vector<Family> gpt_families();
std::vector<Family> deepseek_families();
std::vector<Family> glm_families();
std::vector<Family> alternating_families();
std::vector<Family> hybrid_families();
std::vector<Family> alibi_families();
std::vector<Family> encoder_families();
std::vector<Family> encoder_decoder_families();
std::vector<Family> vision_families();

}  // namespace gnomon::files
