// SPDX-License-Identifier: Apache-2.0
// What engines and other versions make of the keys of a Hugging Face config: notes and one warning beside the set-up itself.
#pragma once

#include "model/declaration.hpp"

namespace gnomon::files {

/// `declaration` must have the rotary set-up of its kinds.
void note_readers(const Keys& keys, const Declaration& declaration, Doubts& doubts);

}  // namespace gnomon::files
