/* Normalisations against their definitions in double; gradients against differences of a weighted sum of the output. */
#include "lower_testing.h"

enum { N = 2, C = 4, S = 3, COUNT = N * C * S };

static const double eps = 1e-3, step = 1e-5;

static void fill(double *out, int count, int factor, int start) {
  for (int i = 0; i < count; ++i) {
    out[i] = (double)((i * factor + start) % 19 - 9) / 5;
  }
}

/* y[i] = (x[i] - mean) / sqrt(var + eps) * w[i / S % C] + b[i / S % C]; elements with the same row(i) share a mean. */
typedef struct problem {
  int rows;
  int (*row)(int i);
  int (*weight)(int i);
  int weights;
} problem;

static void normalise(const problem *p, const double *x, const double *w, const double *b, double *y, double *means,
                      double *rstds) {
  for (int r = 0; r < p->rows; ++r) {
    double sum = 0, squares = 0, n = 0;
    for (int i = 0; i < COUNT; ++i) {
      sum += p->row(i) == r ? x[i] : 0, n += p->row(i) == r;
    }
    for (int i = 0; i < COUNT; ++i) {
      squares += p->row(i) == r ? (x[i] - sum / n) * (x[i] - sum / n) : 0;
    }
    means[r] = sum / n, rstds[r] = 1 / sqrt(squares / n + eps);
  }
  for (int i = 0; i < COUNT; ++i) {
    y[i] = (x[i] - means[p->row(i)]) * rstds[p->row(i)] * w[p->weight(i)] + b[p->weight(i)];
  }
}

static double weighted(const problem *p, const double *x, const double *w, const double *b, const double *dy) {
  double y[COUNT], means[COUNT], rstds[COUNT], sum = 0;
  normalise(p, x, w, b, y, means, rstds);
  for (int i = 0; i < COUNT; ++i) {
    sum += y[i] * dy[i];
  }
  return sum;
}

/* Derivatives of `weighted` by each element of `of`, which is one of x, w and b. */
static void expect_gradient(const problem *p, double *x, double *w, double *b, const double *dy, double *of, int count,
                            const double *actual) {
  for (int i = 0; i < count; ++i) {
    double kept = of[i];
    of[i] = kept + step;
    double above = weighted(p, x, w, b, dy);
    of[i] = kept - step;
    double below = weighted(p, x, w, b, dy);
    of[i] = kept;
    HR_ASSERT_NEAR(actual[i], (above - below) / (2 * step), 1e-7);
  }
}

/* ---- [N, C, S]: layer norm over C and S, group norm of 2 groups, batch norm ---- */

static int layer_row(int i) {
  return i / (C * S);
}
static int layer_weight(int i) {
  return i % (C * S);
}
static int group_row(int i) {
  return i / (C / 2 * S);
}
static int channel(int i) {
  return i / S % C;
}
static const problem layer = {N, layer_row, layer_weight, C *S}, group = {2 * N, group_row, channel, C},
                     batch = {C, channel, channel, C};

static double x[COUNT], w[C * S], b[C * S], dy[COUNT], y[COUNT], mean[COUNT], rstd[COUNT], dx[COUNT], dw[C * S],
    db[C * S], y_expected[COUNT], mean_expected[COUNT], rstd_expected[COUNT];

static void set_up(const problem *p) {
  fill(x, COUNT, 7, 1), fill(w, C * S, 5, 2), fill(b, C * S, 3, 4), fill(dy, COUNT, 11, 5);
  normalise(p, x, w, b, y_expected, mean_expected, rstd_expected);
}

static void check(const problem *p) {
  ASSERT_ALL_NEAR(y, y_expected, COUNT, 1e-12);
  ASSERT_ALL_NEAR(mean, mean_expected, p->rows, 1e-12);
  ASSERT_ALL_NEAR(rstd, rstd_expected, p->rows, 1e-12);
  expect_gradient(p, x, w, b, dy, x, COUNT, dx);
  expect_gradient(p, x, w, b, dy, w, p->weights, dw);
  expect_gradient(p, x, w, b, dy, b, p->weights, db);
}

HR_TEST(layer_norm_and_its_gradients) {
  set_up(&layer);
  bench t = bench_begin();
  bench_record(&t, HR_OP_LAYER_NORM,
               INPUTS(TENSOR(&t, F64, x, N, C, S), TENSOR(&t, F64, w, C, S), TENSOR(&t, F64, b, C, S)),
               OUTPUTS(TENSOR(&t, F64, y, N, C, S), TENSOR(&t, F64, mean, N, 1, 1), TENSOR(&t, F64, rstd, N, 1, 1)),
               INTS(2), SCALARS(F64(eps)));
  HR_ASSERT_EQ(bench_count_nodes(&t), 8);
  bench_record(&t, HR_OP_LAYER_NORM_BACKWARD,
               INPUTS(TENSOR(&t, F64, dy, N, C, S), TENSOR(&t, F64, x, N, C, S), TENSOR(&t, F64, mean, N, 1, 1),
                      TENSOR(&t, F64, rstd, N, 1, 1), TENSOR(&t, F64, w, C, S)),
               OUTPUTS(TENSOR(&t, F64, dx, N, C, S), TENSOR(&t, F64, dw, C, S), TENSOR(&t, F64, db, C, S)), INTS(2),
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  check(&layer);
}

HR_TEST(group_norm_and_its_gradients) {
  set_up(&group);
  bench t = bench_begin();
  bench_record(&t, HR_OP_GROUP_NORM, INPUTS(TENSOR(&t, F64, x, N, C, S), TENSOR(&t, F64, w, C), TENSOR(&t, F64, b, C)),
               OUTPUTS(TENSOR(&t, F64, y, N, C, S), TENSOR(&t, F64, mean, N, 2), TENSOR(&t, F64, rstd, N, 2)), INTS(2),
               SCALARS(F64(eps)));
  bench_record(&t, HR_OP_GROUP_NORM_BACKWARD,
               INPUTS(TENSOR(&t, F64, dy, N, C, S), TENSOR(&t, F64, x, N, C, S), TENSOR(&t, F64, mean, N, 2),
                      TENSOR(&t, F64, rstd, N, 2), TENSOR(&t, F64, w, C)),
               OUTPUTS(TENSOR(&t, F64, dx, N, C, S), TENSOR(&t, F64, dw, C), TENSOR(&t, F64, db, C)), INTS(2),
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  check(&group);
}

HR_TEST(batch_norm_and_its_gradients) {
  double running_mean[C] = {1, 2, 3, 4}, running_var[C] = {1, 1, 1, 1};
  const double momentum = 0.25, n = N * S;
  set_up(&batch);
  bench t = bench_begin();
  hr_operand rm = TENSOR(&t, F64, running_mean, C), rv = TENSOR(&t, F64, running_var, C);
  bench_record(&t, HR_OP_BATCH_NORM,
               INPUTS(TENSOR(&t, F64, x, N, C, S), TENSOR(&t, F64, w, C), TENSOR(&t, F64, b, C), rm, rv),
               OUTPUTS(TENSOR(&t, F64, y, N, C, S), TENSOR(&t, F64, mean, C), TENSOR(&t, F64, rstd, C), rm, rv),
               INTS(1), SCALARS(F64(momentum), F64(eps)));
  bench_record(&t, HR_OP_BATCH_NORM_BACKWARD,
               INPUTS(TENSOR(&t, F64, dy, N, C, S), TENSOR(&t, F64, x, N, C, S), TENSOR(&t, F64, w, C), rm, rv,
                      TENSOR(&t, F64, mean, C), TENSOR(&t, F64, rstd, C)),
               OUTPUTS(TENSOR(&t, F64, dx, N, C, S), TENSOR(&t, F64, dw, C), TENSOR(&t, F64, db, C)), INTS(1),
               SCALARS(F64(eps)));
  HR_ASSERT_OK(bench_run(&t));
  check(&batch);
  for (int c = 0; c < C; ++c) {
    double biased = 1 / (rstd_expected[c] * rstd_expected[c]) - eps;
    HR_ASSERT_NEAR(running_mean[c], 0.75 * (c + 1) + momentum * mean_expected[c], 1e-12);
    HR_ASSERT_NEAR(running_var[c], 0.75 + momentum * biased * n / (n - 1), 1e-12);
  }
}

HR_TEST(batch_norm_by_running_statistics) {
  double running_mean[C] = {0.1, 0.2, 0.3, 0.4}, running_var[C] = {1, 2, 3, 4};
  set_up(&batch);
  bench t = bench_begin();
  hr_operand rm = TENSOR(&t, F64, running_mean, C), rv = TENSOR(&t, F64, running_var, C);
  bench_record(&t, HR_OP_BATCH_NORM, INPUTS(TENSOR(&t, F64, x, N, C, S), ABSENT, TENSOR(&t, F64, b, C), rm, rv),
               OUTPUTS(TENSOR(&t, F64, y, N, C, S)), INTS(0), SCALARS(F64(0.1), F64(eps)));
  bench_record(&t, HR_OP_BATCH_NORM_BACKWARD,
               INPUTS(TENSOR(&t, F64, dy, N, C, S), TENSOR(&t, F64, x, N, C, S), ABSENT, rm, rv),
               OUTPUTS(TENSOR(&t, F64, dx, N, C, S), ABSENT, TENSOR(&t, F64, db, C)), INTS(0), SCALARS(F64(eps)));
  HR_ASSERT_OK(bench_run(&t));
  double sums[C] = {0};
  for (int i = 0; i < COUNT; ++i) {
    int c = channel(i);
    double slope = 1 / sqrt(running_var[c] + eps);
    HR_ASSERT_NEAR(y[i], (x[i] - running_mean[c]) * slope + b[c], 1e-12);
    HR_ASSERT_NEAR(dx[i], dy[i] * slope, 1e-12);
    sums[c] += dy[i];
  }
  ASSERT_ALL_NEAR(db, sums, C, 1e-12);
}

/* f16 is normalised in f32: a sum of squares of 256 elements of 100 exceeds f16's range. */
HR_TEST(layer_norm_of_halves_accumulates_wide) {
  uint16_t half_x[256], half_y[256];
  float average[1];
  for (int i = 0; i < 256; ++i) {
    half_x[i] = hr_f32_to_f16(i % 2 == 0 ? 100 : -100);
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_LAYER_NORM, INPUTS(TENSOR(&t, F16, half_x, 1, 256), ABSENT, ABSENT),
               OUTPUTS(TENSOR(&t, F16, half_y, 1, 256), TENSOR(&t, F32, average, 1, 1), ABSENT), INTS(1),
               SCALARS(F64(1e-5)));
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(average[0], 0, 0);
  for (int i = 0; i < 256; ++i) {
    HR_ASSERT_NEAR(hr_f16_to_f32(half_y[i]), i % 2 == 0 ? 1 : -1, 0);
  }
}

/* Without channels each group is empty. */
HR_TEST(group_norm_of_no_channels) {
  float nothing[1] = {0}, means[6] = {0}, rstds[6] = {0};
  bench t = bench_begin();
  bench_record(&t, HR_OP_GROUP_NORM, INPUTS(TENSOR(&t, F32, nothing, 2, 0, 4), TENSOR(&t, F32, nothing, 0), ABSENT),
               OUTPUTS(TENSOR(&t, F32, nothing, 2, 0, 4), TENSOR(&t, F32, means, 2, 3), TENSOR(&t, F32, rstds, 2, 3)),
               INTS(3), SCALARS(F64(1e-5)));
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(isnan(rstds[0]) && isnan(rstds[5]));
}
