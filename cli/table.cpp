// SPDX-License-Identifier: Apache-2.0
// gnomon table: cos and sin at chosen positions, as JSON, CSV or NumPy's npy.
#include "gnomon/table.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

#include "output.hpp"
#include "plan/round.hpp"
#include "positions.hpp"
#include "source.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

constexpr std::size_t most_values = std::size_t{1} << 31;
constexpr std::size_t values_at_once = std::size_t{1} << 20;  // so that memory does not grow with the table

struct Options {
  RotarySource source;
  SequenceLength length;
  std::string positions, dtype = "f32", numerics = "exact", format, out;
  const CLI::Option* out_option = nullptr;  // an empty name is wrong use, not standard output
  bool to_file() const { return out_option->count() > 0; }
  bool json = false;
};

/// A table in parts of a bounded size, each made when it is asked for.
class Parts {
 public:
  Parts(const Frequencies& frequencies, const PositionList& positions, DType dtype)
      : frequencies_(frequencies), positions_(positions), dtype_(dtype), rows_(std::max<std::size_t>(1, values_at_once / pairs())) {}

  const Frequencies& frequencies() const { return frequencies_; }
  const PositionList& positions() const { return positions_; }
  DType dtype() const { return dtype_; }
  std::size_t pairs() const { return frequencies_.inv_freq.size(); }

  /// Calls visit(positions of the part, table of the part) for each part in order.
  template <class Visitor>
  void each(Visitor&& visit) {
    for (std::size_t first = 0; first < positions_.size(); first += rows_) {
      const Positions part = positions_.part(first, std::min(rows_, positions_.size() - first));
      if (!last_ || first != last_first_) last_ = rotary_table(frequencies_, on_every_axis(part), dtype_);
      last_first_ = first;
      visit(part, *last_);
    }
  }

 private:
  /// Several position axes stand at the same place, as for text; a range does so by itself.
  Positions on_every_axis(const Positions& part) {
    const int axes = position_axes(frequencies_.spec);
    const auto repeat = [axes](const auto& values, auto& all) {
      all.clear();
      for (int axis = 0; axis < axes; axis++) all.insert(all.end(), values.begin(), values.end());
    };
    if (const auto* ids = std::get_if<Ids>(&part)) return repeat(ids->values, ids_), Ids{ids_};
    if (const auto* reals = std::get_if<Reals>(&part)) return repeat(reals->values, reals_), Reals{reals_};
    return part;
  }

  const Frequencies& frequencies_;
  const PositionList& positions_;
  DType dtype_;
  std::size_t rows_;
  std::vector<std::int64_t> ids_;
  std::vector<double> reals_;
  std::optional<RotaryTable> last_;  // a table of one part is made once though cos and sin are written one after the other
  std::size_t last_first_ = 0;
};

/// Entry `index` of a column, widened without loss.
double entry(const std::vector<std::byte>& column, DType dtype, std::size_t index) {
  return visit_dtype(dtype, [&](auto value) {
    std::memcpy(&value, column.data() + index * sizeof value, sizeof value);
    return static_cast<double>(widen(value));
  });
}

/// Positions of a part as texts: integers without a point, reals as JSON numbers.
std::vector<std::string> position_texts(const Positions& part) {
  std::vector<std::string> texts;
  if (const auto* range = std::get_if<Range>(&part)) {
    const std::size_t number = count(part);
    for (std::size_t i = 0; i < number; i++) texts.push_back(fmt::format("{}", range->start + static_cast<std::int64_t>(i) * range->step));
  } else if (const auto* ids = std::get_if<Ids>(&part)) {
    for (const auto id : ids->values) texts.push_back(fmt::format("{}", id));
  } else if (const auto* reals = std::get_if<Reals>(&part)) {
    for (const double real : reals->values) texts.push_back(json_number(real));
  }
  return texts;
}

using Column = std::vector<std::byte> RotaryTable::*;

void write_json_column(Output& out, Parts& parts, Column column) {
  std::string_view row_separator;
  parts.each([&](const Positions&, const RotaryTable& table) {
    for (std::size_t row = 0; row < table.positions; row++) {
      out.print("{}[", row_separator);
      row_separator = ", ";
      for (std::size_t i = 0; i < table.pairs; i++) {
        out.print("{}{}", i == 0 ? "" : ", ", json_number(entry(table.*column, table.dtype, row * table.pairs + i)));
      }
      out.write("]");
    }
  });
}

void write_json(Output& out, Parts& parts, const SequenceLength& length) {
  out.print("{{\"schema\": 1, \"rotary\": {}, \"numerics\": \"{}\", \"length\": {}, \"dtype\": \"{}\", \"attention_factor\": {}, ",
            to_json(parts.frequencies().spec), name_of(parts.frequencies().numerics), length.json(), name_of(parts.dtype()),
            json_number(parts.frequencies().attention_factor));
  out.write("\"positions\": [");
  std::string_view separator;
  parts.each([&](const Positions& part, const RotaryTable&) {
    for (const auto& text : position_texts(part)) {
      out.print("{}{}", separator, text);
      separator = ", ";
    }
  });
  out.write("], \"cos\": [");
  write_json_column(out, parts, &RotaryTable::cos);
  out.write("], \"sin\": [");
  write_json_column(out, parts, &RotaryTable::sin);
  out.write("]}\n");
}

void write_csv(Output& out, Parts& parts) {
  out.write("position,pair,cos,sin,attention_factor\n");
  const std::string magnitude = json_number(parts.frequencies().attention_factor);
  parts.each([&](const Positions& part, const RotaryTable& table) {
    const auto texts = position_texts(part);
    for (std::size_t row = 0; row < table.positions; row++) {
      for (std::size_t i = 0; i < table.pairs; i++) {
        const std::size_t index = row * table.pairs + i;
        out.print("{},{},{},{},{}\n", texts[row], i, json_number(entry(table.cos, table.dtype, index)),
                  json_number(entry(table.sin, table.dtype, index)), magnitude);
      }
    }
  });
}

/// Header of the npy format, version 1.0: magic, version, length, a Python dict padded to a multiple of 64 bytes.
std::string npy_header(DType dtype, std::size_t positions, std::size_t pairs) {
  const std::string_view order = std::endian::native == std::endian::little ? "<" : ">";
  const std::string_view type = dtype == DType::f64 ? "f8" : dtype == DType::f32 ? "f4" : dtype == DType::f16 ? "f2" : "u2";
  std::string dict = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': (2, {}, {}), }}", order, type, positions, pairs);
  constexpr std::size_t prefix = 10;
  dict += std::string(63 - (prefix + dict.size()) % 64, ' ') + "\n";
  std::string header = "\x93NUMPY";
  header += {'\1', '\0', static_cast<char>(dict.size() & 255), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

void write_npy(Output& out, Parts& parts) {
  out.write(npy_header(parts.dtype(), parts.positions().size(), parts.pairs()));
  for (const Column column : {&RotaryTable::cos, &RotaryTable::sin}) {
    parts.each([&](const Positions&, const RotaryTable& table) {
      const auto& bytes = table.*column;
      out.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    });
  }
}

/// What an npy file has no place for.
void tell_what_npy_lacks(const Parts& parts) {
  if (parts.dtype() == DType::bf16) message("note: NumPy has no bf16, so the array holds its 16 bits as uint16");
  const double magnitude = parts.frequencies().attention_factor;
  if (magnitude != 1) message(fmt::format("note: the array holds cos and sin without the attention_factor of this rule, {}", magnitude));
}

/// The format asked for, else the one the file's name ends in, else JSON.
std::string format_of(const Options& options) {
  const std::vector<std::string> known{"json", "csv", "npy"};
  if (options.json && !options.format.empty() && options.format != "json") {
    throw Misuse(fmt::format("--json and --format {}: one of them is needed", printable(options.format)));
  }
  if (options.json) return "json";
  if (options.format.empty()) {
    for (const auto& name : known) {
      if (options.out.ends_with("." + name)) return name;
    }
    return "json";
  }
  if (std::find(known.begin(), known.end(), options.format) == known.end()) {
    throw Misuse(fmt::format("--format: expected json | csv | npy, got \"{}\"", printable(options.format)));
  }
  return options.format;
}

void check_size(std::size_t positions, std::size_t pairs) {
  if (positions <= most_values / 2 / pairs) return;
  throw Misuse(fmt::format("--positions: {} positions of {} pairs are more than 2^31 values of cos and sin; take fewer, or a larger step",
                           positions, pairs));
}

int run(const Options& options) {
  const std::string format = format_of(options);
  const DType dtype = dtype_of(options.dtype);
  const PositionList positions(options.positions);
  const Frequencies result = frequencies(options.source.read(), numerics_of(options.numerics), options.length.value());
  check_size(positions.size(), result.inv_freq.size());
  if (format == "npy" && !options.to_file() && on_terminal()) {
    throw Misuse("npy is binary and standard output is a terminal: give --out FILE, or redirect it");
  }
  Parts parts(result, positions, dtype);
  const auto out = options.to_file() ? std::make_unique<Output>(options.out) : std::make_unique<Output>();
  if (format == "json") write_json(*out, parts, options.length);
  if (format == "csv") write_csv(*out, parts);
  if (format == "npy") write_npy(*out, parts);
  out->finish();
  if (format == "npy") tell_what_npy_lacks(parts);
  options.length.tell_what_lies_beyond(result.spec, positions.largest());
  return 0;
}

}  // namespace

Verb add_table(CLI::App& root) {
  auto* app = root.add_subcommand("table", "cos and sin of a rule or a model at chosen positions");
  const auto options = std::make_shared<Options>();
  options->source.add_to(*app);
  app->add_option("--positions", options->positions,
                  "START:STOP:STEP as in Python (stop exclusive), or numbers with commas, also real ones")
      ->type_name("P")
      ->required();
  options->length.add_to(*app);
  app->add_option("--dtype", options->dtype, "Type each value is rounded to, once (default f32)")->type_name("f64|f32|bf16|f16");
  app->add_option("--numerics", options->numerics, "exact (default), or hf: the float32 steps of the transformers library")
      ->type_name("exact|hf");
  app->add_option("--format", options->format, "Form of the output (default: by the name of --out, else json)")->type_name("json|csv|npy");
  options->out_option = app->add_option("--out", options->out, "Write to FILE; it appears complete or not at all")->type_name("FILE");
  app->add_flag("--json", options->json, "The same as --format json");
  app->footer(
      "cos and sin are printed without the magnitude, which stands beside them as attention_factor.\n"
      "npy holds one array of shape (2, positions, pairs): cos, then sin; bf16 as uint16.\n\n"
      "Examples:\n"
      "  gnomon table config.json --positions 0:131072:4096\n"
      "  gnomon table model.gguf --positions 0:8192 --dtype bf16 --out rope.npy\n"
      "  gnomon table --rotary '{\"rule\": \"default\", \"theta\": 10000, \"head_dim\": 64}' --positions 0,0.5,1e6 --format csv");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
