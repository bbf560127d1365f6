// SPDX-License-Identifier: Apache-2.0
// Any text as the JSON of a rotary and of an absolute spec.
#include "check_model.hpp"
#include "fuzz.hpp"

namespace {

using namespace gnomon;
using fuzz::demand;

/// What `read` makes of the text, if anything; what it takes is valid and its JSON reads back.
template <class Read>
auto check(std::string_view text, Read&& read) -> std::optional<decltype(read(text))> {
  try {
    const auto spec = read(text);
    try {
      validate(spec);
      const auto written = to_json(spec);
      demand(read(written) == spec, "what was written reads back");
      demand(to_json(read(written)) == written, "and is written again the same");
    } catch (const Error& error) {
      demand(false, error.what());
    }
    return spec;
  } catch (const Error& error) {
    demand(error.code() == ErrorCode::malformed || error.code() == ErrorCode::invalid_argument, "a refusal names its reason");
    return std::nullopt;
  }
}

/// Numbers are made, or refused with a gnomon::Error.
template <class Make>
void numbers(Make&& make) {
  try {
    make();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto spec = check(text, rotary_from_json); spec && spec->rotary_dim <= 256) {
    for (const auto numerics : {Numerics::exact, Numerics::hf}) {
      numbers([&] { rotary_table(frequencies(*spec, numerics, 100000), Range{0, 2}); });
    }
  }
  if (const auto spec = check(text, absolute_from_json); spec && spec->width <= 256) {
    for (const auto numerics : {Numerics::exact, Numerics::hf}) numbers([&] { embedding_table(*spec, Range{0, 2}, DType::f32, numerics); });
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  RotarySpec spec{.rule = rotary::Default{}, .theta = 10000, .head_dim = 16, .rotary_dim = 12, .rotary_offset = 2};
  std::vector<std::string> seeds;
  const std::vector<double> list{1, 1.5, 2, 2.5, 3, 4};
  for (const RotaryRule& rule : std::vector<RotaryRule>{
           rotary::Default{}, rotary::Linear{.factor = 4}, rotary::Ntk{.factor = 8}, rotary::Dynamic{2, 4096},
           rotary::Yarn{.factor = 8, .original_max_position_embeddings = 4096}, rotary::Longrope{list, list, 4096, 32},
           rotary::Llama3{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192},
           rotary::Proportional{0.5, 1}, rotary::Xpos{}}) {
    spec.rule = rule;
    seeds.push_back(to_json(spec));
  }
  seeds.push_back(to_json(RotarySpec{.rule = rotary::Custom{list}, .head_dim = 16, .rotary_dim = 12}));
  spec.rule = rotary::Default{};
  spec.attention_factor = 1.25;
  spec.sections = {2, 3, 1};
  seeds.push_back(to_json(spec));
  spec.section_order = SectionOrder::interleaved;
  seeds.push_back(to_json(spec));
  spec.axes = 3, spec.section_order = SectionOrder::chunked;
  seeds.push_back(to_json(spec));
  seeds.push_back(to_json(AbsoluteSpec{absolute::Sinusoidal{}, 64}));
  seeds.push_back(to_json(AbsoluteSpec{absolute::Learned{.rows = 512}, 64}));
  return seeds;
}

std::vector<std::string> fuzz_dictionary() {
  std::vector<std::string> pieces = json_pieces;
  pieces.insert(pieces.end(), {"65536", "2147483648", "1e5", "\"layout\": \"interleaved\",", "\"axes\": 2,", "\"sections\": [1, 2, 3],",
                               "\"section_order\": \"interleaved\",", "\"head_dim\": 65536,", "\"rotary_dim\": 7,", "\"theta\": 1e-300,",
                               "\"theta\": null,", "\"rotary_offset\": 65535,", "\"attention_factor\": 0,"});
  for (const auto& rule : list_rules()) {
    pieces.push_back("\"rule\": \"" + rule.name + "\",");
    for (const auto& field : rule.fields) pieces.push_back("\"" + field.name + "\": 1,");
  }
  return pieces;
}
