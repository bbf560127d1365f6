// SPDX-License-Identifier: Apache-2.0
// Positions as text: a Python slice or a list of numbers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gnomon/positions.hpp"

namespace gnomon::cli {

/// Positions with their own memory. Copies would point into the original, so there are none.
class PositionList {
 public:
  /// "8", "0:16", "0:131072:4096", "10:0:-1" (stop exclusive, start 0 when left out), or numbers "0,1.5,4096", real when one of them is.
  /// Throws Misuse for a text of another form, Error for positions beyond the contract.
  explicit PositionList(std::string_view text);
  PositionList(const PositionList&) = delete;
  PositionList& operator=(const PositionList&) = delete;

  std::size_t size() const { return count(all_); }
  double largest() const;
  /// All of them. Throws Misuse for real ones and for more than 2^24.
  std::vector<std::int64_t> integers() const;
  /// `number` of them from `first` on.
  Positions part(std::size_t first, std::size_t number) const;

 private:
  std::vector<std::int64_t> integers_;
  std::vector<double> reals_;
  Positions all_;
};

}  // namespace gnomon::cli
