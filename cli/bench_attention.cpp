// SPDX-License-Identifier: Apache-2.0
// gnomon bench attention: a prompt's attention as a share of what the CPU's multipliers can do, and what position costs beside the plain
// one, each measured in turn in the same run.
#include <cmath>
#include <functional>

#include "bench.hpp"
#include "gnomon/attention.hpp"
#include "gnomon/frequencies.hpp"
#include "kernels/attention.hpp"
#include "kernels/plain.hpp"
#include "operations/attention.hpp"
#include "output.hpp"
#include "text.hpp"
#include "verbs.hpp"

namespace gnomon::cli {
namespace {

/// What is done beside plain attention.
enum class Extra { none, slopes, distances, fire, image, rotation, window };
constexpr std::string_view extra_names[] = {"plain", "alibi", "t5", "fire", "image", "rotation", "window"};

struct Size {
  std::int64_t batch, heads, queries, keys, width;
};

std::int64_t elements(const Size& size, std::int64_t tokens) { return size.batch * size.heads * tokens * size.width; }

/// A call and its memory.
class Case {
 public:
  Case(const Size& size, DType dtype, Extra extra)
      : size_(size), dtype_(dtype), q_(bytes(size.queries)), k_(bytes(size.keys)), v_(bytes(size.keys)), out_(bytes(size.queries)) {
    unsigned seed = 1;
    for (const auto* memory : {&q_, &k_, &v_}) fill_with_numbers(memory->data(), static_cast<std::int64_t>(memory->size()), dtype, seed++);
    MaskOptions mask;
    mask.queries = size.queries;
    mask.keys = size.keys;
    if (extra != Extra::image && size.batch == 1) mask.right = 0;  // several rows: blocks without a mask, to compare with
    if (extra == Extra::window) mask.left = window - 1;
    mask_ = key_intervals(mask);
    options_.mask = &mask_;
    add(extra);
    options_.bias = bias_;
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  static constexpr std::int64_t window = 1024, image_width = 32;

  double operations() const {
    double pairs = 0;
    for (std::size_t t = 0; t < mask_.end.size(); t++) pairs += mask_.end[t] - mask_.begin[t];
    return 4.0 * static_cast<double>(size_.batch * size_.heads * size_.width) * pairs;
  }
  void run(Executor* executor = nullptr, bool skip = false) {
    options_.executor = executor;
    TileCall call(view(q_, size_.queries), view(k_, size_.keys), view(v_, size_.keys), view(out_, size_.queries), options_);
    call.job.skip = skip;
    kernels::attention(call.job);
  }
  bool is_right() {
    run();
    const auto numbers = [&](const Memory& memory, std::int64_t tokens) {
      return in_double(memory.data(), dtype_, 0, elements(size_, tokens));
    };
    auto q = numbers(q_, size_.queries), k = numbers(k_, size_.keys), v = numbers(v_, size_.keys), expected = q;
    const auto in_f64 = [&](std::vector<double>& list, std::int64_t tokens) {
      auto result = view(q_, tokens);
      result.data = list.data();
      result.dtype = DType::f64;
      return result;
    };
    reference::attention(in_f64(q, size_.queries), in_f64(k, size_.keys), in_f64(v, size_.keys), in_f64(expected, size_.queries), options_);
    const auto got = numbers(out_, size_.queries);
    // In pairs, weights and turned keys are rounded to bf16 on the way.
    const double tolerance = dtype_ == DType::f32 ? 1e-5 : dtype_ == DType::f16 ? 0x1p-10 : 0x1p-6;
    return std::equal(got.begin(), got.end(), expected.begin(), [&](double a, double b) { return std::abs(a - b) <= tolerance; });
  }

 private:
  std::size_t bytes(std::int64_t tokens) const { return static_cast<std::size_t>(elements(size_, tokens)) * size_of(dtype_); }
  TensorView view(const Memory& memory, std::int64_t tokens) const {
    const std::int64_t head = tokens * size_.width;
    return {memory.data(), dtype_, {size_.batch, size_.heads, tokens, size_.width}, {size_.heads * head, head, size_.width, 1}};
  }
  void add(Extra extra) {
    std::mt19937 random(4);
    const auto number = [&] { return static_cast<float>(random() % 2001) * 1e-3f - 1; };
    const auto numbers = [&](std::int64_t count) {
      std::vector<float> list(static_cast<std::size_t>(count));
      for (float& x : list) x = number();
      return list;
    };
    const std::int64_t heads = size_.heads;
    if (extra == Extra::slopes) {
      std::vector<float> slopes;
      for (std::int64_t h = 0; h < heads; h++) slopes.push_back(std::exp2(-8 * (static_cast<float>(h) + 0.5f) / static_cast<float>(heads)));
      bias_.push_back(SlopeBias{slopes});
    } else if (extra == Extra::distances) {
      bias_.push_back(DistanceBias{heads, -size_.keys, 2 * size_.keys, numbers(heads * 2 * size_.keys)});
    } else if (extra == Extra::fire) {
      bias_.push_back(FireBias{heads, 0.5f, 64, 1e-6f, numbers(32), numbers(32), numbers(heads * 32), numbers(heads)});
    } else if (extra == Extra::image) {
      const std::int64_t height = size_.queries / image_width;
      bias_.push_back(GridBias{heads, height, image_width, false, numbers(heads * (2 * height - 1) * (2 * image_width - 1))});
    } else if (extra == Extra::rotation) {
      const int width = static_cast<int>(size_.width);
      frequencies_ = frequencies({rotary::Default{}, 500000, width, width});
      options_.rotate_queries = RotationOnLoad{frequencies_, Range{size_.keys - size_.queries, size_.keys}};
      options_.rotate_keys = RotationOnLoad{frequencies_, Range{0, size_.keys}};
    }
  }

  Size size_;
  DType dtype_;
  Memory q_, k_, v_, out_;
  KeyIntervals mask_;
  std::vector<BiasTable> bias_;
  Frequencies frequencies_;
  AttentionOptions options_;
};

struct Result {
  std::string_view name;
  DType dtype;
  std::int64_t width, tokens;
  std::size_t threads = 1;
  double ratio = 0, gigaflops = 0, speedup = 1;
};

void check(DType dtype, std::int64_t width, Extra extra) {
  Case small({1, 2, 160, 160, width}, dtype, extra);
  if (small.is_right()) return;
  throw Error(ErrorCode::unsupported, fmt::format("bench: a wrong result gets no time ({}, {}, {} channels, target {})",
                                                  extra_names[static_cast<int>(extra)], name_of(dtype), width, kernel_target()));
}

constexpr std::int64_t heads = 8;

/// Shares of the peak.
void measure_plain(std::vector<Result>& results, DType dtype, std::int64_t width, std::int64_t tokens, std::size_t threads) {
  check(dtype, width, Extra::none);
  Case plain({1, heads, tokens, tokens, width}, dtype, Extra::none);
  const bool pairs = dtype == DType::bf16 && kernels::pairs_are_fast();
  constexpr std::int64_t rounds = 500000;
  double done = 0;
  const auto peak = [&](bool) { done = pairs ? kernels::multiply_and_add_pairs(rounds) : kernels::multiply_and_add(rounds); };
  const BestTimes alone(true, 900, peak, [&] { plain.run(); });
  const double rate = plain.operations() / alone.measured;
  results.push_back({"plain", dtype, width, tokens, 1, rate / (done / alone.plain), rate * 1e-9, 1});
  if (threads == 1) return;
  ThreadPool pool(threads);
  const BestTimes together(false, 900, [&](bool) { plain.run(); }, [&] { plain.run(&pool); });
  const double fast = plain.operations() / together.measured;
  results.push_back({"plain", dtype, width, tokens, threads, fast / (done / alone.plain), fast * 1e-9, together.plain / together.measured});
}

/// Time over that of plain attention of as many pairs.
void measure_extra(std::vector<Result>& results, std::int64_t width, std::int64_t tokens, Extra extra) {
  check(DType::f32, width, extra);
  const bool far = extra == Extra::window, full = extra == Extra::image;
  Case with({1, far ? 1 : heads, tokens, tokens, width}, DType::f32, extra);
  Case plain(far    ? Size{tokens / Case::window, 1, Case::window, Case::window, width}
             : full ? Size{2, heads / 2, tokens, tokens, width}
                    : Size{1, heads, tokens, tokens, width},
             DType::f32, Extra::none);
  const BestTimes times(true, far ? 1500 : 1200, [&](bool) { plain.run(); }, [&] { with.run(); });
  const double work = with.operations() / plain.operations();
  results.push_back({extra_names[static_cast<int>(extra)], DType::f32, width, tokens, 1, times.measured / times.plain / work,
                     with.operations() / times.measured * 1e-9, 1});
}

/// Four of 32 heads at 32768 tokens, with and without leaving out tiles: once, for it takes seconds.
void measure_skipping(std::vector<Result>& results) {
  constexpr std::int64_t tokens = 32768, width = 64;
  check(DType::f32, width, Extra::slopes);
  Case with({1, 4, tokens, tokens, width}, DType::f32, Extra::slopes);
  const double all = seconds(1, [&] { with.run(nullptr, false); }), some = seconds(1, [&] { with.run(nullptr, true); });
  results.push_back({"alibi, skipping", DType::f32, width, tokens, 1, some / all, with.operations() / some * 1e-9, 1});
}

void print_json(Output& out, const std::vector<Result>& results) {
  out.print("{{\"schema\": 1, \"target\": \"{}\", \"cases\": [", kernel_target());
  for (std::size_t i = 0; i < results.size(); i++) {
    const auto& r = results[i];
    out.print("{}{{\"case\": \"{}\", \"dtype\": \"{}\", \"head_dim\": {}, \"tokens\": {}, \"threads\": {}, ", i == 0 ? "" : ", ", r.name,
              name_of(r.dtype), r.width, r.tokens, r.threads);
    out.print("\"{}\": {:.3f}, \"gigaflops\": {:.1f}, \"speedup\": {:.3f}}}", r.name == "plain" ? "of_peak" : "over_plain", r.ratio,
              r.gigaflops, r.speedup);
  }
  out.print("]}}\n");
}

void print_people(Output& out, const std::vector<Result>& results) {
  out.print("attention on {}: {} heads, causal. plain: share of the multipliers' peak (of pairs of bf16 where these are fast, else f32);\n",
            kernel_target(), heads);
  out.print("the others: time over plain attention with as many pairs.\n\n");
  out.print("{}\n", styled(Style::label, fmt::format("{:<16} {:<5} {:>8} {:>7} {:>7} {:>7} {:>8} {:>8}", "case", "dtype", "head_dim",
                                                     "tokens", "threads", "ratio", "GFLOP/s", "speedup")));
  for (const auto& r : results) {
    out.print("{:<16} {:<5} {:>8} {:>7} {:>7} {:>7.3f} {:>8.1f} {:>8.2f}\n", r.name, name_of(r.dtype), r.width, r.tokens, r.threads,
              r.ratio, r.gigaflops, r.speedup);
  }
}

}  // namespace

int bench_attention(const BenchOptions& options) {
  std::vector<Result> results;
  for (const std::int64_t width : {64, 128}) {
    for (const auto dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t tokens : {512, 2048})
        measure_plain(results, dtype, width, tokens, tokens == 2048 && dtype == DType::f32 ? options.threads_or_two() : 1);
    }
    for (const auto extra : {Extra::slopes, Extra::distances, Extra::fire, Extra::image, Extra::rotation})
      measure_extra(results, width, 2048, extra);
  }
  measure_extra(results, 64, 32768, Extra::window);
  measure_skipping(results);
  Output out;
  options.json ? print_json(out, results) : print_people(out, results);
  out.finish();
  return 0;
}

}  // namespace gnomon::cli
