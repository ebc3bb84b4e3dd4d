/* Winograd's convolutions (providers/winograd) against plain loops in double precision (provider_cases.h): every
 * layout, odd sizes, tails of channels, borders, cached weights, the size of the error, and numbers that are not
 * finite.
 */
#include "base/thread.h"
#include "provider_cases.h"
#include "runtime/cached_weights.h"

#define WINDOW(batch, in, out, h, w, ph, pw)                  \
  {                                                           \
    2, batch, in, out, 1, {h, w}, {3, 3}, {1, 1}, {ph, pw}, { \
      1, 1                                                    \
    }                                                         \
  }

static const window shapes[] = {
    WINDOW(1, 64, 64, 4, 6, 1, 1),   WINDOW(2, 16, 80, 7, 5, 1, 1), WINDOW(3, 5, 3, 9, 10, 0, 2),
    WINDOW(1, 4, 2, 3, 3, 0, 0),     WINDOW(2, 33, 17, 4, 1, 1, 1), WINDOW(1, 130, 65, 5, 7, 1, 1),
    WINDOW(1, 7, 150, 5, 31, 2, 0),  WINDOW(5, 7, 33, 2, 2, 1, 1),  WINDOW(1, 3, 18, 1, 17, 2, 2),
    WINDOW(1, 200, 20, 13, 9, 1, 0),
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Also small ones, which the provider normally rejects because they don't pay. */
static void check_layouts(hr_op op) {
  cases_begin(&hr__winograd_provider);
  op_case_rounding =
      2e-5; /* a tap is rounded with the others of its channel, which shows if few of them are inside of the image */
  for (int i = 0; i < SHAPES; ++i) {
    for (int layout = i % 2; layout < 2 * IMAGE_LAYOUTS; layout += 2) {
      if (!hr_test_takes(i + layout / 2)) {
        continue;
      }
      image_layout x = layout / 2 % 2 == i % 2 ? IMAGE_CHANNELS_LAST : (image_layout)random_below(IMAGE_LAYOUTS);
      op_case t = window_case(op, &shapes[i], HR_DTYPE_F32, x, (image_layout)random_below(IMAGE_LAYOUTS),
                              (image_layout)(layout / 2), random_below(2) == 0);
      t.provider = &hr__winograd_provider;
      t.writes_weights = random_below(2) == 0;
      op_case_node(&t);
      op_case_check_node(&t);
    }
  }
}

HR_TEST(winograd_convolves_in_every_layout) {
  check_layouts(HR_OP_CONV);
}

HR_TEST(winograd_gives_the_gradient_of_data) {
  check_layouts(HR_OP_CONV_BACKWARD_DATA);
}

/* ---- supported convolutions ---- */

static bool is_taken(hr_op op, const window *q, hr_dtype dtype, image_layout layout) {
  op_case t = window_case(op, q, dtype, layout, IMAGE_DENSE, layout, false);
  t.provider = &hr__winograd_provider;
  return op_case_is_taken(&t);
}

HR_TEST(winograd_takes_what_pays) {
  cases_begin(&hr__winograd_provider);
  static const window taken[] = {WINDOW(1, 512, 512, 7, 7, 1, 1),   WINDOW(1, 64, 64, 56, 56, 1, 1),
                                 WINDOW(1, 128, 128, 28, 28, 1, 1), WINDOW(1, 256, 256, 14, 14, 1, 1),
                                 WINDOW(16, 32, 32, 16, 16, 1, 1),  WINDOW(2, 20, 50, 40, 40, 0, 1)};
  static const window left[] = {WINDOW(1, 512, 512, 4, 4, 1, 1),
                                WINDOW(64, 3, 64, 56, 56, 1, 1),
                                WINDOW(1, 64, 3, 56, 56, 1, 1),
                                WINDOW(1, 64, 64, 3, 3, 1, 1),
                                {2, 1, 64, 64, 1, {56, 56}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                {2, 1, 64, 64, 1, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 2}},
                                {2, 1, 64, 64, 1, {56, 56}, {3, 1}, {1, 1}, {1, 0}, {1, 1}},
                                {2, 1, 128, 128, 2, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                {1, 1, 64, 64, 1, {560}, {3}, {1}, {1}, {1}},
                                {3, 1, 64, 64, 1, {9, 9, 9}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};
  for (int layout = 0; layout < 2; ++layout) { /* for any layout: the choice depends on the shape alone */
    for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      for (size_t i = 0; i < sizeof taken / sizeof *taken; ++i) {
        HR_ASSERT_EQ(is_taken(op, &taken[i], HR_DTYPE_F32, (image_layout)layout), op != HR_OP_CONV_BACKWARD_WEIGHT);
      }
      for (size_t i = 0; i < sizeof left / sizeof *left; ++i) {
        HR_ASSERT(!is_taken(op, &left[i], HR_DTYPE_F32, (image_layout)layout));
      }
    }
  }
  HR_ASSERT(!is_taken(HR_OP_CONV, &taken[0], HR_DTYPE_BF16, IMAGE_DENSE));
  HR_ASSERT(!is_taken(HR_OP_CONV, &taken[0], HR_DTYPE_F64, IMAGE_DENSE));
}

/* ---- bits ---- */

/* Changes operands before a run. */
typedef void (*change_fn)(op_case *t);

static void change_nothing(op_case *t) {
  (void)t;
}

/* The result, with this layout and number of threads, after `runs` runs with one stamp of the weights. */
static float *bits_of(hr_op op, const window *q, image_layout layout, int threads, int runs, change_fn change) {
  static uint64_t stamp = 1000;
  hr_thread_count_set(threads);
  op_case t = window_case(op, q, HR_DTYPE_F32, layout, IMAGE_DENSE, layout, true);
  t.provider = &hr__winograd_provider;
  random_state = 11;
  op_case_begin(&t);
  change(&t);
  const uint64_t stamps[4] = {0, ++stamp, 0, 0};
  for (int run = 1; run < runs; ++run) {
    hr__winograd_provider.stamp(t.prepared, stamps);
    op_case_run(&t);
  }
  hr__winograd_provider.stamp(t.prepared, stamps);
  float *values = op_case_run_once(&t);
  HR_ASSERT_EQ(hr__cached_weights_bytes() > 0, runs > 1);
  hr__cached_weights_forget(hr__context(), stamp);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  hr_thread_count_set(0);
  return values;
}

HR_TEST(winograd_gives_the_same_bits_with_any_threads_layout_and_run) {
  cases_begin(&hr__winograd_provider);
  static const window some[] = {WINDOW(2, 40, 150, 17, 15, 1, 1), WINDOW(1, 300, 100, 13, 12, 0, 1),
                                WINDOW(1, 80, 250, 7, 6, 1, 1)};
  for (size_t i = 0; i < 2 * (sizeof some / sizeof *some); ++i) {
    const window *q = &some[i / 2];
    hr_op op = i % 2 == 0 ? HR_OP_CONV : HR_OP_CONV_BACKWARD_DATA;
    int64_t height = q->dims[0] + (op == HR_OP_CONV ? 2 * q->padding[0] - 2 : 0);
    int64_t width = q->dims[1] + (op == HR_OP_CONV ? 2 * q->padding[1] - 2 : 0);
    size_t bytes = (size_t)(q->batch * (op == HR_OP_CONV ? q->out : q->in) * height * width) * sizeof(float);
    float *one = bits_of(op, q, IMAGE_CHANNELS_LAST, 1, 1, change_nothing);
    for (int threads = 1; threads <= 9; threads += 2) {
      for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
        if (!hr_test_takes(threads / 2 + layout)) {
          continue;
        }
        float *other = bits_of(op, q, (image_layout)layout, threads, layout % 3 + 1, change_nothing);
        HR_ASSERT(memcmp(one, other, bytes) == 0);
        free(other);
      }
    }
    free(one);
  }
}

/* ---- numbers ---- */

/* Errors against double precision, relative to the square root of the sum of squares of a sum's terms, which random
 * errors follow: those of the transforms are within twice those of a sum in order. */
HR_TEST(winograd_is_about_as_exact_as_a_sum) {
  cases_begin(&hr__winograd_provider);
  const window q = WINDOW(1, 128, 40, 14, 14, 1, 1);
  op_case t = window_case(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
  t.provider = &hr__winograd_provider;
  op_case_begin(&t);
  op_case_run(&t);
  const tensor *x = &t.tensors[0], *w = &t.tensors[1], *y = &t.tensors[2];
  double own = 0, direct = 0;
  for (int64_t i = 0; i < tensor_count(y); ++i) {
    int64_t column = i % 14, row = i / 14 % 14, out = i / 196;
    double exact = 0;
    float sum = 0;
    for (int64_t k = 0; k < 9 * 128; ++k) {
      int64_t at_row = row + k / 3 % 3 - 1, at_column = column + k % 3 - 1, in = k / 9;
      if (at_row >= 0 && at_row < 14 && at_column >= 0 && at_column < 14) {
        double a = read_element(x, tensor_at(x, (in * 14 + at_row) * 14 + at_column));
        double b = read_element(w, tensor_at(w, out * 1152 + k));
        exact += a * b;
        sum = fmaf((float)a, (float)b, sum);
      }
    }
    double error = read_element(y, tensor_at(y, i)) - exact;
    own += error * error, direct += (sum - exact) * (sum - exact);
  }
  HR_ASSERT(own > 0 && own <= 4 * direct);
  op_case_free(&t);
  op_case_end(&t);
}

/* Of x [2,20,7,6]: NaN in the last pixel of the last image; in the first image infinities, and two numbers whose
 * difference overflows although their sum of products does not. */
static void change_pixels(op_case *t) {
  const tensor *x = &t->tensors[0];
  tensor_put(x, tensor_count(x) - 1, NAN);
  tensor_put(x, 0, INFINITY);
  tensor_put(x, 3 * 42 + 2 * 6 + 3, -INFINITY);
  tensor_put(x, 3 * 42 + 5 * 6 + 0, 1.7e38), tensor_put(x, 3 * 42 + 5 * 6 + 2, -1.7e38);
}

/* An infinite weight in the first row and column of a window, which are outside of the image at the border; a NaN
 * weight; two weights whose sum overflows. */
static void change_weights(op_case *t) {
  const tensor *w = &t->tensors[1];
  tensor_put(w, 0, INFINITY);
  tensor_put(w, 5 * 180 + 8, NAN);
  tensor_put(w, 6 * 180 + 9, 1.7e38), tensor_put(w, 6 * 180 + 11, 1.7e38);
}

/* Results are NaN and infinite exactly if those of a direct sum are; finite ones are right. */
static void check_odd(image_layout layout, int threads, change_fn change) {
  const window q = WINDOW(2, 20, 18, 7, 6, 1, 1);
  op_case t = window_case(HR_OP_CONV, &q, HR_DTYPE_F32, layout, IMAGE_DENSE, layout, true);
  hr_thread_count_set(threads);
  t.provider = &hr__winograd_provider;
  op_case_begin(&t);
  change(&t);
  op_case_run(&t);
  int64_t count = tensor_count(op_case_output(&t));
  expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
  HR_ASSERT(e.values != NULL && e.sizes != NULL);
  evaluate(&t, &e);
  int odd = 0;
  for (int64_t i = 0; i < count; ++i) {
    double actual = read_element(op_case_output(&t), tensor_at(op_case_output(&t), i)), wanted = e.values[i];
    odd += !isfinite(wanted);
    if (isnan(wanted) || isinf(wanted)) {
      HR_ASSERT(isnan(wanted) ? isnan(actual) : actual == wanted);
    } else {
      bool is_large = e.sizes[i] > 1e30 || (change == change_weights && i / 42 % 18 == 6);
      double size = is_large ? 1.7e38 : e.sizes[i] > 1 ? e.sizes[i] : 1;
      HR_ASSERT(fabs(actual - wanted) <= 2e-5 * size); /* a window's taps are rounded like the largest of them */
    }
  }
  HR_ASSERT(odd > 0);
  free(e.values);
  free(e.sizes);
  op_case_free(&t);
  op_case_end(&t);
  hr_thread_count_set(0);
}

HR_TEST(winograd_keeps_what_is_not_finite_where_it_is) {
  cases_begin(&hr__winograd_provider);
  for (int threads = 1; threads <= 3; ++threads) {
    for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
      check_odd((image_layout)layout, threads, change_pixels);
      check_odd((image_layout)layout, threads, change_weights);
    }
  }
}

/* Neighbours outside of a result's window don't affect it, however large they are: 1e30 beside zeros. */
static void change_neighbour(op_case *t) {
  const tensor *x = &t->tensors[0];
  for (int64_t i = 0; i < tensor_count(x); ++i) {
    int64_t row = i / 6 % 7;
    tensor_put(x, i, row >= 3 ? 1e30 : row >= 1 ? 0 : 1);
  }
}

HR_TEST(winograd_reads_windows_alone) {
  cases_begin(&hr__winograd_provider);
  const window q = WINDOW(2, 20, 18, 7, 6, 1, 1);
  float *large = bits_of(HR_OP_CONV, &q, IMAGE_CHANNELS_LAST, 2, 1, change_neighbour);
  for (int64_t i = 0; i < 2 * 18 * 7 * 6; ++i) {
    HR_ASSERT((fabsf(large[i]) < 1e4f) == (i / 6 % 7 < 2));
  }
  free(large);
}

/* ---- memory ---- */

HR_TEST(winograd_reports_memory_that_is_out) {
  cases_begin(&hr__winograd_provider);
  op_case t = window_case(HR_OP_CONV, &shapes[0], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true);
  t.provider = &hr__winograd_provider;
  op_case_check_memory(&t);
}
