// SPDX-License-Identifier: Apache-2.0
// key_intervals against the words of mask.hpp, asked key by key, and the temperatures of queries against values worked by hand.
#include "gnomon/mask.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "gnomon/positions.hpp"
#include "support/elements.hpp"

namespace gnomon::test {
namespace {

using List = std::vector<std::int32_t>;
using Row = std::vector<std::int64_t>;

Row seen(const KeyIntervals& mask, std::int64_t query, std::int64_t b = 0) {
  Row result;
  for (std::int64_t key = 0; key < mask.keys; key++)
    if (mask.sees(b, query, key)) result.push_back(key);
  return result;
}

/// A sequence of its own inside a row: its queries and its keys, counted in the row.
struct Sequence {
  std::int64_t first_query, end_query, first_key, end_key;
};

/// What the documentation says of one pair, without intervals.
bool allowed(const MaskOptions& o, const Sequence& s, std::int64_t query, std::int64_t key) {
  if (query < s.first_query || query >= s.end_query || key < s.first_key || key >= s.end_key) return false;
  const std::int64_t start = o.offset                             ? *o.offset
                             : o.alignment == Alignment::top_left ? s.first_key
                                                                  : s.end_key - (s.end_query - s.first_query);
  const std::int64_t place = start + query - s.first_query;
  const auto chunk_of = [&](std::int64_t slot) {
    return std::floor(static_cast<double>(slot - s.first_key) / static_cast<double>(o.chunk.value_or(1)));
  };
  if (key - s.first_key < o.prefix) return true;
  if (o.right && key - place > *o.right) return false;
  if (key - s.first_key < o.keep_first && key <= place) return true;
  if (o.left && place - key > *o.left) return false;
  return !o.chunk || chunk_of(key) == chunk_of(place);
}

std::vector<Sequence> sequences(const MaskOptions& o, std::int64_t b) {
  if (o.cu_seqlens_q.empty()) {
    const auto row = static_cast<std::size_t>(b);
    return {{0, o.queries, o.key_begin.empty() ? 0 : o.key_begin[row], o.key_end.empty() ? o.keys : o.key_end[row]}};
  }
  std::vector<Sequence> result;
  for (std::size_t d = 1; d < o.cu_seqlens_q.size(); d++)
    result.push_back({o.cu_seqlens_q[d - 1], o.cu_seqlens_q[d], o.cu_seqlens_k[d - 1], o.cu_seqlens_k[d]});
  return result;
}

/// The first pair of query and key that intervals and words disagree on, or nothing.
std::string disagreement(const MaskOptions& options, const std::string& name) {
  const auto mask = key_intervals(options);
  for (std::int64_t b = 0; b < mask.batch; b++) {
    for (std::int64_t query = 0; query < options.queries; query++) {
      for (std::int64_t key = 0; key < options.keys; key++) {
        bool expected = false;
        for (const auto& sequence : sequences(options, b)) expected |= allowed(options, sequence, query, key);
        if (mask.sees(b, query, key) != expected)
          return name + ": row " + std::to_string(b) + ", query " + std::to_string(query) + ", key " + std::to_string(key);
      }
    }
  }
  return "";
}

struct Option {
  const char* name;
  void (*set)(MaskOptions&);
};
const Option windows[] = {
    {"all keys", [](MaskOptions&) {}},
    {"causal", [](MaskOptions& o) { o.right = 0; }},
    {"window 4", [](MaskOptions& o) { o.left = 3, o.right = 0; }},
    {"window 1", [](MaskOptions& o) { o.left = 0, o.right = 0; }},
    {"both ways", [](MaskOptions& o) { o.left = 2, o.right = 2; }},
    {"beyond all keys", [](MaskOptions& o) { o.left = INT64_MAX, o.right = INT64_MAX, o.chunk = INT64_MAX; }},
    {"chunks of 3", [](MaskOptions& o) { o.chunk = 3; }},
    {"causal chunks of 4", [](MaskOptions& o) { o.chunk = 4, o.right = 0; }},
    {"window and chunk", [](MaskOptions& o) { o.chunk = 4, o.left = 1, o.right = 0; }},
};
const Option returns[] = {
    {"", [](MaskOptions&) {}},
    {", prefix 3", [](MaskOptions& o) { o.prefix = 3; }},
    {", first 2 kept", [](MaskOptions& o) { o.keep_first = 2; }},
    {", first 5 kept", [](MaskOptions& o) { o.keep_first = 5; }},
    {", prefix 2 and first 4 kept", [](MaskOptions& o) { o.prefix = 2, o.keep_first = 4; }},
    {", a prefix beyond all keys", [](MaskOptions& o) { o.prefix = INT64_MAX; }},
};
const Option places[] = {
    {", lower right", [](MaskOptions&) {}},
    {", top left", [](MaskOptions& o) { o.alignment = Alignment::top_left; }},
    {", offset 4", [](MaskOptions& o) { o.offset = 4; }},
    {", offset -3", [](MaskOptions& o) { o.offset = -3; }},
};

/// Calls `visit` with every window, with what comes back in, and with every place of the queries.
void for_all(void visit(MaskOptions, const std::string&)) {
  for (const auto& window : windows) {
    for (const auto& back : returns) {
      for (const auto& place : places) {
        MaskOptions options;
        for (const auto* option : {&window, &back, &place}) option->set(options);
        visit(options, std::string(window.name) + back.name + place.name);
      }
    }
  }
}

TEST(KeyIntervals, EveryOptionSaysWhatItsWordsSay) {
  for_all([](MaskOptions options, const std::string& name) {
    for (const auto& [queries, keys] : {std::pair(7, 7), std::pair(2, 11), std::pair(1, 9), std::pair(9, 4), std::pair(3, 0)}) {
      options.queries = queries;
      options.keys = keys;
      EXPECT_EQ(disagreement(options, name), "") << queries << " queries, " << keys << " keys";
    }
  });
}

TEST(KeyIntervals, PaddingOnTheLeftAndOnTheRight) {
  static const List begin{0, 3, 9, 2}, end{9, 9, 9, 6};
  for_all([](MaskOptions options, const std::string& name) {
    options.queries = 5;
    options.keys = 9;
    options.key_begin = begin;
    EXPECT_EQ(disagreement(options, name + ", begin"), "");
    options.key_end = end;
    EXPECT_EQ(disagreement(options, name + ", begin and end"), "");
    options.key_begin = {};
    EXPECT_EQ(disagreement(options, name + ", end"), "");
  });
}

TEST(KeyIntervals, PackedDocumentsAreAlignedEachForItself) {
  static const List queries{0, 4, 4, 6, 9}, keys{0, 4, 7, 12, 13};  // as many, none, fewer and more queries than keys
  for_all([](MaskOptions options, const std::string& name) {
    if (options.offset) return;
    options.queries = 9;
    options.keys = 13;
    options.cu_seqlens_q = queries;
    options.cu_seqlens_k = keys;
    EXPECT_EQ(disagreement(options, name), "");
  });
}

TEST(KeyIntervals, T16LowerRightIsNotTopLeft) {
  MaskOptions options;
  options.queries = 2;
  options.keys = 5;
  options.right = 0;
  const auto mask = key_intervals(options);
  EXPECT_EQ(seen(mask, 0), (Row{0, 1, 2, 3}));
  EXPECT_EQ(seen(mask, 1), (Row{0, 1, 2, 3, 4}));
  options.alignment = Alignment::top_left;
  const auto wrong = key_intervals(options);
  EXPECT_EQ(seen(wrong, 0), (Row{0}));
  EXPECT_EQ(seen(wrong, 1), (Row{0, 1}));
}

TEST(KeyIntervals, T16WindowCountsItself) {
  Mask declared;
  declared.window = 4;
  MaskOptions options(declared, 12, 12);
  EXPECT_EQ(seen(key_intervals(options), 10), (Row{7, 8, 9, 10}));
  options.left = 4;  // what several engines took a window of 4 for
  EXPECT_EQ(seen(key_intervals(options), 10), (Row{6, 7, 8, 9, 10}));
}

TEST(KeyIntervals, WindowOfAModelThatSeesBothWays) {
  Mask declared;
  declared.causal = false;
  declared.window = 128;  // ModernBERT: 64 to each side
  const MaskOptions options(declared, 300, 300);
  const auto row = seen(key_intervals(options), 150);
  EXPECT_EQ(row.front(), 86);
  EXPECT_EQ(row.back(), 214);
}

TEST(KeyIntervals, T27PositionsBeginAgainInEachDocument) {
  const List documents{0, 2, 5};  // segment ids 1, 1, 2, 2, 2
  MaskOptions options;
  options.queries = options.keys = 5;
  options.right = 0;
  options.cu_seqlens_q = options.cu_seqlens_k = documents;
  const auto mask = key_intervals(options);
  List positions;
  for (std::size_t t = 0; t < 5; t++) positions.push_back(mask.diagonal[t] - mask.first[t]);
  EXPECT_EQ(positions, (List{0, 1, 0, 1, 2}));
  EXPECT_EQ(seen(mask, 2), (Row{2})) << "the first token of a document sees none of the one before";
  EXPECT_EQ(seen(mask, 4), (Row{2, 3, 4}));
}

TEST(KeyIntervals, T26PositionsWithPadding) {
  const List begin{2, 5};  // mask 0, 0, 1, 1, 1, and a row of padding only
  MaskOptions options;
  options.queries = options.keys = 5;
  options.right = 0;
  options.key_begin = begin;
  const auto mask = key_intervals(options);
  for (std::int64_t t = 0; t < 5; t++) {
    EXPECT_EQ(mask.diagonal[static_cast<std::size_t>(t)] - mask.first[static_cast<std::size_t>(t)], t - 2);
    EXPECT_TRUE(seen(mask, t, 1).empty());
  }
  EXPECT_TRUE(seen(mask, 1).empty());
  EXPECT_EQ(seen(mask, 4), (Row{2, 3, 4}));
}

void expect_factor(const QueryTemperature& rule, std::int64_t position, double expected) {
  const auto got = query_factors(rule, std::span(&position, 1));
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0], static_cast<float>(expected)) << "position " << position;
}

constexpr double ln2 = 0.69314718055994531, ln3 = 1.0986122886681098;

TEST(QueryFactors, Llama4StepsAtTheTokenThatFillsItsBlock) {
  const StepTemperature rule{0.1, 8192, 1};
  expect_factor(rule, 0, 1);
  expect_factor(rule, 8190, 1);
  expect_factor(rule, 8191, 1 + 0.1 * ln2);
  expect_factor(rule, 16383, 1 + 0.1 * ln3);
  const std::int64_t step = 8191;
  EXPECT_EQ(query_factors(StepTemperature{0.1, 8192, 0}, std::span(&step, 1))[0], 1) << "without the offset it comes a token late";
}

TEST(QueryFactors, MinistralStepsAtTheFirstTokenBeyond) {
  const StepTemperature rule{0.1, 16384, 0};
  expect_factor(rule, 16383, 1);
  expect_factor(rule, 16384, 1 + 0.1 * ln2);
  expect_factor(rule, 49151, 1 + 0.1 * ln3);
}

TEST(QueryFactors, Qwen1GrowsFromItsLengthOn) {
  const LogTemperature rule{2048};
  expect_factor(rule, 0, 1);
  expect_factor(rule, 2047, 1);
  expect_factor(rule, 4095, 12.0 / 11);
  expect_factor(rule, 8191, 13.0 / 11);
  EXPECT_NE(std::log(4095.0) / std::log(2048.0), 12.0 / 11) << "positions counted from 0";
}

TEST(QueryFactors, WhereTheFormulaHasNoValue) {
  const auto refused = [](const gnomon::QueryTemperature& rule, std::int64_t position) {
    return testing_support::refusal_fault([&] { gnomon::query_factors(rule, {{position}}); }, gnomon::ErrorCode::out_of_range,
                                          {"positions: ", "no temperature"});
  };
  EXPECT_EQ(refused(gnomon::StepTemperature{0.1, 8192, 0}, -20000), "");  // ln(-2)
  EXPECT_EQ(refused(gnomon::StepTemperature{0.1, 8192, 1}, -8193), "");   // ln 0
  EXPECT_EQ(refused(gnomon::LogTemperature{1}, 5), "");                   // over ln 1
}

TEST(QueryFactors, OneForEachPosition) {
  const std::vector<std::int64_t> positions{0, 4095, 2047};
  EXPECT_EQ(query_factors(LogTemperature{2048}, positions).size(), 3U);
  EXPECT_TRUE(query_factors(LogTemperature{2048}, {}).empty());
}

}  // namespace
}  // namespace gnomon::test
