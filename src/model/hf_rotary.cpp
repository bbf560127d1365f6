// SPDX-License-Identifier: Apache-2.0
#include "model/hf_rotary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gnomon::files {

using nlohmann::json;

namespace {

constexpr std::string_view theta_keys[] = {"rope_theta", "rotary_emb_base", "rope_base", "global_rope_theta"};
constexpr std::string_view sliding_theta_keys[] = {"rope_local_base_freq", "local_rope_theta", "swa_rope_theta"};
constexpr std::string_view other_signs[] = {"rope_ratio", "qk_rope_head_dim", "rotary_dim", "partial_rotary_factor", "rotary_pct"};
constexpr std::string_view fraction_keys[] = {"partial_rotary_factor", "rotary_pct", "rotary_percentage", "rotary_emb_fraction",
                                              "rope_pct"};
constexpr double usual_theta = 10000;  // what engines fall back to

// Decided by the structure of the values: labels differ between families.
bool is_nested(const json& block) {
  return std::any_of(block.begin(), block.end(), [](const json& value) { return value.is_object(); });
}

void set_theta(RotaryDeclaration& rotary, double theta) { rotary.theta = Number{theta, family_default()}; }

}  // namespace

HfRotary::HfRotary(const Keys& keys, const Declaration& declaration, Doubts& doubts)
    : keys_(keys), declaration_(declaration), doubts_(doubts) {
  choose_block();
}

bool HfRotary::is_declared() const {
  const auto there = [&](auto key) { return keys_.has(key); };
  if ((family() != nullptr && family()->encoding == Encoding::rotary) || block_ != nullptr) return true;
  return std::any_of(std::begin(theta_keys), std::end(theta_keys), there) ||
         std::any_of(std::begin(other_signs), std::end(other_signs), there);
}

bool HfRotary::has_own_sliding_base() const {
  if (family() != nullptr) return family()->sliding_theta.has_value();
  return std::any_of(std::begin(sliding_theta_keys), std::end(sliding_theta_keys), [&](auto key) { return keys_.has(key); });
}

bool HfRotary::is_scaled(const Layer& layer) const {
  if (layer.type != LayerType::sliding) return true;
  if (keys_.has("compress_rope_theta")) return false;
  if (family() != nullptr && family()->scales_sliding) return *family()->scales_sliding;
  return !has_own_sliding_base();
}

std::vector<std::string> HfRotary::unread() const {
  std::vector<std::string> result;
  for (const auto& block : blocks_) {
    for (auto& key : block.unread()) result.push_back(std::move(key));
  }
  return result;
}

// ── which block ──

// A non-empty rope_scaling wins over rope_parameters when both are there, as in transformers.
void HfRotary::choose_block() {
  const json* scaling = keys_.object("rope_scaling");
  const json* parameters = keys_.object("rope_parameters");
  block_ = scaling != nullptr ? scaling : parameters;
  block_name_ = scaling != nullptr ? "rope_scaling" : "rope_parameters";
  if (scaling != nullptr && parameters != nullptr) {
    other_ = parameters;
    compare_blocks(*scaling, *parameters);
  }
  nested_ = block_ != nullptr && is_nested(*block_);
}

void HfRotary::compare_blocks(const json& scaling, const json& parameters) {
  for (const auto& [key, value] : scaling.items()) {
    const auto same = [&, &ours = value](const char* name) { return parameters.contains(name) && parameters[name] == ours; };
    const bool is_type = key == "type" || key == "rope_type";
    if (same(key.c_str()) || (is_type && (same("type") || same("rope_type")))) continue;
    doubts_.add("rope-block-conflict", {keys_.full("rope_scaling"), keys_.full("rope_parameters")},
                fmt::format("{} and {} differ in {}; the first is used", keys_.full("rope_scaling"), keys_.full("rope_parameters"), key));
    return;
  }
}

std::optional<RotaryDeclaration> HfRotary::of(const Layer& layer) {
  if (!layer.rotates) return std::nullopt;
  head_dim_ = layer.head_dim && layer.head_dim->value >= 1 && layer.head_dim->value <= widest_head ? layer.head_dim : std::nullopt;
  auto rotary = nested_ ? of_nested(layer) : of_flat(layer);
  if (rotary && other_ != nullptr) add_other_block(layer, *rotary);
  return rotary;
}

void HfRotary::add_other_block(const Layer& layer, RotaryDeclaration& rotary) const {
  HfRotary other(*this);
  other.block_ = other_, other.block_name_ = "rope_parameters", other.other_ = nullptr;
  other.nested_ = is_nested(*other_);
  other.blocks_.clear();
  const Doubts heard = doubts_;
  const auto reading = other.of(layer);
  doubts_ = heard;  // what is doubtful about the block that does not count does not matter
  if (!reading) return;
  rotary.other_readings.push_back({"rope-block-conflict",
                                   {keys_.full("rope_scaling"), keys_.full("rope_parameters")},
                                   [reading](RotaryDeclaration& changed) { changed = *reading; }});
}

void HfRotary::doubt(RotaryDeclaration& rotary, DoubtCode code, const std::vector<std::string>& keys, std::string message,
                     Change otherwise) {
  doubts_.add(code, keys, std::move(message));
  rotary.other_readings.push_back({code, keys, std::move(otherwise)});
}

std::optional<RotaryDeclaration> HfRotary::of_flat(const Layer& layer) {
  if (block_ == nullptr) return declare(layer, nullptr, "");
  const std::string name = keys_.full(block_name_);
  if (blocks_.empty()) blocks_.push_back(keys_.inside(*block_, block_name_));
  const bool ignored = has_own_sliding_base() && std::string_view(block_name_) == "rope_parameters";
  auto rotary = is_scaled(layer) ? declare(layer, &blocks_.back(), name) : declare(layer, nullptr, "");
  if (is_scaled(layer) && ignored) {
    doubt(rotary, "flat-block-for-layer-types", {name},
          fmt::format("{} is not given per layer type; it is applied to full-attention layers", name),
          [theta = family() != nullptr ? family()->theta : std::nullopt](RotaryDeclaration& other) {
            other.type.value = "default";
            if (theta) set_theta(other, *theta);
          });
  }
  if (!is_scaled(layer) && !has_own_base(layer) && !rotary.theta) {
    rotary.theta = blocks_.back().number("rope_theta");  // the base is that of all layers
  }
  return rotary;
}

std::optional<RotaryDeclaration> HfRotary::of_nested(const Layer& layer) {
  const Keys block = keys_.inside(*block_, block_name_);
  const bool slides = layer.type == LayerType::sliding;
  const std::string label = layer.label.empty() ? (slides ? "sliding_attention" : "full_attention") : layer.label;
  const std::string_view names[] = {label, slides ? "sliding_attention" : "full_attention", slides ? "main" : "compress"};
  for (const auto name : names) {
    if (const json* entry = block.object(name)) {
      blocks_.push_back(block.inside(*entry, name));
      return declare(layer, &blocks_.back(), block.full(name));
    }
  }
  if (has_own_base(layer)) return declare(layer, nullptr, "");
  if (block.is_null(label)) return std::nullopt;  // these layers do not rotate
  doubts_.add("layer-type-missing", {block.full(label)},
              fmt::format("{} is given per layer type, but not for {}", keys_.full(block_name_), label));
  return std::nullopt;
}

RotaryDeclaration HfRotary::declare(const Layer& layer, const Keys* block, std::string block_name) {
  RotaryDeclaration rotary;
  rotary.block = std::move(block_name);
  rotary.head_dim = head_dim_;
  if (block != nullptr) read_scaling(*block, rotary);
  read_original_length(block, rotary);
  if (is_scaled(layer)) read_condense_ratio(rotary);
  read_theta(layer, block, rotary);
  read_width(layer, block, rotary);
  read_sections(block, rotary);
  return rotary;
}

// ── scaling ──

void HfRotary::read_scaling(const Keys& block, RotaryDeclaration& rotary) {
  read_type(block, rotary);
  read_numbers(block, rotary);
  read_alias(block, rotary);
  read_magnitude(block, rotary);
}

void HfRotary::read_type(const Keys& block, RotaryDeclaration& rotary) {
  const auto current = block.text("rope_type"), old = block.text("type");
  if (current && old && current->value != old->value) {
    doubt(
        rotary, "scaling-type-conflict", {current->origin.key, old->origin.key},
        fmt::format("{} is {} but {} is {}", current->origin.key, quoted(json(current->value)), old->origin.key, quoted(json(old->value))),
        [type = old->value](RotaryDeclaration& other) { other.type.value = type; });
  }
  if (current || old) rotary.type = current ? *current : *old;
  const std::string& key = rotary.type.origin.key;
  if (rotary.type.value == "dynamic" && !block.has("alpha") && !declaration_.length) {
    doubts_.add("dynamic-length-missing", {key}, fmt::format("{}: dynamic grows from the trained length, and the file states none", key));
  }
}

// Names of other code and other times for the rules of this library.
void HfRotary::read_alias(const Keys& block, RotaryDeclaration& rotary) {
  struct Alias {
    std::string_view old, rule, says;
  };
  constexpr Alias aliases[] = {
      {"su", "longrope", "is the old name of longrope"},
      {"mrope", "default", "is default with sections"},
      {"mllama3", "llama3", "is llama3"},
      {"deepseek_yarn", "yarn", "is yarn with the magnitude of two mscale values"},
      {"telechat3-yarn", "yarn", "is yarn with a slope of 0.07 in its magnitude"},
  };
  const std::string& key = rotary.type.origin.key;
  if (const auto alpha = block.number("alpha"); alpha && (rotary.type.value == "dynamic" || rotary.type.value == "xdrope")) {
    doubts_.add(
        "scaling-type-alias", {key, alpha->origin.key},
        fmt::format("{}: {} with alpha is ntk: the base is theta * alpha^(r/(r-2)) at every length", key, quoted(json(rotary.type.value))));
    rotary.type.value = "ntk";
    rotary.numbers["factor"] = *alpha;
    rotary.stated_as_alpha = true;
    return;
  }
  const auto found =
      std::find_if(std::begin(aliases), std::end(aliases), [&](const Alias& alias) { return rotary.type.value == alias.old; });
  if (found == std::end(aliases)) return;
  doubts_.add("scaling-type-alias", {key}, fmt::format("{}: {} {}", key, quoted(json(rotary.type.value)), found->says));
  rotary.type.value = found->rule;
  const auto factor = rotary.numbers.find("factor");
  if (found->old == "telechat3-yarn" && factor != rotary.numbers.end() && factor->second.value > 1) {
    rotary.attention_factor = Number{0.07 * std::log(factor->second.value) + 1, factor->second.origin};
  }
}

void HfRotary::read_numbers(const Keys& block, RotaryDeclaration& rotary) {
  read_rule_fields(block, rotary);
  rotary.factor_is_null = block.is_null("factor");
  for (const auto& [key, otherwise] : {std::pair("beta_fast", 32), std::pair("beta_slow", 1)}) {
    if (block.is_null(key))
      doubts_.add("beta-default", {block.full(key)}, fmt::format("{} is null; {} is used", block.full(key), otherwise));
  }
}

// The inner value is the author's statement about this rule; transformers 5 lets the outer one win.
void HfRotary::read_original_length(const Keys* block, RotaryDeclaration& rotary) {
  constexpr auto name = "original_max_position_embeddings";
  const auto outer = keys_.number(name, "initial_context_length");
  if (!outer) return;
  const auto inner = rotary.numbers.find(name);
  if (inner == rotary.numbers.end()) {
    rotary.numbers[name] = *outer;
  } else if (inner->second.value != outer->value) {
    doubt(rotary, "original-length-conflict", {outer->origin.key, block->full(name)},
          fmt::format("{} is {} but {} is {}; the inner one is used", outer->origin.key, quoted(outer->value), block->full(name),
                      quoted(inner->second.value)),
          [=](RotaryDeclaration& other) { other.numbers[name] = *outer; });
  }
}

void HfRotary::read_magnitude(const Keys& block, RotaryDeclaration& rotary) {
  block.find("finetuned");  // a mark only
  if (const auto multiplier = block.number("attn_factor")) {
    rotary.magnitude_multiplier = multiplier;
    doubts_.add("attn-factor-multiplier", {multiplier->origin.key},
                fmt::format("{} = {} multiplies the magnitude of the rule", multiplier->origin.key, quoted(multiplier->value)));
  }
  if (const auto beta = block.number("llama_4_scaling_beta")) rotary.query_scale = beta;
  if (!rotary.attention_factor && rotary.type.value == "yarn" && family() != nullptr && family()->attention_factor) {
    rotary.attention_factor = Number{*family()->attention_factor, family_default()};
  }
  // Phi-3.5 MoE: the magnitude itself, one for each list of divisors.
  const auto in_short = block.number("short_mscale"), in_long = block.number("long_mscale");
  if (in_short && in_long && in_short->value != in_long->value) {
    doubts_.add("magnitude-by-length", {in_short->origin.key, in_long->origin.key},
                fmt::format("{} = {} up to the original length and {} = {} beyond it; the first is used", in_short->origin.key,
                            quoted(in_short->value), in_long->origin.key, quoted(in_long->value)));
  }
  if (in_short && rotary.type.value == "longrope") rotary.attention_factor = in_short;
}

void HfRotary::read_sections(const Keys* block, RotaryDeclaration& rotary) {
  if (block != nullptr) {
    rotary.sections = block->list("mrope_section");
    if (!rotary.sections) rotary.sections = block->list("xdrope_section");
  }
  // The code of these families has its order whether the file says so or not.
  if (family() != nullptr) rotary.section_order = family()->section_order;
  if (block != nullptr) {
    if (const auto interleaved = block->boolean("mrope_interleaved"))
      rotary.section_order = interleaved->value ? SectionOrder::interleaved : SectionOrder::chunked;
  }
  default_sections(rotary);
  if (rotary.section_order != SectionOrder::time_last || !rotary.sections || rotary.sections->value.empty()) return;
  auto& sections = rotary.sections->value;  // height, width, time in the file
  std::rotate(sections.begin(), sections.end() - 1, sections.end());
}

void HfRotary::default_sections(RotaryDeclaration& rotary) {
  if (rotary.sections || family() == nullptr || family()->sections.empty() || !rotary.rotary_dim) return;
  const std::vector<double> sections(family()->sections.begin(), family()->sections.end());
  if (2 * std::accumulate(sections.begin(), sections.end(), 0.0) != static_cast<double>(rotary.rotary_dim->value)) return;
  rotary.sections = List{sections, family_default()};
  const std::string key = (rotary.block.empty() ? keys_.full("rope_parameters") : rotary.block) + ".mrope_section";
  doubts_.add("mrope-section-missing-family-default", {key},
              fmt::format("{} is not in the file; the family's {} {} are used", key, fmt::join(family()->sections, ", "),
                          rotary.section_order == SectionOrder::chunked ? "in runs" : "in turns"));
}

// LongChat and Giraffe: a linear factor under a key of its own, later beside the same factor in rope_scaling.
void HfRotary::read_condense_ratio(RotaryDeclaration& rotary) {
  if (const auto factor = keys_.number("rotary_scaling_factor"); factor && factor->value != 1) {  // nomic-bert
    rotary.type = {"dynamic", factor->origin};
    rotary.numbers["factor"] = *factor;
    if (const auto trained = keys_.number("max_trained_positions")) rotary.numbers["max_position_embeddings"] = *trained;
  }
  const auto ratio = keys_.number("rope_condense_ratio", "abacus_scale");
  if (!ratio || ratio->value == 1) return;
  const auto factor = rotary.numbers.find("factor");
  if (rotary.type.value == "default") {
    rotary.type = {"linear", ratio->origin};
    rotary.numbers["factor"] = *ratio;
  } else if (factor != rotary.numbers.end() && factor->second.value == ratio->value) {
    const std::string other = factor->second.origin.key;
    doubts_.add("scaling-stated-twice", {ratio->origin.key, other},
                fmt::format("{} and {} are one factor {}, applied once", ratio->origin.key, other, quoted(ratio->value)));
  } else {
    doubt(rotary, "factor-conflict", {ratio->origin.key, rotary.block},
          fmt::format("{} is {}, which {} does not say; {} is used", ratio->origin.key, quoted(ratio->value), rotary.block, rotary.block),
          [=](RotaryDeclaration& other) {
            other.type.value = "linear";
            other.numbers["factor"] = *ratio;
          });
  }
}

// The spelling the family's code reads; failing that any other, because the file states it, with a doubt, because that code does not see
// it.
std::optional<Number> HfRotary::own_or_foreign(RotaryDeclaration& rotary, std::string_view own, std::span<const std::string_view> spellings,
                                               const Change& default_of) {
  if (family() == nullptr) return keys_.first<double>(spellings);
  std::vector<std::string_view> own_first = {own};
  std::copy_if(spellings.begin(), spellings.end(), std::back_inserter(own_first), [&](auto key) { return key != own; });
  if (own.empty()) own_first.erase(own_first.begin());
  const auto found = keys_.first<double>(own_first);
  if (found && (own.empty() || !keys_.has(own))) {
    doubt(rotary, "foreign-key", {found->origin.key},
          fmt::format("{} = {} is used, but transformers' code for {} does not read this key", found->origin.key, quoted(found->value),
                      family()->name),
          default_of);
  }
  return found;
}

// ── theta ──

std::optional<Number> HfRotary::outer_theta(const Layer& layer, RotaryDeclaration& rotary) {
  if (layer.theta) return Number{*layer.theta, keys_.read("rope_theta")};
  if (layer.type == LayerType::compressed && keys_.has("compress_rope_theta")) return keys_.number("compress_rope_theta");
  if (has_own_base(layer)) return family() != nullptr ? keys_.number(family()->sliding_theta_key) : keys_.first<double>(sliding_theta_keys);
  if (const json* theta = keys_.find("rope_theta"); theta != nullptr && theta->is_array()) return std::nullopt;
  const auto without = [theta = family() != nullptr ? family()->theta : std::nullopt](RotaryDeclaration& other) {
    set_theta(other, theta.value_or(usual_theta));
  };
  if (auto theta = own_or_foreign(rotary, family() != nullptr ? family()->theta_key : "", theta_keys, without)) return theta;
  if (other_ != nullptr) {
    if (auto theta = keys_.inside(*other_, "rope_parameters").number("rope_theta")) return theta;
  }
  if (const json* attention = keys_.object("attn_config")) {  // DBRX, MPT
    if (auto theta = keys_.inside(*attention, "attn_config").number("rope_theta")) return theta;
  }
  // ChatGLM: a multiple of 10000.
  if (const auto ratio = keys_.number("rope_ratio")) return Number{10000 * ratio->value, keys_.derived(ratio->origin.key)};
  return std::nullopt;
}

void HfRotary::read_theta(const Layer& layer, const Keys* block, RotaryDeclaration& rotary) {
  const bool separate = has_own_base(layer);
  const auto inner = block != nullptr ? block->number("rope_theta") : std::nullopt;
  const auto outer = outer_theta(layer, rotary);
  for (const auto key : theta_keys) {
    if (separate || !outer || !keys_.has(key) || !keys_.find(key)->is_number()) continue;
    const auto other = keys_.number(key);
    if (other->value == outer->value) continue;  // else doubted where outer was read
    rotary.other_readings.push_back(
        {"keys-conflict", {outer->origin.key, other->origin.key}, [=](RotaryDeclaration& changed) { changed.theta = other; }});
  }
  rotary.theta = inner ? inner : outer;
  if (inner && outer && inner->value != outer->value && layer.type != LayerType::compressed) {
    doubt(rotary, "theta-conflict", {outer->origin.key, inner->origin.key},
          fmt::format("{} is {} but {} is {}; the inner one is used", outer->origin.key, quoted(outer->value), inner->origin.key,
                      quoted(inner->value)),
          [=](RotaryDeclaration& other) { other.theta = outer; });
  }
  check_suspect_theta(layer, rotary);
  if (rotary.theta || family() == nullptr) return;
  if (block_ != nullptr && !nested_ && !separate && keys_.inside(*block_, block_name_).has("rope_theta"))
    return;  // in a block for other layers
  if (const auto otherwise = separate ? family()->sliding_theta : family()->theta) {
    rotary.theta = Number{*otherwise, family_default()};
    const std::string key = keys_.full(separate                      ? family()->sliding_theta_key
                                       : family()->theta_key.empty() ? "rope_theta"
                                                                     : family()->theta_key);
    doubts_.add("theta-missing-family-default", {key},
                fmt::format("{} is not in the file; the family's {} is used", key, quoted(*otherwise)));
  }
}

// A base that files get from a converter which did not find the right one.
void HfRotary::check_suspect_theta(const Layer& layer, const RotaryDeclaration& rotary) {
  if (!rotary.theta || family() == nullptr || rotary.theta->value != family()->suspect_theta || has_own_base(layer)) return;
  doubts_.add("theta-suspected-default", {rotary.theta->origin.key},
              fmt::format("{} is {}, which no released file of {} states but readers fall back to", rotary.theta->origin.key,
                          quoted(rotary.theta->value), family()->name));
}

// ── width ──

// A whole width (rotary_dim; of latent attention qk_rope_head_dim) or a fraction of the head.
void HfRotary::read_width(const Layer& layer, const Keys* block, RotaryDeclaration& rotary) {
  const auto slice = keys_.integer("qk_rope_head_dim");
  const auto width = slice ? slice : keys_.integer("rotary_dim");
  const auto inner = block != nullptr ? block->number("partial_rotary_factor") : std::nullopt;
  const auto outer = layer.fraction ? std::optional(Number{*layer.fraction, keys_.read("partial_rotary_factors")})
                                    : own_or_foreign(rotary, family() != nullptr ? family()->fraction_key : "", fraction_keys,
                                                     [whole = head_dim()](RotaryDeclaration& other) { other.rotary_dim->value = whole; });
  if (head_dim() <= 0) return;                // doubted where the shape was read
  if (rotary.type.value == "proportional") {  // the fraction is that of the pairs that turn; the frequencies are those of the whole head
    if (const auto& fraction = inner ? inner : outer) rotary.numbers["partial_rotary_factor"] = *fraction;
    rotary.rotary_dim = Integer{head_dim(), declaration_.head_dim_origin};
    return;
  }
  if (slice) {
    rotary.rotary_dim = slice;
    return place_tail(rotary);
  }
  check_widths(inner, outer, rotary);
  std::optional<Integer> from_fraction;
  if (const auto& fraction = inner ? inner : outer) from_fraction = width_of(*fraction, rotary);
  if (width && from_fraction && width->value != from_fraction->value) {
    doubt(rotary, "rotary-width-conflict", {width->origin.key, from_fraction->origin.key},
          fmt::format("{} is {} but {} gives {} of {}; the first is used", width->origin.key, width->value, from_fraction->origin.key,
                      from_fraction->value, head_dim()),
          [=](RotaryDeclaration& other) { other.rotary_dim = from_fraction; });
  }
  rotary.rotary_dim = width ? *width : from_fraction ? *from_fraction : default_width(layer, rotary);
  if (family() != nullptr && family()->rotates_tail) place_tail(rotary);
}

// Latent attention rotates the last channels: those before them carry no position.
void HfRotary::place_tail(RotaryDeclaration& rotary) const {
  const std::int64_t before = head_dim() - rotary.rotary_dim->value;
  if (before > 0 && rotary.rotary_dim->value > 0) rotary.rotary_offset = static_cast<int>(before);
}

void HfRotary::check_widths(const std::optional<Number>& inner, const std::optional<Number>& outer, RotaryDeclaration& rotary) {
  const auto to_width = [this](double fraction) {
    return [width = static_cast<std::int64_t>(head_dim() * std::clamp(fraction, 0.0, 1.0))](RotaryDeclaration& other) {
      other.rotary_dim->value = width;
    };
  };
  if (inner && outer && inner->value != outer->value) {
    doubt(rotary, "rotary-width-conflict", {inner->origin.key, outer->origin.key},
          fmt::format("{} is {} but {} is {}; the first is used", inner->origin.key, quoted(inner->value), outer->origin.key,
                      quoted(outer->value)),
          to_width(outer->value));
  }
  const auto& fraction = inner ? inner : outer;
  if (fraction && fraction->value != 1 && family() != nullptr && !family()->partial) {
    doubt(rotary, "partial-rotary-ignored", {fraction->origin.key},
          fmt::format("{} = {} is honoured, but transformers' code for {} rotates whole heads", fraction->origin.key,
                      quoted(fraction->value), family()->name),
          to_width(1));
  }
}

// A width that is not whole is truncated, as transformers does, with a doubt.
Integer HfRotary::width_of(const Number& fraction, RotaryDeclaration& rotary) {
  const Integer width = files::width_of(head_dim(), fraction);
  const double product = head_dim() * fraction.value;
  if (width.value >= 0 && std::abs(product - static_cast<double>(width.value)) > 1e-6) {
    doubt(rotary, "fractional-rotary-width", {fraction.origin.key},
          fmt::format("{} = {} of {} is {}, truncated to {}", fraction.origin.key, quoted(fraction.value), head_dim(), quoted(product),
                      width.value),
          [](RotaryDeclaration& other) { other.rotary_dim->value += 2; });  // one pair more
  }
  return width;
}

Integer HfRotary::default_width(const Layer& layer, RotaryDeclaration& rotary) {
  Integer width{head_dim(), family_default()};
  if (family() == nullptr) return width;
  const auto fraction =
      layer.type == LayerType::sliding && family()->sliding_fraction ? family()->sliding_fraction : family()->rotary_fraction;
  if (!family()->rotary_dim && !fraction) return width;
  width = family()->rotary_dim ? Integer{*family()->rotary_dim, family_default()} : width_of({*fraction, family_default()}, rotary);
  doubts_.add("rotary-width-not-in-file", {keys_.full("partial_rotary_factor")},
              fmt::format("no rotated width in the file; the family's {} is used", width.value));
  return width;
}

}  // namespace gnomon::files
