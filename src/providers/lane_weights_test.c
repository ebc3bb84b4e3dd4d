/* Gradients of weights with images in lanes (providers/batch_lanes/lane_weights.c) against plain loops in double
 * precision (provider_cases.h): every layout, ragged batches, tails of channels, borders, the size of the error, and
 * numbers that are not finite.
 */
#include "weight_cases.h"

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

static const hr_provider *const provider = &hr__batch_lane_weights_provider;

/* Also small ones, which the provider normally rejects because they don't pay. */
HR_TEST(lanes_give_the_gradient_of_weights) {
  cases_begin(provider);
  for (int i = 0; i < SHAPES; ++i) {
    for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
      if (!hr_test_takes(i + layout)) {
        continue;
      }
      image_layout other = (image_layout)random_below(IMAGE_LAYOUTS);
      op_case t =
          weight_case(provider, &shapes[i], HR_DTYPE_F32, layout % 2 == 0 ? (image_layout)layout : other,
                      (image_layout)random_below(IMAGE_LAYOUTS), layout % 2 == 0 ? other : (image_layout)layout);
      op_case_node(&t);
      op_case_check_node(&t);
    }
  }
}

/* ---- supported convolutions ---- */

HR_TEST(lanes_take_gradients_that_pay) {
  cases_begin(provider);
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
  weights_check_taken(provider, taken, sizeof taken / sizeof *taken);
  weights_check_left(provider, left, sizeof left / sizeof *left);
}

/* ---- bits ---- */

/* With 65 threads the window's rows are divided, too. */
HR_TEST(lanes_give_gradients_the_same_bits_with_any_threads_and_layout) {
  cases_begin(provider);
  static const int threads[] = {1, 2, 3, 8, 65};
  for (int i = 0; i < SHAPES; ++i) {
    weights_check_bits(provider, &shapes[i], threads, sizeof threads / sizeof *threads, i);
  }
}

/* ---- numbers ---- */

/* Errors against double precision are within those of sums in order. */
HR_TEST(lanes_give_gradients_as_exact_as_sums) {
  cases_begin(provider);
  const window q = WINDOW(9, 20, 20, 14, 14, 5, 5, 2, 2); /* tiles */
  weights_check_errors(provider, &q, 1);
}

/* Numbers whose differences overflow although their sums of products do not. */
static void make_large(op_case *t) {
  tensor_put(&t->tensors[0], 17, 1.7e38), tensor_put(&t->tensors[0], 19, -1.7e38);
}

/* Infinities in a corner of dy, whose windows lack rows and columns, NaN in another image, an infinity in x. */
static void make_odd(op_case *t) {
  const tensor *x = &t->tensors[0], *y = &t->tensors[1];
  int64_t plane = x->dims[2] * x->dims[3];
  tensor_put(y, tensor_count(y) - 1, INFINITY);
  tensor_put(y, 2 * plane, -INFINITY), tensor_put(y, 4 * plane + 9, NAN);
  tensor_put(x, 0, INFINITY);
}

HR_TEST(lanes_keep_gradients_that_are_not_finite_where_they_are) {
  cases_begin(provider);
  static const window all[] = {WINDOW(18, 6, 9, 7, 6, 5, 5, 2, 2), WINDOW(18, 1, 9, 7, 6, 5, 5, 2, 2),
                               WINDOW(3, 20, 20, 14, 14, 5, 5, 2, 2)};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    for (int layout = 0; layout < IMAGE_BROADCAST; ++layout) {
      weights_check_odd(provider, &all[i], (image_layout)layout, 1 + layout % 3, make_odd, true);
      weights_check_odd(provider, &all[i], (image_layout)layout, 1 + layout % 2, make_large, false);
    }
  }
}

/* ---- memory ---- */

HR_TEST(lanes_report_memory_for_gradients_that_is_out) {
  cases_begin(provider);
  op_case t = weight_case(provider, &shapes[0], HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST);
  op_case_check_memory(&t);
}
