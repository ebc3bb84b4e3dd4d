/* Transfers between memory and registers: strided copies, gathers and scatters of every dtype, and host numbers. */
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "interp/interp_convert.h"
#include "interp/interp_loops.h"

/* Dense rows of them. */
#define DENSE(expression, to, from, count)                  \
  HR_LOOP_INDEPENDENT for (int64_t i = 0; i < count; ++i) { \
    to[i] = expression(from[i]);                            \
  }
#define HR__LOAD_BOOL_DENSE(to, from, count) DENSE(HR__LOAD_BOOL, to, from, count)
#define HR__LOAD_U8_DENSE(to, from, count) DENSE(HR__LOAD_U8, to, from, count)
#define HR__LOAD_I8_DENSE(to, from, count) DENSE(HR__LOAD_I8, to, from, count)
#define HR__LOAD_U16_DENSE(to, from, count) DENSE(HR__LOAD_U16, to, from, count)
#define HR__LOAD_I16_DENSE(to, from, count) DENSE(HR__LOAD_I16, to, from, count)
#define HR__LOAD_BF16_DENSE(to, from, count) DENSE(HR__LOAD_BF16, to, from, count)
#define HR__LOAD_F32_DENSE(to, from, count) DENSE(HR__LOAD_F32, to, from, count)
#define HR__LOAD_F64_DENSE(to, from, count) DENSE(HR__LOAD_F64, to, from, count)
#define HR__LOAD_C128_DENSE(to, from, count) DENSE(HR__LOAD_C128, to, from, count)
#define HR__STORE_U8_DENSE(to, from, count) DENSE(HR__STORE_U8, to, from, count)
#define HR__STORE_I8_DENSE(to, from, count) DENSE(HR__STORE_I8, to, from, count)
#define HR__STORE_U16_DENSE(to, from, count) DENSE(HR__STORE_U16, to, from, count)
#define HR__STORE_I16_DENSE(to, from, count) DENSE(HR__STORE_I16, to, from, count)
#define HR__STORE_BF16_DENSE(to, from, count) DENSE(HR__STORE_BF16, to, from, count)
#define HR__LOAD_F8E4M3FN_DENSE(to, from, count) DENSE(HR__LOAD_F8E4M3FN, to, from, count)
#define HR__STORE_F8E4M3FN_DENSE(to, from, count) DENSE(HR__STORE_F8E4M3FN, to, from, count)
#define HR__LOAD_F8E5M2_DENSE(to, from, count) DENSE(HR__LOAD_F8E5M2, to, from, count)
#define HR__STORE_F8E5M2_DENSE(to, from, count) DENSE(HR__STORE_F8E5M2, to, from, count)
#define HR__LOAD_F8E4M3FNUZ_DENSE(to, from, count) DENSE(HR__LOAD_F8E4M3FNUZ, to, from, count)
#define HR__STORE_F8E4M3FNUZ_DENSE(to, from, count) DENSE(HR__STORE_F8E4M3FNUZ, to, from, count)
#define HR__LOAD_F8E5M2FNUZ_DENSE(to, from, count) DENSE(HR__LOAD_F8E5M2FNUZ, to, from, count)
#define HR__STORE_F8E5M2FNUZ_DENSE(to, from, count) DENSE(HR__STORE_F8E5M2FNUZ, to, from, count)
#define HR__LOAD_F8E8M0FNU_DENSE(to, from, count) DENSE(HR__LOAD_F8E8M0FNU, to, from, count)
#define HR__STORE_F8E8M0FNU_DENSE(to, from, count) DENSE(HR__STORE_F8E8M0FNU, to, from, count)
#define HR__LOAD_F8E4M3_DENSE(to, from, count) DENSE(HR__LOAD_F8E4M3, to, from, count)
#define HR__STORE_F8E4M3_DENSE(to, from, count) DENSE(HR__STORE_F8E4M3, to, from, count)
#define HR__LOAD_F8E3M4_DENSE(to, from, count) DENSE(HR__LOAD_F8E3M4, to, from, count)
#define HR__STORE_F8E3M4_DENSE(to, from, count) DENSE(HR__STORE_F8E3M4, to, from, count)
#define HR__LOAD_F8E4M3B11FNUZ_DENSE(to, from, count) DENSE(HR__LOAD_F8E4M3B11FNUZ, to, from, count)
#define HR__STORE_F8E4M3B11FNUZ_DENSE(to, from, count) DENSE(HR__STORE_F8E4M3B11FNUZ, to, from, count)
#define HR__LOAD_F4E2M1FN_DENSE(to, from, count) DENSE(HR__LOAD_F4E2M1FN, to, from, count)
#define HR__STORE_F4E2M1FN_DENSE(to, from, count) DENSE(HR__STORE_F4E2M1FN, to, from, count)
#define HR__LOAD_F16_DENSE(to, from, count) hr__f32_from_half_row(to, from, count);
#define HR__STORE_F16_DENSE(to, from, count) hr__half_from_f32_row(to, from, count);
#define HR__LOAD_C32_DENSE(to, from, count) hr__f32_from_half_row((void *)(to), (const void *)(from), 2 * (count));
#define HR__STORE_C32_DENSE(to, from, count) hr__half_from_f32_row((void *)(to), (const void *)(from), 2 * (count));

/* The dtypes with loops of their own; the others use those of their size. */
#define EACH_MOVED(X) X(BOOL) X(F32) X(F64) X(C128)
#define EACH_CONVERTED(X) X(U8) X(I8) X(U16) X(I16) X(F16) X(BF16) X(C32) HR__EACH_FLOAT8(X)

/* dst[i] = src[2 * i], 4-byte elements: windows of stride 2 read image rows that are too short for a compiler's loop.
 */
#if defined(__AVX512F__)
enum { AHEAD = 2048 }; /* every other row: hardware does not detect that stream, so 8 KiB ahead are prefetched */
static void take_even_words(float *to, const float *from, int64_t count) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  for (int64_t i = 0; i < count; i += 16) {
    int64_t left = count - i < 16 ? count - i : 16;
    __builtin_prefetch(from + 2 * i + AHEAD);
    __builtin_prefetch(from + 2 * i + AHEAD + 16);
    uint32_t wanted = (uint32_t)(((uint64_t)1 << (2 * left - 1)) - 1); /* reads no element past the last one needed */
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

/* Rows that repeat one row: copies the rows written so far, twice as many each time. */
static void repeat_row(void *dst, size_t row_bytes, int64_t rows) {
  size_t all = row_bytes * (size_t)rows;
  for (size_t have = row_bytes; have < all;) {
    size_t more = have < all - have ? have : all - have;
    memcpy((char *)dst + have, dst, more);
    have += more;
  }
}

/* Dense rows of 8, 16, 32 or 64 bytes, such as a few channels of each pixel: a loop over each row would cost several
 * times as much. */
#define MOVE_ROWS(bytes)                 \
  case bytes:                            \
    for (int64_t r = 0; r < rows; ++r) { \
      __builtin_memcpy(to, from, bytes); \
      to += to_step, from += from_step;  \
    }                                    \
    return true;
static bool move_short_rows(char *restrict to, int64_t to_step, const char *restrict from, int64_t from_step,
                            int64_t rows, int64_t bytes) {
  switch (bytes) {
    MOVE_ROWS(8)
    MOVE_ROWS(16)
    MOVE_ROWS(32)
    MOVE_ROWS(64)
    default:
      return false;
  }
}
#define SHORT_ROWS(TO, FROM)                                                                                       \
  (rows > 1 && dst_col == 1 && src_col == 1 && __builtin_types_compatible_p(TO, FROM) &&                           \
   move_short_rows(copy->dst, copy->dst_row * (int64_t)sizeof(TO), copy->src, copy->src_row * (int64_t)sizeof(TO), \
                   rows, count * (int64_t)sizeof(TO)))

/* rows x cols elements with the strides of both sides; common strides are literals, so that their loops are vectorised.
 * A transposed rectangle is read in memory order. */
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
    if (SHORT_ROWS(TO, FROM)) {                                                              \
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

#define DEFINE_MOVE(D) DEFINE_COPY(move_##D, HR__MEMORY_##D, HR__MEMORY_##D, HR__LOAD_##D)
EACH_MOVED(DEFINE_MOVE)
#define DEFINE_LOAD(D) DEFINE_COPY(load_##D, HR__TYPE_##D, HR__MEMORY_##D, HR__LOAD_##D)
EACH_CONVERTED(DEFINE_LOAD)
#define DEFINE_STORE(D) DEFINE_COPY(store_##D, HR__MEMORY_##D, HR__TYPE_##D, HR__STORE_##D)
EACH_CONVERTED(DEFINE_STORE)

#define DEFINE_GATHER(D)                                                                       \
  static void gather_##D(void *dst, const void *base, const int64_t *offsets, int64_t count) { \
    HR__TYPE_##D *to = dst;                                                                    \
    HR_LOOP_INDEPENDENT for (int64_t i = 0; i < count; ++i) {                                  \
      to[i] = HR__LOAD_##D(((const HR__MEMORY_##D *)base)[offsets[i]]);                        \
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
#define DEFINE_SCATTER_MOVED(D) DEFINE_SCATTER(D, HR__LOAD_##D)
#define DEFINE_SCATTER_CONVERTED(D) DEFINE_SCATTER(D, HR__STORE_##D)
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
    [HR_DTYPE_C32] = prefix_converted##_C32, [HR_DTYPE_F8E4M3FN] = prefix_converted##_F8E4M3FN,                        \
    [HR_DTYPE_F8E5M2] = prefix_converted##_F8E5M2, [HR_DTYPE_F8E4M3FNUZ] = prefix_converted##_F8E4M3FNUZ,              \
    [HR_DTYPE_F8E5M2FNUZ] = prefix_converted##_F8E5M2FNUZ, [HR_DTYPE_F8E8M0FNU] = prefix_converted##_F8E8M0FNU,        \
    [HR_DTYPE_F8E4M3] = prefix_converted##_F8E4M3, [HR_DTYPE_F8E3M4] = prefix_converted##_F8E3M4,                      \
    [HR_DTYPE_F8E4M3B11FNUZ] = prefix_converted##_F8E4M3B11FNUZ, [HR_DTYPE_F4E2M1FN] = prefix_converted##_F4E2M1FN,    \
  }

const hr__copy_fn hr__loads[HR_DTYPE_COUNT] = TABLE(move, load);
const hr__copy_fn hr__stores[HR_DTYPE_COUNT] = TABLE(move, store);
const hr__gather_fn hr__gathers[HR_DTYPE_COUNT] = TABLE(gather, gather);
const hr__scatter_fn hr__scatters[HR_DTYPE_COUNT] = TABLE(scatter, scatter);

const hr__class_loops *const hr__loops_of_classes[HR_CLASS_COUNT] = {
    [HR_CLASS_B8] = &hr__loops_b8,   [HR_CLASS_I32] = &hr__loops_i32, [HR_CLASS_U32] = &hr__loops_u32,
    [HR_CLASS_I64] = &hr__loops_i64, [HR_CLASS_U64] = &hr__loops_u64, [HR_CLASS_F32] = &hr__loops_f32,
    [HR_CLASS_F64] = &hr__loops_f64, [HR_CLASS_C64] = &hr__loops_c64, [HR_CLASS_C128] = &hr__loops_c128,
};

void hr__scalar_to_class(const hr_scalar *scalar, hr_class cls, void *out) {
  switch (cls) {
    case HR_CLASS_B8:
      *(uint8_t *)out = hr__scalar_as_b8(scalar);
      break;
    case HR_CLASS_I32:
      *(int32_t *)out = hr__scalar_as_i32(scalar);
      break;
    case HR_CLASS_U32:
      *(uint32_t *)out = hr__scalar_as_u32(scalar);
      break;
    case HR_CLASS_I64:
      *(int64_t *)out = hr__scalar_as_i64(scalar);
      break;
    case HR_CLASS_U64:
      *(uint64_t *)out = hr__scalar_as_u64(scalar);
      break;
    case HR_CLASS_F32:
      *(float *)out = hr__scalar_as_f32(scalar);
      break;
    case HR_CLASS_F64:
      *(double *)out = hr__scalar_as_f64(scalar);
      break;
    case HR_CLASS_C64:
      *(hr_c64 *)out = hr__scalar_as_c64(scalar);
      break;
    case HR_CLASS_C128:
      *(hr_c128 *)out = hr__scalar_as_c128(scalar);
      break;
    default:
      memset(out, 0, sizeof(hr_c128));
      break;
  }
}
