/* Between memory and registers: strided copies, gathers and scatters of every dtype, and host numbers. */
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "interp/interp_convert.h"
#include "interp/interp_loops.h"

/* Widening and narrowing of one element. Same-sized types are only moved. */
#define LOAD_BOOL(x) (x)
#define LOAD_U8(x) (int32_t)(x)
#define LOAD_I8(x) (int32_t)(x)
#define LOAD_U16(x) (int32_t)(x)
#define LOAD_I16(x) (int32_t)(x)
#define LOAD_F16(x) hr__f32_from_half(x)
#define LOAD_BF16(x) hr__f32_from_bfloat(x)
#define LOAD_F32(x) (x)
#define LOAD_F64(x) (x)
#define LOAD_C128(x) (x)
#define STORE_U8(x) (uint8_t)(x)
#define STORE_I8(x) (int8_t)(x)
#define STORE_U16(x) (uint16_t)(x)
#define STORE_I16(x) (int16_t)(x)
#define STORE_F16(x) hr__half_from_f32(x)
#define STORE_BF16(x) hr__bfloat_from_f32(x)

/* Dense rows of them. */
#define DENSE(expression, to, from, count)                  \
  HR_LOOP_INDEPENDENT for (int64_t i = 0; i < count; ++i) { \
    to[i] = expression(from[i]);                            \
  }
#define LOAD_BOOL_DENSE(to, from, count) DENSE(LOAD_BOOL, to, from, count)
#define LOAD_U8_DENSE(to, from, count) DENSE(LOAD_U8, to, from, count)
#define LOAD_I8_DENSE(to, from, count) DENSE(LOAD_I8, to, from, count)
#define LOAD_U16_DENSE(to, from, count) DENSE(LOAD_U16, to, from, count)
#define LOAD_I16_DENSE(to, from, count) DENSE(LOAD_I16, to, from, count)
#define LOAD_BF16_DENSE(to, from, count) DENSE(LOAD_BF16, to, from, count)
#define LOAD_F32_DENSE(to, from, count) DENSE(LOAD_F32, to, from, count)
#define LOAD_F64_DENSE(to, from, count) DENSE(LOAD_F64, to, from, count)
#define LOAD_C128_DENSE(to, from, count) DENSE(LOAD_C128, to, from, count)
#define STORE_U8_DENSE(to, from, count) DENSE(STORE_U8, to, from, count)
#define STORE_I8_DENSE(to, from, count) DENSE(STORE_I8, to, from, count)
#define STORE_U16_DENSE(to, from, count) DENSE(STORE_U16, to, from, count)
#define STORE_I16_DENSE(to, from, count) DENSE(STORE_I16, to, from, count)
#define STORE_BF16_DENSE(to, from, count) DENSE(STORE_BF16, to, from, count)
#define LOAD_F16_DENSE(to, from, count) hr__f32_from_half_row(to, from, count);
#define STORE_F16_DENSE(to, from, count) hr__half_from_f32_row(to, from, count);

/* The dtypes that have loops of their own; the others share those of their size. */
#define EACH_MOVED(X) X(BOOL) X(F32) X(F64) X(C128)
#define EACH_CONVERTED(X) X(U8) X(I8) X(U16) X(I16) X(F16) X(BF16)

/* dst[i] = src[2 * i], 4-byte elements: windows of stride 2 read image rows that are too short for a compiler's loop. */
#if defined(__AVX512F__)
enum { AHEAD = 2048 }; /* every other row: hardware does not see a stream in that, so 8 KiB ahead are asked for */
static void take_even_words(float *to, const float *from, int64_t count) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  for (int64_t i = 0; i < count; i += 16) {
    int64_t left = count - i < 16 ? count - i : 16;
    __builtin_prefetch(from + 2 * i + AHEAD);
    __builtin_prefetch(from + 2 * i + AHEAD + 16);
    uint32_t wanted =
        (uint32_t)(((uint64_t)1 << (2 * left - 1)) - 1); /* not one element beyond the last that is read */
    __m512 low = _mm512_maskz_loadu_ps((__mmask16)wanted, from + 2 * i);
    __m512 high = _mm512_maskz_loadu_ps((__mmask16)(wanted >> 16), from + 2 * i + 16);
    _mm512_mask_storeu_ps(to + i, (__mmask16)((1u << left) - 1), _mm512_permutex2var_ps(low, even, high));
  }
}
#define HAS_EVEN_WORDS(TO, FROM) (sizeof(TO) == 4 && __builtin_types_compatible_p(TO, FROM))
#else
static void take_even_words(float *to, const float *from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = from[2 * i];
  }
}
#define HAS_EVEN_WORDS(TO, FROM) 0
#endif

/* Rows that repeat one row: copies of what is there already, twice as many each time. */
static void repeat_row(void *dst, size_t row_bytes, int64_t rows) {
  size_t all = row_bytes * (size_t)rows;
  for (size_t have = row_bytes; have < all;) {
    size_t more = have < all - have ? have : all - have;
    memcpy((char *)dst + have, dst, more);
    have += more;
  }
}

/* rows x cols elements with the strides of both sides; the usual strides are literals, so that they vectorise. A transposed
 * rectangle is read along memory. */
#define COPY_COLS(count, dst_step, src_step, expression)    \
  HR_LOOP_INDEPENDENT for (int64_t i = 0; i < count; ++i) { \
    to[i * (dst_step)] = expression(from[i * (src_step)]);  \
  }
#define DEFINE_COPY(name, TO, FROM, expression)                                              \
  static void name(const hr__copy *copy) {                                                   \
    const int64_t count = copy->cols, dst_col = copy->dst_col, src_col = copy->src_col;      \
    int64_t rows = copy->rows;                                                               \
    if (copy->src_row == 1 && (src_col > 1 || src_col < -1) && rows > 1) {                   \
      for (int64_t i = 0; i < count; ++i) {                                                  \
        TO *to = (TO *)copy->dst + i * dst_col;                                              \
        const FROM *from = (const FROM *)copy->src + i * src_col;                            \
        for (int64_t r = 0; r < rows; ++r) {                                                 \
          to[r * copy->dst_row] = expression(from[r]);                                       \
        }                                                                                    \
      }                                                                                      \
      return;                                                                                \
    }                                                                                        \
    bool repeats = rows > 1 && copy->src_row == 0 && copy->dst_row == count && dst_col == 1; \
    rows = repeats ? 1 : rows;                                                               \
    for (int64_t r = 0; r < rows; ++r) {                                                     \
      TO *to = (TO *)copy->dst + r * copy->dst_row;                                          \
      const FROM *from = (const FROM *)copy->src + r * copy->src_row;                        \
      if (dst_col == 1 && src_col == 1) {                                                    \
        expression##_DENSE(to, from, count)                                                  \
      } else if (dst_col == 1 && src_col == 0) {                                             \
        const TO value = expression(from[0]);                                                \
        for (int64_t i = 0; i < count; ++i) {                                                \
          to[i] = value;                                                                     \
        }                                                                                    \
      } else if (dst_col == 1 && src_col == 2 && HAS_EVEN_WORDS(TO, FROM)) {                 \
        take_even_words((float *)(void *)to, (const float *)(const void *)from, count);      \
      } else if (dst_col == 1 && src_col == 2) {                                             \
        COPY_COLS(count, 1, 2, expression)                                                   \
      } else if (dst_col == 1 && src_col == -1) {                                            \
        COPY_COLS(count, 1, -1, expression)                                                  \
      } else if (dst_col == 1) {                                                             \
        COPY_COLS(count, 1, src_col, expression)                                             \
      } else {                                                                               \
        for (int64_t i = 0; i < count; ++i) {                                                \
          to[i * dst_col] = expression(from[i * src_col]);                                   \
        }                                                                                    \
      }                                                                                      \
    }                                                                                        \
    if (repeats) {                                                                           \
      repeat_row(copy->dst, (size_t)count * sizeof(TO), copy->rows);                         \
    }                                                                                        \
  }

#define DEFINE_MOVE(D) DEFINE_COPY(move_##D, HR__MEMORY_##D, HR__MEMORY_##D, LOAD_##D)
EACH_MOVED(DEFINE_MOVE)
#define DEFINE_LOAD(D) DEFINE_COPY(load_##D, HR__TYPE_##D, HR__MEMORY_##D, LOAD_##D)
EACH_CONVERTED(DEFINE_LOAD)
#define DEFINE_STORE(D) DEFINE_COPY(store_##D, HR__MEMORY_##D, HR__TYPE_##D, STORE_##D)
EACH_CONVERTED(DEFINE_STORE)

#define DEFINE_GATHER(D)                                                                       \
  static void gather_##D(void *dst, const void *base, const int64_t *offsets, int64_t count) { \
    HR__TYPE_##D *to = dst;                                                                    \
    HR_LOOP_INDEPENDENT for (int64_t i = 0; i < count; ++i) {                                  \
      to[i] = LOAD_##D(((const HR__MEMORY_##D *)base)[offsets[i]]);                            \
    }                                                                                          \
  }
EACH_MOVED(DEFINE_GATHER)
EACH_CONVERTED(DEFINE_GATHER)

#define DEFINE_SCATTER(D, expression)                                                                         \
  static void scatter_##D(void *base, const int64_t *offsets, const void *src, int64_t step, int64_t count) { \
    for (int64_t i = 0; i < count; ++i) {                                                                     \
      ((HR__MEMORY_##D *)base)[offsets[i]] = expression(((const HR__TYPE_##D *)src)[i * step]);               \
    }                                                                                                         \
  }
#define DEFINE_SCATTER_MOVED(D) DEFINE_SCATTER(D, LOAD_##D)
#define DEFINE_SCATTER_CONVERTED(D) DEFINE_SCATTER(D, STORE_##D)
EACH_MOVED(DEFINE_SCATTER_MOVED)
EACH_CONVERTED(DEFINE_SCATTER_CONVERTED)

#define TABLE(prefix_moved, prefix_converted)                                                                          \
  {                                                                                                                    \
    [HR_DTYPE_BOOL] = prefix_moved##_BOOL, [HR_DTYPE_U8] = prefix_converted##_U8,                                      \
    [HR_DTYPE_I8] = prefix_converted##_I8, [HR_DTYPE_U16] = prefix_converted##_U16,                                    \
    [HR_DTYPE_I16] = prefix_converted##_I16, [HR_DTYPE_U32] = prefix_moved##_F32, [HR_DTYPE_I32] = prefix_moved##_F32, \
    [HR_DTYPE_U64] = prefix_moved##_F64, [HR_DTYPE_I64] = prefix_moved##_F64, [HR_DTYPE_F16] = prefix_converted##_F16, \
    [HR_DTYPE_BF16] = prefix_converted##_BF16, [HR_DTYPE_F32] = prefix_moved##_F32,                                    \
    [HR_DTYPE_F64] = prefix_moved##_F64, [HR_DTYPE_C64] = prefix_moved##_F64, [HR_DTYPE_C128] = prefix_moved##_C128,   \
  }

const hr__copy_fn hr__loads[HR_DTYPE_COUNT] = TABLE(move, load);
const hr__copy_fn hr__stores[HR_DTYPE_COUNT] = TABLE(move, store);
const hr__gather_fn hr__gathers[HR_DTYPE_COUNT] = TABLE(gather, gather);
const hr__scatter_fn hr__scatters[HR_DTYPE_COUNT] = TABLE(scatter, scatter);

const hr__class_loops *hr__class_loops_of(hr_class cls) {
  static const hr__class_loops *const table[HR_CLASS_COUNT] = {
      [HR_CLASS_B8] = &hr__loops_b8,   [HR_CLASS_I32] = &hr__loops_i32, [HR_CLASS_U32] = &hr__loops_u32,
      [HR_CLASS_I64] = &hr__loops_i64, [HR_CLASS_U64] = &hr__loops_u64, [HR_CLASS_F32] = &hr__loops_f32,
      [HR_CLASS_F64] = &hr__loops_f64, [HR_CLASS_C64] = &hr__loops_c64, [HR_CLASS_C128] = &hr__loops_c128,
  };
  return (unsigned)cls < HR_CLASS_COUNT ? table[cls] : NULL;
}

void hr__scalar_to_class(const hr_scalar *scalar, hr_class cls, void *out) {
  bool is_integer = scalar->dtype == HR_DTYPE_I64 || scalar->dtype == HR_DTYPE_BOOL;
  int64_t i = is_integer ? scalar->value.i : hr__i64_from_f64(scalar->value.f[0]);
  double re = is_integer ? (double)i : scalar->value.f[0];
  double im = scalar->dtype == HR_DTYPE_C128 ? scalar->value.f[1] : 0;
  switch (cls) {
    case HR_CLASS_B8:
      *(uint8_t *)out = is_integer ? i != 0 : re != 0 || im != 0;
      break;
    case HR_CLASS_I32:
      *(int32_t *)out = (int32_t)i;
      break;
    case HR_CLASS_U32:
      *(uint32_t *)out = (uint32_t)i;
      break;
    case HR_CLASS_I64:
      *(int64_t *)out = i;
      break;
    case HR_CLASS_U64:
      *(uint64_t *)out = is_integer ? (uint64_t)i : hr__u64_from_f64(re);
      break;
    case HR_CLASS_F32:
      *(float *)out = is_integer ? (float)i : (float)re;
      break;
    case HR_CLASS_F64:
      *(double *)out = re;
      break;
    case HR_CLASS_C64:
      *(hr_c64 *)out = hr_c64_make(is_integer ? (float)i : (float)re, (float)im);
      break;
    case HR_CLASS_C128:
      *(hr_c128 *)out = hr_c128_make(re, im);
      break;
    default:
      memset(out, 0, sizeof(hr_c128));
      break;
  }
}
