// SPDX-License-Identifier: Apache-2.0
// What cannot be read at all is an Error that says why.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "gnomon/error.hpp"
#include "model/support.hpp"

namespace gnomon::test {
namespace {

struct Refusal {
  std::optional<ErrorCode> code;
  std::string message;
};

Refusal refusal(const fs::path& path) {
  try {
    read_model(path);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

void expect_refused(const fs::path& path, ErrorCode code, const std::string& reason) {
  const auto got = refusal(path);
  EXPECT_EQ(got.code, code) << got.message;
  EXPECT_NE(got.message.find(reason), std::string::npos) << got.message;
  EXPECT_NE(got.message.find(path.filename().string()), std::string::npos) << "the message names the path: " << got.message;
}

TEST(BadInput, PathsThatCannotBeRead) {
  const Folder folder;
  expect_refused(folder.path() / "missing.json", ErrorCode::io, "No such file");
  expect_refused(folder.path() / "no" / "folder.json", ErrorCode::io, "No such file");
  expect_refused(folder.path(), ErrorCode::io, "without config.json");
  fs::create_directories(folder.path() / "odd" / "config.json");
  expect_refused(folder.path() / "odd", ErrorCode::io, "folder");
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  expect_refused(folder.path() / "pipe", ErrorCode::io, "not a regular file");
  expect_refused("/dev/zero", ErrorCode::io, "not a regular file");
}

TEST(BadInput, AFolderIsReadByItsConfig) {
  const Folder folder;
  folder.write("config.json", config("llama", {{"rope_theta", 1e4}}).dump());
  EXPECT_EQ(read_model(folder.path()).type, "llama");
  EXPECT_EQ(read_model(folder.path()).path, folder.path().string());
}

TEST(BadInput, ContentThatIsNoModel) {
  const Folder folder;
  const auto refused = [&](std::string_view content, const std::string& reason) {
    expect_refused(folder.write("config.json", content), ErrorCode::malformed, reason);
  };
  refused("", "empty");
  refused(" \n\t ", "neither a GGUF file nor JSON");
  refused("hello", "neither a GGUF file nor JSON");
  refused(std::string_view("\0\0\0\0\0\0\0\0", 8), "neither a GGUF file nor JSON");
  refused("PK\x03\x04", "neither a GGUF file nor JSON");
  refused("{", "not valid JSON");
  refused(R"({"model_type": "llama", "rope_theta": 1, "rope_theta": 2})", "duplicate key \"rope_theta\"");
  refused(R"({"model_type": "llama", "rope_scaling": {"factor": 1, "factor": 2}})", "duplicate key \"rope_scaling.factor\"");
  refused("[1, 2]", "expected a JSON object, got array");
  refused("\"llama\"", "expected a JSON object, got string");
  refused("12", "expected a JSON object, got number");
  refused("null", "expected a JSON object, got null");
  refused("NaN", "expected a JSON object, got string");
  refused("{}", "not the config.json");
  refused(R"({"tokenizer_class": "T"})", "not the config.json");
  refused("{\"model_type\": \"\xff\xfe\"}", "UTF-8");
  refused(std::string(1000, '['), "nested deeper");
  refused("{\"model_type\": 1e999}", "not valid JSON");
}

TEST(BadInput, AHugeFileIsNotParsed) {
  const Folder folder;
  const auto path = folder.write("config.json", "{");
  fs::resize_file(path, (std::uintmax_t{64} << 20) + 1);
  expect_refused(path, ErrorCode::malformed, "too large");
}

// Python writes NaN and Infinity. In keys that have nothing to do with position they are harmless; where a number is needed they are no
// number.
TEST(BadInput, PythonConstants) {
  const Model harmless =
      read_text(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 1, "rope_theta": 1e4,
                                      "time_step_limit": [0.0, Infinity], "a\"NaN": "-Infinity NaN"})");
  EXPECT_EQ(codes(harmless), "");
  for (const std::string constant : {"NaN", "Infinity", "-Infinity"}) {
    const Model model = read_text(
        R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 1, "rope_theta": )" + constant + "}");
    ASSERT_NE(find_doubt(model, "value-kind"), nullptr) << codes(model);
    EXPECT_NE(find_doubt(model, "value-kind")->message.find(constant), std::string::npos);
    EXPECT_EQ(model.worst(), Level::error);
  }
}

TEST(BadInput, EveryPrefixOfAConfigIsRefused) {
  const std::string text =
      config("gemma3_text", {{"rope_theta", 1e6}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}}).dump();
  for (std::size_t size = 0; size < text.size(); size++)
    EXPECT_THROW(read_in_memory(std::string_view(text).substr(0, size)), Error) << size;
  EXPECT_NO_THROW(read_in_memory(text));
}

TEST(BadInput, JsonOfOtherKindsUnderEveryKey) {
  const std::vector<json> kinds = {nullptr,
                                   true,
                                   -1,
                                   0,
                                   1,
                                   3,
                                   1e300,
                                   -1e300,
                                   0.5,
                                   "",
                                   "text",
                                   json::array(),
                                   json::array({1, 2}),
                                   json::object(),
                                   json{{"rope_type", "yarn"}},
                                   json{{"full_attention", 3}},
                                   json{{"full_attention", json::object()}},
                                   std::uint64_t{18446744073709551615U},
                                   std::int64_t{-9223372036854775807}};
  for (const auto* type : {"llama", "mistral", "qwen3", "gemma3_text", "gpt_neox", "gptj", "phi", "unheard_of"}) {
    for (const auto* key : {"model_type",
                            "hidden_size",
                            "num_hidden_layers",
                            "num_attention_heads",
                            "num_key_value_heads",
                            "head_dim",
                            "max_position_embeddings",
                            "rope_theta",
                            "rope_scaling",
                            "rope_parameters",
                            "layer_types",
                            "sliding_window",
                            "sliding_window_pattern",
                            "use_sliding_window",
                            "max_window_layers",
                            "rotary_dim",
                            "partial_rotary_factor",
                            "query_pre_attn_scalar",
                            "attn_logit_softcapping",
                            "original_max_position_embeddings",
                            "rope_local_base_freq",
                            "rope_condense_ratio",
                            "text_config",
                            "vision_config",
                            "architectures",
                            "model_max_length",
                            "use_bidirectional_attention",
                            "rope_interleaved"}) {
      for (const auto& kind : kinds) {
        json keys = config(type, {{"rope_theta", 1e4}});
        keys[key] = kind;
        EXPECT_NO_THROW(to_json(read_in_memory(keys.dump()))) << type << " " << key << " " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace gnomon::test
