// SPDX-License-Identifier: Apache-2.0
// The rotate kernel: one source, compiled for every CPU target and chosen at run time.
#include "kernels/rotate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "hwy/cache_control.h"
#include "plan/phase.hpp"
#include "plan/round.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotate.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cos_sin-inl.h"
#include "kernels/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

// 32 vector registers: cos and sin of a whole head of usual width stay in them while the heads of a token pass by.
#undef GNOMON_HOLD
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define GNOMON_HOLD 1
#else
#define GNOMON_HOLD 0
#endif

#if HWY_TARGET != HWY_SCALAR

/// An arrangement says how a group of pairs is read, turned and written: `vectors` of them, by `coefficients` vectors made of cos and sin.
/// pack() writes those of one vector of pairs; turn() gets those of the group as k0 … k3. In a group of two vectors, the even pairs are the
/// first and the odd pairs the second.
template <class Elements>
struct HalfSplit {
  using Element = typename Elements::Element;
  static constexpr std::int64_t vectors = 1, coefficients = 2;
  static HWY_INLINE void pack(VF cosine, VF sine, float* to) {
    hn::StoreU(cosine, F(), to);
    hn::StoreU(sine, F(), to + hn::Lanes(F()));
  }
  static HWY_INLINE void turn(const Element* x, Element* out, std::int64_t i, std::int64_t half, VF c, VF s, VF, VF) {
    const VF a = Elements::load(x + i), b = Elements::load(x + half + i);
    Elements::store(hn::MulSub(a, c, hn::Mul(b, s)), out + i);
    Elements::store(hn::MulAdd(b, c, hn::Mul(a, s)), out + half + i);
  }
};

/// Neighbours swapped, so that no element leaves its place: x cos + swapped (-sin, sin).
template <class Elements>
struct Interleaved {
  using Element = typename Elements::Element;
  static constexpr std::int64_t vectors = 1, coefficients = 4;
  static HWY_INLINE void pack(VF cosine, VF sine, float* to) {
    const F f;
    hn::StoreInterleaved2(cosine, cosine, f, to);
    hn::StoreInterleaved2(hn::Neg(sine), sine, f, to + 2 * hn::Lanes(f));
  }
  static HWY_INLINE void turn(const Element* x, Element* out, std::int64_t i, std::int64_t, VF c0, VF c1, VF s0, VF s1) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
    const VF first = Elements::load(x + 2 * i), second = Elements::load(x + 2 * i + lanes);
    Elements::store(hn::MulAdd(first, c0, hn::Mul(hn::Reverse2(F(), first), s0)), out + 2 * i);
    Elements::store(hn::MulAdd(second, c1, hn::Mul(hn::Reverse2(F(), second), s1)), out + 2 * i + lanes);
  }
};

/// Two bf16 stand in each 32-bit lane and are widened by a shift and a mask; rounding leaves the first below and the second above.
HWY_INLINE void widen_two(const std::uint16_t* x, VF& first, VF& second) {
  const VU both = hn::LoadU(U(), reinterpret_cast<const std::uint32_t*>(x));
  first = hn::BitCast(F(), hn::ShiftLeft<16>(both));
  second = hn::BitCast(F(), hn::And(both, hn::Set(U(), 0xffff0000u)));
}

/// (a + b + 1) / 2. For SVE, Highway's loses the carry.
template <class V>
HWY_INLINE V rounded_average(V a, V b) {
#if HWY_TARGET == HWY_SVE || HWY_TARGET == HWY_SVE_256
  return hn::Sub(hn::Or(a, b), hn::ShiftRight<1>(hn::Xor(a, b)));
#else
  return hn::AverageRound(a, b);
#endif
}

/// To nearest even, in 16-bit lanes: of a lower half, half its sum with 0x7fff, 1 for an odd upper half and the carry that was lost, has in
/// its top bit what is added to the upper half. As for round_bf16, a NaN stays one.
HWY_INLINE void narrow_two(VF first, VF second, std::uint16_t* x) {
  const hn::Repartition<std::uint16_t, U> halves;
  const VU a = hn::BitCast(U(), first), b = hn::BitCast(U(), second);
  const auto upper = hn::OddEven(hn::BitCast(halves, b), hn::BitCast(halves, hn::ShiftRight<16>(a)));
  const auto lower = hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(b)), hn::BitCast(halves, a));
  const auto bias = hn::OrAnd(hn::Set(halves, 0x7ffe), upper, hn::Set(halves, 1));
  hn::StoreU(hn::Add(upper, hn::ShiftRight<15>(rounded_average(lower, bias))), halves, x);
}

template <>
struct HalfSplit<ElementsBf16> {
  using Element = std::uint16_t;
  static constexpr std::int64_t vectors = 2, coefficients = 4;
  static HWY_INLINE void pack(VF cosine, VF sine, float* to) { HalfSplit<ElementsF32>::pack(cosine, sine, to); }
  static HWY_INLINE void turn(const Element* x, Element* out, std::int64_t i, std::int64_t half, VF c0, VF s0, VF c1, VF s1) {
    VF a0, a1, b0, b1;
    widen_two(x + i, a0, a1);
    widen_two(x + half + i, b0, b1);
    narrow_two(hn::MulSub(a0, c0, hn::Mul(b0, s0)), hn::MulSub(a1, c1, hn::Mul(b1, s1)), out + i);
    narrow_two(hn::MulAdd(b0, c0, hn::Mul(a0, s0)), hn::MulAdd(b1, c1, hn::Mul(a1, s1)), out + half + i);
  }
};

template <>
struct Interleaved<ElementsBf16> {
  using Element = std::uint16_t;
  static constexpr std::int64_t vectors = 1, coefficients = 2;
  static HWY_INLINE void pack(VF cosine, VF sine, float* to) { HalfSplit<ElementsF32>::pack(cosine, sine, to); }
  static HWY_INLINE void turn(const Element* x, Element* out, std::int64_t i, std::int64_t, VF c, VF s, VF, VF) {
    VF a, b;
    widen_two(x + 2 * i, a, b);
    narrow_two(hn::MulSub(a, c, hn::Mul(b, s)), hn::MulAdd(b, c, hn::Mul(a, s)), out + 2 * i);
  }
};

#else  // one lane: pair by pair
template <class Elements>
struct HalfSplit {
  static constexpr std::int64_t vectors = 0, coefficients = 0;
};
template <class Elements>
struct Interleaved {
  static constexpr std::int64_t vectors = 0, coefficients = 0;
};
#endif

/// Rows of cos and sin, packed for an arrangement: groups of coefficients, then cos and sin of the pairs left over.
template <class Arrangement>
class Rows {
 public:
  explicit Rows(const RotateJob& job, std::int64_t tokens) : job_(job), lanes_(static_cast<std::int64_t>(hn::Lanes(F()))) {
    padded_ = (job.pairs + lanes_ - 1) / lanes_ * lanes_;
    if constexpr (Arrangement::vectors > 0) groups_ = job.pairs / (Arrangement::vectors * lanes_);
    left_ = job.pairs - groups_ * Arrangement::vectors * lanes_;
    stride_ = groups_ * Arrangement::coefficients * lanes_ + 2 * left_;
    block_ = std::clamp<std::int64_t>(std::min<std::int64_t>(row_floats / stride_, 32), 1, std::max<std::int64_t>(tokens, 1));
    stepped_ = job.cos_sin == CosSin::by_steps && job.turns != nullptr && job.log_magnitude == nullptr && on_one_whole_axis();
    take_memory(static_cast<std::size_t>(6 * padded_ + block_ * stride_ + (stepped_ ? (1 + steps) * 2 * padded_ : 0)));
    if (job.turns != nullptr) split_turns();
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  std::int64_t block() const { return block_; }
  std::int64_t groups() const { return groups_; }
  std::int64_t left() const { return left_; }
  std::int64_t step() const { return stride_; }
  const float* row(std::int64_t index) const { return rows_ + index * stride_; }

  void fill(std::int64_t index, std::int64_t b, std::int64_t h, std::int64_t t, bool reciprocal) {
    float* to = rows_ + index * stride_;
    if (job_.table != nullptr) {
      read_table(job_.positions->whole(0, b, h, t));
      return pack(to, [&](std::int64_t i, VF& c, VF& s) HWY_ATTR { read_made(i, c, s); });
    }
    if (stepped_) {
      step_to(job_.positions->whole(0, b, h, t));
      return pack(to, [&](std::int64_t i, VF& c, VF& s) HWY_ATTR { make_product(i, c, s); });
    }
    if (on_one_whole_axis()) {
      move_to(job_.positions->whole(0, b, h, t));
    } else {
      make_phases(b, h, t);
    }
    if (job_.log_magnitude == nullptr) return pack(to, [&](std::int64_t i, VF& c, VF& s) HWY_ATTR { make(i, job_.magnitude, c, s); });
    decay(b, h, t, reciprocal);
    pack(to, [&](std::int64_t i, VF& c, VF& s) HWY_ATTR {
      const VF factor = hn::LoadU(F(), cosine_ + i);
      make(i, job_.magnitude, c, s);
      c = hn::Mul(c, factor);
      s = hn::Mul(s, factor);
    });
  }

 private:
  static constexpr std::int64_t row_floats = 4096, stack_floats = 8192, steps = 16;

  /// Then a phase can be moved to from the one before.
  bool on_one_whole_axis() const { return job_.axis == nullptr && !job_.positions->is_real(); }

  // A decode step is over in 100 ns: usual widths must not pay for the heap.
  void take_memory(std::size_t floats) {
    float* memory = stack_;
    if (floats > stack_floats) {
      heap_.resize(floats);
      memory = heap_.data();
    }
    auto* words = reinterpret_cast<std::uint32_t*>(memory);
    low_ = words;
    high_ = words + padded_;
    phase_low_ = words + 2 * padded_;
    phase_ = words + 3 * padded_;
    cosine_ = memory + 4 * padded_;
    sine_ = memory + 5 * padded_;
    rows_ = memory + 6 * padded_;
    base_ = rows_ + block_ * stride_;
    std::fill_n(phase_low_, 2 * padded_, 0);  // of position 0
  }

  /// Where pair i stands in lists, so that vectors of these are those of the arrangement.
  std::int64_t place(std::int64_t i) const {
    if (Arrangement::vectors < 2 || i >= job_.pairs - left_) return i;
    const std::int64_t in_group = i % (2 * lanes_);
    return i - in_group + in_group / 2 + in_group % 2 * lanes_;
  }

  void split_turns() {
    std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    // Four words a pair, of which the last two are wanted: a whole vector of pairs at a time, for a decode step pays for this.
    static_assert(sizeof(Turns) == 16);
    const U u;
    const hn::RepartitionToWide<U> wide;
    const auto* words = reinterpret_cast<const std::uint32_t*>(job_.turns);
    for (; i + lanes_ <= job_.pairs; i += lanes_) {
      const auto at = [&](std::int64_t k) HWY_ATTR { return hn::BitCast(wide, hn::LoadU(u, words + 4 * i + k * lanes_)); };
      const auto first = hn::BitCast(u, hn::ConcatOdd(wide, at(1), at(0))), second = hn::BitCast(u, hn::ConcatOdd(wide, at(3), at(2)));
      hn::StoreU(hn::ConcatEven(u, second, first), u, low_ + i);
      hn::StoreU(hn::ConcatOdd(u, second, first), u, high_ + i);
    }
    for (std::int64_t g = 0; Arrangement::vectors == 2 && g < groups_; g++) {
      for (std::uint32_t* list : {low_ + g * 2 * lanes_, high_ + g * 2 * lanes_}) {
        const VU first = hn::LoadU(u, list), second = hn::LoadU(u, list + lanes_);
        hn::StoreU(hn::ConcatEven(u, second, first), u, list);
        hn::StoreU(hn::ConcatOdd(u, second, first), u, list + lanes_);
      }
    }
#endif
    for (; i < padded_; i++) {
      const std::uint64_t fraction = i < job_.pairs ? job_.turns[i].fraction : 0;
      low_[i] = static_cast<std::uint32_t>(fraction);
      high_[i] = static_cast<std::uint32_t>(fraction >> 32);
    }
  }

  /// Phases of 64 bits in two words: the next position takes a sum, any other a wrapping product.
  void move_to(std::int64_t position) {
    const U u;
    const bool next = position == position_ + 1;
    const auto lower = hn::Set(u, static_cast<std::uint32_t>(position)), upper = hn::Set(u, static_cast<std::uint32_t>(position >> 32));
    position_ = position;
    for (std::int64_t i = 0; i < padded_; i += lanes_) {
      const VU low = hn::LoadU(u, low_ + i), high = hn::LoadU(u, high_ + i);
      VU phase_low, phase;
      if (next) {
        phase_low = hn::Add(hn::LoadU(u, phase_low_ + i), low);
        phase = hn::Add(hn::LoadU(u, phase_ + i), high);
        phase = hn::Sub(phase, hn::VecFromMask(u, hn::Lt(phase_low, low)));  // the carry
      } else {
        phase_low = hn::Mul(low, lower);
        phase = hn::Add(upper_product(u, low, lower), hn::Add(hn::Mul(high, lower), hn::Mul(low, upper)));
      }
      hn::StoreU(phase_low, u, phase_low_ + i);
      hn::StoreU(phase, u, phase_ + i);
    }
  }

  /// A turn by a position is one by the multiple of 16 below it and one by the rest, whose cos and sin are made once. Multiples, so that a
  /// position has the same row wherever a part begins.
  void step_to(std::int64_t position) {
    const std::int64_t rest = position & (steps - 1), base = position - rest;
    if (base_position_ != base) make_list(base, job_.magnitude, base_);
    base_position_ = base;
    step_ = base_ + (1 + rest) * 2 * padded_;
    if ((steps_made_ >> rest & 1) == 0) make_list(rest, 1, step_);
    steps_made_ |= 1u << rest;
  }
  void make_list(std::int64_t position, float magnitude, float* to) {
    move_to(position);
    for (std::int64_t i = 0; i < padded_; i += lanes_) {
      VF c, s;
      make(i, magnitude, c, s);
      hn::StoreU(c, F(), to + i);
      hn::StoreU(s, F(), to + padded_ + i);
    }
  }
  HWY_INLINE void make_product(std::int64_t i, VF& c, VF& s) const {
    const F f;
    const VF c0 = hn::LoadU(f, base_ + i), s0 = hn::LoadU(f, base_ + padded_ + i);
    const VF c1 = hn::LoadU(f, step_ + i), s1 = hn::LoadU(f, step_ + padded_ + i);
    c = hn::MulSub(c0, c1, hn::Mul(s0, s1));
    s = hn::MulAdd(s0, c1, hn::Mul(c0, s1));
  }

  /// Several position axes, or real positions: a product of its own for each pair.
  void make_phases(std::int64_t b, std::int64_t h, std::int64_t t) {
    for (std::int64_t i = 0; i < job_.pairs; i++) {
      const int axis = job_.axis == nullptr ? 0 : job_.axis[i];
      const std::uint64_t phase = job_.positions->is_real() ? phase_at(job_.positions->real(axis, b, h, t), job_.turns[i])
                                                            : phase_at(job_.positions->whole(axis, b, h, t), job_.turns[i]);
      phase_[place(i)] = static_cast<std::uint32_t>(phase >> 32);
    }
  }

  void read_table(std::int64_t row) {
    const TableView& table = *job_.table;
    visit_dtype(table.dtype, [&]<class Element>(Element) {
      const auto* c = static_cast<const Element*>(table.cos) + row * table.row_stride;
      const auto* s = static_cast<const Element*>(table.sin) + row * table.row_stride;
      const float magnitude = job_.magnitude, signed_magnitude = job_.transposed ? -magnitude : magnitude;
      for (std::int64_t i = 0; i < job_.pairs; i++) {
        cosine_[place(i)] = plain_nan(static_cast<float>(widen(c[i])) * magnitude);
        sine_[place(i)] = plain_nan(static_cast<float>(widen(s[i])) * signed_magnitude);
      }
    });
  }

  /// What cos and sin are multiplied by, in the place of cos.
  void decay(std::int64_t b, std::int64_t h, std::int64_t t, bool reciprocal) {
    for (std::int64_t i = 0; i < job_.pairs; i++) {
      const int axis = job_.axis == nullptr ? 0 : job_.axis[i];
      const double position =
          job_.positions->is_real() ? job_.positions->real(axis, b, h, t) : static_cast<double>(job_.positions->whole(axis, b, h, t));
      const double exponent = job_.log_magnitude[i] * (position - static_cast<double>(job_.centre));
      cosine_[place(i)] = static_cast<float>(std::exp(reciprocal ? -exponent : exponent));
    }
  }

  HWY_INLINE void make(std::int64_t i, float magnitude, VF& c, VF& s) const {
    const F f;
    cos_sin(f, hn::LoadU(U(), phase_ + i), c, s);
    c = hn::Mul(c, hn::Set(f, magnitude));
    s = hn::Mul(s, hn::Set(f, job_.transposed ? -magnitude : magnitude));
  }
  HWY_INLINE void read_made(std::int64_t i, VF& c, VF& s) const {
    c = hn::LoadU(F(), cosine_ + i);
    s = hn::LoadU(F(), sine_ + i);
  }

  /// get(i, c, s): cos and sin of the vector of pairs at i of the lists.
  template <class Get>
  HWY_INLINE void pack(float* to, const Get& get) {
    VF c, s;
    std::int64_t i = 0;
    if constexpr (Arrangement::vectors > 0) {
      constexpr std::int64_t by_vector = Arrangement::coefficients / Arrangement::vectors;
      for (; i < job_.pairs - left_; i += lanes_, to += by_vector * lanes_) {
        get(i, c, s);
        Arrangement::pack(c, s, to);
      }
    }
    const std::int64_t first = i;
    for (; i < padded_; i += lanes_) {
      get(i, c, s);
      hn::StoreU(c, F(), cosine_ + i);
      hn::StoreU(s, F(), sine_ + i);
    }
    std::copy_n(cosine_ + first, left_, to);
    std::copy_n(sine_ + first, left_, to + left_);
  }

  const RotateJob& job_;
  std::int64_t lanes_, padded_ = 0, groups_ = 0, left_ = 0, stride_ = 0, block_ = 1, position_ = 0;
  std::uint32_t *low_ = nullptr, *high_ = nullptr;               // (padded), the words of each pair's fraction
  std::uint32_t *phase_low_ = nullptr, *phase_ = nullptr;        // (padded), those of its phase
  float *cosine_ = nullptr, *sine_ = nullptr, *rows_ = nullptr;  // (padded) of one row; (block, stride)
  bool stepped_ = false;
  std::uint32_t steps_made_ = 0;
  std::optional<std::int64_t> base_position_;
  float *base_ = nullptr, *step_ = nullptr;  // (2, padded) cos and sin at a multiple of 16, and at the rest, which lie behind it
  std::vector<float> heap_;
  HWY_ALIGN float stack_[stack_floats];
};

/// Heads a fixed step apart: those of one token, all turned by one row, or one head of several tokens, each turned by its own.
template <class Elements>
struct Heads {
  using Element = typename Elements::Element;
  const Element* x;
  Element* out;
  const Element* next;  // to be asked for meanwhile
  std::int64_t number = 1, x_step = 0, out_step = 0, row_step = 0;
};

/// What stands this far ahead is asked for: far enough to hide the memory, near enough to stay in L1.
constexpr std::int64_t bytes_ahead = 4096;

template <class Element>
HWY_INLINE void prefetch_head(const Element* x, std::int64_t pairs) {
  const std::int64_t bytes = 2 * pairs * static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t line = 0; line < bytes; line += 64) hwy::Prefetch(reinterpret_cast<const char*>(x) + line);
}

template <class Elements, class Arrangement, bool ahead>
HWY_INLINE void turn_groups(const Heads<Elements>& heads, const float* row, std::int64_t groups, std::int64_t pairs) {
#if HWY_TARGET != HWY_SCALAR
  const F f;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f));
  const auto* x = heads.x;
  auto* out = heads.out;
  for (std::int64_t h = 0; h < heads.number; h++, x += heads.x_step, out += heads.out_step, row += heads.row_step) {
    if constexpr (ahead) prefetch_head(heads.next + h * heads.x_step, pairs);
    const float* k = row;
    for (std::int64_t g = 0; g < groups; g++, k += Arrangement::coefficients * lanes) {
      const std::int64_t i = g * Arrangement::vectors * lanes;
      const VF k0 = hn::LoadU(f, k), k1 = hn::LoadU(f, k + lanes);
      if constexpr (Arrangement::coefficients == 2) {
        Arrangement::turn(x, out, i, pairs, k0, k1, k0, k1);
      } else {
        Arrangement::turn(x, out, i, pairs, k0, k1, hn::LoadU(f, k + 2 * lanes), hn::LoadU(f, k + 3 * lanes));
      }
    }
  }
#else
  (void)heads, (void)row, (void)groups, (void)pairs;
#endif
}

#if GNOMON_HOLD
/// The same with the coefficients of all `groups` in registers; `held`: one row for all heads.
template <class Elements, class Arrangement, bool ahead, int groups, bool held>
HWY_INLINE void turn_whole(const Heads<Elements>& heads, const float* row) {
  constexpr int coefficients = static_cast<int>(Arrangement::coefficients);
  const F f;
  constexpr std::int64_t lanes = HWY_LANES(float), pairs = groups * Arrangement::vectors * lanes;
  VF k[coefficients * groups];
  const auto load = [&]() HWY_ATTR {
#pragma GCC unroll 16
    for (int j = 0; j < coefficients * groups; j++) k[j] = hn::LoadU(f, row + j * lanes);
  };
  if constexpr (held) load();
  const auto* x = heads.x;
  auto* out = heads.out;
  for (std::int64_t h = 0; h < heads.number; h++, x += heads.x_step, out += heads.out_step) {
    if constexpr (ahead) prefetch_head(heads.next + h * heads.x_step, pairs);
    if constexpr (!held) load(), row += heads.row_step;
#pragma GCC unroll 8
    for (int g = 0; g < groups; g++) {
      const int first = coefficients * g, last = first + coefficients - 1;
      Arrangement::turn(x, out, g * Arrangement::vectors * lanes, pairs, k[first], k[first + 1], k[last - 1], k[last]);
    }
  }
}

template <class Elements, class Arrangement, bool ahead, int groups>
void turn_number(const Heads<Elements>& heads, const float* row) {
  heads.row_step == 0 ? turn_whole<Elements, Arrangement, ahead, groups, true>(heads, row)
                      : turn_whole<Elements, Arrangement, ahead, groups, false>(heads, row);
}
#endif

/// Turns whole groups, with the coefficients in registers where there are enough of these.
template <class Elements, class Arrangement, bool ahead>
HWY_INLINE void turn_all(const Heads<Elements>& heads, const float* row, std::int64_t groups, std::int64_t pairs) {
#if GNOMON_HOLD
  if (pairs == groups * Arrangement::vectors * static_cast<std::int64_t>(hn::Lanes(F()))) {
    if (groups == 4) return turn_number<Elements, Arrangement, ahead, 4>(heads, row);
    if (groups == 2) return turn_number<Elements, Arrangement, ahead, 2>(heads, row);
    if constexpr (Arrangement::coefficients == 2) {
      if (groups == 8) return turn_number<Elements, Arrangement, ahead, 8>(heads, row);
    }
  }
#endif
  turn_groups<Elements, Arrangement, ahead>(heads, row, groups, pairs);
}

/// The pairs left over after the last whole group, one by one.
template <class Elements>
void turn_left(const Heads<Elements>& heads, const float* cosine, std::int64_t left, std::int64_t pairs, bool interleaved) {
  const auto* x = heads.x;
  auto* out = heads.out;
  for (std::int64_t h = 0; h < heads.number; h++, x += heads.x_step, out += heads.out_step, cosine += heads.row_step) {
    const float* sine = cosine + left;
    for (std::int64_t k = 0; k < left; k++) {
      const std::int64_t i = pairs - left + k, first = interleaved ? 2 * i : i, second = first + (interleaved ? 1 : pairs);
      const float a = Elements::widen(x[first]), b = Elements::widen(x[second]);
      out[first] = Elements::narrow(a * cosine[k] - b * sine[k]);
      out[second] = Elements::narrow(b * cosine[k] + a * sine[k]);
    }
  }
}

template <class Elements, class Arrangement>
class Rotator {
 public:
  using Element = typename Elements::Element;
  Rotator(const RotateJob& job, const RotatePart& part) : job_(job), part_(part), rows_(job, part.token_end - part.token_begin) {}

  void run() {
    for (std::int64_t begin = part_.token_begin; begin < part_.token_end; begin += rows_.block()) {
      const std::int64_t end = std::min(begin + rows_.block(), part_.token_end);
      for (std::int64_t b = part_.batch_begin; b < part_.batch_end; b++) rotate_block(b, begin, end);
    }
  }

 private:
  // Rows are made once for all that share them; the magnitudes of xpos are not the same for queries and keys.
  void rotate_block(std::int64_t b, std::int64_t begin, std::int64_t end) {
    bool made = b != part_.batch_begin && !job_.positions->by_batch();
    for (const auto& tensor : job_.tensors) {
      if (job_.positions->by_head()) {
        for (std::int64_t h = 0; h < tensor.heads; h++) rotate_heads(tensor, b, h, h + 1, begin, end, true);
        continue;
      }
      rotate_heads(tensor, b, 0, tensor.heads, begin, end, !made || job_.log_magnitude != nullptr);
      made = made || tensor.heads > 0;
    }
  }

  // In the order of memory: heads of a token, or tokens of a head. A row is made just before it is needed first, while memory is on its
  // way.
  void rotate_heads(const RotateTensor& tensor, std::int64_t b, std::int64_t h, std::int64_t h_end, std::int64_t begin, std::int64_t end,
                    bool make) {
    if (std::abs(tensor.x_strides[1]) <= std::abs(tensor.x_strides[2])) {
      for (std::int64_t t = begin; t < end; t++) {
        if (make) rows_.fill(t - begin, b, h, t, tensor.reciprocal);
        auto heads = heads_at(tensor, b, h, t);
        heads.number = h_end - h;
        heads.x_step = tensor.x_strides[1];
        heads.out_step = tensor.out_strides[1];
        turn(heads, t - begin);
      }
      return;
    }
    for (; h < h_end; h++) {
      rotate_tokens(tensor, b, h, begin, end, make);
      make = false;
    }
  }

  /// A block of tokens of a head. What comes after its end is the same block of the next head.
  void rotate_tokens(const RotateTensor& tensor, std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t end, bool make) {
    const std::int64_t bytes = std::abs(tensor.x_strides[2]) * static_cast<std::int64_t>(sizeof(Element));
    const std::int64_t last = std::clamp(end - bytes_ahead / std::max<std::int64_t>(bytes, 1), begin, end);
    for (std::int64_t t = begin; t < end;) {
      auto heads = heads_at(tensor, b, h, t);
      heads.number = make ? 1 : t < last ? last - t : end - t;
      heads.x_step = tensor.x_strides[2];
      heads.out_step = tensor.out_strides[2];
      heads.row_step = rows_.step();
      if (t >= last && h + 1 < tensor.heads) heads.next = heads_at(tensor, b, h + 1, begin + t - last).x;
      if (make) rows_.fill(t - begin, b, h, t, tensor.reciprocal);
      turn(heads, t - begin);
      t += heads.number;
    }
  }

  static HWY_INLINE Heads<Elements> heads_at(const RotateTensor& tensor, std::int64_t b, std::int64_t h, std::int64_t t) {
    const auto at = [&](const std::int64_t (&strides)[3]) { return b * strides[0] + h * strides[1] + t * strides[2]; };
    const Element* x = static_cast<const Element*>(tensor.x) + at(tensor.x_strides);
    return {x, static_cast<Element*>(tensor.out) + at(tensor.out_strides), x + bytes_ahead / static_cast<std::int64_t>(sizeof(Element))};
  }

  HWY_INLINE void turn(Heads<Elements> heads, std::int64_t row) {
    if (heads.x != heads.out && job_.head_dim != 2 * job_.pairs) copy_rest(heads);
    heads.x += job_.rotary_offset;
    heads.out += job_.rotary_offset;
    const float* k = rows_.row(row);
    if (job_.prefetch) {
      turn_all<Elements, Arrangement, true>(heads, k, rows_.groups(), job_.pairs);
    } else {
      turn_all<Elements, Arrangement, false>(heads, k, rows_.groups(), job_.pairs);
    }
    if (rows_.left() == 0) return;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
    turn_left(heads, k + rows_.groups() * Arrangement::coefficients * lanes, rows_.left(), job_.pairs, job_.interleaved);
  }

  void copy_rest(const Heads<Elements>& heads) const {
    const std::int64_t first = job_.rotary_offset, past = first + 2 * job_.pairs;
    for (std::int64_t h = 0; h < heads.number; h++) {
      const Element* x = heads.x + h * heads.x_step;
      Element* out = heads.out + h * heads.out_step;
      std::memcpy(out, x, static_cast<std::size_t>(first) * sizeof(Element));
      std::memcpy(out + past, x + past, static_cast<std::size_t>(job_.head_dim - past) * sizeof(Element));
    }
  }

  const RotateJob& job_;
  const RotatePart& part_;
  Rows<Arrangement> rows_;
};

template <class Elements>
void rotate_elements(const RotateJob& job, const RotatePart& part) {
  if (job.interleaved) {
    Rotator<Elements, Interleaved<Elements>>(job, part).run();
  } else {
    Rotator<Elements, HalfSplit<Elements>>(job, part).run();
  }
}

void run_rotate(DType dtype, const RotateJob& job, const RotatePart& part) {
  if (dtype == DType::f32) return rotate_elements<ElementsF32>(job, part);
  if (dtype == DType::bf16) return rotate_elements<ElementsBf16>(job, part);
  rotate_elements<ElementsF16>(job, part);
}
const char* name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(run_rotate);
HWY_EXPORT(name);

void rotate(DType dtype, const RotateJob& job, const RotatePart& part) { HWY_DYNAMIC_DISPATCH(run_rotate)(dtype, job, part); }
const char* target_name() { return HWY_DYNAMIC_DISPATCH(name)(); }

}  // namespace gnomon::kernels
#endif
