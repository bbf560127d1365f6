// SPDX-License-Identifier: Apache-2.0
// Executors: results do not depend on who runs the tasks, and the pool runs each task once, whatever happens around it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <thread>

#include "gnomon/executor.hpp"
#include "support/random_spec.hpp"
#include "support/strided.hpp"
#include "support/targets.hpp"

namespace {

using namespace testing_support;
using gnomon::Executor;
using gnomon::RotateOperand;
using gnomon::ThreadPool;
using Body = std::function<void(std::size_t)>;

/// Runs the tasks one by one, the last first, each on a thread of its own.
class Backwards final : public Executor {
 public:
  explicit Backwards(std::size_t width) : width_(width) {}
  void run(std::size_t tasks, const Body& body) override {
    runs++;
    most = std::max(most, tasks);
    for (std::size_t task = tasks; task > 0; task--) std::thread([&] { body(task - 1); }).join();
  }
  std::size_t width() const override { return width_; }
  int runs = 0;
  std::size_t most = 0;

 private:
  std::size_t width_;
};

/// Runs all tasks at the same time: what one of them leaves in memory that another uses would show.
class AllAtOnce final : public Executor {
 public:
  void run(std::size_t tasks, const Body& body) override {
    std::vector<std::thread> threads;
    for (std::size_t task = 0; task < tasks; task++) threads.emplace_back([&, task] { body(task); });
    for (auto& thread : threads) thread.join();
  }
  std::size_t width() const override { return 4; }
};

using Executors = OnEveryTarget;

struct Case {
  std::int64_t batch, q_heads, k_heads, tokens;
  int head_dim;
  bool per_row;
};
// The first two are too small to be cut, then a prompt, an odd one, a decode step of many rows, and many rows of a few tokens.
constexpr Case cases[] = {{1, 2, 1, 3, 16, false},  {2, 3, 1, 33, 24, true},   {1, 8, 2, 512, 64, false},
                          {3, 5, 1, 231, 38, true}, {64, 12, 8, 1, 128, true}, {64, 8, 2, 3, 128, false}};

template <class Element>
void bit_equal(const gnomon::Frequencies& frequencies, const Case& shape) {
  SequenceDraw draw(61);
  const auto D = static_cast<std::int64_t>(frequencies.spec.head_dim);
  Strided<Element> q({shape.batch, shape.q_heads, shape.tokens, D}, Order::bthd),
      k({shape.batch, shape.k_heads, shape.tokens, D}, Order::bhtd);
  q.fill(draw), k.fill(draw);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < (shape.per_row ? shape.batch : 1) * shape.tokens; i++) ids.push_back(draw.whole(0, 100000));
  const auto rotated = [&](Executor* executor) {
    auto pair = std::pair(q, k);
    const RotateOperand operands[] = {{pair.first.view(), pair.first.view(), gnomon::Side::query},
                                      {pair.second.view(), pair.second.view(), gnomon::Side::key}};
    gnomon::rotate(operands, frequencies, gnomon::Ids{ids}, {.executor = executor});
    return pair;
  };
  const auto serial = rotated(nullptr);
  const auto expect_same = [&](Executor& executor, const char* name) {
    const auto [q_got, k_got] = rotated(&executor);
    EXPECT_EQ(std::memcmp(q_got.memory.data(), serial.first.memory.data(), q.memory.size() * sizeof(Element)), 0) << name;
    EXPECT_EQ(std::memcmp(k_got.memory.data(), serial.second.memory.data(), k.memory.size() * sizeof(Element)), 0) << name;
  };
  for (const std::size_t threads : {1U, 2U, 3U, 7U}) {
    ThreadPool pool(threads);
    expect_same(pool, "pool");
  }
  for (const std::size_t width : {2U, 5U, 64U}) {
    Backwards backwards(width);
    expect_same(backwards, "backwards");
    const std::size_t bytes = (q.memory.size() + k.memory.size()) * sizeof(Element);
    EXPECT_EQ(backwards.most > 1, bytes > (300U << 10)) << "what is large is cut, and nothing else: " << backwards.most;
  }
  AllAtOnce all;
  expect_same(all, "all at once");
}

TEST_P(Executors, ResultsDoNotDependOnThem) {
  for (const auto& shape : cases) {
    const auto spec = [&](gnomon::RotaryRule rule) {
      return gnomon::frequencies({.rule = std::move(rule), .theta = 10000, .head_dim = shape.head_dim, .rotary_dim = shape.head_dim});
    };
    bit_equal<float>(spec(gnomon::rotary::Default{}), shape);
    bit_equal<float>(spec(gnomon::rotary::Xpos{.scale_base = 1e6}), shape);
    bit_equal<std::uint16_t>(spec(gnomon::rotary::Default{}), shape);
    bit_equal<Half>(spec(gnomon::rotary::Default{}), shape);
  }
}

INSTANTIATE_TEST_SUITE_P(Target, Executors, testing::ValuesIn(targets()), target_name);

/// How often each task ran.
class Tally {
 public:
  explicit Tally(std::size_t tasks) : counts_(tasks) {}
  void mark(std::size_t task) { counts_.at(task).fetch_add(1); }
  bool each_once() const {
    return std::all_of(counts_.begin(), counts_.end(), [](const auto& count) { return count.load() == 1; });
  }

 private:
  std::vector<std::atomic<int>> counts_;
};

void expect_each_once(Executor& pool, std::size_t tasks) {
  Tally tally(tasks);
  pool.run(tasks, [&](std::size_t task) { tally.mark(task); });
  EXPECT_TRUE(tally.each_once()) << tasks << " tasks on " << pool.width();
}

TEST(Pool, RunsEveryTaskOnce) {
  for (const std::size_t threads : {1U, 2U, 3U, 7U, 33U}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.width(), threads);
    for (const std::size_t tasks : {0U, 1U, 2U, 3U, 7U, 64U, 1000U}) expect_each_once(pool, tasks);
  }
}

TEST(Pool, HasAllItsThreadsAtWork) {
  ThreadPool pool(3);
  std::atomic<int> together{0};
  pool.run(3, [&](std::size_t) {  // each task waits for the two others: only three threads get through
    together++;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (together < 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  EXPECT_EQ(together, 3);
}

TEST(Pool, WaitsForTheTaskOfASlowThread) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  static std::atomic<int> started{0}, finished{0};  // static: a pool that does not wait would leave the thread nothing to write to
  pool.run(2, [caller](std::size_t) {
    started++;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (started < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();  // one task for each thread
    if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    finished++;
  });
  EXPECT_EQ(finished, 2);
}

TEST(Pool, ARunWithinARunIsDoneAlone) {
  ThreadPool pool(3);
  Tally tally(20 * 10);
  pool.run(20, [&](std::size_t outer) { pool.run(10, [&](std::size_t inner) { tally.mark(outer * 10 + inner); }); });
  EXPECT_TRUE(tally.each_once());
}

TEST(Pool, TwoCallersAtOnce) {
  ThreadPool pool(3);
  const auto call = [&] {
    for (int round = 0; round < 500; round++) expect_each_once(pool, 17);
  };
  std::thread other(call);
  call();
  other.join();
}

TEST(Pool, ManyShortRuns) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 10000; round++) pool.run(3, [&](std::size_t task) { sum += static_cast<std::int64_t>(task) + 1; });
  EXPECT_EQ(sum, 60000);
}

TEST(Pool, WakesUpAfterALongSleep) {
  ThreadPool pool(3);
  expect_each_once(pool, 10);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  expect_each_once(pool, 10);
}

// A body that finds no memory: the caller learns of it, nothing is left running, and the pool goes on.
TEST(RunTasks, ThrowsWhatABodyThrows) {
  ThreadPool pool(3);
  Backwards backwards(2);
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&pool), static_cast<Executor*>(&backwards)}) {
    for (const std::size_t tasks : {1U, 2U, 100U}) {
      std::atomic<int> running{0};
      const auto body = [&](std::size_t task) {
        running++;
        if (task == tasks / 2) {
          running--;
          throw std::bad_alloc();
        }
        running--;
      };
      EXPECT_THROW(gnomon::run_tasks(executor, tasks, body), std::bad_alloc) << tasks;
      EXPECT_EQ(running, 0);
    }
    Tally tally(50);
    gnomon::run_tasks(executor, 50, [&](std::size_t task) { tally.mark(task); });
    EXPECT_TRUE(tally.each_once());
  }
  expect_each_once(pool, 50);
}

TEST(Pool, MayGoRightAfterARun) {
  for (int round = 0; round < 300; round++) {
    ThreadPool pool(4);
    expect_each_once(pool, 5);
  }
  for (int round = 0; round < 300; round++) ThreadPool unused(4);
}

TEST(Pool, RefusesANumberOfThreadsThatIsNone) {
  for (const std::size_t threads : {std::size_t{0}, std::size_t{1025}, ~std::size_t{0}}) {
    EXPECT_EQ(refusal_fault([&] { ThreadPool pool(threads); }, gnomon::ErrorCode::invalid_argument, {"threads", "1024"}), "") << threads;
  }
}

/// Forks; whether the child ended by itself with success within ten seconds.
template <class Call>
bool child_finishes(Call&& call) {
  const pid_t child = fork();
  if (child == 0) {
    call();
    _exit(0);
  }
  for (int wait = 0; wait < 10000; wait++) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return false;
}

// Sanitizers take more memory than the limit, and an emulator of another CPU is limited itself.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__x86_64__)
TEST(Pool, TooFewThreadsToBeHadIsAnExceptionAndNoHang) {
  EXPECT_TRUE(child_finishes([] {
    const rlimit little{256 << 20, 256 << 20};  // of address space: the stacks of a few dozen threads
    if (setrlimit(RLIMIT_AS, &little) != 0) _exit(2);
    try {
      ThreadPool pool(1024);
    } catch (const std::exception&) {
      _exit(0);
    }
    _exit(1);
  }));
}
#endif

TEST(Pool, AChildOfAForkFinishes) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; round++) {  // the workers are somewhere else each time
    expect_each_once(pool, 10);
    const bool finished = child_finishes([&] {
      Tally tally(10);
      pool.run(10, [&](std::size_t task) { tally.mark(task); });
      if (!tally.each_once()) _exit(1);
    });
    ASSERT_TRUE(finished) << "round " << round;
  }
  expect_each_once(pool, 10);
}

TEST(Pool, AChildOfAForkMayDestroyIt) {
  auto pool = std::make_unique<ThreadPool>(3);
  expect_each_once(*pool, 10);
  EXPECT_TRUE(child_finishes([&] { pool.reset(); }));
  expect_each_once(*pool, 10);
}

}  // namespace
