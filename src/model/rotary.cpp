// SPDX-License-Identifier: Apache-2.0
// From declared numbers to a rotary spec.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "model/declaration.hpp"
#include "spec/fields.hpp"

namespace gnomon::files {
namespace {

constexpr std::int64_t largest_length = 2000000000;

// Known to the field, but without a rule in this version.
constexpr std::string_view types_without_rule[] = {"axial", "xdrope"};

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

class Builder {
 public:
  Builder(const Declaration& declaration, const RotaryDeclaration& rotary, Doubts& doubts)
      : declaration_(declaration), rotary_(rotary), numbers_(rotary.numbers), other_readings_(rotary.other_readings), doubts_(doubts) {}

  RotaryResult build() {
    prepare();
    auto rule = make_rule();
    const bool sound = width_is_sound(), based = theta_is_there();  // both are asked, for the doubts they raise
    if (rule && sound && based) make_spec(std::move(*rule));
    settle_extent();
    return std::move(result_);
  }

  /// Those of the declaration and those of the doubts that came up here.
  const std::vector<OtherReading>& other_readings() const { return other_readings_; }

 private:
  void doubt(DoubtCode code, const std::vector<std::string>& keys, std::string message, std::function<void(RotaryDeclaration&)> change) {
    doubts_.add(code, keys, std::move(message));
    other_readings_.push_back({code, keys, std::move(change)});
  }
  std::string key(std::string_view field) const {
    return rotary_.block.empty() ? std::string(field) : rotary_.block + "." + std::string(field);
  }
  int head_dim() const { return rotary_.head_dim ? static_cast<int>(rotary_.head_dim->value) : declaration_.model.head_dim; }
  bool is(std::string_view type) const { return rotary_.type.value == type; }
  std::optional<double> number(std::string_view field) const {
    const auto found = numbers_.find(field);
    return found == numbers_.end() ? std::nullopt : std::optional(found->second.value);
  }

  // What a rule's type allows to be left out.
  void prepare() {
    const auto& length = declaration_.length;
    if (is("dynamic") && !number("max_position_embeddings") && length) {
      numbers_["max_position_embeddings"] = {static_cast<double>(length->value), length->origin};
    }
    if (is("longrope")) prepare_longrope();
    if (!is("yarn") && !is("llama3")) return;
    if (!number("original_max_position_embeddings") && length) {
      original_is_assumed_ = true;
      numbers_["original_max_position_embeddings"] = {static_cast<double>(length->value),
                                                      {"derived", length->origin.file, length->origin.key}};
      const double before_scaling = static_cast<double>(length->value) / number("factor").value_or(1);
      doubt(
          "original-length-missing", {key("original_max_position_embeddings"), length->origin.key},
          fmt::format("{} is not in the file; {} = {} is used", key("original_max_position_embeddings"), length->origin.key, length->value),
          [=](RotaryDeclaration& other) { other.numbers["original_max_position_embeddings"] = {std::round(before_scaling), {}}; });
    }
    if (is("yarn")) prepare_yarn();
  }

  // transformers takes the ratio of the lengths where no factor is given.
  void prepare_longrope() {
    const auto original = number("original_max_position_embeddings");
    if (number("factor") || !declaration_.length || !original || *original <= 0) return;
    const std::string from = declaration_.length->origin.key + " / " + numbers_["original_max_position_embeddings"].origin.key;
    numbers_["factor"] = {static_cast<double>(declaration_.length->value) / *original, {"derived", declaration_.length->origin.file, from}};
  }

  void prepare_yarn() {
    const auto original = number("original_max_position_embeddings");
    if (rotary_.factor_is_null && declaration_.length && original && *original > 0) {
      const double factor = static_cast<double>(declaration_.length->value) / *original;
      const std::string from = declaration_.length->origin.key + " / " + numbers_["original_max_position_embeddings"].origin.key;
      numbers_["factor"] = {factor, {"derived", declaration_.length->origin.file, from}};
      doubts_.add("factor-derived", {key("factor")}, fmt::format("{} is null; {} = {} is used", key("factor"), from, quoted(factor)));
    }
    for (const auto& [field, otherwise] : {std::pair("beta_fast", 32.0), std::pair("beta_slow", 1.0)}) {
      if (number(field) != 0) continue;
      doubts_.add("beta-default", {key(field)}, fmt::format("{} is 0; {} is used", key(field), otherwise));
      numbers_[field] = {otherwise, family_default()};
    }
  }

  std::optional<RotaryRule> make_rule() {
    std::optional<RotaryRule> rule;
    bool known = false;
    for_each_rotary_rule([&]<class Rule>(const Rule&) {
      if (!is(Rule::name)) return;
      known = true;
      rule = fill<Rule>();
    });
    if (!known) doubt_type();
    return rule;
  }

  void doubt_type() {
    const std::string type = quoted(nlohmann::json(rotary_.type.value));
    if (std::find(std::begin(types_without_rule), std::end(types_without_rule), rotary_.type.value) != std::end(types_without_rule)) {
      doubts_.add("rule-not-available", {rotary_.type.origin.key},
                  fmt::format("{}: the rule {} is known but not offered by this version", rotary_.type.origin.key, type));
    } else {
      doubts_.add("scaling-unknown", {rotary_.type.origin.key}, fmt::format("{}: unknown scaling type {}", rotary_.type.origin.key, type));
    }
  }

  template <class Rule>
  std::optional<RotaryRule> fill() {
    Rule rule;
    bool complete = true;
    result_.origins["rotary.rule"] = rotary_.type.origin;
    each_field<Rule>([&](const auto& field) {
      auto& value = rule.*field.member;
      using Value = std::remove_cvref_t<decltype(value)>;
      Origin origin = family_default();
      if constexpr (std::is_same_v<Value, bool>) {
        if (rotary_.truncate && field.name == "truncate") value = rotary_.truncate->value, origin = rotary_.truncate->origin;
      } else if constexpr (std::is_same_v<Value, std::vector<double>>) {
        if (const auto found = rotary_.lists.find(field.name); found != rotary_.lists.end()) {
          value = found->second.value, origin = found->second.origin;
        } else {
          complete = false;
          doubts_.add("scaling-field-missing", {key(field.name)},
                      fmt::format("{}: {} needs it, and it is not in the file", key(field.name), Rule::name));
        }
      } else if constexpr (!std::is_enum_v<Value>) {
        if (const auto found = numbers_.find(field.name); found != numbers_.end()) {
          assign(field.name, found->second, value);
          origin = found->second.origin;
        } else if (field.required) {
          complete = false;
          if (is("dynamic") && field.name == "max_position_embeddings") return;  // doubted where the type was read
          doubts_.add("scaling-field-missing", {key(field.name)},
                      fmt::format("{}: {} needs it, and it is not in the file", key(field.name), Rule::name));
        }
      }
      result_.origins["rotary." + std::string(field.name)] = origin;
    });
    return complete ? std::optional<RotaryRule>(rule) : std::nullopt;
  }

  template <class Value>
  void assign(std::string_view field, const Number& read, Value& value) {
    if constexpr (!std::is_same_v<Value, std::int64_t>) {
      value = read.value;
    } else if (read.value == std::trunc(read.value) && std::abs(read.value) <= largest_length) {
      value = static_cast<std::int64_t>(read.value);
    } else {
      doubts_.add("value-invalid", {read.origin.key},
                  fmt::format("{}: expected an integer up to {}, got {}", key(field), largest_length, quoted(read.value)));
    }
  }

  bool theta_is_there() {
    if (rotary_.theta) {
      result_.origins["rotary.theta"] = rotary_.theta->origin;
      return true;
    }
    const std::string name = declaration_.model.type.empty() ? "this model" : declaration_.model.type;
    doubts_.add("theta-missing", {"rope_theta"}, fmt::format("no base of the frequencies in the file, and no family default for {}", name));
    return false;
  }

  bool width_is_sound() {
    if (!rotary_.rotary_dim || head_dim() <= 0) return false;  // doubted where the shape was read
    const auto& [width, origin] = *rotary_.rotary_dim;
    result_.origins["rotary.rotary_dim"] = origin;
    result_.origins["rotary.head_dim"] = rotary_.head_dim ? rotary_.head_dim->origin : declaration_.head_dim_origin;
    result_.origins["rotary.layout"] = declaration_.layout_origin;
    const std::string name = origin.key.empty() ? "rotary width" : origin.key;
    if (width < 2 || width > head_dim()) {
      doubts_.add("rotary-width-out-of-range", {name},
                  fmt::format("{}: {} channels would rotate, expected 2 to head_dim = {}", name, width, head_dim()));
      return false;
    }
    if (width % 2 != 0) {
      doubts_.add("rotary-width-odd", {name}, fmt::format("{}: {} channels would rotate, expected an even number", name, width));
      return false;
    }
    if (width > widest_head) {
      doubts_.add("value-invalid", {name}, fmt::format("{}: {} channels would rotate, expected at most {}", name, width, widest_head));
      return false;
    }
    return true;
  }

  void make_spec(RotaryRule rule) {
    check_lists(rule);
    RotarySpec spec{std::move(rule),
                    rotary_.theta->value,
                    head_dim(),
                    static_cast<int>(rotary_.rotary_dim->value),
                    rotary_.rotary_offset,
                    rotary_.layout.value_or(declaration_.layout),
                    {}};
    spec.axes = rotary_.axes;
    read_sections(spec);
    try {
      validate(spec);
      apply_magnitude(spec);
      validate(spec);
    } catch (const Error& error) {
      doubts_.add("value-invalid", {rotary_.block.empty() ? "rope_theta" : rotary_.block}, error.what());
      return;
    }
    result_.spec = std::move(spec);
    check_yarn(*result_.spec);
    if (is("ntk") && !rotary_.stated_as_alpha) {
      doubt("ntk-ambiguous", {rotary_.type.origin.key},
            fmt::format("{}: ntk is read as theta * factor^(r/(r-2)); other engines read it otherwise", rotary_.type.origin.key),
            [width = spec.rotary_dim](RotaryDeclaration& other) {  // vLLM's: base theta * factor, then all divided by factor^(2/r)
              double& factor = other.numbers["factor"].value;
              other.type.value = "linear";
              other.theta->value *= factor;
              factor = std::pow(factor, 2.0 / width);
            });
    }
  }

  void check_lists(const RotaryRule& rule) {
    if (!std::holds_alternative<rotary::Longrope>(rule)) return;
    const auto pairs = static_cast<std::size_t>(rotary_.rotary_dim->value / 2);
    for (const auto& [name, list] : rotary_.lists) {
      if (list.value.size() == pairs) continue;
      doubts_.add("longrope-list-length", {list.origin.key},
                  fmt::format("{} has {} divisors, expected one for each of the {} pairs", list.origin.key, list.value.size(), pairs));
    }
  }

  void read_sections(RotarySpec& spec) {
    if (!rotary_.sections) return;
    result_.origins["rotary.sections"] = rotary_.sections->origin;
    for (const double section : rotary_.sections->value) {
      const bool whole = section == std::trunc(section) && std::abs(section) <= widest_head;
      spec.sections.push_back(whole ? static_cast<int>(section) : -1);  // refused by validate()
    }
    spec.section_order = rotary_.section_order;
    const double sum = std::accumulate(rotary_.sections->value.begin(), rotary_.sections->value.end(), 0.0);
    if (2 * sum == spec.rotary_dim || rotary_.sections->origin.key.empty()) return;
    doubts_.add("sections-sum", {rotary_.sections->origin.key},
                fmt::format("{} adds up to {}, expected {} pairs, half of the {} rotated channels", rotary_.sections->origin.key,
                            quoted(sum), spec.rotary_dim / 2, spec.rotary_dim));
  }

  // Two keys that each settle the magnitude.
  void check_magnitudes(double implied) {
    const auto& stated = rotary_.attention_factor;
    if (!stated || stated->origin.how != "read" || !is("yarn")) return;
    const bool by_scales = number("mscale").value_or(0) != 0 && number("mscale_all_dim").value_or(0) != 0;
    if (by_scales && !near(stated->value, implied)) {
      doubts_.add("magnitude-conflict", {stated->origin.key, key("mscale"), key("mscale_all_dim")},
                  fmt::format("{} is {}, but {} and {} give {}; the first is used", stated->origin.key, quoted(stated->value),
                              key("mscale"), key("mscale_all_dim"), quoted(implied)));
    }
    if (rotary_.magnitude_multiplier) {
      doubts_.add("magnitude-conflict", {stated->origin.key, rotary_.magnitude_multiplier->origin.key},
                  fmt::format("{} and {} both state a magnitude; their product is used", stated->origin.key,
                              rotary_.magnitude_multiplier->origin.key));
    }
  }

  // An explicit magnitude equal to the implied one is no override.
  void apply_magnitude(RotarySpec& spec) {
    const double implied = effective_attention_factor(spec);
    check_magnitudes(implied);
    double magnitude = implied;
    const bool has_magnitude = is("yarn") || is("longrope");
    Origin origin = has_magnitude ? Origin{"derived", rotary_.type.origin.file, key("factor")} : family_default();
    if (rotary_.attention_factor) {
      if (has_magnitude) {
        magnitude = rotary_.attention_factor->value, origin = rotary_.attention_factor->origin;
      } else if (rotary_.attention_factor->value != 1) {
        doubts_.add("attention-factor-ignored", {rotary_.attention_factor->origin.key},
                    fmt::format("{} = {} is not applied: it has no meaning for the rule {}", rotary_.attention_factor->origin.key,
                                quoted(rotary_.attention_factor->value), rotary_.type.value));
      }
    }
    if (rotary_.magnitude_multiplier) {
      magnitude *= rotary_.magnitude_multiplier->value;
      origin = rotary_.magnitude_multiplier->origin;
    }
    if (magnitude != implied) spec.attention_factor = magnitude;
    result_.origins["rotary.attention_factor"] = origin;
  }

  // The bounds are clamped to 0 and r - 1, one by one, and the upper one may end up below the lower one.
  void check_ramp(const RotarySpec& spec, const rotary::Yarn& yarn) {
    const auto bounds = yarn.bounds<ExactArithmetic>(rule_inputs(spec).front());
    const double low = static_cast<double>(bounds.first), high = static_cast<double>(bounds.second);
    if (low < spec.rotary_dim / 2) return;
    doubts_.add("ramp-without-effect", {rotary_.block},
                high < low
                    ? "the ramp of yarn begins beyond the last channel, where its clamped bounds change places: every pair is interpolated"
                    : "the ramp of yarn begins beyond the last pair, so no pair is interpolated");
  }

  void check_yarn(const RotarySpec& spec) {
    const auto* yarn = std::get_if<rotary::Yarn>(&spec.rule);
    if (yarn == nullptr) return;
    check_ramp(spec, *yarn);
    if (original_is_assumed_ || rotary_.factor_is_null || !declaration_.length) return;
    const double ratio = static_cast<double>(declaration_.length->value) / static_cast<double>(yarn->original_max_position_embeddings);
    if (near(ratio, yarn->factor)) return;
    doubt("factor-vs-length-ratio", {key("factor"), declaration_.length->origin.key, key("original_max_position_embeddings")},
          fmt::format("{} is {}, but {} / {} is {} / {} = {}; the factor is used", key("factor"), quoted(yarn->factor),
                      declaration_.length->origin.key, key("original_max_position_embeddings"), declaration_.length->value,
                      yarn->original_max_position_embeddings, quoted(ratio)),
          [=](RotaryDeclaration& other) { other.numbers["factor"].value = std::max(ratio, 1.0); });
  }

  // The length a scaling implies is factor * original; the maximum in the file is never multiplied when the original is known.
  void settle_extent() {
    const auto original = number("original_max_position_embeddings");
    const auto length = declaration_.length ? std::optional(declaration_.length->value) : std::nullopt;
    if (original && *original > 0 && *original < 1e15) result_.extent.original = static_cast<std::int64_t>(*original);
    const bool longrope_by_length =
        is("longrope") && numbers_.contains("factor") && numbers_.find("factor")->second.origin.how == "derived";
    if (is("default") || is("proportional") || longrope_by_length) {
      result_.extent.derived = length;
    } else if (is("linear")) {
      settle_linear_extent(length);
    } else if (is("dynamic")) {
      if (const auto factor = number("factor"); factor && length && *factor > 0 && *factor < 1e6) {
        result_.extent.derived = std::llround(*factor * static_cast<double>(*length));
      }
    } else if (const auto factor = number("factor"); factor && result_.extent.original && *factor > 0 && *factor < 1e6) {
      result_.extent.derived = std::llround(*factor * *original);
    }
  }

  // Plain linear files do not say on which side of the factor their maximum stands, unless a second length tells.
  void settle_linear_extent(std::optional<std::int64_t> length) {
    const auto factor = number("factor");
    if (!factor || !(*factor > 0 && *factor < 1e6)) return;
    auto& [original, derived] = result_.extent;
    if (original) {
      derived = std::llround(*factor * static_cast<double>(*original));
      return;
    }
    if (!length) return;
    for (const auto& other : declaration_.other_lengths) {
      if (near(static_cast<double>(other.value), *factor * static_cast<double>(*length))) original = *length, derived = other.value;
    }
    if (original) return;
    if (declaration_.family != nullptr && declaration_.family->length_is_scaled) {
      derived = length;
    } else if (*factor > 1 && !rotary_.length_is_settled) {
      doubts_.add(
          "linear-original-unknown", {declaration_.length->origin.key, key("factor")},
          fmt::format("{} = {} may stand before or after the factor {}", declaration_.length->origin.key, *length, quoted(*factor)));
    }
  }

  const Declaration& declaration_;
  const RotaryDeclaration& rotary_;
  std::map<std::string, Number, std::less<>> numbers_;
  std::vector<OtherReading> other_readings_;
  Doubts& doubts_;
  RotaryResult result_;
  bool original_is_assumed_ = false;
};

// A sequence as long as the model's: what rules that depend on the length run at.
std::int64_t length_of(const Extent& extent, const Declaration& declaration) {
  constexpr std::int64_t usual_length = 4096;
  const std::int64_t length = extent.derived.value_or(declaration.length ? declaration.length->value : usual_length);
  return length < 1 ? usual_length : length;
}

}  // namespace

void read_rule_fields(const Keys& block, RotaryDeclaration& rotary) {
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
}

Integer width_of(int head_dim, const Number& fraction) {
  const double product = head_dim * fraction.value;
  if (!(product >= 0 && product <= std::numeric_limits<int>::max())) return {-1, fraction.origin};
  const double whole = std::round(product);
  return {static_cast<std::int64_t>(std::abs(product - whole) <= 1e-6 ? whole : product), fraction.origin};
}

std::optional<double> latent_magnitude(const RotaryDeclaration& rotary) {
  const auto factor = rotary.numbers.find("factor"), all_dim = rotary.numbers.find("mscale_all_dim");
  if (rotary.type.value != "yarn" || factor == rotary.numbers.end() || all_dim == rotary.numbers.end()) return std::nullopt;
  if (all_dim->second.value == 0 || !(factor->second.value > 1)) return std::nullopt;
  return rotary::Yarn::magnitude(factor->second.value, all_dim->second.value);
}

RotaryResult make_rotary(const Declaration& declaration, const RotaryDeclaration& rotary, Doubts& doubts) {
  Builder builder(declaration, rotary, doubts);
  RotaryResult result = builder.build();
  constexpr int widest_costed = 2048;  // a file may state any width; models have a quarter of this
  if (!result.spec || result.spec->head_dim > widest_costed) return result;
  for (const auto& reading : builder.other_readings()) {
    RotaryDeclaration changed = rotary;
    reading.change(changed);
    Doubts unheard;
    const auto other = Builder(declaration, changed, unheard).build();
    if (other.spec) doubts.set_dispute(reading.code, reading.keys, {*result.spec, *other.spec, length_of(result.extent, declaration)});
  }
  return result;
}

}  // namespace gnomon::files
