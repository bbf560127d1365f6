// SPDX-License-Identifier: Apache-2.0
// ⑤ Translation: the rotary setting of a model as another engine wants it, and what that engine makes of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/model.hpp"

namespace gnomon {

/// Who is to read the setting.
enum class Dialect {
  transformers,     ///< version 5: keys of config.json, rope_parameters
  transformers_v4,  ///< version 4: keys of config.json, rope_theta and rope_scaling
  llama_cpp,        ///< flags of the programs of llama.cpp, for a GGUF of the model
  gguf,             ///< key-value pairs and tensors of a GGUF file
  vllm,             ///< flags of vLLM
  exllama,          ///< settings of ExLlama's loaders, beside the model's config.json
  mlx,              ///< keys of config.json as mlx-lm reads them
};
template <>
inline constexpr std::string_view enum_names<Dialect>[] = {"transformers", "transformers-v4", "llama.cpp", "gguf",
                                                           "vllm",         "exllama",         "mlx"};

/// The inverse of the name. Throws Error(invalid_argument) that lists the names.
Dialect dialect_of(std::string_view name);

/// How a setting is written: keys of a JSON object, arguments of a command, or typed keys and tensors of a GGUF file.
enum class Form { json, flags, keys };
template <>
inline constexpr std::string_view enum_names<Form>[] = {"json", "flags", "keys"};

struct ConvertOptions {
  std::string method = "none";          ///< what is asked instead of the model's own rule, as with_method() reads it
  std::optional<std::int64_t> context;  ///< tokens the engine is to be set up for; without one, the length that the setting reaches
  bool compatible = false;              ///< transformers only: one config that versions 4 and 5 read alike
};

/// What an engine does otherwise than asked.
struct Loss {
  std::vector<int> layers;
  std::string field;    ///< "frequencies", "attention_factor", "width", "axes", "decay", "dual_chunk"
  std::string message;  ///< why, and what runs instead

  /// For frequencies: how far scores drift. Mean over the channels of the cosine of the angle error at the distance `at`, and the first
  /// distance at which it has fallen by more than 1 %, if there is one.
  std::optional<double> mean_cosine;
  std::int64_t at = 0;
  std::optional<std::int64_t> apart_from;
};

/// Layers that share a rotary setting: what was asked for, and what the engine runs when it reads what was written.
struct ConvertedLayers {
  std::vector<int> layers;
  RotarySpec asked;
  std::optional<RotarySpec> runs;  ///< nothing: the engine refuses the setting
};

struct Conversion {
  Dialect dialect = Dialect::transformers;
  Form form = Form::json;
  std::string text;          ///< as it is pasted: an object, arguments quoted for a shell, or one key a line
  std::string setting;       ///< the same as a JSON value on one line: an object, a list of arguments, a list of keys
  std::int64_t context = 0;  ///< tokens the setting is for; 0 where the model states no length
  std::vector<ConvertedLayers> layers;
  std::vector<Loss> losses;        ///< empty: the engine runs what was asked for
  std::vector<std::string> notes;  ///< other spellings of the same, and what stays in the model's own files
};

/// Writes the rotary setting of a model's main part in a dialect, reads it back as that engine does, and lists every difference as a loss:
/// frequencies by more than 1e-6 of their value at the first position or at the full context, magnitudes by more than 1e-6. Widths, pair
/// layout and all that does not rotate are the engine's own code for the model and stay there. A method changes all layers that rotate
/// where these agree, else those without a window.
/// Throws Error(invalid_argument) for a bad method, `compatible` with another dialect, and doubts of level error; Error(unsupported) for
/// a model that does not rotate and for frequencies that have no name in the dialect.
Conversion convert(const Model& model, Dialect dialect, const ConvertOptions& options = {});

/// The same for one rotary spec on its own, as of a model without other files.
Conversion convert(const RotarySpec& spec, Dialect dialect, const ConvertOptions& options = {});

/// The object `gnomon convert --json` prints (docs/convert.md), on one line.
std::string to_json(const Conversion& conversion);

}  // namespace gnomon
