// SPDX-License-Identifier: Apache-2.0
// gnomon positions: the position ids of a batch, a cache step, a shard or a row with images, and what is wrong with ids made elsewhere.
#include <fstream>
#include <iostream>
#include <memory>

#include "gnomon/error.hpp"
#include "id_builders.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

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
    numbers.push_back(number_of<std::int64_t>("--check", word));
    word.clear();
  };
  for (char c = 0; in.get(c);) {
    if (std::string_view(" \t\r\n,[]()").find(c) == std::string_view::npos)
      word += c;
    else
      take_word();
    if (word.size() > 40) take_word();  // which is refused
  }
  if (in.bad()) throw Error(ErrorCode::io, fmt::format("{}: cannot be read", printable(path)));
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

int check(const IdOptions& options, const std::vector<IdPart>& parts) {
  if (parts.size() != 1) throw Misuse("--check: expected one list of ids to compare with; pick one (--rank, or decode for a chunk)");
  PositionIds given = parts[0].ids;
  given.values = read_numbers(options.check, given.values.size());
  const auto report = check_ids(given, parts[0].layout);
  Output out;
  options.json ? print_report_json(out, report) : print_report(out, report);
  out.finish();
  return report.right() ? 0 : 1;
}

int run(const IdBuilder& builder, const IdOptions& options) {
  const auto parts = builder.build(options);
  if (!options.check.empty()) return check(options, parts);
  Output out;
  options.json ? print_ids_json(out, builder.name, parts) : print_ids(out, parts);
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
      "finds ids that are wrong.");
  std::vector<std::pair<CLI::App*, std::function<int()>>> runs;
  for (const auto& builder : id_builders()) {
    auto* own = app->add_subcommand(builder.name, builder.summary);
    const auto options = std::make_shared<IdOptions>();
    own->add_option(builder.argument, options->arguments, builder.argument_help)->type_name(builder.argument)->option_text(" ")->required();
    builder.add_options(*own, *options);
    own->add_option("--check", options->check, "Compare the whole numbers of a file (- for standard input), axes before rows before tokens")
        ->type_name("FILE")
        ->check(text_problem);
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
