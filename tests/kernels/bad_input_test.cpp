// SPDX-License-Identifier: Apache-2.0
// What rotate, tables and positions refuse, and that the message names the argument.
#include <gtest/gtest.h>

#include <limits>

#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "support/strided.hpp"

namespace {

using namespace testing_support;
using gnomon::ConstTensorView;
using gnomon::DType;
using gnomon::ErrorCode;
using gnomon::TensorView;

class BadInput : public testing::Test {
 protected:
  gnomon::Frequencies frequencies =
      gnomon::frequencies({.rule = gnomon::rotary::Default{}, .theta = 10000, .head_dim = 8, .rotary_dim = 8});
  std::vector<float> memory = std::vector<float>(4096, 1.0F);
  TensorView x{memory.data(), DType::f32, {2, 2, 3, 8}, {48, 24, 8, 1}};
  TensorView out{memory.data() + 1024, DType::f32, {2, 2, 3, 8}, {48, 24, 8, 1}};
  gnomon::Positions positions = gnomon::Range{0, 3};

  std::string refused(ErrorCode code, std::initializer_list<const char*> words) {
    const auto before = memory;
    const std::string fault = refusal_fault([&] { gnomon::rotate(ConstTensorView(x), out, frequencies, positions); }, code, words);
    return memory == before ? fault : "memory was written before the refusal; " + fault;
  }
};

TEST_F(BadInput, TheGoodInputIsTaken) { EXPECT_NO_THROW(gnomon::rotate(ConstTensorView(x), out, frequencies, positions)); }

TEST_F(BadInput, DtypesThatDiffer) {
  out.dtype = DType::bf16;
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out", "f32", "bf16"}), "");
}

TEST_F(BadInput, ShapesThatDoNotFit) {
  out.shape[1] = 1;
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out", "(2, 2, 3, 8)", "(2, 1, 3, 8)"}), "");
  out = x;
  x.shape[0] = out.shape[0] = -1;
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"x", "-1"}), "");
}

TEST_F(BadInput, HeadDimThatIsNotTheSpecs) {
  x.shape[3] = out.shape[3] = 16;
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"x", "8", "16"}), "");
}

TEST_F(BadInput, LastAxisThatIsNotContiguous) {
  x.strides = {96, 48, 16, 2};
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"x", "contiguous", "2"}), "");
  x.strides = {48, 24, 8, -1};
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"x", "contiguous"}), "");
  x.strides = {48, 24, 8, 1};
  out.strides = {96, 48, 16, 2};
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out", "contiguous"}), "");
}

TEST_F(BadInput, MemoryThatOverlaps) {
  for (const int shift : {1, 7, 8, 48, 95}) {
    out.data = memory.data() + shift;
    EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out", "overlap"}), "") << shift;
    std::swap(x.data, out.data);
    EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out", "overlap"}), "") << shift;
    std::swap(x.data, out.data);
  }
  out.data = memory.data() + 96;  // the first element past x
  EXPECT_NO_THROW(gnomon::rotate(ConstTensorView(x), out, frequencies, positions));
  out.data = x.data;  // the same memory in another order is not the same view
  out.strides = {48, 8, 16, 1};
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out", "overlap"}), "");
}

TEST_F(BadInput, OutputThatSharesItsOwnElements) {
  out.strides = {48, 0, 8, 1};
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out"}), "");
  out.strides = {48, 24, 4, 1};
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"out"}), "");
}

TEST_F(BadInput, MemoryThatIsMissingOrMisaligned) {
  x.data = nullptr;
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"x", "null"}), "");
  x.data = reinterpret_cast<std::byte*>(memory.data()) + 2;
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"x", "align"}), "");
}

TEST_F(BadInput, PositionsOfAnotherNumber) {
  for (const std::int64_t number : {0, 1, 2, 4, 5, 7, 12}) {
    positions = gnomon::Range{0, number};
    EXPECT_EQ(refused(ErrorCode::invalid_argument, {"positions", "3", "6"}), "") << number;
  }
  for (const std::int64_t number : {3, 6}) {
    positions = gnomon::Range{0, number};
    EXPECT_NO_THROW(gnomon::rotate(ConstTensorView(x), out, frequencies, positions));
  }
}

TEST_F(BadInput, PositionsBeyondTheContract) {
  constexpr std::int64_t past = gnomon::max_position + 1;
  for (const std::int64_t bad : {past, -past, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    const std::vector<std::int64_t> ids{0, bad, 1};
    positions = gnomon::Ids{ids};
    EXPECT_EQ(refused(ErrorCode::out_of_range, {"positions[1]"}), "") << bad;
  }
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL, 0x1p33 + 1, -0x1p33 - 0x1p-19}) {
    const std::vector<double> reals{0, 1, bad};
    positions = gnomon::Reals{reals};
    EXPECT_EQ(refused(ErrorCode::out_of_range, {"positions[2]"}), "") << bad;
  }
  positions = gnomon::Range{gnomon::max_position - 1, gnomon::max_position + 2};
  EXPECT_EQ(refused(ErrorCode::out_of_range, {"positions[2]"}), "");
  positions = gnomon::Range{-past, -past + 3};
  EXPECT_EQ(refused(ErrorCode::out_of_range, {"positions[0]"}), "");
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  positions = gnomon::Range{0, most, most / 3 + 1};
  EXPECT_EQ(refused(ErrorCode::out_of_range, {"positions["}), "");
  positions = gnomon::Range{std::numeric_limits<std::int64_t>::min(), most, most};
  EXPECT_EQ(refused(ErrorCode::out_of_range, {"positions["}), "");
}

TEST(Contract, ReachesTwoToThe33) { EXPECT_EQ(gnomon::max_position, 8589934592); }

TEST_F(BadInput, ARangeThatDoesNotMove) {
  positions = gnomon::Range{0, 3, 0};
  EXPECT_EQ(refused(ErrorCode::invalid_argument, {"positions", "step"}), "");
}

TEST_F(BadInput, RotationsThatDoNotFitTheHead) {
  const auto refused_rotation = [&](const gnomon::Rotation& rotation) {
    return refusal_fault([&] { gnomon::rotate(x, rotation, positions); }, ErrorCode::invalid_argument, {"rotation"});
  };
  const gnomon::Rotation fine(frequencies);
  for (const int offset : {-1, 1, 8, std::numeric_limits<int>::max()}) {
    auto rotation = fine;
    rotation.rotary_offset = offset;
    EXPECT_EQ(refused_rotation(rotation), "") << offset;
  }
  gnomon::Rotation none;
  none.head_dim = 8;
  EXPECT_EQ(refused_rotation(none), "") << "nothing to rotate is no rotation";
  const std::vector<std::uint8_t> axis(3), axes(5);
  const std::vector<double> log_magnitude(3);
  auto uneven = fine;
  uneven.axis = axis;
  EXPECT_EQ(refused_rotation(uneven), "") << "a pair without an axis";
  uneven.axis = axes;
  EXPECT_EQ(refused_rotation(uneven), "") << "an axis without a pair";
  uneven = fine;
  uneven.log_magnitude = log_magnitude;
  EXPECT_EQ(refused_rotation(uneven), "") << "a pair without a magnitude";
}

TEST_F(BadInput, FrequenciesWithoutTurnsInATable) {
  frequencies.turns.pop_back();
  EXPECT_EQ(refusal_fault([&] { gnomon::rotary_table(frequencies, positions); }, ErrorCode::invalid_argument, {"frequencies", "turns"}),
            "");
}

TEST_F(BadInput, HfFrequenciesInAKernel) {
  frequencies = gnomon::frequencies(frequencies.spec, gnomon::Numerics::hf);
  EXPECT_EQ(refused(ErrorCode::unsupported, {"hf"}), "");
}

TEST_F(BadInput, TablesRefuseTheSamePositions) {
  const auto refused_table = [&](const gnomon::Positions& bad, ErrorCode code) {
    return refusal_fault([&] { gnomon::rotary_table(frequencies, bad); }, code, {"positions"});
  };
  const std::vector<double> not_a_number{0, std::nan("")};
  const std::vector<std::int64_t> far{gnomon::max_position + 1};
  EXPECT_EQ(refused_table(gnomon::Reals{not_a_number}, ErrorCode::out_of_range), "");
  EXPECT_EQ(refused_table(gnomon::Ids{far}, ErrorCode::out_of_range), "");
  EXPECT_EQ(refused_table(gnomon::Range{0, 10, 0}, ErrorCode::invalid_argument), "");
}

TEST(Positions, AreCountedLikeAPythonSlice) {
  const auto number = [](std::int64_t start, std::int64_t stop, std::int64_t step) {
    return gnomon::count(gnomon::Range{start, stop, step});
  };
  EXPECT_EQ(number(0, 10, 1), 10U);
  EXPECT_EQ(number(0, 10, 3), 4U);
  EXPECT_EQ(number(0, 9, 3), 3U);
  EXPECT_EQ(number(10, 0, -3), 4U);
  EXPECT_EQ(number(0, 10, -1), 0U);
  EXPECT_EQ(number(10, 0, 1), 0U);
  EXPECT_EQ(number(3, 3, 1), 0U);
  EXPECT_EQ(number(-7, 7, 100), 1U);
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(number(least, most, most), 3U);
  EXPECT_EQ(number(0, most, 1), static_cast<std::size_t>(most));
}

TEST(Dtypes, AreNamed) {
  for (const auto dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(gnomon::dtype_of(gnomon::name_of(dtype)), dtype);
  for (const char* bad : {"", "f8", "F32", "float32", "f32 "}) {
    EXPECT_EQ(refusal_fault([&] { gnomon::dtype_of(bad); }, ErrorCode::invalid_argument, {"f64", "f32", "bf16", "f16"}), "") << bad;
  }
}

}  // namespace
