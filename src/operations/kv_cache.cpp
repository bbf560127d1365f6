// SPDX-License-Identifier: Apache-2.0
// kv_cache: each operation makes the rotation that turns cached keys from where they are to where they should be; rotate does the rest.
#include "gnomon/kv_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gnomon/error.hpp"
#include "operations/rotate.hpp"
#include "operations/tasks.hpp"
#include "operations/views.hpp"

namespace gnomon {
namespace {

std::byte* at(const ConstTensorView& view, std::int64_t b, std::int64_t h, std::int64_t t) {
  const std::int64_t index = b * view.strides[0] + h * view.strides[1] + t * view.strides[2];
  return static_cast<std::byte*>(const_cast<void*>(view.data)) + index * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Tokens [begin, begin + number) of batch row b.
TensorView tokens_of(const ConstTensorView& view, std::int64_t b, std::int64_t begin, std::int64_t number) {
  return {at(view, b, 0, begin), view.dtype, {1, view.shape[1], number, view.shape[3]}, view.strides};
}

void check_written_in_place(std::string_view name, const TensorView& view) {
  if (!is_empty(view) && overlaps_itself(view)) {
    refuse(fmt::format("{}: its strides make elements share memory, so it cannot be written", name));
  }
}

void check_turns(std::string_view name, const Rotation& rotation) {
  if (!rotation.table) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: a table gives angles, whose differences are not in it; expected exact frequencies", name));
}

/// What moves keys by a distance: the same turns without the magnitude, which the keys have; xpos counts from where they were.
Rotation moving(const Rotation& rotation) {
  check_turns("rotation", rotation);
  Rotation moves = rotation;
  moves.magnitude = 1;
  moves.centre = 0;
  return moves;
}

void rotate_keys(const TensorView& keys, const Rotation& rotation, const Positions& positions, Executor* executor,
                 kernels::CosSin cos_sin = kernels::CosSin::by_phase) {
  check_view("keys", keys, rotation.head_dim, "head_dim of the spec");
  check_written_in_place("keys", keys);
  const RotateOperand operand{keys, keys, Side::key};
  const RotateOptions options{.executor = executor};
  const auto strides = check_rotate({&operand, 1}, rotation, positions, options);
  if (!is_empty(keys)) run_rotate({&operand, 1}, rotation, positions, strides, options, cos_sin);
}

/// Tokens [begin, begin + groups · together) of every row, all of a row by one delta. To the kernel, `together` tokens are the heads of one
/// token, for which it makes cos and sin once, and each head is a tensor.
void shift_groups(const TensorView& keys, const Rotation& moves, std::span<const std::int64_t> deltas, std::int64_t begin,
                  std::int64_t groups, std::int64_t together, Executor* executor) {
  const std::int64_t batch = keys.shape[0], step = keys.strides[2], axes = moves.axes();
  if (batch * groups * together == 0) return;
  std::vector<RotateOperand> operands;
  for (std::int64_t h = 0; h < keys.shape[1]; h++) {
    const TensorView view{
        at(keys, 0, h, begin), keys.dtype, {batch, together, groups, keys.shape[3]}, {keys.strides[0], step, together * step, 1}};
    operands.push_back({view, view, Side::key});
  }
  std::vector<std::int64_t> positions;
  for (std::int64_t row = 0; row < axes * batch; row++) {
    const std::int64_t from = static_cast<std::int64_t>(deltas.size()) == axes ? row / batch : row;
    positions.insert(positions.end(), static_cast<std::size_t>(groups), deltas[static_cast<std::size_t>(from)]);
  }
  const RotateOptions options{.executor = executor};
  const Positions ids = Ids{positions};
  run_rotate(operands, moves, ids, check_rotate(operands, moves, ids, options), options);
}

/// The difference of two numbers of turns, borrowing from the whole ones: what a real position needs.
Turns difference(const Turns& to, const Turns& from) {
  return {to.whole - from.whole - (to.fraction < from.fraction ? 1 : 0), to.fraction - from.fraction};
}

void check_alike(const Rotation& from, const Rotation& to) {
  const auto check = [](std::string_view what, std::int64_t old_number, std::int64_t new_number) {
    if (old_number != new_number) refuse(fmt::format("to: expected {} as in from ({}), got {}", what, old_number, new_number));
  };
  check("head_dim", from.head_dim, to.head_dim);
  check("rotary_offset", from.rotary_offset, to.rotary_offset);
  check("as many pairs", from.pairs(), to.pairs());
  check("position axes", from.axes(), to.axes());
  if (from.layout != to.layout) refuse("to: expected the pair layout of from; convert_layout moves channels");
  if (from.axes() > 1 && !std::equal(from.axis.begin(), from.axis.end(), to.axis.begin(), to.axis.end())) {
    refuse("to: expected each pair on the axis it has in from");
  }
  if (!std::isfinite(from.magnitude) || from.magnitude == 0) {
    refuse(fmt::format("from: expected a magnitude other than 0, got {}", from.magnitude));
  }
  if (!from.log_magnitude.empty() && !to.log_magnitude.empty() && from.centre != to.centre) {
    throw Error(ErrorCode::unsupported, fmt::format("to: expected the centre of xpos in from ({}), got {}", from.centre, to.centre));
  }
}

double log_magnitude(const Rotation& rotation, std::size_t pair) {
  return rotation.log_magnitude.empty() ? 0 : rotation.log_magnitude[pair];
}

}  // namespace

void shift_keys(const TensorView& keys, const Rotation& rotation, std::span<const std::int64_t> deltas, Executor* executor) {
  const Rotation moves = moving(rotation);
  check_view("keys", keys, moves.head_dim, "head_dim of the spec");
  check_written_in_place("keys", keys);
  const std::int64_t axes = moves.axes(), given = static_cast<std::int64_t>(deltas.size());
  if (given != axes && given != axes * keys.shape[0]) {
    refuse(fmt::format("deltas: expected {} or {} x {} numbers (position axes, batch), got {}", axes, axes, keys.shape[0], given));
  }
  if (is_empty(keys)) return;
  TensorView rows = keys;
  if (keys.strides[2] == keys.shape[1] * keys.strides[1]) {  // heads inside tokens: one long row
    rows.shape = {keys.shape[0], 1, keys.shape[1] * keys.shape[2], keys.shape[3]};
    rows.strides[2] = keys.strides[1];
  }
  constexpr std::int64_t together = 64;
  const std::int64_t groups = rows.shape[2] / together, left = rows.shape[2] % together;
  shift_groups(rows, moves, deltas, groups * together, 1, left, executor);
  shift_groups(rows, moves, deltas, 0, groups, together, executor);
}

void shift_keys(const TensorView& keys, const Rotation& rotation, const Positions& deltas, Executor* executor) {
  rotate_keys(keys, moving(rotation), deltas, executor);
}

void rebase_keys(const TensorView& keys, const Rotation& from, const Rotation& to, const Positions& positions, Executor* executor) {
  check_turns("from", from);
  check_turns("to", to);
  check_alike(from, to);
  const auto pairs = static_cast<std::size_t>(from.pairs());
  std::vector<Turns> turns(pairs);
  std::vector<double> decays(from.log_magnitude.empty() && to.log_magnitude.empty() ? 0 : pairs);
  for (std::size_t i = 0; i < pairs; i++) turns[i] = difference(to.turns[i], from.turns[i]);
  for (std::size_t i = 0; i < decays.size(); i++) decays[i] = log_magnitude(to, i) - log_magnitude(from, i);
  Rotation change = to;
  change.turns = turns;
  change.log_magnitude = decays;
  if (to.log_magnitude.empty()) change.centre = from.centre;
  change.magnitude = to.magnitude / from.magnitude;
  // A cache has few heads, so cos and sin of its tokens would cost as much as the keys; those of two bytes hide what steps are off by.
  const bool hidden = size_of(keys.dtype) == 2;
  rotate_keys(keys, change, positions, executor, hidden ? kernels::CosSin::by_steps : kernels::CosSin::by_phase);
}

namespace {

void check_values(const ConstTensorView& keys, const ConstTensorView& values, std::string_view key_name, std::string_view name) {
  check_view(name, values, values.shape[3], "width of a value");
  for (std::size_t axis = 0; axis < 3; axis++) {
    if (values.shape[axis] == keys.shape[axis]) continue;
    refuse(fmt::format("{}: expected the shape of {} on axes 0 to 2, {}, got {}", name, key_name, text(keys.shape), text(values.shape)));
  }
}

void check_apart(const ConstTensorView& a, const ConstTensorView& b, std::string_view name, std::string_view other) {
  if (!is_empty(a) && !is_empty(b) && !are_apart(a, b)) {
    refuse(fmt::format("{}: overlaps {}; expected memory of its own", name, other));
  }
}

/// Tokens [begin, begin + number) of one row moved to `to`, in their order, so that none is overwritten before it is read.
void move_tokens(const TensorView& view, std::int64_t b, std::int64_t begin, std::int64_t number, std::int64_t to) {
  const auto row = static_cast<std::size_t>(view.shape[3]) * size_of(view.dtype);
  for (std::int64_t h = 0; h < view.shape[1]; h++) {
    if (view.strides[2] == view.shape[3]) {
      std::memmove(at(view, b, h, to), at(view, b, h, begin), static_cast<std::size_t>(number) * row);
      continue;
    }
    for (std::int64_t t = 0; t < number; t++) std::memcpy(at(view, b, h, to + t), at(view, b, h, begin + t), row);
  }
}

std::int64_t bytes_of(const ConstTensorView& view) {
  return view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3] * static_cast<std::int64_t>(size_of(view.dtype));
}

}  // namespace

std::vector<std::int32_t> evict_tokens(const TensorView& keys, const TensorView& values, std::span<const std::int32_t> lengths,
                                       std::int64_t keep_first, std::int64_t keep_last, const Rotation* rotation, Executor* executor) {
  check_view("keys", keys, rotation != nullptr ? rotation->head_dim : keys.shape[3], "head_dim of the spec");
  check_values(keys, values, "keys", "values");
  check_written_in_place("keys", keys);
  check_written_in_place("values", values);
  check_apart(keys, values, "values", "keys");
  for (const auto& [name, number] : {std::pair("keep_first", &keep_first), std::pair("keep_last", &keep_last)}) {
    if (*number < 0) refuse(fmt::format("{}: expected at least 0, got {}", name, *number));
    *number = std::min(*number, keys.shape[2]);  // there are no more, and sums stay in range
  }
  if (rotation != nullptr && rotation->axes() != 1) {
    refuse(fmt::format("rotation: expected one position axis, got {}; evict without a rotation, then shift_keys", rotation->axes()));
  }
  if (static_cast<std::int64_t>(lengths.size()) != keys.shape[0])
    refuse(fmt::format("lengths: expected {} numbers (batch), got {}", keys.shape[0], lengths.size()));
  for (const auto length : lengths) {
    if (length < 0 || length > keys.shape[2]) refuse(fmt::format("lengths: expected 0 to {}, got {}", keys.shape[2], length));
  }
  std::vector<std::int32_t> kept(lengths.begin(), lengths.end());
  const auto surplus = [&](std::int64_t b) { return lengths[static_cast<std::size_t>(b)] - keep_first - keep_last; };
  if (rotation != nullptr && !lengths.empty()) {
    const auto one = tokens_of(keys, 0, 0, 1);
    const RotateOperand operand{one, one, Side::key};
    const std::int64_t farthest = std::min<std::int64_t>(keep_first + keep_last - *std::max_element(lengths.begin(), lengths.end()), 0);
    check_rotate({&operand, 1}, moving(*rotation), Ids{{&farthest, 1}}, {});
  }
  run_tasks(executor_worth(bytes_of(keys) + bytes_of(values), executor), static_cast<std::size_t>(keys.shape[0]), [&](std::size_t row) {
    const auto b = static_cast<std::int64_t>(row);
    if (surplus(b) <= 0) return;
    for (const auto* view : {&keys, &values}) move_tokens(*view, b, keep_first + surplus(b), keep_last, keep_first);
  });
  for (std::int64_t b = 0; b < keys.shape[0]; b++) {
    if (surplus(b) <= 0) continue;
    kept[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(keep_first + keep_last);
    const std::int64_t delta = -surplus(b);
    if (rotation != nullptr) shift_keys(tokens_of(keys, b, keep_first, keep_last), *rotation, std::span(&delta, 1), executor);
  }
  return kept;
}

namespace {

/// Consecutive tokens of a batch row that go to consecutive slots of one row of the cache, or of one page.
struct Run {
  std::int64_t b, token, number;
  std::int64_t row, slot;  // of the cache
};

class Appending {
 public:
  Appending(const ConstTensorView& k, const ConstTensorView& v, const TensorView& keys, const TensorView& values, const Slots& slots,
            const AppendOptions& options)
      : k_(k), v_(v), keys_(keys), values_(values), slots_(slots.values), options_(options) {
    check_shapes();
    if (options.rotate_keys) {
      const RotateOperand operand{k, {const_cast<void*>(k.data), k.dtype, k.shape, k.strides}, Side::key};
      strides_ = check_rotate({&operand, 1}, options.rotate_keys->rotation, options.rotate_keys->positions, {});
    }
    check_memory();
    find_runs();
    check_runs();
  }

  void run() const {
    if (runs_.empty()) return;
    std::optional<PositionGrid> grid;
    if (options_.rotate_keys) grid.emplace(options_.rotate_keys->positions, strides_);
    Executor* const within = runs_.size() == 1 ? options_.executor : nullptr;
    run_tasks(executor_worth(bytes_of(k_) + bytes_of(v_), options_.executor), runs_.size(), [&](std::size_t task) {
      const Run& one = runs_[task];
      grid ? rotate_run(one, *grid, within) : copy_run(k_, keys_, one);
      copy_run(v_, values_, one);
    });
  }

 private:
  bool is_paged() const { return !options_.block_table.empty(); }
  std::int64_t blocks() const { return static_cast<std::int64_t>(options_.block_table.size()) / std::max<std::int64_t>(k_.shape[0], 1); }
  std::int64_t capacity() const { return is_paged() ? blocks() * keys_.shape[2] : keys_.shape[2]; }

  void check_shapes() const {
    check_view("k", k_, k_.shape[3], "width of a head");
    check_values(k_, v_, "k", "v");
    check_view("keys", keys_, k_.shape[3], "width of k");
    check_view("values", values_, v_.shape[3], "width of v");
    check_values(keys_, values_, "keys", "values");
    if (keys_.shape[1] != k_.shape[1])
      refuse(fmt::format("keys: expected the {} heads of k on axis 1, got {}", k_.shape[1], keys_.shape[1]));
    if (!is_paged() && keys_.shape[0] != k_.shape[0])
      refuse(fmt::format("keys: expected the batch of k ({}) on axis 0, got {}", k_.shape[0], keys_.shape[0]));
    if (is_paged() && (k_.shape[0] == 0 || static_cast<std::int64_t>(options_.block_table.size()) % k_.shape[0] != 0)) {
      refuse(
          fmt::format("block_table: expected a multiple of {} numbers (batch x blocks), got {}", k_.shape[0], options_.block_table.size()));
    }
    for (const auto& [name, dtype] : {std::pair("v", v_.dtype), std::pair("keys", keys_.dtype), std::pair("values", values_.dtype)}) {
      if (dtype != k_.dtype) refuse(fmt::format("{}: expected the dtype of k ({}), got {}", name, name_of(k_.dtype), name_of(dtype)));
    }
    const auto given = static_cast<std::int64_t>(slots_.size());
    if (given != k_.shape[0] && given != k_.shape[0] * k_.shape[2]) {
      refuse(fmt::format("slots: expected {} or {} x {} numbers (batch, tokens), got {}", k_.shape[0], k_.shape[0], k_.shape[2], given));
    }
  }

  void check_memory() const {
    check_written_in_place("keys", keys_);
    check_written_in_place("values", values_);
    check_apart(keys_, values_, "values", "keys");
    for (const auto& [name, view] : {std::pair("keys", &keys_), std::pair("values", &values_)}) {
      check_apart(*view, k_, name, "k");
      check_apart(*view, v_, name, "v");
    }
  }

  std::int64_t slot_of(std::int64_t b, std::int64_t t) const {
    const std::int64_t batch = k_.shape[0], tokens = k_.shape[2];
    if (static_cast<std::int64_t>(slots_.size()) == batch * tokens) return slots_[static_cast<std::size_t>(b * tokens + t)];
    return slots_[static_cast<std::size_t>(b)] + t;
  }

  void find_runs() {
    for (std::int64_t b = 0; b < k_.shape[0]; b++) {
      for (std::int64_t t = 0; t < k_.shape[2]; t++) {
        const std::int64_t slot = slot_of(b, t);
        const bool listed = static_cast<std::int64_t>(slots_.size()) == k_.shape[0] * k_.shape[2];
        if (slot == -1 && listed) continue;
        if (slot < 0 || slot >= capacity()) {
          throw Error(ErrorCode::out_of_range,
                      fmt::format("slots: row {} of the cache has slots 0 to {}, token {} got {}", b, capacity() - 1, t, slot));
        }
        add(b, t, slot);
      }
    }
  }

  void add(std::int64_t b, std::int64_t t, std::int64_t slot) {
    std::int64_t row = b;
    if (is_paged()) {
      row = options_.block_table[static_cast<std::size_t>(b * blocks() + slot / keys_.shape[2])];
      if (row < 0 || row >= keys_.shape[0]) {
        throw Error(ErrorCode::out_of_range, fmt::format("block_table: the cache has pages 0 to {}, got {}", keys_.shape[0] - 1, row));
      }
      slot %= keys_.shape[2];
    }
    if (!runs_.empty()) {
      Run& last = runs_.back();
      if (last.b == b && last.row == row && last.token + last.number == t && last.slot + last.number == slot) {
        last.number++;
        return;
      }
    }
    runs_.push_back({b, t, 1, row, slot});
  }

  void check_runs() const {
    std::vector<Run> sorted = runs_;
    std::sort(sorted.begin(), sorted.end(), [](const Run& a, const Run& b) { return a.row != b.row ? a.row < b.row : a.slot < b.slot; });
    for (std::size_t i = 1; i < sorted.size(); i++) {
      const Run &one = sorted[i - 1], &next = sorted[i];
      if (one.row != next.row || one.slot + one.number <= next.slot) continue;
      refuse(fmt::format("slots: two tokens go to slot {} of {} {}", next.slot, is_paged() ? "page" : "row", next.row));
    }
  }

  void rotate_run(const Run& one, const PositionGrid& grid, Executor* executor) const {
    const Rotation& rotation = options_.rotate_keys->rotation;
    const RotateOperand operand{tokens_of(k_, one.b, one.token, one.number), tokens_of(keys_, one.row, one.slot, one.number), Side::key};
    std::vector<std::int64_t> ids;
    std::vector<double> reals;
    for (std::int64_t axis = 0; axis < rotation.axes(); axis++) {
      for (std::int64_t t = one.token; t < one.token + one.number; t++) {
        if (grid.is_real())
          reals.push_back(grid.real(static_cast<int>(axis), one.b, 0, t));
        else
          ids.push_back(grid.whole(static_cast<int>(axis), one.b, 0, t));
      }
    }
    const Positions positions = grid.is_real() ? Positions(Reals{reals}) : Positions(Ids{ids});
    const PositionGrid::Strides strides{rotation.axes() > 1 ? one.number : 0, 0, 0};
    run_rotate({&operand, 1}, rotation, positions, strides, {.executor = executor});
  }

  static void copy_run(const ConstTensorView& from, const TensorView& to, const Run& one) {
    const auto row = static_cast<std::size_t>(from.shape[3]) * size_of(from.dtype);
    for (std::int64_t h = 0; h < from.shape[1]; h++) {
      for (std::int64_t t = 0; t < one.number; t++) {
        std::memcpy(at(to, one.row, h, one.slot + t), at(from, one.b, h, one.token + t), row);
      }
    }
  }

  const ConstTensorView &k_, &v_;
  const TensorView &keys_, &values_;
  std::span<const std::int32_t> slots_;
  const AppendOptions& options_;
  PositionGrid::Strides strides_;
  std::vector<Run> runs_;
};

}  // namespace

void append_tokens(const ConstTensorView& k, const ConstTensorView& v, const TensorView& keys, const TensorView& values, const Slots& slots,
                   const AppendOptions& options) {
  Appending(k, v, keys, values, slots, options).run();
}

}  // namespace gnomon
