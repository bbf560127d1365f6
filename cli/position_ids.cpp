// SPDX-License-Identifier: Apache-2.0
// gnomon positions: the position ids of a batch, a cache step, a shard or a row with images, and what is wrong with ids made elsewhere.
#include "gnomon/position_ids.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <memory>

#include "gnomon/error.hpp"
#include "output.hpp"
#include "spec/fields.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

/// Something beside the ids, for machines and for people: a text, or rows of numbers.
struct Extra {
  std::string name, json, text;
  PositionIds rows{};
};

/// The ids of one layout: all of them, or of one chunk or rank.
struct Part {
  std::string title;
  IdLayout layout;
  PositionIds ids;
  std::vector<Extra> extras;
};

template <class Layout>
Part part_of(std::string title, Layout layout, std::vector<Extra> extras = {}) {
  auto ids = position_ids(layout);
  return {std::move(title), std::move(layout), std::move(ids), std::move(extras)};
}

// --- What is asked for -------------------------------------------------------------------------------------------------------------------

std::int64_t whole(std::string_view argument, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  throw Misuse(fmt::format("{}: expected a whole number, got \"{}\"", argument, printable(text.substr(0, 40))));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::int64_t> whole_list(std::string_view argument, std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const auto part : split(text, ',')) numbers.push_back(whole(argument, part));
  return numbers;
}

template <class Enum>
Enum choice(std::string_view argument, std::string_view text) {
  if (const auto value = enum_of<Enum>(text)) return *value;
  throw Misuse(fmt::format("{}: expected {}, got \"{}\"", argument, enum_choices<Enum>(), printable(text.substr(0, 40))));
}

/// What all builders take. Texts are read when the builder runs, so that a bad one is named with what was expected.
struct Options {
  std::vector<std::string> arguments;
  std::string side = "left", width, offset, chunk, cached = "0", tree, ranks, rank, family, version = "original", merge = "2";
  std::string fresh = "1", temporal_merge, check;
  double tokens_per_second = 0;
  bool json = false;

  std::vector<TokenCount> lengths() const {
    std::vector<TokenCount> counts;
    for (const auto& text : arguments) counts.push_back({whole("LENGTH", text)});
    return counts;
  }
  std::optional<TokenCount> row_width() const { return width.empty() ? std::nullopt : std::optional(TokenCount{whole("--width", width)}); }
};

// --- The builders ------------------------------------------------------------------------------------------------------------------------

std::string json_list(const std::vector<std::int64_t>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

std::string json_rows(const PositionIds& ids, std::int64_t axis) {
  std::vector<std::string> rows;
  for (std::int64_t row = 0; row < ids.batch; row++) {
    const auto begin = ids.values.begin() + (axis * ids.batch + row) * ids.tokens;
    rows.push_back(json_list({begin, begin + ids.tokens}));
  }
  return "[" + joined(rows) + "]";
}

Extra list_extra(std::string name, const std::vector<std::int64_t>& numbers) {
  return {std::move(name), json_list(numbers), "", {numbers, 1, 1, static_cast<std::int64_t>(numbers.size())}};
}

Extra states_extra(const std::vector<SequenceState>& states) {
  std::vector<std::string> json, text;
  for (const auto& state : states) {
    json.push_back(fmt::format(R"({{"position": {}, "slot": {}, "tokens": {}, "rope_delta": {}}})", state.position.value, state.slot.value,
                               state.tokens.value, state.rope_delta()));
    text.push_back(fmt::format("position {} in slot {} after {} tokens", state.position.value, state.slot.value, state.tokens.value));
  }
  return {"next", "[" + joined(json) + "]", joined(text, "; "), {}};
}

/// Rows of a learned table, where --offset asks for them.
std::vector<Extra> table_rows_extra(const Options& options, const TextBatch& batch) {
  if (options.offset.empty()) return {};
  const bool named = options.offset == "opt" || options.offset == "roberta";
  PositionIds rows{table_rows(batch, named ? 2 : whole("--offset", options.offset)), 1, batch.batch, batch.tokens};
  auto json = json_rows(rows, 0);
  return {{"table_rows", std::move(json), "", std::move(rows)}};
}

std::vector<Part> build_pad(const Options& options) {
  const auto batch = padded_batch(options.lengths(), choice<PaddingSide>("--side", options.side), options.row_width());
  auto extras = table_rows_extra(options, batch);
  extras.push_back(states_extra(next_states(batch)));
  return {part_of("", batch, std::move(extras))};
}

std::vector<Part> build_pack(const Options& options) {
  const auto bounds = cu_seqlens(options.lengths());
  const auto batch = packed_row(options.lengths(), options.row_width());
  auto extras = table_rows_extra(options, batch);
  extras.push_back(list_extra("cu_seqlens", {bounds.begin(), bounds.end()}));
  return {part_of("", batch, std::move(extras))};
}

std::vector<Part> build_documents(const Options& options) {
  TextBatch batch{static_cast<std::int64_t>(options.arguments.size()), 0, {}, {}};
  for (const auto& row : options.arguments) {
    const auto own = whole_list("ROW", row);
    if (&row == options.arguments.data()) batch.tokens = static_cast<std::int64_t>(own.size());
    batch.documents.insert(batch.documents.end(), own.begin(), own.end());
  }
  return {part_of("", batch, table_rows_extra(options, batch))};
}

Part step_part(std::string title, CacheStep step) {
  std::vector<std::int64_t> slots;
  for (const auto slot : cache_slots(step)) slots.push_back(slot.value);
  return part_of(std::move(title), std::move(step), {list_extra("slots", slots)});
}

/// POSITION[:SLOT[:TOKENS]], what is left out being equal.
SequenceState state_in(std::string_view argument, std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() > 3)
    throw Misuse(fmt::format("{}: expected POSITION[:SLOT[:TOKENS]], got \"{}\"", argument, printable(text.substr(0, 40))));
  const auto part = [&](std::size_t index) { return whole(argument, parts[std::min(index, parts.size() - 1)]); };
  return {{part(0)}, {part(1)}, {parts.size() > 2 ? part(2) : part(0)}};
}

std::vector<Part> build_prefill(const Options& options) {
  std::vector<Part> parts;
  const auto state = state_in("--cached", options.cached);
  for (auto& chunk : prefill_chunks(state, {whole("PROMPT", options.arguments.front())}, {whole("--chunk", options.chunk)})) {
    parts.push_back(step_part(fmt::format("chunk {}", parts.size()), {{std::move(chunk)}}));
  }
  return parts;
}

std::vector<Part> build_decode(const Options& options) {
  NewTokens added;
  if (!options.tree.empty()) added.parents = whole_list("--tree", options.tree);
  added.tokens = {options.tree.empty() ? whole("--new", options.fresh) : static_cast<std::int64_t>(added.parents.size())};
  CacheStep step;
  for (const auto& text : options.arguments) {
    added.state = state_in("SEQUENCE", text);
    step.sequences.push_back(added);
  }
  return {step_part("", std::move(step))};
}

std::vector<Part> build_context_parallel(const Options& options) {
  ContextParallel shard{cu_seqlens(options.lengths()), whole("--ranks", options.ranks), 0};
  const bool all = options.rank.empty();
  if (all && shard.ranks > 4096) throw Misuse(fmt::format("--ranks: {} ranks are too many to print; pick one with --rank", shard.ranks));
  std::vector<Part> parts;
  for (shard.rank = all ? 0 : whole("--rank", options.rank);; shard.rank++) {
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
  if (kind == "text") return TextRun{{whole("RUN", size)}};
  double seconds = 1;
  if (const auto at = size.find('@'); at != std::string_view::npos && kind == "video") {
    const auto digits = size.substr(at + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
    if (error != std::errc() || end != digits.data() + digits.size()) return refuse();
    size = size.substr(0, at);
  }
  const auto extents = split(size, 'x');
  Grid grid;
  if (extents.size() == 3) grid.t = whole("RUN", extents[0]);
  if (extents.size() != 3 && (extents.size() != 2 || kind != "image")) return refuse();
  grid.h = whole("RUN", extents[extents.size() - 2]);
  grid.w = whole("RUN", extents.back());
  if (kind == "image") return ImageRun{grid};
  return kind == "video" ? TokenRun(VideoRun{grid, seconds}) : refuse();
}

VisionModel model_in(const Options& options) {
  VisionModel model{choice<VisionFamily>("--family", options.family), choice<MropeVersion>("--version", options.version)};
  model.spatial_merge = whole("--merge", options.merge);
  if (!options.temporal_merge.empty()) model.temporal_merge = whole("--temporal-merge", options.temporal_merge);
  if (options.tokens_per_second != 0) model.tokens_per_second = options.tokens_per_second;
  return model;
}

std::vector<Part> build_mrope(const Options& options) {
  const auto model = model_in(options);
  std::vector<std::vector<TokenRun>> rows(1);
  for (const auto& text : options.arguments) {
    if (text == "/") {
      rows.emplace_back();
    } else {
      rows.back().push_back(run_in(text));
    }
  }
  const auto batch = vision_batch(model, std::move(rows), choice<PaddingSide>("--side", options.side));
  const auto named = [](const char* name, std::string_view value) { return Extra{name, json_quote(value), std::string(value), {}}; };
  return {part_of("", batch,
                  {named("family", name_of(model.family)), named("version", name_of(model.version)), states_extra(next_states(batch))})};
}

// --- Printing ----------------------------------------------------------------------------------------------------------------------------

std::string json_ids(const PositionIds& ids) {
  std::vector<std::string> axes;
  for (std::int64_t axis = 0; axis < ids.axes; axis++) axes.push_back(json_rows(ids, axis));
  return "[" + joined(axes) + "]";
}

void print_json(Output& out, const std::string& builder, const std::vector<Part>& parts) {
  std::vector<std::string> texts;
  for (const auto& part : parts) {
    std::string text = part.title.empty() ? "" : fmt::format("\"title\": {}, ", json_quote(part.title));
    for (const auto& extra : part.extras) text += fmt::format("\"{}\": {}, ", extra.name, extra.json);
    texts.push_back(fmt::format("{{{}\"ids\": {}}}", text, json_ids(part.ids)));
  }
  out.print("{{\"schema\": 1, \"builder\": {}, \"parts\": [{}]}}\n", json_quote(builder), joined(texts));
}

constexpr std::size_t label_width = 15;

/// One list in columns where it fits the line, else with its stretches drawn together: "0..111", "4 ×6", padding as "·".
std::string row_text(const PositionIds& ids, std::int64_t axis, std::int64_t row, const std::vector<std::uint8_t>& mask,
                     std::size_t column) {
  std::string wide, narrow;
  const auto is_padding = [&](std::int64_t t) { return !mask.empty() && mask[static_cast<std::size_t>(row * ids.tokens + t)] == 0; };
  for (std::int64_t t = 0; t < ids.tokens; t++) {
    wide += fmt::format("{:>{}}", is_padding(t) ? "·" : fmt::format("{}", ids.at(axis, row, t).value), column);
  }
  if (label_width + column * static_cast<std::size_t>(ids.tokens) <= line_width()) return wide;
  for (std::int64_t t = 0, next = 0; t < ids.tokens; t = next) {
    const auto first = ids.at(axis, row, t).value;
    const auto reaches = [&](std::int64_t step) {
      std::int64_t end = t + 1;
      while (end < ids.tokens && is_padding(end) == is_padding(t) && ids.at(axis, row, end).value == first + (end - t) * step) end++;
      return end;
    };
    const auto rising = is_padding(t) ? t : reaches(1), equal = reaches(0);
    next = std::max(rising, equal);
    const std::string value = is_padding(t) ? "·" : fmt::format("{}", first);
    if (next == t + 1)
      narrow += fmt::format("  {}", value);
    else if (equal >= rising)
      narrow += fmt::format("  {} ×{}", value, next - t);
    else
      narrow += fmt::format("  {}..{}", first, first + (next - t) - 1);
  }
  return narrow;
}

/// Every list under a label of its own: "row 0 time", "table_rows 1".
void print_lists(Output& out, std::string_view name, const PositionIds& ids, const std::vector<std::uint8_t>& mask, std::size_t column) {
  constexpr std::string_view axis_names[] = {"time", "height", "width"};
  for (std::int64_t row = 0; row < ids.batch; row++) {
    for (std::int64_t axis = 0; axis < ids.axes; axis++) {
      std::string label(ids.axes > 1 && ids.batch == 1 ? axis_names[axis] : name);
      if (ids.batch > 1) label += fmt::format(" {}", row);
      if (ids.axes > 1 && ids.batch > 1) label += fmt::format(" {}", axis_names[axis]);
      out.print("{:<{}}{}\n", label, label_width, row_text(ids, axis, row, mask, column));
    }
  }
}

void print_part(Output& out, const Part& part) {
  if (!part.title.empty()) out.print("{}\n", styled(Style::label, part.title));
  std::int64_t largest = 0;
  const auto enlarge = [&](const PositionIds& ids) {
    for (const auto value : ids.values) largest = std::max(largest, value);
  };
  enlarge(part.ids);
  for (const auto& extra : part.extras) enlarge(extra.rows);
  const std::size_t column = 2 + fmt::formatted_size("{}", largest);
  print_lists(out, part.ids.batch > 1 ? "row" : "position", part.ids, padding_mask(part.layout), column);
  for (const auto& extra : part.extras) {
    if (extra.text.empty())
      print_lists(out, extra.name, extra.rows, {}, column);
    else
      out.print("{:<{}}  {}\n", extra.name, label_width, wrapped(extra.text, line_width(), label_width + 2));
  }
}

void print_people(Output& out, const std::vector<Part>& parts) {
  for (const auto& part : parts) {
    if (&part != parts.data()) out.write("\n");
    print_part(out, part);
  }
}

// --- The check ---------------------------------------------------------------------------------------------------------------------------

/// Whole numbers of a file (- for standard input), in order; brackets and commas around them are passed over.
std::vector<std::int64_t> read_numbers(const std::string& path, std::size_t most) {
  std::ifstream file;
  if (path != "-") file.open(path);
  std::istream& in = path == "-" ? std::cin : file;
  if (!in) throw Error(ErrorCode::io, fmt::format("{}: {}", printable(path), std::generic_category().message(errno)));
  std::vector<std::int64_t> numbers;
  std::string word;
  const auto take_word = [&] {
    if (word.empty()) return;
    if (numbers.size() == most) throw Misuse(fmt::format("--check: expected {} ids in {}, got more", most, printable(path)));
    numbers.push_back(whole("--check", word));
    word.clear();
  };
  for (char c = 0; in.get(c);) {
    if (std::string_view(" \t\r\n,[]()").find(c) == std::string_view::npos)
      word += c;
    else
      take_word();
    if (word.size() > 40) take_word();  // which is refused
  }
  take_word();
  return numbers;
}

void print_report_json(Output& out, const IdReport& report) {
  std::string first = "null";
  if (report.first) {
    first = fmt::format(R"({{"axis": {}, "row": {}, "token": {}, "expected": {}, "got": {}}})", report.first->axis, report.first->row,
                        report.first->token, report.first->expected.value, report.first->got.value);
  }
  std::vector<std::string> mistakes;
  for (const auto& mistake : report.mistakes) {
    mistakes.push_back(fmt::format(R"({{"code": {}, "message": {}}})", json_quote(mistake.code), json_quote(mistake.message)));
  }
  out.print(R"({{"schema": 1, "right": {}, "compared": {}, "different": {}, "first": {}, "mistakes": [{}]}})", report.right(),
            report.compared, report.different, first, joined(mistakes));
  out.write("\n");
}

void print_report(Output& out, const IdReport& report) {
  if (report.right()) return out.print("{}: {} ids compared\n", styled(Style::good, "right"), report.compared);
  out.print("{}: {} of {} ids differ\n", styled(Style::error, "wrong"), report.different, report.compared);
  if (report.first) {
    out.print("first at axis {}, row {}, token {}: expected {}, got {}\n", report.first->axis, report.first->row, report.first->token,
              report.first->expected.value, report.first->got.value);
  }
  for (const auto& mistake : report.mistakes) {
    out.print("{}: {}\n", styled(Style::label, mistake.code), wrapped(mistake.message, line_width(), 2));
  }
  if (report.mistakes.empty()) out.write("No known mistake gives these ids.\n");
}

int check(const Options& options, const std::vector<Part>& parts) {
  if (parts.size() != 1) throw Misuse("--check: expected one list of ids to compare with; pick one (--rank, or decode for a chunk)");
  PositionIds given = parts[0].ids;
  given.values = read_numbers(options.check, given.values.size());
  const auto report = check_ids(given, parts[0].layout);
  Output out;
  options.json ? print_report_json(out, report) : print_report(out, report);
  out.finish();
  return report.right() ? 0 : 1;
}

// --- The verb ----------------------------------------------------------------------------------------------------------------------------

struct Builder {
  const char *name, *summary, *argument, *argument_help, *examples;
  std::vector<Part> (*build)(const Options&);
  void (*add_options)(CLI::App& app, Options& options);
};

void add_width(CLI::App& app, Options& options) { app.add_option("--width", options.width, "Tokens of a row")->type_name("N"); }
void add_offset(CLI::App& app, Options& options) {
  app.add_option("--offset", options.offset, "Also print rows of a learned table: opt, roberta, or the row of position 0")
      ->type_name("opt|roberta|N");
}
void add_side(CLI::App& app, Options& options) {
  app.add_option("--side", options.side, "Where padding stands; left when left out")->type_name("left|right");
}

constexpr Builder builders[] = {
    {"pad", "Prompts in rows of equal width", "LENGTH", "Tokens of each prompt",
     "  gnomon positions pad 3 5\n"
     "  gnomon positions pad 3 5 --side right --width 8\n"
     "  gnomon positions pad 3 5 --offset opt",
     build_pad,
     [](CLI::App& app, Options& options) {
       add_side(app, options);
       add_width(app, options);
       add_offset(app, options);
     }},
    {"pack", "Documents one after the other in one row", "LENGTH", "Tokens of each document",
     "  gnomon positions pack 5 3 4\n"
     "  gnomon positions pack 5 3 4 --width 16 --json",
     build_pack,
     [](CLI::App& app, Options& options) {
       add_width(app, options);
       add_offset(app, options);
     }},
    {"documents", "Rows described token by token: an attention mask, or segment ids", "ROW",
     "A number per token with commas: 0 is padding, any other its document",
     "  gnomon positions documents 0,0,1,1,1\n"
     "  gnomon positions documents 1,1,2,2,2,0 1,1,1,1,0,0\n"
     "  gnomon positions documents 0,0,1,1,1 --check ids.txt",
     build_documents, [](CLI::App& app, Options& options) { add_offset(app, options); }},
    {"prefill", "A prompt in chunks", "PROMPT", "Tokens of the prompt",
     "  gnomon positions prefill 1000 --chunk 512\n"
     "  gnomon positions prefill 1000 --chunk 512 --cached 64",
     build_prefill,
     [](CLI::App& app, Options& options) {
       app.add_option("--chunk", options.chunk, "Tokens of a chunk")->type_name("N")->required();
       app.add_option("--cached", options.cached, "Where the prompt begins: POSITION[:SLOT[:TOKENS]]; 0 when left out")->type_name("STATE");
     }},
    {"decode", "New tokens of sequences that have a cache: decoding, windows and trees of drafts", "SEQUENCE",
     "POSITION[:SLOT[:TOKENS]] of the next token; a slot or a count left out is equal to the position",
     "  gnomon positions decode 30 25\n"
     "  gnomon positions decode 9:14:12\n"
     "  gnomon positions decode 7 --new 4\n"
     "  gnomon positions decode 7 --tree=-1,0,0,1,-1",
     build_decode,
     [](CLI::App& app, Options& options) {
       auto* number =
           app.add_option("--new", options.fresh, "New tokens of each sequence, one after the other; 1 when left out")->type_name("N");
       app.add_option("--tree", options.tree, "A tree of drafts: which new token each follows, -1 for the cached text")
           ->type_name("LIST")
           ->excludes(number);
     }},
    {"context-parallel", "What each rank holds of a packed row: two chunks of every document", "LENGTH", "Tokens of each document",
     "  gnomon positions context-parallel 16 --ranks 2\n"
     "  gnomon positions context-parallel 4 8 --ranks 2 --rank 1",
     build_context_parallel,
     [](CLI::App& app, Options& options) {
       app.add_option("--ranks", options.ranks, "Ranks that share the row")->type_name("N")->required();
       app.add_option("--rank", options.rank, "Only this one, from 0")->type_name("K");
     }},
    {"mrope", "Text, images and videos on three axes", "RUN",
     "text:N, image:HxW, image:TxHxW, video:TxHxW or video:TxHxW@SECONDS (patches before merging; seconds between frames); / begins a row",
     "  gnomon positions mrope --family qwen2_vl text:4 image:4x6 text:2\n"
     "  gnomon positions mrope --family qwen2_5_vl text:1 video:4x4x4@0.5 text:1 --version transformers-5.24\n"
     "  gnomon positions mrope --family qwen3_vl text:3 video:1x4x4 text:3 video:1x4x4 / text:9 --json",
     build_mrope,
     [](CLI::App& app, Options& options) {
       app.add_option("--family", options.family, "How the model makes ids")
           ->type_name("qwen2_vl|qwen2_5_vl|qwen3_vl|glm4v|ernie4_5_vl")
           ->required();
       app.add_option("--version", options.version, "Whose behaviour; original when left out")
           ->type_name("original|transformers-5.0|transformers-5.3|transformers-5.24");
       app.add_option("--merge", options.merge, "spatial_merge_size; 2 when left out")->type_name("N");
       app.add_option("--temporal-merge", options.temporal_merge, "ernie4_5_vl: frames merged; 2 when left out")->type_name("N");
       app.add_option("--tokens-per-second", options.tokens_per_second, "qwen2_5_vl: positions a second; 2 when left out")
           ->check(CLI::PositiveNumber)
           ->type_name("X");
       add_side(app, options);
     }},
};

int run(const Builder& builder, const Options& options) {
  const auto parts = builder.build(options);
  if (!options.check.empty()) return check(options, parts);
  Output out;
  options.json ? print_json(out, builder.name, parts) : print_people(out, parts);
  out.finish();
  return 0;
}

}  // namespace

Verb add_positions(CLI::App& root) {
  auto* app = root.add_subcommand("positions", "Position ids of batches, caches, shards and images, and what is wrong with given ones");
  app->require_subcommand(1);
  app->footer(
      "Examples:\n"
      "  gnomon positions pad 3 5\n"
      "  gnomon positions decode 30 25 --json\n"
      "  gnomon positions mrope --family qwen2_vl text:4 image:4x6 text:2\n"
      "  gnomon positions pad 112 --width 140 --check ids.txt\n\ngnomon positions BUILDER --help tells more. Exits with 1 when --check "
      "finds "
      "ids that are wrong.");
  std::vector<std::pair<CLI::App*, std::function<int()>>> runs;
  for (const auto& builder : builders) {
    auto* own = app->add_subcommand(builder.name, builder.summary);
    const auto options = std::make_shared<Options>();
    own->add_option(builder.argument, options->arguments, builder.argument_help)->type_name(builder.argument)->option_text(" ")->required();
    builder.add_options(*own, *options);
    own->add_option("--check", options->check, "Compare the whole numbers of a file (- for standard input), axes before rows before tokens")
        ->type_name("FILE");
    own->add_flag("--json", options->json, "Print one JSON object");
    own->footer(std::string("Examples:\n") + builder.examples);
    runs.emplace_back(own, [&builder, options] { return run(builder, *options); });
  }
  return {app, [app, runs] {
            for (const auto& [own, call] : runs) {
              if (app->got_subcommand(own)) return call();
            }
            return 2;
          }};
}

}  // namespace gnomon::cli
