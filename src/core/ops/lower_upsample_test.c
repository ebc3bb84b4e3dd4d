/* Interpolation against its definition; gradients by <dy, up(x)> = <dx, x>. */
#include "lower_testing.h"

enum { PLANES = 2, COUNT_MAX = PLANES * 12 * 16 };

static const int sizes[][4] = {{3, 4, 6, 8}, {3, 4, 3, 4}, {3, 4, 9, 7}, {5, 6, 2, 4}, {1, 5, 4, 1}, {4, 4, 6, 9}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* The element of `in` nearest to element o of `out`; in integers, because the sizes' quotients are exact. */
static int nearest(int o, int in, int out, bool is_exact) {
  int at = is_exact ? (2 * o + 1) * in / (2 * out) : o * in / out;
  return at < in ? at : in - 1;
}

/* The position of output o among the input's elements. */
static double source(int o, int in, int out, bool aligns_corners, double scale) {
  if (in == out) {
    return o;
  }
  double at = aligns_corners ? (out > 1 ? o * (double)(in - 1) / (out - 1) : 0)
                             : (o + 0.5) * (scale > 0 ? 1 / scale : (double)in / out) - 0.5;
  return at < 0 ? 0 : at;
}

static double between(const double *plane, int h, int w, double row, double column) {
  int r = (int)row < h - 1 ? (int)row : h - 1, c = (int)column < w - 1 ? (int)column : w - 1;
  int r1 = r < h - 1 ? r + 1 : r, c1 = c < w - 1 ? c + 1 : c;
  double a = fmin(row - r, 1), b = fmin(column - c, 1);
  return (1 - a) * ((1 - b) * plane[r * w + c] + b * plane[r * w + c1]) +
         a * ((1 - b) * plane[r1 * w + c] + b * plane[r1 * w + c1]);
}

typedef double (*sample_fn)(const double *plane, const int *size, int row, int column, bool flag, double scale);

static double sample_nearest(const double *plane, const int *size, int row, int column, bool flag, double scale) {
  (void)scale;
  return plane[nearest(row, size[0], size[2], flag) * size[1] + nearest(column, size[1], size[3], flag)];
}
static double sample_bilinear(const double *plane, const int *size, int row, int column, bool flag, double scale) {
  return between(plane, size[0], size[1], source(row, size[0], size[2], flag, scale),
                 source(column, size[1], size[3], flag, scale));
}

static void check(hr_op forward, hr_op backward, sample_fn sample, const int *size, bool flag, double scale) {
  int in = PLANES * size[0] * size[1], out = PLANES * size[2] * size[3];
  double x[COUNT_MAX], y[COUNT_MAX], dy[COUNT_MAX], dx[COUNT_MAX], expected[COUNT_MAX];
  fill_numbers(x, in, 7), fill_numbers(dy, out, 5);
  for (int o = 0; o < out; ++o) {
    const double *plane = x + o / (size[2] * size[3]) * size[0] * size[1];
    expected[o] = sample(plane, size, o / size[3] % size[2], o % size[3], flag, scale);
  }
  bench t = bench_begin();
  bench_record(&t, forward, INPUTS(TENSOR(&t, F64, x, PLANES, 1, size[0], size[1])),
               OUTPUTS(TENSOR(&t, F64, y, PLANES, 1, size[2], size[3])), INTS(flag), SCALARS(F64(scale), F64(scale)));
  bench_record(&t, backward, INPUTS(TENSOR(&t, F64, dy, PLANES, 1, size[2], size[3])),
               OUTPUTS(TENSOR(&t, F64, dx, PLANES, 1, size[0], size[1])), INTS(flag), SCALARS(F64(scale), F64(scale)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, expected, out, 1e-12);
  HR_ASSERT_NEAR(dot(dx, x, in), dot(dy, expected, out), 1e-9);
}

HR_TEST(nearest_and_its_gradient) {
  for (int i = 0; i < SIZES; ++i) {
    check(HR_OP_UPSAMPLE_NEAREST2D, HR_OP_UPSAMPLE_NEAREST2D_BACKWARD, sample_nearest, sizes[i], false, 0);
    check(HR_OP_UPSAMPLE_NEAREST2D, HR_OP_UPSAMPLE_NEAREST2D_BACKWARD, sample_nearest, sizes[i], true, 0);
  }
}

HR_TEST(bilinear_and_its_gradient) {
  for (int i = 0; i < SIZES; ++i) {
    check(HR_OP_UPSAMPLE_BILINEAR2D, HR_OP_UPSAMPLE_BILINEAR2D_BACKWARD, sample_bilinear, sizes[i], false, 0);
    check(HR_OP_UPSAMPLE_BILINEAR2D, HR_OP_UPSAMPLE_BILINEAR2D_BACKWARD, sample_bilinear, sizes[i], true, 0);
  }
}

/* 4 x 4 to 6 x 9 with a scale that differs from the sizes' quotient. */
HR_TEST(bilinear_by_a_given_scale) {
  check(HR_OP_UPSAMPLE_BILINEAR2D, HR_OP_UPSAMPLE_BILINEAR2D_BACKWARD, sample_bilinear, sizes[5], false, 1.6);
}

HR_TEST(nearest_doubling_is_one_copy) {
  float x[4] = {1, 2, 3, 4}, y[16];
  bench t = bench_begin();
  bench_record(&t, HR_OP_UPSAMPLE_NEAREST2D, INPUTS(TENSOR(&t, F32, x, 1, 2, 2)), OUTPUTS(TENSOR(&t, F32, y, 1, 4, 4)),
               INTS(0), SCALARS(F64(2), F64(2)));
  HR_ASSERT_EQ(bench_count_nodes(&t), 1);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[]){1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}), 16, 0);
}
