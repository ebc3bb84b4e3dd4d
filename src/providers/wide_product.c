/* wide_product.c: the loop of a product of small matrices.
 *
 * 16 to 24 sums stay in registers. For each k some vectors of u are loaded, and each line's number is broadcast to a
 * vector. Lines are addressed in threes: a pointer, and one or two steps after it, so that their addresses need few
 * registers.
 */
#include "providers/wide_product.h"

#include "base/integer.h"

#if defined(HR_WIDE_VECTORS)

enum { LINES = 16, VECTORS = HR__PANEL_VECTORS, SUMS = 24, AT = 3, CACHE_LINE = 64 };

hr__wide_rows hr__wide_rows_of(const float *from, int64_t count, int64_t floats, int64_t step) {
  const int64_t size = sizeof *from;
  return (hr__wide_rows){(const char *)from, floats > 0 ? count : 0, floats * size, step * size};
}

hr__wide_ahead hr__wide_ahead_of(hr__wide_rows rows, int64_t lines, int64_t depth) {
  int64_t sums = hr_divide_up(lines, hr__wide_lines[HR__AHEAD_VECTORS - 1]) * depth;
  int64_t bytes = rows.count * hr_round_up(rows.bytes, CACHE_LINE);
  return (hr__wide_ahead){.rows = rows,
                          .stride = hr_max(CACHE_LINE, hr_divide_up(bytes, sums)),
                          .every = hr_max(1, sums * CACHE_LINE / hr_max(1, bytes))};
}

WIDE_INLINE void request(hr__wide_ahead *x) {
  if (x->rows.count == 0) {
    return;
  }
  __builtin_prefetch(x->rows.row + x->byte + CACHE_LINE - 1); /* earlier rows have the line that this one begins in */
  x->byte += x->stride;
  if (x->byte >= x->rows.bytes) {
    x->byte = 0;
    x->rows.row += x->rows.step;
    --x->rows.count;
  }
}

WIDE_INLINE void multiply(const hr__wide_product *p, int64_t first, int lines, int vectors, bool is_ahead) {
  __m512 sums[SUMS];
  const int64_t step = p->v_step, v_next = p->v_next, u_next = p->u_next;
  const __mmask16 last = hr__wide_mask(p->outs - (vectors - 1) * HR__WIDE);
#pragma GCC unroll 24
  for (int i = 0; i < lines * vectors; ++i) {
    sums[i] = _mm512_setzero_ps();
  }
  hr__wide_ahead ahead = is_ahead ? *p->ahead : (hr__wide_ahead){0};
  /* Results may be in no cache of this core. */
#pragma GCC unroll 16
  for (int i = 0; i < lines; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      __builtin_prefetch(p->m + (first + i) * p->m_step + j * HR__WIDE, 1);
      if (p->more != NULL) {
        __builtin_prefetch(p->more + (first + i) * p->more_step + j * HR__WIDE);
      }
    }
  }
  for (int64_t row = 0; row < p->rows; ++row) {
    for (int64_t column = 0; column < p->columns; ++column) {
      const float *v = p->v + first * step + row * p->v_row + column * p->v_column;
      const float *u = p->u + row * p->u_row + column * p->u_column;
      for (int64_t k = 0; k < p->depth;) {
        const int64_t end = is_ahead ? hr_min(k + ahead.every, p->depth) : p->depth;
        if (is_ahead) {
          request(&ahead);
        }
        for (; k < end; ++k, u += u_next, v += v_next) {
          __m512 weights[VECTORS];
          const float *at = v;
#pragma GCC unroll 4
          for (int j = 0; j < vectors; ++j) {
            weights[j] = _mm512_maskz_loadu_ps(j == vectors - 1 && !is_ahead ? last : 0xffff, u + j * HR__WIDE);
          }
#pragma GCC unroll 16
          for (int i = 0; i < lines; ++i) {
            __m512 factor = _mm512_set1_ps(at[i % AT * step]);
            at += i % AT == AT - 1 ? AT * step : 0;
#pragma GCC unroll 4
            for (int j = 0; j < vectors; ++j) {
              sums[i * vectors + j] = _mm512_fmadd_ps(factor, weights[j], sums[i * vectors + j]);
            }
          }
        }
      }
    }
  }
  if (is_ahead) {
    *p->ahead = ahead;
  }
  const int64_t m_step = p->m_step, more_step = p->more != NULL ? p->more_step : 0;
  const float *more = p->more;
  const bool adds = p->adds, has_more = more != NULL;
  __m512 addend[VECTORS];
  float *m = p->m + first * m_step;
  more += first * more_step;
#pragma GCC unroll 4
  for (int j = 0; j < vectors; ++j) {
    addend[j] = p->addend != NULL ? _mm512_loadu_ps(p->addend + j * HR__WIDE) : _mm512_set1_ps(-0.0F);
  }
#pragma GCC unroll 16
  for (int i = 0; i < lines; ++i, m += m_step, more += more_step) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) {
      __mmask16 mask = j == vectors - 1 ? last : 0xffff;
      __m512 value = sums[i * vectors + j];
      value = adds ? _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, m + j * HR__WIDE)) : value;
      value = _mm512_add_ps(value, addend[j]);
      value = has_more ? _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, more + j * HR__WIDE)) : value;
      _mm512_mask_storeu_ps(m + j * HR__WIDE, mask, value);
    }
  }
}

#define MULTIPLY(lines, vectors)                                                            \
  WIDE static void multiply_##lines##_##vectors(const hr__wide_product *p, int64_t first) { \
    multiply(p, first, lines, vectors, false);                                              \
  }
#define MULTIPLY_6(vectors) \
  MULTIPLY(1, vectors)      \
  MULTIPLY(2, vectors) MULTIPLY(3, vectors) MULTIPLY(4, vectors) MULTIPLY(5, vectors) MULTIPLY(6, vectors)
#define MULTIPLY_8(vectors) MULTIPLY_6(vectors) MULTIPLY(7, vectors) MULTIPLY(8, vectors)
#define MULTIPLY_12(vectors) \
  MULTIPLY_8(vectors) MULTIPLY(9, vectors) MULTIPLY(10, vectors) MULTIPLY(11, vectors) MULTIPLY(12, vectors)
#define MULTIPLY_16(vectors) \
  MULTIPLY_12(vectors) MULTIPLY(13, vectors) MULTIPLY(14, vectors) MULTIPLY(15, vectors) MULTIPLY(16, vectors)
MULTIPLY_16(1)
MULTIPLY_12(2)
MULTIPLY_8(3)
MULTIPLY_6(4)

#define MULTIPLY_AHEAD(lines)                                                         \
  WIDE static void multiply_ahead_##lines(const hr__wide_product *p, int64_t first) { \
    multiply(p, first, lines, HR__AHEAD_VECTORS, true);                               \
  }
MULTIPLY_AHEAD(1)
MULTIPLY_AHEAD(2)
MULTIPLY_AHEAD(3)
MULTIPLY_AHEAD(4)
MULTIPLY_AHEAD(5)
MULTIPLY_AHEAD(6)
MULTIPLY_AHEAD(7)
MULTIPLY_AHEAD(8)

#define OF_6(v) multiply_1_##v, multiply_2_##v, multiply_3_##v, multiply_4_##v, multiply_5_##v, multiply_6_##v
#define OF_8(v) OF_6(v), multiply_7_##v, multiply_8_##v
#define OF_12(v) OF_8(v), multiply_9_##v, multiply_10_##v, multiply_11_##v, multiply_12_##v
#define OF_16(v) OF_12(v), multiply_13_##v, multiply_14_##v, multiply_15_##v, multiply_16_##v
#define OF_AHEAD                                                                                              \
  multiply_ahead_1, multiply_ahead_2, multiply_ahead_3, multiply_ahead_4, multiply_ahead_5, multiply_ahead_6, \
      multiply_ahead_7, multiply_ahead_8

void hr__wide_multiply(const hr__wide_product *p) {
  static void (*const of[VECTORS + 1][LINES])(const hr__wide_product *,
                                              int64_t) = {{OF_16(1)}, {OF_12(2)}, {OF_8(3)}, {OF_6(4)}, {OF_AHEAD}};
  bool is_ahead = p->ahead != NULL && p->vectors == HR__AHEAD_VECTORS;
  int64_t groups = hr_divide_up(p->lines, hr__wide_lines[p->vectors - 1]);
  for (int64_t g = 0; g < groups; ++g) {
    int64_t first = p->lines * g / groups, lines = p->lines * (g + 1) / groups - first;
    of[is_ahead ? VECTORS : p->vectors - 1][lines - 1](p, first);
  }
}

/* 16 rows of `to` from as many dense columns. Quarters of vectors are loaded in place, so that two exchanges are left.
 */
WIDE_INLINE void pack_square(const float *from, int64_t step, float *to, int64_t width) {
#pragma GCC unroll 4
  for (int k = 0; k < HR__WIDE; k += 4, from += 4, to += 4 * width) {
    __m512 r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float *x = from + i * step;
      r[i] = _mm512_castps128_ps512(_mm_loadu_ps(x));
      r[i] = _mm512_mask_broadcast_f32x4(r[i], 0xf0, _mm_loadu_ps(x + 4 * step));
      r[i] = _mm512_mask_broadcast_f32x4(r[i], 0xf00, _mm_loadu_ps(x + 8 * step));
      r[i] = _mm512_mask_broadcast_f32x4(r[i], 0xf000, _mm_loadu_ps(x + 12 * step));
    }
    __m512 low = _mm512_unpacklo_ps(r[0], r[1]), more_low = _mm512_unpacklo_ps(r[2], r[3]);
    __m512 high = _mm512_unpackhi_ps(r[0], r[1]), more_high = _mm512_unpackhi_ps(r[2], r[3]);
    _mm512_storeu_ps(to, _mm512_shuffle_ps(low, more_low, 0x44));
    _mm512_storeu_ps(to + width, _mm512_shuffle_ps(low, more_low, 0xee));
    _mm512_storeu_ps(to + 2 * width, _mm512_shuffle_ps(high, more_high, 0x44));
    _mm512_storeu_ps(to + 3 * width, _mm512_shuffle_ps(high, more_high, 0xee));
  }
}

/* The same at the ends of the depth and of the columns. */
WIDE_INLINE void pack_corner(const float *from, int64_t step, int64_t depth, int64_t columns, float *to,
                             int64_t width) {
  __m512 r[HR__WIDE];
  __mmask16 mask = hr__wide_mask(depth);
#pragma GCC unroll 16
  for (int i = 0; i < HR__WIDE; ++i) {
    r[i] = i < columns ? _mm512_maskz_loadu_ps(mask, from + i * step) : _mm512_setzero_ps();
  }
  hr__wide_transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < HR__WIDE; ++i) {
    if (i < depth) {
      _mm512_storeu_ps(to + i * width, r[i]);
    }
  }
}

WIDE void hr__wide_pack_panel(const float *from, int64_t step, int64_t depth, int64_t columns, float *to,
                              int64_t width) {
  for (int64_t column = 0; column < width; column += HR__WIDE) {
    for (int64_t k = 0; k < depth; k += HR__WIDE) {
      const float *x = from + column * step + k;
      float *y = to + k * width + column;
      if (depth - k >= HR__WIDE && columns - column >= HR__WIDE) {
        pack_square(x, step, y, width);
      } else {
        pack_corner(x, step, depth - k, columns - column, y, width);
      }
    }
  }
}

#endif
