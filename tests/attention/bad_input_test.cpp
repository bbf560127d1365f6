// SPDX-License-Identifier: Apache-2.0
// What attention and key_intervals refuse, and that the message names the argument.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gnomon/attention.hpp"
#include "support/elements.hpp"

namespace gnomon::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

class BadAttention : public testing::Test {
 protected:
  std::vector<float> memory = std::vector<float>(4096, 1.0F);
  ConstTensorView q{memory.data(), DType::f32, {2, 4, 3, 8}, {96, 24, 8, 1}};
  ConstTensorView k{memory.data() + 512, DType::f32, {2, 2, 5, 8}, {80, 40, 8, 1}};
  ConstTensorView v{memory.data() + 1024, DType::f32, {2, 2, 5, 6}, {60, 30, 6, 1}};
  TensorView out{memory.data() + 2048, DType::f32, {2, 4, 3, 6}, {72, 18, 6, 1}};
  AttentionOptions options;
  std::vector<BiasTable> bias;

  std::string refused(std::initializer_list<const char*> words, ErrorCode code = ErrorCode::invalid_argument) {
    const auto before = memory;
    options.bias = bias;
    const std::string fault = testing_support::refusal_fault([&] { attention(q, k, v, out, options); }, code, words);
    return memory == before ? fault : "memory was written before the refusal; " + fault;
  }
  std::string refused_table(BiasTable table, std::initializer_list<const char*> words) {
    bias = {std::move(table)};
    return refused(words);
  }
};

TEST_F(BadAttention, TheGoodInputIsTaken) { EXPECT_NO_THROW(attention(q, k, v, out, options)); }

TEST_F(BadAttention, Shapes) {
  const auto good_q = q, good_k = k, good_v = v;
  const auto good_out = out;
  k.shape[3] = 7;
  EXPECT_EQ(refused({"k: ", "8", "7"}), "");
  k = good_k;
  k.shape[0] = 1;
  EXPECT_EQ(refused({"k: ", "batch", "2", "1"}), "");
  k = good_k;
  k.shape[1] = v.shape[1] = 3;
  EXPECT_EQ(refused({"k: ", "heads", "4", "3"}), "");
  k.shape[1] = v.shape[1] = 0;
  EXPECT_EQ(refused({"k: ", "heads", "4", "0"}), "");
  k = good_k;
  v = good_v;
  v.shape[2] = 4;
  EXPECT_EQ(refused({"v: ", "(2, 2, 5, 8)", "(2, 2, 4, 6)"}), "");
  v = good_v;
  out.shape[2] = 2;
  EXPECT_EQ(refused({"out: ", "(2, 4, 3, 6)", "(2, 4, 2, 6)"}), "");
  out = good_out;
  q.shape[2] = -1;
  EXPECT_EQ(refused({"q: ", "-1"}), "");
  q = good_q;
  q.shape[3] = k.shape[3] = 0;
  EXPECT_EQ(refused({"q: ", "0"}), "");
}

TEST_F(BadAttention, Dtypes) {
  for (auto* view : {&k, &v}) {
    view->dtype = DType::bf16;
    EXPECT_EQ(refused({view == &k ? "k: " : "v: ", "f32", "bf16"}), "");
    view->dtype = DType::f32;
  }
  out.dtype = DType::f16;
  EXPECT_EQ(refused({"out: ", "f32", "f16"}), "");
}

TEST_F(BadAttention, Memory) {
  v.strides[3] = 2;
  EXPECT_EQ(refused({"v: ", "contiguous", "2"}), "");
  v.strides[3] = 1;
  k.data = nullptr;
  EXPECT_EQ(refused({"k: ", "null"}), "");
  k.data = memory.data() + 512;
  out.strides[1] = 0;
  EXPECT_EQ(refused({"out: ", "share"}), "");
  out.strides[1] = 18;
  out.data = const_cast<void*>(q.data);
  EXPECT_EQ(refused({"out: ", "overlaps q"}), "");
  out.data = memory.data() + 512 + 8;
  EXPECT_EQ(refused({"out: ", "overlaps k"}), "");
  out.data = memory.data() + 1024 - 8;
  EXPECT_EQ(refused({"out: ", "overlaps v"}), "");
}

TEST_F(BadAttention, Numbers) {
  options.scale = std::nan("");
  EXPECT_EQ(refused({"scale: ", "finite", "nan"}), "");
  options.scale.reset();
  for (const double softcap : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    options.softcap = softcap;
    EXPECT_EQ(refused({"softcap: ", "positive"}), "") << softcap;
  }
  options.softcap.reset();
  const std::vector<float> two{0, 0}, bad{0, 0, 0, nan}, four(4);
  options.sink_logits = two;
  EXPECT_EQ(refused({"sink_logits: ", "4", "2"}), "");
  options.sink_logits = bad;
  EXPECT_EQ(refused({"sink_logits: ", "NaN"}), "");
  options.sink_logits = {};
  options.query_factors = four;
  EXPECT_EQ(refused({"query_factors: ", "3", "2 x 3", "4"}), "");
  const std::vector<float> bad_factors{1, nan, 1};
  options.query_factors = bad_factors;
  EXPECT_EQ(refused({"query_factors: ", "NaN"}), "");
}

TEST_F(BadAttention, Tables) {
  EXPECT_EQ(refused_table(SlopeBias{{1, 1}}, {"bias: ", "4 heads", "2"}), "");
  EXPECT_EQ(refused_table(SlopeBias{{1, 1, 1, nan}}, {"bias: slopes", "1e+38", "nan"}), "");
  EXPECT_EQ(refused_table(SlopeBias{{1, 1, 1, HUGE_VALF}}, {"bias: slopes", "1e+38", "inf"}), "");
  EXPECT_EQ(refused_table(DistanceBias{4, 0, 0, {}}, {"bias: distances", "at least 1", "0"}), "");
  EXPECT_EQ(refused_table(DistanceBias{4, 0, std::int64_t{1} << 62, {}}, {"bias: distances", "2^40", "4611686018427387904"}), "");
  for (const std::int64_t least : {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(refused_table(DistanceBias{4, least, 1, {1, 2, 3, 4}}, {"bias: least", "2^40"}), "");
  EXPECT_EQ(refused_table(DistanceBias{4, 0, 2, {1, 2, 3}}, {"bias: values", "8", "3"}), "");
  EXPECT_EQ(refused_table(DistanceBias{4, 0, 1, {1, 2, 3, nan}}, {"bias: values", "nan"}), "");
  EXPECT_EQ(refused_table(DistanceBias{4, 0, 1, {1, 2, 3, std::numeric_limits<float>::lowest()}}, {"bias: values", "-inf to hide"}), "");
  const FireBias fire{4, 0.1F, 512, 1e-6F, {1, 1}, {0, 0}, std::vector<float>(8), std::vector<float>(4)};
  auto wrong = fire;
  wrong.bias1 = {0};
  EXPECT_EQ(refused_table(wrong, {"bias: bias1", "2", "1"}), "");
  wrong = fire;
  wrong.weights2.pop_back();
  EXPECT_EQ(refused_table(wrong, {"bias: weights2", "8", "7"}), "");
  wrong = fire;
  wrong.bias2.pop_back();
  EXPECT_EQ(refused_table(wrong, {"bias: bias2", "4", "3"}), "");
  wrong = fire;
  wrong.weights1[1] = nan;
  EXPECT_EQ(refused_table(wrong, {"bias: weights1", "nan"}), "");
  wrong = fire;
  wrong.c = -1;
  EXPECT_EQ(refused_table(wrong, {"bias: c", "-1"}), "");
  wrong = fire;
  wrong.threshold = nan;
  EXPECT_EQ(refused_table(wrong, {"bias: threshold", "nan"}), "");
  wrong = fire;
  wrong.epsilon = 0;
  EXPECT_EQ(refused_table(wrong, {"bias: epsilon", "positive", "0"}), "");
}

TEST_F(BadAttention, Grids) {
  EXPECT_EQ(refused_table(GridBias{4, 0, 3, false, {}}, {"bias: height and width", "0 and 3"}), "");
  EXPECT_EQ(refused_table(GridBias{4, 1, 3, false, std::vector<float>(20)}, {"bias: ", "1 x 3", "3 queries and keys", "3 and 5"}), "");
  k.shape[2] = v.shape[2] = 3;
  EXPECT_EQ(refused_table(GridBias{4, 1, 3, true, std::vector<float>(32)}, {"bias: ", "1 x 3", "4 queries and keys"}), "");
  EXPECT_EQ(refused_table(GridBias{4, 1, 3, false, std::vector<float>(19)}, {"bias: values", "20", "19"}), "");
}

// The cell of a query is its key slot, so a mask can move it off the grid: that read beyond the table.
TEST_F(BadAttention, AGridAndAMaskThatMovesQueriesOffIt) {
  k.shape[2] = v.shape[2] = 3;
  for (const std::int64_t offset : {-1, 1, 100000000}) {
    MaskOptions made;
    made.queries = made.keys = 3;
    made.offset = offset;
    const auto mask = key_intervals(made);
    options.mask = &mask;
    EXPECT_EQ(refused_table(GridBias{4, 1, 3, false, std::vector<float>(20)}, {"mask: ", "slot", "cells 0 to 2"}), "") << offset;
  }
}

TEST_F(BadAttention, Masks) {
  MaskOptions made;
  made.queries = 3;
  made.keys = 5;
  const auto good = key_intervals(made);
  const auto refused_mask = [&](KeyIntervals mask, std::initializer_list<const char*> words) {
    options.mask = &mask;
    return refused(words);
  };
  auto wrong = good;
  wrong.keys = 6;
  EXPECT_EQ(refused_mask(wrong, {"mask: ", "3 queries and 5 keys", "3 and 6"}), "");
  wrong = good;
  wrong.batch = 3;
  EXPECT_EQ(refused_mask(wrong, {"mask: ", "1 or 2", "3"}), "");
  wrong = good;
  wrong.keep_first = -1;
  EXPECT_EQ(refused_mask(wrong, {"mask: keep_first", "-1"}), "");
  wrong = good;
  wrong.first.pop_back();
  EXPECT_EQ(refused_mask(wrong, {"mask: ", "3", "2"}), "");
  wrong = good;
  wrong.end[1] = 6;
  EXPECT_EQ(refused_mask(wrong, {"mask: ", "end <= 5", "6"}), "");
  wrong = good;
  wrong.begin[1] = -1;
  EXPECT_EQ(refused_mask(wrong, {"mask: ", "0 <= begin", "-1"}), "");
  options.mask = nullptr;
  options.mask_tensor = MaskTensor{};
  EXPECT_EQ(refused({"mask_tensor: ", "null"}), "");
}

TEST_F(BadAttention, RotationsSayWhichTensor) {
  const auto rotation = frequencies({.rule = rotary::Default{}, .theta = 10000, .head_dim = 8, .rotary_dim = 8});
  options.rotate_queries = RotationOnLoad{rotation, Range{0, 4}};
  EXPECT_EQ(refused({"rotate_queries: ", "positions"}), "");
  options.rotate_queries.reset();
  options.rotate_keys = RotationOnLoad{rotation, Range{0, 4}};
  EXPECT_EQ(refused({"rotate_keys: ", "positions"}), "");
}

std::string refused(const MaskOptions& options, std::initializer_list<const char*> words, ErrorCode code = ErrorCode::invalid_argument) {
  return testing_support::refusal_fault([&] { key_intervals(options); }, code, words);
}

TEST(BadMask, NumbersOutOfRange) {
  MaskOptions good;
  good.queries = 3;
  good.keys = 5;
  const auto with = [&](auto change) {
    MaskOptions options = good;
    change(options);
    return options;
  };
  EXPECT_EQ(refused(with([](auto& o) { o.queries = -1; }), {"queries: ", "-1"}), "");
  EXPECT_EQ(refused(with([](auto& o) { o.keys = -1; }), {"keys: ", "-1"}), "");
  EXPECT_EQ(refused(with([](auto& o) { o.keys = std::int64_t{1} << 31; }), {"keys: ", "2^31"}, ErrorCode::out_of_range), "");
  EXPECT_EQ(refused(with([](auto& o) { o.left = -1; }), {"left: ", "-1"}), "");
  EXPECT_EQ(refused(with([](auto& o) { o.right = -1; }), {"right: ", "-1"}), "");
  EXPECT_EQ(refused(with([](auto& o) { o.chunk = 0; }), {"chunk: ", "at least 1", "0"}), "");
  EXPECT_EQ(refused(with([](auto& o) { o.prefix = -1; }), {"prefix: ", "-1"}), "");
  EXPECT_EQ(refused(with([](auto& o) { o.keep_first = -1; }), {"keep_first: ", "-1"}), "");
  for (const std::int64_t offset : {std::int64_t{1} << 31, -(std::int64_t{1} << 31), INT64_MAX, INT64_MIN})
    EXPECT_EQ(refused(with([&](auto& o) { o.offset = offset; }), {"offset: "}, ErrorCode::out_of_range), "") << offset;
}

TEST(BadMask, ListsThatDoNotFit) {
  const std::vector<std::int32_t> two{0, 1}, three{0, 1, 2}, long_end{6, 5}, begin_after{5, 6}, to_3{0, 3}, to_5{0, 5}, from_1{1, 3},
      descends{0, 2, 1, 3};
  MaskOptions options;
  options.queries = 3;
  options.keys = 5;
  options.key_begin = three;
  options.key_end = two;
  EXPECT_EQ(refused(options, {"key_end: ", "3", "2"}), "");
  options.key_begin = {};
  options.key_end = long_end;
  EXPECT_EQ(refused(options, {"key_end: ", "<= 5", "6", "row 0"}), "");
  options.key_end = {};
  options.key_begin = begin_after;
  EXPECT_EQ(refused(options, {"key_begin: ", "6", "row 1"}), "");
  options.key_begin = two;
  options.cu_seqlens_q = to_3;
  options.cu_seqlens_k = to_5;
  EXPECT_EQ(refused(options, {"cu_seqlens_q: ", "padding", "key_begin"}), "");
  options.key_begin = {};
  options.offset = 0;
  EXPECT_EQ(refused(options, {"offset: ", "packed"}), "");
  options.offset.reset();
  EXPECT_NO_THROW(key_intervals(options));
  options.cu_seqlens_k = {};
  EXPECT_EQ(refused(options, {"cu_seqlens_k: ", "2", "0"}), "");
  options.cu_seqlens_k = to_3;
  EXPECT_EQ(refused(options, {"cu_seqlens_k: ", "end at 5", "3"}), "");
  options.cu_seqlens_k = to_5;
  options.cu_seqlens_q = from_1;
  EXPECT_EQ(refused(options, {"cu_seqlens_q: ", "begin at 0", "1"}), "");
  options.cu_seqlens_q = descends;
  options.cu_seqlens_k = descends;
  EXPECT_EQ(refused(options, {"cu_seqlens_q: ", "descend"}), "");
}

TEST(BadMask, PositionsOfFactors) {
  const std::vector<std::int64_t> beyond{0, INT64_MAX};
  EXPECT_EQ(testing_support::refusal_fault([&] { query_factors(LogTemperature{}, beyond); }, ErrorCode::out_of_range, {"positions[1]"}),
            "");
}

}  // namespace
}  // namespace gnomon::test
