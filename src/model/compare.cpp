// SPDX-License-Identifier: Apache-2.0
// Two models by meaning: their groups as canonical JSON, field by field, and their rotations as numbers.
#include "gnomon/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "gnomon/error.hpp"
#include "gnomon/frequencies.hpp"
#include "model/families.hpp"
#include "model/formats.hpp"
#include "spec/fields.hpp"

namespace gnomon {
namespace {

using Json = nlohmann::ordered_json;

// Where a rotation is applied; the other fields of a rotary object say how its frequencies are made, which is a matter of spelling.
constexpr std::string_view placement[] = {"head_dim",         "rotary_dim", "rotary_offset", "layout",
                                          "attention_factor", "axes",       "sections",      "section_order"};

bool same_number(double a, double b) {
  constexpr double rounding = 0x1p-22, nothing = 1e-18;  // below `nothing` a frequency turns no position up to 2^33
  return a == b || std::abs(a - b) <= std::max(rounding * std::max(std::abs(a), std::abs(b)), nothing);
}

bool same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_number);
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return same_number(a.get<double>(), b.get<double>());
  if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_value);
  return a == b;
}

/// Walks down objects that stand on both sides; anything else is one value.
void add_differences(const Json& a, const Json& b, const std::string& field, std::vector<Difference>& differences) {
  if (!a.is_object() || !b.is_object()) {
    if (!same_value(a, b)) differences.push_back({field, a.dump(), b.dump()});
    return;
  }
  const auto inside = [&](const std::string& key) { return field.empty() ? key : field + "." + key; };
  const auto member = [](const Json& object, const std::string& key) { return object.contains(key) ? object[key] : Json(nullptr); };
  for (const auto& item : a.items()) add_differences(item.value(), member(b, item.key()), inside(item.key()), differences);
  for (const auto& item : b.items()) {
    if (!a.contains(item.key())) add_differences(nullptr, item.value(), inside(item.key()), differences);
  }
}

std::int64_t length_of(const Model& model) {
  constexpr std::int64_t longest = std::int64_t{1} << 33;  // a file may state anything
  return std::clamp(std::max(model.derived.value_or(1), model.declared.value_or(1)), std::int64_t{1}, longest);
}

bool same_rotation(const RotarySpec& a, const RotarySpec& b, std::int64_t length) {
  std::vector<std::optional<std::int64_t>> lengths{std::nullopt};  // dynamic and longrope make other numbers for other lengths
  for (const std::int64_t factor : {1, 2, 4}) lengths.emplace_back(factor * length);
  return std::all_of(lengths.begin(), lengths.end(), [&](const auto& at) {
    const auto x = frequencies(a, Numerics::exact, at), y = frequencies(b, Numerics::exact, at);
    return same_numbers(x.inv_freq, y.inv_freq) && same_number(x.attention_factor, y.attention_factor) &&
           same_numbers(x.log_magnitude, y.log_magnitude) && x.centre == y.centre;
  });
}

/// The layout a family has in a file of this format, where both are known. A params.json names no family: it is that of the other file.
std::optional<PairLayout> usual_layout(const Model& model, const Model& other) {
  const std::string& type = model.type.empty() ? other.type : model.type;
  const auto* family = model.format == "gguf" ? files::family_of_architecture(type) : files::family_of_model_type(type);
  if (family == nullptr) return std::nullopt;
  return model.format == "hf" ? family->layout : family->gguf_layout;
}

class Comparer {
 public:
  Comparer(const Model& a, const Model& b, std::span<const std::int64_t> distances)
      : a_(a), b_(b), length_(std::max(length_of(a), length_of(b))), distances_(distances.begin(), distances.end()) {
    if (distances_.empty()) distances_ = usual_distances();
  }

  Comparison run() {
    if (a_.declared && b_.declared && a_.declared != b_.declared) {
      result_.differences.push_back({"length.declared", fmt::format("{}", *a_.declared), fmt::format("{}", *b_.declared)});
    }
    for (auto& [key, layers] : pair_layers()) compare_layers(key, std::move(layers));
    std::stable_sort(result_.layers.begin(), result_.layers.end(), [](const auto& x, const auto& y) {
      return std::pair(x.part, x.layers.front()) < std::pair(y.part, y.layers.front());
    });
    result_.a = a_, result_.b = b_;
    return std::move(result_);
  }

 private:
  using Groups = std::map<std::pair<std::string, int>, const LayerGroup*>;  // by part and layer
  using Key = std::tuple<std::string, const LayerGroup*, const LayerGroup*>;

  std::vector<std::int64_t> usual_distances() const {
    std::set<std::int64_t> distances;
    for (std::int64_t distance = 1; distance < length_; distance *= 10) distances.insert(distance);
    for (const Model* model : {&a_, &b_}) {
      if (model->original) distances.insert(*model->original);
      distances.insert(length_of(*model) - 1);
    }
    distances.erase(0);
    return {distances.begin(), distances.end()};
  }

  static Groups groups_of(const Model& model) {
    Groups groups;
    for (const auto& group : model.groups) {
      for (const int layer : group.layers) groups[{group.part.empty() ? "text" : group.part, layer}] = &group;
    }
    return groups;
  }

  std::map<Key, std::vector<int>> pair_layers() {
    const Groups a = groups_of(a_), b = groups_of(b_);
    std::map<Key, std::vector<int>> pairs;
    const auto found = [](const Groups& groups, const auto& place) {
      const auto entry = groups.find(place);
      return entry == groups.end() ? nullptr : entry->second;
    };
    for (const auto& [place, group] : a) pairs[{place.first, group, found(b, place)}].push_back(place.second);
    for (const auto& [place, group] : b) {
      if (!a.contains(place)) pairs[{place.first, nullptr, group}].push_back(place.second);
    }
    return pairs;
  }

  static bool has_part(const Model& model, const std::string& part) {
    return std::any_of(model.groups.begin(), model.groups.end(),
                       [&](const LayerGroup& group) { return (group.part.empty() ? "text" : group.part) == part; });
  }

  void compare_layers(const Key& key, std::vector<int> layers) {
    const auto& [part, a, b] = key;
    LayerComparison compared{part, std::move(layers), {}, {}, {}, {}, {}};
    if (a == nullptr || b == nullptr) {
      if (!has_part(a == nullptr ? a_ : b_, part)) return note_part(part, a != nullptr);
      compared.differences.push_back({"layer", a != nullptr ? "\"there\"" : "null", b != nullptr ? "\"there\"" : "null"});
    } else {
      compare_groups(a->spec, b->spec, compared);
    }
    result_.layers.push_back(std::move(compared));
  }

  void note_part(const std::string& part, bool in_a) {
    const std::string note = fmt::format("the part {} is described by {} only", part, in_a ? "A" : "B");
    if (std::find(result_.notes.begin(), result_.notes.end(), note) == result_.notes.end()) result_.notes.push_back(note);
  }

  void compare_groups(const PositionSpec& a, const PositionSpec& b, LayerComparison& compared) const {
    compared.a = a.rotary, compared.b = b.rotary;
    const bool both_rotate = a.rotary && b.rotary;
    if (both_rotate && is_permuted(a.rotary->layout, b.rotary->layout)) {
      compared.b->layout = a.rotary->layout;
      compared.notes.push_back(fmt::format("layout: {} in A, {} in B; rows of this family are permuted between the two formats",
                                           enum_name(a.rotary->layout), enum_name(b.rotary->layout)));
    }
    PositionSpec aligned = b;
    aligned.rotary = compared.b;
    add_differences(Json::parse(to_json(a)), Json::parse(to_json(aligned)), "", compared.differences);
    if (!both_rotate) return;
    settle_spelling(compared);
    const bool turned = std::any_of(compared.differences.begin(), compared.differences.end(), is_rotary);
    if (turned && compared.a->head_dim == compared.b->head_dim) compared.drift = drift_of(*compared.a, *compared.b);
  }

  bool is_permuted(PairLayout a, PairLayout b) const {
    return a != b && a_.format != b_.format && usual_layout(a_, b_) == a && usual_layout(b_, a_) == b;
  }

  static bool is_rotary(const Difference& difference) { return difference.field.starts_with("rotary."); }
  static bool is_rule(const Difference& difference) {
    return is_rotary(difference) &&
           std::find(std::begin(placement), std::end(placement), std::string_view(difference.field).substr(7)) == std::end(placement);
  }

  /// Fields of rules that give the same numbers are a note.
  void settle_spelling(LayerComparison& compared) const {
    std::vector<std::string> fields;
    for (const auto& difference : compared.differences) {
      if (is_rule(difference)) fields.push_back(difference.field);
    }
    if (fields.empty() || !same_rotation(*compared.a, *compared.b, length_)) return;
    std::erase_if(compared.differences, is_rule);
    compared.notes.push_back(
        fmt::format("{} {} spelled differently, with the same frequencies", fmt::join(fields, ", "), fields.size() == 1 ? "is" : "are"));
  }

  DriftColumn drift_of(const RotarySpec& a, const RotarySpec& b) const {
    const Drift drift(a, b, length_);
    DriftColumn column{drift.parting(), distances_, {}};
    for (const auto distance : distances_) column.mean_cosines.push_back(drift.mean_cosine(distance));
    return column;
  }

  const Model &a_, &b_;
  std::int64_t length_;
  std::vector<std::int64_t> distances_;
  Comparison result_;
};

Json differences_json(const std::vector<Difference>& differences) {
  Json json = Json::array();
  for (const auto& [field, a, b] : differences) json.push_back({{"field", field}, {"a", Json::parse(a)}, {"b", Json::parse(b)}});
  return json;
}

Json drift_json(const std::optional<DriftColumn>& drift) {
  if (!drift) return nullptr;
  const auto& [parting, distances, means] = *drift;
  return {{"position", parting.position ? Json(*parting.position) : Json(nullptr)},
          {"searched", parting.searched},
          {"distances", distances},
          {"mean_cosines", means}};
}

Json layers_json(const LayerComparison& layers) {
  const auto rotary = [](const std::optional<RotarySpec>& spec) { return spec ? Json::parse(to_json(*spec)) : Json(nullptr); };
  return {{"part", layers.part},
          {"layers", layers.layers},
          {"equal", layers.differences.empty()},
          {"differences", differences_json(layers.differences)},
          {"notes", layers.notes},
          {"rotary", {{"a", rotary(layers.a)}, {"b", rotary(layers.b)}}},
          {"drift", drift_json(layers.drift)}};
}

Json source_json(const Model& model) { return {{"path", model.path}, {"format", model.format}, {"type", model.type}}; }

}  // namespace

bool Comparison::equal() const {
  return differences.empty() &&
         std::all_of(layers.begin(), layers.end(), [](const auto& compared) { return compared.differences.empty(); });
}

Comparison compare(const Model& a, const Model& b, std::span<const std::int64_t> distances) {
  for (const Model* model : {&a, &b}) files::refuse_doubtful(*model);
  return Comparer(a, b, distances).run();
}

std::string to_json(const Comparison& comparison) {
  Json layers = Json::array();
  for (const auto& compared : comparison.layers) layers.push_back(layers_json(compared));
  const Json json = {{"schema", 1},
                     {"equal", comparison.equal()},
                     {"a", source_json(comparison.a)},
                     {"b", source_json(comparison.b)},
                     {"differences", differences_json(comparison.differences)},
                     {"groups", layers},
                     {"notes", comparison.notes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);  // a path need not be UTF-8
}

}  // namespace gnomon
