// SPDX-License-Identifier: Apache-2.0
#include "model_text.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "gnomon/analysis/scaling_laws.hpp"
#include "gnomon/frequencies.hpp"
#include "rows.hpp"
#include "text.hpp"

namespace gnomon::cli {
namespace {

/// Columns a text takes on a terminal: its code points, all of them narrow here.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
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

/// The fields of a rule, or those that are not at their default, in its order.
enum class Fields { all, unusual };
template <class List>
void add_fields(const List& list, Fields which, std::vector<std::string>& parts) {
  const auto add = [&](const auto& field, const auto& rule) {
    using Rule = std::remove_cvref_t<decltype(rule)>;
    const auto& value = rule.*field.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if (which == Fields::unusual && !field.required && value == Rule{}.*field.member) return;
    if constexpr (std::is_enum_v<Value>) {
      parts.push_back(fmt::format("{} {}", spoken(field.name), enum_names<Value>[static_cast<std::size_t>(value)]));
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      if (value) parts.push_back(fmt::format("{} {}", spoken(field.name), *value));
    } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
      const auto [least, greatest] = std::minmax_element(value.begin(), value.end());
      if (!value.empty()) parts.push_back(fmt::format("{} {:.6g} to {:.6g}", spoken(field.name), *least, *greatest));
    } else {
      parts.push_back(fmt::format("{} {}", spoken(field.name), value));
    }
  };
  std::visit([&](const auto& rule) { std::apply([&](const auto&... field) { (add(field, rule), ...); }, rule.fields); }, list);
}

std::string rule_text(const RotarySpec& spec) {
  std::vector<std::string> parts;
  if (spec.theta > 0) parts.push_back(fmt::format("theta {}", spec.theta));
  add_fields(spec.rule, Fields::unusual, parts);
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
  add_fields(spec.rule, Fields::unusual, parts);
  return fmt::format("{}   {}", rule_name(spec.rule), row_of(parts));
}

std::string rule_text(const BiasRule& rule) {
  std::vector<std::string> parts;
  add_fields(rule, Fields::all, parts);  // its defaults are the field's, and few know them
  return fmt::format("{}   {}", rule_name(rule), row_of(parts));
}

/// By how much the rule slows each pair.
std::vector<double> divisors_of(const Frequencies& scaled) {
  RotarySpec unscaled = scaled.spec;
  unscaled.rule = rotary::Default{};
  auto divisors = frequencies(unscaled).inv_freq;
  for (std::size_t i = 0; i < divisors.size(); i++) divisors[i] /= scaled.inv_freq[i];
  return divisors;
}

/// "pairs 0-28 unchanged (wavelengths to 1 956) · 29-34 blended · 35-63 divided by 8 (wavelengths from 65 750)", for a rule of such bands.
std::string bands_text(const Frequencies& scaled, const std::vector<double>& divisors) {
  const double most = *std::max_element(divisors.begin(), divisors.end());
  const auto is = [&](std::size_t pair, double divisor) { return std::abs(divisors[pair] / divisor - 1) < 1e-9; };
  const std::size_t pairs = divisors.size();
  std::size_t kept = 0, full = pairs;
  while (kept < pairs && is(kept, 1)) kept++;
  while (full > kept && is(full - 1, most)) full--;
  if (kept == pairs) return "none";
  if (full == 0) return fmt::format("all {} pairs divided by {:.6g}", pairs, most);
  if (kept < 2 && pairs - full < 2) {
    return fmt::format("pairs divided by {:.6g} to {:.6g}", *std::min_element(divisors.begin(), divisors.end()), most);
  }
  const auto wavelength = scaled.wavelength();
  const auto range = [](std::size_t first, std::size_t last) {
    return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  };
  std::vector<std::string> parts;
  if (kept > 0) parts.push_back(fmt::format("{} unchanged (wavelengths to {})", range(0, kept - 1), grouped(wavelength[kept - 1])));
  if (full > kept) parts.push_back(fmt::format("{} blended", range(kept, full - 1)));
  if (full < pairs) {
    parts.push_back(fmt::format("{} divided by {:.6g} (wavelengths from {})", range(full, pairs - 1), most, grouped(wavelength[full])));
  }
  return "pairs " + row_of(parts);
}

/// What the rule does to the pairs.
std::string scaling_text(const Frequencies& scaled) {
  const auto still = static_cast<std::size_t>(std::count(scaled.inv_freq.begin(), scaled.inv_freq.end(), 0.0));
  if (still > 0) return fmt::format("{} of {} pairs turn", scaled.inv_freq.size() - still, scaled.inv_freq.size());
  return scaled.spec.theta == 0 ? "none" : bands_text(scaled, divisors_of(scaled));
}

std::string context_text(const Model& model) {
  std::vector<std::string> parts;
  if (model.declared) parts.push_back(fmt::format("{} declared", *model.declared));
  if (model.derived && model.derived != model.declared) parts.push_back(fmt::format("{} derived from the scaling", *model.derived));
  if (model.original && model.original != model.declared) parts.push_back(fmt::format("{} original", *model.original));
  return parts.empty() ? "not stated" : row_of(parts);
}

/// The length the file is for; none for the towers of images and sound, whose positions are patches and frames.
std::optional<std::int64_t> length_of(const Model& model, const LayerGroup& group) {
  if (group.part == "vision" || group.part == "audio") return std::nullopt;
  return model.declared ? model.declared : model.derived ? model.derived : model.original;
}

std::string turns_text(const Frequencies& scaled, std::optional<std::int64_t> length) {
  const auto wavelength = scaled.wavelength();
  const double longest = *std::max_element(wavelength.begin(), wavelength.end());
  std::string text = "longest wavelength " + (std::isfinite(longest) ? grouped(longest) + " positions" : "infinite");
  if (!length) return text;
  const auto slow = static_cast<int>(wavelength.size()) - pairs_with_a_turn(scaled, *length);
  return text + fmt::format(": {} of {} pairs never complete a turn in {}", slow, wavelength.size(), *length);
}

std::string mask_text(const Mask& mask) {
  std::vector<std::string> parts{mask.causal ? "causal" : "bidirectional"};
  if (mask.window) parts.push_back(fmt::format("window {}", *mask.window));
  if (mask.chunk) parts.push_back(fmt::format("chunks of {}", *mask.chunk));
  if (mask.keep_first != 0) parts.push_back(fmt::format("first {} always seen", mask.keep_first));
  return joined(parts, " · ");
}

std::string softmax_text(const PositionSpec& spec) {
  std::string text = spec.softmax_scale > 0 ? fmt::format("scale {:.6g}", spec.softmax_scale) : "scale not known";
  if (spec.softcap) text += fmt::format(" · softcap {}", *spec.softcap);
  if (spec.sink_logits) text += " · sink logits";
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

/// Rules that depend on the length make other numbers for long sequences than for short ones.
void print_rotary(Output& out, const LayerGroup& group, const Model& model) {
  const RotarySpec& spec = *group.spec.rotary;
  row(out, "rotary", rule_text(spec));
  try {
    const auto length = length_of(model, group);
    const auto longest = length ? std::max(length, model.derived) : length;
    const Frequencies shortly = frequencies(spec), at_length = frequencies(spec, Numerics::exact, length);
    const Frequencies at_longest = frequencies(spec, Numerics::exact, longest);
    const bool grows = shortly.inv_freq != at_longest.inv_freq;
    row(out, "scaling", (grows ? "short sequences: " : "") + scaling_text(shortly));
    if (grows) row(out, "", fmt::format("at {}: {}", *longest, scaling_text(at_longest)));
    row(out, "turns", turns_text(at_length, length));
  } catch (const Error& error) {
    row(out, "numbers", styled(Style::error, fmt::format("cannot be made: {}", printable(error.what()))));
  }
}

/// What is common to all rotary rules beside the base: "layout half_split", "64 of 128 channels".
std::string short_text(const RotarySpec& spec) {
  std::vector<std::string> parts{std::string(rule_name(spec.rule))};
  if (spec.theta > 0) parts.push_back(fmt::format("theta {}", spec.theta));
  const auto add_factor = [&](const auto& field, const auto& rule) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(rule.*field.member)>, double>) {
      if (field.name == "factor") parts.push_back(fmt::format("factor {}", rule.*field.member));
    }
  };
  std::visit([&](const auto& rule) { std::apply([&](const auto&... field) { (add_factor(field, rule), ...); }, rule.fields); }, spec.rule);
  if (spec.rotary_dim != spec.head_dim) parts.push_back(fmt::format("{}/{}", spec.rotary_dim, spec.head_dim));
  parts.emplace_back(enum_names<PairLayout>[static_cast<std::size_t>(spec.layout)]);
  return joined(parts, " ");
}

/// Whether the file declares a rotation, of which perhaps no numbers can be made.
bool declares_rotation(const LayerGroup& group) {
  return std::any_of(group.origins.begin(), group.origins.end(), [](const auto& origin) { return origin.first.starts_with("rotary."); });
}

std::string position_text(const LayerGroup& group) {
  const PositionSpec& spec = group.spec;
  std::vector<std::string> parts;
  if (spec.absolute) parts.emplace_back(rule_name(spec.absolute->rule));
  if (spec.bias) parts.emplace_back(rule_name(*spec.bias));
  if (spec.rotary) parts.push_back(short_text(*spec.rotary));
  if (!spec.rotary && declares_rotation(group)) parts.emplace_back("rotary without numbers");
  return parts.empty() ? "none" : joined(parts, " + ");
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

char letter_of(std::size_t group) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  return group < letters.size() ? letters[group] : '*';
}

/// After how many layers a pattern repeats, or 8 where it does not.
std::size_t period_of(std::string_view pattern) {
  for (std::size_t period = 2; period <= 12; period++) {
    bool repeats = pattern.size() >= 2 * period;
    for (std::size_t i = period; repeats && i < pattern.size(); i++) repeats = pattern[i] == pattern[i - period];
    if (repeats) return period;
  }
  return 8;
}

/// A letter for the group of each layer, "-" for a layer without attention.
std::string pattern_of(const Model& model, std::string_view part) {
  std::map<int, char> letters;
  for (std::size_t group = 0; group < model.groups.size(); group++) {
    if (model.groups[group].part != part) continue;
    for (const int layer : model.groups[group].layers) letters[layer] = letter_of(group);
  }
  if (part == model.groups.front().part) {
    for (const int layer : model.non_attention_layers) letters[layer] = '-';
  }
  std::string pattern;
  for (const auto& [layer, letter] : letters) pattern += letter;
  return pattern;
}

/// "AAAAAB AAAAAB …" of each part that has layers of several kinds.
void print_pattern(Output& out, const Model& model) {
  std::vector<std::string> seen;
  for (const auto& group : model.groups) {
    if (std::find(seen.begin(), seen.end(), group.part) != seen.end()) continue;
    seen.push_back(group.part);
    const std::string pattern = pattern_of(model, group.part);
    if (pattern.find_first_not_of(pattern.front()) == std::string::npos) continue;
    const std::size_t period = period_of(pattern);
    std::string text = group.part.empty() ? "" : printable(group.part) + ": ";
    for (std::size_t i = 0; i < pattern.size(); i += period) text += (i == 0 ? "" : " ") + pattern.substr(i, period);
    row(out, "pattern", text);
  }
}

/// One line for each group.
void print_table(Output& out, const Model& model) {
  std::vector<std::array<std::string, 5>> lines{{"group", "layers", "position", "mask", "softmax"}};
  for (std::size_t i = 0; i < model.groups.size(); i++) {
    const LayerGroup& group = model.groups[i];
    std::string layers = fmt::format("{} of {}", group.layers.size(), layers_of(model, group.part));
    if (!group.part.empty()) layers = printable(group.part) + " " + layers;
    lines.push_back({std::string(1, letter_of(i)), layers, position_text(group), mask_text(group.spec.mask), softmax_text(group.spec)});
  }
  std::array<std::size_t, 5> widths{};
  for (const auto& line : lines) {
    for (std::size_t column = 0; column < line.size(); column++) widths[column] = std::max(widths[column], columns_of(line[column]));
  }
  out.write("\n");
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t column = 0; column < line.size(); column++) {
      text += line[column] + std::string(widths[column] + 3 - columns_of(line[column]), ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out.print(" {}\n", &line == &lines.front() ? styled(Style::label, text) : text);
  }
}

void print_group(Output& out, std::size_t index, const Model& model) {
  const LayerGroup& group = model.groups[index];
  out.write("\n");
  if (model.groups.size() > 1) row(out, fmt::format("group {}", letter_of(index)), "layers " + layer_ranges(group.layers));
  if (group.spec.absolute) row(out, "absolute", rule_text(*group.spec.absolute));
  if (group.spec.bias) row(out, "bias", rule_text(*group.spec.bias));
  if (group.spec.rotary) {
    print_rotary(out, group, model);
  } else {
    row(out, "rotary", declares_rotation(group) ? styled(Style::error, "no numbers can be made; see the doubts") : "none");
  }
  print_extras(out, group.spec);
  print_origins(out, group, model.groups.front());
}

void print_doubts(Output& out, const Model& model) {
  out.write("\n");
  if (model.doubts.empty()) row(out, "doubts", styled(Style::good, "none"));
  std::string_view label = "doubts";
  for (const auto& doubt : model.doubts) {
    row(out, label, doubt_text(doubt));
    label = "";
  }
  if (!model.doubts.empty() && on_terminal())
    row(out, "", styled(Style::label, "gnomon explain CODE tells what a doubt costs and how to end it."));
  if (!model.unread.empty()) row(out, "unread", printable(joined(model.unread)));
}

}  // namespace

void print_model(Output& out, const Model& model) {
  row(out, "model", model_text(model));
  row(out, "source", fmt::format("{} ({})", printable(model.path), model.format));
  row(out, "context", context_text(model));
  if (!model.groups.empty()) {
    print_pattern(out, model);
    print_table(out, model);
  }
  for (std::size_t i = 0; i < model.groups.size(); i++) print_group(out, i, model);
  print_doubts(out, model);
}

}  // namespace gnomon::cli
