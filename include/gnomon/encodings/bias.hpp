// SPDX-License-Identifier: Apache-2.0
// ② The list of bias rules: what is added to a score by the distance of key and query. To add one: write its file, include it here and
// name it in the variant.
#pragma once

#include <variant>

#include "gnomon/encodings/bias/alibi.hpp"
#include "gnomon/encodings/bias/beit.hpp"
#include "gnomon/encodings/bias/deberta.hpp"
#include "gnomon/encodings/bias/fire.hpp"
#include "gnomon/encodings/bias/kerple.hpp"
#include "gnomon/encodings/bias/sandwich.hpp"
#include "gnomon/encodings/bias/swin.hpp"
#include "gnomon/encodings/bias/swinv2.hpp"
#include "gnomon/encodings/bias/t5.hpp"

namespace gnomon {

using BiasRule =
    std::variant<bias::Alibi, bias::T5, bias::Deberta, bias::Swin, bias::Swinv2, bias::Beit, bias::Kerple, bias::Sandwich, bias::Fire>;

/// Calls `visit` with a default-constructed rule of every alternative, in the order of the list.
void for_each_bias_rule(auto&& visit) { for_each_rule<BiasRule>(visit); }

}  // namespace gnomon
