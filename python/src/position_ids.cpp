// SPDX-License-Identifier: Apache-2.0
// gnomon.position_ids: layouts of tokens, their positions as NumPy arrays, and the check of ids made elsewhere. Where C++ has types that
// keep positions, slots and counts apart, Python has keywords.
#include "gnomon/position_ids.hpp"

#include "arrays.hpp"

using namespace nb::literals;

namespace {

using gnomon::PositionIds, gnomon::TokenCount;

nb::object numpy_array(std::vector<std::int64_t> values, const std::vector<std::size_t>& shape) {
  auto* kept = new std::vector<std::int64_t>(std::move(values));
  nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<std::int64_t>*>(pointer); });
  return nb::cast(nb::ndarray<nb::numpy, std::int64_t>(kept->data(), shape.size(), shape.data(), owner));
}

/// Without the axes that a layout never has: (B,T) for rows of text, (N) for one packed row, (3,B,T) for images.
template <class Layout>
constexpr std::size_t axes_of = std::is_same_v<Layout, gnomon::VisionBatch> ? 3
                                : std::is_same_v<Layout, gnomon::TextBatch> ? 2
                                                                            : 1;

template <class Layout>
nb::object ids_of(const Layout& layout) {
  PositionIds ids = gnomon::position_ids(layout);
  std::vector<std::size_t> shape;
  for (const auto extent : {ids.axes, ids.batch, ids.tokens}) shape.push_back(static_cast<std::size_t>(extent));
  shape.erase(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(axes_of<Layout>));
  return numpy_array(std::move(ids.values), shape);
}

template <class Layout>
gnomon::IdReport check(const Layout& layout, nb::handle object) {
  auto given = whole_array("ids", object, axes_of<Layout>);
  given.shape.insert(given.shape.begin(), 3 - given.shape.size(), 1);
  return gnomon::check_ids({std::move(given.values), given.shape[0], given.shape[1], given.shape[2]}, layout);
}

template <class Layout>
void bind_ids(nb::class_<Layout>& layout) {
  layout.def("ids", &ids_of<Layout>,
             "Angle positions, int64: (B, T) for rows of text, (N) for one packed row, (3, B, T) for images. Raises Error.");
  layout.def("check", &check<Layout>, "ids"_a, "What is wrong with ids of the shape of ids(): an IdReport. Raises Error.");
}

std::vector<TokenCount> counts(const std::vector<std::int64_t>& numbers) {
  std::vector<TokenCount> result;
  for (const auto number : numbers) result.push_back({number});
  return result;
}

std::optional<TokenCount> count(std::optional<std::int64_t> number) { return number ? std::optional(TokenCount{*number}) : std::nullopt; }

std::vector<gnomon::Grid> grids(std::string_view name, nb::handle object) {
  const auto array = nb::len(object) == 0 ? WholeArray{{}, {0, 3}} : whole_array(name, object, 2);
  if (array.shape[1] != 3) refuse(fmt::format("{}: expected (number, 3), got (…, {})", name, array.shape[1]));
  std::vector<gnomon::Grid> result;
  for (std::size_t i = 0; i < array.values.size(); i += 3) result.push_back({array.values[i], array.values[i + 1], array.values[i + 2]});
  return result;
}

void bind_states(nb::module_& module) {
  using gnomon::NewTokens, gnomon::SequenceState;
  nb::class_<SequenceState>(module, "SequenceState",
                            "Where the next token of a sequence goes: its angle position, its cache slot, and how many "
                            "tokens there are so far. They are equal only at first.")
      .def(
          "__init__",
          [](SequenceState* self, std::int64_t position, std::int64_t slot, std::int64_t tokens) {
            new (self) SequenceState{{position}, {slot}, {tokens}};
          },
          nb::kw_only(), "position"_a, "slot"_a, "tokens"_a)
      .def_prop_ro("position", [](const SequenceState& self) { return self.position.value; })
      .def_prop_ro("slot", [](const SequenceState& self) { return self.slot.value; })
      .def_prop_ro("tokens", [](const SequenceState& self) { return self.tokens.value; })
      .def_prop_ro("rope_delta", &SequenceState::rope_delta, "position - tokens, as transformers has it.")
      .def(
          "advanced", [](const SequenceState& self, std::int64_t accepted) { return gnomon::advanced(self, {accepted}); }, "accepted"_a,
          "The state after some more tokens of text.")
      .def(
          "__eq__", [](const SequenceState& self, const SequenceState& other) { return self == other; }, nb::is_operator())
      .def("__repr__", [](const SequenceState& self) {
        return fmt::format("SequenceState(position={}, slot={}, tokens={})", self.position.value, self.slot.value, self.tokens.value);
      });
  nb::class_<NewTokens>(module, "NewTokens", "New tokens of one sequence: one after the other, or a tree of drafts.")
      .def(
          "__init__",
          [](NewTokens* self, const SequenceState& state, std::optional<std::int64_t> tokens, std::vector<std::int64_t> parents) {
            const auto number = tokens.value_or(parents.empty() ? 1 : static_cast<std::int64_t>(parents.size()));
            new (self) NewTokens{state, {number}, std::move(parents)};
          },
          "state"_a, "tokens"_a = nb::none(), nb::kw_only(), "parents"_a = std::vector<std::int64_t>{},
          "parents: which new token each follows, -1 for the cached text; without them tokens (1) follow one another.")
      .def_ro("state", &NewTokens::state)
      .def_prop_ro("tokens", [](const NewTokens& self) { return self.tokens.value; })
      .def_ro("parents", &NewTokens::parents);
}

void bind_text(nb::module_& module) {
  using gnomon::TextBatch;
  nb::class_<TextBatch> text(module, "TextBatch",
                             "Rows of text of equal width. A position is the number of tokens of the same document before.");
  text.def(
          "__init__",
          [](TextBatch* self, nb::object documents, std::int64_t padding) {
            auto array = whole_array("documents", documents, 2);
            new (self) TextBatch{array.shape[0], array.shape[1], std::move(array.values), {padding}};
          },
          "documents"_a, nb::kw_only(), "padding"_a = 0,
          "documents (B, T): 0 is padding, another number the document: an attention mask, or segment ids. padding: the position it gets.")
      .def_prop_ro("documents",
                   [](const TextBatch& self) {
                     return numpy_array(self.documents, {static_cast<std::size_t>(self.batch), static_cast<std::size_t>(self.tokens)});
                   })
      .def(
          "next_states", [](const TextBatch& self) { return gnomon::next_states(self); },
          "Where the next token of each row goes, in a cache that keeps padding. Raises Error for a row of several documents.")
      .def(
          "table_rows",
          [](const TextBatch& self, std::int64_t offset) {
            return numpy_array(gnomon::table_rows(self, offset),
                               {static_cast<std::size_t>(self.batch), static_cast<std::size_t>(self.tokens)});
          },
          nb::kw_only(), "offset"_a,
          "int64 (B, T): rows of a learned table whose position 0 is row `offset`: 2 for OPT, padding_idx + 1 for RoBERTa. Padding gets "
          "the row "
          "before. Raises Error.");
  bind_ids(text);
  module.def(
      "padded_batch",
      [](const std::vector<std::int64_t>& lengths, std::string_view side, std::optional<std::int64_t> width) {
        return gnomon::padded_batch(counts(lengths), enum_argument<gnomon::PaddingSide>("side", side), count(width));
      },
      "lengths"_a, nb::kw_only(), "side"_a = "left", "width"_a = nb::none(),
      "One prompt per row, as a TextBatch. side: 'left' or 'right'. Raises Error.");
  module.def(
      "packed_row",
      [](const std::vector<std::int64_t>& lengths, std::optional<std::int64_t> width) {
        return gnomon::packed_row(counts(lengths), count(width));
      },
      "lengths"_a, nb::kw_only(), "width"_a = nb::none(),
      "Documents one after the other, padded on the right, as a TextBatch. Raises Error.");
  module.def(
      "cu_seqlens", [](const std::vector<std::int64_t>& lengths) { return gnomon::cu_seqlens(counts(lengths)); }, "lengths"_a,
      "A list of documents + 1 integers of 32 bits: where each document begins, and where the last one ends. Raises Error.");
}

void bind_cache(nb::module_& module) {
  using gnomon::CacheStep, gnomon::ContextParallel;
  nb::class_<CacheStep> step(module, "CacheStep", "New tokens of several sequences in one row, each sequence behind what its cache holds.");
  step.def(
          "__init__", [](CacheStep* self, std::vector<gnomon::NewTokens> sequences) { new (self) CacheStep{std::move(sequences)}; },
          "sequences"_a)
      .def(
          "slots",
          [](const CacheStep& self) {
            std::vector<std::int64_t> slots;
            for (const auto slot : gnomon::cache_slots(self)) slots.push_back(slot.value);
            const std::size_t number = slots.size();
            return numpy_array(std::move(slots), {number});
          },
          "int64 (N): where the keys go. Raises Error.");
  bind_ids(step);
  module.def(
      "prefill_chunks",
      [](std::int64_t prompt, std::int64_t chunk, const gnomon::SequenceState& state) {
        return gnomon::prefill_chunks(state, {prompt}, {chunk});
      },
      "prompt"_a, nb::kw_only(), "chunk"_a, "state"_a = gnomon::SequenceState{},
      "A prompt in chunks, a NewTokens for each; state is where it begins. Raises Error.");

  nb::class_<ContextParallel> shard(
      module, "ContextParallel",
      "What one rank holds of a packed row: of 2 * ranks chunks of every document, number rank and its mirror image.");
  shard
      .def(
          "__init__",
          [](ContextParallel* self, std::vector<std::int32_t> cu_seqlens, std::int64_t ranks, std::int64_t rank) {
            new (self) ContextParallel{std::move(cu_seqlens), ranks, rank};
          },
          "cu_seqlens"_a, nb::kw_only(), "ranks"_a, "rank"_a, "cu_seqlens: 32-bit integers (documents + 1), as cu_seqlens() gives them.")
      .def(
          "packed_tokens",
          [](const ContextParallel& self) {
            auto indexes = gnomon::packed_tokens(self);
            const std::size_t number = indexes.size();
            return numpy_array(std::move(indexes), {number});
          },
          "int64 (N): indexes of the rank's tokens in the packed row. Raises Error.");
  bind_ids(shard);
}

template <class Run>
void bind_block(nb::class_<Run>& run) {
  run.def_prop_ro(
      "grid", [](const Run& self) { return std::vector<std::int64_t>{self.grid.t, self.grid.h, self.grid.w}; },
      "Patches before merging: time, height, width.");
}

void bind_vision(nb::module_& module) {
  using namespace gnomon;
  nb::class_<VisionModel>(module, "VisionModel", "What of a vision model its ids depend on, and whose behaviour is wanted.")
      .def(
          "__init__",
          [](VisionModel* self, std::string_view family, std::string_view version, std::int64_t spatial_merge,
             std::optional<std::int64_t> temporal_merge, std::optional<double> tokens_per_second) {
            new (self) VisionModel{enum_argument<VisionFamily>("family", family), enum_argument<MropeVersion>("version", version),
                                   spatial_merge, temporal_merge, tokens_per_second};
          },
          "family"_a, nb::kw_only(), "version"_a = "original", "spatial_merge"_a = 2, "temporal_merge"_a = nb::none(),
          "tokens_per_second"_a = nb::none(),
          "family: 'qwen2_vl', 'qwen2_5_vl', 'qwen3_vl', 'glm4v' or 'ernie4_5_vl'. version: 'original' (the models' own code, vLLM, "
          "SGLang), "
          "'transformers-5.0', 'transformers-5.3' or 'transformers-5.24'. Raises Error.")
      .def_prop_ro("family", [](const VisionModel& self) { return std::string(name_of(self.family)); })
      .def_prop_ro("version", [](const VisionModel& self) { return std::string(name_of(self.version)); });
  nb::class_<TextRun>(module, "TextRun", "Tokens of text; those that mark an image, and timestamps, are text.")
      .def(
          "__init__", [](TextRun* self, std::int64_t tokens) { new (self) TextRun{{tokens}}; }, "tokens"_a)
      .def_prop_ro("tokens", [](const TextRun& self) { return self.tokens.value; });
  nb::class_<ImageRun> image(module, "ImageRun", "An image of t, h, w patches before merging.");
  image.def(
      "__init__", [](ImageRun* self, std::int64_t t, std::int64_t h, std::int64_t w) { new (self) ImageRun{{t, h, w}}; }, "t"_a, "h"_a,
      "w"_a);
  nb::class_<VideoRun> video(module, "VideoRun", "A video, or one frame of it in families that write timestamps.");
  video
      .def(
          "__init__",
          [](VideoRun* self, std::int64_t t, std::int64_t h, std::int64_t w, double seconds) { new (self) VideoRun{{t, h, w}, seconds}; },
          "t"_a, "h"_a, "w"_a, nb::kw_only(), "second_per_grid"_a = 1.0)
      .def_ro("second_per_grid", &VideoRun::second_per_grid);
  bind_block(image);
  bind_block(video);

  nb::class_<VisionBatch> batch(module, "VisionBatch", "Rows of text, images and videos.");
  batch
      .def(
          "__init__",
          [](VisionBatch* self, const VisionModel& model, std::vector<std::vector<TokenRun>> rows, std::string_view side) {
            new (self) VisionBatch(vision_batch(model, std::move(rows), enum_argument<PaddingSide>("side", side)));
          },
          "model"_a, "rows"_a, nb::kw_only(), "side"_a = "left", "rows: lists of TextRun, ImageRun and VideoRun. Raises Error.")
      .def_static(
          "from_token_types",
          [](const VisionModel& model, nb::object token_types, nb::object images, nb::object videos, std::vector<double> seconds) {
            const auto array = whole_array("token_types", token_types, 2);
            std::vector<std::int8_t> types;
            for (const auto type : array.values) types.push_back(type >= -1 && type <= 2 ? static_cast<std::int8_t>(type) : std::int8_t{3});
            return vision_batch(model, array.shape[0], types, grids("images", images), grids("videos", videos), seconds);
          },
          "model"_a, "token_types"_a, nb::kw_only(), "images"_a = nb::list(), "videos"_a = nb::list(),
          "second_per_grid"_a = std::vector<double>{},
          "What processors hand out. token_types (B, T): -1 padding, 0 text, 1 image, 2 video. images and videos (number, 3): "
          "image_grid_thw and "
          "video_grid_thw. Raises Error.")
      .def("next_states", [](const VisionBatch& self) { return next_states(self); }, "Where the next token of each row goes.");
  bind_ids(batch);
}

void bind_report(nb::module_& module) {
  using gnomon::IdReport;
  nb::class_<IdReport>(module, "IdReport", "What check() found.")
      .def_prop_ro("right", &IdReport::right)
      .def_ro("compared", &IdReport::compared)
      .def_ro("different", &IdReport::different)
      .def_prop_ro(
          "first",
          [](const IdReport& self) -> nb::object {
            if (!self.first) return nb::none();
            nb::dict first;
            first["axis"] = self.first->axis, first["row"] = self.first->row, first["token"] = self.first->token;
            first["expected"] = self.first->expected.value, first["got"] = self.first->got.value;
            return std::move(first);
          },
          "The first id that differs: axis, row, token, expected, got; or None.")
      .def_prop_ro(
          "mistakes",
          [](const IdReport& self) {
            nb::dict mistakes;
            for (const auto& mistake : self.mistakes) mistakes[mistake.code.c_str()] = mistake.message;
            return mistakes;
          },
          "Known mistakes that give these ids, all that fit: code to message.");
}

}  // namespace

void bind_position_ids(nb::module_& parent) {
  auto module = parent.def_submodule("position_ids", "Positions of tokens as batches, caches, ranks and images have them.");
  bind_report(module);
  bind_states(module);
  bind_text(module);
  bind_cache(module);
  bind_vision(module);
}
