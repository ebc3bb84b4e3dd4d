/* numbers.h (packed): packed numbers as vectors of eight floats.
 *
 * Numbers whose bits divide a word are read from eight words at once: lane i has a number of word i, so vector j has
 * the numbers that are 32 / bits apart. Other numbers are in order: 32 of them are as many words as a number has bits.
 *
 *   words   |0 1 .. 7|8 9 .. | ..   (4 bits: 8 numbers each)
 *   vectors |0 8 .. 56|1 9 .. 57| .. |7 15 .. 63|64 72 ..
 *
 * A number is a shift, a mask and a conversion, without a shuffle; a float of four bits is an entry of a table.
 */
#ifndef HEADRACE_PROVIDERS_PACKED_NUMBERS_H_
#define HEADRACE_PROVIDERS_PACKED_NUMBERS_H_

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/ir/dtype.h"
#include "core/math/convert.h"

enum { LANES = 8 };

typedef float vector __attribute__((vector_size(32)));
typedef uint32_t words8 __attribute__((vector_size(32)));
typedef int32_t integers8 __attribute__((vector_size(32)));

/* The formats of a number; floats: e2m1 and e4m3. */
typedef enum number_kind { INT2 = 0, INT3, INT4, INT5, INT6, INT8, FLOAT4, FLOAT8, NUMBER_KINDS } number_kind;

#define PACKED_INLINE static inline __attribute__((always_inline))

static inline number_kind kind_of(int bits, bool is_float) {
  return is_float ? (bits == 4 ? FLOAT4 : FLOAT8) : bits == 8 ? INT8 : (number_kind)(bits - 2);
}

PACKED_INLINE int bits_of(number_kind kind) {
  return kind == FLOAT4 ? 4 : kind == FLOAT8 || kind == INT8 ? 8 : (int)kind + 2;
}

/* True if the bits of a number divide a word: lanes have numbers of different words. */
PACKED_INLINE bool is_interleaved(number_kind kind) {
  return 32 % bits_of(kind) == 0;
}

/* Numbers of one step: those of eight words, or 32. */
PACKED_INLINE int span_of(number_kind kind) {
  return is_interleaved(kind) ? LANES * 32 / bits_of(kind) : 32;
}

/* The place of number i of a step among its vectors. */
PACKED_INLINE int place_in_span(number_kind kind, int i) {
  int count = 32 / bits_of(kind);
  return is_interleaved(kind) ? i % count * LANES + i / count : i;
}

/* ---- decoding ---- */

PACKED_INLINE vector floats_of(words8 numbers) {
  return __builtin_convertvector((integers8)numbers, vector);
}

/* The low four bits: a sign, and a place in 0 0.5 1 1.5 2 3 4 6. */
PACKED_INLINE vector float4_of(words8 codes) {
  words8 sign = (codes & 8u) << 28;
#if defined(__AVX2__)
  const __m256 table = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  words8 size = (words8)_mm256_permutevar8x32_ps(table, (__m256i)codes);
#else
  static const float table[LANES] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  vector sizes;
  for (int i = 0; i < LANES; ++i) {
    sizes[i] = table[codes[i] & 7u];
  }
  words8 size = (words8)sizes;
#endif
  return (vector)(size ^ sign);
}

/* The low byte: a sign, four bits of exponent and three of mantissa. Numbers below 8 are subnormal; none of them passes
 * through a subnormal float, which a thread may read as 0. */
PACKED_INLINE vector float8_of(words8 codes) {
  words8 size = codes & 0x7fu, sign = (codes & 0x80u) << 24, normal = (size << 20) + (120u << 23);
  vector small = floats_of(size) * 0x1p-9f;
#if defined(__AVX2__)
  words8 value =
      (words8)_mm256_blendv_ps((__m256)normal, small, (__m256)(size - 8u)); /* small where this is negative */
#else
  words8 is_small = (words8)(size < 8u), value = ((words8)small & is_small) | (normal & ~is_small);
#endif
  return (vector)(value | sign | (words8)(size == 0x7fu));
}

/* Numbers 8 j to 8 j + 7 at `words`, of 3, 5 or 6 bits: four that begin in one word of memory, and four in another one.
 * Both words are inside of the 32 numbers. */
PACKED_INLINE vector ordered_numbers(const uint32_t *words, int bits, int j) {
  const int begin = j * bits, last = 4 * bits - 4; /* bytes */
  const int first = begin < last ? begin : last, second = bits > 4 ? begin + bits - 4 : first;
  const uint32_t low = (uint32_t)(8 * (begin - first)), high = (uint32_t)(8 * (begin - second) + 4 * bits);
  const uint32_t b = (uint32_t)bits;
  uint32_t x, y;
  memcpy(&x, (const char *)words + first, sizeof x);
  memcpy(&y, (const char *)words + second, sizeof y);
  const words8 both = {x, x, x, x, y, y, y, y};
  const words8 shifts = {low, low + b, low + 2 * b, low + 3 * b, high, high + b, high + 2 * b, high + 3 * b};
  return floats_of(both >> shifts & ((1u << b) - 1));
}

/* Vector j of the step at `words`, whose first eight words are `loaded`, if numbers' bits divide a word. */
PACKED_INLINE vector decode(number_kind kind, const uint32_t *words, words8 loaded, int j) {
  const int bits = bits_of(kind);
  if (!is_interleaved(kind)) {
    return ordered_numbers(words, bits, j);
  }
  words8 codes = loaded >> (uint32_t)(j * bits);
  return kind == FLOAT4   ? float4_of(codes)
         : kind == FLOAT8 ? float8_of(codes)
                          : floats_of(codes & ((1u << (uint32_t)bits) - 1));
}

PACKED_INLINE words8 load_words(number_kind kind, const uint32_t *words) {
  words8 loaded = {0};
  if (is_interleaved(kind)) {
    memcpy(&loaded, words, sizeof loaded);
  }
  return loaded;
}

/* ---- sums ---- */

PACKED_INLINE vector multiply_add(vector x, vector w, vector sum) {
#if defined(__FMA__)
  return _mm256_fmadd_ps(x, w, sum);
#else
  return x * w + sum;
#endif
}

/* For each lane its group, of `pieces` that share the lanes. */
PACKED_INLINE words8 lane_groups(int pieces) {
  const words8 lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  return lanes * (uint32_t)pieces / LANES;
}

/* The scales of the lanes' groups. There are LANES floats at `scales`, of which those of the groups count. */
PACKED_INLINE vector lane_scales(const float *scales, words8 groups) {
  vector all;
#if defined(__AVX2__)
  memcpy(&all, scales, sizeof all);
  all = (vector)_mm256_permutevar8x32_ps((__m256)all, (__m256i)groups);
#else
  for (int i = 0; i < LANES; ++i) {
    all[i] = scales[groups[i]];
  }
#endif
  return all;
}

/* ---- floats in memory ---- */

#define PACKED_LOAD(DTYPE, type)                                        \
  case HR_DTYPE_##DTYPE:                                                \
    for (int64_t i = 0; i < count; ++i) {                               \
      to[i] = HR__LOAD_##DTYPE(((const type *)from)[first + i * step]); \
    }                                                                   \
    break

PACKED_INLINE words8 load_bytes(const uint8_t *from) {
  typedef uint8_t bytes8 __attribute__((vector_size(8)));
  bytes8 bytes;
  memcpy(&bytes, from, sizeof bytes);
  return __builtin_convertvector(bytes, words8);
}

/* As HR__LOAD_F8E8M0FNU: a power of two, of which the lowest is subnormal, or NaN. */
PACKED_INLINE words8 bits_of_e8m0(words8 codes) {
  return codes << 23 | (((words8)(codes == 0) | (words8)(codes == 0xffu)) & 0x00400000u);
}

/* The same of HR__LOAD_F8E4M3FN. */
PACKED_INLINE words8 bits_of_e4m3(words8 codes) {
  words8 size = codes & 0x7fu, is_small = (words8)(size < 8u), is_nan = (words8)(size == 0x7fu);
  words8 small = (words8)(floats_of(size) * 0x1p-9f), normal = (size << 20) + (120u << 23);
  words8 value = (small & is_small) | (normal & ~is_small);
  return (codes & 0x80u) << 24 | (is_nan & 0x7fc00000u) | (value & ~is_nan);
}

/* The first numbers, in whole vectors; returns how many. */
static inline int64_t load_scales(const uint8_t *from, hr_dtype dtype, int64_t count, float *restrict to) {
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES) {
    words8 codes = load_bytes(from + i), bits = dtype == HR_DTYPE_F8E8M0FNU ? bits_of_e8m0(codes) : bits_of_e4m3(codes);
    memcpy(to + i, &bits, sizeof bits);
  }
  return i;
}

/* `count` numbers from element `first` on, `step` apart, in f32. */
static inline void load_floats(const void *from, hr_dtype dtype, int64_t first, int64_t step, int64_t count,
                               float *restrict to) {
  if ((dtype == HR_DTYPE_F8E8M0FNU || dtype == HR_DTYPE_F8E4M3FN) && step == 1) {
    int64_t done = load_scales((const uint8_t *)from + first, dtype, count, to);
    first += done, count -= done, to += done;
  }
  switch (dtype) {
    PACKED_LOAD(F16, uint16_t);
    PACKED_LOAD(BF16, uint16_t);
    PACKED_LOAD(F8E4M3FN, uint8_t);
    PACKED_LOAD(F8E8M0FNU, uint8_t);
    default:
      for (int64_t i = 0; i < count; ++i) {
        to[i] = ((const float *)from)[first + i * step];
      }
  }
}

static inline void store_float(void *to, hr_dtype dtype, int64_t at, float value) {
  if (dtype == HR_DTYPE_F32) {
    ((float *)to)[at] = value;
  } else {
    ((uint16_t *)to)[at] = dtype == HR_DTYPE_F16 ? hr_f32_to_f16(value) : hr_f32_to_bf16(value);
  }
}

/* ---- a product ---- */

typedef struct place {
  hr_dtype dtype;
  int64_t offset, matrix, row, column; /* elements */
} place;

/* rows, columns: of y. */
typedef struct product {
  int64_t matrices, rows, columns, inner;
  int group;
  number_kind kind;
  bool has_columns; /* words of [inner, columns], else of [columns, inner] */
  bool has_biases;
  place x, w, scales, biases, y;
} product;

typedef struct call {
  const product *p;
  const void *x, *scales, *biases;
  const uint32_t *w;
  void *y;
  float *ordered; /* [matrices, rows, inner] x, in the order of lanes unless has_columns */
  float *sums;    /* [matrices, rows, groups] of x, unless has_columns */
} call;

/* The first element of row n of a matrix. */
static inline int64_t first_of(const place *w, int64_t matrix, int64_t n) {
  return w->offset + matrix * w->matrix + n * w->row;
}

/* Blocks of columns of all matrices, for hr_parallel_for: columns.c. */
int64_t hr__packed_column_blocks(const product *p);
void hr__packed_run_columns(void *call, int64_t begin, int64_t end, int worker);

#endif
