// SPDX-License-Identifier: Apache-2.0
// The pool: an atomic task counter that the caller and the workers draw from, so that a late worker costs little and a lost one nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "gnomon/error.hpp"
#include "gnomon/executor.hpp"

namespace gnomon {
namespace {

// Yielding, and short: beside the spinning workers of an OpenMP runtime a plain spin would keep the worker it waits for off its core.
constexpr auto spin_time = std::chrono::microseconds(50);

/// Waits until `value` is not `old` any more.
void wait_for_change(const std::atomic<std::uint64_t>& value, std::uint64_t old) {
  const auto end = std::chrono::steady_clock::now() + spin_time;
  while (value.load(std::memory_order_acquire) == old) {
    if (std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    } else {
      value.wait(old, std::memory_order_acquire);
    }
  }
}

/// One run. Workers hold it by shared ownership, so that one that wakes late finds the counter used up and nothing else.
struct Job {
  const std::function<void(std::size_t)>* body;
  std::size_t tasks;
  std::atomic<std::size_t> next{0};
  std::atomic<std::uint64_t> done{0};

  void work() {
    for (std::size_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) {
      (*body)(task);
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) done.notify_all();
    }
  }
};

}  // namespace

void run_tasks(Executor* executor, std::size_t tasks, const std::function<void(std::size_t)>& body) {
  if (executor == nullptr || tasks < 2) {
    for (std::size_t task = 0; task < tasks; task++) body(task);
    return;
  }
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // written by the first that fails
  executor->run(tasks, [&](std::size_t task) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      body(task);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

struct ThreadPool::State {
  std::atomic<bool> running{false};  // one run at a time
  std::mutex job_access;
  std::shared_ptr<Job> job;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<bool> stop{false};
  std::size_t width = 1;
  const pid_t owner = getpid();  // a process forked off has none of the workers, and perhaps a lock that one of them held
  std::vector<std::jthread> workers;

  // Also when the constructor of the pool throws, because there are no more threads to be had.
  ~State() {
    stop = true;
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
    if (getpid() == owner) return;
    for (auto& worker : workers) worker.detach();  // there is nobody to join
  }
  std::shared_ptr<Job> current() {
    const std::lock_guard lock(job_access);
    return job;
  }
  void set(std::shared_ptr<Job> next) {
    const std::lock_guard lock(job_access);
    job = std::move(next);
  }
  void serve() {
    std::uint64_t seen = 0;
    while (true) {
      wait_for_change(generation, seen);
      seen = generation.load(std::memory_order_acquire);
      if (stop) return;
      if (const auto work = current()) work->work();
    }
  }
};

ThreadPool::ThreadPool(std::size_t threads) : state_(std::make_unique<State>()) {
  if (threads < 1 || threads > 1024) throw Error(ErrorCode::invalid_argument, fmt::format("threads: expected 1 to 1024, got {}", threads));
  state_->width = threads;
  for (std::size_t i = 1; i < threads; i++) state_->workers.emplace_back([state = state_.get()] { state->serve(); });
}

ThreadPool::~ThreadPool() = default;

std::size_t ThreadPool::width() const { return state_->width; }

void ThreadPool::run(std::size_t tasks, const std::function<void(std::size_t)>& body) {
  const bool alone = tasks < 2 || state_->width == 1 || getpid() != state_->owner;
  if (alone || state_->running.exchange(true, std::memory_order_acquire)) {
    for (std::size_t task = 0; task < tasks; task++) body(task);
    return;
  }
  const auto job = std::make_shared<Job>();
  job->body = &body;
  job->tasks = tasks;
  state_->set(job);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  job->work();
  for (std::uint64_t done = job->done; done < tasks; done = job->done.load(std::memory_order_acquire)) wait_for_change(job->done, done);
  state_->set(nullptr);
  state_->running.store(false, std::memory_order_release);
}

}  // namespace gnomon
