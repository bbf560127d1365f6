// SPDX-License-Identifier: Apache-2.0
// ③ Builders of angle positions for the ways tokens lie in memory: rows with padding, packed documents, chunks and windows behind a cache,
// shards of a context-parallel group, images and videos. A layout is a plain value that says what the tokens are; position_ids() makes
// their positions, check_ids() says what is wrong with ids made elsewhere.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gnomon/encodings/rule.hpp"
#include "gnomon/positions.hpp"

namespace gnomon {

/// Whole numbers that are equal only at first, for text without padding, and then taken for one another. So each has a type.
template <class Kind>
struct Whole {
  std::int64_t value = 0;
  auto operator<=>(const Whole&) const = default;
};
using AnglePosition = Whole<struct AnglePositionKind>;  ///< which turn of the dial a token stands at
using AxisValue = Whole<struct AxisValueKind>;          ///< the same on one of several axes; on text all of them are the angle position
using CacheSlot = Whole<struct CacheSlotKind>;          ///< where the token's key lies in its sequence's cache
using TokenCount = Whole<struct TokenCountKind>;        ///< how many tokens there are

/// Angle positions with their own memory, one per (axis, batch row, token), in this order.
struct PositionIds {
  std::vector<std::int64_t> values;  // (axes,B,T)
  std::int64_t axes = 1, batch = 1, tokens = 0;

  /// As operations take them; the ids must outlive the view.
  Positions view() const& { return Ids{values}; }
  Positions view() && = delete;
  AxisValue at(std::int64_t axis, std::int64_t row, std::int64_t token) const {
    return {values[static_cast<std::size_t>((axis * batch + row) * tokens + token)]};
  }
  bool operator==(const PositionIds&) const = default;
};

/// The same positions on each of several axes: text in a model with M-RoPE. Throws Error(invalid_argument) unless ids have one axis.
PositionIds on_axes(const PositionIds& ids, std::int64_t axes);

/// Positions of some tokens of every row, by their indexes in it. Throws Error(out_of_range) that names the index.
PositionIds take(const PositionIds& ids, std::span<const std::int64_t> indexes);

/// Where the next token of a sequence goes.
struct SequenceState {
  AnglePosition position;
  CacheSlot slot;
  TokenCount tokens;  ///< so far, without padding

  /// What transformers calls rope_delta: position − tokens, 0 for text.
  std::int64_t rope_delta() const { return position.value - tokens.value; }
  bool operator==(const SequenceState&) const = default;
};

/// The state after some more tokens of text, as drafts that were accepted. Throws Error(invalid_argument) for a state or a number of tokens
/// below 0 or above 2^33.
SequenceState advanced(const SequenceState& state, TokenCount accepted);

// --- Rows of text: padding and packing ---------------------------------------------------------------------------------------------------

enum class PaddingSide { left, right };
template <>
inline constexpr std::string_view enum_names<PaddingSide>[] = {"left", "right"};

/// Rows of equal width. The position of a token is how many tokens of its document stand before it in its row.
struct TextBatch {
  std::int64_t batch = 1, tokens = 0;
  std::vector<std::int64_t> documents;  ///< (B,T): 0 is padding, another number the document: an attention mask, or segment ids
  AnglePosition padding{0};             ///< what padding gets; any valid position does, as padding is masked

  bool operator==(const TextBatch&) const = default;
};

/// One prompt per row, padded to the longest or to `width`. Throws Error(invalid_argument) for a negative length or one beyond the width.
TextBatch padded_batch(std::span<const TokenCount> lengths, PaddingSide side, std::optional<TokenCount> width = std::nullopt);

/// One row of documents, one after the other, padded on the right to `width` if one is given. Throws as padded_batch does.
TextBatch packed_row(std::span<const TokenCount> lengths, std::optional<TokenCount> width = std::nullopt);

/// Where each document begins, from 0, and where the last one ends (documents + 1). Throws Error(invalid_argument) for a negative length
/// and Error(out_of_range) for more than 2^31 − 1 tokens.
std::vector<std::int32_t> cu_seqlens(std::span<const TokenCount> lengths);

/// (1,B,T). Throws Error(invalid_argument) unless there is a document for each token of the rows.
PositionIds position_ids(const TextBatch& batch);

/// Where the next token of each row (B) goes, in a cache that keeps padding: slot T, whatever the row's length. Throws
/// Error(invalid_argument) for a row of several documents.
std::vector<SequenceState> next_states(const TextBatch& batch);

/// Rows (B,T) of a learned table whose position 0 is row `offset`: 2 for OPT, padding_idx + 1 for RoBERTa, XLM-R, ESM, MPNet and
/// Longformer. Both give padding the row before it (OPT 1, RoBERTa padding_idx). BART counts padding: give it a batch without any. Throws
/// Error(invalid_argument) for an offset below 0, and for padding at offset 0.
std::vector<std::int64_t> table_rows(const TextBatch& batch, std::int64_t offset);

// --- Behind a cache: chunked prefill, decode, drafts -------------------------------------------------------------------------------------

/// New tokens of one sequence.
struct NewTokens {
  SequenceState state;
  TokenCount tokens{1};
  std::vector<std::int64_t> parents;  ///< empty: one after the other; else a draft tree: which new token each follows, −1 the cached text

  bool operator==(const NewTokens&) const = default;
};

/// One step of an engine: the new tokens of its sequences in one row, each sequence behind what its cache holds. A chunk of a prompt, one
/// decoded token and a window of drafts are the same thing with other counts.
struct CacheStep {
  std::vector<NewTokens> sequences;

  bool operator==(const CacheStep&) const = default;
};

/// A prompt in chunks of equal size, the last one shorter; one CacheStep each. Throws Error(invalid_argument) for a chunk below 1 or a
/// negative prompt.
std::vector<NewTokens> prefill_chunks(const SequenceState& state, TokenCount prompt, TokenCount chunk);

/// (1,1,N), N new tokens in all: state.position + index, in a tree + depth. Throws Error(invalid_argument) for a negative number, a number
/// of parents that is not that of the tokens, and a parent that does not stand before its child.
PositionIds position_ids(const CacheStep& step);

/// (N): state.slot + index, in a tree too: candidates for one position have keys of their own. Throws as position_ids does.
std::vector<CacheSlot> cache_slots(const CacheStep& step);

// --- Context parallel --------------------------------------------------------------------------------------------------------------------

/// A packed row cut for balanced causal work: every document in 2 · ranks chunks, of which rank k holds chunks k and 2 · ranks − 1 − k.
/// Source: Dubey et al. 2024, The Llama 3 Herd of Models, arXiv:2407.21783, section 3.3.2.
struct ContextParallel {
  std::vector<std::int32_t> cu_seqlens;  ///< (documents + 1); {0, T} for one sequence
  std::int64_t ranks = 1, rank = 0;

  bool operator==(const ContextParallel&) const = default;
};

/// The tokens of the packed row that the rank holds, by their indexes in it. Throws Error(invalid_argument) for bounds that are none, a
/// rank that is none, and a document whose length is no multiple of 2 · ranks: the message says what to pad it to.
std::vector<std::int64_t> packed_tokens(const ContextParallel& shard);

/// (1,1,N): positions of those tokens in their documents. For ids of several axes, or from an offset on, take(ids, packed_tokens(shard)).
PositionIds position_ids(const ContextParallel& shard);

// --- Images and videos: M-RoPE -----------------------------------------------------------------------------------------------------------

/// Families by how their ids are made. qwen3_vl also stands for Qwen3.5, glm4v for GLM-4.1V, 4.5V and 4.6V.
enum class VisionFamily { qwen2_vl, qwen2_5_vl, qwen3_vl, glm4v, ernie4_5_vl };
template <>
inline constexpr std::string_view enum_names<VisionFamily>[] = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v", "ernie4_5_vl"};
constexpr std::string_view name_of(VisionFamily family) { return enum_names<VisionFamily>[static_cast<int>(family)]; }

/// Whose behaviour. They agree on text, still images and videos of single frames, and differ in two points on other videos:
///
///   version            position after a block of grid (t,h,w)    temporal value of frame k
///   original           its largest value on any axis + 1         ⌊k · seconds · tokens_per_second⌋
///   transformers-5.0   its largest value on any axis + 1         k · tokens_per_second · ⌊seconds⌋
///   transformers-5.3   start + max(h, w)                         k · tokens_per_second · ⌊seconds⌋
///   transformers-5.24  start + max(h, w)                         ⌊k · (tokens_per_second · seconds)⌋
///
/// `original` is the models' own code, vLLM and SGLang; products are float32, as theirs. transformers-5.3 is that release and its
/// successors until transformers/pull/48669 (September 2026), without the stills of 5.3 and 5.4 whose start was scaled (issue 45325).
enum class MropeVersion { original, transformers_5_0, transformers_5_3, transformers_5_24 };
template <>
inline constexpr std::string_view enum_names<MropeVersion>[] = {"original", "transformers-5.0", "transformers-5.3", "transformers-5.24"};
constexpr std::string_view name_of(MropeVersion version) { return enum_names<MropeVersion>[static_cast<int>(version)]; }

/// What of a model's config its ids depend on.
struct VisionModel {
  VisionFamily family = VisionFamily::qwen2_vl;
  MropeVersion version = MropeVersion::original;
  std::int64_t spatial_merge = 2;                ///< vision_config.spatial_merge_size
  std::optional<std::int64_t> temporal_merge{};  ///< of videos, Ernie only (else an error); 2 when left out
  std::optional<double> tokens_per_second{};     ///< Qwen2.5-VL only (else an error); 2 when left out, as its models say

  bool operator==(const VisionModel&) const = default;
};

/// Patches before merging, as image_grid_thw has them.
struct Grid {
  std::int64_t t = 1, h = 1, w = 1;
  bool operator==(const Grid&) const = default;
};

/// What a row of tokens consists of. Tokens that mark the start or end of an image, and timestamps, are text.
struct TextRun {
  TokenCount tokens;
  bool operator==(const TextRun&) const = default;
};
struct ImageRun {
  Grid grid;
  bool operator==(const ImageRun&) const = default;
};
/// Families that write a timestamp before each frame (qwen3_vl, glm4v) have a video of t = 1 for each.
struct VideoRun {
  Grid grid;
  double second_per_grid = 1;  ///< seconds between temporal patches: temporal_patch_size / fps. Used by Qwen2.5-VL only
  bool operator==(const VideoRun&) const = default;
};
using TokenRun = std::variant<TextRun, ImageRun, VideoRun>;

/// Rows of text, images and videos, padded to equal width.
struct VisionBatch {
  VisionModel model;
  std::vector<std::vector<TokenRun>> rows;  ///< (B)
  std::int64_t tokens = 0;                  ///< T
  std::vector<std::uint8_t> mask;           ///< (B,T): 1 for the tokens of the runs, 0 for padding, whose ids are 0

  bool operator==(const VisionBatch&) const = default;
};

/// Rows padded on one side. Throws Error(invalid_argument) for a bad model or run, as position_ids does.
VisionBatch vision_batch(const VisionModel& model, std::vector<std::vector<TokenRun>> rows, PaddingSide side);

/// What processors hand out: per token (B,T) −1 for padding, 0 text, 1 image, 2 video, and the grids of images and videos in the order of
/// their tokens, row after row. A video of a family with timestamps is split into its frames. second_per_grid: one per video, or empty (1).
/// Throws Error(invalid_argument) where tokens and grids do not match, and says how.
VisionBatch vision_batch(const VisionModel& model, std::int64_t batch, std::span<const std::int8_t> token_types,
                         std::span<const Grid> images, std::span<const Grid> videos, std::span<const double> second_per_grid = {});

/// How many tokens a run has. Throws Error(invalid_argument) for a grid that merging does not divide, a bad model, and a video of several
/// frames in a family with timestamps.
TokenCount token_count(const VisionModel& model, const TokenRun& run);

/// (3,B,T): axes time, height, width. Throws what token_count throws, and Error(invalid_argument) where the mask does not fit the rows.
/// Source: Wang et al. 2024, Qwen2-VL, arXiv:2409.12191, section 2.1; Bai et al. 2025, Qwen2.5-VL, arXiv:2502.13923, section 2.1.2.
PositionIds position_ids(const VisionBatch& batch);

/// Where the next token of each row (B) goes: position one beyond the row's largest value on any axis, slot T.
std::vector<SequenceState> next_states(const VisionBatch& batch);

// --- The reverse check -------------------------------------------------------------------------------------------------------------------

using IdLayout = std::variant<TextBatch, CacheStep, ContextParallel, VisionBatch>;

/// 1 for each token (B,T) that is no padding, 0 for the others; empty for layouts without padding.
std::vector<std::uint8_t> padding_mask(const IdLayout& layout);

/// A known way to get ids wrong that gives exactly the ids at hand.
struct IdMistake {
  std::string code;     ///< "padding-counted"
  std::string message;  ///< a sentence for people
};

struct IdDifference {
  std::int64_t axis = 0, row = 0, token = 0;
  AxisValue expected, got;
};

struct IdReport {
  std::int64_t compared = 0, different = 0;  ///< ids, those of padding left out
  std::optional<IdDifference> first;
  std::vector<IdMistake> mistakes;  ///< what explains them, all that fit; empty where nothing known does

  bool right() const { return different == 0 && mistakes.empty(); }
};

/// Compares ids with those of a layout. Padding may have any position that is valid: a negative one is a mistake unless the layout has it.
/// Ids of another shape are one too, as then there is nothing to compare. Throws what position_ids throws for the layout, and
/// Error(invalid_argument) for ids whose number is not that of their shape.
IdReport check_ids(const PositionIds& given, const IdLayout& layout);

/// Every code of check_ids with what it means, in the order they are tried.
std::vector<IdMistake> list_id_mistakes();

}  // namespace gnomon
