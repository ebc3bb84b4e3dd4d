/* Interpolation of one dim against numbers of PyTorch 2.13 (CPU); gradients by <dy, resample(x)> = <dx, x>. */
#include "lower_testing.h"

enum { IN = 5, OUT = 7 };

static const double x_values[IN] = {1, -2, 4, 0.5, 3};

/* kind, align corners, taps, shares; torch.nn.functional.interpolate of x_values to 7, or to 2 where antialiased. */
typedef struct expected {
  int kind, aligns, taps, shares, out;
  double y[OUT];
} expected;

static const expected cases[] = {
    {0, 0, 0, 2, 7, {1, 1, -2, 4, 4, 0.5, 3}},
    {1, 0, 0, 2, 7, {1, -2, -2, 4, 0.5, 0.5, 3}},
    {2, 1, 0, 4, 7, {1, -1, 0, 4, 5. / 3, 4. / 3, 3}},
    {4, 0, 7, 2, 2, {0.95 / 2.2, 4.35 / 2.2}},
};

static void check_pair(const expected *e, int shares) {
  double x[2 * IN], y[2 * OUT], dy[2 * OUT], dx[2 * IN], left = 0, right = 0;
  for (int k = 0; k < 2 * IN; ++k) {
    x[k] = x_values[k % IN] * (k < IN ? 1 : 2);
  }
  for (int k = 0; k < 2 * OUT; ++k) {
    dy[k] = k * 5 % 7 - 3;
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_RESAMPLE, INPUTS(TENSOR(&t, F64, x, 2, IN)), OUTPUTS(TENSOR(&t, F64, y, 2, e->out)),
               INTS(1, e->kind, e->aligns, e->taps), SCALARS(F64(0)));
  bench_record(&t, HR_OP_RESAMPLE_BACKWARD, INPUTS(TENSOR(&t, F64, dy, 2, e->out)), OUTPUTS(TENSOR(&t, F64, dx, 2, IN)),
               INTS(1, e->kind, e->aligns, e->taps, shares), SCALARS(F64(0)));
  HR_ASSERT_OK(bench_run(&t));
  for (int k = 0; k < 2 * e->out; ++k) {
    HR_ASSERT_NEAR(y[k], e->y[k % e->out] * (k < e->out ? 1 : 2), 1e-6);
    left += dy[k] * y[k];
  }
  for (int k = 0; k < 2 * IN; ++k) {
    right += dx[k] * x[k];
  }
  HR_ASSERT_NEAR(left, right, 1e-9);
}

/* The gradient as a scatter, and as a sum. */
HR_TEST(interpolation_of_one_dim) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    check_pair(&cases[i], 0);
    check_pair(&cases[i], cases[i].shares);
    check_pair(&cases[i], cases[i].out);
  }
}

/* Rows of the gradient for each kind: a sum of few shares, or of many, equals the scatter's. An infinite gradient
 * reaches only the elements that its result was computed from. */
HR_TEST(gradients_of_one_dim_are_equal_in_every_form) {
  enum { KINDS = 7, SIZES = 4, MOST = 40 };
  static const int sizes[SIZES][2] = {{9, 18}, {18, 7}, {3, 40}, {10, 11}};
  for (int kind = 0; kind < KINDS; ++kind) {
    for (int s = 0; s < SIZES; ++s) {
      int in = sizes[s][0], out = sizes[s][1], taps = 3 * (2 * (in / out + 1)) + 1;
      double dy[3 * MOST], scattered[3 * MOST], summed[3 * MOST];
      for (int k = 0; k < 3 * out; ++k) {
        dy[k] = k == out + out / 2 ? HUGE_VAL : k * 5 % 7 - 3.5;
      }
      bench t = bench_begin();
      hr_operand from = TENSOR(&t, F64, dy, 3, out);
      bench_record(&t, HR_OP_RESAMPLE_BACKWARD, INPUTS(from), OUTPUTS(TENSOR(&t, F64, scattered, 3, in)),
                   INTS(1, kind, 0, taps, 0), SCALARS(F64(0)));
      bench_record(&t, HR_OP_RESAMPLE_BACKWARD, INPUTS(from), OUTPUTS(TENSOR(&t, F64, summed, 3, in)),
                   INTS(1, kind, 0, taps, out), SCALARS(F64(0)));
      HR_ASSERT_OK(bench_run(&t));
      for (int k = 0; k < 3 * in; ++k) {
        bool is_far = k / in != 1;
        if (is_far || isfinite(scattered[k])) {
          HR_ASSERT_NEAR(summed[k], scattered[k], 1e-12);
        }
        HR_ASSERT(!is_far || isfinite(summed[k]));
      }
    }
  }
}

/* Columns of windows and back: an element of the plane counts once for each window that contains it. */
HR_TEST(columns_of_windows) {
  double x[3 * 4], columns[2 * 2 * 2 * 3], back[3 * 4];
  for (int i = 0; i < 12; ++i) {
    x[i] = i + 1;
  }
  bench t = bench_begin();
  hr_operand all = TENSOR(&t, F64, columns, 1, 2, 2, 2, 3);
  bench_record(&t, HR_OP_IM2COL, INPUTS(TENSOR(&t, F64, x, 1, 3, 4)), OUTPUTS(all), INTS(2, 2, 1, 1, 0, 0, 1, 1),
               NO_SCALARS);
  bench_record(&t, HR_OP_COL2IM, INPUTS(all), OUTPUTS(TENSOR(&t, F64, back, 1, 3, 4)), INTS(2, 2, 1, 1, 0, 0, 1, 1),
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 24; ++i) {
    int kh = i / 12, kw = i / 6 % 2, oh = i / 3 % 2, ow = i % 3;
    HR_ASSERT(columns[i] == x[(oh + kh) * 4 + ow + kw]);
  }
  for (int i = 0; i < 12; ++i) {
    int rows = i / 4 == 1 ? 2 : 1, places = i % 4 == 0 || i % 4 == 3 ? 1 : 2;
    HR_ASSERT(back[i] == x[i] * rows * places);
  }
}

/* Positions outside give zeros, the border or a reflection; the middle of four elements is their mean. */
HR_TEST(samples_at_places) {
  double x[4] = {1, 2, 3, 4}, grid[3 * 2] = {0, 0, -3, -0.5, 1.5, 0.5};
  const double wanted[3][3] = {{2.5, 0, 0}, {2.5, 1, 4}, {2.5, 2, 4}};
  for (int outside = 0; outside < 3; ++outside) {
    double y[3], dy[3] = {1, 1, 1}, dx[4], dgrid[6];
    bench t = bench_begin();
    hr_operand places = TENSOR(&t, F64, grid, 1, 1, 3, 2), plane = TENSOR(&t, F64, x, 1, 1, 2, 2);
    bench_record(&t, HR_OP_GRID_SAMPLE, INPUTS(plane, places), OUTPUTS(TENSOR(&t, F64, y, 1, 1, 1, 3)),
                 INTS(0, outside, 0), NO_SCALARS);
    bench_record(&t, HR_OP_GRID_SAMPLE_BACKWARD, INPUTS(TENSOR(&t, F64, dy, 1, 1, 1, 3), plane, places),
                 OUTPUTS(TENSOR(&t, F64, dx, 1, 1, 2, 2), TENSOR(&t, F64, dgrid, 1, 1, 3, 2)), INTS(0, outside, 0),
                 NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    ASSERT_ALL_NEAR(y, wanted[outside], 3, 1e-12);
    HR_ASSERT_NEAR(dx[0] * 1 + dx[1] * 2 + dx[2] * 3 + dx[3] * 4, y[0] + y[1] + y[2], 1e-12);
    HR_ASSERT_NEAR(dgrid[0], 1, 1e-12); /* one column further is one element more */
    HR_ASSERT_NEAR(dgrid[1], 2, 1e-12);
  }
}
