// SPDX-License-Identifier: Apache-2.0
#include "model/hf_rotary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "spec/fields.hpp"

namespace gnomon::files {

using nlohmann::json;

namespace {

constexpr std::string_view theta_keys[] = {"rope_theta", "rotary_emb_base", "rope_base"};
constexpr std::string_view fraction_keys[] = {"partial_rotary_factor", "rotary_pct", "rotary_percentage", "rotary_emb_fraction"};
constexpr double usual_theta = 10000;  // what engines fall back to

// Decided by the structure of the values: labels differ between families.
bool is_nested(const json& block) {
  return std::any_of(block.begin(), block.end(), [](const json& value) { return value.is_object(); });
}

void set_theta(RotaryDeclaration& rotary, double theta) { rotary.theta = Number{theta, family_default()}; }

}  // namespace

HfRotary::HfRotary(const Keys& keys, const Declaration& declaration, Doubts& doubts)
    : keys_(keys), declaration_(declaration), doubts_(doubts) {
  blocks_.reserve(layer_type_names.size());  // their addresses are handed out
  choose_block();
}

bool HfRotary::is_declared() const {
  if (family() != nullptr || block_ != nullptr) return true;
  return std::any_of(std::begin(theta_keys), std::end(theta_keys), [&](auto key) { return keys_.has(key); });
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

std::optional<RotaryDeclaration> HfRotary::of(LayerType type) {
  auto rotary = nested_ ? of_nested(type) : of_flat(type);
  if (rotary && other_ != nullptr) add_other_block(type, *rotary);
  return rotary;
}

void HfRotary::add_other_block(LayerType type, RotaryDeclaration& rotary) const {
  HfRotary other(*this);
  other.block_ = other_, other.block_name_ = "rope_parameters", other.other_ = nullptr;
  other.nested_ = is_nested(*other_);
  other.blocks_.clear();
  const Doubts heard = doubts_;
  const auto reading = other.of(type);
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

std::optional<RotaryDeclaration> HfRotary::of_flat(LayerType type) {
  if (block_ == nullptr || (has_own_sliding_base() && type == LayerType::sliding)) return declare(type, nullptr, "");
  const std::string name = keys_.full(block_name_);
  if (blocks_.empty()) blocks_.push_back(keys_.inside(*block_, block_name_));
  auto rotary = declare(type, &blocks_.back(), name);
  if (has_own_sliding_base() && std::string_view(block_name_) == "rope_parameters") {
    doubt(rotary, "flat-block-for-layer-types", {name},
          fmt::format("{} is not given per layer type; it is applied to full-attention layers", name),
          [theta = family()->theta](RotaryDeclaration& other) {
            other.type.value = "default";
            if (theta) other.theta->value = *theta;
          });
  }
  return rotary;
}

std::optional<RotaryDeclaration> HfRotary::of_nested(LayerType type) {
  const Keys block = keys_.inside(*block_, block_name_);
  const std::string label(layer_type_names[index(type)]);
  if (const json* entry = block.object(label)) {
    blocks_.push_back(block.inside(*entry, label));
    return declare(type, &blocks_.back(), block.full(label));
  }
  if (has_own_sliding_base()) return declare(type, nullptr, "");
  if (block.is_null(label)) return std::nullopt;  // these layers do not rotate
  doubts_.add("layer-type-missing", {block.full(label)},
              fmt::format("{} is given per layer type, but not for {}", keys_.full(block_name_), label));
  return std::nullopt;
}

RotaryDeclaration HfRotary::declare(LayerType type, const Keys* block, std::string block_name) {
  RotaryDeclaration rotary;
  rotary.block = std::move(block_name);
  if (block != nullptr) read_scaling(*block, rotary);
  read_original_length(block, rotary);
  if (type == LayerType::full || !has_own_sliding_base()) read_condense_ratio(rotary);
  read_theta(type, block, rotary);
  read_width(block, rotary);
  if (block != nullptr) check_version(*block, rotary);
  return rotary;
}

// transformers 4 and converters of its time read rope_theta and rope_scaling only.
void HfRotary::check_version(const Keys& block, RotaryDeclaration& rotary) {
  if (std::string_view(block_name_) != "rope_parameters" || other_ != nullptr || keys_.has("rope_theta")) return;
  const bool based = block.has("rope_theta") && rotary.theta && rotary.theta->value != usual_theta;
  if (!based && rotary.type.value == "default") return;
  doubt(
      rotary, "rope-parameters-only", {keys_.full("rope_parameters")},
      fmt::format("transformers 4 and older converters do not read {} and fall back to base {} without scaling", rotary.block, usual_theta),
      [](RotaryDeclaration& other) {
        other.type.value = "default";
        set_theta(other, usual_theta);
      });
}

// ── scaling ──

void HfRotary::read_scaling(const Keys& block, RotaryDeclaration& rotary) {
  read_type(block, rotary);
  read_numbers(block, rotary);
  read_extras(block, rotary);
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
  if (rotary.type.value == "su") {
    doubts_.add("scaling-type-alias", {key}, fmt::format("{}: \"su\" is the old name of longrope", key));
    rotary.type.value = "longrope";
  }
  if (rotary.type.value == "mrope") {  // the sections say the rest
    doubts_.add("scaling-type-alias", {key}, fmt::format("{}: \"mrope\" is default with sections", key));
    rotary.type.value = "default";
  }
  if (rotary.type.value == "dynamic" && !declaration_.length) {
    doubts_.add("dynamic-length-missing", {key}, fmt::format("{}: dynamic grows from the trained length, and the file states none", key));
  }
}

// Every numeric field of every rule, so that a new rule needs no edit here.
void HfRotary::read_numbers(const Keys& block, RotaryDeclaration& rotary) {
  for_each_rotary_rule([&]<class Rule>(const Rule&) {
    each_field<Rule>([&](const auto& field) {
      using Value = std::remove_cvref_t<decltype(std::declval<Rule&>().*field.member)>;
      if constexpr (std::is_same_v<Value, std::vector<double>>) {
        if (const auto value = block.list(field.name)) rotary.lists[std::string(field.name)] = *value;
      } else if constexpr (!std::is_same_v<Value, bool> && !std::is_enum_v<Value>) {
        if (const auto value = block.number(field.name)) rotary.numbers[std::string(field.name)] = *value;
      }
    });
  });
  rotary.truncate = block.boolean("truncate");
  rotary.attention_factor = block.number("attention_factor");
  rotary.factor_is_null = block.is_null("factor");
  for (const auto& [key, otherwise] : {std::pair("beta_fast", 32), std::pair("beta_slow", 1)}) {
    if (block.is_null(key))
      doubts_.add("beta-default", {block.full(key)}, fmt::format("{} is null; {} is used", block.full(key), otherwise));
  }
}

// The inner value is the author's statement about this rule; transformers 5 lets the outer one win.
void HfRotary::read_original_length(const Keys* block, RotaryDeclaration& rotary) {
  constexpr auto name = "original_max_position_embeddings";
  const auto outer = keys_.number(name);
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

void HfRotary::read_extras(const Keys& block, RotaryDeclaration& rotary) {
  block.find("finetuned");  // a mark only
  if (const auto multiplier = block.number("attn_factor")) {
    rotary.magnitude_multiplier = multiplier;
    doubts_.add("attn-factor-multiplier", {multiplier->origin.key},
                fmt::format("{} = {} multiplies the magnitude of the rule", multiplier->origin.key, quoted(multiplier->value)));
  }
  if (const auto beta = block.number("llama_4_scaling_beta"); beta && beta->value != 0) {
    doubts_.add("query-temperature", {beta->origin.key},
                fmt::format("{}: queries are scaled by their position, which is not reported here", beta->origin.key));
  }
  rotary.sections = block.list("mrope_section");
  // The code of these families takes turns whether the file says so or not.
  const std::string& type = declaration_.model.type;
  rotary.sections_interleaved = type.starts_with("qwen3_vl") || type.starts_with("qwen3_5");
  if (const auto interleaved = block.boolean("mrope_interleaved")) rotary.sections_interleaved = interleaved->value;
}

// LongChat and Giraffe: a linear factor under a key of its own, later beside the same factor in rope_scaling.
void HfRotary::read_condense_ratio(RotaryDeclaration& rotary) {
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

void HfRotary::read_theta(LayerType type, const Keys* block, RotaryDeclaration& rotary) {
  const bool separate = has_own_sliding_base() && type == LayerType::sliding;
  const auto inner = block != nullptr ? block->number("rope_theta") : std::nullopt;
  const auto without = [theta = family() != nullptr ? family()->theta : std::nullopt](RotaryDeclaration& other) {
    set_theta(other, theta.value_or(usual_theta));
  };
  auto outer = separate ? keys_.number("rope_local_base_freq")
                        : own_or_foreign(rotary, family() != nullptr ? family()->theta_key : "", theta_keys, without);
  if (!outer && !separate && other_ != nullptr) outer = keys_.inside(*other_, "rope_parameters").number("rope_theta");
  for (const auto key : theta_keys) {
    const auto other = separate ? std::nullopt : keys_.number(key);
    if (!outer || !other || other->value == outer->value) continue;  // else doubted where outer was read
    rotary.other_readings.push_back(
        {"keys-conflict", {outer->origin.key, other->origin.key}, [=](RotaryDeclaration& changed) { changed.theta = other; }});
  }
  rotary.theta = inner ? inner : outer;
  if (inner && outer && inner->value != outer->value) {
    doubt(rotary, "theta-conflict", {outer->origin.key, inner->origin.key},
          fmt::format("{} is {} but {} is {}; the inner one is used", outer->origin.key, quoted(outer->value), inner->origin.key,
                      quoted(inner->value)),
          [=](RotaryDeclaration& other) { other.theta = outer; });
  }
  if (rotary.theta || family() == nullptr) return;
  if (const auto otherwise = separate ? family()->sliding_theta : family()->theta) {
    rotary.theta = Number{*otherwise, family_default()};
    const std::string key = keys_.full(separate                      ? "rope_local_base_freq"
                                       : family()->theta_key.empty() ? "rope_theta"
                                                                     : family()->theta_key);
    doubts_.add("theta-missing-family-default", {key},
                fmt::format("{} is not in the file; the family's {} is used", key, quoted(*otherwise)));
  }
}

// ── width ──

// A whole width (rotary_dim) or a fraction of the head.
void HfRotary::read_width(const Keys* block, RotaryDeclaration& rotary) {
  const auto width = keys_.integer("rotary_dim");
  const auto inner = block != nullptr ? block->number("partial_rotary_factor") : std::nullopt;
  const auto outer = own_or_foreign(rotary, family() != nullptr ? family()->fraction_key : "", fraction_keys,
                                    [whole = head_dim()](RotaryDeclaration& other) { other.rotary_dim->value = whole; });
  if (head_dim() <= 0) return;                // doubted where the shape was read
  if (rotary.type.value == "proportional") {  // the fraction is that of the pairs that turn; the frequencies are those of the whole head
    if (const auto& fraction = inner ? inner : outer) rotary.numbers["partial_rotary_factor"] = *fraction;
    rotary.rotary_dim = Integer{head_dim(), declaration_.head_dim_origin};
    return;
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
  rotary.rotary_dim = width ? *width : from_fraction ? *from_fraction : default_width(rotary);
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

// int(head_dim * fraction), but a product that is whole up to rounding is taken as whole: 200 * 0.29 is 58, not 57.
Integer HfRotary::width_of(const Number& fraction, RotaryDeclaration& rotary) {
  const double product = head_dim() * fraction.value;
  if (!(product >= 0 && product <= std::numeric_limits<int>::max())) return {-1, fraction.origin};  // out of range in any case
  const double whole = std::round(product);
  if (std::abs(product - whole) <= 1e-6) return {static_cast<std::int64_t>(whole), fraction.origin};
  doubt(rotary, "fractional-rotary-width", {fraction.origin.key},
        fmt::format("{} = {} of {} is {}, truncated to {}", fraction.origin.key, quoted(fraction.value), head_dim(), quoted(product),
                    std::trunc(product)),
        [](RotaryDeclaration& other) { other.rotary_dim->value += 2; });  // one pair more
  return {static_cast<std::int64_t>(product), fraction.origin};
}

Integer HfRotary::default_width(RotaryDeclaration& rotary) {
  Integer width{head_dim(), family_default()};
  if (family() == nullptr || (!family()->rotary_dim && !family()->rotary_fraction)) return width;
  width = family()->rotary_dim ? Integer{*family()->rotary_dim, family_default()}
                               : width_of({*family()->rotary_fraction, family_default()}, rotary);
  doubts_.add("rotary-width-not-in-file", {keys_.full("partial_rotary_factor")},
              fmt::format("no rotated width in the file; the family's {} is used", width.value));
  return width;
}

}  // namespace gnomon::files
