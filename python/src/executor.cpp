// SPDX-License-Identifier: Apache-2.0
// One pool of threads for all calls from Python, of the width that was asked for last.
#include <mutex>

#include "bindings.hpp"

std::shared_ptr<gnomon::Executor> executor_of(int threads) {
  static std::mutex access;
  static std::shared_ptr<gnomon::ThreadPool> pool;  // shared with the calls under way, which may be of another width
  if (threads < 1) {
    throw gnomon::Error(gnomon::ErrorCode::invalid_argument, "threads: expected at least 1, got " + std::to_string(threads));
  }
  if (threads == 1) return nullptr;
  const std::lock_guard lock(access);
  if (!pool || pool->width() != static_cast<std::size_t>(threads)) pool = std::make_shared<gnomon::ThreadPool>(threads);
  return pool;
}
