// SPDX-License-Identifier: Apache-2.0
#include "model/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "model/doubts.hpp"

namespace gnomon::files {
namespace {

constexpr std::string_view query_names[] = {"self_attn.q_proj.weight", "attn.q_proj.weight", "attention.wq.weight", "attn_q.weight"};
constexpr std::string_view key_names[] = {"self_attn.k_proj.weight", "attn.k_proj.weight", "attention.wk.weight", "attn_k.weight"};
constexpr std::string_view row_names[] = {"position_embeddings.weight", "wpe.weight", "embed_positions.weight", "position_embd.weight"};
constexpr std::string_view bucket_names[] = {"relative_attention_bias.weight", "attn_rel_b.weight"};
constexpr std::string_view frequency_names[] = {"rotary_emb.inv_freq"};
constexpr std::string_view sink_names[] = {"self_attn.sinks", "attn_sinks.weight"};
constexpr std::string_view plain_types[] = {"", "F16", "BF16", "F32", "F64"};  // others may be packed

bool ends_with_any(std::string_view name, const auto& endings) {
  return std::any_of(std::begin(endings), std::end(endings), [&](auto ending) { return name.ends_with(ending); });
}

/// The number between dots, as in "model.layers.7.self_attn".
std::optional<int> layer_of(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    int layer = 0;
    const auto [last, error] = std::from_chars(name.data() + begin, name.data() + end, layer);
    if (error == std::errc{} && last == name.data() + end) return layer;
    begin = end + 1;
  }
  return std::nullopt;
}

class TensorCheck {
 public:
  TensorCheck(const std::string& file, Model& model) : file_(file), model_(model) {}

  void look_at(const TensorShape& tensor) {
    if (tensor.name.find("vision") != std::string::npos || tensor.name.find("visual") != std::string::npos) return;
    if (std::find(std::begin(plain_types), std::end(plain_types), tensor.dtype) == std::end(plain_types)) return;
    for (auto& group : model_.groups) {
      if (!belongs(tensor.name, group)) continue;
      if (tensor.shape.size() == 2 && ends_with_any(tensor.name, query_names)) check_width(tensor, group, model_.heads, query_);
      if (tensor.shape.size() == 2 && ends_with_any(tensor.name, key_names)) check_width(tensor, group, model_.kv_heads, key_);
      if (tensor.shape.size() == 2 && ends_with_any(tensor.name, row_names)) take_rows(tensor, group);
      if (tensor.shape.size() == 2 && ends_with_any(tensor.name, bucket_names)) check_buckets(tensor, group);
      if (tensor.shape.size() == 1 && ends_with_any(tensor.name, frequency_names)) check_frequencies(tensor, group);
      if (ends_with_any(tensor.name, sink_names) && !group.spec.sink_logits)
        doubt(tensor, "sinks", "sink logits, but the keys know of none");
    }
  }

  // A gate doubles the rows of queries and some layers have heads of their own: it is the width that is wrong where both are unlike.
  void finish() {
    for (const auto& [layer, text] : query_) {
      const auto key = key_.find(layer);
      if (key == key_.end()) continue;
      doubts_.add("tensor-conflict", {text.substr(0, text.find(' ')), key->second.substr(0, key->second.find(' '))},
                  fmt::format("{}: {}; {}", file_, text, key->second));
      break;
    }
    doubts_.append_to(model_);
  }

 private:
  static bool belongs(std::string_view name, const LayerGroup& group) {
    if (group.part == "vision" || group.part == "audio") return false;
    for (const std::string_view part : {"encoder", "decoder"}) {
      const bool in_name = name.starts_with(part) || name.find(fmt::format(".{}.", part)) != std::string_view::npos;
      if (in_name && !group.part.empty() && group.part != "text" && group.part != part) return false;
    }
    const auto layer = layer_of(name);
    return !layer || std::find(group.layers.begin(), group.layers.end(), *layer) != group.layers.end();
  }

  // Remembers the layers whose projection has another number of rows than heads of head_dim channels.
  void check_width(const TensorShape& tensor, const LayerGroup& group, int heads, std::map<int, std::string>& unlike) {
    const int head_dim = group.spec.rotary ? group.spec.rotary->head_dim : model_.head_dim;
    const auto rows = static_cast<std::uint64_t>(heads) * static_cast<std::uint64_t>(head_dim);
    const auto layer = layer_of(tensor.name);
    if (!layer || rows == 0 || tensor.shape[0] == rows || tensor.name.find("cross") != std::string::npos) return;
    unlike[*layer] = fmt::format("{} has {} rows, but {} heads of {} channels are {}", tensor.name, tensor.shape[0], heads, head_dim, rows);
  }

  // The table itself says how many positions were trained.
  void take_rows(const TensorShape& tensor, LayerGroup& group) {
    if (!group.spec.absolute || tensor.shape[0] < 1 || tensor.shape[0] > 1000000000) return;
    auto* learned = std::get_if<absolute::Learned>(&group.spec.absolute->rule);
    if (learned == nullptr || static_cast<std::int64_t>(tensor.shape[0]) <= learned->offset) return;
    if (learned->rows != static_cast<std::int64_t>(tensor.shape[0])) {
      doubt(tensor, "rows",
            fmt::format("{} rows of positions, but the keys give {}; those of the tensor are used", tensor.shape[0], learned->rows));
    }
    learned->rows = static_cast<std::int64_t>(tensor.shape[0]);
    group.origins["absolute.rows"] = {"read", file_, tensor.name};
  }

  void check_buckets(const TensorShape& tensor, const LayerGroup& group) {
    const auto* t5 = group.spec.bias ? std::get_if<bias::T5>(&*group.spec.bias) : nullptr;
    if (t5 == nullptr || static_cast<std::int64_t>(tensor.shape[0]) == t5->buckets) return;
    doubt(tensor, "buckets", fmt::format("{} rows of buckets, but the keys give {}", tensor.shape[0], t5->buckets));
  }

  void check_frequencies(const TensorShape& tensor, const LayerGroup& group) {
    if (!group.spec.rotary || 2 * tensor.shape[0] == static_cast<std::uint64_t>(group.spec.rotary->rotary_dim)) return;
    doubt(tensor, "frequencies", fmt::format("{} frequencies, but {} channels rotate", tensor.shape[0], group.spec.rotary->rotary_dim));
  }

  // Said of the first tensor of its kind; a model of eighty layers would say it eighty times.
  void doubt(const TensorShape& tensor, const std::string& kind, const std::string& reason) {
    if (said_.insert(kind).second) doubts_.add("tensor-conflict", {tensor.name}, fmt::format("{}: {} has {}", file_, tensor.name, reason));
  }

  const std::string& file_;
  Model& model_;
  Doubts doubts_;
  std::map<int, std::string> query_, key_;
  std::set<std::string> said_;
};

}  // namespace

void check_tensors(std::span<const TensorShape> tensors, const std::string& file, Model& model) {
  TensorCheck check(file, model);
  for (const auto& tensor : tensors) check.look_at(tensor);
  check.finish();
}

}  // namespace gnomon::files
