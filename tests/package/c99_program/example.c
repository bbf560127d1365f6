/* SPDX-License-Identifier: Apache-2.0 */
#include <gnomon/gnomon.h>
#include <stdio.h>
#include <stdlib.h>

static void check(gnomon_status status) {
  if (status == GNOMON_OK) return;
  fprintf(stderr, "gnomon: %s\n", gnomon_last_error());
  exit(1);
}

int main(void) {
  const char* json =
      "{\"rule\": \"llama3\", \"theta\": 500000, \"head_dim\": 8, \"factor\": 8, \"low_freq_factor\": 1,"
      " \"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}";
  gnomon_rotary* rotary = NULL;
  check(gnomon_rotary_create(json, GNOMON_EXACT, 0, &rotary)); /* once; share it between threads */

  size_t pairs = 0;
  const double* inv_freq = NULL;
  check(gnomon_rotary_pairs(rotary, &pairs));
  check(gnomon_rotary_inv_freq(rotary, &inv_freq));
  for (size_t i = 0; i < pairs; i++) printf("inv_freq %.17g\n", inv_freq[i]);

  /* One head with two keys, which stand at positions 1000000 and 1000001. */
  float key[2][8] = {{1, 2, 3, 4, 5, 6, 7, 8}, {8, 7, 6, 5, 4, 3, 2, 1}};
  const gnomon_tensor keys = {key, GNOMON_F32, {1, 1, 2, 8}, {16, 16, 8, 1}}; /* (B,H,T,D) */
  const gnomon_positions positions = {GNOMON_RANGE, 2, 1000000, NULL};
  check(gnomon_rotate(rotary, &keys, &keys, &positions, GNOMON_FORWARD)); /* in place */
  for (int d = 0; d < 8; d++) printf("rotated %.9g\n", key[0][d]);

  /* The first 1000 tokens of the cache were dropped: every key moves back by 1000. */
  const int64_t back[2] = {1000, 1000};
  const gnomon_positions shift = {GNOMON_IDS, 2, 0, back};
  check(gnomon_rotate(rotary, &keys, &keys, &shift, GNOMON_TRANSPOSED));
  for (int d = 0; d < 8; d++) printf("moved %.9g\n", key[0][d]);

  gnomon_rotary_destroy(rotary);
  return 0;
}
