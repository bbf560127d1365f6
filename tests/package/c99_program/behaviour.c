/* SPDX-License-Identifier: Apache-2.0 */
/* What the C ABI promises: results, every kind of failure with its message, and that a failure leaves everything as it was. Prints each
 * promise that is broken and returns 1 if there was one. */
#define _POSIX_C_SOURCE 200809L
#include <gnomon/gnomon.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int broken = 0;

static void expect(int condition, const char* promise) {
  if (condition) return;
  printf("broken: %s (last error: \"%s\")\n", promise, gnomon_last_error());
  broken = 1;
}

static void expect_failure(gnomon_status got, gnomon_status status, const char* words) {
  if (got == status && strstr(gnomon_last_error(), words) != NULL) return;
  printf("broken: expected status %d and \"%s\", got %d and \"%s\"\n", (int)status, words, (int)got, gnomon_last_error());
  broken = 1;
}

static gnomon_rotary* make(const char* json, gnomon_numerics numerics) {
  gnomon_rotary* rotary = NULL;
  expect(gnomon_rotary_create(json, numerics, 0, &rotary) == GNOMON_OK && rotary != NULL, json);
  return rotary;
}

static const char* const PLAIN = "{\"rule\": \"default\", \"theta\": 10000, \"head_dim\": 4}";

static void create_failures(void) {
  const struct {
    const char* json;
    gnomon_numerics numerics;
    int64_t length;
    gnomon_status status;
    const char* words;
  } cases[] = {
      {NULL, GNOMON_EXACT, 0, GNOMON_INVALID_ARGUMENT, "json: expected a pointer, got null"},
      {"{\"rule\": ", GNOMON_EXACT, 0, GNOMON_MALFORMED, "rotary"},
      {"{\"rule\": \"default\", \"rule\": \"default\"}", GNOMON_EXACT, 0, GNOMON_MALFORMED, "rule"},
      {"{\"rule\": \"default\", \"head_dim\": 4}", GNOMON_EXACT, 0, GNOMON_INVALID_ARGUMENT, "theta"},
      {"{\"rule\": \"default\", \"theta\": -1, \"head_dim\": 4}", GNOMON_EXACT, 0, GNOMON_INVALID_ARGUMENT, "theta"},
      {"{\"rule\": \"default\", \"theta\": 10000, \"head_dim\": 4, \"base\": 1}", GNOMON_EXACT, 0, GNOMON_INVALID_ARGUMENT, "base"},
      {PLAIN, 7, 0, GNOMON_INVALID_ARGUMENT, "numerics: expected GNOMON_EXACT (0) | GNOMON_HF (1), got 7"},
      {PLAIN, -1, 0, GNOMON_INVALID_ARGUMENT, "numerics"},
      {PLAIN, GNOMON_EXACT, -5, GNOMON_INVALID_ARGUMENT, "length: expected at least 1, got -5"},
      {"{\"rule\": \"ntk\", \"theta\": 10000, \"head_dim\": 4, \"factor\": 2}", GNOMON_HF, 0, GNOMON_UNSUPPORTED, "numerics: hf"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    gnomon_rotary* rotary = NULL;
    expect_failure(gnomon_rotary_create(cases[i].json, cases[i].numerics, cases[i].length, &rotary), cases[i].status, cases[i].words);
    expect(rotary == NULL, "a failed create leaves *rotary as it was");
  }
  expect_failure(gnomon_rotary_create(PLAIN, GNOMON_EXACT, 0, NULL), GNOMON_INVALID_ARGUMENT, "rotary: expected a pointer, got null");
  gnomon_rotary_destroy(NULL);
}

static void accessors(const gnomon_rotary* rotary) {
  size_t pairs = 0;
  double factor = 0;
  const double* inv_freq = NULL;
  expect(gnomon_rotary_pairs(rotary, &pairs) == GNOMON_OK && pairs == 2, "two pairs");
  expect(gnomon_rotary_attention_factor(rotary, &factor) == GNOMON_OK && factor == 1, "factor 1");
  expect(gnomon_rotary_inv_freq(rotary, &inv_freq) == GNOMON_OK && inv_freq[0] == 1 && inv_freq[1] == 0.01, "frequencies 1 and 1/100");
  expect_failure(gnomon_rotary_pairs(NULL, &pairs), GNOMON_INVALID_ARGUMENT, "rotary: ");
  expect_failure(gnomon_rotary_pairs(rotary, NULL), GNOMON_INVALID_ARGUMENT, "pairs: ");
  expect_failure(gnomon_rotary_inv_freq(NULL, &inv_freq), GNOMON_INVALID_ARGUMENT, "rotary: ");
  expect_failure(gnomon_rotary_inv_freq(rotary, NULL), GNOMON_INVALID_ARGUMENT, "inv_freq: ");
  expect_failure(gnomon_rotary_attention_factor(NULL, &factor), GNOMON_INVALID_ARGUMENT, "rotary: ");
  expect_failure(gnomon_rotary_attention_factor(rotary, NULL), GNOMON_INVALID_ARGUMENT, "attention_factor: ");
}

/* The factor stands beside a table and goes into a rotation, once. A length is taken, though this rule has no use for it. */
static void magnitude(void) {
  gnomon_rotary* rotary = NULL;
  double factor = 0, cos_[2], sin_[2], x[4] = {1, 0, 0, 0};
  const gnomon_tensor head = {x, GNOMON_F64, {1, 1, 1, 4}, {4, 4, 4, 1}};
  const gnomon_positions zero = {GNOMON_RANGE, 1, 0, NULL};
  const char* json = "{\"rule\": \"default\", \"theta\": 10000, \"head_dim\": 4, \"attention_factor\": 3}";
  expect(gnomon_rotary_create(json, GNOMON_EXACT, 4096, &rotary) == GNOMON_OK, "a rotary with a factor and a length");
  expect(gnomon_rotary_attention_factor(rotary, &factor) == GNOMON_OK && factor == 3, "factor 3");
  expect(gnomon_rotary_table(rotary, &zero, GNOMON_F64, cos_, sin_) == GNOMON_OK && cos_[0] == 1, "no factor in a table");
  expect(gnomon_rotate(rotary, &head, &head, &zero, GNOMON_FORWARD) == GNOMON_OK && x[0] == 3, "the factor in a rotation, not 1, not 9");
  gnomon_rotary_destroy(rotary);
}

/* cos and sin of angle p * 1 and p * 0.01, in every dtype; the angle of the C library's double functions is right to 1e-9 here. */
static void tables(const gnomon_rotary* rotary) {
  const int64_t far[3] = {-7, 123456, 0};
  const gnomon_positions ids = {GNOMON_IDS, 3, 99, far}, range = {GNOMON_RANGE, 3, 123455, far};
  double cos64[6], sin64[6];
  float cos32[6], sin32[6];
  uint16_t cos16[6], sin16[6];
  expect(gnomon_rotary_table(rotary, &ids, GNOMON_F64, cos64, sin64) == GNOMON_OK, "a table at ids, f64");
  expect(gnomon_rotary_table(rotary, &range, GNOMON_F32, cos32, sin32) == GNOMON_OK, "a table at a range, f32");
  expect(gnomon_rotary_table(rotary, &ids, GNOMON_BF16, cos16, sin16) == GNOMON_OK && cos16[4] == 0x3F80 && sin16[4] == 0, "bf16");
  expect(gnomon_rotary_table(rotary, &ids, GNOMON_F16, cos16, sin16) == GNOMON_OK && cos16[4] == 0x3C00 && sin16[4] == 0, "f16");
  for (int row = 0; row < 3; row++) {
    for (int i = 0; i < 2; i++) {
      const double frequency = i == 0 ? 1 : 0.01;
      const double at_id = (double)far[row] * frequency, in_range = (123455.0 + row) * frequency;
      expect(fabs(cos64[2 * row + i] - cos(at_id)) < 1e-9 && fabs(sin64[2 * row + i] - sin(at_id)) < 1e-9, "cos and sin at ids");
      expect(fabs(cos32[2 * row + i] - cos(in_range)) < 6e-8 && fabs(sin32[2 * row + i] - sin(in_range)) < 6e-8, "cos and sin in a range");
    }
  }
  /* What people got: the product of position and frequency in float. */
  expect(fabs(cos((double)(123456.0f * 0.01f)) - cos64[3]) > 1e-7, "a float angle would have been noticed");

  const gnomon_positions unknown = {9, 3, 0, far}, nowhere = {GNOMON_IDS, 3, 0, NULL};
  const gnomon_positions none = {GNOMON_RANGE, 0, INT64_MAX, NULL}, start = {GNOMON_RANGE, 1, INT64_MIN, NULL};
  const gnomon_positions end = {GNOMON_RANGE, SIZE_MAX, 0, NULL};
  const int64_t beyond[2] = {0, INT64_C(8589934593)};
  const gnomon_positions past = {GNOMON_IDS, 2, 0, beyond};
  expect(gnomon_rotary_table(rotary, &none, GNOMON_F64, cos64, sin64) == GNOMON_OK, "no positions, no entries");
  cos64[0] = 5;
  expect_failure(gnomon_rotary_table(NULL, &ids, GNOMON_F64, cos64, sin64), GNOMON_INVALID_ARGUMENT, "rotary: ");
  expect_failure(gnomon_rotary_table(rotary, NULL, GNOMON_F64, cos64, sin64), GNOMON_INVALID_ARGUMENT, "positions: ");
  expect_failure(gnomon_rotary_table(rotary, &ids, GNOMON_F64, NULL, sin64), GNOMON_INVALID_ARGUMENT, "cos: ");
  expect_failure(gnomon_rotary_table(rotary, &ids, GNOMON_F64, cos64, NULL), GNOMON_INVALID_ARGUMENT, "sin: ");
  expect_failure(gnomon_rotary_table(rotary, &ids, 4, cos64, sin64), GNOMON_INVALID_ARGUMENT, "dtype: expected GNOMON_F64 (0)");
  expect_failure(gnomon_rotary_table(rotary, &unknown, GNOMON_F64, cos64, sin64), GNOMON_INVALID_ARGUMENT, "positions.kind: ");
  expect_failure(gnomon_rotary_table(rotary, &nowhere, GNOMON_F64, cos64, sin64), GNOMON_INVALID_ARGUMENT, "positions.ids: ");
  expect_failure(gnomon_rotary_table(rotary, &start, GNOMON_F64, cos64, sin64), GNOMON_OUT_OF_RANGE, "positions.first: ");
  expect_failure(gnomon_rotary_table(rotary, &end, GNOMON_F64, cos64, sin64), GNOMON_OUT_OF_RANGE, "positions[");
  expect_failure(gnomon_rotary_table(rotary, &past, GNOMON_F64, cos64, sin64), GNOMON_OUT_OF_RANGE, "positions[1]");
  expect(cos64[0] == 5, "a failed table writes nothing");
}

static void rotations(const gnomon_rotary* rotary) {
  /* Two tokens of one head, stored as (T,H,D) with a gap: strides say so. Angle 1 turns the first pair, 0.01 the second. */
  double x[12] = {1, 0, 0, 2, -9, -9, 3, 0, 0, 4, -9, -9}, out[12] = {0};
  const gnomon_tensor from = {x, GNOMON_F64, {1, 1, 2, 4}, {12, 6, 6, 1}}, to = {out, GNOMON_F64, {1, 1, 2, 4}, {12, 6, 6, 1}};
  const gnomon_positions one = {GNOMON_RANGE, 2, 1, NULL};
  expect(gnomon_rotate(rotary, &from, &to, &one, GNOMON_FORWARD) == GNOMON_OK, "rotate into out");
  expect(x[0] == 1 && x[3] == 2 && out[4] == 0, "x and the gap between rows are untouched");
  expect(fabs(out[0] - cos(1.0)) < 1e-15 && fabs(out[2] - sin(1.0)) < 1e-15, "half_split pairs channels 0 and 2");
  expect(fabs(out[1] + 2 * sin(0.01)) < 1e-15 && fabs(out[3] - 2 * cos(0.01)) < 1e-15, "and channels 1 and 3");
  expect(fabs(out[6] - 3 * cos(2.0)) < 1e-15, "the second token stands at position 2");
  expect(fabs(out[1]) > 1e-3, "interleaved pairs, (0, 1), would have been noticed");
  expect(gnomon_rotate(rotary, &to, &to, &one, GNOMON_TRANSPOSED) == GNOMON_OK, "rotate in place");
  for (int d = 0; d < 4; d++) expect(fabs(out[d] - x[d]) < 1e-15 && fabs(out[6 + d] - x[6 + d]) < 1e-15, "transposed leads back");

  const gnomon_tensor dtype = {x, -3, {1, 1, 2, 4}, {12, 6, 6, 1}}, wide = {x, GNOMON_F64, {1, 1, 2, 6}, {12, 6, 6, 1}};
  const gnomon_tensor null = {NULL, GNOMON_F64, {1, 1, 2, 4}, {12, 6, 6, 1}}, crossing = {x + 1, GNOMON_F64, {1, 1, 2, 4}, {12, 5, 5, 1}};
  const gnomon_tensor spread = {x, GNOMON_F64, {1, 1, 2, 4}, {12, 1, 1, 2}}, single = {out, GNOMON_F32, {1, 1, 2, 4}, {12, 6, 6, 1}};
  const gnomon_positions three = {GNOMON_RANGE, 3, 1, NULL}, far = {GNOMON_RANGE, 2, INT64_C(8589934592), NULL};
  out[0] = 5;
  expect_failure(gnomon_rotate(NULL, &from, &to, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "rotary: ");
  expect_failure(gnomon_rotate(rotary, NULL, &to, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "x: ");
  expect_failure(gnomon_rotate(rotary, &from, NULL, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "out: ");
  expect_failure(gnomon_rotate(rotary, &from, &to, NULL, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "positions: ");
  expect_failure(gnomon_rotate(rotary, &from, &to, &one, 2), GNOMON_INVALID_ARGUMENT, "direction: expected GNOMON_FORWARD (0)");
  expect_failure(gnomon_rotate(rotary, &dtype, &to, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "x.dtype: ");
  expect_failure(gnomon_rotate(rotary, &from, &single, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "out: expected the dtype of x");
  expect_failure(gnomon_rotate(rotary, &null, &to, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "x: expected memory");
  expect_failure(gnomon_rotate(rotary, &wide, &to, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "x: expected shape (B, H, T, 4)");
  expect_failure(gnomon_rotate(rotary, &spread, &to, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "stride 2");
  expect_failure(gnomon_rotate(rotary, &from, &crossing, &one, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "out: overlaps x");
  expect_failure(gnomon_rotate(rotary, &from, &to, &three, GNOMON_FORWARD), GNOMON_INVALID_ARGUMENT, "positions: expected 2");
  expect_failure(gnomon_rotate(rotary, &from, &to, &far, GNOMON_FORWARD), GNOMON_OUT_OF_RANGE, "positions[1]");
  expect(out[0] == 5, "a failed rotate writes nothing");

  gnomon_rotary* hf = make(PLAIN, GNOMON_HF);
  expect_failure(gnomon_rotate(hf, &from, &to, &one, GNOMON_FORWARD), GNOMON_UNSUPPORTED, "hf");
  gnomon_rotary_destroy(hf);
}

/* Runs the tasks backwards and counts them, to show that they are lent. */
static void backwards(void* context, size_t tasks, void (*task)(void* body, size_t index), void* body) {
  for (size_t i = tasks; i-- > 0;) task(body, i);
  *(size_t*)context += tasks;
}

/* Queries and keys in one call equal two calls; large tensors are cut into tasks for the caller's threads, with the same result. */
static void queries_and_keys(const gnomon_rotary* rotary) {
  enum { TOKENS = 4096, HEADS = 8 };
  static float q[TOKENS * HEADS * 4], k[TOKENS * 4], q_alone[TOKENS * HEADS * 4], k_alone[TOKENS * 4];
  for (size_t i = 0; i < COUNT(q); i++) q[i] = q_alone[i] = (float)(i % 17) - 8;
  for (size_t i = 0; i < COUNT(k); i++) k[i] = k_alone[i] = (float)(i % 13) - 6;
  const int64_t q_strides[4] = {TOKENS * HEADS * 4, 4, HEADS * 4, 1}, k_strides[4] = {TOKENS * 4, 4, 4, 1};
  gnomon_tensor both[2] = {{q, GNOMON_F32, {1, HEADS, TOKENS, 4}, {0}}, {k, GNOMON_F32, {1, 1, TOKENS, 4}, {0}}};
  memcpy(both[0].strides, q_strides, sizeof q_strides);
  memcpy(both[1].strides, k_strides, sizeof k_strides);
  gnomon_tensor alone[2] = {both[0], both[1]};
  alone[0].data = q_alone;
  alone[1].data = k_alone;
  const gnomon_positions positions = {GNOMON_RANGE, TOKENS, 5, NULL};
  size_t lent = 0;
  const gnomon_executor executor = {&lent, 2, backwards}, without = {NULL, 2, NULL};
  expect(gnomon_rotate_qk(rotary, &both[0], &both[0], &both[1], &both[1], &positions, GNOMON_FORWARD, &executor) == GNOMON_OK, "q and k");
  for (int i = 0; i < 2; i++) expect(gnomon_rotate(rotary, &alone[i], &alone[i], &positions, GNOMON_FORWARD) == GNOMON_OK, "one of them");
  expect(memcmp(q, q_alone, sizeof q) == 0 && memcmp(k, k_alone, sizeof k) == 0, "one call, two calls, any order of tasks: the same bits");
  expect(lent > 1, "the work was cut into tasks and lent");
  expect_failure(gnomon_rotate_qk(rotary, &both[0], &both[0], &both[0], &both[0], &positions, GNOMON_FORWARD, NULL),
                 GNOMON_INVALID_ARGUMENT, "operands: ");
  expect_failure(gnomon_rotate_qk(rotary, NULL, &both[0], &both[1], &both[1], &positions, GNOMON_FORWARD, NULL), GNOMON_INVALID_ARGUMENT,
                 "q: ");
  expect_failure(gnomon_rotate_qk(rotary, &both[0], &both[0], &both[1], &both[1], &positions, GNOMON_FORWARD, &without),
                 GNOMON_INVALID_ARGUMENT, "executor.run: ");
}

static void added_positions(void) {
  const float table[6] = {1, 2, 10, 20, 100, 200}; /* three rows of two; position 0 is the second */
  float x[4] = {0.5f, 0.25f, 3, 4};
  const gnomon_tensor tokens = {x, GNOMON_F32, {1, 1, 2, 2}, {4, 4, 2, 1}};
  const gnomon_rows rows = {table, GNOMON_F32, 3, 2, 2, 1};
  const gnomon_positions first = {GNOMON_RANGE, 2, 0, NULL}, beyond = {GNOMON_RANGE, 2, 1, NULL};
  expect_failure(gnomon_add_positions(&tokens, &tokens, &rows, &beyond, 1), GNOMON_OUT_OF_RANGE, "positions: 2 has no row");
  expect(gnomon_add_positions(&tokens, &tokens, &rows, &first, 2) == GNOMON_OK, "add rows");
  expect(x[0] == 11 && x[1] == 20.5f && x[2] == 106 && x[3] == 208, "2 x + row(position + 1)");
  expect_failure(gnomon_add_positions(&tokens, &tokens, NULL, &first, 1), GNOMON_INVALID_ARGUMENT, "table: ");
}

/* The third row of T16 (d): slope 0.5 and two keys before the query. */
static void attended(void) {
  float q[2] = {1, 0}, k[6] = {1, 0, 0, 1, 1, 1}, v[3] = {1, 2, 3}, out[1] = {-1}, log_sum_exp[1] = {0};
  const float slope[1] = {0.5f}, row[3] = {-1, -0.5f, 0};
  const int32_t short_by_one[1] = {2};
  const gnomon_tensor query = {q, GNOMON_F32, {1, 1, 1, 2}, {2, 2, 2, 1}}, keys = {k, GNOMON_F32, {1, 1, 3, 2}, {6, 6, 2, 1}},
                      values = {v, GNOMON_F32, {1, 1, 3, 1}, {3, 3, 1, 1}}, result = {out, GNOMON_F32, {1, 1, 1, 1}, {1, 1, 1, 1}};
  gnomon_attention_options options;
  memset(&options, 0, sizeof options);
  options.causal = 1;
  options.slopes = slope;
  options.log_sum_exp = log_sum_exp;
  expect(gnomon_attention(&query, &keys, &values, &result, &options, NULL) == GNOMON_OK, "attention");
  expect(fabs(out[0] - 2.37920998108) < 1e-6, "T16 (d)");
  expect(fabs(log_sum_exp[0] - 1.21814) < 1e-3, "the logarithm of its denominator");
  options.slopes = NULL;
  options.distance_rows = row;
  options.least = -2;
  options.distances = 3;
  expect(gnomon_attention(&query, &keys, &values, &result, &options, NULL) == GNOMON_OK, "attention with a row");
  expect(fabs(out[0] - 2.37920998108) < 1e-6, "the same as a row for each distance");
  expect(gnomon_attention(&query, &keys, &values, &result, NULL, NULL) == GNOMON_OK && fabs(out[0] - 2.37920998108) > 1e-2,
         "without a bias it is another value");
  options.key_end = short_by_one;
  options.window = 1;
  expect(gnomon_attention(&query, &keys, &values, &result, &options, NULL) == GNOMON_OK && out[0] == 2, "one key of a shorter row");
  options.window = -1;
  expect_failure(gnomon_attention(&query, &keys, &values, &result, &options, NULL), GNOMON_INVALID_ARGUMENT, "options.window: ");
  expect_failure(gnomon_attention(&query, &keys, &values, &query, NULL, NULL), GNOMON_INVALID_ARGUMENT, "out: ");
  expect_failure(gnomon_attention(NULL, &keys, &values, &result, NULL, NULL), GNOMON_INVALID_ARGUMENT, "q: ");
}

static void* see_no_error(void* seen) {
  *(int*)seen = strcmp(gnomon_last_error(), "") == 0;
  return NULL;
}

static void threads(void) {
  pthread_t other;
  int clean = 0;
  expect_failure(gnomon_rotary_create(NULL, GNOMON_EXACT, 0, NULL), GNOMON_INVALID_ARGUMENT, "rotary: ");
  expect(pthread_create(&other, NULL, see_no_error, &clean) == 0 && pthread_join(other, NULL) == 0 && clean,
         "each thread has its own error");
}

/* The last promise of all, since nothing can be allocated afterwards. */
static void no_memory(void) {
  const struct rlimit none = {0, 0};
  gnomon_rotary* rotary = NULL;
  expect(setrlimit(RLIMIT_AS, &none) == 0, "setrlimit");
  expect_failure(gnomon_rotary_create("{\"rule\": \"default\", \"theta\": 10000, \"head_dim\": 65536}", GNOMON_EXACT, 0, &rotary),
                 GNOMON_OUT_OF_MEMORY, "out of memory");
  expect(rotary == NULL, "a failed create leaves *rotary as it was");
}

int main(void) {
  expect(strcmp(gnomon_last_error(), "") == 0, "no error before the first");
  printf("version %s\n", gnomon_version());
  gnomon_rotary* rotary = make(PLAIN, GNOMON_EXACT);
  create_failures();
  accessors(rotary);
  magnitude();
  tables(rotary);
  rotations(rotary);
  queries_and_keys(rotary);
  added_positions();
  attended();
  gnomon_rotary_destroy(rotary);
  threads();
  no_memory();
  return broken;
}
