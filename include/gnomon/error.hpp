// SPDX-License-Identifier: Apache-2.0
// ① Errors. Every failure of the library is one exception type; its message names the argument, what was expected and what was got.
#pragma once

#include <stdexcept>
#include <string>

namespace gnomon {

/// What kind of failure an Error reports; surfaces map it to their own codes (the command line exits with 2 for all of them).
enum class ErrorCode {
  invalid_argument,  ///< a value the caller passed cannot be used
  out_of_range,      ///< a position or an index beyond what the contract covers
  unsupported,       ///< understood, but not offered (a numerics profile a rule does not have, a dtype an operation does not take)
  malformed,         ///< a file or a JSON text is not what it should be
  io,                ///< a file could not be read
};

/// The one exception thrown by gnomon. `what()` is a sentence for people.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace gnomon
