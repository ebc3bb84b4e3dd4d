/* Winograd's gradients of weights (providers/winograd/weights.c) against plain loops in double precision
 * (provider_cases.h): every layout, odd sizes, tails of channels, borders, the size of the error, and numbers that are
 * not finite.
 */
#include "weight_cases.h"

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

static const hr_provider *const provider = &hr__winograd_weights_provider;

/* Also small ones, which the provider normally rejects because they don't pay. */
HR_TEST(winograd_gives_the_gradient_of_weights) {
  cases_begin(provider);
  op_case_rounding = 3e-4; /* a tap is rounded with the others of its channels, which shows if it has only one term */
  for (int i = 0; i < SHAPES; ++i) {
    for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
      if (!hr_test_takes(i + layout)) {
        continue;
      }
      op_case t = weight_case(provider, &shapes[i], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, (image_layout)layout,
                              IMAGE_CHANNELS_LAST);
      op_case_node(&t);
      op_case_check_node(&t);
    }
  }
}

/* ---- supported convolutions ---- */

HR_TEST(winograd_takes_gradients_that_pay) {
  cases_begin(provider);
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
  weights_check_taken(provider, taken, sizeof taken / sizeof *taken);
  weights_check_left(provider, left, sizeof left / sizeof *left);
}

/* ---- bits ---- */

HR_TEST(winograd_gives_gradients_the_same_bits_with_any_threads_and_layout) {
  cases_begin(provider);
  static const int threads[] = {1, 3, 5, 7, 9};
  for (int i = 0; i < SHAPES; ++i) {
    weights_check_bits(provider, &shapes[i], threads, sizeof threads / sizeof *threads, i);
  }
}

/* ---- numbers ---- */

/* Errors against double precision are within twice those of sums in order. */
HR_TEST(winograd_gives_gradients_about_as_exact_as_sums) {
  cases_begin(provider);
  const window q = WINDOW(2, 20, 18, 14, 14, 1, 1);
  weights_check_errors(provider, &q, 4);
}

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

HR_TEST(winograd_keeps_gradients_that_are_not_finite_where_they_are) {
  static const window q = WINDOW(2, 20, 18, 7, 6, 1, 1);
  cases_begin(provider);
  for (int threads = 1; threads <= 3; ++threads) {
    for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
      weights_check_odd(provider, &q, (image_layout)layout, threads, change_gradients, true);
      weights_check_odd(provider, &q, (image_layout)layout, threads, change_inputs, true);
    }
  }
}

/* ---- memory ---- */

HR_TEST(winograd_reports_memory_for_gradients_that_is_out) {
  cases_begin(provider);
  op_case t = weight_case(provider, &shapes[0], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_check_memory(&t);
}
