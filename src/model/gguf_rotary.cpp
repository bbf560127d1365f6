// SPDX-License-Identifier: Apache-2.0
// What rotates the layers of a GGUF file: width, base, scaling, and the tensors of frequency factors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnomon/error.hpp"
#include "gnomon/frequencies.hpp"
#include "model/gguf.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view long_factors = "rope_factors_long.", short_factors = "rope_factors_short.", divisor_tensor = "rope_freqs.";
constexpr float infinite_divisor = 1e29F;  // the converter writes 1e30 for a pair that stands still

bool has_sections(const nlohmann::json& object) {
  const auto found = object.find("rope.dimension_sections");
  return found != object.end() && found->is_array() &&
         std::any_of(found->begin(), found->end(), [](const auto& section) { return section != 0; });
}

}  // namespace

// ── which layers ──

void GgufReader::read_rotations() {
  read_layout();
  if (!rotates()) return;
  const RotaryDeclaration unscaled = read_unscaled();
  RotaryDeclaration rotary = unscaled;
  settle_width(rotary, count("rope.dimension_count"));
  read_scaling(rotary);
  read_tensors(rotary);
  const DefaultTheta otherwise{architecture->theta.value_or(0), "llama.cpp"};
  default_theta(rotary, "rope.freq_base", architecture->theta ? std::optional(otherwise) : std::nullopt);
  declaration_.kinds[full].rotary = rotary;
  declaration_.kinds[sliding].rotary = of_sliding(rotary, unscaled);
}

// In Granite's files the mark of fine-tuning is a switch of the rotation.
bool GgufReader::rotates() {
  const auto finetuned = keys_.boolean("rope.scaling.finetuned");
  if (name.starts_with("granite") && finetuned && !finetuned->value) return false;
  if (architecture->layers_with_alibi > 0 && architecture->layers_with_alibi == model().layers) return false;
  return architecture->pairs != GgufPairs::none;
}

void GgufReader::read_layout() {
  const bool axes = has_sections(object);
  const bool interleaved = architecture->pairs == GgufPairs::norm || (architecture->pairs == GgufPairs::glm && !axes);
  declaration_.layout = interleaved ? PairLayout::interleaved : PairLayout::half_split;
}

RotaryDeclaration GgufReader::read_unscaled() {
  RotaryDeclaration rotary;
  rotary.block = keys_.full("rope.scaling");
  rotary.theta = keys_.number("rope.freq_base");
  return rotary;
}

// Sliding layers may have a base, a width of heads and a rotated width of their own, and may be left unscaled.
RotaryDeclaration GgufReader::of_sliding(const RotaryDeclaration& scaled, const RotaryDeclaration& unscaled) {
  RotaryDeclaration rotary = architecture->sliding_theta || architecture->sliding_unscaled ? unscaled : scaled;
  auto theta = keys_.number("rope.freq_base_swa");
  if (!theta && architecture->sliding_theta) theta = Number{*architecture->sliding_theta, family_default()};
  rotary.theta = theta ? theta : scaled.theta;
  rotary.head_dim = count("attention.key_length_swa");
  auto width = count("rope.dimension_count_swa");
  if (!width && !rotary.head_dim) width = count("rope.dimension_count");
  settle_width(rotary, width);
  return rotary;
}

// Where the file states no width whole heads rotate. In latent attention the rotated channels are the last.
void GgufReader::settle_width(RotaryDeclaration& rotary, const std::optional<Integer>& width) {
  const int head_dim = rotary.head_dim ? static_cast<int>(rotary.head_dim->value) : model().head_dim;
  const bool unreadable = !width && keys_.has("rope.dimension_count") && !rotary.head_dim;
  if (unreadable || head_dim < 1) return;
  rotary.rotary_dim = width ? *width : Integer{head_dim, family_default()};
  if (architecture->latent && rotary.rotary_dim->value < head_dim)
    rotary.rotary_offset = head_dim - static_cast<int>(rotary.rotary_dim->value);
}

// ── scaling ──

void GgufReader::read_scaling(RotaryDeclaration& rotary) {
  auto factor = keys_.number("rope.scaling.factor");
  if (const auto old = keys_.number("rope.scale_linear"); !factor) factor = old;
  rotary.type = keys_.text("rope.scaling.type").value_or(Text{"linear", family_default()});
  const bool unscaled = !factor || factor->value == 0 || factor->value == 1;
  if (rotary.type.value == "none" || (rotary.type.value == "linear" && unscaled)) rotary.type.value = "default";
  if (factor) rotary.numbers["factor"] = *factor;
  if (const auto original = keys_.number("rope.scaling.original_context_length"))
    rotary.numbers["original_max_position_embeddings"] = *original;
  read_yarn(rotary);
  if (const auto alpha = keys_.number("rope.scaling.alpha"); alpha && alpha->value != 0 && alpha->value != 1) {
    rotary.type = {"ntk", alpha->origin};
    rotary.numbers["factor"] = *alpha;
    rotary.stated_as_alpha = true;
  }
  // With factor lists it is the magnitude itself.
  const bool has_lists = std::any_of(header.tensors.begin(), header.tensors.end(),
                                     [](const auto& named) { return named.first.find("rope_factors_") != std::string::npos; });
  if (const auto magnitude = keys_.number("rope.scaling.attn_factor"); magnitude && magnitude->value != 1)
    (has_lists ? rotary.attention_factor : rotary.magnitude_multiplier) = magnitude;
  read_sections(rotary);
}

void GgufReader::read_yarn(RotaryDeclaration& rotary) {
  if (const auto fast = keys_.number("rope.scaling.yarn_beta_fast")) rotary.numbers["beta_fast"] = *fast;
  if (const auto slow = keys_.number("rope.scaling.yarn_beta_slow")) rotary.numbers["beta_slow"] = *slow;
  read_log_multiplier(rotary);
  const bool yarn = rotary.type.value == "yarn";
  if (const auto weight = keys_.number("rope.scaling.yarn_ext_factor"); yarn && weight && weight->value == 0) {
    rotary.type = {"linear", weight->origin};  // every pair is interpolated, and ggml leaves the magnitude out
  } else if (yarn && weight && weight->value != 1) {
    doubts_.add(
        "rule-not-available", {weight->origin.key},
        fmt::format("{} = {}: a weighted ramp is known but not offered by this version", weight->origin.key, quoted(weight->value)));
  }
  if (const auto multiplier = keys_.number("rope.scaling.yarn_attn_factor"); yarn && multiplier && multiplier->value != 1) {
    doubts_.add(
        "engine-ignores-key", {multiplier->origin.key},
        fmt::format("{} = {}: llama.cpp overwrites it with the magnitude of yarn", multiplier->origin.key, quoted(multiplier->value)));
  }
  if (!yarn || architecture->truncate) return;
  rotary.truncate = Boolean{false, family_default()};
  doubts_.add("engine-ignores-key", {keys_.full("rope.scaling.type")},
              fmt::format("{} was trained with a ramp that is not truncated to whole pairs; llama.cpp always truncates it", name));
}

// DeepSeek's files hold a tenth of mscale_all_dim, and their magnitude moves into the softmax; others hold it as it is.
void GgufReader::read_log_multiplier(RotaryDeclaration& rotary) {
  const auto multiplier = keys_.number("rope.scaling.yarn_log_multiplier");
  if (!multiplier || multiplier->value == 0) return;
  const bool tenth = name.starts_with("deepseek");
  const Number all_dim{tenth ? multiplier->value / 0.1F : multiplier->value, multiplier->origin};
  rotary.numbers["mscale"] = tenth ? all_dim : Number{1, multiplier->origin};
  rotary.numbers["mscale_all_dim"] = all_dim;
  const auto magnitude = architecture->latent ? latent_magnitude(rotary) : std::nullopt;
  if (!magnitude) return;
  declaration_.softmax_scale.value *= *magnitude * *magnitude;
  declaration_.softmax_scale.origin = keys_.derived("head_dim, " + multiplier->origin.key);
}

// Four numbers, padded with zeros. Which axis drives which pair is code of the architecture.
void GgufReader::read_sections(RotaryDeclaration& rotary) {
  auto sections = keys_.list("rope.dimension_sections");
  if (!sections) return;
  while (!sections->value.empty() && sections->value.back() == 0) sections->value.pop_back();
  if (sections->value.empty()) return;
  rotary.sections = std::move(sections);
  if (architecture->pairs == GgufPairs::imrope) rotary.section_order = SectionOrder::interleaved;
}

// ── tensors ──

void GgufReader::read_tensors(RotaryDeclaration& rotary) {
  for (const auto& [tensor_name, tensor] : header.tensors) {
    const bool is_long = tensor_name.find(long_factors) != std::string::npos;
    const bool is_short = tensor_name.find(short_factors) != std::string::npos;
    const bool divides = tensor_name.find(divisor_tensor) != std::string::npos;
    if (!is_long && !is_short && !divides) continue;
    const auto values = read_f32_tensor(bytes, tensor, tensor_name, model().path);
    if (divides) {
      read_divisors(tensor_name, values, rotary);
      continue;
    }
    Origin origin = keys_.read("");
    origin.key = tensor_name;
    rotary.type = {"longrope", origin};
    rotary.lists[is_long ? "long_factor" : "short_factor"] = {{values.begin(), values.end()}, origin};
  }
}

// Scalings that have no key of their own are written as frequency divisors, one per pair.
void GgufReader::read_divisors(const std::string& tensor, const std::vector<float>& divisors, RotaryDeclaration& rotary) {
  if (std::all_of(divisors.begin(), divisors.end(), [](float divisor) { return divisor == 1; })) return;
  const Origin origin{"derived", keys_.read("").file, tensor};
  const bool alone = rotary.type.value == "default";
  const bool fits = rotary.rotary_dim && rotary.rotary_dim->value == 2 * static_cast<std::int64_t>(divisors.size());
  const bool positive = std::all_of(divisors.begin(), divisors.end(), [](float divisor) { return std::isnormal(divisor) && divisor > 0; });
  if (alone && fits && positive && (set_proportional(divisors, origin, rotary) || set_llama3_of(divisors, origin, rotary))) return;
  if (alone && fits && positive && rotary.theta && rotary.theta->value > 0) {
    doubts_.add(
        "frequency-tensor", {tensor},
        fmt::format("tensor {}: {} frequency divisors that match no known rule; they are used as they are", tensor, divisors.size()));
    return set_custom(divisors, origin, rotary);
  }
  doubts_.add(
      "value-invalid", {tensor},
      fmt::format("tensor {}: expected one positive divisor for each of the {} pairs, and no other scaling beside it, got {} divisors",
                  tensor, rotary.rotary_dim ? fmt::format("{}", rotary.rotary_dim->value / 2) : "rotated", divisors.size()));
}

// The fastest pairs turn as they would without the tensor, the others stand still.
bool GgufReader::set_proportional(const std::vector<float>& divisors, const Origin& origin, RotaryDeclaration& rotary) const {
  const auto turning = std::find_if(divisors.begin(), divisors.end(), [](float divisor) { return divisor != 1; });
  if (turning == divisors.begin() || turning == divisors.end()) return false;
  if (!std::all_of(turning, divisors.end(), [](float divisor) { return divisor > infinite_divisor; })) return false;
  rotary.type = {"proportional", origin};
  rotary.numbers.erase("factor");
  rotary.numbers["partial_rotary_factor"] = {static_cast<double>(turning - divisors.begin()) / static_cast<double>(divisors.size()),
                                             origin};
  return true;
}

// The released constants but for the factor, which is the divisor of the slowest pair.
bool GgufReader::set_llama3_of(const std::vector<float>& divisors, const Origin& origin, RotaryDeclaration& rotary) {
  if (!rotary.theta) return false;
  const int width = 2 * static_cast<int>(divisors.size());
  const auto matches = [&](const rotary::Llama3& rule) {
    try {
      const auto with = frequencies(RotarySpec{rule, rotary.theta->value, width, width}).inv_freq;
      const auto without = frequencies(RotarySpec{rotary::Default{}, rotary.theta->value, width, width}).inv_freq;
      for (std::size_t i = 0; i < divisors.size(); i++) {
        if (!(std::abs(without[i] / with[i] - divisors[i]) <= 1e-5 * divisors[i])) return false;
      }
    } catch (const Error&) {
      return false;  // not a rule at all, such as a factor below 1
    }
    return true;
  };
  for (const double high : {4.0, 1.0}) {  // Llama 3 and Llama 4
    if (!matches({divisors.back(), 1, high, 8192})) continue;
    set_llama3(rotary, {divisors.back(), origin}, {1, origin}, {high, origin}, {8192, origin});
    return true;
  }
  return false;
}

void GgufReader::set_custom(const std::vector<float>& divisors, const Origin& origin, RotaryDeclaration& rotary) {
  const int width = 2 * static_cast<int>(divisors.size());
  List frequency{{}, origin};
  const double theta = rotary.theta->value;
  for (std::size_t i = 0; i < divisors.size(); i++)
    frequency.value.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / width) / divisors[i]);
  rotary.type = {"custom", origin};
  rotary.lists["inv_freq"] = std::move(frequency);
  rotary.theta = Number{0, origin};  // a rule without a base
}

}  // namespace gnomon::files
