// SPDX-License-Identifier: Apache-2.0
// Folders with several files of one model, and the shapes of its tensors.
#include <gtest/gtest.h>

#include <span>

#include "gnomon/gnomon.hpp"
#include "model/gguf_writer.hpp"
#include "model/safetensors.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
};

std::string safetensors(const std::string& header, std::size_t data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string(data, '\0');
}

std::string safetensors(const std::vector<Tensor>& tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t end = 0;
  for (const auto& tensor : tensors) {
    std::uint64_t size = 2;
    for (const auto axis : tensor.shape) size *= axis;
    header[tensor.name] = {{"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {end, end + size}}};
    end += size;
  }
  return safetensors(header.dump(), end);
}

json small_llama(const json& keys = json::object()) {
  json result = config("llama", {{"hidden_size", 512}, {"num_attention_heads", 8}, {"num_key_value_heads", 2}, {"rope_theta", 5e5}});
  result.update(keys);
  return result;
}

GgufWriter small_gguf(float theta) { return small_model("llama").f32("llama.rope.freq_base", theta); }

TEST(Folder, FilesThatAgreeAreSilent) {
  const Folder folder;
  folder.write("config.json", small_llama().dump());
  folder.write("tokenizer_config.json", R"({"model_max_length": 17})");
  folder.write("model.gguf", small_gguf(5e5F).file());
  folder.write("model.safetensors", safetensors({{"model.layers.0.self_attn.q_proj.weight", {512, 512}},
                                                 {"model.layers.0.self_attn.k_proj.weight", {128, 512}}}));
  const Model model = read_model(folder.path());
  EXPECT_EQ(codes(model), "");
  EXPECT_EQ(model.format, "hf");
  EXPECT_EQ(rotary_of(model).layout, PairLayout::half_split);  // the GGUF holds permuted rows, which is no contradiction
}

TEST(Folder, ContradictionsOfConfigAndGguf) {
  const Folder folder;
  folder.write("config.json", small_llama().dump());
  folder.write("model.gguf", small_gguf(1e4F).file());
  const Model model = read_model(folder.path());
  EXPECT_EQ(codes(model), "files-conflict");
  EXPECT_NE(model.doubts[0].message.find("rotary.theta 500000.0 against 10000.0"), std::string::npos) << model.doubts[0].message;
  ASSERT_TRUE(model.doubts[0].cost());
  EXPECT_LT(model.doubts[0].cost()->position.value(), 100);
  EXPECT_EQ(rotary_of(model).theta, 5e5);
}

TEST(Folder, NamesDoNotMatter) {
  const Folder folder;
  folder.write("weights.bin", small_gguf(1e4F).file());
  folder.write("settings", R"({"dim": 512, "n_layers": 12, "n_heads": 8, "n_kv_heads": 2, "rope_theta": 10000, "max_seq_len": 4096})");
  const Model model = read_model(folder.path());
  EXPECT_EQ(model.format, "meta");
  EXPECT_EQ(codes(model), "");
}

TEST(Folder, ShapesOfTensorsAreCompared) {
  const auto doubt = [](const json& keys, const std::vector<Tensor>& tensors) {
    const Folder folder;
    folder.write("config.json", keys.dump());
    folder.write("model.safetensors", safetensors(tensors));
    return codes(read_model(folder.path()));
  };
  const std::string q = "model.layers.0.self_attn.q_proj.weight", k = "model.layers.0.self_attn.k_proj.weight";
  EXPECT_EQ(doubt(small_llama(), {{q, {1024, 512}}, {k, {256, 512}}}), "tensor-conflict");  // head_dim is 128, not 64
  EXPECT_EQ(doubt(small_llama(), {{q, {1024, 512}}, {k, {128, 512}}}), "");                 // a gate beside the query
  EXPECT_EQ(doubt(small_llama(), {{"model.layers.0.self_attn.rotary_emb.inv_freq", {16}}}), "tensor-conflict");
  EXPECT_EQ(doubt(small_llama(), {{"model.layers.0.self_attn.rotary_emb.inv_freq", {32}}}), "");
  EXPECT_EQ(doubt(small_llama(), {{"model.layers.3.self_attn.sinks", {8}}}), "tensor-conflict");
}

TEST(Folder, BrokenNeighboursAreWarnings) {
  const Folder folder;
  folder.write("config.json", small_llama().dump());
  folder.write("model.safetensors", safetensors(R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})", 8));
  folder.write("params.json", R"({"n_layers": 2, "n_layers": 3})");
  folder.write("notes.txt", "\"model_type\" is a key");
  folder.write("merges.txt", "{ no json");
  const Model model = read_model(folder.path());
  EXPECT_EQ(codes(model), "file-unreadable file-unreadable");
}

TEST(Folder, TheOnlyModelMustBeReadable) {
  const Folder folder;
  folder.write("config.json", R"({"model_type": "llama", "model_type": "llama"})");
  try {
    read_model(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::malformed);
    EXPECT_NE(std::string(error.what()).find("duplicate key"), std::string::npos);
  }
}

TEST(Folder, LinksInCirclesAreNoFiles) {
  const Folder folder;
  fs::create_symlink("b", folder.path() / "a");
  fs::create_symlink("a", folder.path() / "b");
  fs::create_directory_symlink(folder.path(), folder.path() / "self");
  EXPECT_THROW(read_model(folder.path()), Error);
  EXPECT_THROW(read_model(folder.path() / "a"), Error);
  folder.write("config.json", small_llama().dump());
  EXPECT_EQ(codes(read_model(folder.path())), "");
}

TEST(Folder, PiecesAndVisionPartsOfAGgufAreLeftOut) {
  const Folder folder;
  folder.write("model-00001.gguf", small_gguf(5e5F).file());
  folder.write("model-00002.gguf", GgufWriter().u32("split.no", 1).file());
  folder.write("mmproj.gguf", GgufWriter().text("general.architecture", "clip").file());
  EXPECT_EQ(codes(read_model(folder.path())), "");
}

// ── headers of safetensors ──

TEST(Safetensors, BadHeadersAreRefused) {
  const auto refusal = [](const std::string& content) {
    try {
      files::parse_safetensors_header(std::as_bytes(std::span(content)), "m.safetensors");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::malformed);
      return std::string(error.what());
    }
    return std::string();
  };
  const auto entry = [](const char* rest) { return R"({"a": {"dtype": "F32", )" + std::string(rest) + "}}"; };
  EXPECT_EQ(refusal(safetensors(entry(R"("shape": [2, 2], "data_offsets": [0, 16])"), 16)), "");
  EXPECT_NE(refusal(safetensors(entry(R"("shape": [2, 2], "data_offsets": [0, 16])"), 15)).find("outside"), std::string::npos);
  EXPECT_NE(refusal(safetensors(entry(R"("shape": [2, 3], "data_offsets": [0, 16])"), 16)).find("needs 24 bytes"), std::string::npos);
  EXPECT_NE(refusal(safetensors(entry(R"("shape": [4611686018427387904, 8], "data_offsets": [0, 16])"), 16)).find("too large"),
            std::string::npos);
  EXPECT_NE(refusal(safetensors(entry(R"("shape": [-1], "data_offsets": [0, 4])"), 4)).find("whole numbers"), std::string::npos);
  EXPECT_NE(refusal(safetensors(entry(R"("shape": [1], "data_offsets": [4, 0])"), 4)).find("outside"), std::string::npos);
  EXPECT_NE(refusal(safetensors(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
                                    "b": {"dtype": "U8", "shape": [4], "data_offsets": [3, 7]}})",
                                7))
                .find("overlap"),
            std::string::npos);
  EXPECT_NE(refusal(safetensors(R"({"a": 1, "a": 2})", 0)).find("duplicate key"), std::string::npos);
  EXPECT_NE(refusal(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)).find("header of"), std::string::npos);
  EXPECT_NE(refusal("short").find("header of"), std::string::npos);
  const std::string whole = safetensors(entry(R"("shape": [2, 2], "data_offsets": [0, 16])"), 16);
  for (std::size_t size = 0; size < whole.size(); size++) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
}

TEST(Safetensors, AloneItIsNoModel) {
  EXPECT_THROW(read_text(safetensors(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})", 4), "m.safetensors"), Error);
}

TEST(Gguf, ShapesOfTensorsAreCompared) {
  auto writer = small_gguf(1e4F);
  writer.tensor_header("blk.0.attn_q.weight", {512, 1024}, 0, 0).tensor_header("blk.0.attn_k.weight", {512, 256}, 0, 0);
  EXPECT_EQ(codes(read_text(writer.file(), "m.gguf")), "tensor-conflict");
}

}  // namespace
}  // namespace gnomon::test
