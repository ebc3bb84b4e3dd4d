/* The providers' alternative algorithms (provider.h) against plain loops in double precision (provider_cases.h). */
#include "base/thread.h"
#include "provider_cases.h"

/* Checks all algorithms of a node; adds up which of them exist. */
static void check_algorithms(op_case t, int *taken) {
  for (int algorithm = 0; t.provider->algorithms[algorithm] != NULL; ++algorithm) {
    op_case copy = t;
    taken[algorithm] += op_case_check_algorithm(&copy, algorithm + 1);
  }
}

/* Returns the number of nodes. */
static int check_windows(const hr_provider *provider, const window *list, size_t count, int layouts, hr_op op,
                         bool channels_last, int *taken) {
  int nodes = 0;
  for (size_t i = 0; i < count; ++i) {
    for (int turn = 0; turn < layouts; ++turn) {
      if (!hr_test_takes((int64_t)i + turn)) {
        continue;
      }
      image_layout x = channels_last ? IMAGE_CHANNELS_LAST : (image_layout)turn;
      image_layout y = channels_last ? IMAGE_CHANNELS_LAST : (image_layout)random_below(IMAGE_LAYOUTS);
      bool is_weight = op == HR_OP_CONV_BACKWARD_WEIGHT;
      image_layout w = (image_layout)(is_weight || !channels_last ? random_below(IMAGE_LAYOUTS) : IMAGE_DENSE);
      op_case t = window_case(op, &list[i], HR_DTYPE_F32, x, w, y, !is_weight && random_below(2) == 0);
      t.provider = provider;
      t.writes_weights = !is_weight && random_below(2) == 0;
      check_algorithms(t, taken);
      ++nodes;
    }
  }
  return nodes;
}

HR_TEST(onednn_convolves_in_every_algorithm) {
  cases_begin(&hr__onednn_provider);
  int taken[3] = {0};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
    check_windows(&hr__onednn_provider, windows, WINDOWS, 2, op, false, taken);
    check_windows(&hr__onednn_provider, windows, WINDOWS, 2, op, true, taken);
  }
  HR_ASSERT(taken[0] > 0 && taken[1] > 0); /* direct, product */
}

HR_TEST(onednn_multiplies_in_every_algorithm) {
  cases_begin(&hr__onednn_provider);
  int taken[3] = {0};
  const product sizes[] = {{0, {0}, 64, 48, 96}, {1, {3}, 40, 70, 50}, {0, {0}, 2, 64, 900}, {2, {2, 3}, 20, 64, 65}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        op_case t =
            product_case(&hr__onednn_provider, &sizes[i], HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                         (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)random_below(BIAS_VECTOR + 1));
        t.writes_weights = random_below(2) == 0;
        if (t.writes_weights && b >= MATRIX_OUTPUTS) {
          continue; /* outputs may not have overlapping elements */
        }
        check_algorithms(t, taken);
      }
    }
  }
  HR_ASSERT(taken[2] > 0 || hr_thread_count() == 1); /* threads */
}

/* ---- gradients of weights ---- */

#define WINDOW(batch, in, out, h, w, kh, kw, ph, pw, sh, sw)      \
  {                                                               \
    2, batch, in, out, 1, {h, w}, {kh, kw}, {sh, sw}, {ph, pw}, { \
      1, 1                                                        \
    }                                                             \
  }

static const window gradient_windows[] = {
    WINDOW(2, 20, 50, 9, 7, 5, 5, 2, 2, 1, 1),  WINDOW(3, 1, 20, 9, 8, 5, 5, 2, 2, 1, 1),
    WINDOW(2, 64, 64, 6, 5, 1, 1, 0, 0, 1, 1),  WINDOW(2, 3, 17, 12, 13, 7, 7, 3, 3, 2, 2),
    WINDOW(2, 16, 8, 7, 6, 1, 1, 0, 0, 2, 2),   WINDOW(1, 65, 9, 5, 4, 3, 3, 1, 1, 2, 1),
    WINDOW(1, 4, 8, 1, 1, 1, 1, 0, 0, 1, 1),    WINDOW(2, 5, 11, 4, 150, 3, 3, 0, 1, 1, 1),
    WINDOW(3, 7, 13, 3, 3, 3, 3, 4, 3, 1, 1),   WINDOW(2, 70, 10, 8, 1, 2, 1, 1, 0, 1, 1),
    WINDOW(30, 33, 26, 7, 7, 3, 3, 1, 1, 1, 1), WINDOW(2, 100, 23, 4, 6, 4, 6, 0, 0, 1, 1),
    WINDOW(1, 17, 300, 3, 5, 1, 1, 0, 0, 1, 1), WINDOW(3, 192, 27, 5, 6, 3, 3, 1, 1, 1, 1),
    WINDOW(2, 12, 14, 9, 9, 2, 3, 0, 0, 3, 4),
};
enum { GRADIENT_WINDOWS = sizeof gradient_windows / sizeof *gradient_windows };

HR_TEST(gradients_gives_the_gradient_of_weights) {
  cases_begin(&hr__gradients_provider);
  int taken[1] = {0}, others[1] = {0};
  int nodes = check_windows(&hr__gradients_provider, gradient_windows, GRADIENT_WINDOWS, IMAGE_LAYOUTS,
                            HR_OP_CONV_BACKWARD_WEIGHT, true, taken);
  HR_ASSERT_EQ(taken[0], nodes);
  check_windows(&hr__gradients_provider, windows, WINDOWS, IMAGE_LAYOUTS, HR_OP_CONV_BACKWARD_WEIGHT, false, others);
  check_windows(&hr__gradients_provider, gradient_windows, GRADIENT_WINDOWS, IMAGE_LAYOUTS, HR_OP_CONV, true,
                others + 0);
}

/* The gradient with this many threads and these layouts of x, weights and y; `infinite`: with an infinite gradient in
 * the last corner.
 */
static float *gradient_bits(const window *q, const image_layout layouts[3], int threads, bool infinite) {
  hr_thread_count_set(threads);
  op_case t = window_case(HR_OP_CONV_BACKWARD_WEIGHT, q, HR_DTYPE_F32, layouts[0], layouts[1], layouts[2], false);
  t.provider = &hr__gradients_provider;
  t.algorithm = 1;
  random_state = 11;
  op_case_begin(&t);
  if (infinite) {
    write_element(&t.tensors[1], tensor_at(&t.tensors[1], tensor_count(&t.tensors[1]) - 1), INFINITY);
  }
  hr_thread_count_set(threads + 2); /* more than it was prepared for */
  float *bits = op_case_run_once(&t);
  hr_thread_count_set(0);
  return bits;
}

static const image_layout channels_last[3] = {IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST};

HR_TEST(gradients_gives_the_same_bits_with_any_threads_and_layout) {
  cases_begin(&hr__gradients_provider);
  for (int i = 0; i < GRADIENT_WINDOWS; ++i) {
    const window *q = &gradient_windows[i];
    size_t bytes = (size_t)(q->in * q->out * q->kernel[0] * q->kernel[1]) * sizeof(float);
    float *one = gradient_bits(q, channels_last, 1, false);
    for (int threads = 1; threads <= 7; threads += 2) {
      image_layout layouts[3];
      for (int operand = 0; operand < 3; ++operand) {
        layouts[operand] = (image_layout)random_below(IMAGE_LAYOUTS);
      }
      float *other = gradient_bits(q, layouts, threads, false);
      HR_ASSERT(memcmp(one, other, bytes) == 0);
      free(other);
    }
    free(one);
  }
}

/* The last pixel's window of 3 x 3 lacks its last row and column. */
HR_TEST(gradients_skips_elements_outside_of_the_image) {
  cases_begin(&hr__gradients_provider);
  const window q = WINDOW(2, 5, 9, 4, 6, 3, 3, 1, 1, 1, 1);
  float *w = gradient_bits(&q, channels_last, 2, true);
  for (int64_t i = 0; i < 9 * 5 * 9; ++i) {
    bool is_infinite = i / 45 == 8 && i / 3 % 3 < 2 && i % 3 < 2;
    HR_ASSERT_EQ(isfinite(w[i]) != 0, !is_infinite);
  }
  free(w);
}

/* Nodes that are supported without measurement, with the provider's own algorithm. */
HR_TEST(gradients_takes_windows_in_steps) {
  cases_begin(&hr__gradients_provider);
  const window taken[] = {WINDOW(2, 128, 40, 9, 8, 3, 3, 1, 1, 2, 2), WINDOW(1, 64, 100, 7, 7, 3, 2, 1, 1, 2, 3)};
  const window left[] = {WINDOW(2, 128, 40, 9, 8, 3, 3, 1, 1, 1, 1), WINDOW(2, 96, 40, 9, 8, 3, 3, 1, 1, 2, 2),
                         WINDOW(2, 128, 40, 9, 8, 1, 1, 0, 0, 2, 2), WINDOW(2, 128, 7, 9, 8, 3, 3, 1, 1, 2, 2)};
  for (size_t i = 0; i < sizeof taken / sizeof *taken + sizeof left / sizeof *left; ++i) {
    bool is_taken = i < sizeof taken / sizeof *taken;
    op_case t = window_case(HR_OP_CONV_BACKWARD_WEIGHT, is_taken ? &taken[i] : &left[i - sizeof taken / sizeof *taken],
                            HR_DTYPE_F32, (image_layout)random_below(IMAGE_LAYOUTS), IMAGE_DENSE,
                            (image_layout)random_below(IMAGE_LAYOUTS), false);
    t.provider = &hr__gradients_provider;
    HR_ASSERT_EQ(op_case_check(&t), is_taken);
    HR_ASSERT(!is_taken || !op_case_check_algorithm(&t, 1)); /* there is no second one */
  }
}

HR_TEST(gradients_leaves_other_dtypes_to_others) {
  cases_begin(&hr__gradients_provider);
  const window q = WINDOW(2, 5, 9, 4, 6, 3, 3, 1, 1, 1, 1);
  op_case t = window_case(HR_OP_CONV_BACKWARD_WEIGHT, &q, HR_DTYPE_BF16, IMAGE_CHANNELS_LAST, IMAGE_DENSE,
                          IMAGE_CHANNELS_LAST, false);
  t.provider = &hr__gradients_provider;
  HR_ASSERT(!op_case_check_algorithm(&t, 1));
}

HR_TEST(gradients_reports_memory_that_is_out) {
  cases_begin(&hr__gradients_provider);
  op_case t = window_case(HR_OP_CONV_BACKWARD_WEIGHT, &gradient_windows[0], HR_DTYPE_F32, IMAGE_CHANNELS_LAST,
                          IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
  t.provider = &hr__gradients_provider;
  t.algorithm = 1;
  op_case_check_memory(&t);
}
