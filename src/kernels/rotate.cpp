// SPDX-License-Identifier: Apache-2.0
// The rotate kernel: one source, compiled for every CPU target and chosen at run time.
#include "kernels/rotate.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotate.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cos_sin-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gnomon::kernels::HWY_NAMESPACE {

using F = hn::ScalableTag<float>;
using U = hn::RebindToUnsigned<F>;
using H = hn::Rebind<std::uint16_t, F>;

/// f32 to bf16 in the upper half of each lane, to nearest even; a NaN stays one (Highway 1.0.3 would truncate).
HWY_INLINE hn::Vec<U> round_bf16(hn::Vec<F> value) {
  const U u;
  const auto bits = hn::BitCast(u, value);
  const auto tie = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
  const auto rounded = hn::Add(bits, hn::Add(tie, hn::Set(u, 0x7fffu)));
  const auto nan = hn::RebindMask(u, hn::Ne(value, value));
  return hn::And(hn::IfThenElse(nan, hn::Or(bits, hn::Set(u, 0x400000u)), rounded), hn::Set(u, 0xffff0000u));
}

/// How a pair of vectors is read and written, by element type and layout. `half` is the distance of a pair's elements in half_split.
struct HalfSplitF32 {
  static HWY_INLINE void load(const float* x, std::int64_t i, std::int64_t half, hn::Vec<F>& a, hn::Vec<F>& b) {
    a = hn::LoadU(F(), x + i);
    b = hn::LoadU(F(), x + half + i);
  }
  static HWY_INLINE void store(float* x, std::int64_t i, std::int64_t half, hn::Vec<F> a, hn::Vec<F> b) {
    hn::StoreU(a, F(), x + i);
    hn::StoreU(b, F(), x + half + i);
  }
};
struct InterleavedF32 {
  static HWY_INLINE void load(const float* x, std::int64_t i, std::int64_t, hn::Vec<F>& a, hn::Vec<F>& b) {
    hn::LoadInterleaved2(F(), x + 2 * i, a, b);
  }
  static HWY_INLINE void store(float* x, std::int64_t i, std::int64_t, hn::Vec<F> a, hn::Vec<F> b) {
    hn::StoreInterleaved2(a, b, F(), x + 2 * i);
  }
};
struct HalfSplitBf16 {
  static HWY_INLINE hn::Vec<F> widen(const std::uint16_t* x) {
    return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(U(), hn::LoadU(H(), x))));
  }
  static HWY_INLINE void narrow(hn::Vec<F> value, std::uint16_t* x) {
    const hn::RebindToSigned<U> i32;
    hn::StoreU(hn::DemoteTo(H(), hn::BitCast(i32, hn::ShiftRight<16>(round_bf16(value)))), H(), x);
  }
  static HWY_INLINE void load(const std::uint16_t* x, std::int64_t i, std::int64_t half, hn::Vec<F>& a, hn::Vec<F>& b) {
    a = widen(x + i);
    b = widen(x + half + i);
  }
  static HWY_INLINE void store(std::uint16_t* x, std::int64_t i, std::int64_t half, hn::Vec<F> a, hn::Vec<F> b) {
    narrow(a, x + i);
    narrow(b, x + half + i);
  }
};
struct InterleavedBf16 {  // a pair is one 32-bit lane: the first element below, the second above
  static HWY_INLINE void load(const std::uint16_t* x, std::int64_t i, std::int64_t, hn::Vec<F>& a, hn::Vec<F>& b) {
    const auto both = hn::LoadU(U(), reinterpret_cast<const std::uint32_t*>(x + 2 * i));
    a = hn::BitCast(F(), hn::ShiftLeft<16>(both));
    b = hn::BitCast(F(), hn::And(both, hn::Set(U(), 0xffff0000u)));
  }
  static HWY_INLINE void store(std::uint16_t* x, std::int64_t i, std::int64_t, hn::Vec<F> a, hn::Vec<F> b) {
    const auto both = hn::Or(hn::ShiftRight<16>(round_bf16(a)), round_bf16(b));
    hn::StoreU(both, U(), reinterpret_cast<std::uint32_t*>(x + 2 * i));
  }
};

HWY_INLINE float widen_one(float value) { return value; }
HWY_INLINE float widen_one(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }
HWY_INLINE void narrow_one(float value, float& to) { to = value; }
HWY_INLINE void narrow_one(float value, std::uint16_t& to) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  to = static_cast<std::uint16_t>((value != value ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// Rotates one head at one token. What is left beyond the last whole vector goes pair by pair.
template <class Access, class Element>
HWY_INLINE void rotate_head(const Element* x, Element* out, const float* cosine, const float* sine, std::int64_t pairs, bool interleaved) {
  const F f;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(f));
  std::int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    hn::Vec<F> a, b;
    Access::load(x, i, pairs, a, b);
    const auto c = hn::LoadU(f, cosine + i), s = hn::LoadU(f, sine + i);
    Access::store(out, i, pairs, hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c)));
  }
  for (; i < pairs; i++) {
    const std::int64_t first = interleaved ? 2 * i : i, second = first + (interleaved ? 1 : pairs);
    const float a = widen_one(x[first]), b = widen_one(x[second]);
    narrow_one(a * cosine[i] - b * sine[i], out[first]);
    narrow_one(b * cosine[i] + a * sine[i], out[second]);
  }
}

/// Rows of cos and sin for a block of tokens, in cache while every head of the block is rotated.
class Rows {
 public:
  explicit Rows(const RotateJob& job) : job_(job) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
    width_ = (job.pairs + lanes - 1) / lanes * lanes;
    block_ = std::clamp<std::int64_t>(4096 / width_, 1, 32);
    block_ = std::max<std::int64_t>(std::min(block_, job.tokens), 1);
    rows_.resize(static_cast<std::size_t>(2 * width_ * block_));
    low_turns_.resize(static_cast<std::size_t>(width_));
    high_turns_.resize(static_cast<std::size_t>(width_));
    for (std::size_t i = 0; i < static_cast<std::size_t>(job.pairs); i++) {
      low_turns_[i] = static_cast<std::uint32_t>(job.turns[i].fraction);
      high_turns_[i] = static_cast<std::uint32_t>(job.turns[i].fraction >> 32);
    }
  }
  std::int64_t block() const { return block_; }
  const float* cosine(std::int64_t row) const { return rows_.data() + 2 * width_ * row; }
  const float* sine(std::int64_t row) const { return cosine(row) + width_; }

  void fill(std::int64_t row, std::int64_t position) {
    const F f;
    const U u;
    float* to = rows_.data() + 2 * width_ * row;
    const auto lower = hn::Set(u, static_cast<std::uint32_t>(position)), upper = hn::Set(u, static_cast<std::uint32_t>(position >> 32));
    const auto magnitude = hn::Set(f, job_.magnitude), signed_magnitude = hn::Set(f, job_.transposed ? -job_.magnitude : job_.magnitude);
    for (std::int64_t i = 0; i < width_; i += static_cast<std::int64_t>(hn::Lanes(f))) {
      const auto low = hn::LoadU(u, low_turns_.data() + i), high = hn::LoadU(u, high_turns_.data() + i);
      // The upper word of the wrapping 64-bit product, exactly: its lower word carries nothing but this into it.
      const auto phase = hn::Add(upper_product(u, low, lower), hn::Add(hn::Mul(high, lower), hn::Mul(low, upper)));
      hn::Vec<F> c, s;
      cos_sin(f, phase, c, s);
      hn::StoreU(hn::Mul(c, magnitude), f, to + i);
      hn::StoreU(hn::Mul(s, signed_magnitude), f, to + width_ + i);
    }
  }

 private:
  const RotateJob& job_;
  std::int64_t width_ = 0, block_ = 0;
  std::vector<std::uint32_t> low_turns_, high_turns_;  // (width), the words of each pair's fraction
  std::vector<float> rows_;                            // (block, 2, width): cos and sin
};

template <class Access, class Element>
void rotate_block(const RotateJob& job, const Rows& rows, std::int64_t b, std::int64_t begin, std::int64_t end) {
  for (std::int64_t h = 0; h < job.heads; h++) {
    const Element* x = static_cast<const Element*>(job.x) + b * job.x_strides[0] + h * job.x_strides[1] + begin * job.x_strides[2];
    Element* out = static_cast<Element*>(job.out) + b * job.out_strides[0] + h * job.out_strides[1] + begin * job.out_strides[2];
    for (std::int64_t t = begin; t < end; t++, x += job.x_strides[2], out += job.out_strides[2]) {
      const std::int64_t first = job.rotary_offset, past = first + 2 * job.pairs;
      if (x != out) {
        std::memcpy(out, x, static_cast<std::size_t>(first) * sizeof(Element));
        std::memcpy(out + past, x + past, static_cast<std::size_t>(job.head_dim - past) * sizeof(Element));
      }
      rotate_head<Access>(x + first, out + first, rows.cosine(t - begin), rows.sine(t - begin), job.pairs, job.interleaved);
    }
  }
}

template <class Access, class Element>
void rotate(const RotateJob& job) {
  Rows rows(job);
  for (std::int64_t begin = 0; begin < job.tokens; begin += rows.block()) {
    const std::int64_t end = std::min(begin + rows.block(), job.tokens);
    for (std::int64_t b = 0; b < job.batch; b++) {
      if (b == 0 || job.per_row) {
        for (std::int64_t t = begin; t < end; t++) rows.fill(t - begin, job.position(b, t));
      }
      rotate_block<Access, Element>(job, rows, b, begin, end);
    }
  }
}

void run_f32(const RotateJob& job) { job.interleaved ? rotate<InterleavedF32, float>(job) : rotate<HalfSplitF32, float>(job); }
void run_bf16(const RotateJob& job) {
  job.interleaved ? rotate<InterleavedBf16, std::uint16_t>(job) : rotate<HalfSplitBf16, std::uint16_t>(job);
}
const char* name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace gnomon::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gnomon::kernels {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_bf16);
HWY_EXPORT(name);

void rotate_f32(const RotateJob& job) { HWY_DYNAMIC_DISPATCH(run_f32)(job); }
void rotate_bf16(const RotateJob& job) { HWY_DYNAMIC_DISPATCH(run_bf16)(job); }
const char* target_name() { return HWY_DYNAMIC_DISPATCH(name)(); }

}  // namespace gnomon::kernels
#endif
