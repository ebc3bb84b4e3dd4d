/* Pools against plain loops over windows; gradients of the linear ones by <dy, pool(x)> = <dx, x>. */
#include "lower_testing.h"

typedef struct pool {
  int kernel[2], stride[2], padding[2], dilation[2], in[2], out[2];
} pool;

enum { PLANES = 2, SIDE_MAX = 10, COUNT_MAX = PLANES * SIDE_MAX * SIDE_MAX };

/* Tiles, tiles with a remainder, padding, dilation, overlap, and windows past the high end (as with ceil_mode). */
static const pool pools[] = {
    {{2, 2}, {2, 2}, {0, 0}, {1, 1}, {6, 8}, {3, 4}}, {{2, 2}, {3, 2}, {0, 0}, {1, 1}, {7, 9}, {2, 4}},
    {{3, 3}, {2, 2}, {1, 1}, {1, 1}, {7, 8}, {4, 4}}, {{2, 3}, {1, 2}, {1, 1}, {2, 2}, {6, 7}, {6, 3}},
    {{3, 2}, {1, 1}, {1, 0}, {1, 1}, {5, 6}, {5, 5}}, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, {7, 7}, {4, 4}},
    {{3, 3}, {3, 3}, {1, 1}, {1, 1}, {7, 6}, {3, 3}}};
enum { POOLS = sizeof pools / sizeof *pools };

#define POOL_INTS(p)                                                                                                  \
  (p)->kernel[0], (p)->kernel[1], (p)->stride[0], (p)->stride[1], (p)->padding[0], (p)->padding[1], (p)->dilation[0], \
      (p)->dilation[1]

/* Input coordinate of window o, element k; -1 outside. */
static int tap(const pool *p, int i, int o, int k) {
  int at = o * p->stride[i] - p->padding[i] + k * p->dilation[i];
  return at < p->in[i] ? at : -1;
}

static void max_of_windows(const pool *p, const double *x, double *y, int64_t *index) {
  for (int o = 0; o < PLANES * p->out[0] * p->out[1]; ++o) {
    int plane = o / (p->out[0] * p->out[1]), row = o / p->out[1] % p->out[0], column = o % p->out[1];
    index[o] = -1;
    for (int k = 0; k < p->kernel[0] * p->kernel[1]; ++k) {
      int h = tap(p, 0, row, k / p->kernel[1]), w = tap(p, 1, column, k % p->kernel[1]);
      double value = h >= 0 && w >= 0 ? x[(plane * p->in[0] + h) * p->in[1] + w] : 0;
      if (h >= 0 && w >= 0 && (index[o] < 0 || value > y[o])) {
        y[o] = value, index[o] = h * p->in[1] + w;
      }
    }
  }
}

HR_TEST(max_pools_and_their_gradients) {
  for (int i = 0; i < POOLS; ++i) {
    const pool *p = &pools[i];
    int in = PLANES * p->in[0] * p->in[1], out = PLANES * p->out[0] * p->out[1];
    double x[COUNT_MAX], y[COUNT_MAX], dy[COUNT_MAX], dx[COUNT_MAX], y_expected[COUNT_MAX],
        dx_expected[COUNT_MAX] = {0};
    int64_t index[COUNT_MAX], index_expected[COUNT_MAX];
    fill_numbers(x, in, 7), fill_numbers(dy, out, 5);
    max_of_windows(p, x, y_expected, index_expected);
    for (int o = 0; o < out; ++o) {
      dx_expected[o / (out / PLANES) * p->in[0] * p->in[1] + index_expected[o]] += dy[o];
    }
    bench t = bench_begin();
    hr_operand best = TENSOR(&t, I64, index, PLANES, p->out[0], p->out[1]);
    bench_record(&t, HR_OP_MAX_POOL, INPUTS(TENSOR(&t, F64, x, PLANES, p->in[0], p->in[1])),
                 OUTPUTS(TENSOR(&t, F64, y, PLANES, p->out[0], p->out[1]), best), INTS(POOL_INTS(p)), NO_SCALARS);
    bench_record(&t, HR_OP_MAX_POOL_BACKWARD, INPUTS(TENSOR(&t, F64, dy, PLANES, p->out[0], p->out[1]), best),
                 OUTPUTS(TENSOR(&t, F64, dx, PLANES, p->in[0], p->in[1])), INTS(POOL_INTS(p)), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    ASSERT_ALL_NEAR(y, y_expected, out, 0);
    ASSERT_ALL_EQ(index, index_expected, out);
    ASSERT_ALL_NEAR(dx, dx_expected, in, 1e-12);
  }
}

/* Planes whose elements of one place are neighbours. */
static hr_operand planes_last(bench *t, hr_dtype dtype, void *data, const int *size) {
  int64_t dims[3] = {PLANES, size[0], size[1]};
  hr_operand x = bench_tensor(t, dtype, data, (size_t)(PLANES * size[0] * size[1]) * sizeof(double), 3, dims);
  int64_t *strides = (int64_t *)x.strides;
  strides[0] = 1, strides[1] = (int64_t)PLANES * size[1], strides[2] = PLANES;
  return x;
}

static void turn(const double *from, double *to, const int *size) {
  int count = size[0] * size[1];
  for (int i = 0; i < PLANES * count; ++i) {
    to[i % count * PLANES + i / count] = from[i];
  }
}

/* Results and gradients have the bits of planes that follow each other. */
HR_TEST(max_pools_of_neighbouring_planes) {
  for (int i = 0; i < POOLS; ++i) {
    const pool *p = &pools[i];
    int in = PLANES * p->in[0] * p->in[1], out = PLANES * p->out[0] * p->out[1];
    double x[2][COUNT_MAX], y[2][COUNT_MAX], dy[2][COUNT_MAX], dx[2][COUNT_MAX], turned[COUNT_MAX];
    int64_t index[2][COUNT_MAX];
    fill_numbers(x[0], in, 7), fill_numbers(dy[0], out, 5);
    turn(x[0], x[1], p->in), turn(dy[0], dy[1], p->out);
    for (int is_last = 0; is_last < 2; ++is_last) {
      bench t = bench_begin();
      hr_operand all[5] = {
          TENSOR(&t, F64, x[0], PLANES, p->in[0], p->in[1]), TENSOR(&t, F64, y[0], PLANES, p->out[0], p->out[1]),
          TENSOR(&t, I64, index[0], PLANES, p->out[0], p->out[1]), TENSOR(&t, F64, dy[0], PLANES, p->out[0], p->out[1]),
          TENSOR(&t, F64, dx[0], PLANES, p->in[0], p->in[1])};
      if (is_last) {
        all[0] = planes_last(&t, HR_DTYPE_F64, x[1], p->in), all[1] = planes_last(&t, HR_DTYPE_F64, y[1], p->out);
        all[2] = planes_last(&t, HR_DTYPE_I64, index[1], p->out);
        all[3] = planes_last(&t, HR_DTYPE_F64, dy[1], p->out), all[4] = planes_last(&t, HR_DTYPE_F64, dx[1], p->in);
      }
      bench_record(&t, HR_OP_MAX_POOL, INPUTS(all[0]), OUTPUTS(all[1], all[2]), INTS(POOL_INTS(p)), NO_SCALARS);
      bench_record(&t, HR_OP_MAX_POOL_BACKWARD, INPUTS(all[3], all[2]), OUTPUTS(all[4]), INTS(POOL_INTS(p)),
                   NO_SCALARS);
      HR_ASSERT_OK(bench_run(&t));
    }
    turn(y[0], turned, p->out);
    HR_ASSERT(memcmp(turned, y[1], (size_t)out * sizeof *turned) == 0);
    turn(dx[0], turned, p->in);
    HR_ASSERT(memcmp(turned, dx[1], (size_t)in * sizeof *turned) == 0);
  }
}

/* Padding never wins, not even if all else is -infinity, and a NaN beats every number. */
HR_TEST(max_pool_of_infinities_and_nan) {
  float x[9] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, 1, -INFINITY, NAN, 2}, y[4];
  int64_t index[4];
  bench t = bench_begin();
  bench_record(&t, HR_OP_MAX_POOL, INPUTS(TENSOR(&t, F32, x, 1, 3, 3)),
               OUTPUTS(TENSOR(&t, F32, y, 1, 2, 2), TENSOR(&t, I64, index, 1, 2, 2)), INTS(2, 2, 2, 2, 1, 1, 1, 1),
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){-INFINITY, -INFINITY, -INFINITY, NAN}), 4, 0);
  ASSERT_ALL_EQ(index, ((int64_t[]){0, 1, 3, 7}), 4);
}

/* The number of elements that window o of dim i divides by: the window cut at the plane, or at its padding's end. */
static int extent(const pool *p, int i, int o, bool counts_padding) {
  int start = o * p->stride[i] - p->padding[i], end = start + p->kernel[i];
  int limit = counts_padding ? p->in[i] + p->padding[i] : p->in[i];
  end = end < limit ? end : limit;
  return end - (!counts_padding && start < 0 ? 0 : start);
}

static void average_of_windows(const pool *p, const double *x, double *y, bool counts_padding, int divisor) {
  for (int o = 0; o < PLANES * p->out[0] * p->out[1]; ++o) {
    int plane = o / (p->out[0] * p->out[1]), row = o / p->out[1] % p->out[0], column = o % p->out[1];
    double sum = 0;
    for (int k = 0; k < p->kernel[0] * p->kernel[1]; ++k) {
      int h = tap(p, 0, row, k / p->kernel[1]), w = tap(p, 1, column, k % p->kernel[1]);
      sum += h >= 0 && w >= 0 ? x[(plane * p->in[0] + h) * p->in[1] + w] : 0;
    }
    y[o] = sum / (divisor != 0 ? divisor : extent(p, 0, row, counts_padding) * extent(p, 1, column, counts_padding));
  }
}

HR_TEST(average_pools_and_their_gradients) {
  for (int i = 0; i < POOLS * 3; ++i) {
    const pool *p = &pools[i / 3];
    int in = PLANES * p->in[0] * p->in[1], out = PLANES * p->out[0] * p->out[1], divisor = i % 3 == 2 ? 5 : 0;
    double x[COUNT_MAX], y[COUNT_MAX], dy[COUNT_MAX], dx[COUNT_MAX], y_expected[COUNT_MAX];
    if (p->dilation[0] != 1) {
      continue;
    }
    fill_numbers(x, in, 7), fill_numbers(dy, out, 5);
    average_of_windows(p, x, y_expected, i % 3 == 0, divisor);
    bench t = bench_begin();
    bench_record(&t, HR_OP_AVG_POOL, INPUTS(TENSOR(&t, F64, x, PLANES, p->in[0], p->in[1])),
                 OUTPUTS(TENSOR(&t, F64, y, PLANES, p->out[0], p->out[1])), INTS(POOL_INTS(p), i % 3 == 0, divisor),
                 NO_SCALARS);
    bench_record(&t, HR_OP_AVG_POOL_BACKWARD, INPUTS(TENSOR(&t, F64, dy, PLANES, p->out[0], p->out[1])),
                 OUTPUTS(TENSOR(&t, F64, dx, PLANES, p->in[0], p->in[1])), INTS(POOL_INTS(p), i % 3 == 0, divisor),
                 NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    ASSERT_ALL_NEAR(y, y_expected, out, 1e-12);
    HR_ASSERT_NEAR(dot(dx, x, in), dot(dy, y_expected, out), 1e-9);
  }
}

HR_TEST(adaptive_average_pools_and_their_gradients) {
  static const int sizes[][4] = {{8, 6, 4, 3}, {7, 9, 1, 1}, {7, 9, 3, 4}, {3, 5, 7, 4}, {6, 10, 4, 10}, {2, 5, 9, 4}};
  for (int i = 0; i < 6; ++i) {
    int h = sizes[i][0], w = sizes[i][1], oh = sizes[i][2], ow = sizes[i][3], in = PLANES * h * w,
        out = PLANES * oh * ow;
    double x[COUNT_MAX], y[COUNT_MAX], dy[COUNT_MAX], dx[COUNT_MAX], y_expected[COUNT_MAX];
    fill_numbers(x, in, 7), fill_numbers(dy, out, 5);
    for (int o = 0; o < out; ++o) {
      int row = o / ow % oh, column = o % ow, count = 0;
      double sum = 0;
      for (int r = row * h / oh; r < ((row + 1) * h + oh - 1) / oh; ++r) {
        for (int c = column * w / ow; c < ((column + 1) * w + ow - 1) / ow; ++c, ++count) {
          sum += x[(o / (oh * ow) * h + r) * w + c];
        }
      }
      y_expected[o] = sum / count;
    }
    bench t = bench_begin();
    bench_record(&t, HR_OP_ADAPTIVE_AVG_POOL, INPUTS(TENSOR(&t, F64, x, PLANES, h, w)),
                 OUTPUTS(TENSOR(&t, F64, y, PLANES, oh, ow)), INTS(2), NO_SCALARS);
    bench_record(&t, HR_OP_ADAPTIVE_AVG_POOL_BACKWARD, INPUTS(TENSOR(&t, F64, dy, PLANES, oh, ow)),
                 OUTPUTS(TENSOR(&t, F64, dx, PLANES, h, w)), INTS(2), NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    ASSERT_ALL_NEAR(y, y_expected, out, 1e-12);
    HR_ASSERT_NEAR(dot(dx, x, in), dot(dy, y_expected, out), 1e-9);
  }
}

/* Planes of one and three dims, with padding: the maximum of the elements, the average of all positions. */
HR_TEST(pools_of_one_and_three_dims) {
  double x[2 * 5] = {1, 7, 3, 4, 5, -1, -2, -3, -4, -9}, y[2 * 3], mean[2 * 3];
  int64_t index[2 * 3];
  bench t = bench_begin();
  bench_record(&t, HR_OP_MAX_POOL, INPUTS(TENSOR(&t, F64, x, 2, 5)),
               OUTPUTS(TENSOR(&t, F64, y, 2, 3), TENSOR(&t, I64, index, 2, 3)), INTS(3, 2, 1, 1), NO_SCALARS);
  bench_record(&t, HR_OP_AVG_POOL, INPUTS(TENSOR(&t, F64, x, 2, 5)), OUTPUTS(TENSOR(&t, F64, mean, 2, 3)),
               INTS(3, 2, 1, 1, 0, 0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((double[]){7, 7, 5, -1, -2, -4}), 6, 0);
  ASSERT_ALL_EQ(index, ((int64_t[]){1, 1, 4, 0, 1, 3}), 6);
  ASSERT_ALL_NEAR(mean, ((double[]){4, 14. / 3, 4.5, -1.5, -3, -6.5}), 6, 1e-15);

  double cube[3 * 3 * 3], corner[8], gradient[27];
  int64_t place[8];
  for (int i = 0; i < 27; ++i) {
    cube[i] = (double)(i * 5 % 27);
  }
  t = bench_begin();
  hr_operand places = TENSOR(&t, I64, place, 1, 2, 2, 2);
  bench_record(&t, HR_OP_MAX_POOL, INPUTS(TENSOR(&t, F64, cube, 1, 3, 3, 3)),
               OUTPUTS(TENSOR(&t, F64, corner, 1, 2, 2, 2), places), INTS(2, 2, 2, 1, 1, 1, 0, 0, 0, 1, 1, 1),
               NO_SCALARS);
  bench_record(&t, HR_OP_MAX_POOL_BACKWARD, INPUTS(TENSOR(&t, F64, corner, 1, 2, 2, 2), places),
               OUTPUTS(TENSOR(&t, F64, gradient, 1, 3, 3, 3)), INTS(2, 2, 2, 1, 1, 1, 0, 0, 0, 1, 1, 1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  double expected[27] = {0};
  for (int o = 0; o < 8; ++o) {
    int best = -1;
    for (int k = 0; k < 8; ++k) {
      int at = ((o >> 2) + (k >> 2)) * 9 + ((o >> 1 & 1) + (k >> 1 & 1)) * 3 + (o & 1) + (k & 1);
      best = best < 0 || cube[at] > cube[best] ? at : best;
    }
    HR_ASSERT(corner[o] == cube[best]);
    HR_ASSERT(place[o] == best);
    expected[best] += cube[best];
  }
  ASSERT_ALL_NEAR(gradient, expected, 27, 0);
}

/* Windows of unequal width: elements outside a window never win, not even against -infinity. */
HR_TEST(adaptive_max_pools) {
  double x[2 * 5] = {1, 2, 9, 4, 5, -INFINITY, -INFINITY, -INFINITY, NAN, 3}, y[2 * 3];
  int64_t index[2 * 3];
  bench t = bench_begin();
  bench_record(&t, HR_OP_ADAPTIVE_MAX_POOL, INPUTS(TENSOR(&t, F64, x, 2, 5)),
               OUTPUTS(TENSOR(&t, F64, y, 2, 3), TENSOR(&t, I64, index, 2, 3)), INTS(1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((double[]){2, 9, 5, -INFINITY, NAN, NAN}), 6, 0);
  ASSERT_ALL_EQ(index, ((int64_t[]){1, 2, 4, 0, 3, 3}), 6);
}

/* Uneven in two dims of three, pooled one after the other: of equal values the first in the plane wins. */
HR_TEST(adaptive_pools_of_three_dims) {
  enum { D = 5, H = 2, W = 7, OD = 3, OH = 2, OW = 4 };
  double x[2 * D * H * W], y[2 * OD * OH * OW], mean[2 * OD * OH * OW];
  int64_t index[2 * OD * OH * OW];
  for (int i = 0; i < 2 * D * H * W; ++i) {
    x[i] = i < D * H * W ? (double)(i * 7 % 3) : i % 4 == 0 ? -1 : -INFINITY;
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_ADAPTIVE_MAX_POOL, INPUTS(TENSOR(&t, F64, x, 2, D, H, W)),
               OUTPUTS(TENSOR(&t, F64, y, 2, OD, OH, OW), TENSOR(&t, I64, index, 2, OD, OH, OW)), INTS(3), NO_SCALARS);
  bench_record(&t, HR_OP_ADAPTIVE_AVG_POOL, INPUTS(TENSOR(&t, F64, x, 2, D, H, W)),
               OUTPUTS(TENSOR(&t, F64, mean, 2, OD, OH, OW)), INTS(3), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int o = 0; o < 2 * OD * OH * OW; ++o) {
    int d = o / (OH * OW) % OD, h = o / OW % OH, w = o % OW, best = -1, count = 0;
    const double *plane = x + o / (OD * OH * OW) * D * H * W;
    double sum = 0;
    for (int i = d * D / OD; i < ((d + 1) * D + OD - 1) / OD; ++i) {
      for (int k = w * W / OW; k < ((w + 1) * W + OW - 1) / OW; ++k, ++count) {
        int at = (i * H + h) * W + k;
        best = best < 0 || plane[at] > plane[best] ? at : best;
        sum += plane[at];
      }
    }
    HR_ASSERT(y[o] == plane[best]);
    HR_ASSERT(index[o] == best);
    HR_ASSERT(isinf(sum) ? mean[o] == sum : fabs(mean[o] - sum / count) < 1e-12);
  }
}
