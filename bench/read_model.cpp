// SPDX-License-Identifier: Apache-2.0
// What reading a model costs: each config as a multiple of parsing its JSON with the same library and no more, and a GGUF file whose
// metadata stay the same while its tensors grow. A model that cannot be read gets no time.
//   bench_read_model [FOLDER]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gnomon/gnomon.hpp"
#include "model/gguf_writer.hpp"

namespace {

namespace fs = std::filesystem;

constexpr double goal = 5;
constexpr int turns = 9;

/// The best of several turns, in microseconds a call.
template <class Body>
double time_of(int calls, Body&& body) {
  double best = 1e300;
  for (int turn = 0; turn < turns; turn++) {
    const auto begin = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; call++) body();
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    best = std::min(best, spent.count() / calls);
  }
  return best;
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Row {
  std::string name;
  double parse, read;
};

/// Both read the file from disk.
Row measure(const fs::path& path) {
  const double parse = time_of(20, [&] {
    const auto root = nlohmann::json::parse(content_of(path));
    if (root.empty()) std::abort();
  });
  const double read = time_of(20, [&] {
    if (gnomon::read_model(path).layers < 0) std::abort();
  });
  return {path.filename().string(), parse, read};
}

void measure_configs(const fs::path& folder) {
  std::vector<Row> rows;
  for (const auto& entry : fs::directory_iterator(folder)) rows.push_back(measure(entry.path()));
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.read / a.parse > b.read / b.parse; });
  double parse = 0, read = 0;
  for (const auto& row : rows) parse += row.parse, read += row.read;
  fmt::print("{} configs: {:.1f} ms to read, {:.1f} ms to parse alone: {:.1f} times (goal: at most {}); the worst file {:.1f} times, {}\n",
             rows.size(), read / 1000, parse / 1000, read / parse, goal, rows.front().read / rows.front().parse, rows.front().name);
  for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), 8); i++)
    fmt::print("  {:5.1f} times  {:8.1f} us  {}\n", rows[i].read / rows[i].parse, rows[i].read, rows[i].name);
}

void measure_gguf() {
  const fs::path path = fs::temp_directory_path() / "gnomon-bench.gguf";
  const std::vector<std::string> tokens(32000, "a token");
  auto writer = gnomon::test::small_model("llama").f32("llama.rope.freq_base", 500000).texts("tokenizer.ggml.tokens", tokens);
  const std::string bytes = writer.tensor_header("token_embd.weight", {512, 32000}, 0, 0).file();
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  for (const std::uintmax_t size : {std::uintmax_t{1} << 20, std::uintmax_t{1} << 30, std::uintmax_t{1} << 36}) {
    fs::resize_file(path, std::max<std::uintmax_t>(size, bytes.size()));  // a hole takes no space
    const double read = time_of(5, [&] {
      if (gnomon::read_model(path).layers != 12) std::abort();
    });
    fmt::print("GGUF of {:6.2f} GiB with 32000 tokens in its metadata: {:8.1f} us\n", static_cast<double>(size) / (1 << 30), read);
  }
  fs::remove(path);
}

}  // namespace

int main(int count, char** arguments) {
  measure_configs(count > 1 ? arguments[1] : GNOMON_BENCH_CONFIGS);
  measure_gguf();
}
