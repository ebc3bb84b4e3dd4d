/* lane_products.c: products of blocks of channels with images in lanes, and their sums over positions and lanes. */
#include "providers/batch_lanes/batch_lanes.h"

#if defined(HR_WIDE_VECTORS)

enum { VECTOR = HR__WIDE, PITCH = HR__LANE_PITCH };

/* Half of the additions over lanes that remain for a and b; at the stages 0 to 3 in turn. */
WIDE_INLINE __m512 fold(__m512 a, __m512 b, int stage) {
  __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
  switch (stage) {
    case 0:
      return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    case 1:
      return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)), _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
    default:
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
}

/* The sums over the lanes of up to 16 vectors. */
WIDE_INLINE __m512 sum_lanes(const __m512 *from, int count) {
  __m512 r[VECTOR];
#pragma GCC unroll 16
  for (int i = 0; i < VECTOR; ++i) {
    r[i] = i < count ? from[i] : _mm512_setzero_ps();
  }
#pragma GCC unroll 4
  for (int stage = 0; stage < 4; ++stage) {
#pragma GCC unroll 8
    for (int i = 0; i < VECTOR / 2 >> stage; ++i) {
      r[i] = i * (2 << stage) < count ? fold(r[2 * i], r[2 * i + 1], stage) : _mm512_setzero_ps();
    }
  }
  return r[0];
}

/* sums[PITCH]: [outs][ins]. */
WIDE_INLINE void multiply(const hr__lane_positions *at, float *sums, int outs, int ins) {
  __m512 all[PITCH];
#pragma GCC unroll 32
  for (int i = 0; i < PITCH; ++i) {
    all[i] = _mm512_setzero_ps();
  }
  const float *x_row = at->x, *y_row = at->y;
  for (int64_t row = 0; row < at->rows; ++row, x_row += at->x_row, y_row += at->y_row) {
    const float *x = x_row, *y = y_row;
    for (int64_t column = 0; column < at->columns; ++column, x += at->x_column, y += outs * VECTOR) {
      __m512 xs[HR__LANE_INS_MOST];
#pragma GCC unroll 5
      for (int i = 0; i < ins; ++i) {
        xs[i] = _mm512_load_ps(x + i * VECTOR);
      }
#pragma GCC unroll 6
      for (int o = 0; o < outs; ++o) {
        __m512 factor = _mm512_load_ps(y + o * VECTOR);
#pragma GCC unroll 5
        for (int i = 0; i < ins; ++i) {
          all[o * ins + i] = _mm512_fmadd_ps(factor, xs[i], all[o * ins + i]);
        }
      }
    }
  }
  _mm512_store_ps(sums, sum_lanes(all, outs * ins < VECTOR ? outs * ins : VECTOR));
  if (outs * ins > VECTOR) {
    _mm512_store_ps(sums + VECTOR, sum_lanes(all + VECTOR, outs * ins - VECTOR));
  }
}

#define MULTIPLY(outs, ins)                                                             \
  WIDE static void multiply_##outs##_##ins(const hr__lane_positions *at, float *sums) { \
    multiply(at, sums, outs, ins);                                                      \
  }
#define MULTIPLY_OUTS(outs) MULTIPLY(outs, 1) MULTIPLY(outs, 2) MULTIPLY(outs, 3) MULTIPLY(outs, 4)
MULTIPLY_OUTS(4)
MULTIPLY(4, 5)
MULTIPLY_OUTS(5)
MULTIPLY(5, 5)
MULTIPLY_OUTS(6)

typedef void (*multiply_fn)(const hr__lane_positions *, float *);
#define MULTIPLIES(outs) multiply_##outs##_1, multiply_##outs##_2, multiply_##outs##_3, multiply_##outs##_4
static const multiply_fn multiplies[HR__LANE_OUTS_MOST - HR__LANE_OUTS_MIN + 1][HR__LANE_INS_MOST] = {
    {MULTIPLIES(4), multiply_4_5}, {MULTIPLIES(5), multiply_5_5}, {MULTIPLIES(6), NULL}};

void hr__lane_multiply(const hr__lane_positions *at, int outs, int ins, float *sums) {
  multiplies[outs - HR__LANE_OUTS_MIN][ins - 1](at, sums);
}

#endif
