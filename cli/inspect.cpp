// SPDX-License-Identifier: Apache-2.0
// gnomon inspect: the position set-up of a model, where each value comes from, and what is doubtful about it.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "gnomon/frequencies.hpp"
#include "gnomon/model.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

constexpr std::size_t label_width = 12;
constexpr char kept_space = '\x1f';  // a space where no line is broken; no text of a file holds one, since printable() spells it out

/// Parts with a separator between them; lines are broken between parts only.
std::string row_of(std::vector<std::string> parts, std::string_view separator = " · ") {
  for (auto& part : parts) std::replace(part.begin(), part.end(), ' ', kept_space);
  return joined(parts, separator);
}

/// One labelled row; a long text continues under its beginning.
void row(Output& out, std::string_view label, std::string_view text) {
  std::string lines = wrapped(text, line_width(), label_width);
  std::replace(lines.begin(), lines.end(), kept_space, ' ');
  out.print(" {}{}\n", styled(Style::label, fmt::format("{:<{}}", label, label_width - 1)), lines);
}

/// "0-4, 6-10, 12"
std::string layer_ranges(const std::vector<int>& layers) {
  std::vector<std::string> ranges;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) end++;
    ranges.push_back(end - i == 1 ? fmt::format("{}", layers[i]) : fmt::format("{}-{}", layers[i], layers[end - 1]));
    i = end;
  }
  return joined(ranges);
}

/// A field's name as it is spoken: "original" for original_max_position_embeddings, "low" for low_freq_factor.
std::string_view spoken(std::string_view field) {
  for (const std::string_view ending : {"_max_position_embeddings", "_freq_factor"}) {
    if (field.ends_with(ending)) return field.substr(0, field.size() - ending.size());
  }
  return field;
}

std::string model_text(const Model& model) {
  std::vector<std::string> parts{model.type.empty() ? "type not stated" : printable(model.type)};
  if (model.layers > 0) parts.push_back(counted(model.layers, "layer", "layers"));
  if (model.heads > 0) parts.push_back(counted(model.heads, "head", "heads"));
  if (model.heads > 0 && model.kv_heads > 0 && model.kv_heads != model.heads) {
    parts.back() += ", " + counted(model.kv_heads, "kv head", "kv heads");
  }
  if (model.head_dim > 0) parts.push_back(fmt::format("head_dim {}", model.head_dim));
  return row_of(parts);
}

/// The fields of a rule that are not at their default, in its order.
template <class List>
void add_fields(const List& list, std::vector<std::string>& parts) {
  const auto add = [&](const auto& field, const auto& rule) {
    using Rule = std::remove_cvref_t<decltype(rule)>;
    const auto& value = rule.*field.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if (!field.required && value == Rule{}.*field.member) return;
    if constexpr (std::is_enum_v<Value>) {
      parts.push_back(fmt::format("{} {}", spoken(field.name), enum_names<Value>[static_cast<std::size_t>(value)]));
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      parts.push_back(fmt::format("{} {}", spoken(field.name), *value));
    } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
      const auto [least, greatest] = std::minmax_element(value.begin(), value.end());
      if (!value.empty()) parts.push_back(fmt::format("{} {} to {}", spoken(field.name), *least, *greatest));
    } else {
      parts.push_back(fmt::format("{} {}", spoken(field.name), value));
    }
  };
  std::visit([&](const auto& rule) { std::apply([&](const auto&... field) { (add(field, rule), ...); }, rule.fields); }, list);
}

std::string rule_text(const RotarySpec& spec) {
  std::vector<std::string> parts;
  if (spec.theta > 0) parts.push_back(fmt::format("theta {}", spec.theta));
  add_fields(spec.rule, parts);
  if (spec.rotary_dim != spec.head_dim) parts.push_back(fmt::format("{} of {} channels", spec.rotary_dim, spec.head_dim));
  if (spec.rotary_offset != 0) parts.push_back(fmt::format("from channel {}", spec.rotary_offset));
  if (spec.axes > 1) parts.push_back(fmt::format("{} axes", spec.axes));
  if (!spec.sections.empty()) {
    parts.push_back(
        fmt::format("sections {} {}", fmt::join(spec.sections, "/"), enum_names<SectionOrder>[static_cast<int>(spec.section_order)]));
  }
  const double magnitude = effective_attention_factor(spec);
  if (magnitude != 1) parts.push_back(fmt::format("attention_factor {:.6g}", magnitude));
  parts.push_back(fmt::format("layout {}", enum_names<PairLayout>[static_cast<std::size_t>(spec.layout)]));
  return fmt::format("{}   {}", rule_name(spec.rule), row_of(parts));
}

std::string rule_text(const AbsoluteSpec& spec) {
  std::vector<std::string> parts;
  add_fields(spec.rule, parts);
  return fmt::format("{}   {}", rule_name(spec.rule), row_of(parts));
}

std::string rule_text(const BiasRule& rule) {
  std::vector<std::string> parts;
  add_fields(rule, parts);
  return fmt::format("{}   {}", rule_name(rule), row_of(parts));
}

/// What the rule does to the pairs: "29 of 64 pairs unchanged · 6 blended · 29 divided by 8".
std::string scaling_text(const Frequencies& scaled) {
  const auto still = std::count(scaled.inv_freq.begin(), scaled.inv_freq.end(), 0.0);
  if (still > 0)
    return fmt::format("{} of {} pairs turn", scaled.inv_freq.size() - static_cast<std::size_t>(still), scaled.inv_freq.size());
  if (scaled.spec.theta == 0) return "";
  RotarySpec unscaled = scaled.spec;
  unscaled.rule = rotary::Default{};
  const auto before = frequencies(unscaled).inv_freq;
  std::vector<double> divisors;
  divisors.reserve(before.size());
  for (std::size_t i = 0; i < before.size(); i++) divisors.push_back(before[i] / scaled.inv_freq[i]);
  const double most = *std::max_element(divisors.begin(), divisors.end());
  const auto equal = [&](double value) {
    return static_cast<std::size_t>(
        std::count_if(divisors.begin(), divisors.end(), [&](double divisor) { return std::abs(divisor / value - 1) < 1e-9; }));
  };
  const std::size_t pairs = divisors.size(), unchanged = equal(1);
  if (unchanged == pairs) return "none";
  const std::size_t divided = equal(most), blended = pairs - unchanged - divided;
  if (divided == pairs) return fmt::format("all {} pairs divided by {:.6g}", pairs, most);
  std::vector<std::string> parts{fmt::format("{} of {} pairs unchanged", unchanged, pairs)};
  if (blended > 0) parts.push_back(fmt::format("{} blended", blended));
  parts.push_back(fmt::format("{} divided by {:.6g}", divided, most));
  return row_of(parts);
}

std::string context_text(const Model& model) {
  std::vector<std::string> parts;
  if (model.declared) parts.push_back(fmt::format("{} declared", *model.declared));
  if (model.derived && model.derived != model.declared) parts.push_back(fmt::format("{} derived from the scaling", *model.derived));
  if (model.original && model.original != model.declared) parts.push_back(fmt::format("{} trained", *model.original));
  return parts.empty() ? "not stated" : row_of(parts);
}

std::string turns_text(const Frequencies& scaled, const Model& model) {
  const auto wavelength = scaled.wavelength();
  const double longest = *std::max_element(wavelength.begin(), wavelength.end());
  std::string text = "longest wavelength " + (std::isfinite(longest) ? grouped(longest) + " positions" : "infinite");
  const auto length = model.declared ? model.declared : model.derived ? model.derived : model.original;
  if (!length) return text;
  const auto slow = std::count_if(wavelength.begin(), wavelength.end(), [&](double wave) { return wave > static_cast<double>(*length); });
  return text + fmt::format(": {} of {} pairs never complete a turn in {}", slow, wavelength.size(), *length);
}

std::string mask_text(const Mask& mask) {
  std::vector<std::string> parts{mask.causal ? "causal" : "bidirectional"};
  if (mask.window) parts.push_back(fmt::format("window {}", *mask.window));
  if (mask.chunk) parts.push_back(fmt::format("chunks of {}", *mask.chunk));
  if (mask.keep_first != 0) parts.push_back(fmt::format("first {} always seen", mask.keep_first));
  return row_of(parts);
}

std::string softmax_text(const PositionSpec& spec) {
  std::string text = spec.softmax_scale > 0 ? fmt::format("scale {:.6g}", spec.softmax_scale) : "scale not known";
  if (spec.softcap) text += fmt::format(" · softcap {}", *spec.softcap);
  if (spec.sink_logits) text += " · a sink logit for each head";
  return text;
}

std::string temperature_text(const QueryTemperature& temperature) {
  if (const auto* logarithm = std::get_if<LogTemperature>(&temperature)) {
    return fmt::format("times max(1, ln(p + 1) / ln {})", logarithm->length);
  }
  const auto& steps = std::get<StepTemperature>(temperature);
  const std::string position = steps.offset == 0 ? "p" : fmt::format("(p + {})", steps.offset);
  return fmt::format("times 1 + {} ln(1 + floor({} / {}))", steps.attn_scale, position, steps.floor_scale);
}

void print_extras(Output& out, const PositionSpec& spec) {
  if (spec.query_temperature) row(out, "queries", temperature_text(*spec.query_temperature));
  if (spec.rotates_values) row(out, "values", "rotated like keys");
  if (spec.rotates_output_back) row(out, "output", "rotated back at the position of the query");
  if (spec.dual_chunk) {
    row(out, "dual chunk",
        fmt::format("chunks of {} · local {} · original {}", spec.dual_chunk->chunk_size, spec.dual_chunk->local_size,
                    spec.dual_chunk->original_max_position_embeddings));
  }
}

/// "theta (rope_theta)"; the key alone where it ends in the field's name, as "rope_scaling.factor".
std::string origin_text(std::string_view field, std::string_view key) {
  if (field.starts_with("rotary.")) field.remove_prefix(7);
  if (key.empty()) return printable(field);
  const bool same = key == field || (key.ends_with(field) && key[key.size() - field.size() - 1] == '.');
  return printable(same ? std::string(key) : fmt::format("{} ({})", field, key));
}

/// Fields by where they come from: "read from config.json: theta (rope_theta), rule (rope_scaling.rope_type)".
std::vector<std::string> origin_texts(const std::map<std::string, Origin>& origins) {
  const auto rank = [](const Origin& origin) { return origin.how == "read" ? 0 : origin.how == "family default" ? 1 : 2; };
  std::map<std::pair<int, std::string>, std::vector<std::string>> fields;
  for (const auto& [field, origin] : origins) {
    std::string how = printable(origin.how);
    if (!origin.file.empty()) how += fmt::format("{}{}", origin.how == "read" ? " from " : ", ", printable(origin.file));
    fields[{rank(origin), how}].push_back(origin_text(field, origin.key));
  }
  std::vector<std::string> texts;
  texts.reserve(fields.size());
  for (const auto& [how, names] : fields) texts.push_back(fmt::format("{}: {}", how.second, row_of(names, ", ")));
  return texts;
}

void print_rotary(Output& out, const RotarySpec& spec, const Model& model) {
  row(out, "rotary", rule_text(spec));
  try {
    const Frequencies scaled = frequencies(spec);
    row(out, "scaling", scaling_text(scaled));
    row(out, "turns", turns_text(scaled, model));
  } catch (const Error& error) {
    row(out, "numbers", styled(Style::error, fmt::format("cannot be made: {}", printable(error.what()))));
  }
}

std::size_t layers_of(const Model& model, std::string_view part) {
  std::size_t layers = 0;
  for (const auto& group : model.groups) layers += group.part == part ? group.layers.size() : 0;
  return layers;
}

bool equal(const Origin& a, const Origin& b) { return a.how == b.how && a.file == b.file && a.key == b.key; }

/// Where the values of a group come from; what comes from the same place as in the first group is said there only.
void print_origins(Output& out, const LayerGroup& group, const LayerGroup& first) {
  auto origins = group.origins;
  if (&group != &first) {
    std::erase_if(origins, [&](const auto& entry) {
      const auto known = first.origins.find(entry.first);
      return known != first.origins.end() && equal(known->second, entry.second);
    });
  }
  auto texts = origin_texts(origins);
  if (origins.size() < group.origins.size()) texts.emplace_back(texts.empty() ? "as above" : "the others as above");
  std::string_view label = "origins";
  for (const auto& text : texts) {
    row(out, label, text);
    label = "";
  }
}

void print_group(Output& out, const LayerGroup& group, const Model& model) {
  if (model.groups.size() > 1) {
    out.write("\n");
    const std::string part = group.part.empty() ? "" : printable(group.part) + " ";
    row(out, "layers",
        fmt::format("{}{}   ({} of {})", part, layer_ranges(group.layers), group.layers.size(), layers_of(model, group.part)));
  }
  if (group.spec.absolute) row(out, "absolute", rule_text(*group.spec.absolute));
  if (group.spec.bias) row(out, "bias", rule_text(*group.spec.bias));
  if (group.spec.rotary) {
    print_rotary(out, *group.spec.rotary, model);
  } else {
    const bool declared =
        std::any_of(group.origins.begin(), group.origins.end(), [](const auto& o) { return o.first.starts_with("rotary."); });
    row(out, "rotary", declared ? styled(Style::error, "no numbers can be made; see the doubts") : "none");
  }
  row(out, "mask", mask_text(group.spec.mask));
  row(out, "softmax", softmax_text(group.spec));
  print_extras(out, group.spec);
  print_origins(out, group, model.groups.front());
}

void print_doubts(Output& out, const Model& model) {
  out.write("\n");
  if (model.doubts.empty()) row(out, "doubts", styled(Style::good, "none"));
  std::string_view label = "doubts";
  for (const auto& doubt : model.doubts) {
    const Style style = doubt.level == Level::error ? Style::error : doubt.level == Level::warning ? Style::warning : Style::note;
    const auto level = enum_names<Level>[static_cast<std::size_t>(doubt.level)];
    std::string text = styled(style, fmt::format("{} {}:", level, printable(doubt.code))) + " " + printable(doubt.message);
    std::vector<std::string> unnamed;
    for (const auto& key : doubt.keys) {
      if (doubt.message.find(key) == std::string::npos) unnamed.push_back(printable(key));
    }
    if (!unnamed.empty()) text += fmt::format(" [{}]", joined(unnamed));
    row(out, label, text);
    label = "";
  }
  if (!model.doubts.empty() && on_terminal())
    row(out, "", styled(Style::label, "gnomon explain CODE tells what a doubt costs and how to end it."));
  if (!model.unread.empty()) row(out, "unread", printable(joined(model.unread)));
}

void print_people(Output& out, const Model& model) {
  row(out, "model", model_text(model));
  row(out, "source", fmt::format("{} ({})", printable(model.path), model.format));
  row(out, "context", context_text(model));
  for (const auto& group : model.groups) print_group(out, group, model);
  print_doubts(out, model);
}

}  // namespace

Verb add_inspect(CLI::App& root) {
  struct Options {
    std::string path;
    bool json = false;
  };
  auto* app = root.add_subcommand("inspect", "What a model declares about position, where each value comes from, what is doubtful");
  const auto options = std::make_shared<Options>();
  app->add_option("PATH", options->path, "config.json, params.json, a GGUF file, or a folder with them")
      ->type_name("PATH")
      ->option_text(" ")
      ->required();
  app->add_flag("--json", options->json, "Print one JSON object (docs/inspect.md)");
  app->footer(
      "Exits with 1 when a doubt is a warning or an error, so that a script can stop there.\n\n"
      "Examples:\n"
      "  gnomon inspect Llama-3.1-8B/\n"
      "  gnomon inspect model.gguf --json");
  return {app, [options] {
            if (options->path.empty()) throw Misuse("inspect: the path is empty");
            const Model model = read_model(options->path);
            Output out;
            options->json ? out.write(to_json(model) + "\n") : print_people(out, model);
            out.finish();
            const auto worst = model.worst();
            return worst && *worst >= Level::warning ? 1 : 0;
          }};
}

}  // namespace gnomon::cli
