// SPDX-License-Identifier: Apache-2.0
// gnomon bench: how fast this machine rotates, as a ratio to a plain read and write of the same memory in the same run; the other
// operations have files of their own. Only the ratio travels between machines. A wrong result gets no time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "bench.hpp"
#include "gnomon/rotate.hpp"
#include "kernels/plain.hpp"
#include "output.hpp"
#include "plan/round.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

constexpr std::int64_t query_heads = 32, key_heads = 8, head_dim = 128;

struct Options : BenchOptions {
  std::string what;
};

/// Sizes that end up in different places: the first-level cache, the second, memory. Positions far out cost the same.
struct Size {
  std::string_view name;
  std::int64_t tokens, first_position;
};
constexpr Size sizes[] = {{"decode_l1", 1, 1000}, {"chunk_l2", 24, 1000}, {"prefill", 4096, 10}, {"prefill_far", 4096, 1'000'000'000}};

struct Result {
  Size size;
  DType dtype;
  PairLayout layout;
  std::size_t threads;
  double ratio, gigabytes_per_second, speedup;
};

/// Queries and keys as a projection leaves them, heads inside tokens, one after the other in one buffer.
class Case {
 public:
  Case(const Size& size, DType dtype, PairLayout layout)
      : size_(size),
        dtype_(dtype),
        bytes_((query_heads + key_heads) * size.tokens * head_dim * static_cast<std::int64_t>(size_of(dtype))),
        memory_(static_cast<std::size_t>(bytes_) + prefetched) {
    fill_with_numbers(data(), bytes_, dtype_, 1);
    RotarySpec spec{rotary::Default{}, 500000, head_dim, head_dim};
    spec.layout = layout;
    frequencies_ = frequencies(spec);
    positions_ = {size.first_position, size.first_position + size.tokens};
  }

  std::int64_t bytes() const { return bytes_; }
  void rotate_all(Executor* executor) {
    const RotateOperand operands[] = {operand(0, query_heads), operand(query_heads, key_heads)};
    rotate(operands, frequencies_, positions_, {.executor = executor});
  }
  void touch(bool prefetch) { kernels::read_and_write(data(), bytes_ / 1024 * 1024, prefetch); }

  /// The first and the last tokens against the double reference; 16-bit types to their last place.
  bool is_right() {
    const std::int64_t checked = std::min<std::int64_t>(size_.tokens, 4);
    const auto copy = [&] { return std::vector(data(), data() + bytes_); };
    const auto before = copy();
    rotate_all(nullptr);
    const auto after = copy();
    bool right = true;
    for (const std::int64_t token : {std::int64_t{0}, size_.tokens - checked}) {
      std::copy(before.begin(), before.end(), data());
      for (const auto& [first, heads] : {std::pair(std::int64_t{0}, query_heads), std::pair(query_heads, key_heads)}) {
        auto some = operand(first, heads).out;
        some.shape[2] = checked;
        some.data = at(some, token);
        reference::rotate(some, some, frequencies_, Range{positions_.start + token, positions_.start + token + checked});
        right = right && agree(some, after);
      }
    }
    std::copy(before.begin(), before.end(), data());
    return right;
  }

 private:
  static constexpr std::size_t prefetched = 8192;  // the plain loop asks for what stands ahead of it, past the end too

  std::byte* data() const { return memory_.data(); }
  std::byte* at(const TensorView& view, std::int64_t token) const {
    return static_cast<std::byte*>(view.data) + token * view.strides[2] * static_cast<std::int64_t>(size_of(dtype_));
  }
  RotateOperand operand(std::int64_t first_head, std::int64_t heads) {
    const std::int64_t start = first_head * size_.tokens * head_dim, row = heads * head_dim;
    const TensorView view{data() + start * static_cast<std::int64_t>(size_of(dtype_)),
                          dtype_,
                          {1, heads, size_.tokens, head_dim},
                          {size_.tokens * row, head_dim, row, 1}};
    return {view, view};
  }
  double value(const std::byte* element) const {
    return visit_dtype(dtype_, [&]<class Element>(Element decoded) -> double {
      std::memcpy(&decoded, element, sizeof(Element));
      return widen(decoded);
    });
  }
  bool agree(const TensorView& expected, const std::vector<std::byte>& got) const {
    const double tolerance = dtype_ == DType::f32 ? 1e-6 : dtype_ == DType::f16 ? 0x1p-9 : 0x1p-6;
    for (std::int64_t t = 0; t < expected.shape[2]; t++) {
      for (std::int64_t i = 0; i < expected.shape[1] * head_dim; i++) {
        const auto* element = at(expected, t) + i * static_cast<std::int64_t>(size_of(dtype_));
        if (!(std::abs(value(element) - value(got.data() + (element - data()))) <= tolerance)) return false;
      }
    }
    return true;
  }

  Size size_;
  DType dtype_;
  std::int64_t bytes_;
  Memory memory_;
  Frequencies frequencies_;
  Range positions_;
};

/// Best times of the yardstick and of rotate, taken in turn so that both see the same machine.
struct Times {
  double plain = std::numeric_limits<double>::infinity(), rotated = plain;
};
Times measure(Case& run, Executor* executor) {
  constexpr std::int64_t sample_bytes = 4 << 20;
  const std::int64_t repeats = std::max<std::int64_t>(1, sample_bytes / run.bytes());
  Times best;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1200);
  for (int round = 0; round < 20 || (round < 400 && std::chrono::steady_clock::now() < end); round++) {
    best.plain = std::min(best.plain, seconds(repeats, [&] { run.touch(false); }));
    best.rotated = std::min(best.rotated, seconds(repeats, [&] { run.rotate_all(executor); }));
    best.plain = std::min(best.plain, seconds(repeats, [&] { run.touch(true); }));
  }
  return best;
}

std::vector<Result> bench(std::size_t threads) {
  std::vector<Result> results;
  ThreadPool pool(threads);
  for (const auto& size : sizes) {
    for (const auto dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const auto layout : {PairLayout::half_split, PairLayout::interleaved}) {
        if (size.name == "prefill_far" && dtype != DType::f32) continue;
        Case run(size, dtype, layout);
        if (!run.is_right()) {
          throw Error(ErrorCode::unsupported,
                      fmt::format("bench: a wrong result gets no time ({}, {}, target {})", size.name, name_of(dtype), kernel_target()));
        }
        const Times alone = measure(run, nullptr);
        const double rate = 2e-9 * static_cast<double>(run.bytes());
        results.push_back({size, dtype, layout, 1, alone.plain / alone.rotated, rate / alone.rotated, 1});
        if (threads == 1 || size.name != "prefill") continue;
        const Times together = measure(run, &pool);
        results.push_back(
            {size, dtype, layout, threads, together.plain / together.rotated, rate / together.rotated, alone.rotated / together.rotated});
      }
    }
  }
  return results;
}

std::string_view layout_name(PairLayout layout) { return enum_names<PairLayout>[static_cast<int>(layout)]; }

void print_json(Output& out, const std::vector<Result>& results) {
  out.print("{{\"schema\": 1, \"target\": \"{}\", \"cases\": [", kernel_target());
  for (std::size_t i = 0; i < results.size(); i++) {
    const auto& r = results[i];
    out.print("{}{{\"case\": \"{}\", \"dtype\": \"{}\", \"layout\": \"{}\", \"threads\": {}, \"ratio\": {:.3f}, ", i == 0 ? "" : ", ",
              r.size.name, name_of(r.dtype), layout_name(r.layout), r.threads, r.ratio);
    out.print("\"gigabytes_per_second\": {:.2f}, \"speedup\": {:.3f}}}", r.gigabytes_per_second, r.speedup);
  }
  out.print("]}}\n");
}

void print_people(Output& out, const std::vector<Result>& results) {
  out.print("rotate on {}: {} + {} heads of {}, in place, exact phases. ratio: to a plain read and write of the same memory.\n\n",
            kernel_target(), query_heads, key_heads, head_dim);
  out.print("{}\n", styled(Style::label, fmt::format("{:<12} {:<5} {:<12} {:>7} {:>7} {:>8} {:>8}", "case", "dtype", "layout", "threads",
                                                     "ratio", "GB/s", "speedup")));
  for (const auto& r : results) {
    out.print("{:<12} {:<5} {:<12} {:>7} {:>7.2f} {:>8.1f} {:>8.2f}\n", r.size.name, name_of(r.dtype), layout_name(r.layout), r.threads,
              r.ratio, r.gigabytes_per_second, r.speedup);
  }
}

int run(const Options& options) {
  if (options.what == "kv") return bench_kv(options);
  if (options.what == "decode") return bench_decode(options);
  if (options.what == "attention") return bench_attention(options);
  if (options.what != "rotate")
    throw Misuse(fmt::format("bench: expected rotate, attention, kv or decode, got \"{}\"", printable(options.what)));
  const auto results = bench(options.threads_or_two());
  Output out;
  options.json ? print_json(out, results) : print_people(out, results);
  out.finish();
  return 0;
}

}  // namespace

Verb add_bench(CLI::App& root) {
  auto* app = root.add_subcommand("bench", "Speed of the kernels on this machine, as ratios to reading (and writing) the same memory");
  const auto options = std::make_shared<Options>();
  app->add_option("what", options->what, "The operation to measure")->required()->type_name("rotate|attention|kv|decode");
  app->add_option("--threads", options->threads, "Threads of the second run of large cases (default: 2, where there are as many cores)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "It takes less than a minute. Every case is compared with the double reference before it is timed.\n\n"
      "Examples:\n"
      "  gnomon bench rotate\n"
      "  gnomon bench attention\n"
      "  gnomon bench decode\n"
      "  gnomon bench rotate --json --threads 4");
  return {app, [options] { return run(*options); }};
}

}  // namespace gnomon::cli
