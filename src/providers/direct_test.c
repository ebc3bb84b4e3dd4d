/* Direct convolutions and their gradients (providers/direct) against plain loops in double precision
 * (provider_cases.h): every window and layout, several panels and blocks, borders, cached weights, the same bits for
 * any threads and layout, and numbers that are not finite.
 */
#include "base/thread.h"
#include "provider_cases.h"
#include "runtime/cached_weights.h"

/* Many narrow images; tails of lines, panels of several widths, blocks of rows, strips, columns outside of the image on
 * both sides; phases without taps. */
static const window shapes[] = {
    {2, 19, 20, 40, 1, {4, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 50, 7, 70, 1, {3, 2}, {4, 4}, {1, 2}, {2, 1}, {1, 1}},
    {2, 1, 16, 16, 1, {40, 53}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 2, 3, 16, 1, {21, 50}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 33, 80, 1, {9, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 20, 144, 1, {5, 7}, {3, 2}, {1, 1}, {1, 2}, {1, 1}},
    {2, 2, 64, 32, 1, {18, 11}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {2, 1, 17, 49, 1, {23, 19}, {4, 5}, {2, 3}, {3, 2}, {1, 1}},
    {2, 1, 5, 18, 1, {19, 17}, {3, 3}, {1, 1}, {2, 4}, {2, 4}},
    {2, 1, 9, 7, 1, {15, 16}, {2, 2}, {5, 4}, {1, 0}, {1, 1}},
    {2, 3, 16, 2, 1, {18, 33}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 1, 2, 16, 1, {18, 33}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {2, 1, 4, 3, 1, {2, 2}, {5, 5}, {1, 1}, {4, 4}, {1, 1}},
    {2, 1, 3, 4, 1, {1, 1}, {3, 3}, {1, 1}, {2, 2}, {1, 1}},
    {1, 2, 24, 40, 1, {130}, {7}, {1}, {3}, {1}},
    {1, 1, 8, 4, 1, {61}, {3}, {2}, {1}, {1}},
    {1, 70, 6, 20, 1, {8}, {3}, {1}, {2}, {2}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const hr_provider *provider_of(hr_op op) {
  return op == HR_OP_CONV_BACKWARD_WEIGHT ? &hr__direct_weights_provider : &hr__direct_provider;
}

static op_case direct_case(hr_op op, const window *q, image_layout x, image_layout w, image_layout y, bool has_bias) {
  op_case t = window_case(op, q, HR_DTYPE_F32, x, w, y, has_bias && op != HR_OP_CONV_BACKWARD_WEIGHT);
  t.provider = provider_of(op);
  t.writes_weights = op != HR_OP_CONV_BACKWARD_WEIGHT && random_below(2) == 0;
  return t;
}

/* True for shapes that the providers refuse, whatever their size. */
static bool is_foreign(hr_op op, const window *q) {
  bool is = q->groups > 1 || q->spatial > 2;
  for (int d = 0; d < q->spatial; ++d) {
    is |= op == HR_OP_CONV_BACKWARD_DATA && q->stride[d] > 1 && q->dilation[d] > 1;
  }
  return is;
}

static void check_shape(hr_op op, const window *q, int number) {
  for (int turn = 0; turn < 3 * IMAGE_LAYOUTS; ++turn) {
    image_layout layouts[3];
    for (int operand = 0; operand < 3; ++operand) {
      layouts[operand] =
          (image_layout)(turn / IMAGE_LAYOUTS == operand ? turn % IMAGE_LAYOUTS : random_below(IMAGE_LAYOUTS));
    }
    op_case t = direct_case(op, q, layouts[0], layouts[1], layouts[2], turn % 2 == 0);
    if (!hr_test_takes(number + turn)) {
      continue;
    }
    if (is_foreign(op, q)) {
      HR_ASSERT(!op_case_is_taken(&t));
    } else {
      op_case_must_pass(&t);
    }
  }
}

static void check_shapes(hr_op op) {
  cases_begin(provider_of(op));
  for (int i = 0; i < WINDOWS; ++i) {
    check_shape(op, &windows[i], i);
  }
  for (int i = 0; i < SHAPES; ++i) {
    check_shape(op, &shapes[i], i);
  }
  for (int i = 0; i < UNEVEN_WINDOWS; ++i) {
    check_shape(op, &uneven_windows[i], i);
  }
}

HR_TEST(direct_convolves) {
  check_shapes(HR_OP_CONV);
}
HR_TEST(direct_gives_the_gradient_of_data) {
  check_shapes(HR_OP_CONV_BACKWARD_DATA);
}
HR_TEST(direct_gives_the_gradient_of_weights) {
  check_shapes(HR_OP_CONV_BACKWARD_WEIGHT);
}

HR_TEST(direct_convolves_one_image_for_all) {
  cases_begin(&hr__direct_provider);
  for (int i = 0; i < SHAPES; ++i) {
    op_case forward = direct_case(HR_OP_CONV, &shapes[i], IMAGE_BROADCAST, IMAGE_DENSE, IMAGE_DENSE, true);
    op_case weight =
        direct_case(HR_OP_CONV_BACKWARD_WEIGHT, &shapes[i], IMAGE_DENSE, IMAGE_DENSE, IMAGE_BROADCAST, false);
    op_case_must_pass(&forward);
    op_case_must_pass(&weight);
  }
}

/* ---- supported convolutions ---- */

HR_TEST(direct_takes_small_convolutions) {
  cases_begin(&hr__direct_provider);
  cases_begin(&hr__direct_weights_provider);
  static const window taken[] = {{2, 1, 16, 16, 1, {160, 160}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 {2, 1, 3, 32, 1, {56, 56}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},
                                 {2, 1, 64, 32, 1, {40, 40}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
                                 {2, 12, 32, 64, 1, {24, 24}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                 {2, 12, 64, 128, 1, {12, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}};
  static const window left[] = {{2, 24, 32, 64, 1, {24, 24}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                {2, 1, 512, 512, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                {2, 1, 64, 256, 1, {56, 56}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                {2, 64, 16, 16, 1, {56, 56}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}};
  for (int layout = 0; layout < 2; ++layout) { /* for any layout: the choice depends on the shape alone */
    for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      for (size_t i = 0; i < sizeof taken / sizeof *taken; ++i) {
        op_case t = direct_case(op, &taken[i], (image_layout)layout, IMAGE_DENSE, (image_layout)layout, false);
        HR_ASSERT(op_case_is_taken(&t));
      }
      for (size_t i = 0; i < sizeof left / sizeof *left; ++i) {
        op_case t = direct_case(op, &left[i], (image_layout)layout, IMAGE_DENSE, (image_layout)layout, false);
        HR_ASSERT(!op_case_is_taken(&t));
      }
    }
  }
  op_case t = window_case(HR_OP_CONV, &taken[0], HR_DTYPE_BF16, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  t.provider = &hr__direct_provider;
  HR_ASSERT(!op_case_is_taken(&t));
}

/* With windows of one row the gradient of the weights pays up to smaller ones. */
HR_TEST(direct_takes_windows_of_one_row) {
  cases_begin(&hr__direct_provider);
  cases_begin(&hr__direct_weights_provider);
  static const window rows[] = {{2, 16, 96, 96, 1, {1, 110}, {1, 3}, {1, 2}, {0, 1}, {1, 1}},
                                {2, 16, 96, 96, 1, {1, 120}, {1, 3}, {1, 2}, {0, 1}, {1, 1}}};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
    for (int i = 0; i < 2; ++i) {
      op_case t = direct_case(op, &rows[i], IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
      HR_ASSERT_EQ(op_case_is_taken(&t), i == 0 || op != HR_OP_CONV_BACKWARD_WEIGHT);
    }
  }
}

/* Many narrow images, for which the second cache holds more weights. */
HR_TEST(direct_takes_narrow_images_with_many_weights) {
  cases_begin(&hr__direct_provider);
  static const window taken[] = {{2, 128, 64, 128, 1, {4, 4}, {4, 4}, {2, 2}, {1, 1}, {1, 1}},
                                 {2, 16, 256, 256, 1, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}};
  static const window left[] = {{2, 15, 128, 128, 1, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                {2, 64, 128, 256, 1, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
                                {2, 64, 256, 512, 1, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                {2, 64, 64, 128, 1, {36, 36}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    for (size_t i = 0; i < sizeof taken / sizeof *taken + sizeof left / sizeof *left; ++i) {
      bool is_taken = i < sizeof taken / sizeof *taken;
      op_case t = direct_case(op, is_taken ? &taken[i] : &left[i - sizeof taken / sizeof *taken], IMAGE_CHANNELS_LAST,
                              IMAGE_DENSE, IMAGE_DENSE, false);
      HR_ASSERT_EQ(op_case_is_taken(&t), is_taken);
    }
  }
}

/* Of few operations, as for one image. */
HR_TEST(direct_takes_light_convolutions_for_good) {
  cases_begin(&hr__direct_provider);
  static const window light = {2, 1, 50, 100, 1, {7, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}};
  static const window left[] = {{2, 2, 50, 100, 1, {7, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}},
                                {2, 1, 200, 100, 1, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}};
  op_case t = direct_case(HR_OP_CONV, &light, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_DENSE, false);
  HR_ASSERT(op_case_is_taken(&t));
  op_case_begin(&t);
  HR_ASSERT(hr__direct_provider.is_settled(t.prepared));
  op_case_free(&t);
  op_case_end(&t);
  t = direct_case(HR_OP_CONV_BACKWARD_DATA, &light, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_DENSE, false);
  HR_ASSERT(!op_case_is_taken(&t));
  for (size_t i = 0; i < sizeof left / sizeof *left; ++i) {
    t = direct_case(HR_OP_CONV, &left[i], IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_DENSE, false);
    HR_ASSERT(!op_case_is_taken(&t));
  }
}

/* ---- bits ---- */

/* The result, with this layout and number of threads, after `runs` runs with one stamp of the weights. */
static float *bits_of(hr_op op, const window *q, image_layout layout, int threads, int runs) {
  static uint64_t stamp = 1000;
  hr_thread_count_set(threads);
  op_case t = direct_case(op, q, layout, IMAGE_DENSE, layout, true);
  random_state = 11;
  op_case_begin(&t);
  const uint64_t stamps[4] = {0, ++stamp, 0, 0};
  bool has_weights = t.provider->stamp != NULL;
  for (int run = 1; run <= runs; ++run) {
    if (has_weights) {
      t.provider->stamp(t.prepared, stamps);
    }
    if (run < runs) {
      op_case_run(&t);
    }
  }
  float *values = op_case_run_once(&t);
  HR_ASSERT_EQ(hr__cached_weights_bytes() > 0, has_weights && runs > 1);
  hr__cached_weights_forget(hr__context(), stamp);
  HR_ASSERT_EQ(hr__cached_weights_bytes(), 0);
  hr_thread_count_set(0);
  return values;
}

static int64_t count_of(hr_op op, const window *q) {
  op_case t = direct_case(op, q, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  return tensor_count(op_case_output(&t));
}

HR_TEST(direct_gives_the_same_bits_with_any_threads_layout_and_run) {
  cases_begin(&hr__direct_provider);
  for (int i = 0; i < 9; ++i) {
    for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      if (is_foreign(op, &shapes[i])) {
        continue;
      }
      size_t bytes = (size_t)count_of(op, &shapes[i]) * sizeof(float);
      float *one = bits_of(op, &shapes[i], IMAGE_CHANNELS_LAST, 1, 1);
      for (int turn = 0; turn < 2 * IMAGE_LAYOUTS; ++turn) {
        if (hr_test_takes(turn + i)) {
          float *other = bits_of(op, &shapes[i], (image_layout)(turn % IMAGE_LAYOUTS), 1 + turn % 5, turn % 3 + 1);
          HR_ASSERT(memcmp(one, other, bytes) == 0);
          free(other);
        }
      }
      free(one);
    }
  }
}

/* All images alike. */
static void fill_alike(op_case *t) {
  for (int i = 0; i < t->input_count; ++i) {
    const tensor *x = &t->tensors[i];
    int64_t count = tensor_count(x) / (i == 0 ? x->dims[0] : 1);
    for (int64_t k = 0; k < tensor_count(x); ++k) {
      tensor_put(x, k, (double)(k % count * 37 % 101 - 50) / 7);
    }
  }
}

static float *values_of_alike(hr_op op, const window *q) {
  op_case t = direct_case(op, q, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, true);
  op_case_begin(&t);
  fill_alike(&t);
  return op_case_run_once(&t);
}

/* Narrow images are summed together, one image is not. */
HR_TEST(direct_gives_images_the_same_bits_in_any_batch) {
  static const window many = {2, 40, 20, 70, 1, {4, 5}, {3, 4}, {2, 1}, {1, 2}, {1, 1}};
  window one = many;
  one.batch = 1;
  cases_begin(&hr__direct_provider);
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    float *alone = values_of_alike(op, &one), *together = values_of_alike(op, &many);
    int64_t count = count_of(op, &one);
    for (int64_t image = 0; image < many.batch; ++image) {
      HR_ASSERT(memcmp(alone, together + image * count, (size_t)count * sizeof *alone) == 0);
    }
    free(alone);
    free(together);
  }
}

/* Prepares one convolution, gives the call the numbers of the other, and expects the bits of one prepared for it. */
static void check_renumbered(op_case before, op_case t) {
  op_case_node(&before);
  op_case_prepare(&before);
  op_case_begin(&t);
  size_t workspace_bytes = t.workspace_bytes;
  op_case_run(&t);
  tensor *out = op_case_output(&t);
  size_t bytes = (size_t)out->length * sizeof(float);
  unsigned char *prepared = memcpy(malloc(bytes), out->bytes, bytes);
  t.provider->release(t.prepared);
  t.prepared = before.prepared;
  HR_ASSERT(t.provider->renumber(t.prepared, &t.program, &t.program.nodes[0], &t.workspace_bytes));
  HR_ASSERT_EQ(t.workspace_bytes, workspace_bytes);
  hr_program_fini(&before.program);
  memset(out->bytes, CANARY, bytes);
  op_case_run(&t);
  HR_ASSERT_BYTES_EQ(out->bytes, prepared, bytes);
  free(prepared);
  op_case_free(&t);
  op_case_end(&t);
}

HR_TEST(prepared_convolutions_get_new_numbers_in_place) {
  static const window q[] = {{2, 40, 64, 24, 1, {6, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                             {2, 3, 64, 24, 1, {9, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                             {2, 16, 64, 24, 1, {4, 19}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}};
  enum { COUNT = sizeof q / sizeof *q };
  const hr_provider *const providers[] = {&hr__direct_provider, &hr__direct_provider, &hr__direct_weights_provider,
                                          &hr__gradients_provider};
  for (int p = 0; p < 4; ++p) {
    cases_begin(providers[p]);
    hr_op op = p == 0 ? HR_OP_CONV : p == 1 ? HR_OP_CONV_BACKWARD_DATA : HR_OP_CONV_BACKWARD_WEIGHT;
    for (int i = 0; i < COUNT * COUNT; ++i) {
      image_layout layout = (image_layout)random_below(IMAGE_LAYOUTS);
      op_case before = direct_case(op, &q[i / COUNT], layout, IMAGE_DENSE, layout, true);
      op_case t = direct_case(op, &q[i % COUNT], layout, IMAGE_DENSE, layout, true);
      before.provider = t.provider = providers[p];
      check_renumbered(before, t);
    }
  }
}

/* ---- numbers ---- */

typedef void (*change_fn)(op_case *t);

/* Integers have exact sums. */
static void change_to_integers(op_case *t) {
  for (int i = 0; i < t->input_count; ++i) {
    for (int64_t k = 0; k < tensor_count(&t->tensors[i]); ++k) {
      tensor_put(&t->tensors[i], k, random_below(17) - 8);
    }
  }
}

/* In both factors: NaN in the last element, infinities at corners and inside. */
static void change_to_odd(op_case *t) {
  for (int i = 0; i < 2; ++i) {
    const tensor *x = &t->tensors[i];
    int64_t count = tensor_count(x);
    tensor_put(x, count - 1, i == 0 ? NAN : -INFINITY);
    tensor_put(x, 0, INFINITY);
    tensor_put(x, count / 2, i == 0 ? -INFINITY : INFINITY);
  }
}

/* Results are NaN and infinite exactly where those of plain loops are. */
static void check_numbers(hr_op op, const window *q, image_layout layout, change_fn change, double rounding) {
  op_case t = direct_case(op, q, layout, IMAGE_DENSE, layout, true);
  op_case_begin(&t);
  change(&t);
  op_case_run(&t);
  const tensor *out = op_case_output(&t);
  int64_t count = tensor_count(out);
  expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
  HR_ASSERT(e.values != NULL && e.sizes != NULL);
  evaluate(&t, &e);
  for (int64_t i = 0; i < count; ++i) {
    double actual = read_element(out, tensor_at(out, i)), wanted = e.values[i];
    if (isnan(wanted) || isinf(wanted)) {
      HR_ASSERT(isnan(wanted) ? isnan(actual) : actual == wanted);
    } else {
      HR_ASSERT(fabs(actual - wanted) <= rounding * (e.sizes[i] > 1 ? e.sizes[i] : 1));
    }
  }
  free(e.values);
  free(e.sizes);
  op_case_free(&t);
  op_case_end(&t);
}

HR_TEST(direct_is_exact_for_integers_and_keeps_what_is_not_finite_where_it_is) {
  cases_begin(&hr__direct_provider);
  for (int i = 0; i < SHAPES; ++i) {
    for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      image_layout layout = (image_layout)random_below(IMAGE_LAYOUTS);
      if (!is_foreign(op, &shapes[i])) {
        check_numbers(op, &shapes[i], layout, change_to_integers, 0);
        check_numbers(op, &shapes[i], layout, change_to_odd, 1e-5);
      }
    }
  }
}

/* ---- memory ---- */

HR_TEST(direct_reports_memory_that_is_out) {
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
    cases_begin(provider_of(op));
    op_case t = direct_case(op, &shapes[2], IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true);
    op_case_check_memory(&t);
  }
}
