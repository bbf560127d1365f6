/* SPDX-License-Identifier: Apache-2.0 */
/* ⑤ The C ABI: exact rotary frequencies, tables of cos and sin, rotate, add_positions and attention, for C99 and for whatever calls C. This
 * header is the manual; docs/c.md has a program that runs.
 *
 *   Failure    A function that can fail returns a gnomon_status, GNOMON_OK being 0, and leaves a sentence that names the argument, what was
 *              expected and what was got: gnomon_last_error(). After a failure the arguments named as results are as they were. No
 *              exception crosses, memory that cannot be had included.
 *   Pointers   None may be null unless its description says so; a null one is GNOMON_INVALID_ARGUMENT.
 *   Memory     Belongs to the caller, but for gnomon_rotary, which is destroyed by gnomon_rotary_destroy().
 *   Threads    Functions may be called from several threads at once. A gnomon_rotary never changes and may be shared. The calling thread
 *              does the work.
 *   Linking    The library is static; `pkg-config --libs gnomon` names the C++ standard library it needs. */
#ifndef GNOMON_GNOMON_H
#define GNOMON_GNOMON_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GNOMON_API __attribute__((visibility("default")))
#else
#define GNOMON_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Choices are 32-bit integers with named values: their size is known to every language, and an unknown value is refused, not undefined. */

typedef int32_t gnomon_status;
enum {
  GNOMON_OK = 0,
  GNOMON_INVALID_ARGUMENT = 1, /* a value that cannot be used */
  GNOMON_OUT_OF_RANGE = 2,     /* a position beyond ±2^33 */
  GNOMON_UNSUPPORTED = 3,      /* understood, but not offered, as hf numerics for a rule that transformers does not have */
  GNOMON_MALFORMED = 4,        /* text that is not strict JSON */
  GNOMON_OUT_OF_MEMORY = 5,
  GNOMON_INTERNAL = 6 /* a defect of the library; please report the message */
};

typedef int32_t gnomon_numerics;
enum {
  GNOMON_EXACT = 0, /* the real-number rule, each frequency correctly rounded to double, angles never rounded */
  GNOMON_HF = 1     /* the float32 pipeline of the transformers library, operation by operation; for tables, not for rotate */
};

typedef int32_t gnomon_dtype;
enum {
  GNOMON_F64 = 0,
  GNOMON_F32 = 1,
  GNOMON_BF16 = 2, /* the upper half of a float */
  GNOMON_F16 = 3   /* IEEE binary16 */
};

typedef int32_t gnomon_direction;
enum {
  GNOMON_FORWARD = 0,   /* a' = a cos - b sin, b' = b cos + a sin, times the attention factor */
  GNOMON_TRANSPOSED = 1 /* the opposite sine and the same factor: the gradient, and the way back where the factor is 1 */
};

typedef int32_t gnomon_positions_kind;
enum {
  GNOMON_RANGE = 0, /* first, first + 1, ..., first + count - 1 */
  GNOMON_IDS = 1    /* ids[0], ..., ids[count - 1]; they may repeat, jump and be negative */
};

/* Angle positions: which turn of the dial a token stands at. Each must be within ±2^33. */
typedef struct gnomon_positions {
  gnomon_positions_kind kind;
  size_t count;
  int64_t first;      /* read for GNOMON_RANGE */
  const int64_t* ids; /* read for GNOMON_IDS, (count) of them */
} gnomon_positions;

/* A view of the caller's memory with axes (B,H,T,D): batch, heads, tokens, head_dim. Any memory order is a permutation of the strides. */
typedef struct gnomon_tensor {
  void* data; /* element (0,0,0,0); may be null where the tensor has no elements */
  gnomon_dtype dtype;
  int64_t shape[4];
  int64_t strides[4]; /* in elements; may be negative; the last one is 1 */
} gnomon_tensor;

/* A rotary position embedding turned into numbers. */
typedef struct gnomon_rotary gnomon_rotary;

/* "0.1.0", as the library was built. */
GNOMON_API const char* gnomon_version(void);

/* The message of the last failure in the calling thread, UTF-8; "" before the first. Valid until the next failure in that thread. */
GNOMON_API const char* gnomon_last_error(void);

/* Makes a rotary from its JSON and stores it in *rotary.
 *
 *   json      null-terminated, one flat object with "rule", "theta", "head_dim" and the rule's fields, as `gnomon explain RULE` lists them
 *             and `gnomon inspect --json` prints them: {"rule": "linear", "theta": 10000, "head_dim": 128, "factor": 4}. Optional:
 *             "rotary_dim" (head_dim), "rotary_offset" (0), "layout" ("half_split" or "interleaved"), "attention_factor" (the rule's own),
 *             "axes", "sections" and "section_order" for several position axes
 *   numerics  GNOMON_EXACT or GNOMON_HF
 *   length    sequence length, for rules that depend on it; 0 for none
 *
 * GNOMON_MALFORMED for text that is not strict JSON, GNOMON_INVALID_ARGUMENT for a missing, unknown or impossible field,
 * GNOMON_UNSUPPORTED for GNOMON_HF with a rule transformers does not have. */
GNOMON_API gnomon_status gnomon_rotary_create(const char* json, gnomon_numerics numerics, int64_t length, gnomon_rotary** rotary);

/* Frees a rotary; nothing happens for null. */
GNOMON_API void gnomon_rotary_destroy(gnomon_rotary* rotary);

/* Number of rotated pairs, rotary_dim / 2. */
GNOMON_API gnomon_status gnomon_rotary_pairs(const gnomon_rotary* rotary, size_t* pairs);

/* Angular frequencies in radians per position, (pairs) of them, not negative. They belong to the rotary and live as long. */
GNOMON_API gnomon_status gnomon_rotary_inv_freq(const gnomon_rotary* rotary, const double** inv_freq);

/* Magnitude on cos and sin: rotate applies it, tables leave it out. 1 for most rules. */
GNOMON_API gnomon_status gnomon_rotary_attention_factor(const gnomon_rotary* rotary, double* attention_factor);

/* Writes cos and sin of (position, pair), without the attention factor, each rounded once to dtype.
 *
 *   cos, sin  (count, pairs) of dtype each, contiguous; nothing is written when the call fails
 *
 * GNOMON_EXACT: every entry within half an ulp of dtype (f64: 1 ulp) plus (|p| + 2) * 2^-64 turns. GNOMON_HF: one float32 product of
 * position and frequency, cos and sin of that angle rounded to float32, then to dtype. */
GNOMON_API gnomon_status gnomon_rotary_table(const gnomon_rotary* rotary, const gnomon_positions* positions, gnomon_dtype dtype, void* cos,
                                             void* sin);

/* Rotates the pairs of every head of x into out; the channels that do not rotate are copied.
 *
 *   rotary     of GNOMON_EXACT: cos and sin are made on the way, within 1.2e-7 at every position, however far
 *   x          (B,H,T,D), D = head_dim; only read, unless it is out
 *   out        of x's shape and dtype: x itself, which rotates in place, or memory that does not overlap it
 *   positions  T of them, shared by the batch, or B*T, row by row
 *   direction  GNOMON_FORWARD or GNOMON_TRANSPOSED
 *
 * Every result is rounded once to its dtype, to nearest even. f64 runs a double reference, the other types the kernel of this CPU.
 * To move cached keys from positions p to q, rotate them by q - p, with a rotary whose attention factor is 1.
 * Source: Su et al. 2021, RoFormer, arXiv:2104.09864, eq. 34. */
GNOMON_API gnomon_status gnomon_rotate(const gnomon_rotary* rotary, const gnomon_tensor* x, const gnomon_tensor* out,
                                       const gnomon_positions* positions, gnomon_direction direction);

/* The caller's threads. run() must call task(body, 0) ... task(body, tasks - 1), each once, in any order and on any threads, and return
 * when all are done. */
typedef struct gnomon_executor {
  void* context; /* handed to run() */
  size_t width;  /* how many tasks can run at once */
  void (*run)(void* context, size_t tasks, void (*task)(void* body, size_t index), void* body);
} gnomon_executor;

/* Rotates the queries and keys of a layer in one call, which share the work of making cos and sin: as gnomon_rotate for both, with the same
 * B, T, D and dtype and any number of heads each. For the rule xpos the keys get the reciprocal magnitudes.
 *
 *   executor  threads to use for large tensors, or null for the calling thread alone; the result does not depend on it */
GNOMON_API gnomon_status gnomon_rotate_qk(const gnomon_rotary* rotary, const gnomon_tensor* q, const gnomon_tensor* q_out,
                                          const gnomon_tensor* k, const gnomon_tensor* k_out, const gnomon_positions* positions,
                                          gnomon_direction direction, const gnomon_executor* executor);

/* A table of rows, one for each position: a learned position embedding. */
typedef struct gnomon_rows {
  const void* data;
  gnomon_dtype dtype;
  int64_t rows;
  int64_t width;      /* elements of a row, which is contiguous */
  int64_t row_stride; /* from one row to the next, in elements */
  int64_t offset;     /* row of position 0; rows - offset is the trained length */
} gnomon_rows;

/* Writes scale * x + row(position + offset) for every token.
 *
 *   x, out     (B,1,T,C) with C the table's width; out may be x
 *   positions  T of them, or B*T, row by row; GNOMON_OUT_OF_RANGE, which names it, for one without a row
 *
 * Rounded once to the dtype of x, which the table need not have.
 * Source: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762, section 3.5. */
GNOMON_API gnomon_status gnomon_add_positions(const gnomon_tensor* x, const gnomon_tensor* out, const gnomon_rows* table,
                                              const gnomon_positions* positions, double scale);

typedef int32_t gnomon_alignment;
enum {
  GNOMON_LOWER_RIGHT = 0, /* the last query stands at the last key: a cache */
  GNOMON_TOP_LEFT = 1     /* query 0 stands at key 0 */
};

/* What attention does beside softmax(q k^T / sqrt(D)) v. Fill it with zeros, then set what differs: zeros and null mean none of it. */
typedef struct gnomon_attention_options {
  double scale;   /* of q k^T; 0: 1 / sqrt(D) */
  double softcap; /* c: scores become c tanh(score / c); 0: none */

  /* The mask. */
  int32_t causal; /* not 0: a query sees no key after its own */
  gnomon_alignment alignment;
  int64_t window;           /* causal: keys seen, the query's own included; else |i - j| <= window / 2; 0: all */
  int64_t chunk;            /* keys of the same chunk only; 0: none */
  int64_t keep_first;       /* the first keys, seen through window and chunk */
  const int32_t* key_begin; /* (B): the first key that exists in each row, or null */
  const int32_t* key_end;   /* (B): the key past the last that exists in each row, or null */

  /* Scores by distance, key - query; both are summed. */
  const float* slopes;        /* (Hq): -slope |distance|, or null */
  int32_t symmetric;          /* not 0: keys after the query are penalised too */
  const float* distance_rows; /* (Hq, distances): a value for each distance from `least` on, the value at an end beyond it; or null */
  int64_t least;
  int64_t distances;

  const float* sink_logits; /* (Hq): a logit that only adds to the denominator, or null */
  float* log_sum_exp;       /* (B,Hq,Tq), written, or null: natural logarithm of the denominator */
} gnomon_attention_options;

/* softmax(softcap(scale q k^T) + scores by distance, mask) v; nothing is ever Tq x Tk.
 *
 *   q         (B,Hq,Tq,D)
 *   k, v      (B,Hk,Tk,D) and (B,Hk,Tk,Dv), Hq a multiple of Hk
 *   out       (B,Hq,Tq,Dv), memory of its own; a query that sees no key gets zeros
 *   options   or null for none
 *   executor  or null for the calling thread alone; the result does not depend on it
 *
 * One dtype for all four; f64 runs a double reference, the other types the kernel of this CPU, which accumulates in float.
 * Source: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762, eq. 1. */
GNOMON_API gnomon_status gnomon_attention(const gnomon_tensor* q, const gnomon_tensor* k, const gnomon_tensor* v, const gnomon_tensor* out,
                                          const gnomon_attention_options* options, const gnomon_executor* executor);

#ifdef __cplusplus
}
#endif

#endif
