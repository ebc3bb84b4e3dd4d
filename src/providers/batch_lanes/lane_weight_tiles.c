/* lane_weight_tiles.c: gradients of the weights of 5 x 5 windows with 49 multiplications instead of the 100 of 2 x 2
 * gradients: the reverse of tiles.c's algorithm, whose names these are. Along one dim, of inputs d0..d5 and gradients
 * y0, y1:
 *
 *   v = d0 - d2, d1 + d2, d2 - d1, d1 - d3     d3 - d4, d4, d5 - d4
 *   q = y0, y0 + y1, y0 - y1, y1               y0, y0 + y1, y1           m = sums over tiles of q v
 *   g = m0 + (m1 + m2) / 2, (m1 - m2) / 2, (m1 + m2) / 2 - m3, m4 + m5, m5 + m6
 *
 * The points of one row at a time are transformed, since all of them exceed the L2 cache. There are four different q in
 * each dim. */
#include <string.h>

#include "providers/batch_lanes/batch_lanes.h"

#if defined(HR_WIDE_VECTORS)

enum { VECTOR = HR__WIDE, RESULTS = HR__LANE_TILE, SIDE = HR__LANE_SIDE, TAPS = HR__LANE_TAPS, LINE = HR__LANE_LINE };

/* Of a tile's rows: the first plus `sign` times the second; -1: there is none. */
typedef struct combination {
  int first, second;
  float sign;
} combination;

/* to = row first + sign row second, of `floats` floats; NULL: zeros. */
WIDE static void combine(const float *first, const float *second, float sign, int64_t floats, float *to) {
  __m512 factor = _mm512_set1_ps(sign);
  for (int64_t i = 0; i < floats; i += VECTOR) {
    __m512 sum = first != NULL ? _mm512_load_ps(first + i) : _mm512_setzero_ps();
    _mm512_store_ps(to + i, second != NULL ? _mm512_fmadd_ps(factor, _mm512_load_ps(second + i), sum) : sum);
  }
}

/* ---- inputs ---- */

static int64_t line_columns(const hr__weight_tiles *t) {
  return RESULTS * t->columns + SIDE - RESULTS;
}

int64_t hr__weight_tiles_line_floats(const hr__weight_tiles *t) {
  int64_t inputs = line_columns(t) * t->ins, gradients = RESULTS * t->columns * t->outs;
  return (inputs > gradients ? inputs : gradients) * VECTOR;
}

static const float *row_at(const float *rows, int64_t row, int64_t count, int64_t floats) {
  return row >= 0 && row < count ? rows + row * floats : NULL;
}

/* The points of a row of tiles, from the line of its inputs. */
WIDE static void take_tiles(const hr__weight_tiles *t, const float *line, float *v) {
  const int64_t width = t->ins * VECTOR;
  for (int64_t tile = 0; tile < t->columns; ++tile, line += RESULTS * width, v += width) {
    for (int64_t i = 0; i < width; i += VECTOR) {
      __m512 d[SIDE];
      for (int j = 0; j < SIDE; ++j) {
        d[j] = _mm512_load_ps(line + j * width + i);
      }
      float *to = v + i;
      _mm512_store_ps(to, _mm512_sub_ps(d[0], d[2]));
      _mm512_store_ps(to + t->v_point, _mm512_add_ps(d[1], d[2]));
      _mm512_store_ps(to + 2 * t->v_point, _mm512_sub_ps(d[2], d[1]));
      _mm512_store_ps(to + 3 * t->v_point, _mm512_sub_ps(d[1], d[3]));
      _mm512_store_ps(to + 4 * t->v_point, _mm512_sub_ps(d[3], d[4]));
      _mm512_store_ps(to + 5 * t->v_point, d[4]);
      _mm512_store_ps(to + 6 * t->v_point, _mm512_sub_ps(d[5], d[4]));
    }
  }
}

void hr__weight_tiles_inputs(const hr__weight_tiles *t, int point, const float *x, float *line, float *v) {
  static const combination all[LINE] = {{0, 2, -1}, {1, 2, 1},  {2, 1, -1}, {1, 3, -1},
                                        {3, 4, -1}, {4, -1, 0}, {5, 4, -1}};
  const combination *at = &all[point];
  const int64_t width = t->ins * VECTOR, row_floats = t->x_width * width, all_columns = line_columns(t);
  int64_t columns = all_columns - t->left < t->x_width ? all_columns - t->left : t->x_width;
  memset(line, 0, (size_t)(all_columns * width) * sizeof *line);
  for (int64_t tile = 0; tile < t->rows; ++tile, v += t->columns * width) {
    int64_t top = RESULTS * tile + t->top;
    const float *first = row_at(x, top + at->first, t->x_rows, row_floats);
    const float *second = at->second >= 0 ? row_at(x, top + at->second, t->x_rows, row_floats) : NULL;
    combine(first, second, at->sign, columns * width, line + t->left * width);
    take_tiles(t, line, v);
  }
}

/* ---- gradients ---- */

int hr__weight_tiles_gradient(int point) {
  static const int all[LINE] = {0, 1, 2, 3, 0, 1, 3};
  return all[point];
}

WIDE static void give_tiles(const hr__weight_tiles *t, const float *line, float *q) {
  const int64_t width = t->outs * VECTOR;
  for (int64_t tile = 0; tile < t->columns; ++tile, line += RESULTS * width, q += width) {
    for (int64_t i = 0; i < width; i += VECTOR) {
      __m512 first = _mm512_load_ps(line + i), second = _mm512_load_ps(line + width + i);
      _mm512_store_ps(q + i, first);
      _mm512_store_ps(q + t->q_point + i, _mm512_add_ps(first, second));
      _mm512_store_ps(q + 2 * t->q_point + i, _mm512_sub_ps(first, second));
      _mm512_store_ps(q + 3 * t->q_point + i, second);
    }
  }
}

void hr__weight_tiles_gradients(const hr__weight_tiles *t, int gradient, const float *y, float *line, float *q) {
  static const combination all[HR__LANE_GRADIENTS] = {{0, -1, 0}, {0, 1, 1}, {0, 1, -1}, {1, -1, 0}};
  const combination *at = &all[gradient];
  const int64_t width = t->outs * VECTOR, row_floats = t->y_width * width;
  memset(line, 0, (size_t)(RESULTS * t->columns * width) * sizeof *line);
  for (int64_t tile = 0; tile < t->rows; ++tile, q += t->columns * width) {
    const float *first = row_at(y, RESULTS * tile + at->first, t->y_rows, row_floats);
    const float *second = at->second >= 0 ? row_at(y, RESULTS * tile + at->second, t->y_rows, row_floats) : NULL;
    combine(first, second, at->sign, row_floats, line);
    give_tiles(t, line, q);
  }
}

/* ---- weights ---- */

static void give_line(const float *m, int64_t step, float *g) {
  float sum = 0.5f * (m[step] + m[2 * step]);
  g[0] = m[0] + sum, g[1] = 0.5f * (m[step] - m[2 * step]), g[2] = sum - m[3 * step];
  g[3] = m[4 * step] + m[5 * step], g[4] = m[5 * step] + m[6 * step];
}

bool hr__weight_tiles_give(const float *m, int64_t step, float weights[TAPS * TAPS]) {
  float lines[LINE * TAPS], odd = 0;
  for (int row = 0; row < LINE; ++row) {
    give_line(m + row * LINE * step, step, lines + row * TAPS);
  }
  for (int column = 0; column < TAPS; ++column) {
    float g[TAPS];
    give_line(lines + column, TAPS, g);
    for (int row = 0; row < TAPS; ++row) {
      weights[row * TAPS + column] = g[row], odd += g[row] - g[row];
    }
  }
  return odd == 0;
}

#endif
