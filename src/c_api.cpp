// SPDX-License-Identifier: Apache-2.0
// ⑤ The C ABI over the public C++ headers: each function checks what C cannot promise, then calls its C++ namesake.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gnomon/attention.hpp"
#include "gnomon/embed.hpp"
#include "gnomon/frequencies.hpp"
#include "gnomon/gnomon.h"
#include "gnomon/rotate.hpp"
#include "gnomon/table.hpp"

struct gnomon_rotary {
  gnomon::Frequencies frequencies;
};

namespace {

using gnomon::Error, gnomon::ErrorCode;

// The text holds the message unless there is no memory for it; then a literal stands in.
thread_local std::string last_error_text;
thread_local const char* last_error = "";

gnomon_status fail(gnomon_status status, const char* message) noexcept {
  try {
    last_error_text = message;
    last_error = last_error_text.c_str();
  } catch (...) {
    last_error = "out of memory";
  }
  return status;
}

gnomon_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return GNOMON_INVALID_ARGUMENT;
    case ErrorCode::out_of_range:
      return GNOMON_OUT_OF_RANGE;
    case ErrorCode::unsupported:
      return GNOMON_UNSUPPORTED;
    case ErrorCode::malformed:
      return GNOMON_MALFORMED;
    case ErrorCode::io:
      break;  // no function of the ABI reads files
  }
  return GNOMON_INTERNAL;
}

/// Runs the body of a function of the ABI; what it throws becomes a status and a message.
template <class Body>
gnomon_status guarded(const Body& body) noexcept {
  try {
    body();
    return GNOMON_OK;
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(GNOMON_OUT_OF_MEMORY, "out of memory");
  } catch (const std::length_error&) {
    return fail(GNOMON_OUT_OF_MEMORY, "out of memory");  // a container asked for more than there can be
  } catch (const std::exception& error) {
    return fail(GNOMON_INTERNAL, error.what());
  } catch (...) {
    return fail(GNOMON_INTERNAL, "unknown exception");
  }
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

template <class Value>
Value& required(std::string_view name, Value* pointer) {
  if (pointer == nullptr) refuse(fmt::format("{}: expected a pointer, got null", name));
  return *pointer;
}

/// The C++ value of an integer from C, where the enumerators of both stand in the same order.
template <class Enum>
Enum choice(std::string_view name, std::int32_t value, std::initializer_list<std::string_view> names) {
  if (value >= 0 && static_cast<std::size_t>(value) < names.size()) return static_cast<Enum>(value);
  std::string expected;
  for (const auto* each = names.begin(); each != names.end(); ++each) {
    expected += fmt::format("{}{} ({})", each == names.begin() ? "" : " | ", *each, each - names.begin());
  }
  refuse(fmt::format("{}: expected {}, got {}", name, expected, value));
}

static_assert(static_cast<int>(gnomon::Numerics::hf) == GNOMON_HF && static_cast<int>(gnomon::Direction::transposed) == GNOMON_TRANSPOSED);
static_assert(static_cast<int>(gnomon::DType::f64) == GNOMON_F64 && static_cast<int>(gnomon::DType::f32) == GNOMON_F32 &&
              static_cast<int>(gnomon::DType::bf16) == GNOMON_BF16 && static_cast<int>(gnomon::DType::f16) == GNOMON_F16);

gnomon::Numerics numerics_of(gnomon_numerics value) { return choice<gnomon::Numerics>("numerics", value, {"GNOMON_EXACT", "GNOMON_HF"}); }

gnomon::DType dtype_of(std::string_view name, gnomon_dtype value) {
  return choice<gnomon::DType>(name, value, {"GNOMON_F64", "GNOMON_F32", "GNOMON_BF16", "GNOMON_F16"});
}

gnomon::Direction direction_of(gnomon_direction value) {
  return choice<gnomon::Direction>("direction", value, {"GNOMON_FORWARD", "GNOMON_TRANSPOSED"});
}

const gnomon::Frequencies& frequencies_of(const gnomon_rotary* rotary) { return required("rotary", rotary).frequencies; }

gnomon::Range range_of(const gnomon_positions& positions) {
  const auto first = positions.first, bound = gnomon::max_position;
  if (positions.count > 0 && (first < -bound || first > bound)) {
    throw Error(ErrorCode::out_of_range, fmt::format("positions.first: expected a number within ±2^33, got {}", first));
  }
  // A larger count leaves the contract from wherever it starts, and the library says so; the sum must not overflow before.
  const auto count = static_cast<std::int64_t>(std::min<std::uint64_t>(positions.count, 2 * static_cast<std::uint64_t>(bound) + 2));
  return {first, positions.count > 0 ? first + count : first};
}

gnomon::Positions positions_of(const gnomon_positions* pointer) {
  const auto& positions = required("positions", pointer);
  const auto kind = choice<int>("positions.kind", positions.kind, {"GNOMON_RANGE", "GNOMON_IDS"});
  if (kind == GNOMON_RANGE) return range_of(positions);
  return gnomon::Ids{{&required("positions.ids", positions.ids), positions.count}};
}

gnomon::TensorView view_of(std::string_view name, const gnomon_tensor* pointer) {
  const auto& tensor = required(name, pointer);
  gnomon::TensorView view{tensor.data, dtype_of(fmt::format("{}.dtype", name), tensor.dtype), {}, {}};
  std::copy_n(tensor.shape, 4, view.shape.begin());
  std::copy_n(tensor.strides, 4, view.strides.begin());
  return view;
}

/// The caller's threads as an executor.
class CallerThreads final : public gnomon::Executor {
 public:
  explicit CallerThreads(const gnomon_executor& executor) : executor_(executor) {
    if (executor.run == nullptr) refuse("executor.run: expected a function, got null");
    if (executor.width < 1) refuse("executor.width: expected at least 1, got 0");
  }
  void run(std::size_t tasks, const std::function<void(std::size_t)>& body) override {
    const auto call = [](void* function, std::size_t task) { (*static_cast<const std::function<void(std::size_t)>*>(function))(task); };
    executor_.run(executor_.context, tasks, call, const_cast<std::function<void(std::size_t)>*>(&body));
  }
  std::size_t width() const override { return executor_.width; }

 private:
  const gnomon_executor& executor_;
};

/// A list of the caller's, or none.
template <class Number>
std::span<const Number> list_of(const Number* pointer, std::int64_t count) {
  return pointer == nullptr ? std::span<const Number>() : std::span(pointer, static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
}

gnomon::KeyIntervals intervals_of(const gnomon_attention_options& options, std::int64_t batch, std::int64_t queries, std::int64_t keys) {
  const auto given = [](std::string_view name, std::int64_t value) -> std::optional<std::int64_t> {
    if (value < 0) refuse(fmt::format("options.{}: expected at least 0, got {}", name, value));
    return value == 0 ? std::nullopt : std::optional(value);
  };
  gnomon::MaskOptions result({options.causal != 0, given("window", options.window), given("chunk", options.chunk), options.keep_first},
                             queries, keys);
  result.alignment = choice<gnomon::Alignment>("options.alignment", options.alignment, {"GNOMON_LOWER_RIGHT", "GNOMON_TOP_LEFT"});
  result.key_begin = list_of(options.key_begin, batch);
  result.key_end = list_of(options.key_end, batch);
  return gnomon::key_intervals(result);
}

std::vector<gnomon::BiasTable> bias_of(const gnomon_attention_options& options, std::int64_t heads) {
  std::vector<gnomon::BiasTable> result;
  if (options.slopes != nullptr) {
    const auto slopes = list_of(options.slopes, heads);
    result.emplace_back(gnomon::SlopeBias{{slopes.begin(), slopes.end()}, options.symmetric != 0});
  }
  if (options.distance_rows == nullptr) return result;
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (options.distances < 1 || options.distances > most)
    refuse(fmt::format("options.distances: expected 1 to 2^40, got {}", options.distances));
  const auto rows = list_of(options.distance_rows, heads * options.distances);
  result.emplace_back(gnomon::DistanceBias{heads, options.least, options.distances, {rows.begin(), rows.end()}});
  return result;
}

}  // namespace

const char* gnomon_version(void) { return GNOMON_VERSION; }

const char* gnomon_last_error(void) { return last_error; }

gnomon_status gnomon_rotary_create(const char* json, gnomon_numerics numerics, int64_t length, gnomon_rotary** rotary) {
  return guarded([&] {
    auto& result = required("rotary", rotary);
    const auto spec = gnomon::rotary_from_json(&required("json", json));
    const auto given = length == 0 ? std::nullopt : std::optional(length);
    result = new gnomon_rotary{gnomon::frequencies(spec, numerics_of(numerics), given)};
  });
}

void gnomon_rotary_destroy(gnomon_rotary* rotary) { delete rotary; }

gnomon_status gnomon_rotary_pairs(const gnomon_rotary* rotary, size_t* pairs) {
  return guarded([&] { required("pairs", pairs) = frequencies_of(rotary).inv_freq.size(); });
}

gnomon_status gnomon_rotary_inv_freq(const gnomon_rotary* rotary, const double** inv_freq) {
  return guarded([&] { required("inv_freq", inv_freq) = frequencies_of(rotary).inv_freq.data(); });
}

gnomon_status gnomon_rotary_attention_factor(const gnomon_rotary* rotary, double* attention_factor) {
  return guarded([&] { required("attention_factor", attention_factor) = frequencies_of(rotary).attention_factor; });
}

gnomon_status gnomon_rotary_table(const gnomon_rotary* rotary, const gnomon_positions* positions, gnomon_dtype dtype, void* cos,
                                  void* sin) {
  return guarded([&] {
    if (cos == nullptr) refuse("cos: expected a pointer, got null");
    if (sin == nullptr) refuse("sin: expected a pointer, got null");
    const auto table = gnomon::rotary_table(frequencies_of(rotary), positions_of(positions), dtype_of("dtype", dtype));
    std::memcpy(cos, table.cos.data(), table.cos.size());
    std::memcpy(sin, table.sin.data(), table.sin.size());
  });
}

gnomon_status gnomon_rotate(const gnomon_rotary* rotary, const gnomon_tensor* x, const gnomon_tensor* out,
                            const gnomon_positions* positions, gnomon_direction direction) {
  return guarded([&] {
    const auto& frequencies = frequencies_of(rotary);
    gnomon::rotate(view_of("x", x), view_of("out", out), frequencies, positions_of(positions), {.direction = direction_of(direction)});
  });
}

gnomon_status gnomon_rotate_qk(const gnomon_rotary* rotary, const gnomon_tensor* q, const gnomon_tensor* q_out, const gnomon_tensor* k,
                               const gnomon_tensor* k_out, const gnomon_positions* positions, gnomon_direction direction,
                               const gnomon_executor* executor) {
  return guarded([&] {
    const auto& frequencies = frequencies_of(rotary);
    const gnomon::RotateOperand operands[] = {{view_of("q", q), view_of("q_out", q_out), gnomon::Side::query},
                                              {view_of("k", k), view_of("k_out", k_out), gnomon::Side::key}};
    std::optional<CallerThreads> threads;
    if (executor != nullptr) threads.emplace(*executor);
    gnomon::rotate(operands, frequencies, positions_of(positions),
                   {.direction = direction_of(direction), .executor = threads ? &*threads : nullptr});
  });
}

gnomon_status gnomon_add_positions(const gnomon_tensor* x, const gnomon_tensor* out, const gnomon_rows* table,
                                   const gnomon_positions* positions, double scale) {
  return guarded([&] {
    const auto& rows = required("table", table);
    const gnomon::RowsView view(rows.data, dtype_of("table.dtype", rows.dtype), rows.rows, rows.width, rows.row_stride, rows.offset);
    gnomon::add_positions(view_of("x", x), view_of("out", out), view, positions_of(positions), {.scale = scale});
  });
}

gnomon_status gnomon_attention(const gnomon_tensor* q, const gnomon_tensor* k, const gnomon_tensor* v, const gnomon_tensor* out,
                               const gnomon_attention_options* options, const gnomon_executor* executor) {
  return guarded([&] {
    const auto query = view_of("q", q), key = view_of("k", k);
    const gnomon_attention_options given = options == nullptr ? gnomon_attention_options{} : *options;
    const auto intervals = intervals_of(given, query.shape[0], query.shape[2], key.shape[2]);
    const auto bias = bias_of(given, query.shape[1]);
    gnomon::AttentionOptions call;
    if (given.scale != 0) call.scale = given.scale;
    if (given.softcap != 0) call.softcap = given.softcap;
    call.bias = bias;
    call.mask = &intervals;
    call.sink_logits = list_of(given.sink_logits, query.shape[1]);
    call.log_sum_exp = given.log_sum_exp;
    std::optional<CallerThreads> threads;
    if (executor != nullptr) call.executor = &threads.emplace(*executor);
    gnomon::attention(query, key, view_of("v", v), view_of("out", out), call);
  });
}
