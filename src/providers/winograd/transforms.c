/* transforms.c: the transforms of winograd.c: A. Lavin, S. Gray, Fast algorithms for convolutional neural networks,
 * 2016, F(2x2, 3x3).
 *
 * Along one dim, inputs d0..d3, weights g0..g2, results y0, y1:
 *
 *   v = d0 - d2, d1 + d2, d2 - d1, d1 - d3      u = g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2      m = u v
 *   y0 = m0 + m1 + m2 (of d0, d1, d2 alone)     y1 = m1 - m2 - m3 (of d1, d2, d3 alone)
 *
 * Reversed, for gradients y0, y1 and sums m over tiles, the gradients of weights:
 *
 *   q = y0, y0 + y1, y0 - y1, -y1               m += q v
 *   g0 = m0 + (m1 + m2) / 2    g1 = (m1 - m2) / 2    g2 = (m1 + m2) / 2 + m3
 */
#include "providers/winograd/winograd.h"

#if defined(HR_WIDE_VECTORS)

enum {
  SIDE = HR__WINOGRAD_SIDE,
  POINTS = HR__WINOGRAD_POINTS,
  TAPS = HR__WINOGRAD_TAPS,
  RESULTS = HR__WINOGRAD_RESULTS
};

/* ---- inputs ---- */

WIDE_INLINE void take_line(__m512 *d, int step) {
  __m512 d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
  d[0] = _mm512_sub_ps(d0, d2);
  d[step] = _mm512_add_ps(d1, d2);
  d[2 * step] = _mm512_sub_ps(d2, d1);
  d[3 * step] = _mm512_sub_ps(d1, d3);
}

WIDE void hr__winograd_transform_input(const float *const pixels[POINTS], int64_t channels, float *v,
                                       int64_t point_step) {
  for (int64_t c = 0; c < channels; c += HR__WIDE) {
    __mmask16 mask = hr__wide_mask(channels - c);
    __m512 d[POINTS];
#pragma GCC unroll 16
    for (int i = 0; i < POINTS; ++i) {
      d[i] = _mm512_maskz_loadu_ps(mask, pixels[i] + c);
    }
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; ++i) {
      take_line(d + i, SIDE);
    }
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; ++i) {
      take_line(d + i * SIDE, 1);
    }
#pragma GCC unroll 16
    for (int i = 0; i < POINTS; ++i) {
      _mm512_storeu_ps(v + i * point_step + c, d[i]);
    }
  }
}

/* ---- gradients ---- */

WIDE_INLINE void take_gradients_line(__m512 y0, __m512 y1, __m512 *q, int step) {
  q[0] = y0;
  q[step] = _mm512_add_ps(y0, y1);
  q[2 * step] = _mm512_sub_ps(y0, y1);
  q[3 * step] = _mm512_sub_ps(_mm512_setzero_ps(), y1);
}

WIDE void hr__winograd_transform_gradients(const float *const pixels[RESULTS * RESULTS], int64_t channels, float *q,
                                           int64_t point_step) {
  for (int64_t c = 0; c < channels; c += HR__WIDE) {
    __mmask16 mask = hr__wide_mask(channels - c);
    __m512 y[RESULTS * RESULTS], lines[SIDE * RESULTS], all[POINTS];
#pragma GCC unroll 4
    for (int i = 0; i < RESULTS * RESULTS; ++i) {
      y[i] = _mm512_maskz_loadu_ps(mask, pixels[i] + c);
    }
#pragma GCC unroll 2
    for (int i = 0; i < RESULTS; ++i) {
      take_gradients_line(y[i], y[RESULTS + i], lines + i, RESULTS);
    }
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; ++i) {
      take_gradients_line(lines[i * RESULTS], lines[i * RESULTS + 1], all + i * SIDE, 1);
    }
#pragma GCC unroll 16
    for (int i = 0; i < POINTS; ++i) {
      _mm512_storeu_ps(q + i * point_step + c, all[i]);
    }
  }
}

WIDE_INLINE void give_taps_line(const __m512 *m, int step, __m512 *g, int g_step) {
  const __m512 half = _mm512_set1_ps(0.5f);
  __m512 sum = _mm512_mul_ps(half, _mm512_add_ps(m[step], m[2 * step]));
  g[0] = _mm512_add_ps(m[0], sum);
  g[g_step] = _mm512_mul_ps(half, _mm512_sub_ps(m[step], m[2 * step]));
  g[2 * g_step] = _mm512_add_ps(sum, m[3 * step]);
}

WIDE bool hr__winograd_give_taps(const float *m, int64_t point_step, int64_t channels, __m512 taps[TAPS * TAPS]) {
  __m512 all[POINTS], lines[TAPS * SIDE];
#pragma GCC unroll 16
  for (int i = 0; i < POINTS; ++i) {
    all[i] = _mm512_loadu_ps(m + i * point_step);
  }
#pragma GCC unroll 4
  for (int i = 0; i < SIDE; ++i) {
    give_taps_line(all + i, SIDE, lines + i, SIDE);
  }
#pragma GCC unroll 3
  for (int i = 0; i < TAPS; ++i) {
    give_taps_line(lines + i * SIDE, 1, taps + i * TAPS, 1);
  }
  __mmask16 odd = 0;
#pragma GCC unroll 9
  for (int i = 0; i < TAPS * TAPS; ++i) {
    __m512 zero = _mm512_sub_ps(taps[i], taps[i]);
    odd = _mm512_kor(odd, _mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q));
  }
  return (odd & hr__wide_mask(channels)) == 0;
}

/* ---- weights ---- */

WIDE_INLINE void transform_line(const __m512 g[TAPS], int step, __m512 *u, int u_step) {
  const __m512 half = _mm512_set1_ps(0.5f);
  __m512 sum = _mm512_add_ps(g[0], g[2 * step]);
  u[0] = g[0];
  u[u_step] = _mm512_mul_ps(half, _mm512_add_ps(sum, g[step]));
  u[2 * u_step] = _mm512_mul_ps(half, _mm512_sub_ps(sum, g[step]));
  u[3 * u_step] = g[2 * step];
}

/* Transforms the windows of 16 output channels and one input channel. */
WIDE_INLINE void transform_windows(const __m512 g[TAPS * TAPS], float *u, int64_t point_step) {
  __m512 lines[SIDE * TAPS], all[POINTS];
#pragma GCC unroll 3
  for (int i = 0; i < TAPS; ++i) {
    transform_line(g + i, TAPS, lines + i, TAPS);
  }
#pragma GCC unroll 4
  for (int i = 0; i < SIDE; ++i) {
    transform_line(lines + i * TAPS, 1, all + i * SIDE, 1);
  }
#pragma GCC unroll 16
  for (int i = 0; i < POINTS; ++i) {
    _mm512_storeu_ps(u + i * point_step, all[i]);
  }
}

static const float *find_tap(const hr__winograd_weight *weight, const float *window, int i) {
  return window + i / TAPS * weight->row_stride + i % TAPS * weight->column_stride;
}

/* The windows if input channels are neighbours: 16 of them at a time, transposed. */
WIDE static void transform_neighbours(const hr__winograd_weight *weight, const float *from, int64_t outs, float *u,
                                      int64_t width, int64_t point_step) {
  __m512 block[TAPS * TAPS][HR__WIDE];
  for (int64_t first = 0; first < weight->ins; first += HR__WIDE) {
    int64_t ins = weight->ins - first < HR__WIDE ? weight->ins - first : HR__WIDE;
    __mmask16 mask = hr__wide_mask(ins);
    for (int i = 0; i < TAPS * TAPS; ++i) {
      const float *tap = find_tap(weight, from + first, i);
      for (int out = 0; out < HR__WIDE; ++out) {
        block[i][out] = out < outs ? _mm512_maskz_loadu_ps(mask, tap + out * weight->out_stride) : _mm512_setzero_ps();
      }
      hr__wide_transpose(block[i]);
    }
    for (int64_t in = 0; in < ins; ++in) {
      __m512 g[TAPS * TAPS];
      for (int i = 0; i < TAPS * TAPS; ++i) {
        g[i] = block[i][in];
      }
      transform_windows(g, u + (first + in) * width, point_step);
    }
  }
}

enum { AHEAD = 4 }; /* input channels whose windows are requested: they lie far apart */

WIDE void hr__winograd_transform(const hr__winograd_weight *weight, int64_t out, int64_t outs, float *u, int64_t width,
                                 int64_t point_step) {
  const float *from = weight->w + out * weight->out_stride;
  bool has_neighbours = weight->out_stride == 1; /* among output channels */
  for (int64_t v = 0; v < outs && weight->in_stride == 1 && !has_neighbours; v += HR__WIDE) {
    transform_neighbours(weight, from + v * weight->out_stride, outs - v, u + v, width, point_step);
  }
  if (weight->in_stride == 1 && !has_neighbours) {
    return;
  }
  __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  __m512i at = _mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)weight->out_stride));
  for (int64_t in = 0; in < weight->ins; ++in, from += weight->in_stride) {
    for (int64_t v = 0; v < outs; v += HR__WIDE) {
      __mmask16 mask = hr__wide_mask(outs - v);
      __m512 g[TAPS * TAPS];
#pragma GCC unroll 9
      for (int i = 0; i < TAPS * TAPS; ++i) {
        const float *tap = find_tap(weight, from + v * weight->out_stride, i);
        if (has_neighbours) {
          __builtin_prefetch(tap + AHEAD * weight->in_stride);
        }
        g[i] = has_neighbours ? _mm512_maskz_loadu_ps(mask, tap)
                              : _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, at, tap, 4);
      }
      transform_windows(g, u + in * width + v, point_step);
    }
  }
}

#endif
