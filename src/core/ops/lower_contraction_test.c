/* Matrix products and convolutions against plain loops; gradients of convolutions by <dy, conv(x, w)> = <dx, x> = <dw,
 * w>. */
#include "lower_testing.h"

/* [2, 1, 3, 4] x [5, 4, 2] + [2] */
HR_TEST(matmul_broadcasts_batches_and_bias) {
  double x[2 * 3 * 4], w[5 * 4 * 2], bias[2] = {10, 20}, y[2 * 5 * 3 * 2];
  fill_numbers(x, 24, 7), fill_numbers(w, 40, 5);
  bench t = bench_begin();
  bench_record(&t, HR_OP_MATMUL,
               INPUTS(TENSOR(&t, F64, x, 2, 1, 3, 4), TENSOR(&t, F64, w, 5, 4, 2), TENSOR(&t, F64, bias, 2)),
               OUTPUTS(TENSOR(&t, F64, y, 2, 5, 3, 2)), NO_INTS, NO_SCALARS);
  HR_ASSERT_EQ(bench_count_nodes(&t), 3);
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 60; ++i) {
    int a = i / 30, batch = i / 6 % 5, m = i / 2 % 3, n = i % 2;
    double sum = bias[n];
    for (int k = 0; k < 4; ++k) {
      sum += x[(a * 3 + m) * 4 + k] * w[(batch * 4 + k) * 2 + n];
    }
    HR_ASSERT_NEAR(y[i], sum, 1e-12);
  }
}

HR_TEST(matmul_over_nothing_is_zero) {
  float x[1], w[1], y[6] = {7, 7, 7, 7, 7, 7};
  bench t = bench_begin();
  bench_record(&t, HR_OP_MATMUL, INPUTS(TENSOR(&t, F32, x, 2, 0), TENSOR(&t, F32, w, 0, 3)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 3)), NO_INTS, NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y, ((float[6]){0}), 6, 0);
}

/* Products of f16 are summed in f32: 4,096 + 1 needs more digits than f16 has. */
HR_TEST(matmul_of_halves_accumulates_wide) {
  uint16_t x[3] = {hr_f32_to_f16(4096), hr_f32_to_f16(1), hr_f32_to_f16(-4096)}, w[3], y[1];
  w[0] = w[1] = w[2] = hr_f32_to_f16(1);
  bench t = bench_begin();
  bench_record(&t, HR_OP_MATMUL, INPUTS(TENSOR(&t, F16, x, 1, 3), TENSOR(&t, F16, w, 3, 1)),
               OUTPUTS(TENSOR(&t, F16, y, 1, 1)), NO_INTS, NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT_NEAR(hr_f16_to_f32(y[0]), 1, 0);
}

/* ---- convolutions in two dims ---- */

enum { N = 2, COUNT_MAX = 2000 };

typedef struct conv {
  int channels, filters, groups, in[2], kernel[2], stride[2], padding[2], dilation[2];
} conv;

static const conv convs[] = {{2, 3, 1, {5, 6}, {3, 2}, {1, 1}, {0, 0}, {1, 1}},
                             {2, 4, 2, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                             {4, 4, 4, {7, 8}, {3, 3}, {2, 3}, {1, 1}, {1, 1}},
                             {2, 4, 1, {8, 7}, {2, 3}, {2, 1}, {2, 2}, {2, 2}},
                             {3, 2, 1, {4, 4}, {1, 1}, {2, 2}, {0, 0}, {1, 1}}};

static int out_size(const conv *c, int i) {
  return (c->in[i] + 2 * c->padding[i] - c->dilation[i] * (c->kernel[i] - 1) - 1) / c->stride[i] + 1;
}

static void convolve(const conv *c, const double *x, const double *w, const double *bias, double *y) {
  int oh = out_size(c, 0), ow = out_size(c, 1), depth = c->channels / c->groups, taps = c->kernel[0] * c->kernel[1];
  for (int o = 0; o < N * c->filters * oh * ow; ++o) {
    int n = o / (c->filters * oh * ow), filter = o / (oh * ow) % c->filters, row = o / ow % oh, column = o % ow;
    y[o] = bias[filter];
    for (int i = 0; i < depth * taps; ++i) {
      int channel = filter / (c->filters / c->groups) * depth + i / taps, kr = i % taps / c->kernel[1],
          kc = i % taps % c->kernel[1];
      int h = row * c->stride[0] - c->padding[0] + kr * c->dilation[0];
      int v = column * c->stride[1] - c->padding[1] + kc * c->dilation[1];
      if (h >= 0 && h < c->in[0] && v >= 0 && v < c->in[1]) {
        y[o] += x[((n * c->channels + channel) * c->in[0] + h) * c->in[1] + v] * w[filter * depth * taps + i];
      }
    }
  }
}

HR_TEST(convolutions_and_their_gradients) {
  for (int i = 0; i < 5; ++i) {
    const conv *c = &convs[i];
    double x[COUNT_MAX], w[COUNT_MAX], bias[4] = {1, 2, 3, 4}, none[4] = {0}, y[COUNT_MAX], dy[COUNT_MAX],
                                       dx[COUNT_MAX], dw[COUNT_MAX], expected[COUNT_MAX];
    int oh = out_size(c, 0), ow = out_size(c, 1), depth = c->channels / c->groups;
    int in = N * c->channels * c->in[0] * c->in[1], out = N * c->filters * oh * ow;
    int weights = c->filters * depth * c->kernel[0] * c->kernel[1];
    const int64_t ints[] = {
        2, c->stride[0], c->stride[1], c->padding[0], c->padding[1], c->dilation[0], c->dilation[1], c->groups};
    fill_numbers(x, in, 7), fill_numbers(w, weights, 5), fill_numbers(dy, out, 11);
    bench t = bench_begin();
    hr_operand to = TENSOR(&t, F64, x, N, c->channels, c->in[0], c->in[1]),
               g = TENSOR(&t, F64, dy, N, c->filters, oh, ow);
    hr_operand filters = TENSOR(&t, F64, w, c->filters, depth, c->kernel[0], c->kernel[1]);
    bench_record(&t, HR_OP_CONV,
                 INPUTS(to, filters, bench_tensor(&t, HR_DTYPE_F64, bias, sizeof bias, 1, (int64_t[]){c->filters})),
                 OUTPUTS(TENSOR(&t, F64, y, N, c->filters, oh, ow)), 8, ints, NO_SCALARS);
    bench_record(&t, HR_OP_CONV_BACKWARD_DATA, INPUTS(g, filters),
                 OUTPUTS(TENSOR(&t, F64, dx, N, c->channels, c->in[0], c->in[1])), 8, ints, NO_SCALARS);
    bench_record(&t, HR_OP_CONV_BACKWARD_WEIGHT, INPUTS(to, g),
                 OUTPUTS(TENSOR(&t, F64, dw, c->filters, depth, c->kernel[0], c->kernel[1])), 8, ints, NO_SCALARS);
    HR_ASSERT_OK(bench_run(&t));
    convolve(c, x, w, bias, expected);
    ASSERT_ALL_NEAR(y, expected, out, 1e-11);
    convolve(c, x, w, none, expected);
    HR_ASSERT_NEAR(dot(dx, x, in), dot(dy, expected, out), 1e-9);
    HR_ASSERT_NEAR(dot(dw, w, weights), dot(dy, expected, out), 1e-9);
  }
}

/* The gradient of a single output element with a stride of 2: each input gets the weight that was multiplied with it.
 */
HR_TEST(strided_gradient_puts_weights_back) {
  float dy[2] = {0, 1}, w[3] = {1, 2, 4}, dx[6], bias[1] = {100};
  bench t = bench_begin();
  bench_record(&t, HR_OP_CONV_BACKWARD_DATA,
               INPUTS(TENSOR(&t, F32, dy, 1, 1, 2), TENSOR(&t, F32, w, 1, 1, 3), TENSOR(&t, F32, bias, 1)),
               OUTPUTS(TENSOR(&t, F32, dx, 1, 1, 6)), INTS(1, 2, 0, 1, 1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(dx, ((float[]){100, 100, 101, 102, 104, 100}), 6, 0);
}

/* Padding and the holes of a strided gradient are factors of no product: infinite weights reach only what they meet. */
HR_TEST(padding_and_holes_are_skipped) {
  const double inf = (double)INFINITY;
  double x[3] = {1, 2, 3}, w[3] = {inf, 1, 1}, y[3], dy[2] = {1, 2}, dx[3], big[3] = {inf, 1, 2}, dw[2];
  bench t = bench_begin();
  hr_operand filter = TENSOR(&t, F64, w, 1, 1, 3);
  bench_record(&t, HR_OP_CONV, INPUTS(TENSOR(&t, F64, x, 1, 1, 3), filter), OUTPUTS(TENSOR(&t, F64, y, 1, 1, 3)),
               INTS(1, 1, 1, 1, 1), NO_SCALARS);
  bench_record(&t, HR_OP_CONV_BACKWARD_DATA, INPUTS(TENSOR(&t, F64, dy, 1, 1, 2), filter),
               OUTPUTS(TENSOR(&t, F64, dx, 1, 1, 3)), INTS(1, 2, 1, 1, 1), NO_SCALARS);
  bench_record(&t, HR_OP_CONV_BACKWARD_WEIGHT, INPUTS(TENSOR(&t, F64, x, 1, 1, 3), TENSOR(&t, F64, big, 1, 1, 3)),
               OUTPUTS(TENSOR(&t, F64, dw, 1, 1, 2)), INTS(1, 2, 2, 1, 1), NO_SCALARS);
  HR_ASSERT_OK(bench_run(&t));
  ASSERT_ALL_NEAR(y + 0, ((double[]){3}), 1, 0);
  HR_ASSERT(y[1] == inf && y[2] == inf);
  ASSERT_ALL_NEAR(dx, ((double[]){1, 0, 2}), 1, 0);
  HR_ASSERT(dx[1] == inf && dx[2] == 2);
  ASSERT_ALL_NEAR(dw, ((double[]){7, 2}), 2, 0);
}
