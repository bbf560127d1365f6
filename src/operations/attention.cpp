// SPDX-License-Identifier: Apache-2.0
// attention: checks its arguments, then runs the first implementation of the list that takes them.
#include "gnomon/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "gnomon/error.hpp"
#include "kernels/attention.hpp"
#include "operations/attention.hpp"
#include "operations/decode.hpp"
#include "operations/rotate.hpp"
#include "operations/tasks.hpp"
#include "operations/views.hpp"

namespace gnomon {

void check_size(std::string_view name, std::size_t size, std::int64_t expected, std::string_view what) {
  if (size != static_cast<std::size_t>(expected)) refuse(fmt::format("{}: expected {} numbers ({}), got {}", name, expected, what, size));
}

void check_heads(const ConstTensorView& q, const ConstTensorView& k) {
  check_view("q", q, q.shape[3], "width of a head");
  if (q.shape[3] < 1 || q.shape[3] > widest_head)
    refuse(fmt::format("q: expected a head width of 1 to {}, got {}", widest_head, q.shape[3]));
  check_view("k", k, q.shape[3], "width of q");
  if (k.shape[0] != q.shape[0]) refuse(fmt::format("k: expected the batch of q ({}) on axis 0, got {}", q.shape[0], k.shape[0]));
  if (k.shape[1] < 1 ? q.shape[1] != 0 : q.shape[1] % k.shape[1] != 0) {
    refuse(fmt::format("k: expected a number of heads on axis 1 that divides those of q ({}), got {}", q.shape[1], k.shape[1]));
  }
  if (k.dtype != q.dtype) refuse(fmt::format("k: expected the dtype of q ({}), got {}", name_of(q.dtype), name_of(k.dtype)));
}

namespace {

void check_numbers(std::string_view name, std::span<const float> numbers) {
  if (std::any_of(numbers.begin(), numbers.end(), [](float value) { return std::isnan(value); }))
    refuse(fmt::format("{}: expected numbers, got NaN", name));
}

/// A grid has cells for the queries and keys of one image, and its mask must not move them off it.
void check_grid(const GridBias& bias, const AttentionShape& shape, const KeyIntervals* mask) {
  const std::int64_t tokens = bias.height * bias.width + (bias.class_token ? 1 : 0);
  if (shape.queries != tokens || shape.keys != tokens) {
    refuse(fmt::format("bias: a grid of {} x {} cells needs {} queries and keys, got {} and {}", bias.height, bias.width, tokens,
                       shape.queries, shape.keys));
  }
  if (mask == nullptr) return;
  for (const auto slot : mask->diagonal) {
    if (slot < 0 || slot >= tokens)
      refuse(fmt::format("mask: a query stands at key slot {}, and the grid has cells 0 to {}", slot, tokens - 1));
  }
}

void check_tables(const AttentionShape& shape, const AttentionOptions& options) {
  for (const auto& table : options.bias) {
    if (heads_of(table) != shape.heads)
      refuse(fmt::format("bias: expected numbers for the {} heads of q, got {}", shape.heads, heads_of(table)));
    try {
      validate(table);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("bias: {}", error.what()));
    }
    if (const auto* grid = std::get_if<GridBias>(&table)) check_grid(*grid, shape, options.mask);
  }
}

void check_mask(const KeyIntervals& mask, const AttentionShape& shape) {
  if (mask.queries != shape.queries || mask.keys != shape.keys) {
    refuse(fmt::format("mask: expected intervals for {} queries and {} keys, got {} and {}", shape.queries, shape.keys, mask.queries,
                       mask.keys));
  }
  if (mask.batch != 1 && mask.batch != shape.batch)
    refuse(fmt::format("mask: expected 1 or {} rows of the batch, got {}", shape.batch, mask.batch));
  if (mask.keep_first < 0) refuse(fmt::format("mask: keep_first: expected at least 0, got {}", mask.keep_first));
  for (const auto* list : {&mask.begin, &mask.end, &mask.first, &mask.diagonal})
    check_size("mask: a list", list->size(), mask.batch * mask.queries, "batch x queries");
  for (std::size_t at = 0; at < mask.end.size(); at++) {
    if (mask.begin[at] >= 0 && mask.begin[at] <= mask.end[at] && mask.end[at] <= mask.keys && mask.first[at] >= 0) continue;
    refuse(fmt::format("mask: expected 0 <= begin <= end <= {} and first >= 0, got {}, {} and {}", mask.keys, mask.begin[at], mask.end[at],
                       mask.first[at]));
  }
}

void check_views(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out) {
  check_heads(q, k);
  check_view("v", v, v.shape[3], "width of a value");
  if (v.shape[3] < 1 || v.shape[3] > widest_head) refuse(fmt::format("v: expected a width of 1 to {}, got {}", widest_head, v.shape[3]));
  for (std::size_t axis = 0; axis < 3; axis++) {
    if (v.shape[axis] != k.shape[axis])
      refuse(fmt::format("v: expected the shape of k on axes 0 to 2, {}, got {}", text(k.shape), text(v.shape)));
  }
  const std::array expected{q.shape[0], q.shape[1], q.shape[2], v.shape[3]};
  check_view("out", out, v.shape[3], "width of v");
  if (out.shape != expected) refuse(fmt::format("out: expected shape {}, got {}", text(expected), text(out.shape)));
  for (const auto& [name, dtype] : {std::pair("v", v.dtype), std::pair("out", out.dtype)}) {
    if (dtype != q.dtype) refuse(fmt::format("{}: expected the dtype of q ({}), got {}", name, name_of(q.dtype), name_of(dtype)));
  }
}

void check_memory(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out) {
  if (is_empty(out)) return;
  if (overlaps_itself(out)) refuse("out: its strides make elements share memory, so it cannot be written");
  for (const auto& [name, view] : {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v)}) {
    if (!is_empty(*view) && !are_apart(out, *view)) refuse(fmt::format("out: overlaps {}; expected memory of its own", name));
  }
}

void check_load(const char* name, const ConstTensorView& x, const std::optional<RotationOnLoad>& load) {
  if (!load) return;
  const RotateOperand operand{x, {const_cast<void*>(x.data), x.dtype, x.shape, x.strides}};
  try {
    check_rotate({&operand, 1}, load->rotation, load->positions, {});
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("rotate_{}: {}", name, error.what()));
  }
}

kernels::AttentionInput input(const ConstTensorView& view) { return {view.data, {view.strides[0], view.strides[1], view.strides[2]}}; }

void set_masks(const AttentionOptions& options, kernels::AttentionJob& job) {
  if (options.mask != nullptr) {
    const auto& mask = *options.mask;
    job.intervals = {mask.begin.data(), mask.end.data(), mask.first.data(), mask.diagonal.data(), mask.keep_first, mask.batch != 1};
  }
  if (!options.mask_tensor) return;
  const auto& tensor = *options.mask_tensor;
  job.mask = {
      tensor.data, tensor.kind == MaskTensor::Kind::additive, {tensor.strides[0], tensor.strides[1], tensor.strides[2], tensor.strides[3]}};
}

/// The kernel of tiles, for many queries: every dtype but f64, and heads whose tiles fit its scratch.
bool run_tiles(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
               const AttentionOptions& options) {
  if (q.dtype == DType::f64 || std::max(q.shape[3], v.shape[3]) > kernels::widest_attention_head) return false;
  kernels::attention(TileCall(q, k, v, out, options).job);
  return true;
}

}  // namespace

TileCall::Load::Load(const ConstTensorView& x, const RotationOnLoad& load)
    : grid(load.positions, grid_strides(load.positions, load.rotation.axes(), x.shape[0], x.shape[1], false, x.shape[2])),
      job(rotate_job(load.rotation, grid)) {}

TileCall::TileCall(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
                   const AttentionOptions& options) {
  job.dtype = q.dtype;
  job.batch = q.shape[0];
  job.heads = q.shape[1];
  job.kv_heads = k.shape[1];
  job.queries = q.shape[2];
  job.keys = k.shape[2];
  job.width = q.shape[3];
  job.value_width = v.shape[3];
  job.q = input(q);
  job.k = input(k);
  job.v = input(v);
  job.out = out.data;
  std::copy_n(out.strides.begin(), 3, job.out_strides);
  job.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape[3])));
  job.softcap = options.softcap.value_or(0);
  job.bias = options.bias;
  set_masks(options, job);
  if (!options.sink_logits.empty()) job.sink_logits = options.sink_logits.data();
  if (!options.query_factors.empty()) job.query_factors = options.query_factors.data();
  job.factors_by_batch = static_cast<std::int64_t>(options.query_factors.size()) != job.queries;
  if (options.rotate_queries) job.rotate_queries = &queries_.emplace(q, *options.rotate_queries).job;
  if (options.rotate_keys) job.rotate_keys = &keys_.emplace(k, *options.rotate_keys).job;
  job.log_sum_exp = options.log_sum_exp;
  job.maximum = options.maximum;
  const double products = static_cast<double>(job.batch * job.heads) * static_cast<double>(job.queries) * static_cast<double>(job.keys) *
                          static_cast<double>(job.width + job.value_width);
  if (products_worth_threads(products)) job.executor = options.executor;
}

void check_options(const AttentionShape& shape, const AttentionOptions& options) {
  if (options.scale && !std::isfinite(*options.scale)) refuse(fmt::format("scale: expected a finite number, got {}", *options.scale));
  if (options.softcap && !(*options.softcap > 0 && std::isfinite(*options.softcap))) {
    refuse(fmt::format("softcap: expected a positive number, got {}", *options.softcap));
  }
  if (options.mask != nullptr) check_mask(*options.mask, shape);
  check_tables(shape, options);
  if (options.mask_tensor && options.mask_tensor->data == nullptr && shape.queries * shape.keys != 0)
    refuse("mask_tensor: expected memory, got null");
  if (!options.sink_logits.empty()) check_size("sink_logits", options.sink_logits.size(), shape.heads, "heads of q");
  check_numbers("sink_logits", options.sink_logits);
  const auto factors = static_cast<std::int64_t>(options.query_factors.size());
  if (factors != 0 && factors != shape.queries && factors != shape.batch * shape.queries) {
    refuse(fmt::format("query_factors: expected {} or {} x {} numbers, got {}", shape.queries, shape.batch, shape.queries, factors));
  }
  check_numbers("query_factors", options.query_factors);
}

void attention(const ConstTensorView& q, const ConstTensorView& k, const ConstTensorView& v, const TensorView& out,
               const AttentionOptions& options) {
  check_views(q, k, v, out);
  check_options({q.shape[0], q.shape[1], q.shape[2], k.shape[2]}, options);
  check_load("queries", q, options.rotate_queries);
  check_load("keys", k, options.rotate_keys);
  check_memory(q, k, v, out);
  if (is_empty(out)) return;
  // The first that takes them.
  const CacheView cache{k, v, k.shape[2]};
  if (decode_fits(q, cache, options)) return decode(q, cache, out, options);
  if (run_tiles(q, k, v, out, options)) return;
  reference::attention(q, k, v, out, options);
}

namespace {

/// Tokens a row of a paged cache has blocks for, and pages it has.
void check_pages(const ConstTensorView& q, const PagedCache& cache) {
  const std::int64_t batch = q.shape[0], pages = cache.keys.shape[0], page_size = cache.keys.shape[2];
  const auto blocks = static_cast<std::int64_t>(cache.block_table.size());
  if (page_size < 1) refuse(fmt::format("k: expected pages of at least 1 token, got {}", page_size));
  check_size("lengths", cache.lengths.size(), batch, "batch");
  if (batch == 0 ? blocks != 0 : blocks % batch != 0) {
    refuse(fmt::format("block_table: expected a multiple of {} numbers (batch x blocks), got {}", batch, blocks));
  }
  for (std::int64_t b = 0; b < batch; b++) {
    const std::int64_t length = cache.lengths[static_cast<std::size_t>(b)];
    if (length < 0 || length > blocks / batch * page_size) {
      throw Error(ErrorCode::out_of_range,
                  fmt::format("lengths: row {} has blocks for 0 to {} tokens, got {}", b, blocks / batch * page_size, length));
    }
    for (std::int64_t block = 0; block * page_size < length; block++) {
      const std::int64_t page = cache.block_table[static_cast<std::size_t>(b * (blocks / batch) + block)];
      if (page >= 0 && page < pages) continue;
      throw Error(ErrorCode::out_of_range,
                  fmt::format("block_table: the cache has pages 0 to {}, block {} of row {} is {}", pages - 1, block, b, page));
    }
  }
}

void check_lengths(const KeyIntervals& mask, std::span<const std::int32_t> lengths) {
  for (std::size_t b = 0; b < lengths.size(); b++) {
    const auto row = static_cast<std::ptrdiff_t>(mask.batch == 1 ? 0 : b) * static_cast<std::ptrdiff_t>(mask.queries);
    const auto begin = mask.end.begin() + row;
    const std::int32_t most = mask.queries == 0 ? 0 : *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(mask.queries));
    if (most > lengths[b]) refuse(fmt::format("mask: row {} has {} keys in the cache, a query sees keys up to {}", b, lengths[b], most));
  }
}

/// The tokens of every row one after the other, as (B,Hk,T,·); zeros where a row has fewer.
class Gathered {
 public:
  Gathered(const ConstTensorView& pages, const PagedCache& cache, std::int64_t batch, std::int64_t tokens)
      : view_(nullptr, pages.dtype, {batch, pages.shape[1], tokens, pages.shape[3]},
              {pages.shape[1] * tokens * pages.shape[3], tokens * pages.shape[3], pages.shape[3], 1}) {
    const auto size = static_cast<std::int64_t>(size_of(pages.dtype)), row = pages.shape[3] * size;
    memory_.resize(static_cast<std::size_t>(batch * view_.strides[0] * size));
    view_.data = memory_.data();
    const auto blocks = static_cast<std::int64_t>(cache.block_table.size()) / batch;
    for (std::int64_t b = 0; b < batch; b++) {
      for (std::int64_t t = 0; t < cache.lengths[static_cast<std::size_t>(b)]; t++) {
        const std::int64_t page = cache.block_table[static_cast<std::size_t>(b * blocks + t / pages.shape[2])];
        for (std::int64_t h = 0; h < pages.shape[1]; h++) {
          const std::int64_t from = page * pages.strides[0] + h * pages.strides[1] + t % pages.shape[2] * pages.strides[2];
          std::copy_n(static_cast<const std::byte*>(pages.data) + from * size, row,
                      memory_.data() + (b * view_.strides[0] + h * view_.strides[1] + t * view_.strides[2]) * size);
        }
      }
    }
  }
  const ConstTensorView& view() const { return view_; }

 private:
  ConstTensorView view_;
  std::vector<std::byte> memory_;
};

}  // namespace

void attention(const ConstTensorView& q, const PagedCache& cache, const TensorView& out, const AttentionOptions& options) {
  auto row_keys = cache.keys, row_values = cache.values;  // every row of the batch has pages to itself
  row_keys.shape[0] = row_values.shape[0] = q.shape[0];
  check_views(q, row_keys, row_values, out);
  if (cache.values.shape[0] != cache.keys.shape[0])
    refuse(fmt::format("v: expected the {} pages of k, got {}", cache.keys.shape[0], cache.values.shape[0]));
  check_pages(q, cache);
  const std::int64_t tokens = cache.lengths.empty() ? 0 : *std::max_element(cache.lengths.begin(), cache.lengths.end());
  check_options({q.shape[0], q.shape[1], q.shape[2], tokens}, options);
  check_load("queries", q, options.rotate_queries);
  check_memory(q, cache.keys, cache.values, out);
  if (options.mask != nullptr) check_lengths(*options.mask, cache.lengths);
  if (is_empty(out)) return;
  AttentionOptions masked = options;
  KeyIntervals causal;
  if (options.mask == nullptr) {
    MaskOptions wanted;
    wanted.queries = q.shape[2];
    wanted.keys = tokens;
    wanted.right = 0;
    wanted.key_end = cache.lengths;
    causal = key_intervals(wanted);
    masked.mask = &causal;
  }
  const CacheView pages{cache.keys, cache.values, tokens, cache.block_table};
  if (decode_fits(q, pages, masked)) return decode(q, pages, out, masked);
  const Gathered keys(cache.keys, cache, q.shape[0], tokens), values(cache.values, cache, q.shape[0], tokens);
  attention(q, keys.view(), values.view(), out, masked);
}

}  // namespace gnomon
