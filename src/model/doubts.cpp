// SPDX-License-Identifier: Apache-2.0
#include "model/doubts.hpp"

#include <algorithm>
#include <utility>

#include "gnomon/analysis.hpp"

namespace gnomon {

std::span<const DoubtInfo> list_doubts() { return files::doubt_table; }

std::optional<DriftCost> Doubt::cost() const {
  if (!dispute) return std::nullopt;
  const Drift drift(dispute->used, dispute->other, dispute->length);
  return DriftCost{drift.parting().position, dispute->length, drift.mean_cosine(dispute->length)};
}

namespace files {

namespace {

/// Whether the code says that a key is not there, which is not so where its value could not be read.
bool says_missing(std::string_view code) { return code.find("-missing") != code.npos || code.ends_with("-not-in-file"); }

}  // namespace

void Doubts::add(DoubtCode code, std::vector<std::string> keys, std::string message) {
  const auto is_there = [&](const Doubt& doubt) {
    const auto& unread = doubt.keys.front();
    return doubt.code == "value-kind" && std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
             return unread == key || (!key.empty() && unread.ends_with("." + key));
           });
  };
  if (says_missing(code.info().code) && std::any_of(doubts_.begin(), doubts_.end(), is_there)) return;
  const bool known = std::any_of(doubts_.begin(), doubts_.end(), [&](const Doubt& doubt) {
    return doubt.code == code.info().code && doubt.keys == keys && doubt.message == message;
  });
  if (!known) doubts_.push_back({std::string(code.info().code), code.info().level, std::move(keys), std::move(message), std::nullopt});
}

void Doubts::set_dispute(DoubtCode code, const std::vector<std::string>& keys, const Dispute& dispute) {
  for (auto& doubt : doubts_) {
    if (doubt.code == code.info().code && doubt.keys == keys && !doubt.dispute) doubt.dispute = dispute;
  }
}

std::vector<Doubt> Doubts::take() {
  std::stable_sort(doubts_.begin(), doubts_.end(), [](const Doubt& a, const Doubt& b) { return a.level > b.level; });
  return std::move(doubts_);
}

void Doubts::append_to(Model& model) {
  for (auto& doubt : take()) model.doubts.push_back(std::move(doubt));
  std::stable_sort(model.doubts.begin(), model.doubts.end(), [](const Doubt& a, const Doubt& b) { return a.level > b.level; });
}

}  // namespace files
}  // namespace gnomon
