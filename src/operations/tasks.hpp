// SPDX-License-Identifier: Apache-2.0
// How finely an operation cuts its work.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gnomon/executor.hpp"

namespace gnomon {

/// How many tasks to make of work on `bytes` of memory: one, for the calling thread, where there is no executor or little to do, since a
/// small job is done before a thread wakes up; otherwise several for each thread, so that a late one costs little.
inline std::int64_t tasks_worth_running(std::int64_t bytes, const Executor* executor) {
  constexpr std::int64_t worth_threads = 256 << 10, least_task = 32 << 10, tasks_per_thread = 8;
  if (executor == nullptr || executor->width() < 2 || bytes < worth_threads) return 1;
  return std::min(tasks_per_thread * static_cast<std::int64_t>(executor->width()), bytes / least_task);
}

/// The executor where work on `bytes` of memory is worth its threads, else none.
inline Executor* executor_worth(std::int64_t bytes, Executor* executor) {
  return tasks_worth_running(bytes, executor) > 1 ? executor : nullptr;
}

/// Whether work of so many multiplications and additions is worth the threads of an executor: 4e6 are some 50 us of one core.
inline bool products_worth_threads(double products) { return products > 4e6; }

}  // namespace gnomon
