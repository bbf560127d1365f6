// SPDX-License-Identifier: Apache-2.0
// ⑤ Comparing the position set-ups of two models by what they mean, not by how they are spelled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gnomon/analysis.hpp"
#include "gnomon/model.hpp"

namespace gnomon {

/// A field in which two set-ups differ, as "rotary.theta", with both values as JSON text; "null" where one has none.
struct Difference {
  std::string field, a, b;
};

/// How far the scores of two rotations drift apart, as numbers (Drift in analysis.hpp).
struct DriftColumn {
  Parting parting;
  std::vector<std::int64_t> distances;
  std::vector<double> mean_cosines;  ///< at `distances`
};

/// Layers of one part that have one set-up in A and one in B.
struct LayerComparison {
  std::string part;  ///< as in LayerGroup; a model of one part is compared with the text of one of several
  std::vector<int> layers;
  std::vector<Difference> differences;
  std::vector<std::string> notes;    ///< what is spelled or stored differently and means the same
  std::optional<RotarySpec> a, b;    ///< `b` in the pair layout of A where rows are known to be permuted
  std::optional<DriftColumn> drift;  ///< where both rotate heads of one width, differently
};

struct Comparison {
  Model a, b;
  std::vector<Difference> differences;  ///< of the models as a whole
  std::vector<LayerComparison> layers;  ///< in the order of their first layer
  std::vector<std::string> notes;

  /// Whether nothing differs.
  bool equal() const;
};

/// Compares what two models declare about position, layer by layer and field by field. Numbers are equal up to the rounding of a float32,
/// which GGUF stores. Rotations are equal when their frequencies and magnitudes are, at every length either rule depends on. Pair layouts
/// that differ because a converter permutes the rows of a family are equal, with a note; so are parts that only one file describes. The
/// drift is given at `distances`; without any, at powers of ten and at the lengths of both models. Throws Error(invalid_argument) where a
/// doubt of level error forbids to trust either side.
Comparison compare(const Model& a, const Model& b, std::span<const std::int64_t> distances = {});

/// The object `gnomon compare --json` prints (docs/compare.md), on one line.
std::string to_json(const Comparison& comparison);

}  // namespace gnomon
