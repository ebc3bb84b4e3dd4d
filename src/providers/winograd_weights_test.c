/* Winograd's gradients of weights (providers/winograd/weights.c) against plain loops in double precision
 * (provider_cases.h): every layout, odd sizes, tails of channels, borders, the size of the error, and numbers that are
 * not finite.
 */
#include "base/thread.h"
#include "provider_cases.h"

#define WINDOW(batch, in, out, h, w, ph, pw)                  \
  {                                                           \
    2, batch, in, out, 1, {h, w}, {3, 3}, {1, 1}, {ph, pw}, { \
      1, 1                                                    \
    }                                                         \
  }

/* Some have several chunks of tiles. */
static const window shapes[] = {
    WINDOW(1, 64, 64, 4, 6, 1, 1),   WINDOW(2, 16, 80, 7, 5, 1, 1),  WINDOW(3, 5, 3, 9, 10, 0, 2),
    WINDOW(1, 4, 2, 3, 3, 0, 0),     WINDOW(2, 33, 17, 4, 1, 1, 1),  WINDOW(1, 130, 65, 5, 7, 1, 1),
    WINDOW(1, 7, 150, 5, 31, 2, 0),  WINDOW(5, 1, 33, 2, 2, 1, 1),   WINDOW(1, 3, 1, 1, 17, 2, 2),
    WINDOW(1, 200, 20, 13, 9, 1, 0), WINDOW(3, 20, 9, 23, 20, 1, 1), WINDOW(1, 2, 3, 131, 130, 1, 1),
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static op_case gradient_case(const window *q, hr_dtype dtype, image_layout x, image_layout w, image_layout y) {
  op_case t = window_case(HR_OP_CONV_BACKWARD_WEIGHT, q, dtype, x, w, y, false);
  t.provider = &hr__winograd_weights_provider;
  return t;
}

/* Also small ones, which the provider normally rejects because they don't pay. */
HR_TEST(winograd_gives_the_gradient_of_weights) {
  cases_begin(&hr__winograd_weights_provider);
  op_case_rounding = 1e-4; /* a tap is rounded with the others of its channels, which shows if it has only one term */
  for (int i = 0; i < SHAPES; ++i) {
    for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
      if (!hr_test_takes(i + layout)) {
        continue;
      }
      op_case t =
          gradient_case(&shapes[i], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, (image_layout)layout, IMAGE_CHANNELS_LAST);
      op_case_node(&t);
      op_case_check_node(&t);
    }
  }
}

/* ---- supported convolutions ---- */

static bool is_taken(const window *q, hr_dtype dtype, image_layout x, image_layout y) {
  op_case t = gradient_case(q, dtype, x, IMAGE_DENSE, y);
  return op_case_is_taken(&t);
}

HR_TEST(winograd_takes_gradients_that_pay) {
  cases_begin(&hr__winograd_weights_provider);
  static const window taken[] = {WINDOW(2, 512, 512, 7, 7, 1, 1), WINDOW(2, 64, 64, 56, 56, 1, 1),
                                 WINDOW(1, 128, 128, 28, 28, 1, 1), WINDOW(2, 256, 256, 14, 14, 1, 1),
                                 WINDOW(16, 64, 64, 16, 16, 1, 1)};
  static const window left[] = {WINDOW(64, 3, 64, 56, 56, 1, 1),
                                WINDOW(1, 64, 3, 56, 56, 1, 1),
                                WINDOW(8, 20, 50, 14, 14, 1, 1),
                                {2, 1, 64, 64, 1, {56, 56}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                {2, 1, 64, 64, 1, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 2}},
                                {2, 1, 64, 64, 1, {56, 56}, {3, 1}, {1, 1}, {1, 0}, {1, 1}},
                                {2, 1, 128, 128, 2, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                {1, 1, 64, 64, 1, {560}, {3}, {1}, {1}, {1}},
                                {3, 1, 64, 64, 1, {9, 9, 9}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; ++i) {
    HR_ASSERT(is_taken(&taken[i], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
    HR_ASSERT(is_taken(&taken[i], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_SWAPPED)); /* the choice is the shape's alone */
    HR_ASSERT(!is_taken(&taken[i], HR_DTYPE_BF16, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
  }
  for (size_t i = 0; i < sizeof left / sizeof *left; ++i) {
    HR_ASSERT(!is_taken(&left[i], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
  }
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    op_case t = window_case(op, &taken[1], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
    t.provider = &hr__winograd_weights_provider;
    HR_ASSERT(!op_case_is_taken(&t));
  }
}

/* ---- bits ---- */

HR_TEST(winograd_gives_gradients_the_same_bits_with_any_threads_and_layout) {
  cases_begin(&hr__winograd_weights_provider);
  for (int i = 0; i < SHAPES; ++i) {
    const window *q = &shapes[i];
    float *one = NULL;
    for (int threads = 1; threads <= 9; threads += 2) {
      hr_thread_count_set(threads);
      image_layout layout = (image_layout)(threads / 2 % IMAGE_LAYOUTS);
      op_case t = gradient_case(q, HR_DTYPE_F32, threads % 3 == 0 ? layout : IMAGE_CHANNELS_LAST, layout,
                                threads % 4 == 1 ? IMAGE_CHANNELS_LAST : layout);
      random_state = 11;
      op_case_begin(&t);
      hr_thread_count_set(threads / 2 + 1); /* others than it was prepared for */
      float *bits = op_case_run_once(&t);
      one = one != NULL ? one : bits;
      HR_ASSERT(memcmp(one, bits, (size_t)(q->in * q->out * 9) * sizeof *bits) == 0);
      if (bits != one) {
        free(bits);
      }
    }
    free(one);
    hr_thread_count_set(0);
  }
}

/* ---- numbers ---- */

/* Errors against double precision are within twice those of sums in order. */
HR_TEST(winograd_gives_gradients_about_as_exact_as_sums) {
  cases_begin(&hr__winograd_weights_provider);
  const window q = WINDOW(2, 20, 18, 14, 14, 1, 1);
  op_case t = gradient_case(&q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_begin(&t);
  op_case_run(&t);
  const tensor *x = &t.tensors[0], *y = &t.tensors[1], *w = &t.tensors[2];
  double own = 0, direct = 0;
  for (int64_t i = 0; i < tensor_count(w); ++i) {
    double exact = 0;
    float sum = 0;
    for (int64_t pixel = 0; pixel < 2 * 196; ++pixel) {
      int64_t image = pixel / 196, row = pixel % 196 / 14 + i % 9 / 3 - 1, column = pixel % 14 + i % 3 - 1;
      if (row >= 0 && row < 14 && column >= 0 && column < 14) {
        double a = read_element(x, tensor_at(x, ((image * 20 + i / 9 % 20) * 14 + row) * 14 + column));
        double b = read_element(y, tensor_at(y, (image * 18 + i / 180) * 196 + pixel % 196));
        exact += a * b;
        sum = fmaf((float)a, (float)b, sum);
      }
    }
    double error = read_element(w, tensor_at(w, i)) - exact;
    own += error * error, direct += (sum - exact) * (sum - exact);
  }
  HR_ASSERT(own > 0 && own <= 4 * direct);
  op_case_free(&t);
  op_case_end(&t);
}

/* Changes operands before a run. */
typedef void (*change_fn)(op_case *t);

/* Of dy [2,18,7,6]: an infinite last pixel, whose windows lack a row and a column; NaN in one of another channel. */
static void change_gradients(op_case *t) {
  const tensor *y = &t->tensors[1];
  tensor_put(y, tensor_count(y) - 1, INFINITY);
  tensor_put(y, 4 * 42 + 9, NAN);
}

/* Of x [2,20,7,6]: infinities, and two numbers whose difference overflows although their sums of products do not. */
static void change_inputs(op_case *t) {
  const tensor *x = &t->tensors[0];
  tensor_put(x, 0, INFINITY);
  tensor_put(x, 5 * 42 + 5, -INFINITY);
  tensor_put(x, 3 * 42 + 2 * 6 + 1, 1.7e38), tensor_put(x, 3 * 42 + 2 * 6 + 3, -1.7e38);
}

static void check_odd(image_layout layout, int threads, change_fn change) {
  const window q = WINDOW(2, 20, 18, 7, 6, 1, 1);
  hr_thread_count_set(threads);
  op_case t = gradient_case(&q, HR_DTYPE_F32, layout, layout, IMAGE_CHANNELS_LAST);
  op_case_begin(&t);
  change(&t);
  op_case_run(&t);
  const tensor *w = op_case_output(&t);
  int64_t count = tensor_count(w), odd = 0;
  expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
  HR_ASSERT(e.values != NULL && e.sizes != NULL);
  evaluate(&t, &e);
  for (int64_t i = 0; i < count; ++i) {
    double actual = read_element(w, tensor_at(w, i)), wanted = e.values[i];
    odd += !isfinite(wanted);
    HR_ASSERT(isnan(wanted)   ? isnan(actual)
              : isinf(wanted) ? actual == wanted
                              : fabs(actual - wanted) <= 2e-6 * (e.sizes[i] > 1 ? e.sizes[i] : 1));
  }
  HR_ASSERT(odd > 0 && odd < count / 2);
  free(e.values);
  free(e.sizes);
  op_case_free(&t);
  op_case_end(&t);
  hr_thread_count_set(0);
}

HR_TEST(winograd_keeps_gradients_that_are_not_finite_where_they_are) {
  cases_begin(&hr__winograd_weights_provider);
  for (int threads = 1; threads <= 3; ++threads) {
    for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
      check_odd((image_layout)layout, threads, change_gradients);
      check_odd((image_layout)layout, threads, change_inputs);
    }
  }
}

/* ---- memory ---- */

HR_TEST(winograd_reports_memory_for_gradients_that_is_out) {
  cases_begin(&hr__winograd_weights_provider);
  op_case t = gradient_case(&shapes[0], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_check_memory(&t);
}
