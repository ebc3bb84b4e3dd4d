/* Losses and their gradients, computed by hand or by plain loops. */
#include "lower_testing.h"

enum { NONE = 0, MEAN = 1, SUM = 2 };

/* Targets 2, ignored, 0; weights 1, 2, 4. */
static float log_p[3 * 3] = {-1, -2, -3, -4, -5, -6, -7, -8, -9}, weights[3] = {1, 2, 4};
static int64_t target[3] = {2, -100, 0};

HR_TEST(nll_loss_skips_ignored_targets) {
  float each[3], mean = 0, sum = 0, none_total = 7, mean_total = 0, sum_total = 0;
  bench t = bench_begin();
  hr_operand x = TENSOR(&t, F32, log_p, 3, 3), labels = TENSOR(&t, I64, target, 3), w = TENSOR(&t, F32, weights, 3);
  bench_record(&t, HR_OP_NLL_LOSS, INPUTS(x, labels, w),
               OUTPUTS(TENSOR(&t, F32, each, 3), NUMBER_TENSOR(&t, F32, none_total)), INTS(NONE), SCALARS(I64(-100)));
  bench_record(&t, HR_OP_NLL_LOSS, INPUTS(x, labels, w),
               OUTPUTS(NUMBER_TENSOR(&t, F32, mean), NUMBER_TENSOR(&t, F32, mean_total)), INTS(MEAN),
               SCALARS(I64(-100)));
  bench_record(&t, HR_OP_NLL_LOSS, INPUTS(x, labels, ABSENT),
               OUTPUTS(NUMBER_TENSOR(&t, F32, sum), NUMBER_TENSOR(&t, F32, sum_total)), INTS(SUM), SCALARS(I64(-100)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(each, ((float[]){12, 0, 7}), 3, 0);
  HR_ASSERT_NEAR(none_total, 0, 0);
  HR_ASSERT_NEAR(mean, 19.0 / 5, 1e-6);
  HR_ASSERT_NEAR(mean_total, 5, 0);
  HR_ASSERT_NEAR(sum, 10, 0);
  HR_ASSERT_NEAR(sum_total, 2, 0);
}

HR_TEST(nll_loss_gradient_is_zero_but_at_the_targets) {
  float dloss = 10, total = 5, dx[9], each[3] = {1, 2, 3}, dx_each[9];
  bench t = bench_begin();
  hr_operand labels = TENSOR(&t, I64, target, 3), w = TENSOR(&t, F32, weights, 3);
  bench_record(&t, HR_OP_NLL_LOSS_BACKWARD,
               INPUTS(NUMBER_TENSOR(&t, F32, dloss), labels, w, NUMBER_TENSOR(&t, F32, total)),
               OUTPUTS(TENSOR(&t, F32, dx, 3, 3)), INTS(MEAN), SCALARS(I64(-100)));
  bench_record(&t, HR_OP_NLL_LOSS_BACKWARD,
               INPUTS(TENSOR(&t, F32, each, 3), labels, ABSENT, NUMBER_TENSOR(&t, F32, total)),
               OUTPUTS(TENSOR(&t, F32, dx_each, 3, 3)), INTS(NONE), SCALARS(I64(-100)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(dx, ((float[]){0, 0, -8, 0, 0, 0, -2, 0, 0}), 9, 0);
  ASSERT_ALL_NEAR(dx_each, ((float[]){0, 0, -1, 0, 0, 0, -3, 0, 0}), 9, 0);
}

/* [N, C, D] and [C]. */
HR_TEST(nll_loss_of_planes_and_of_one_sample) {
  float planes[2 * 2 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, each[6], total = 0, single = 0, single_total = 0;
  int64_t labels[6] = {0, 1, 0, 1, 1, 0}, label = 1;
  bench t = bench_begin();
  bench_record(&t, HR_OP_NLL_LOSS, INPUTS(TENSOR(&t, F32, planes, 2, 2, 3), TENSOR(&t, I64, labels, 2, 3), ABSENT),
               OUTPUTS(TENSOR(&t, F32, each, 2, 3), NUMBER_TENSOR(&t, F32, total)), INTS(NONE), SCALARS(I64(-100)));
  bench_record(&t, HR_OP_NLL_LOSS,
               INPUTS(TENSOR(&t, F32, weights, 3), NUMBER_TENSOR(&t, I64, label), TENSOR(&t, F32, weights, 3)),
               OUTPUTS(NUMBER_TENSOR(&t, F32, single), NUMBER_TENSOR(&t, F32, single_total)), INTS(MEAN),
               SCALARS(I64(-100)));
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(each, ((float[]){-1, -5, -3, -10, -11, -9}), 6, 0);
  HR_ASSERT_NEAR(single, -2, 0);
  HR_ASSERT_NEAR(single_total, 2, 0);
}

HR_TEST(nll_loss_of_nothing) {
  float nothing[1], mean = 0, sum = 7, total = 7;
  int64_t labels[1];
  bench t = bench_begin();
  hr_operand x = TENSOR(&t, F32, nothing, 0, 3), y = TENSOR(&t, I64, labels, 0), w = NUMBER_TENSOR(&t, F32, total);
  bench_record(&t, HR_OP_NLL_LOSS, INPUTS(x, y, ABSENT), OUTPUTS(NUMBER_TENSOR(&t, F32, mean), w), INTS(MEAN),
               SCALARS(I64(-100)));
  bench_record(&t, HR_OP_NLL_LOSS, INPUTS(x, y, ABSENT), OUTPUTS(NUMBER_TENSOR(&t, F32, sum), w), INTS(SUM),
               SCALARS(I64(-100)));
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(isnan(mean));
  HR_ASSERT_NEAR(sum, 0, 0);
  HR_ASSERT_NEAR(total, 0, 0);
}

HR_TEST(nll_loss_reports_a_label_out_of_range) {
  float loss = 7, total = 7;
  int64_t labels[3] = {0, 3, 1};
  bench t = bench_begin();
  bench_record(&t, HR_OP_NLL_LOSS, INPUTS(TENSOR(&t, F32, log_p, 3, 3), TENSOR(&t, I64, labels, 3), ABSENT),
               OUTPUTS(NUMBER_TENSOR(&t, F32, loss), NUMBER_TENSOR(&t, F32, total)), INTS(MEAN), SCALARS(I64(-100)));
  HR_ASSERT_STATUS(bench_run(&t), HR_STATUS_OUT_OF_RANGE);
  HR_ASSERT_NEAR(loss, 7, 0);
}

/* ---- element by element ---- */

typedef double (*loss_fn)(double x, double y, double limit);

static double bce(double x, double y, double limit) {
  (void)limit;
  return -(y * log(x) + (1 - y) * log(1 - x));
}
static double mse(double x, double y, double limit) {
  (void)limit;
  return (x - y) * (x - y);
}
static double smooth_l1(double x, double y, double limit) {
  double d = fabs(x - y);
  return d < limit ? d * d / (2 * limit) : d - limit / 2;
}
static double huber(double x, double y, double limit) {
  double d = fabs(x - y);
  return d < limit ? d * d / 2 : limit * (d - limit / 2);
}

static const struct {
  hr_op forward, backward;
  loss_fn fn;
} losses[] = {{HR_OP_BCE_LOSS, HR_OP_BCE_LOSS_BACKWARD, bce},
              {HR_OP_MSE_LOSS, HR_OP_MSE_LOSS_BACKWARD, mse},
              {HR_OP_SMOOTH_L1_LOSS, HR_OP_SMOOTH_L1_LOSS_BACKWARD, smooth_l1},
              {HR_OP_HUBER_LOSS, HR_OP_HUBER_LOSS_BACKWARD, huber}};

HR_TEST(pointwise_losses_and_their_gradients) {
  enum { COUNT = 6 };
  const double limit = 0.25, step = 1e-6;
  double x[COUNT] = {0.1, 0.9, 0.5, 0.3, 0.7, 0.45}, y[COUNT] = {0.2, 0.3, 0.45, 1, 0, 0.5};
  for (int l = 0; l < 4; ++l) {
    for (int reduction = NONE; reduction <= SUM; ++reduction) {
      double out[COUNT], dloss[COUNT] = {1, 2, 3, 4, 5, 6}, dx[COUNT], sum = 0;
      int rank = reduction == NONE, scalar_count = losses[l].fn == smooth_l1 || losses[l].fn == huber;
      bench t = bench_begin();
      hr_operand loss = bench_tensor(&t, HR_DTYPE_F64, out, sizeof out, rank, (int64_t[]){COUNT});
      hr_operand g = bench_tensor(&t, HR_DTYPE_F64, dloss, sizeof dloss, rank, (int64_t[]){COUNT});
      bench_record(&t, losses[l].forward, INPUTS(TENSOR(&t, F64, x, COUNT), TENSOR(&t, F64, y, COUNT)), OUTPUTS(loss),
                   INTS(reduction), scalar_count, (hr_scalar[]){F64(limit)});
      bench_record(&t, losses[l].backward, INPUTS(g, TENSOR(&t, F64, x, COUNT), TENSOR(&t, F64, y, COUNT)),
                   OUTPUTS(TENSOR(&t, F64, dx, COUNT)), INTS(reduction), scalar_count, (hr_scalar[]){F64(limit)});
      HR_ASSERT_OK(bench_run(&t));
      double scale = reduction == MEAN ? 1.0 / COUNT : 1;
      for (int i = 0; i < COUNT; ++i) {
        double slope = (losses[l].fn(x[i] + step, y[i], limit) - losses[l].fn(x[i] - step, y[i], limit)) / (2 * step);
        sum += scale * losses[l].fn(x[i], y[i], limit);
        HR_ASSERT_NEAR(dx[i], slope * scale * dloss[reduction == NONE ? i : 0], 1e-7);
        HR_ASSERT_NEAR(reduction == NONE ? out[i] : 0, reduction == NONE ? losses[l].fn(x[i], y[i], limit) : 0, 1e-12);
      }
      HR_ASSERT_NEAR(reduction == NONE ? sum : out[0], sum, 1e-12);
    }
  }
}

HR_TEST(weighted_bce_of_one_number) {
  float x = 0.25f, y = 1, weight = 3, loss = 0, dloss = 2, dx = 0;
  bench t = bench_begin();
  bench_record(&t, HR_OP_BCE_LOSS,
               INPUTS(NUMBER_TENSOR(&t, F32, x), NUMBER_TENSOR(&t, F32, y), NUMBER_TENSOR(&t, F32, weight)),
               OUTPUTS(NUMBER_TENSOR(&t, F32, loss)), INTS(MEAN), NO_SCALARS);
  bench_record(&t, HR_OP_BCE_LOSS_BACKWARD,
               INPUTS(NUMBER_TENSOR(&t, F32, dloss), NUMBER_TENSOR(&t, F32, x), NUMBER_TENSOR(&t, F32, y),
                      NUMBER_TENSOR(&t, F32, weight)),
               OUTPUTS(NUMBER_TENSOR(&t, F32, dx)), INTS(MEAN), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(loss, 3 * log(4), 1e-6);
  HR_ASSERT_NEAR(dx, -2 * 3 * 4, 1e-5);
}
