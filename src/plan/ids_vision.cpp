// SPDX-License-Identifier: Apache-2.0
// M-RoPE: three axes for images and videos between text, by family and by whose behaviour.
#include <algorithm>
#include <cmath>
#include <functional>

#include "plan/ids.hpp"

namespace gnomon {
namespace {

bool has_timestamps(VisionFamily family) { return family == VisionFamily::qwen3_vl || family == VisionFamily::glm4v; }

void check(const VisionModel& model) {
  if (model.spatial_merge < 1) refuse_ids(fmt::format("spatial_merge: expected at least 1, got {}", model.spatial_merge));
  if (model.temporal_merge && model.family != VisionFamily::ernie4_5_vl) {
    refuse_ids(fmt::format("temporal_merge: {} merges no frames; only ernie4_5_vl does", name_of(model.family)));
  }
  if (model.temporal_merge && *model.temporal_merge < 1) {
    refuse_ids(fmt::format("temporal_merge: expected at least 1, got {}", *model.temporal_merge));
  }
  if (model.tokens_per_second && model.family != VisionFamily::qwen2_5_vl) {
    refuse_ids(fmt::format("tokens_per_second: {} does not count seconds; only qwen2_5_vl does", name_of(model.family)));
  }
  if (model.tokens_per_second && !(*model.tokens_per_second > 0 && *model.tokens_per_second <= 1e6)) {
    refuse_ids(fmt::format("tokens_per_second: expected more than 0 and at most 1e6, got {}", *model.tokens_per_second));
  }
}

/// A vision block as the language model sees it: merged tokens, and the seconds between its frames.
struct Block {
  Grid grid;
  std::optional<double> seconds;  // none for a still image
};

std::int64_t merged(std::string_view axis, std::int64_t patches, std::int64_t merge) {
  if (patches >= 1 && patches % merge == 0) return bounded(patches / merge);
  refuse_ids(fmt::format("grid: expected {} to be a positive multiple of {}, what is merged into a token, got {}", axis, merge, patches));
}

Block block_of(const VisionModel& model, const Grid& grid, std::optional<double> seconds) {
  const bool merges_frames = seconds && model.family == VisionFamily::ernie4_5_vl;
  return {{merged("t", grid.t, merges_frames ? model.temporal_merge.value_or(2) : 1), merged("h", grid.h, model.spatial_merge),
           merged("w", grid.w, model.spatial_merge)},
          seconds};
}

Block block_of(const VisionModel& model, const ImageRun& image) { return block_of(model, image.grid, std::nullopt); }
Block block_of(const VisionModel& model, const VideoRun& video) {
  if (has_timestamps(model.family) && video.grid.t != 1) {
    refuse_ids(fmt::format("grid: {} writes a timestamp before each frame; expected a video of t = 1 for each, got t = {}",
                           name_of(model.family), video.grid.t));
  }
  if (!(video.second_per_grid >= 0 && video.second_per_grid <= 1e6)) {
    refuse_ids(fmt::format("second_per_grid: expected 0 to 1e6 seconds, got {}", video.second_per_grid));
  }
  return block_of(model, video.grid, video.second_per_grid);
}

/// How far frame k lies from the first one on the temporal axis. Ids are whole numbers: where a product is near one, only the same float32
/// steps give the ids a model is run with.
float seconds_value(const VisionModel& model, float frame, float seconds) {
  const auto per_second = static_cast<float>(model.tokens_per_second.value_or(2));
  if (model.version == MropeVersion::original) return std::floor(frame * seconds * per_second);
  if (model.version == MropeVersion::transformers_5_24) return std::floor(frame * (per_second * seconds));
  return std::floor(frame * per_second * std::floor(seconds));
}

std::int64_t temporal_value(const VisionModel& model, const Block& block, std::int64_t k) {
  if (model.family != VisionFamily::qwen2_5_vl || !block.seconds) return k;
  const float value = seconds_value(model, static_cast<float>(k), static_cast<float>(*block.seconds));
  if (value <= static_cast<float>(max_position)) return static_cast<std::int64_t>(value);
  throw Error(ErrorCode::out_of_range, fmt::format("second_per_grid: frame {} would stand {} positions after the first", k, value));
}

bool ends_at_largest(MropeVersion version) { return version == MropeVersion::original || version == MropeVersion::transformers_5_0; }

/// Ids of one row, axis by axis.
struct Row {
  std::vector<std::int64_t> axes[3];
  std::int64_t next = 0;  // position of what follows

  void add(std::int64_t t, std::int64_t h, std::int64_t w) {
    axes[0].push_back(t);
    axes[1].push_back(h);
    axes[2].push_back(w);
  }
};

void add_text(Row& row, const TextRun& text) {
  for (std::int64_t i = 0; i < text.tokens.value; i++, row.next++) row.add(row.next, row.next, row.next);
}

void add_block(Row& row, const VisionModel& model, const Block& block) {
  const std::int64_t start = row.next, t = block.grid.t, h = block.grid.h, w = block.grid.w;
  for (std::int64_t k = 0; k < t; k++) {
    const std::int64_t time = start + temporal_value(model, block, k);
    for (std::int64_t y = 0; y < h; y++) {
      for (std::int64_t x = 0; x < w; x++) row.add(time, start + y, start + x);
    }
  }
  row.next = start + std::max(h, w);
  if (ends_at_largest(model.version)) row.next = std::max(row.next, start + temporal_value(model, block, t - 1) + 1);
}

Row row_of(const VisionModel& model, const std::vector<TokenRun>& runs) {
  Row row;
  for (const auto& run : runs) {
    bounded(static_cast<std::int64_t>(row.axes[0].size()) + token_count(model, run).value);
    if (const auto* text = std::get_if<TextRun>(&run)) add_text(row, *text);
    if (const auto* image = std::get_if<ImageRun>(&run)) add_block(row, model, block_of(model, *image));
    if (const auto* video = std::get_if<VideoRun>(&run)) add_block(row, model, block_of(model, *video));
  }
  return row;
}

/// Takes runs of one row apart into grids, in the order of their tokens.
class RunReader {
 public:
  RunReader(const VisionModel& model, std::size_t tokens, std::span<const Grid> images, std::span<const Grid> videos,
            std::span<const double> seconds)
      : model_(model), most_(tokens) {
    check(model);
    for (const auto& grid : images) images_.emplace_back(ImageRun{grid});
    for (std::size_t v = 0; v < videos.size(); v++) add_video({videos[v], seconds.empty() ? 1 : seconds[v]});
  }

  /// Appends what `number` tokens of a type are.
  void read(std::vector<TokenRun>& runs, std::int8_t type, std::int64_t number) {
    if (type == 0) return runs.emplace_back(TextRun{{number}}), void();
    auto& source = type == 1 ? images_ : videos_;
    auto& next = type == 1 ? next_image_ : next_video_;
    for (std::int64_t left = number; left > 0;) {
      if (next == source.size()) refuse_ids(fmt::format("token_types: {} more {} tokens than the grids have", left, name(type)));
      const auto own = token_count(model_, source[next]).value;
      if (own > left) {
        refuse_ids(fmt::format("token_types: expected {} tokens in a row for {} {}, got {}", own, name(type), next, left));
      }
      runs.push_back(source[next++]);
      left -= own;
    }
  }

  void finish() const {
    if (next_image_ < images_.size()) refuse_ids(fmt::format("images: {} more than the tokens have", images_.size() - next_image_));
    if (next_video_ < videos_.size()) refuse_ids(fmt::format("videos: {} more than the tokens have", videos_.size() - next_video_));
  }

 private:
  static std::string_view name(std::int8_t type) { return type == 1 ? "image" : "video"; }
  void add_video(VideoRun video) {
    if (!has_timestamps(model_.family)) return videos_.emplace_back(video), void();
    const auto frames = static_cast<std::size_t>(merged("t", video.grid.t, 1));
    if (frames > most_ - std::min(most_, videos_.size())) refuse_ids(fmt::format("videos: more frames than the {} tokens", most_));
    video.grid.t = 1;
    videos_.insert(videos_.end(), frames, video);
  }

  const VisionModel& model_;
  std::size_t most_;  // tokens, and so frames: a grid may claim any number
  std::vector<TokenRun> images_, videos_;
  std::size_t next_image_ = 0, next_video_ = 0;
};

std::int64_t tokens_of(const VisionModel& model, const std::vector<TokenRun>& runs) {
  std::int64_t sum = 0;
  for (const auto& run : runs) sum = bounded(sum + token_count(model, run).value);
  return sum;
}

void check_mask(const VisionBatch& batch) {
  check(batch.model);
  const auto rows = static_cast<std::int64_t>(batch.rows.size());
  if (batch.tokens < 0 || static_cast<std::size_t>(bounded_product(rows, batch.tokens)) != batch.mask.size()) {
    refuse_ids(fmt::format("mask: expected one number for each of {} × {} tokens, got {}", rows, batch.tokens, batch.mask.size()));
  }
  for (std::int64_t r = 0; r < rows; r++) {
    const auto begin = batch.mask.begin() + r * batch.tokens;
    const auto real = batch.tokens - std::count(begin, begin + batch.tokens, 0);
    const auto expected = tokens_of(batch.model, batch.rows[static_cast<std::size_t>(r)]);
    if (real != expected) refuse_ids(fmt::format("mask: expected {} tokens in row {}, as its runs have, got {}", expected, r, real));
  }
}

}  // namespace

TokenCount token_count(const VisionModel& model, const TokenRun& run) {
  check(model);
  if (const auto* text = std::get_if<TextRun>(&run)) return {total("text", std::span(&text->tokens, 1))};
  const auto* image = std::get_if<ImageRun>(&run);
  const auto& grid = (image != nullptr ? block_of(model, *image) : block_of(model, std::get<VideoRun>(run))).grid;
  return {bounded_product(grid.t, bounded_product(grid.h, grid.w))};
}

VisionBatch vision_batch(const VisionModel& model, std::vector<std::vector<TokenRun>> rows, PaddingSide side) {
  check(model);
  std::vector<TokenCount> lengths;
  for (const auto& runs : rows) lengths.push_back({tokens_of(model, runs)});
  const TextBatch padded = padded_batch(lengths, side);
  return {model, std::move(rows), padded.tokens, {padded.documents.begin(), padded.documents.end()}};
}

VisionBatch vision_batch(const VisionModel& model, std::int64_t batch, std::span<const std::int8_t> token_types,
                         std::span<const Grid> images, std::span<const Grid> videos, std::span<const double> second_per_grid) {
  const auto number = static_cast<std::int64_t>(token_types.size());
  if (batch < 1 || number % batch != 0)
    refuse_ids(fmt::format("token_types: expected rows of equal width, got {} in {} rows", number, batch));
  if (!second_per_grid.empty() && second_per_grid.size() != videos.size()) {
    refuse_ids(fmt::format("second_per_grid: expected one for each of {} videos, got {}", videos.size(), second_per_grid.size()));
  }
  VisionBatch result{model, std::vector<std::vector<TokenRun>>(static_cast<std::size_t>(batch)), bounded(number) / batch, {}};
  RunReader reader(result.model, token_types.size(), images, videos, second_per_grid);
  for (auto& runs : result.rows) {
    std::vector<std::int8_t> real;
    for (std::int64_t t = 0; t < result.tokens; t++) {
      const auto type = token_types[result.mask.size()];
      if (type < -1 || type > 2) refuse_ids(fmt::format("token_types: expected -1 to 2, got {}", type));
      result.mask.push_back(type >= 0);
      if (type >= 0) real.push_back(type);
    }
    for (auto begin = real.begin(); begin != real.end();) {
      const auto end = std::find_if(begin, real.end(), std::bind_front(std::not_equal_to<>(), *begin));
      reader.read(runs, *begin, end - begin);
      begin = end;
    }
  }
  reader.finish();
  return result;
}

PositionIds position_ids(const VisionBatch& batch) {
  check_mask(batch);
  PositionIds ids = blank_ids(3, static_cast<std::int64_t>(batch.rows.size()), batch.tokens);
  const std::size_t plane = batch.mask.size();
  std::size_t place = 0;
  for (const auto& runs : batch.rows) {
    const Row row = row_of(batch.model, runs);
    std::size_t next = 0;
    for (const std::size_t end = place + static_cast<std::size_t>(batch.tokens); place < end; place++) {
      if (batch.mask[place] == 0) continue;
      for (std::size_t axis = 0; axis < 3; axis++) ids.values[axis * plane + place] = row.axes[axis][next];
      next++;
    }
  }
  validate(ids.view());
  return ids;
}

std::vector<SequenceState> next_states(const VisionBatch& batch) {
  check_mask(batch);
  std::vector<SequenceState> states;
  for (const auto& runs : batch.rows) {
    const Row row = row_of(batch.model, runs);
    std::int64_t next = 0;
    for (const auto& axis : row.axes) {
      for (const auto value : axis) next = std::max(next, value + 1);
    }
    states.push_back({{next}, {batch.tokens}, {static_cast<std::int64_t>(row.axes[0].size())}});
  }
  return states;
}

}  // namespace gnomon
