// SPDX-License-Identifier: Apache-2.0
// ① Threads: they belong to the caller. An operation cuts its work into tasks and hands them to an executor; what it computes never
// depends on who runs them, or on how many threads there are.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace gnomon {

/// Runs independent tasks. Derive from it to lend gnomon your own threads.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Calls body(0) … body(tasks - 1), each once, in any order and on any thread, and returns when all are done. The bodies do not throw.
  virtual void run(std::size_t tasks, const std::function<void(std::size_t)>& body) = 0;
  /// How many tasks can run at once; a hint for how finely to cut.
  virtual std::size_t width() const = 0;
};

/// Calls body(0) … body(tasks - 1) by the executor, or in turn where there is none or only one task. How every operation runs its tasks:
/// where one throws (no memory is to be had), tasks that have not begun are left out, the executor sees nothing of it, and what was thrown
/// is thrown from here.
void run_tasks(Executor* executor, std::size_t tasks, const std::function<void(std::size_t)>& body);

/// Threads of gnomon's own: `threads` - 1 of them, which sleep between runs, and the caller. One run at a time; a second caller, or a
/// body that runs something itself, does its work alone. A process that was forked off has none of the threads and still finishes.
class ThreadPool final : public Executor {
 public:
  /// Throws Error(invalid_argument) unless 1 <= threads <= 1024.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool() override;
  void run(std::size_t tasks, const std::function<void(std::size_t)>& body) override;
  std::size_t width() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gnomon
