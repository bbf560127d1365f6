// SPDX-License-Identifier: Apache-2.0
// What engines and other versions make of the keys of a Hugging Face config: notes and one warning beside the set-up itself.
#pragma once

#include "model/declaration.hpp"

namespace gnomon::files {

/// `declaration` must have the rotary set-up of its kinds; what another version makes of it is added to them, for the costs.
void note_readers(const Keys& keys, Declaration& declaration, Doubts& doubts);

}  // namespace gnomon::files
