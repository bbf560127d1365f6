// SPDX-License-Identifier: Apache-2.0
// The object `gnomon inspect --json` prints. Its keys are a public contract.
#include <nlohmann/json.hpp>

#include "gnomon/model.hpp"
#include "spec/fields.hpp"

namespace gnomon {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema = 1;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json origins_json(const std::map<std::string, Origin>& origins) {
  Json json = Json::object();
  for (const auto& [field, origin] : origins) json[field] = {{"how", origin.how}, {"file", origin.file}, {"key", origin.key}};
  return json;
}

Json group_json(const LayerGroup& group) {
  Json json;
  if (!group.part.empty()) json["part"] = group.part;
  json["layers"] = group.layers;
  json.update(Json::parse(to_json(group.spec)));
  json["origins"] = origins_json(group.origins);
  return json;
}

Json doubt_json(const Doubt& doubt) {
  Json cost = nullptr;
  if (const auto drift = doubt.cost()) {
    cost = {{"position", or_null(drift->position)}, {"distance", drift->distance}, {"mean_cosine", drift->mean_cosine}};
  }
  return {{"code", doubt.code},
          {"level", std::string(enum_name(doubt.level))},
          {"keys", doubt.keys},
          {"message", doubt.message},
          {"cost", cost}};
}

}  // namespace

std::string to_json(const Doubt& doubt) { return doubt_json(doubt).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string to_json(const Model& model) {
  Json groups = Json::array(), doubts = Json::array();
  for (const auto& group : model.groups) groups.push_back(group_json(group));
  for (const auto& doubt : model.doubts) doubts.push_back(doubt_json(doubt));
  const Json json = {
      {"schema", schema},
      {"source", {{"path", model.path}, {"format", model.format}}},
      {"model",
       {{"type", model.type},
        {"layers", model.layers},
        {"heads", model.heads},
        {"kv_heads", model.kv_heads},
        {"head_dim", model.head_dim},
        {"hidden_size", model.hidden_size},
        {"non_attention_layers", model.non_attention_layers}}},
      {"length", {{"declared", or_null(model.declared)}, {"derived", or_null(model.derived)}, {"original", or_null(model.original)}}},
      {"groups", groups},
      {"doubts", doubts},
      {"unread", model.unread},
  };
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);  // a path need not be UTF-8
}

}  // namespace gnomon
