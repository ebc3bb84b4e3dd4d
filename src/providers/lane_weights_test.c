/* Gradients of weights with images in lanes (providers/batch_lanes/lane_weights.c) against plain loops in double
 * precision (provider_cases.h): every layout, ragged batches, tails of channels, borders, the size of the error, and
 * numbers that are not finite.
 */
#include "base/thread.h"
#include "provider_cases.h"

#define WINDOW(batch, in, out, h, w, kh, kw, ph, pw)            \
  {                                                             \
    2, batch, in, out, 1, {h, w}, {kh, kw}, {1, 1}, {ph, pw}, { \
      1, 1                                                      \
    }                                                           \
  }

/* Several have parts of rows or channels that are transposed one after the other, the last five have tiles. */
static const window shapes[] = {
    WINDOW(64, 20, 50, 4, 3, 5, 5, 2, 2),
    WINDOW(17, 1, 20, 9, 8, 5, 5, 2, 2),
    WINDOW(3, 1, 7, 2, 3, 5, 4, 3, 2),
    WINDOW(5, 1, 6, 6, 1, 3, 5, 1, 2),
    WINDOW(16, 3, 17, 6, 7, 3, 3, 0, 1),
    WINDOW(48, 17, 3, 5, 9, 1, 1, 0, 0),
    WINDOW(16, 50, 100, 2, 3, 5, 5, 2, 2),
    WINDOW(1, 1, 1, 1, 1, 1, 1, 0, 0),
    WINDOW(65, 4, 1, 5, 4, 3, 2, 1, 0),
    WINDOW(130, 2, 6, 4, 5, 2, 3, 1, 2),
    WINDOW(20, 1, 11, 9, 8, 7, 7, 6, 3),
    WINDOW(33, 9, 8, 15, 14, 5, 5, 0, 4),
    WINDOW(2, 40, 12, 41, 20, 3, 3, 1, 1),
    WINDOW(2, 6, 70, 5, 150, 2, 5, 1, 2),
    WINDOW(4, 2, 3, 3, 3, 3, 3, 5, 4),
    {2, 20, 6, 10, 1, {8, 9}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {1, 1}},
    {2, 18, 1, 10, 1, {8, 9}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {2, 1}},
    WINDOW(3, 20, 20, 14, 14, 5, 5, 2, 2),
    WINDOW(2, 19, 25, 41, 20, 5, 5, 2, 2),
    WINDOW(2, 30, 31, 15, 22, 5, 5, 3, 1),
    WINDOW(1, 25, 16, 17, 16, 5, 5, 0, 0),
    {2, 5, 24, 30, 1, {15, 14}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {1, 2}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static op_case gradient_case(const window *q, hr_dtype dtype, image_layout x, image_layout w, image_layout y) {
  op_case t = window_case(HR_OP_CONV_BACKWARD_WEIGHT, q, dtype, x, w, y, false);
  t.provider = &hr__batch_lane_weights_provider;
  return t;
}

/* Also small ones, which the provider normally rejects because they don't pay. */
HR_TEST(lanes_give_the_gradient_of_weights) {
  cases_begin(&hr__batch_lane_weights_provider);
  for (int i = 0; i < SHAPES; ++i) {
    for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
      if (!hr_test_takes(i + layout)) {
        continue;
      }
      image_layout other = (image_layout)random_below(IMAGE_LAYOUTS);
      op_case t = gradient_case(&shapes[i], HR_DTYPE_F32, layout % 2 == 0 ? (image_layout)layout : other, IMAGE_DENSE,
                                layout % 2 == 0 ? other : (image_layout)layout);
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

HR_TEST(lanes_take_gradients_that_pay) {
  cases_begin(&hr__batch_lane_weights_provider);
  static const window taken[] = {WINDOW(512, 20, 50, 14, 14, 5, 5, 2, 2),
                                 WINDOW(512, 50, 100, 7, 7, 5, 5, 2, 2),
                                 WINDOW(32, 10, 20, 12, 12, 5, 5, 0, 0),
                                 {2, 512, 50, 100, 1, {7, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {1, 1}}};
  static const window left[] = {WINDOW(2, 20, 50, 14, 14, 5, 5, 2, 2),
                                WINDOW(128, 32, 32, 14, 14, 5, 5, 2, 2),
                                WINDOW(64, 64, 64, 16, 16, 3, 3, 1, 1),
                                WINDOW(128, 3, 32, 32, 32, 3, 3, 1, 1),
                                WINDOW(512, 50, 100, 7, 7, 1, 1, 0, 0),
                                {2, 512, 20, 50, 1, {14, 14}, {5, 5}, {2, 2}, {2, 2}, {1, 1}},
                                {2, 512, 20, 50, 1, {14, 14}, {5, 5}, {1, 1}, {2, 2}, {1, 2}},
                                {2, 512, 40, 100, 2, {14, 14}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                                {1, 512, 20, 50, 1, {196}, {5}, {1}, {2}, {1}}};
  for (size_t i = 0; i < sizeof taken / sizeof *taken; ++i) {
    HR_ASSERT(is_taken(&taken[i], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
    HR_ASSERT(is_taken(&taken[i], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_SWAPPED)); /* the choice is the shape's alone */
    HR_ASSERT(!is_taken(&taken[i], HR_DTYPE_BF16, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
  }
  for (size_t i = 0; i < sizeof left / sizeof *left; ++i) {
    HR_ASSERT(!is_taken(&left[i], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_CHANNELS_LAST));
  }
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    op_case t = window_case(op, &taken[0], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
    t.provider = &hr__batch_lane_weights_provider;
    HR_ASSERT(!op_case_is_taken(&t));
  }
}

/* ---- bits ---- */

/* With 65 threads the window's rows are divided, too. */
HR_TEST(lanes_give_gradients_the_same_bits_with_any_threads_and_layout) {
  cases_begin(&hr__batch_lane_weights_provider);
  static const int counts[] = {1, 2, 3, 8, 65};
  for (int i = 0; i < SHAPES; ++i) {
    const window *q = &shapes[i];
    size_t bytes = (size_t)(q->in * q->out * q->kernel[0] * q->kernel[1]) * sizeof(float);
    float *one = NULL;
    for (int turn = 0; turn < (int)(sizeof counts / sizeof *counts); ++turn) {
      image_layout layout = (image_layout)((turn + i) % IMAGE_BROADCAST);
      hr_thread_count_set(counts[turn]);
      op_case t = gradient_case(q, HR_DTYPE_F32, turn % 2 == 0 ? IMAGE_CHANNELS_LAST : layout, IMAGE_DENSE, layout);
      random_state = 11;
      op_case_begin(&t);
      hr_thread_count_set(2); /* others than it was prepared for */
      float *bits = op_case_run_once(&t);
      one = one != NULL ? one : bits;
      HR_ASSERT(memcmp(one, bits, bytes) == 0);
      if (bits != one) {
        free(bits);
      }
    }
    free(one);
    hr_thread_count_set(0);
  }
}

/* ---- numbers ---- */

/* Errors against double precision are within those of sums in order. */
HR_TEST(lanes_give_gradients_as_exact_as_sums) {
  cases_begin(&hr__batch_lane_weights_provider);
  const window q = WINDOW(9, 20, 20, 14, 14, 5, 5, 2, 2); /* tiles */
  op_case t = gradient_case(&q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_begin(&t);
  op_case_run(&t);
  const tensor *x = &t.tensors[0], *y = &t.tensors[1], *w = &t.tensors[2];
  double own = 0, direct = 0;
  for (int64_t i = 0; i < tensor_count(w); ++i) {
    double exact = 0;
    float sum = 0;
    for (int64_t pixel = 0; pixel < 9 * 196; ++pixel) {
      int64_t image = pixel / 196, row = pixel % 196 / 14 + i % 25 / 5 - 2, column = pixel % 14 + i % 5 - 2;
      if (row >= 0 && row < 14 && column >= 0 && column < 14) {
        double a = read_element(x, tensor_at(x, ((image * 20 + i / 25 % 20) * 14 + row) * 14 + column));
        double b = read_element(y, tensor_at(y, (image * 20 + i / 500) * 196 + pixel % 196));
        exact += a * b;
        sum = fmaf((float)a, (float)b, sum);
      }
    }
    double error = read_element(w, tensor_at(w, i)) - exact;
    own += error * error, direct += (sum - exact) * (sum - exact);
  }
  HR_ASSERT(own > 0 && own <= direct);
  op_case_free(&t);
  op_case_end(&t);
}

/* Large: numbers whose differences overflow although their sums of products do not. Else, dy has infinities in a
 * corner, whose windows lack rows and columns, and NaN in another image; x an infinity. */
static void check_odd(const window *q, image_layout layout, int threads, bool is_large) {
  hr_thread_count_set(threads);
  op_case t = gradient_case(q, HR_DTYPE_F32, layout, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_begin(&t);
  const tensor *y = &t.tensors[1], *x = &t.tensors[0], *w = op_case_output(&t);
  int64_t plane = q->dims[0] * q->dims[1], count = tensor_count(w), odd = 0;
  if (is_large) {
    tensor_put(x, 17, 1.7e38), tensor_put(x, 19, -1.7e38);
  } else {
    tensor_put(y, tensor_count(y) - 1, INFINITY);
    tensor_put(y, 2 * plane, -INFINITY), tensor_put(y, 4 * plane + 9, NAN);
    tensor_put(x, 0, INFINITY);
  }
  op_case_run(&t);
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
  HR_ASSERT(is_large ? odd == 0 : odd > 0 && odd < count);
  free(e.values);
  free(e.sizes);
  op_case_free(&t);
  op_case_end(&t);
  hr_thread_count_set(0);
}

HR_TEST(lanes_keep_gradients_that_are_not_finite_where_they_are) {
  cases_begin(&hr__batch_lane_weights_provider);
  static const window all[] = {WINDOW(18, 6, 9, 7, 6, 5, 5, 2, 2), WINDOW(18, 1, 9, 7, 6, 5, 5, 2, 2),
                               WINDOW(3, 20, 20, 14, 14, 5, 5, 2, 2)};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    for (int layout = 0; layout < IMAGE_BROADCAST; ++layout) {
      check_odd(&all[i], (image_layout)layout, 1 + layout % 3, false);
      check_odd(&all[i], (image_layout)layout, 1 + layout % 2, true);
    }
  }
}

/* ---- memory ---- */

HR_TEST(lanes_report_memory_for_gradients_that_is_out) {
  cases_begin(&hr__batch_lane_weights_provider);
  op_case t = gradient_case(&shapes[0], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_check_memory(&t);
}
