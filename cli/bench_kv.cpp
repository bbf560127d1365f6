// SPDX-License-Identifier: Apache-2.0
// gnomon bench kv: cached keys moved, as a ratio to a plain read and write of the same memory in the same run.
#include <cmath>

#include "bench.hpp"
#include "gnomon/kv_cache.hpp"
#include "kernels/plain.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

constexpr std::int64_t kv_heads = 8, head_dim = 128, tokens = 32768, head = tokens * head_dim;

enum class Work { shift, shift_each, rebase };
constexpr std::string_view work_names[] = {"shift", "shift_each", "rebase"};

struct Result {
  Work work;
  DType dtype;
  PairLayout layout;
  std::size_t threads;
  double ratio, gigabytes_per_second, speedup;
};

/// Keys of one sequence, head after head.
class Case {
 public:
  Case(Work work, DType dtype, PairLayout layout)
      : work_(work),
        dtype_(dtype),
        bytes_(kv_heads * head * static_cast<std::int64_t>(size_of(dtype))),
        memory_(static_cast<std::size_t>(bytes_) + prefetched) {
    fill_with_numbers(memory_.data(), bytes_, dtype, 1);
    RotarySpec spec{rotary::Default{}, 10000, head_dim, head_dim};
    spec.layout = layout;
    from_ = frequencies(spec);
    spec.theta = 500000;
    to_ = frequencies(spec);
    for (std::int64_t t = 0; t < tokens; t++) deltas_.push_back(-(t - t / 4));
  }

  std::int64_t bytes() const { return bytes_; }
  void touch(bool prefetch) { kernels::read_and_write(memory_.data(), bytes_, prefetch); }

  void move(Executor* executor) {
    const TensorView keys{memory_.data(), dtype_, {1, kv_heads, tokens, head_dim}, {kv_heads * head, head, head_dim, 1}};
    const std::int64_t delta = -1000;
    if (work_ == Work::shift) return shift_keys(keys, from_, std::span(&delta, 1), executor);
    if (work_ == Work::shift_each) return shift_keys(keys, from_, Ids{deltas_}, executor);
    rebase_keys(keys, from_, to_, Range{0, tokens}, executor);
  }

  /// The last tokens of the last head against the double reference: turned back by what they had, forward by what they should have.
  bool is_right() {
    constexpr std::int64_t checked = 5, first = kv_heads * head - checked * head_dim;
    auto expected = in_double(memory_.data(), dtype_, first, checked * head_dim);
    const TensorView some{expected.data(), DType::f64, {1, 1, checked, head_dim}, {0, 0, head_dim, 1}};
    const Range at{tokens - checked, tokens};
    reference::rotate(some, some, from_, at, {.direction = Direction::transposed});
    std::vector<std::int64_t> positions;
    for (std::int64_t p = at.start; p < at.stop; p++)
      positions.push_back(work_ == Work::shift ? p - 1000 : work_ == Work::rebase ? p : p / 4);
    reference::rotate(some, some, work_ == Work::rebase ? to_ : from_, Ids{positions});
    move(nullptr);
    const auto got = in_double(memory_.data(), dtype_, first, checked * head_dim);
    const double tolerance = dtype_ == DType::f32 ? 1e-6 : dtype_ == DType::f16 ? 0x1p-9 : 0x1p-6;
    return std::equal(got.begin(), got.end(), expected.begin(), [&](double a, double b) { return std::abs(a - b) <= tolerance; });
  }

 private:
  static constexpr std::size_t prefetched = 8192;

  Work work_;
  DType dtype_;
  std::int64_t bytes_;
  Memory memory_;
  Frequencies from_, to_;
  std::vector<std::int64_t> deltas_;
};

void bench(std::vector<Result>& results, Work work, DType dtype, PairLayout layout, std::size_t threads) {
  Case run(work, dtype, layout);
  if (!run.is_right()) {
    throw Error(ErrorCode::unsupported, fmt::format("bench: a wrong result gets no time ({}, {}, target {})",
                                                    work_names[static_cast<int>(work)], name_of(dtype), kernel_target()));
  }
  ThreadPool pool(threads);
  const auto measure = [&](Executor* executor) {
    return BestTimes(executor == nullptr, 600, [&](bool prefetch) { run.touch(prefetch); }, [&] { run.move(executor); });
  };
  const auto rate = 2e-9 * static_cast<double>(run.bytes());
  const auto alone = measure(nullptr);
  results.push_back({work, dtype, layout, 1, alone.plain / alone.measured, rate / alone.measured, 1});
  if (threads == 1 || layout != PairLayout::half_split) return;
  const auto together = measure(&pool);
  results.push_back(
      {work, dtype, layout, threads, together.plain / together.measured, rate / together.measured, alone.measured / together.measured});
}

std::string_view layout_name(PairLayout layout) { return enum_names<PairLayout>[static_cast<int>(layout)]; }

void print_json(Output& out, const std::vector<Result>& results) {
  out.print("{{\"schema\": 1, \"target\": \"{}\", \"cases\": [", kernel_target());
  for (std::size_t i = 0; i < results.size(); i++) {
    const auto& r = results[i];
    out.print("{}{{\"case\": \"{}\", \"dtype\": \"{}\", \"layout\": \"{}\", \"threads\": {}, \"ratio\": {:.3f}, ", i == 0 ? "" : ", ",
              work_names[static_cast<int>(r.work)], name_of(r.dtype), layout_name(r.layout), r.threads, r.ratio);
    out.print("\"gigabytes_per_second\": {:.2f}, \"speedup\": {:.3f}}}", r.gigabytes_per_second, r.speedup);
  }
  out.print("]}}\n");
}

void print_people(Output& out, const std::vector<Result>& results) {
  out.print(
      "cached keys on {}: {} heads of {}, {} tokens, in place. ratio: to a plain read and write of the same memory by one thread.\n\n",
      kernel_target(), kv_heads, head_dim, tokens);
  out.print("{}\n", styled(Style::label, fmt::format("{:<12} {:<5} {:<12} {:>7} {:>7} {:>8} {:>8}", "case", "dtype", "layout", "threads",
                                                     "ratio", "GB/s", "speedup")));
  for (const auto& r : results) {
    out.print("{:<12} {:<5} {:<12} {:>7} {:>7.2f} {:>8.1f} {:>8.2f}\n", work_names[static_cast<int>(r.work)], name_of(r.dtype),
              layout_name(r.layout), r.threads, r.ratio, r.gigabytes_per_second, r.speedup);
  }
}

}  // namespace

int bench_kv(const BenchOptions& options) {
  std::vector<Result> results;
  for (const auto work : {Work::shift, Work::shift_each, Work::rebase}) {
    for (const auto dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const auto layout : {PairLayout::half_split, PairLayout::interleaved})
        bench(results, work, dtype, layout, options.threads_or_two());
    }
  }
  Output out;
  options.json ? print_json(out, results) : print_people(out, results);
  out.finish();
  return 0;
}

}  // namespace gnomon::cli
