// SPDX-License-Identifier: Apache-2.0
// gnomon._core: one function per header, in the order of the spine.
#include "bindings.hpp"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // a spec in a global variable outlives the interpreter's last collection; that is no leak
  module.attr("__version__") = GNOMON_VERSION;
  bind_error(module);
  bind_spec(module);
  bind_numbers(module);
  bind_position_ids(module);
  bind_embed(module);
  bind_rotate(module);
  bind_attention(module);
  bind_attention_statistics(module);
  bind_kv_cache(module);
  bind_layout(module);
  bind_model(module);
  bind_compare(module);
  bind_golden(module);
  bind_analysis(module);
  bind_convert(module);
}
