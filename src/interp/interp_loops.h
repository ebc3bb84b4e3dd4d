/* interp_loops.h: the loops that the block interpreter combines, compiled ahead of time from ops.def.
 *
 * A loop runs over a rectangle of `outer` rows of `inner` elements. Operands are dense along a row, or one element for
 * the whole row; `pitch` is the distance in elements to the next row (0: all rows read the same). The destination may
 * be exactly one of the sources, but must not overlap one partly.
 *
 * One file a class (interp_f32.c, ...) defines its table by including interp_class.inc.
 */
#ifndef HEADRACE_INTERP_INTERP_LOOPS_H_
#define HEADRACE_INTERP_INTERP_LOOPS_H_

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

#include "core/ir/dtype.h"
#include "core/ir/kernel.h"
#include "core/ops/op.h"

#if defined(__clang__)
#define HR_LOOP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define HR_LOOP_ROLLED HR_LOOP_INDEPENDENT
#else
#define HR_LOOP_INDEPENDENT _Pragma("GCC ivdep")
#define HR_LOOP_ROLLED \
  _Pragma("GCC ivdep") _Pragma("GCC unroll 1") /* forces vectors: gcc would otherwise unroll for a few elements */
#endif

/* memcpy of up to a few cache lines, into a block of whole lines. The data can be read back at once as vectors; the
 * small stores of a plain memcpy would delay that. */
static inline void hr__merge_bytes(void *dst, const void *src, size_t bytes) {
#if defined(__AVX512BW__)
  for (size_t at = 0; at < bytes; at += 64) {
    __mmask64 wanted = bytes - at >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (bytes - at)) - 1;
    __m512i line = _mm512_mask_loadu_epi8(_mm512_loadu_si512((char *)dst + at), wanted, (const char *)src + at);
    _mm512_storeu_si512((char *)dst + at, line);
  }
#else
  memcpy(dst, src, bytes);
#endif
}

/* The same into a block of `room` bytes, a multiple of 64 or less than 64. The rest of the block becomes undefined but
 * must be readable. */
static inline void hr__load_bytes(void *dst, const void *src, size_t bytes, size_t room) {
#if defined(__AVX512BW__)
  if (room % 64 == 0) {
    for (size_t at = 0; at < room; at += 64) {
      __mmask64 wanted = bytes <= at ? 0 : bytes - at >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (bytes - at)) - 1;
      _mm512_storeu_si512((char *)dst + at, _mm512_maskz_loadu_epi8(wanted, (const char *)src + at));
    }
    return;
  }
#endif
  memset(dst, 0, room);
  memcpy(dst, src, bytes);
}

typedef struct hr__loop {
  int64_t outer, inner;
  void *dst;
  int64_t dst_pitch; /* in elements, like all pitches */
  const void *src[4];
  int64_t pitch[4];
} hr__loop;

typedef void (*hr__loop_fn)(const hr__loop *loop);

/* The variants, by arity: the operands that are one element per row (s) or a vector (v). Other combinations are
 * broadcast to a block first. */
enum {
  HR__VARIANTS = 4, /* arity 1: v   2: vv vs sv   3: vvv vvs vss vsv   4: vvvv vvvs vvss vsss */
};

/* The variant for a mask of one-element operands, -1 if there is none. */
static inline int hr__loop_variant(int arity, unsigned mask) {
  static const int8_t table[5][16] = {
      {-1},
      {0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
      {0, 2, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
      {0, -1, 3, -1, 1, -1, 2, -1, -1, -1, -1, -1, -1, -1, -1, -1},
      {0, -1, -1, -1, -1, -1, -1, -1, 1, -1, -1, -1, 2, -1, 3, -1},
  };
  return table[arity][mask];
}

/* Stores elements to positions in memory, in order; offsets and steps in elements. */
typedef void (*hr__scatter_fn)(void *base, const int64_t *offsets, const void *src, int64_t step, int64_t count);

/* A reduction in one class. Accumulators are elements of the class. */
typedef struct hr__reduce_loops {
  void (*init)(void *acc, int64_t count); /* the identity */
  /* Element i of the source goes to lane i mod HR_REDUCE_LANES. */
  void (*lanes)(void *lanes, const void *src, int64_t count);
  void (*tree)(void *out, void *lanes); /* folds the lanes by halves, in place */
  /* Whole rows of at most HR_REDUCE_CHUNK elements, by lanes and tree. */
  void (*rows)(void *out, const void *src, int64_t rows, int64_t count, int64_t pitch);
  /* Combines acc[k] with src[o * pitch + k] for o = 0, 1, ... in order. */
  void (*columns)(void *acc, const void *src, int64_t outer, int64_t inner, int64_t pitch);
  /* Combines base[offsets[i]] with src[i * step], in order. */
  hr__scatter_fn scatter;
  hr__scatter_fn narrow[HR_DTYPE_COUNT]; /* the same if memory's dtype is narrower; NULL for one-byte floats */
} hr__reduce_loops;

static inline hr__scatter_fn hr__combining_scatter(const hr__reduce_loops *loops, hr_dtype dtype) {
  return hr_class_size(hr_dtype_class(dtype)) == hr_dtype_size(dtype) ? loops->scatter : loops->narrow[dtype];
}

/* Reductions and argreductions, numbered: HR__REDUCE_SUM, HR__ARGREDUCE_ARGMAX. */
#define HR_POINTWISE(...)
#define HR_CONTRACTION(...)
#define HR_COMPOSITE(...)
#define HR_LIBRARY(...)
#define HR_SPECIAL(...)
#define HR_REDUCE(NAME, ...) HR__REDUCE_##NAME,
#define HR_ARGREDUCE(...)
enum {
#include "core/ops/ops.def"
  HR__REDUCES
};
#undef HR_REDUCE
#undef HR_ARGREDUCE
#define HR_REDUCE(...)
#define HR_ARGREDUCE(NAME, ...) HR__ARGREDUCE_##NAME,
enum {
#include "core/ops/ops.def"
  HR__ARGREDUCES
};
#undef HR_POINTWISE
#undef HR_CONTRACTION
#undef HR_COMPOSITE
#undef HR_LIBRARY
#undef HR_SPECIAL
#undef HR_REDUCE
#undef HR_ARGREDUCE

/* Combines best_key[k], best_index[k] with column k of keys and indices; an index of INT64_MAX means none yet. */
typedef void (*hr__argreduce_fn)(void *best_key, int64_t *best_index, const void *keys, const int64_t *indices,
                                 int64_t outer, int64_t inner, int64_t key_pitch, int64_t index_pitch);

enum { HR__LOOPS = HR_OP_COUNT * HR__VARIANTS + HR_DTYPE_COUNT + 1 };

typedef struct hr__class_loops {
  union {
    struct {
      hr__loop_fn pointwise[HR_OP_COUNT][HR__VARIANTS];
      hr__loop_fn convert[HR_DTYPE_COUNT]; /* to the class of a dtype, rounded or wrapped to the dtype */
      hr__loop_fn spread;                  /* dst = the one element of a row, or the row, for each element */
    };
    hr__loop_fn all[HR__LOOPS];
  };
  hr__reduce_loops reduce[HR__REDUCES];
  hr__argreduce_fn argreduce[HR__ARGREDUCES];
} hr__class_loops;

extern const hr__class_loops *const hr__loops_of_classes[HR_CLASS_COUNT];

/* NULL for HR_CLASS_NONE. */
static inline const hr__class_loops *hr__class_loops_of(hr_class cls) {
  return (unsigned)cls < HR_CLASS_COUNT ? hr__loops_of_classes[cls] : NULL;
}

/* Loops have numbers of 16 bits, by class and place in `all`. */
enum { HR__LOOP_BITS = 12 };
_Static_assert(HR__LOOPS <= 1 << HR__LOOP_BITS && HR_CLASS_COUNT <= 1 << (16 - HR__LOOP_BITS), "16 bits");

static inline uint16_t hr__loop_number(hr_class cls, const hr__loop_fn *loop) {
  return (uint16_t)((unsigned)cls << HR__LOOP_BITS | (unsigned)(loop - hr__loops_of_classes[cls]->all));
}
static inline hr__loop_fn hr__loop_at(uint16_t number) {
  return hr__loops_of_classes[number >> HR__LOOP_BITS]->all[number & ((1 << HR__LOOP_BITS) - 1)];
}

extern const hr__class_loops hr__loops_b8, hr__loops_i32, hr__loops_u32, hr__loops_i64, hr__loops_u64, hr__loops_f32,
    hr__loops_f64, hr__loops_c64, hr__loops_c128;

/* Copies rows x cols elements between memory and a register; strides in elements of their side. */
typedef struct hr__copy {
  void *dst;
  const void *src;
  int64_t rows, cols;
  int64_t dst_row, dst_col, src_row, src_col;
} hr__copy;

typedef void (*hr__copy_fn)(const hr__copy *copy);

extern const hr__copy_fn hr__loads[HR_DTYPE_COUNT];  /* memory of dtype -> register of its class */
extern const hr__copy_fn hr__stores[HR_DTYPE_COUNT]; /* register of the class -> memory of dtype */

/* dst[i] = base[offsets[i]], widened to the class; base[offsets[i]] = src[i * step], narrowed. */
typedef void (*hr__gather_fn)(void *dst, const void *base, const int64_t *offsets, int64_t count);
extern const hr__gather_fn hr__gathers[HR_DTYPE_COUNT];
extern const hr__scatter_fn hr__scatters[HR_DTYPE_COUNT];

/* A host number as one element of a class. */
void hr__scalar_to_class(const hr_scalar *scalar, hr_class cls, void *out);

#endif
