// SPDX-License-Identifier: Apache-2.0
// Any bytes as values and as a golden file; what both readers take is verified.
#include <cstring>
#include <nlohmann/json.hpp>

#include "check_model.hpp"
#include "fuzz.hpp"
#include "gnomon/golden.hpp"
#include "golden/sha256.hpp"

namespace {

using namespace gnomon;
using fuzz::demand;

/// A golden file of 4 pairs, which short inputs may agree with.
const Golden& small_golden() {
  static const Golden golden = [] {
    const RotarySpec spec{
        .rule = rotary::Yarn{.factor = 4, .original_max_position_embeddings = 128}, .theta = 10000, .head_dim = 8, .rotary_dim = 8};
    const std::vector<std::int64_t> positions{0, 1, 5, 300};
    return make_golden(spec, positions);
  }();
  return golden;
}

/// The hash of the text as it is: a reader that only checks it would not be fuzzed at all.
std::string with_its_hash(std::string text) {
  constexpr std::string_view key = ",\n \"sha256\": \"";
  const auto place = text.rfind(key);
  if (place == std::string::npos) return text;
  return text.substr(0, place).append(key) + sha256(text.substr(0, place)) + "\"}\n";
}

template <class Read>
auto taken(std::string_view bytes, Read&& read) -> std::optional<decltype(read(bytes))> {
  try {
    return read(bytes);
  } catch (const Error& error) {
    demand(error.code() == ErrorCode::malformed || error.code() == ErrorCode::invalid_argument, "a refusal names its reason");
    return std::nullopt;
  }
}

void check(const Values& values, const Golden& golden) {
  for (const auto numerics : {Numerics::exact, Numerics::hf}) {
    try {
      const auto found = verify(values, golden, numerics);
      demand(found.agrees ? found.explanations.empty() : true, "what agrees needs no explanation");
      demand(nlohmann::json::accept(to_json(found)), "the answer is JSON");
    } catch (const Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto values = taken(bytes, values_from)) check(*values, small_golden());
  if (const auto golden = taken(with_its_hash(std::string(bytes)), golden_from_json); golden && golden->spec.rotary_dim <= 64) {
    demand(golden_from_json(to_json(*golden)) == *golden, "what was written reads back");
    Values values;
    values.inv_freq = golden->exact.inv_freq;
    values.cos = golden->exact.cos, values.sin = golden->exact.sin;
    values.rows = golden->positions.size(), values.width = golden->exact.inv_freq.size();
    check(values, *golden);
  }
  return 0;
}

/// A header before zeros.
std::string safetensors(const std::string& header, std::size_t data) {
  std::string file(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(file.data(), &size, sizeof size);
  return file + header + std::string(data, '\0');
}

std::vector<std::string> fuzz_seeds() {
  const Golden& golden = small_golden();
  std::string csv = "position,pair,cos,sin,attention_factor\n";
  for (const char* row : {"0,0,1.0,0.0,1.0\n", "0,1,1.0,0.0,1.0\n", "0,2,1.0,0.0,1.0\n", "0,3,1.0,0.0,1.0\n"}) csv += row;
  std::string npy("\x93NUMPY\x01\x00\x76\x00", 10);
  npy += "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 4, 4), }";
  npy += std::string(127 - npy.size(), ' ') + "\n" + std::string(64, '\x38');
  return {
      to_json(golden),
      csv,
      npy,
      safetensors(R"({"a.inv_freq":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 16),
      safetensors(
          R"({"cos":{"dtype":"F16","shape":[1,4,4],"data_offsets":[0,32]},"sin":{"dtype":"BF16","shape":[4,4],"data_offsets":[32,64]}})",
          64),
      safetensors(R"({"cos_sin_cache":{"dtype":"F64","shape":[2,8],"data_offsets":[0,128]}})", 128),
      safetensors(
          R"({"rotated":{"dtype":"F32","shape":[1,8],"data_offsets":[0,32]},"input":{"dtype":"F32","shape":[8],"data_offsets":[32,64]},)"
          R"("positions":{"dtype":"I64","shape":[1],"data_offsets":[64,72]}})",
          72),
      "[1.0, 0.1, 0.01, 0.001]",
      "[[[1, 1, 1, 1]], [[0, 0, 0, 0]]]",
      R"({"positions": [1], "cos": [[0.54, 0.99, 1, 1]], "sin": [[0.84, 0.1, 0.01, 0.001]], "attention_factor": 1.1})",
      R"({"inv_freq": ["0x1p+0", "0x1.8p-4", 0.01, 0.001], "positions": [5], "input": [1,2,3,4,5,6,7,8], "rotated": [[1,2,3,4,5,6,7,8]]})"};
}

std::vector<std::string> fuzz_dictionary() {
  std::vector<std::string> pieces = json_pieces;
  pieces.insert(pieces.end(), {"\"0x1p+0\"", "\"0x1.fffffffffffffp+1023\"", "\"-0x1p-1074\"", "\"positions\": [0, 1],",
                               "\"inv_freq\": [1],", "'<u2'", "'<f8'", "\"I32\"", "\"cos_cached\"", "\"data_offsets\":[0,8]",
                               "(2, 1099511627776, 1099511627776)", "(2, 0, 4)", "\"length\": 1,", "8589934592", "\n 0,0,0,0,0\n"});
  return pieces;
}
