// SPDX-License-Identifier: Apache-2.0
// The spine: everything, in reading order. A header sees only headers of the same or a lower layer.
#pragma once

// ① vocabulary: how things fail, how memory is described, who does the work
#include "gnomon/error.hpp"
#include "gnomon/executor.hpp"
#include "gnomon/tensor.hpp"

// ② what a model declares: plain values, one file per rule
#include "gnomon/encodings/absolute.hpp"
#include "gnomon/encodings/rotary.hpp"
#include "gnomon/spec.hpp"

// ③ numbers derived once, in at least double precision
#include "gnomon/bias_table.hpp"
#include "gnomon/frequencies.hpp"
#include "gnomon/mask.hpp"
#include "gnomon/phase.hpp"
#include "gnomon/position_ids.hpp"
#include "gnomon/positions.hpp"
#include "gnomon/table.hpp"

// ④ what the hot loop does
#include "gnomon/attention.hpp"
#include "gnomon/embed.hpp"
#include "gnomon/kv_cache.hpp"
#include "gnomon/layout.hpp"
#include "gnomon/rotate.hpp"

// ⑤ files: from a checkpoint to the set-up of each layer; analysis: what encodings do, on small numbers; golden files
#include "gnomon/analysis.hpp"
#include "gnomon/compare.hpp"
#include "gnomon/convert.hpp"
#include "gnomon/golden.hpp"
#include "gnomon/model.hpp"
