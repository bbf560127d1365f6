// SPDX-License-Identifier: Apache-2.0
// One dialect, both ways. A writer says what is asked in an engine's words; a reader says what that engine runs when it reads them. A
// reader never sees what was asked, so their difference is what was lost. Sources of all dialects: documentation and code of the engines,
// as of August 2026.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/convert.hpp"

namespace gnomon::files {

using OrderedJson = nlohmann::ordered_json;

/// Layers that an engine tells apart, and what the model's own files, which stay beside the setting, say of them.
struct LayerFrame {
  std::string type;  ///< "full_attention", "sliding_attention" or "chunked_attention"
  RotarySpec own;
};

struct Frame {
  std::string model_type;                ///< as the file spells it; empty where it is not known
  std::string architecture;              ///< the prefix of its keys in GGUF; empty where it is not known
  std::string theta_key, fraction_key;   ///< how config.json spells the base and the partial width; no base: a constant of the code
  bool is_gguf = false;                  ///< that file is a GGUF
  std::optional<std::int64_t> declared;  ///< the length the model's files state
  std::vector<LayerFrame> layers;        ///< at least one; the first leads: it is without a window where there is such a one
};

struct Request {
  Frame frame;
  std::vector<RotarySpec> asked;  ///< of each of frame.layers
  std::int64_t context = 0;       ///< tokens the engine is to be set up for; 0: not known
};

/// What a writer has to say beside the setting. A loss counts when the read-back shows it, a certain one in any case.
class Remarks {
 public:
  struct Reason {
    std::size_t layer;
    std::string field, why;
    bool certain;
  };
  void lose(std::size_t layer, std::string field, std::string why) { reasons.push_back({layer, std::move(field), std::move(why), false}); }
  void lose_certainly(std::size_t layer, std::string field, std::string why) {
    reasons.push_back({layer, std::move(field), std::move(why), true});
  }
  void note(const std::string& text);

  std::vector<Reason> reasons;
  std::vector<std::string> notes;
};

/// What an engine runs: one spec for each layer of the frame; nothing where it refuses the setting.
using ReadBack = std::vector<std::optional<RotarySpec>>;

struct DialectFile {
  Form form;
  OrderedJson (*write)(const Request& request, Remarks& remarks);
  std::vector<ReadBack (*)(const OrderedJson& setting, const Frame& frame)> readers;  ///< one, or those that have to agree
};

extern const DialectFile transformers_dialect, transformers_v4_dialect, compatible_dialect, llama_cpp_dialect, gguf_dialect, vllm_dialect,
    exllama_dialect, mlx_dialect;

}  // namespace gnomon::files
