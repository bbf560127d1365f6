// SPDX-License-Identifier: Apache-2.0
// The reverse check: ids against those of a layout, and the known mistakes that would have given them. A mistake is a line in a table.
#include <algorithm>
#include <functional>
#include <numeric>

#include "plan/ids.hpp"
#include "plan/round.hpp"

namespace gnomon {
namespace {

/// Whether the ids at hand are these, padding aside.
using Fits = std::function<bool(const PositionIds&)>;

template <class Layout>
struct Mistake {
  std::string_view code, message;
  bool (*explains)(const Layout& layout, const PositionIds& right, const Fits& fit);
};

/// Every id by itself.
PositionIds mapped(PositionIds ids, const std::function<std::int64_t(std::int64_t)>& change) {
  std::transform(ids.values.begin(), ids.values.end(), ids.values.begin(), change);
  return ids;
}

/// Every id from its place.
PositionIds placed(PositionIds ids, const std::function<std::int64_t(std::int64_t axis, std::int64_t row, std::int64_t token)>& value) {
  auto next = ids.values.begin();
  for (std::int64_t axis = 0; axis < ids.axes; axis++) {
    for (std::int64_t row = 0; row < ids.batch; row++) {
      for (std::int64_t token = 0; token < ids.tokens; token++) *next++ = value(axis, row, token);
    }
  }
  return ids;
}

/// Rounded to an element type; what overflows in it stays, so that it explains nothing.
template <class Element>
std::int64_t through(std::int64_t position) {
  const auto rounded = static_cast<double>(widen(round<Element>(static_cast<double>(position))));
  return std::isfinite(rounded) ? static_cast<std::int64_t>(rounded) : position;
}

constexpr Mistake<IdLayout> common[] = {
    {"one-too-many", "every position is one too large: counting began at 1, or the token was counted before it got its position",
     [](const IdLayout&, const PositionIds& right, const Fits& fit) { return fit(mapped(right, [](auto p) { return p + 1; })); }},
    {"one-too-few", "every position is one too small: those of the tokens before",
     [](const IdLayout&, const PositionIds& right, const Fits& fit) { return fit(mapped(right, [](auto p) { return p - 1; })); }},
    {"offset-included", "every position is two too large: these are rows of a learned table (OPT, RoBERTa), and its offset is added again",
     [](const IdLayout&, const PositionIds& right, const Fits& fit) { return fit(mapped(right, [](auto p) { return p + 2; })); }},
    {"rounded-to-bf16", "the positions went through bf16, where whole numbers above 256 are no longer apart",
     [](const IdLayout&, const PositionIds& right, const Fits& fit) { return fit(mapped(right, through<Bf16>)); }},
    {"rounded-to-f16", "the positions went through f16, where whole numbers above 2048 are no longer apart",
     [](const IdLayout&, const PositionIds& right, const Fits& fit) { return fit(mapped(right, through<F16>)); }},
    {"rounded-to-f32", "the positions went through f32, where whole numbers above 16777216 are no longer apart",
     [](const IdLayout&, const PositionIds& right, const Fits& fit) { return fit(mapped(right, through<float>)); }},
    {"rows-before-axes", "the ids lie in the order (B, axes, T); expected (axes, B, T)",
     [](const IdLayout&, const PositionIds& right, const Fits& fit) {
       const auto moved = [&](std::int64_t axis, std::int64_t row, std::int64_t token) {
         const std::int64_t list = axis * right.batch + row;
         return right.at(list % right.axes, list / right.axes, token).value;
       };
       return fit(placed(right, moved));
     }},
};

constexpr Mistake<TextBatch> of_text[] = {
    {"padding-counted", "padding counts: positions are the columns of the row; expected the number of tokens before, without padding",
     [](const TextBatch& batch, const PositionIds& right, const Fits& fit) {
       const bool padded = std::find(batch.documents.begin(), batch.documents.end(), 0) != batch.documents.end();
       return padded && fit(placed(right, [](auto, auto, auto token) { return token; }));
     }},
    {"documents-run-on", "positions run on from one packed document to the next; expected 0 at the start of each",
     [](const TextBatch& batch, const PositionIds&, const Fits& fit) {
       TextBatch joined = batch;
       for (auto& document : joined.documents) document = document == 0 ? 0 : 1;
       return fit(position_ids(joined));
     }},
    {"rows-run-on", "positions run on from one row of the batch to the next; expected 0 at the start of each",
     [](const TextBatch& batch, const PositionIds& right, const Fits& fit) {
       return batch.batch > 1 && fit(placed(right, [&](auto, auto row, auto token) { return row * batch.tokens + token; }));
     }},
};

/// The same step with other sequences.
CacheStep changed(CacheStep step, const std::function<void(NewTokens&)>& change) {
  std::for_each(step.sequences.begin(), step.sequences.end(), change);
  return step;
}

constexpr Mistake<CacheStep> of_cache[] = {
    {"slot-as-position", "positions are cache slots; they differ where the cache keeps padding, dropped tokens, or holds images",
     [](const CacheStep& step, const PositionIds&, const Fits& fit) {
       return fit(position_ids(changed(step, [](auto& added) { added.state.position = {added.state.slot.value}; })));
     }},
    {"count-as-position", "positions go on from the token count; after an image they go on from its largest position",
     [](const CacheStep& step, const PositionIds&, const Fits& fit) {
       return fit(position_ids(changed(step, [](auto& added) { added.state.position = {added.state.tokens.value}; })));
     }},
    {"longest-for-all", "every sequence goes on from the longest one; expected each from its own end",
     [](const CacheStep& step, const PositionIds&, const Fits& fit) {
       AnglePosition longest;
       for (const auto& added : step.sequences) longest = std::max(longest, added.state.position);
       return fit(position_ids(changed(step, [&](auto& added) { added.state.position = longest; })));
     }},
    {"restarted", "positions begin at 0 again, as if nothing were cached",
     [](const CacheStep& step, const PositionIds&, const Fits& fit) {
       return fit(position_ids(changed(step, [](auto& added) { added.state.position = {0}; })));
     }},
    {"tree-as-chain", "drafts of a tree are counted one after the other; expected the depth of each, as only one path is accepted",
     [](const CacheStep& step, const PositionIds&, const Fits& fit) {
       return fit(position_ids(changed(step, [](auto& added) { added.parents.clear(); })));
     }},
    {"window-stands-still", "all new tokens of a sequence stand at its first position",
     [](const CacheStep& step, const PositionIds&, const Fits& fit) {
       return fit(position_ids(changed(
           step, [](auto& added) { added.parents.assign(static_cast<std::size_t>(std::max<std::int64_t>(added.tokens.value, 0)), -1); })));
     }},
};

/// The positions in their documents of tokens of the packed row.
PositionIds in_documents(const ContextParallel& shard, const std::vector<std::int64_t>& indexes) {
  PositionIds ids{{}, 1, 1, static_cast<std::int64_t>(indexes.size())};
  for (const auto index : indexes) {
    const auto after = std::upper_bound(shard.cu_seqlens.begin(), shard.cu_seqlens.end(), index);
    ids.values.push_back(index - *(after - 1));
  }
  return ids;
}

constexpr Mistake<ContextParallel> of_context_parallel[] = {
    {"packed-index-as-position", "positions are indexes in the packed row; they choose rows of a table made for it, and are no angles",
     [](const ContextParallel& shard, const PositionIds& right, const Fits& fit) {
       const auto indexes = packed_tokens(shard);
       return fit(placed(right, [&](auto, auto, auto token) { return indexes[static_cast<std::size_t>(token)]; }));
     }},
    {"counted-on-the-rank", "positions count the rank's own tokens; expected where these stand in their documents",
     [](const ContextParallel&, const PositionIds& right, const Fits& fit) {
       return fit(placed(right, [](auto, auto, auto token) { return token; }));
     }},
    {"one-chunk-per-rank", "the rank has one stretch of every document; expected two chunks, one from the front and one from the back",
     [](const ContextParallel& shard, const PositionIds&, const Fits& fit) {
       std::vector<std::int64_t> indexes;
       for (std::size_t d = 1; d < shard.cu_seqlens.size(); d++) {
         const std::int64_t begin = shard.cu_seqlens[d - 1], size = (shard.cu_seqlens[d] - begin) / shard.ranks;
         for (std::int64_t i = 0; i < size; i++) indexes.push_back(begin + shard.rank * size + i);
       }
       return fit(in_documents(shard, indexes));
     }},
    {"row-cut-as-one", "the packed row was cut as one sequence; expected every document cut by itself",
     [](const ContextParallel& shard, const PositionIds&, const Fits& fit) {
       return fit(in_documents(shard, packed_tokens({{0, shard.cu_seqlens.back()}, shard.ranks, shard.rank})));
     }},
    {"another-rank", "these are the positions of another rank",
     [](const ContextParallel& shard, const PositionIds&, const Fits& fit) {
       for (std::int64_t rank = 0; rank < shard.ranks; rank++) {
         if (rank != shard.rank && fit(position_ids(ContextParallel{shard.cu_seqlens, shard.ranks, rank}))) return true;
       }
       return false;
     }},
};

/// Calls visit(run, tokens before it in the row, columns of its tokens) for every run of a row.
void for_each_run(const VisionBatch& batch, std::int64_t row, const auto& visit) {
  std::vector<std::int64_t> columns;
  for (std::int64_t t = 0; t < batch.tokens; t++) {
    if (batch.mask[static_cast<std::size_t>(row * batch.tokens + t)] != 0) columns.push_back(t);
  }
  std::size_t before = 0;
  for (const auto& run : batch.rows[static_cast<std::size_t>(row)]) {
    const auto number = static_cast<std::size_t>(token_count(batch.model, run).value);
    if (number > 0) visit(run, before, std::span(columns).subspan(before, number));
    before += number;
  }
}

/// The right ids, moved run by run and axis by axis: by change(run, tokens before it, its first position, axis).
PositionIds moved_runs(const VisionBatch& batch, const PositionIds& right,
                       std::int64_t (*change)(const TokenRun&, std::int64_t, std::int64_t, std::int64_t)) {
  PositionIds ids = right;
  for (std::int64_t row = 0; row < right.batch; row++) {
    for_each_run(batch, row, [&](const TokenRun& run, std::size_t before, std::span<const std::int64_t> columns) {
      const std::int64_t start = right.at(1, row, columns[0]).value;
      for (std::int64_t axis = 0; axis < 3; axis++) {
        const std::int64_t delta = change(run, static_cast<std::int64_t>(before), start, axis);
        for (const auto column : columns) ids.values[static_cast<std::size_t>((axis * right.batch + row) * right.tokens + column)] += delta;
      }
    });
  }
  return ids;
}

void transpose(TokenRun& run) {
  if (auto* image = std::get_if<ImageRun>(&run)) std::swap(image->grid.h, image->grid.w);
  if (auto* video = std::get_if<VideoRun>(&run)) std::swap(video->grid.h, video->grid.w);
}

bool axes_fit(const PositionIds& right, const Fits& fit, std::array<std::int64_t, 3> order) {
  return fit(
      placed(right, [&](auto axis, auto row, auto token) { return right.at(order[static_cast<std::size_t>(axis)], row, token).value; }));
}

template <MropeVersion version>
bool is_version(const VisionBatch& batch, const PositionIds&, const Fits& fit) {
  VisionBatch other = batch;
  other.model.version = version;
  return fit(position_ids(other));
}

constexpr Mistake<VisionBatch> of_vision[] = {
    {"version-original", "these are the ids of behaviour version original", is_version<MropeVersion::original>},
    {"version-transformers-5.0", "these are the ids of behaviour version transformers-5.0", is_version<MropeVersion::transformers_5_0>},
    {"version-transformers-5.3", "these are the ids of behaviour version transformers-5.3", is_version<MropeVersion::transformers_5_3>},
    {"version-transformers-5.24", "these are the ids of behaviour version transformers-5.24", is_version<MropeVersion::transformers_5_24>},
    {"seconds-ignored", "frames of a video are one apart; expected tokens_per_second times the seconds between them",
     [](const VisionBatch& batch, const PositionIds&, const Fits& fit) {
       if (batch.model.family != VisionFamily::qwen2_5_vl) return false;
       VisionBatch other = batch;
       other.model.family = VisionFamily::qwen2_vl;
       other.model.tokens_per_second.reset();
       return fit(position_ids(other));
     }},
    {"stills-scaled", "the temporal value of still images is multiplied by tokens_per_second (transformers 5.3); a still has no time",
     [](const VisionBatch& batch, const PositionIds& right, const Fits& fit) {
       const double per_second = batch.model.tokens_per_second.value_or(2);
       const bool whole = per_second == std::floor(per_second) && per_second < 65536;
       PositionIds ids = right;
       for (std::int64_t row = 0; row < right.batch; row++) {
         for_each_run(batch, row, [&](const TokenRun& run, std::size_t, std::span<const std::int64_t> columns) {
           if (!std::holds_alternative<ImageRun>(run)) return;
           for (const auto c : columns)
             ids.values[static_cast<std::size_t>(row * right.tokens + c)] *= static_cast<std::int64_t>(per_second);
         });
       }
       return whole && fit(ids);
     }},
    {"text-only", "all axes count tokens: images and videos are treated as text",
     [](const VisionBatch& batch, const PositionIds& right, const Fits& fit) {
       TextBatch text{right.batch, right.tokens, {batch.mask.begin(), batch.mask.end()}, {}};
       return fit(on_axes(position_ids(text), 3));
     }},
    {"tokens-counted", "what follows an image goes on by the number of its tokens; expected its largest position and one more",
     [](const VisionBatch& batch, const PositionIds& right, const Fits& fit) {
       return fit(
           moved_runs(batch, right, [](const TokenRun&, std::int64_t before, std::int64_t start, std::int64_t) { return before - start; }));
     }},
    {"grid-transposed", "height and width of the grids are swapped; expected time, height, width as image_grid_thw has them",
     [](const VisionBatch& batch, const PositionIds&, const Fits& fit) {
       VisionBatch other = batch;
       for (auto& runs : other.rows) std::for_each(runs.begin(), runs.end(), transpose);
       return fit(position_ids(other));
     }},
    {"height-width-swapped", "the axes of height and width are swapped; expected time, height, width",
     [](const VisionBatch&, const PositionIds& right, const Fits& fit) { return axes_fit(right, fit, {0, 2, 1}); }},
    {"axes-reversed", "the axes are width, height, time; expected time, height, width",
     [](const VisionBatch&, const PositionIds& right, const Fits& fit) { return axes_fit(right, fit, {2, 1, 0}); }},
    {"padding-shifts", "padding counts: every position is too large by the padding before it",
     [](const VisionBatch& batch, const PositionIds& right, const Fits& fit) {
       std::int64_t before = 0;
       return fit(placed(right, [&](auto axis, auto row, auto token) {
         if (token == 0) before = 0;
         const bool real = batch.mask[static_cast<std::size_t>(row * batch.tokens + token)] != 0;
         return right.at(axis, row, token).value + (real ? before : before++);
       }));
     }},
};

constexpr std::string_view shape_code = "another-shape", negative_code = "negative-padding";
constexpr std::string_view
    shape_message = "the ids have another shape than the layout",
    negative_message = "padding has a negative position, which wraps round or leaves a table; any valid one does, as padding is masked";

template <class Layout>
std::span<const Mistake<Layout>> mistakes_of(const Layout&) {
  if constexpr (std::is_same_v<Layout, TextBatch>) return of_text;
  if constexpr (std::is_same_v<Layout, CacheStep>) return of_cache;
  if constexpr (std::is_same_v<Layout, ContextParallel>) return of_context_parallel;
  if constexpr (std::is_same_v<Layout, VisionBatch>) return of_vision;
}

std::string shape_of(const PositionIds& ids) { return fmt::format("({}, {}, {})", ids.axes, ids.batch, ids.tokens); }

bool same_shape(const PositionIds& a, const PositionIds& b) { return a.axes == b.axes && a.batch == b.batch && a.tokens == b.tokens; }

/// Goes through the ids of tokens that are no padding.
void compare(const PositionIds& right, const PositionIds& given, const std::vector<std::uint8_t>& mask, IdReport& report) {
  const std::int64_t plane = right.batch * right.tokens;
  for (std::int64_t i = 0; i < plane * right.axes; i++) {
    const std::int64_t place = i % plane;
    if (!mask.empty() && mask[static_cast<std::size_t>(place)] == 0) continue;
    const auto expected = right.values[static_cast<std::size_t>(i)], got = given.values[static_cast<std::size_t>(i)];
    report.compared++;
    if (expected == got) continue;
    report.different++;
    if (!report.first) report.first = {i / plane, place / right.tokens, place % right.tokens, {expected}, {got}};
  }
}

bool pads_below_zero(const PositionIds& right, const PositionIds& given, const std::vector<std::uint8_t>& mask) {
  const std::size_t plane = mask.size();
  for (std::size_t i = 0; plane > 0 && i < given.values.size(); i++) {
    if (mask[i % plane] == 0 && given.values[i] < 0 && given.values[i] != right.values[i]) return true;
  }
  return false;
}

}  // namespace

std::vector<std::uint8_t> padding_mask(const IdLayout& layout) {
  if (const auto* vision = std::get_if<VisionBatch>(&layout)) return vision->mask;
  std::vector<std::uint8_t> mask;
  if (const auto* text = std::get_if<TextBatch>(&layout)) {
    for (const auto document : text->documents) mask.push_back(document != 0);
  }
  return mask;
}

IdReport check_ids(const PositionIds& given, const IdLayout& layout) {
  const PositionIds right = std::visit([](const auto& own) { return position_ids(own); }, layout);
  IdReport report;
  if (!same_shape(right, given)) {
    report.mistakes.push_back({std::string(shape_code), fmt::format("{}: expected {} axes, rows and tokens, got {}", shape_message,
                                                                    shape_of(right), shape_of(given))});
    return report;
  }
  if (given.values.size() != right.values.size()) {
    refuse_ids(fmt::format("ids: expected {} numbers for the shape {}, got {}", right.values.size(), shape_of(given), given.values.size()));
  }
  const auto mask = padding_mask(layout);
  compare(right, given, mask, report);
  if (pads_below_zero(right, given, mask)) report.mistakes.push_back({std::string(negative_code), std::string(negative_message)});
  if (report.different == 0) return report;

  const Fits fit = [&](const PositionIds& candidate) {
    IdReport match;
    if (same_shape(candidate, given)) compare(candidate, given, mask, match);
    return match.compared == report.compared && match.different == 0;
  };
  const auto try_all = [&](const auto& own, const auto& mistakes) {
    for (const auto& mistake : mistakes) {
      if (mistake.explains(own, right, fit)) report.mistakes.push_back({std::string(mistake.code), std::string(mistake.message)});
    }
  };
  std::visit([&](const auto& own) { try_all(own, mistakes_of(own)); }, layout);
  try_all(layout, common);
  return report;
}

std::vector<IdMistake> list_id_mistakes() {
  std::vector<IdMistake> all{{std::string(shape_code), std::string(shape_message)},
                             {std::string(negative_code), std::string(negative_message)}};
  const auto add = [&](const auto& mistakes) {
    for (const auto& mistake : mistakes) all.push_back({std::string(mistake.code), std::string(mistake.message)});
  };
  add(of_text), add(of_cache), add(of_context_parallel), add(of_vision), add(common);
  return all;
}

}  // namespace gnomon
