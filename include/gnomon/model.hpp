// SPDX-License-Identifier: Apache-2.0
// ⑤ Model files: from what a checkpoint says to the effective position set-up of each layer, with its origins and contradictions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/spec.hpp"

namespace gnomon {

/// error: numbers cannot be trusted or made; warning: engines will disagree or a user is likely wrong; note: a documented default or
/// alias was used, or one engine ignores a key.
enum class Level { note, warning, error };
template <>
inline constexpr std::string_view enum_names<Level>[] = {"note", "warning", "error"};

/// Two readings of one file, where frequencies are in doubt.
struct Dispute {
  RotarySpec used, other;   ///< the set-up reported here, and that of an engine that reads the file otherwise
  std::int64_t length = 0;  ///< the derived one, else the declared one, else 4096
};

/// What a doubt about frequencies costs: how far the scores of the other reading drift from those of the one used, as the mean cosine over
/// the channels of a head (Drift in analysis.hpp).
struct DriftCost {
  std::optional<std::int64_t> position;  ///< the first distance at which it is below 0.99; nothing where none was found
  std::int64_t distance = 0;             ///< the length of the dispute
  double mean_cosine = 1;                ///< at `distance`
};

/// Something in the files that is missing, contradictory or not understood. Codes are stable and listed in docs/doubts.md.
struct Doubt {
  std::string code;  ///< one of list_doubts()
  Level level = Level::note;
  std::vector<std::string> keys;
  std::string message;
  std::optional<Dispute> dispute = std::nullopt;  ///< where frequencies are in doubt and another reading is known

  /// Computed when asked for: the search for a distance costs far more than reading the file.
  std::optional<DriftCost> cost() const;
};

/// What a code means, for surfaces and docs/doubts.md.
struct DoubtInfo {
  std::string_view code;
  Level level;
  std::string_view cause, cost, remedy;
};

/// Every code a reader can raise, in the order of docs/doubts.md.
std::span<const DoubtInfo> list_doubts();

/// Where a value came from. `how` is "read", "family default" or "derived"; `key` is what was read or derived from.
struct Origin {
  std::string how, file, key;
};

/// Layers of one part that share one set-up. Where `spec.rotary` is empty the layers do not rotate, or, beside a doubt of level error, the
/// numbers of their rotation cannot be made.
struct LayerGroup {
  std::string part;         ///< "encoder", "decoder", "text", "vision" or "audio" in a model of several parts, else empty
  std::vector<int> layers;  ///< of the part, from 0, ascending
  PositionSpec spec;
  std::map<std::string, Origin> origins;  ///< by field, as "rotary.theta"
};

/// The position set-up of a model. The shape is that of its main part: the text model, or the decoder.
struct Model {
  std::string path;
  std::string format;  ///< "hf", "gguf", "meta", … (docs/inspect.md)
  std::string type;    ///< "llama", "gemma3_text", … as the file spells it
  int layers = 0, heads = 0, kv_heads = 0, head_dim = 0, hidden_size = 0;
  std::optional<std::int64_t> declared;   ///< the length the file states
  std::optional<std::int64_t> derived;    ///< the length its scaling implies
  std::optional<std::int64_t> original;   ///< the trained length, where it is known
  std::vector<int> non_attention_layers;  ///< of its main part: state space, convolution, linear attention
  std::vector<LayerGroup> groups;
  std::vector<Doubt> doubts;
  std::vector<std::string> unread;  ///< keys about position that no rule understood

  /// The gravest level among the doubts, or nothing.
  std::optional<Level> worst() const;
};

/// Reads a file of any format of docs/inspect.md, found by its content, or a folder with the files of one model, whose contradictions
/// become doubts, as does what is not understood. Throws Error(io) for a path that cannot be read or a folder without a model, and
/// Error(malformed) for content of no format: bad or ambiguous JSON (a key twice, not UTF-8, not an object, over 64 MiB), a
/// truncated or inconsistent header.
Model read_model(const std::filesystem::path& path);

/// The same for the bytes of one file, which `name` stands for in origins and messages. Throws Error(malformed).
Model model_from(std::string_view bytes, const std::string& name);

/// The object `gnomon inspect --json` prints (docs/inspect.md), on one line.
std::string to_json(const Model& model);

/// One object of its "doubts".
std::string to_json(const Doubt& doubt);

/// The rotary spec of a model: of layer `layer` of its main part, or of the only rotary group there. Throws Error(invalid_argument) that
/// lists the groups when there are several and no layer was named, and when doubts of level error forbid to trust the numbers.
RotarySpec rotary_of(const Model& model, std::optional<int> layer = std::nullopt);

}  // namespace gnomon
