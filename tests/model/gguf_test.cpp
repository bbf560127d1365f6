// SPDX-License-Identifier: Apache-2.0
// GGUF headers written here: every architecture's meaning, and every kind of damage.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "gnomon/gnomon.hpp"
#include "model/gguf_writer.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

Model read(const GgufWriter& writer) { return read_text(writer.file(), "small.gguf"); }

std::string refusal(std::string_view bytes) {
  try {
    files::read_gguf(std::as_bytes(std::span(bytes)), "small.gguf", "small.gguf");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::malformed) << error.what();
    return error.what();
  }
  return "";
}

void expect_refused(std::string_view bytes, const std::string& where, const std::string& reason) {
  const std::string message = refusal(bytes);
  EXPECT_NE(message.find(where), std::string::npos) << message;
  EXPECT_NE(message.find(reason), std::string::npos) << message;
  EXPECT_NE(message.find("at byte"), std::string::npos) << message;
}

// ── meaning ──

TEST(Gguf, Llama) {
  for (const std::uint32_t version : {2U, 3U}) {
    const Model model = read(small_model("llama", version).f32("llama.rope.freq_base", 500000).u32("llama.rope.dimension_count", 64));
    EXPECT_EQ(codes(model), "");
    EXPECT_EQ(model.format, "gguf");
    EXPECT_EQ(model.type, "llama");
    EXPECT_EQ(model.layers, 12);
    EXPECT_EQ(model.heads, 8);
    EXPECT_EQ(model.kv_heads, 2);
    EXPECT_EQ(model.head_dim, 64);
    EXPECT_EQ(model.declared, 4096);
    const RotarySpec spec = rotary_of(model);
    EXPECT_EQ(spec, (RotarySpec{rotary::Default{}, 500000, 64, 64, 0, PairLayout::interleaved, {}}));
    EXPECT_EQ(model.groups[0].origins.at("rotary.theta").key, "llama.rope.freq_base");
    EXPECT_EQ(model.groups[0].origins.at("rotary.theta").file, "small.gguf");
    EXPECT_EQ(model.groups[0].spec.softmax_scale, 0.125);
  }
}

TEST(Gguf, LayoutFollowsTheArchitecture) {
  for (const auto* architecture : {"qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi2", "phi3", "gptneox"}) {
    const Model model = read(small_model(architecture)
                                 .f32(std::string(architecture) + ".rope.freq_base", 10000)
                                 .u32(std::string(architecture) + ".attention.sliding_window", 100));
    EXPECT_NE(model.worst(), Level::error) << architecture << " " << codes(model);
    EXPECT_EQ(rotary_of(model, 0).layout, PairLayout::half_split) << architecture;
  }
  EXPECT_EQ(codes(read(small_model("made_up").f32("made_up.rope.freq_base", 10000))), "layout-unknown");
}

TEST(Gguf, PartialWidth) {
  const Model model = read(small_model("phi2").f32("phi2.rope.freq_base", 10000).u32("phi2.rope.dimension_count", 32));
  EXPECT_EQ(rotary_of(model).rotary_dim, 32);
  EXPECT_EQ(rotary_of(model).head_dim, 64);
  EXPECT_EQ(codes(read(small_model("phi2").f32("phi2.rope.freq_base", 10000).u32("phi2.rope.dimension_count", 33))), "rotary-width-odd");
  EXPECT_EQ(codes(read(small_model("phi2").f32("phi2.rope.freq_base", 10000).u32("phi2.rope.dimension_count", 66))),
            "rotary-width-out-of-range");
}

TEST(Gguf, HeadDimIsTheKeyLength) {
  const Model model = read(small_model("qwen3").f32("qwen3.rope.freq_base", 1e6).u32("qwen3.attention.key_length", 128));
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(rotary_of(model).rotary_dim, 128);
}

TEST(Gguf, MissingBase) {
  EXPECT_EQ(codes(read(small_model("llama"))), "theta-missing-family-default");
  EXPECT_EQ(codes(read(small_model("qwen2"))), "theta-missing");
}

TEST(Gguf, LinearScaling) {
  const auto base = [] { return small_model("llama").f32("llama.rope.freq_base", 10000); };
  EXPECT_EQ(
      std::get<rotary::Linear>(rotary_of(read(base().text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4))).rule)
          .factor,
      4);
  EXPECT_EQ(std::get<rotary::Linear>(rotary_of(read(base().f32("llama.rope.scale_linear", 2))).rule).factor, 2);
  for (const auto& writer : {base().text("llama.rope.scaling.type", "none").f32("llama.rope.scaling.factor", 4),
                             base().f32("llama.rope.scaling.factor", 1), base().text("llama.rope.scaling.type", "linear")}) {
    EXPECT_TRUE(std::holds_alternative<rotary::Default>(rotary_of(read(writer)).rule));
  }
}

TEST(Gguf, Yarn) {
  auto writer =
      small_model("qwen2").f32("qwen2.rope.freq_base", 1e6).text("qwen2.rope.scaling.type", "yarn").f32("qwen2.rope.scaling.factor", 4);
  writer.u32("qwen2.rope.scaling.original_context_length", 1024)
      .boolean("qwen2.rope.scaling.finetuned", true)
      .f32("qwen2.rope.scaling.yarn_beta_fast", 16);
  const Model model = read(writer);
  EXPECT_EQ(codes(model), "");
  EXPECT_TRUE(model.unread.empty());
  const auto rule = std::get<rotary::Yarn>(rotary_of(model).rule);
  EXPECT_EQ(rule.factor, 4);
  EXPECT_EQ(rule.original_max_position_embeddings, 1024);
  EXPECT_EQ(rule.beta_fast, 16);
  EXPECT_EQ(model.derived, 4096);
  EXPECT_EQ(model.original, 1024);
  const Model scaled = read(writer.f32("qwen2.rope.scaling.attn_factor", 0.5));
  EXPECT_NEAR(effective_attention_factor(rotary_of(scaled)), 0.5 * 1.13862943611199, 1e-14);
}

TEST(Gguf, LongropeIsTwoTensorsAndAMagnitude) {
  const auto base = [] {
    return small_model("phi3").f32("phi3.rope.freq_base", 10000).u32("phi3.rope.scaling.original_context_length", 1024);
  };
  EXPECT_EQ(codes(read(base().text("phi3.rope.scaling.type", "longrope"))), "scaling-field-missing scaling-field-missing");
  auto writer = base();
  writer.tensor("rope_factors_long.weight", std::vector<float>(32, 2)).tensor("rope_factors_short.weight", std::vector<float>(32, 1));
  const Model model = read(writer);
  EXPECT_EQ(codes(model), "");
  const RotarySpec spec = rotary_of(model);
  EXPECT_EQ(frequencies(spec, Numerics::exact, 1024).inv_freq[0], 1);
  EXPECT_EQ(frequencies(spec, Numerics::exact, 1025).inv_freq[0], 0.5);
  EXPECT_EQ(effective_attention_factor(rotary_of(read(writer.f32("phi3.rope.scaling.attn_factor", 1.25)))), 1.25);
}

TEST(Gguf, SectionsAreAxesOfPositions) {
  const auto sections = [](const char* architecture) {
    const std::string key = std::string(architecture) + ".rope.dimension_sections";
    return rotary_of(read(small_model(architecture)
                              .f32((std::string(architecture) + ".rope.freq_base").c_str(), 10000)
                              .array(key.c_str(), 5, std::vector<std::int32_t>{8, 12, 12, 0})));
  };
  EXPECT_EQ(sections("qwen2vl").sections, (std::vector{8, 12, 12}));
  EXPECT_EQ(sections("qwen2vl").section_order, SectionOrder::chunked);
  EXPECT_EQ(sections("qwen3vl").section_order, SectionOrder::interleaved);
}

TEST(Gguf, UnknownScalingsAreErrors) {
  EXPECT_EQ(codes(read(small_model("phi3").f32("phi3.rope.freq_base", 10000).text("phi3.rope.scaling.type", "made_up"))),
            "scaling-unknown");
}

TEST(Gguf, Gemma3HasTwoBases) {
  auto writer = small_model("gemma3")
                    .f32("gemma3.rope.freq_base", 1e6)
                    .f32("gemma3.rope.scaling.factor", 8)
                    .text("gemma3.rope.scaling.type", "linear");
  const Model model = read(writer.u32("gemma3.attention.sliding_window", 1024).u32("gemma3.attention.key_length", 256));
  EXPECT_EQ(codes(model), "");
  ASSERT_EQ(model.groups.size(), 2U);
  EXPECT_EQ(model.groups[1].layers, (std::vector{5, 11}));
  EXPECT_EQ(rotary_of(model, 0), (RotarySpec{rotary::Default{}, 1e4, 256, 256, 0, PairLayout::half_split, {}}));
  EXPECT_EQ(rotary_of(model, 5), (RotarySpec{rotary::Linear{8}, 1e6, 256, 256, 0, PairLayout::half_split, {}}));
  EXPECT_EQ(model.groups[0].spec.mask.window, 1024);
  EXPECT_EQ(model.groups[1].spec.mask.window, std::nullopt);
}

TEST(Gguf, Gemma2AlternatesAndItsLargestModelHasAnotherScale) {
  const auto with_layers = [](std::uint32_t layers) {
    GgufWriter writer;
    writer.text("general.architecture", "gemma2")
        .u32("gemma2.block_count", layers)
        .u32("gemma2.embedding_length", 4608)
        .u32("gemma2.attention.head_count", 32);
    return read(writer.u32("gemma2.attention.key_length", 128)
                    .u32("gemma2.context_length", 8192)
                    .f32("gemma2.rope.freq_base", 10000)
                    .u32("gemma2.attention.sliding_window", 4096));
  };
  EXPECT_NEAR(with_layers(46).groups[0].spec.softmax_scale, 1.0 / 12, 1e-16);
  EXPECT_NEAR(with_layers(42).groups[0].spec.softmax_scale, 1 / std::sqrt(128.0), 1e-16);
  EXPECT_EQ(with_layers(46).groups[0].layers.size(), 23U);
  EXPECT_EQ(with_layers(46).groups[0].spec.mask.window, 4096);
  EXPECT_EQ(with_layers(46).groups[0].spec.softcap, 50);
}

// ── frequency divisors ──

std::vector<float> llama3_divisors(double theta, int pairs, double factor, double high) {
  std::vector<float> result;
  for (int i = 0; i < pairs; i++) {
    const double wavelength = 2 * 3.14159265358979323846 * std::pow(theta, static_cast<double>(i) / pairs);
    const double blend = (8192 / wavelength - 1) / (high - 1);
    result.push_back(static_cast<float>(blend >= 1 ? 1 : blend <= 0 ? factor : 1 / ((1 - blend) / factor + blend)));
  }
  return result;
}

GgufWriter llama_with_divisors(const std::vector<float>& divisors) {
  return small_model("llama").f32("llama.rope.freq_base", 500000).tensor("output.weight", {1, 2, 3}).tensor("rope_freqs.weight", divisors);
}

TEST(Gguf, Llama3IsRecognisedByItsDivisors) {
  const Model model = read(llama_with_divisors(llama3_divisors(500000, 32, 32, 4)));
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(rotary_of(model).rule, RotaryRule(rotary::Llama3{32, 1, 4, 8192}));
  EXPECT_EQ(model.groups[0].origins.at("rotary.factor").key, "rope_freqs.weight");
  EXPECT_EQ(model.groups[0].origins.at("rotary.factor").how, "derived");
  EXPECT_NEAR(frequencies(rotary_of(model)).inv_freq[16], 0.00042955679655936820, 1e-16);  // T06
  EXPECT_EQ(model.original, 8192);
}

TEST(Gguf, DivisorsOfOneAreNoScaling) {
  EXPECT_TRUE(std::holds_alternative<rotary::Default>(rotary_of(read(llama_with_divisors(std::vector<float>(32, 1)))).rule));
}

// Divisors of no rule are used as they are; what is no divisor of these pairs is refused.
TEST(Gguf, OtherDivisorsAreAWarningOrAnError) {
  auto bent = llama3_divisors(500000, 32, 32, 4);
  bent[16] *= 1.001F;
  for (const auto& divisors : {bent, llama3_divisors(500000, 32, 32, 5), llama3_divisors(10000, 32, 32, 4), std::vector<float>(32, 2),
                               std::vector<float>(32, 0.5F)}) {
    const Model model = read(llama_with_divisors(divisors));
    EXPECT_EQ(codes(model), "frequency-tensor");
    ASSERT_TRUE(std::holds_alternative<rotary::Custom>(rotary_of(model).rule));
    const auto inv = frequencies(rotary_of(model)).inv_freq;
    for (std::size_t i = 0; i < inv.size(); i++)
      EXPECT_NEAR(inv[i] * divisors[i], std::pow(500000, -static_cast<double>(i) / 32), 1e-15) << i;
  }
  for (const auto& divisors : {llama3_divisors(500000, 16, 32, 4), std::vector<float>(32, std::numeric_limits<float>::quiet_NaN()),
                               std::vector<float>(32, 0), std::vector<float>(32, -1)}) {
    EXPECT_EQ(codes(read(llama_with_divisors(divisors))), "value-invalid");
  }
}

TEST(Gguf, InfiniteDivisorsAreProportional) {
  std::vector<float> divisors(256, 1e30F);
  std::fill(divisors.begin(), divisors.begin() + 64, 1.0F);
  auto writer = small_model("gemma4").f32("gemma4.rope.freq_base", 1e6).f32("gemma4.rope.freq_base_swa", 1e4);
  writer.u32("gemma4.attention.key_length", 512).u32("gemma4.attention.key_length_swa", 256).u32("gemma4.attention.sliding_window", 512);
  writer.u32("gemma4.rope.dimension_count", 512).u32("gemma4.rope.dimension_count_swa", 256).tensor("rope_freqs.weight", divisors);
  const Model model = read(writer.array("gemma4.attention.sliding_window_pattern", 7, std::vector<std::uint8_t>(12, 1)));
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(rotary_of(model), (RotarySpec{rotary::Default{}, 1e4, 256, 256}));
  writer = small_model("gemma4").f32("gemma4.rope.freq_base", 1e6).u32("gemma4.attention.key_length", 512);
  const RotarySpec spec = rotary_of(read(writer.u32("gemma4.attention.sliding_window", 512).tensor("rope_freqs.weight", divisors)), 5);
  EXPECT_EQ(spec, (RotarySpec{rotary::Proportional{0.25, 1}, 1e6, 512, 512}));
}

TEST(Gguf, ADivisorTensorOutsideTheFileIsRefused) {
  const auto base = [] { return small_model("llama").f32("llama.rope.freq_base", 500000); };
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1} << 40, std::numeric_limits<std::uint64_t>::max(),
                                     std::numeric_limits<std::uint64_t>::max() - 40}) {
    EXPECT_NE(refusal(base().tensor_header("rope_freqs.weight", {32}, 0, offset).file()).find("rope_freqs.weight"), std::string::npos)
        << offset;
  }
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1} << 62, std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_NE(refusal(base().tensor_header("rope_freqs.weight", {size}, 0, 0).file()).find("rope_freqs.weight"), std::string::npos) << size;
  }
  EXPECT_NE(refusal(base().tensor_header("rope_freqs.weight", {32}, 1, 0).file() + std::string(1000, '\0')).find("f32"), std::string::npos);
}

// ── damage ──

GgufWriter rich_model() {
  auto writer = small_model("llama").f32("llama.rope.freq_base", 500000).u32("llama.rope.dimension_count", 64);
  writer.texts("tokenizer.ggml.tokens", {"a", "bc", ""})
      .array("tokenizer.ggml.scores", 6, std::vector<float>{0.5F, 1.5F})
      .boolean("b", true)
      .u64("u", 7)
      .f64("f", 1);
  return writer.tensor_header("token_embd.weight", {512, 3}, 0, 0).tensor_header("blk.0.attn_q.weight", {512, 512}, 8, 64);
}

TEST(GgufDamage, EveryPrefixIsRefusedWithKeyAndOffset) {
  const std::string whole = rich_model().header();
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t size = 4; size < whole.size(); size++) {
    const std::string message = refusal(std::string_view(whole).substr(0, size));
    ASSERT_NE(message.find("at byte "), std::string::npos) << size << ": " << message;
    ASSERT_NE(message.find("small.gguf: "), std::string::npos) << message;
  }
  for (std::size_t size = 0; size < 4; size++)
    EXPECT_THROW(read_text(std::string_view(whole).substr(0, size), "small.gguf"), Error) << size;
}

TEST(GgufDamage, TruncationNamesTheKey) {
  const std::string whole = rich_model().header();
  const auto cut = whole.find("llama.rope.freq_base") + std::string("llama.rope.freq_base").size() + 5;
  expect_refused(std::string_view(whole).substr(0, cut), "key llama.rope.freq_base at byte", "the file ends here");
  const auto tensor = whole.find("blk.0.attn_q.weight") + std::string("blk.0.attn_q.weight").size() + 3;
  expect_refused(std::string_view(whole).substr(0, tensor), "tensor blk.0.attn_q.weight at byte", "the file ends here");
}

TEST(GgufDamage, LengthsNearTheLargestInteger) {
  const auto little_endian = [](std::uint64_t value) { return std::string(reinterpret_cast<const char*>(&value), 8); };
  const std::string u32_type(reinterpret_cast<const char*>(std::array<std::uint32_t, 1>{4}.data()), 4);
  const std::string text_type(reinterpret_cast<const char*>(std::array<std::uint32_t, 1>{8}.data()), 4);
  const std::string array_type(reinterpret_cast<const char*>(std::array<std::uint32_t, 1>{9}.data()), 4);
  for (const std::uint64_t length :
       {std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint64_t>::max() - 7, std::uint64_t{1} << 63,
        std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 1, std::uint64_t{1} << 61, std::uint64_t{1} << 32}) {
    expect_refused(small_model("llama").bytes("long", 8, little_endian(length) + "text").file(), "key long", "bytes");
    for (const auto& type : {u32_type, text_type, array_type}) {
      expect_refused(small_model("llama").bytes("many", 9, type + little_endian(length) + "text").file(), "key many", "entries");
    }
    auto keys = small_model("llama"), tensors = small_model("llama"), name = small_model("llama");
    keys.key_count = length;
    tensors.tensor_count = length;
    expect_refused(keys.file(), "number of keys", "entries");
    expect_refused(tensors.file(), "number of tensors", "entries");
    name.key_count++;
    expect_refused(name.file() + little_endian(length) + "text", "key 8 of 8", "bytes");
  }
}

TEST(GgufDamage, OtherVersionsAndByteOrders) {
  expect_refused(small_model("llama", 1).file(), "version", "expected 2 or 3");
  expect_refused(small_model("llama", 4).file(), "version", "expected 2 or 3");
  expect_refused(small_model("llama", 0x03000000).file(), "version", "big-endian");
}

TEST(GgufDamage, ContradictionsAndUnknownTypes) {
  expect_refused(small_model("llama").u32("llama.block_count", 3).file(), "key llama.block_count", "twice");
  expect_refused(small_model("llama").bytes("odd", 13, "....").file(), "key odd", "unknown value type 13");
  expect_refused(small_model("llama").bytes("odd", 9, std::string("\x0d\0\0\0\0\0\0\0\0\0\0\0", 12)).file(), "key odd",
                 "unknown element type 13");
  expect_refused(small_model("llama").u32("general.alignment", 33).file(), "start of the data", "power of two");
  expect_refused(small_model("llama").tensor_header("wide", std::vector<std::uint64_t>(9, 1), 0, 0).file(), "tensor wide", "axes");
  std::string deep;
  for (int i = 0; i < 20; i++) deep += std::string("\x09\0\0\0\1\0\0\0\0\0\0\0", 12);
  expect_refused(small_model("llama").bytes("deep", 9, deep).file(), "key deep", "nested");
  EXPECT_NE(refusal(GgufWriter().u32("x", 1).file()).find("general.architecture"), std::string::npos);
  EXPECT_NE(refusal(GgufWriter().u32("general.architecture", 1).file()).find("general.architecture"), std::string::npos);
}

TEST(GgufDamage, NamesThatAreNotTextAreEscaped) {
  const std::string message = refusal(small_model("llama").bytes("\xff\n", 77, "").file());
  EXPECT_NE(message.find("\\xff\\x0a"), std::string::npos) << message;
}

TEST(GgufDamage, BadShapesAreErrorDoubts) {
  const auto worst = [](const GgufWriter& writer) {
    const Model model = read(writer);
    EXPECT_NO_THROW(to_json(model));
    EXPECT_THROW(rotary_of(model), Error) << codes(model);
    return model.worst();
  };
  const auto shape = [](std::uint32_t layers, std::uint32_t width, std::uint32_t heads) {
    GgufWriter writer;
    writer.text("general.architecture", "llama")
        .u32("llama.block_count", layers)
        .u32("llama.embedding_length", width)
        .u32("llama.attention.head_count", heads);
    return writer.f32("llama.rope.freq_base", 10000);
  };
  EXPECT_EQ(worst(shape(0, 512, 8)), Level::error);
  EXPECT_EQ(worst(shape(4000000000U, 512, 8)), Level::error);
  EXPECT_EQ(worst(shape(100000000U, 512, 8)), Level::error);
  EXPECT_EQ(worst(shape(2, 512, 0)), Level::error);
  EXPECT_EQ(worst(shape(2, 520, 8)), Level::error);  // head_dim 65
  EXPECT_EQ(worst(shape(2, 513, 8)), Level::error);  // not a whole head
  EXPECT_EQ(worst(shape(2, 2000000000U, 1)), Level::error);
  EXPECT_EQ(worst(shape(2, 512, 8).text("llama.context_length", "long").f32("llama.rope.scaling.factor", -2)), Level::error);
  EXPECT_EQ(worst(small_model("llama").f32("llama.rope.freq_base", 0)), Level::error);
  EXPECT_EQ(worst(small_model("llama").f32("llama.rope.freq_base", std::numeric_limits<float>::quiet_NaN())), Level::error);
  EXPECT_EQ(worst(small_model("llama").f32("llama.rope.freq_base", std::numeric_limits<float>::infinity())), Level::error);
  EXPECT_EQ(worst(small_model("llama").text("llama.rope.freq_base", "10000")), Level::error);
  EXPECT_EQ(worst(small_model("llama").u64("llama.attention.key_length", std::numeric_limits<std::uint64_t>::max())), Level::error);
}

TEST(Gguf, OneNumberPerLayer) {
  const auto with = [](const std::vector<std::int32_t>& kv_heads) {
    GgufWriter writer;
    writer.text("general.architecture", "lfm2")
        .u32("lfm2.block_count", 3)
        .u32("lfm2.embedding_length", 512)
        .u32("lfm2.attention.head_count", 8)
        .f32("lfm2.rope.freq_base", 10000);
    return read(writer.array("lfm2.attention.head_count_kv", 5, kv_heads));
  };
  EXPECT_EQ(with({2, 2, 2}).kv_heads, 2);
  EXPECT_EQ(codes(with({2, 2, 2})), "");
  EXPECT_EQ(with({0, 4, 0}).kv_heads, 4);
  EXPECT_EQ(with({0, 4, 0}).non_attention_layers, (std::vector{0, 2}));
  EXPECT_EQ(codes(with({2, 4, 2})), "heads-vary");
}

TEST(Gguf, WhichLayersSlideAndWhichRotate) {
  const auto layers = [](const char* architecture, std::uint32_t window) {
    const std::string name = architecture;
    const Model model = read(small_model(name).f32(name + ".rope.freq_base", 1e4).u32(name + ".attention.sliding_window", window));
    std::string text(static_cast<std::size_t>(model.layers), '-');
    for (const auto& group : model.groups) {
      for (const int layer : group.layers) {
        const auto& mask = group.spec.mask;
        const char letter = mask.window ? 's' : mask.chunk ? 'c' : 'f';
        text[static_cast<std::size_t>(layer)] = group.spec.rotary ? letter : static_cast<char>(letter - 'a' + 'A');
      }
    }
    return text;
  };
  EXPECT_EQ(layers("gemma2", 100), "sfsfsfsfsfsf");
  EXPECT_EQ(layers("gpt-oss", 100), "sfsfsfsfsfsf");
  EXPECT_EQ(layers("cohere2", 100), "sssFsssFsssF");
  EXPECT_EQ(layers("exaone4", 100), "sssFsssFsssF");
  EXPECT_EQ(layers("exaone4", 0), "ffffffffffff");
  EXPECT_EQ(layers("olmo2", 100), "sssfsssfsssf");
  EXPECT_EQ(layers("smallthinker", 100), "FsssFsssFsss");
  EXPECT_EQ(layers("modern-bert", 100), "fssfssfssfss");
  EXPECT_EQ(layers("llama4", 8192), "cccFcccFcccF");
  EXPECT_EQ(layers("llama4", 0), "ffffffffffff");
  EXPECT_EQ(layers("smollm3", 0), "fffFfffFfffF");
  EXPECT_EQ(layers("qwen3next", 0), "---f---f---f");
  EXPECT_EQ(layers("llama", 100), "ssssssssssss");  // llama.cpp lets them see everything, which is a note
  EXPECT_EQ(layers("jamba", 0), "FFFFFFFFFFFF");
  EXPECT_EQ(layers("mamba", 0), "------------");
}

TEST(Gguf, LatentAttentionRotatesTheLastChannels) {
  auto writer = small_model("deepseek2").f32("deepseek2.rope.freq_base", 10000).u32("deepseek2.rope.dimension_count", 64);
  writer.u32("deepseek2.attention.key_length", 576).u32("deepseek2.attention.key_length_mla", 192);
  writer.text("deepseek2.rope.scaling.type", "yarn").f32("deepseek2.rope.scaling.factor", 40);
  writer.u32("deepseek2.rope.scaling.original_context_length", 4096).f32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707F);
  const Model model = read(writer);
  const RotarySpec spec = rotary_of(model);
  EXPECT_EQ(spec.head_dim, 192);
  EXPECT_EQ(spec.rotary_offset, 128);
  EXPECT_EQ(spec.layout, PairLayout::interleaved);
  EXPECT_EQ(effective_attention_factor(spec), 1);
  EXPECT_NEAR(model.groups[0].spec.softmax_scale, 1.58963 / std::sqrt(192.0), 1e-6);  // DeepSeek V2; 1.873 would be V3's
}

TEST(Gguf, WithoutARotation) {
  const Model gpt2 = read(small_model("gpt2").tensor_header("position_embd.weight", {512, 1024}, 0, 0));
  ASSERT_EQ(gpt2.groups.size(), 1U);
  EXPECT_EQ(gpt2.groups[0].spec.absolute, (AbsoluteSpec{absolute::Learned{.rows = 1024}, 512}));
  EXPECT_EQ(gpt2.groups[0].spec.rotary, std::nullopt);
  const auto bias = [](const GgufWriter& writer) { return read(writer).groups.at(0).spec.bias; };
  EXPECT_EQ(bias(small_model("bloom")), BiasRule(bias::Alibi::of_heads(8)));
  EXPECT_EQ(bias(small_model("mpt").f32("mpt.attention.max_alibi_bias", 4)), BiasRule(bias::Alibi::of_heads(8, 4)));
  EXPECT_EQ(bias(small_model("mpt")), std::nullopt);
  EXPECT_EQ(bias(small_model("jina-bert-v2")), BiasRule(bias::Alibi::of_heads(8, 8, true)));
  EXPECT_EQ(bias(small_model("t5encoder").u32("t5encoder.attention.relative_buckets_count", 32)), BiasRule(bias::T5{32, 128, true}));
  const Model t5 = read(small_model("t5").u32("t5.attention.relative_buckets_count", 32).u32("t5.decoder_block_count", 6));
  ASSERT_EQ(t5.groups.size(), 2U);
  EXPECT_EQ(t5.layers, 6);
  EXPECT_EQ(t5.groups[0].part, "decoder");
  EXPECT_EQ(t5.groups[0].spec.bias, BiasRule(bias::T5{32, 128, false}));
  EXPECT_EQ(t5.groups[1].layers.size(), 12U);
  EXPECT_EQ(t5.groups[1].spec.mask.causal, false);
  EXPECT_EQ(t5.groups[1].spec.softmax_scale, 1);
}

TEST(Gguf, SinksAndQueryTemperature) {
  auto writer = small_model("gpt-oss").f32("gpt-oss.rope.freq_base", 150000).u32("gpt-oss.attention.sliding_window", 128);
  for (int i = 0; i < 12; i++) writer.tensor_header("blk." + std::to_string(i) + ".attn_sinks.weight", {8}, 0, 0);
  for (const auto& group : read(writer).groups) EXPECT_TRUE(group.spec.sink_logits);
  EXPECT_FALSE(read(small_model("qwen3").f32("qwen3.rope.freq_base", 1e6)).groups[0].spec.sink_logits);
  const Model ministral = read(small_model("mistral3")
                                   .f32("mistral3.rope.freq_base", 1e6)
                                   .f32("mistral3.attention.temperature_scale", 0.125)
                                   .u32("mistral3.rope.scaling.original_context_length", 16384));
  EXPECT_EQ(ministral.groups[0].spec.query_temperature, QueryTemperature(StepTemperature{0.125, 16384, 0}));
}

}  // namespace
}  // namespace gnomon::test
