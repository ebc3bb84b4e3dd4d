/* tiles.c: 5 x 5 windows over images in lanes with 49 multiplications instead of the 100 of 2 x 2 direct sums.
 *
 * Along one dim, the five taps are three and two: F(2, 3) and F(2, 2) (A. Lavin, S. Gray, Fast algorithms for
 * convolutional neural networks, 2016). Of inputs d0..d5, weights g0..g4 and results y0, y1:
 *
 *   v = d0 - d2, d1 + d2, d2 - d1, d1 - d3                        d3 - d4, d4, d5 - d4
 *   u = g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2            g3, g3 + g4, g4              m = u v
 *   y0 = (m0 + (m1 + m2)) + (m4 + m5)      of d0..d4 alone
 *   y1 = ((m1 - m2) - m3) + (m5 + m6)      of d1..d5 alone
 *
 * For each of the 49 points, a product of matrices sums over the input channels:
 *
 *   for each row of tiles, for each tile:
 *     v[point][in][lanes] = transform of the tile's input
 *     for each 8 to 12 output channels:
 *       for each point: m[point][out][lanes] = sum over in of u * v
 *       for each channel: results = transform of m, + bias
 *
 * Numbers: a result depends on its own window alone, so neither NaN nor the rounding of large neighbours spreads. The
 * error is about that of a direct sum. Sums that are not finite are computed again, directly, and skip elements outside
 * of the image: an infinite weight at the border does no harm.
 */
#include <string.h>

#include "base/integer.h"
#include "providers/batch_lanes/batch_lanes.h"

#if defined(HR_WIDE_VECTORS)

enum {
  VECTOR = HR__WIDE,
  VECTORS = HR__LANE_VECTORS,
  LANES = HR__LANE_TILE_LANES,
  RESULTS = HR__LANE_TILE,
  SIDE = HR__LANE_SIDE,
  TAPS = HR__LANE_TAPS,
  LINE = HR__LANE_LINE,
  POINTS = HR__LANE_POINTS,
  OUTS_MOST = 12,
  SPARE = 16 /* floats between points, so that they don't map to one set of the cache */
};

int hr__lane_tiles_outs(int64_t channels) {
  static const int all[] = {12, 10, 8};
  int best = all[0];
  for (size_t i = 1; i < sizeof all / sizeof *all; ++i) {
    if (hr_divide_up(channels, all[i]) * (all[i] + 1) < hr_divide_up(channels, best) * (best + 1)) {
      best = all[i];
    }
  }
  return best;
}

int64_t hr__lane_tiles_weight_floats(const hr__lane_tiles *t) {
  return hr_round_up(t->y.channels, t->outs) * t->x.channels * POINTS;
}

/* v, m and zeros. */
int64_t hr__lane_tiles_floats(const hr__lane_tiles *t) {
  return (POINTS * (t->x.channels + OUTS_MOST) + t->x.channels) * LANES + 2 * POINTS * SPARE;
}

/* ---- weights ---- */

static void transform_line(const float g[TAPS], float *u, int step) {
  float sum = g[0] + g[2];
  u[0] = g[0], u[step] = 0.5f * (sum + g[1]), u[2 * step] = 0.5f * (sum - g[1]), u[3 * step] = g[2];
  u[4 * step] = g[3], u[5 * step] = g[3] + g[4], u[6 * step] = g[4];
}

/* The weights of one output and one input channel. */
static void transform_weight(const hr__windows *w, const float *from, float *u, int64_t step) {
  float lines[TAPS * LINE], all[POINTS];
  for (int i = 0; i < TAPS; ++i) {
    float g[TAPS];
    for (int j = 0; j < TAPS; ++j) {
      g[j] = from[i * w->row_stride + j * w->column_stride];
    }
    transform_line(g, lines + i, TAPS);
  }
  for (int j = 0; j < LINE; ++j) {
    transform_line(lines + j * TAPS, all + j, LINE);
  }
  for (int i = 0; i < POINTS; ++i) {
    u[i * step] = all[i];
  }
}

void hr__lane_tiles_transform(const hr__lane_tiles *t, int64_t begin, int64_t end, float *u) {
  const int64_t ins = t->x.channels, step = ins * t->outs;
  for (int64_t group = begin; group < end; ++group) {
    float *to = u + group * POINTS * step;
    if ((group + 1) * t->outs > t->y.channels) {
      memset(to, 0, (size_t)(POINTS * step) * sizeof *to);
    }
    for (int64_t o = 0; o < t->outs && group * t->outs + o < t->y.channels; ++o) {
      for (int64_t in = 0; in < ins; ++in) {
        const float *from = t->weights + (group * t->outs + o) * t->w.out_stride + in * t->w.in_stride;
        transform_weight(&t->w, from, to + in * t->outs + o, step);
      }
    }
  }
}

/* ---- inputs ---- */

/* The tile's input: pixels of [channels][lanes], of zeros outside of the image. */
typedef struct tile {
  const hr__lane_tiles *t;
  const float *ring;
  int64_t top, left;
  const float *pixels[SIDE * SIDE];
} tile;

static const float *pixel_at(const tile *p, int64_t row, int64_t column) {
  const hr__images *x = &p->t->x;
  bool is_inside = row >= 0 && row < x->height && column >= 0 && column < x->width;
  return is_inside ? p->ring + (row % SIDE * x->width + column) * x->channels * LANES : NULL;
}

WIDE_INLINE void take_line(const __m512 *d, __m512 *v, int step) {
  v[0] = _mm512_sub_ps(d[0], d[2]);
  v[step] = _mm512_add_ps(d[1], d[2]);
  v[2 * step] = _mm512_sub_ps(d[2], d[1]);
  v[3 * step] = _mm512_sub_ps(d[1], d[3]);
  v[4 * step] = _mm512_sub_ps(d[3], d[4]);
  v[5 * step] = d[4];
  v[6 * step] = _mm512_sub_ps(d[5], d[4]);
}

WIDE static void take_tile(const tile *p, float *v) {
  const int64_t floats = p->t->x.channels * LANES;
  for (int64_t c = 0; c < floats; c += VECTOR) {
    __m512 lines[LINE * SIDE], all[LINE];
#pragma GCC unroll 6
    for (int i = 0; i < SIDE; ++i) {
      __m512 d[SIDE];
#pragma GCC unroll 6
      for (int j = 0; j < SIDE; ++j) {
        d[j] = _mm512_load_ps(p->pixels[i * SIDE + j] + c);
      }
      take_line(d, lines + i, SIDE);
    }
#pragma GCC unroll 7
    for (int j = 0; j < LINE; ++j) {
      take_line(lines + j * SIDE, all, 1);
#pragma GCC unroll 7
      for (int i = 0; i < LINE; ++i) {
        _mm512_store_ps(v + (i * LINE + j) * (floats + SPARE) + c, all[i]);
      }
    }
  }
}

/* ---- products ---- */

/* m[out][lanes] = sum over in of u[in][out] v[in][lanes]. */
WIDE_INLINE void multiply_point(const float *v, const float *u, int64_t ins, float *m, int outs) {
  __m512 sums[OUTS_MOST][VECTORS];
  for (int o = 0; o < outs; ++o) {
    for (int k = 0; k < VECTORS; ++k) {
      sums[o][k] = _mm512_setzero_ps();
    }
  }
  for (int64_t in = 0; in < ins; ++in, v += LANES, u += outs) {
    __m512 vs[VECTORS];
    for (int k = 0; k < VECTORS; ++k) {
      vs[k] = _mm512_load_ps(v + k * VECTOR);
    }
    for (int o = 0; o < outs; ++o) {
      __m512 factor = _mm512_set1_ps(u[o]);
      for (int k = 0; k < VECTORS; ++k) {
        sums[o][k] = _mm512_fmadd_ps(factor, vs[k], sums[o][k]);
      }
    }
  }
  for (int o = 0; o < outs; ++o) {
    for (int k = 0; k < VECTORS; ++k) {
      _mm512_store_ps(m + o * LANES + k * VECTOR, sums[o][k]);
    }
  }
}

WIDE_INLINE void multiply_points(const float *v, const float *u, int64_t ins, float *m, int outs) {
  for (int point = 0; point < POINTS; ++point) {
    multiply_point(v + point * (ins * LANES + SPARE), u + point * ins * outs, ins, m + point * (outs * LANES + SPARE),
                   outs);
  }
}

WIDE static void multiply(const float *v, const float *u, int64_t ins, float *m, int outs) {
  if (outs == 8) {
    multiply_points(v, u, ins, m, 8);
  } else if (outs == 10) {
    multiply_points(v, u, ins, m, 10);
  } else {
    multiply_points(v, u, ins, m, OUTS_MOST);
  }
}

/* ---- results ---- */

/* A result as a direct sum; elements outside of the image are skipped. */
WIDE static __attribute__((noinline)) __m512 sum_again(const tile *p, int pixel, int64_t channel, int vector) {
  const hr__windows *w = &p->t->w;
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < TAPS * TAPS; ++i) {
    const float *x = pixel_at(p, p->top + pixel / RESULTS + i / TAPS, p->left + pixel % RESULTS + i % TAPS);
    const float *from =
        p->t->weights + channel * w->out_stride + i / TAPS * w->row_stride + i % TAPS * w->column_stride;
    for (int64_t in = 0; x != NULL && in < p->t->x.channels; ++in) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(from[in * w->in_stride]), _mm512_load_ps(x + in * LANES + vector * VECTOR),
                            sum);
    }
  }
  return sum;
}

WIDE_INLINE __mmask16 find_odd(__m512 x) {
  __m512 zero = _mm512_sub_ps(x, x);
  return _mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q);
}

WIDE_INLINE void give_line(const __m512 *m, int step, __m512 *y) {
  __m512 sum = _mm512_add_ps(m[step], m[2 * step]), difference = _mm512_sub_ps(m[step], m[2 * step]);
  y[0] = _mm512_add_ps(_mm512_add_ps(m[0], sum), _mm512_add_ps(m[4 * step], m[5 * step]));
  y[1] = _mm512_add_ps(_mm512_sub_ps(difference, m[3 * step]), _mm512_add_ps(m[5 * step], m[6 * step]));
}

/* One vector of one channel: m[point], `step` apart. */
WIDE_INLINE void give_tile(const float *m, int64_t step, __m512 y[RESULTS * RESULTS]) {
  __m512 lines[RESULTS * LINE];
#pragma GCC unroll 7
  for (int j = 0; j < LINE; ++j) {
    __m512 column[LINE], pair[RESULTS];
#pragma GCC unroll 7
    for (int i = 0; i < LINE; ++i) {
      column[i] = _mm512_load_ps(m + (i * LINE + j) * step);
    }
    give_line(column, 1, pair);
    lines[j] = pair[0], lines[LINE + j] = pair[1];
  }
  give_line(lines, 1, y);
  give_line(lines + LINE, 1, y + RESULTS);
}

/* The results of `outs` channels from `channel` on, to y[row][column][channels][lanes]. */
WIDE static void give_channels(const tile *p, const float *m, int64_t channel, const float *bias, float *y) {
  const hr__lane_tiles *t = p->t;
  const int64_t row = p->top + t->w.padding[0], column = p->left + t->w.padding[1];
  for (int64_t o = 0; o < t->outs && channel + o < t->y.channels; ++o) {
    for (int k = 0; k < VECTORS; ++k) {
      __m512 all[RESULTS * RESULTS];
      give_tile(m + o * LANES + k * VECTOR, (int64_t)t->outs * LANES + SPARE, all);
      __mmask16 odd = find_odd(_mm512_add_ps(_mm512_add_ps(all[0], all[1]), _mm512_add_ps(all[2], all[3])));
#pragma GCC unroll 4
      for (int i = 0; i < RESULTS * RESULTS; ++i) {
        if (row + i / RESULTS >= t->y.height || column + i % RESULTS >= t->y.width) {
          continue;
        }
        if (odd != 0) {
          all[i] = _mm512_mask_mov_ps(all[i], find_odd(all[i]), sum_again(p, i, channel + o, k));
        }
        all[i] = bias != NULL ? _mm512_add_ps(all[i], _mm512_set1_ps(bias[channel + o])) : all[i];
        int64_t at = (i / RESULTS * t->y.width + column + i % RESULTS) * t->y.channels + channel + o;
        _mm512_store_ps(y + at * LANES + k * VECTOR, all[i]);
      }
    }
  }
}

void hr__lane_tiles_run(const hr__lane_tiles *t, int64_t row, const float *ring, const float *u, const float *bias,
                        float *memory, float *y) {
  const int64_t ins = t->x.channels, group_floats = POINTS * ins * t->outs;
  float *v = memory, *m = v + POINTS * (ins * LANES + SPARE),
        *zeros = m + (int64_t)POINTS * (OUTS_MOST * LANES + SPARE);
  memset(zeros, 0, (size_t)(ins * LANES) * sizeof *zeros);
  for (int64_t column = 0; column < t->y.width; column += RESULTS) {
    tile p = {.t = t, .ring = ring, .top = row - t->w.padding[0], .left = column - t->w.padding[1]};
    for (int i = 0; i < SIDE * SIDE; ++i) {
      const float *pixel = pixel_at(&p, p.top + i / SIDE, p.left + i % SIDE);
      p.pixels[i] = pixel != NULL ? pixel : zeros;
    }
    take_tile(&p, v);
    for (int64_t channel = 0; channel < t->y.channels; channel += t->outs) {
      multiply(v, u + channel / t->outs * group_floats, ins, m, t->outs);
      give_channels(&p, m, channel, bias, y);
    }
  }
}

#endif
