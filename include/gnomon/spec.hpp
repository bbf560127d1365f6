// SPDX-License-Identifier: Apache-2.0
// ② What a model declares about position, as plain values. Illegal combinations cannot be written; what only numbers can tell is
// found by validate().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gnomon/encodings/absolute.hpp"
#include "gnomon/encodings/bias.hpp"
#include "gnomon/encodings/rotary.hpp"

namespace gnomon {

/// Which channels form pair i of a rotation of width r: half_split (i, i + r/2), as NeoX and rotate_half; interleaved (2i, 2i + 1), as
/// GPT-J.
enum class PairLayout { half_split, interleaved };
template <>
inline constexpr std::string_view enum_names<PairLayout>[] = {"half_split", "interleaved"};

/// Which position axis drives which pair of an M-RoPE, whose frequencies run on through all pairs.
enum class SectionOrder {
  chunked,      ///< runs of pairs: axis 0 drives the first sections[0] of them (Qwen2-VL)
  interleaved,  ///< axes take turns: axis a > 0 drives pairs a, a + axes, … below axes * sections[a], axis 0 the rest (Qwen3-VL)
  time_last,    ///< the axes after 0, with as many pairs each, take turns: pair i is driven by 1 + i mod (axes - 1); axis 0 has the pairs
                ///< after theirs (ERNIE 4.5 VL)
};
template <>
inline constexpr std::string_view enum_names<SectionOrder>[] = {"chunked", "interleaved", "time_last"};

/// A rotary position embedding: the rule that gives the frequencies, and where they are applied.
struct RotarySpec {
  RotaryRule rule;
  double theta = 0;       ///< base; positive, or 0 for a rule without one
  int head_dim = 0;       ///< full width D of a query and key, 1 to widest_head
  int rotary_dim = 0;     ///< rotated channels: even, 2 to head_dim
  int rotary_offset = 0;  ///< first rotated channel; rotary_offset + rotary_dim <= head_dim
  PairLayout layout = PairLayout::half_split;
  std::optional<double> attention_factor = std::nullopt;  ///< magnitude on cos and sin, where it is not the one the rule implies

  /// Several position axes (image, video). `axes` = 1 with sections: M-RoPE, one list of frequencies shared out by section_order.
  /// `axes` > 1: axial, the frequencies begin anew for each axis, with sections[a] pairs or an equal share.
  int axes = 1;
  std::vector<int> sections = {};  ///< pairs of each axis; their sum is rotary_dim / 2
  SectionOrder section_order = SectionOrder::chunked;

  bool operator==(const RotarySpec&) const = default;
};

inline constexpr int widest_head = 65536;
inline constexpr int most_axes = 8;

/// How many position axes drive the pairs: 1 for text.
int position_axes(const RotarySpec& spec);

/// What the rule is run with: once, or once for each axis that has frequencies of its own.
std::vector<RuleInput> rule_inputs(const RotarySpec& spec, std::optional<std::int64_t> length = std::nullopt);

/// An absolute position embedding: rows of width C added to the input.
struct AbsoluteSpec {
  AbsoluteRule rule;
  int width = 0;  ///< C, the hidden size; 1 to widest_head
  bool operator==(const AbsoluteSpec&) const = default;
};

/// Which keys a query sees. A causal window W counts W keys, self included.
struct Mask {
  bool causal = true;
  std::optional<std::int64_t> window;
  std::optional<std::int64_t> chunk;
  std::int64_t keep_first = 0;
  bool operator==(const Mask&) const = default;
};

/// A query is multiplied by 1 + attn_scale ln(1 + floor((position + offset) / floor_scale)): Llama 4 where it does not rotate (offset 1),
/// Ministral 3 everywhere (offset 0).
struct StepTemperature {
  double attn_scale = 0;
  std::int64_t floor_scale = 1;
  std::int64_t offset = 0;
  bool operator==(const StepTemperature&) const = default;
};

/// A query is multiplied by max(1, ln(position + 1) / ln(length)): the log-n attention of Qwen 1.
struct LogTemperature {
  std::int64_t length = 2;
  bool operator==(const LogTemperature&) const = default;
};
using QueryTemperature = std::variant<StepTemperature, LogTemperature>;

/// Dual chunk attention: distances are remapped so that none is longer than a chunk. Source: An et al. 2024, arXiv:2402.17463.
struct DualChunk {
  std::int64_t chunk_size = 0;
  std::int64_t local_size = 0;
  std::int64_t original_max_position_embeddings = 0;
  bool operator==(const DualChunk&) const = default;
};

/// The position set-up of a layer.
struct PositionSpec {
  std::optional<AbsoluteSpec> absolute;  ///< what is added to the input of the model, or of its part
  std::optional<RotarySpec> rotary;
  std::optional<BiasRule> bias;
  Mask mask;
  double softmax_scale = 0;  ///< what q·k is multiplied by; 0: not known, or learned
  std::optional<double> softcap;
  bool sink_logits = false;  ///< a trained logit per head that only adds to the denominator of the softmax
  std::optional<QueryTemperature> query_temperature;
  bool rotates_values = false;
  bool rotates_output_back = false;  ///< the rotated channels of the output are turned back at the position of the query
  std::optional<DualChunk> dual_chunk;
  bool operator==(const PositionSpec&) const = default;
};

/// Throws Error(invalid_argument) that names the field, what was expected and what was got.
void validate(const RotarySpec& spec);
void validate(const AbsoluteSpec& spec);
void validate(const BiasRule& rule);

/// The magnitude in effect: the explicit one, else the one the rule implies (1 for most rules).
double effective_attention_factor(const RotarySpec& spec);

/// The rule's name: "default", "yarn", …
std::string_view rule_name(const RotaryRule& rule);
std::string_view rule_name(const AbsoluteRule& rule);
std::string_view rule_name(const BiasRule& rule);

/// Canonical JSON: one flat object with every field of the spec and its rule, self-contained, on one line; attention_factor is always
/// the effective one, theta is null for a rule without a base, axes and sections are there where the spec has several axes; numbers
/// read back to the same double.
std::string to_json(const RotarySpec& spec);
std::string to_json(const AbsoluteSpec& spec);
std::string to_json(const BiasRule& rule);

/// The set-up of a layer: absolute, rotary, bias, mask, softmax_scale and all else a PositionSpec holds, as `gnomon inspect --json` has it
/// in each group.
std::string to_json(const PositionSpec& spec);

/// Reads the canonical JSON. Strict: a duplicate, unknown or missing key, a wrong kind of value and any value validate() refuses are
/// Error(malformed) or Error(invalid_argument). rotary_dim defaults to head_dim, layout to half_split, rotary_offset to 0; an
/// attention_factor equal to what the rule implies is no override.
RotarySpec rotary_from_json(std::string_view text);
AbsoluteSpec absolute_from_json(std::string_view text);
BiasRule bias_from_json(std::string_view text);

/// One field of a rule, for surfaces that list them.
struct FieldInfo {
  std::string name;
  std::string type;  ///< "number", "boolean", "pair_index | turns", …
  std::string bound;
  std::string doc;
  bool required;
  std::string default_value;  ///< JSON text; empty where required
};

/// A rule as `gnomon list` and `gnomon explain` show it.
struct RuleInfo {
  std::string kind;  ///< "rotary", "absolute" or "bias"
  std::string name, summary, formula, citation;
  bool in_transformers;
  std::string numerics;                  ///< which of its numbers this library makes
  std::vector<FieldInfo> fields;         ///< of the rule
  std::vector<FieldInfo> common_fields;  ///< of every object of its kind
  std::string example;                   ///< canonical JSON with all that is required and nothing else
};

/// Every registered rule, in the order of its list.
std::vector<RuleInfo> list_rules();

}  // namespace gnomon
