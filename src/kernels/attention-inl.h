// SPDX-License-Identifier: Apache-2.0
// Attention over units of 256 queries that share each prepared tile of keys and values, with an online softmax in base 2. Compiled once
// per CPU target.
//
// The tile of scores is held transposed, S^T = K Q^T: rows are keys, read as they lie; lanes are queries, from Q transposed once. Maximum
// and sum are lane by lane, a bias by distance is one contiguous load, and P V has rows of queries and lanes of value channels.

#if defined(GNOMON_KERNELS_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GNOMON_KERNELS_ATTENTION_INL_H_
#undef GNOMON_KERNELS_ATTENTION_INL_H_
#else
#define GNOMON_KERNELS_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "kernels/attention_bias-inl.h"
#include "kernels/attention_tile-inl.h"
#include "kernels/softmax_row.hpp"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {
namespace {  // a file compiled for more than its target must not lend its code to others

/// Scratch, aligned for vectors and not touched before it is used.
class Floats {
 public:
  explicit Floats(std::int64_t number) : data_(static_cast<float*>(::operator new(static_cast<std::size_t>(number) * 4, alignment))) {}
  float* at(std::int64_t index) const { return data_.get() + index; }

 private:
  static constexpr std::align_val_t alignment{128};
  struct Free {
    void operator()(float* memory) const { ::operator delete(memory, alignment); }
  };
  std::unique_ptr<float, Free> data_;
};

constexpr std::int64_t round_up(std::int64_t number, std::int64_t unit) { return (number + unit - 1) / unit * unit; }

/// Units of many queries share what is prepared, as long as there are enough of them for many threads. Those of wide heads are smaller, and
/// their tiles too, so that the scratch of a task stays below 2 MiB. Nothing here may depend on the executor: the order of the work does on
/// this, and with it the last bit.
inline AttentionCut cut_for(const AttentionJob& job) {
  const std::int64_t widest = std::max(job.width, job.value_width), rows = job.batch * job.heads * job.queries;
  std::int64_t queries = rows >= 32 * most_unit_lanes ? most_unit_lanes : most_unit_lanes / 2;
  while (queries > block_lanes && queries * (job.width + job.value_width) > (1 << 17)) queries /= 2;
  return {block_lanes, queries / block_lanes, widest > 512 ? tile_keys / 4 : widest > 192 ? tile_keys / 2 : tile_keys};
}

/// Reads `number` elements, and zeros up to a whole vector.
template <class Elements>
HWY_INLINE void widen_row(const typename Elements::Element* x, std::int64_t number, float* to) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i + lanes <= number; i += lanes) hn::StoreU(Elements::load(x + i), F(), to + i);
#endif
  for (; i < number; i++) to[i] = Elements::widen(x[i]);
  for (; i % lanes != 0; i++) to[i] = 0;
}

/// Rows of `number` channels become rows of block_lanes. What it returns is 0, but NaN where there was a NaN or an infinity.
template <class Elements>
HWY_NOINLINE VF widen_panel(const typename Elements::Element* x, std::int64_t stride, std::int64_t rows, std::int64_t number, float* to) {
  VF unusual = hn::Zero(F());
  for (std::int64_t row = 0; row < rows; row++, x += stride, to += block_lanes) {
    if (number == block_lanes) {
      widen_row<Elements>(x, block_lanes, to);
    } else {
      widen_row<Elements>(x, number, to);
    }
    for (std::int64_t i = 0; i < number; i += lanes) {
      const VF value = hn::Load(F(), to + i);
      unusual = hn::Add(unusual, hn::Sub(value, value));
    }
  }
  return unusual;
}

/// Writes `number` elements times a factor.
template <class Elements>
HWY_INLINE void narrow_row(const float* x, float factor, std::int64_t number, typename Elements::Element* to) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i + lanes <= number; i += lanes) Elements::store(hn::Mul(hn::LoadU(F(), x + i), hn::Set(F(), factor)), to + i);
#endif
  for (; i < number; i++) to[i] = Elements::narrow(x[i] * factor);
}

/// to[t * block_lanes + lane] = rows[lane * stride + t] (* factors[lane]), for one vector of lanes. Rows are readable up to a multiple
/// of 4.
template <bool scaled>
void transpose(const float* rows, std::int64_t stride, const float* factors, std::int64_t width, float* to) {
  std::int64_t t = 0;
#if HWY_TARGET != HWY_SCALAR
  const F f;
  const VF factor = hn::Load(f, factors);
  // The same four channels of four neighbouring queries in each 128-bit block.
  const auto block = [&](std::int64_t first) HWY_ATTR {
    VF quads = hn::LoadDup128(f, rows + first * stride + t);
    for (int lane = 4; lane < lanes; lane += 4) {
      const auto below = hn::FirstN(f, static_cast<std::size_t>(lane));
      quads = hn::IfThenElse(below, quads, hn::LoadDup128(f, rows + (first + lane) * stride + t));
    }
    return quads;
  };
  for (; t < width; t += 4) {
    const VF a = block(0), b = block(1), c = block(2), d = block(3);
    const VF low = hn::InterleaveLower(f, a, c), low2 = hn::InterleaveLower(f, b, d);
    const VF high = hn::InterleaveUpper(f, a, c), high2 = hn::InterleaveUpper(f, b, d);
    const VF turned[] = {hn::InterleaveLower(f, low, low2), hn::InterleaveUpper(f, low, low2), hn::InterleaveLower(f, high, high2),
                         hn::InterleaveUpper(f, high, high2)};
    for (std::int64_t i = 0; i < std::min<std::int64_t>(4, width - t); i++)
      hn::Store(scaled ? hn::Mul(turned[i], factor) : turned[i], f, to + (t + i) * block_lanes);
  }
#endif
  for (; t < width; t++) {
    for (int lane = 0; lane < lanes; lane++)
      to[t * block_lanes + lane] = scaled ? rows[lane * stride + t] * factors[lane] : rows[lane * stride + t];
  }
}

/// Rows of `tokens` tokens from `token`, turned on their way to others (or in place). Strides in elements.
template <class Element>
void rotate_rows(const RotateJob& rotation, bool keys, std::int64_t b, std::int64_t token, std::int64_t tokens, const Element* rows,
                 std::int64_t stride, Element* to, std::int64_t to_stride) {
  // Tokens are counted from 0, where there may be no memory: the addresses are worked out as numbers.
  const auto start = [token](const Element* first, std::int64_t step) {
    return reinterpret_cast<std::uintptr_t>(first) - static_cast<std::uintptr_t>(token * step) * sizeof(Element);
  };
  RotateTensor tensor;
  tensor.x = reinterpret_cast<const void*>(start(rows, stride));
  tensor.out = reinterpret_cast<void*>(start(to, to_stride));
  tensor.heads = 1;
  tensor.x_strides[2] = stride;
  tensor.out_strides[2] = to_stride;
  tensor.reciprocal = keys;
  RotateJob job = rotation;
  job.tensors = {&tensor, 1};
  kernels::rotate(sizeof(Element) == 4 ? DType::f32 : DType::bf16, job, {b, b + 1, token, token + tokens});
}

/// A format says how elements become the words that tiles are made of. Here each is widened to a float32, once, as its tile is prepared.
template <class Elements_>
struct Widened {
  using Elements = Elements_;
  using Element = typename Elements::Element;
  using Rotated = float;                        // what rows are rotated as
  static constexpr int keys = 1;                // keys in a word of weights and values
  static constexpr bool scales_queries = true;  // queries are multiplied by scale and temperature, so that scores need not be
  static std::int64_t words(std::int64_t channels) { return channels; }
  /// Whether rows of keys are words as they lie.
  static bool reads_in_place(const Element*, const AttentionJob&) { return std::is_same_v<Elements, ElementsF32>; }
  static HWY_INLINE VF dot(VF sum, VF a, VF b) { return hn::MulAdd(a, b, sum); }
  static void read_row(const Element* x, std::int64_t channels, float* to) { widen_row<Elements>(x, channels, to); }
  static VF pack_panel(const Element* x, std::int64_t stride, std::int64_t rows, std::int64_t number, float* to) {
    return widen_panel<Elements>(x, stride, rows, number, to);
  }
  /// Takes 0 for each NaN and infinity.
  static void clean(float* from, const float* end) {
    for (; from != end; from++) *from = std::isfinite(*from) ? *from : 0;
  }
  static void weigh(const Tile& tile, float* maximum, float* sum, float* rescale) { weigh_rows(tile, maximum, sum, rescale); }
  static float weight(const Tile& tile, std::int64_t row, std::int64_t lane) { return tile.scores[row * score_stride + lane]; }
};

/// A lane block at work.
struct Block {
  std::int64_t b = 0, head = 0, query = 0, queries = 0;
  float *q = nullptr, *out = nullptr;                            // (width, block_lanes), (block_lanes, value_stride)
  float *maximum = nullptr, *sum = nullptr, *factors = nullptr;  // (block_lanes)
  LaneIntervals lists{};
  BlockKeys keys;
  KeyRange groups[block_lanes / 4];  // what each group of rows of P V sees
  KeyRange by_vector[vectors];
  float* inverse_lengths = nullptr;  // (fires, block_lanes)
  float norm = 0;                    // the greatest of a query, as its scores have it
};

/// What all tasks of a call share.
struct Shared {
  const AttentionJob& job;
  AttentionCut cut;
  std::int64_t k_stride, value_stride;
  bool by_distance = false, softcap = false, mask = false;
  std::vector<FireTable> fires;
  std::vector<GridTable> grids;
  std::vector<float> key_norms;  // (batch, kv_heads, tiles): the greatest of each tile of keys; empty where none can be skipped

  explicit Shared(const AttentionJob& job_)
      : job(job_),
        cut(cut_for(job_)),
        k_stride(round_up(job_.width, lanes) + 16),  // apart from a power of 2, against cache sets
        value_stride(round_up(job_.value_width, lanes)),
        softcap(job_.softcap != 0),
        mask(job_.mask.data != nullptr) {
    for (const auto& table : job.bias) {
      if (const auto* fire = std::get_if<FireBias>(&table)) {
        fires.emplace_back(*fire, job.keys + job.queries);
      } else if (const auto* grid = std::get_if<GridBias>(&table)) {
        grids.emplace_back(*grid, lanes);
      } else {
        by_distance = true;
      }
    }
  }
  bool changes_scores() const { return softcap || mask || !fires.empty() || !grids.empty(); }
};

/// The greatest norm of some rows; NaN where there is one.
template <class Elements>
float greatest_norm(const typename Elements::Element* x, std::int64_t stride, std::int64_t rows, std::int64_t width) {
  float most = 0;
  for (std::int64_t row = 0; row < rows; row++, x += stride) {
    VF sums = hn::Zero(F());
    std::int64_t t = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; t + lanes <= width; t += lanes) {
      const VF values = Elements::load(x + t);
      sums = hn::MulAdd(values, values, sums);
    }
#endif
    float square = hn::GetLane(hn::SumOfLanes(F(), sums));
    for (; t < width; t++) square += Elements::widen(x[t]) * Elements::widen(x[t]);
    if (!(square <= most)) most = square;
  }
  return std::sqrt(most);
}

/// Whether the values of a bias lie far enough apart to leave a weight of 0.
inline bool reaches_far(const BiasTable& table) {
  const auto* bias = std::get_if<DistanceBias>(&table);
  if (bias == nullptr) return std::holds_alternative<SlopeBias>(table);
  const auto [least, most] = std::minmax_element(bias->values.begin(), bias->values.end());
  return *most - *least > 80;
}

/// Whether norms bound the scores that biases by distance are added to.
inline bool can_skip(const AttentionJob& job) {
  const auto* rotation = job.rotate_keys;
  const bool by_distance = std::none_of(job.bias.begin(), job.bias.end(), [](const BiasTable& table) {
    return std::holds_alternative<FireBias>(table) || std::holds_alternative<GridBias>(table);
  });
  return job.skip && by_distance && std::any_of(job.bias.begin(), job.bias.end(), reaches_far) &&
         !(job.mask.data != nullptr && job.mask.additive) &&
         (rotation == nullptr || (rotation->table == nullptr && rotation->log_magnitude == nullptr));
}

template <class Elements>
std::vector<float> key_norms(const AttentionJob& job, const AttentionCut& cut) {
  using Element = typename Elements::Element;
  const std::int64_t tiles = (job.keys + cut.keys - 1) / cut.keys;
  const float magnitude = job.rotate_keys == nullptr ? 1 : std::max(1.0f, std::abs(job.rotate_keys->magnitude));
  std::vector<float> norms(static_cast<std::size_t>(job.batch * job.kv_heads * tiles));
  const auto fill = [&](std::size_t head) {
    const auto b = static_cast<std::int64_t>(head) / job.kv_heads, h = static_cast<std::int64_t>(head) % job.kv_heads;
    const auto* x = static_cast<const Element*>(job.k.data) + b * job.k.strides[0] + h * job.k.strides[1];
    for (std::int64_t i = 0; i < tiles; i++) {
      const std::int64_t key = i * cut.keys;
      norms[head * static_cast<std::size_t>(tiles) + static_cast<std::size_t>(i)] =
          magnitude * greatest_norm<Elements>(x + key * job.k.strides[2], job.k.strides[2], std::min(cut.keys, job.keys - key), job.width);
    }
  };
  const auto heads = static_cast<std::size_t>(job.batch * job.kv_heads);
  run_tasks(job.executor, heads, fill);
  return norms;
}

/// The scratch of one thread, and what it does with units of work.
template <class Format>
class Worker {
 public:
  using Elements = typename Format::Elements;
  using Element = typename Format::Element;
  explicit Worker(const Shared& shared)
      : shared_(shared),
        job_(shared.job),
        k_(std::max<std::int64_t>(shared.cut.keys, block_lanes) * shared.k_stride),
        v_(shared.cut.keys * round_up(shared.value_stride, block_lanes)),
        scores_(shared.cut.keys * score_stride),
        row_(block_lanes + tile_keys),
        maximum_(2 * block_lanes),
        q_(shared.cut.blocks * block_lanes * Format::words(job_.width)),
        out_(shared.cut.blocks * block_lanes * shared.value_stride),
        sums_(shared.cut.blocks * 3 * block_lanes),
        lengths_(static_cast<std::int64_t>(shared.fires.size()) * shared.cut.blocks * block_lanes),
        lists_(static_cast<std::size_t>(shared.cut.blocks * 5 * block_lanes)),
        blocks_(static_cast<std::size_t>(shared.cut.blocks)) {
    for (std::int64_t i = 0; i < shared.cut.blocks; i++) {
      auto& block = blocks_[static_cast<std::size_t>(i)];
      block.q = q_.at(i * block_lanes * Format::words(job_.width));
      block.out = out_.at(i * block_lanes * shared.value_stride);
      block.maximum = sums_.at(3 * i * block_lanes);
      block.sum = sums_.at((3 * i + 1) * block_lanes);
      block.factors = sums_.at((3 * i + 2) * block_lanes);
      block.inverse_lengths = lengths_.at(i * static_cast<std::int64_t>(shared.fires.size()) * block_lanes);
      auto* list = lists_.data() + i * 5 * block_lanes;
      block.lists = {list, list + block_lanes, list + 2 * block_lanes, list + 3 * block_lanes, list + 4 * block_lanes};
    }
  }

  void run(const AttentionUnit& unit) {
    KeyRange all{job_.keys, 0};
    for (std::int64_t i = 0; i < unit.blocks; i++) {
      auto& block = blocks_[static_cast<std::size_t>(i)];
      open(block, unit, unit.block + i);
      for (const auto& range : {block.keys.kept, block.keys.seen}) {
        if (!range.empty()) all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
      }
    }
    if (!all.empty()) visit_outwards(unit, all);
    for (std::int64_t i = 0; i < unit.blocks; i++) close(blocks_[static_cast<std::size_t>(i)]);
  }

 private:
  const Element* row_of(const AttentionInput& input, std::int64_t b, std::int64_t head, std::int64_t token) const {
    return static_cast<const Element*>(input.data) + b * input.strides[0] + head * input.strides[1] + token * input.strides[2];
  }

  void open(Block& block, const AttentionUnit& unit, std::int64_t index) {
    const std::int64_t group = job_.heads / job_.kv_heads;
    block.b = unit.b;
    block.head = unit.kv_head * group + index % group;
    block.query = index / group * block_lanes;
    block.queries = std::min<std::int64_t>(block_lanes, job_.queries - block.query);
    block.keys = read_intervals(job_, block.b, block.query, block.queries, block_lanes, block.lists);
    KeyRange* to = block.groups;
    for (int row = 0; row < block_lanes;) {
      const int rows = next_rows(block_lanes - row, micro_rows);
      *to++ = seen_by(block.lists, row, rows);
      row += rows;
    }
    for (int c = 0; c < vectors; c++) block.by_vector[c] = seen_by(block.lists, c * lanes, lanes);
    float* length = block.inverse_lengths;
    for (const auto& fire : shared_.fires) {
      for (int lane = 0; lane < block_lanes; lane++) *length++ = fire.inverse_length(block.lists.diagonal[lane] - block.lists.first[lane]);
    }
    std::fill_n(block.maximum, block_lanes, minus_infinity);
    std::fill_n(block.sum, block_lanes, 0.0f);
    std::fill_n(block.out, block_lanes * shared_.value_stride, 0.0f);
    load_queries(block);
  }

  static KeyRange seen_by(const LaneIntervals& lists, int row, int rows) {
    KeyRange range{std::numeric_limits<std::int32_t>::max(), 0};
    for (int lane = row; lane < row + rows; lane++) {
      for (const KeyRange& part : {KeyRange{lists.begin[lane], lists.end[lane]}, KeyRange{lists.first[lane], lists.keep_end[lane]}}) {
        if (!part.empty()) range = {std::min(range.begin, part.begin), std::max(range.end, part.end)};
      }
    }
    return range;
  }

  /// Q^T, rotated, and what makes exponents of 2 of its scores: scale and temperature.
  void load_queries(Block& block) {
    float* rows = k_.at(0);  // no tile of keys is prepared yet
    const std::int64_t stride = shared_.k_stride, words = Format::words(job_.width);
    for (std::int64_t lane = 0; lane < block.queries; lane++)
      Format::read_row(row_of(job_.q, block.b, block.head, block.query + lane), job_.width, rows + lane * stride);
    if (job_.rotate_queries != nullptr) rotate(*job_.rotate_queries, false, block.b, block.query, block.queries);
    for (std::int64_t lane = block.queries; lane < block_lanes; lane++) std::fill_n(rows + lane * stride, stride, 0.0f);
    for (std::int64_t lane = 0; lane < block_lanes; lane++)
      block.factors[lane] = lane < block.queries ? factor_of(block.b, block.query + lane) : 0;
    for (int c = 0; c < block_lanes; c += lanes)
      transpose<Format::scales_queries>(rows + c * stride, stride, block.factors + c, words, block.q + c);
    if (!shared_.key_norms.empty()) block.norm = norm_of_queries(block);
  }

  /// The rows in k_, in place.
  void rotate(const RotateJob& rotation, bool keys, std::int64_t b, std::int64_t token, std::int64_t tokens) {
    using Rotated = typename Format::Rotated;
    constexpr std::int64_t elements = sizeof(float) / sizeof(Rotated);
    auto* rows = reinterpret_cast<Rotated*>(k_.at(0));
    rotate_rows<Rotated>(rotation, keys, b, token, tokens, rows, shared_.k_stride * elements, rows, shared_.k_stride * elements);
  }

  float norm_of_queries(const Block& block) const {
    const F f;
    VF most = hn::Zero(f);
    for (int c = 0; c < block_lanes; c += lanes) {
      VF sums = hn::Zero(f);
      for (std::int64_t t = 0; t < Format::words(job_.width); t++) {
        const VF words = hn::Load(f, block.q + t * block_lanes + c);
        sums = Format::dot(sums, words, words);
      }
      const VF factor = hn::Load(f, block.factors + c);
      most = hn::Max(Format::scales_queries ? sums : hn::Mul(sums, hn::Mul(factor, factor)), most);
    }
    return std::sqrt(hn::GetLane(hn::MaxOfLanes(f, most)));
  }

  float factor_of(std::int64_t b, std::int64_t query) const {
    const double scale = job_.scale * log2_e;
    if (job_.query_factors == nullptr) return static_cast<float>(scale);
    const float factor = job_.query_factors[(job_.factors_by_batch ? b * job_.queries : 0) + query];
    return static_cast<float>(scale * static_cast<double>(factor));
  }

  /// Tiles from the diagonal outwards, so that the running maximum is soon that of the row.
  void visit_outwards(const AttentionUnit& unit, const KeyRange& all) {
    const std::int64_t keys = shared_.cut.keys, first = all.begin / keys, last = (all.end - 1) / keys;
    const auto& middle = blocks_[static_cast<std::size_t>(unit.blocks - 1)];
    const std::int64_t centre = std::clamp<std::int64_t>(middle.lists.diagonal[middle.queries - 1] / keys, first, last);
    std::int64_t index = centre;
    for (std::int64_t step = 1; step <= std::max(centre - first, last - centre); step++) {
      for (const std::int64_t next : {centre - step, centre + step}) {
        if (next < first || next > last) continue;
        look_ahead(unit, all.within(tile_range(next)));
        visit(unit, all.within(tile_range(index)));
        index = next;
      }
    }
    ahead_.rows = 0;
    visit(unit, all.within(tile_range(index)));
  }

  KeyRange tile_range(std::int64_t index) const { return {index * shared_.cut.keys, (index + 1) * shared_.cut.keys}; }

  void look_ahead(const AttentionUnit& unit, const KeyRange& tile) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(Element));
    ahead_ = {reinterpret_cast<const char*>(row_of(job_.k, unit.b, unit.kv_head, tile.begin)),
              reinterpret_cast<const char*>(row_of(job_.v, unit.b, unit.kv_head, tile.begin)),
              job_.k.strides[2] * size,
              job_.v.strides[2] * size,
              job_.width * size,
              job_.value_width * size,
              tile.end - tile.begin};
  }

  void visit(const AttentionUnit& unit, const KeyRange& tile) {
    bool prepared = false;
    for (std::int64_t i = 0; i < unit.blocks; i++) {
      auto& block = blocks_[static_cast<std::size_t>(i)];
      for (const auto& range : {block.keys.kept, block.keys.seen}) {
        KeyRange part = range.within(tile);
        if (part.empty()) continue;
        part.begin -= (part.begin - tile.begin) % Format::keys;
        const bool by_row = shared_.by_distance && block.keys.consecutive;
        if (by_row) fill_row(block, part);
        if (by_row && !shared_.key_norms.empty() && weighs_nothing(block, part)) continue;
        if (!prepared) prepare(unit, tile);
        prepared = true;
        attend(block, part);
      }
    }
  }

  /// The bias of a tile, by distance.
  void fill_row(const Block& block, const KeyRange& part) {
    const DistanceRow distances(job_.bias, block.head);
    distances.fill(part.end - 1 - block.lists.diagonal[0], block_lanes + part.end - part.begin - 1, row_.at(0));
  }

  /// Whether no score of a tile comes within 2^-125.5 of what every query has seen already: then all its weights are exactly 0, and
  /// nothing is changed by leaving it out.
  bool weighs_nothing(const Block& block, const KeyRange& part) const {
    float floor = std::numeric_limits<float>::infinity();
    for (std::int64_t lane = 0; lane < block.queries; lane++) {
      const bool blind = block.lists.begin[lane] >= block.lists.end[lane] && block.lists.first[lane] >= block.lists.keep_end[lane];
      if (!blind) floor = std::min(floor, block.maximum[lane]);
    }
    const float bias = *std::max_element(row_.at(0), row_.at(block_lanes + part.end - part.begin - 1));
    const std::int64_t tiles = (job_.keys + shared_.cut.keys - 1) / shared_.cut.keys;
    const std::int64_t kv_head = block.head / (job_.heads / job_.kv_heads);
    const std::int64_t at = (block.b * job_.kv_heads + kv_head) * tiles + part.begin / shared_.cut.keys;
    const float product = block.norm * shared_.key_norms[static_cast<std::size_t>(at)];
    // 1e-4 and 1e-6 are more than the roundings of the sums that make a score.
    const float most = product * 1.0001f + bias + 1e-6f * (std::abs(bias) + std::abs(floor));
    return most < floor - 128;
  }

  void prepare(const AttentionUnit& unit, const KeyRange& tile) {
    tile_ = tile;
    const std::int64_t keys = tile.end - tile.begin;
    prepare_keys(row_of(job_.k, unit.b, unit.kv_head, tile.begin), unit.b, keys);
    unusual_values_ = pack_values(row_of(job_.v, unit.b, unit.kv_head, tile.begin), keys);
    if (unusual_values_) Format::clean(v_.at(0), v_.at(shared_.cut.keys / Format::keys * round_up(shared_.value_stride, block_lanes)));
  }

  /// Keys are read where they lie, if they can be; others are made into words, and turned, first.
  void prepare_keys(const Element* k, std::int64_t b, std::int64_t keys) {
    keys_ = k_.at(0);
    keys_stride_ = shared_.k_stride;
    if (Format::reads_in_place(k, job_) && job_.rotate_keys == nullptr) {
      keys_ = reinterpret_cast<const float*>(k);
      keys_stride_ = job_.k.strides[2] / static_cast<std::int64_t>(sizeof(float) / sizeof(Element));
      return;
    }
    if constexpr (std::is_same_v<Element, float>) {
      return rotate_rows<float>(*job_.rotate_keys, true, b, tile_.begin, keys, k, job_.k.strides[2], k_.at(0), keys_stride_);
    }
    for (std::int64_t j = 0; j < keys; j++) Format::read_row(k + j * job_.k.strides[2], job_.width, k_.at(j * keys_stride_));
    if (job_.rotate_keys != nullptr) rotate(*job_.rotate_keys, true, b, tile_.begin, keys);
  }

  /// Values in panels of block_lanes channels. Returns whether there is a NaN or an infinity among them.
  bool pack_values(const Element* x, std::int64_t keys) {
    VF unusual = hn::Zero(F());
    for (std::int64_t d = 0; d < job_.value_width; d += block_lanes) {
      const std::int64_t number = std::min<std::int64_t>(block_lanes, job_.value_width - d);
      unusual = hn::Add(unusual, Format::pack_panel(x + d, job_.v.strides[2], keys, number, v_.at(d * shared_.cut.keys / Format::keys)));
    }
    return !hn::AllTrue(F(), hn::Eq(unusual, hn::Zero(F())));
  }

  void attend(Block& block, const KeyRange& part) {
    Tile tile;
    tile.key = part.begin;
    tile.keys = part.end - part.begin;
    tile.scores = scores_.at(0);
    tile.maximum = maximum_.at(0);
    tile.lists = &block.lists;
    tile.seen_by_all = block.keys.seen_by_all;
    tile.kept_by_all = block.keys.kept_by_all;
    tile.by_vector = block.by_vector;
    tile.ahead = &ahead_;
    const bool by_row = shared_.by_distance && block.keys.consecutive;
    if (by_row) tile.row_bias = row_.at(tile.keys - 1);
    const Operands operands{keys_ + (part.begin - tile_.begin) * keys_stride_, keys_stride_, block.q, Format::words(job_.width),
                            block.factors};
    std::copy_n(block.maximum, block_lanes, tile.maximum);
    by_row && !shared_.softcap ? score<Format, true>(tile, operands) : score<Format, false>(tile, operands);
    const MaskReader mask(job_.mask, block.b, block.head, block.query, block.queries);
    if (shared_.changes_scores() || (shared_.by_distance && !by_row)) {
      std::copy_n(block.maximum, block_lanes, tile.maximum);
      change(tile, block, by_row, mask);
    }
    float* rescale = maximum_.at(block_lanes);
    Format::weigh(tile, block.maximum, block.sum, rescale);
    for (std::int64_t d = 0; d < shared_.value_stride; d += block_lanes) {
      const float* v = v_.at((d * shared_.cut.keys + (part.begin - tile_.begin) * block_lanes) / Format::keys);
      output(tile, block, v, rescale, block.out + d, std::min<std::int64_t>(vectors, (shared_.value_stride - d) / lanes));
    }
    if (unusual_values_) add_unusual_values(tile, block, mask);
  }

  /// In the order softcap, biases, mask.
  void change(const Tile& tile, const Block& block, bool by_row, const MaskReader& mask) {
    if (shared_.softcap) cap_scores(tile, job_.softcap);
    if (shared_.softcap && by_row) add_distances(tile);
    if (shared_.by_distance && !by_row) add_distances_by_lane(tile, DistanceRow(job_.bias, block.head));
    // The last change also masks and takes the maximum.
    std::size_t left = shared_.fires.size() + shared_.grids.size() + (shared_.mask ? 1 : 0);
    const float* inverse = block.inverse_lengths;
    for (const auto& fire : shared_.fires) {
      add_fire(tile, fire, block.head, inverse, block.keys.consecutive, row_.at(0), --left == 0);
      inverse += block_lanes;
    }
    for (const auto& grid : shared_.grids) add_grid(tile, grid, block.head, --left == 0);
    if (shared_.mask) mask.add(tile);
    if (shared_.mask || shared_.fires.size() + shared_.grids.size() == 0) finish_scores(tile);
  }

  void output(const Tile& tile, const Block& block, const float* v, const float* rescale, float* out, std::int64_t columns) {
    if (columns == vectors) return output_panel<Format, vectors>(tile, block.groups, v, rescale, out, shared_.value_stride);
    if constexpr (vectors > 2) {
      if (columns == 3) return output_panel<Format, 3>(tile, block.groups, v, rescale, out, shared_.value_stride);
      if (columns == 2) return output_panel<Format, 2>(tile, block.groups, v, rescale, out, shared_.value_stride);
    }
    output_panel<Format, 1>(tile, block.groups, v, rescale, out, shared_.value_stride);
  }

  /// NaN and infinite values, taken as 0 so far, reach the queries that see them and no other.
  void add_unusual_values(const Tile& tile, Block& block, const MaskReader& mask) {
    const std::int64_t kv_head = block.head / (job_.heads / job_.kv_heads);
    for (std::int64_t r = 0; r < tile.keys; r++) {
      const Element* x = row_of(job_.v, block.b, kv_head, tile.key + r);
      for (std::int64_t d = 0; d < job_.value_width; d++) {
        const float value = Elements::widen(x[d]);
        if (std::isfinite(value)) continue;
        for (std::int64_t lane = 0; lane < block.queries; lane++) {
          if (sees(block.lists, lane, tile.key + r) && !mask.hides(lane, tile.key + r))
            block.out[lane * shared_.value_stride + d] += Format::weight(tile, r, lane) * value;
        }
      }
    }
  }

  static bool sees(const LaneIntervals& lists, std::int64_t lane, std::int64_t key) {
    return key < lists.end[lane] && (key >= lists.begin[lane] || (key >= lists.first[lane] && key < lists.keep_end[lane]));
  }

  /// The denominator, with the sink logit, and the rows of the result.
  void close(const Block& block) {
    const float* sink = job_.sink_logits == nullptr ? nullptr : job_.sink_logits + block.head;
    for (std::int64_t lane = 0; lane < block.queries; lane++) {
      const auto maximum = static_cast<double>(block.maximum[lane]);
      SoftmaxRow row(maximum, sink);
      const double factor = row.add(maximum, static_cast<double>(block.sum[lane]));
      const std::int64_t query = block.query + lane;
      auto* to =
          static_cast<Element*>(job_.out) + block.b * job_.out_strides[0] + block.head * job_.out_strides[1] + query * job_.out_strides[2];
      narrow_row<Elements>(block.out + lane * shared_.value_stride, static_cast<float>(row.share(factor)), job_.value_width, to);
      const std::int64_t at = (block.b * job_.heads + block.head) * job_.queries + query;
      if (job_.log_sum_exp != nullptr) job_.log_sum_exp[at] = row.log_sum_exp();
      if (job_.maximum != nullptr) job_.maximum[at] = row.maximum();
    }
  }

  const Shared& shared_;
  const AttentionJob& job_;
  Floats k_, v_, scores_, row_, maximum_, q_, out_, sums_, lengths_;
  std::vector<std::int32_t> lists_;
  std::vector<Block> blocks_;
  KeyRange tile_;                // the tile prepared
  Ahead ahead_;                  // the next one
  const float* keys_ = nullptr;  // its keys, as they lie or in k_
  std::int64_t keys_stride_ = 0;
  bool unusual_values_ = false;
};

/// Every task takes its scratch once and then draws units, so that the order of the work and who does it change nothing.
template <class Format>
void run_units(const AttentionJob& job) {
  Shared shared(job);
  if (can_skip(job)) shared.key_norms = key_norms<typename Format::Elements>(job, shared.cut);
  const auto units = attention_units(job, shared.cut);
  std::atomic<std::size_t> next{0};
  const auto draw = [&](std::size_t) {
    std::size_t unit = next.fetch_add(1);
    if (unit >= units.size()) return;
    Worker<Format> worker(shared);
    for (; unit < units.size(); unit = next.fetch_add(1)) worker.run(units[unit]);
  };
  const std::size_t width = job.executor == nullptr ? 1 : std::min(job.executor->width(), units.size());
  if (width < 2) return draw(0);
  run_tasks(job.executor, width, draw);
}

}  // namespace
}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
