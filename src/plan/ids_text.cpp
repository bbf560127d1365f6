// SPDX-License-Identifier: Apache-2.0
// Rows of text: padding and packing are one rule, the number of tokens of the same document before a token.
#include <algorithm>
#include <unordered_map>

#include "plan/ids.hpp"

namespace gnomon {
namespace {

std::int64_t width_of(std::int64_t needed, std::optional<TokenCount> width) {
  if (!width) return needed;
  if (width->value < needed) refuse_ids(fmt::format("width: expected at least {}, what the rows need, got {}", needed, width->value));
  return bounded(width->value);
}

void check_shape(const TextBatch& batch) {
  if (batch.batch >= 0 && batch.tokens >= 0 &&
      static_cast<std::size_t>(bounded_product(batch.batch, batch.tokens)) == batch.documents.size())
    return;
  refuse_ids(fmt::format("documents: expected one for each of {} × {} tokens, got {}", batch.batch, batch.tokens, batch.documents.size()));
}

}  // namespace

PositionIds on_axes(const PositionIds& ids, std::int64_t axes) {
  if (ids.axes != 1 || axes < 1) refuse_ids(fmt::format("axes: expected ids of one axis and at least 1, got {} and {}", ids.axes, axes));
  PositionIds result = blank_ids(axes, ids.batch, ids.tokens);
  for (std::size_t i = 0; i < result.values.size(); i++) result.values[i] = ids.values[i % ids.values.size()];
  return result;
}

PositionIds take(const PositionIds& ids, std::span<const std::int64_t> indexes) {
  PositionIds result = blank_ids(ids.axes, ids.batch, static_cast<std::int64_t>(indexes.size()));
  std::size_t next = 0;
  for (std::int64_t axis = 0; axis < ids.axes; axis++) {
    for (std::int64_t row = 0; row < ids.batch; row++) {
      for (const auto index : indexes) {
        if (index < 0 || index >= ids.tokens) {
          throw Error(ErrorCode::out_of_range, fmt::format("indexes: expected 0 to {}, got {}", ids.tokens - 1, index));
        }
        result.values[next++] = ids.at(axis, row, index).value;
      }
    }
  }
  return result;
}

std::int64_t total(std::string_view name, std::span<const TokenCount> lengths) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < lengths.size(); i++) {
    if (lengths[i].value < 0) refuse_ids(fmt::format("{}[{}]: expected at least 0 tokens, got {}", name, i, lengths[i].value));
    sum = bounded(sum + bounded(lengths[i].value));
  }
  return sum;
}

TextBatch padded_batch(std::span<const TokenCount> lengths, PaddingSide side, std::optional<TokenCount> width) {
  total("lengths", lengths);
  const auto longest = lengths.empty() ? TokenCount{0} : *std::max_element(lengths.begin(), lengths.end());
  const std::int64_t tokens = width_of(longest.value, width);
  TextBatch result{static_cast<std::int64_t>(lengths.size()), tokens, {}, {}};
  result.documents.assign(static_cast<std::size_t>(bounded_product(result.batch, tokens)), 0);
  auto row = result.documents.begin();
  for (const auto length : lengths) {
    std::fill_n(row + (side == PaddingSide::left ? tokens - length.value : 0), length.value, 1);
    row += tokens;
  }
  return result;
}

TextBatch packed_row(std::span<const TokenCount> lengths, std::optional<TokenCount> width) {
  const std::int64_t tokens = width_of(total("lengths", lengths), width);
  TextBatch result{1, tokens, {}, {}};
  for (std::size_t d = 0; d < lengths.size(); d++) {
    result.documents.insert(result.documents.end(), static_cast<std::size_t>(lengths[d].value), static_cast<std::int64_t>(d + 1));
  }
  result.documents.resize(static_cast<std::size_t>(tokens));
  return result;
}

std::vector<std::int32_t> cu_seqlens(std::span<const TokenCount> lengths) {
  total("lengths", lengths);
  std::vector<std::int32_t> bounds{0};
  for (const auto length : lengths) bounds.push_back(bounds.back() + static_cast<std::int32_t>(length.value));
  return bounds;
}

PositionIds position_ids(const TextBatch& batch) {
  check_shape(batch);
  PositionIds ids = blank_ids(1, batch.batch, batch.tokens);
  for (std::size_t i = 0; i < ids.values.size();) {
    std::unordered_map<std::int64_t, std::int64_t> seen;  // tokens of each document of this row
    for (const std::size_t end = i + static_cast<std::size_t>(batch.tokens); i < end; i++) {
      const auto document = batch.documents[i];
      ids.values[i] = document == 0 ? batch.padding.value : seen[document]++;
    }
  }
  return ids;
}

std::vector<SequenceState> next_states(const TextBatch& batch) {
  check_shape(batch);
  std::vector<SequenceState> states;
  for (std::int64_t row = 0; row < batch.batch; row++) {
    std::int64_t length = 0, document = 0;
    for (std::int64_t t = 0; t < batch.tokens; t++) {
      const auto own = batch.documents[static_cast<std::size_t>(row * batch.tokens + t)];
      if (own == 0) continue;
      if (length > 0 && own != document) refuse_ids(fmt::format("documents: row {} holds several; it has no single next position", row));
      document = own;
      length++;
    }
    states.push_back({{length}, {batch.tokens}, {length}});
  }
  return states;
}

std::vector<std::int64_t> table_rows(const TextBatch& batch, std::int64_t offset) {
  if (offset < 0) refuse_ids(fmt::format("offset: expected at least 0, got {}", offset));
  TextBatch before = batch;
  before.padding = {-1};
  auto rows = position_ids(before).values;
  for (auto& row : rows) row += offset;
  if (std::find(rows.begin(), rows.end(), -1) != rows.end()) {
    refuse_ids("offset: expected at least 1 for rows with padding, which takes the row before that of position 0, got 0");
  }
  return rows;
}

}  // namespace gnomon
