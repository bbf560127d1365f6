// SPDX-License-Identifier: Apache-2.0
// Bytes as a call of attention: shapes, strides, masks, biases, dtypes, NaN. What is refused is refused with nothing written; what is taken
// gives what the double reference gives, and writes nothing else.
#include <cmath>
#include <cstring>
#include <limits>

#include "check_model.hpp"
#include "fuzz.hpp"
#include "gnomon/attention.hpp"
#include "support/strided.hpp"
#include "tensors.hpp"

namespace {

using namespace gnomon;
using fuzz::arena;
using fuzz::Bytes;
using fuzz::demand;
using fuzz::View;
using testing_support::Half;

float number(Bytes& bytes) { return static_cast<float>(bytes.whole(-100, 100)) / 50; }

std::vector<float> numbers(Bytes& bytes, std::int64_t count) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < count; i++) result.push_back(number(bytes));
  return result;
}

struct Shape {
  std::int64_t batch, heads, kv_heads, queries, keys, width, value_width;
};

Shape read_shape(Bytes& bytes) {
  Shape shape{};
  shape.batch = bytes.one_in(3) ? bytes.whole(0, 3) : 1;
  shape.kv_heads = bytes.whole(1, 2);
  shape.heads = shape.kv_heads * bytes.whole(1, 3);
  shape.queries = bytes.one_in(4) ? bytes.whole(0, 70) : bytes.whole(1, 9);
  shape.keys = bytes.one_in(3) ? bytes.whole(0, 150) : bytes.whole(1, 20);
  shape.width = bytes.whole(1, 24);
  shape.value_width = bytes.one_in(2) ? shape.width : bytes.whole(1, 24);
  return shape;
}

/// A call with the memory it borrows.
struct Call {
  Shape shape;
  View q, k, v, out;
  std::vector<std::int32_t> key_begin, key_end, documents_q, documents_k;
  KeyIntervals mask;
  std::vector<BiasTable> bias;
  std::vector<float> sinks, factors, additive;
  std::vector<std::uint8_t> boolean;
  Frequencies frequencies;
  AttentionOptions options;
};

std::vector<std::int32_t> read_documents(Bytes& bytes, std::int64_t documents, std::int64_t tokens) {
  std::vector<std::int32_t> result{0};
  for (std::int64_t d = 1; d < documents; d++) {
    result.push_back(static_cast<std::int32_t>(std::min(tokens, result.back() + bytes.whole(0, 1 + 2 * tokens / documents))));
  }
  result.push_back(static_cast<std::int32_t>(tokens));
  return result;
}

void read_mask(Bytes& bytes, Call& call) {
  const auto& shape = call.shape;
  MaskOptions options;
  options.queries = shape.queries;
  options.keys = shape.keys;
  if (bytes.one_in(3)) options.alignment = Alignment::top_left;
  if (!bytes.one_in(3)) options.right = bytes.one_in(4) ? bytes.whole(0, 9) : 0;
  if (bytes.one_in(3)) options.left = bytes.whole(0, 40);
  if (bytes.one_in(5)) options.chunk = bytes.whole(1, 30);
  if (bytes.one_in(5)) options.prefix = bytes.whole(0, 20);
  if (bytes.one_in(3)) options.keep_first = bytes.whole(0, 5);
  if (bytes.one_in(4)) {
    for (std::int64_t b = 0; b < shape.batch; b++) {
      call.key_begin.push_back(static_cast<std::int32_t>(bytes.whole(0, shape.keys)));
      call.key_end.push_back(static_cast<std::int32_t>(std::min(shape.keys, call.key_begin.back() + bytes.whole(0, shape.keys))));
    }
    options.key_begin = call.key_begin;
    options.key_end = call.key_end;
  } else if (bytes.one_in(4)) {
    const std::int64_t documents = bytes.whole(1, 4);
    call.documents_q = read_documents(bytes, documents, shape.queries);
    call.documents_k = read_documents(bytes, documents, shape.keys);
    options.cu_seqlens_q = call.documents_q;
    options.cu_seqlens_k = call.documents_k;
  }
  call.mask = key_intervals(options);
  call.options.mask = &call.mask;
}

void read_bias(Bytes& bytes, Call& call) {
  const std::int64_t heads = call.shape.heads;
  if (bytes.one_in(3)) {
    SlopeBias slopes{{}, bytes.one_in(2)};
    for (std::int64_t h = 0; h < heads; h++) slopes.slopes.push_back(bytes.one_in(5) ? 30.f : std::abs(number(bytes)));
    call.bias.emplace_back(slopes);
  }
  if (bytes.one_in(3)) {
    const std::int64_t distances = bytes.whole(1, 30);
    call.bias.emplace_back(DistanceBias{heads, bytes.whole(-20, 5), distances, numbers(bytes, heads * distances)});
  }
  if (bytes.one_in(5)) {
    call.bias.emplace_back(FireBias{heads, std::abs(number(bytes)), 8, 1e-6f, numbers(bytes, 5), numbers(bytes, 5),
                                    numbers(bytes, 5 * heads), numbers(bytes, heads)});
  }
  if (bytes.one_in(6)) {
    GridBias grid{heads, bytes.whole(1, 3), bytes.whole(1, 4), bytes.one_in(2), {}};
    grid.values = numbers(bytes, heads * ((2 * grid.height - 1) * (2 * grid.width - 1) + (grid.class_token ? 3 : 0)));
    call.bias.emplace_back(grid);
  }
  call.options.bias = call.bias;
}

void read_mask_tensor(Bytes& bytes, Call& call) {
  const auto& shape = call.shape;
  MaskTensor mask;
  const bool by_batch = bytes.one_in(2), by_head = bytes.one_in(2);
  const std::int64_t plane = shape.queries * shape.keys;
  mask.strides = {by_batch ? plane * (by_head ? shape.heads : 1) : 0, by_head ? plane : 0, shape.keys, 1};
  const auto size = static_cast<std::size_t>(plane * (by_batch ? shape.batch : 1) * (by_head ? shape.heads : 1)) + 1;
  mask.kind = bytes.one_in(2) ? MaskTensor::Kind::additive : MaskTensor::Kind::boolean;
  std::uint32_t state = static_cast<std::uint32_t>(bytes.byte());
  for (std::size_t i = 0; i < size; i++) {
    state = state * 1664525 + 1013904223;
    const bool hidden = state >> 30 == 0;
    call.boolean.push_back(hidden ? 0 : 1);
    call.additive.push_back(hidden ? -std::numeric_limits<float>::infinity() : static_cast<float>(state >> 16) * 0x1p-15f);
  }
  mask.data = mask.kind == MaskTensor::Kind::boolean ? static_cast<const void*>(call.boolean.data()) : call.additive.data();
  call.options.mask_tensor = mask;
}

void read_options(Bytes& bytes, Call& call) {
  if (!bytes.one_in(4)) read_mask(bytes, call);
  read_bias(bytes, call);
  if (bytes.one_in(5)) read_mask_tensor(bytes, call);
  if (bytes.one_in(4)) call.options.softcap = 1 + static_cast<double>(bytes.byte()) / 10;
  if (bytes.one_in(4)) call.options.scale = static_cast<double>(number(bytes));
  if (bytes.one_in(4)) call.options.sink_logits = call.sinks = numbers(bytes, call.shape.heads);
  if (bytes.one_in(5)) call.options.query_factors = call.factors = numbers(bytes, call.shape.queries);
  if (call.shape.width % 2 != 0 || !bytes.one_in(3)) return;
  RotarySpec spec{.rule = rotary::Default{}, .theta = 10000};
  spec.head_dim = spec.rotary_dim = static_cast<int>(call.shape.width);
  if (bytes.one_in(2)) spec.layout = PairLayout::interleaved;
  call.frequencies = frequencies(spec);
  const std::int64_t start = bytes.byte() << bytes.whole(0, 20);
  if (bytes.one_in(2)) call.options.rotate_queries = RotationOnLoad{call.frequencies, Range{start, start + call.shape.queries}};
  if (bytes.one_in(2)) call.options.rotate_keys = RotationOnLoad{call.frequencies, Range{start, start + call.shape.keys}};
}

template <class Element>
void compare(const Call& call, const std::vector<Element>& before, const std::vector<Element>& after, const std::vector<double>& truth) {
  // Values are below 2 in size, scores below about 400: a weight is off by their rounding, and in bf16 by its own (and that of rotated
  // keys and queries, which are as large as the scores).
  const bool narrow = sizeof(Element) == 2, rotated = call.options.rotate_queries || call.options.rotate_keys;
  const double slack = sizeof(Element) == 8 ? 1e-11 : narrow ? (rotated ? 2 : 3e-2) : 2e-4;
  std::vector<bool> written(static_cast<std::size_t>(arena));
  call.out.each([&](std::int64_t at, std::int64_t) {
    const auto index = static_cast<std::size_t>(at);
    demand(!written[index], "an element is written once");
    written[index] = true;
    const double ours = testing_support::decode(after[index]);
    // A steep slope lets tiles be skipped, with the NaN in them; the reference skips nothing.
    const bool may_skip = !call.bias.empty() && std::isnan(truth[index]);
    demand(may_skip || std::isnan(ours) == std::isnan(truth[index]), "NaN where the reference has it, and nowhere else");
    if (std::isnan(truth[index])) return;
    demand(std::abs(ours - truth[index]) <= slack + testing_support::half_ulp<Element>(std::abs(truth[index])),
           "the kernel agrees with the reference");
  });
  for (std::size_t i = 0; i < before.size(); i++) {
    demand(written[i] || testing_support::same_bits(after[i], before[i]), "other memory is not touched");
  }
}

template <class Element>
void run(Call& call, bool with_nan) {
  std::vector<Element> memory(static_cast<std::size_t>(arena));
  std::uint32_t state = 1;
  for (auto& element : memory) {
    state = state * 1664525 + 1013904223;
    element = testing_support::encode<Element>(with_nan && state >> 24 == 0 ? std::nan("")
                                                                            : (static_cast<double>(state >> 8) - 0x1p23) * 0x1p-22 * 0.999);
  }
  const auto before = memory;
  const auto on = [&]<class Other>(std::vector<Other>& data, const View& v) {
    return TensorView{data.data() + v.begin, testing_support::dtype_for<Other>(), v.shape, v.strides};
  };
  try {
    attention(on(memory, call.q), on(memory, call.k), on(memory, call.v), on(memory, call.out), call.options);
  } catch (const Error& error) {
    demand(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::out_of_range, "a refusal names its reason");
    demand(std::memcmp(memory.data(), before.data(), before.size() * sizeof(Element)) == 0, "a refusal writes nothing");
    return;
  }
  std::vector<double> truth;
  for (const auto& element : before) truth.push_back(testing_support::decode(element));
  call.options.executor = nullptr;
  reference::attention(on(truth, call.q), on(truth, call.k), on(truth, call.v), on(truth, call.out), call.options);
  compare(call, before, memory, truth);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  static fuzz::Backwards backwards;
  const auto dtype = static_cast<DType>(bytes.whole(0, 3));
  Call call{};
  const auto& shape = call.shape = read_shape(bytes);
  read_options(bytes, call);
  if (bytes.one_in(2)) call.options.executor = &backwards;
  const bool with_nan = bytes.one_in(6);
  call.q = fuzz::read_view(bytes, {shape.batch, shape.heads, shape.queries, shape.width}, 0);
  call.k = fuzz::read_view(bytes, {shape.batch, shape.kv_heads, shape.keys, shape.width}, arena / 4);
  call.v = fuzz::read_view(bytes, {shape.batch, shape.kv_heads, shape.keys, shape.value_width}, arena / 2);
  call.out = fuzz::read_view(bytes, {shape.batch, shape.heads, shape.queries, shape.value_width}, arena - arena / 4);
  for (const auto* view : {&call.q, &call.k, &call.v, &call.out}) {
    if (!view->fits()) return 0;
  }
  if (dtype == DType::f64) run<double>(call, with_nan);
  if (dtype == DType::f32) run<float>(call, with_nan);
  if (dtype == DType::bf16) run<std::uint16_t>(call, with_nan);
  if (dtype == DType::f16) run<Half>(call, with_nan);
  return 0;
}

std::vector<std::string> fuzz_seeds() { return gnomon::fuzz::random_seeds(400); }
std::vector<std::string> fuzz_dictionary() { return gnomon::fuzz::byte_pieces(); }
