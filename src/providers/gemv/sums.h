/* sums.h (gemv): sums of products of a row x [inner], in f32, with a block of the columns of weights in f32 or bf16.
 *
 * Weights are read in their stored layout, and widened to f32 in registers. Products are added in f32, each by one
 * fused operation. The order of additions depends on the sizes alone. `dtype` is a constant at each call, so that the
 * loops of each dtype are compiled by themselves. Pointers to weights are in bytes, strides in elements.
 */
#ifndef HEADRACE_PROVIDERS_GEMV_SUMS_H_
#define HEADRACE_PROVIDERS_GEMV_SUMS_H_

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/ir/dtype.h"
#include "core/math/convert.h"

enum { LANES = 32, DOTS = 4, LINE_BYTES = 64, AHEAD_BYTES = 16384, ROWS_AHEAD_BYTES = 8192 };

#define SUMS_INLINE static inline __attribute__((always_inline))

SUMS_INLINE int64_t weight_bytes(hr_dtype dtype) {
  return dtype == HR_DTYPE_BF16 ? 2 : 4;
}

/* ---- K contiguous ---- */

/* A dot product is 32 sums, each of every 32nd product, added by a binary tree. Vectors are GNU C's, in the machine's
 * width. */
typedef float vector16 __attribute__((vector_size(64)));
typedef float vector8 __attribute__((vector_size(32)));
typedef float vector4 __attribute__((vector_size(16)));

#if defined(__AVX512F__)
enum { WIDTH = 16, HELD = 16, HELD_LAST = 4 }; /* HELD: vectors of sums that registers have room for */
typedef vector16 vector;

static inline vector multiply_add(vector x, vector w, vector sum) {
  return _mm512_fmadd_ps(x, w, sum);
}

static inline vector widen_bfloats(const char *w) {
  return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)w)), 16);
}
#else
enum { WIDTH = 8, HELD = 8, HELD_LAST = 4 };
typedef vector8 vector;

static inline vector multiply_add(vector x, vector w, vector sum) {
#if defined(__FMA__)
  return _mm256_fmadd_ps(x, w, sum);
#else
  for (int l = 0; l < WIDTH; ++l) {
    sum[l] = __builtin_fmaf(x[l], w[l], sum[l]);
  }
  return sum;
#endif
}

static inline vector widen_bfloats(const char *w) {
#if defined(__AVX2__)
  return (vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)w)), 16);
#else
  vector out;
  uint16_t half[WIDTH];
  memcpy(half, w, sizeof half);
  for (int l = 0; l < WIDTH; ++l) {
    out[l] = hr__f32_from_bfloat(half[l]);
  }
  return out;
#endif
}
#endif

typedef struct lanes {
  vector parts[LANES / WIDTH];
} lanes;

/* The weights from `w` on, as f32. */
SUMS_INLINE vector load_weights(const char *w, hr_dtype dtype) {
  if (dtype == HR_DTYPE_BF16) {
    return widen_bfloats(w);
  }
  vector out;
  memcpy(&out, w, sizeof out);
  return out;
}

SUMS_INLINE float load_weight(const char *w, hr_dtype dtype) {
  if (dtype == HR_DTYPE_BF16) {
    uint16_t half;
    memcpy(&half, w, sizeof half);
    return hr__f32_from_bfloat(half);
  }
  float value;
  memcpy(&value, w, sizeof value);
  return value;
}

/* The first `parts` vectors of lanes: sum += x w. */
SUMS_INLINE void add_products(lanes *sum, const float *restrict x, const char *restrict w, int parts, hr_dtype dtype) {
  for (int i = 0; i < parts; ++i) {
    vector a;
    memcpy(&a, x + i * WIDTH, sizeof a);
    sum->parts[i] = multiply_add(a, load_weights(w + i * WIDTH * weight_bytes(dtype), dtype), sum->parts[i]);
  }
}

/* The rest after the last whole set of lanes. */
SUMS_INLINE void add_rest(lanes *sum, const float *restrict x, const char *restrict w, int64_t count, hr_dtype dtype) {
  int64_t whole = count / WIDTH * WIDTH;
  add_products(sum, x, w, (int)(count / WIDTH), dtype);
  if (whole < count) {
    float values[LANES];
    memcpy(values, sum, sizeof values);
    for (int64_t l = whole; l < count; ++l) {
      values[l] = __builtin_fmaf(x[l], load_weight(w + l * weight_bytes(dtype), dtype), values[l]);
    }
    memcpy(sum, values, sizeof values);
  }
}

static inline vector4 sum_to_four(const lanes *sum) {
#if defined(__AVX512F__)
  vector16 a = sum->parts[0] + sum->parts[1];
  vector8 b = __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  vector8 b = (sum->parts[0] + sum->parts[2]) + (sum->parts[1] + sum->parts[3]);
#endif
  return __builtin_shufflevector(b, b, 0, 1, 2, 3) + __builtin_shufflevector(b, b, 4, 5, 6, 7);
}

/* The sums of four rows, each already reduced to four lanes. */
static inline void sum_lanes(vector4 a, vector4 b, vector4 c, vector4 d, float *out) {
  vector4 ab = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
  vector4 cd = __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
  vector4 sums = __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
  memcpy(out, &sums, sizeof sums);
}

static inline float sum_four(vector4 a) {
  return (a[0] + a[2]) + (a[1] + a[3]);
}

/* Asks for the weights `ahead` bytes behind these. The processor's own prefetching is late: it begins anew at each page
 * of 4 KB. Asking for what lies behind the weights is harmless. */
SUMS_INLINE void fetch_ahead(const char *w, int64_t ahead, hr_dtype dtype) {
  for (int64_t b = 0; b < LANES * weight_bytes(dtype); b += LINE_BYTES) {
    __builtin_prefetch(w + ahead + b);
  }
}

/* Asks for the weights `ahead` bytes behind these, unless it is 0. */
SUMS_INLINE vector4 dot_row(const float *restrict x, const char *restrict w, int64_t count, int64_t ahead,
                            hr_dtype dtype) {
  lanes sum = {0};
  int64_t k = 0;
  for (; k + LANES <= count; k += LANES) {
    if (ahead != 0) {
      fetch_ahead(w + k * weight_bytes(dtype), ahead, dtype);
    }
    add_products(&sum, x + k, w + k * weight_bytes(dtype), LANES / WIDTH, dtype);
  }
  if (k < count) {
    add_rest(&sum, x + k, w + k * weight_bytes(dtype), count - k, dtype);
  }
  return sum_to_four(&sum);
}

/* sum_dots, inlined for an `inner` and `ahead` that are constants. `is_long`: columns one by one in a loop. */
SUMS_INLINE void sum_dots_of(const float *x, const char *w, int64_t step, int64_t inner, int64_t count,
                             float *restrict out, int64_t ahead, hr_dtype dtype, bool is_long) {
  int64_t n = 0, bytes = step * weight_bytes(dtype);
  for (; n + DOTS <= count; n += DOTS) {
    const char *column = w + n * bytes;
    vector4 sums[DOTS];
    if (is_long) {
#pragma GCC unroll 1
      for (int d = 0; d < DOTS; ++d) {
        sums[d] = dot_row(x, column + d * bytes, inner, ahead, dtype);
      }
    } else {
      for (int d = 0; d < DOTS; ++d) {
        sums[d] = dot_row(x, column + d * bytes, inner, ahead, dtype);
      }
    }
    sum_lanes(sums[0], sums[1], sums[2], sums[3], &out[n]);
  }
  for (; n < count; ++n) {
    out[n] = sum_four(dot_row(x, w + n * bytes, inner, ahead, dtype));
  }
}

/* out[n] = dot(x, column n of w) for `count` columns that are `step` elements apart, one after the other: from memory
 * and other cores' caches this is twice as fast as four at once. Half of a short dot product's time is its loops. */
SUMS_INLINE void sum_dots(const float *x, const char *w, int64_t step, int64_t inner, int64_t count,
                          float *restrict out, int64_t ahead, hr_dtype dtype) {
  if (dtype == HR_DTYPE_F32 && inner == LANES) {
    sum_dots_of(x, w, step, LANES, count, out, ahead, dtype, false);
  } else if (dtype == HR_DTYPE_F32 && inner == 2 * LANES) {
    sum_dots_of(x, w, step, 2 * LANES, count, out, ahead, dtype, false);
  } else {
    sum_dots_of(x, w, step, inner, count, out, ahead, dtype, true);
  }
}

/* ---- N contiguous ---- */

enum { PAGE_BYTES = 4096, ROWS = 4, BFLOAT_ROWS = 8, ROWS_AHEAD = 16, CACHED_BYTES = 1 << 18, HELD_COLUMNS = 256 };

/* sums[i] += x[r] times element i of row r, for each of `rows` rows in turn; rows are `bytes` apart. Asks for the
 * weights `ahead` bytes behind these, unless it is 0. Compilers widen bf16 in halves of a longer vector. */
SUMS_INLINE void add_rows(const float *x, const char *restrict w, int64_t bytes, int rows, int64_t count, int64_t ahead,
                          float *restrict sums, hr_dtype dtype) {
  int64_t i = 0, size = weight_bytes(dtype);
  for (; i + WIDTH <= count; i += WIDTH) {
    vector sum;
    memcpy(&sum, sums + i, sizeof sum);
    for (int r = 0; r < rows; ++r) {
      const char *from = w + r * bytes + i * size;
      if (ahead != 0 && i * size % LINE_BYTES == 0) {
        __builtin_prefetch(from + ahead);
      }
      sum = multiply_add((vector){0} + x[r], load_weights(from, dtype), sum);
    }
    memcpy(sums + i, &sum, sizeof sum);
  }
  for (; i < count; ++i) {
    float sum = sums[i];
    for (int r = 0; r < rows; ++r) {
      sum = __builtin_fmaf(x[r], load_weight(w + r * bytes + i * size, dtype), sum);
    }
    sums[i] = sum;
  }
}

/* Asks for `count` elements of bf16 before they are read: the processor's own prefetching is too slow for them. */
SUMS_INLINE void fetch_weights(const char *w, int64_t count, hr_dtype dtype) {
  if (dtype == HR_DTYPE_BF16) {
    for (int64_t b = 0; b < count * weight_bytes(dtype); b += LINE_BYTES) {
      __builtin_prefetch(w + b);
    }
  }
}

/* The bytes to ask ahead: whole groups of rows. 0 for matrices that a core's own cache may hold, and for longer rows,
 * which the processor fetches early enough. */
static inline int64_t rows_ahead(int64_t bytes, int64_t inner, hr_dtype dtype) {
  bool is_worth = dtype == HR_DTYPE_F32 && bytes > 0 && bytes < ROWS_AHEAD_BYTES && bytes * inner >= CACHED_BYTES;
  int64_t group = ROWS * bytes;
  return is_worth ? (ROWS_AHEAD_BYTES + group - 1) / group * group : 0;
}

/* add_rows of pairs of rows that are whole, so that all of them are one run of memory; the number of rows. `count` is a
 * multiple of WIDTH. Asks for the weights AHEAD_BYTES behind these in the order of memory, and before that for one line
 * of each page, so that its address is known when the other lines are asked for. */
SUMS_INLINE int64_t add_pairs(const float *x, const char *restrict w, int64_t inner, int64_t count,
                              float *restrict sums, hr_dtype dtype) {
  int64_t k = 0, size = weight_bytes(dtype), bytes = count * size;
  for (; k + 2 <= inner; k += 2) {
    const char *pair = w + k * bytes;
    for (int64_t b = 0; b < 2 * bytes; b += PAGE_BYTES) {
      __builtin_prefetch(pair + 2 * AHEAD_BYTES + b);
    }
    for (int64_t i = 0; i < count; i += WIDTH) {
      for (int64_t b = 0; b < 2 * WIDTH * size; b += LINE_BYTES) {
        __builtin_prefetch(pair + AHEAD_BYTES + 2 * i * size + b);
      }
      vector sum;
      memcpy(&sum, sums + i, sizeof sum);
      sum = multiply_add((vector){0} + x[k], load_weights(pair + i * size, dtype), sum);
      sum = multiply_add((vector){0} + x[k + 1], load_weights(pair + bytes + i * size, dtype), sum);
      memcpy(sums + i, &sum, sizeof sum);
    }
  }
  return k;
}

/* sums[i] = the sum over k of x[k] times element i of row k, of `vectors` vectors of columns, whose sums stay in
 * registers: rows are one run of memory, and the order of additions is that of add_rows. */
SUMS_INLINE void hold_sums(const float *x, const char *restrict w, int64_t bytes, int64_t inner, int vectors,
                           float *restrict sums, hr_dtype dtype) {
  vector held[HELD] = {{0}};
  for (int64_t k = 0; k < inner; ++k) {
    const char *row = w + k * bytes;
    vector factor = (vector){0} + x[k];
#pragma GCC unroll 16
    for (int i = 0; i < vectors; ++i) {
      held[i] = multiply_add(factor, load_weights(row + i * WIDTH * weight_bytes(dtype), dtype), held[i]);
    }
  }
  memcpy(sums, held, (size_t)vectors * sizeof *held);
}

/* The first columns, in whole vectors; the number of these columns. */
SUMS_INLINE int64_t hold_columns(const float *x, const char *w, int64_t bytes, int64_t inner, int64_t count,
                                 float *restrict sums, hr_dtype dtype) {
  int64_t i = 0;
  for (; i + HELD * WIDTH <= count; i += HELD * WIDTH) {
    hold_sums(x, w + i * weight_bytes(dtype), bytes, inner, HELD, sums + i, dtype);
  }
  for (; i + HELD_LAST * WIDTH <= count; i += HELD_LAST * WIDTH) {
    hold_sums(x, w + i * weight_bytes(dtype), bytes, inner, HELD_LAST, sums + i, dtype);
  }
  return i;
}

/* sums[i] = the sum over k of x[k] times element i of row k; rows are `step` elements apart. */
SUMS_INLINE void sum_rows(const float *x, const char *w, int64_t step, int64_t inner, int64_t count,
                          float *restrict sums, hr_dtype dtype) {
  const int rows = dtype == HR_DTYPE_BF16 ? BFLOAT_ROWS : ROWS;
  int64_t k = 0, bytes = step * weight_bytes(dtype), ahead = rows_ahead(bytes, inner, dtype);
  if (dtype == HR_DTYPE_F32 && count <= HELD_COLUMNS && bytes * inner <= CACHED_BYTES) {
    int64_t held = hold_columns(x, w, bytes, inner, count, sums, dtype);
    w += held * weight_bytes(dtype), sums += held, count -= held;
  }
  inner = count > 0 ? inner : 0;
  memset(sums, 0, (size_t)count * sizeof *sums);
  if (ahead != 0 && count == step && count % WIDTH == 0) {
    k = add_pairs(x, w, inner, count, sums, dtype);
  }
  for (; ahead != 0 && k + rows <= inner; k += rows) {
    add_rows(x + k, w + k * bytes, bytes, rows, count, ahead, sums, dtype);
  }
  for (; k + rows <= inner; k += rows) {
    for (int64_t next = k + ROWS_AHEAD; next < k + ROWS_AHEAD + rows && next < inner; ++next) {
      fetch_weights(w + next * bytes, count, dtype);
    }
    add_rows(x + k, w + k * bytes, bytes, rows, count, 0, sums, dtype);
  }
  for (; k < inner; ++k) {
    add_rows(x + k, w + k * bytes, bytes, 1, count, 0, sums, dtype);
  }
}

/* add_rows of one row, which asks for weights `ahead` bytes behind. */
SUMS_INLINE void add_row(float x, const char *restrict w, int64_t ahead, int64_t count, float *restrict sums,
                         hr_dtype dtype) {
  int64_t i = 0, bytes = weight_bytes(dtype);
  for (; i + LANES <= count; i += LANES) {
    fetch_ahead(w + i * bytes, ahead, dtype);
    for (int part = 0; part < LANES / WIDTH; ++part) {
      vector sum;
      memcpy(&sum, sums + i + part * WIDTH, sizeof sum);
      sum = multiply_add((vector){0} + x, load_weights(w + (i + part * WIDTH) * bytes, dtype), sum);
      memcpy(sums + i + part * WIDTH, &sum, sizeof sum);
    }
  }
  add_rows(&x, w + i * bytes, 0, 1, count - i, 0, sums + i, dtype);
}

/* sum_rows of weights from memory, one row after the other. Whole rows are one run of memory; of parts of them, those
 * of later rows are asked for. */
SUMS_INLINE void stream_rows(const float *x, const char *w, int64_t step, int64_t inner, int64_t count,
                             float *restrict sums, hr_dtype dtype) {
  int64_t bytes = step * weight_bytes(dtype), row = count * weight_bytes(dtype);
  int64_t ahead = count == step ? ROWS_AHEAD_BYTES : (ROWS_AHEAD_BYTES + row - 1) / row * bytes;
  memset(sums, 0, (size_t)count * sizeof *sums);
  for (int64_t k = 0; k < inner; ++k) {
    add_row(x[k], w + k * bytes, ahead, count, sums, dtype);
  }
}

#endif
