// SPDX-License-Identifier: Apache-2.0
// What llama.cpp's code knows about an architecture and its GGUF files do not say: one entry each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gnomon::files {

/// How ggml pairs channels ("rope type"). glm and glm_moe depend on whether the file has sections.
enum class GgufPairs {
  none,     ///< no layer rotates
  norm,     ///< interleaved
  neox,     ///< half_split
  mrope,    ///< half_split, sections in runs
  imrope,   ///< half_split, sections take turns
  glm,      ///< mrope with sections, norm without
  glm_moe,  ///< mrope with sections, neox without
};

/// What enters besides a rotation.
enum class GgufExtra {
  none,
  learned,   ///< rows of position_embd.weight
  alibi,     ///< a slope per head; maximum 8 unless the file has a key
  optional,  ///< learned rows where the tensor is there, slopes where the key is there
  t5,        ///< a table of buckets
};

enum class GgufWindow {
  none,       ///< the code masks nothing, even when the file states a window
  causal,     ///< W keys, self included
  symmetric,  ///< W / 2 keys on each side
  chunked,
};

struct GgufArchitecture {
  std::string_view name;
  GgufPairs pairs = GgufPairs::neox;
  GgufExtra extra = GgufExtra::none;
  std::optional<double> theta{};  ///< where released files state none; otherwise a missing base is an error
  bool causal = true;

  GgufWindow window = GgufWindow::none;
  int period = 0;                             ///< every period-th layer sees everything; 0: no layer does
  bool full_first = false;                    ///< it is the first of each period instead of the last
  std::optional<std::int64_t> window_size{};  ///< when the file has no key
  std::optional<double> sliding_theta{};      ///< base of sliding layers when the file has no key; they are not scaled then
  bool sliding_unscaled = false;              ///< sliding layers are not scaled, whatever their base

  int still_period = 0;            ///< every n-th layer does not rotate
  bool full_layers_still = false;  ///< only sliding layers rotate, where the file has a window
  int layers_with_alibi = 0;       ///< a model of that many layers has slopes and does not rotate
  int attention_period = 0;        ///< only every n-th layer is attention
  bool no_attention = false;       ///< no layer is

  bool latent = false;                    ///< MLA: the rotated channels are the last of a head
  std::optional<double> softmax_scale{};  ///< when it is not head_dim^-1/2 and the file has no key
  int layers_scaled_by_width = 0;         ///< a model of that many layers has (hidden_size / heads)^-1/2
  std::optional<double> softcap{};        ///< when the file has no key
  bool truncate = true;                   ///< yarn's ramp is bounded by whole pairs, in training
};

/// Null for a name llama.cpp does not have.
const GgufArchitecture* gguf_architecture(std::string_view name);

/// What llama.cpp's converter calls a model_type of config.json; empty for one that is not known to have a name there.
std::string_view gguf_name_of(std::string_view model_type);

}  // namespace gnomon::files
