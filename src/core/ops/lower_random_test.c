/* Random fills against the generator, called element by element, and against properties of the distributions.
 */
#include "core/math/vmath.h"
#include "lower_testing.h"

enum { COUNT = 3000 };

static float y[COUNT];
static uint8_t mask[COUNT];

/* ---- dropout ---- */

HR_TEST(dropout_keeps_and_scales_by_the_generator) {
  static float x[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    x[i] = (float)i - 1000;
  }
  bench t = bench_begin();
  bench_record(&t, HR_OP_DROPOUT, INPUTS(TENSOR(&t, F32, x, 30, 100)),
               OUTPUTS(TENSOR(&t, F32, y, 30, 100), TENSOR(&t, BOOL, mask, 30, 100)), NO_INTS,
               SCALARS(F64(0.25), I64(11), I64(5)));
  HR_ASSERT_OK(bench_run(&t));
  int kept = 0;
  for (int i = 0; i < COUNT; ++i) {
    bool keep = hr_f32_philox_uniform(i, 11, 5) < 0.75f;
    kept += keep;
    HR_ASSERT_EQ(mask[i], keep);
    HR_ASSERT_NEAR(y[i], keep ? x[i] / 0.75 : 0, fabs(x[i]) * 2e-7);
  }
  HR_ASSERT_NEAR((double)kept / COUNT, 0.75, 0.03);
}

HR_TEST(dropout_of_everything_and_of_nothing) {
  float x[4] = {1, INFINITY, NAN, -2};
  for (int p = 0; p < 2; ++p) {
    bench t = bench_begin();
    bench_record(&t, HR_OP_DROPOUT, INPUTS(TENSOR(&t, F32, x, 4)),
                 OUTPUTS(TENSOR(&t, F32, y, 4), TENSOR(&t, BOOL, mask, 4)), NO_INTS, SCALARS(F64(p), I64(1), I64(2)));
    HR_ASSERT_OK(bench_run(&t));
    for (int i = 0; i < 4; ++i) {
      HR_ASSERT_NEAR(y[i], p == 1 ? 0 : x[i], 0);
      HR_ASSERT_EQ(mask[i], 1 - p);
    }
  }
}

/* A transposed output gets the numbers of its row-major elements. */
HR_TEST(numbers_do_not_depend_on_layout) {
  bench t = bench_begin();
  hr_operand out = TENSOR(&t, F32, y, 20, 30);
  out.strides = (int64_t[]){1, 20};
  bench_record(&t, HR_OP_UNIFORM, NO_INPUTS, OUTPUTS(out), NO_INTS, SCALARS(F64(0), F64(1), I64(3), I64(4)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 600; ++i) {
    HR_ASSERT_NEAR(y[i / 30 + i % 30 * 20], hr_f32_philox_uniform(i, 3, 4), 1e-7);
  }
}

/* ---- fills ---- */

static double mean_of(const float *x) {
  double sum = 0;
  for (int i = 0; i < COUNT; ++i) {
    sum += x[i];
  }
  return sum / COUNT;
}

static void fill(hr_op op, double first, double second) {
  bench t = bench_begin();
  hr_scalar both[4] = {F64(first), F64(second), I64(7), I64(8)}, one[3] = {F64(first), I64(7), I64(8)};
  bool has_two = op == HR_OP_UNIFORM || op == HR_OP_NORMAL;
  hr_operand out = TENSOR(&t, F32, y, COUNT);
  bench_record(&t, op, NO_INPUTS, 1, &out, NO_INTS, has_two ? 4 : 3, has_two ? both : one);
  HR_ASSERT_OK(bench_run(&t));
}

HR_TEST(uniform_stays_below_its_end) {
  fill(HR_OP_UNIFORM, -2, 6);
  HR_ASSERT_NEAR(mean_of(y), 2, 0.2);
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT(y[i] >= -2 && y[i] < 6);
  }
  fill(HR_OP_UNIFORM, 1, 1 + 0x1p-23); /* only one number is in range: all others would round up to the end */
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_NEAR(y[i], 1, 0);
  }
  fill(HR_OP_UNIFORM, 3, 3);
  HR_ASSERT_NEAR(y[5], 3, 0);
}

HR_TEST(uniform_in_halves_stays_below_its_end) {
  static uint16_t half[COUNT];
  for (int kind = 0; kind < 2; ++kind) {
    hr_dtype dtype = kind == 0 ? HR_DTYPE_F16 : HR_DTYPE_BF16;
    bench t = bench_begin();
    hr_operand out = bench_tensor(&t, dtype, half, sizeof half, 1, (int64_t[]){COUNT});
    bench_record(&t, HR_OP_UNIFORM, NO_INPUTS, 1, &out, NO_INTS, SCALARS(F64(0), F64(1), I64(1), I64(1)));
    HR_ASSERT_OK(bench_run(&t));
    for (int i = 0; i < COUNT; ++i) {
      y[i] = kind == 0 ? hr_f16_to_f32(half[i]) : hr_bf16_to_f32(half[i]);
      HR_ASSERT(y[i] >= 0 && y[i] < 1);
    }
    HR_ASSERT_NEAR(mean_of(y), 0.5, 0.02);
  }
}

HR_TEST(normal_has_its_mean_and_deviation) {
  fill(HR_OP_NORMAL, 10, 2);
  double mean = mean_of(y), square = 0;
  HR_ASSERT_NEAR(mean, 10, 0.15);
  for (int i = 0; i < COUNT; ++i) {
    square += (y[i] - mean) * (y[i] - mean);
    HR_ASSERT_NEAR(y[i], 10 + 2 * (double)hr_f32_philox_normal(i, 7, 8), 2e-6);
  }
  HR_ASSERT_NEAR(square / COUNT, 4, 0.4);
}

HR_TEST(normal_takes_tensors) {
  float mean[3] = {100, 200, 300}, std[2] = {0, 1};
  bench t = bench_begin();
  bench_record(&t, HR_OP_NORMAL, INPUTS(TENSOR(&t, F32, mean, 1, 3), TENSOR(&t, F32, std, 2, 1)),
               OUTPUTS(TENSOR(&t, F32, y, 2, 3)), NO_INTS, SCALARS(F64(5), F64(5), I64(7), I64(8)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT_NEAR(y[i], mean[i], 0);
    HR_ASSERT_NEAR(y[3 + i], mean[i] + hr_f32_philox_normal(3 + i, 7, 8), 3e-5);
  }
}

HR_TEST(bernoulli_hits_with_its_probability) {
  fill(HR_OP_BERNOULLI, 0.3, 0);
  HR_ASSERT_NEAR(mean_of(y), 0.3, 0.03);
  fill(HR_OP_BERNOULLI, 1, 0);
  HR_ASSERT_NEAR(mean_of(y), 1, 0);
  fill(HR_OP_BERNOULLI, 0, 0);
  HR_ASSERT_NEAR(mean_of(y), 0, 0);
  float p[2] = {0, 1};
  bench t = bench_begin();
  bench_record(&t, HR_OP_BERNOULLI, INPUTS(TENSOR(&t, F32, p, 2)), OUTPUTS(TENSOR(&t, BOOL, mask, 500, 2)), NO_INTS,
               SCALARS(F64(0.5), I64(7), I64(8)));
  HR_ASSERT_OK(bench_run(&t));
  for (int i = 0; i < 1000; ++i) {
    HR_ASSERT_EQ(mask[i], i % 2);
  }
}

HR_TEST(random_int_covers_its_range) {
  static int64_t wide[COUNT];
  static int8_t narrow[COUNT];
  bench t = bench_begin();
  bench_record(&t, HR_OP_RANDOM_INT, NO_INPUTS, OUTPUTS(TENSOR(&t, I64, wide, COUNT)), NO_INTS,
               SCALARS(I64(-3), I64(4), I64(7), I64(8)));
  bench_record(&t, HR_OP_RANDOM_INT, NO_INPUTS, OUTPUTS(TENSOR(&t, I8, narrow, COUNT)), NO_INTS,
               SCALARS(I64(-3), I64(4), I64(7), I64(8)));
  bench_record(&t, HR_OP_RANDOM_INT, NO_INPUTS, OUTPUTS(TENSOR(&t, F32, y, COUNT)), NO_INTS,
               SCALARS(I64(-3), I64(4), I64(7), I64(8)));
  HR_ASSERT_OK(bench_run(&t));
  int counts[7] = {0};
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT(wide[i] >= -3 && wide[i] < 4);
    HR_ASSERT_EQ(narrow[i], wide[i]);
    HR_ASSERT_NEAR(y[i], (double)wide[i], 0);
    ++counts[wide[i] + 3];
  }
  for (int i = 0; i < 7; ++i) {
    HR_ASSERT_NEAR(counts[i] / (COUNT / 7.0), 1, 0.2);
  }
}

HR_TEST(random_int_over_all_integers) {
  static int64_t wide[COUNT];
  bench t = bench_begin();
  bench_record(&t, HR_OP_RANDOM_INT, NO_INPUTS, OUTPUTS(TENSOR(&t, I64, wide, COUNT)), NO_INTS,
               SCALARS(I64(INT64_MIN), I64(INT64_MAX), I64(7), I64(8)));
  HR_ASSERT_OK(bench_run(&t));
  HR_ASSERT(wide[0] != wide[1]);
}

HR_TEST(exponential_is_positive) {
  fill(HR_OP_EXPONENTIAL, 4, 0);
  HR_ASSERT_NEAR(mean_of(y), 0.25, 0.02);
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT(y[i] > 0);
  }
}

HR_TEST(complex_fills_are_refused) {
  static float pair[2];
  bench t = bench_begin();
  bench_record(&t, HR_OP_NORMAL, NO_INPUTS, OUTPUTS(TENSOR(&t, C64, pair, 1)), NO_INTS,
               SCALARS(F64(0), F64(1), I64(7), I64(8)));
  HR_ASSERT_ERROR(bench_run(&t), HR_STATUS_UNIMPLEMENTED, "normal: dtype c64");
}
