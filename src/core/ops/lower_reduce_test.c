/* Means, variances, norms, log-sum-exp and softmax against plain loops in double. */
#include "lower_testing.h"

enum { ROWS = 3, COLUMNS = 5 };

static void fill(float *out, int count, int factor) {
  for (int i = 0; i < count; ++i) {
    out[i] = (float)((i * factor + 3) % 17 - 8) / 4;
  }
}

static double row_lse(const float *row) {
  double sum = 0;
  for (int i = 0; i < COLUMNS; ++i) {
    sum += exp((double)row[i]);
  }
  return log(sum);
}

HR_TEST(mean_and_variance_of_rows) {
  float x[ROWS * COLUMNS], mean[ROWS], var[ROWS], average[ROWS];
  fill(x, ROWS * COLUMNS, 7);
  bench t = bench_begin();
  bench_record(&t, HR_OP_VAR_MEAN, INPUTS(TENSOR(&t, F32, x, ROWS, COLUMNS)),
               OUTPUTS(TENSOR(&t, F32, var, ROWS, 1), TENSOR(&t, F32, average, ROWS, 1)), INTS(2, 0), SCALARS(F64(1)));
  bench_record(&t, HR_OP_MEAN, INPUTS(TENSOR(&t, F32, x, ROWS, COLUMNS)), OUTPUTS(TENSOR(&t, F32, mean, ROWS, 1)),
               INTS(2), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int r = 0; r < ROWS; ++r) {
    double sum = 0, squares = 0;
    for (int i = 0; i < COLUMNS; ++i) {
      sum += x[r * COLUMNS + i];
    }
    for (int i = 0; i < COLUMNS; ++i) {
      squares += pow(x[r * COLUMNS + i] - sum / COLUMNS, 2);
    }
    HR_ASSERT_NEAR(mean[r], sum / COLUMNS, 1e-6);
    HR_ASSERT_NEAR(average[r], sum / COLUMNS, 1e-6);
    HR_ASSERT_NEAR(var[r], squares / (COLUMNS - 1), 1e-6);
  }
}

/* The mean is so large that E[x^2] - E[x]^2 would lose all digits. */
HR_TEST(variance_survives_a_large_mean) {
  float x[4] = {1000000, 1000001, 1000002, 1000003}, std[1];
  bench t = bench_begin();
  bench_record(&t, HR_OP_VAR_MEAN, INPUTS(TENSOR(&t, F32, x, 4)), OUTPUTS(TENSOR(&t, F32, std, 1), ABSENT), INTS(1, 1),
               SCALARS(F64(0)));
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(std[0], sqrt(1.25), 1e-6);
}

HR_TEST(variance_of_one_element_is_nan_when_corrected) {
  float x[1] = {3}, var[1] = {0}, mean[1];
  bench t = bench_begin();
  bench_record(&t, HR_OP_VAR_MEAN, INPUTS(TENSOR(&t, F32, x, 1)),
               OUTPUTS(TENSOR(&t, F32, var, 1), TENSOR(&t, F32, mean, 1)), INTS(1, 0), SCALARS(F64(1)));
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(isnan(var[0]));
  HR_ASSERT_NEAR(mean[0], 3, 0);
}

HR_TEST(means_of_nothing_and_of_a_number) {
  float nothing[1], number = 2.5f, mean[1] = {0}, same = 0, lse[1] = {0};
  bench t = bench_begin();
  bench_record(&t, HR_OP_MEAN, INPUTS(TENSOR(&t, F32, nothing, 0)), OUTPUTS(TENSOR(&t, F32, mean, 1)), INTS(1),
               NO_SCALARS);
  bench_record(&t, HR_OP_LOGSUMEXP, INPUTS(TENSOR(&t, F32, nothing, 0)), OUTPUTS(TENSOR(&t, F32, lse, 1)), INTS(1),
               NO_SCALARS);
  bench_record(&t, HR_OP_MEAN, INPUTS(NUMBER_TENSOR(&t, F32, number)), OUTPUTS(NUMBER_TENSOR(&t, F32, same)), INTS(0),
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(isnan(mean[0]));
  HR_ASSERT(lse[0] == -INFINITY);
  HR_ASSERT_NEAR(same, 2.5, 0);
}

/* Each p once as an argument of the run, and once as a constant of the program. */
HR_TEST(norms_of_every_order) {
  const double orders[] = {0, 1, 2, INFINITY, -INFINITY, 3}, expected[] = {3, 9, sqrt(35), 5, 0, cbrt(125 + 27 + 1)};
  for (int i = 0; i < 6; ++i) {
    float x[4] = {3, -5, 0, 1}, any[1], known[1];
    bench t = bench_begin();
    bench_record(&t, HR_OP_NORM, INPUTS(TENSOR(&t, F32, x, 4)), OUTPUTS(TENSOR(&t, F32, any, 1)), INTS(1),
                 SCALARS(F64(orders[i])));
    bench_record(&t, HR_OP_NORM, INPUTS(TENSOR(&t, F32, x, 4)), OUTPUTS(TENSOR(&t, F32, known, 1)),
                 INTS(1, (i + 1) % 6), SCALARS(F64(orders[i])));
    HR_ASSERT_OK(bench_run(&t));
    HR_ASSERT_NEAR(any[0], expected[i], 1e-5);
    HR_ASSERT_NEAR(known[0], expected[i], 1e-5);
  }
}

HR_TEST(logsumexp_of_infinities_and_large_numbers) {
  float x[3 * 2] = {-INFINITY, -INFINITY, INFINITY, 0, 1000, 1000}, y[3];
  bench t = bench_begin();
  bench_record(&t, HR_OP_LOGSUMEXP, INPUTS(TENSOR(&t, F32, x, 3, 2)), OUTPUTS(TENSOR(&t, F32, y, 3, 1)), INTS(2),
               NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(y[0] == -INFINITY);
  HR_ASSERT(y[1] == INFINITY);
  HR_ASSERT_NEAR(y[2], 1000 + log(2), 1e-4);
}

HR_TEST(softmax_and_its_logarithm) {
  float x[ROWS * COLUMNS], y[ROWS * COLUMNS], log_y[ROWS * COLUMNS];
  fill(x, ROWS * COLUMNS, 5);
  bench t = bench_begin();
  bench_record(&t, HR_OP_SOFTMAX, INPUTS(TENSOR(&t, F32, x, ROWS, COLUMNS)), OUTPUTS(TENSOR(&t, F32, y, ROWS, COLUMNS)),
               INTS(1), NO_SCALARS);
  HR_ASSERT_EQ(bench_count_nodes(&t), 5);
  bench_record(&t, HR_OP_LOG_SOFTMAX, INPUTS(TENSOR(&t, F32, x, ROWS, COLUMNS)),
               OUTPUTS(TENSOR(&t, F32, log_y, ROWS, COLUMNS)), INTS(1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < ROWS * COLUMNS; ++i) {
    double expected = x[i] - row_lse(x + i / COLUMNS * COLUMNS);
    HR_ASSERT_NEAR(log_y[i], expected, 1e-6);
    HR_ASSERT_NEAR(y[i], exp(expected), 1e-6);
  }
}

HR_TEST(softmax_of_a_number_is_one_and_of_nothing_is_nothing) {
  float x = -4, y = 0, nothing[1], more_of_it[1];
  bench t = bench_begin();
  bench_record(&t, HR_OP_SOFTMAX, INPUTS(NUMBER_TENSOR(&t, F32, x)), OUTPUTS(NUMBER_TENSOR(&t, F32, y)), INTS(0),
               NO_SCALARS);
  bench_record(&t, HR_OP_SOFTMAX, INPUTS(TENSOR(&t, F32, nothing, 3, 0)), OUTPUTS(TENSOR(&t, F32, more_of_it, 3, 0)),
               INTS(1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(y, 1, 0);
}

/* The Jacobian of softmax is diag(y) - y y^T, that of its logarithm 1 - exp(y). */
HR_TEST(softmax_gradients) {
  float x[COLUMNS], y[COLUMNS], log_y[COLUMNS], dy[COLUMNS], dx[COLUMNS], log_dx[COLUMNS];
  fill(x, COLUMNS, 5), fill(dy, COLUMNS, 11);
  for (int i = 0; i < COLUMNS; ++i) {
    log_y[i] = (float)(x[i] - row_lse(x)), y[i] = (float)exp(x[i] - row_lse(x));
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_SOFTMAX_BACKWARD, INPUTS(TENSOR(&t, F32, dy, COLUMNS), TENSOR(&t, F32, y, COLUMNS)),
               OUTPUTS(TENSOR(&t, F32, dx, COLUMNS)), INTS(0), NO_SCALARS);
  bench_record(&t, HR_OP_LOG_SOFTMAX_BACKWARD, INPUTS(TENSOR(&t, F32, dy, COLUMNS), TENSOR(&t, F32, log_y, COLUMNS)),
               OUTPUTS(TENSOR(&t, F32, log_dx, COLUMNS)), INTS(0), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < COLUMNS; ++i) {
    double expected = 0, log_expected = 0;
    for (int j = 0; j < COLUMNS; ++j) {
      expected += dy[j] * (double)y[j] * ((i == j) - (double)y[i]);
      log_expected += dy[j] * ((i == j) - (double)y[i]);
    }
    HR_ASSERT_NEAR(dx[i], expected, 1e-6);
    HR_ASSERT_NEAR(log_dx[i], log_expected, 1e-6);
  }
}

/* Over dims of one element nothing is compared: the result is the index itself. */
HR_TEST(argmax_over_dims_of_one_is_the_index) {
  float x[3] = {5, NAN, -1};
  int64_t own[3] = {7, 8, 9}, plain[3] = {-1, -1, -1}, given[3];
  bench t = bench_begin();
  bench_record(&t, HR_OP_ARGMAX, INPUTS(TENSOR(&t, F32, x, 3, 1)), OUTPUTS(TENSOR(&t, I64, plain, 3, 1)), INTS(2),
               NO_SCALARS);
  bench_record(&t, HR_OP_ARGMIN, INPUTS(TENSOR(&t, F32, x, 3, 1), TENSOR(&t, I64, own, 3, 1)),
               OUTPUTS(TENSOR(&t, I64, given, 3, 1)), INTS(2), NO_SCALARS);
  hr_program expanded;
  HR_ASSERT_OK(hr_expand(&t.program, NULL, NULL, &expanded));
  HR_ASSERT_OK(hr_program_verify(&expanded));
  hr_program_fini(&expanded);
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT_EQ(plain[i], 0);
    HR_ASSERT_EQ(given[i], own[i]);
  }
}
