// SPDX-License-Identifier: Apache-2.0
// gnomon bench decode: one query token against a long cache, as a ratio to a plain read of the same keys and values in the same run.
#include <cmath>

#include "bench.hpp"
#include "gnomon/attention.hpp"
#include "kernels/plain.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

constexpr std::int64_t kv_heads = 8, head_dim = 128, page_size = 64;

struct Result {
  std::int64_t keys, group;
  DType dtype;
  bool paged;
  std::size_t threads;
  double ratio, gigabytes_per_second, speedup;
};

/// A cache of one sequence, head after head, and its queries. The same memory serves as pages, in an order of no order.
class Case {
 public:
  Case(std::int64_t keys, std::int64_t group, DType dtype, bool paged)
      : keys_(keys),
        group_(group),
        dtype_(dtype),
        bytes_(kv_heads * keys * head_dim * static_cast<std::int64_t>(size_of(dtype))),
        k_(static_cast<std::size_t>(bytes_) + prefetched),
        v_(static_cast<std::size_t>(bytes_) + prefetched),
        q_(static_cast<std::size_t>(kv_heads * group * head_dim) * 4),
        out_(q_.size()) {
    fill_with_numbers(k_.data(), bytes_, dtype, 1);
    fill_with_numbers(v_.data(), bytes_, dtype, 2);
    fill_with_numbers(q_.data(), kv_heads * group * head_dim * static_cast<std::int64_t>(size_of(dtype)), dtype, 3);
    if (!paged) return;
    const std::int64_t pages = keys / page_size;
    for (std::int64_t block = 0; block < pages; block++) table_.push_back(static_cast<std::int32_t>(block * 37 % pages));
  }

  std::int64_t bytes() const { return 2 * bytes_; }
  std::uint32_t read(bool prefetch) const {
    return kernels::read(k_.data(), bytes_, prefetch) ^ kernels::read(v_.data(), bytes_, prefetch);
  }

  void decode(Executor* executor) {
    AttentionOptions options;
    options.executor = executor;
    if (table_.empty()) {
      attention(queries(), cache(k_), cache(v_), result(), options);
    } else {
      const std::int32_t length[] = {static_cast<std::int32_t>(keys_)};
      attention(queries(), {pages(k_), pages(v_), table_, length}, result(), options);
    }
  }

  /// The first key head against the double reference.
  bool is_right() {
    decode(nullptr);
    const std::int64_t number = group_ * head_dim;
    const auto q = in_double(q_.data(), dtype_, 0, number);
    const auto k = first_head(k_), v = first_head(v_);
    std::vector<double> expected(static_cast<std::size_t>(number));
    const auto view = [](const std::vector<double>& numbers, std::int64_t heads, std::int64_t tokens) {
      return TensorView{const_cast<double*>(numbers.data()), DType::f64, {1, heads, tokens, head_dim}, {0, tokens * head_dim, head_dim, 1}};
    };
    reference::attention(view(q, group_, 1), view(k, 1, keys_), view(v, 1, keys_), view(expected, group_, 1));
    const auto got = in_double(out_.data(), dtype_, 0, number);
    const double tolerance = dtype_ == DType::f32 ? 1e-6 : dtype_ == DType::f16 ? 0x1p-11 : 0x1p-8;
    return std::equal(got.begin(), got.end(), expected.begin(),
                      [&](double a, double b) { return std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b)); });
  }

 private:
  static constexpr std::size_t prefetched = 8192;

  ConstTensorView queries() const { return {q_.data(), dtype_, {1, kv_heads * group_, 1, head_dim}, {0, head_dim, 0, 1}}; }
  TensorView result() const { return {out_.data(), dtype_, {1, kv_heads * group_, 1, head_dim}, {0, head_dim, 0, 1}}; }
  ConstTensorView cache(const Memory& memory) const {
    return {memory.data(), dtype_, {1, kv_heads, keys_, head_dim}, {0, keys_ * head_dim, head_dim, 1}};
  }
  ConstTensorView pages(const Memory& memory) const {
    return {memory.data(),
            dtype_,
            {keys_ / page_size, kv_heads, page_size, head_dim},
            {kv_heads * page_size * head_dim, page_size * head_dim, head_dim, 1}};
  }
  std::vector<double> first_head(const Memory& memory) const {
    if (table_.empty()) return in_double(memory.data(), dtype_, 0, keys_ * head_dim);
    std::vector<double> result;
    for (const auto page : table_) {
      const auto some = in_double(memory.data(), dtype_, page * kv_heads * page_size * head_dim, page_size * head_dim);
      result.insert(result.end(), some.begin(), some.end());
    }
    return result;
  }

  std::int64_t keys_, group_;
  DType dtype_;
  std::int64_t bytes_;
  Memory k_, v_, q_, out_;
  std::vector<std::int32_t> table_;
};

void bench(std::vector<Result>& results, std::int64_t keys, std::int64_t group, DType dtype, bool paged, std::size_t threads) {
  Case run(keys, group, dtype, paged);
  if (!run.is_right()) {
    throw Error(ErrorCode::unsupported, fmt::format("bench: a wrong result gets no time ({} keys, {} queries a key head, {}, target {})",
                                                    keys, group, name_of(dtype), kernel_target()));
  }
  ThreadPool pool(threads);
  volatile std::uint32_t sink = 0;
  const auto measure = [&](Executor* executor) {
    return BestTimes(executor == nullptr, 700, [&](bool prefetch) { sink = run.read(prefetch); }, [&] { run.decode(executor); });
  };
  const auto rate = 1e-9 * static_cast<double>(run.bytes());
  const auto alone = measure(nullptr);
  results.push_back({keys, group, dtype, paged, 1, alone.plain / alone.measured, rate / alone.measured, 1});
  if (threads == 1) return;
  const auto together = measure(&pool);
  results.push_back({keys, group, dtype, paged, threads, together.plain / together.measured, rate / together.measured,
                     alone.measured / together.measured});
}

void print_json(Output& out, const std::vector<Result>& results) {
  out.print("{{\"schema\": 1, \"target\": \"{}\", \"cases\": [", kernel_target());
  for (std::size_t i = 0; i < results.size(); i++) {
    const auto& r = results[i];
    out.print("{}{{\"keys\": {}, \"queries_per_key_head\": {}, \"dtype\": \"{}\", \"paged\": {}, \"threads\": {}, ", i == 0 ? "" : ", ",
              r.keys, r.group, name_of(r.dtype), r.paged, r.threads);
    out.print("\"ratio\": {:.3f}, \"gigabytes_per_second\": {:.2f}, \"speedup\": {:.3f}}}", r.ratio, r.gigabytes_per_second, r.speedup);
  }
  out.print("]}}\n");
}

void print_people(Output& out, const std::vector<Result>& results) {
  out.print("decode on {}: one token, {} key heads of {}. ratio: to a plain read of the same keys and values by one thread.\n\n",
            kernel_target(), kv_heads, head_dim);
  out.print("{}\n", styled(Style::label, fmt::format("{:>7} {:>8} {:<5} {:<10} {:>7} {:>7} {:>8} {:>8}", "keys", "queries", "dtype",
                                                     "cache", "threads", "ratio", "GB/s", "speedup")));
  for (const auto& r : results) {
    out.print("{:>7} {:>8} {:<5} {:<10} {:>7} {:>7.2f} {:>8.1f} {:>8.2f}\n", r.keys, r.group, name_of(r.dtype),
              r.paged ? "paged" : "contiguous", r.threads, r.ratio, r.gigabytes_per_second, r.speedup);
  }
}

}  // namespace

int bench_decode(const BenchOptions& options) {
  const auto threads = options.threads_or_two();
  std::vector<Result> results;
  for (const std::int64_t group : {1, 4, 8}) {
    for (const auto dtype : {DType::bf16, DType::f16, DType::f32}) bench(results, 32768, group, dtype, false, threads);
  }
  for (const std::int64_t group : {1, 4}) {
    bench(results, 32768, group, DType::bf16, true, threads);
    bench(results, 4096, group, DType::bf16, false, threads);
  }
  Output out;
  options.json ? print_json(out, results) : print_people(out, results);
  out.finish();
  return 0;
}

}  // namespace gnomon::cli
