/* philox.h: TensorFlow's generator of random words, and the numbers that it makes of them. */
#ifndef HEADRACE_TENSORFLOW_PHILOX_H_
#define HEADRACE_TENSORFLOW_PHILOX_H_

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- Philox 4x32 with 10 rounds ---- */

typedef struct htf_philox {
  uint32_t key[2], counter[4], words[4];
  int left; /* of `words`, the last ones */
} htf_philox;

/* The generator of a state u64[3], so many blocks on. */
static inline htf_philox htf_philox_at(const uint64_t *state, uint64_t blocks) {
  uint64_t low = state[1] + blocks, high = state[2] + (low < blocks);
  return (htf_philox){.key = {(uint32_t)state[0], (uint32_t)(state[0] >> 32)},
                      .counter = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
}

static inline void htf_fill_words(htf_philox *p) {
  uint32_t key[2] = {p->key[0], p->key[1]};
  memcpy(p->words, p->counter, sizeof p->words);
  for (int round = 0; round < 10; ++round) {
    uint64_t first = (uint64_t)0xd2511f53u * p->words[0], second = (uint64_t)0xcd9e8d57u * p->words[2];
    uint32_t next[4] = {(uint32_t)(second >> 32) ^ p->words[1] ^ key[0], (uint32_t)second,
                        (uint32_t)(first >> 32) ^ p->words[3] ^ key[1], (uint32_t)first};
    memcpy(p->words, next, sizeof next);
    key[0] += 0x9e3779b9u, key[1] += 0xbb67ae85u;
  }
  for (int i = 0; i < 4 && ++p->counter[i] == 0; ++i) {
  }
  p->left = 4;
}

static inline uint32_t htf_draw_word(htf_philox *p) {
  if (p->left == 0) {
    htf_fill_words(p);
  }
  return p->words[4 - p->left--];
}

/* ---- numbers from words ---- */

static inline float htf_float_of(uint32_t word) {
  uint32_t bits = (word & 0x7fffff) | 0x3f800000;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value - 1;
}

static inline double htf_double_of(uint32_t upper, uint32_t lower) {
  uint64_t bits = (uint64_t)(upper & 0xfffff) << 32 | lower | 0x3ff0000000000000u;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value - 1;
}

/* Two normal numbers from two uniform ones, by Box and Muller. */
static inline void htf_normals_f32(uint32_t first, uint32_t second, double *out) {
  float u = fmaxf(htf_float_of(first), 1e-7f), angle = (float)(2 * M_PI * htf_float_of(second));
  float radius = sqrtf(-2 * logf(u));
  out[0] = sinf(angle) * radius, out[1] = cosf(angle) * radius;
}

static inline void htf_normals_f64(const uint32_t *words, double *out) {
  double u = fmax(htf_double_of(words[0], words[1]), 1e-7), angle = 2 * M_PI * htf_double_of(words[2], words[3]);
  double radius = sqrt(-2 * log(u));
  out[0] = sin(angle) * radius, out[1] = cos(angle) * radius;
}

static inline void htf_normals(htf_philox *p, bool is_wide, double *out) {
  uint32_t words[4];
  int count = is_wide ? 4 : 2;
  for (int i = 0; i < count; ++i) {
    words[i] = htf_draw_word(p);
  }
  if (is_wide) {
    htf_normals_f64(words, out);
  } else {
    htf_normals_f32(words[0], words[1], out);
  }
}

#endif
