// SPDX-License-Identifier: Apache-2.0
// ② Absolute rule `learned`: a trained table, one row per position.
#pragma once

#include "gnomon/encodings/rule.hpp"

namespace gnomon::absolute {

/// E[p] is row p + offset of a trained table. There is nothing beyond the last row: the trained length is rows - offset.
struct Learned {
  std::int64_t rows = 0;
  std::int64_t offset = 0;

  static constexpr std::string_view name = "learned";
  static constexpr std::string_view summary = "A trained row for every position, added to the input.";
  static constexpr std::string_view formula = "E[p] = table[p + offset], 0 <= p < rows - offset";
  static constexpr std::string_view citation =
      "Gehring et al. 2017, Convolutional Sequence to Sequence Learning, arXiv:1705.03122, section 3.1";
  static constexpr bool is_trained = true;
  static constexpr std::tuple fields{
      required_field("rows", &Learned::rows, at_least(1), "rows of the trained table"),
      field("offset", &Learned::offset, at_least(0), "row of position 0 (2 in OPT and BART, padding_idx + 1 in RoBERTa)"),
  };

  /// The positions the table was trained for.
  std::int64_t trained_length() const { return rows - offset; }
  void check(int) const {
    if (offset >= rows) {
      throw Error(ErrorCode::invalid_argument,
                  "offset: expected less than rows (" + std::to_string(rows) + "), got " + std::to_string(offset));
    }
  }
  bool operator==(const Learned&) const = default;
};

}  // namespace gnomon::absolute
