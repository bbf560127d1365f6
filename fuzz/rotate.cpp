// SPDX-License-Identifier: Apache-2.0
// Bytes as a call of rotate: shapes, strides, positions, layouts, dtypes, tables. What is refused is refused with nothing written; what is
// taken gives what the double reference gives, and writes nothing else.
#include <cmath>
#include <cstring>

#include "check_model.hpp"
#include "fuzz.hpp"
#include "support/strided.hpp"
#include "tensors.hpp"

namespace {

using namespace gnomon;
using fuzz::arena;
using fuzz::Bytes;
using fuzz::demand;
using fuzz::View;
using testing_support::Half;

RotarySpec read_spec(Bytes& bytes) {
  RotarySpec spec;
  const int pairs = static_cast<int>(bytes.whole(1, 40));
  spec.rotary_dim = 2 * pairs;
  spec.rotary_offset = static_cast<int>(bytes.whole(0, 3));
  spec.head_dim = spec.rotary_dim + spec.rotary_offset + static_cast<int>(bytes.whole(0, 3));
  spec.layout = bytes.one_in(2) ? PairLayout::interleaved : PairLayout::half_split;
  spec.theta = 10000;
  spec.rule = rotary::Default{};
  if (bytes.one_in(4)) spec.rule = rotary::Xpos{.scale_base = bytes.one_in(4) ? 0x1p16 : 0x1p33, .centre = bytes.whole(-100, 100)};
  if (bytes.one_in(3)) spec.attention_factor = static_cast<double>(bytes.whole(1, 64)) / 32;
  if (pairs >= 3 && bytes.one_in(3)) {
    spec.sections = {pairs - 2, 1, 1};
    spec.axes = bytes.one_in(2) ? 3 : 1;
    if (spec.axes == 1 && bytes.one_in(2)) spec.section_order = bytes.one_in(2) ? SectionOrder::interleaved : SectionOrder::time_last;
  } else if (pairs % 2 == 0 && bytes.one_in(4)) {
    spec.axes = 2;
  }
  return spec;
}

/// Positions with the memory they borrow.
struct Given {
  std::vector<std::int32_t> narrow;
  std::vector<std::int64_t> wide;
  std::vector<double> reals;
  Positions positions;
};

std::int64_t read_position(Bytes& bytes, bool rows) {
  if (rows) return bytes.one_in(64) ? bytes.whole(-2, 40) : bytes.whole(0, 15);
  switch (bytes.whole(0, 40)) {
    case 0:
      return max_position;
    case 1:
      return -max_position;
    case 2:
      return bytes.one_in(8) ? max_position + 1 : max_position - bytes.byte();
    case 3:
      return (bytes.byte() << 25) + bytes.byte();
    default:
      return bytes.whole(-100, 155) * 17;
  }
}

void read_positions(Bytes& bytes, std::int64_t number, bool rows, Given& given) {
  if (bytes.one_in(16)) number = bytes.whole(0, 60);
  switch (bytes.whole(0, 4)) {
    case 0: {
      const std::int64_t start = rows ? bytes.whole(0, 3) : read_position(bytes, false), step = bytes.one_in(3) ? bytes.whole(-3, 3) : 1;
      given.positions = Range{start, start + number * step, step};
      return;
    }
    case 1: {
      given.narrow = {0};
      while (given.narrow.back() < number) {
        given.narrow.push_back(
            static_cast<std::int32_t>(std::min(number, given.narrow.back() + bytes.whole(0, 12) + (bytes.one_in(2) ? 0 : 1))));
        if (given.narrow.size() > 400) return;
      }
      given.positions = Packed{given.narrow};
      return;
    }
    case 2:
      for (std::int64_t k = 0; k < number; k++) given.narrow.push_back(static_cast<std::int32_t>(read_position(bytes, rows)));
      given.positions = Ids32{given.narrow};
      return;
    case 3:
      for (std::int64_t k = 0; k < number; k++) given.wide.push_back(read_position(bytes, rows));
      given.positions = Ids{given.wide};
      return;
    default:
      for (std::int64_t k = 0; k < number; k++) {
        given.reals.push_back(static_cast<double>(read_position(bytes, rows)) + static_cast<double>(bytes.byte()) / 300);
      }
      given.positions = Reals{given.reals};
  }
}

/// Everything a call needs but its memory.
struct Call {
  Frequencies frequencies;
  std::optional<RotaryTable> table;
  Given given;
  RotateOptions options;
  struct Operand {
    View x, out;
    Side side;
  };
  std::vector<Operand> operands;

  template <class Element>
  std::vector<RotateOperand> on(std::vector<Element>& memory) const {
    std::vector<RotateOperand> result;
    const auto view = [&](const View& v) {
      return TensorView{memory.data() + v.begin, testing_support::dtype_for<Element>(), v.shape, v.strides};
    };
    for (const auto& operand : operands) result.push_back({view(operand.x), view(operand.out), operand.side});
    return result;
  }
  Rotation rotation() const { return table ? Rotation(*table) : Rotation(frequencies); }
};

/// False when a view leaves the arena.
bool read_operands(Bytes& bytes, Call& call, std::int64_t batch, std::int64_t heads, std::int64_t tokens) {
  std::int64_t begin = 0;
  for (std::int64_t left = bytes.whole(1, 3); left > 0; left--) {
    const std::array<std::int64_t, 4> shape{batch, bytes.one_in(3) ? bytes.whole(0, 4) : heads, tokens, call.frequencies.spec.head_dim};
    const auto place = [&] {
      const View view = fuzz::read_view(bytes, shape, begin);
      begin += bytes.one_in(8) ? bytes.whole(-100, 100) : arena / 6;
      return view;
    };
    const View x = place(), out = bytes.one_in(2) ? place() : x;
    if (!x.fits() || !out.fits()) return false;
    call.operands.push_back({x, out, bytes.one_in(2) ? Side::key : Side::query});
  }
  return true;
}

template <class Element>
void compare(const Call& call, const std::vector<Element>& before, const std::vector<Element>& after, const std::vector<double>& truth) {
  const auto& spec = call.frequencies.spec;
  // Numbers are below 2 in size and magnitudes of xpos below 3.6 (with the smaller base, far positions are refused).
  const double size = 4 * 3.6 * call.frequencies.attention_factor, relative = sizeof(Element) == 8 ? 1e-12 : 1.25e-7 + 6 * 0x1p-24;
  std::vector<bool> written(static_cast<std::size_t>(arena));
  for (const auto& [x, out, side] : call.operands) {
    std::vector<std::int64_t> from;
    x.each([&](std::int64_t at, std::int64_t) { from.push_back(at); });
    std::size_t next = 0;
    out.each([&](std::int64_t at, std::int64_t d) {
      const auto index = static_cast<std::size_t>(at), source = static_cast<std::size_t>(from[next++]);
      demand(!written[index], "an element is written once");
      written[index] = true;
      if (d < spec.rotary_offset || d >= spec.rotary_offset + spec.rotary_dim) {
        return demand(testing_support::same_bits(after[index], before[source]), "a channel that is not rotated passes unchanged");
      }
      const double error = std::abs(testing_support::decode(after[index]) - truth[index]);
      const double bound = size * relative + testing_support::half_ulp<Element>(std::abs(truth[index]) + size * relative);
      demand(error <= bound, "the kernel agrees with the reference");
    });
  }
  for (std::size_t i = 0; i < before.size(); i++) {
    demand(written[i] || testing_support::same_bits(after[i], before[i]), "other memory is not touched");
  }
}

template <class Element>
void run(const Call& call) {
  std::vector<Element> memory(static_cast<std::size_t>(arena));
  std::uint32_t state = 1;
  for (auto& element : memory) {
    state = state * 1664525 + 1013904223;
    element = testing_support::encode<Element>((static_cast<double>(state >> 8) - 0x1p23) * 0x1p-22 * 0.999);
  }
  const auto before = memory;
  try {
    rotate(call.on(memory), call.rotation(), call.given.positions, call.options);
  } catch (const Error& error) {
    demand(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::out_of_range, "a refusal names its reason");
    demand(std::memcmp(memory.data(), before.data(), before.size() * sizeof(Element)) == 0, "a refusal writes nothing");
    return;
  }
  std::vector<double> truth;
  for (const auto& element : before) truth.push_back(testing_support::decode(element));
  reference::rotate(call.on(truth), call.rotation(), call.given.positions, call.options);
  compare(call, before, memory, truth);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  static fuzz::Backwards backwards;
  const auto dtype = static_cast<DType>(bytes.whole(0, 3));
  Call call{frequencies(read_spec(bytes)), {}, {}, {}, {}};
  if (call.frequencies.log_magnitude.empty() && bytes.one_in(3)) {
    call.table = rotary_table(call.frequencies, Range{bytes.byte(), 1000, 50}, static_cast<DType>(bytes.whole(0, 3)));
  }
  const std::int64_t batch = bytes.whole(0, 3), heads = bytes.whole(0, 4),
                     tokens = bytes.one_in(4) ? bytes.whole(0, 80) : bytes.whole(1, 12);
  call.options = {bytes.one_in(2) ? Direction::transposed : Direction::forward, bytes.one_in(4), bytes.one_in(2) ? &backwards : nullptr};
  if (!read_operands(bytes, call, batch, heads, tokens)) return 0;
  const std::int64_t row = call.options.positions_per_head ? call.operands[0].x.shape[1] * tokens : tokens;
  std::int64_t number = bytes.one_in(2) ? batch * row : row;
  if (!call.table && bytes.one_in(2)) number *= position_axes(call.frequencies.spec);
  read_positions(bytes, number, call.table.has_value(), call.given);
  if (dtype == DType::f64) run<double>(call);
  if (dtype == DType::f32) run<float>(call);
  if (dtype == DType::bf16) run<std::uint16_t>(call);
  if (dtype == DType::f16) run<Half>(call);
  return 0;
}

std::vector<std::string> fuzz_seeds() { return gnomon::fuzz::random_seeds(200); }
std::vector<std::string> fuzz_dictionary() { return gnomon::fuzz::byte_pieces(); }
