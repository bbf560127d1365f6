// SPDX-License-Identifier: Apache-2.0
// The builders of `gnomon positions`: words of the command line into layouts.
#include "id_builders.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "spec/fields.hpp"

namespace gnomon::cli {
namespace {

/// Chunks or ranks that are printed at most, and ids: each takes some fifty bytes until it is.
constexpr std::int64_t most_parts = 4096;
constexpr double most_ids = 1 << 22;

void check_number(std::string_view argument, double ids) {
  if (ids > most_ids) throw Misuse(fmt::format("{}: {:.0f} position ids; at most {:.0f} are printed", argument, ids, most_ids));
}

double sum_of(const std::vector<TokenCount>& counts) {
  double sum = 0;
  for (const auto count : counts) sum += static_cast<double>(count.value);
  return sum;
}

template <class Layout>
IdPart part_of(std::string title, Layout layout, std::vector<IdExtra> extras = {}) {
  auto ids = position_ids(layout);
  return {std::move(title), std::move(layout), std::move(ids), std::move(extras)};
}

std::vector<std::int64_t> whole_list(std::string_view argument, std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const auto part : split(text, ',')) numbers.push_back(number_of<std::int64_t>(argument, part));
  return numbers;
}

template <class Enum>
Enum choice(std::string_view argument, std::string_view text) {
  if (const auto value = enum_of<Enum>(text)) return *value;
  throw Misuse(fmt::format("{}: expected {}, got \"{}\"", argument, enum_choices<Enum>(), printable(text.substr(0, 40))));
}

std::vector<TokenCount> lengths_in(const IdOptions& options) {
  std::vector<TokenCount> counts;
  for (const auto& text : options.arguments) counts.push_back({number_of<std::int64_t>("LENGTH", text)});
  return counts;
}

std::optional<TokenCount> width_in(const IdOptions& options) {
  if (options.width.empty()) return std::nullopt;
  return TokenCount{number_of<std::int64_t>("--width", options.width)};
}

IdExtra list_extra(std::string name, const std::vector<std::int64_t>& numbers) {
  return {std::move(name), json_list(numbers), "", {numbers, 1, 1, static_cast<std::int64_t>(numbers.size())}};
}

IdExtra states_extra(const std::vector<SequenceState>& states) {
  std::vector<std::string> json, text;
  for (const auto& state : states) {
    json.push_back(fmt::format(R"({{"position": {}, "slot": {}, "tokens": {}, "rope_delta": {}}})", state.position.value, state.slot.value,
                               state.tokens.value, state.rope_delta()));
    text.push_back(fmt::format("position {} in slot {} after {} tokens", state.position.value, state.slot.value, state.tokens.value));
  }
  return {"next", "[" + joined(json) + "]", joined(text, "; "), {}};
}

/// Rows of a learned table, where --offset asks for them.
std::vector<IdExtra> table_rows_extra(const IdOptions& options, const TextBatch& batch) {
  if (options.offset.empty()) return {};
  const bool named = options.offset == "opt" || options.offset == "roberta";
  PositionIds rows{table_rows(batch, named ? 2 : number_of<std::int64_t>("--offset", options.offset)), 1, batch.batch, batch.tokens};
  auto json = json_rows(rows, 0);
  return {{"table_rows", std::move(json), "", std::move(rows)}};
}

std::vector<IdPart> build_pad(const IdOptions& options) {
  double tokens = static_cast<double>(width_in(options).value_or(TokenCount{0}).value);
  for (const auto count : lengths_in(options)) tokens = std::max(tokens, static_cast<double>(count.value));
  check_number("LENGTH", tokens * static_cast<double>(options.arguments.size()));
  const auto batch = padded_batch(lengths_in(options), choice<PaddingSide>("--side", options.side), width_in(options));
  auto extras = table_rows_extra(options, batch);
  extras.push_back(states_extra(next_states(batch)));
  return {part_of("", batch, std::move(extras))};
}

std::vector<IdPart> build_pack(const IdOptions& options) {
  const double width = static_cast<double>(width_in(options).value_or(TokenCount{0}).value);
  check_number("LENGTH", std::max(width, sum_of(lengths_in(options))));
  const auto bounds = cu_seqlens(lengths_in(options));
  const auto batch = packed_row(lengths_in(options), width_in(options));
  auto extras = table_rows_extra(options, batch);
  extras.push_back(list_extra("cu_seqlens", {bounds.begin(), bounds.end()}));
  return {part_of("", batch, std::move(extras))};
}

std::vector<IdPart> build_documents(const IdOptions& options) {
  TextBatch batch{static_cast<std::int64_t>(options.arguments.size()), 0, {}, {}};
  for (const auto& row : options.arguments) {
    const auto own = whole_list("ROW", row);
    if (&row == options.arguments.data()) batch.tokens = static_cast<std::int64_t>(own.size());
    batch.documents.insert(batch.documents.end(), own.begin(), own.end());
  }
  return {part_of("", batch, table_rows_extra(options, batch))};
}

IdPart step_part(std::string title, CacheStep step) {
  std::vector<std::int64_t> slots;
  for (const auto slot : cache_slots(step)) slots.push_back(slot.value);
  return part_of(std::move(title), std::move(step), {list_extra("slots", slots)});
}

/// POSITION[:SLOT[:TOKENS]], what is left out being equal.
SequenceState state_in(std::string_view argument, std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() > 3)
    throw Misuse(fmt::format("{}: expected POSITION[:SLOT[:TOKENS]], got \"{}\"", argument, printable(text.substr(0, 40))));
  const auto part = [&](std::size_t index) { return number_of<std::int64_t>(argument, parts[std::min(index, parts.size() - 1)]); };
  return {{part(0)}, {part(1)}, {parts.size() > 2 ? part(2) : part(0)}};
}

std::vector<IdPart> build_prefill(const IdOptions& options) {
  if (options.arguments.size() != 1) throw Misuse(fmt::format("PROMPT: expected one number, got {}", options.arguments.size()));
  std::vector<IdPart> parts;
  const auto state = state_in("--cached", options.cached);
  const TokenCount prompt{number_of<std::int64_t>("PROMPT", options.arguments.front())};
  const TokenCount size{number_of<std::int64_t>("--chunk", options.chunk)};
  if (size.value > 0 && prompt.value / size.value > most_parts)
    throw Misuse(fmt::format("--chunk: more than {} chunks to print", most_parts));
  check_number("PROMPT", static_cast<double>(prompt.value));
  for (auto& chunk : prefill_chunks(state, prompt, size)) {
    parts.push_back(step_part(fmt::format("chunk {}", parts.size()), {{std::move(chunk)}}));
  }
  return parts;
}

std::vector<IdPart> build_decode(const IdOptions& options) {
  NewTokens added;
  if (!options.tree.empty()) added.parents = whole_list("--tree", options.tree);
  added.tokens = {options.tree.empty() ? number_of<std::int64_t>("--new", options.fresh) : static_cast<std::int64_t>(added.parents.size())};
  check_number("--new", static_cast<double>(added.tokens.value) * static_cast<double>(options.arguments.size()));
  CacheStep step;
  for (const auto& text : options.arguments) {
    added.state = state_in("SEQUENCE", text);
    step.sequences.push_back(added);
  }
  return {step_part("", std::move(step))};
}

std::vector<IdPart> build_context_parallel(const IdOptions& options) {
  check_number("LENGTH", sum_of(lengths_in(options)));
  ContextParallel shard{cu_seqlens(lengths_in(options)), number_of<std::int64_t>("--ranks", options.ranks), 0};
  const bool all = options.rank.empty();
  if (all && shard.ranks > most_parts) throw Misuse(fmt::format("--ranks: more than {} to print; pick one with --rank", most_parts));
  std::vector<IdPart> parts;
  for (shard.rank = all ? 0 : number_of<std::int64_t>("--rank", options.rank);; shard.rank++) {
    parts.push_back(part_of(fmt::format("rank {}", shard.rank), shard, {list_extra("packed_tokens", packed_tokens(shard))}));
    if (!all || shard.rank + 1 >= shard.ranks) return parts;
  }
}

/// text:N, image:[Tx]HxW, video:TxHxW[@SECONDS]
TokenRun run_in(std::string_view text) {
  const auto refuse = [&]() -> TokenRun {
    throw Misuse(fmt::format("RUN: expected text:N, image:HxW, image:TxHxW, video:TxHxW or video:TxHxW@SECONDS, got \"{}\"",
                             printable(text.substr(0, 40))));
  };
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return refuse();
  const auto kind = text.substr(0, colon);
  auto size = text.substr(colon + 1);
  if (kind == "text") return TextRun{{number_of<std::int64_t>("RUN", size)}};
  double seconds = 1;
  if (const auto at = size.find('@'); at != std::string_view::npos && kind == "video") {
    seconds = number_of<double>("RUN", size.substr(at + 1));
    size = size.substr(0, at);
  }
  const auto extents = split(size, 'x');
  Grid grid;
  if (extents.size() == 3) grid.t = number_of<std::int64_t>("RUN", extents[0]);
  if (extents.size() != 3 && (extents.size() != 2 || kind != "image")) return refuse();
  grid.h = number_of<std::int64_t>("RUN", extents[extents.size() - 2]);
  grid.w = number_of<std::int64_t>("RUN", extents.back());
  if (kind == "image") return ImageRun{grid};
  return kind == "video" ? TokenRun(VideoRun{grid, seconds}) : refuse();
}

/// Tokens of a row before patches are merged.
double patches_of(const std::vector<TokenRun>& row) {
  const auto product = [](const Grid& grid) {
    return static_cast<double>(grid.t) * static_cast<double>(grid.h) * static_cast<double>(grid.w);
  };
  double sum = 0;
  for (const auto& run : row) {
    if (const auto* text = std::get_if<TextRun>(&run)) sum += static_cast<double>(text->tokens.value);
    if (const auto* image = std::get_if<ImageRun>(&run)) sum += product(image->grid);
    if (const auto* video = std::get_if<VideoRun>(&run)) sum += product(video->grid);
  }
  return sum;
}

VisionModel model_in(const IdOptions& options) {
  VisionModel model{choice<VisionFamily>("--family", options.family), choice<MropeVersion>("--version", options.version)};
  model.spatial_merge = number_of<std::int64_t>("--merge", options.merge);
  if (!options.temporal_merge.empty()) model.temporal_merge = number_of<std::int64_t>("--temporal-merge", options.temporal_merge);
  if (!options.tokens_per_second.empty()) model.tokens_per_second = number_of<double>("--tokens-per-second", options.tokens_per_second);
  return model;
}

std::vector<IdPart> build_mrope(const IdOptions& options) {
  const auto model = model_in(options);
  std::vector<std::vector<TokenRun>> rows(1);
  for (const auto& text : options.arguments) {
    if (text == "/") {
      rows.emplace_back();
    } else {
      rows.back().push_back(run_in(text));
    }
  }
  double longest = 0;
  for (const auto& row : rows) longest = std::max(longest, patches_of(row));
  check_number("RUN", longest * static_cast<double>(rows.size()));
  const auto batch = vision_batch(model, std::move(rows), choice<PaddingSide>("--side", options.side));
  const auto named = [](const char* name, std::string_view value) { return IdExtra{name, json_quote(value), std::string(value), {}}; };
  return {part_of("", batch,
                  {named("family", name_of(model.family)), named("version", name_of(model.version)), states_extra(next_states(batch))})};
}

CLI::Option* add_text(CLI::App& app, const char* name, std::string& target, const char* type, const char* help) {
  return app.add_option(name, target, help)->type_name(type)->check(text_problem);
}
void add_width(CLI::App& app, IdOptions& options) { add_text(app, "--width", options.width, "N", "Tokens of a row"); }
void add_offset(CLI::App& app, IdOptions& options) {
  add_text(app, "--offset", options.offset, "opt|roberta", "Also print rows of a learned table: opt, roberta, or the row of position 0");
}
void add_side(CLI::App& app, IdOptions& options) {
  add_text(app, "--side", options.side, "left|right", "Where padding stands; left when left out");
}

constexpr IdBuilder builders[] = {
    {"pad", "Prompts in rows of equal width", "LENGTH", "Tokens of each prompt",
     "  gnomon positions pad 3 5\n"
     "  gnomon positions pad 3 5 --side right --width 8\n"
     "  gnomon positions pad 3 5 --offset opt",
     build_pad,
     [](CLI::App& app, IdOptions& options) {
       add_side(app, options);
       add_width(app, options);
       add_offset(app, options);
     }},
    {"pack", "Documents one after the other in one row", "LENGTH", "Tokens of each document",
     "  gnomon positions pack 5 3 4\n"
     "  gnomon positions pack 5 3 4 --width 16 --json",
     build_pack,
     [](CLI::App& app, IdOptions& options) {
       add_width(app, options);
       add_offset(app, options);
     }},
    {"documents", "Rows described token by token: an attention mask, or segment ids", "ROW",
     "A number per token with commas: 0 is padding, any other its document",
     "  gnomon positions documents 0,0,1,1,1\n"
     "  gnomon positions documents 1,1,2,2,2,0 1,1,1,1,0,0\n"
     "  gnomon positions documents 0,0,1,1,1 --check ids.txt",
     build_documents, [](CLI::App& app, IdOptions& options) { add_offset(app, options); }},
    {"prefill", "A prompt in chunks", "PROMPT", "Tokens of the prompt",
     "  gnomon positions prefill 1000 --chunk 512\n"
     "  gnomon positions prefill 1000 --chunk 512 --cached 64",
     build_prefill,
     [](CLI::App& app, IdOptions& options) {
       add_text(app, "--chunk", options.chunk, "N", "Tokens of a chunk")->required();
       add_text(app, "--cached", options.cached, "STATE", "Where the prompt begins: POSITION[:SLOT[:TOKENS]]; 0 when left out");
     }},
    {"decode", "New tokens of sequences that have a cache: decoding, windows and trees of drafts", "SEQUENCE",
     "POSITION[:SLOT[:TOKENS]] of the next token; a slot or a count left out is equal to the position",
     "  gnomon positions decode 30 25\n"
     "  gnomon positions decode 9:14:12\n"
     "  gnomon positions decode 7 --new 4\n"
     "  gnomon positions decode 7 --tree=-1,0,0,1,-1",
     build_decode,
     [](CLI::App& app, IdOptions& options) {
       auto* number = add_text(app, "--new", options.fresh, "N", "New tokens of each sequence, one after the other; 1 when left out");
       add_text(app, "--tree", options.tree, "LIST", "A tree of drafts: which new token each follows, -1 for the cached text")
           ->excludes(number);
     }},
    {"context-parallel", "What each rank holds of a packed row: two chunks of every document", "LENGTH", "Tokens of each document",
     "  gnomon positions context-parallel 16 --ranks 2\n"
     "  gnomon positions context-parallel 4 8 --ranks 2 --rank 1",
     build_context_parallel,
     [](CLI::App& app, IdOptions& options) {
       add_text(app, "--ranks", options.ranks, "N", "Ranks that share the row")->required();
       add_text(app, "--rank", options.rank, "K", "Only this one, from 0");
     }},
    {"mrope", "Text, images and videos on three axes", "RUN",
     "text:N, image:HxW, image:TxHxW, video:TxHxW or video:TxHxW@SECONDS (patches before merging; seconds between frames); / begins a row",
     "  gnomon positions mrope --family qwen2_vl text:4 image:4x6 text:2\n"
     "  gnomon positions mrope --family qwen2_5_vl text:1 video:4x4x4@0.5 text:1 --version transformers-5.24\n"
     "  gnomon positions mrope --family qwen3_vl text:3 video:1x4x4 text:3 video:1x4x4 / text:9 --json",
     build_mrope,
     [](CLI::App& app, IdOptions& options) {
       add_text(app, "--family", options.family, "qwen2_vl|qwen2_5_vl|qwen3_vl|glm4v|ernie4_5_vl", "How the model makes ids")->required();
       add_text(app, "--version", options.version, "original|transformers-5.0|transformers-5.3|transformers-5.24",
                "Whose behaviour; original when left out");
       add_text(app, "--merge", options.merge, "N", "spatial_merge_size; 2 when left out");
       add_text(app, "--temporal-merge", options.temporal_merge, "N", "ernie4_5_vl: frames merged; 2 when left out");
       add_text(app, "--tokens-per-second", options.tokens_per_second, "X", "qwen2_5_vl: positions a second; 2 when left out");
       add_side(app, options);
     }},
};

}  // namespace

std::string text_problem(const std::string& text) { return text.empty() ? "expected a value, got an empty text" : ""; }

std::span<const IdBuilder> id_builders() { return builders; }

}  // namespace gnomon::cli
