// SPDX-License-Identifier: Apache-2.0
// A model's position set-up for people: one screen.
#pragma once

#include "gnomon/model.hpp"
#include "output.hpp"

namespace gnomon::cli {

/// Shape and lengths, a picture of the layer pattern, a table with a line for each group of layers, then for each group its bands, turns
/// and where its values come from, and the doubts.
void print_model(Output& out, const Model& model);

}  // namespace gnomon::cli
