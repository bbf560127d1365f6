// SPDX-License-Identifier: Apache-2.0
// Public bug reports as tests: the right answer (computed at 60 digits elsewhere), and the wrong one people got, which the same check
// must reject. Each names the report it comes from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"
#include "support/pairs.hpp"
#include "support/strided.hpp"

namespace {

using namespace testing_support;
using gnomon::DType;
using gnomon::PairLayout;
using gnomon::RotarySpec;
namespace rotary = gnomon::rotary;

RotarySpec spec_of(gnomon::RotaryRule rule, double theta, int width) {
  return {.rule = rule, .theta = theta, .head_dim = width, .rotary_dim = width};
}

/// Whether a value is the right one to `digits` significant digits.
bool right(double value, double expected, int digits) {
  return std::abs(value - expected) <= 1.01 * std::abs(expected) * std::pow(10, 1 - digits);
}

/// A value must pass the check and the wrong one must not.
void expect(double value, double expected, int digits, double seen) {
  EXPECT_TRUE(right(value, expected, digits)) << "got " << testing::PrintToString(value) << ", right " << testing::PrintToString(expected);
  EXPECT_FALSE(right(seen, expected, digits)) << "the check cannot tell " << seen << " from " << expected;
}

double cos_at(const RotarySpec& spec, std::int64_t position, int pair) {
  const std::vector<std::int64_t> ids{position};
  return table_cos(gnomon::rotary_table(gnomon::frequencies(spec), gnomon::Ids{ids}, DType::f64), 0, static_cast<std::size_t>(pair));
}
double sin_at(const RotarySpec& spec, std::int64_t position, int pair) {
  const std::vector<std::int64_t> ids{position};
  return table_sin(gnomon::rotary_table(gnomon::frequencies(spec), gnomon::Ids{ids}, DType::f64), 0, static_cast<std::size_t>(pair));
}

/// cos and sin as the kernel makes them: what the unit vector of a pair becomes, in f32 or bf16.
template <class Element>
std::pair<double, double> kernel_cos_sin(const RotarySpec& spec, std::int64_t position, int pair) {
  Strided<Element> x({1, 1, 1, spec.head_dim}, Order::bhtd);
  const auto [first, second] = channels(spec, pair);
  x.each([&, one = first](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = encode<Element>(d == one ? 1 : 0); });
  gnomon::rotate(x.view(), gnomon::frequencies(spec), gnomon::Range{position, position + 1});
  return {decode(x.at(0, 0, 0, first)), decode(x.at(0, 0, 0, second))};
}

double nearest_f16(double value) {
  if (value == 0) return 0;
  const int unit = std::max(std::ilogb(value), -14) - 10;
  return std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
}
double nearest_bf16_of(double value) { return decode_bf16(nearest_bf16(static_cast<float>(value))); }

TEST(T01, TheAngleIsNotHalfPrecision) {  // gpt-neox/issues/1003
  const auto spec = spec_of(rotary::Default{}, 10000, 32);
  const auto frequencies = gnomon::frequencies(spec);
  expect(frequencies.inv_freq[1], 0.562341325190349, 15, 0.5625);
  expect(cos_at(spec, 1857, 1), 0.306692809819, 12, -0.408164620577);
  EXPECT_NEAR(kernel_cos_sin<float>(spec, 1857, 1).first, 0.306692809819, 1.2e-7);
  EXPECT_NEAR(kernel_cos_sin<std::uint16_t>(spec, 1857, 1).first, 0.306692809819, 1e-3);
  const auto hf = gnomon::rotary_table(gnomon::frequencies(spec, gnomon::Numerics::hf), gnomon::Range{1857, 1858});
  EXPECT_NEAR(table_cos(hf, 0, 1), 0.306692809819, 1e-4) << "a float32 product is fine here";

  const auto table = gnomon::rotary_table(frequencies, gnomon::Range{0, 2048}),
             truth = gnomon::rotary_table(frequencies, gnomon::Range{0, 2048}, DType::f64);
  double worst = 0, worst_half = 0;
  std::pair<std::size_t, std::size_t> where;
  for (std::size_t p = 0; p < 2048; p++) {
    for (std::size_t i = 0; i < 16; i++) {
      worst = std::max(worst, std::abs(table_cos(table, p, i) - table_cos(truth, p, i)));
      const double half = std::cos(nearest_f16(nearest_f16(static_cast<double>(p)) * nearest_f16(frequencies.inv_freq[i])));
      const double error = std::abs(half - table_cos(truth, p, i));
      if (error > worst_half) worst_half = error, where = {p, i};
    }
  }
  EXPECT_LE(worst, 3.1e-8);
  EXPECT_NEAR(worst_half, 0.782, 5e-4);
  EXPECT_EQ(where, std::pair(std::size_t{2008}, std::size_t{1}));
}

/// How many different rows of cos and sin a list of positions gets.
std::size_t distinct_rows(const std::vector<std::int64_t>& positions) {
  const auto table = gnomon::rotary_table(gnomon::frequencies(spec_of(rotary::Default{}, 10000, 64)), gnomon::Ids{positions});
  std::set<std::string> rows;
  const std::size_t bytes = table.pairs * sizeof(float);
  for (std::size_t p = 0; p < table.positions; p++) {
    const auto* cosine = reinterpret_cast<const char*>(table.cos.data() + p * bytes);
    const auto* sine = reinterpret_cast<const char*>(table.sin.data() + p * bytes);
    rows.insert(std::string(cosine, bytes) + std::string(sine, bytes));
  }
  return rows.size();
}

TEST(T02, PositionsAreNeverCast) {  // gpt-neox/pull/1016, UNI-D2/pull/6, candle/pull/3520
  const auto spec = spec_of(rotary::Default{}, 10000, 64);
  expect(cos_at(spec, 15962, 0), -0.908015901251, 12, -0.267950071128);
  EXPECT_NEAR(kernel_cos_sin<float>(spec, 15962, 0).first, -0.908015901251, 1.2e-7);
  EXPECT_NEAR(kernel_cos_sin<std::uint16_t>(spec, 15962, 0).first, -0.908015901251, 2e-3)
      << "a bf16 tensor does not make its positions bf16";
  for (const auto& [number, distinct_in_bf16] : {std::pair(512, 385U), std::pair(1024, 513U), std::pair(4096, 769U)}) {
    std::vector<std::int64_t> positions, cast;
    for (int p = 0; p < number; p++) positions.push_back(p), cast.push_back(static_cast<std::int64_t>(nearest_bf16_of(p)));
    EXPECT_EQ(distinct_rows(positions), static_cast<std::size_t>(number));
    EXPECT_EQ(distinct_rows(cast), distinct_in_bf16) << "the wrong pipeline, seen by the same count";
  }
  // Neighbours that bf16 or f16 cannot tell apart stay apart in a bf16 tensor.
  for (const auto& [a, b] : {std::pair(256, 257), std::pair(4095, 4096), std::pair(4096, 4097), std::pair(2048, 2049)}) {
    EXPECT_NE(kernel_cos_sin<std::uint16_t>(spec, a, 0), kernel_cos_sin<std::uint16_t>(spec, b, 0)) << a << " " << b;
  }
}

TEST(T03, ImagePositionsThatStartAt65536) {  // diffusers/issues/13920, pull/13922
  std::vector<std::int64_t> positions, cast;
  for (int k = 0; k < 1024; k++) positions.push_back(65536 + k), cast.push_back(static_cast<std::int64_t>(nearest_bf16_of(65536 + k)));
  EXPECT_EQ(distinct_rows(positions), 1024U);
  EXPECT_EQ(distinct_rows(cast), 3U) << "a 64-wide grid becomes one point";
  EXPECT_EQ(cast[256], 65536);
  EXPECT_EQ(cast[257], 66048);
  EXPECT_EQ(cast[768], 66560);
}

TEST(T04, LargeArguments) {  // imp/pull/1325, mlxcel/pull/1055, tt-metal/issues/33971, stdlib/issues/10846
  const auto spec = spec_of(rotary::Default{}, 10000, 2);
  const struct {
    std::int64_t position;
    double cosine, sine;
  } cases[] = {{40, -0.66693806165226184, 0.74511316047934879},
               {2000, -0.36745954910083133, 0.93003950441613701},
               {16000, -0.99138143446830687, 0.13100706618943186},
               {131071, -0.81798349938794908, -0.57524168375478937},
               {1048575, 0.78804223952892747, -0.61562117305875088}};
  for (const auto& [position, cosine, sine] : cases) {
    // Fast intrinsics were off by 1e-2; so is the rest of the argument where an f32 product loses it.
    expect(cos_at(spec, position, 0), cosine, 12, cosine + 1e-2);
    expect(sin_at(spec, position, 0), sine, 12, sine - 1e-2);
    const auto [c, s] = kernel_cos_sin<float>(spec, position, 0);
    EXPECT_NEAR(c, cosine, 1.2e-7);
    EXPECT_NEAR(s, sine, 1.2e-7);
  }
  // An f32 has no 16777217: as an integer it is a position of its own.
  EXPECT_GT(std::abs(cos_at(spec, 16777217, 0) - cos_at(spec, 16777216, 0)), 0.1);
}

/// Whether the two lie on the unit circle as T04 demands: within [-1, 1], squares adding to 1 within 2 ulp of the type.
bool on_the_circle(double cosine, double sine, double ulp) {
  return std::abs(cosine) <= 1 && std::abs(sine) <= 1 &&
         std::abs(static_cast<double>(static_cast<long double>(cosine) * cosine + static_cast<long double>(sine) * sine - 1)) <= 2 * ulp;
}

TEST(T04, EveryPositionUpTo2To24LiesOnTheCircle) {
  const auto frequencies = gnomon::frequencies(spec_of(rotary::Default{}, 10000, 2));
  constexpr std::int64_t block = 1 << 20;
  long off = 0;
  for (std::int64_t start = 0; start < 1 << 24; start += block) {
    const auto narrow = gnomon::rotary_table(frequencies, gnomon::Range{start, start + block}, DType::f32);
    for (std::size_t p = 0; p < narrow.positions; p++) off += !on_the_circle(table_cos(narrow, p, 0), table_sin(narrow, p, 0), 0x1p-23);
    const auto wide = gnomon::rotary_table(frequencies, gnomon::Range{start, start + block, 8}, DType::f64);
    for (std::size_t p = 0; p < wide.positions; p++) off += !on_the_circle(table_cos(wide, p, 0), table_sin(wide, p, 0), 0x1p-52);
  }
  EXPECT_EQ(off, 0);
  EXPECT_FALSE(on_the_circle(1.0000001, 0, 0x1p-23)) << "beyond 1 in size";
  EXPECT_FALSE(on_the_circle(0.7, 0.7, 0x1p-23));
}

TEST(T05, TheAngleIsNoFloat32Product) {  // mlx-lm/pull/1076, imp/pull/1325, Megatron-LM/issues/535
  const auto spec = spec_of(rotary::Default{}, 500000, 128);
  const auto frequencies = gnomon::frequencies(spec);
  expect(frequencies.inv_freq[1], 0.81461723385654470, 16, 0.81461721658706665);
  expect(cos_at(spec, 131071, 1), -0.81731615002386427, 9, -0.81723183831931);
  expect(cos_at(spec, 1048575, 1), 0.70395138063893129, 8, 0.71521856077896);
  for (const auto& [position, cosine, seen] :
       {std::tuple(131071, -0.81731615002386427, -0.81723183831931), std::tuple(1048575, 0.70395138063893129, 0.71521856077896)}) {
    EXPECT_NEAR(kernel_cos_sin<float>(spec, position, 1).first, cosine, 1.2e-7);
    EXPECT_GT(std::abs(seen - cosine), 1.2e-7) << "the kernel's bound tells the two apart";
  }
  // The whole row: the exact table keeps half an ulp, the product loses what the report says, worst at the pair it says.
  for (const auto& [position, lost, pair] :
       {std::tuple(4095, 1.3e-4, -1), std::tuple(32767, 1.0e-3, -1), std::tuple(131071, 2.1e-3, 2), std::tuple(1048575, 3.9e-2, 2)}) {
    const auto row = gnomon::rotary_table(frequencies, gnomon::Range{position, position + 1}),
               truth = gnomon::rotary_table(frequencies, gnomon::Range{position, position + 1}, DType::f64);
    double worst = 0, worst_product = 0;
    int where = 0;
    for (std::size_t i = 0; i < 64; i++) {
      const float angle = static_cast<float>(position) * static_cast<float>(frequencies.inv_freq[i]);
      worst = std::max(
          {worst, std::abs(table_cos(row, 0, i) - table_cos(truth, 0, i)), std::abs(table_sin(row, 0, i) - table_sin(truth, 0, i))});
      const double error = std::max(std::abs(std::cos(static_cast<double>(angle)) - table_cos(truth, 0, i)),
                                    std::abs(std::sin(static_cast<double>(angle)) - table_sin(truth, 0, i)));
      if (error > worst_product) worst_product = error, where = static_cast<int>(i);
    }
    EXPECT_LE(worst, 3.1e-8);
    EXPECT_NEAR(worst_product, lost, 0.05 * lost) << position;
    if (pair >= 0) {
      EXPECT_EQ(where, pair) << position;
    }
  }
}

const rotary::Llama3 llama32_1b{.factor = 32, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192};
const rotary::Llama3 llama31_8b{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192};

TEST(T06, Llama32Scaling) {  // tiny-vllm/pull/1, mlxcel/issues/1355
  const auto scaled = gnomon::frequencies(spec_of(llama32_1b, 500000, 64)).inv_freq,
             plain = gnomon::frequencies(spec_of(rotary::Default{}, 500000, 64)).inv_freq;
  for (std::size_t i = 0; i < 15; i++) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (std::size_t i = 18; i < 32; i++) EXPECT_EQ(scaled[i], plain[i] / 32) << i;
  EXPECT_TRUE(right(scaled[14], 0.0032114459947525910, 17));
  expect(scaled[15], 0.0012905479282092638, 16, plain[15]);
  expect(scaled[16], 0.00042955679655936820, 16, plain[16]);
  expect(scaled[17], 9.7082878026276723e-5, 16, plain[17]);
  expect(scaled[18], 1.9461638184831124e-5, 16, plain[18]);
  expect(scaled[31], 9.4183067254349098e-8, 16, plain[31]);
  expect(scaled[15] / plain[15], 0.605572754534, 12, 1);
  expect(scaled[16] / plain[16], 0.303742523752, 12, 1);
  expect(scaled[17] / plain[17], 0.103447609031, 12, 1);
  const auto wavelength = gnomon::frequencies(spec_of(rotary::Default{}, 500000, 64)).wavelength();
  EXPECT_TRUE(right(wavelength[14], 1956.4973, 8));
  EXPECT_TRUE(right(wavelength[18], 10089.055, 8));
}

double mean_cosine(const std::vector<double>& a, const std::vector<double>& b, double position) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); i++) sum += std::cos((a[i] - b[i]) * position);
  return sum / static_cast<double>(a.size());
}

TEST(T07, Llama31ScalingAndWhatSkippingItCosts) {  // mlx-vlm/pull/1710
  const auto scaled = gnomon::frequencies(spec_of(llama31_8b, 500000, 128)).inv_freq,
             plain = gnomon::frequencies(spec_of(rotary::Default{}, 500000, 128)).inv_freq;
  for (std::size_t i = 0; i < 29; i++) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (std::size_t i = 35; i < 64; i++) EXPECT_EQ(scaled[i], plain[i] / 8) << i;
  const double ratios[] = {0.828168411837, 0.643743133128, 0.493507122732, 0.371122279518, 0.271425477073, 0.190210743641};
  for (std::size_t i = 29; i < 35; i++) expect(scaled[i] / plain[i], ratios[i - 29], 12, i < 32 ? 1 : 0.125);
  expect(scaled[29], 0.0021665707635033586, 16, plain[29]);
  expect(scaled[35], 9.5562123539646830e-5, 16, plain[35]);
  expect(scaled[63], 3.0689259889145111e-7, 16, plain[63]);
  for (const auto& [position, mean] : {std::pair(1000, 0.9630635813), std::pair(8192, 0.7689460837), std::pair(20000, 0.6267698259),
                                       std::pair(60000, 0.5394534260), std::pair(131071, 0.5018345378)}) {
    expect(mean_cosine(plain, scaled, position), mean, 9, mean_cosine(plain, plain, position));
  }
}

TEST(T08, ThetaIsTheOneGiven) {  // DeepSpeed/pull/8345, vllm/pull/28542
  const auto given = gnomon::frequencies(spec_of(rotary::Default{}, 500000, 128)).inv_freq,
             defaulted = gnomon::frequencies(spec_of(rotary::Default{}, 10000, 128)).inv_freq;
  expect(given[1], 0.81461723385654470, 16, defaulted[1]);
  EXPECT_TRUE(right(defaulted[1], 0.86596432336006535, 16));
  for (const auto& [position, mean] : {std::pair(1, 0.99858), std::pair(10, 0.871), std::pair(100, 0.514), std::pair(1000, 0.193)}) {
    EXPECT_NEAR(mean_cosine(given, defaulted, position), mean, 5e-4);
  }
}

rotary::Yarn yarn(double factor, std::int64_t original) { return {.factor = factor, .original_max_position_embeddings = original}; }

TEST(T10, TheExplicitYarnFactor) {  // transformers/issues/38224, pull/40320
  const auto spec = spec_of(yarn(4, 32768), 1e6, 128), seen = spec_of(yarn(1.25, 32768), 1e6, 128);
  const auto ours = gnomon::frequencies(spec), theirs = gnomon::frequencies(seen);
  const auto [low, high] = std::get<rotary::Yarn>(spec.rule).bounds<gnomon::ExactArithmetic>(rule_inputs(spec).front());
  EXPECT_EQ(static_cast<double>(low), 23);
  EXPECT_EQ(static_cast<double>(high), 40);
  auto raw = std::get<rotary::Yarn>(spec.rule);
  raw.truncate = false;
  const auto [raw_low, raw_high] = raw.bounds<gnomon::ExactArithmetic>(rule_inputs(spec).front());
  EXPECT_TRUE(right(static_cast<double>(raw_low), 23.5959476083381, 15));
  EXPECT_TRUE(right(static_cast<double>(raw_high), 39.6508807104171, 15));
  expect(ours.attention_factor, 1.13862943611199, 15, theirs.attention_factor);
  EXPECT_TRUE(right(theirs.attention_factor, 1.02231435513142, 15));
  expect(ours.inv_freq[30], 0.00106436098124700, 15, theirs.inv_freq[30]);
  EXPECT_TRUE(right(theirs.inv_freq[30], 0.00141310904744283, 15));
  expect(ours.inv_freq[63], 3.10234440187930e-7, 15, theirs.inv_freq[63]);
  EXPECT_TRUE(right(theirs.inv_freq[63], 9.92750208601376e-7, 15));
  for (const auto& [pair, value] : {std::pair(23, 0.00697830584859866), std::pair(24, 0.00537532149079010),
                                    std::pair(39, 6.49039432083703e-5), std::pair(40, 4.44569852509731e-5)}) {
    EXPECT_TRUE(right(ours.inv_freq[static_cast<std::size_t>(pair)], value, 15)) << pair;
  }
}

TEST(T11, AnExplicitMagnitudeWins) {  // vllm/pull/46280, mlx-lm/pull/1507
  auto spec = spec_of(yarn(64, 4096), 10000, 128);
  EXPECT_TRUE(right(gnomon::frequencies(spec).attention_factor, 1.41588830833597, 15));
  spec.attention_factor = 1;
  EXPECT_EQ(gnomon::frequencies(spec).attention_factor, 1);
  EXPECT_EQ(gnomon::frequencies(gnomon::rotary_from_json(gnomon::to_json(spec))).attention_factor, 1);
  const std::string text =
      R"({"rule":"yarn","theta":10000,"head_dim":128,"factor":64,"original_max_position_embeddings":4096,"attention_factor":)";
  EXPECT_EQ(gnomon::frequencies(gnomon::rotary_from_json(text + "1.0}")).attention_factor, 1);
  expect(gnomon::frequencies(gnomon::rotary_from_json(text + "null}")).attention_factor, 1.41588830833597, 15, 1);
}

TEST(T12, TheMagnitudeIsAppliedOnce) {  // sglang/pull/33558, TensorRT-LLM/pull/16379
  const struct {
    double factor, magnitude, squared;
  } cases[] = {{1, 1, 1},
               {1.25, 1.02231435513142, 0},
               {2, 1.06931471805599, 0},
               {4, 1.13862943611199, 0},
               {8, 1.20794415416798, 0},
               {16, 1.27725887222398, 0},
               {32, 1.34657359027997, 1.81326043404},
               {40, 1.36888794541139, 0},
               {64, 1.41588830833597, 2.00473970168},
               {128, 1.48520302639196, 2.20582802960}};
  for (const auto& [factor, magnitude, squared] : cases) {
    const auto spec = spec_of(yarn(factor, 4096), 10000, 16);
    const auto frequencies = gnomon::frequencies(spec);
    EXPECT_TRUE(right(frequencies.attention_factor, magnitude, 15)) << factor;
    const double m2 = frequencies.attention_factor * frequencies.attention_factor;
    if (squared > 1) expect(m2, squared, 12, m2 * m2);
    // q · k at equal positions is m² |q|² when q = k; m⁴ when the magnitude went in twice.
    Strided<double> q({1, 1, 1, 16}, Order::bhtd);
    double before = 0, after = 0;
    for (int d = 0; d < 16; d++) q.at(0, 0, 0, d) = 0.1 * d - 0.7, before += q.at(0, 0, 0, d) * q.at(0, 0, 0, d);
    gnomon::rotate(q.view(), frequencies, gnomon::Range{12345, 12346});
    for (int d = 0; d < 16; d++) after += q.at(0, 0, 0, d) * q.at(0, 0, 0, d);
    EXPECT_TRUE(right(after / before, m2, 14)) << factor;
    if (factor > 1) {
      EXPECT_FALSE(right(after * m2 / before, m2, 14)) << "applied twice";
    }
    // Tables carry no magnitude: what turns a cached key once more cannot apply it again.
    const auto table = gnomon::rotary_table(frequencies, gnomon::Range{12345, 12346}, DType::f64);
    EXPECT_TRUE(on_the_circle(table_cos(table, 0, 3), table_sin(table, 0, 3), 0x1p-52));
  }
}

/// The ramp of a yarn with 64 channels: as it is used, and before it is rounded to whole pairs. A raw bound below 0 is clamped to it.
void expect_bounds(rotary::Yarn rule, double theta, std::pair<double, double> used, std::pair<double, double> raw, int digits) {
  const auto input = rule_inputs(spec_of(rule, theta, 64)).front();
  rule.truncate = true;
  const auto [low, high] = rule.bounds<gnomon::ExactArithmetic>(input);
  EXPECT_EQ(std::pair(static_cast<double>(low), static_cast<double>(high)), used);
  rule.truncate = false;
  const auto [raw_low, raw_high] = rule.bounds<gnomon::ExactArithmetic>(input);
  expect(static_cast<double>(raw_low), std::max(raw.first, 0.0), digits, raw.first < 0 ? raw.first : used.first);
  expect(static_cast<double>(raw_high), std::min(raw.second, 63.0), digits, raw.second > 63 ? raw.second : used.second);
}

TEST(T13, MscalePairs) {  // sglang/pull/22711, transformers/pull/47435 (cos and sin only)
  auto rule = yarn(16, 4096);
  rule.mscale = 1, rule.mscale_all_dim = 1;
  expect(gnomon::effective_attention_factor(spec_of(rule, 10000, 64)), 1, 15, 1.27725887222398);
  rule.factor = 40, rule.mscale = 0.707, rule.mscale_all_dim = 0.707;
  const auto ours = gnomon::frequencies(spec_of(rule, 10000, 64));
  EXPECT_EQ(ours.attention_factor, 1);
  expect_bounds(rule, 10000, {10, 23}, {10.4722408103180, 22.5134406368773}, 15);
  for (const auto& [pair, value] :
       {std::pair(11, 0.0390069265671439), std::pair(16, 0.00550000000000000), std::pair(22, 1.77827941003892e-4), std::pair(24, 2.5e-5)}) {
    EXPECT_TRUE(right(ours.inv_freq[static_cast<std::size_t>(pair)], value, 15)) << pair;
  }
  rule.mscale = 0;  // a zero does not count as given
  EXPECT_TRUE(right(gnomon::effective_attention_factor(spec_of(rule, 10000, 64)), 1.36888794541139, 15));
}

TEST(T14, FractionalYarnBounds) {  // vllm/issues/27722, pull/28244, sglang/pull/14270
  auto rule = yarn(32, 4096);
  const auto rounded = gnomon::frequencies(spec_of(rule, 150000, 64));
  rule.truncate = false;
  const auto spec = spec_of(rule, 150000, 64);
  const auto ours = gnomon::frequencies(spec);
  const auto [low, high] = rule.bounds<gnomon::ExactArithmetic>(rule_inputs(spec).front());
  expect(static_cast<double>(low), 8.0927791155124010, 16, 8);
  expect(static_cast<double>(high), 17.398024501588556, 16, 18);
  expect(ours.attention_factor, 1.34657359027997, 15, 1);
  EXPECT_TRUE(right(ours.inv_freq[8], 0.0508132748154615, 15));
  EXPECT_TRUE(right(ours.inv_freq[12], 0.00679495948973222, 15));
  EXPECT_TRUE(right(ours.inv_freq[18], 3.83088123737534e-5, 15));
  expect(ours.inv_freq[9], 0.0317056961846638, 15, rounded.inv_freq[9]);
  expect(ours.inv_freq[16], 0.000456483919223240, 15, rounded.inv_freq[16]);
  expect(ours.inv_freq[17], 0.000129318701245063, 15, rounded.inv_freq[17]);
  EXPECT_TRUE(right(rounded.inv_freq[9], 0.0316207522753465, 15));
  EXPECT_TRUE(right(rounded.inv_freq[16], 0.000580947501931113, 15));
  EXPECT_TRUE(right(rounded.inv_freq[17], 0.000227947795795125, 15));
}

TEST(T15, TheRampAtTheEdges) {  // torchtitan/pull/4215, minimind/issues/602
  const auto early = gnomon::frequencies(spec_of(yarn(4, 128), 10000, 64)).inv_freq;
  for (const auto& [pair, value] : {std::pair(0, 1.0), std::pair(1, 0.698765058696152), std::pair(5, 0.156295085145882),
                                    std::pair(10, 0.0178926785287838), std::pair(11, 0.0105424125857146)}) {
    EXPECT_TRUE(right(early[static_cast<std::size_t>(pair)], value, 15)) << pair;
  }
  expect_bounds(yarn(4, 128), 10000, {0, 11}, {-1.5689590, 10.472241}, 8);
  expect_bounds(yarn(4, 131072), 10000, {22, 35}, {22.513440636877274, 34.554640463436522}, 17);
  expect_bounds(yarn(4, 4096), 10, {41, 63}, {41.888963, 90.053763}, 8);
  const auto late = gnomon::frequencies(spec_of(yarn(4, 131072), 10000, 64)).inv_freq;  // the upper bound is 35 although there are 32 pairs
  expect(late[23], 0.00125658750338467, 15, 0.00122239464614971);
  expect(late[25], 0.000620104826947992, 15, 0.000562420656999342);
  expect(late[31], 6.41116073155444e-5, 15, 3.33380358040831e-5);
  const auto useless = gnomon::frequencies(spec_of(yarn(4, 4096), 10, 64)).inv_freq;
  EXPECT_EQ(useless, gnomon::frequencies(spec_of(rotary::Default{}, 10, 64)).inv_freq) << "no pair is interpolated: legal but useless";
}

double dynamic_base(double theta, double factor, std::int64_t trained, std::int64_t length) {
  const rotary::Dynamic rule{.factor = factor, .max_position_embeddings = trained};
  const auto spec = spec_of(rule, theta, 128);
  const double base = static_cast<double>(rule.base<gnomon::ExactArithmetic>(rule_inputs(spec, length).front()));
  // Pair 32 of 64 has the frequency base^(-1/2): the numbers used are those of that base.
  EXPECT_TRUE(right(gnomon::frequencies(spec, gnomon::Numerics::exact, length).inv_freq[32], 1 / std::sqrt(base), 15));
  return base;
}

TEST(T19, DynamicBaseByLengthWithoutMemory) {  // transformers/issues/25104, 25306; text-generation-inference/issues/816; vllm/issues/3488
  const auto static_base = [](double factor) {
    return std::pow(gnomon::frequencies(spec_of(rotary::Ntk{.factor = factor}, 10000, 128)).inv_freq[32], -2);
  };
  EXPECT_TRUE(right(static_base(2), 20221.261689737912, 14));
  EXPECT_TRUE(right(static_base(4), 40889.942432486216, 14));
  EXPECT_TRUE(right(static_base(8), 82684.622640562218, 14));
  for (const std::int64_t length : {1, 100, 2047, 2048}) expect(dynamic_base(10000, 2, 2048, length), 10000, 17, static_base(2));
  for (const auto& [length, base] : {std::pair(2049, 10009.920711785856), std::pair(3000, 19499.277640853548),
                                     std::pair(4096, 30527.736748806698), std::pair(8192, 72195.860086509387)}) {
    expect(dynamic_base(10000, 2, 2048, length), base, 16, static_base(2));
    EXPECT_FALSE(right(static_base(length / 2048.0), base, 8)) << "the length over the trained one is not the growth";
    EXPECT_FALSE(right(10000, base, 8)) << "the base of the trained length";
  }
  expect(dynamic_base(10000, 2, 2048, 100), 10000, 17, 72195.860086509387);  // after a call with 8192: nothing is remembered
  for (const auto& [length, base] :
       {std::pair(4097, 10009.920711785856), std::pair(8192, 51293.787268152437), std::pair(16384, 135401.97304176549)}) {
    expect(dynamic_base(10000, 4, 4096, length), base, 16, static_base(4));
  }
  expect(dynamic_base(5e7, 6, 32768, 65536), 360979300.433, 12, 5e7);
  expect(dynamic_base(5e7, 6, 32768, 32768), 5e7, 17, 360979300.433);
  const auto slowed = gnomon::frequencies(spec_of(rotary::Linear{.factor = 6}, 5e7, 128)).inv_freq;
  const auto kept = gnomon::frequencies(spec_of(rotary::Dynamic{.factor = 6, .max_position_embeddings = 32768}, 5e7, 128)).inv_freq;
  EXPECT_EQ(kept, gnomon::frequencies(spec_of(rotary::Default{}, 5e7, 128)).inv_freq);
  EXPECT_NE(kept, slowed) << "positions are not divided";
}

TEST(T20, CachedKeysOfAnotherBaseMustBeTurned) {  // transformers/issues/25104, Jjama3.jl/issues/7
  const auto spec = spec_of(rotary::Dynamic{.factor = 2, .max_position_embeddings = 2048}, 10000, 128);
  const auto before = gnomon::frequencies(spec, gnomon::Numerics::exact, 2048),
             after = gnomon::frequencies(spec, gnomon::Numerics::exact, 4096);
  expect(1000 * (after.inv_freq[1] - before.inv_freq[1]), -14.9700320188, 12, 0);
  expect(1000 * (after.inv_freq[32] - before.inv_freq[32]), -4.27661849162, 12, 0);
  EXPECT_EQ(after.inv_freq[0], before.inv_freq[0]);
  // What every pair lags behind, as a rotation of its own, backwards.
  auto lag = spec_of(rotary::Custom{}, 0, 128);
  for (std::size_t i = 0; i < 64; i++) std::get<rotary::Custom>(lag.rule).inv_freq_given.push_back(before.inv_freq[i] - after.inv_freq[i]);
  const auto key = [](const gnomon::Frequencies& frequencies) {
    Strided<double> k({1, 1, 1, 128}, Order::bhtd);
    for (int d = 0; d < 128; d++) k.at(0, 0, 0, d) = 0.01 * d - 0.5;
    gnomon::rotate(k.view(), frequencies, gnomon::Range{1000, 1001});
    return k;
  };
  auto cached = key(before);
  const auto recomputed = key(after);
  double stale = 0, worst = 0;
  for (int d = 0; d < 128; d++) stale = std::max(stale, std::abs(cached.at(0, 0, 0, d) - recomputed.at(0, 0, 0, d)));
  gnomon::rotate(cached.view(), gnomon::frequencies(lag), gnomon::Range{1000, 1001}, {.direction = gnomon::Direction::transposed});
  for (int d = 0; d < 128; d++) worst = std::max(worst, std::abs(cached.at(0, 0, 0, d) - recomputed.at(0, 0, 0, d)));
  EXPECT_LE(worst, 1e-12) << "equals a full recompute";
  EXPECT_GT(stale, 0.5) << "seen: the key left as it is";
}

TEST(T21, LongropeListByLength) {  // transformers/pull/33129, llama.cpp/issues/8995, vllm/pull/27431, mlxcel/issues/1358
  const rotary::Longrope rule{
      .short_factor = {1, 1, 1, 1}, .long_factor = {1, 2, 4, 8}, .original_max_position_embeddings = 4096, .factor = 32};
  const auto spec = spec_of(rule, 10000, 8);
  const auto at = [&](std::int64_t length) { return gnomon::frequencies(spec, gnomon::Numerics::exact, length); };
  const std::vector<double> brief{1, 0.1, 0.01, 0.001}, extended{1, 0.05, 0.0025, 0.000125};
  for (const std::int64_t length : {1, 100, 4096}) {
    for (std::size_t i = 0; i < 4; i++) EXPECT_TRUE(right(at(length).inv_freq[i], brief[i], 16)) << length << " pair " << i;
    expect(at(length).inv_freq[3], brief[3], 16, extended[3]);  // seen: always long, or by the cache's size
  }
  for (const std::int64_t length : {4097, 131072}) {
    for (std::size_t i = 0; i < 4; i++) EXPECT_TRUE(right(at(length).inv_freq[i], extended[i], 16)) << length << " pair " << i;
    expect(at(length).inv_freq[3], extended[3], 16, brief[3]);  // seen: long only from a position beyond the original length
  }
  EXPECT_EQ(gnomon::frequencies(spec).inv_freq, at(4096).inv_freq) << "without a length: that of the trained one";
  EXPECT_EQ(at(100).inv_freq, at(4096).inv_freq) << "after a longer call, too";
  for (const std::int64_t length : {100, 4096, 4097, 131072}) expect(at(length).attention_factor, 1.1902380714238083, 16, 1);
  auto other = rule;
  other.original_max_position_embeddings = 8192, other.factor = 16;
  expect(gnomon::effective_attention_factor(spec_of(other, 10000, 8)), 1.1435437497937312, 16, 1.1902380714238083);
  other.factor = 1;
  EXPECT_EQ(gnomon::effective_attention_factor(spec_of(other, 10000, 8)), 1);
}

std::vector<double> rotated(PairLayout layout, std::int64_t position, gnomon::Direction direction = gnomon::Direction::forward) {
  RotarySpec spec = spec_of(rotary::Default{}, 10000, 4);
  spec.layout = layout;
  Strided<double> k({1, 1, 1, 4}, Order::bhtd);
  for (int d = 0; d < 4; d++) k.at(0, 0, 0, d) = d + 1;
  gnomon::rotate(k.view(), gnomon::frequencies(spec), gnomon::Range{position, position + 1}, {.direction = direction});
  return {k.at(0, 0, 0, 0), k.at(0, 0, 0, 1), k.at(0, 0, 0, 2), k.at(0, 0, 0, 3)};
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < 4; i++) {
    if (!right(a[i], b[i], 12)) return false;
  }
  return true;
}

TEST(T23, SignAndLayoutOfTheRotation) {  // llama.cpp/pull/3364, transformers/issues/25199, AiDotNet/pull/2074; numbers also in T22
  const std::vector<double> half_split{-1.21705754181, 1.71533061116, 2.91869336175, 4.13008969569};
  const std::vector<double> interleaved{-0.560070943094, 2.16479110741, 2.71288161141, 4.20003254303};
  EXPECT_TRUE(same(rotated(PairLayout::half_split, 7), half_split));
  EXPECT_TRUE(same(rotated(PairLayout::interleaved, 7), interleaved));
  EXPECT_FALSE(same(rotated(PairLayout::interleaved, 7), half_split)) << "layouts swapped";
  EXPECT_FALSE(same(rotated(PairLayout::half_split, -7), half_split)) << "the sign of the angle";
  EXPECT_TRUE(same(rotated(PairLayout::half_split, -7, gnomon::Direction::transposed), half_split));
  EXPECT_TRUE(same(rotated(PairLayout::half_split, 4), {1.61676386506, 1.83844287658, -2.71773335790, 4.07677909502}));
}

TEST(T24, PartialWidthSpreadsOverTheRotatedChannels) {  // pie/pull/603
  RotarySpec spec = spec_of(rotary::Default{}, 10000, 128);
  spec.rotary_dim = 64;
  const auto ours = gnomon::frequencies(spec).inv_freq;
  ASSERT_EQ(ours.size(), 32U);
  expect(ours[1], 0.74989420933245583, 16, 0.86596432336006535);
  expect(ours[16], 0.01, 16, 0.1);
  expect(ours[31], 0.00013335214321633240, 16, 0.0115478198468946);
  Strided<float> x({1, 1, 1, 128}, Order::bhtd);
  for (int d = 0; d < 128; d++) x.at(0, 0, 0, d) = static_cast<float>(d + 1);
  gnomon::rotate(x.view(), gnomon::frequencies(spec), gnomon::Range{3, 4});
  for (int d = 64; d < 128; d++) EXPECT_EQ(x.at(0, 0, 0, d), static_cast<float>(d + 1));
  EXPECT_NEAR(x.at(0, 0, 0, 0), std::cos(3.0) - 33 * std::sin(3.0), 1e-5) << "pairs are (i, i + 32)";
}

TEST(T24,
     OddWidthsAreRefusedAndWholeProductsKept) {  // transformers/issues/35233, onnxruntime-qnn/pull/659 (files: tests/model/hf_test.cpp)
  const auto partial = [](int head_dim, int rotary_dim) {
    auto spec = spec_of(rotary::Default{}, 10000, head_dim);
    spec.rotary_dim = rotary_dim;
    return spec;
  };
  for (const auto& [head_dim, rotary_dim] : {std::pair(4, 3), std::pair(65, 65), std::pair(8, 5)}) {
    const auto spec = partial(head_dim, rotary_dim);
    EXPECT_EQ(refusal_fault([&] { gnomon::frequencies(spec); }, gnomon::ErrorCode::invalid_argument,
                            {"rotary_dim", "even", std::to_string(rotary_dim).c_str()}),
              "");
  }
  for (const auto& [head_dim, rotary_dim] : {std::pair(80, 32), std::pair(96, 72), std::pair(256, 64)}) {
    const auto ours = gnomon::frequencies(partial(head_dim, rotary_dim)).inv_freq;
    ASSERT_EQ(ours.size(), static_cast<std::size_t>(rotary_dim / 2));
    const auto exponent = [](double channels) { return std::pow(10000, -2 / channels); };
    expect(ours[1], exponent(rotary_dim), 14, exponent(head_dim));
  }
  // The fraction of p-RoPE: 200 × 0.29 is 58 by right and 57 in doubles, so 29 pairs turn and not 28.
  for (const auto& [fraction, pairs, seen] : {std::tuple(0.29, 29, 28), std::tuple(0.57, 57, 56)}) {
    const auto ours = gnomon::frequencies(spec_of(rotary::Proportional{.partial_rotary_factor = fraction}, 10000, 200)).inv_freq;
    EXPECT_EQ(std::count_if(ours.begin(), ours.end(), [](double value) { return value > 0; }), pairs);
    EXPECT_EQ(static_cast<int>(200 * fraction) / 2, seen) << "the plain truncation, which the count tells apart";
  }
}

TEST(T25, ProportionalIsNotPartialRotation) {  // Megatron-Bridge/issues/4195, coreai-models/issues/66, nexusquant/pull/12
  const auto spec = spec_of(rotary::Proportional{.partial_rotary_factor = 0.25}, 1e6, 512);
  auto partial = spec_of(rotary::Default{}, 1e6, 512);
  partial.rotary_dim = 128;
  const auto ours = gnomon::frequencies(spec).inv_freq, seen = gnomon::frequencies(partial).inv_freq;
  ASSERT_EQ(ours.size(), 256U);
  expect(ours[1], 0.94746352565537540, 16, seen[1]);
  expect(ours[32], 0.17782794100389228, 16, seen[32]);
  expect(ours[63], 0.033376246942920385, 16, seen[63]);
  EXPECT_TRUE(right(seen[1], 0.80584218776148182, 16));
  EXPECT_TRUE(right(seen[63], 1.2409377607517196e-6, 16));
  for (std::size_t i = 64; i < 256; i++) EXPECT_EQ(ours[i], 0) << i;
  // Pairs are (i, i + 256): channel 0 turns with 256, and 64 with nothing.
  const auto partner = [](const RotarySpec& of) {
    Strided<float> x({1, 1, 1, 512}, Order::bhtd);
    x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = d == 0 ? 1.0F : 0.0F; });
    gnomon::rotate(x.view(), gnomon::frequencies(of), gnomon::Range{1, 2});
    for (int d = 1; d < 512; d++) {
      if (x.at(0, 0, 0, d) != 0) return d;
    }
    return 0;
  };
  EXPECT_EQ(partner(spec), 256);
  EXPECT_EQ(partner(partial), 64) << "seen: pairs (i, i + 64)";
  Strided<float> x({1, 1, 1, 512}, Order::bhtd);
  x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = static_cast<float>(d + 1); });
  gnomon::rotate(x.view(), gnomon::frequencies(spec), gnomon::Range{12345, 12346});
  for (const int first : {64, 320}) {
    for (int d = first; d < first + 192; d++) EXPECT_EQ(x.at(0, 0, 0, d), static_cast<float>(d + 1)) << "channel " << d << " stands still";
  }
}

RotarySpec qwen3_vl() {
  auto spec = spec_of(rotary::Default{}, 5e6, 128);
  spec.sections = {24, 20, 20};
  spec.section_order = gnomon::SectionOrder::interleaved;
  return spec;
}

TEST(T28, AxisOfEachPairWhereAxesTakeTurns) {  // imp/pull/1173, llama.cpp/issues/22439, mlx-vlm/pull/576, Qwen3-VL/issues/1800
  constexpr std::uint8_t T = 0, H = 1, W = 2;
  const auto spec = qwen3_vl();
  const auto ours = gnomon::frequencies(spec).axis;
  ASSERT_EQ(ours.size(), 64U);
  EXPECT_EQ(std::vector<std::uint8_t>(ours.begin() + 57, ours.end()), (std::vector<std::uint8_t>{T, H, W, T, T, T, T}));
  for (std::size_t i = 0; i < 60; i++) EXPECT_EQ(ours[i], i % 3) << i;
  for (const auto& [axis, pairs] : {std::pair(T, 24), std::pair(H, 20), std::pair(W, 20)})
    EXPECT_EQ(std::count(ours.begin(), ours.end(), axis), pairs);

  auto chunked = spec;
  chunked.section_order = gnomon::SectionOrder::chunked;
  const auto runs = gnomon::frequencies(chunked).axis;
  for (std::size_t i = 0; i < 64; i++) EXPECT_EQ(runs[i], i < 24 ? T : i < 44 ? H : W) << i;
  EXPECT_NE(runs, ours) << "seen: the order of another family";
  EXPECT_EQ(gnomon::frequencies(chunked).inv_freq, gnomon::frequencies(spec).inv_freq) << "frequencies run on through all pairs";

  // Seen: the leftover pairs 61 and 62 take a fourth id, 0 for text, and fall behind by 0.0135 and 0.0106 radians at 32768.
  const std::vector<std::int64_t> text{32768, 32768, 32768};
  const auto table = gnomon::rotary_table(gnomon::frequencies(spec), gnomon::Ids{text}, DType::f64);
  ASSERT_EQ(table.positions, 1U);
  for (const auto& [pair, radians] : {std::pair(61, 0.0135), std::pair(62, 0.0106)}) {
    const double ours_there =
        std::atan2(table_sin(table, 0, static_cast<std::size_t>(pair)), table_cos(table, 0, static_cast<std::size_t>(pair)));
    expect(ours_there, radians, 3, 0);
  }
}

TEST(T28, TheOrderOfAxesIsNotTheLayoutOfPairs) {
  // `mrope_interleaved` speaks of axes: channel 1 turns with 65, not with channel 0, and by the position on axis H.
  const auto frequencies = gnomon::frequencies(qwen3_vl());
  Strided<float> x({1, 1, 1, 128}, Order::bhtd);
  x.each([&](auto b, auto h, auto t, auto d) { x.at(b, h, t, d) = d == 1 ? 1.0F : 0.0F; });
  const std::vector<std::int64_t> ids{7, 3, 5};
  gnomon::rotate(x.view(), frequencies, gnomon::Ids{ids});
  EXPECT_NEAR(x.at(0, 0, 0, 1), std::cos(3 * frequencies.inv_freq[1]), 1.2e-7);
  EXPECT_NEAR(x.at(0, 0, 0, 65), std::sin(3 * frequencies.inv_freq[1]), 1.2e-7);
  EXPECT_EQ(x.at(0, 0, 0, 0), 0);
  EXPECT_GT(std::abs(x.at(0, 0, 0, 65) - std::sin(7 * frequencies.inv_freq[1])), 0.1) << "the position on another axis";
}

}  // namespace
